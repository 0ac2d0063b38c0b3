// SPDX-License-Identifier: Apache-2.0
/* patcher/guest_info.c: who looks at a guest among many waits neither for its lock nor for a VMM that hangs. */
#include "patcher/guest_priv.h"
#include "symbols/kernel.h"
#include "vmm/vm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* The linker has these called instead: see CMakeLists.txt. */
bool __wrap_vm_alive(const struct vm *vm);
bool __wrap_vm_silent(const struct vm *vm);
bool __wrap_vm_held(const struct vm *vm);
enum vm_state __wrap_vm_state(struct vm *vm);
enum vm_accel __wrap_vm_accel(const struct vm *vm);
pid_t __wrap_vm_pid(const struct vm *vm);
struct vm_console *__wrap_vm_console(const struct vm *vm);
u32 __wrap_vm_vcpu_count(const struct vm *vm);
size_t __wrap_vm_ram_count(const struct vm *vm);
void __wrap_vm_windows(const struct vm *vm, struct vm_windows *ret);
const struct kernel_location *__wrap_kernel_location(const struct kernel *k);
const char *__wrap_kernel_release(const struct kernel *k);
const char *__wrap_kernel_build_id(const struct kernel *k);
size_t __wrap_kernel_sym_count(const struct kernel *k);
size_t __wrap_kernel_site_count(const struct kernel *k);
size_t __wrap_kernel_module_count(const struct kernel *k);

static struct {
	bool dead, silent, held, hangs; /* @hangs: it is silent once it was asked */
	enum vm_state state;
	unsigned n_asked;
} vm;

static struct guest guest;

bool __wrap_vm_alive(const struct vm *v)
{
	(void)v;
	return !vm.dead;
}

bool __wrap_vm_silent(const struct vm *v)
{
	(void)v;
	return vm.silent;
}

bool __wrap_vm_held(const struct vm *v)
{
	(void)v;
	return vm.held;
}

enum vm_state __wrap_vm_state(struct vm *v)
{
	(void)v;
	vm.n_asked++;
	vm.silent |= vm.hangs;
	return vm.dead ? VM_GONE : vm.state;
}

enum vm_accel __wrap_vm_accel(const struct vm *v)
{
	(void)v;
	return VM_ACCEL_KVM;
}

pid_t __wrap_vm_pid(const struct vm *v)
{
	(void)v;
	return 17;
}

struct vm_console *__wrap_vm_console(const struct vm *v)
{
	(void)v;
	return NULL;
}

u32 __wrap_vm_vcpu_count(const struct vm *v)
{
	(void)v;
	return 3;
}

size_t __wrap_vm_ram_count(const struct vm *v)
{
	(void)v;
	return 0;
}

void __wrap_vm_windows(const struct vm *v, struct vm_windows *ret)
{
	(void)v;
	*ret = (struct vm_windows){ .count = 5 };
}

const struct kernel_location *__wrap_kernel_location(const struct kernel *k)
{
	static const struct kernel_location loc = { .levels = 4 };

	(void)k;
	return &loc;
}

const char *__wrap_kernel_release(const struct kernel *k)
{
	(void)k;
	return "6.1.0";
}

const char *__wrap_kernel_build_id(const struct kernel *k)
{
	(void)k;
	return "abc";
}

size_t __wrap_kernel_sym_count(const struct kernel *k)
{
	(void)k;
	return 0;
}

size_t __wrap_kernel_site_count(const struct kernel *k)
{
	(void)k;
	return 0;
}

size_t __wrap_kernel_module_count(const struct kernel *k)
{
	(void)k;
	return 0;
}

static int setup(void **state)
{
	struct guest_info info;

	(void)state;
	memset(&vm, 0, sizeof(vm));
	memset(&guest, 0, sizeof(guest));
	pthread_mutex_init(&guest.lock, NULL);
	pthread_mutex_init(&guest.seen_lock, NULL);
	guest.n_armed = 7;
	guest_info(&guest, &info);
	assert_string_equal(info.state, "running");
	vm.n_asked = 0;
	return 0;
}

static void expect(const char *state, size_t n_armed, unsigned n_asked)
{
	struct guest_info info;

	guest_glance(&guest, &info);
	assert_string_equal(info.state, state);
	assert_int_equal(info.n_armed, n_armed);
	assert_int_equal(info.vmm_pid, 17);
	assert_string_equal(info.release, "6.1.0");
	assert_int_equal(vm.n_asked, n_asked);
}

static void one_that_answers(void **state)
{
	(void)state;
	guest.n_armed = 8;
	expect("running", 8, 1);
	vm.state = VM_STOPPED;
	expect("stopped", 8, 2);
	vm.held = true;
	expect("held", 8, 2);
}

static void one_that_is_busy(void **state)
{
	(void)state;
	guest_lock(&guest);
	guest.n_armed = 8;
	expect("running", 7, 0);
	vm.silent = true; /* whoever has the lock waits for it */
	expect("unknown", 7, 0);
	vm.silent = false;
	vm.dead = true;
	expect("gone", 7, 0);
	guest_unlock(&guest);
	vm.dead = false;
	expect("running", 8, 1);
}

static void one_that_hangs(void **state)
{
	(void)state;
	vm.hangs = true;
	expect("unknown", 7, 1);
	guest.n_armed = 8;
	expect("unknown", 8, 1);
	expect("unknown", 8, 1);
	vm.dead = true;
	expect("gone", 8, 1);
	vm.dead = vm.hangs = vm.silent = false; /* it answers */
	expect("running", 8, 2);
}

/* A state that was never told is not the one that it was seen in before. */
static void one_that_hangs_and_is_busy(void **state)
{
	(void)state;
	vm.silent = true;
	expect("unknown", 7, 0);
	guest_lock(&guest);
	expect("unknown", 7, 0);
	vm.silent = false;
	expect("unknown", 7, 0);
	guest_unlock(&guest);
	expect("running", 7, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(one_that_answers, setup),
		cmocka_unit_test_setup(one_that_is_busy, setup),
		cmocka_unit_test_setup(one_that_hangs, setup),
		cmocka_unit_test_setup(one_that_hangs_and_is_busy, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
