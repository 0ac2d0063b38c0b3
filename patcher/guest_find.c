// SPDX-License-Identifier: Apache-2.0
/* Which kernel runs: found in the guest's memory, and checked by where its vCPUs are. */
#include "base/clock.h"
#include "patcher/guest_priv.h"
#include "symbols/image.h"

#include <errno.h>

#define KERNEL_HALF   (1ull << 63)
#define LINUX_IDT     0xfffffe0000000000ull
#define LIVE_SAMPLES  20
#define LIVE_POLL_NS  (10 * NSEC_PER_MSEC)
#define CR4_PAE       0x20
#define CR4_LA57      (1u << 12)
#define CR4_VMXE      (1u << 13)
#define EFER_LMA      (1u << 10)
#define EFER_SVME     (1u << 12)
#define KPTI_USER_BIT 0x1000ull /* v6.1 arch/x86/include/asm/pgtable.h PTI_PGTABLE_SWITCH_BIT */

/* struct sym_mem over a vm */
static int mem_read(void *arg, gva_t addr, void *buf, size_t len)
{
	struct vm *vm = arg;

	return vm_read(vm, addr, buf, len, NULL);
}

static int mem_read_phys(void *arg, gpa_t addr, void *buf, size_t len)
{
	struct vm *vm = arg;

	return vm_read_phys(vm, addr, buf, len, NULL);
}

static bool mem_next_frame(void *arg, gpa_t from, u64 step, gpa_t *ret)
{
	struct vm *vm = arg;

	return vm_next_frame(vm, from, step, ret);
}

static bool mem_next_resident(void *arg, gpa_t from, gpa_t *start_ret, u64 *len_ret)
{
	struct vm *vm = arg;

	return vm_next_resident(vm, from, start_ret, len_ret);
}

/* What one look at the vCPUs says of a kernel. */
enum sign {
	SIGN_LIVE, /* a vCPU runs on its page tables, or there is nobody to ask */
	SIGN_OTHER, /* one runs on those of another kernel, or on none */
	SIGN_UNTOLD, /* where they are may be in a guest of the guest's own */
};

static void use_table(struct vm *vm, const struct vm_regs *r, u64 cr3)
{
	vm_set_root(vm, gpa(cr3 & 0x000ffffffffff000ull), r->cr4 & CR4_LA57 ? 5 : 4);
}

/* Does this table map the candidate's text to where the candidate lies? */
static bool root_maps(struct vm *vm, const struct vm_regs *r, u64 cr3,
		      const struct kernel_location *loc)
{
	struct vm_mapping m;

	use_table(vm, r, cr3);
	return !vm_walk(vm, loc->text, &m, NULL) && m.gpa.v == loc->image.v;
}

/*
 * A vCPU that runs a nested guest has that guest's registers, and a CR3 that is an address in that guest's memory. It
 * has one of these bits set then, without which there is no nested guest (Intel SDM vol. 3C, 23.8; AMD APM vol. 2,
 * 15.5.1); so has one that only could run a nested guest.
 */
static bool may_be_nested(const struct vm_regs *r)
{
	return (r->cr4 & CR4_VMXE) || (r->efer & EFER_SVME);
}

/* Is what it executes where its own table says? Of an address in another guest's memory that would be chance. */
static bool table_is_its_own(struct vm *vm, const struct vm_regs *r)
{
	struct vm_mapping m;

	use_table(vm, r, r->cr3);
	return (r->efer & EFER_LMA) && !vm_walk(vm, gva(r->rip), &m, NULL);
}

/*
 * The last word on a candidate: a vCPU's own page table. A vCPU in user mode under KPTI has a table
 * without kernel text; the kernel's is its neighbour.
 */
static enum sign look(struct vm *vm, const struct kernel_location *loc)
{
	bool other = false, untold = false;

	for (u32 i = 0; i < vm_vcpu_count(vm); i++) {
		struct vm_regs r;

		if (vm_vcpu_regs(vm, i, &r, NULL))
			continue;
		if (root_maps(vm, &r, r.cr3, loc) || root_maps(vm, &r, r.cr3 & ~KPTI_USER_BIT, loc))
			return SIGN_LIVE;
		if (!may_be_nested(&r) || table_is_its_own(vm, &r))
			other = true;
		else
			untold = true;
	}
	/* nobody to ask: the candidate's own consistency has to do */
	return other ? SIGN_OTHER : untold ? SIGN_UNTOLD : SIGN_LIVE;
}

