// SPDX-License-Identifier: Apache-2.0
/* A direct-mapped cache of symbol look-ups. See output.h. */
#include "tracers/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void keep_up(struct names_cache *c)
{
	u32 when = names_when(&c->below);

	if (when == c->when)
		return;
	c->when = when;
	memset(c->slots, 0, c->n_slots * sizeof(*c->slots));
	if (c->funcs)
		memset(c->funcs, 0, c->n_funcs * sizeof(*c->funcs));
}

static bool cached_sym(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	struct names_cache *c = arg;
	struct names_cache_slot *s =
		&c->slots[(addr * 0x9e3779b97f4a7c15) >> 32 & (c->n_slots - 1)];

	keep_up(c);
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

static bool cached_func(void *arg, u64 ip, struct kernel_func *ret)
{
	struct names_cache *c = arg;
	struct names_cache_func *f;

	keep_up(c);
	if (!c->funcs)
		c->funcs = calloc(c->n_funcs, sizeof(*c->funcs));
	if (!c->funcs)
		return c->below.func(c->below.arg, ip, ret);
	f = &c->funcs[(ip * 0x9e3779b97f4a7c15) >> 32 & (c->n_funcs - 1)];
	if (f->ip != ip || !ip) {
		f->known = c->below.func(c->below.arg, ip, &f->func);
		f->ip = ip;
	}
	if (f->known)
		*ret = f->func;
	return f->known;
}

static const char *enumerator(void *arg, const struct kernel_val *v, s64 val)
{
	struct names_cache *c = arg;

	return c->below.enumerator(c->below.arg, v, val);
}

int names_cache_init(struct names_cache *c, const struct output_names *below, u32 slots,
		     struct output_names *ret)
{
	c->below = *below;
	c->when = names_when(below);
	c->n_slots = slots;
	c->n_funcs = MIN(slots, NAMES_CACHE_FUNCS);
	c->slots = calloc(c->n_slots, sizeof(*c->slots));
	if (!c->slots)
		return -ENOMEM;
	c->funcs = NULL;
	*ret = (struct output_names){ cached_sym, c, below->func ? cached_func : NULL,
				      below->enumerator ? enumerator : NULL, below->when };
	return 0;
}

void names_cache_deinit(struct names_cache *c)
{
	free(c->slots);
	free(c->funcs);
	c->slots = NULL;
	c->funcs = NULL;
}
