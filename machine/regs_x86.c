// SPDX-License-Identifier: Apache-2.0
/* What a vCPU's registers are, for whoever wonders where a guest hangs. See machine.h. */
#include "machine/machine.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#define LEAVE_NS (NSEC_PER_SEC / 2)

#define MSR_LSTAR          0xc0000082u
#define MSR_KERNEL_GS_BASE 0xc0000102u
#define N_MSRS             2

struct look {
	const struct vcpu *v;
	struct kvm_regs r;
	struct kvm_sregs s;
	u64 lstar, kernel_gs;
	int no; /* errno of what failed, or 0 */
};

static int get_msrs(const struct vcpu *v, struct look *l)
{
	/* a struct kvm_msrs with its entries */
	_Alignas(struct kvm_msrs)
		u8 room[sizeof(struct kvm_msrs) + N_MSRS * sizeof(struct kvm_msr_entry)] = { 0 };
	struct kvm_msr_entry entry[N_MSRS] = { { .index = MSR_LSTAR },
					       { .index = MSR_KERNEL_GS_BASE } };
	struct kvm_msrs *msrs = (void *)room;

	msrs->nmsrs = N_MSRS;
	memcpy(msrs->entries, entry, sizeof(entry));
	if (ioctl(v->fd, KVM_GET_MSRS, msrs) != N_MSRS)
		return -1;
	memcpy(entry, msrs->entries, sizeof(entry));
	l->lstar = entry[0].data;
	l->kernel_gs = entry[1].data;
	return 0;
}

/* All vCPUs are out: KVM gives at once what it would have to wait for. */
static void look(void *arg)
{
	struct look *l = arg;

	if (ioctl(l->v->fd, KVM_GET_REGS, &l->r) < 0 || ioctl(l->v->fd, KVM_GET_SREGS, &l->s) < 0 ||
	    get_msrs(l->v, l) < 0)
		l->no = errno ? errno : EIO;
}

static void print(const struct look *l, u64 window_ns, char *buf, size_t cap)
{
	const struct kvm_sregs *s = &l->s;
	const struct kvm_regs *r = &l->r;

#define U(x) ((unsigned long long)(x))
	snprintf(
		buf, cap,
		"ok vcpu %x window_ns %llx rip %llx rflags %llx rax %llx rbx %llx rcx %llx rdx %llx "
		"rsi %llx rdi %llx rbp %llx rsp %llx r8 %llx r9 %llx r10 %llx r11 %llx r12 %llx "
		"r13 %llx r14 %llx r15 %llx cr0 %llx cr2 %llx cr3 %llx cr4 %llx efer %llx cs %x "
		"cpl %x fs_base %llx gs_base %llx kernel_gs_base %llx lstar %llx gdt %llx idt %llx\n",
		l->v->id, U(window_ns), U(r->rip), U(r->rflags), U(r->rax), U(r->rbx), U(r->rcx),
		U(r->rdx), U(r->rsi), U(r->rdi), U(r->rbp), U(r->rsp), U(r->r8), U(r->r9),
		U(r->r10), U(r->r11), U(r->r12), U(r->r13), U(r->r14), U(r->r15), U(s->cr0),
		U(s->cr2), U(s->cr3), U(s->cr4), U(s->efer), s->cs.selector, s->ss.dpl,
		U(s->fs.base), U(s->gs.base), U(l->kernel_gs), U(l->lstar), U(s->gdt.base),
		U(s->idt.base));
#undef U
}

void machine_registers(struct machine *m, u32 id, char *buf, size_t cap)
{
	struct err err = { 0 };
	struct look l = { .no = 0 };
	u64 window_ns = 0;

	if (id >= m->n_vcpus) {
		snprintf(buf, cap, "error the guest has vCPUs 0 to %u\n", m->n_vcpus - 1);
		return;
	}
	l.v = &m->vcpu[id];
	if (life_look(m, LEAVE_NS, look, &l, &window_ns, &err) < 0)
		snprintf(buf, cap, "error %s\n", err.msg);
	else if (l.no)
		snprintf(buf, cap, "error the registers of vCPU %u: %s\n", id,
			 strerrordesc_np(l.no));
	else
		print(&l, window_ns, buf, cap);
}
