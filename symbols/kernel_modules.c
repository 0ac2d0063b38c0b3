// SPDX-License-Identifier: Apache-2.0
/* Modules that come and go: which were there when, and whether the guest's list has changed. */
#include "symbols/kernel_priv.h"

#include "symbols/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MODULES_MAX      4096u
#define RETIRED_SYMS_MAX (1u << 19) /* some 25 MB with their names */
#define FNV_BASIS        0xcbf29ce484222325ull
#define FNV_PRIME        0x100000001b3ull

void kernel_names_lock(const struct kernel *k)
{
	pthread_rwlock_rdlock(k->names);
}

void kernel_names_unlock(const struct kernel *k)
{
	pthread_rwlock_unlock(k->names);
}

u32 kernel_epoch(const struct kernel *k)
{
	return k->epoch;
}

u32 kernel_generation(const struct kernel *k)
{
	return k->generation;
}

static u64 mix(u64 hash, u64 v)
{
	return (hash ^ v) * FNV_PRIME;
}

u64 modules_sign(const struct kernel *k)
{
	const struct module_layout *l = &k->module_layout;
	u64 hash = FNV_BASIS, node;

	if (!k->has_modules)
		return hash;
	if (mem_u64(&k->mem, k->modules_head, &node))
		return 0;
	for (u32 i = 0; node != k->modules_head; i++) {
		u64 mod = node - l->list, base = 0;
		u32 state;

		if (i == MODULES_MAX || mem_u32(&k->mem, mod + l->state, &state) ||
		    mem_u64(&k->mem, mod + l->mems[0].base, &base) || mem_u64(&k->mem, node, &node))
			return 0;
		hash = mix(mix(mix(hash, mod), state), base);
	}
	return hash ? hash : FNV_BASIS;
}

bool kernel_stale(const struct kernel *k)
{
	u64 sign = modules_sign(k);

	return !sign || sign != k->modules_sign;
}

static bool same_module(const struct kernel_module *a, const struct kernel_module *b)
{
	return a->struct_addr == b->struct_addr && a->base == b->base && !strcmp(a->name, b->name);
}

/* Its number in @s, or n_mods. The lists are mostly alike: near @hint. */
static u32 find_module(const struct module_set *s, const struct kernel_module *m, u32 hint)
{
	for (u32 n = 0; n < s->n_mods; n++) {
		u32 i = (hint + n) % s->n_mods;

		if (same_module(&s->mods[i], m))
			return i;
	}
	return s->n_mods;
}

static void drop_oldest(struct kernel *k)
{
	struct retired_module **at = &k->retired;

	while (*at && (*at)->next)
		at = &(*at)->next;
	if (!*at)
		return;
	k->n_retired_syms -= (*at)->set.n_syms;
	module_set_deinit(&(*at)->set);
	free(*at);
	*at = NULL;
}

static int retire(struct kernel *k, u32 i)
{
	struct retired_module *r = calloc(1, sizeof(*r));

	if (!r || module_set_extract(&k->mods, i, &r->set)) {
		free(r);
		return -ENOMEM;
	}
	r->born = k->born[i];
	r->died = k->epoch + 1;
	r->next = k->retired;
	k->retired = r;
	k->n_retired_syms += r->set.n_syms;
	while (k->n_retired_syms > RETIRED_SYMS_MAX && k->retired->next)
		drop_oldest(k);
	return 0;
}

/* Epochs of @set's modules; true when it is not the set there was. */
static bool date(const struct kernel *k, const struct module_set *set, u32 *born)
{
	bool other = set->n_mods != k->mods.n_mods;

	for (u32 i = 0; i < set->n_mods; i++) {
		u32 was = k->mods.n_mods ? find_module(&k->mods, &set->mods[i], i) : 0;
		bool is_new = was == k->mods.n_mods;

		born[i] = is_new ? k->epoch + 1 : k->born[was];
		other |= is_new;
	}
	return other;
}

int modules_replace(struct kernel *k, struct module_set *set)
{
	u32 *born = calloc(set->n_mods + 1, sizeof(*born));
	struct module_set old;
	bool other;
	int rc = 0;

	if (!born)
		return -ENOMEM;
	pthread_rwlock_wrlock(k->names);
	other = date(k, set, born);
	for (u32 i = 0; other && !rc && i < k->mods.n_mods; i++) {
		if (!set->n_mods || find_module(set, &k->mods.mods[i], i) == set->n_mods)
			rc = retire(k, i);
	}
	if (!rc) {
		old = k->mods;
		k->mods = *set;
		*set = old; /* for the caller to free */
		free(k->born);
		k->born = born;
		k->epoch += other;
		k->generation++;
	}
	pthread_rwlock_unlock(k->names);
	if (rc)
		free(born);
	else
		module_set_deinit(set);
	return rc;
}

void modules_deinit(struct kernel *k)
{
	while (k->retired)
		drop_oldest(k);
	module_set_deinit(&k->mods);
	free(k->born);
	if (k->names)
		pthread_rwlock_destroy(k->names);
	free(k->names);
}

void module_sym_own(const struct module_set *set, const struct module_sym *s, u64 next,
		    struct kernel_sym *ret)
{
	*ret = (struct kernel_sym){ .name = module_sym_name(set, s),
				    .module = set->mods[s->module].name,
				    .addr = s->addr,
				    .size_bytes = next - s->addr,
				    .type = s->type };
}

/* A module that was at @addr in @epoch and is no more, and which symbol that is; NULL: there was none. */
static const struct module_set *retired_at(const struct kernel *k, u64 addr, u32 epoch,
					   struct kernel_sym *ret)
{
	for (const struct retired_module *r = k->retired; r; r = r->next) {
		const struct module_sym *s;
		u64 next;

		if (epoch < r->born || epoch >= r->died)
			continue;
		s = module_sym_at(&r->set, addr, &next);
		if (!s)
			continue;
		module_sym_own(&r->set, s, next, ret);
		return &r->set;
	}
	return NULL;
}

const struct btf_types *modules_btf_then(const struct kernel *k, u64 addr, u32 epoch)
{
	const struct module_set *set = NULL;
	struct kernel_sym sym;

	if (epoch < k->epoch)
		set = retired_at(k, addr, epoch, &sym);
	return module_btf_at(set ? set : &k->mods, addr);
}

bool kernel_sym_then(const struct kernel *k, u64 addr, u32 epoch, struct kernel_sym *ret)
{
	bool in_image = addr >= k->image.start && addr < k->image.end;

	if (!in_image && epoch < k->epoch && retired_at(k, addr, epoch, ret))
		return true;
	return kernel_sym_at(k, addr, ret);
}
