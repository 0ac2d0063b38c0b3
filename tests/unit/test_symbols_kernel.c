// SPDX-License-Identifier: Apache-2.0
/* symbols/kernel*.c: a whole kernel loaded from memory, asked everything, changed, and damaged. */
#include "symbols/kernel.h"

#include "test_symbols_fake.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct ctx {
	struct fake_guest g;
	struct fake_kernel f;
	struct sym_mem mem;
	struct kernel_location loc;
	struct kernel *k;
	struct err err;
};

static void ctx_init(struct ctx *c, const struct fake_opts *o)
{
	*c = (struct ctx){ 0 };
	fake_guest_init(&c->g);
	fake_kernel_build(&c->f, &c->g, o);
	c->mem = fake_mem(&c->f);
	assert_int_equal(kernel_locate(&c->mem, NULL, NULL, &c->loc, &c->err), 0);
}

static void ctx_deinit(struct ctx *c)
{
	kernel_destroy(c->k);
	fake_kernel_deinit(&c->f);
	fake_guest_deinit(&c->g);
}

static const struct fake_opts old = { .image = 4 << 20,
				      .virt = 0xffffffff81000000ull,
				      .heap = 16 << 20,
				      .levels = 4,
				      .n_modules = 2 };
static const struct fake_opts newer = { .image = 8 << 20,
					.virt = 0xffffffff9e000000ull,
					.heap = 16 << 20,
					.levels = 5,
					.n_modules = 3,
					.new_order = true,
					.seqs = true,
					.mem_array = true,
					.landing_pads = true };

static void load(struct ctx *c)
{
	assert_int_equal(kernel_load(&c->mem, &c->loc, &c->k, &c->err), 0);
}

static void identity(void **state)
{
	struct fake_opts o = old;
	struct ctx c;
	gva_t data;
	u64 size;

	(void)state;
	ctx_init(&c, &o);
	load(&c);
	assert_string_equal(kernel_release(c.k), "6.1.0-fake");
	assert_int_equal(kernel_version(c.k), 6 << 16 | 1 << 8);
	assert_string_equal(kernel_build_id(c.k), "0123456789abcdef");
	assert_true(kernel_vmcoreinfo(c.k, &data, &size));
	assert_int_equal(data.v, c.f.vmcoreinfo);
	assert_int_equal(size, strlen(fake_at(&c.f, c.f.vmcoreinfo)));
	assert_int_equal(kernel_location(c.k)->image.v, old.image);
	ctx_deinit(&c);

	o.no_vmcoreinfo = true; /* release from the banner, build id from the notes */
	ctx_init(&c, &o);
	load(&c);
	assert_string_equal(kernel_release(c.k), "6.1.0-fake");
	assert_string_equal(kernel_build_id(c.k), "abababababababababababababababababababab");
	assert_false(kernel_vmcoreinfo(c.k, &data, &size));
	ctx_deinit(&c);
}

static void symbols(void **state)
{
	struct kernel_sym s, t;
	struct ctx c;
	u64 addr;

	(void)state;
	ctx_init(&c, &old);
	load(&c);
	assert_int_equal(kernel_sym(c.k, "twice", &addr), 0);
	assert_int_equal(addr, old.virt + 0x80100);
	assert_int_equal(kernel_sym(c.k, "mod_0_a", &addr), -ENOENT); /* a module's */
	assert_true(kernel_sym_at(c.k, old.virt + 0x80010, &s));
	assert_string_equal(s.name, "first_alias");
	assert_null(s.module);
	assert_int_equal(s.size_bytes, 0x100);
	assert_int_equal(s.type, 't');
	assert_true(kernel_sym_at(c.k, FAKE_MODULES + 0x4020, &s));
	assert_string_equal(s.name, "mod_1_a");
	assert_string_equal(s.module, "mod1");
	assert_false(kernel_sym_at(c.k, 0x1fb80, &s)); /* a per-CPU offset is no address */
	assert_false(kernel_sym_at(c.k, old.virt + FAKE_END, &s));
	assert_int_equal(kernel_sym_count(c.k), c.f.n_syms + 6);
	kernel_sym_get(c.k, 0, &s);
	for (size_t i = 1; i < kernel_sym_count(c.k); i++) {
		kernel_sym_get(c.k, i, &t);
		assert_true(t.addr >= s.addr);
		s = t;
	}
	ctx_deinit(&c);
}

