/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last of what a guest's console said, in a memfd that the VMM's process has open: whoever may look into that
 * process finds it by its name, and needs no path. One writes, others read as they like: the writer waits for
 * nobody, and what it overwrote before somebody read it that reader has lost, and knows how much.
 *
 * The reader believes nothing: the writer may be a VMM that its guest has taken over.
 */
#ifndef BASE_CONSOLE_RING_H
#define BASE_CONSOLE_RING_H

#include "base/err.h"
#include "base/types.h"

#define CONSOLE_RING_NAME  "hvftrace-console"
#define CONSOLE_RING_BYTES (1ull << 20) /* of output; a power of two */

struct console_shared; /* console_ring.c */

struct console_ring {
	struct console_shared *shared; /* NULL: none */
};

/**
 * console_ring_create - make one, all empty, to write to
 * @fd_ret: the memfd, close-on-exec, to be kept open for as long as others may find it
 *
 * Return: 0; a system error of memfd_create(2), mmap(2). Undo: console_ring_deinit(), close(2).
 */
must_check int console_ring_create(struct console_ring *r, int *fd_ret, struct err *err);

/**
 * console_ring_offer_input - say that what is written to the pipe @fd of this process the guest receives
 *
 * Context: once, after console_ring_create().
 */
void console_ring_offer_input(struct console_ring *r, int fd);

/** console_ring_put - the guest said @n bytes. Context: one thread at a time; never waits. */
void console_ring_put(struct console_ring *r, const void *p, size_t n);

/**
 * console_ring_open - read what another process made; @fd may be anything, and may be closed afterwards
 *
 * Nothing is asked of a file system that another user may have made. Return: 0; -EINVAL it is none; -ENOMEM.
 * Undo: console_ring_deinit().
 */
must_check int console_ring_open(struct console_ring *r, int fd);

void console_ring_deinit(struct console_ring *r);

/** console_ring_end - how many bytes were said so far. Context, of this and the rest: any thread. */
u64 console_ring_end(const struct console_ring *r);

/**
 * console_ring_tail - where the last @bytes begin, from the beginning of a line on
 *
 * 0 is the end. A line that is longer than some thousand bytes is cut.
 */
u64 console_ring_tail(const struct console_ring *r, u64 bytes);

/**
 * console_ring_read - what was said from @at_ret on, which goes on behind it
 * @lost_ret: so many bytes were overwritten before; they are told alone, with nothing read
 *
 * Return: bytes read, up to @n; 0 there is no more, or @lost_ret.
 */
size_t console_ring_read(const struct console_ring *r, u64 *at_ret, void *buf, size_t n,
			 u64 *lost_ret);

/** console_ring_input - the number in the writer's process of a pipe for what is typed; -1: it takes nothing */
int console_ring_input(const struct console_ring *r);

#endif
