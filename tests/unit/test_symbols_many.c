// SPDX-License-Identifier: Apache-2.0
/*
 * Look-ups in a million symbols that a guest made to be looked at one after the other: what each touches of
 * them is counted in pages, which only a few of can be.
 */
#include "symbols/module_syms.h"
#include "symbols/modules.h"
#include "symbols/sym_table.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define N         (1u << 20)
#define ADDR      0xffffffff81000000ull
#define PAGES_MAX 64 /* of thousands; a search of each kind and its end touch some 40 */

/* Memory whose pages are counted as they are touched for the first time. */
static struct {
	u8 *at;
	size_t bytes, n;
} watched;

static void touched(int sig, siginfo_t *info, void *context)
{
	uintptr_t page = (uintptr_t)info->si_addr & PAGE_MASK;

	(void)sig;
	(void)context;
	if (page < (uintptr_t)watched.at || page >= (uintptr_t)watched.at + watched.bytes)
		abort();
	watched.n++;
	mprotect((void *)page, PAGE_SIZE, PROT_READ | PROT_WRITE);
}

static void *watched_alloc(size_t bytes)
{
	struct sigaction sa = { .sa_sigaction = touched, .sa_flags = SA_SIGINFO };

	watched.bytes = (bytes + PAGE_SIZE - 1) & PAGE_MASK;
	watched.at = mmap(NULL, watched.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);
	assert_ptr_not_equal(watched.at, MAP_FAILED);
	sigaction(SIGSEGV, &sa, NULL);
	return watched.at;
}

static void watch(void)
{
	watched.n = 0;
	assert_int_equal(mprotect(watched.at, watched.bytes, PROT_NONE), 0);
}

static void watched_free(void)
{
	signal(SIGSEGV, SIG_DFL);
	munmap(watched.at, watched.bytes);
}

static void at_one_address(void **state)
{
	struct sym_table t = { .n = N };
	u32 hint, i;

	(void)state;
	t.addr = watched_alloc(N * sizeof(*t.addr));
	for (u32 s = 0; s < N; s++)
		t.addr[s] = s < 10 ? ADDR + s : s < N - 10 ? ADDR + 0x1000 : ADDR + 0x1000 + s;
	for (u32 h = 0; h < N; h += N / 8) {
		watch();
		hint = h;
		assert_true(sym_table_at(&t, ADDR + 0x1004, &hint, &i));
		assert_int_equal(i, 10);
		assert_in_range(watched.n, 1, PAGES_MAX);
		watch();
		assert_int_equal(sym_table_next(&t, MAX(h, 10u), 0), ADDR + 0x1000 + N - 10);
		assert_in_range(watched.n, 1, PAGES_MAX);
	}
	assert_int_equal(sym_table_next(&t, 9, 0), ADDR + 0x1000);
	assert_int_equal(sym_table_next(&t, N - 1, 77), 77);
	/* and with nothing before or behind */
	for (u32 s = 0; s < N; s++)
		t.addr[s] = ADDR;
	watch();
	hint = N;
	assert_true(sym_table_at(&t, ~0ull, &hint, &i));
	assert_int_equal(i, 0);
	assert_int_equal(sym_table_next(&t, 0, 77), 77);
	assert_in_range(watched.n, 1, PAGES_MAX);
	watched_free();
}

static struct module_range ranges[] = {
	{ .start = ADDR, .end = ADDR + 0x10000, .text_end = ADDR + 0x10000, .module = 0 },
	{ .start = ADDR + 0x10000, .end = ADDR + 0x20000, .text_end = ADDR + 0x20000, .module = 1 },
};

