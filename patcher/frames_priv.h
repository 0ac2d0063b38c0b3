/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of frames*.c. */
#ifndef PATCHER_FRAMES_PRIV_H
#define PATCHER_FRAMES_PRIV_H

#include "base/cleanup.h"
#include "patcher/frames.h"

enum frames_verdict {
	IN_USE,
	ORPHAN,
	DEAD_OWNER,
	DEAD_CELL, /* cell leads to another frame, and not through it to this one */
	DEAD_STACK, /* cell is not mapped */
	QUIET, /* put back, and nobody can be on the way any more */
};

struct frames_copy {
	u32 n;
	enum frames_verdict verdict;
	u32 by; /* DEAD_CELL: the frame that the cell leads to */
	bool on_chain;
	struct agent_frame f;
};

/* All frames that were not free, each read at some time before the snapshot was done. */
struct frames_snapshot {
	struct frames_copy *v;
	u32 n, cap;
	u32 *at; /* by frame number: index in v + 1 */
	u32 n_dead_cell;
};

#define KERNEL_HALF (1ull << 63)

#define _cleanup_snapshot_ _cleanup_(frames_snapshot_deinit)

must_check int frames_take_snapshot(struct frames *f, struct frames_snapshot *s);
void frames_snapshot_deinit(struct frames_snapshot *s);
/** frames_find - NULL when it was free */
struct frames_copy *frames_find(const struct frames_snapshot *s, u32 n);

u64 frames_trampoline(const struct frames *f, u32 n);
bool frames_is_trampoline(const struct frames *f, u64 addr, u32 *n_ret);
bool frames_is_foreign(const struct frames *f, u64 addr);
bool frames_has_cell(const struct agent_frame *fr);
bool frames_same_life(const struct agent_frame *a, const struct agent_frame *b);
bool frames_was_restored(const struct frames *f, u32 n, const struct agent_frame *fr);
u64 frames_off_of(const struct frames *f, u32 n);
must_check int frames_read(const struct frames *f, u32 n, struct agent_frame *ret);
must_check int frames_read_u64(const struct frames *f, u64 addr, u64 *ret);

/**
 * frames_walk_chain - where a return through @from ends once every frame on its cell was used up
 * @s: as it was then; NULL: as it is now
 *
 * f->chain says which frames those are, without @from. -ENOENT: it leads nowhere that makes sense.
 */
must_check int frames_walk_chain(struct frames *f, const struct frames_snapshot *s,
				 const struct agent_frame *from, u64 *final_ret);

/** frames_finish - look at every verdict but IN_USE again and give back those that hold */
must_check int frames_finish(struct frames *f, struct frames_snapshot *s,
			     void (*fn)(void *arg, const struct tracing_unreturned *u), void *arg);

#endif
