// SPDX-License-Identifier: Apache-2.0
/* tracers/sleeps.c: exact while everything is known, less than the truth where it is not. */
#include "tracers/sleeps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define WRAP (1ull << 48)

static struct sleeps *s;

static int setup(void **state)
{
	(void)state;
	s = sleeps_create();
	return !s;
}

static int teardown(void **state)
{
	(void)state;
	sleeps_destroy(s);
	return 0;
}

static u64 total(u32 pid)
{
	return sleeps_total(s, (struct sleeper){ 0, pid });
}

static u64 at(u32 pid, u64 tsc)
{
	return sleeps_at(s, (struct sleeper){ 0, pid }, tsc % WRAP);
}

static void out(u32 cpu, u32 pid, u64 tsc)
{
	sleeps_switch(s, cpu, pid, 9999, tsc % WRAP);
}

static void in(u32 cpu, u32 pid, u64 tsc)
{
	sleeps_switch(s, cpu, 9998, pid, tsc % WRAP);
}

static void sleeps_add_up(void **state)
{
	const u64 t = WRAP - 100; /* the TSC's low bits wrap in the middle */

	(void)state;
	in(0, 7, t); /* the first that is seen of it */
	assert_int_equal(total(7), 0);
	out(0, 7, t + 50);
	assert_int_equal(total(7), 0);
	in(1, 7, t + 250); /* on another CPU */
	out(1, 7, t + 300);
	in(0, 7, t + 310);
	assert_int_equal(total(7), 210);
	assert_int_equal(at(7, t + 10), 0);
	assert_int_equal(at(7, t + 260), 200);
	assert_int_equal(at(7, t + 320), 210);
	assert_int_equal(total(8), 0);
	assert_int_equal(at(8, t), 0);
}

/* pid 0 is as many tasks as there are CPUs. */
static void idle_tasks(void **state)
{
	(void)state;
	sleeps_switch(s, 1, 0, 7, 100);
	sleeps_switch(s, 2, 0, 8, 200);
	sleeps_switch(s, 1, 7, 0, 350);
	assert_int_equal(sleeps_total(s, (struct sleeper){ 1, 0 }), 250);
	assert_int_equal(sleeps_total(s, (struct sleeper){ 2, 0 }), 0);
}

static void lost_switches(void **state)
{
	(void)state;
	out(0, 7, 100);
	out(1, 7, 1000); /* came back, nobody knows when */
	in(1, 7, 1010);
	assert_int_equal(total(7), 10);
	out(0, 7, 2000);
	sleeps_lost(s, 2500); /* it may have come back and gone again */
	in(0, 7, 3000);
	assert_int_equal(total(7), 10);
	out(0, 7, 4000);
	in(0, 7, 4005);
	assert_int_equal(total(7), 15);
	out(0, 7, 5000);
	in(0, 7, 4990); /* no sleep ends before it begins */
	assert_int_equal(total(7), 15);
}

/* Many sleeps: what was asleep at a time in the past is never said to be less than it was. */
static void long_ago(void **state)
{
	static u64 truth[5000];
	u64 t = 0, sum = 0, exact = 0;

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(truth); i++) {
		truth[i] = sum;
		t = i * 1000ull;
		out(0, 7, t + 500);
		in(0, 7, t + 500 + i % 400 + 1);
		sum += i % 400 + 1;
		for (u32 k = i > 100 ? i - 100 : 0; k <= i; k++) {
			u64 got = at(7, k * 1000ull);

			assert_in_range(got, truth[k], sum);
			exact += got == truth[k];
			if (i - k < 16)
				assert_int_equal(got, truth[k]);
		}
	}
	assert_int_equal(total(7), sum);
	assert_in_range(exact, 16 * ARRAY_SIZE(truth) - 200, UINT64_MAX);
}

static void more_tasks_than_there_is_room_for(void **state)
{
	(void)state;
	for (u32 pid = 1; pid < 40000; pid++)
		out(0, pid, pid);
	for (u32 pid = 1; pid < 40000; pid++) {
		in(0, pid, 50000);
		assert_in_range(total(pid), 0, 50000 - pid);
	}
}

/* Switches of a CPU that were read late: what they say is over, and is not taken for a sleep. */
static void late_ones_are_no_sleep(void **state)
{
	(void)state;
	in(1, 7, 200);
	in(1, 7, 400);
	out(0, 7, 100); /* of 200 */
	in(1, 7, 600); /* whose leaving at 500 comes later still */
	assert_int_equal(total(7), 0);
	out(0, 7, 500);
	out(1, 7, 700);
	in(1, 7, 710);
	assert_int_equal(total(7), 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(sleeps_add_up, setup, teardown),
		cmocka_unit_test_setup_teardown(idle_tasks, setup, teardown),
		cmocka_unit_test_setup_teardown(lost_switches, setup, teardown),
		cmocka_unit_test_setup_teardown(long_ago, setup, teardown),
		cmocka_unit_test_setup_teardown(more_tasks_than_there_is_room_for, setup, teardown),
		cmocka_unit_test_setup_teardown(late_ones_are_no_sleep, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
