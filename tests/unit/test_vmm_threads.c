// SPDX-License-Identifier: Apache-2.0
/* Threads of a VMM: whose they are when a window stops them, and how far they have run however many there are. */
#include "vmm/proc.h"
#include "vmm/ptrace_window.h"
#include "vmm/vm_ops.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SECOND    NSEC_PER_SEC
#define N_THREADS 600u

static pid_t start_process(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	assert_true(pid > 0);
	return pid;
}

static void end_process(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* proc(5): "TracerPid:\t0" */
static int tracer_of(pid_t pid)
{
	char path[32], line[128];
	int tracer = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f) && sscanf(line, "TracerPid: %d", &tracer) != 1)
		;
	fclose(f);
	return tracer;
}

/* A vCPU thread ended, and another process has its number: that one is not stopped, not for a moment. */
static void a_number_that_is_somebody_elses(void **state)
{
	pid_t vmm = start_process(), other = start_process();
	struct vm_threads right = { .tid = &vmm, .n = 1 }, wrong = { .tid = &other, .n = 1 };
	struct ptrace_window *w = NULL;
	struct err err = { 0 };
	u64 started;
	int rc;

	(void)state;
	assert_int_equal(ptrace_window_create(vmm, &w, &err), 0);
	rc = ptrace_window_pause(w, &right, SECOND, &started, &err);
	if (rc == -EACCES) {
		end_process(vmm);
		end_process(other);
		skip(); /* this machine lets nobody be traced */
	}
	assert_int_equal(rc, 0);
	assert_true(tracer_of(vmm) > 0);
	assert_int_equal(ptrace_window_resume(w, &err), 0);
	assert_int_equal(ptrace_window_pause(w, &wrong, SECOND, &started, &err), -ESRCH);
	assert_int_equal(err.code, ERR_VMM_GONE);
	assert_int_equal(tracer_of(other), 0);
	assert_int_equal(tracer_of(vmm), 0);
	/* and with all threads of the VMM it goes on */
	assert_int_equal(ptrace_window_pause(w, NULL, SECOND, &started, &err), 0);
	assert_int_equal(tracer_of(other), 0);
	assert_int_equal(ptrace_window_resume(w, &err), 0);
	ptrace_window_destroy(w);
	end_process(vmm);
	end_process(other);
}

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
		cmocka_unit_test(a_number_that_is_somebody_elses),
		cmocka_unit_test(progress_of_many_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
