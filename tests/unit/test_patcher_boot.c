// SPDX-License-Identifier: Apache-2.0
/*
 * patcher/boot.c with a guest that is a number: how far its boot is. It goes on where boot.c waits and does not hold it.
 * The linker has the VMM and the kernel's tables come from here.
 */
#include "patcher/boot.h"
#include "patcher/guest_priv.h"
#include "patcher/text.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define IMAGE  3u /* it can be found */
#define FTRACE 8u /* ftrace_init() is done */
#define SITES  10u /* in fork_init() */
#define STOP   12u /* behind it */
#define CALLS  20u /* the first initcall */
#define WHOLE  200u
#define BANNER "Linux version 6.1"
#define HOUR   (3600 * NSEC_PER_SEC)

/* Addresses of what it has. */
enum {
	ENABLED = 0x1000,
	THREADS = 0x2000,
	STATE = 0x3000,
	NAME = 0x4000,
	PROC_CACHES_INIT = 0x5000,
	REST_INIT = 0x6000,
};

static struct guest g;

static struct {
	u32 at, last; /* how far it is, and gets by itself */
	bool held, armed, gone;
	u64 armed_at; /* address */
	u32 missed_by; /* so far it is when the breakpoint is set */
	u32 moves_at; /* then the image is elsewhere, until it is looked for again */
	bool moved;
	int break_fails, wait_fails;
	const char *lacks; /* a symbol */
	bool no_ftrace; /* it has disabled it */
	bool busy; /* its text is being changed, when it is held first */
	int holds, breaks, unbreaks, loads;
} vm;

static void go_on(void)
{
	if (!vm.held && vm.at < vm.last)
		vm.at++;
	if (vm.moves_at && vm.at == vm.moves_at)
		vm.moved = true;
}

void __wrap_guest_sleep_ns(u64 ns);
void __wrap_guest_sleep_ns(u64 ns)
{
	(void)ns;
	go_on();
}

int __wrap_vm_start(struct vm *v, u64 timeout_ns, struct err *err);
int __wrap_vm_start(struct vm *v, u64 timeout_ns, struct err *err)
{
	(void)v;
	(void)timeout_ns;
	(void)err;
	return 0;
}

bool __wrap_vm_spare(const struct vm *v, struct vm_ram *ret);
bool __wrap_vm_spare(const struct vm *v, struct vm_ram *ret)
{
	(void)v;
	memset(ret, 0, sizeof(*ret));
	return true;
}

enum vm_state __wrap_vm_state(struct vm *v);
enum vm_state __wrap_vm_state(struct vm *v)
{
	(void)v;
	return vm.gone ? VM_GONE : VM_RUNNING;
}

int __wrap_vm_hold(struct vm *v, u64 timeout_ns, struct err *err);
int __wrap_vm_hold(struct vm *v, u64 timeout_ns, struct err *err)
{
	(void)v;
	(void)timeout_ns;
	(void)err;
	assert_false(vm.held);
	assert_false(vm.armed);
	vm.held = true;
	vm.holds++;
	return 0;
}

int __wrap_vm_release(struct vm *v, struct err *err);
int __wrap_vm_release(struct vm *v, struct err *err)
{
	(void)v;
	(void)err;
	assert_true(vm.held);
	vm.held = false;
	return 0;
}

int __wrap_vm_break(struct vm *v, gva_t addr, struct err *err);
int __wrap_vm_break(struct vm *v, gva_t addr, struct err *err)
{
	(void)v;
	assert_true(vm.held);
	vm.held = false;
	vm.breaks++;
	if (vm.break_fails)
		return err_set(err, vm.break_fails, ERR_CONFLICT, 0, "it cannot");
	vm.armed = true;
	vm.armed_at = addr.v;
	vm.at = MAX(vm.at, vm.missed_by);
	return 0;
}

int __wrap_vm_break_wait(struct vm *v, u64 timeout_ns, struct err *err);
int __wrap_vm_break_wait(struct vm *v, u64 timeout_ns, struct err *err)
{
	(void)v;
	(void)timeout_ns;
	assert_true(vm.armed && !vm.held);
	if (vm.at == STOP) {
		vm.armed = false;
		vm.held = true;
		return 0;
	}
	if (vm.wait_fails) {
		vm.armed = false;
		return err_set(err, vm.wait_fails, ERR_CONFLICT, 0, "it is gone");
	}
	go_on();
	return err_set(err, -ETIMEDOUT, ERR_VMM_TIMEOUT, 0, "not yet");
}

void __wrap_vm_unbreak(struct vm *v);
void __wrap_vm_unbreak(struct vm *v)
{
	(void)v;
	assert_false(vm.held);
	vm.unbreaks++;
	vm.armed = false;
}

