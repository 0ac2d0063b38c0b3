// SPDX-License-Identifier: Apache-2.0
/* What the agent reads of a program's memory in a system call, natively. */
#include "tests/unit/test_agent_user.h"

struct fake_mm {
	u64 pad, arg_start, arg_end, env_start, env_end;
};

/* In pieces: of AGENT_CAPTURE_MAX, and where a page ends. */
static void bytes(void **state)
{
	struct agent_user_step s = plain;

	(void)state;
	s.base = 1;
	s.len = 2;
	s.each = 2;
	s.max = 600;
	open_rig();
	steps(&s, 1);
	regs.si = at(PAGE - 100);
	regs.dx = 150;
	assert_int_equal(call(0, 0), 2);
	assert_piece(0, TAG, 0, at(PAGE - 100), 100, 300);
	assert_piece(1, TAG, 1, at(PAGE), 200, 300);
	regs.dx = 1000;
	assert_int_equal(call(0, 0), 3);
	assert_piece(0, TAG, 0, at(PAGE - 100), 100, 2000);
	assert_piece(1, TAG, 1, at(PAGE), 256, 2000);
	assert_piece(2, TAG, 2, at(PAGE + 256), 244, 2000);
	regs.dx = ~0ull; /* a length that overflows */
	assert_int_equal(call(0, 0), 3);
	regs.dx = 0;
	assert_int_equal(call(0, 0), 0);
	regs.si = 0;
	regs.dx = 5;
	assert_int_equal(call(0, 0), 0);
	close_rig();
}

/* While the gate is open interrupts are off, but by us: each record has the context of whoever made the call. */
/* Pieces that are records of their own have none. */
static void check_contexts(bool off)
{
	for (u32 i = 0; i < seen.n; i++) {
		if (seen.v[i].rec.type == AGENT_REC_FUNCTION)
			assert_int_equal(seen.v[i].rec.ctx, 0);
		else
			assert_int_equal(!!(seen.v[i].rec.ctx & AGENT_CTX_IRQS_OFF), off);
	}
}

static void contexts_are_the_callers(void **state)
{
	struct agent_user_step s = plain;

	(void)state;
	s.base = 1;
	s.len = 2;
	s.each = 1;
	s.max = 600;
	stepped = true;
	for (u32 off = 0; off < 2; off++) {
		open_rig();
		irqs_off = off;
		steps(&s, 1);
		regs.si = at(PAGE - 100);
		regs.dx = 200;
		assert_int_equal(call(0, 0), 2);
		check_contexts(off);
		/* what is not there is tried again at the return: the gate is open twice */
		rig_user(memory, 0);
		assert_int_equal(call(0, 0), 1);
		assert_true(readable.calls >= 2);
		check_contexts(off);
		close_rig();
	}
	stepped = irqs_off = false;
}

static void strings(void **state)
{
	struct agent_user_step s = plain;

	(void)state;
	s.op = AGENT_USER_STRING;
	s.max = 600;
	open_rig();
	steps(&s, 1);
	for (u32 len = 0; len < 300; len += 7) {
		u32 from = PAGE - len / 2, n = MIN(len, (u32)AGENT_CAPTURE_MAX);

		memset(memory, 'x', sizeof(memory));
		memory[from + len] = 0;
		regs.di = at(from);
		assert_int_equal(call(0, 0), len < AGENT_CAPTURE_MAX ? 1 : 2);
		assert_piece(0, TAG, 0, at(from), n, len < n + 1 ? len : AGENT_CAPTURE_UNKNOWN);
	}
	/* it ends where the program's memory does: what there is is told */
	memset(memory, 'x', sizeof(memory));
	regs.di = at(sizeof(memory) - 10);
	assert_int_equal(call(0, 0), 1);
	assert_piece(0, TAG, 0, at(sizeof(memory) - 10), 10, AGENT_CAPTURE_UNKNOWN);
	close_rig();
}

/* What is not there at the entry is read at the return, as the kernel has read it by then; or is told as that. */
static void not_there(void **state)
{
	struct agent_user_step s[2] = { plain, plain };

	(void)state;
	s[0].max = s[1].max = 16;
	s[1].base = 1;
	s[1].flags = AGENT_USER_AT_EXIT;
	open_rig();
	steps(s, 2);
	regs.di = at(0);
	regs.si = at(64);
	rig_user(NULL, 0);
	assert_int_equal(call(0, 0), 2);
	assert_piece(0, FAILED | AGENT_USER_EXIT, 0, 0, 0, AGENT_CAPTURE_UNKNOWN);
	assert_piece(1, FAILED | AGENT_USER_EXIT, 0, 0, 0, AGENT_CAPTURE_UNKNOWN);
	assert_int_equal(readable.calls, 3);
	/* a call that failed has written nothing */
	assert_int_equal(call((u64)-EFAULT, 0), 1);
	rig_user(memory, sizeof(memory));
	assert_int_equal(call((u64)-EFAULT, 0), 1);
	assert_piece(0, TAG, 0, at(0), 16, 16);
	assert_int_equal(call(7, 0), 2);
	assert_piece(1, TAG | AGENT_USER_EXIT, 0, at(64), 16, 16);
	close_rig();
}

