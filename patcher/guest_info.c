// SPDX-License-Identifier: Apache-2.0
/* An attached guest as it is shown. See guest.h. */
#include "patcher/guest_priv.h"
#include "vmm/console.h"

#include <errno.h>
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

/* All but the state, which is asked for. The lock is held. */
static const char *console_of(const struct vm *vm)
{
	const struct vm_console *c = vm_console(vm);

	return !c ? "none" : vm_console_takes(c) ? "write" : "read";
}

static void fill(struct guest *g, struct guest_info *ret)
{
	const struct kernel_location *loc = kernel_location(g->k);

	memset(ret, 0, sizeof(*ret));
	snprintf(ret->target, sizeof(ret->target), "%s", g->target);
	snprintf(ret->release, sizeof(ret->release), "%s", kernel_release(g->k));
	snprintf(ret->banner, sizeof(ret->banner), "%s", loc->banner);
	snprintf(ret->build_id, sizeof(ret->build_id), "%s", kernel_build_id(g->k));
	ret->accel = vm_accel(g->vm) == VM_ACCEL_TCG ? "tcg" : "kvm";
	ret->console = console_of(g->vm);
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
}

int guest_console(const struct guest *g, struct vm_console **ret, struct err *err)
{
	struct vm_console *c = vm_console(g->vm);

	if (!c)
		return err_set(err, -ENOENT, ERR_CONSOLE_NONE, 0,
			       "the VMM of %s, process %d, offers no console", g->target,
			       (int)vm_pid(g->vm));
	*ret = vm_console_ref(c);
	return 0;
}

/* The lock is held. */
static const char *ask_state(struct guest *g)
{
	static const char *const states[] = {
		[VM_RUNNING] = "running", [VM_STOPPED] = "stopped", [VM_GONE] = "gone"
	};
	enum vm_state state;

	if (vm_held(g->vm))
		return "held";
	state = vm_state(g->vm);
	/* a guess from its process is good enough to go on with, but not to be told as a fact */
	return state != VM_GONE && vm_silent(g->vm) ? "unknown" : states[state];
}

static void keep(struct guest *g, const struct guest_info *info)
{
	pthread_mutex_lock(&g->seen_lock);
	g->seen = *info;
	pthread_mutex_unlock(&g->seen_lock);
}

void guest_info(struct guest *g, struct guest_info *ret)
{
	guest_lock(g);
	fill(g, ret);
	ret->state = ask_state(g);
	keep(g, ret);
	guest_unlock(g);
}

void guest_glance(struct guest *g, struct guest_info *ret)
{
	bool gone = !vm_alive(g->vm), silent = !gone && vm_silent(g->vm);

	if (pthread_mutex_trylock(&g->lock)) { /* who has it may wait for the VMM */
		pthread_mutex_lock(&g->seen_lock);
		*ret = g->seen;
		pthread_mutex_unlock(&g->seen_lock);
	} else {
		fill(g, ret);
		ret->state = gone || (silent && !vm_held(g->vm)) ? "unknown" : ask_state(g);
		keep(g, ret);
		guest_unlock(g);
	}
	if (gone)
		ret->state = "gone";
	else if (silent && strcmp(ret->state, "held") != 0)
		ret->state = "unknown";
}

pid_t guest_vmm_pid(const struct guest *g)
{
	return vm_pid(g->vm);
}