/* @mapping: they are of the kind that is never the answer; else another module's, which is not either. */
static void beside_the_answer(bool mapping)
{
	struct module_set s = { .ranges = ranges, .n_ranges = 2, .n_mods = 2, .n_syms = N };
	const struct module_sym *m;
	u64 next;

	s.syms = watched_alloc(N * sizeof(*s.syms));
	for (u32 i = 0; i < N; i++)
		s.syms[i] = (struct module_sym){ .addr = ADDR + 0x100,
						 .order = i,
						 .module = mapping ? 0 : 1,
						 .mapping = mapping };
	s.syms[0] = (struct module_sym){ .addr = ADDR + 0x10 };
	s.syms[N - 1] = (struct module_sym){ .addr = ADDR + 0x200 };
	assert_int_equal(module_syms_index(&s), 0);
	assert_int_equal(s.n_own, 2);
	watch();
	m = module_sym_at(&s, ADDR + 0x1ff, &next);
	assert_ptr_equal(m, &s.syms[0]);
	assert_int_equal(next, ADDR + 0x200);
	m = module_sym_at(&s, ADDR + 0x10, &next);
	assert_ptr_equal(m, &s.syms[0]);
	assert_int_equal(next, ADDR + 0x200);
	assert_ptr_equal(module_sym_at(&s, ADDR + 0xffff, NULL), &s.syms[N - 1]);
	assert_null(module_sym_at(&s, ADDR + 0xf, NULL));
	assert_null(module_sym_at(&s, ADDR + 0x10000, NULL));
	assert_in_range(watched.n, 1, PAGES_MAX);
	watch();
	assert_int_equal(module_sym_next(&s, 1, ~0ull), ADDR + 0x200);
	assert_int_equal(module_sym_next(&s, 1, ADDR + 0x180), ADDR + 0x180);
	assert_int_equal(module_sym_next(&s, N - 1, 77), 77);
	assert_in_range(watched.n, 1, PAGES_MAX);
	free(s.own);
	watched_free();
}

static void mapping_symbols(void **state)
{
	(void)state;
	beside_the_answer(true);
}

static void symbols_of_others(void **state)
{
	(void)state;
	beside_the_answer(false);
}

/* Several at once, each with its ranges, its symbols in order and its names. */
static void extracted(void **state)
{
	char arena[] = "one\0two\0three\0a\0b\0c\0d";
	struct kernel_module mods[] = { { .name = arena },
					{ .name = arena + 4 },
					{ .name = arena + 8 } };
	struct module_sym syms[] = {
		{ .addr = ADDR + 1, .name = 14, .module = 0 },
		{ .addr = ADDR + 2, .name = 16, .module = 0, .mapping = true },
		{ .addr = ADDR + 0x10001, .name = 18, .module = 1 },
		{ .addr = ADDR + 0x10002, .name = 20, .module = 1 },
	};
	struct module_set s = { .mods = mods,
				.n_mods = 3,
				.ranges = ranges,
				.n_ranges = 2,
				.syms = syms,
				.n_syms = 4,
				.arena = arena,
				.arena_bytes = sizeof(arena) };
	const u32 which[] = { 1, MODULE_STAYS, 0 };
	struct module_set ret[2];
	const struct module_sym *m;

	(void)state;
	assert_int_equal(module_set_extract(&s, which, 2, ret), 0);
	assert_string_equal(ret[0].mods[0].name, "three");
	assert_int_equal(ret[0].n_syms + ret[0].n_ranges, 0);
	assert_string_equal(ret[1].mods[0].name, "one");
	assert_int_equal(ret[1].n_ranges, 1);
	assert_int_equal(ret[1].n_syms, 2);
	m = module_sym_at(&ret[1], ADDR + 3, NULL);
	assert_non_null(m);
	assert_string_equal(module_sym_name(&ret[1], m), "a");
	assert_null(module_sym_at(&ret[1], ADDR + 0x10001, NULL));
	for (u32 i = 0; i < 2; i++)
		module_set_deinit(&ret[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(at_one_address),
		cmocka_unit_test(mapping_symbols),
		cmocka_unit_test(symbols_of_others),
		cmocka_unit_test(extracted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
