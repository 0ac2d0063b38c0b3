/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The console of a guest whose VMM offers it: hvftrace-vmm, and QEMU as `hvftrace run` starts it. What is opened is
 * what the VMM's process has open itself, never something that a path leads to. Must not know guest memory.
 *
 * The pipe for what is typed has a lock in the kernel, and the VMM's user can keep it: he reads the pipe into a mapping of
 * a FUSE file that never answers. vm_console_find(), vm_console_type() and the last vm_console_unref() then wait until he
 * answers, or his process is killed, whichever thread calls them; what only looks does not.
 */
#ifndef VMM_CONSOLE_H
#define VMM_CONSOLE_H

#include "base/err.h"
#include "base/types.h"

#define CONSOLE_INPUT_MAX \
	4096u /* bytes typed at a time: PIPE_BUF, so that they are taken whole or not at all */

struct vm_console;

/**
 * vm_console_find - look for it in the VMM's process
 * @pidfd: of process @pid; stays the caller's
 *
 * The VMM may be of another user, who says what he likes by its descriptors' names. So a descriptor is taken over
 * as it is (pidfd_getfd(2)) and judged afterwards, with nothing asked of a file system: what is read is memory (a sealed
 * memfd) that the VMM has open to read and write, what is written to an anonymous pipe that it has open to write. What we
 * do with them it can do itself.
 *
 * What was taken over is closed, and to close a file is to ask its file system, without end where that is a FUSE of the
 * other user's. So nothing is taken before /proc says of the number that it is such a pipe, or in the mount of all
 * memfds. One that gets another file between this look and the taking is not found out before: that close may wait.
 *
 * Return: 0, a reference; -ENOENT there is none; -EACCES its descriptors cannot be had; -ESRCH; -ENOMEM.
 */
must_check int vm_console_find(pid_t pid, int pidfd, struct vm_console **ret);

/* Context, from here on: any thread. */
struct vm_console *vm_console_ref(struct vm_console *c);
void vm_console_unref(struct vm_console *c); /* NULL is fine */

/** vm_console_close - the guest was let go: for whoever still reads this is the end */
void vm_console_close(struct vm_console *c);

/** vm_console_ended - nothing more will be said, nor taken: the VMM has ended, or the guest was let go */
bool vm_console_ended(const struct vm_console *c);

/* As console_ring_end(), console_ring_tail(), console_ring_read(). What was said stays when the VMM has ended. */
u64 vm_console_end(const struct vm_console *c);
u64 vm_console_tail(const struct vm_console *c, u64 bytes);
size_t vm_console_read(const struct vm_console *c, u64 *at_ret, void *buf, size_t n, u64 *lost_ret);

/** vm_console_takes - can something be typed? */
bool vm_console_takes(const struct vm_console *c);

/**
 * vm_console_type - type @n bytes, up to CONSOLE_INPUT_MAX; does not wait for room
 *
 * Return: 0, all of them were taken, one after the other with nobody's between; -EMSGSIZE (console.input_size);
 * -ENOTSUP it is shown only (console.read_only); -EAGAIN the guest takes nothing, and there is no room any more
 * (console.full); -ESRCH (vmm.gone).
 */
must_check int vm_console_type(struct vm_console *c, const void *p, size_t n, struct err *err);

#endif
