// SPDX-License-Identifier: Apache-2.0
/* An attached guest as it is shown. See guest.h. */
#include "patcher/guest_priv.h"

#include <stdio.h>
#include <string.h>

bool guest_is_gone(const struct guest *g)
{
	return !vm_alive(g->vm);
}

bool guest_is_silent(const struct guest *g)
{
	return vm_silent(g->vm);
}

bool guest_is_held(struct guest *g)
{
	bool held;

	if (pthread_mutex_trylock(&g->lock))
		return false;
	held = vm_held(g->vm);
	pthread_mutex_unlock(&g->lock);
	return held;
}

void guest_info(struct guest *g, struct guest_info *ret)
{
	static const char *const states[] = {
		[VM_RUNNING] = "running", [VM_STOPPED] = "stopped", [VM_GONE] = "gone"
	};
	const struct kernel_location *loc;
	enum vm_state state;

	memset(ret, 0, sizeof(*ret));
	guest_lock(g);
	loc = kernel_location(g->k);
	snprintf(ret->target, sizeof(ret->target), "%s", g->target);
	snprintf(ret->release, sizeof(ret->release), "%s", kernel_release(g->k));
	snprintf(ret->banner, sizeof(ret->banner), "%s", loc->banner);
	snprintf(ret->build_id, sizeof(ret->build_id), "%s", kernel_build_id(g->k));
	ret->accel = vm_accel(g->vm) == VM_ACCEL_TCG ? "tcg" : "kvm";
	state = vm_held(g->vm) ? VM_STOPPED : vm_state(g->vm);
	/* a guess from its process is good enough to go on with, but not to be told as a fact */
	ret->state = vm_held(g->vm)                         ? "held"
		     : state != VM_GONE && vm_silent(g->vm) ? "unknown"
							    : states[state];
	ret->vmm_pid = vm_pid(g->vm);
	ret->vcpus = vm_vcpu_count(g->vm);
	for (size_t i = 0; i < vm_ram_count(g->vm); i++)
		ret->ram_bytes += vm_ram(g->vm, i)->len_bytes;
	ret->kaslr_offset = loc->kaslr_offset;
	ret->paging_levels = loc->levels;
	ret->n_symbols = kernel_sym_count(g->k);
	ret->n_functions = kernel_site_count(g->k);
	ret->n_modules = kernel_module_count(g->k);
	for (size_t i = 0; i < ret->n_functions; i++) {
		ret->n_traceable += kernel_sites(g->k)[i].state == SITE_OK;
		ret->n_in_use += kernel_sites(g->k)[i].state == SITE_IN_USE;
	}
	ret->n_armed = g->n_armed;
	ret->find_ns = g->find_ns;
	ret->lend_ns = g->lend_ns;
	ret->window_limit_ns = g->window_limit_ns;
	ret->agent_loaded = g->agent.loaded;
	ret->agent_text = g->agent.text;
	ret->agent_data = g->agent.data;
	ret->agent_bytes = g->agent.text_bytes + g->agent.data_bytes;
	vm_windows(g->vm, &ret->windows);
	guest_unlock(g);
}
