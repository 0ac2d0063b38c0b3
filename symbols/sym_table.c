// SPDX-License-Identifier: Apache-2.0
/* Symbols by address and by name. */
#include "symbols/sym_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define AHEAD 16 /* the places are all over 2 MiB: ask for them early */

int sym_table_alloc(struct sym_table *t, u32 n, size_t arena_bytes)
{
	u32 size = 64;

	*t = (struct sym_table){ 0 };
	if (!n || n > SYM_COUNT_MAX || arena_bytes > UINT32_MAX)
		return -E2BIG;
	while (size / 4 * 3 < n)
		size *= 2;
	t->addr = malloc(n * sizeof(*t->addr));
	t->name = malloc(n * sizeof(*t->name));
	t->hash = calloc(size, sizeof(*t->hash));
	t->hashes = malloc(n * sizeof(*t->hashes));
	t->arena = malloc(arena_bytes);
	if (!t->addr || !t->name || !t->hash || !t->hashes || !t->arena) {
		sym_table_deinit(t);
		return -ENOMEM;
	}
	t->arena_bytes = arena_bytes;
	t->n = n;
	t->hash_mask = size - 1;
	return 0;
}

void sym_table_deinit(struct sym_table *t)
{
	free(t->addr);
	free(t->name);
	free(t->hash);
	free(t->hashes);
	free(t->arena);
	*t = (struct sym_table){ 0 };
}

/* Eight bytes a step: 150,000 names are hashed at each attach. */
u32 sym_name_hash(const char *name, size_t len)
{
	u64 h = 0x9e3779b97f4a7c15ull ^ len;
	u64 v;

	for (; len >= sizeof(v); len -= sizeof(v), name += sizeof(v)) {
		memcpy(&v, name, sizeof(v));
		h = (h ^ v) * 0xff51afd7ed558ccdull;
		h ^= h >> 32;
	}
	v = 0;
	memcpy(&v, name, len);
	h = (h ^ v) * 0xc4ceb9fe1a85ec53ull;
	h ^= h >> 32;
	h *= 0xff51afd7ed558ccdull;
	return (u32)(h >> 32);
}

/* @budget runs out only for names made to collide: a quarter of the places is free. */
static int hash_add(struct sym_table *t, u32 i, u64 *budget)
{
	u32 h = t->hashes[i];

	for (u32 probe = 0; (*budget)--; probe++) {
		u64 *slot = &t->hash[(h + probe) & t->hash_mask];

		if (!*slot) {
			*slot = (u64)h << 32 | (i + 1);
			return 0;
		}
		if (*slot >> 32 == h &&
		    !strcmp(sym_table_name(t, (u32)*slot - 1), sym_table_name(t, i)))
			return 0;
	}
	return -EUCLEAN;
}

int sym_table_index(struct sym_table *t)
{
	u64 budget = 65536 + 32ull * t->n;

	for (u32 i = 0; i < t->n; i++) {
		int rc = hash_add(t, i, &budget);

		if (rc)
			return rc;
		if (i + AHEAD < t->n)
			__builtin_prefetch(&t->hash[t->hashes[i + AHEAD] & t->hash_mask], 1);
	}
	free(t->hashes);
	t->hashes = NULL;
	return 0;
}

bool sym_table_find(const struct sym_table *t, const char *name, u32 *ret)
{
	u32 h = sym_name_hash(name, strlen(name));

	if (!t->n)
		return false;
	for (u32 probe = 0; probe <= t->hash_mask; probe++) {
		u64 slot = t->hash[(h + probe) & t->hash_mask];

		if (!slot)
			return false;
		if (slot >> 32 == h && !strcmp(sym_table_name(t, (u32)slot - 1), name)) {
			*ret = (u32)slot - 1;
			return true;
		}
	}
	return false;
}

/* The first symbol at the address of symbol @i. There are a few; a guest that lies has a million there. */
static u32 first_there(const struct sym_table *t, u32 i)
{
	u64 addr = t->addr[i];
	u32 step = 1, low, high = i;

	while (high >= step && t->addr[high - step] == addr) {
		high -= step;
		step *= 2;
	}
	low = high >= step ? high - step + 1 : 0;
	while (low < high) {
		u32 mid = low + (high - low) / 2;

		if (t->addr[mid] == addr)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

bool sym_table_at(const struct sym_table *t, u64 addr, u32 *hint, u32 *ret)
{
	u32 low = 0, high = t->n;

	if (!t->n || t->addr[0] > addr)
		return false;
	if (*hint < t->n && t->addr[*hint] <= addr) {
		u32 stop = MIN(t->n - *hint, 64u) + *hint;

		low = *hint;
		while (low + 1 < stop && t->addr[low + 1] <= addr)
			low++;
		high = low + 1 < stop ? low + 1 : t->n;
	}
	while (high - low > 1) {
		u32 mid = low + (high - low) / 2;

		if (t->addr[mid] <= addr)
			low = mid;
		else
			high = mid;
	}
	*hint = low;
	*ret = first_there(t, low);
	return true;
}

u64 sym_table_next(const struct sym_table *t, u32 i, u64 end)
{
	u64 addr = t->addr[i];
	u32 step = 1, low = i, high;

	while (step < t->n - low && t->addr[low + step] == addr) {
		low += step;
		step *= 2;
	}
	high = MIN(step, t->n - low) + low;
	while (high - low > 1) {
		u32 mid = low + (high - low) / 2;

		if (t->addr[mid] == addr)
			low = mid;
		else
			high = mid;
	}
	return high < t->n ? t->addr[high] : end;
}
