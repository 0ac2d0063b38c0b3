// SPDX-License-Identifier: Apache-2.0
/* tracers/calls.c: depths of whole traces, and of traces with holes. */
#include "tracers/calls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEXT     0xffffffff81000000ull
#define TSC_MASK 0xffffffffffffull

static struct calls *g;
static u64 now; /* full TSC */
static u64 mark;

static int setup(void **state)
{
	(void)state;
	g = calls_create(256);
	now = 0xfffffffff000ull; /* its low 48 bits wrap soon */
	return !g;
}

static int teardown(void **state)
{
	(void)state;
	calls_destroy(g);
	return 0;
}

static u64 ip(unsigned int f)
{
	return TEXT + f * 16;
}

static u16 follow(u8 type, u32 pid, u32 cpu, unsigned int f, u64 ticks)
{
	struct ring_record r = { .tsc = now & TSC_MASK,
				 .ip = ip(f),
				 .parent = type == RING_GRAPH_RETURN ? 0 : TEXT + 0x100000,
				 .pid = pid,
				 .ticks = ticks,
				 .type = type };

	return calls_follow(g, &r, cpu, &mark);
}

/* Returns when it began. */
static u64 enter(u32 pid, u32 cpu, unsigned int f, u16 depth)
{
	now += 100;
	assert_int_equal(follow(RING_GRAPH_ENTRY, pid, cpu, f, 0), depth);
	return now;
}

/* As agent_duration() gives it: low bits of long ones are gone. */
static u64 rounded(u64 ticks)
{
	while (ticks >> 27 && ticks & ((1ull << (64 - __builtin_clzll(ticks) - 27)) - 1))
		ticks &= ~((1ull << (64 - __builtin_clzll(ticks) - 27)) - 1);
	return ticks;
}

static void leave(u32 pid, u32 cpu, unsigned int f, u64 since, u16 depth)
{
	now += 100;
	assert_int_equal(follow(RING_GRAPH_RETURN, pid, cpu, f, rounded(now - since)), depth);
}

static void nested_calls(void **state)
{
	u64 a, b, c;

	(void)state;
	a = enter(1, 0, 1, 0);
	b = enter(1, 0, 2, 1);
	assert_int_equal(follow(RING_FUNCTION, 1, 0, 9, 0), 2);
	leave(1, 0, 2, b, 1);
	b = enter(1, 1, 2, 1); /* on another CPU by now */
	c = enter(1, 1, 2, 2); /* recursion */
	leave(1, 1, 2, c, 2);
	leave(1, 1, 2, b, 1);
	leave(1, 0, 1, a, 0);
	assert_int_equal(follow(RING_FUNCTION, 1, 0, 9, 0), 0);
	assert_int_equal(calls_open(g), 0);
}

static void tasks_do_not_mix(void **state)
{
	u64 began[64];

	(void)state;
	/* pid 0 is a task of its own on each CPU */
	for (u32 cpu = 0; cpu < 2; cpu++)
		began[cpu] = enter(0, cpu, 3, 0);
	for (u32 pid = 2; pid < 64; pid++)
		began[pid] = enter(pid, pid % 2, 1, 0);
	for (u32 pid = 63; pid >= 2; pid--) {
		u64 inner = enter(pid, pid % 2, 2, 1);

		leave(pid, pid % 2, 2, inner, 1);
	}
	for (u32 pid = 2; pid < 64; pid++)
		leave(pid, pid % 2, 1, began[pid], 0);
	leave(0, 0, 3, began[0], 0);
	leave(0, 1, 3, began[1], 0);
	assert_int_equal(calls_open(g), 0);
}

