// SPDX-License-Identifier: Apache-2.0
/* A direct-mapped cache of symbol look-ups. See output.h. */
#include "tracers/output.h"

#include <errno.h>
#include <stdlib.h>

static bool cached_sym(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	struct names_cache *c = arg;
	struct names_cache_slot *s =
		&c->slots[(addr * 0x9e3779b97f4a7c15) >> 32 & (NAMES_CACHE_SLOTS - 1)];

	if (s->addr != addr || !addr) {
		s->off = 0;
		s->sym = (struct kernel_sym){ 0 };
		if (!c->below.sym(c->below.arg, addr, &s->sym, &s->off))
			s->sym.name = NULL;
		s->addr = addr;
	}
	if (!s->sym.name)
		return false;
	*ret = s->sym;
	*off_ret = s->off;
	return true;
}

int names_cache_init(struct names_cache *c, const struct output_names *below,
		     struct output_names *ret)
{
	c->below = *below;
	c->slots = calloc(NAMES_CACHE_SLOTS, sizeof(*c->slots));
	if (!c->slots)
		return -ENOMEM;
	*ret = (struct output_names){ cached_sym, c };
	return 0;
}

void names_cache_deinit(struct names_cache *c)
{
	free(c->slots);
	c->slots = NULL;
}
