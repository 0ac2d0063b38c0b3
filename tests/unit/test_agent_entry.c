// SPDX-License-Identifier: Apache-2.0
/* What is read of a program's memory in a system call and is in the entry's own record: the most, none, no room. */
#include "tests/unit/test_agent_user.h"

/* Behind arguments, number and user; the longest that there can be fits. */
static void whole_entry(void **state)
{
	const u32 site = AGENT_SITE_NR | AGENT_MAX_ARGS << AGENT_SITE_ARGS_SHIFT;
	struct agent_user_step s = plain;

	(void)state;
	s.max = AGENT_CAPTURE_MAX;
	for (u32 mode = 0; mode <= AGENT_MODE_OVERWRITE; mode++) {
		open_rig();
		rig.hdr->mode = mode;
		rig.hdr->options |= AGENT_OPT_WHO;
		steps(&s, 1);
		regs = (struct fake_regs){
			.di = at(100), .si = 11, .dx = 12, .r10 = 13, .orig_ax = 257
		};
		for (u32 i = 0; i < 2 * SLOTS / 46; i++) { /* the ring's end is met at every word */
			regs.r9 = i;
			assert_int_equal(call(i, site), 1);
			assert_int_equal(seen.n, 2);
			assert_int_equal(seen.v[0].n_data, AGENT_MAX_CALL_DATA);
			for (u32 k = 0; k < AGENT_MAX_ARGS; k++)
				assert_int_equal(seen.v[0].kind[k], AGENT_DATA_ARG | k);
			assert_true(seen.v[0].data[0] == at(100) && seen.v[0].data[3] == 13);
			assert_int_equal(seen.v[0].data[5], i);
			assert_int_equal(seen.v[0].kind[6], AGENT_DATA_NR);
			assert_int_equal(seen.v[0].data[6], 257);
			assert_int_equal(seen.v[0].kind[7], AGENT_DATA_WHO);
			assert_piece(0, TAG, 0, at(100), AGENT_CAPTURE_MAX, AGENT_CAPTURE_MAX);
		}
		close_rig();
	}
}

/* What the entry does not wait for: steps that read much before there is anything to be recorded. */
static void counted_first(void **state)
{
	struct agent_user_step s[2] = { plain, plain };

	(void)state;
	s[0].op = AGENT_USER_COUNT;
	s[1].max = 16;
	open_rig();
	steps(s, 2);
	for (u32 i = 0; i < 100; i++)
		put(8 * i, at(0), 8);
	put(800, 0, 8);
	regs.di = at(0);
	counts_first = true;
	assert_int_equal(call(0, 0), 2);
	counts_first = false;
	assert_int_equal(seen.v[0].n_data, 0);
	assert_piece(0, TAG | 100ull << AGENT_USER_COUNT_SHIFT, 0, 0, 0, 0);
	assert_piece(1, TAG, 0, at(0), 16, 16);
	close_rig();
}

/* Whose entry has no room is not followed, and nothing of it is read but the first. One record is lost. */
static void no_room(void **state)
{
	u64 in[R_COUNT] = { [R_FLAGS] = 2 | FLAG_IF }, out[R_COUNT];
	struct agent_user_step s[2] = { plain, plain };
	struct fake_regs on_stack;

	(void)state;
	s[0].max = 600;
	s[1].max = 16;
	open_rig();
	steps(s, 2);
	regs.di = at(0);
	assert_int_equal(call(0, 0), 4); /* the task has its name now */
	on_stack = regs;
	in[R_RDI] = (u64)(uintptr_t)&on_stack;
	for (u32 left = 0; left < 1 + 1 + AGENT_CAPTURE_WORDS; left++) {
		u64 lost = RIG_COUNTER(&rig, lost), head = rig.cpu[0].head;

		rig.cpu[0].tail = head + left - SLOTS;
		readable.calls = 0;
		rig_call_regs(&rig, CALL, in, out);
		assert_int_equal(RIG_COUNTER(&rig, lost), lost + 1);
		assert_true(rig.cpu[0].head == head);
		assert_int_equal(readable.calls, 1);
		assert_int_equal(rig_check_frames(&rig), 0);
		assert_false(rig_irqs_off());
		assert_int_equal(rig.cpu[0].busy, 0);
	}
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whole_entry),
		cmocka_unit_test(counted_first),
		cmocka_unit_test(no_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
