// SPDX-License-Identifier: Apache-2.0
/* symbols/module_btf.c: types that go on from the kernel's, written by libbpf, in a guest that may lie. */
#include "symbols/mem.h"
#include "symbols/module_btf.h"

#include <bpf/btf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BASE  0xffff888000000000ull
#define HEAD  (BASE + 0x10)
#define ENTRY (BASE + 0x100) /* struct btf_module: list, btf, module */
#define BTF   (BASE + 0x200) /* struct btf: data, data_size, start_id, start_str_off */
#define DATA  (BASE + 0x1000)
#define MOD   0xffffffffc0100000ull

static u8 ram[0x10000];
static struct btf_types base;
static u8 *split; /* as libbpf wrote it */
static u32 split_bytes;
static const struct module_btf_layout layout = { HEAD, 0, 16, 24, 0, 8, 12, 16 };
static struct kernel_module mods[2];
static struct module_range ranges[2];

static int read_ram(void *arg, gva_t addr, void *buf, size_t len)
{
	(void)arg;
	if (addr.v < BASE || addr.v - BASE > sizeof(ram) || len > sizeof(ram) - (addr.v - BASE))
		return -EFAULT;
	memcpy(buf, ram + (addr.v - BASE), len);
	return 0;
}

static const struct sym_mem mem = { .read = read_ram };

static void put64(u64 addr, u64 v)
{
	memcpy(ram + (addr - BASE), &v, sizeof(v));
}

static void put32(u64 addr, u32 v)
{
	memcpy(ram + (addr - BASE), &v, sizeof(v));
}

static u8 *copy_of(const struct btf *b, u32 *len)
{
	const void *raw = btf__raw_data(b, len);
	u8 *copy = malloc(*len);

	assert_non_null(copy);
	memcpy(copy, raw, *len);
	return copy;
}

static void write_types(void)
{
	struct btf *w = btf__new_empty(), *s;
	int i32 = btf__add_int(w, "int", 4, BTF_INT_SIGNED), file, proto, way;
	u32 len;
	u8 *blob;

	file = btf__add_ptr(w, btf__add_struct(w, "file", 200));
	proto = btf__add_func_proto(w, i32);
	btf__add_func_param(w, "file", file);
	btf__add_func(w, "open_it", BTF_FUNC_GLOBAL, proto);
	s = btf__new_empty_split(w);
	way = btf__add_enum(s, "way", 4);
	btf__add_enum_value(s, "UP", 1);
	btf__add_enum_value(s, "DOWN", 2);
	proto = btf__add_func_proto(s, way);
	btf__add_func_param(s, "file", file);
	btf__add_func_param(s, "which", way);
	btf__add_func_param(s, "n", i32);
	btf__add_func(s, "lo_open", BTF_FUNC_STATIC, proto);
	split = copy_of(s, &split_bytes);
	blob = copy_of(w, &len);
	assert_int_equal(btf_types_init(&base, blob, len), 0);
	btf__free(s);
	btf__free(w);
}

