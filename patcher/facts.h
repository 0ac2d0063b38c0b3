/* SPDX-License-Identifier: Apache-2.0 */
/* What an attached guest's kernel has, as far as it matters for tracing: for whoever asks why not. */
#ifndef PATCHER_FACTS_H
#define PATCHER_FACTS_H

#include "patcher/guest.h"

#define GUEST_FACTS_MAX 24

enum guest_lockdown {
	LOCKDOWN_UNKNOWN, /* the kernel has no lockdown LSM, or it cannot be read */
	LOCKDOWN_NONE,
	LOCKDOWN_INTEGRITY,
	LOCKDOWN_CONFIDENTIALITY,
};

struct guest_facts {
	size_t n_config;
	struct {
		const char *name; /* "CONFIG_SMP" */
		bool set;
	} config[GUEST_FACTS_MAX]; /* by what is in memory: a symbol, a section */
	const char *preemption; /* "rt", "dynamic", "full", "voluntary or none" */
	enum guest_lockdown lockdown;
	u64 btf_types_bytes; /* of the kernel's BTF */
	bool agent_in_vmm; /* the agent's memory is the VMM's own; else the guest's allocator lends it */
	const char *
		no_agent; /* why the agent cannot be brought in; NULL: nothing is known to be against it */
	const char *no_syscalls; /* why there is no tracer syscalls; NULL: there is */
	bool ftrace_enabled; /* kernel.ftrace_enabled, of the guest's own tracing */
};

/** guest_get_facts - look; changes nothing. Context: any thread; takes the guest lock. */
void guest_get_facts(struct guest *g, struct guest_facts *ret);

#endif
