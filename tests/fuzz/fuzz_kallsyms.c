// SPDX-License-Identifier: Apache-2.0
/*
 * kallsyms' tables: raw bytes, or sound tables with damage (first byte odd). What is found lies
 * inside the bytes; every name ends inside the arena; addresses ascend; lookups agree with one
 * another.
 */
#include "symbols/kallsyms.h"

#include "tests/unit/test_symbols_fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BASE 0xffffffff81000000ull

static struct buf *sound(bool new_order, bool places)
{
	static struct buf tables[3];
	struct fake_kallsyms ks = { .new_order = new_order || places,
				    .seqs = true,
				    .all_relative = places,
				    .place_relative = places,
				    .relative_base = BASE,
				    .first = BASE + 0x1000 };
	struct fake_sym syms[300] = { 0 };
	struct buf *b = &tables[places ? 2 : new_order];

	if (b->len)
		return b;
	for (u32 i = 0; i < ARRAY_SIZE(syms); i++) {
		syms[i].addr = i < 2 && !places ? i : BASE + i / 2 * 16;
		syms[i].type = 't';
		snprintf(syms[i].name, sizeof(syms[i].name), i % 9 ? "vfs_x%u" : "same", i);
	}
	fake_tokens_default(&ks);
	fake_kallsyms_write(&ks, syms, ARRAY_SIZE(syms), b);
	return b;
}

static void check_table(const u8 *data, const struct kallsyms_layout *l)
{
	struct sym_table t;

	if (kallsyms_expand(data, l, &t))
		return;
	if (t.n != l->n_syms)
		abort();
	for (u32 i = 0; i < t.n; i++) {
		const char *name = sym_table_name(&t, i);
		u32 found, hint = i / 2;

		if (!memchr(name, '\0', t.arena_bytes - t.name[i] - 1))
			abort();
		if (i && t.addr[i] < t.addr[i - 1])
			abort();
		if (*name && (!sym_table_find(&t, name, &found) || found > i ||
			      strcmp(sym_table_name(&t, found), name)))
			abort();
		if (!sym_table_at(&t, t.addr[i], &hint, &found) || t.addr[found] != t.addr[i] ||
		    (found && t.addr[found - 1] == t.addr[i]))
			abort();
		if (i % 37 == 0 && *name) {
			struct kallsyms_want w = { .name = name };

			kallsyms_lookup(data, l, &w, 1);
			sym_table_find(&t, name, &found);
			if (!w.found || w.addr != t.addr[found])
				abort();
		}
	}
	sym_table_deinit(&t);
}

static void check(const u8 *data, size_t len)
{
	struct kallsyms_layout l;
	u64 steps = KALLSYMS_STEPS;
	size_t from = 0;

	if (kallsyms_find(data, len, &from, &steps, &l)) {
		if (from > len + 8)
			abort();
		return;
	}
	if (l.names_end > l.token_table || l.token_table >= l.token_index ||
	    l.token_index + 512 > len || l.offsets + 4ull * l.n_syms > len)
		abort();
	if (!kallsyms_place(data, &l, BASE + 0x1000))
		check_table(data, &l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fake_patches p;
	struct buf *b;
	size_t len;
	u8 *copy;

	if (!size || data[0] % 2 == 0) {
		check(data, size);
		return 0;
	}
	b = sound(data[0] & 2, data[0] & 8);
	len = data[0] & 4 ? b->len : b->len - data[0] % b->len;
	copy = malloc(len);
	memcpy(copy, b->data, len);
	fake_patch(&p, copy, len, data + 1, size - 1);
	check(copy, len);
	free(copy);
	return 0;
}
