// SPDX-License-Identifier: Apache-2.0
/* What a guest's kernel has. See facts.h. */
#include "patcher/facts.h"

#include "patcher/guest_priv.h"
#include "symbols/syscalls.h"

#include <string.h>

/* An option is known by a symbol that is there with it alone, on v5.10 to v7.2. */
static const struct {
	const char *config, *symbol;
} options[] = {
	{ "CONFIG_SMP", "__per_cpu_offset" },
	{ "CONFIG_MODULES", "modules" },
	{ "CONFIG_DYNAMIC_FTRACE", "ftrace_pages_start" },
	{ "CONFIG_FUNCTION_GRAPH_TRACER", "ftrace_return_to_handler" },
	{ "CONFIG_FTRACE_SYSCALLS", "__start_syscalls_metadata" },
	{ "CONFIG_DEBUG_INFO_BTF", "__start_BTF" },
	{ "CONFIG_KALLSYMS_ALL", "system_state" },
	{ "CONFIG_RANDOMIZE_BASE", "kernel_randomize_memory" },
	{ "CONFIG_X86_KERNEL_IBT", "__ibt_endbr_seal" },
	{ "CONFIG_KPROBES", "register_kprobe" },
	{ "CONFIG_BPF_SYSCALL", "bpf_prog_put" },
	{ "CONFIG_LIVEPATCH", "klp_enable_patch" },
	{ "CONFIG_KASAN", "kasan_report" },
	{ "CONFIG_UNWINDER_ORC", "__start_orc_unwind" },
	{ "CONFIG_KEXEC_CORE", "crash_kexec" },
	{ "CONFIG_SECURITY_LOCKDOWN_LSM", "kernel_locked_down" },
};
_Static_assert(ARRAY_SIZE(options) <= GUEST_FACTS_MAX, "facts");

static bool has(struct guest *g, const char *symbol)
{
	u64 addr;

	return !kernel_sym(g->k, symbol, &addr);
}

/* The banner says which of them (v6.1 init/version-timestamp.c, scripts/mkcompile_h). */
static const char *preemption(struct guest *g)
{
	const char *banner = kernel_location(g->k)->banner;

	if (strstr(banner, "PREEMPT_RT"))
		return "rt";
	if (strstr(banner, "PREEMPT_DYNAMIC"))
		return "dynamic";
	return strstr(banner, "PREEMPT") ? "full" : "voluntary or none";
}

/* v6.1 security/lockdown/lockdown.c: an enum lockdown_reason, the highest that is locked down. */
static enum guest_lockdown lockdown(struct guest *g)
{
	s64 integrity, confidentiality;
	u64 addr;
	u32 level;

	if (kernel_sym(g->k, "kernel_locked_down", &addr) ||
	    kernel_btf_enum(g->k, "LOCKDOWN_INTEGRITY_MAX", &integrity) ||
	    kernel_btf_enum(g->k, "LOCKDOWN_CONFIDENTIALITY_MAX", &confidentiality) ||
	    guest_read(g, addr, &level, sizeof(level), NULL))
		return LOCKDOWN_UNKNOWN;
	if (level >= (u64)confidentiality)
		return LOCKDOWN_CONFIDENTIALITY;
	return level >= (u64)integrity ? LOCKDOWN_INTEGRITY : LOCKDOWN_NONE;
}

/* What gate and agent need of a kernel; what only shows when they are brought in is not asked. */
static const char *no_agent(struct guest *g)
{
	gva_t data;
	u64 size;
	s32 disp;

	if (guest_percpu_gs(g, "current_task", "current_task", &disp) ||
	    guest_percpu_gs(g, "__preempt_count", "preempt_count", &disp))
		return "this kernel has no per-CPU current_task and __preempt_count that we know";
	if (g->agent.loaded)
		return NULL;
	if (!has(g, "module_alloc") && !has(g, "execmem_alloc"))
		return "this kernel has neither module_alloc nor execmem_alloc to lend memory";
	if (!kernel_vmcoreinfo(g->k, &data, &size))
		return "this kernel has no vmcoreinfo page, where the gate's mailbox goes";
	return NULL;
}

static const char *no_syscalls(struct guest *g)
{
	struct syscall_table *t;
	struct sym_mem mem;
	struct err err = { 0 };

	guest_mem(g, &mem);
	if (syscall_table_load(g->k, &mem, &t, &err))
		return "no function of this kernel has the name of a system call's handler";
	syscall_table_destroy(t);
	return NULL;
}

static void look(struct guest *g, struct guest_facts *ret)
{
	gpa_t spare;
	u64 start, stop;
	u32 enabled;

	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		ret->config[i].name = options[i].config;
		ret->config[i].set = has(g, options[i].symbol);
	}
	ret->n_config = ARRAY_SIZE(options);
	ret->preemption = preemption(g);
	ret->lockdown = lockdown(g);
	if (!kernel_sym(g->k, "__start_BTF", &start) && !kernel_sym(g->k, "__stop_BTF", &stop))
		ret->btf_types_bytes = stop - start;
	ret->agent_in_vmm = vm_spare_offered(g->vm, &spare);
	ret->no_agent = ret->agent_in_vmm ? NULL : no_agent(g);
	ret->no_syscalls = no_syscalls(g);
	ret->ftrace_enabled = !kernel_sym(g->k, "ftrace_enabled", &start) &&
			      !guest_read(g, start, &enabled, sizeof(enabled), NULL) && enabled;
}

void guest_get_facts(struct guest *g, struct guest_facts *ret)
{
	*ret = (struct guest_facts){ 0 };
	guest_lock(g);
	look(g, ret);
	guest_unlock(g);
}
