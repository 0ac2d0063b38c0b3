// SPDX-License-Identifier: Apache-2.0
/* symbols/ftrace_pages.c: the list as the guest has it, and as it should not be. */
#include "symbols/ftrace_pages.h"

#include "test_symbols_fake.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

struct ctx {
	struct fake_guest g;
	struct fake_kernel k;
	struct btf_types btf;
	struct ftrace_layout l;
};

static int setup(void **state)
{
	static struct ctx c;
	const struct fake_opts o = { .image = 4 << 20,
				     .virt = 0xffffffff81000000ull,
				     .heap = 16 << 20,
				     .levels = 4,
				     .n_modules = 2 };
	u32 len;
	u8 *blob = fake_btf(false, &len);

	fake_guest_init(&c.g);
	fake_kernel_build(&c.k, &c.g, &o);
	assert_int_equal(btf_types_init(&c.btf, blob, len), 0);
	assert_int_equal(ftrace_layout_init(&c.btf, &c.l), 0);
	*state = &c;
	return 0;
}

static int teardown(void **state)
{
	struct ctx *c = *state;

	btf_types_deinit(&c->btf);
	fake_kernel_deinit(&c->k);
	fake_guest_deinit(&c->g);
	return 0;
}

static int read_all(struct ctx *c, u32 *n_ret)
{
	struct sym_mem mem = fake_mem(&c->k);
	struct site_list s = { 0 };
	int rc = ftrace_pages_read(&mem, c->k.pages[0], &c->l, &s);

	*n_ret = s.n;
	free(s.sites);
	return rc;
}

static void in_order(void **state)
{
	struct ctx *c = *state;
	struct sym_mem mem = fake_mem(&c->k);
	struct site_list s;

	assert_int_equal(ftrace_pages_read(&mem, c->k.pages[0], &c->l, &s), 0);
	assert_int_equal(s.n, c->k.n_records[0] + c->k.n_records[1]);
	assert_int_equal(s.sites[0].ip, 0xffffffff81001000ull);
	assert_int_equal(s.sites[0].rec, c->k.records[0]);
	assert_int_equal(s.sites[1].rec, c->k.records[0] + 16);
	assert_int_equal(s.sites[c->k.n_records[0]].ip, FAKE_MODULES);
	free(s.sites);
}

static void flags_to_state(void **state)
{
	struct ctx *c = *state;

	/* TOUCHED (bit 20, the lowest flag) and REGS alone are not in use; each bit below is. */
	assert_int_equal(ftrace_state(&c->l, 1ull << 20), SITE_OK);
	assert_int_equal(ftrace_state(&c->l, 1ull << 30), SITE_OK);
	assert_int_equal(ftrace_state(&c->l, 1), SITE_IN_USE);
	assert_int_equal(ftrace_state(&c->l, 1ull << 19), SITE_IN_USE);
	assert_int_equal(ftrace_state(&c->l, 1ull << 31), SITE_IN_USE);
	assert_int_equal(ftrace_state(&c->l, 1ull << 27), SITE_IN_USE);
	assert_int_equal(ftrace_state(&c->l, 1ull << 25), SITE_IN_USE);
	assert_int_equal(ftrace_state(&c->l, 1ull << 26), SITE_DISABLED);
	assert_int_equal(ftrace_state(&c->l, 1ull << 26 | 1ull << 31), SITE_DISABLED);
}

static void lists_without_end(void **state)
{
	struct ctx *c = *state;
	u32 n;

	fake_put64(&c->k, c->k.pages[1], c->k.pages[0]);
	assert_int_equal(read_all(c, &n), -EUCLEAN);
	fake_put32(&c->k, c->k.pages[0] + 16, 0);
	fake_put32(&c->k, c->k.pages[1] + 16, 0);
	assert_int_equal(read_all(c, &n), -EUCLEAN);
	assert_int_equal(n, 0);
}

static void counts_beyond_reason(void **state)
{
	struct ctx *c = *state;
	u32 n;

	fake_put32(&c->k, c->k.pages[0] + 16, 2 * 4096 / 16);
	assert_int_equal(read_all(c, &n), 0);
	fake_put32(&c->k, c->k.pages[0] + 16, 2 * 4096 / 16 + 1);
	assert_int_equal(read_all(c, &n), -EUCLEAN);
	fake_put32(&c->k, c->k.pages[0] + 16, 0xffffffff);
	assert_int_equal(read_all(c, &n), -EUCLEAN);
	fake_put32(&c->k, c->k.pages[0] + 16, 1);
	fake_put32(&c->k, c->k.pages[0] + 20, 13);
	assert_int_equal(read_all(c, &n), -EUCLEAN);
}

static void pointers_to_nowhere(void **state)
{
	struct ctx *c = *state;
	u32 n;

	fake_put64(&c->k, c->k.pages[0], 0xdead0000);
	assert_int_equal(read_all(c, &n), -EFAULT);
	fake_put64(&c->k, c->k.pages[0], ~0ull);
	assert_int_equal(read_all(c, &n), -EFAULT);
	fake_put64(&c->k, c->k.pages[0], 0);
	fake_put64(&c->k, c->k.pages[0] + 8, 0x1000);
	assert_int_equal(read_all(c, &n), -EFAULT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(in_order, setup, teardown),
		cmocka_unit_test_setup_teardown(flags_to_state, setup, teardown),
		cmocka_unit_test_setup_teardown(lists_without_end, setup, teardown),
		cmocka_unit_test_setup_teardown(counts_beyond_reason, setup, teardown),
		cmocka_unit_test_setup_teardown(pointers_to_nowhere, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
