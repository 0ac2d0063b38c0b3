// SPDX-License-Identifier: Apache-2.0
/* patcher/insn_x86.c: one instruction of exactly five bytes, or nothing. */
#include "patcher/insn_x86.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void one_nop_is_accepted(void **state)
{
	static const u8 today[] = { 0x0f, 0x1f, 0x44, 0x00, 0x00 };
	static const u8 old[] = { 0x66, 0x66, 0x66, 0x66, 0x90 };
	static const u8 clang[] = { 0x0f, 0x1f, 0x44, 0x00, 0x08 };

	(void)state;
	assert_true(insn_is_site_nop(today));
	assert_true(insn_is_site_nop(clang));
	assert_true(insn_is_site_nop(old));
}

static void everything_else_is_refused(void **state)
{
	static const u8 bad[][MCOUNT_INSN_SIZE] = {
		{ 0x0f, 0x1f, 0x40, 0x00, 0x90 }, /* 4 + 1 bytes: two nops */
		{ 0x90, 0x90, 0x90, 0x90, 0x90 }, { 0x66, 0x90, 0x0f, 0x1f, 0x00 }, /* 2 + 3 */
		{ 0xe8, 0x00, 0x00, 0x00, 0x00 }, /* a call: not converted yet, or in use */
		{ 0xcc, 0x1f, 0x44, 0x00, 0x00 }, /* a text_poke under way */
		{ 0xf3, 0x0f, 0x1e, 0xfa, 0x0f }, /* endbr64 and the start of something */
		{ 0x0f, 0x1f, 0x84, 0x00, 0x00 }, /* the front of an 8-byte nop */
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(insn_is_site_nop(bad[i]));
}

static void calls_round_trip_within_reach(void **state)
{
	static const u64 ip = 0xffffffff81234567;
	static const s64 delta[] = { 0, 5, -5, 0x7fffffff, -0x80000000ll };
	u8 bytes[MCOUNT_INSN_SIZE];
	u64 back;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(delta); i++) {
		u64 target = ip + MCOUNT_INSN_SIZE + (u64)delta[i];

		assert_int_equal(insn_make_call(ip, target, bytes), 0);
		assert_true(insn_call_target(ip, bytes, &back));
		assert_true(back == target);
		assert_int_equal(insn_make_jump(ip, target, bytes), 0);
		assert_int_equal(bytes[0], 0xe9);
		bytes[0] = 0xe8; /* the same but for the opcode */
		assert_true(insn_call_target(ip, bytes, &back));
		assert_true(back == target);
	}
	assert_int_equal(insn_make_call(ip, ip + 5 + 0x80000000ull, bytes), -ERANGE);
	assert_int_equal(insn_make_call(ip, ip + 5 - 0x80000001ull, bytes), -ERANGE);
}

static void veneers_reach_everything(void **state)
{
	u8 bytes[INSN_VENEER_SIZE];
	u64 target;

	(void)state;
	insn_make_veneer(0x123456789abcdef0, bytes);
	/* ff /4, mod 00, rm 101: by the 8 bytes right behind it */
	assert_memory_equal(bytes, "\xff\x25\0\0\0\0", 6);
	memcpy(&target, bytes + 6, sizeof(target));
	assert_true(target == 0x123456789abcdef0);
}

static void a_jump_replaces_one_instruction(void **state)
{
	static const struct {
		u8 code[16];
		bool takes;
		size_t off;
	} c[] = {
		/* cmpq $imm32, disp32(%rip): v6.1 arch/x86/kernel/ftrace_64.S without dynamic ftrace */
		{ { 0x48, 0x81, 0x3d, 1, 2, 3, 4, 5, 6, 7, 8, 0x75, 1, 0xc3 }, true, 0 },
		{ { 0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x81, 0x3d, 1, 2, 3, 4, 5, 6, 7, 8 }, true, 4 },
		{ { 0x0f, 0x1f, 0x44, 0, 0, 0xc3 }, true, 0 },
		{ { 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc }, false, 0 }, /* ret alone */
		{ { 0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3 }, false, 0 }, /* a prologue */
		{ { 0xf3, 0x0f, 0x1e, 0xfa, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc }, false, 4 },
		{ { 0x06, 0x06, 0x06, 0x06, 0x06 }, false, 0 }, /* no instruction */
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
		size_t off = 0;

		assert_int_equal(insn_takes_jump(c[i].code, sizeof(c[i].code), &off), c[i].takes);
		if (c[i].takes)
			assert_int_equal(off, c[i].off);
	}
}

static bool may_lead(void *arg, u64 target)
{
	const u64 *allowed = arg;

	return target == allowed[0] || target == allowed[1];
}

/* A function that only hands on what others return. */
static void where_it_leads(void **state)
{
	/* endbr64; nop; test; je 1f; call; ret; 1: xor %esi, %esi; jmp; int3 */
	u8 code[] = { 0xf3, 0x0f, 0x1e, 0xfa, 0x0f, 0x1f, 0x44, 0x00, 0x00,
		      0x85, 0xd2, 0x74, 0x06, 0xe8, 0,    0,    0,    0,
		      0xc3, 0x31, 0xf6, 0xe9, 0,    0,    0,    0,    0xcc };
	const u64 ip = 0xffffffff81000000;
	u64 allowed[2] = { ip + 0x2000, ip - 0x1000 };

	(void)state;
	assert_int_equal(insn_make_call(ip + 13, ip + 0x2000, code + 13), 0);
	assert_int_equal(insn_make_jump(ip + 21, ip - 0x1000, code + 21), 0);
	assert_true(insn_leads_only(ip, code, sizeof(code), may_lead, allowed));
	assert_false(insn_leads_only(ip, code, 24, may_lead, allowed)); /* cut off */
	allowed[1]++;
	assert_false(insn_leads_only(ip, code, sizeof(code), may_lead, allowed));
	allowed[1]--;
	allowed[0]--;
	assert_false(insn_leads_only(ip, code, sizeof(code), may_lead, allowed));
	allowed[0]++;
	code[12] = 0x60; /* je out of it */
	assert_false(insn_leads_only(ip, code, sizeof(code), may_lead, allowed));
	code[12] = 6;
	code[4] = 0xe8; /* the guest's own tracing is called first */
	assert_false(insn_leads_only(ip, code, sizeof(code), may_lead, allowed));
	code[4] = 0x0f;
	code[9] = 0xff; /* call *%rdx */
	assert_false(insn_leads_only(ip, code, sizeof(code), may_lead, allowed));
	code[9] = 0x06; /* not an instruction of these times */
	assert_false(insn_leads_only(ip, code, sizeof(code), may_lead, allowed));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_nop_is_accepted),
		cmocka_unit_test(everything_else_is_refused),
		cmocka_unit_test(calls_round_trip_within_reach),
		cmocka_unit_test(veneers_reach_everything),
		cmocka_unit_test(a_jump_replaces_one_instruction),
		cmocka_unit_test(where_it_leads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
