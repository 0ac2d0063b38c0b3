// SPDX-License-Identifier: Apache-2.0
/* machine/: what a guest's process may still do once it is confined, in children that are. */
#include "machine/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define VM 7 /* a descriptor that is not open */

static const struct sandbox least = { .vm = VM },
			    most = { .vm = VM, .reboot = true, .net = true, .vsock = true };

/* Wait status of a child that is confined and then does @what. */
static int child(void (*what)(void), const struct sandbox *s)
{
	struct err err = { 0 };
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		if (sandbox_enter(s, &err) < 0)
			_exit(99);
		what();
		_exit(0);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void guests_work(void)
{
	char bytes[16];
	void *p = malloc(1 << 20);

	free(p);
	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes) || write(2, "", 0) < 0)
		_exit(1);
	p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED || munmap(p, 4096) < 0)
		_exit(2);
	/* its vCPUs' debug registers */
	(void)ioctl(VM, KVM_SET_GUEST_DEBUG, NULL);
	(void)ioctl(VM, KVM_GET_DEBUGREGS, NULL);
	(void)ioctl(VM, KVM_SET_DEBUGREGS, NULL);
	/* what stdio asks is answered, not punished */
	if (isatty(0))
		_exit(3);
}

/* Threads are there before the process is confined, and need memory after. */
static pthread_barrier_t confined;

static void *use_heap(void *arg)
{
	void *p[64];

	pthread_barrier_wait(&confined);
	for (int round = 0; round < 8; round++) {
		for (size_t i = 0; i < ARRAY_SIZE(p); i++)
			p[i] = malloc(100000);
		for (size_t i = ARRAY_SIZE(p); i--;)
			free(p[i]);
	}
	return arg;
}

static void heaps_of_threads(void)
{
	enum {
		N = 4
	};
	struct err err = { 0 };
	pthread_t t[N];

	pthread_barrier_init(&confined, NULL, N + 1);
	for (size_t i = 0; i < N; i++) {
		if (pthread_create(&t[i], NULL, use_heap, NULL))
			_exit(4);
	}
	if (sandbox_enter(&least, &err) < 0)
		_exit(5);
	pthread_barrier_wait(&confined);
	for (size_t i = 0; i < N; i++)
		pthread_join(t[i], NULL);
	_exit(0);
}

/* The C library trims the arena of a thread of its own with an open(): there must be none. */
static void test_threads_have_no_arenas(void **state)
{
	int status = 0;
	pid_t pid = fork();

	(void)state;
	if (pid == 0) {
		sandbox_prepare();
		heaps_of_threads();
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void open_file(void)
{
	(void)open("/etc/passwd", O_RDONLY | O_CLOEXEC);
}

static void run_program(void)
{
	(void)execl("/bin/true", "true", (char *)NULL);
}

static void make_socket(void)
{
	(void)socket(AF_INET, SOCK_STREAM, 0);
}

static void map_code(void)
{
	(void)mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void make_code(void)
{
	static char page[2 * 4096];

	(void)mprotect((void *)(((uintptr_t)page + 4095) & ~4095ul), 4096, PROT_READ | PROT_EXEC);
}

static void signal_parent(void)
{
	(void)kill(getppid(), SIGCONT);
}

static void other_ioctl(void)
{
	(void)ioctl(0, 0x5412 /* TIOCSTI: types at the terminal */, "x");
}

static void test_guest_goes_on(void **state)
{
	int status = child(guests_work, &most);

	(void)state;
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_rest_is_refused(void **state)
{
	static void (*const tries[])(void) = { open_file, run_program,   make_socket, map_code,
					       make_code, signal_parent, other_ioctl };

	(void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	skip();
#endif
	for (size_t i = 0; i < ARRAY_SIZE(tries); i++) {
		int status = child(tries[i], &most);

		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSYS)
			fail_msg("try %zu ended with status 0x%x", i, status);
	}
}

static void shut_down_socket(void)
{
	(void)shutdown(0, SHUT_WR);
}

static void set_offload(void)
{
	(void)ioctl(0, TUNSETOFFLOAD, 0);
}

static void make_vm(void)
{
	(void)ioctl(0, KVM_CREATE_VM, 0);
}

static void change_slots(void)
{
	(void)ioctl(VM, KVM_SET_USER_MEMORY_REGION, NULL);
}

static void change_anothers_slots(void)
{
	(void)ioctl(VM + 1, KVM_SET_USER_MEMORY_REGION, NULL);
}

/* Where the VM is made once, its memory alone is changed. */
static void test_slots_of_its_own(void **state)
{
	int status = child(change_slots, &least);

	(void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	skip();
#endif
	assert_true(WIFEXITED(status));
	status = child(change_anothers_slots, &least);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
	status = child(change_anothers_slots, &most);
	assert_true(WIFEXITED(status));
}

/* What only some guests need, only those get. */
static void test_each_device_its_own(void **state)
{
	static void (*const tries[])(void) = { make_vm, set_offload, shut_down_socket };
	static const struct sandbox with[] = { { .reboot = true },
					       { .net = true },
					       { .vsock = true } };

	(void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	skip();
#endif
	for (size_t i = 0; i < ARRAY_SIZE(tries); i++) {
		int status = child(tries[i], &least);

		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
		for (size_t k = 0; k < ARRAY_SIZE(with); k++) {
			status = child(tries[i], &with[k]);
			assert_int_equal(WIFEXITED(status), i == k);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_guest_goes_on),
		cmocka_unit_test(test_threads_have_no_arenas),
		cmocka_unit_test(test_rest_is_refused),
		cmocka_unit_test(test_each_device_its_own),
		cmocka_unit_test(test_slots_of_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
