// SPDX-License-Identifier: Apache-2.0
/* symbols/kallsyms.c and sym_table.c: every layout, damaged tables, what lookups return. */
#include "symbols/kallsyms.h"

#include "base/cleanup.h"
#include "test_symbols_fake.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define N    700
#define BASE 0xffffffff81000000ull

/* Tables between other bytes, and what they were made of. */
struct made {
	struct fake_kallsyms ks;
	struct fake_sym *syms;
	struct buf bytes;
};

static void make(struct made *m, const struct fake_kallsyms *how)
{
	m->ks = *how;
	m->ks.relative_base = BASE;
	m->ks.first = BASE + 0x2000;
	if (!m->ks.tokens[1])
		fake_tokens_default(&m->ks);
	m->syms = calloc(N, sizeof(*m->syms));
	m->bytes = (struct buf){ 0 };
	for (u32 i = 0; i < N; i++) {
		struct fake_sym *s = &m->syms[i];

		s->addr = !how->all_relative && i < 3 ? i * 0x1000 : BASE + i / 2 * 0x20ull;
		s->type = i % 3 ? 't' : 'T';
		snprintf(s->name, sizeof(s->name), i % 100 == 50 ? "same" : "vfs_symbol_%u", i);
	}
	/* 200 times one token a character: needs the two-byte length */
	memset(m->syms[300].name, 'q', 200);
	m->syms[300].name[200] = '\0';
	for (u32 i = 0; i < 5000; i++)
		buf_add(&m->bytes, &(u32){ i * 2654435761u }, 4);
	fake_kallsyms_write(&m->ks, m->syms, N, &m->bytes);
	for (u32 i = 0; i < 1000; i++)
		buf_add(&m->bytes, "\0\1\2\3", 4);
}

static void made_deinit(struct made *m)
{
	free(m->syms);
	buf_deinit(&m->bytes);
}

static int find(const struct made *m, size_t len, struct kallsyms_layout *l)
{
	/* An exact copy, so that a sanitizer sees the first byte too far. */
	_cleanup_free_ u8 *copy = malloc(len + 1);
	u64 steps = KALLSYMS_STEPS;
	size_t from = 0;

	memcpy(copy, m->bytes.data, len);
	return kallsyms_find(copy, len, &from, &steps, l);
}

static void check_whole(const struct fake_kallsyms *how)
{
	_cleanup_(made_deinit) struct made m;
	struct kallsyms_layout l;
	struct sym_table t;

	make(&m, how);
	assert_int_equal(find(&m, m.bytes.len, &l), 0);
	assert_int_equal(l.n_syms, N);
	assert_int_equal(l.names, m.ks.names);
	assert_int_equal(l.token_table, m.ks.token_table);
	assert_int_equal(l.offsets, m.ks.offsets);
	assert_int_equal(l.absolute_percpu, !how->all_relative);
	assert_int_equal(l.place_relative, how->place_relative);
	/* beyond the last address there is, or a process's */
	if (l.place_relative) {
		assert_int_equal(kallsyms_place((u8 *)m.bytes.data, &l, 0x1f00), -EUCLEAN);
		assert_int_equal(kallsyms_place((u8 *)m.bytes.data, &l, 0x400000), -EUCLEAN);
	}
	assert_int_equal(kallsyms_place((u8 *)m.bytes.data, &l, m.ks.first), 0);
	assert_int_equal(kallsyms_expand((u8 *)m.bytes.data, &l, &t), 0);
	for (u32 i = 0; i < N; i++) {
		assert_int_equal(t.addr[i], m.syms[i].addr);
		assert_string_equal(sym_table_name(&t, i), m.syms[i].name);
		assert_int_equal(sym_table_type(&t, i), m.syms[i].type);
	}
	sym_table_deinit(&t);
}

static void every_layout(void **state)
{
	(void)state;
	check_whole(&(struct fake_kallsyms){ 0 });
	check_whole(&(struct fake_kallsyms){ .seqs = true });
	check_whole(&(struct fake_kallsyms){ .new_order = true, .seqs = true });
	check_whole(
		&(struct fake_kallsyms){ .new_order = true, .seqs = true, .all_relative = true });
	check_whole(&(struct fake_kallsyms){
		.new_order = true, .seqs = true, .all_relative = true, .place_relative = true });
}

/* The token table of Debian's 6.1: multi-character tokens, characters that are no token. */
static void real_tokens(void **state)
{
	size_t len;
	_cleanup_free_ char *file = fake_file("tokens-6.1.bin", &len);
	struct fake_kallsyms how = { .seqs = true };
	u16 index[256];

	(void)state;
	memcpy(index, file + len - sizeof(index), sizeof(index));
	for (u32 i = 0; i < 256; i++)
		how.tokens[i] = file + index[i];
	check_whole(&how);
}

