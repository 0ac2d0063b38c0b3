// SPDX-License-Identifier: Apache-2.0
/* Stop windows by ptrace. See ptrace_window.h. Source: ptrace(2), PTRACE_SEIZE and group-stop. */
#define LOG_PREFIX "ptrace"
#include "vmm/ptrace_window.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "vmm/proc.h"
#include "vmm/regs_x86.h"
#include "vmm/vm_ops.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define POLL_NS     10000 /* between the first looks at threads that have not stopped yet */
#define POLLS_FIRST 5
#define POLL_MAX_NS \
	320000 /* between later ones: where CPUs are short, looking keeps them from stopping */
/*
 * Being woken costs up to a scheduler slice on a busy host. While a window is open its stopped vCPUs
 * have left their CPUs to us: what comes next is looked for in a loop. Before that, they need them.
 */
#define ORDER_SPIN_NS (2 * NSEC_PER_MSEC)
#define MAX_ROUNDS    64 /* of looking for threads that were created meanwhile */
#define STUCK_PART    4 /* of the time to stop: what is in state D then is not waited for */
#define END_NS        NSEC_PER_SEC /* for a thread that is ending */

enum window_cmd {
	CMD_NONE,
	CMD_PAUSE,
	CMD_RESUME,
	CMD_QUIT
};

struct tracee {
	pid_t tid;
	char state; /* as proc(5) has it, when last looked at */
	u64 run_ns; /* and how long it had run; 0: not looked at */
	bool stopped;
	bool in_kvm_run;
	int sig; /* the signal it was about to take; given back on detach */
};

struct ptrace_window {
	pid_t pid;
	pthread_mutex_t lock;
	pthread_cond_t cond; /* ordered or done changed */
	pthread_t thread;
	pid_t thread_tid;
	bool thread_runs;

	/* the order and its answer, under lock */
	enum window_cmd cmd;
	bool ordered; /* @cmd is to be done; written under lock, looked at without */
	bool done; /* and has been; likewise */
	int rc;
	struct err err;
	const struct vm_threads *only;
	u64 timeout_ns;
	u64 started_ns; /* 0: nobody was asked to stop */

	/* the tracer thread's own while it works */
	struct tracee *tracee;
	size_t n;
	size_t cap;
};

static inline void cpu_relax(void)
{
#ifdef __x86_64__
	__builtin_ia32_pause();
#endif
}

/* false when one of the stopped threads could not be let go, as it is dying. */
static bool detach_all(struct ptrace_window *w)
{
	bool ok = true;

	for (size_t i = 0; i < w->n; i++) {
		struct tracee *t = &w->tracee[i];

		/* what has not stopped cannot be detached; it is released when this thread ends */
		if (t->stopped && ptrace(PTRACE_DETACH, t->tid, NULL, (void *)(intptr_t)t->sig) < 0)
			ok = false;
	}
	w->n = 0;
	return ok;
}

static bool known(const struct ptrace_window *w, pid_t tid)
{
	for (size_t i = 0; i < w->n; i++) {
		if (w->tracee[i].tid == tid)
			return true;
	}
	return false;
}

/*
 * The number of a thread that ended may be somebody else's by now; one that is seized stays what it is. What turns out
 * to be none of the VMM's was only seized, not stopped, and is let go when this thread ends after the failure.
 */
static int check_seized(struct ptrace_window *w, pid_t tid, char *state_ret)
{
	u64 start;
	int rc = proc_stat(w->pid, tid, state_ret, &start);

	if (!rc || (rc == -ESRCH && w->only))
		return rc;
	if (rc == -ESRCH)
		return err_set(&w->err, -ETIMEDOUT, ERR_PAUSE_TIMEOUT, 0,
			       "thread %d of process %d ended when it was to be stopped", (int)tid,
			       (int)w->pid);
	return err_set(&w->err, rc, ERR_IO, 0, "cannot look at thread %d of process %d: %s",
		       (int)tid, (int)w->pid, strerror(-rc));
}

static int seize(struct ptrace_window *w, pid_t tid)
{
	char state;
	int rc;

	if (w->n == w->cap) {
		size_t want = w->cap ? w->cap * 2 : 32;
		void *p = reallocarray(w->tracee, want, sizeof(*w->tracee));

		if (!p)
			return err_set(&w->err, -ENOMEM, ERR_NO_MEMORY, 0,
				       "no memory to stop threads");
		w->tracee = p;
		w->cap = want;
	}
	if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) < 0) {
		if (errno == ESRCH)
			return -ESRCH;
		return err_set(&w->err, -EACCES, ERR_TARGET_PERMISSION, 0,
			       "cannot stop thread %d of process %d (does a debugger hold it?): %s",
			       (int)tid, (int)w->pid, strerror(errno));
	}
	rc = check_seized(w, tid, &state);
	if (!rc)
		w->tracee[w->n++] = (struct tracee){ .tid = tid, .state = state };
	return rc;
}