static void types(void **state)
{
	struct ctx c;
	u32 v;
	s64 e;

	(void)state;
	ctx_init(&c, &newer);
	load(&c);
	assert_int_equal(kernel_btf_offset(c.k, "module", "mem.size", &v), 0);
	assert_int_equal(v, 112);
	assert_int_equal(kernel_btf_member_size(c.k, "module", "name", &v), 0);
	assert_int_equal(v, 56);
	assert_int_equal(kernel_btf_size(c.k, "dyn_ftrace", &v), 0);
	assert_int_equal(v, 16);
	assert_int_equal(kernel_btf_enum(c.k, "WIDE_ENUMERATOR", &e), 0);
	assert_int_equal(e, 0x123456789abcdefll);
	assert_int_equal(kernel_btf_enum(c.k, "FTRACE_FL_ENABLED", &e), 0);
	assert_int_equal(e, 1ll << 31);
	ctx_deinit(&c);
}

static void percpu(void **state)
{
	struct fake_opts o = old;
	struct ctx c;
	u64 addr;
	s32 disp;

	(void)state;
	ctx_init(&c, &o);
	load(&c);
	assert_int_equal(kernel_nr_cpu_ids(c.k), 2);
	assert_int_equal(kernel_percpu(c.k, "current_task", 1, &addr), 0);
	assert_int_equal(addr, 0x20000 + 0x1fb80);
	assert_int_equal(kernel_percpu_gs(c.k, "current_task", &disp), 0);
	assert_int_equal(disp, 0x1fb80);
	assert_int_equal(kernel_percpu(c.k, "current_task", 2, &addr), -EINVAL);
	assert_int_equal(kernel_percpu(c.k, "nobody", 0, &addr), -ENOENT);
	/* no count: one behind the last bit of the mask */
	fake_put32(&c.f, fake_sym_addr(&c.f, "nr_cpu_ids"), 0);
	fake_put64(&c.f, fake_sym_addr(&c.f, "__cpu_possible_mask"), 0x29);
	kernel_destroy(c.k);
	load(&c);
	assert_int_equal(kernel_nr_cpu_ids(c.k), 6);
	ctx_deinit(&c);

	o = newer; /* v6.15: addresses in the image, displacements below zero */
	o.all_relative = true;
	ctx_init(&c, &o);
	load(&c);
	assert_int_equal(kernel_percpu_gs(c.k, "current_task", &disp), 0);
	assert_int_equal((u64)(s64)disp, fake_sym_addr(&c.f, "current_task"));
	assert_int_equal(kernel_percpu(c.k, "current_task", 0, &addr), 0);
	assert_int_equal(addr, fake_sym_addr(&c.f, "current_task") + 0x10000);
	ctx_deinit(&c);
}

static void check_sites(const struct fake_opts *o)
{
	u64 pad = o->landing_pads ? 4 : 0;
	const struct ftrace_site *s;
	struct ctx c;
	u32 n;

	ctx_init(&c, o);
	load(&c);
	n = c.f.n_records[0];
	s = kernel_sites(c.k);
	assert_int_equal(kernel_site_count(c.k), n + 2 * o->n_modules);
	assert_string_equal(s[0].name, "vfs_fill_000");
	assert_null(s[0].module);
	assert_int_equal(s[0].ip, o->virt + 0x1000 + pad);
	assert_int_equal(s[0].state, SITE_OK);
	/* 0x20 behind its symbol: a weak function's leftover */
	assert_string_equal(s[n - 1].name, "__ftrace_invalid_address___32");
	assert_int_equal(s[n - 1].state, SITE_DISABLED);
	assert_string_equal(s[n + 1].name, "mod_0_b");
	assert_string_equal(s[n + 1].module, "mod0");
	assert_int_equal(kernel_modules(c.k)[1].n_sites, 2);
	for (size_t i = 0; i < kernel_site_count(c.k); i++)
		assert_ptr_equal(kernel_site_at(c.k, s[i].ip), &s[i]);
	assert_null(kernel_site_at(c.k, s[0].ip + 1));
	assert_null(kernel_site_at(c.k, ~0ull));
	ctx_deinit(&c);
}

static void sites(void **state)
{
	(void)state;
	check_sites(&old);
	check_sites(&newer);
}

/* With landing pads 4 bytes behind are right; without, the function is another one. */
static void site_offset_needs_landing_pads(void **state)
{
	struct ctx c;

	(void)state;
	ctx_init(&c, &old);
	fake_put64(&c.f, c.f.records[0], old.virt + 0x1004);
	load(&c);
	assert_string_equal(kernel_sites(c.k)[0].name, "__ftrace_invalid_address___4");
	ctx_deinit(&c);
}

