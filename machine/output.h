/* SPDX-License-Identifier: Apache-2.0 */
/* What a guest's consoles send, on its way into a file, a pipe or a terminal. */
#ifndef MACHINE_OUTPUT_H
#define MACHINE_OUTPUT_H

#include "base/err.h"
#include "base/types.h"

#define OUTPUT_FILE_MAX (64ull << 20) /* of one run, into a regular file */

/**
 * output_open - make ready to write to @fd, which stays the caller's
 * @ret: what to give output_write(): never blocks, so that whoever waits for room can be told to stop.
 *       @fd itself, or opened anew; to be closed by the caller, after vCPUs and devices have ended
 *
 * What a regular file gets is limited to OUTPUT_FILE_MAX. What cannot be opened anew is written to by a thread of its
 * own, and what that has no room for is lost: for want of a way to tell a write() to stop. A socket is made non-blocking for everybody who
 * shares it, as it cannot be opened anew. Context: once, before other threads run. Return: 0; a system error.
 */
must_check int output_open(int fd, int *ret, struct err *err);

/**
 * output_limit - let no more than @bytes of all consoles out from now on; the rest is lost
 *
 * For a regular file, which the guest could fill the host's disk or memory with. Context: before vCPUs run.
 */
void output_limit(u64 bytes);

/**
 * output_write - send @n bytes at @p to @fd; -1: nowhere
 * @cancel_fd: give up once it can be read from; -1: none
 *
 * Who does not read is waited for, until output_stop(). What cannot be written is lost, as on a wire without
 * anybody at its end, and counted.
 * Context: any thread.
 */
void output_write(int fd, const void *p, size_t n, int cancel_fd);

/**
 * output_offer - let others read the last of it in memory, whatever becomes of it where it goes (console_ring.h)
 *
 * Context: once, before vCPUs run. Return: 0; errors of console_ring_create().
 */
must_check int output_offer(struct err *err);

/** output_offer_input - what is written to the pipe @fd the guest receives. Context: after output_offer(). */
void output_offer_input(int fd);

/** output_stop - nobody waits for who does not read any more, until output_resume(). Context: any thread. */
void output_stop(void);
void output_resume(void);

/** output_flush - wait a moment for what is still to be written; the rest is lost. Context: once, at the end. */
void output_flush(void);

/** output_lost - how many bytes were lost so far: beyond the limit, or nobody took them */
u64 output_lost(void);

/**
 * output_say - one line on standard error, after the program's name; not one that would have to be waited for
 *
 * Context: any thread.
 */
void output_say(const char *fmt, ...) printf_like(1, 2);

#endif
