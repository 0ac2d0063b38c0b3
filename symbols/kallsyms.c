// SPDX-License-Identifier: Apache-2.0
/*
 * The tables as scripts/kallsyms.c emits them, each aligned to 8 bytes, since v7.0 to 4:
 *
 *   up to v6.3   offsets, relative_base, num_syms, names, markers, [seqs_of_names],
 *                token_table, token_index
 *   since v6.4   num_syms, names, markers, token_table, token_index, offsets, relative_base,
 *                seqs_of_names          (commit 404bad70fcf7 "change the output order")
 *   since v7.0   the same without relative_base: offsets are relative to the place of each
 *                (commit a081b5789255 "kallsyms: Get rid of kallsyms relative base")
 *
 * seqs_of_names, 3 bytes a symbol, came with v6.2 and was taken back to 6.1 by Debian; markers are
 * 32 bits wide since v4.20. The order is found out from the bytes, never from a version.
 */
#include "symbols/kallsyms.h"

#include "symbols/mem.h"

#include <errno.h>
#include <stdlib.h>

#define N_TOKENS       256
#define INDEX_BYTES    512u
#define TOKEN_LEN_MAX  511
#define TOKEN_STEPS    (1u << 23) /* more than any table takes: all of it for each of 64 places */
#define NAMES_PER_MARK 256
#define N_SYMS_MIN     64u /* a kernel has thousands; spares walks from small numbers */
#define NAMES_SPAN_MAX (32u << 20)
#define NAME_STEPS     4u /* a name takes longer than a position, and is asked for again */

struct tokens {
	const u8 *table;
	u16 index[N_TOKENS];
	u16 len[N_TOKENS];
	u64 first8[N_TOKENS]; /* the first bytes of each, zero-filled */
};

/* @n steps more; false: there are not so many left. */
static bool charge(u64 *steps, u64 n)
{
	if (*steps < n) {
		*steps = 0;
		return false;
	}
	*steps -= n;
	return true;
}

static size_t align_to(size_t n, size_t align)
{
	return (n + align - 1) & ~(align - 1);
}

/* What each table of @l is aligned to. */
static size_t alignment(const struct kallsyms_layout *l)
{
	return l->place_relative ? 4 : 8;
}

/* First look at a possible token_index: 0, then steps as short as tokens are. */
static bool index_plausible(const u8 *p)
{
	u64 v = load_u64(p);
	u16 i1 = (u16)(v >> 16), i2 = (u16)(v >> 32), i3 = (u16)(v >> 48);
	u32 last = 0;

	if ((u16)v || !i1 || i1 >= i2 || i2 >= i3 || i3 > 3 * TOKEN_LEN_MAX)
		return false;
	for (u32 i = 1; i < N_TOKENS; i++) {
		u16 at = load_u16(p + 2 * (size_t)i);

		if (at <= last || at - last > TOKEN_LEN_MAX + 1)
			return false;
		last = at;
	}
	return true;
}

/* Do the 256 strings lie at @table exactly as @t->index says, all printable? */
static bool tokens_match(const u8 *table, size_t room, u64 *steps, struct tokens *t)
{
	for (u32 i = 0; i < N_TOKENS; i++) {
		size_t at = t->index[i];
		size_t max = MIN(room - at, (size_t)TOKEN_LEN_MAX + 1);
		size_t n = 0;

		while (n < max && table[at + n] >= 0x20 && table[at + n] <= 0x7e)
			n++;
		if (!charge(steps, n + 1) || n == max || table[at + n])
			return false;
		if (i + 1 < N_TOKENS && at + n + 1 != t->index[i + 1])
			return false;
		t->len[i] = (u16)n;
		t->first8[i] = 0;
		memcpy(&t->first8[i], table + at, MIN(n, (size_t)8));
	}
	t->table = table;
	return true;
}

