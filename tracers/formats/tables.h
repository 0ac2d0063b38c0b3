/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbols and tasks that occurred in an export. Names are copied: the trace that knew them may be gone
 * by the time that a format writes them down. Private to tracers/formats/.
 */
#ifndef TRACERS_FORMATS_TABLES_H
#define TRACERS_FORMATS_TABLES_H

#include "tracers/formats/spool.h"
#include "tracers/output.h"

struct exp_sym {
	u64 addr; /* as it was asked for */
	u64 start, size_bytes; /* of the symbol around it; start is addr if there is none */
	const char *name; /* never NULL: an unknown one is its address */
	const char *module; /* NULL: the kernel's own, or unknown */
	const char *json; /* name, escaped, without quotes */
	u32 name_len, json_len;
	u32 when; /* of the names that it was asked of last */
	char type; /* kallsyms'; 0: unknown */
};

struct syms;

struct syms *syms_create(void); /* NULL: no memory */
void syms_destroy(struct syms *s);
/**
 * syms_get - the number of @addr, 1, 2, 3 ...; 0: no memory
 *
 * The same for the same address, for as long as what is there is the same. All that are beyond OUTPUT_ADDRS_MAX
 * have one number: OUTPUT_SHARED_NAME.
 */
u32 syms_get(struct syms *s, u64 addr, const struct output_names *names);
/** syms_named - as syms_get(), of something that has a name of its own */
u32 syms_named(struct syms *s, u64 addr, const char *name);
/** syms_start - as syms_get(), of the beginning of symbol @id */
u32 syms_start(struct syms *s, u32 id);
/** syms_is_latest - is @id what its address was last? */
bool syms_is_latest(const struct syms *s, u32 id);
/** syms_is_shared - is @id that of the addresses that there was no room for? */
bool syms_is_shared(const struct syms *s, u32 id);
u32 syms_count(const struct syms *s); /* the highest number */
/** syms_at - by number; valid until the next syms_get(); the strings as long as @s */
const struct exp_sym *syms_at(const struct syms *s, u32 id);

/* An open call. */
struct frame {
	u64 ip, ts_ns;
	u32 sym;
	u16 depth;
	char *args; /* text; NULL: none */
};

#define TASKS_MAX  262144u /* of one export; those beyond are left out, and counted */
#define FRAMES_MAX 256u /* open calls of one task; deeper ones are not told */

struct task {
	u64 key; /* pid; of an idle CPU 1 << 32 | cpu */
	u32 pid, tgid;
	u32 next; /* of the same hash */
	u32 number; /* 0, 1, 2 ... in the order of their coming */
	char comm[TRACE_COMM_LEN + 1];
	u64 last_ns; /* times of what is shown of it never go back */
	struct frame *frames;
	u32 n_frames, frames_cap;
	u32 priv; /* the format's; 0 at first */
	struct spool_stream stream;
};

enum task_news {
	TASK_NEW = 1,
	TASK_RENAMED = 2, /* or its tgid became known */
};

struct tasks;

struct tasks *tasks_create(void); /* NULL: no memory */
void tasks_destroy(struct tasks *t);
/** tasks_get - of @r; *@news_ret: enum task_news. NULL: too many, or no memory */
struct task *tasks_get(struct tasks *t, const struct trace_record *r, unsigned *news_ret);
/** tasks_find - by pid; NULL: none */
struct task *tasks_find(struct tasks *t, u32 pid);
u32 tasks_count(const struct tasks *t);
/** tasks_at - by number; pointers to tasks stay good */
struct task *tasks_at(const struct tasks *t, u32 number);

#endif
