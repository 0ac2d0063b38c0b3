// SPDX-License-Identifier: Apache-2.0
/*
 * Threads of a VMM: whose they are when a window stops them, for how long they stand when one of them does not, and how
 * far they have run however many there are.
 */
#include "base/clock.h"
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
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
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

/* A VMM of which one thread counts, and another cannot be stopped: state D, until @release is written to. */
struct hung_vmm {
	pid_t pid;
	int release[2];
	struct shared {
		volatile pid_t counts, hangs;
		volatile u64 n;
	} * shared;
	struct ptrace_window *window;
	struct vm_threads vcpus; /* none: all */
	struct vm vm;
};

static void *count(void *arg)
{
	struct shared *s = arg;

	s->counts = gettid();
	for (;;)
		s->n++;
	return NULL;
}

/* The parent of a vfork() waits for the child's end, and no signal but SIGKILL ends that. */
static void *hang(void *arg)
{
	struct hung_vmm *h = arg;
	char c;

	h->shared->hangs = gettid();
	if (vfork() == 0) {
		while (read(h->release[0], &c, 1) < 0)
			;
		_exit(0);
	}
	for (;;)
		pause();
	return NULL;
}

static void run_hung(struct hung_vmm *h)
{
	pthread_t t;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(h->release[1]);
	if (pthread_create(&t, NULL, count, h->shared) || pthread_create(&t, NULL, hang, h))
		_exit(1);
	for (;;)
		pause();
}

static char state_of(const struct hung_vmm *h, pid_t tid)
{
	char state = '?';
	u64 start;

	(void)!proc_stat(h->pid, tid, &state, &start);
	return state;
}

static int pause_hung(struct vm *vm, u64 timeout_ns, struct err *err)
{
	struct hung_vmm *h = vm->priv;

	return ptrace_window_pause(h->window, &h->vcpus, timeout_ns, &vm->window_start_ns, err);
}

static int resume_hung(struct vm *vm, struct err *err)
{
	struct hung_vmm *h = vm->priv;

	return ptrace_window_resume(h->window, err);
}

static const struct vm_ops hung_ops = { .pause = pause_hung, .resume = resume_hung };