/* The token table ends right before the index; only the last token's length is not known. */
static bool tokens_before(const u8 *data, size_t index, u64 *steps, struct tokens *t)
{
	size_t last;

	for (u32 i = 0; i < N_TOKENS; i++)
		t->index[i] = load_u16(data + index + 2 * (size_t)i);
	last = t->index[N_TOKENS - 1];
	for (size_t bytes = align_to(last + 1, 4); bytes <= align_to(last + TOKEN_LEN_MAX + 1, 8);
	     bytes += 4) {
		if (bytes > index)
			return false;
		if (!tokens_match(data + index - bytes, bytes, steps, t))
			continue;
		/* Only alignment may follow the last string. */
		if (bytes - (last + t->len[N_TOKENS - 1] + 1) < 8)
			return true;
	}
	return false;
}

/* nm's letters (scripts/kallsyms.c takes them as they are); '?' is an unknown one. */
static bool type_valid(u8 c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '?' || c == '-';
}

/*
 * One name: length, then token numbers. Lengths from 128 on take two bytes since v6.1, low seven
 * bits first (commit 73bbb94466fd "support big kernel symbols"); before, names were never so long.
 */
static bool name_length(const u8 *data, size_t *pos, size_t end, u32 *ret)
{
	u32 len;

	if (*pos >= end)
		return false;
	len = data[(*pos)++];
	if (len & 0x80) {
		if (*pos >= end)
			return false;
		len = (len & 0x7f) | (u32)data[(*pos)++] << 7;
	}
	if (!len || len > end - *pos)
		return false;
	*ret = len;
	return true;
}

static u32 expanded_length(const u8 *p, u32 n, const struct tokens *t)
{
	u32 sum = 0;

	for (u32 i = 0; i < n; i++)
		sum += t->len[p[i]];
	return sum;
}

/* The first character of the expansion; 0 when it is empty. */
static u8 first_char(const u8 *p, u32 n, const struct tokens *t)
{
	for (u32 i = 0; i < n; i++)
		if (t->len[p[i]])
			return t->table[t->index[p[i]]];
	return 0;
}

static bool walk_names(const u8 *data, const struct tokens *t, u64 *steps,
		       struct kallsyms_layout *l)
{
	size_t pos = l->names;
	size_t text = 0;

	for (u32 i = 0; i < l->n_syms; i++) {
		u32 n, len;

		if (!name_length(data, &pos, l->token_table, &n) || !charge(steps, NAME_STEPS + n))
			return false;
		len = expanded_length(data + pos, n, t);
		if (len < 2 || len > SYM_NAME_MAX || !type_valid(first_char(data + pos, n, t)))
			return false;
		text += len + 1;
		pos += n;
	}
	l->names_end = pos;
	l->text_bytes = text;
	return text < UINT32_MAX;
}

/* Every 256th name's offset must be what the markers say. */
static bool markers_match(const u8 *data, const struct kallsyms_layout *l, size_t markers)
{
	size_t pos = l->names;

	for (u32 i = 0; i < l->n_syms; i++) {
		u32 n;

		if (i % NAMES_PER_MARK == 0 &&
		    load_u32(data + markers + (size_t)i / NAMES_PER_MARK * 4) != pos - l->names)
			return false;
		if (!name_length(data, &pos, l->names_end, &n))
			return false;
		pos += n;
	}
	return true;
}

static size_t markers_bytes(const struct kallsyms_layout *l)
{
	return (size_t)(l->n_syms + NAMES_PER_MARK - 1) / NAMES_PER_MARK * 4;
}

/*
 * Any four bytes of names may be num_syms before names that are aligned to 4, and who begins to walk in the middle
 * of names soon does so in step with them. So first: markers end where the tokens begin, and the first one is 0.
 */
static bool may_be_names(const u8 *data, const struct kallsyms_layout *l)
{
	size_t bytes = markers_bytes(l);

	return !l->place_relative ||
	       (bytes <= l->token_table - l->names && !load_u32(data + l->token_table - bytes));
}

/*
 * num_syms at @pos? Then names, markers and perhaps seqs_of_names fill the bytes up to the tokens. No name
 * begins with zeros, so these are what is between a number and the next table at 8 bytes.
 */
static bool names_at(const u8 *data, size_t pos, const struct tokens *t, u64 *steps,
		     struct kallsyms_layout *l)
{
	size_t markers, behind;

