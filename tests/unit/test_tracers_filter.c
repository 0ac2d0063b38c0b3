// SPDX-License-Identifier: Apache-2.0
/* tracers/glob.c and filter.c. */
#include "tracers/filter.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static void globs_as_ftrace_has_them(void **state)
{
	static const struct {
		const char *glob, *name;
		bool match;
	} cases[] = {
		{ "vfs_read", "vfs_read", true },
		{ "vfs_read", "vfs_readv", false },
		{ "vfs_readv", "vfs_read", false },
		{ "vfs_*", "vfs_", true },
		{ "vfs_*", "ksys_vfs_", false },
		{ "*", "", true },
		{ "*", "x", true },
		{ "**", "x", true },
		{ "", "", true },
		{ "", "x", false },
		{ "*read", "vfs_read", true },
		{ "*read", "vfs_reads", false },
		{ "*_r*d*", "vfs_read_iter", true },
		{ "a*b*c", "aXbXbXc", true },
		{ "a*b*c", "aXbXbX", false },
		{ "*ab", "aab", true },
		{ "vfs_?ead", "vfs_read", true },
		{ "vfs_?ead", "vfs_ead", false },
		{ "?", "", false },
		{ "[rw]*", "write", true },
		{ "[rw]*", "open", false },
		{ "[!rw]*", "open", true },
		{ "[!rw]*", "read", false },
		{ "cpu[0-9]", "cpu7", true },
		{ "cpu[0-9]", "cpux", false },
		{ "a[]]b", "a]b", true },
		{ "a[!]]b", "a]b", false },
		{ "a[b-]c", "a-c", true },
		{ "a[", "a[", true },
		{ "a[bc", "a[bc", true },
		{ "a[bc", "ab", false },
		{ "a\\*b", "a*b", true },
		{ "a\\*b", "axb", false },
		{ "foo.isra.0", "foo.isra.0", true },
		{ "foo.isra.0", "fooXisra.0", false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		if (glob_match(cases[i].glob, cases[i].name) != cases[i].match)
			fail_msg("\"%s\" on \"%s\"", cases[i].glob, cases[i].name);
	}
}

static void stars_do_not_explode(void **state)
{
	char name[2001];

	(void)state;
	memset(name, 'a', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	assert_false(glob_match("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", name));
	assert_true(glob_match("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a", name));
}

/* Long classes behind stars, which each name is compared with from each of its places. */
static void what_would_take_minutes_is_refused(void **state)
{
	enum {
		SITES = 50000,
		GLOBS = 256,
		LONG = 500
	};
	static struct ftrace_site many[SITES];
	static char globs[GLOBS][LONG + 16];
	static const char *list[GLOBS];
	static u64 bitmap[FILTER_BITMAP_WORDS(SITES)], none[FILTER_BITMAP_WORDS(SITES)];
	struct filter_input in = { many, SITES, 6 << 16, false };
	struct timespec begin, end;
	struct err err = { 0 };

	(void)state;
	for (size_t i = 0; i < SITES; i++)
		many[i] = (struct ftrace_site){ .name = "some_function_of_a_kernel",
						.state = SITE_OK };
	for (size_t i = 0; i < GLOBS; i++) {
		size_t n = (size_t)snprintf(globs[i], sizeof(globs[i]), "*[Q%zu", i);

		memset(globs[i] + n, 'z', LONG);
		memcpy(globs[i] + n + LONG, "]*", 3);
		list[i] = globs[i];
	}
	many[SITES - 1].name = "Q"; /* so that what matches nothing is no reason */
	clock_gettime(CLOCK_MONOTONIC, &begin);
	assert_int_equal(filter_mark(&in, "filter", list, GLOBS, none, &err), -E2BIG);
	clock_gettime(CLOCK_MONOTONIC, &end);
	assert_int_equal(err.code, ERR_FILTER_COST);
	print_message("%s, after %lld ms\n", err.msg,
		      (long long)(end.tv_sec - begin.tv_sec) * 1000 +
			      (end.tv_nsec - begin.tv_nsec) / 1000000);
	/* as many as there may be of those that people write */
	for (size_t i = 0; i < GLOBS; i++)
		snprintf(globs[i], sizeof(globs[i]), "*%c*kernel*", "some_function"[i % 13]);
	assert_int_equal(filter_mark(&in, "filter", list, GLOBS, bitmap, &err), 0);
	assert_true(filter_bit(bitmap, 0) && filter_bit(bitmap, SITES - 2));
	assert_false(filter_bit(bitmap, SITES - 1));
}

static const struct ftrace_site sites[] = {
	{ .name = "vfs_read", .state = SITE_OK },
	{ .name = "vfs_write", .state = SITE_OK },
	{ .name = "vfs_open", .state = SITE_IN_USE },
	{ .name = "vfs_read", .module = "overlay", .state = SITE_OK }, /* a name can occur twice */
	{ .name = "ext4_read", .module = "ext4", .state = SITE_OK },
	{ .name = "ext4_write", .module = "ext4", .state = SITE_DISABLED },
	{ .name = "native_write_cr4", .state = SITE_OK },
	{ .name = "__ftrace_invalid_address___42", .state = SITE_DISABLED },
};

static const struct filter_input input = { sites, ARRAY_SIZE(sites), 6 << 16 | 1 << 8, false };

struct outcome {
	int rc;
	u64 bits;
	struct filter_counts counts;
	struct err err;
};

static struct outcome run(const char *filter, const char *filter2, const char *notrace)
{
	const char *filters[] = { filter, filter2 };
	struct trace_opts opts = { .filter = filters,
				   .n_filter = (filter != NULL) + (filter2 != NULL),
				   .notrace = &notrace,
				   .n_notrace = notrace != NULL };
	struct outcome o = { .bits = ~0ull };
	u64 graph = ~0ull;

	o.rc = filter_select(&input, &opts, &o.bits, &graph, &o.counts, &o.err);
	assert_int_equal(graph, 0);
	return o;
}

static void selects_by_name_and_module(void **state)
{
	static const struct {
		const char *filter, *filter2, *notrace;
		u64 bits;
	} cases[] = {
		{ "vfs_read", NULL, NULL, 0x09 },     { "vfs_*", NULL, NULL, 0x0b },
		{ "vfs_read", "ext4_*", NULL, 0x19 }, { ":mod:ext4", NULL, NULL, 0x10 },
		{ ":mod:*", NULL, NULL, 0x18 },       { "vfs_*:mod:overlay", NULL, NULL, 0x08 },
		{ "*read:mod:*", NULL, NULL, 0x18 },  { "*", NULL, ":mod:*", 0x03 },
		{ NULL, NULL, NULL, 0x1b },           { NULL, NULL, "vfs_read", 0x12 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct outcome o = run(cases[i].filter, cases[i].filter2, cases[i].notrace);

		assert_int_equal(o.rc, 0);
		assert_int_equal(o.bits, cases[i].bits);
		assert_int_equal(o.counts.n_selected, __builtin_popcountll(cases[i].bits));
	}
}

static void counts_what_it_leaves_alone(void **state)
{
	struct outcome o = run("*", NULL, NULL);

	(void)state;
	assert_int_equal(o.rc, 0);
	assert_int_equal(o.counts.n_selected, 4);
	assert_int_equal(o.counts.n_in_use, 1);
	assert_int_equal(o.counts.n_disabled, 2);
	assert_int_equal(o.counts.n_denied, 1);
}

static void names_the_glob_that_matches_nothing(void **state)
{
	static const struct {
		const char *filter, *filter2, *notrace, *msg;
	} cases[] = {
		{ "vfs_*", "nothing_*", NULL, "filter \"nothing_*\" matches no function" },
		{ "vfs_raed", NULL, NULL,
		  "filter \"vfs_raed\" matches no function; did you mean \"vfs_read\"?" },
		{ "VFS_READXXXXX", NULL, NULL, "filter \"VFS_READXXXXX\" matches no function" },
		{ ":mod:ext3", NULL, NULL,
		  "filter \":mod:ext3\" matches no function; did you mean module \"ext4\"?" },
		{ "foo:mod:ext4", NULL, NULL, "filter \"foo:mod:ext4\" matches no function" },
		{ "vfs_*", NULL, "ext4_raed",
		  "notrace filter \"ext4_raed\" matches no function; did you mean \"ext4_read\"?" },
		{ "vfs_open", NULL, NULL,
		  "the filters leave no function to trace (1 in use by the guest, 0 disabled, 0 not safe)" },
		{ "native_write_cr4", NULL, NULL,
		  "the filters leave no function to trace (0 in use by the guest, 0 disabled, 1 not safe)" },
		{ "vfs_read", NULL, "vfs_*",
		  "the filters leave no function to trace (0 in use by the guest, 0 disabled, 0 not safe)" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct outcome o = run(cases[i].filter, cases[i].filter2, cases[i].notrace);

		assert_int_equal(o.rc, -ENOENT);
		assert_int_equal(o.err.code, ERR_FILTER_EMPTY);
		assert_string_equal(o.err.msg, cases[i].msg);
	}
	assert_int_equal(run("", NULL, NULL).rc, -EINVAL);
}

/* What globs choose does not depend on how many there are: from 16 on names are looked up. */
static void many_names_as_few(void **state)
{
	static const char *const globs[] = { "vfs_read",   "vfs_read:mod:overlay",
					     "vfs_*",      ":mod:ext4",
					     "ext4_read",  "*",
					     "vfs_rea[d]", "vfs\\_read" };
	static const char *const nothing[] = { "vfs_rea", "vfs_read:mod:ext4", "xyz" };
	const char *many[17];

	(void)state;
	for (size_t g = 0; g < ARRAY_SIZE(globs); g++) {
		u64 few_bits = 0, many_bits = 0;

		for (size_t i = 0; i < ARRAY_SIZE(many); i++)
			many[i] = globs[g];
		assert_int_equal(filter_mark(&input, "f", many, 1, &few_bits, NULL), 0);
		assert_int_equal(filter_mark(&input, "f", many, 17, &many_bits, NULL), 0);
		assert_int_equal(few_bits, many_bits);
		assert_int_not_equal(few_bits, 0);
	}
	for (size_t g = 0; g < ARRAY_SIZE(nothing); g++) {
		struct err err = { 0 };
		u64 bits = 0;

		many[16] = nothing[g];
		assert_int_equal(filter_mark(&input, "f", many, 17, &bits, &err), -ENOENT);
		assert_non_null(strstr(err.msg, nothing[g]));
	}
}

/* 20,000 names of 40,000 functions: seconds and more, were each compared with each. */
static void thousands_of_names(void **state)
{
	enum {
		SITES = 40000,
		NAMES = 20000
	};
	struct ftrace_site *many = calloc(SITES, sizeof(*many));
	char(*text)[16] = calloc(SITES, sizeof(*text));
	const char **names = calloc(NAMES, sizeof(*names));
	u64 *bits = calloc(FILTER_BITMAP_WORDS(SITES), sizeof(*bits));
	struct filter_input in = { many, SITES, 6 << 16, false };
	clock_t began;

	(void)state;
	for (u32 i = 0; i < SITES; i++) {
		snprintf(text[i], sizeof(text[i]), "f%u", i);
		many[i].name = text[i];
	}
	for (u32 i = 0; i < NAMES; i++)
		names[i] = text[2 * i];
	began = clock();
	assert_int_equal(filter_mark(&in, "filter", names, NAMES, bits, NULL), 0);
	assert_true(clock() - began < CLOCKS_PER_SEC);
	for (u32 i = 0; i < SITES; i++)
		assert_int_equal(filter_bit(bits, i), i % 2 == 0);
	free(many);
	free(text);
	free(names);
	free(bits);
}

/* Each is compared with every function while the guest is locked; names are not. */
static void wildcards_are_limited(void **state)
{
	static const char *const wild[] = { "vfs_*", ":mod:ext4", "vfs_rea[d]", "vfs\\_read",
					    "*:mod:ext4" };
	const char *globs[FILTER_MAX_WILDCARDS + 45];
	struct err err = { 0 };
	u64 bits = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(globs); i++)
		globs[i] = i < FILTER_MAX_WILDCARDS ? wild[i % ARRAY_SIZE(wild)] : "vfs_read";
	globs[FILTER_MAX_WILDCARDS] = "vfs_read:mod:over*";
	assert_int_equal(filter_mark(&input, "filter", globs, ARRAY_SIZE(globs), &bits, &err), 0);
	for (size_t i = FILTER_MAX_WILDCARDS; i < ARRAY_SIZE(globs) - 1; i++)
		globs[i] = wild[i % ARRAY_SIZE(wild)];
	assert_int_equal(filter_mark(&input, "filter", globs, ARRAY_SIZE(globs), &bits, &err),
			 -EINVAL);
	assert_int_equal(err.code, ERR_BAD_REQUEST);
	assert_string_equal(
		err.msg, "filter: 300 globs have wildcards, at most 256 may: write them as fewer "
			 "globs, or as plain names");
}

static void denies_little(void **state)
{
	static const char *const bad[] = { "load_segments",    "native_load_idt",
					   "native_write_cr0", "pv_native_write_cr3",
					   "native_write_msr", "__switch_to" };
	static const char *const good[] = { "vfs_read",           "machine_kexec",
					    "text_poke_bp_batch", "native_write_cr5",
					    "native_sched_clock", "schedule",
					    "idt_invalidate",     "x86_acpi_enter_sleep_state",
					    "__switch_to_xtra",   "finish_task_switch" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_non_null(filter_denied(bad[i], input.version));
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_null(filter_denied(good[i], input.version));
	assert_non_null(filter_denied("set_gdt", 5 << 16 | 10 << 8));
	assert_null(filter_denied("set_gdt", 5 << 16 | 14 << 8));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(globs_as_ftrace_has_them),
		cmocka_unit_test(stars_do_not_explode),
		cmocka_unit_test(what_would_take_minutes_is_refused),
		cmocka_unit_test(selects_by_name_and_module),
		cmocka_unit_test(counts_what_it_leaves_alone),
		cmocka_unit_test(names_the_glob_that_matches_nothing),
		cmocka_unit_test(many_names_as_few),
		cmocka_unit_test(thousands_of_names),
		cmocka_unit_test(wildcards_are_limited),
		cmocka_unit_test(denies_little),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
