// SPDX-License-Identifier: Apache-2.0
/* tracers/profile.c: sums that can be done by hand, holes, and more than its tables hold. */
#include "tracers/profile.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#define TEXT 0x1000ull

static struct profile *p;
static u32 pid;

static int setup(void **state)
{
	(void)state;
	pid = 7;
	p = profile_create(true);
	return !p;
}

static int teardown(void **state)
{
	(void)state;
	profile_destroy(p);
	return 0;
}

static u32 when; /* names change with it */

/* Function 1 is "f1", and so on; from 90 on they have no names. From 80 on they are of a module that changes. */
static bool sym(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	static char name[8];

	(void)arg;
	if (addr - TEXT >= 90)
		return false;
	snprintf(name, sizeof(name), "f%u", (unsigned int)(addr - TEXT));
	*ret = (struct kernel_sym){ .name = name };
	*off_ret = 0;
	if (addr - TEXT < 80 || when % 3 == 0)
		return true;
	if (when % 3 == 2)
		return false;
	name[0] = 'g';
	ret->module = "m";
	return true;
}

static const struct output_names names = { .sym = sym, .when = &when };

static void add(u8 type, u64 f, u32 depth, u64 ns)
{
	struct trace_record r = {
		.type = type, .ip = TEXT + f, .depth = (u16)depth, .duration_ns = ns, .pid = pid
	};

	snprintf(r.comm, sizeof(r.comm), "a;b\n%u", pid);
	assert_int_equal(profile_add(p, &r, &names), 0);
}

static void enter(u64 f, u32 depth)
{
	add(TRACE_GRAPH_ENTRY, f, depth, 0);
}

static void leave(u64 f, u32 depth, u64 ns)
{
	add(TRACE_GRAPH_RETURN, f, depth, ns);
}

static const struct profile_row *row(u64 f)
{
	size_t n;
	const struct profile_row *r = profile_rows(p, &n);

	while (n--) {
		if (r[n].ip == TEXT + f)
			return &r[n];
	}
	fail_msg("no row");
	return NULL;
}

static void check(u64 f, u64 hits, u64 total, u64 self)
{
	assert_int_equal(row(f)->hits, hits);
	assert_int_equal(row(f)->total_ns, total);
	assert_int_equal(row(f)->self_ns, self);
}

static void folded_is(const char *want)
{
	struct buf b = { 0 };

	profile_folded(p, &b);
	assert_string_equal(b.data ? b.data : "", want);
	buf_deinit(&b);
}

static void sums(void **state)
{
	(void)state;
	enter(1, 0);
	enter(2, 1);
	pid = 8; /* another task in between */
	enter(2, 0);
	leave(2, 0, 5);
	pid = 7;
	enter(3, 2);
	leave(3, 2, 10);
	leave(2, 1, 30);
	enter(2, 1);
	leave(2, 1, 40);
	leave(1, 0, 100);
	check(1, 1, 100, 30);
	check(2, 3, 75, 65);
	check(3, 1, 10, 10);
	assert_int_equal(row(2)->min_ns, 5);
	assert_int_equal(row(2)->max_ns, 40);
	assert_true(fabs(row(2)->avg_ns - 25) < 1e-9);
	/* of 5, 30, 40: sqrt((400 + 25 + 225) / 2) */
	assert_true(fabs(row(2)->stddev_ns - sqrt(325)) < 1e-9);
	assert_true(row(1)->stddev_ns == 0);
	folded_is("a:b?7;f1 30\n"
		  "a:b?7;f1;f2 60\n"
		  "a:b?8;f2 5\n"
		  "a:b?7;f1;f2;f3 10\n");
}

/* graph-time off: each call without its callees, but the callers' callees are whole */
static void without_graph_time(void **state)
{
	(void)state;
	profile_destroy(p);
	p = profile_create(false);
	assert_non_null(p);
	for (u32 i = 0; i < 2; i++) {
		enter(1, 0);
		enter(2, 1);
		enter(3, 2);
		leave(3, 2, 10);
		leave(2, 1, 30 + 10 * i);
		leave(1, 0, 100);
	}
	check(1, 2, 70 + 60, 70 + 60);
	check(2, 2, 20 + 30, 20 + 30);
	check(3, 2, 20, 20);
	assert_int_equal(row(2)->min_ns, 20);
	assert_int_equal(row(2)->max_ns, 30);
	assert_true(fabs(row(2)->avg_ns - 25) < 1e-9);
	assert_true(fabs(row(2)->stddev_ns - sqrt(50)) < 1e-9);
}

