// SPDX-License-Identifier: Apache-2.0
/* See output.h. */
#include "machine/output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define SAY_WAIT_MS 200

static _Atomic u64 left = UINT64_MAX, lost;
static int stop_fd = -1; /* eventfd: can be read from while nobody is to wait */

void output_limit(u64 bytes)
{
	atomic_store(&left, bytes);
}

u64 output_lost(void)
{
	return atomic_load(&lost);
}

/* A description of our own, so that nobody who shares @fd finds it non-blocking. */
static int open_anew(int fd)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

int output_open(int fd, int *ret, struct err *err)
{
	struct stat st;
	int flags, anew;

	if (stop_fd < 0)
		stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (stop_fd < 0 || fstat(fd, &st) < 0)
		return err_set(err, -errno, ERR_IO, 0, "the console's output: %s",
			       strerrordesc_np(errno));
	*ret = fd;
	if (S_ISREG(st.st_mode))
		output_limit(OUTPUT_FILE_MAX);
	if (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode)) {
		anew = open_anew(fd);
		if (anew >= 0)
			*ret = anew;
	} else if (S_ISSOCK(st.st_mode)) {
		flags = fcntl(fd, F_GETFL);
		if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
			return err_set(err, -errno, ERR_IO, 0, "the console's output: %s",
				       strerrordesc_np(errno));
	}
	return 0;
}

void output_stop(void)
{
	const u64 one = 1;

	if (stop_fd >= 0)
		(void)!write(stop_fd, &one, sizeof(one));
}

void output_resume(void)
{
	u64 n;

	if (stop_fd >= 0)
		(void)!read(stop_fd, &n, sizeof(n));
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

/* Wait for room. Return: false when nobody is to wait any more. */
static bool wait_for_room(int fd, int cancel_fd)
{
	struct pollfd p[] = { { .fd = fd, .events = POLLOUT },
			      { .fd = stop_fd, .events = POLLIN },
			      { .fd = cancel_fd, .events = POLLIN } };

	while (poll(p, ARRAY_SIZE(p), -1) < 0) {
		if (errno != EINTR)
			return false;
	}
	return !p[1].revents && !p[2].revents;
}

void output_write(int fd, const void *p, size_t n, int cancel_fd)
{
	size_t todo = fd >= 0 ? allowed(n) : 0;
	const u8 *at = p;

	if (fd < 0)
		return;
	lost += n - todo;
	while (todo) {
		ssize_t did = write(fd, at, todo);

		if (did >= 0) {
			at += did;
			todo -= (size_t)did;
		} else if (errno == EAGAIN ? !wait_for_room(fd, cancel_fd) : errno != EINTR) {
			break;
		}
	}
	lost += todo;
}

void output_say(const char *fmt, ...)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };
	char line[512] = "hvftrace-vmm: ";
	va_list ap;
	int n = (int)sizeof("hvftrace-vmm: ") - 1;

	va_start(ap, fmt);
	n += vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
	va_end(ap);
	n = MIN(n, (int)sizeof(line) - 2);
	line[n++] = '\n';
	/* a pipe that has any room takes so few bytes at once */
	if (poll(&p, 1, SAY_WAIT_MS) == 1)
		(void)!write(STDERR_FILENO, line, (size_t)n);
}
