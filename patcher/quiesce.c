// SPDX-License-Identifier: Apache-2.0
/*
 * Who is still inside? See quiesce.h.
 *
 * Once no call site leads into the range, nobody can enter it any more, so each task has to be cleared
 * only once. A task that sleeps has called schedule() and so is not inside (the code in the range does
 * not; the gate's borrowed call does, and has a counter of its own for that). A task that runs, or was
 * preempted, may be; it leaves a return address or an interrupt frame with an address in the range on
 * its stack. But stacks also hold such addresses that are left over, inside live frames too. Hence a
 * suspect is cleared by what it does: a voluntary context switch, sleep, its end, or CPU time that is
 * far more than the range's few instructions take (what RCU tasks waits for, and a bit more).
 *
 * In a function of the guest's that the agent called a task has interrupts off and says so (agent_cpu.busy):
 * each CPU has to be seen without. That also tells of those on stacks that are not looked at.
 *
 * A task that has come to its release_task() is on no list any more, and may yet be preempted inside: who gives memory
 * back has the guest's synchronize_rcu_tasks() called before, where its kernel preempts itself.
 *
 * An idle task is never preempted: off its CPU it is not inside. On it, it has no run time of its own;
 * its CPU's counts.
 */
#include "patcher/quiesce.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "patcher/agent.h"
#include "patcher/tasks.h"

#include <errno.h>
#include <stdlib.h>

/* v6.1 arch/x86/include/asm/page_64_types.h THREAD_SIZE; twice as much with KASAN */
#define THREAD_BYTES 16384u
/* What every vCPU has to get through: more than it is in an interrupt for at a stretch. Neither stacks
 * of interrupts nor idle tasks of other CPUs than the first are looked at. */
#define RUN_NS      (50 * NSEC_PER_MSEC)
#define TASK_RUN_NS (10 * NSEC_PER_MSEC) /* what clears a suspect */
#define POLL_NS     (3 * NSEC_PER_MSEC)

struct suspect {
	u64 task;
	u64 switches; /* voluntary ones, when it was found; an idle task's all */
	u64 run_ns;
	bool idle;
};

struct scan {
	struct guest *g;
	u32 stack_off, sp_off, nvcsw_off, nivcsw_off, run_off, pid_off;
	struct guest_member on_cpu, on_rq; /* int; u8 on v7.2 */
	struct vm_progress found; /* when suspects were looked for */
	u64 lo, hi;
	struct suspect *suspect;
	size_t n, cap;
	bool no_memory;
	u32 thread_bytes;
	u64 stack[2 * THREAD_BYTES / 8];
};

static int offsets(struct scan *s, struct err *err)
{
	const struct {
		const char *path;
		u32 *ret;
	} want[] = {
		{ "stack", &s->stack_off }, { "thread.sp", &s->sp_off },
		{ "nvcsw", &s->nvcsw_off }, { "nivcsw", &s->nivcsw_off },
		{ "pid", &s->pid_off },     { "se.sum_exec_runtime", &s->run_off },
	};
	const struct {
		const char *path;
		struct guest_member *ret;
	} sized[] = { { "on_cpu", &s->on_cpu }, { "on_rq", &s->on_rq } };

	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		if (kernel_btf_offset(s->g->k, "task_struct", want[i].path, want[i].ret))
			return err_set(err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0,
				       "this kernel's struct task_struct has no %s", want[i].path);
	}
	for (size_t i = 0; i < ARRAY_SIZE(sized); i++) {
		if (guest_member(s->g->k, "task_struct", sized[i].path, sized[i].ret))
			return err_set(err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0,
				       "this kernel's struct task_struct has no %s", sized[i].path);
	}
	return 0;
}

static bool task_u64(struct scan *s, u64 task, u32 off, u64 *ret)
{
	return !guest_read(s->g, task + off, ret, sizeof(*ret), NULL);
}

static bool is_idle(struct scan *s, u64 task)
{
	u32 pid;

	return !guest_read(s->g, task + s->pid_off, &pid, sizeof(pid), NULL) && !pid;
}

/* What can have been counted only outside the range. */
static bool counters(struct scan *s, u64 task, struct suspect *ret)
{
	u64 involuntary;

	*ret = (struct suspect){ .task = task, .idle = is_idle(s, task) };
	if (!task_u64(s, task, s->nvcsw_off, &ret->switches) ||
	    !task_u64(s, task, s->nivcsw_off, &involuntary) ||
	    !task_u64(s, task, s->run_off, &ret->run_ns))
		return false;
	ret->switches += ret->idle ? involuntary : 0;
	return true;
}

/* false: it sleeps, or is gone. *from_ret: where the live part of its stack begins. */
static bool awake(struct scan *s, u64 task, u64 *from_ret, u64 *top_ret)
{
	u64 stack, sp, on_cpu, on_rq;

	if (guest_read_member(s->g, task, &s->on_rq, &on_rq, NULL) ||
	    guest_read_member(s->g, task, &s->on_cpu, &on_cpu, NULL) || (!on_rq && !on_cpu) ||
	    !task_u64(s, task, s->stack_off, &stack) || !task_u64(s, task, s->sp_off, &sp) ||
	    !stack || (!on_cpu && is_idle(s, task)))
		return false;
	*top_ret = stack + s->thread_bytes;
	*from_ret = stack; /* runs: its stack pointer is in a register that we do not ask for */
	if (!on_cpu && sp >= stack && sp < *top_ret)
		*from_ret = sp & ~7ull;
	return true;
}

