/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stop windows under TCG: QEMU's gdbstub, held by a child process of ours.
 *
 *   daemon --socketpair--> child "hvf-tcg-window" --unix socket--> gdbstub in QEMU
 *
 * The stub stops the guest while a client is connected, and only a detach packet lets it go on. The
 * child outlives us by a moment: when the socketpair closes it detaches, then exits.
 */
#ifndef VMM_TCG_WINDOW_H
#define VMM_TCG_WINDOW_H

#include "base/err.h"
#include "base/types.h"

struct qmp;
struct tcg_window;
struct vm_phys_text;

/**
 * tcg_window_check - may we use the gdbstub? Cleans up after a daemon of ours that died
 * @pid: QEMU's process
 *
 * Return: 0; -EBUSY (target.gdbstub_busy) somebody else has set one up; or as qmp_command().
 */
must_check int tcg_window_check(struct qmp *q, pid_t pid, struct err *err);

/** tcg_window_create - nothing is changed in QEMU yet */
must_check int tcg_window_create(struct qmp *q, pid_t pid, struct tcg_window **ret,
				 struct err *err);

/** tcg_window_destroy - closes the stub if we opened it; NULL is fine */
void tcg_window_destroy(struct tcg_window *w);

/** tcg_window_pause - opens the stub at first use. Return: as vm_pause(). */
must_check int tcg_window_pause(struct tcg_window *w, u64 timeout_ns, u64 *started_ns_ret,
				struct err *err);
must_check int tcg_window_resume(struct tcg_window *w, struct err *err);
must_check int tcg_window_write(struct tcg_window *w, const struct vm_phys_text *text, size_t n,
				struct err *err);

#endif
