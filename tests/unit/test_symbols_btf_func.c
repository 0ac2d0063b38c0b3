// SPDX-License-Identifier: Apache-2.0
/* symbols/btf_func.c: prototypes and registers, out of BTF that libbpf wrote, and out of damage. */
#include "symbols/btf.h"
#include "symbols/kernel.h"

#include "base/cleanup.h"

#include <bpf/btf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define STACK 0xff

static struct btf *w;
static int i32, u8_id, i64, i128, bool_id, char_id, f64, ptr, big, pair, tiny, empty, en, en64,
	file_ptr, loff, loff_ptr, func_ptr;

static void begin(void)
{
	int file;

	w = btf__new_empty();
	i32 = btf__add_int(w, "int", 4, BTF_INT_SIGNED);
	u8_id = btf__add_int(w, "unsigned char", 1, 0);
	i64 = btf__add_int(w, "long", 8, BTF_INT_SIGNED);
	i128 = btf__add_int(w, "__int128", 16, BTF_INT_SIGNED);
	bool_id = btf__add_int(w, "_Bool", 1, BTF_INT_BOOL);
	char_id = btf__add_int(w, "char", 1, BTF_INT_SIGNED);
	f64 = btf__add_float(w, "double", 8);
	ptr = btf__add_ptr(w, 0);
	big = btf__add_struct(w, "big", 17);
	pair = btf__add_struct(w, "pair", 16);
	tiny = btf__add_union(w, "tiny", 3);
	empty = btf__add_struct(w, "empty", 0);
	en = btf__add_enum(w, "colour", 4);
	btf__add_enum_value(w, "RED", 0);
	btf__add_enum_value(w, "BLUE", -3);
	en64 = btf__add_enum64(w, NULL, 8, false);
	btf__add_enum64_value(w, "FAR", 0x8000000000000000ull);
	en64 = btf__add_typedef(w, "far_t", en64);
	file = btf__add_struct(w, "file", 200);
	file_ptr = btf__add_const(w, btf__add_ptr(w, btf__add_const(w, file)));
	loff = btf__add_typedef(w, "loff_t", btf__add_volatile(w, i64));
	loff_ptr = btf__add_ptr(w, loff);
	func_ptr = btf__add_ptr(w, btf__add_func_proto(w, 0));
}

/* Parameters are named a, b, c ... */
static void add(const char *name, int ret, size_t n, const int *types)
{
	int proto = btf__add_func_proto(w, ret);

	for (size_t i = 0; i < n; i++) {
		char param[2] = { (char)('a' + i), 0 };

		assert_int_equal(btf__add_func_param(w, types[i] ? param : NULL, types[i]), 0);
	}
	assert_true(btf__add_func(w, name, BTF_FUNC_GLOBAL, proto) > 0);
}

#define ADD(name, ret, ...) \
	add(name, ret, sizeof((int[]){ __VA_ARGS__ }) / sizeof(int), (int[]){ __VA_ARGS__ })

static void end(struct btf_types *b)
{
	u32 len;
	const void *raw = btf__raw_data(w, &len);
	u8 *copy = malloc(len);

	memcpy(copy, raw, len);
	btf__free(w);
	assert_int_equal(btf_types_init(b, copy, len), 0);
}

static void val(const struct kernel_val *v, enum kernel_val_kind kind, const char *type, u8 size,
		u8 reg)
{
	assert_int_equal(v->kind, kind);
	assert_string_equal(v->type, type);
	assert_int_equal(v->size, size);
	assert_int_equal(v->reg, reg);
}

