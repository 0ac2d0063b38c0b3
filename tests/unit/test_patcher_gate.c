// SPDX-License-Identifier: Apache-2.0
/* patcher/gate.c: the mailbox has one call at a time, also when an earlier one was given up. */
#include "patcher/gate.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define BOX 0xffffffff82fff000ull
#define FN  0xffffffff81012340ull

/* The linker has these called instead: see CMakeLists.txt. */
int __wrap_guest_read(struct guest *g, u64 addr, void *buf, size_t len, struct err *err);
int __wrap_vm_write_data(struct vm *vm, gva_t addr, const void *buf, size_t len, struct err *err);
void __wrap_guest_sleep_ns(u64 ns);
const struct journal_state *__wrap_journal_state(const struct journal *j);

static struct mailbox box;
static u32 n_writes;

int __wrap_guest_read(struct guest *g, u64 addr, void *buf, size_t len, struct err *err)
{
	(void)g;
	(void)err;
	assert_int_equal(addr, BOX);
	assert_int_equal(len, sizeof(box));
	memcpy(buf, &box, len);
	return 0;
}

int __wrap_vm_write_data(struct vm *vm, gva_t addr, const void *buf, size_t len, struct err *err)
{
	(void)vm;
	(void)err;
	assert_true(addr.v >= BOX && addr.v - BOX <= sizeof(box) - len);
	memcpy((u8 *)&box + (addr.v - BOX), buf, len);
	n_writes++;
	return 0;
}

const struct journal_state *__wrap_journal_state(const struct journal *j)
{
	static const struct journal_state nothing;

	(void)j;
	return &nothing;
}

/* Time goes by: a task comes and runs what is armed. */
void __wrap_guest_sleep_ns(u64 ns)
{
	(void)ns;
	if (box.state == MAILBOX_ARMED) {
		box.ret = box.fn + box.args[0];
		box.state = MAILBOX_DONE;
	}
}

static int call(struct gate *gate, u64 *ret, struct err *err)
{
	const u64 args[4] = { 7 };

	n_writes = 0;
	return gate_call(gate, FN, args, ret, err);
}

static void one_after_the_other(void **state)
{
	struct guest g = { .target = "test" };
	struct gate gate = { .g = &g, .mailbox = BOX };
	struct err err = { 0 };
	u64 ret = 0;

	(void)state;
	memset(&box, 0, sizeof(box));
	assert_int_equal(gate_next_seq(&gate), 1);
	assert_int_equal(call(&gate, &ret, &err), 0);
	assert_int_equal(ret, FN + 7);
	assert_int_equal(box.seq, 1);
	assert_int_equal(call(&gate, &ret, &err), 0); /* over what the first one left */
	assert_int_equal(box.seq, 2);
}

/* A task of the guest is in the call, or about to take it: what it will write and read must stay. */
static void the_earlier_call_has_not_ended(void **state)
{
	static const u32 states[] = { MAILBOX_ARMED, MAILBOX_RUNNING };
	struct guest g = { .target = "test" };
	struct gate gate = { .g = &g, .mailbox = BOX, .seq = 3 };
	struct mailbox was;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
		struct err err = { 0 };
		u64 ret = 0;

		box = was = (struct mailbox){
			.state = states[i], .inside = 1, .fn = FN + 64, .args = { 5 }, .seq = 3
		};
		assert_int_equal(call(&gate, &ret, &err), -EBUSY);
		assert_int_equal(err.code, ERR_GUEST_GATE);
		assert_int_equal(err.addr, FN + 64);
		assert_int_equal(n_writes, 0);
		assert_memory_equal(&box, &was, sizeof(box));
		assert_int_equal(gate_next_seq(&gate), 4);
		/* it ends after all */
		box.state = MAILBOX_DONE;
		assert_int_equal(call(&gate, &ret, &err), 0);
		assert_int_equal(box.seq, 4);
		gate.seq = 3;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_after_the_other),
		cmocka_unit_test(the_earlier_call_has_not_ended),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
