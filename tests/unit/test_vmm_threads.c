// SPDX-License-Identifier: Apache-2.0
/* Threads of a VMM: how far they have run, however many there are. */
#include "vmm/proc.h"
#include "vmm/vm_ops.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#define SECOND    NSEC_PER_SEC
#define N_THREADS 600u

static int all_threads(struct vm *vm, struct vm_threads *ret, struct err *err)
{
	(void)err;
	return proc_threads(vm->pid, ret);
}

static void *wait_for_end(void *arg)
{
	pthread_mutex_lock(arg);
	pthread_mutex_unlock(arg);
	return NULL;
}

/* A VMM with more threads than anybody has vCPUs. */
static void progress_of_many_threads(void **state)
{
	static const struct vm_ops ops = { .threads = all_threads };
	static pthread_t thread[N_THREADS];
	pthread_mutex_t end = PTHREAD_MUTEX_INITIALIZER;
	struct vm vm = { .ops = &ops, .pid = getpid(), .n_vcpus = 2 };
	struct vm_progress p;
	pthread_attr_t attr;
	u32 n = 0;

	(void)state;
	vm.pidfd = (int)syscall(SYS_pidfd_open, vm.pid, 0);
	assert_true(vm.pidfd >= 0);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 64 << 10);
	pthread_mutex_lock(&end);
	while (n < N_THREADS && !pthread_create(&thread[n], &attr, wait_for_end, &end))
		n++;
	assert_int_equal(n, N_THREADS);
	assert_int_equal(vm_progress(&vm, &p, NULL), 0);
	assert_int_equal(p.n, N_THREADS + 1);
	assert_int_equal(p.vcpus_per_thread, 1);
	assert_false(vm_progressed(&vm, &p, 3600 * SECOND)); /* we have not slept */
	vm_progress_deinit(&p);
	vm_progress_deinit(&p);
	pthread_mutex_unlock(&end);
	while (n)
		pthread_join(thread[--n], NULL);
	pthread_attr_destroy(&attr);
	close(vm.pidfd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(progress_of_many_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
