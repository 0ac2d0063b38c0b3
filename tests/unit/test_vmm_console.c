// SPDX-License-Identifier: Apache-2.0
/* vmm/console.c: a console is found in the process of a VMM, whoever that belongs to and whatever it says of its files. */
#include "base/cleanup.h"
#include "base/console_ring.h"
#include "vmm/console.h"
#include "vmm/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define NAMED "/memfd:" CONSOLE_RING_NAME " (deleted)"

static char dir[] = "/tmp/hvf-console-XXXXXX", secret[64], fifo[64], root[64];

static int taken; /* descriptors, from others */

int __wrap_pidfd_getfd(int pidfd, int number, unsigned int flags);
int __wrap_pidfd_getfd(int pidfd, int number, unsigned int flags)
{
	taken++;
	return (int)syscall(SYS_pidfd_getfd, pidfd, number, flags);
}

/* A process that has files open, and what the test has of it. */
struct vmm {
	pid_t pid;
	int pidfd;
	int say; /* what is written here the process's console says */
	int typed; /* and here comes what is typed */
	struct vm_console *console;
};

/* What it does before others look; what it has said so far is in @ring, where there is one. */
typedef void (*prepare_fn)(struct console_ring *ring, int ring_fd, int input[2]);

static void be_vmm(prepare_fn prepare, int say, int typed, int ready)
{
	struct console_ring ring;
	int fd = -1, input[2];
	char buf[65536];
	ssize_t n;

	if (console_ring_create(&ring, &fd, NULL) || pipe2(input, O_CLOEXEC | O_NONBLOCK))
		_exit(1);
	console_ring_offer_input(&ring, input[1]);
	if (prepare)
		prepare(&ring, fd, input);
	if (write(ready, "1", 1) != 1)
		_exit(1);
	while ((n = read(say, buf, sizeof(buf))) > 0) {
		if (n == 5 &&
		    memcmp(buf, "read!", 5) == 0) { /* as a guest that looks at its port */
			n = read(input[0], buf, sizeof(buf));
			if (n > 0 && write(typed, buf, (size_t)n) != n)
				_exit(1);
			continue;
		}
		console_ring_put(&ring, buf, (size_t)n);
		if (write(ready, "1", 1) != 1)
			_exit(1);
	}
	_exit(0);
}

static int ready_fd;

static void wait_ready(void)
{
	char c;

	assert_int_equal(read(ready_fd, &c, 1), 1);
}

static void start(struct vmm *v, prepare_fn prepare)
{
	int say[2], typed[2], ready[2];

	assert_int_equal(pipe2(say, O_CLOEXEC), 0);
	assert_int_equal(pipe2(typed, O_CLOEXEC), 0);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	*v = (struct vmm){ .pid = fork() };
	if (v->pid == 0) {
		close(say[1]);
		be_vmm(prepare, say[0], typed[1], ready[1]);
	}
	v->pidfd = pidfd_open(v->pid, 0);
	close(say[0]);
	close(typed[1]);
	close(ready[1]);
	v->say = say[1];
	v->typed = typed[0];
	ready_fd = ready[0];
	wait_ready();
}

static void end(struct vmm *v)
{
	kill(v->pid, SIGKILL);
	waitpid(v->pid, NULL, 0);
	vm_console_unref(v->console);
	close(v->pidfd);
	close(v->say);
	close(v->typed);
	close(ready_fd);
}

static int find(struct vmm *v)
{
	taken = 0;
	return vm_console_find(v->pid, v->pidfd, &v->console);
}

static void say(struct vmm *v, const char *text)
{
	assert_int_equal(write(v->say, text, strlen(text)), strlen(text));
	wait_ready();
}

static void assert_says(struct vmm *v, u64 *at, const char *want)
{
	char buf[200];
	u64 lost;
	size_t n = vm_console_read(v->console, at, buf, sizeof(buf), &lost);

	assert_int_equal(n, strlen(want));
	assert_memory_equal(buf, want, n);
}

static void test_read_and_typed(void **state)
{
	struct err err = { 0 };
	char buf[100];
	u64 at = 0;
	struct vmm v;

	(void)state;
	start(&v, NULL);
	assert_int_equal(find(&v), 0);
	say(&v, "hello");
	assert_says(&v, &at, "hello");
	assert_true(vm_console_takes(v.console));
	assert_int_equal(vm_console_type(v.console, "typed", 5, &err), 0);
	assert_int_equal(vm_console_type(v.console, NULL, 0, &err), 0);
	assert_int_equal(write(v.say, "read!", 5), 5);
	assert_int_equal(read(v.typed, buf, sizeof(buf)), 5);
	assert_memory_equal(buf, "typed", 5);
	end(&v);
}