/* Looks at one thread that was told to stop: true when nothing is left to wait for. */
static bool settled(const struct ptrace_window *w, struct tracee *t)
{
	int status;
	pid_t r = waitpid(t->tid, &status, __WALL | WNOHANG);

	if (r == 0)
		return false;
	if (r < 0 && errno == EINTR)
		return false;
	if (r < 0 || !WIFSTOPPED(status)) {
		t->tid = 0; /* it ended */
		return true;
	}
	t->stopped = true;
	/*
	 * PTRACE_EVENT_STOP is our own interrupt or a group stop that was there before. Anything else
	 * is a signal on its way to the thread: stopped just as well, and the signal is not ours to eat.
	 */
	t->sig = status >> 16 == PTRACE_EVENT_STOP ? 0 : WSTOPSIG(status);
	t->in_kvm_run = !w->only && regs_in_kvm_run(t->tid);
	return true;
}

static void look_at_state(const struct ptrace_window *w, struct tracee *t)
{
	u64 start;

	if (proc_stat(w->pid, t->tid, &t->state, &start))
		t->state = '?'; /* it ends */
}

static const char *why(char state)
{
	switch (state) {
	case 'D':
		return "it waits in the host's kernel, as for storage, or is frozen";
	case 'R':
		return "the host is overloaded, or its CPU quota is used up";
	default:
		return "it does not leave the host's kernel";
	}
}

/* @t is one of @left that do not stop. */
static int did_not_stop(struct ptrace_window *w, const struct tracee *t, size_t left)
{
	char name[32], others[40] = "";

	proc_comm(w->pid, t->tid, name, sizeof(name));
	if (left > 1)
		snprintf(others, sizeof(others), " and %zu others", left - 1);
	return err_set(&w->err, -ETIMEDOUT, ERR_PAUSE_TIMEOUT, 0,
		       "thread %d (%s)%s of process %d did not stop in %llu ms; state %c: %s",
		       (int)t->tid, name, others, (int)w->pid,
		       (unsigned long long)(w->timeout_ns / NSEC_PER_MSEC), t->state,
		       why(t->state));
}

/* In state D now as it was at the first look, and has not run in between. */
static bool is_stuck(const struct ptrace_window *w, struct tracee *t)
{
	u64 ns;

	look_at_state(w, t);
	if (t->state != 'D' || proc_run_ns(w->pid, t->tid, &ns))
		return t->state == 'D';
	if (t->run_ns && t->run_ns != ns)
		t->state = 'R';
	t->run_ns = ns;
	return t->state == 'D';
}

/*
 * A thread that sleeps so that no signal wakes it cannot stop, and nobody is to stand still for that. It is waited for
 * while all others run.
 */
static int wait_awake(struct ptrace_window *w, u64 deadline)
{
	for (;;) {
		struct tracee *stuck = NULL;
		size_t left = 0;

		for (size_t i = 0; i < w->n; i++) {
			struct tracee *t = &w->tracee[i];

			if (t->state == 'D' && is_stuck(w, t)) {
				stuck = t;
				left++;
			}
		}
		if (!left)
			return 0;
		if (monotonic_ns() >= deadline)
			return did_not_stop(w, stuck, left);
		sleep_ns(POLL_MAX_NS);
	}
}

/* Drops what ended; returns how many. */
static size_t compact(struct ptrace_window *w)
{
	size_t k = 0;
	size_t before = w->n;

	for (size_t i = 0; i < w->n; i++) {
		if (w->tracee[i].tid)
			w->tracee[k++] = w->tracee[i];
	}
	w->n = k;
	return before - k;
}

static int wait_stopped(struct ptrace_window *w, size_t from, u64 deadline)
{
	struct timespec pause = { 0, POLL_NS };
	u64 patient_until = deadline - w->timeout_ns + w->timeout_ns / STUCK_PART;

	for (u32 looks = 1;; looks++) {
		struct tracee *stuck = NULL;
		size_t left = 0;
		u64 now;

		for (size_t i = from; i < w->n; i++) {
			struct tracee *t = &w->tracee[i];

			if (t->tid && !t->stopped && !settled(w, t)) {
				stuck = t;
				left++;
			}
		}
		if (left == 0)
			return 0;
		now = monotonic_ns();
		if (now >= patient_until)
			look_at_state(w, stuck);
		if (now >= deadline || (now >= patient_until && stuck->state == 'D'))
			return did_not_stop(w, stuck, left);
		nanosleep(&pause, NULL);
		if (looks >= POLLS_FIRST && pause.tv_nsec < POLL_MAX_NS)
			pause.tv_nsec *= 2;
	}
}