	l->n_syms = load_u32(data + pos);
	l->place_relative = load_u32(data + pos + 4) != 0;
	l->names = pos + alignment(l);
	if (pos % alignment(l) || l->n_syms < N_SYMS_MIN || l->n_syms > SYM_COUNT_MAX)
		return false;
	if (l->n_syms > (l->token_table - l->names) / 2)
		return false;
	if (!may_be_names(data, l) || !walk_names(data, t, steps, l))
		return false;
	markers = align_to(l->names_end, alignment(l));
	behind = align_to(markers + markers_bytes(l), alignment(l));
	if (behind != l->token_table &&
	    behind + align_to((size_t)l->n_syms * 3, 8) != l->token_table)
		return false;
	return markers_match(data, l, markers);
}

/*
 * kallsyms_sym_address() v6.1: with CONFIG_KALLSYMS_ABSOLUTE_PERCPU (x86 until v6.15, commit
 * "kallsyms: Remove KALLSYMS_ABSOLUTE_PERCPU") per-CPU symbols are kept as they are and all others
 * as negative numbers; without it every offset is unsigned and relative.
 */
static u64 symbol_address(const u8 *data, const struct kallsyms_layout *l, u32 i)
{
	size_t place = l->offsets + (size_t)i * 4;
	u32 off = load_u32(data + place);

	if (l->place_relative)
		return l->relative_base + place + (u64)(s64)(s32)off;
	if (!l->absolute_percpu)
		return l->relative_base + off;
	if ((s32)off >= 0)
		return off;
	return l->relative_base - 1 - (u64)(s64)(s32)off;
}

/* Do the offsets at @offsets with the base at @base give ascending kernel addresses? */
static bool offsets_match(const u8 *data, size_t offsets, size_t base, struct kallsyms_layout *l)
{
	u64 last = 0;

	l->offsets = offsets;
	l->relative_base = load_u64(data + base);
	l->absolute_percpu = (s32)load_u32(data + offsets + (size_t)(l->n_syms - 1) * 4) < 0;
	if (!(l->relative_base >> 63) || l->relative_base % PAGE_SIZE)
		return false;
	for (u32 i = 0; i < l->n_syms; i++) {
		u64 addr = symbol_address(data, l, i);

		if (addr < last)
			return false;
		last = addr;
	}
	return last >> 63;
}

/* The same for offsets relative to their own places: distances from the first byte ascend. */
static bool places_match(const u8 *data, size_t offsets, struct kallsyms_layout *l)
{
	s64 last = INT64_MIN;

	l->offsets = offsets;
	for (u32 i = 0; i < l->n_syms; i++) {
		s64 at = (s64)symbol_address(data, l, i);

		if (at < last)
			return false;
		last = at;
	}
	return true;
}

int kallsyms_place(const u8 *data, struct kallsyms_layout *l, u64 first)
{
	u64 low, high;

	if (!l->place_relative)
		return 0;
	l->relative_base = first;
	low = symbol_address(data, l, 0);
	high = symbol_address(data, l, l->n_syms - 1);
	return low >> 63 && low <= high ? 0 : -EUCLEAN;
}

/* -EAGAIN: more bytes are needed to tell. */
static int find_offsets(const u8 *data, size_t len, struct kallsyms_layout *l)
{
	size_t bytes = align_to((size_t)l->n_syms * 4, alignment(l));
	size_t num_syms = l->names - alignment(l);
	size_t behind = l->token_index + INDEX_BYTES;

	if (l->place_relative && len - behind < bytes)
		return -EAGAIN;
	if (l->place_relative)
		return places_match(data, behind, l) ? 0 : -ENOENT;
	if (num_syms >= bytes + 8 && offsets_match(data, num_syms - 8 - bytes, num_syms - 8, l))
		return 0;
	if (len - behind < bytes + 8)
		return -EAGAIN;
	return offsets_match(data, behind, behind + bytes, l) ? 0 : -ENOENT;
}

/* Every position before the tokens may be where the names begin. */
static int tables_around(const u8 *data, size_t len, const struct tokens *t, u64 *steps,
			 struct kallsyms_layout *l)
{
	size_t first = l->token_table > NAMES_SPAN_MAX ? l->token_table - NAMES_SPAN_MAX : 0;

