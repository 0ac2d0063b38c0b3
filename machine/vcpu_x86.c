// SPDX-License-Identifier: Apache-2.0
/* A vCPU as it is before its first instruction. See machine.h. */
#include "machine/boot_x86.h"
#include "machine/cpuid_x86.h"
#include "machine/machine.h"

#include "base/cleanup.h"

#include <asm/kvm_para.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_CPUID 256

#define CR0_PE   (1u << 0)
#define CR0_ET   (1u << 4)
#define CR0_PG   (1u << 31)
#define CR4_PAE  (1u << 5)
#define EFER_LME (1u << 8)
#define EFER_LMA (1u << 10)

#define TSS32_LIMIT 0x67

#define APIC_LVT0     0x350
#define APIC_LVT1     0x360
#define APIC_LVT_MASK 0x10700u
#define APIC_LVT_EXT  0x700u
#define APIC_LVT_NMI  0x400u

#define MSR_MISC_ENABLE  0x1a0
#define MISC_FAST_STRING 1

static int set_cpuid(const struct vcpu *v, struct err *err)
{
	size_t bytes = sizeof(struct kvm_cpuid2) + MAX_CPUID * sizeof(struct kvm_cpuid_entry2);
	_cleanup_free_ struct kvm_cpuid2 *table = calloc(1, bytes);
	const struct machine *m = v->m;
	struct cpuid_config c = {
		.id = v->id,
		.cpus = m->n_vcpus,
		.tsc_deadline = ioctl(m->kvm, KVM_CHECK_EXTENSION, KVM_CAP_TSC_DEADLINE_TIMER) > 0,
		.emulated = m->emulated,
	};

	if (!table)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a vCPU");
	table->nent = MAX_CPUID;
	if (ioctl(m->kvm, KVM_GET_SUPPORTED_CPUID, table) < 0)
		return kvm_failed(err, "what its CPUs can do");
	cpuid_filter(table, &c);
	if (ioctl(v->fd, KVM_SET_CPUID2, table) < 0)
		return kvm_failed(err, "a vCPU's CPUID");
	return 0;
}

/* As firmware leaves them: interrupts of the old controllers at pin 0, NMIs at pin 1. */
static int set_lapic(const struct vcpu *v, struct err *err)
{
	static const struct {
		u32 reg, value;
	} lvt[] = { { APIC_LVT0, APIC_LVT_EXT }, { APIC_LVT1, APIC_LVT_NMI } };
	struct kvm_lapic_state s;

	if (ioctl(v->fd, KVM_GET_LAPIC, &s) < 0)
		return kvm_failed(err, "a vCPU's interrupt controller");
	for (size_t i = 0; i < ARRAY_SIZE(lvt); i++) {
		u32 now;

		memcpy(&now, s.regs + lvt[i].reg, sizeof(now));
		now = (now & ~APIC_LVT_MASK) | lvt[i].value;
		memcpy(s.regs + lvt[i].reg, &now, sizeof(now));
	}
	if (ioctl(v->fd, KVM_SET_LAPIC, &s) < 0)
		return kvm_failed(err, "a vCPU's interrupt controller");
	return 0;
}

static int set_msrs(const struct vcpu *v, struct err *err)
{
	/* a struct kvm_msrs with one entry */
	_Alignas(struct kvm_msrs)
		u8 room[sizeof(struct kvm_msrs) + sizeof(struct kvm_msr_entry)] = { 0 };
	struct kvm_msr_entry entry = { .index = MSR_MISC_ENABLE, .data = MISC_FAST_STRING };
	struct kvm_msrs *msrs = (void *)room;

	msrs->nmsrs = 1;
	memcpy(msrs->entries, &entry, sizeof(entry));
	if (ioctl(v->fd, KVM_SET_MSRS, msrs) < 0)
		return kvm_failed(err, "a vCPU's registers");
	return 0;
}

/*
 * Flat segments, interrupts off. Linux: 64-bit mode, the first 4 GiB mapped (boot.rst, 64-bit boot protocol);
 * PVH: 32-bit mode without paging (pvh.pandoc, boot sequence).
 */
static int set_boot_state(const struct vcpu *v, const struct boot_start *start, struct err *err)
{
	bool pvh = start->protocol == BOOT_PVH;
	struct kvm_segment code = { .limit = 0xffffffff,
				    .selector = pvh ? BOOT_CS32 : BOOT_CS,
				    .type = 11,
				    .present = 1,
				    .s = 1,
				    .db = pvh,
				    .l = !pvh,
				    .g = 1 };
	struct kvm_segment data = { .limit = 0xffffffff,
				    .selector = BOOT_DS,
				    .type = 3,
				    .present = 1,
				    .s = 1,
				    .db = 1,
				    .g = 1 };
	struct kvm_regs regs = {
		.rip = start->entry, .rsp = BOOT_STACK, .rbp = BOOT_STACK, .rflags = 2
	};
	struct kvm_sregs s;

	if (ioctl(v->fd, KVM_GET_SREGS, &s) < 0)
		return kvm_failed(err, "a vCPU's registers");
	s.gdt.base = BOOT_GDT;
	s.gdt.limit = BOOT_GDT_ENTRIES * 8 - 1;
	s.idt.base = 0;
	s.idt.limit = 0; /* whatever goes wrong before the kernel has one is a triple fault */
	s.cs = code;
	s.ds = s.es = s.fs = s.gs = s.ss = data;
	if (pvh) {
		regs.rbx = BOOT_PARAMS;
		s.tr = (struct kvm_segment){ .limit = TSS32_LIMIT, .type = 11, .present = 1 };
		s.cr0 = CR0_PE | CR0_ET;
		s.cr4 = 0;
		s.efer = 0;
	} else {
		regs.rsi = BOOT_PARAMS;
		s.cr3 = BOOT_PML4;
		s.cr4 = CR4_PAE;
		s.cr0 = CR0_PE | CR0_ET | CR0_PG;
		s.efer = EFER_LME | EFER_LMA;
	}
	if (ioctl(v->fd, KVM_SET_SREGS, &s) < 0 || ioctl(v->fd, KVM_SET_REGS, &regs) < 0)
		return kvm_failed(err, "a vCPU's registers");
	return 0;
}

int vcpu_create(struct vcpu *v, const struct boot_start *start, struct err *err)
{
	void *run;
	int rc;

	v->fd = ioctl(v->m->vm, KVM_CREATE_VCPU, (unsigned long)v->id);
	if (v->fd < 0)
		return kvm_failed(err, "a vCPU");
	run = mmap(NULL, v->m->run_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, v->fd, 0);
	if (run == MAP_FAILED)
		return kvm_failed(err, "a vCPU's shared page");
	v->run = run;
	rc = set_cpuid(v, err);
	if (!rc)
		rc = set_lapic(v, err);
	if (!rc)
		rc = set_msrs(v, err);
	/* the others wait for the first one to start them, by INIT and SIPI */
	if (!rc && v->id == 0)
		rc = set_boot_state(v, start, err);
	return rc;
}

void vcpu_close(struct vcpu *v)
{
	if (v->run)
		munmap(v->run, v->m->run_bytes);
	if (v->fd >= 0)
		close(v->fd);
	v->run = NULL;
	v->fd = -1;
}
