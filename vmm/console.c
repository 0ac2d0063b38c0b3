// SPDX-License-Identifier: Apache-2.0
/* The console that a VMM offers. See console.h. */
#include "vmm/console.h"

#include "base/cleanup.h"
#include "base/console_ring.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <unistd.h>

#define OFFERED   "/memfd:" CONSOLE_RING_NAME " (deleted)" /* as proc(5) shows it */
#define MAX_TRIED 8 /* descriptors of that name */

_Static_assert(CONSOLE_INPUT_MAX <= PIPE_BUF, "what is typed at a time is written whole");

struct vm_console {
	atomic_uint refs;
	atomic_bool closed;
	pid_t pid; /* for messages */
	int pidfd;
	int input; /* a description of our own of the VMM's pipe; -1: it takes nothing */
	struct console_ring ring;
};

/* Is it a descriptor that this access mode is right for? One that only names a file (O_PATH) reads nothing itself. */
static bool opened_as(int fd, int mode)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && !(flags & O_PATH) && (flags & O_ACCMODE) == mode;
}

/* The mount that a descriptor's file is in; -1. It is told by the kernel alone, as the name in fd/ is. */
static int mount_of(pid_t pid, int number)
{
	char path[64], text[256];
	_cleanup_close_ int fd = -1;
	const char *at;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", (int)pid, number);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
	if (n < 0)
		return -1;
	text[n] = 0;
	at = strstr(text, "\nmnt_id:");
	return at ? (int)strtol(at + 8, NULL, 10) : -1;
}

/* Return: 0; -EINVAL it is something else. */
static int take_ring(pid_t pid, int pidfd, int number, int memory, struct console_ring *ret)
{
	_cleanup_close_ int fd = -1;

	if (mount_of(pid, number) != memory)
		return -EINVAL;
	fd = pidfd_getfd(pidfd, number, 0);
	if (fd < 0)
		return -errno;
	return opened_as(fd, O_RDWR) ? console_ring_open(ret, fd) : -EINVAL;
}

/* "pipe:[123]" is no path: those begin with a slash. So there is no file system that could keep us waiting. */
static bool is_anonymous_pipe(pid_t pid, int number)
{
	char path[64], link[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, number);
	n = readlink(path, link, sizeof(link) - 1);
	return n > 0 && strncmp(link, "pipe:[", 6) == 0;
}

/*
 * A description of our own of the pipe, as the VMM could have its own wait for room. Return: -1: it offers none.
 */
static int take_input(pid_t pid, int pidfd, int number)
{
	_cleanup_close_ int fd = -1;
	char path[32];

	if (number < 0 || !is_anonymous_pipe(pid, number))
		return -1;
	fd = pidfd_getfd(pidfd, number, 0);
	if (fd < 0 || !opened_as(fd, O_WRONLY) || fcntl(fd, F_GETPIPE_SZ) < 0)
		return -1;
	/* the number may be another file's since it was looked at */
	if (!is_anonymous_pipe(getpid(), fd))
		return -1;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
}

static int find_ring(pid_t pid, int pidfd, struct console_ring *ret)
{
	_cleanup_close_ int own = memfd_create("hvftrace", MFD_CLOEXEC);
	int memory = own >= 0 ? mount_of(getpid(), own) : -1;
	char path[64], link[sizeof(OFFERED) + 1];
	struct dirent *e;
	int rc = -ENOENT;
	DIR *d;

	if (memory < 0)
		return -ENOMEM;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	d = opendir(path);
	if (!d)
		return errno == ENOENT ? -ESRCH : -errno;
	for (int tried = 0; rc && tried < MAX_TRIED && (e = readdir(d));) {
		ssize_t n = readlinkat(dirfd(d), e->d_name, link, sizeof(link));

		if (n != (ssize_t)strlen(OFFERED) || memcmp(link, OFFERED, (size_t)n) != 0)
			continue;
		tried++;
		/* the number may be another file's by now: what is taken is looked at, not what was listed */
		rc = take_ring(pid, pidfd, (int)strtol(e->d_name, NULL, 10), memory, ret);
	}
	closedir(d);
	return rc == -EPERM ? -EACCES : rc == -ENOMEM || rc == -EACCES ? rc : rc ? -ENOENT : 0;
}

int vm_console_find(pid_t pid, int pidfd, struct vm_console **ret)
{
	struct vm_console *c = calloc(1, sizeof(*c));
	int rc = c ? find_ring(pid, pidfd, &c->ring) : -ENOMEM;

	if (rc) {
		free(c);
		return rc;
	}
	atomic_init(&c->refs, 1);
	c->pid = pid;
	c->pidfd = fcntl(pidfd, F_DUPFD_CLOEXEC, 0);
	if (c->pidfd < 0) {
		console_ring_deinit(&c->ring);
		free(c);
		return -ENOMEM;
	}
	c->input = take_input(pid, pidfd, console_ring_input(&c->ring));
	*ret = c;
	return 0;
}

struct vm_console *vm_console_ref(struct vm_console *c)
{
	atomic_fetch_add(&c->refs, 1);
	return c;
}

void vm_console_unref(struct vm_console *c)
{
	if (!c || atomic_fetch_sub(&c->refs, 1) != 1)
		return;
	console_ring_deinit(&c->ring);
	close(c->pidfd);
	if (c->input >= 0)
		close(c->input);
	free(c);
}

void vm_console_close(struct vm_console *c)
{
	atomic_store(&c->closed, true);
}

bool vm_console_ended(const struct vm_console *c)
{
	struct pollfd p = { .fd = c->pidfd, .events = POLLIN };

	return atomic_load(&c->closed) || poll(&p, 1, 0) > 0;
}

u64 vm_console_end(const struct vm_console *c)
{
	return console_ring_end(&c->ring);
}

u64 vm_console_tail(const struct vm_console *c, u64 bytes)
{
	return console_ring_tail(&c->ring, bytes);
}

size_t vm_console_read(const struct vm_console *c, u64 *at_ret, void *buf, size_t n, u64 *lost_ret)
{
	return console_ring_read(&c->ring, at_ret, buf, n, lost_ret);
}

bool vm_console_takes(const struct vm_console *c)
{
	return c->input >= 0;
}

int vm_console_type(struct vm_console *c, const void *p, size_t n, struct err *err)
{
	ssize_t did;

	if (n > CONSOLE_INPUT_MAX)
		return err_set(err, -EMSGSIZE, ERR_CONSOLE_SIZE, 0,
			       "%zu bytes were to be typed at once", n);
	if (c->input < 0)
		return err_set(err, -ENOTSUP, ERR_CONSOLE_READ_ONLY, 0,
			       "process %d shows its guest's console, and takes nothing typed",
			       (int)c->pid);
	if (vm_console_ended(c))
		return err_set(err, -ESRCH, ERR_VMM_GONE, 0, "the VMM's process %d has ended",
			       (int)c->pid);
	do
		did = n ? write(c->input, p, n) : 0;
	while (did < 0 && errno == EINTR);
	if (did == (ssize_t)n)
		return 0;
	if (did < 0 && errno != EAGAIN)
		return err_set(err, -ESRCH, ERR_VMM_GONE, 0,
			       "process %d does not read what is typed: %s", (int)c->pid,
			       strerrordesc_np(errno));
	return err_set(err, -EAGAIN, ERR_CONSOLE_FULL, 0,
		       "the guest takes nothing from its console, and what was typed before waits");
}