static void argv(void **state)
{
	struct agent_user_step s[2] = { plain, plain };

	(void)state;
	s[0].op = AGENT_USER_STRINGS;
	s[0].each = 8;
	s[0].max = 64;
	s[1].op = AGENT_USER_COUNT;
	for (u32 is32 = 0; is32 < 2; is32++) {
		u32 size = is32 ? 4 : 8;

		open_rig();
		if (is32 && at(0) >> 32) { /* where this process lies is not ours to say */
			close_rig();
			return;
		}
		steps(s, 2);
		memcpy(memory + 100, "one\0a-longer-one\0", 18);
		put(0, at(100), size);
		put(size, at(104), size);
		put(2 * size, 0x10, size);
		put(3 * size, 0, size);
		regs.di = at(0);
		assert_int_equal(call(0, is32 ? AGENT_SITE_SYSCALL32 : 0), 5);
		assert_piece(0, TAG, 0, at(100), 3, 3);
		assert_piece(1, TAG, 1, at(104), 8, AGENT_CAPTURE_UNKNOWN);
		assert_piece(2, FAILED, 2, 0, 0, AGENT_CAPTURE_UNKNOWN);
		assert_piece(3, TAG | 3ull << AGENT_USER_COUNT_SHIFT, 0xffff, 0, 0, 0);
		assert_piece(4, TAG | 3ull << AGENT_USER_COUNT_SHIFT, 0, 0, 0, 0);
		close_rig();
	}
}

/* What the new program has, once execve() has succeeded. */
static void new_program(void **state)
{
	struct agent_user_step s = plain;
	struct fake_mm mm = {
		.arg_start = at(10), .arg_end = at(300), .env_start = at(300), .env_end = at(310)
	};

	(void)state;
	s.op = AGENT_USER_ARGS;
	s.flags = AGENT_USER_AT_EXIT;
	s.max = 4096;
	open_rig();
	rig.hdr->where.task_mm = offsetof(struct fake_task, pad3) + 4 + 8;
	rig.hdr->where.mm_arg_start = offsetof(struct fake_mm, arg_start);
	rig.hdr->where.mm_arg_end = offsetof(struct fake_mm, arg_end);
	rig.hdr->where.mm_env_start = offsetof(struct fake_mm, env_start);
	rig.hdr->where.mm_env_end = offsetof(struct fake_mm, env_end);
	steps(&s, 1);
	/* the next task's first bytes stand in for a member behind the fake task's own */
	*(struct fake_mm **)(void *)((u8 *)&rig.task[0] + rig.hdr->where.task_mm) = &mm;
	assert_int_equal(call(0, 0), 2);
	assert_piece(0, TAG | AGENT_USER_EXIT | AGENT_USER_MM, 0, at(10), 256, 290);
	assert_piece(1, TAG | AGENT_USER_EXIT | AGENT_USER_MM, 1, at(266), 34, 290);
	assert_int_equal(call((u64)-ENOENT, 0), 0);
	s.flags |= AGENT_USER_ENV;
	steps(&s, 1);
	assert_int_equal(call(0, 0), 1);
	assert_piece(0, TAG | AGENT_USER_EXIT | AGENT_USER_MM, 0, at(300), 10, 10);
	s.flags &= (u16)~AGENT_USER_ENV;
	steps(&s, 1);
	mm.arg_end = at(0);
	assert_int_equal(call(0, 0), 1);
	assert_piece(0, FAILED | AGENT_USER_EXIT | AGENT_USER_MM, 0, 0, 0, AGENT_CAPTURE_UNKNOWN);
	close_rig();
}