static void cut(bool places)
{
	_cleanup_(made_deinit) struct made m;
	struct kallsyms_layout l;
	size_t whole;

	make(&m, &(struct fake_kallsyms){ .new_order = true,
					  .seqs = true,
					  .all_relative = true,
					  .place_relative = places });
	whole = m.ks.base + (places ? 0 : 8);
	for (size_t n = 0; n < whole; n += n < m.ks.token_table ? 509 : 7)
		assert_int_equal(find(&m, n, &l), -ENOENT);
	assert_int_equal(find(&m, whole, &l), 0);
}

static void cut_anywhere(void **state)
{
	(void)state;
	cut(false);
	cut(true);
}

/* With more bytes behind, the search goes on where it stopped. */
static void resumes(void **state)
{
	_cleanup_(made_deinit) struct made m;
	struct kallsyms_layout l;
	u64 steps = KALLSYMS_STEPS;
	size_t from = 0;

	(void)state;
	make(&m, &(struct fake_kallsyms){ .new_order = true, .seqs = true });
	assert_int_equal(
		kallsyms_find((u8 *)m.bytes.data, m.ks.token_index + 512, &from, &steps, &l),
		-ENOENT);
	assert_int_equal(from, m.ks.token_index);
	assert_int_equal(kallsyms_find((u8 *)m.bytes.data, m.bytes.len, &from, &steps, &l), 0);
	assert_int_equal(l.n_syms, N);
}

/*
 * "tx", and twice token 0: four bytes that could be the number of symbols, and a name begins behind them. Each
 * such place is soon seen to be none.
 */
static void names_are_no_numbers(void **state)
{
	enum {
		MANY = 40000
	};
	struct fake_sym *syms = calloc(MANY, sizeof(*syms));

	(void)state;
	for (u32 i = 0; i < MANY; i++) {
		syms[i].addr = BASE + i * 16ull;
		syms[i].type = 't';
		snprintf(syms[i].name, sizeof(syms[i].name), "x_start_start");
	}
	for (int places = 0; places < 2; places++) {
		struct fake_kallsyms ks = { .new_order = true,
					    .seqs = true,
					    .all_relative = true,
					    .place_relative = places,
					    .relative_base = BASE,
					    .first = BASE };
		_cleanup_buf_ struct buf b = { 0 };
		u64 steps = KALLSYMS_STEPS;
		struct kallsyms_layout l;
		size_t from = 0;

		fake_tokens_default(&ks);
		fake_kallsyms_write(&ks, syms, MANY, &b);
		assert_int_equal(kallsyms_find((u8 *)b.data, b.len, &from, &steps, &l), 0);
		assert_int_equal(l.n_syms, MANY);
		assert_true(steps > KALLSYMS_STEPS / 2);
	}
	free(syms);
}

/* Each of these bytes decides: wrong, and nothing is found. */
static void damage_is_seen(void **state)
{
	struct {
		const char *what;
		size_t at;
		u8 xor ;
	} d[8];
	_cleanup_(made_deinit) struct made m;
	struct kallsyms_layout l;

	(void)state;
	make(&m, &(struct fake_kallsyms){ 0 });
#define DAMAGE(i, w, a, x) \
	d[i].what = (w);   \
	d[i].at = (a);     \
	d[i].xor = (x)
	DAMAGE(0, "number of symbols", m.ks.num_syms, 1);
	DAMAGE(1, "number of symbols, huge", m.ks.num_syms + 3, 0x7f);
	DAMAGE(2, "length of a name", m.ks.names, 0x10);
	DAMAGE(3, "second marker", m.ks.markers + 4, 1);
	DAMAGE(4, "token index", m.ks.token_index + 2 * 0x41, 1);
	DAMAGE(5, "token without its end", m.ks.token_table + strlen("_start"), 0x20);
	DAMAGE(6, "order of addresses", m.ks.offsets + 4 * 400 + 2, 0x40);
	DAMAGE(7, "base is no kernel address", m.ks.base + 7, 0x80);
	for (size_t i = 0; i < ARRAY_SIZE(d); i++) {
		m.bytes.data[d[i].at] ^= d[i].xor ;
		if (find(&m, m.bytes.len, &l) != -ENOENT)
			fail_msg("%s: not seen", d[i].what);
		m.bytes.data[d[i].at] ^= d[i].xor ;
	}
	assert_int_equal(find(&m, m.bytes.len, &l), 0);
}

