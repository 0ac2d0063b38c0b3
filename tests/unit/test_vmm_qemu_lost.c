// SPDX-License-Identifier: Apache-2.0
/* vmm/qemu.c and tcg_window.c when the monitor's connection is lost where its answer matters. */
#include "vmm/ptrace_window.h"
#include "vmm/qemu_impl.h"
#include "vmm/tcg_window.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#define SECOND NSEC_PER_SEC

/* The linker has this called instead: see CMakeLists.txt. */
int __wrap_tcg_window_resume(struct tcg_window *w, struct err *err);
int __wrap_ptrace_window_pause(struct ptrace_window *w, const struct vm_threads *only,
			       u64 timeout_ns, u64 *started_ns_ret, struct err *err);
int __wrap_proc_count_fds(pid_t pid, const char *prefix);

/* QEMU. What is written by its thread is read when it has answered. */
static struct {
	char dir[32], path[64];
	int listener, stub; /* -1: none */
	char stub_path[108];
	pthread_t thread, stub_thread;
	const char *status, *migrates;
	bool refuses; /* to say whether it migrates */
	const char *loses; /* the connection at such a command, @n_lose times */
	int n_lose;
	bool listens_no_more; /* after that */
	int n_cont, n_none;
	pid_t vcpu[2];
} qemu;

static struct vm vm;
static struct qemu_priv priv;

/* Whoever connects is sent away. */
static void *run_stub(void *arg)
{
	int fd;

	(void)arg;
	while ((fd = accept(qemu.stub, NULL, NULL)) >= 0)
		close(fd);
	return NULL;
}

/* gdbserver unix:PATH,... */
static void open_stub(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };

	snprintf(qemu.stub_path, sizeof(qemu.stub_path), "%.*s", (int)strcspn(path, ","), path);
	memcpy(addr.sun_path, qemu.stub_path, sizeof(addr.sun_path));
	qemu.stub = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(qemu.stub, (struct sockaddr *)&addr, sizeof(addr)) || listen(qemu.stub, 8) ||
	    pthread_create(&qemu.stub_thread, NULL, run_stub, NULL))
		abort();
}

static void close_stub(void)
{
	shutdown(qemu.stub, SHUT_RDWR);
	pthread_join(qemu.stub_thread, NULL);
	close(qemu.stub);
	qemu.stub = -1;
}

static void answer(int fd, const char *got)
{
	const char *id = strstr(got, "\"id\":"), *path = strstr(got, "gdbserver unix:");
	char value[256] = "{}";

	if (strstr(got, "\"query-status\"")) {
		snprintf(value, sizeof(value), "{\"status\": \"%s\", \"running\": %s}", qemu.status,
			 strcmp(qemu.status, "running") ? "false" : "true");
	} else if (strstr(got, "\"query-cpus-fast\"")) {
		snprintf(value, sizeof(value), "[{\"thread-id\": %d}, {\"thread-id\": %d}]",
			 (int)qemu.vcpu[0], (int)qemu.vcpu[1]);
	} else if (strstr(got, "\"query-migrate\"") && qemu.refuses) {
		dprintf(fd,
			"{\"error\": {\"class\": \"GenericError\", \"desc\": \"no\"}, \"id\": %d}\r\n",
			atoi(id + 5));
		return;
	} else if (strstr(got, "\"query-migrate\"")) {
		snprintf(value, sizeof(value), "{\"status\": \"%s\"}", qemu.migrates);
	} else if (strstr(got, "\"query-chardev\"") && qemu.stub < 0) {
		snprintf(value, sizeof(value), "[]");
	} else if (strstr(got, "\"query-chardev\"")) {
		snprintf(value, sizeof(value),
			 "[{\"label\": \"gdb\", \"filename\": \"disconnected:unix:%s,server=on\"}]",
			 qemu.stub_path);
	} else if (path) {
		open_stub(path + strlen("gdbserver unix:"));
		snprintf(value, sizeof(value), "\"Waiting for gdb connection\"");
	} else if (strstr(got, "gdbserver none")) {
		qemu.n_none++;
		close_stub();
		snprintf(value, sizeof(value), "\"Disabled gdbserver\"");
	} else if (strstr(got, "\"cont\"")) {
		qemu.n_cont++;
		qemu.status = "running";
	}
	dprintf(fd, "{\"return\": %s, \"id\": %d}\r\n", value, atoi(id + 5));
}

