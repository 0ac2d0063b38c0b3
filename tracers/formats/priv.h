/* SPDX-License-Identifier: Apache-2.0 */
/* What the formats share. Private to tracers/formats/. */
#ifndef TRACERS_FORMATS_PRIV_H
#define TRACERS_FORMATS_PRIV_H

#include "tracers/formats/export.h"
#include "tracers/formats/spool.h"
#include "tracers/formats/tables.h"
#include "tracers/syscalls/event.h"

#include <errno.h>

struct sys_reader;

struct export_ops {
	must_check int (*create)(struct export *x,
				 struct err *err); /* sets x->priv, also on failure */
	void (*destroy)(struct export *x);
	void (*head)(struct export *x, struct buf *b); /* may be NULL */
	void (*record)(struct export *x, struct buf *b, const struct trace_record *r);
	void (*syscall)(struct export *x, struct buf *b, const struct syscall_event *e);
	void (*lost)(struct export *x, struct buf *b, u64 count);
	bool (*end)(struct export *x, struct buf *b); /* true: call again */
};

struct export
{
	const struct export_format *format;
	struct output_meta meta;
	struct export_opts opts;
	const struct output_names *names; /* during export_record() */
	struct sys_reader *sys; /* of the tracer syscalls */
	struct syms *syms;
	struct tasks *tasks;
	int failed; /* -errno, the first */
	u64 first_ns, last_ns; /* of the records; both 0 before the first */
	u64 n_records, n_lost; /* so far */
	u64 n_left_out; /* records of more tasks at a time than are followed, addresses beyond those that have a name */
	void *priv;
};

/* One visible list: formats.c makes the table of it. */
extern const struct export_ops export_chrome, export_perfetto, export_folded, export_speedscope,
	export_trace_dat, export_trace_dat_v7, export_ctf;

static inline void export_fail(struct export *x, int err)
{
	if (!x->failed)
		x->failed = err;
}

/** export_sym - the number of @addr in x->syms; 0 is a symbol that says there was no memory */
static inline u32 export_sym(struct export *x, u64 addr)
{
	u32 id = syms_get(x->syms, addr, x->names);

	if (!id)
		export_fail(x, -ENOMEM);
	x->n_left_out += syms_is_shared(x->syms, id);
	return id;
}

/** export_call_sym - as export_sym(), of a system call: its name in user space */
static inline u32 export_call_sym(struct export *x, const struct syscall_event *e)
{
	u32 id = syms_named(x->syms, e->entry->addr, e->entry->name);

	if (!id)
		export_fail(x, -ENOMEM);
	return id;
}

/** export_boot_ns - CLOCK_REALTIME when the guest's clock was 0; 0: not known */
static inline u64 export_boot_ns(const struct export *x)
{
	if (x->meta.boot_ns)
		return x->meta.boot_ns;
	/* the first record is about as old as the trace */
	return x->first_ns && x->first_ns <= x->meta.started_ns ? x->meta.started_ns - x->first_ns
								: 0;
}

/** export_task - the task of @r; NULL: too many, and it counts as left out */
struct task *export_task(struct export *x, const struct trace_record *r, unsigned *news_ret);

/** export_time - @ns of CLOCK_REALTIME as RFC 3339 in UTC; "unknown" for 0 */
const char *export_time(u64 ns, char buf[40]);

#endif