static void what_is_not_seen_to_return(void **state)
{
	(void)state;
	enter(1, 0);
	enter(2, 1);
	enter(3, 2); /* its return is lost, and its caller's: their time is f1's */
	leave(1, 0, 100);
	enter(4, 0);
	add(TRACE_GRAPH_NEVER, 4, 0, 0);
	add(TRACE_FUNCTION, 5, 0, 0);
	add(TRACE_FUNCTION, 1, 0, 0);
	leave(91, 0, 7); /* its entry is lost */
	enter(1, 0);
	leave(2, 1, 11); /* its own too: but f1 called it */
	leave(1, 0, 10); /* a lie: less than its callee */
	check(1, 2, 110, 100);
	check(2, 1, 11, 11);
	check(5, 0, 0, 0);
	assert_int_equal(row(5)->untimed, 1);
	assert_int_equal(row(1)->untimed, 1);
	folded_is("a:b?7;f1 100\n"
		  "a:b?7;f1;f2 11\n"
		  "a:b?7;0x105b 7\n");
}

static void idle_tasks_are_one_a_cpu(void **state)
{
	struct trace_record r = { .type = TRACE_GRAPH_ENTRY, .ip = TEXT + 1, .comm = "<idle>" };

	(void)state;
	assert_int_equal(profile_add(p, &r, &names), 0);
	r.cpu = 1;
	assert_int_equal(profile_add(p, &r, &names), 0);
	r.depth = 1;
	r.ip++;
	assert_int_equal(profile_add(p, &r, &names), 0);
	r.type = TRACE_GRAPH_RETURN;
	r.duration_ns = 50;
	assert_int_equal(profile_add(p, &r, &names), 0);
	r.depth = 0;
	r.ip--;
	r.cpu = 0;
	r.duration_ns = 60;
	assert_int_equal(profile_add(p, &r, &names), 0);
	check(1, 1, 60, 60);
}

/* A module that another took the place of: functions at the same address are two, and go on when it comes back. */
static void other_names_are_other_functions(void **state)
{
	const struct profile_row *rows;
	size_t n;

	(void)state;
	for (when = 0; when < 3000; when++) {
		enter(1, 0);
		enter(85, 1);
		leave(85, 1, 10);
		leave(1, 0, 12);
	}
	when = 0;
	rows = profile_rows(p, &n);
	assert_int_equal(n, 4);
	for (size_t i = 0; i < n; i++) {
		static const char *const want[] = { "f85", "f1", "g85", NULL };

		if (want[i])
			assert_string_equal(rows[i].name, want[i]);
		else
			assert_null(rows[i].name);
		assert_int_equal(rows[i].hits, i == 1 ? 3000 : 1000);
		assert_int_equal(rows[i].ip, i == 1 ? TEXT + 1 : TEXT + 85);
		assert_int_equal(!rows[i].module, i != 2);
	}
	folded_is("a:b?7;f1 6000\n"
		  "a:b?7;f1;f85 10000\n"
		  "a:b?7;f1;g85 10000\n"
		  "a:b?7;f1;0x1055 10000\n");
}

static void more_than_there_is_room_for(void **state)
{
	struct profile_excess over;
	size_t n;

	(void)state;
	for (u32 i = 0; i < 20000; i++) {
		pid = i + 1;
		enter(i, 0);
		leave(i, 0, 3);
	}
	(void)profile_rows(p, &n);
	assert_int_equal(n, 20000);
	check(19999, 1, 3, 3);
	/* recursion beyond all depths */
	for (u32 d = 0; d < 1000; d++)
		enter(1, d);
	for (u32 d = 1000; d-- > 0;)
		leave(1, d, 1000 - d);
	assert_int_equal(row(1)->hits, 1001);
	/* a tree that never ends */
	srand(1);
	for (u32 i = 0; i < 3000000; i++)
		enter((u64)rand() % 50, i % 100);
	leave(1, 99, 5);
	assert_int_equal(row(1)->hits, 1002);
	profile_excess(p, &over);
	assert_int_equal(over.unnamed, 0);
	assert_true(over.shortened > 1000000);
}