void __wrap_vm_set_root(struct vm *v, gpa_t root, int levels);
void __wrap_vm_set_root(struct vm *v, gpa_t root, int levels)
{
	(void)v;
	(void)root;
	(void)levels;
}

int __wrap_kernel_locate(const struct sym_mem *mem,
			 bool (*confirm)(void *arg, const struct kernel_location *loc), void *arg,
			 struct kernel_location *ret, struct err *err);
int __wrap_kernel_locate(const struct sym_mem *mem,
			 bool (*confirm)(void *arg, const struct kernel_location *loc), void *arg,
			 struct kernel_location *ret, struct err *err)
{
	(void)mem;
	(void)confirm;
	(void)arg;
	if (vm.at < IMAGE)
		return err_set(err, -ENOENT, ERR_GUEST_FIRMWARE, 0, "nothing yet");
	memset(ret, 0, sizeof(*ret));
	strcpy(ret->banner, BANNER);
	return 0;
}

int __wrap_kernel_load(const struct sym_mem *mem, const struct kernel_location *loc,
		       struct kernel **ret, struct err *err);
int __wrap_kernel_load(const struct sym_mem *mem, const struct kernel_location *loc,
		       struct kernel **ret, struct err *err)
{
	(void)mem;
	(void)loc;
	(void)err;
	assert_true(vm.held);
	vm.moved = false;
	vm.loads++;
	*ret = NULL;
	return 0;
}

const struct kernel_location *__wrap_kernel_location(const struct kernel *k);
const struct kernel_location *__wrap_kernel_location(const struct kernel *k)
{
	static const struct kernel_location loc = { .banner = BANNER };

	(void)k;
	return &loc;
}

int __wrap_kernel_sym(const struct kernel *k, const char *name, u64 *addr_ret);
int __wrap_kernel_sym(const struct kernel *k, const char *name, u64 *addr_ret)
{
	static const struct {
		const char *name;
		u64 addr;
	} syms[] = {
		{ "ftrace_enabled", ENABLED },
		{ "max_threads", THREADS },
		{ "system_state", STATE },
		{ "linux_banner", NAME },
		{ "proc_caches_init", PROC_CACHES_INIT },
		{ "rest_init", REST_INIT },
	};

	(void)k;
	for (size_t i = 0; i < ARRAY_SIZE(syms); i++) {
		if (strcmp(syms[i].name, name) == 0 && (!vm.lacks || strcmp(vm.lacks, name) != 0)) {
			*addr_ret = syms[i].addr;
			return 0;
		}
	}
	return -ENOENT;
}

int __wrap_guest_read(struct guest *guest, u64 addr, void *buf, size_t len, struct err *err);
int __wrap_guest_read(struct guest *guest, u64 addr, void *buf, size_t len, struct err *err)
{
	u32 value = 0;

	(void)guest;
	(void)err;
	switch (addr) {
	case NAME:
		memcpy(buf, vm.moved ? "something else altogether" : BANNER, len);
		return 0;
	case ENABLED:
		value = vm.at >= FTRACE && !vm.no_ftrace;
		break;
	case THREADS:
		value = vm.at >= SITES ? 500 : 0;
		break;
	case STATE:
		value = vm.at >= CALLS;
		break;
	default:
		fail_msg("address 0x%llx", (unsigned long long)addr);
	}
	assert_int_equal(len, sizeof(value));
	memcpy(buf, &value, len);
	return 0;
}

int __wrap_text_guest_busy(struct guest *guest, struct err *err);
int __wrap_text_guest_busy(struct guest *guest, struct err *err)
{
	bool busy = vm.busy;

	(void)guest;
	(void)err;
	assert_true(vm.held);
	vm.busy = false;
	return busy;
}

static int begin(void **state)
{
	(void)state;
	memset(&vm, 0, sizeof(vm));
	memset(&g, 0, sizeof(g));
	strcpy(g.target, "pid:1");
	vm.last = WHOLE;
	return 0;
}

static int hold(u64 timeout_ns, struct err *err)
{
	*err = (struct err){ 0 };
	return boot_hold(&g, timeout_ns, err);
}

static void at_the_breakpoint(void **state)
{
	struct err err;

	(void)state;
	assert_int_equal(hold(HOUR, &err), 0);
	assert_true(vm.held);
	assert_int_equal(vm.at, STOP);
	assert_int_equal(vm.armed_at, PROC_CACHES_INIT);
	assert_int_equal(vm.holds, 1); /* for its tables; the rest is the breakpoint's */
	assert_int_equal(vm.loads, 2);
	assert_int_equal(vm.unbreaks, 0);
}

