// SPDX-License-Identifier: Apache-2.0
/* patcher/spare_x86.c: what is waited for before the entries of the agent's memory are taken away. */
#include "patcher/agent.h"
#include "patcher/gate.h"
#include "patcher/graph.h"
#include "patcher/quiesce.h"
#include "patcher/spare.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define LARGE     (2ull << 20)
#define SPARE     (1ull << 32)
#define TEXT      0xffffffff9f000000ull
#define DATA      (TEXT + LARGE)
#define TABLE     0x5000ull
#define INTS      0xffffffff82000000ull /* the kernel's numbers */
#define FUNCTIONS 0xffffffff81000000ull
#define RUNNING   3

/* The linker has these called instead: see CMakeLists.txt. */
int __wrap_vm_walk(struct vm *vm, gva_t addr, struct vm_mapping *ret, struct err *err);
bool __wrap_vm_spare(struct vm *vm, struct vm_ram *ret);
int __wrap_vm_read_phys(struct vm *vm, gpa_t addr, void *buf, size_t len, struct err *err);
int __wrap_vm_write_phys(struct vm *vm, gpa_t addr, const void *buf, size_t len, struct err *err);
int __wrap_guest_read(struct guest *g, u64 addr, void *buf, size_t len, struct err *err);
int __wrap_kernel_sym(const struct kernel *k, const char *name, u64 *addr_ret);
int __wrap_kernel_btf_enum(const struct kernel *k, const char *enumerator, s64 *val_ret);
const struct kernel_location *__wrap_kernel_location(const struct kernel *k);
int __wrap_quiesce_range(struct guest *g, u64 lo, u64 hi, u64 timeout_ns, struct err *err);
int __wrap_graph_unload(struct guest *g, struct err *err);
int __wrap_gate_open(struct guest *g, struct gate **ret, struct err *err);
int __wrap_gate_call(struct gate *gate, u64 fn, const u64 args[4], u64 *ret, struct err *err);
int __wrap_gate_close(struct gate *gate, struct err *err);

/* What is there to be called or read; a name that is not the guest's is not known. */
static const char *const functions[] = { "synchronize_rcu_tasks_rude", "synchronize_rcu_tasks",
					 "synchronize_rcu" };
static const char *const ints[] = { "preempt_dynamic_mode", "system_state", "panic_cpu" };

static struct {
	struct guest g;
	char dir[32];
	bool rcu_tasks, dynamic;
	s32 value[ARRAY_SIZE(ints)];
	bool mapped[2]; /* text, data */
	int open_fails;
	/* in this order, a letter each: ( opened, t RCU tasks, q looked at stacks, x an entry away, ) closed */
	char done[32];
} vm;

static void did(char what)
{
	size_t n = strlen(vm.done);

	assert_true(n < sizeof(vm.done) - 1);
	vm.done[n] = what;
}

int __wrap_vm_walk(struct vm *v, gva_t addr, struct vm_mapping *ret, struct err *err)
{
	(void)v;
	(void)err;
	assert_int_equal(addr.v, TEXT);
	*ret = (struct vm_mapping){ .executable = true };
	return vm.mapped[0] ? 0 : -EFAULT;
}

bool __wrap_vm_spare(struct vm *v, struct vm_ram *ret)
{
	(void)v;
	*ret = (struct vm_ram){ .base = { SPARE }, .len_bytes = 64 * LARGE };
	return true;
}

/* Each table leads to the one that has the entries. */
int __wrap_vm_read_phys(struct vm *v, gpa_t addr, void *buf, size_t len, struct err *err)
{
	u64 *entry = buf;

	(void)v;
	(void)err;
	memset(buf, 0, len);
	if (addr.v != TABLE || len == sizeof(*entry)) {
		*entry = TABLE | 1;
		return 0;
	}
	for (size_t i = 0; i < 2; i++) {
		if (vm.mapped[i])
			entry[(TEXT - 0xffffffff80000000) / LARGE + i] = SPARE | 0xa1;
	}
	return 0;
}

int __wrap_vm_write_phys(struct vm *v, gpa_t addr, const void *buf, size_t len, struct err *err)
{
	size_t i = (addr.v - TABLE) / 8 - (TEXT - 0xffffffff80000000) / LARGE;

	(void)v;
	(void)buf;
	(void)len;
	(void)err;
	assert_in_range(i, 0, 1);
	did('x');
	vm.mapped[i] = false;
	return 0;
}

int __wrap_guest_read(struct guest *g, u64 addr, void *buf, size_t len, struct err *err)
{
	(void)g;
	(void)err;
	assert_int_equal(len, sizeof(s32));
	memcpy(buf, &vm.value[(addr - INTS) / sizeof(s32)], len);
	return 0;
}

int __wrap_kernel_sym(const struct kernel *k, const char *name, u64 *addr_ret)
{
	(void)k;
	for (size_t i = 0; i < ARRAY_SIZE(functions); i++) {
		*addr_ret = FUNCTIONS + i;
		if (!strcmp(name, functions[i]))
			return vm.rcu_tasks ? 0 : -ENOENT;
	}
	for (size_t i = vm.dynamic ? 0 : 1; i < ARRAY_SIZE(ints); i++) {
		*addr_ret = INTS + i * sizeof(s32);
		if (!strcmp(name, ints[i]))
			return 0;
	}
	return -ENOENT;
}

int __wrap_kernel_btf_enum(const struct kernel *k, const char *enumerator, s64 *val_ret)
{
	(void)k;
	assert_string_equal(enumerator, "SYSTEM_RUNNING");
	*val_ret = RUNNING;
	return 0;
}

