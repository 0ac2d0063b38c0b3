// SPDX-License-Identifier: Apache-2.0
/*
 * A breakpoint that a VMM sets for us in its guest's vCPUs. See vm.h; hvftrace-vmm does. It is asked for by a signal with
 * a value, and a page in the VMM's memory tells what became of it: base/debug_page.h.
 */
#include "vmm/vm_ops.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/debug_page.h"
#include "vmm/proc.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define MAP_PREFIX "/memfd:" DEBUG_PAGE_NAME
#define POLL_NS    (50 * NSEC_PER_MSEC / 1000)
#define TAKE_NS    NSEC_PER_SEC /* for the VMM to take an order */
#define DONE_NS    (3 * NSEC_PER_SEC) /* and to have done it */
#define READS      100 /* of a page that is always being written */

/* The page as it was at one time. Return: 0; -ESRCH the VMM has ended; -EPROTO no sense can be made of it. */
static int read_page(const struct vm *vm, struct debug_page *ret, struct err *err)
{
	struct debug_page again;

	for (int i = 0; i < READS; i++) {
		if (vm_mem_read_hva(vm, vm->debug_hva, ret, sizeof(*ret)) ||
		    vm_mem_read_hva(vm, vm->debug_hva, &again, sizeof(again)))
			return vm_gone(vm, err);
		if (ret->version == DEBUG_PAGE_VERSION && !(ret->seq & 1) &&
		    ret->seq == again.seq && ret->state < DEBUG_N_STATES &&
		    ret->reason < DEBUG_N_REASONS)
			return 0;
	}
	return err_set(err, -EPROTO, ERR_VMM_PROTOCOL, 0,
		       "what process %d tells of its breakpoints makes no sense", (int)vm->pid);
}

void break_find(struct vm *vm)
{
	_cleanup_maps_ struct proc_maps maps = { 0 };
	struct debug_page page;

	if (proc_maps_read(vm->pid, &maps))
		return;
	for (size_t i = 0; i < maps.n; i++) {
		const struct proc_map *m = &maps.map[i];

		if (m->shared && m->writable && m->end - m->start >= sizeof(page) &&
		    strncmp(m->path, MAP_PREFIX, strlen(MAP_PREFIX)) == 0)
			vm->debug_hva = m->start;
	}
	if (vm->debug_hva && read_page(vm, &page, NULL))
		vm->debug_hva = 0;
}

u32 break_pauses(const struct vm *vm)
{
	struct debug_page page;

	if (!vm->debug_hva)
		return 0;
	return read_page(vm, &page, NULL) ? UINT32_MAX : page.pauses;
}

bool break_held(const struct vm *vm)
{
	struct debug_page page;

	return vm->debug_hva && read_page(vm, &page, NULL) == 0 && page.held;
}

static int over(const struct vm *vm, int no, const struct debug_page *p, struct err *err)
{
	static const char *const why[DEBUG_N_REASONS] = {
		[DEBUG_WAS_TOLD] = "it was told to do without",
		[DEBUG_NO_KVM] = "KVM here has none",
		[DEBUG_DR7] = "the guest uses the debug registers itself",
		[DEBUG_FULL] = "the debug registers are all in use",
		[DEBUG_STUCK] = "a vCPU did not leave the guest in time",
		[DEBUG_FAILED] = "KVM refused",
		[DEBUG_RESET] = "the guest was reset",
		[DEBUG_EXPIRED] = "nobody came in time",
	};

	return err_set(err, no, ERR_CONFLICT, vm->debug_addr, "no breakpoint at 0x%llx: %s",
		       (unsigned long long)vm->debug_addr, why[p->reason]);
}

/* Until the VMM has taken our order, and, with @done, done it. */
static int wait_order(const struct vm *vm, u64 before, bool done, struct debug_page *p,
		      struct err *err)
{
	const struct timespec pause = { .tv_nsec = POLL_NS };
	u64 end = monotonic_ns() + (done ? DONE_NS : TAKE_NS);
	int rc;

