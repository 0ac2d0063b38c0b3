// SPDX-License-Identifier: Apache-2.0
/* See profile_funcs.h. */
#include "tracers/profile_funcs.h"

#include "tracers/addr_hash.h"

#include <stdlib.h>
#include <string.h>

#define FUNCS_MIN 1024u

struct funcs {
	struct func *func; /* [0] is not used */
	u32 n, cap;
	/* open addressing, twice as many as there can be functions; a number, 0: empty */
	u32 n_slots;
	u32 *latest; /* by address: what was there last */
	u32 *all; /* by address and names */
	u64 key; /* addr_hash()'s */
	u64 bytes; /* of functions and their names */
	u64 n_shared;
};

/* FNV-1a; NULL is not "" */
static u32 hash_text(u32 h, const char *text)
{
	for (const char *c = text; c && *c; c++)
		h = (h ^ (u8)*c) * 0x01000193;
	return (h ^ (text ? 0x100u : 0)) * 0x01000193;
}

static bool is_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static u32 *latest_slot(const struct funcs *f, u64 ip)
{
	u32 h = addr_hash(ip, f->key) & (f->n_slots - 1);

	while (f->latest[h] && f->func[f->latest[h]].ip != ip)
		h = (h + 1) & (f->n_slots - 1);
	return &f->latest[h];
}

static u32 *all_slot(const struct funcs *f, const struct func *key)
{
	u32 h = addr_hash(key->ip, f->key ^ key->hash) & (f->n_slots - 1);

	for (; f->all[h]; h = (h + 1) & (f->n_slots - 1)) {
		const struct func *have = &f->func[f->all[h]];

		if (have->ip == key->ip && is_text(have->name, key->name) &&
		    is_text(have->module, key->module))
			break;
	}
	return &f->all[h];
}

static bool grow(struct funcs *f)
{
	u32 cap = f->cap ? 2 * f->cap : FUNCS_MIN, n_slots = 2 * cap;
	u32 *latest = calloc(n_slots, sizeof(*latest)), *all = calloc(n_slots, sizeof(*all));
	struct func *func = reallocarray(f->func, cap, sizeof(*func));
	u32 *was = f->latest, n_was = f->n_slots;

	if (func)
		f->func = func;
	if (!latest || !all || !func) {
		free(latest);
		free(all);
		return false;
	}
	free(f->all);
	f->cap = cap;
	f->n_slots = n_slots;
	f->latest = latest;
	f->all = all;
	for (u32 i = 0; i < n_was; i++) {
		if (was[i])
			*latest_slot(f, func[was[i]].ip) = was[i];
	}
	free(was);
	for (u32 id = 1; id <= f->n; id++)
		*all_slot(f, &func[id]) = id;
	return true;
}

/* 0: no memory */
static u32 add(struct funcs *f, const struct func *new)
{
	char *name = new->name ? strdup(new->name) : NULL;
	char *module = new->module ? strdup(new->module) : NULL;

	if (!name != !new->name || !module != !new->module) {
		free(name);
		free(module);
		return 0;
	}
	f->bytes += sizeof(*new) + (name ? strlen(name) : 0) + (module ? strlen(module) : 0);
	*all_slot(f, new) = f->n + 1;
	f->func[++f->n] = *new;
	f->func[f->n].name = name;
	f->func[f->n].module = module;
	return f->n;
}

static u32 hash_names(const struct funcs *f, const struct func *key)
{
	return hash_text(hash_text((u32)f->key, key->name), key->module);
}

/* Instead of one too many; not kept by its address, which would take as much. 0: no memory */
static u32 shared(struct funcs *f)
{
	struct func key = { .ip = OUTPUT_SHARED_ADDR, .name = OUTPUT_SHARED_NAME };
	u32 id;

	key.hash = hash_names(f, &key);
	id = *all_slot(f, &key);
	f->n_shared++;
	return id ? id : add(f, &key);
}

static bool is_full(const struct funcs *f)
{
	return f->n_shared || f->n >= OUTPUT_ADDRS_MAX || f->bytes >= OUTPUT_NAMES_MAX;
}

u32 funcs_get(struct funcs *f, u64 ip, const struct output_names *names)
{
	u32 *latest = latest_slot(f, ip), when = names_when(names), id;
	struct func key = { .ip = ip, .when = when };
	struct kernel_sym sym;
	u64 off;

	if (*latest && f->func[*latest].when == when)
		return *latest;
	if (names->sym(names->arg, ip, &sym, &off)) {
		key.name = sym.name;
		key.module = sym.module;
	}
	key.hash = hash_names(f, &key);
	if (f->n + 2 > f->cap) {
		if (!grow(f))
			return 0;
		latest = latest_slot(f, ip);
	}
	id = *all_slot(f, &key);
	if (!id && is_full(f))
		return shared(f);
	if (!id)
		id = add(f, &key);
	if (!id)
		return 0;
	f->func[id].when = when;
	return *latest = id;
}

u64 funcs_shared(const struct funcs *f)
{
	return f->n_shared;
}

struct func *funcs_at(const struct funcs *f, u32 id)
{
	return &f->func[id];
}

struct funcs *funcs_create(void)
{
	struct funcs *f = calloc(1, sizeof(*f));

	if (f)
		f->key = addr_hash_key();
	if (f && grow(f))
		return f;
	funcs_destroy(f);
	return NULL;
}

void funcs_destroy(struct funcs *f)
{
	if (!f)
		return;
	for (u32 id = 1; id <= f->n; id++) {
		free((char *)(uintptr_t)f->func[id].name);
		free((char *)(uintptr_t)f->func[id].module);
	}
	free(f->func);
	free(f->latest);
	free(f->all);
	free(f);
}