static void a_prototype(void **state)
{
	struct kernel_func f;
	struct btf_types b;
	u32 size;

	(void)state;
	begin();
	ADD("vfs_read", i64, file_ptr, char_id, i32, loff_ptr);
	ADD("kinds", 0, bool_id, u8_id, en, en64, loff, func_ptr);
	add("nothing", loff, 0, NULL);
	add("file", i32, 0, NULL); /* a struct is called so, too */
	end(&b);
	assert_int_equal(btf_types_func(&b, "vfs_read", &f), 0);
	assert_int_equal(f.n_params, 4);
	assert_int_equal(f.n_regs, 4);
	val(&f.ret, KERNEL_VAL_SIGNED, "long", 8, STACK);
	val(&f.params[0], KERNEL_VAL_POINTER, "file", 8, 0);
	val(&f.params[1], KERNEL_VAL_CHAR, "char", 1, 1);
	val(&f.params[2], KERNEL_VAL_SIGNED, "int", 4, 2);
	val(&f.params[3], KERNEL_VAL_POINTER, "loff_t", 8, 3);
	assert_string_equal(f.params[0].name, "a");
	assert_string_equal(f.params[3].name, "d");
	assert_int_equal(btf_types_func(&b, "kinds", &f), 0);
	assert_int_equal(f.ret.kind, KERNEL_VAL_VOID);
	val(&f.params[0], KERNEL_VAL_BOOL, "_Bool", 1, 0);
	val(&f.params[1], KERNEL_VAL_UNSIGNED, "unsigned char", 1, 1);
	val(&f.params[2], KERNEL_VAL_ENUM, "colour", 4, 2);
	val(&f.params[3], KERNEL_VAL_ENUM, "far_t", 8, 3);
	val(&f.params[4], KERNEL_VAL_SIGNED, "loff_t", 8, 4);
	val(&f.params[5], KERNEL_VAL_POINTER, "", 8, 5);
	assert_string_equal(btf_types_enum_name(&b, f.params[2].btf_id, -3), "BLUE");
	assert_string_equal(btf_types_enum_name(&b, f.params[3].btf_id, INT64_MIN), "FAR");
	assert_null(btf_types_enum_name(&b, f.params[2].btf_id, 1));
	assert_null(btf_types_enum_name(&b, f.params[0].btf_id, 0));
	assert_null(btf_types_enum_name(&b, 1u << 30, 0));
	assert_int_equal(btf_types_func(&b, "nothing", &f), 0);
	assert_int_equal(f.n_params + f.n_regs, 0);
	assert_int_equal(btf_types_func(&b, "file", &f), 0);
	/* a function is no type, and hides none */
	assert_int_equal(btf_types_size(&b, "file", &size), 0);
	assert_int_equal(size, 200);
	assert_int_equal(btf_types_size(&b, "vfs_read", &size), -ENOENT);
	assert_int_equal(btf_types_func(&b, "big", &f), -ENOENT);
	assert_int_equal(btf_types_func(&b, "vfs_read.isra.0", &f), -ENOENT);
	assert_int_equal(btf_types_func(&b, "", &f), -ENOENT);
	btf_types_deinit(&b);
}

static void registers(void **state)
{
	static const struct {
		const char *name;
		u8 n_regs, regs[8];
	} want[] = {
		{ "six", 6, { 0, 1, 2, 3, 4, 5, STACK, STACK } },
		{ "long_struct", 2, { 0, STACK, 1 } },
		{ "pairs", 5, { 0, 2, 4 } },
		/* no room for two: on the stack as a whole, and the next one still gets the last */
		{ "no_room", 6, { 0, 1, 2, 3, 4, STACK, 5 } },
		{ "wide", 4, { 0, 1, 3 } },
		{ "none", 2, { 0, STACK, STACK, 1 } },
		{ "hidden", 3, { 1, 2 } },
		{ "in_rax_rdx", 1, { 0 } },
		{ "varargs", 1, { 0 } },
	};
	struct kernel_func f;
	struct btf_types b;

	(void)state;
	begin();
	ADD("six", i32, i32, i32, i32, i32, i32, i32, i32, i32);
	ADD("long_struct", 0, i32, big, i32);
	ADD("pairs", 0, pair, pair, tiny);
	ADD("no_room", 0, i32, i32, i32, i32, i32, pair, ptr);
	ADD("wide", 0, i32, i128, i32);
	ADD("none", 0, i32, empty, f64, i32);
	ADD("hidden", big, i32, i32);
	ADD("in_rax_rdx", pair, i32);
	ADD("varargs", i32, ptr, 0);
	end(&b);
	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		assert_int_equal(btf_types_func(&b, want[i].name, &f), 0);
		assert_int_equal(f.n_regs, want[i].n_regs);
		for (size_t k = 0; k < f.n_params; k++)
			assert_int_equal(f.params[k].reg, want[i].regs[k]);
	}
	assert_int_equal(f.n_params, 1); /* "..." is none */
	btf_types_deinit(&b);
}