/* Bytes that look like names from every position must not take more than a moment. */
static void hostile_names_end(void **state)
{
	struct buf b = { 0 };
	struct fake_kallsyms ks = { 0 };
	struct fake_sym few[1] = { { .addr = BASE, .type = 't', .name = "a" } };
	struct kallsyms_layout l;
	u64 steps = KALLSYMS_STEPS;
	size_t from = 0;

	(void)state;
	fake_tokens_default(&ks);
	for (u32 i = 0; i < 200000; i++)
		buf_add(&b, "\x20\x4e\0\0\0\0\0\0\2ta\2ta\2", 16);
	fake_kallsyms_write(&ks, few, 1, &b);
	assert_int_equal(kallsyms_find((u8 *)b.data, b.len, &from, &steps, &l), -ENOENT);
	buf_deinit(&b);
}

/* Token tables without end, each of 768 bytes, and no name before any: each looks at all before it. */
static void hostile_tokens_end(void **state)
{
	u64 steps = 1u << 20;
	struct buf b = { 0 };
	struct kallsyms_layout l;
	size_t from = 0;

	(void)state;
	for (u32 i = 0; i < 500; i++)
		fake_tokens_empty(&b);
	assert_int_equal(kallsyms_find((u8 *)b.data, b.len, &from, &steps, &l), -E2BIG);
	assert_int_equal(steps, 0);
	assert_true(from < b.len / 2);
	buf_deinit(&b);
}

/* What an honest table takes is far from what it may take. */
static void honest_has_room(void **state)
{
	_cleanup_(made_deinit) struct made m;
	struct kallsyms_layout l;
	u64 steps = KALLSYMS_STEPS;
	size_t from = 0;

	(void)state;
	make(&m, &(struct fake_kallsyms){ .seqs = true });
	assert_int_equal(kallsyms_find((u8 *)m.bytes.data, m.bytes.len, &from, &steps, &l), 0);
	assert_true(KALLSYMS_STEPS - steps < 100 * N + m.bytes.len);
}

static void lookups(void **state)
{
	_cleanup_(made_deinit) struct made m;
	struct kallsyms_want w[] = { { .name = "vfs_symbol_699" },
				     { .name = "same" },
				     { .name = "vfs_symbol_70" },
				     { .name = "vfs_symbol_7000" },
				     { .name = "" } };
	struct kallsyms_layout l;
	struct sym_table t;
	u32 i;

	(void)state;
	make(&m, &(struct fake_kallsyms){ .seqs = true });
	assert_int_equal(find(&m, m.bytes.len, &l), 0);
	kallsyms_lookup((u8 *)m.bytes.data, &l, w, ARRAY_SIZE(w));
	assert_true(w[0].found && w[0].addr == m.syms[699].addr);
	assert_true(w[1].found && w[1].addr == m.syms[50].addr); /* the first of seven */
	assert_true(w[2].found && w[2].addr == m.syms[70].addr);
	assert_false(w[3].found || w[4].found);
	assert_int_equal(kallsyms_expand((u8 *)m.bytes.data, &l, &t), 0);
	assert_true(sym_table_find(&t, "same", &i) && i == 50);
	assert_true(sym_table_find(&t, m.syms[300].name, &i) && i == 300);
	assert_false(sym_table_find(&t, "vfs_symbol_", &i));
	assert_false(sym_table_find(&t, "", &i));
	sym_table_deinit(&t);
}

static void by_address(void **state)
{
	_cleanup_(made_deinit) struct made m;
	struct kallsyms_layout l;
	struct sym_table t;
	u32 i, hint = 0;

	(void)state;
	make(&m, &(struct fake_kallsyms){ 0 });
	assert_int_equal(find(&m, m.bytes.len, &l), 0);
	assert_int_equal(kallsyms_expand((u8 *)m.bytes.data, &l, &t), 0);
	/* Of two at one address the first, from any hint, inside and at the edges. */
	for (u32 h = 0; h < N + 5; h += 13) {
		for (u32 s = 4; s < N; s += 2) {
			hint = h;
			assert_true(sym_table_at(&t, m.syms[s].addr, &hint, &i));
			assert_int_equal(i, s);
			assert_true(sym_table_at(&t, m.syms[s].addr + 0x1f, &hint, &i));
			assert_int_equal(i, s);
		}
	}
	assert_int_equal(sym_table_next(&t, 4, 0), m.syms[6].addr);
	assert_int_equal(sym_table_next(&t, N - 1, 77), 77);
	t.addr[0] = 5;
	assert_false(sym_table_at(&t, 4, &hint, &i));
	sym_table_deinit(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_layout),         cmocka_unit_test(real_tokens),
		cmocka_unit_test(cut_anywhere),         cmocka_unit_test(resumes),
		cmocka_unit_test(names_are_no_numbers), cmocka_unit_test(damage_is_seen),
		cmocka_unit_test(hostile_names_end),    cmocka_unit_test(lookups),
		cmocka_unit_test(by_address),           cmocka_unit_test(hostile_tokens_end),
		cmocka_unit_test(honest_has_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
