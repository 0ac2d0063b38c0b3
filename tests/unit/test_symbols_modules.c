// SPDX-License-Identifier: Apache-2.0
/* symbols/modules.c and module_syms.c: both shapes of struct module, and a guest that lies. */
#include "symbols/modules.h"

#include "test_symbols_fake.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

struct ctx {
	struct fake_guest g;
	struct fake_kernel k;
	struct btf_types btf;
	struct module_layout l;
};

static struct ctx ctx;

static int setup_as(void **state, bool mem_array)
{
	struct fake_opts o = { .image = 4 << 20,
			       .virt = 0xffffffff81000000ull,
			       .heap = 16 << 20,
			       .levels = 4,
			       .n_modules = 3,
			       .mem_array = mem_array };
	u32 len;
	u8 *blob = fake_btf(mem_array, &len);

	fake_guest_init(&ctx.g);
	fake_kernel_build(&ctx.k, &ctx.g, &o);
	assert_int_equal(btf_types_init(&ctx.btf, blob, len), 0);
	assert_int_equal(module_layout_init(&ctx.btf, &ctx.l), 0);
	*state = &ctx;
	return 0;
}

static int setup(void **state)
{
	return setup_as(state, false);
}

static int setup_array(void **state)
{
	return setup_as(state, true);
}

static int teardown(void **state)
{
	(void)state;
	btf_types_deinit(&ctx.btf);
	fake_kernel_deinit(&ctx.k);
	fake_guest_deinit(&ctx.g);
	return 0;
}

static int read_all(struct ctx *c, struct module_set *s)
{
	struct sym_mem mem = fake_mem(&c->k);

	*s = (struct module_set){ 0 };
	return modules_read(&mem, fake_sym_addr(&c->k, "modules"), &c->l, s);
}

static int read_rc(struct ctx *c)
{
	struct module_set s;
	int rc = read_all(c, &s);

	module_set_deinit(&s);
	return rc;
}

static void all_read(void **state)
{
	struct ctx *c = *state;
	struct module_set s;

	assert_int_equal(read_all(c, &s), 0);
	assert_int_equal(s.n_mods, 3);
	assert_string_equal(s.mods[1].name, "mod1");
	assert_int_equal(s.mods[1].base, FAKE_MODULES + 0x4000);
	assert_int_equal(s.mods[1].text_bytes, 0x1000);
	assert_int_equal(s.mods[1].struct_addr, c->k.mods[1]);
	assert_int_equal(s.mods[1].n_syms, 3);
	assert_int_equal(s.n_syms, 9);
	module_set_deinit(&s);
}

static void symbols_found(void **state)
{
	struct ctx *c = *state;
	const struct module_sym *m;
	struct module_set s;
	u64 next;

	assert_int_equal(read_all(c, &s), 0);
	/* .LC1 at +8 is listed, but never the answer, nor an end */
	m = module_sym_at(&s, FAKE_MODULES + 0x4010, &next);
	assert_non_null(m);
	assert_string_equal(module_sym_name(&s, m), "mod_1_a");
	assert_int_equal(next, FAKE_MODULES + 0x4100);
	m = module_sym_at(&s, FAKE_MODULES + 0x4fff, &next);
	assert_string_equal(module_sym_name(&s, m), "mod_1_b");
	assert_int_equal(next, FAKE_MODULES + (c->k.o.mem_array ? 0x5000 : 0x6000));
	assert_int_equal(m->type, c->k.o.mem_array ? 't' : 'T'); /* exported there */
	assert_null(module_sym_at(&s, FAKE_MODULES + 0x3000, &next));
	assert_null(module_sym_at(&s, 0xffffffff81000000ull, &next));
	assert_null(module_sym_at(&s, ~0ull, NULL));
	module_set_deinit(&s);
}

/* Two symbols with one value: the first in the table. */
static void first_alias_wins(void **state)
{
	struct ctx *c = *state;
	const struct module_sym *m;
	struct module_set s;
	u64 symtab;

	memcpy(&symtab, fake_at(&c->k, c->k.mod_kallsyms[0]), 8);
	fake_put64(&c->k, symtab + 2 * 24 + 8, FAKE_MODULES);
	assert_int_equal(read_all(c, &s), 0);
	m = module_sym_at(&s, FAKE_MODULES + 0x20, NULL);
	assert_string_equal(module_sym_name(&s, m), "mod_0_a");
	module_set_deinit(&s);
}

