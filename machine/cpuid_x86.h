/* SPDX-License-Identifier: Apache-2.0 */
/* What a guest's CPUs say of themselves. */
#ifndef MACHINE_CPUID_X86_H
#define MACHINE_CPUID_X86_H

#include "base/types.h"

#include <linux/kvm.h>

struct cpuid_config {
	u32 id; /* APIC id, from 0 */
	u32 cpus; /* of the guest: cores of one package */
	bool tsc_deadline; /* KVM_CAP_TSC_DEADLINE_TIMER */
	bool emulated; /* KVM emulates kernel code: leave out what its emulator cannot do */
};

/**
 * cpuid_filter - make one vCPU's table of what KVM_GET_SUPPORTED_CPUID returned
 *
 * Sets the ids and counts of processors, and the timer's and hypervisor's bits; hides what a guest
 * cannot use. On a host that emulates, also instructions that a kernel would take and the emulator
 * does not know: cmpxchg16b, xsave, smap, popcnt, rdtscp, erms, fsrm, invpcid, monitor.
 * Context: any thread; no system call.
 * Source: Intel SDM vol. 2A, CPUID; Linux v6.12 Documentation/virt/kvm/x86/cpuid.rst.
 */
void cpuid_filter(struct kvm_cpuid2 *table, const struct cpuid_config *c);

#endif
