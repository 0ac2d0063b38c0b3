// SPDX-License-Identifier: Apache-2.0
/* patcher/helpers.c: the guest's own tracing takes what tells the agent of tasks, and lets go. */
#include "patcher/helpers.h"

#include "patcher/ftrace.h"
#include "patcher/text.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEXT    0xffffffff81000000ull
#define N_SITES 5u

/* The linker has these called instead: see CMakeLists.txt. */
const struct ftrace_site *__wrap_kernel_sites(const struct kernel *k);
size_t __wrap_kernel_site_count(const struct kernel *k);
const struct ftrace_site *__wrap_kernel_site_at(const struct kernel *k, u64 addr);
int __wrap_guest_refresh(struct guest *g, bool fresh, struct err *err);
int __wrap_text_check(struct guest *g, struct text_change *c, size_t n, struct err *err);
int __wrap_text_apply(struct guest *g, struct text_change *c, size_t n, struct err *err);

/* Site 1 tells of forks, 2 of exits, 3 of switches. */
static struct ftrace_site sites[N_SITES];
static struct guest g;
static enum text_result found[N_SITES]; /* by text_check() */
static int apply_fails;

const struct ftrace_site *__wrap_kernel_sites(const struct kernel *k)
{
	(void)k;
	return sites;
}

size_t __wrap_kernel_site_count(const struct kernel *k)
{
	(void)k;
	return N_SITES;
}

const struct ftrace_site *__wrap_kernel_site_at(const struct kernel *k, u64 addr)
{
	(void)k;
	return &sites[(addr - TEXT) / 16];
}

int __wrap_guest_refresh(struct guest *guest, bool fresh, struct err *err)
{
	(void)guest;
	(void)fresh;
	(void)err;
	return 0;
}

int __wrap_text_check(struct guest *guest, struct text_change *c, size_t n, struct err *err)
{
	(void)guest;
	(void)err;
	for (size_t i = 0; i < n; i++)
		c[i].result = found[i];
	return 0;
}

/* Those that can be are armed. */
int __wrap_text_apply(struct guest *guest, struct text_change *c, size_t n, struct err *err)
{
	(void)guest;
	if (apply_fails)
		return err_set(err, apply_fails, ERR_GUEST_BUSY, 0, "busy");
	for (size_t i = 0; i < n; i++) {
		if (c[i].result == TEXT_TODO)
			c[i].result = TEXT_DONE;
		if (found[i] == TEXT_TODO)
			found[i] = TEXT_ALREADY;
	}
	return 0;
}

static int setup(void **state)
{
	static const struct tracing_site what[] = { { 0, AGENT_SITE_SYSCALL },
						    { 1, AGENT_SITE_FORK },
						    { 2, AGENT_SITE_EXIT } };
	const struct tracing_opts opts = { .follow = true,
					   .sites = what,
					   .n_sites = ARRAY_SIZE(what) };

	(void)state;
	memset(&g, 0, sizeof(g));
	apply_fails = 0;
	g.armed = calloc(N_SITES, sizeof(*g.armed));
	g.n_armed = N_SITES;
	for (size_t i = 0; i < N_SITES; i++) {
		sites[i].ip = g.armed[i].addr = TEXT + 16 * i;
		g.armed[i].result = TEXT_DONE;
		found[i] = TEXT_ALREADY;
	}
	helpers_note(&g, &opts, sites[3].ip);
	g.agent.switch_hidden = true;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free(g.armed);
	return 0;
}

static struct tracing_counts refresh(void)
{
	struct tracing_counts counts = { 0 };
	struct err err = { 0 };

	assert_int_equal(tracing_refresh(&g, true, &counts, &err), 0);
	return counts;
}

static void nothing_is_missed(void **state)
{
	struct tracing_counts c = refresh();

	(void)state;
	assert_int_equal(c.missed, 0);
	assert_int_equal(c.n_armed, N_SITES - 1); /* one is hidden */
	found[0] = found[4] = TEXT_IN_USE; /* others' sites */
	c = refresh();
	assert_int_equal(c.missed, 0);
	assert_int_equal(c.n_skipped, 2);
}

