// SPDX-License-Identifier: Apache-2.0
/* vmm/qemu.c and tcg_window.c at the end of a stop window: who may be let go on, against a monitor of our own. */
#include "vmm/qemu_impl.h"
#include "vmm/tcg_window.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#define SECOND   NSEC_PER_SEC
#define GREETING "{\"QMP\": {\"version\": {}, \"capabilities\": []}}\r\n"

/* The linker has this called instead: see CMakeLists.txt. */
int __wrap_tcg_window_resume(struct tcg_window *w, struct err *err);
int __real_tcg_window_resume(struct tcg_window *w, struct err *err);

static bool let_go; /* the window's child and the gdbstub do what they should */

int __wrap_tcg_window_resume(struct tcg_window *w, struct err *err)
{
	return let_go ? 0 : __real_tcg_window_resume(w, err);
}

/* A QEMU that stands still, as query-status says. */
struct monitor {
	int fd;
	const char *status;
	int n_cont, n_asked;
};

static void *answer(void *arg)
{
	struct monitor *m = arg;
	char got[256];
	ssize_t n;

	dprintf(m->fd, GREETING);
	while ((n = recv(m->fd, got, sizeof(got) - 1, 0)) > 0) {
		unsigned long long id = 0;
		char *p;

		got[n] = '\0';
		p = strstr(got, "\"id\":");
		if (p)
			id = strtoull(p + 5, NULL, 10);
		if (strstr(got, "\"query-status\"")) {
			m->n_asked++;
			dprintf(m->fd,
				"{\"return\": {\"status\": \"%s\", \"running\": false}, \"id\": %llu}\r\n",
				m->status, id);
			continue;
		}
		m->n_cont += strstr(got, "\"cont\"") != NULL;
		dprintf(m->fd, "{\"return\": {}, \"id\": %llu}\r\n", id);
	}
	close(m->fd);
	return NULL;
}

/* The end of a window on a QEMU that says @status. */
static int resume(struct monitor *m, const char *status, bool as_it_should)
{
	struct qemu_priv priv = { .running = true };
	struct vm vm = { .pid = getpid(), .accel = VM_ACCEL_TCG, .priv = &priv };
	struct err err = { 0 };
	pthread_t thread;
	int pair[2], rc;

	*m = (struct monitor){ .status = status };
	let_go = as_it_should;
	vm.pidfd = (int)syscall(SYS_pidfd_open, vm.pid, 0);
	assert_true(vm.pidfd >= 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	m->fd = pair[1];
	assert_int_equal(pthread_create(&thread, NULL, answer, m), 0);
	assert_int_equal(qmp_open_fd(pair[0], SECOND, &priv.q, &err), 0);
	assert_int_equal(tcg_window_create(priv.q, vm.pid, &priv.tcg, &err), 0);
	rc = qemu_resume(&vm, &err);
	tcg_window_destroy(priv.tcg);
	qmp_close(priv.q);
	pthread_join(thread, NULL);
	close(vm.pidfd);
	return rc;
}

/* It was let go; that it stands still is somebody else's doing, whatever it is called. */
static void who_stopped_it_meanwhile_has_a_reason(void **state)
{
	static const char *const all[] = { "paused", "postmigrate", "finish-migrate", "io-error",
					   "guest-panicked" };
	struct monitor m;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		assert_int_equal(resume(&m, all[i], true), 0);
		assert_int_equal(m.n_cont, 0);
	}
}

/* The child has ended before it was told to let go. */
static void a_window_that_did_not_end(void **state)
{
	static const char *const others[] = { "postmigrate", "io-error", "save-vm",
					      "internal-error" };
	struct monitor m;

	(void)state;
	assert_int_equal(resume(&m, "paused", false), -EIO);
	assert_int_equal(m.n_cont, 1);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		assert_int_equal(resume(&m, others[i], false), -EIO);
		assert_int_equal(m.n_cont, 0);
		assert_int_equal(m.n_asked, 1);
	}
	assert_int_equal(resume(&m, "running", false), -EIO);
	assert_int_equal(m.n_cont, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_stopped_it_meanwhile_has_a_reason),
		cmocka_unit_test(a_window_that_did_not_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