/* One entry in the guest's list: the second module's. */
static int setup(void **state)
{
	(void)state;
	memset(ram, 0, sizeof(ram));
	write_types();
	put64(HEAD, ENTRY);
	put64(ENTRY, HEAD);
	put64(ENTRY + 16, BTF);
	put64(ENTRY + 24, MOD + 0x1000);
	put64(BTF, DATA);
	put32(BTF + 8, split_bytes);
	put32(BTF + 12, base.n_types);
	put32(BTF + 16, base.strings_end);
	memcpy(ram + (DATA - BASE), split, split_bytes);
	for (u32 i = 0; i < 2; i++) {
		mods[i] = (struct kernel_module){ .name = i ? "loop" : "dummy",
						  .base = MOD + 0x100000 * (i + 1ull),
						  .struct_addr = MOD + 0x1000 * i };
		ranges[i] = (struct module_range){ .start = mods[i].base,
						   .end = mods[i].base + 0x2000,
						   .module = i };
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	btf_types_deinit(&base);
	free(split);
	return 0;
}

static struct module_set a_set(void)
{
	struct module_set s = { .n_mods = 2, .n_ranges = 2 };

	s.mods = malloc(sizeof(mods));
	s.ranges = malloc(sizeof(ranges));
	assert_true(s.mods && s.ranges);
	memcpy(s.mods, mods, sizeof(mods));
	memcpy(s.ranges, ranges, sizeof(ranges));
	return s;
}

static struct module_set read_set(const struct module_set *old)
{
	struct module_set s = a_set();

	assert_int_equal(module_btfs_read(&mem, &layout, &base, old, &s), 0);
	return s;
}

static const struct module_set none;

static void ids_and_names_go_on(void **state)
{
	struct module_set s = read_set(&none);
	const struct btf_types *b = module_btf_at(&s, mods[1].base + 0x10);
	struct kernel_func f;
	u32 size;

	(void)state;
	assert_null(module_btf_at(&s, mods[0].base));
	assert_null(module_btf_at(&s, mods[1].base - 1));
	assert_non_null(b);
	assert_int_equal(btf_types_func(b, "lo_open", &f), 0);
	assert_int_equal(f.n_params, 3);
	assert_string_equal(f.params[0].type, "file"); /* the kernel's */
	assert_string_equal(f.params[0].name, "file");
	assert_string_equal(f.params[1].name, "which");
	assert_string_equal(f.params[1].type, "way");
	assert_string_equal(kernel_val_enumerator(&f.params[1], 2), "DOWN");
	assert_string_equal(kernel_val_enumerator(&f.ret, 1), "UP");
	assert_null(kernel_val_enumerator(&f.params[1], 3));
	assert_string_equal(f.params[2].type, "int");
	/* the kernel's own function and the module's are two things */
	assert_int_equal(btf_types_func(b, "open_it", &f), -ENOENT);
	assert_int_equal(btf_types_size(b, "way", &size), 0);
	module_set_deinit(&s);
}

static void kept_while_the_module_is(void **state)
{
	struct module_set s = read_set(&none), next, alone;
	struct kernel_func f;

	(void)state;
	memset(ram + (DATA - BASE), 0xff, split_bytes); /* read once, it is not read again */
	next = read_set(&s);
	module_set_deinit(&s);
	assert_int_equal(btf_types_func(module_btf_at(&next, mods[1].base), "lo_open", &f), 0);
	assert_int_equal(module_set_extract(&next, (const u32[]){ MODULE_STAYS, 0 }, 1, &alone), 0);
	mods[1].base += 0x10000; /* loaded anew */
	s = read_set(&next);
	assert_null(s.btf[1]);
	module_set_deinit(&s);
	module_set_deinit(&next);
	assert_int_equal(btf_types_func(module_btf_at(&alone, ranges[1].start), "lo_open", &f), 0);
	module_set_deinit(&alone);
}

static void a_guest_that_lies(void **state)
{
	static const struct {
		u64 at;
		u64 v;
	} lies[] = {
		{ BTF, BASE - 1 }, { BTF, 0 },      { BTF + 8, ~0ull },
		{ BTF + 8, 1 },    { BTF + 12, 1 }, { BTF + 16, 0xffffffff00000000 },
		{ ENTRY, ENTRY },  { ENTRY, 0 },    { ENTRY + 16, 0xfffffffffffffff8 },
		{ ENTRY + 24, 1 }, { HEAD, 8 },     { HEAD, HEAD },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		struct module_set s;
		u64 was;

		memcpy(&was, ram + (lies[i].at - BASE), sizeof(was));
		put64(lies[i].at, lies[i].v);
		s = read_set(&none);
		if (lies[i].at != ENTRY)
			assert_null(module_btf_at(&s, mods[1].base));
		module_set_deinit(&s);
		put64(lies[i].at, was);
	}
}

/* Any byte of the blob: refused or sound. */
static void damage(void **state)
{
	for (u32 at = 0; at < split_bytes; at++) {
		for (u32 bit = 0; bit < 8; bit++) {
			struct module_set s;
			struct kernel_func f;
			const struct btf_types *b;

			ram[DATA - BASE + at] ^= (u8)(1u << bit);
			s = read_set(&none);
			ram[DATA - BASE + at] ^= (u8)(1u << bit);
			b = module_btf_at(&s, mods[1].base);
			if (b && !btf_types_func(b, "lo_open", &f)) {
				for (u32 i = 0; i < f.n_params; i++)
					(void)kernel_val_enumerator(&f.params[i], 2);
			}
			module_set_deinit(&s);
		}
	}
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(ids_and_names_go_on, setup, teardown),
		cmocka_unit_test_setup_teardown(kept_while_the_module_is, setup, teardown),
		cmocka_unit_test_setup_teardown(a_guest_that_lies, setup, teardown),
		cmocka_unit_test_setup_teardown(damage, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