/* Modules' pages may come in any order; lookups still work. */
static void unsorted_sites(void **state)
{
	const struct ftrace_site *s;
	struct ctx c;

	(void)state;
	ctx_init(&c, &old);
	fake_put64(&c.f, c.f.records[0], old.virt + 0x1000 + 2 * 0x40);
	fake_put64(&c.f, c.f.records[0] + 16, old.virt + 0x1000);
	load(&c);
	s = kernel_sites(c.k);
	assert_ptr_equal(kernel_site_at(c.k, old.virt + 0x1000), &s[1]);
	assert_ptr_equal(kernel_site_at(c.k, old.virt + 0x1000 + 2 * 0x40), &s[0]);
	assert_string_equal(s[1].name, "vfs_fill_000");
	/* the same site twice is a lie */
	fake_put64(&c.f, c.f.records[0], old.virt + 0x1000);
	assert_int_equal(kernel_refresh(c.k, &c.err), -EUCLEAN);
	assert_int_equal(c.err.code, ERR_GUEST_MEMORY);
	ctx_deinit(&c);
}

static void refresh_sees_changes(void **state)
{
	struct ctx c;

	(void)state;
	ctx_init(&c, &old);
	load(&c);
	assert_int_equal(kernel_module_count(c.k), 2);
	fake_put64(&c.f, c.f.records[0] + 8, 1ull << 31 | 1);
	/* the second module goes, its sites with it */
	fake_put64(&c.f, c.f.mods[0] + 8, fake_sym_addr(&c.f, "modules"));
	fake_put32(&c.f, c.f.pages[1] + 16, 2);
	assert_int_equal(kernel_refresh(c.k, &c.err), 0);
	assert_int_equal(kernel_module_count(c.k), 1);
	assert_int_equal(kernel_sites(c.k)[0].state, SITE_IN_USE);
	assert_int_equal(kernel_site_count(c.k), c.f.n_records[0] + 2);
	ctx_deinit(&c);
}

/* What a module was called is known as of the time that it was there. */
static void names_of_unloaded_modules_stay(void **state)
{
	struct kernel_sym was, then;
	char name[64], module[64];
	struct ctx c;
	u32 epoch, generation;
	u64 ip;

	(void)state;
	ctx_init(&c, &old);
	load(&c);
	epoch = kernel_epoch(c.k);
	assert_false(kernel_stale(c.k));
	ip = kernel_sites(c.k)[kernel_site_count(c.k) - 1].ip;
	assert_true(kernel_sym_at(c.k, ip, &was));
	snprintf(name, sizeof(name), "%s", was.name);
	snprintf(module, sizeof(module), "%s", was.module);
	/* nothing new: the same epoch */
	generation = kernel_generation(c.k);
	assert_int_equal(kernel_refresh(c.k, &c.err), 0);
	assert_int_equal(kernel_epoch(c.k), epoch);
	assert_int_not_equal(kernel_generation(c.k), generation); /* the same names, elsewhere */
	/* the second module goes */
	fake_put64(&c.f, c.f.mods[0] + 8, fake_sym_addr(&c.f, "modules"));
	fake_put32(&c.f, c.f.pages[1] + 16, 2);
	assert_true(kernel_stale(c.k));
	assert_int_equal(kernel_refresh(c.k, &c.err), 0);
	assert_false(kernel_stale(c.k));
	assert_int_equal(kernel_epoch(c.k), epoch + 1);
	assert_false(kernel_sym_at(c.k, ip, &then));
	kernel_names_lock(c.k);
	assert_false(kernel_sym_then(c.k, ip, epoch + 1, &then));
	assert_false(kernel_sym_then(c.k, ip, epoch - 1, &then));
	assert_true(kernel_sym_then(c.k, ip, epoch, &then));
	assert_string_equal(then.name, name);
	assert_string_equal(then.module, module);
	assert_int_equal(then.addr, was.addr);
	kernel_names_unlock(c.k);
	ctx_deinit(&c);
}

/* A guest that loads and unloads a module without end: what there was of it is kept for some time only. */
static void what_went_is_forgotten(void **state)
{
	struct kernel_sym then;
	struct ctx c;
	u32 epoch;
	u64 ip, head;

	(void)state;
	ctx_init(&c, &old);
	load(&c);
	head = fake_sym_addr(&c.f, "modules");
	epoch = kernel_epoch(c.k);
	ip = kernel_sites(c.k)[kernel_site_count(c.k) - 1].ip;
	fake_put32(&c.f, c.f.pages[1] + 16, 2); /* without the second module's sites */
	for (u32 i = 0; i <= 2 * 1024; i++) {
		if (i == 2 * 1024)
			assert_true(kernel_sym_then(c.k, ip, epoch, &then));
		fake_put64(&c.f, c.f.mods[0] + 8, i % 2 ? c.f.mods[1] + 8 : head);
		assert_int_equal(kernel_refresh(c.k, &c.err), 0);
	}
	assert_int_equal(kernel_epoch(c.k), epoch + 2 * 1024 + 1);
	assert_false(kernel_sym_then(c.k, ip, epoch, &then));
	assert_true(kernel_sym_then(c.k, ip, epoch + 2, &then));
	ctx_deinit(&c);
}

