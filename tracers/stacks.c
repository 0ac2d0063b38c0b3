// SPDX-License-Identifier: Apache-2.0
/* Stacks, each kept once. See stacks.h. */
#include "tracers/stacks.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS (2 * STACKS_MAX) /* a power of two */

struct stacks {
	atomic_uint refs;
	u64 refused;
	u32 n, n_addr;
	struct trace_stack *slot[SLOTS]; /* by hash */
};

struct stacks *stacks_create(void)
{
	struct stacks *s = calloc(1, sizeof(*s));

	if (s)
		atomic_init(&s->refs, 1);
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

static u32 hash(const u32 *low, u32 n)
{
	u64 h = n;

	for (u32 i = 0; i < n; i++)
		h = (h ^ low[i]) * 0x9e3779b97f4a7c15;
	return (u32)(h >> 32);
}

const struct trace_stack *stacks_get(struct stacks *s, const u32 *low, u32 n)
{
	struct trace_stack *new;
	u32 i = hash(low, n) & (SLOTS - 1);

	for (; s->slot[i]; i = (i + 1) & (SLOTS - 1)) {
		if (s->slot[i]->n == n && !memcmp(s->slot[i]->low, low, n * sizeof(*low)))
			return s->slot[i];
	}
	new = s->n < STACKS_MAX &&n <= STACKS_MAX_ADDR - s->n_addr
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
