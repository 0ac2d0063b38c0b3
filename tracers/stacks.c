// SPDX-License-Identifier: Apache-2.0
/* Stacks, each kept once. See stacks.h. */
#include "tracers/stacks.h"

#include "tracers/addr_hash.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS (2 * STACKS_MAX) /* a power of two */
#define PROBES \
	256u /* slots looked at; half of them full, some 60 are the most that chance asks for */

struct stacks {
	atomic_uint refs;
	u64 key, refused;
	u32 n, n_addr;
	struct trace_stack *slot[SLOTS]; /* by hash */
};

struct stacks *stacks_create(void)
{
	struct stacks *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	atomic_init(&s->refs, 1);
	s->key = addr_hash_key();
	return s;
}

struct stacks *stacks_ref(struct stacks *s)
{
	if (s)
		atomic_fetch_add(&s->refs, 1);
	return s;
}

void stacks_destroy(struct stacks *s)
{
	if (!s || atomic_fetch_sub(&s->refs, 1) > 1)
		return;
	for (u32 i = 0; s->n && i < SLOTS; i++)
		free(s->slot[i]);
	free(s);
}

static u32 hash(const u32 *low, u32 n, u64 key)
{
	u64 h = words_hash(n, key);

	for (u32 i = 0; i < n; i++)
		h = words_hash(low[i], h);
	/* some keys lead words that follow one another to places that do: once more (MurmurHash3's finalizer) */
	h = (h ^ h >> 33) * 0xff51afd7ed558ccd;
	h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53;
	return (u32)(h >> 32);
}

const struct trace_stack *stacks_get(struct stacks *s, const u32 *low, u32 n)
{
	struct trace_stack *new;
	u32 i = hash(low, n, s->key) & (SLOTS - 1), probes = 0;

	for (; s->slot[i] && probes < PROBES; i = (i + 1) & (SLOTS - 1), probes++) {
		if (s->slot[i]->n == n && !memcmp(s->slot[i]->low, low, n * sizeof(*low)))
			return s->slot[i];
	}
	new = probes < PROBES && s->n < STACKS_MAX &&n <= STACKS_MAX_ADDR - s->n_addr
		      ? malloc(sizeof(*new) + n * sizeof(*low))
		      : NULL;
	if (!new) {
		s->refused++;
		return NULL;
	}
	new->n = n;
	memcpy(new->low, low, n * sizeof(*low));
	s->n++;
	s->n_addr += n;
	s->slot[i] = new;
	return new;
}

u64 stacks_refused(const struct stacks *s)
{
	return s->refused;
}
