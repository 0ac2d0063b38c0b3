// SPDX-License-Identifier: Apache-2.0
/* patcher/guest_find.c: whose page tables vCPUs run on, with nested guests among them. */
#include "patcher/guest_priv.h"
#include "symbols/kernel.h"
#include "vmm/vm.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define TEXT  0xffffffff81000000ull
#define IMAGE 0x1000000ull
#define ROOT  0x2600000ull
#define VMXE  0x2000ull
#define SVME  0x1000ull
#define LONG  0xd01ull /* EFER of 64-bit mode */
#define OURS  0x7000000ull /* a process's table */
#define OTHER 0x9000000ull /* a table that is one, but not of our kernel */
#define N_MAX 4u

/* The linker has these called instead: see CMakeLists.txt. */
int __wrap_vm_vcpu_regs(struct vm *vm, u32 vcpu, struct vm_regs *ret, struct err *err);
u32 __wrap_vm_vcpu_count(const struct vm *vm);
int __wrap_vm_walk(struct vm *vm, gva_t addr, struct vm_mapping *ret, struct err *err);
void __wrap_vm_set_root(struct vm *vm, gpa_t root, int levels);
const struct kernel_location *__wrap_kernel_location(const struct kernel *k);
void __wrap_guest_sleep_ns(u64 ns);

static struct {
	struct vm_regs r[N_MAX];
	u32 n;
	u64 root;
	u32 n_looks;
	u32 live_after; /* looks until the first vCPU is back on our tables; 0: never */
} fake;

static const struct kernel_location loc = {
	.image = { IMAGE }, .text = { TEXT }, .root = { ROOT }, .levels = 4
};

static struct guest guest;

u32 __wrap_vm_vcpu_count(const struct vm *vm)
{
	(void)vm;
	return fake.n;
}

int __wrap_vm_vcpu_regs(struct vm *vm, u32 vcpu, struct vm_regs *ret, struct err *err)
{
	(void)vm;
	(void)err;
	if (vcpu == 0 && ++fake.n_looks == fake.live_after)
		fake.r[0].cr3 = OURS;
	*ret = fake.r[vcpu];
	return 0;
}

void __wrap_vm_set_root(struct vm *vm, gpa_t root, int levels)
{
	(void)vm;
	(void)levels;
	fake.root = root.v;
}

/* OURS has our kernel and the process; its neighbour, for user mode, the process alone. */
int __wrap_vm_walk(struct vm *vm, gva_t addr, struct vm_mapping *ret, struct err *err)
{
	(void)vm;
	(void)err;
	if (fake.root == OURS || fake.root == ROOT) {
		ret->gpa = addr.v == TEXT ? gpa(IMAGE) : gpa(0x123000);
		return 0;
	}
	if ((fake.root == (OURS | 0x1000) || fake.root == OTHER) && addr.v != TEXT) {
		ret->gpa = gpa(0x456000);
		return 0;
	}
	return -EFAULT;
}

const struct kernel_location *__wrap_kernel_location(const struct kernel *k)
{
	(void)k;
	return &loc;
}

void __wrap_guest_sleep_ns(u64 ns)
{
	(void)ns;
}

static bool live(struct vm_regs a, struct vm_regs b, u32 n, u32 after)
{
	bool ret;

	memset(&fake, 0, sizeof(fake));
	fake.r[0] = a;
	fake.r[1] = b;
	fake.n = n;
	fake.live_after = after;
	ret = guest_kernel_is_live(&guest);
	assert_int_equal(fake.root, ROOT);
	return ret;
}

static const struct vm_regs none, kernel = { .rip = TEXT + 0x10, .cr3 = OURS, .efer = LONG },
				  user = { .rip = 0x400000, .cr3 = OURS | 0x1000, .efer = LONG },
				  /* page 0x5000 is no table of this guest's */
	ended = { .rip = 0x400000, .cr3 = 0x5000, .efer = LONG }, firmware = { .rip = 0xfff0 },
				  another = { .rip = TEXT + 0x5000, .cr3 = OTHER, .efer = LONG };

static struct vm_regs with(struct vm_regs r, u64 cr4, u64 efer)
{
	r.cr4 |= cr4;
	r.efer |= efer;
	return r;
}

static void without_nested_guests(void **state)
{
	(void)state;
	assert_true(live(none, none, 0, 0)); /* nobody to ask */
	assert_true(live(kernel, none, 1, 0));
	assert_true(live(user, none, 1, 0));
	assert_true(live(ended, user, 2, 0));
	assert_true(live(ended, none, 1, 5)); /* one that ended under the look, then another one */
	assert_false(live(ended, none, 1, 0));
	assert_false(live(firmware, firmware, 2, 0));
	assert_false(live(another, firmware, 2, 0));
}

/* As many looks as one likes find a vCPU in a nested guest: that is no reboot. */
static void in_a_nested_guest(void **state)
{
	(void)state;
	assert_true(live(with(ended, VMXE, 0), none, 1, 0));
	assert_true(live(with(ended, 0, SVME), none, 1, 0));
	assert_true(live(with(ended, VMXE, 0), with(ended, VMXE, 0), 2, 0));
	assert_true(live(with(ended, VMXE, 0), kernel, 2, 0));
	/* the nested guest is in its firmware, or has no paging at all */
	assert_true(live(with(firmware, VMXE, 0), none, 1, 0));
	assert_true(live(with(firmware, 0, SVME), none, 1, 0));
}

static void a_reboot_of_who_has_nested_guests(void **state)
{
	(void)state;
	assert_false(live(with(another, VMXE, 0), none, 1, 0));
	assert_false(live(with(another, 0, SVME), none, 1, 0));
	assert_false(live(with(ended, VMXE, 0), with(another, VMXE, 0), 2, 0));
	/* no nested guest without the bit: it is the guest itself that is in its firmware */
	assert_false(live(with(ended, VMXE, 0), firmware, 2, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_nested_guests),
		cmocka_unit_test(in_a_nested_guest),
		cmocka_unit_test(a_reboot_of_who_has_nested_guests),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