/* Bytes that nobody takes are not kept without end, and those of one call are all taken or none. */
static void test_nobody_takes_what_is_typed(void **state)
{
	static u8 much[CONSOLE_INPUT_MAX + 1], got[65536];
	struct err err = { 0 };
	size_t n = 0;
	struct vmm v;
	int rc;

	(void)state;
	start(&v, NULL);
	assert_int_equal(find(&v), 0);
	assert_int_equal(vm_console_type(v.console, much, sizeof(much), &err), -EMSGSIZE);
	assert_int_equal(err.code, ERR_CONSOLE_SIZE);
	while (!(rc = vm_console_type(v.console, much, 3000, &err)) && n < 1000)
		n++;
	assert_int_equal(rc, -EAGAIN);
	assert_int_equal(err.code, ERR_CONSOLE_FULL);
	assert_in_range(n, 5, 40);
	assert_int_equal(write(v.say, "read!", 5), 5);
	assert_int_equal(read(v.typed, got, sizeof(got)) % 3000, 0);
	end(&v);
}

static void test_the_vmm_ends(void **state)
{
	struct err err = { 0 };
	struct vmm v;
	u64 at = 0;

	(void)state;
	start(&v, NULL);
	assert_int_equal(find(&v), 0);
	say(&v, "last words");
	assert_false(vm_console_ended(v.console));
	kill(v.pid, SIGKILL);
	waitpid(v.pid, NULL, 0);
	assert_true(vm_console_ended(v.console));
	assert_says(&v, &at, "last words");
	assert_int_equal(vm_console_type(v.console, "x", 1, &err), -ESRCH);
	assert_int_equal(err.code, ERR_VMM_GONE);
	/* nor is another process of that number taken for it */
	vm_console_unref(v.console);
	v.console = NULL;
	assert_true(find(&v) < 0);
	end(&v);
}

static void test_let_go(void **state)
{
	struct vmm v;

	(void)state;
	start(&v, NULL);
	assert_int_equal(find(&v), 0);
	vm_console_ref(v.console);
	vm_console_close(v.console);
	assert_true(vm_console_ended(v.console));
	vm_console_unref(v.console);
	assert_true(vm_console_ended(v.console));
	end(&v);
}

/* @takes: descriptors, with the ring's; what may be a file of whoever's is not so much as taken over, and closed again */
static void test_input(void **state, prepare_fn prepare, int takes)
{
	struct err err = { 0 };
	struct vmm v;

	(void)state;
	start(&v, prepare);
	assert_int_equal(find(&v), 0);
	assert_int_equal(taken, takes);
	assert_false(vm_console_takes(v.console));
	assert_int_equal(vm_console_type(v.console, "x", 1, &err), -ENOTSUP);
	assert_int_equal(err.code, ERR_CONSOLE_READ_ONLY);
	end(&v);
}

static void no_input(struct console_ring *ring, int fd, int input[2])
{
	(void)fd;
	(void)input;
	console_ring_offer_input(ring, -1);
}

static void its_reading_end(struct console_ring *ring, int fd, int input[2])
{
	(void)fd;
	console_ring_offer_input(ring, input[0]);
}

static void a_number_of_nothing(struct console_ring *ring, int fd, int input[2])
{
	(void)fd;
	(void)input;
	console_ring_offer_input(ring, 1 << 20);
}

static void a_file(struct console_ring *ring, int fd, int input[2])
{
	(void)fd;
	(void)input;
	console_ring_offer_input(ring, open(secret, O_WRONLY | O_CLOEXEC));
}