/* An interrupt comes between the reading of a record's TSC and its reservation. */
static void interrupt_before_the_entry_is_written(void **state)
{
	u64 a = enter(5, 0, 1, 0), b, irq, later;

	(void)state;
	b = now + 10; /* its TSC is read */
	irq = enter(5, 0, 7, 1);
	leave(5, 0, 7, irq, 1);
	later = now;
	now = b;
	assert_int_equal(follow(RING_GRAPH_ENTRY, 5, 0, 2, 0), 1);
	now = later;
	leave(5, 0, 2, b, 1);
	/* and before a return */
	b = enter(5, 0, 2, 1);
	later = now + 50;
	irq = enter(5, 0, 7, 2);
	leave(5, 0, 7, irq, 2);
	irq = now;
	now = later;
	assert_int_equal(follow(RING_GRAPH_RETURN, 5, 0, 2, now - b), 1);
	now = irq;
	leave(5, 0, 1, a, 0);
	assert_int_equal(calls_open(g), 0);
}

static void lost_returns(void **state)
{
	u64 a = enter(1, 0, 1, 0), b;

	(void)state;
	b = enter(1, 0, 2, 1);
	enter(1, 0, 3, 2);
	enter(1, 0, 2, 3); /* neither of them is seen to return; the inner is of b's function */
	leave(1, 0, 2, b, 1);
	leave(1, 0, 1, a, 0);
	assert_int_equal(calls_open(g), 0);
	/* entries inside whose caller's return is the next to be seen */
	a = enter(1, 0, 1, 0);
	for (u16 d = 1; d < 10; d++)
		enter(1, 0, 2u + d, d);
	leave(1, 0, 1, a, 0);
	assert_int_equal(calls_open(g), 0);
}

static void lost_entries(void **state)
{
	u64 a, b;

	(void)state;
	leave(1, 0, 1, now - 1000, 0); /* begun before the trace */
	a = enter(1, 0, 1, 0);
	b = now + 1;
	now += 10; /* the entry at b is lost */
	enter(1, 0, 4, 1); /* shows too little; its return is lost too */
	leave(1, 0, 3, b, 1); /* what began after b is over */
	assert_int_equal(calls_open(g), 1);
	leave(1, 0, 3, a - 5, 0); /* what began before a encloses it */
	assert_int_equal(calls_open(g), 0);
}

/* The task's outermost return is lost: nothing encloses it, and no later return closes it. */
static void lost_outermost_return(void **state)
{
	u64 a, b;

	(void)state;
	enter(1, 0, 1, 0);
	calls_lost(g, (now + 50) & TSC_MASK);
	a = enter(1, 0, 2, 1); /* wrong: nobody can know */
	leave(1, 0, 2, a, 1);
	a = enter(1, 0, 1, 0); /* the same call again */
	b = enter(1, 0, 1, 1); /* no loss since: recursion */
	leave(1, 0, 1, b, 1);
	leave(1, 0, 1, a, 0);
	assert_int_equal(calls_open(g), 0);
}

static void long_calls(void **state)
{
	u64 b;

	(void)state;
	enter(1, 0, 1, 0);
	for (u64 ticks = 1; ticks < 1ull << 46; ticks = ticks * 3 + 12345) {
		b = enter(1, 0, 2, 1);
		now += ticks;
		leave(1, 0, 2, b, 1);
	}
	assert_int_equal(calls_open(g), 1);
	b = enter(1, 0, 1, 1); /* the same function, close by: not taken for one another */
	now += 1ull << 40;
	leave(1, 0, 1, b, 1);
	assert_int_equal(calls_open(g), 1);
}

static void never_returns(void **state)
{
	struct open_call call;
	u64 a = enter(1, 0, 1, 0), b = enter(1, 1, 2, 1), c = enter(1, 1, 2, 2);

	(void)state;
	assert_false(calls_forget(g, 2, ip(2), b & TSC_MASK, &call));
	assert_false(calls_forget(g, 1, ip(1), b & TSC_MASK, &call));
	assert_true(calls_forget(g, 1, ip(2), b, &call)); /* from the middle; all 64 bits will do */
	assert_int_equal(call.depth, 1);
	assert_int_equal(call.cpu, 1);
	leave(1, 1, 2, c, 2); /* as its entry was shown */
	assert_true(calls_forget(g, 1, ip(1), a & TSC_MASK, &call));
	assert_int_equal(call.depth, 0);
	assert_int_equal(call.cpu, 0);
	assert_int_equal(calls_open(g), 0);
	assert_false(calls_forget(g, 1, ip(1), a & TSC_MASK, &call));
}

