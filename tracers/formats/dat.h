/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace-cmd's trace.dat in parts: dat_events.c makes events of records, dat_ring.c puts them into pages as
 * the kernel's ring buffer has them, dat_formats.c describes them, dat_file.c makes the file, version 6 or 7.
 * Private to tracers/formats/.
 *
 * Source: trace-cmd.dat.v6(5), trace-cmd.dat.v7(5); pages: Linux v6.1 include/linux/ring_buffer.h enum
 * ring_buffer_type, kernel/trace/ring_buffer.c struct buffer_data_page; flags: include/linux/trace_events.h
 * enum trace_flag_type.
 */
#ifndef TRACERS_FORMATS_DAT_H
#define TRACERS_FORMATS_DAT_H

#include "tracers/formats/priv.h"
#include "tracers/formats/sorter.h"

#include <zstd.h>

#define DAT_PAGE      4096u
#define DAT_PAGE_HEAD 16u
#define DAT_CHUNK     65536u /* of pages, compressed at a time */
#define DAT_EVENT_MAX 112u /* bytes, at most 28 words */

enum dat_event_id { /* numbers of the kernel where it has them fixed */
	DAT_FUNCTION = 1,
	DAT_GRAPH_ENTRY = 11,
	DAT_GRAPH_EXIT = 10,
	DAT_SCHED_SWITCH = 100,
	DAT_SYS_ENTER,
	DAT_SYS_EXIT,
	DAT_LOST,
	DAT_NEVER,
};

struct dat_common {
	u16 type;
	u8 flags, preempt_count;
	s32 pid;
};

struct dat_cpu {
	u8 page[DAT_PAGE];
	u32 used; /* of its data */
	bool open;
	u64 last_ns;
	u64 missed; /* before the page under way */
	u64 n_events, n_missed;
	struct spool_stream stream; /* full pages; version 7: chunks */
	u8 *chunk; /* version 7 */
	u32 chunk_len, n_chunks;
};

struct dat {
	bool v7;
	struct spool *spool;
	struct sorter *sorter; /* of the tracer syscalls */
	struct dat_cpu **cpu; /* NULL: it has had no record */
	u32 n_cpus;
	u64 missed; /* not on a page yet */
	u32 last_cpu;
	ZSTD_CCtx *zstd;
	u8 *packed; /* ZSTD_compressBound(DAT_CHUNK) */
	/* the end */
	bool flushed;
	struct buf head;
	size_t head_off; /* of @head, what was written */
	u32 next_cpu; /* whose data come next */
	struct spool_place place;
	u64 data_off; /* version 6: where they begin */
};

/** dat_ring_cpu - NULL: no memory, which x->failed says */
struct dat_cpu *dat_ring_cpu(struct export *x, u32 cpu);
/** dat_ring_add - @len bytes, at most DAT_EVENT_MAX, that begin with struct dat_common */
void dat_ring_add(struct export *x, u32 cpu, u64 ts_ns, const void *event, u32 len);
/** dat_ring_flush - the page and chunk under way of all CPUs */
void dat_ring_flush(struct export *x);

/** dat_header_page, dat_header_event - of the pages, as the kernel's files of these names */
const char *dat_header_page(void);
const char *dat_header_event(void);
/** dat_formats - those of @system: how many, then the length and text of each */
void dat_formats(struct buf *b, const char *system);
/** dat_systems - but "ftrace" */
const char *const *dat_systems(size_t *n_ret);

/** dat_file_end - the next part of the file, when all pages are flushed; false: that was all */
bool dat_file_end(struct export *x, struct buf *b);

#endif