static void a_reference_keeps_it(void **state)
{
	struct ctx c;
	struct kernel *other;

	(void)state;
	ctx_init(&c, &old);
	load(&c);
	other = kernel_ref(c.k);
	kernel_destroy(c.k);
	assert_int_equal(kernel_module_count(other), 2);
	c.k = other;
	ctx_deinit(&c);
}

/* After a refresh that failed the kernel is as it was. */
static void failed_refresh_keeps_the_old(void **state)
{
	struct ctx c;
	size_t n;

	(void)state;
	ctx_init(&c, &old);
	load(&c);
	n = kernel_site_count(c.k);
	fake_put64(&c.f, c.f.records[0] + 16, old.virt + FAKE_DATA); /* not in any text */
	assert_int_equal(kernel_refresh(c.k, &c.err), -EUCLEAN);
	assert_int_equal(kernel_site_count(c.k), n);
	assert_string_equal(kernel_sites(c.k)[1].name, "vfs_fill_002");
	fake_put64(&c.f, c.f.records[0] + 16, old.virt + 0x1000 + 2 * 0x40);
	assert_int_equal(kernel_refresh(c.k, &c.err), 0);
	fake_put64(&c.f, c.f.records[1], FAKE_MODULES + 0x1000); /* a module's data */
	assert_int_equal(kernel_refresh(c.k, &c.err), -EUCLEAN);
	ctx_deinit(&c);
}

static void load_rc(struct ctx *c, int rc, enum err_code code)
{
	struct kernel *k = NULL;

	assert_int_equal(kernel_load(&c->mem, &c->loc, &k, &c->err), rc);
	assert_int_equal(c->err.code, code);
	assert_null(k);
}

static void damaged(void **state)
{
	struct ctx c;
	u64 head;

	(void)state;
	ctx_init(&c, &old);
	fake_put32(&c.f, c.f.btf, 0);
	load_rc(&c, -EUCLEAN, ERR_GUEST_MEMORY);
	assert_non_null(strstr(c.err.msg, "BTF is damaged"));
	ctx_deinit(&c);

	ctx_init(&c, &old);
	head = fake_sym_addr(&c.f, "ftrace_pages_start");
	fake_put64(&c.f, head, 0x1234);
	load_rc(&c, -EUCLEAN, ERR_GUEST_MEMORY);
	ctx_deinit(&c);

	ctx_init(&c, &old);
	c.loc.text = gva(c.loc.text.v + 0x200000); /* another boot's */
	load_rc(&c, -EUCLEAN, ERR_GUEST_MEMORY);
	ctx_deinit(&c);
}

/* The types are there, but not those of ftrace: their names are spelt otherwise. */
static void without_ftrace(void **state)
{
	struct ctx c;
	u8 *btf, *at;

	(void)state;
	ctx_init(&c, &old);
	btf = fake_at(&c.f, c.f.btf);
	at = memmem(btf, c.f.btf_bytes, "ftrace_page", 12);
	assert_non_null(at);
	*at = 'F';
	load_rc(&c, -ENOENT, ERR_GUEST_NO_FTRACE);
	ctx_deinit(&c);
}

static void without_types(void **state)
{
	struct fake_opts o = old;
	struct ctx c;

	(void)state;
	o.no_btf = true;
	ctx_init(&c, &o);
	load_rc(&c, -ENOENT, ERR_GUEST_NO_BTF);
	ctx_deinit(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(identity),
		cmocka_unit_test(symbols),
		cmocka_unit_test(types),
		cmocka_unit_test(percpu),
		cmocka_unit_test(sites),
		cmocka_unit_test(site_offset_needs_landing_pads),
		cmocka_unit_test(unsorted_sites),
		cmocka_unit_test(refresh_sees_changes),
		cmocka_unit_test(names_of_unloaded_modules_stay),
		cmocka_unit_test(what_went_is_forgotten),
		cmocka_unit_test(a_reference_keeps_it),
		cmocka_unit_test(failed_refresh_keeps_the_old),
		cmocka_unit_test(damaged),
		cmocka_unit_test(without_ftrace),
		cmocka_unit_test(without_types),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