/* Tasks come by the thousand and end inside a call, which nobody tells us. */
static void marks_come_back(void **state)
{
	u64 outer, inner;

	(void)state;
	mark = 5;
	outer = enter(7, 0, 1, 0);
	mark = 9;
	inner = enter(7, 0, 2, 1);
	mark = 77;
	now += 10;
	follow(RING_GRAPH_RETURN, 7, 0, 3, 1); /* whose entry was lost */
	assert_int_equal(mark, 77);
	leave(7, 1, 2, inner, 1);
	assert_int_equal(mark, 9);
	leave(7, 1, 1, outer, 0);
	assert_int_equal(mark, 5);
}

static void cleared(void **state)
{
	(void)state;
	for (u32 pid = 1; pid < 20; pid++) {
		enter(pid, 0, 1, 0);
		enter(pid, 0, 2, 1);
	}
	calls_clear(g);
	assert_int_equal(calls_open(g), 0);
	for (u32 pid = 1; pid < 200; pid++)
		enter(pid, 0, 2, 0);
}

static void fork_storm(void **state)
{
	u64 kept = enter(1, 0, 1, 0), inner;

	(void)state;
	for (u32 pid = 2; pid < 50000; pid++) {
		enter(pid, 0, 2, 0);
		enter(pid, 0, 3, 1);
		assert_in_range(calls_open(g), 1, 256);
		if (pid % 50)
			continue;
		inner = enter(1, 0, 2, 1); /* who is heard of is not forgotten */
		leave(1, 0, 2, inner, 1);
	}
	leave(1, 0, 1, kept, 0);
	leave(2, 0, 3, now - 10, 0); /* forgotten long since */
	/* one task that alone takes all there is begins anew */
	for (u32 i = 0; i < 1000; i++) {
		now += 100;
		(void)follow(RING_GRAPH_ENTRY, 7, 0, i, 0);
	}
	assert_in_range(calls_open(g), 1, 256);
}

/* Any records at all: no crash, no growth, and what is balanced afterwards is right again. */
static void any_records(void **state)
{
	struct open_call call;
	u64 a;

	(void)state;
	srand(1);
	for (int i = 0; i < 300000; i++) {
		u32 pid = (u32)rand() % 400;

		now += (u64)rand() % 1000;
		switch (rand() % 8) {
		case 0:
			(void)calls_forget(g, pid, ip((unsigned int)rand() % 4), now - 10, &call);
			break;
		case 1:
			calls_lost(g, now & TSC_MASK);
			break;
		case 2 ... 4:
			(void)follow(RING_GRAPH_ENTRY, pid, pid % 3, (unsigned int)rand() % 4, 0);
			break;
		default:
			(void)follow(RING_GRAPH_RETURN, pid, pid % 3, (unsigned int)rand() % 4,
				     (u64)rand() << rand() % 30);
		}
		assert_true(calls_open(g) <= 256);
	}
	a = enter(1000000, 0, 1, 0);
	leave(1000000, 0, 1, a, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(nested_calls, setup, teardown),
		cmocka_unit_test_setup_teardown(tasks_do_not_mix, setup, teardown),
		cmocka_unit_test_setup_teardown(interrupt_before_the_entry_is_written, setup,
						teardown),
		cmocka_unit_test_setup_teardown(lost_returns, setup, teardown),
		cmocka_unit_test_setup_teardown(lost_entries, setup, teardown),
		cmocka_unit_test_setup_teardown(lost_outermost_return, setup, teardown),
		cmocka_unit_test_setup_teardown(long_calls, setup, teardown),
		cmocka_unit_test_setup_teardown(never_returns, setup, teardown),
		cmocka_unit_test_setup_teardown(marks_come_back, setup, teardown),
		cmocka_unit_test_setup_teardown(cleared, setup, teardown),
		cmocka_unit_test_setup_teardown(fork_storm, setup, teardown),
		cmocka_unit_test_setup_teardown(any_records, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
