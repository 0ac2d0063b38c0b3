/* SPDX-License-Identifier: Apache-2.0 */
/* The recording writer's state, for rec_file.c (the file, its records) and rec_write_defs.c (definitions). */
#ifndef TRACERS_REC_WRITER_PRIV_H
#define TRACERS_REC_WRITER_PRIV_H

#include "tracers/output.h"
#include "tracers/rec_format.h"

#define SEEN_MIN   4096
#define TASK_WAYS  4
#define ENUM_SLOTS 4096
/* Bytes that a reader needs for names of values; a quarter of what OUTPUT_NAMES_MAX leaves of REC_KEPT_MAX. */
#define ENUMS_MAX (32u << 20)

struct seen {
	u64 addr;
	u32 id_plus_1; /* 0: empty */
	bool proto; /* its prototype was looked for */
	bool enums; /* which has enums */
	u32 when, hash; /* of the names that it was asked of last; what they said */
};

/* The value of an enum that has its name in the file. */
struct seen_enum {
	u64 which; /* symbol + 1 << 8 | parameter; 0: empty */
	s64 val;
};

struct task {
	u64 comm[2]; /* comms_words() of it */
	u32 pid, tgid;
	bool used;
};

/* What a record is relative to, within one chunk. */
struct rec_state {
	u64 seq, ts_ns;
	u32 cpu, task, ctx;
};

struct rec_writer {
	struct output_meta meta;
	/* the chunk under way; it ends at @open_end of the caller's buffer */
	u8 open_type; /* 0: none */
	size_t open_start, open_end;
	struct rec_state prev;
	u64 last_seq;
	/* addresses defined */
	struct seen *seen;
	size_t n_seen, seen_slots;
	u64 key; /* addr_hash()'s */
	size_t kept,
		kept_enums; /* what a reader keeps of them and their prototypes; of names of values; about */
	u32 n_ids;
	u32 shared_plus_1; /* the symbol of all addresses that there is no room for; 0: there was room */
	u64 n_shared; /* times that it was used */
	/* stacks defined, by address: each is kept once, for as long as the trace is */
	struct seen_stack {
		const struct trace_stack *stack; /* NULL: empty */
		u32 id;
	} * stacks;
	size_t n_stacks, stack_slots;
	struct seen_enum *enums; /* ENUM_SLOTS; those that find no place are defined again */
	/* tasks defined */
	struct task *tasks;
	u32 victim;
	u32 last_task; /* a guess */
};

/**
 * rec_chunk_open - room for @max more payload bytes in a chunk of @type
 *
 * The chunk under way, if it is of that type, still at the end of @out and not full; else a new, empty one.
 * NULL: no memory (@out remembers).
 */
u8 *rec_chunk_open(struct rec_writer *w, struct buf *out, u8 type, size_t max, bool *new_ret);
/** rec_chunk_grow - the payload of the chunk that was opened last now ends at @end */
void rec_chunk_grow(struct rec_writer *w, struct buf *out, u8 *end);

/* The number of an address, a task or a stack, defined if need be. */
u32 rec_sym_id(struct rec_writer *w, struct buf *out, u64 addr, const struct output_names *names);
u32 rec_task_slot(struct rec_writer *w, struct buf *out, const struct trace_record *r);
u32 rec_stack_id(struct rec_writer *w, struct buf *out, const struct trace_stack *s,
		 const struct output_names *names);

/** rec_define_proto - the prototype of the function that is symbol @id, if there is one and it is not defined yet */
void rec_define_proto(struct rec_writer *w, struct buf *out, u32 id, u64 ip,
		      const struct output_names *names);
/** rec_define_enums - the names of @r's values, where its function's prototype has enums */
void rec_define_enums(struct rec_writer *w, struct buf *out, u32 id, const struct trace_record *r,
		      const struct output_names *names);

#endif
