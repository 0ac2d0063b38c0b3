// SPDX-License-Identifier: Apache-2.0
/*
 * RAM that came after the attach: memory that was plugged in. It is asked for when the guest's page tables lead
 * to where we know of none, and when memory that we know is no memory of the VMM's any more.
 */
#define LOG_PREFIX "vmm"
#include "vmm/vm_ops.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

#define AGAIN_NS NSEC_PER_SEC /* a guest whose tables lead astray must not keep its VMM busy */

/* The RAM of before: regions that are still there keep their mapping, since views lead into it. */
struct old_ram {
	struct ram_region region[VM_MAX_RAM];
	size_t n;
};

static bool same_region(const struct ram_region *a, const struct ram_region *b)
{
	return a->ram.base.v == b->ram.base.v && a->ram.len_bytes == b->ram.len_bytes &&
	       a->hva == b->hva && a->inode == b->inode;
}

/* What @r has of its own goes, and it gets what the same region had before. */
static void take_over(struct vm *vm, struct ram_region *r, struct old_ram *old)
{
	for (size_t i = 0; i < old->n; i++) {
		struct ram_region *was = &old->region[i];

		if (!same_region(r, was))
			continue;
		backing_destroy(vm, r->backing);
		r->backing = was->backing;
		*was = old->region[--old->n];
		return;
	}
}

static bool is_mapped(const struct ram_region *r)
{
	return r->backing && r->backing->map;
}

/* Regions that went and were mapped here are kept: there is room for some. */
static bool fits(const struct vm *vm, const struct old_ram *old)
{
	size_t go = 0;

	for (size_t i = 0; i < old->n; i++) {
		bool kept = !is_mapped(&old->region[i]);

		for (size_t k = 0; k < vm->n_ram; k++)
			kept |= same_region(&vm->ram[k], &old->region[i]);
		go += !kept;
	}
	return vm->n_gone_ram + go <= VM_MAX_RAM;
}

/* false: nothing has changed. */
static bool replace(struct vm *vm, struct old_ram *old)
{
	bool other = vm->n_ram != old->n;

	for (size_t i = 0; i < vm->n_ram; i++)
		take_over(vm, &vm->ram[i], old);
	/* a view may lead there until the end: what was taken away under it must not be a fault of ours */
	other |= old->n > 0;
	for (size_t i = 0; i < old->n; i++) {
		struct backing *b = old->region[i].backing;

		if (!is_mapped(&old->region[i])) {
			backing_destroy(vm, b);
			continue;
		}
		backing_drop(b);
		vm->gone_ram[vm->n_gone_ram++] = b;
	}
	memset(vm->tlb, 0, sizeof(vm->tlb));
	return other;
}

bool vm_more_ram(struct vm *vm)
{
	_cleanup_free_ struct old_ram *old = NULL;
	struct err err = { 0 };
	u64 now = monotonic_ns();
	bool other;
	int rc;

	/* in a window a vCPU may have what the VMM needs for an answer */
	if (!vm->ops->list_ram || vm->window_open || vm->has_spare ||
	    (vm->ram_listed_ns && now - vm->ram_listed_ns < AGAIN_NS))
		return false;
	vm->ram_listed_ns = now;
	old = malloc(sizeof(*old));
	if (!old)
		return false;
	memcpy(old->region, vm->ram, sizeof(old->region));
	old->n = vm->n_ram;
	vm->n_ram = 0;
	rc = vm->ops->list_ram(vm, &err);
	if (!rc)
		rc = vm_mem_open(vm, &err);
	if (rc || !fits(vm, old)) {
		log_warn("%s: cannot look for RAM that was plugged in or out: %s", vm->target,
			 rc ? err.msg : "too many regions came and went");
		vm_mem_close(vm);
		memcpy(vm->ram, old->region, sizeof(old->region));
		vm->n_ram = old->n;
		return false;
	}
	other = replace(vm, old);
	if (other)
		log_info("%s: RAM was plugged in or out; %zu regions now", vm->target, vm->n_ram);
	return other;
}

void vm_check_ram(struct vm *vm)
{
	u64 now = monotonic_ns();

	if (!vm->ops->list_ram || vm->window_open || vm->has_spare ||
	    (vm->ram_checked_ns && now - vm->ram_checked_ns < AGAIN_NS))
		return;
	vm->ram_checked_ns = now;
	if (!vm_mem_is_there(vm))
		vm_more_ram(vm);
}

void vm_more_ram_close(struct vm *vm)
{
	for (size_t i = 0; i < vm->n_gone_ram; i++)
		backing_destroy(vm, vm->gone_ram[i]);
	vm->n_gone_ram = 0;
}

const struct ram_region *vm_find_ram(struct vm *vm, u64 addr)
{
	const struct ram_region *r = vm_mem_find(vm, addr);

	return r || !vm_more_ram(vm) ? r : vm_mem_find(vm, addr);
}