static void missed_for_as_long_as_it_is_away(void **state)
{
	(void)state;
	found[2] = TEXT_IN_USE;
	assert_int_equal(refresh().missed, TRACING_EXITS);
	assert_int_equal(refresh().missed, TRACING_EXITS);
	found[1] = TEXT_DIFFERS;
	assert_int_equal(refresh().missed, TRACING_FORKS | TRACING_EXITS);
	found[1] = found[2] = TEXT_TODO; /* let go */
	assert_int_equal(refresh().missed, TRACING_FORKS | TRACING_EXITS);
	assert_int_equal(refresh().missed, 0);
}

static void taken_and_let_go_between_two_looks(void **state)
{
	(void)state;
	found[3] = TEXT_TODO;
	assert_int_equal(refresh().missed, TRACING_SWITCHES);
	assert_int_equal(refresh().missed, 0);
}

static void not_forgotten_if_it_could_not_be_armed_at_once(void **state)
{
	struct tracing_counts counts = { 0 };
	struct err err = { 0 };

	(void)state;
	found[3] = TEXT_TODO;
	apply_fails = -EBUSY;
	assert_int_equal(tracing_refresh(&g, true, &counts, &err), -EBUSY);
	found[3] = TEXT_ALREADY; /* the failure came behind it */
	apply_fails = 0;
	assert_int_equal(refresh().missed, TRACING_SWITCHES);
}

static void the_hidden_one_is_not_counted(void **state)
{
	(void)state;
	found[3] = TEXT_IN_USE;
	assert_int_equal(refresh().n_armed, N_SITES - 1);
}

static void refused_if_the_guest_has_one_from_the_start(void **state)
{
	struct err err = { 0 };

	(void)state;
	assert_int_equal(helpers_armed(&g, &err), 0);
	g.armed[1].result = TEXT_IN_USE;
	assert_int_equal(helpers_armed(&g, &err), -EBUSY);
	assert_int_equal(err.code, ERR_CONFLICT);
	assert_non_null(strstr(err.msg, "wake_up_new_task()"));
	g.armed[1].result = TEXT_DONE;
	g.n_armed = 2; /* what is in use is not kept */
	assert_int_equal(helpers_armed(&g, &err), -EBUSY);
}

static void finds_task_switches(void **state)
{
	struct err err = { 0 };
	size_t at = 0;

	(void)state;
	for (size_t i = 0; i < N_SITES; i++)
		sites[i].name = "vfs_read";
	assert_int_equal(helpers_find_switch(&g, &at, &err), -ENOENT);
	assert_non_null(strstr(err.msg, "cannot be traced"));
	sites[1].name = sites[3].name = "finish_task_switch.isra.0";
	sites[1].state = SITE_DISABLED;
	assert_int_equal(helpers_find_switch(&g, &at, &err), 0);
	assert_int_equal(at, 3);
	sites[3].state = SITE_IN_USE;
	assert_int_equal(helpers_find_switch(&g, &at, &err), -EBUSY);
	assert_int_equal(err.code, ERR_CONFLICT);
	assert_non_null(strstr(err.msg, "in use by the guest's own tracing"));
	sites[3].state = SITE_OK;
	sites[3].module = "other";
	assert_int_equal(helpers_find_switch(&g, &at, &err), -ENOENT);
	memset(sites, 0, sizeof(sites));
}

static void none_is_needed(void **state)
{
	const struct tracing_opts opts = { 0 };
	struct err err = { 0 };

	(void)state;
	helpers_note(&g, &opts, 0);
	g.n_armed = 0;
	assert_int_equal(helpers_armed(&g, &err), 0);
	assert_int_equal(helpers_away(&g), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(nothing_is_missed, setup, teardown),
		cmocka_unit_test_setup_teardown(missed_for_as_long_as_it_is_away, setup, teardown),
		cmocka_unit_test_setup_teardown(taken_and_let_go_between_two_looks, setup,
						teardown),
		cmocka_unit_test_setup_teardown(not_forgotten_if_it_could_not_be_armed_at_once,
						setup, teardown),
		cmocka_unit_test_setup_teardown(the_hidden_one_is_not_counted, setup, teardown),
		cmocka_unit_test_setup_teardown(refused_if_the_guest_has_one_from_the_start, setup,
						teardown),
		cmocka_unit_test_setup_teardown(finds_task_switches, setup, teardown),
		cmocka_unit_test_setup_teardown(none_is_needed, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