static void *run(void *arg)
{
	char got[512];
	ssize_t n;
	int fd;

	(void)arg;
	while ((fd = accept(qemu.listener, NULL, NULL)) >= 0) {
		dprintf(fd, "{\"QMP\": {\"version\": {}, \"capabilities\": []}}\r\n");
		while ((n = recv(fd, got, sizeof(got) - 1, 0)) > 0) {
			got[n] = '\0';
			if (qemu.n_lose && strstr(got, qemu.loses)) {
				qemu.n_lose--;
				break;
			}
			answer(fd, got);
		}
		if (qemu.listens_no_more)
			shutdown(qemu.listener, SHUT_RDWR);
		close(fd);
	}
	return NULL;
}

static bool lives(void *arg, int wait_ms)
{
	(void)arg;
	(void)wait_ms;
	return true;
}

static int check_error;

static int check(void *arg, int fd, struct err *err)
{
	(void)arg;
	(void)fd;
	return !check_error ? 0
			    : err_set(err, check_error,
				      check_error == -ENODEV ? ERR_TARGET_NOT_VMM : ERR_IO, 0,
				      "as it is told");
}

static const struct qmp_peer peer = { .lives = lives, .check = check };

static int setup(void **state)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct err err;

	(void)state;
	memset(&qemu, 0, sizeof(qemu));
	qemu.stub = -1;
	qemu.status = "running";
	qemu.migrates = "active";
	check_error = 0;
	strcpy(qemu.dir, "/tmp/hvf-lost-XXXXXX");
	assert_non_null(mkdtemp(qemu.dir));
	snprintf(qemu.path, sizeof(qemu.path), "%s/qmp", qemu.dir);
	memcpy(addr.sun_path, qemu.path, sizeof(qemu.path));
	qemu.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(qemu.listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(qemu.listener, 8), 0);
	assert_int_equal(pthread_create(&qemu.thread, NULL, run, NULL), 0);
	priv = (struct qemu_priv){ .running = true };
	vm = (struct vm){ .pid = getpid(), .accel = VM_ACCEL_TCG, .priv = &priv };
	vm.pidfd = (int)syscall(SYS_pidfd_open, vm.pid, 0);
	assert_int_equal(qmp_open(qemu.path, 5 * SECOND, &priv.q, &err), 0);
	qmp_set_peer(priv.q, &peer, &vm);
	assert_int_equal(tcg_window_create(priv.q, vm.pid, &priv.tcg, &err), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	tcg_window_destroy(priv.tcg);
	qmp_close(priv.q);
	proc_threads_deinit(&priv.vcpus);
	shutdown(qemu.listener, SHUT_RDWR);
	pthread_join(qemu.thread, NULL);
	close(qemu.listener);
	close(vm.pidfd);
	unlink(qemu.path);
	return rmdir(qemu.dir);
}

static void lose(const char *at, int times, bool for_good)
{
	qemu.loses = at;
	qemu.n_lose = times;
	qemu.listens_no_more = for_good;
}

/* It is asked again: whoever knows a monitor of ours says it. */
/* qapi/migration.json MigrationStatus: each of them. */
static void each_state_of_a_migration(void **state)
{
	static const char *const leaves[] = {
		"setup",
		"cancelling",
		"active",
		"postcopy-active",
		"postcopy-paused",
		"postcopy-recover-setup",
		"postcopy-recover",
		"colo",
		"pre-switchover",
		"device",
		"wait-unplug",
		"postcopy-device",
		"failing",
		"not-there-yet",
	};
	static const char *const stays[] = { "none", "cancelled", "completed", "failed" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(leaves); i++) {
		qemu.migrates = leaves[i];
		assert_int_equal(qemu_leaves(&vm), VM_LEAVES);
	}
	for (size_t i = 0; i < ARRAY_SIZE(stays); i++) {
		qemu.migrates = stays[i];
		assert_int_equal(qemu_leaves(&vm), VM_STAYS);
		assert_true(vm_tells_leaving(&vm));
	}
}

static void whether_it_leaves(void **state)
{
	(void)state;
	assert_int_equal(qemu_leaves(&vm), VM_LEAVES);
	lose("query-migrate", 1, false);
	assert_int_equal(qemu_leaves(&vm), VM_LEAVES);
	lose("query-migrate", 2, false);
	assert_int_equal(qemu_leaves(&vm), VM_LEAVING_UNKNOWN);
	assert_int_equal(qemu_leaves(&vm), VM_LEAVES);
	check_error = -EIO;
	lose("query-migrate", 1, false);
	assert_int_equal(qemu_leaves(&vm), VM_LEAVING_UNKNOWN);
	check_error = -ENODEV;
	assert_int_equal(qemu_leaves(&vm), VM_STAYS);
	assert_false(vm_tells_leaving(&vm)); /* nobody said so */
	check_error = 0;
	assert_int_equal(qemu_leaves(&vm), VM_LEAVES);
	assert_true(vm_tells_leaving(&vm));
	qemu.refuses = true;
	assert_int_equal(qemu_leaves(&vm), VM_STAYS);
	assert_false(vm_tells_leaving(&vm));
	qemu.refuses = false;
}