/* Of a candidate: it is taken only if a vCPU runs on it, for which a nested guest is given some time to be left. */
static bool confirm(void *arg, const struct kernel_location *loc)
{
	enum sign sign = look(arg, loc);

	for (int i = 1; sign == SIGN_UNTOLD && i < LIVE_SAMPLES; i++) {
		guest_sleep_ns(LIVE_POLL_NS);
		sign = look(arg, loc);
	}
	return sign == SIGN_LIVE;
}

/*
 * Does some vCPU run on our kernel's page tables? What a reboot leaves in RAM may look alive for long.
 * One sample proves life but not death: the process whose table it named may end before we walk it.
 * And that all of them were in nested guests proves neither.
 */
bool guest_kernel_is_live(struct guest *g)
{
	const struct kernel_location *loc = kernel_location(g->k);
	enum sign sign = look(g->vm, loc);
	bool other = sign == SIGN_OTHER;

	for (int i = 1; sign != SIGN_LIVE && i < LIVE_SAMPLES; i++) {
		guest_sleep_ns(LIVE_POLL_NS);
		sign = look(g->vm, loc);
		other |= sign == SIGN_OTHER;
	}
	vm_set_root(g->vm, loc->root, loc->levels);
	return sign == SIGN_LIVE || !other;
}

/*
 * Has any vCPU the IDT that Linux gives it, at one address whatever the kernel (CPU_ENTRY_AREA_RO_IDT, v4.15 to
 * v6.12), or none (v6.9 arch/x86/kernel/fred.c cpu_init_fred_exceptions()), or does no vCPU say? One that runs a
 * nested guest has that guest's.
 */
static bool may_be_linux(void *arg)
{
	struct vm *vm = arg;
	bool any = false;

	for (u32 i = 0; i < vm_vcpu_count(vm); i++) {
		struct vm_regs r;

		if (vm_vcpu_regs(vm, i, &r, NULL))
			continue;
		if (r.idt_base == LINUX_IDT || !r.idt_base || may_be_nested(&r))
			return true;
		any = true;
	}
	return !any;
}

/* No kernel was found: is it since there is none yet? */
static bool in_firmware(struct vm *vm)
{
	u32 n = 0;

	for (u32 i = 0; i < vm_vcpu_count(vm); i++) {
		struct vm_regs r;

		if (vm_vcpu_regs(vm, i, &r, NULL))
			continue;
		n++;
		if (r.user_mode || ((r.rip & KERNEL_HALF) && (r.cr4 & CR4_PAE)))
			return false;
	}
	return n > 0;
}

static int check_booted(struct guest *g, const struct kernel *k, struct err *err)
{
	s64 running;
	u64 addr;
	u32 state;
	int rc;

	if (kernel_sym(k, "system_state", &addr) || kernel_btf_enum(k, "SYSTEM_RUNNING", &running))
		return 0;
	rc = guest_read(g, addr, &state, sizeof(state), err);
	if (!rc && state < (u32)running)
		rc = err_set(err, -EAGAIN, ERR_GUEST_FIRMWARE, addr,
			     "the guest's kernel is still booting");
	return rc;
}

int guest_find_kernel(struct guest *g, struct err *err)
{
	const struct kernel_search how = { .confirm = confirm,
					   .may_be_linux = may_be_linux,
					   .arg = g->vm,
					   .steps = IMAGE_STEPS,
					   .scan_bytes = SCAN_BYTES,
					   .scan_ns = SCAN_NS };
	struct kernel_location loc;
	struct kernel *k = NULL;
	struct sym_mem mem;
	u64 start = monotonic_ns();
	int rc;

	guest_mem(g, &mem);
	rc = kernel_locate_as(&mem, &how, &loc, err);
	if (rc == -ENOENT && in_firmware(g->vm))
		return err_set(
			err, -EAGAIN, ERR_GUEST_FIRMWARE, 0,
			"no kernel in memory yet: the guest is in firmware or its boot loader");
	if (rc)
		return rc;
	vm_set_root(g->vm, loc.root, loc.levels);
	rc = kernel_load(&mem, &loc, &k, err);
	g->find_ns = monotonic_ns() - start;
	if (!rc)
		rc = check_booted(g, k, err);
	if (rc) {
		kernel_destroy(k);
		return rc;
	}
	kernel_destroy(g->k);
	g->k = k;
	return 0;
}

void guest_mem(struct guest *g, struct sym_mem *ret)
{
	*ret = (struct sym_mem){ mem_read, mem_read_phys, mem_next_frame, mem_next_resident,
				 g->vm };
}
