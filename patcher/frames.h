/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames of hijacked return addresses as the host sees them: which are dead, which can be put back,
 * which may be given back. Decisions only, over callbacks; must not know guests, windows or locks.
 *
 * A frame that is given back while anything in the guest may still return through its trampoline
 * kills the guest. So every verdict is a proof from what was read in this order: the frame, its
 * circumstances, the frame again, unchanged. Two lives of one frame differ in their TSC.
 *
 * Everything read is hostile: numbers are checked, chains bounded, addresses only handed to read and
 * write, which go through the guest's own page tables.
 */
#ifndef PATCHER_FRAMES_H
#define PATCHER_FRAMES_H

#include "guest-agent/agent_abi.h"
#include "patcher/tracing.h"

#define FRAMES_CHAIN_MAX 256u /* tail calls that hang on one stack cell */
#define FRAMES_FOREIGN   4u
#define FRAMES_FIRST_ABI 3 /* AGENT_ABI_VERSION that brought them */

/* All: 0; -EFAULT not there; -ESRCH the VMM is gone. */
struct frames_io {
	int (*read)(void *arg, u64 addr, void *buf, size_t len); /* guest virtual */
	int (*write)(void *arg, u64 addr, const void *buf, size_t len);
	int (*data_read)(void *arg, u64 off, void *buf, size_t len); /* in the agent's data */
	int (*data_write)(void *arg, u64 off, const void *buf, size_t len);
	bool (*is_ours)(void *arg); /* has the guest not rebooted? Asked before frames are freed */
	void *arg;
};

/* One life of a frame. */
struct frames_life {
	u32 n;
	u64 slot;
	u64 tsc;
	u64 put_back; /* what was written to the cell */
};

/* What was written into a cell, as interlock_cells wants it. */
struct frames_cell {
	u64 addr;
	u64 value;
};

struct frames {
	struct frames_io io;
	u64 text;
	u32 nr;
	u64 frames_off, reclaim_off;
	u64 tail; /* of the reclaim ring: ours, never read from the guest again */
	bool discard; /* the agent's memory goes away: free frames need no ring */
	u32 start_time, state, state_bytes, on_cpu, on_cpu_bytes; /* in struct task_struct */
	u64 foreign[FRAMES_FOREIGN]; /* the guest's own trampolines; 0: has none */
	struct frames_life
		*restored; /* by number: put back, not yet proven quiet; slot 0: not so */
	struct frames_life *chain; /* what the last walk went through */
	u32 n_chain;
	struct frames_cell *cells; /* put back, since this list was emptied; see rewrite.h */
	u32 n_cells, max_cells;
};

struct frames_count {
	u32 in_use;
	u32 restored; /* of these: put back, not yet proven quiet */
};

/** frames_init - for the agent's data behind @f->io, laid out as @h. Return: 0; -ENOMEM. Undo:
 * frames_deinit(). */
must_check int frames_init(struct frames *f, const struct agent_header *h);
void frames_deinit(struct frames *f);

/**
 * frames_collect - give dead frames back, orphans too
 * @cells: look at every stack cell: one that is not mapped any more is of a stack that is gone. Only
 *         where -EFAULT cannot mean RAM that we do not know
 * @fn:    called for each dead one after it was given back; may be NULL
 *
 * Return: 0; -ENOMEM; -ESTALE the memory is not the agent's any more; what io returns, but for -EFAULT
 * of guest addresses.
 */
must_check int frames_collect(struct frames *f, bool cells,
			      void (*fn)(void *arg, const struct tracing_unreturned *u), void *arg);

/**
 * frames_candidates - numbers of the frames whose stack cell leads to them now
 * @ret: free() it
 */
must_check int frames_candidates(struct frames *f, u32 **ret, u32 *n_ret);

/**
 * frames_put_back - write the true return address into the cell of frame @n, where it leads to it
 *
 * Safe with every vCPU out: a cell that holds our trampoline is either a return address to come, or
 * was popped and is about to be overwritten. The frame stays in use until frames_settle(). Undo: none
 * is needed, the address is the guest's own. Context: in a stop window.
 * Return: 1 done and read back; 0 nothing to do, or not to be resolved; -EPERM the write did not take; -ENOMEM.
 */
must_check int frames_put_back(struct frames *f, u32 n);

/** frames_shorten_cells - drop what no longer is as it was put back. Return: 0; what io returns. */
must_check int frames_shorten_cells(struct frames *f);

/**
 * frames_settle - give back what was put back
 *
 * Precondition: since the last frames_put_back(), everybody was seen outside of the trampolines and
 * of the code that they lead to, and that follows returns. A frame that some other one in use leads
 * to, or that the guest itself has a hold of, stays.
 */
must_check int frames_settle(struct frames *f);

must_check int frames_count(struct frames *f, struct frames_count *ret);

/** frames_header_ok - is @h, read from guest memory, what agent_layout() makes of its own sizes, and of
 * these two pieces of memory? */
bool frames_header_ok(const struct agent_header *h, u64 text, u64 text_bytes, u64 data,
		      u64 data_bytes);

#endif