/* As with a guest that never had one: what is in it can be given back. */
static void a_monitor_that_is_no_more(void **state)
{
	(void)state;
	lose("query-migrate", 1, true);
	assert_int_equal(qemu_leaves(&vm), VM_STAYS);
	assert_int_equal(qemu_leaves(&vm), VM_STAYS);
}

int __wrap_tcg_window_resume(struct tcg_window *w, struct err *err)
{
	(void)w;
	return err_set(err, -ENOTCONN, ERR_VMM_PROTOCOL, 0, "lost");
}

/* Whether the guest runs is not known: that is no success. */
static void the_end_of_a_window(void **state)
{
	struct err err = { 0 };

	(void)state;
	assert_int_equal(qemu_resume(&vm, &err), -ENOTCONN);
	assert_true(err.msg[0]);
}

static void begin_window(void)
{
	struct err err = { 0 };
	u64 started;

	assert_int_equal(tcg_window_pause(priv.tcg, 5 * SECOND, &started, &err), -ESRCH);
	assert_true(qemu.stub >= 0);
	assert_int_equal(access(qemu.stub_path, F_OK), 0);
}

/* The daemon that died had a window open: its guest is let go on whichever of the commands is lost. */
static void a_guest_that_is_let_go_on(void **state)
{
	static const char *const at[] = { "query-status", "\"cont\"" };
	struct err err = { 0 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
		char path[sizeof(qemu.stub_path)];
		FILE *f;

		begin_window();
		memcpy(path, qemu.stub_path, sizeof(path));
		lose("gdbserver none", 2, false);
		tcg_window_destroy(priv.tcg);
		strcpy(strrchr(path, '/'), "/lock");
		f = fopen(path, "r+");
		assert_non_null(f);
		fputc('w', f);
		fclose(f);
		qemu.status = "paused";
		qemu.n_cont = 0;
		lose(at[i], 1, false);
		assert_int_equal(tcg_window_check(priv.q, vm.pid, &err), 0);
		assert_int_equal(qemu.n_cont, 1);
		assert_string_equal(qemu.status, "running");
		assert_int_equal(access(path, F_OK), -1);
		assert_int_equal(tcg_window_create(priv.q, vm.pid, &priv.tcg, &err), 0);
	}
}

static void end_window(void)
{
	struct err err = { 0 };

	tcg_window_destroy(priv.tcg);
	assert_int_equal(tcg_window_create(priv.q, vm.pid, &priv.tcg, &err), 0);
}

static void a_stub_is_taken_down(void **state)
{
	(void)state;
	begin_window();
	lose("gdbserver none", 1, false);
	end_window();
	assert_int_equal(qemu.n_none, 1);
	assert_int_equal(access(qemu.stub_path, F_OK), -1);
}