	for (;;) {
		rc = read_page(vm, p, err);
		if (rc)
			return rc;
		if (p->orders != before && (!done || p->state != DEBUG_TAKEN))
			return 0;
		if (!vm_alive(vm))
			return vm_gone(vm, err);
		if (monotonic_ns() >= end)
			return err_set(err, -ETIMEDOUT, ERR_VMM_TIMEOUT, vm->debug_addr,
				       "process %d did not %s a breakpoint in time", (int)vm->pid,
				       done ? "set" : "take the order for");
		nanosleep(&pause, NULL);
	}
}

static int errno_of(enum debug_reason reason)
{
	switch (reason) {
	case DEBUG_NO_KVM:
	case DEBUG_FAILED:
		return -ENOTSUP;
	case DEBUG_STUCK:
		return -ETIMEDOUT;
	default:
		return -EBUSY;
	}
}

/* The guest is held all the while: from when the order is taken until it is done no vCPU enters it. */
static int take(struct vm *vm, gva_t addr, struct debug_page *p, struct err *err)
{
	u64 before;
	int rc;

	if (!vm->debug_hva)
		return err_set(err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, addr.v,
			       "the VMM of %s has no breakpoints", vm->target);
	rc = read_page(vm, p, err);
	if (rc)
		return rc;
	before = p->orders;
	vm->debug_addr = addr.v;
	rc = vm_order(vm, DEBUG_SIGNAL, addr.v, err);
	if (!rc)
		rc = wait_order(vm, before, false, p, err);
	vm->debug_order = before + 1;
	return rc;
}

int vm_break(struct vm *vm, gva_t addr, struct err *err)
{
	struct err e = { 0 };
	struct debug_page p;
	int rc, no;

	if (!vm->held)
		return err_set(err, -EINVAL, ERR_CONFLICT, addr.v, "the guest is not held");
	rc = take(vm, addr, &p, err);
	no = vm_release(vm, rc ? &e : err);
	if (!rc)
		rc = no;
	if (!rc)
		rc = wait_order(vm, vm->debug_order - 1, true, &p, err);
	if (!rc && (p.orders != vm->debug_order || p.addr != addr.v || p.state == DEBUG_OVER))
		rc = over(vm, errno_of(p.reason), &p, err);
	if (rc)
		vm_unbreak(vm);
	return rc;
}

/* A vCPU is there, and the VMM lets none enter the guest; from here on we do not either. */
static int take_over(struct vm *vm, u64 timeout_ns, struct err *err)
{
	struct err e = { 0 };
	struct debug_page p;
	int rc = vm_hold(vm, timeout_ns, err);

	if (rc)
		return rc;
	rc = read_page(vm, &p, err);
	if (!rc && (p.orders != vm->debug_order || p.state != DEBUG_HIT))
		rc = over(vm, -ECANCELED, &p, err);
	if (!rc)
		rc = vm_order(vm, DEBUG_SIGNAL, 0, err);
	if (!rc)
		vm->debug_order = 0;
	else
		(void)vm_release(vm, &e);
	return rc;
}

int vm_break_wait(struct vm *vm, u64 timeout_ns, struct err *err)
{
	const struct timespec pause = { .tv_nsec = POLL_NS };
	u64 end = monotonic_ns() + timeout_ns;
	struct debug_page p;
	int rc;

	if (!vm->debug_order)
		return err_set(err, -EINVAL, ERR_CONFLICT, 0, "there is no breakpoint");
	for (;;) {
		rc = read_page(vm, &p, err);
		if (rc)
			return rc;
		if (p.orders != vm->debug_order || p.state == DEBUG_OVER)
			return over(vm, -ECANCELED, &p, err);
		if (p.state == DEBUG_HIT)
			return take_over(vm, MAX(timeout_ns, NSEC_PER_SEC), err);
		if (!vm_alive(vm))
			return vm_gone(vm, err);
		if (monotonic_ns() >= end)
			return err_set(err, -ETIMEDOUT, ERR_VMM_TIMEOUT, vm->debug_addr,
				       "no vCPU has come to 0x%llx yet",
				       (unsigned long long)vm->debug_addr);
		nanosleep(&pause, NULL);
	}
}

void vm_unbreak(struct vm *vm)
{
	struct debug_page p;
	struct err err = { 0 };
	u64 before = vm->debug_order;

	if (!before)
		return;
	vm->debug_order = 0;
	if (vm_order(vm, DEBUG_SIGNAL, 0, &err) == 0)
		(void)wait_order(vm, before, true, &p, &err);
}
