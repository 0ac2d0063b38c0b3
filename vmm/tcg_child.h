/* SPDX-License-Identifier: Apache-2.0 */
/* The child process of tcg_window.c and what it speaks with the daemon. */
#ifndef VMM_TCG_CHILD_H
#define VMM_TCG_CHILD_H

#include "vmm/vm_ops.h"

enum tcg_op {
	TCG_PAUSE = 1,
	TCG_WRITE,
	TCG_RESUME
};

#define TCG_WRITE_MAX 2048 /* pieces in one order */

/* An order; TCG_WRITE is followed by @n struct vm_phys_text. */
struct tcg_order {
	u32 op;
	u32 n;
	u64 timeout_ns;
};

struct tcg_answer {
	s32 rc;
	u32 index; /* of the piece that was refused */
	u64 started_ns; /* TCG_PAUSE: just before connecting */
};

/**
 * tcg_child_run - serve orders until the socket closes; never returns
 * @sock: to the daemon; @lock: the stub's lock file, its first byte says whether a window is open
 * @path: the stub's socket
 *
 * Context: in a child forked from a process with threads: async-signal-safe calls only.
 */
_Noreturn void tcg_child_run(int sock, int lock, const char *path);

#endif