	if (l->token_table < 16)
		return -ENOENT;
	for (size_t pos = l->token_table - 16; pos >= first && charge(steps, 1); pos -= 4) {
		if (names_at(data, pos, t, steps, l))
			return find_offsets(data, len, l);
		if (pos < 4)
			break;
	}
	return -ENOENT;
}

int kallsyms_find(const u8 *data, size_t len, size_t *from, u64 *steps, struct kallsyms_layout *ret)
{
	size_t pos = align_to(*from, 4);

	for (; pos + INDEX_BYTES <= len && charge(steps, 1); pos += 4) {
		struct kallsyms_layout l = { .token_index = pos };
		struct tokens t;
		int rc;

		if (!index_plausible(data + pos) || !tokens_before(data, pos, steps, &t))
			continue;
		l.token_table = (size_t)(t.table - data);
		rc = tables_around(data, len, &t, steps, &l);
		if (!rc) {
			*ret = l;
			return 0;
		}
		if (rc == -EAGAIN)
			break;
	}
	*from = pos;
	return *steps ? -ENOENT : -E2BIG;
}

static void expand_name(const u8 *p, u32 n, const struct tokens *t, char *out)
{
	for (u32 i = 0; i < n; i++) {
		u32 len = t->len[p[i]];

		/* Most tokens are short: one store, which may run over, instead of a call. */
		memcpy(out, &t->first8[p[i]], 8);
		if (len > 8)
			memcpy(out + 8, t->table + t->index[p[i]] + 8, len - 8);
		out += len;
	}
	*out = '\0';
}

#define EXPAND_SLACK 16 /* what expand_name() may write behind the name */

void kallsyms_lookup(const u8 *data, const struct kallsyms_layout *l, struct kallsyms_want *wants,
		     size_t n_wants)
{
	char name[SYM_NAME_MAX + EXPAND_SLACK];
	bool lengths[SYM_NAME_MAX + 1] = { false };
	size_t pos = l->names;
	u64 steps = TOKEN_STEPS;
	struct tokens t;

	for (size_t w = 0; w < n_wants; w++) {
		wants[w].found = false;
		if (strlen(wants[w].name) < SYM_NAME_MAX)
			lengths[strlen(wants[w].name) + 1] = true;
	}
	if (!tokens_before(data, l->token_index, &steps, &t))
		return;
	for (u32 i = 0; i < l->n_syms; i++) {
		u32 n, len;

		if (!name_length(data, &pos, l->names_end, &n))
			return;
		len = expanded_length(data + pos, n, &t);
		if (len <= SYM_NAME_MAX && lengths[len]) {
			expand_name(data + pos, n, &t, name);
			for (size_t w = 0; w < n_wants; w++) {
				if (wants[w].found || strcmp(name + 1, wants[w].name) != 0)
					continue;
				wants[w].found = true;
				wants[w].addr = symbol_address(data, l, i);
			}
		}
		pos += n;
	}
}

int kallsyms_expand(const u8 *data, const struct kallsyms_layout *l, struct sym_table *t)
{
	struct tokens tok;
	size_t pos = l->names;
	u64 steps = TOKEN_STEPS;
	size_t out = 0;
	int rc;

	*t = (struct sym_table){ 0 };
	if (!tokens_before(data, l->token_index, &steps, &tok))
		return -EUCLEAN;
	rc = sym_table_alloc(t, l->n_syms, l->text_bytes + EXPAND_SLACK);
	if (rc)
		return rc;
	for (u32 i = 0; i < l->n_syms; i++) {
		u32 n, len;

		if (!name_length(data, &pos, l->names_end, &n))
			goto out;
		len = expanded_length(data + pos, n, &tok);
		if (len > l->text_bytes - out || len + 1 > l->text_bytes - out)
			goto out;
		if (len < 2)
			goto out;
		expand_name(data + pos, n, &tok, t->arena + out);
		sym_table_set(t, i, symbol_address(data, l, i), out, len);
		out += len + 1;
		pos += n;
	}
	rc = sym_table_index(t);
	if (!rc)
		return 0;
out: /* the bytes changed since kallsyms_find(), or collide */
	sym_table_deinit(t);
	return -EUCLEAN;
}
