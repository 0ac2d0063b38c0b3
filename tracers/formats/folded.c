// SPDX-License-Identifier: Apache-2.0
/*
 * Folded stacks: "comm;outermost;...;innermost NS", NS the time in the innermost without its callees.
 * The format has no place for anything else: what is known of the trace, and what was lost, is a line
 * that begins with "#" and ends with a dot, which flamegraph.pl and speedscope pass over.
 */
#include "tracers/formats/priv.h"
#include "tracers/profile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct folded {
	struct profile *profile;
	u32 next; /* stack, of the end */
	bool in_end;
};

static int create(struct export *x, struct err *err)
{
	struct folded *f = x->priv = calloc(1, sizeof(*f));

	if (f)
		f->profile = profile_create(true);
	return f && f->profile ? 0
			       : err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for an export");
}

static void destroy(struct export *x)
{
	struct folded *f = x->priv;

	if (f)
		profile_destroy(f->profile);
	free(f);
}

static void record(struct export *x, struct buf *b, const struct trace_record *r)
{
	struct folded *f = x->priv;

	(void)b;
	if (profile_add(f->profile, r, x->names))
		export_fail(x, -ENOMEM);
}

/* Of the event's call: its name in user space. */
static bool call_name(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	const struct syscall_event *e = arg;

	(void)addr;
	*ret = (struct kernel_sym){ .name = e->entry->name };
	*off_ret = 0;
	return true;
}

static void syscall_event(struct export *x, struct buf *b, const struct syscall_event *e)
{
	const struct output_names names = { .sym = call_name, .arg = (void *)(uintptr_t)e };
	struct folded *f = x->priv;
	struct trace_record r = { .type = TRACE_GRAPH_RETURN,
				  .ip = e->entry->addr,
				  .duration_ns = e->duration_ns,
				  .pid = e->pid,
				  .cpu = e->cpu };

	(void)b;
	memcpy(r.comm, e->comm, sizeof(r.comm));
	if (e->state != SYSCALL_NEVER && e->state != SYSCALL_UNFINISHED &&
	    profile_add(f->profile, &r, &names))
		export_fail(x, -ENOMEM);
}

static void lost(struct export *x, struct buf *b, u64 count)
{
	/* told at the end */
	(void)x;
	(void)b;
	(void)count;
}

static void put_head(const struct export *x, struct buf *b, const struct profile *p)
{
	struct profile_excess over;
	char time[40];

	buf_addf(b,
		 "# hvftrace %s: guest %.64s, Linux %.80s, %.32s, ns of the guest's trace "
		 "clock, started %s; %llu records, %llu lost.\n",
		 HVF_VERSION, x->meta.guest, x->meta.release, x->meta.tracer,
		 export_time(x->meta.started_ns, time), (unsigned long long)x->n_records,
		 (unsigned long long)x->n_lost);
	profile_excess(p, &over);
	if (over.unnamed || over.shortened)
		buf_addf(b,
			 "# %llu times a function was one too many and is " OUTPUT_SHARED_NAME
			 ", %llu times a stack, which counts as what it begins with.\n",
			 (unsigned long long)over.unnamed, (unsigned long long)over.shortened);
}

static bool end(struct export *x, struct buf *b)
{
	struct folded *f = x->priv;
	size_t before = b->len;

	if (!f->in_end)
		put_head(x, b, f->profile);
	f->in_end = true;
	while (b->len - before < 65536) {
		if (!profile_folded_next(f->profile, &f->next, b))
			return false;
	}
	return true;
}

const struct export_ops export_folded = {
	.create = create,
	.destroy = destroy,
	.record = record,
	.syscall = syscall_event,
	.lost = lost,
	.end = end,
};
