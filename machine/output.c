// SPDX-License-Identifier: Apache-2.0
/* See output.h. */
#include "machine/output.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <unistd.h>

static _Atomic u64 left = UINT64_MAX;

void output_limit(u64 bytes)
{
	atomic_store(&left, bytes);
}

/* How many of @n may go out; they are taken off. */
static size_t allowed(size_t n)
{
	u64 now = atomic_load(&left), take;

	do
		take = MIN(now, (u64)n);
	while (!atomic_compare_exchange_weak(&left, &now, now - take));
	return (size_t)take;
}

void output_write(int fd, const void *p, size_t n)
{
	const u8 *at = p;

	for (n = fd >= 0 ? allowed(n) : 0; n;) {
		struct pollfd w = { .fd = fd, .events = POLLOUT };
		ssize_t did = write(fd, at, n);

		if (did >= 0) {
			at += did;
			n -= (size_t)did;
		} else if (errno == EAGAIN) {
			(void)poll(&w, 1, -1);
		} else if (errno != EINTR) {
			return;
		}
	}
}
