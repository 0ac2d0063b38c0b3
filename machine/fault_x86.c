// SPDX-License-Identifier: Apache-2.0
/* What is to be done, and said, when KVM cannot execute an instruction. See machine.h. */
#include "machine/machine.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#define INSN_MAX  15
#define INT3      0xcc
#define VECTOR_BP 3

/* Guest memory by virtual address, as this vCPU sees it; up to the end of its page. */
static size_t read_virt(const struct vcpu *v, u64 addr, u8 *buf, size_t len)
{
	struct kvm_translation t = { .linear_address = addr };
	u64 left = PAGE_SIZE - addr % PAGE_SIZE;

	if (ioctl(v->fd, KVM_TRANSLATE, &t) < 0 || !t.valid)
		return 0;
	len = MIN(len, left);
	return mem_read(&v->m->mem, gpa(t.physical_address), buf, len) ? len : 0;
}

static void print_bytes(char *text, size_t cap, const u8 *b, size_t n)
{
	size_t at = 0;

	text[0] = 0;
	for (size_t i = 0; i < n && at + 4 < cap; i++)
		at += (size_t)snprintf(text + at, cap - at, "%s%02x", i ? " " : "", b[i]);
}

void vcpu_dump(const struct vcpu *v)
{
	char text[INSN_MAX * 3 + 1];
	u8 bytes[INSN_MAX];
	struct kvm_regs r;
	struct kvm_sregs s;

	if (ioctl(v->fd, KVM_GET_REGS, &r) < 0 || ioctl(v->fd, KVM_GET_SREGS, &s) < 0)
		return;
#define U(x) ((unsigned long long)(x))
	fprintf(stderr,
		"vCPU %u: rip %04x:%016llx rflags %08llx\n"
		"  rax %016llx rbx %016llx rcx %016llx rdx %016llx\n"
		"  rsi %016llx rdi %016llx rbp %016llx rsp %016llx\n"
		"  r8  %016llx r9  %016llx r10 %016llx r11 %016llx\n"
		"  r12 %016llx r13 %016llx r14 %016llx r15 %016llx\n"
		"  cr0 %016llx cr2 %016llx cr3 %016llx cr4 %016llx\n"
		"  efer %llx cpl %u fs %llx gs %llx gdt %llx/%x idt %llx/%x\n",
		v->id, s.cs.selector, U(r.rip), U(r.rflags), U(r.rax), U(r.rbx), U(r.rcx), U(r.rdx),
		U(r.rsi), U(r.rdi), U(r.rbp), U(r.rsp), U(r.r8), U(r.r9), U(r.r10), U(r.r11),
		U(r.r12), U(r.r13), U(r.r14), U(r.r15), U(s.cr0), U(s.cr2), U(s.cr3), U(s.cr4),
		U(s.efer), s.ss.dpl, U(s.fs.base), U(s.gs.base), U(s.gdt.base), s.gdt.limit,
		U(s.idt.base), s.idt.limit);
#undef U
	print_bytes(text, sizeof(text), bytes, read_virt(v, r.rip, bytes, sizeof(bytes)));
	fprintf(stderr, "  at rip: %s\n", *text ? text : "not mapped");
}

/*
 * int3 is what kernels patch their text with; some emulators of KVM leave it out. RIP may still be at it or
 * already be past it: KVM tells the bytes that it gave up on, and where these are, there it is.
 * Return: it was int3, and the guest goes on in its handler.
 */
static bool deliver_int3(const struct vcpu *v, struct kvm_regs *r)
{
	const struct kvm_run *run = v->run;
	u8 bytes[INSN_MAX];
	struct kvm_vcpu_events events;
	size_t n = run->emulation_failure.insn_size;

	if (run->emulation_failure.ndata < 1 ||
	    !(run->emulation_failure.flags & KVM_INTERNAL_ERROR_EMULATION_FLAG_INSTRUCTION_BYTES) ||
	    n < 1 || n > INSN_MAX || run->emulation_failure.insn_bytes[0] != INT3)
		return false;
	n = read_virt(v, r->rip, bytes, n);
	if (n && memcmp(bytes, run->emulation_failure.insn_bytes, n) == 0)
		r->rip++;
	if (ioctl(v->fd, KVM_SET_REGS, r) < 0 || ioctl(v->fd, KVM_GET_VCPU_EVENTS, &events) < 0)
		return false;
	events.exception.injected = 1;
	events.exception.nr = VECTOR_BP;
	events.exception.has_error_code = 0;
	return ioctl(v->fd, KVM_SET_VCPU_EVENTS, &events) == 0;
}

bool vcpu_emulation_failed(struct vcpu *v)
{
	char text[INSN_MAX * 3 + 1];
	u8 bytes[INSN_MAX];
	struct kvm_regs r;
	struct kvm_sregs s;
	size_t n;

	if (ioctl(v->fd, KVM_GET_REGS, &r) < 0 || ioctl(v->fd, KVM_GET_SREGS, &s) < 0) {
		machine_end(v->m, EXIT_GUEST_FAILED, "vCPU %u: KVM cannot emulate an instruction",
			    v->id);
		return false;
	}
	if (deliver_int3(v, &r))
		return true;
	n = read_virt(v, r.rip, bytes, sizeof(bytes));
	print_bytes(text, sizeof(text), bytes, n);
	vcpu_dump(v);
	machine_end(v->m, EXIT_GUEST_FAILED,
		    "vCPU %u: KVM cannot emulate the instruction at 0x%llx (%s, CPL %u)", v->id,
		    (unsigned long long)r.rip, n ? text : "bytes not mapped", s.ss.dpl);
	return false;
}
