// SPDX-License-Identifier: Apache-2.0
/* symbols/btf.c against BTF that libbpf wrote, and against damaged bytes. */
#include "symbols/btf.h"

#include "base/cleanup.h"
#include "test_symbols_fake.h"

#include <bpf/btf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static u8 *raw_copy(struct btf *b, u32 *len)
{
	const void *raw = btf__raw_data(b, len);
	u8 *copy = malloc(*len);

	memcpy(copy, raw, *len);
	btf__free(b);
	return copy;
}

/* struct outer { int a; union { long b; struct { int c; int d:3; }; }; inner_t e[4]; } */
static u8 *nested(u32 *len)
{
	struct btf *b = btf__new_empty();
	int i32 = btf__add_int(b, "int", 4, BTF_INT_SIGNED);
	int i64 = btf__add_int(b, "long", 8, BTF_INT_SIGNED);
	int inner, konst, alias, arr, anon, uni;

	inner = btf__add_struct(b, "inner", 12);
	btf__add_field(b, "x", i32, 0, 0);
	btf__add_field(b, "y", i64, 32, 0);
	konst = btf__add_const(b, inner);
	alias = btf__add_typedef(b, "inner_t", konst);
	arr = btf__add_array(b, i32, alias, 4);
	anon = btf__add_struct(b, NULL, 8);
	btf__add_field(b, "c", i32, 0, 0);
	btf__add_field(b, "d", i32, 37, 3);
	uni = btf__add_union(b, NULL, 8);
	btf__add_field(b, "b", i64, 0, 0);
	btf__add_field(b, NULL, anon, 0, 0);
	btf__add_struct(b, "outer", 72);
	btf__add_field(b, "a", i32, 0, 0);
	btf__add_field(b, NULL, uni, 64, 0);
	btf__add_field(b, "e", arr, 128, 0);
	btf__add_typedef(b, "outer", i32); /* a typedef of the same name does not hide it */
	btf__add_enum(b, "plain", 4);
	btf__add_enum_value(b, "BIG", 0x80000000ll);
	btf__add_enum(b, "minus", 4);
	btf__add_enum_value(b, "NEG", -5);
	btf__add_enum64(b, "wide", 8, true);
	btf__add_enum64_value(b, "WIDE", 0x8000000000000001ull);
	return raw_copy(b, len);
}

static void init_nested(struct btf_types *b)
{
	u32 len;
	u8 *blob = nested(&len);

	assert_int_equal(btf_types_init(b, blob, len), 0);
}

static void members(void **state)
{
	static const struct {
		const char *path;
		int rc;
		u32 off, size;
	} t[] = {
		{ "a", 0, 0, 4 },        { "b", 0, 8, 8 },         { "c", 0, 8, 4 },
		{ "d", 0, 12, 4 },       { "e", 0, 16, 48 },       { "e.x", 0, 16, 4 },
		{ "e.y", 0, 20, 8 },     { "x", -ENOENT, 0, 0 },   { "", -ENOENT, 0, 0 },
		{ "e.", -ENOENT, 0, 0 }, { "a.x", -ENOENT, 0, 0 }, { "e.x.y", -ENOENT, 0, 0 },
		{ ".a", -ENOENT, 0, 0 }, { "aa", -ENOENT, 0, 0 },
	};
	struct btf_types b;
	u32 off, size;

	(void)state;
	init_nested(&b);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		assert_int_equal(btf_types_member(&b, "outer", t[i].path, &off, &size), t[i].rc);
		if (t[i].rc)
			continue;
		assert_int_equal(off, t[i].off);
		assert_int_equal(size, t[i].size);
	}
	assert_int_equal(btf_types_member(&b, "inner_t", "y", &off, NULL), 0);
	assert_int_equal(off, 4);
	assert_int_equal(btf_types_member(&b, "nobody", "y", &off, NULL), -ENOENT);
	assert_int_equal(btf_types_member(&b, "", "y", &off, NULL), -ENOENT);
	assert_int_equal(btf_types_size(&b, "outer", &size), 0);
	assert_int_equal(size, 72);
	assert_int_equal(btf_types_size(&b, "inner_t", &size), 0);
	assert_int_equal(size, 12);
	assert_int_equal(btf_types_size(&b, "long", &size), 0);
	assert_int_equal(size, 8);
	btf_types_deinit(&b);
}

