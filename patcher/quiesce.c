// SPDX-License-Identifier: Apache-2.0
/* Who is still inside? See quiesce.h. */
#include "patcher/quiesce.h"

#include "base/cleanup.h"
#include "patcher/tasks.h"

#include <errno.h>
#include <stdlib.h>

#define THREAD_BYTES \
	16384u /* v6.1 arch/x86/include/asm/page_64_types.h THREAD_SIZE, without KASAN */
#define RUN_NS       (2 * NSEC_PER_MSEC)
#define POLL_NS      (3 * NSEC_PER_MSEC)
#define MAYBE_ROUNDS 20

struct scan {
	struct guest *g;
	u32 stack_off, on_cpu_off, sp_off;
	u64 lo, hi;
	u32 inside; /* of tasks that do not run: certain */
	u32 maybe; /* of tasks that run: may be left over below the stack pointer */
	u64 stack[THREAD_BYTES / 8];
};

static int offsets(struct scan *s, struct err *err)
{
	struct kernel *k = s->g->k;

	if (kernel_btf_offset(k, "task_struct", "stack", &s->stack_off) ||
	    kernel_btf_offset(k, "task_struct", "on_cpu", &s->on_cpu_off) ||
	    kernel_btf_offset(k, "task_struct", "thread.sp", &s->sp_off))
		return err_set(
			err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0,
			"this kernel's struct task_struct has no stack, on_cpu or thread.sp");
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
static bool scan_task(void *arg, u64 task)
{
	struct scan *s = arg;
	u64 stack, sp, used;
	u32 on_cpu;

	if (guest_read(s->g, task + s->stack_off, &stack, 8, NULL) ||
	    guest_read(s->g, task + s->on_cpu_off, &on_cpu, 4, NULL) ||
	    guest_read(s->g, task + s->sp_off, &sp, 8, NULL) || !stack)
		return true;
	used = stack; /* runs: its stack pointer is in a register that we do not ask for */
	if (!on_cpu && sp >= stack && sp < stack + THREAD_BYTES)
		used = sp & ~7ull;
	if (guest_read(s->g, used, s->stack, stack + THREAD_BYTES - used, NULL))
		return true;
	if (!hits(s, s->stack, (stack + THREAD_BYTES - used) / 8))
		return true;
	if (on_cpu)
		s->maybe++;
	else
		s->inside++;
	return true;
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
	rc = offsets(s, err);
	if (rc)
		return rc;
	for (;;) {
		bool moved = wait_progress(g, deadline);

		s->inside = s->maybe = 0;
		rc = tasks_for_each(g, scan_task, s, err);
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