/*
 * Seizing does not stop a thread: all are seized first, so that the window begins late. Nobody has been asked to stop
 * before @deadline; for how long they may then be held begins with the first who is.
 */
static int stop_threads(struct ptrace_window *w, const struct vm_threads *t, u64 deadline)
{
	size_t from = w->n;
	int rc;

	for (size_t i = 0; i < t->n; i++) {
		if (known(w, t->tid[i]))
			continue;
		rc = seize(w, t->tid[i]);
		if (rc == -ESRCH && w->only)
			return err_set(&w->err, -ESRCH, ERR_VMM_GONE, 0, "thread %d has ended",
				       (int)t->tid[i]);
		if (rc < 0 && rc != -ESRCH)
			return rc;
	}
	if (w->started_ns == 0) {
		rc = wait_awake(w, deadline);
		if (rc < 0)
			return rc;
		w->started_ns = monotonic_ns();
	}
	for (size_t i = from; i < w->n; i++)
		ptrace(PTRACE_INTERRUPT, w->tracee[i].tid, NULL, NULL);
	rc = wait_stopped(w, from, w->started_ns + w->timeout_ns);
	if (rc < 0)
		return rc;
	if (compact(w) && w->only)
		return err_set(&w->err, -ESRCH, ERR_VMM_GONE, 0, "a vCPU thread has ended");
	return 0;
}

/* A thread that still runs may create another: done when a listing shows nobody new. */
static int stop_process(struct ptrace_window *w, u64 deadline)
{
	for (int round = 0; round < MAX_ROUNDS; round++) {
		_cleanup_threads_ struct vm_threads t = { 0 };
		size_t before = w->n;
		int rc = proc_threads(w->pid, &t);

		if (rc < 0)
			return err_set(&w->err, -ESRCH, ERR_VMM_GONE, 0, "process %d has ended",
				       (int)w->pid);
		rc = stop_threads(w, &t, deadline);
		if (rc < 0)
			return rc;
		if (w->n == 0)
			return err_set(&w->err, -ESRCH, ERR_VMM_GONE, 0, "process %d has ended",
				       (int)w->pid);
		if (w->n == before && round > 0)
			return 0;
	}
	return err_set(&w->err, -ETIMEDOUT, ERR_PAUSE_TIMEOUT, 0,
		       "process %d creates threads faster than they can be stopped", (int)w->pid);
}

/*
 * Runs in the tracer thread. After a failure the thread must end: that releases what was seized but
 * is stuck in the host's kernel, which no PTRACE_DETACH can.
 */
static void do_pause(struct ptrace_window *w)
{
	u64 deadline = monotonic_ns() + w->timeout_ns;

	w->started_ns = 0;
	w->err = (struct err){ 0 };
	w->rc = w->only ? stop_threads(w, w->only, deadline) : stop_process(w, deadline);
	if (w->rc == 0)
		return;
	compact(w);
	detach_all(w);
}

/* Only SIGKILL takes a thread out of its stop. Ending lets go of what it leaves, as for a pause. */
static void do_resume(struct ptrace_window *w)
{
	w->err = (struct err){ 0 };
	w->rc = 0;
	if (!detach_all(w))
		w->rc = err_set(&w->err, -ESRCH, ERR_VMM_GONE, 0, "process %d has ended",
				(int)w->pid);
}

/* Until @flag is set, at most ORDER_SPIN_NS; the caller looks again under the lock. */
static void spin_until(const bool *flag)
{
	u64 end = monotonic_ns() + ORDER_SPIN_NS;

	while (!__atomic_load_n(flag, __ATOMIC_ACQUIRE) && monotonic_ns() < end)
		cpu_relax();
}

