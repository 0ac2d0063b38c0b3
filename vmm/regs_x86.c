// SPDX-License-Identifier: Apache-2.0
/* Registers on x86-64. See regs_x86.h. */
#include "vmm/regs_x86.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>

#define KVM_RUN_REQUEST 0xae80u /* _IO(KVMIO, 0x80), include/uapi/linux/kvm.h */

/* The text after @name where it begins a word: "RIP=" is not found in "EIP=" nor "IP=" in "RIP=". */
static const char *find_field(const char *text, const char *name)
{
	for (const char *p = text; (p = strstr(p, name)); p++) {
		if (p == text || p[-1] == ' ' || p[-1] == '\n')
			return p + strlen(name);
	}
	return NULL;
}

/* A hexadecimal number that must be there and end in white space. */
static bool hex_at(const char *p, const char **end_ret, u64 *ret)
{
	char *end;
	u64 v;

	if (!p)
		return false;
	while (*p == ' ')
		p++;
	if (!strchr("0123456789abcdefABCDEF", *p) || *p == '\0')
		return false;
	v = strtoull(p, &end, 16);
	if (end - p > 16 || (*end && !strchr(" \r\n", *end)))
		return false;
	if (end_ret)
		*end_ret = end;
	*ret = v;
	return true;
}

/* QEMU prints 32-bit names while a vCPU is not in 64-bit mode (target/i386/cpu-dump.c, 7.2). */
static bool hex_field(const char *text, const char *name, const char *name32, u64 *ret)
{
	return hex_at(find_field(text, name), NULL, ret) ||
	       (name32 && hex_at(find_field(text, name32), NULL, ret));
}

bool regs_parse_hmp(const char *text, struct vm_regs *ret)
{
	struct vm_regs r = { 0 };
	const char *p;
	u64 cpl;
	u64 hlt;
	u64 selector;

	if (!hex_field(text, "RIP=", "EIP=", &r.rip) || !hex_field(text, "RSP=", "ESP=", &r.rsp) ||
	    !hex_field(text, "CR3=", NULL, &r.cr3) || !hex_field(text, "CR4=", NULL, &r.cr4) ||
	    !hex_field(text, "EFER=", NULL, &r.efer) ||
	    !hex_field(text, "IDT=", NULL, &r.idt_base) || !hex_field(text, "CPL=", NULL, &cpl) ||
	    !hex_field(text, "HLT=", NULL, &hlt))
		return false;
	/* GS =0000 ff1392c71f200000 00000000 00000000: selector, base, limit, flags */
	if (!hex_at(find_field(text, "GS ="), &p, &selector) || !hex_at(p, NULL, &r.gs_base))
		return false;
	r.user_mode = cpl == 3;
	r.halted = hlt != 0;
	*ret = r;
	return true;
}

bool regs_in_kvm_run(pid_t tid)
{
	struct user_regs_struct r;

	if (ptrace(PTRACE_GETREGS, tid, NULL, &r) < 0)
		return false;
	/*
	 * The result tells a vCPU from kvm-nx-lpage-recovery, a kernel worker that lives in the VMM's
	 * process with a copy of the registers of the vCPU that created it, and 0 for a result
	 * (arch/x86/kvm/mmu/mmu.c:kvm_mmu_post_init_vm(), v6.4 and later).
	 */
	return r.orig_rax == SYS_ioctl && (u32)r.rsi == KVM_RUN_REQUEST && (long)r.rax == -EINTR;
}