static void iovecs(void **state)
{
	struct agent_user_step s = plain;

	(void)state;
	s.op = AGENT_USER_IOVEC;
	s.base = 1;
	s.len = 2;
	s.each = 32;
	s.max = 1024;
	open_rig();
	put(0, at(1000), 8);
	put(8, 40, 8);
	put(16, at(2000), 8);
	put(24, 20, 8);
	steps(&s, 1);
	regs.si = at(0);
	regs.dx = 2;
	assert_int_equal(call(60, 0), 2);
	assert_piece(0, TAG, 0, at(1000), 32, 32);
	assert_piece(1, TAG, 1, at(2000), 20, 20);
	/* over a page's end, and where the program's memory ends in one: the one behind it is not told */
	put(0, at(PAGE - 8), 8);
	assert_int_equal(call(60, 0), 3);
	assert_piece(0, TAG, 0, at(PAGE - 8), 8, 32);
	assert_piece(1, TAG, 1, at(PAGE), 24, 32);
	assert_piece(2, TAG, 2, at(2000), 20, 20);
	rig_user(memory, PAGE);
	assert_int_equal(call(60, 0), 2);
	assert_piece(0, TAG, 0, at(PAGE - 8), 8, 32);
	assert_piece(1, FAILED, 1, 0, 0, AGENT_CAPTURE_UNKNOWN);
	rig_user(memory, sizeof(memory));
	put(0, at(1000), 8);
	s.flags = AGENT_USER_AT_EXIT | AGENT_USER_RET;
	steps(&s, 1);
	assert_int_equal(call(45, 0), 2);
	assert_piece(1, TAG | AGENT_USER_EXIT, 1, at(2000), 5, 5);
	assert_int_equal(call(40, 0), 1);
	regs.dx = 1ull << 60; /* more than there can be */
	assert_in_range(call(1ull << 40, 0), 1, AGENT_USER_ELEMENTS);
	close_rig();
}

/* Pointers and lengths inside of a struct, of what a pointer says, and of the stack. */
static void indirect(void **state)
{
	struct agent_user_step s[4] = { plain, plain, plain, plain };

	(void)state;
	s[0].ptr_at = 8; /* msg_iov, msg_iovlen */
	s[0].len_at = 16;
	s[0].each = 16;
	s[1].ptr_at = 24; /* msg_name, msg_namelen */
	s[1].len_at = 32;
	s[1].each = 1;
	s[2].base = 1;
	s[2].len = 2;
	s[2].each = 1;
	s[2].flags = AGENT_USER_LEN_PTR | AGENT_USER_AT_EXIT;
	s[3].flags = AGENT_USER_SP;
	s[3].ptr_at = 296;
	s[0].max = s[1].max = s[2].max = 128;
	s[3].max = 8;
	open_rig();
	put(8, at(500), 8);
	put(16, 2, 8);
	put(24, at(600), 8);
	put(32, 0xffffffff00000007, 8);
	put(40, 20, 4);
	steps(s, 4);
	regs.di = at(0);
	regs.si = at(700);
	regs.dx = at(40);
	regs.sp = at(1000);
	assert_int_equal(call(0, 0), 4);
	assert_piece(0, TAG, 0, at(500), 32, 32);
	assert_piece(1, TAG, 0, at(600), 7, 7);
	assert_piece(2, TAG, 0, at(1296), 8, 8);
	assert_piece(3, TAG | AGENT_USER_EXIT, 0, at(700), 20, 20);
	close_rig();
}

static void conditions(void **state)
{
	struct agent_user_step s[2] = { plain, plain };

	(void)state;
	s[0].max = 4;
	s[0].if_arg = 1;
	s[0].if_mask = 0x7f;
	s[0].if_value = 9;
	s[1].max = 8;
	s[1].if_arg = 1;
	s[1].if_mask = 0xffffffff;
	s[1].if_value = 0x8009;
	open_rig();
	steps(s, 2);
	regs.di = at(0);
	regs.si = 0x189;
	assert_int_equal(call(0, 0), 1);
	assert_piece(0, TAG, 0, at(0), 4, 4);
	regs.si = 0xaaaa00008009;
	assert_int_equal(call(0, 0), 2);
	regs.si = 8;
	assert_int_equal(call(0, 0), 0);
	close_rig();
}

/* Interrupts, other registers than the task's, a kernel without the function, nonsense in the table. */
static void refused(void **state)
{
	struct agent_user_step s = plain;

	(void)state;
	s.max = 8;
	open_rig();
	steps(&s, 1);
	regs.di = at(0);
	rig.percpu[0].preempt_count |= 0x10000;
	assert_int_equal(call(0, 0), 0);
	rig.percpu[0].preempt_count = RIG_PREEMPT_IDLE;
	assert_int_equal(call(0, 0), 1);
	s.base = 200;
	s.op = 99;
	s.len_at = 32000;
	steps(&s, 1);
	assert_int_equal(call(0, 0), 1); /* address 32000: not there */
	close_rig();
	no_copy_user = true;
	open_rig();
	s = plain;
	s.max = 8;
	steps(&s, 1);
	regs.di = at(0);
	assert_int_equal(call(0, 0), 1);
	assert_piece(0, FAILED | AGENT_USER_EXIT, 0, 0, 0, AGENT_CAPTURE_UNKNOWN);
	assert_int_equal(readable.calls, 0);
	close_rig();
	no_copy_user = false;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(contexts_are_the_callers),
		cmocka_unit_test(bytes),
		cmocka_unit_test(strings),
		cmocka_unit_test(not_there),
		cmocka_unit_test(argv),
		cmocka_unit_test(new_program),
		cmocka_unit_test(iovecs),
		cmocka_unit_test(indirect),
		cmocka_unit_test(conditions),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