static void unformed_is_skipped(void **state)
{
	struct ctx *c = *state;
	struct module_set s;

	fake_put32(&c->k, c->k.mods[0], 3);
	assert_int_equal(read_all(c, &s), 0);
	assert_int_equal(s.n_mods, 2);
	assert_string_equal(s.mods[0].name, "mod1");
	module_set_deinit(&s);
}

static void lists_without_end(void **state)
{
	struct ctx *c = *state;

	fake_put64(&c->k, c->k.mods[2] + 8, c->k.mods[1] + 8);
	assert_int_equal(read_rc(c), -EUCLEAN);
	fake_put64(&c->k, c->k.mods[2] + 8, 0x10);
	assert_int_equal(read_rc(c), -EFAULT);
	fake_put64(&c->k, c->k.mods[2] + 8, 0);
	assert_int_equal(read_rc(c), -EFAULT);
}

static void sizes_beyond_reason(void **state)
{
	struct ctx *c = *state;
	u64 mod = c->k.mods[1], ks = c->k.mod_kallsyms[1];
	struct {
		u64 at;
		u32 bad, good;
		int rc;
	} t[] = {
		{ ks + 8, 0x20000, 4, -EUCLEAN }, /* as many as allowed, but no symbols */
		{ ks + 8, 0x20001, 4, -EUCLEAN },
		{ mod + 112, 0x40000001, 0x2000, -EUCLEAN },
		{ mod + 112, 0x4001, 0x2000, -EUCLEAN }, /* into the next module */
		{ mod + 24, 0x00200061, 0x31646f6d, 0 }, /* "a" */
		{ mod + 24, 0x00612061, 0x31646f6d, -EUCLEAN }, /* a space in the name */
		{ mod + 24, 0, 0x31646f6d, -EUCLEAN }, /* no name */
		{ mod + 88, 0x10001, 1, -EUCLEAN }, /* exported symbols */
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		fake_put32(&c->k, t[i].at, t[i].bad);
		assert_int_equal(read_rc(c), t[i].rc);
		fake_put32(&c->k, t[i].at, t[i].good);
		assert_int_equal(read_rc(c), 0);
	}
}

static void bad_strings(void **state)
{
	struct ctx *c = *state;
	u64 symtab, str;

	memcpy(&symtab, fake_at(&c->k, c->k.mod_kallsyms[1]), 8);
	memcpy(&str, fake_at(&c->k, c->k.mod_kallsyms[1] + 16), 8);
	fake_put32(&c->k, symtab + 24, 17u << 20);
	assert_int_equal(read_rc(c), -EUCLEAN);
	fake_put32(&c->k, symtab + 24, 16u << 20);
	assert_int_equal(read_rc(c), -EFAULT);
	fake_put32(&c->k, symtab + 24, 1);
	assert_int_equal(read_rc(c), 0);
	/* a name that does not end */
	memset(fake_at(&c->k, str + 1), 'z', 4095);
	memset(fake_at(&c->k, str + 4096), 'z', 4096);
	assert_int_equal(read_rc(c), -EUCLEAN);
	memset(fake_at(&c->k, str + 1), '\n', 4);
	memset(fake_at(&c->k, str + 5), 0, 100);
	assert_int_equal(read_rc(c), -EUCLEAN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(all_read, setup, teardown),
		cmocka_unit_test_setup_teardown(all_read, setup_array, teardown),
		cmocka_unit_test_setup_teardown(symbols_found, setup, teardown),
		cmocka_unit_test_setup_teardown(symbols_found, setup_array, teardown),
		cmocka_unit_test_setup_teardown(first_alias_wins, setup, teardown),
		cmocka_unit_test_setup_teardown(unformed_is_skipped, setup, teardown),
		cmocka_unit_test_setup_teardown(lists_without_end, setup, teardown),
		cmocka_unit_test_setup_teardown(sizes_beyond_reason, setup, teardown),
		cmocka_unit_test_setup_teardown(bad_strings, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