static void start_hung(struct hung_vmm *h, pid_t *vcpu)
{
	u64 end = monotonic_ns() + 20 * SECOND;

	*h = (struct hung_vmm){ 0 };
	assert_int_equal(pipe(h->release), 0);
	h->shared = mmap(NULL, sizeof(*h->shared), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(h->shared, MAP_FAILED);
	h->pid = fork();
	if (h->pid == 0)
		run_hung(h);
	assert_true(h->pid > 0);
	close(h->release[0]);
	while (!(h->shared->n && h->shared->hangs && state_of(h, h->shared->hangs) == 'D')) {
		assert_true(monotonic_ns() < end);
		usleep(1000);
	}
	vcpu[0] = h->shared->counts;
	vcpu[1] = h->shared->hangs;
	assert_int_equal(ptrace_window_create(h->pid, &h->window, NULL), 0);
	h->vm = (struct vm){ .ops = &hung_ops, .pid = h->pid, .priv = h };
	h->vm.pidfd = (int)syscall(SYS_pidfd_open, h->pid, 0);
	assert_true(h->vm.pidfd >= 0);
}

static void end_hung(struct hung_vmm *h)
{
	ptrace_window_destroy(h->window);
	close(h->vm.pidfd);
	close(h->release[1]);
	end_process(h->pid);
	munmap(h->shared, sizeof(*h->shared));
}

/* vm_pause() in a thread of its own, and resume where that succeeds. */
struct pausing {
	struct hung_vmm *h;
	u64 patience_ns;
	int rc;
	bool stood; /* while the window was open */
	struct err err;
	volatile bool done;
};

static void *pause_it(void *arg)
{
	struct pausing *p = arg;
	u64 n;

	p->rc = vm_pause(&p->h->vm, p->patience_ns, &p->err);
	if (p->rc == 0) {
		n = p->h->shared->n;
		usleep(1000);
		p->stood = n == p->h->shared->n;
		p->rc = vm_resume(&p->h->vm, &p->err);
	}
	p->done = true;
	return NULL;
}

/* How much of the time, and for how long at a stretch, the one that counts was seen to be held: state t. */
static void watch(const struct pausing *p, double *share_ret, u64 *stretch_ns_ret)
{
	u64 seen = 0, held = 0, from = 0, at_n = 0;

	*stretch_ns_ret = 0;
	while (!p->done) {
		u64 now = monotonic_ns(), n = p->h->shared->n;

		seen++;
		if (state_of(p->h, p->h->shared->counts) != 't') {
			from = 0;
		} else {
			held++;
			if (!from ||
			    n != at_n) /* it ran in between, however long we did not look */
				from = now;
			at_n = n;
			*stretch_ns_ret = MAX(*stretch_ns_ret, now - from);
		}
		usleep(500);
	}
	assert_true(seen > 20);
	*share_ret = (double)held / (double)seen;
}

static void a_thread_that_cannot_stop(void **state)
{
	pid_t vcpu[2];

	(void)state;
	for (size_t n = 0; n <= 2; n += 2) { /* of all threads, of two */
		struct hung_vmm h;
		struct pausing p = { .h = &h, .patience_ns = SECOND };
		pthread_t thread;
		char who[32];
		double share;
		u64 stretch_ns, last;

		start_hung(&h, vcpu);
		h.vcpus = (struct vm_threads){ .tid = vcpu, .n = n };
		assert_int_equal(pthread_create(&thread, NULL, pause_it, &p), 0);
		watch(&p, &share, &stretch_ns);
		pthread_join(thread, NULL);
		if (p.rc == -EACCES) {
			end_hung(&h);
			skip(); /* this machine lets nobody be traced */
		}
		assert_int_equal(p.rc, -ETIMEDOUT);
		assert_int_equal(p.err.code, ERR_PAUSE_TIMEOUT);
		snprintf(who, sizeof(who), "thread %d (", (int)h.shared->hangs);
		assert_non_null(strstr(p.err.msg, who));
		assert_non_null(strstr(p.err.msg, "state D"));
		assert_true(stretch_ns < 50 * NSEC_PER_MSEC);
		assert_true(share < 0.1);
		assert_int_equal(tracer_of(h.shared->hangs), 0);
		last = h.shared->n;
		while (h.shared->n == last)
			usleep(1000);
		/* once it is free */
		p = (struct pausing){ .h = &h, .patience_ns = 20 * SECOND };
		assert_int_equal(pthread_create(&thread, NULL, pause_it, &p), 0);
		usleep(100000);
		assert_int_equal(write(h.release[1], "x", 1), 1);
		pthread_join(thread, NULL);
		assert_int_equal(p.rc, 0);
		assert_true(p.stood);
		last = h.shared->n;
		while (h.shared->n == last)
			usleep(1000);
		end_hung(&h);
	}
}

/* A VMM that does not stop its guest in time, or is about to. */
static struct {
	int say[8]; /* -ETIMEDOUT when there is no more */
	int n_say, n;
	u64 budget_ns[64], from_ns[64], to_ns[64];
	bool holds;
} slow;

static int pause_slow(struct vm *vm, u64 timeout_ns, struct err *err)
{
	int i = slow.n++, rc = i < slow.n_say ? slow.say[i] : -ETIMEDOUT;

	assert_true(i < (int)ARRAY_SIZE(slow.from_ns));
	slow.budget_ns[i] = timeout_ns;
	slow.from_ns[i] = monotonic_ns();
	if (slow.holds) {
		vm->window_start_ns = slow.from_ns[i];
		sleep_ns(timeout_ns);
	}
	slow.to_ns[i] = monotonic_ns();
	return rc ? err_set(err, rc, ERR_PAUSE_TIMEOUT, 0, "as told") : 0;
}

static const struct vm_ops slow_ops = { .pause = pause_slow };

static int stop_slow(struct vm *vm, u64 patience_ns)
{
	slow.n = 0;
	return vm_stop(vm, patience_ns, NULL);
}

/* Who was held in vain goes on for ten times as long, whatever the next try may take. */
static void tries_and_rests(void **state)
{
	struct vm vm = { .ops = &slow_ops, .accel = VM_ACCEL_KVM };

	(void)state;
	memset(&slow, 0, sizeof(slow));
	slow.holds = true;
	assert_int_equal(stop_slow(&vm, 2 * SECOND), -ETIMEDOUT);
	assert_true(slow.n > 1); /* 4, where sleeping is no longer than asked for */
	assert_int_equal(slow.budget_ns[0], 20 * NSEC_PER_MSEC);
	for (int i = 1; i < slow.n; i++) {
		assert_int_equal(slow.budget_ns[i],
				 MIN(2 * slow.budget_ns[i - 1], 320 * NSEC_PER_MSEC));
		assert_true(slow.from_ns[i] - slow.to_ns[i - 1] >=
			    10 * (slow.to_ns[i - 1] - slow.from_ns[i - 1]));
	}
	/* a window that may be long may be waited for as long, and no longer than is asked for */
	vm_set_window_limit(&vm, 100 * NSEC_PER_MSEC);
	assert_int_equal(stop_slow(&vm, 200 * NSEC_PER_MSEC), -ETIMEDOUT);
	assert_int_equal(slow.n, 1);
	assert_int_equal(slow.budget_ns[0], 200 * NSEC_PER_MSEC);
	assert_int_equal(stop_slow(&vm, 0), -ETIMEDOUT);
	assert_int_equal(slow.n, 1);
	assert_int_equal(slow.budget_ns[0], 0);
}

/* Nobody was held: it is tried again soon, for no longer. */
static void tries_that_could_not_begin(void **state)
{
	struct vm vm = { .ops = &slow_ops, .accel = VM_ACCEL_KVM };

	(void)state;
	memset(&slow, 0, sizeof(slow));
	assert_int_equal(stop_slow(&vm, 100 * NSEC_PER_MSEC), -ETIMEDOUT);
	assert_true(slow.n > 1);
	for (int i = 0; i < slow.n; i++)
		assert_int_equal(slow.budget_ns[i], 20 * NSEC_PER_MSEC);
}

/* What did not stop in time may do so late; who had stopped before is left so. */
static void a_stop_that_comes_late(void **state)
{
	struct vm vm = { .ops = &slow_ops, .accel = VM_ACCEL_TCG };

	(void)state;
	memset(&slow, 0, sizeof(slow));
	slow.n_say = 3;
	slow.say[0] = -ETIMEDOUT;
	slow.say[1] = -EBUSY;
	assert_int_equal(stop_slow(&vm, 60 * SECOND), 0);
	assert_int_equal(slow.n, 3);
	assert_int_equal(slow.budget_ns[2], SECOND);
	slow.say[0] = -EBUSY;
	assert_int_equal(stop_slow(&vm, 60 * SECOND), -EBUSY);
	assert_int_equal(slow.n, 1);
}

/* Of both threads that a window needs, and no longer than it is open. */
static void a_window_goes_first(void **state)
{
	int before = getpriority(PRIO_PROCESS, 0);
	struct hung_vmm h;
	pid_t vcpu[2];
	int tracer;

	(void)state;
	if (setpriority(PRIO_PROCESS, 0, VM_WINDOW_NICE)) {
		skip(); /* this machine lets nobody go first */
	}
	assert_int_equal(setpriority(PRIO_PROCESS, 0, before), 0);
	start_hung(&h, vcpu);
	h.vcpus = (struct vm_threads){ .tid = vcpu, .n = 1 };
	assert_int_equal(vm_pause(&h.vm, 20 * SECOND, NULL), 0);
	tracer = tracer_of(vcpu[0]);
	assert_int_equal(getpriority(PRIO_PROCESS, 0), VM_WINDOW_NICE);
	assert_int_equal(getpriority(PRIO_PROCESS, (id_t)tracer), VM_WINDOW_NICE);
	assert_int_equal(vm_resume(&h.vm, NULL), 0);
	assert_int_equal(getpriority(PRIO_PROCESS, 0), before);
	end_hung(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_number_that_is_somebody_elses),
		cmocka_unit_test(a_thread_that_cannot_stop),
		cmocka_unit_test(tries_and_rests),
		cmocka_unit_test(tries_that_could_not_begin),
		cmocka_unit_test(a_stop_that_comes_late),
		cmocka_unit_test(a_window_goes_first),
		cmocka_unit_test(progress_of_many_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