static void enums(void **state)
{
	struct btf_types b;
	s64 v;

	(void)state;
	init_nested(&b);
	assert_int_equal(btf_types_enum(&b, "BIG", &v), 0);
	assert_int_equal(v, 0x80000000ll);
	assert_int_equal(btf_types_enum(&b, "NEG", &v), 0);
	assert_int_equal(v, -5);
	assert_int_equal(btf_types_enum(&b, "WIDE", &v), 0);
	assert_int_equal(v, (s64)0x8000000000000001ull);
	assert_int_equal(btf_types_enum(&b, "NONE", &v), -ENOENT);
	assert_int_equal(btf_types_enum(&b, "", &v), -ENOENT);
	btf_types_deinit(&b);
}

/* Ask everything of a blob that may be damaged: no answer may be wild. */
static void ask(struct btf_types *b)
{
	u32 off, size;
	s64 v;

	(void)!btf_types_member(b, "outer", "d", &off, &size);
	(void)!btf_types_member(b, "outer", "e.y", &off, &size);
	(void)!btf_types_size(b, "inner_t", &size);
	(void)!btf_types_enum(b, "WIDE", &v);
	(void)!btf_types_enum(b, "NONE", &v);
}

static void every_byte_damaged(void **state)
{
	u32 len;
	_cleanup_free_ u8 *good = nested(&len);
	static const u8 flips[] = { 0x01, 0x80, 0xff };

	(void)state;
	for (u32 i = 0; i < len; i++) {
		for (size_t f = 0; f < ARRAY_SIZE(flips); f++) {
			struct btf_types b;
			u8 *bad = malloc(len);

			memcpy(bad, good, len);
			bad[i] ^= flips[f];
			if (btf_types_init(&b, bad, len)) {
				free(bad);
				continue;
			}
			ask(&b);
			btf_types_deinit(&b);
		}
	}
}

static void every_length(void **state)
{
	u32 len;
	_cleanup_free_ u8 *good = nested(&len);

	(void)state;
	for (u32 n = 0; n < len; n++) {
		struct btf_types b;
		u8 *cut = malloc(n ? n : 1);

		memcpy(cut, good, n);
		assert_int_equal(btf_types_init(&b, cut, n), -EUCLEAN);
		free(cut);
	}
}

/* Structs that hold one another without a name: deep, wide, and in a circle. */
static void anonymous_recursion_ends(void **state)
{
	struct btf *w = btf__new_empty();
	struct btf_types b;
	int below = btf__add_int(w, "int", 4, 0);
	u32 len, off;
	u8 *blob;

	(void)state;
	for (int depth = 0; depth < 12; depth++) {
		int id = btf__add_struct(w, depth == 11 ? "wide" : NULL, 4);

		for (int i = 0; i < 16; i++)
			assert_int_equal(btf__add_field(w, NULL, below, 0, 0), 0);
		below = id;
	}
	btf__add_struct(w, "circle", 4);
	btf__add_field(w, NULL, below + 1, 0, 0);
	btf__add_typedef(w, "loop", below + 2);
	blob = raw_copy(w, &len);
	assert_int_equal(btf_types_init(&b, blob, len), 0);
	assert_int_equal(btf_types_member(&b, "wide", "x", &off, NULL), -EUCLEAN);
	assert_int_equal(btf_types_member(&b, "circle", "x", &off, NULL), -EUCLEAN);
	assert_int_equal(btf_types_size(&b, "loop", &off), -EUCLEAN);
	btf_types_deinit(&b);
}

static void huge_array(void **state)
{
	struct btf *w = btf__new_empty();
	int i64 = btf__add_int(w, "long", 8, 0);
	int a = btf__add_array(w, i64, i64, 0xffffffffu);
	struct btf_types b;
	u32 len, size;
	u8 *blob;

	(void)state;
	btf__add_struct(w, "s", 8);
	btf__add_field(w, "a", btf__add_array(w, i64, a, 0xffffffffu) ? a : 0, 0, 0);
	btf__add_typedef(w, "t", a);
	blob = raw_copy(w, &len);
	assert_int_equal(btf_types_init(&b, blob, len), 0);
	assert_int_equal(btf_types_size(&b, "t", &size), -EUCLEAN);
	btf_types_deinit(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(members),
		cmocka_unit_test(enums),
		cmocka_unit_test(every_byte_damaged),
		cmocka_unit_test(every_length),
		cmocka_unit_test(anonymous_recursion_ends),
		cmocka_unit_test(huge_array),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