static void at_another_function(void **state)
{
	struct err err;

	(void)state;
	vm.lacks = "proc_caches_init";
	assert_int_equal(hold(HOUR, &err), 0);
	assert_true(vm.held);
	assert_int_equal(vm.armed_at, REST_INIT);
}

static void where_there_is_none(void **state)
{
	static const int fails[] = { -ENOTSUP, -EBUSY, -ETIMEDOUT, -EACCES };
	struct err err;

	for (size_t i = 0; i < ARRAY_SIZE(fails); i++) {
		(void)begin(state);
		vm.break_fails = fails[i];
		assert_int_equal(hold(HOUR, &err), 0);
		assert_true(vm.held);
		assert_in_range(vm.at, SITES, CALLS - 1);
		assert_int_equal(vm.breaks, 1);
		assert_int_equal(vm.holds, 2);
	}
}

/* The guest began to use the registers, or we were too slow. */
static void one_that_is_taken_away(void **state)
{
	struct err err;

	(void)state;
	vm.wait_fails = -ECANCELED;
	assert_int_equal(hold(HOUR, &err), 0);
	assert_true(vm.held);
	assert_in_range(vm.at, SITES, CALLS - 1);
	assert_int_equal(vm.holds, 2);
}

/* It cannot be, but if it were: what the variables say counts. */
static void one_that_was_passed(void **state)
{
	struct err err;

	(void)state;
	vm.missed_by = STOP + 1;
	vm.last = CALLS - 1;
	assert_int_equal(hold(HOUR, &err), 0);
	assert_true(vm.held);
	assert_int_equal(vm.unbreaks, 1);
	assert_int_equal(vm.at, CALLS - 1);
	(void)begin(state);
	vm.missed_by = CALLS;
	assert_int_equal(hold(HOUR, &err), -EAGAIN);
	assert_int_equal(err.code, ERR_GUEST_NOT_HELD);
}

static void there_when_it_is_looked_at(void **state)
{
	struct err err;

	(void)state;
	vm.at = STOP + 1;
	assert_int_equal(hold(HOUR, &err), 0);
	assert_true(vm.held);
	assert_int_equal(vm.at, STOP + 1);
	assert_int_equal(vm.breaks, 0);
	(void)begin(state);
	vm.at = CALLS;
	assert_int_equal(hold(HOUR, &err), -EAGAIN);
	assert_int_equal(err.code, ERR_GUEST_NOT_HELD);
}

static void an_image_that_moves(void **state)
{
	struct err err;

	(void)state;
	vm.moves_at = IMAGE + 3;
	assert_int_equal(hold(HOUR, &err), 0);
	assert_true(vm.held);
	assert_int_equal(vm.at, STOP);
	assert_int_equal(vm.breaks, 2);
	assert_int_equal(vm.unbreaks, 1);
	assert_int_equal(vm.loads, 3);
}

static void a_guest_that_changes_its_text(void **state)
{
	struct err err;

	(void)state;
	vm.busy = true;
	assert_int_equal(hold(HOUR, &err), 0);
	assert_true(vm.held);
	assert_in_range(vm.at, STOP, CALLS - 1);
	assert_int_equal(vm.holds, 2);
}

static void what_does_not_come_to_it(void **state)
{
	struct err err;

	(void)state;
	vm.no_ftrace = true; /* held at it, and let go: nothing is there to be traced */
	assert_int_equal(hold(NSEC_PER_SEC / 10, &err), -ETIMEDOUT);
	assert_int_equal(err.code, ERR_GUEST_FIRMWARE);
	assert_int_equal(vm.breaks, 1);
	(void)begin(state);
	vm.last = STOP - 1;
	assert_int_equal(hold(NSEC_PER_SEC / 10, &err), -ETIMEDOUT);
	assert_int_equal(err.code, ERR_GUEST_FIRMWARE);
	assert_int_equal(vm.unbreaks, 1);
	(void)begin(state);
	vm.wait_fails = -ESRCH;
	assert_int_equal(hold(HOUR, &err), -ESRCH);
	(void)begin(state);
	vm.last = SITES - 1;
	vm.gone = true;
	assert_int_equal(hold(HOUR, &err), -ESRCH);
	assert_int_equal(err.code, ERR_VMM_GONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(at_the_breakpoint, begin),
		cmocka_unit_test_setup(at_another_function, begin),
		cmocka_unit_test_setup(where_there_is_none, begin),
		cmocka_unit_test_setup(one_that_is_taken_away, begin),
		cmocka_unit_test_setup(one_that_was_passed, begin),
		cmocka_unit_test_setup(there_when_it_is_looked_at, begin),
		cmocka_unit_test_setup(an_image_that_moves, begin),
		cmocka_unit_test_setup(a_guest_that_changes_its_text, begin),
		cmocka_unit_test_setup(what_does_not_come_to_it, begin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