/* Another client of the monitor: does it get a greeting? */
static bool another_is_greeted(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct pollfd p = { .fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0),
			    .events = POLLIN };
	bool greeted;

	memcpy(addr.sun_path, qemu.path, sizeof(qemu.path));
	assert_int_equal(connect(p.fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	greeted = poll(&p, 1, 3000) == 1;
	close(p.fd);
	return greeted;
}

/* The monitor is kept for the sake of a stub that is there, and not of one that somebody closed. */
static void a_stub_that_somebody_closes(void **state)
{
	struct err err = { 0 };
	u64 started;

	(void)state;
	assert_int_equal(qmp_share(priv.q, SECOND / 20, &err), 0);
	begin_window();
	close_stub();
	lose("query-chardev", 2, false); /* none is opened in its place */
	assert_true(tcg_window_pause(priv.tcg, 5 * SECOND, &started, &err) < 0);
	assert_int_equal(qemu.stub, -1);
	assert_int_equal(qemu_leaves(&vm), VM_LEAVES);
	assert_true(another_is_greeted());
}

/* Or it is left with what says whose it is, and the next one takes it down. */
static void a_stub_is_left(void **state)
{
	struct err err = { 0 };

	(void)state;
	begin_window();
	lose("gdbserver none", 2, false);
	end_window();
	assert_int_equal(qemu.n_none, 0);
	assert_int_equal(access(qemu.stub_path, F_OK), 0);
	assert_int_equal(tcg_window_check(priv.q, vm.pid, &err), 0);
	assert_int_equal(qemu.n_none, 1);
	assert_int_equal(access(qemu.stub_path, F_OK), -1);
}

/* What the wrapped ones say, and were told. */
static struct {
	int fds, n_pauses;
	bool ended; /* one of the threads that are named */
	size_t n;
	pid_t tid[2];
} kvm;

int __wrap_proc_count_fds(pid_t pid, const char *prefix)
{
	assert_int_equal(pid, getpid());
	assert_string_equal(prefix, "anon_inode:kvm-vcpu:");
	return kvm.fds;
}

int __wrap_ptrace_window_pause(struct ptrace_window *w, const struct vm_threads *only,
			       u64 timeout_ns, u64 *started_ns_ret, struct err *err)
{
	(void)w;
	(void)timeout_ns;
	(void)started_ns_ret;
	kvm.n_pauses++;
	kvm.n = only ? only->n : 0;
	for (size_t i = 0; i < kvm.n && i < ARRAY_SIZE(kvm.tid); i++)
		kvm.tid[i] = only->tid[i];
	return kvm.n && kvm.ended ? err_set(err, -ESRCH, ERR_VMM_GONE, 0, "ended") : 0;
}

static void *wait_for_end(void *arg)
{
	char c;

	qemu.vcpu[1] = gettid();
	(void)!write(((int *)arg)[3], "x", 1);
	(void)!read(((int *)arg)[0], &c, 1);
	return NULL;
}

static void pause_two(bool both)
{
	assert_int_equal(qemu_pause(&vm, SECOND, NULL), 0);
	assert_int_equal(kvm.n, both ? 2 : 0);
	if (both)
		assert_memory_equal(kvm.tid, qemu.vcpu, sizeof(kvm.tid));
}

static void threads_are(size_t n)
{
	struct vm_threads t = { 0 };

	assert_int_equal(qemu_host_threads(&vm, &t, NULL), 0);
	if (n)
		assert_int_equal(t.n, n);
	else
		assert_true(t.n > 2);
	proc_threads_deinit(&t);
}

/* Of the monitor that is away: what it said last holds as long as there are as many vCPUs. */
static void vcpus_that_are_known(void **state)
{
	char ptrace;
	pthread_t thread[2];
	int ends[4];
	char c;

	(void)state;
	vm.accel = VM_ACCEL_KVM;
	priv.ptrace = (struct ptrace_window *)(void *)&ptrace;
	memset(&kvm, 0, sizeof(kvm));
	qemu.vcpu[0] = gettid();
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(pipe(ends + 2), 0);
	for (size_t i = 0; i < 2; i++) { /* the second is a vCPU */
		assert_int_equal(pthread_create(&thread[i], NULL, wait_for_end, ends), 0);
		assert_int_equal(read(ends[2], &c, 1), 1);
	}
	pause_two(true);
	threads_are(2);
	lose("query-status", 1, true);
	kvm.fds = 2;
	pause_two(true);
	pause_two(true);
	threads_are(2);
	kvm.fds = 3; /* plugged in */
	threads_are(0);
	pause_two(false);
	kvm.fds = 2; /* and out: which ones are left is not known any more */
	pause_two(false);
	assert_int_equal(write(ends[1], "xx", 2), 2);
	for (size_t i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
		close(ends[i]);
}

/* Plugged out and in again while the monitor is away. */
static void a_vcpu_that_ended(void **state)
{
	char ptrace;

	(void)state;
	vm.accel = VM_ACCEL_KVM;
	priv.ptrace = (struct ptrace_window *)(void *)&ptrace;
	memset(&kvm, 0, sizeof(kvm));
	kvm.fds = 1;
	qemu.vcpu[0] = qemu.vcpu[1] = gettid(); /* one thread of both */
	qemu_note_threads(&vm);
	lose("query-status", 1, true);
	kvm.ended = true;
	pause_two(false);
	assert_int_equal(kvm.n_pauses, 2);
	pause_two(false);
	assert_int_equal(kvm.n_pauses, 3);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(whether_it_leaves),           TEST(each_state_of_a_migration),
		TEST(a_monitor_that_is_no_more),   TEST(the_end_of_a_window),
		TEST(a_guest_that_is_let_go_on),   TEST(a_stub_is_taken_down),
		TEST(a_stub_that_somebody_closes), TEST(a_stub_is_left),
		TEST(vcpus_that_are_known),        TEST(a_vcpu_that_ended),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
