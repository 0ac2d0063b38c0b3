/* SPDX-License-Identifier: Apache-2.0 */
/* The recording reader's state, for rec_reader.c (the file, its records) and rec_defs.c (definitions). */
#ifndef TRACERS_REC_PRIV_H
#define TRACERS_REC_PRIV_H

#include "base/cursor.h"
#include "tracers/output.h"
#include "tracers/rec_format.h"

#include <stdio.h>

struct rec_sym {
	u64 addr, off, size_bytes;
	const char *name; /* NULL: not known */
	const char *module;
	char type;
	const struct rec_proto *proto; /* NULL: not known */
};

/* A prototype, as long as it has parameters: memory grows with the file. */
struct rec_proto {
	struct kernel_val ret;
	u8 n_params, n_regs;
	struct kernel_val params[];
};

/* A value of an enum that has a name. */
struct rec_enum {
	u32 which; /* symbol << 8 | parameter: btf_id of a kernel_val of the reader's */
	s64 val;
	const char *name;
};

struct rec_task {
	u32 pid, tgid;
	char comm[TRACE_COMM_LEN + 1];
};

struct rec_text {
	struct rec_text *next;
	char text[];
};

struct arena_block;
struct rec_blocks;

struct rec_reader {
	FILE *file; /* NULL: @mem */
	struct rec_blocks *blocks; /* of @file, when it is one of blocks */
	struct cursor mem;
	u32 version;
	u64 offset; /* of the chunk under way */
	struct output_meta meta;
	bool ended;
	bool damaged; /* for good: nothing after it can be trusted */
	/* the chunk under way */
	u8 type;
	u8 *payload;
	size_t payload_cap;
	struct cursor cur;
	struct trace_record prev; /* the chunk's last record */
	u32 prev_task;
	/* definitions */
	struct rec_sym *syms;
	size_t n_syms, syms_cap;
	u32 *by_addr; /* hash of addresses; index + 1 */
	size_t by_addr_slots; /* a power of two, at least twice n_syms */
	struct trace_stack **stacks; /* in the arena */
	size_t n_stacks, stacks_cap;
	struct rec_enum *enums; /* hash of which and val; name NULL: empty */
	size_t n_enums, enum_slots; /* a power of two, at least twice n_enums */
	struct rec_task *tasks;
	struct rec_text *texts; /* of markers */
	u64 key; /* addr_hash()'s, of by_addr and enums */
	struct arena_block *arena;
	size_t arena_left;
	size_t kept; /* bytes of all definitions and texts, about */
	u32 when; /* output_names' */
	bool redefined; /* an address was defined more than once: of each record's count its own numbers */
};

/** rec_use_sym - symbol @i is what is at its address, from this record on */
void rec_use_sym(struct rec_reader *r, u32 i);

/* The next definition in r->cur. Return: 0; -EBADMSG it does not make sense; -ENOMEM. */
must_check int rec_read_sym(struct rec_reader *r);
must_check int rec_read_task(struct rec_reader *r);
must_check int rec_read_proto(struct rec_reader *r);
must_check int rec_read_enum(struct rec_reader *r);
must_check int rec_read_stack(struct rec_reader *r);
void rec_defs_deinit(struct rec_reader *r);

#endif
