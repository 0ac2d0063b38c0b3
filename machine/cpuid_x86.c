// SPDX-License-Identifier: Apache-2.0
/* What a guest's CPUs say of themselves. See cpuid_x86.h. */
#include "machine/cpuid_x86.h"

#include <asm/kvm_para.h>

#define BIT(n) (1u << (n))

/* Leaf 1, ECX and EDX */
#define MONITOR      BIT(3)
#define CX16         BIT(13)
#define X2APIC       BIT(21)
#define POPCNT       BIT(23)
#define TSC_DEADLINE BIT(24)
#define XSAVE        BIT(26)
#define OSXSAVE      BIT(27)
#define AVX          BIT(28)
#define F16C         BIT(29)
#define FMA          BIT(12)
#define HYPERVISOR   BIT(31)
#define HTT          BIT(28)
/* Leaf 7, EBX and EDX */
#define BMI1    BIT(3)
#define AVX2    BIT(5)
#define BMI2    BIT(8)
#define ERMS    BIT(9)
#define INVPCID BIT(10)
#define SMAP    BIT(20)
#define AVX512  (BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31))
#define FSRM    BIT(4)
#define RDPID   BIT(22) /* ECX */
#define SHSTK   BIT(7) /* ECX */
#define IBT     BIT(20) /* EDX */
/* Leaf 0x80000001, EDX */
#define RDTSCP BIT(27)

static void filter_features(struct kvm_cpuid_entry2 *e, const struct cpuid_config *c)
{
	e->ebx = (e->ebx & 0xffff) | c->id << 24 | (c->cpus & 0xff) << 16;
	e->ecx |= HYPERVISOR | X2APIC;
	/* a guest that waits by mwait would not let go of the host's CPU */
	e->ecx &= ~(MONITOR | TSC_DEADLINE);
	if (c->tsc_deadline)
		e->ecx |= TSC_DEADLINE;
	if (c->cpus > 1)
		e->edx |= HTT;
	if (c->emulated)
		e->ecx &= ~(CX16 | POPCNT | XSAVE | OSXSAVE | AVX | F16C | FMA);
}

static void filter_structured(struct kvm_cpuid_entry2 *e)
{
	if (e->index != 0)
		return;
	e->ebx &= ~(ERMS | INVPCID | SMAP | BMI1 | BMI2 | AVX2 | AVX512);
	e->ecx &= ~(RDPID | SHSTK);
	e->edx &= ~(FSRM | IBT);
}

/* One package of so many cores, each with one thread. */
static void filter_topology(struct kvm_cpuid_entry2 *e, const struct cpuid_config *c)
{
	u32 shift = 0;

	while ((1u << shift) < c->cpus)
		shift++;
	e->edx = c->id;
	e->ecx = e->index & 0xff;
	e->eax = e->ebx = 0;
	if (e->index == 0) { /* threads of a core */
		e->ebx = 1;
		e->ecx |= 1 << 8;
	} else if (e->index == 1) { /* cores of the package */
		e->eax = shift;
		e->ebx = c->cpus;
		e->ecx |= 2 << 8;
	}
}

/* Who shares a cache: levels 1 and 2 are a core's own, those above everybody's. */
static void filter_cache(struct kvm_cpuid_entry2 *e, const struct cpuid_config *c)
{
	u32 level = e->eax >> 5 & 7;
	u32 sharing = level > 2 ? c->cpus - 1 : 0;

	if (!(e->eax & 0x1f))
		return;
	e->eax = (e->eax & 0x3fff) | (sharing & 0xfff) << 14 | ((c->cpus - 1) & 0x3f) << 26;
}

void cpuid_filter(struct kvm_cpuid2 *table, const struct cpuid_config *c)
{
	for (u32 i = 0; i < table->nent; i++) {
		struct kvm_cpuid_entry2 *e = &table->entries[i];

		switch (e->function) {
		case 1:
			filter_features(e, c);
			break;
		case 4:
			filter_cache(e, c);
			break;
		case 7:
			if (c->emulated)
				filter_structured(e);
			break;
		case 0xb:
		case 0x1f:
			filter_topology(e, c);
			break;
		case 0xd: /* xsave's areas */
			if (c->emulated)
				e->eax = e->ebx = e->ecx = e->edx = 0;
			break;
		case 0x80000001:
			if (c->emulated)
				e->edx &= ~RDTSCP;
			break;
		case KVM_CPUID_FEATURES:
			if (c->emulated) /* vmcall does not return there */
				e->eax &= ~(BIT(KVM_FEATURE_PV_SEND_IPI) |
					    BIT(KVM_FEATURE_PV_SCHED_YIELD) |
					    BIT(KVM_FEATURE_PV_UNHALT));
			break;
		default:
			break;
		}
	}
}