static void *tracer(void *arg)
{
	struct ptrace_window *w = arg;
	bool stay = true;

	prctl(PR_SET_NAME, "hvf-ptrace");
	/* the default of 50 us would be most of a window */
	prctl(PR_SET_TIMERSLACK, 1);
	/* it runs in windows alone, and those that it lets go first must not have the others wait for it */
	(void)setpriority(PRIO_PROCESS, 0, VM_WINDOW_NICE);
	pthread_mutex_lock(&w->lock);
	w->thread_tid = gettid();
	while (stay) {
		if (w->n) { /* a window is open: what comes next comes soon */
			pthread_mutex_unlock(&w->lock);
			spin_until(&w->ordered);
			pthread_mutex_lock(&w->lock);
		}
		while (!w->ordered)
			pthread_cond_wait(&w->cond, &w->lock);
		if (w->cmd == CMD_PAUSE)
			do_pause(w);
		else if (w->cmd == CMD_RESUME)
			do_resume(w);
		else
			stay = false;
		stay = stay && w->rc == 0;
		w->ordered = false;
		__atomic_store_n(&w->done, true, __ATOMIC_RELEASE);
		pthread_cond_broadcast(&w->cond);
	}
	/* an open window ends with this thread */
	w->n = 0;
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* No signal of the daemon's is handled in a tracer thread. */
static int start_thread(struct ptrace_window *w)
{
	sigset_t all;
	sigset_t old;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&w->thread, NULL, tracer, w);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	w->thread_runs = rc == 0;
	return -rc;
}

/*
 * A thread is joined before it has let go of its tracees (kernel/exit.c do_exit(), v6.12: exit_mm() before
 * exit_notify()), and is found no more after that.
 */
static void wait_ended(pid_t tid)
{
	u64 deadline = monotonic_ns() + END_NS;

	while (!syscall(SYS_tgkill, getpid(), tid, 0) && monotonic_ns() < deadline)
		sleep_ns(POLL_NS);
}

static int order(struct ptrace_window *w, enum window_cmd cmd, struct err *err)
{
	int rc;

	pthread_mutex_lock(&w->lock);
	w->done = false;
	w->cmd = cmd;
	__atomic_store_n(&w->ordered, true, __ATOMIC_RELEASE);
	pthread_cond_broadcast(&w->cond);
	pthread_mutex_unlock(&w->lock);
	if (cmd == CMD_RESUME)
		spin_until(&w->done);
	pthread_mutex_lock(&w->lock);
	while (!w->done)
		pthread_cond_wait(&w->cond, &w->lock);
	rc = w->rc;
	if (rc < 0 && err)
		*err = w->err;
	pthread_mutex_unlock(&w->lock);
	if (rc < 0 || cmd == CMD_QUIT) { /* it ends after these: see do_pause() */
		pthread_join(w->thread, NULL);
		wait_ended(w->thread_tid);
		w->thread_runs = false;
	}
	return rc;
}

int ptrace_window_create(pid_t pid, struct ptrace_window **ret, struct err *err)
{
	struct ptrace_window *w = calloc(1, sizeof(*w));

	if (!w)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a stop window");
	w->pid = pid;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->cond, NULL);
	*ret = w;
	return 0;
}

static void end_thread(struct ptrace_window *w)
{
	if (!w->thread_runs)
		return;
	(void)order(w, CMD_QUIT, NULL);
}

void ptrace_window_destroy(struct ptrace_window *w)
{
	if (!w)
		return;
	end_thread(w);
	pthread_cond_destroy(&w->cond);
	pthread_mutex_destroy(&w->lock);
	free(w->tracee);
	free(w);
}

int ptrace_window_pause(struct ptrace_window *w, const struct vm_threads *only, u64 timeout_ns,
			u64 *started_ns_ret, struct err *err)
{
	int rc;

	if (!w->thread_runs) {
		rc = start_thread(w);
		if (rc < 0)
			return err_set(err, rc, ERR_NO_MEMORY, 0, "cannot start a thread: %s",
				       strerror(-rc));
	}
	w->only = only && only->n ? only : NULL;
	w->timeout_ns = timeout_ns;
	rc = order(w, CMD_PAUSE, err);
	*started_ns_ret = w->started_ns;
	return rc;
}

int ptrace_window_resume(struct ptrace_window *w, struct err *err)
{
	if (!w->thread_runs)
		return err_set(err, -EINVAL, ERR_CONFLICT, 0, "no stop window is open");
	return order(w, CMD_RESUME, err);
}

int ptrace_window_vcpus(const struct ptrace_window *w, struct vm_threads *ret)
{
	pid_t *tid = calloc(w->n ? w->n : 1, sizeof(*tid));

	if (!tid)
		return -ENOMEM;
	ret->n = 0;
	for (size_t i = 0; i < w->n; i++) {
		if (w->tracee[i].in_kvm_run)
			tid[ret->n++] = w->tracee[i].tid;
	}
	ret->tid = tid;
	return 0;
}