/* Addresses are made up without end: memory ends growing, and it is told what was left out. */
static void more_functions_than_any_kernel_has(void **state)
{
	const struct profile_row *rows;
	struct profile_excess over;
	size_t n;

	(void)state;
	for (u64 i = 0; i < OUTPUT_ADDRS_MAX + 1000; i++)
		add(TRACE_FUNCTION, i, 0, 0);
	add(TRACE_FUNCTION, OUTPUT_ADDRS_MAX - 1, 0, 0); /* those that have a row keep it */
	rows = profile_rows(p, &n);
	assert_int_equal(n, OUTPUT_ADDRS_MAX + 1);
	assert_int_equal(rows[OUTPUT_ADDRS_MAX - 1].ip, TEXT + OUTPUT_ADDRS_MAX - 1);
	assert_int_equal(rows[OUTPUT_ADDRS_MAX - 1].untimed, 2);
	assert_int_equal(rows[OUTPUT_ADDRS_MAX].ip, OUTPUT_SHARED_ADDR);
	assert_string_equal(rows[OUTPUT_ADDRS_MAX].name, OUTPUT_SHARED_NAME);
	assert_int_equal(rows[OUTPUT_ADDRS_MAX].untimed, 1000);
	profile_excess(p, &over);
	assert_int_equal(over.unnamed, 1000);
	assert_int_equal(over.shortened, 0);
	leave(OUTPUT_ADDRS_MAX + 7, 0, 3);
	folded_is("a:b?7;" OUTPUT_SHARED_NAME " 3\n");
}

static bool long_sym(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	(void)addr;
	*ret = (struct kernel_sym){ .name = arg };
	*off_ret = 0;
	return true;
}

/* So with names of a thousand bytes. */
static void long_names_end_it_before(void **state)
{
	static char name[1001];
	const struct output_names long_names = { .sym = long_sym, .arg = name };
	struct profile_excess over;
	size_t n;

	(void)state;
	memset(name, 'n', sizeof(name) - 1);
	for (u64 i = 0; i < 150000; i++) {
		struct trace_record r = { .type = TRACE_FUNCTION, .ip = TEXT + i, .pid = 1 };

		assert_int_equal(profile_add(p, &r, &long_names), 0);
	}
	(void)profile_rows(p, &n);
	profile_excess(p, &over);
	assert_in_range(n * sizeof(name), OUTPUT_NAMES_MAX / 2, OUTPUT_NAMES_MAX);
	assert_int_equal(over.unnamed, 150000 - (n - 1));
}

static u64 cpu_ms(void)
{
	struct rusage r;

	assert_int_equal(getrusage(RUSAGE_SELF, &r), 0);
	return (u64)r.ru_utime.tv_sec * 1000 + (u64)r.ru_utime.tv_usec / 1000;
}

/* Eight letters that FNV and a product have in the first 64 of 65,536 places: @i is where to look from. */
static u32 chosen_name(u32 i, char *comm)
{
	for (;; i++) {
		u64 key = 0xcbf29ce484222325, h;

		for (u32 k = 0; k < 8; k++) {
			comm[k] = (char)('a' + (i >> 4 * k & 0xf));
			key = (key ^ (u8)comm[k]) * 0x100000001b3;
		}
		h = (key ^ 1ull << 40) * 0x9e3779b97f4a7c15;
		if (!((h ^ h >> 29) & 0xffc0))
			return i + 1;
	}
}

/* A guest names its tasks as it likes: each costs what others cost. */
static void chosen_names(void **state)
{
	static char comm[15000][TRACE_COMM_LEN];
	struct trace_record r = { .type = TRACE_GRAPH_ENTRY, .ip = TEXT + 1, .pid = 1 };
	u64 began;
	u32 from = 0;

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(comm); i++)
		from = chosen_name(from, comm[i]);
	began = cpu_ms();
	for (u32 i = 0; i < 4 * ARRAY_SIZE(comm); i++) {
		memcpy(r.comm, comm[i % ARRAY_SIZE(comm)], TRACE_COMM_LEN);
		assert_int_equal(profile_add(p, &r, &names), 0);
	}
	assert_in_range(cpu_ms() - began, 0, 150);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(sums, setup, teardown),
		cmocka_unit_test_setup_teardown(without_graph_time, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_not_seen_to_return, setup, teardown),
		cmocka_unit_test_setup_teardown(idle_tasks_are_one_a_cpu, setup, teardown),
		cmocka_unit_test_setup_teardown(other_names_are_other_functions, setup, teardown),
		cmocka_unit_test_setup_teardown(chosen_names, setup, teardown),
		cmocka_unit_test_setup_teardown(more_than_there_is_room_for, setup, teardown),
		cmocka_unit_test_setup_teardown(more_functions_than_any_kernel_has, setup,
						teardown),
		cmocka_unit_test_setup_teardown(long_names_end_it_before, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
