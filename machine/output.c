// SPDX-License-Identifier: Apache-2.0
/* See output.h. */
#include "machine/output.h"

#include "base/clock.h"
#include "base/console_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define SAY_WAIT_MS 200

#define PUMP_BYTES (64u << 10)
#define FLUSH_NS   (500 * NSEC_PER_MSEC)

/*
 * A file that cannot be opened anew (another user's terminal, no /proc) has only a description that blocks: a
 * thread of its own writes to it, and whoever sends finds room in here, or drops and counts.
 */
static struct pump {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int fd; /* -1: none is needed */
	bool told; /* that something was dropped */
	size_t first, n;
	u8 ring[PUMP_BYTES];
} pump = { .lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1 };

/* For whoever may look into this process. The memfd stays open, as it is found by it. */
static struct {
	pthread_mutex_t lock; /* of who writes; innermost */
	struct console_ring ring;
	int fd;
} offered = { .lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1 };

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

/* Runs until the process ends, and may be in a write() for good. */
static void *run_pump(void *arg)
{
	struct pump *p = arg;
	u8 piece[4096];

	pthread_mutex_lock(&p->lock);
	for (;;) {
		size_t n = MIN(MIN(p->n, PUMP_BYTES - p->first), sizeof(piece));
		ssize_t did;

		if (!n) {
			pthread_cond_wait(&p->changed, &p->lock);
			continue;
		}
		memcpy(piece, p->ring + p->first, n);
		pthread_mutex_unlock(&p->lock);
		did = write(p->fd, piece, n);
		if (did < 0 && errno == EAGAIN) /* somebody who shares it has made it so */
			(void)!poll(&(struct pollfd){ .fd = p->fd, .events = POLLOUT }, 1, -1);
		else if (did < 0 && errno != EINTR)
			did = 0;
		pthread_mutex_lock(&p->lock);
		if (did < 0)
			continue;
		if (!did) /* nobody will ever take them */
			atomic_fetch_add(&lost, n);
		n = did > 0 ? (size_t)did : n;
		p->first = (p->first + n) % PUMP_BYTES;
		p->n -= n;
		pthread_cond_broadcast(&p->changed);
	}
	return NULL;
}

static int start_pump(int fd, struct err *err)
{
	pthread_condattr_t attr;
	pthread_t thread;
	int no;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&pump.changed, &attr);
	pthread_condattr_destroy(&attr);
	pump.fd = fd;
	no = pthread_create(&thread, NULL, run_pump, &pump);
	if (no) {
		pump.fd = -1;
		return err_set(err, -no, ERR_IO, 0, "the console's thread: %s",
			       strerrordesc_np(no));
	}
	(void)pthread_setname_np(thread, "output");
	pthread_detach(thread);
	return 0;
}

/* Return: how many of @n there is no room for. */
static size_t give_pump(const u8 *at, size_t n)
{
	bool tell;
	size_t room;

	pthread_mutex_lock(&pump.lock);
	room = MIN(n, PUMP_BYTES - pump.n);
	for (size_t i = 0; i < room; i++)
		pump.ring[(pump.first + pump.n + i) % PUMP_BYTES] = at[i];
	pump.n += room;
	tell = room < n && !pump.told;
	pump.told |= tell;
	pthread_cond_broadcast(&pump.changed);
	pthread_mutex_unlock(&pump.lock);
	if (tell)
		output_say("nobody reads the console's output: what there is no room for is lost");
	return n - room;
}

void output_flush(void)
{
	struct timespec until = timespec_of(monotonic_ns() + FLUSH_NS);

	if (pump.fd < 0)
		return;
	pthread_mutex_lock(&pump.lock);
	while (pump.n && pthread_cond_timedwait(&pump.changed, &pump.lock, &until) != ETIMEDOUT)
		;
	atomic_fetch_add(&lost, pump.n);
	pthread_mutex_unlock(&pump.lock);
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
		if (anew < 0)
			return start_pump(fd, err);
		*ret = anew;
	} else if (S_ISSOCK(st.st_mode)) {
		flags = fcntl(fd, F_GETFL);
		if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
			return err_set(err, -errno, ERR_IO, 0, "the console's output: %s",
				       strerrordesc_np(errno));
	}
	return 0;
}

int output_offer(struct err *err)
{
	return console_ring_create(&offered.ring, &offered.fd, err);
}

void output_offer_input(int fd)
{
	console_ring_offer_input(&offered.ring, fd);
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

	pthread_mutex_lock(&offered.lock);
	console_ring_put(&offered.ring, p, n);
	pthread_mutex_unlock(&offered.lock);
	if (fd < 0)
		return;
	lost += n - todo;
	if (fd == pump.fd)
		todo = give_pump(at, todo);
	while (todo && fd != pump.fd) {
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
