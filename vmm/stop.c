// SPDX-License-Identifier: Apache-2.0
/*
 * How often and for how long a VMM's vCPUs are held while one of them does not stop. A try is short, and what it
 * held is let go on for many times as long before the next: a guest whose vCPU hangs in its host stays a guest that
 * runs. Who works in an open window goes first on its host CPU.
 */
#define LOG_PREFIX "vmm"
#include "vmm/vm_ops.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

#define STOP_FIRST_NS (20 * NSEC_PER_MSEC)
/* Where CPUs are short threads stop late, but do: a try after one that used all of its time gets twice that. */
#define STOP_MOST_NS  (320 * NSEC_PER_MSEC)
#define REST_TIMES    10u /* as long as vCPUs were held */
#define REST_LEAST_NS (5 * NSEC_PER_MSEC) /* after a try in which nobody was */
/*
 * The gdbstub stops all vCPUs at a time, once QEMU's main loop comes to that; to give up earlier would not let them go
 * earlier. How long they were held is not known: at most all of the try.
 */
#define TCG_STOP_NS  (NSEC_PER_SEC)
#define LATE_REST_NS (50 * NSEC_PER_MSEC)

void vm_set_window_limit(struct vm *vm, u64 limit_ns)
{
	vm->window_limit_ns = limit_ns;
}

static u64 first_budget(const struct vm *vm)
{
	if (vm->accel == VM_ACCEL_TCG)
		return TCG_STOP_NS;
	return MAX(STOP_FIRST_NS, 2 * vm->window_limit_ns);
}

static u64 next_budget(const struct vm *vm, u64 budget_ns, u64 held_ns)
{
	if (vm->accel == VM_ACCEL_TCG || held_ns < budget_ns)
		return budget_ns;
	return MAX(MIN(2 * budget_ns, STOP_MOST_NS), budget_ns);
}

static u64 rest(const struct vm *vm, u64 held_ns)
{
	if (vm->accel == VM_ACCEL_TCG)
		return MAX(held_ns, LATE_REST_NS);
	return MAX(held_ns * REST_TIMES, REST_LEAST_NS);
}

int vm_try_stop(struct vm *vm, u64 budget_ns, u64 *held_ret, struct err *err)
{
	int rc;

	vm->window_start_ns = 0;
	rc = vm->ops->pause(vm, budget_ns, err);
	*held_ret = rc && vm->window_start_ns ? monotonic_ns() - vm->window_start_ns : 0;
	return rc;
}

int vm_stop(struct vm *vm, u64 patience_ns, struct err *err)
{
	u64 deadline = monotonic_ns() + patience_ns;
	u64 budget = MIN(first_budget(vm), patience_ns);
	bool late = false;

	for (;;) {
		struct err e = { 0 };
		u64 held, pause;
		int rc = vm_try_stop(vm, budget, &held, &e);

		if (rc == -ETIMEDOUT && !late)
			log_info("%s: cannot stop it yet: %s", vm->target, e.msg);
		late |= rc == -ETIMEDOUT;
		pause = rc == -EBUSY ? LATE_REST_NS : rest(vm, held);
		/* a try that was given up may stop the guest yet, until its VMM comes to that as well */
		if ((rc != -ETIMEDOUT && (rc != -EBUSY || !late)) ||
		    monotonic_ns() + pause >= deadline) {
			if (rc && err)
				*err = e;
			return rc;
		}
		sleep_ns(pause);
		budget = next_budget(vm, budget, held);
	}
}

void vm_raise(struct vm *vm)
{
	errno = 0;
	vm->nice_before = getpriority(PRIO_PROCESS, 0);
	vm->raised = !errno && vm->nice_before > VM_WINDOW_NICE &&
				     !setpriority(PRIO_PROCESS, 0, VM_WINDOW_NICE)
			     ? gettid()
			     : 0;
}

/* Another thread may close the window; that of the one which opened it is then left as it is. */
void vm_lower(struct vm *vm)
{
	if (vm->raised && vm->raised == gettid())
		(void)setpriority(PRIO_PROCESS, 0, vm->nice_before);
	vm->raised = 0;
}