static void many_parameters(void **state)
{
	struct kernel_func f;
	struct btf_types b;

	(void)state;
	begin();
	ADD("many", 0, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32,
	    i32, i32, i32, i32, i32);
	end(&b);
	assert_int_equal(btf_types_func(&b, "many", &f), 0);
	assert_int_equal(f.n_params, KERNEL_FUNC_MAX_PARAMS);
	assert_int_equal(f.n_regs, 6);
	btf_types_deinit(&b);
}

/* Which of the two is it? */
static void twice_is_not_known(void **state)
{
	struct kernel_func f;
	struct btf_types b;

	(void)state;
	begin();
	ADD("same", i32, i32);
	ADD("other", i32, i64);
	ADD("same", i32, ptr);
	end(&b);
	assert_int_equal(btf_types_func(&b, "same", &f), -ENOENT);
	assert_int_equal(btf_types_func(&b, "other", &f), 0);
	btf_types_deinit(&b);
}

static void nonsense_is_found_out(void **state)
{
	static const char *const names[] = { "void_param", "of_func", "not_a_proto", "array",
					     "loop" };
	struct kernel_func f;
	struct btf_types b;
	int array, loop;

	(void)state;
	begin();
	ADD("void_param", 0, 0, i32);
	ADD("of_func", 0, btf__add_func_proto(w, 0));
	array = btf__add_array(w, i32, i32, 3);
	ADD("array", 0, array);
	loop = btf__type_cnt(w);
	loop = btf__add_typedef(w, "loop_t", loop);
	ADD("loop", 0, loop);
	add("not_a_proto", 0, 0, NULL);
	((struct btf_type *)(uintptr_t)btf__type_by_id(w, btf__type_cnt(w) - 1))->type = i32;
	end(&b);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		assert_int_equal(btf_types_func(&b, names[i], &f), -EUCLEAN);
	btf_types_deinit(&b);
}

static void every_byte_damaged(void **state)
{
	static const u8 flips[] = { 0x01, 0x80, 0xff };
	struct btf_types good;

	(void)state;
	begin();
	ADD("f", en, file_ptr, pair, i128, en64);
	end(&good);
	for (size_t i = 0; i < good.len * ARRAY_SIZE(flips); i++) {
		struct kernel_func f;
		struct btf_types b;
		u8 *bad = malloc(good.len);

		memcpy(bad, good.blob, good.len);
		bad[i / ARRAY_SIZE(flips)] ^= flips[i % ARRAY_SIZE(flips)];
		if (btf_types_init(&b, bad, good.len)) {
			free(bad);
			continue;
		}
		if (!btf_types_func(&b, "f", &f)) {
			assert_in_range(f.n_regs, 0, 6);
			for (size_t k = 0; k < f.n_params; k++)
				(void)btf_types_enum_name(&b, f.params[k].btf_id, 1);
		}
		btf_types_deinit(&b);
	}
	btf_types_deinit(&good);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_prototype),           cmocka_unit_test(registers),
		cmocka_unit_test(many_parameters),       cmocka_unit_test(twice_is_not_known),
		cmocka_unit_test(nonsense_is_found_out), cmocka_unit_test(every_byte_damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