const struct kernel_location *__wrap_kernel_location(const struct kernel *k)
{
	static const struct kernel_location loc = { .root = { TABLE }, .levels = 4 };

	(void)k;
	return &loc;
}

int __wrap_quiesce_range(struct guest *g, u64 lo, u64 hi, u64 timeout_ns, struct err *err)
{
	(void)g;
	(void)timeout_ns;
	(void)err;
	assert_int_equal(lo, TEXT);
	assert_int_equal(hi, TEXT + PAGE_SIZE);
	did('q');
	return 0;
}

int __wrap_graph_unload(struct guest *g, struct err *err)
{
	(void)g;
	(void)err;
	return 0;
}

int __wrap_gate_open(struct guest *g, struct gate **ret, struct err *err)
{
	if (vm.open_fails)
		return err_set(err, vm.open_fails, ERR_GUEST_NO_ROOM, 0, "no room");
	did('(');
	*ret = (struct gate *)g;
	return 0;
}

int __wrap_gate_call(struct gate *gate, u64 fn, const u64 args[4], u64 *ret, struct err *err)
{
	(void)gate;
	(void)args;
	(void)err;
	if (ret)
		*ret = 0;
	if (fn == FUNCTIONS + 1)
		did('t');
	return 0;
}

int __wrap_gate_close(struct gate *gate, struct err *err)
{
	(void)gate;
	(void)err;
	did(')');
	return 0;
}

static int setup(void **state)
{
	(void)state;
	memset(&vm, 0, sizeof(vm));
	vm.mapped[0] = vm.mapped[1] = true;
	vm.value[0] = 2;
	vm.value[1] = RUNNING;
	vm.value[2] = -1;
	strcpy(vm.dir, "/tmp/hvf-spare-XXXXXX");
	assert_non_null(mkdtemp(vm.dir));
	assert_int_equal(journal_open(vm.dir, getpid(), 1, &vm.g.journal, NULL), 0);
	return journal_agent_came(vm.g.journal, TEXT, PAGE_SIZE, DATA, PAGE_SIZE, NULL);
}

static int teardown(void **state)
{
	(void)state;
	journal_discard(vm.g.journal);
	return rmdir(vm.dir);
}

static void assert_unloads(const char *done)
{
	struct err err = { 0 };

	assert_int_equal(spare_unload(&vm.g, &err), 0);
	assert_string_equal(vm.done, done);
	assert_int_equal(journal_state(vm.g.journal)->alloc[JOURNAL_AGENT_TEXT], 0);
	assert_int_equal(journal_state(vm.g.journal)->alloc[JOURNAL_AGENT_DATA], 0);
}

/* One that has come to its release_task() is on no list. */
static void where_tasks_are_preempted_rcu_tasks_are_waited_for(void **state)
{
	(void)state;
	vm.rcu_tasks = true;
	assert_unloads("(tqxx)");
}

static void and_again_after_returns_were_put_back(void **state)
{
	(void)state;
	vm.rcu_tasks = vm.dynamic = true;
	vm.g.agent.graph_used = true;
	assert_unloads("(tqtqxx)");
}

static void a_kernel_that_does_not_preempt_itself_is_not_asked(void **state)
{
	(void)state;
	assert_unloads("qxx");
}

static void nor_one_that_could_but_was_told_not_to(void **state)
{
	(void)state;
	vm.rcu_tasks = vm.dynamic = true;
	vm.value[0] = 1;
	assert_unloads("qxx");
}

static void nor_one_that_has_panicked(void **state)
{
	(void)state;
	vm.rcu_tasks = true;
	vm.value[2] = 1;
	assert_unloads("qxx");
}

static void nor_one_that_never_could_call_it(void **state)
{
	(void)state;
	vm.rcu_tasks = true;
	vm.value[1] = RUNNING - 1;
	vm.mapped[0] = false;
	assert_unloads("xx");
}

static void assert_stays(int rc)
{
	struct err err = { 0 };

	assert_int_equal(spare_unload(&vm.g, &err), rc);
	assert_string_equal(vm.done, "");
	assert_true(vm.mapped[0] && vm.mapped[1]);
	assert_int_equal(journal_state(vm.g.journal)->alloc[JOURNAL_AGENT_TEXT], TEXT);
}

static void while_it_boots_it_stays(void **state)
{
	(void)state;
	vm.rcu_tasks = true;
	vm.value[1] = RUNNING - 1;
	assert_stays(-EBUSY);
}

static void without_a_gate_it_stays(void **state)
{
	(void)state;
	vm.rcu_tasks = true;
	vm.open_fails = -ENOSPC;
	assert_stays(-ENOSPC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(where_tasks_are_preempted_rcu_tasks_are_waited_for,
						setup, teardown),
		cmocka_unit_test_setup_teardown(and_again_after_returns_were_put_back, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_kernel_that_does_not_preempt_itself_is_not_asked,
						setup, teardown),
		cmocka_unit_test_setup_teardown(nor_one_that_could_but_was_told_not_to, setup,
						teardown),
		cmocka_unit_test_setup_teardown(nor_one_that_has_panicked, setup, teardown),
		cmocka_unit_test_setup_teardown(nor_one_that_never_could_call_it, setup, teardown),
		cmocka_unit_test_setup_teardown(while_it_boots_it_stays, setup, teardown),
		cmocka_unit_test_setup_teardown(without_a_gate_it_stays, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
