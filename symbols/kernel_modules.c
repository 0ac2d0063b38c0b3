// SPDX-License-Identifier: Apache-2.0
/* Modules that come and go: which were there when, and whether the guest's list has changed. */
#include "symbols/kernel_priv.h"

#include "base/cleanup.h"
#include "symbols/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MODULES_MAX      4096u
#define RETIRED_MAX      1024u /* each is looked into for an address that nobody has now */
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

static void retired_destroy(struct retired_module *r)
{
	while (r) {
		struct retired_module *next = r->next;

		module_set_deinit(&r->set);
		free(r);
		r = next;
	}
}

/* What is too old, or too much, taken off the list. */
static struct retired_module *cut_oldest(struct retired_module *newest)
{
	size_t n = 1, n_syms = newest ? newest->set.n_syms : 0;

	for (struct retired_module *r = newest, *rest; r && r->next; r = r->next, n++) {
		n_syms += r->next->set.n_syms;
		if (n < RETIRED_MAX && n_syms <= RETIRED_SYMS_MAX)
			continue;
		rest = r->next;
		r->next = NULL;
		return rest;
	}
	return NULL;
}

/* @n of the modules there were go: @which, as module_set_extract() takes it. */
static int retire(const struct kernel *k, const u32 *which, u32 n, struct retired_module **ret)
{
	_cleanup_free_ struct module_set *sets = calloc(n + 1, sizeof(*sets));
	struct retired_module *first = NULL;
	int rc = sets ? module_set_extract(&k->mods, which, n, sets) : -ENOMEM;

	for (u32 i = 0; i < k->mods.n_mods && !rc; i++) {
		struct retired_module *r;

		if (which[i] == MODULE_STAYS)
			continue;
		r = calloc(1, sizeof(*r));
		if (!r) {
			rc = -ENOMEM;
			break;
		}
		*r = (struct retired_module){ .next = first,
					      .born = k->born[i],
					      .died = k->epoch + 1,
					      .set = sets[which[i]] };
		sets[which[i]] = (struct module_set){ 0 };
		first = r;
	}
	for (u32 i = 0; sets && i < n; i++)
		module_set_deinit(&sets[i]);
	if (rc)
		retired_destroy(first);
	else
		*ret = first;
	return rc;
}

/* Those of the modules there were that are not in @set. */
static int retire_missing(const struct kernel *k, const struct module_set *set,
			  struct retired_module **ret)
{
	_cleanup_free_ u32 *which = malloc((k->mods.n_mods + 1) * sizeof(*which));
	u32 n = 0;

	if (!which)
		return -ENOMEM;
	for (u32 i = 0; i < k->mods.n_mods; i++) {
		bool stays = set->n_mods && find_module(set, &k->mods.mods[i], i) < set->n_mods;

		which[i] = stays ? MODULE_STAYS : n++;
	}
	return retire(k, which, n, ret);
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

/* The guest's lock keeps others from refreshing: only the change itself is for those who read names to wait for. */
int modules_replace(struct kernel *k, struct module_set *set)
{
	u32 *born = calloc(set->n_mods + 1, sizeof(*born)), *old_born = k->born;
	struct retired_module *gone = NULL, *last, *forgotten;
	struct module_set old = k->mods;
	bool other;
	int rc = 0;

	if (!born)
		return -ENOMEM;
	other = date(k, set, born);
	if (other)
		rc = retire_missing(k, set, &gone);
	if (rc) {
		free(born);
		return rc;
	}
	for (last = gone; last && last->next; last = last->next)
		;
	pthread_rwlock_wrlock(k->names);
	if (last) {
		last->next = k->retired;
		k->retired = gone;
	}
	forgotten = cut_oldest(k->retired);
	k->mods = *set;
	k->born = born;
	k->epoch += other;
	k->generation++;
	pthread_rwlock_unlock(k->names);
	*set = (struct module_set){ 0 };
	module_set_deinit(&old);
	retired_destroy(forgotten);
	free(old_born);
	return 0;
}

void modules_deinit(struct kernel *k)
{
	retired_destroy(k->retired);
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