static void a_fifo_that_others_read(struct console_ring *ring, int fd, int input[2])
{
	(void)fd;
	(void)input;
	if (mkfifo(fifo, 0666))
		_exit(1);
	(void)open(fifo, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	console_ring_offer_input(ring, open(fifo, O_WRONLY | O_NONBLOCK | O_CLOEXEC));
}

static void only_named(struct console_ring *ring, int fd, int input[2])
{
	char path[32];

	(void)fd;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", input[0]);
	console_ring_offer_input(ring, open(path, O_PATH | O_CLOEXEC));
}

/* The VMM's word for what takes input is not taken for more than a number. */
static void test_input_that_is_none(void **state)
{
	test_input(state, no_input, 1);
	test_input(state, its_reading_end, 2);
	test_input(state, a_number_of_nothing, 1);
	test_input(state, a_file, 1);
	test_input(state, a_fifo_that_others_read, 1);
	test_input(state, only_named, 2);
	unlink(fifo);
}

/* A VMM that has a file called like a console: where it mounts things itself, names are its own. */
static void put_in_place(const char *what)
{
	static const char name[] = "memfd:" CONSOLE_RING_NAME " (deleted)";
	int fd;

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("none", root, "tmpfs", 0, NULL) < 0 || chdir(root) < 0)
		_exit(1);
	fd = open(name, O_CREAT | O_RDWR, 0600);
	if (fd < 0 || mount(what, name, NULL, MS_BIND, NULL) < 0 || close(fd) < 0 ||
	    syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 ||
	    open(name, O_RDWR) < 0)
		_exit(1);
}

static void a_secret_to_read(struct console_ring *ring, int fd, int input[2])
{
	(void)ring;
	(void)input;
	close(fd);
	put_in_place(secret);
}

static void nothing(struct console_ring *ring, int fd, int input[2])
{
	(void)ring;
	(void)input;
	close(fd);
}

/* A description that only names it: whoever has it cannot read. */
static void only_a_name(struct console_ring *ring, int fd, int input[2])
{
	char path[32];

	(void)ring;
	(void)input;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (open(path, O_PATH) < 0)
		_exit(1);
	close(fd);
}

static void only_written(struct console_ring *ring, int fd, int input[2])
{
	char path[32];

	(void)ring;
	(void)input;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (open(path, O_WRONLY) < 0)
		_exit(1);
	close(fd);
}

static void not_sealed(struct console_ring *ring, int fd, int input[2])
{
	(void)ring;
	(void)input;
	close(fd);
	fd = memfd_create(CONSOLE_RING_NAME, MFD_ALLOW_SEALING);
	if (fd < 0 || ftruncate(fd, 4096 + CONSOLE_RING_BYTES) < 0)
		_exit(1);
}

static void many_that_are_none(struct console_ring *ring, int fd, int input[2])
{
	for (int i = 0; i < 100; i++)
		not_sealed(ring, i ? -1 : fd, input);
}

static void test_not_found(void **state)
{
	static const prepare_fn cases[] = { nothing,    only_a_name,        only_written,
					    not_sealed, many_that_are_none, a_secret_to_read };
	struct vmm v;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		if (cases[i] == a_secret_to_read && geteuid() != 0)
			continue; /* needs a mount namespace */
		start(&v, cases[i]);
		assert_int_equal(proc_count_fds(v.pid, NAMED) > 0, cases[i] != nothing);
		if (find(&v) != -ENOENT)
			fail_msg("case %zu", i);
		if (cases[i] == a_secret_to_read)
			assert_int_equal(taken, 0);
		end(&v);
	}
}

/* The first that has the name is no console: the second is. */
static void a_second_one(struct console_ring *ring, int fd, int input[2])
{
	(void)ring;
	(void)input;
	if (fcntl(fd, F_DUPFD_CLOEXEC, 100) < 0)
		_exit(1);
	not_sealed(ring, fd, input);
}

static void test_the_next_of_that_name(void **state)
{
	struct vmm v;

	(void)state;
	start(&v, a_second_one);
	assert_int_equal(find(&v), 0);
	end(&v);
}

static int make_files(void **state)
{
	int fd;

	(void)state;
	if (!mkdtemp(dir))
		return -1;
	snprintf(secret, sizeof(secret), "%s/secret", dir);
	snprintf(fifo, sizeof(fifo), "%s/fifo", dir);
	snprintf(root, sizeof(root), "%s/root", dir);
	fd = open(secret, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	return fd < 0 || close(fd) || mkdir(root, 0700);
}

static int remove_files(void **state)
{
	(void)state;
	return unlink(secret) || rmdir(root) || rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read_and_typed),
		cmocka_unit_test(test_nobody_takes_what_is_typed),
		cmocka_unit_test(test_the_vmm_ends),
		cmocka_unit_test(test_let_go),
		cmocka_unit_test(test_input_that_is_none),
		cmocka_unit_test(test_not_found),
		cmocka_unit_test(test_the_next_of_that_name),
	};

	return cmocka_run_group_tests(tests, make_files, remove_files);
}