static bool has_address(struct scan *s, u64 task)
{
	u64 from, top;

	if (!awake(s, task, &from, &top))
		return false;
	if (guest_read(s->g, from, s->stack, top - from, NULL))
		return true; /* cannot tell */
	for (size_t i = 0; i < (top - from) / 8; i++) {
		if (s->stack[i] >= s->lo && s->stack[i] < s->hi)
			return true;
	}
	return false;
}

static bool add_suspect(void *arg, u64 task)
{
	struct scan *s = arg;
	struct suspect new;

	/* its counters first: what they count from then on happened after it was seen inside */
	if (!counters(s, task, &new) || !has_address(s, task))
		return true;
	if (s->n == s->cap) {
		size_t cap = s->cap ? s->cap * 2 : 64;
		struct suspect *p = realloc(s->suspect, cap * sizeof(*p));

		s->no_memory |= !p;
		if (!p)
			return false;
		s->suspect = p;
		s->cap = cap;
	}
	s->suspect[s->n++] = new;
	return true;
}

static bool cleared(struct scan *s, const struct suspect *p)
{
	struct suspect now;

	if (!counters(s, p->task, &now))
		return true;
	/* run time alone may be time in which the host did not run the vCPU */
	return now.switches != p->switches ||
	       ((p->idle || now.run_ns - p->run_ns > TASK_RUN_NS) &&
		vm_progressed(s->g->vm, &s->found, RUN_NS)) ||
	       !has_address(s, p->task);
}

static int still_inside(struct scan *s, struct err *err)
{
	u32 pid = 0;

	if (guest_read(s->g, s->suspect[0].task + s->pid_off, &pid, sizeof(pid), err))
		pid = 0;
	return err_set(
		err, -EBUSY, ERR_GUEST_BUSY, s->lo,
		"%zu task(s) of the guest, the first with pid %u, may still be inside 0x%llx-0x%llx",
		s->n, pid, (unsigned long long)s->lo, (unsigned long long)s->hi);
}

static void drop_cleared(struct scan *s)
{
	size_t kept = 0;

	for (size_t i = 0; i < s->n; i++) {
		if (!cleared(s, &s->suspect[i]))
			s->suspect[kept++] = s->suspect[i];
	}
	s->n = kept;
}

/* All vCPUs have run for a while, or slept, since now. */
static int wait_progress(struct scan *s, u64 deadline, struct err *err)
{
	struct vm *vm = s->g->vm;
	struct vm_progress p;
	int rc = vm_progress(vm, &p, err);

	while (!rc && (!vm_progressed(vm, &p, RUN_NS) || vm_state(vm) != VM_RUNNING)) {
		if (monotonic_ns() > deadline)
			rc = err_set(
				err, -EBUSY, ERR_GUEST_BUSY, s->lo,
				"a vCPU of the guest has not run since its call sites were put back");
		else
			guest_sleep_ns(POLL_NS);
	}
	vm_progress_deinit(&p);
	return rc;
}

/* Called functions have returned, each at some time: those called later are not of those looked for. */
static int wait_calls(struct scan *s, u64 deadline, struct err *err)
{
	u32 cpu = 0;

	while (cpu < s->g->agent.header.nr_cpus) {
		if (agent_left_cpu(s->g, cpu, &s->on_cpu)) {
			cpu++;
			continue;
		}
		if (monotonic_ns() > deadline)
			return err_set(
				err, -EBUSY, ERR_GUEST_BUSY, s->lo,
				"CPU %u of the guest is still in a function that the agent called",
				cpu);
		guest_sleep_ns(POLL_NS / 10);
	}
	return 0;
}

static int quiesce(struct scan *s, u64 deadline, struct err *err)
{
	int rc = offsets(s, err);
	u64 kasan;

	if (rc)
		return rc;
	s->thread_bytes =
		kernel_sym(s->g->k, "kasan_report", &kasan) ? THREAD_BYTES : 2 * THREAD_BYTES;
	rc = wait_progress(s, deadline, err);
	if (!rc)
		rc = vm_progress(s->g->vm, &s->found, err);
	if (!rc)
		rc = tasks_for_each(s->g, add_suspect, s, err);
	if (rc)
		return rc;
	if (s->no_memory)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0,
			       "no memory to look at the guest's stacks");
	while (s->n) {
		drop_cleared(s);
		if (!s->n)
			break;
		if (monotonic_ns() > deadline)
			return still_inside(s, err);
		guest_sleep_ns(POLL_NS);
	}
	return wait_calls(s, deadline, err);
}

int quiesce_range(struct guest *g, u64 lo, u64 hi, u64 timeout_ns, struct err *err)
{
	_cleanup_free_ struct scan *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0,
			       "no memory to look at the guest's stacks");
	s->g = g;
	s->lo = lo;
	s->hi = hi;
	rc = quiesce(s, monotonic_ns() + timeout_ns, err);
	vm_progress_deinit(&s->found);
	free(s->suspect);
	return rc;
}
