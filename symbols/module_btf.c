// SPDX-License-Identifier: Apache-2.0
/* See module_btf.h. */
#include "symbols/module_btf.h"

#include "symbols/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LIST_MAX  4096u
#define BYTES_MAX (64u << 20) /* of all modules together */

void module_btf_layout_init(const struct btf_types *b, u64 head, struct module_btf_layout *ret)
{
	struct module_btf_layout l = { .head = head };

	*ret = (struct module_btf_layout){ 0 };
	if (btf_types_member(b, "btf_module", "list", &l.list, NULL) ||
	    btf_types_member(b, "btf_module", "btf", &l.btf, NULL) ||
	    btf_types_member(b, "btf_module", "module", &l.module, NULL) ||
	    btf_types_member(b, "btf", "data", &l.data, NULL) ||
	    btf_types_member(b, "btf", "data_size", &l.data_bytes, NULL) ||
	    btf_types_member(b, "btf", "start_id", &l.first, NULL) ||
	    btf_types_member(b, "btf", "start_str_off", &l.strings_first, NULL))
		return;
	*ret = l;
}

struct module_btf *module_btf_ref(struct module_btf *m)
{
	if (m)
		atomic_fetch_add(&m->refs, 1);
	return m;
}

void module_btf_unref(struct module_btf *m)
{
	if (!m || atomic_fetch_sub(&m->refs, 1) > 1)
		return;
	btf_types_deinit(&m->types);
	free(m);
}

/* Its number in @s, or n_mods; the lists are in one order but for what came between: near @hint. */
static u32 find_module(const struct module_set *s, u64 struct_addr, u32 hint)
{
	for (u32 n = 0; n < s->n_mods; n++) {
		u32 i = (hint + n) % s->n_mods;

		if (s->mods[i].struct_addr == struct_addr)
			return i;
	}
	return s->n_mods;
}

/* What is known of module @i of @set since before. */
static struct module_btf *known(const struct module_set *old, const struct module_set *set, u32 i)
{
	const struct kernel_module *m = &set->mods[i];
	u32 was = old->btf ? find_module(old, m->struct_addr, i) : old->n_mods;

	if (was == old->n_mods || old->mods[was].base != m->base ||
	    strcmp(old->mods[was].name, m->name) != 0)
		return NULL;
	return old->btf[was];
}

static int read_one(const struct sym_mem *mem, const struct module_btf_layout *l, u64 btf,
		    const struct btf_types *base, u64 *left, struct module_btf **ret)
{
	u32 bytes, first, strings_first;
	struct module_btf *m;
	u64 data;
	u8 *blob;
	int rc;

	if (mem_u64(mem, btf + l->data, &data) || mem_u32(mem, btf + l->data_bytes, &bytes) ||
	    mem_u32(mem, btf + l->first, &first) ||
	    mem_u32(mem, btf + l->strings_first, &strings_first) || first != base->n_types ||
	    strings_first != base->strings_end || !bytes || bytes > *left)
		return 0;
	m = calloc(1, sizeof(*m));
	blob = malloc(bytes);
	if (!m || !blob) {
		free(m);
		free(blob);
		return -ENOMEM;
	}
	atomic_init(&m->refs, 1);
	rc = mem_read(mem, data, blob, bytes);
	if (!rc)
		rc = btf_types_init_split(&m->types, base, blob, bytes);
	if (rc) {
		free(blob);
		free(m);
		return rc == -ENOMEM ? rc : 0;
	}
	*left -= bytes;
	*ret = m;
	return 0;
}

int module_btfs_read(const struct sym_mem *mem, const struct module_btf_layout *l,
		     const struct btf_types *base, const struct module_set *old,
		     struct module_set *set)
{
	u64 left = BYTES_MAX, node;
	u32 hint = 0;
	int rc = 0;

	if (!l->head || !set->n_mods)
		return 0;
	set->btf = calloc(set->n_mods, sizeof(struct module_btf *));
	if (!set->btf)
		return -ENOMEM;
	for (u32 i = 0; i < set->n_mods; i++) {
		set->btf[i] = module_btf_ref(known(old, set, i));
		left -= MIN(left, set->btf[i] ? set->btf[i]->types.len : 0);
	}
	if (mem_u64(mem, l->head, &node))
		return 0;
	for (u32 n = 0; !rc && node != l->head && n < LIST_MAX; n++) {
		u64 entry = node - l->list, btf, module;
		u32 i;

		if (mem_u64(mem, entry + l->btf, &btf) ||
		    mem_u64(mem, entry + l->module, &module) || mem_u64(mem, node, &node))
			return 0;
		i = find_module(set, module, hint);
		if (i == set->n_mods)
			continue;
		hint = i + 1;
		if (!set->btf[i])
			rc = read_one(mem, l, btf, base, &left, &set->btf[i]);
	}
	return rc;
}

const struct btf_types *module_btf_at(const struct module_set *s, u64 addr)
{
	const struct module_range *r = s->btf ? module_range_at(s, addr) : NULL;

	return r && s->btf[r->module] ? &s->btf[r->module]->types : NULL;
}
