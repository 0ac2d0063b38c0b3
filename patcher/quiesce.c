// SPDX-License-Identifier: Apache-2.0
/* Who is still inside? See quiesce.h. */
#include "patcher/quiesce.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define THREAD_BYTES \
	16384u /* v6.1 arch/x86/include/asm/page_64_types.h THREAD_SIZE, without KASAN */
#define MAX_TASKS    4194304u /* PID_MAX_LIMIT: more is a list that loops */
#define RUN_NS       (2 * NSEC_PER_MSEC)
#define POLL_NS      (3 * NSEC_PER_MSEC)
#define MAYBE_ROUNDS 20

struct task_offsets {
	u32 tasks, thread_node, signal, stack, on_cpu, sp, thread_head;
};

struct scan {
	struct guest *g;
	struct task_offsets off;
	u64 lo, hi;
	u32 n_tasks;
	u32 inside; /* of tasks that do not run: certain */
	u32 maybe; /* of tasks that run: may be left over below the stack pointer */
	u64 stack[THREAD_BYTES / 8];
};

static int offsets(struct guest *g, struct task_offsets *o, struct err *err)
{
	const struct {
		const char *type, *path;
		u32 *ret;
	} want[] = {
		{ "task_struct", "tasks", &o->tasks },
		{ "task_struct", "thread_node", &o->thread_node },
		{ "task_struct", "signal", &o->signal },
		{ "task_struct", "stack", &o->stack },
		{ "task_struct", "on_cpu", &o->on_cpu },
		{ "task_struct", "thread.sp", &o->sp },
		{ "signal_struct", "thread_head", &o->thread_head },
	};

	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		if (kernel_btf_offset(g->k, want[i].type, want[i].path, want[i].ret))
			return err_set(err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0,
				       "this kernel's struct %s has no %s", want[i].type,
				       want[i].path);
	}
	return 0;
}

static bool hits(const struct scan *s, const u64 *from, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (from[i] >= s->lo && from[i] < s->hi)
			return true;
	}
	return false;
}

/* A task may exit under our reads: what cannot be read is gone, and a task that is gone is not inside. */
static void scan_task(struct scan *s, u64 task)
{
	u64 stack, sp, used;
	u32 on_cpu;

	if (guest_read(s->g, task + s->off.stack, &stack, 8, NULL) ||
	    guest_read(s->g, task + s->off.on_cpu, &on_cpu, 4, NULL) ||
	    guest_read(s->g, task + s->off.sp, &sp, 8, NULL) || !stack)
		return;
	used = stack; /* runs: its stack pointer is in a register that we do not ask for */
	if (!on_cpu && sp >= stack && sp < stack + THREAD_BYTES)
		used = sp & ~7ull;
	if (guest_read(s->g, used, s->stack, stack + THREAD_BYTES - used, NULL))
		return;
	if (!hits(s, s->stack, (stack + THREAD_BYTES - used) / 8))
		return;
	if (on_cpu)
		s->maybe++;
	else
		s->inside++;
}

static int scan_threads(struct scan *s, u64 leader, struct err *err)
{
	u64 signal, head, node;

	if (guest_read(s->g, leader + s->off.signal, &signal, 8, NULL) || !signal) {
		scan_task(s, leader);
		return 0;
	}
	head = signal + s->off.thread_head;
	if (guest_read(s->g, head, &node, 8, NULL))
		return 0;
	while (node != head) {
		if (++s->n_tasks > MAX_TASKS)
			return err_set(err, -EUCLEAN, ERR_GUEST_MEMORY, head,
				       "the guest's list of tasks has no end");
		scan_task(s, node - s->off.thread_node);
		/* an exiting thread is unlinked, its own pointers stay: worst case we leave the list early
		 * and the next round sees the rest */
		if (guest_read(s->g, node, &node, 8, NULL))
			break;
	}
	return 0;
}

static int scan_all(struct scan *s, struct err *err)
{
	u64 init, task, next;
	int rc;

	s->n_tasks = s->inside = s->maybe = 0;
	if (kernel_sym(s->g->k, "init_task", &init))
		return err_set(err, -ENOENT, ERR_GUEST_UNSUPPORTED, 0,
			       "the kernel has no init_task");
	task = init;
	do {
		if (++s->n_tasks > MAX_TASKS)
			return err_set(err, -EUCLEAN, ERR_GUEST_MEMORY, init,
				       "the guest's list of tasks has no end");
		rc = scan_threads(s, task, err);
		if (rc)
			return rc;
		if (guest_read(s->g, task + s->off.tasks, &next, 8, err))
			return -EFAULT;
		task = next - s->off.tasks;
	} while (task != init);
	return 0;
}

/* All vCPUs have run for a while, or slept, since now. */
static bool wait_progress(struct guest *g, u64 deadline)
{
	struct vm_progress p;

	if (vm_progress(g->vm, &p, NULL))
		return false;
	while (!vm_progressed(g->vm, &p, RUN_NS)) {
		if (guest_now_ns() > deadline)
			return false;
		guest_sleep_ns(POLL_NS);
	}
	return true;
}

int quiesce_range(struct guest *g, u64 lo, u64 hi, u64 timeout_ns, struct err *err)
{
	u64 deadline = guest_now_ns() + timeout_ns;
	_cleanup_free_ struct scan *s = calloc(1, sizeof(*s));
	u32 maybe_rounds = 0;
	int rc;

	if (!s)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0,
			       "no memory to look at the guest's stacks");
	s->g = g;
	s->lo = lo;
	s->hi = hi;
	rc = offsets(g, &s->off, err);
	if (rc)
		return rc;
	for (;;) {
		bool moved = wait_progress(g, deadline);

		rc = scan_all(s, err);
		if (rc)
			return rc;
		if (moved && !s->inside && !s->maybe)
			return 0;
		/* What a running task's stack shows again and again, while its CPU goes on, lies below the
		 * stack pointer: a task cannot stay on a CPU inside for that long. */
		if (moved && !s->inside && ++maybe_rounds >= MAYBE_ROUNDS)
			return 0;
		if (guest_now_ns() > deadline)
			return err_set(err, -EBUSY, ERR_GUEST_BUSY, lo,
				       "%u task(s) of the guest are still inside 0x%llx-0x%llx",
				       s->inside, (unsigned long long)lo, (unsigned long long)hi);
		guest_sleep_ns(POLL_NS);
	}
}
