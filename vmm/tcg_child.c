// SPDX-License-Identifier: Apache-2.0
/*
 * The child that holds the gdbstub during a window. Forked from a process with threads and never
 * executes another program: no allocation, no stdio, no locks. Storage is static for that reason.
 */
#include "vmm/tcg_child.h"

#include "base/clock.h"

#include "vmm/gdbstub_client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SOCK_FD 3
#define LOCK_FD 4
/* how long a guest that did not answer is waited for until it can be let go */
#define LET_GO_NS (120 * NSEC_PER_SEC)

static struct gdb_conn gdb;
static struct vm_phys_text pieces[TCG_WRITE_MAX];
static char stub_path[108];

/* All of @len or false: the daemon has gone. */
static bool read_all(void *buf, size_t len)
{
	u8 *p = buf;

	while (len) {
		ssize_t n = read(SOCK_FD, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

static bool answer(int rc, size_t index, u64 started_ns)
{
	struct tcg_answer a = { .rc = rc, .index = (u32)index, .started_ns = started_ns };

	return send(SOCK_FD, &a, sizeof(a), MSG_NOSIGNAL) == (ssize_t)sizeof(a);
}

/* For a later daemon: 'w' and nobody holding the lock means that we left the guest stopped. */
static void mark(char c)
{
	ssize_t n = pwrite(LOCK_FD, &c, 1, 0);

	(void)n;
}

/* Lets the guest go on, whatever state the connection is in. */
static int let_go(u64 timeout_ns)
{
	int rc = gdb_detach(&gdb, monotonic_ns() + timeout_ns);

	if (gdb.fd < 0)
		mark('-');
	return rc;
}

static bool do_pause(const struct tcg_order *o)
{
	u64 started = monotonic_ns();
	int rc;

	mark('w');
	rc = gdb_connect(&gdb, stub_path, started + o->timeout_ns);
	if (rc == 0)
		return answer(0, 0, started);
	if (gdb.fd < 0) {
		mark('-');
		return answer(rc, 0, started);
	}
	/*
	 * QEMU may get to our connection later, and will then stop the guest. The detach packet must
	 * be there by then, and the connection open until it is read: closed early, QEMU drops what
	 * it has not read (chardev/char-socket.c:tcp_chr_hup()).
	 */
	if (let_go(0) == -ETIMEDOUT) {
		bool parent = answer(rc, 0, started);

		let_go(LET_GO_NS);
		gdb_drop(&gdb);
		return parent;
	}
	return answer(rc, 0, started);
}

static bool do_write(const struct tcg_order *o)
{
	size_t bad = 0;
	int rc;

	if (o->n > TCG_WRITE_MAX || !read_all(pieces, o->n * sizeof(pieces[0])))
		return false;
	for (u32 i = 0; i < o->n; i++) {
		if (pieces[i].len == 0 || pieces[i].len > sizeof(pieces[i].bytes))
			return answer(-EINVAL, i, 0);
	}
	rc = gdb.fd < 0 ? -EINVAL
			: gdb_write_phys(&gdb, pieces, o->n, &bad, monotonic_ns() + o->timeout_ns);
	return answer(rc, bad, 0);
}

static bool do_order(const struct tcg_order *o)
{
	switch (o->op) {
	case TCG_PAUSE:
		return gdb.fd < 0 ? do_pause(o) : answer(-EALREADY, 0, 0);
	case TCG_WRITE:
		return do_write(o);
	case TCG_RESUME:
		return answer(gdb.fd < 0 ? 0 : let_go(o->timeout_ns), 0, 0);
	default:
		return false;
	}
}

/* Nothing of the daemon's stays open here: its sockets, logs, guests' memory. */
static void keep_only(int sock, int lock)
{
	int null;

	sock = fcntl(sock, F_DUPFD, 10);
	lock = fcntl(lock, F_DUPFD, 10);
	dup2(sock, SOCK_FD);
	dup2(lock, LOCK_FD);
	syscall(SYS_close_range, LOCK_FD + 1, ~0u, 0);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int fd = 0; null >= 0 && fd <= 2; fd++)
		dup2(null, fd);
}

static void set_signals(void)
{
	/* ended only by its socket: a terminal's or a service manager's signals are for the daemon */
	static const int ignored[] = {
		SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2
	};
	struct sigaction dfl = { .sa_handler = SIG_DFL };
	struct sigaction ign = { .sa_handler = SIG_IGN };
	sigset_t none;

	/* none of the daemon's handlers may run here; those of faults neither */
	for (int sig = 1; sig < 32; sig++)
		sigaction(sig, &dfl, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
		sigaction(ignored[i], &ign, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

_Noreturn void tcg_child_run(int sock, int lock, const char *path)
{
	struct tcg_order o;

	set_signals();
	setsid();
	prctl(PR_SET_NAME, "hvf-tcg-window");
	prctl(PR_SET_TIMERSLACK, 1); /* sleeps of some microseconds, while the guest stands still */
	(void)setpriority(PRIO_PROCESS, 0, VM_WINDOW_NICE);
	for (size_t i = 0; path[i] && i < sizeof(stub_path) - 1; i++)
		stub_path[i] = path[i];
	gdb.fd = -1;
	keep_only(sock, lock);
	while (read_all(&o, sizeof(o)) && do_order(&o))
		;
	/* the daemon has gone, in whatever way: the guest must not stay stopped */
	if (gdb.fd >= 0)
		let_go(LET_GO_NS);
	_exit(0);
}
