// SPDX-License-Identifier: Apache-2.0
/* Modules: one pass over the kernel's list, everything copied, nothing kept by guest pointer. */
#include "symbols/modules.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "symbols/mem.h"
#include "symbols/module_btf.h"
#include "symbols/module_syms.h"

#include <errno.h>

#define MODULES_MAX     4096u
#define MODULE_SPAN_MAX (1ull << 30) /* the whole module area is 1 GiB or a bit more */

static int member(const struct btf_types *b, const char *path, u32 *off_ret)
{
	return btf_types_member(b, "module", path, off_ret, NULL);
}

/* Since v6.4 (commit ac3b43283923) struct module has mem[MOD_MEM_NUM_TYPES]. */
static int mems_array(const struct btf_types *b, struct module_layout *l)
{
	u32 mem, all, each, base, bytes;
	s64 first_init = 4; /* MOD_INIT_TEXT */
	s64 text = 0;

	if (btf_types_member(b, "module", "mem", &mem, &all) ||
	    btf_types_size(b, "module_memory", &each) ||
	    btf_types_member(b, "module_memory", "base", &base, NULL) ||
	    btf_types_member(b, "module_memory", "size", &bytes, NULL) ||
	    btf_types_enum(b, "MOD_TEXT", &text) || btf_types_enum(b, "MOD_INIT_TEXT", &first_init))
		return -ENOENT;
	if (!each || all / each > MODULE_MEMS_MAX)
		return -EUCLEAN;
	l->n_mems = all / each;
	for (u32 i = 0; i < l->n_mems; i++) {
		l->mems[i].base = mem + i * each + base;
		l->mems[i].bytes = mem + i * each + bytes;
		l->mems[i].text = i == text || i == first_init;
		l->mems[i].text_bytes = l->mems[i].bytes;
		l->mems[i].init = i >= first_init;
	}
	return 0;
}

/* v4.5 .. v6.3: core_layout and init_layout, code first in each. */
static int mems_layouts(const struct btf_types *b, struct module_layout *l)
{
	static const char *const paths[2][3] = {
		{ "core_layout.base", "core_layout.size", "core_layout.text_size" },
		{ "init_layout.base", "init_layout.size", "init_layout.text_size" },
	};

	for (u32 i = 0; i < 2; i++) {
		if (member(b, paths[i][0], &l->mems[i].base) ||
		    member(b, paths[i][1], &l->mems[i].bytes) ||
		    member(b, paths[i][2], &l->mems[i].text_bytes))
			return -ENOENT;
		l->mems[i].text = true;
		l->mems[i].init = i == 1;
	}
	l->n_mems = 2;
	return 0;
}

/*
 * Exported symbols are upper case in /proc/kallsyms, those exported to GPL modules only are not:
 * is_exported() looks in mod->syms alone (kernel/module/main.c v6.1). Self-relative since v4.19.
 */
static void exports_layout(const struct btf_types *b, struct module_layout *l)
{
	u32 size, off;

	if (btf_types_size(b, "kernel_symbol", &size) ||
	    btf_types_member(b, "kernel_symbol", "value_offset", &off, NULL) || off ||
	    member(b, "syms", &l->syms) || member(b, "num_syms", &l->num_syms))
		return;
	l->export_bytes = size;
}

int module_layout_init(const struct btf_types *b, struct module_layout *ret)
{
	struct module_layout l = { 0 };
	u32 ks;
	int rc;

	if (member(b, "list", &l.list) || member(b, "state", &l.state) ||
	    btf_types_member(b, "module", "name", &l.name, &l.name_bytes) ||
	    member(b, "kallsyms", &l.kallsyms) || btf_types_size(b, "mod_kallsyms", &ks) ||
	    btf_types_member(b, "mod_kallsyms", "symtab", &l.symtab, NULL) ||
	    btf_types_member(b, "mod_kallsyms", "num_symtab", &l.num_symtab, NULL) ||
	    btf_types_member(b, "mod_kallsyms", "strtab", &l.strtab, NULL))
		return -ENOENT;
	/* v5.2 and later; before, the type was in the symbol itself. */
	l.has_typetab = !btf_types_member(b, "mod_kallsyms", "typetab", &l.typetab, NULL);
	if (btf_types_enum(b, "MODULE_STATE_UNFORMED", &l.unformed))
		return -ENOENT;
	if (!l.name_bytes || l.name_bytes > MODULE_NAME_MAX)
		return -EUCLEAN;
	rc = mems_array(b, &l);
	if (rc == -ENOENT)
		rc = mems_layouts(b, &l);
	if (rc)
		return rc;
	exports_layout(b, &l);
	*ret = l;
	return 0;
}

static int add_range(struct buf *ranges, u64 base, u64 bytes, u64 text_bytes, u32 module)
{
	struct module_range r = { .start = base, .module = module };

	if (!base || !bytes)
		return 0;
	if (bytes > MODULE_SPAN_MAX || text_bytes > bytes || add_overflows(base, bytes, &r.end))
		return -EUCLEAN;
	r.text_end = base + text_bytes;
	buf_add(ranges, &r, sizeof(r));
	return 0;
}

/* Where one module lies. */
static int read_mems(const struct sym_mem *mem, const struct module_layout *l, u32 index,
		     struct kernel_module *m, struct buf *ranges)
{
	for (u32 i = 0; i < l->n_mems; i++) {
		u64 base;
		u32 bytes, text_bytes = 0;
		int rc;

		if (mem_u64(mem, m->struct_addr + l->mems[i].base, &base) ||
		    mem_u32(mem, m->struct_addr + l->mems[i].bytes, &bytes))
			return -EFAULT;
		if (l->mems[i].text &&
		    mem_u32(mem, m->struct_addr + l->mems[i].text_bytes, &text_bytes))
			return -EFAULT;
		rc = add_range(ranges, base, bytes, text_bytes, index);
		if (rc)
			return rc;
		if (l->mems[i].text && !l->mems[i].init) {
			m->base = base;
			m->text_bytes = text_bytes;
		}
	}
	return 0;
}

/*
 * The name into the arena; its place there goes where the pointer will be once the arena is final.
 */
static int read_name(const struct sym_mem *mem, const struct module_layout *l,
		     struct kernel_module *m, struct buf *arena)
{
	char name[MODULE_NAME_MAX + 1] = { 0 };

	if (mem_read(mem, m->struct_addr + l->name, name, l->name_bytes))
		return -EFAULT;
	if (!*name || !module_name_valid(name))
		return -EUCLEAN;
	m->name = (const char *)(uintptr_t)arena->len;
	buf_add(arena, name, strlen(name) + 1);
	return 0;
}

struct reading {
	struct buf mods, ranges, syms, arena;
};

static void reading_deinit(struct reading *r)
{
	buf_deinit(&r->mods);
	buf_deinit(&r->ranges);
	buf_deinit(&r->syms);
	buf_deinit(&r->arena);
}

static int read_module(const struct sym_mem *mem, const struct module_layout *l, u64 addr,
		       struct reading *r)
{
	struct kernel_module m = { .struct_addr = addr };
	u32 index = (u32)(r->mods.len / sizeof(m));
	u32 state;
	int rc;

	if (mem_u32(mem, addr + l->state, &state))
		return -EFAULT;
	if (state == l->unformed)
		return 0;
	rc = read_name(mem, l, &m, &r->arena);
	if (!rc)
		rc = read_mems(mem, l, index, &m, &r->ranges);
	if (!rc)
		rc = module_syms_read(mem, l, index, &m, &r->syms, &r->arena);
	if (rc)
		return rc;
	buf_add(&r->mods, &m, sizeof(m));
	return buf_failed(&r->mods) || buf_failed(&r->ranges) || buf_failed(&r->arena) ||
			       buf_failed(&r->syms)
		       ? -ENOMEM
		       : 0;
}

static int by_start(const void *a, const void *b)
{
	const struct module_range *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

static int by_addr(const void *a, const void *b)
{
	const struct module_sym *x = a, *y = b;

	if (x->addr != y->addr)
		return x->addr < y->addr ? -1 : 1;
	if (x->module != y->module)
		return x->module < y->module ? -1 : 1;
	return x->order < y->order ? -1 : x->order > y->order;
}

/* What was read becomes a set; overlapping modules are a lie. */
static int finish(struct reading *r, struct module_set *s)
{
	s->n_mods = (u32)(r->mods.len / sizeof(*s->mods));
	s->n_ranges = (u32)(r->ranges.len / sizeof(*s->ranges));
	s->n_syms = (u32)(r->syms.len / sizeof(*s->syms));
	s->arena_bytes = r->arena.len;
	s->mods = (void *)no_cleanup_ptr(r->mods.data);
	s->ranges = (void *)no_cleanup_ptr(r->ranges.data);
	s->syms = (void *)no_cleanup_ptr(r->syms.data);
	s->arena = no_cleanup_ptr(r->arena.data);
	for (u32 i = 0; i < s->n_mods; i++)
		s->mods[i].name = s->arena + (uintptr_t)s->mods[i].name;
	if (s->n_ranges)
		qsort(s->ranges, s->n_ranges, sizeof(*s->ranges), by_start);
	if (s->n_syms)
		qsort(s->syms, s->n_syms, sizeof(*s->syms), by_addr);
	for (u32 i = 1; i < s->n_ranges; i++)
		if (s->ranges[i].start < s->ranges[i - 1].end)
			return -EUCLEAN;
	return module_syms_index(s);
}

int modules_read(const struct sym_mem *mem, u64 head, const struct module_layout *l,
		 struct module_set *ret)
{
	_cleanup_(reading_deinit) struct reading r = { 0 };
	struct module_set s = { 0 };
	u64 node;
	int rc;

	if (mem_u64(mem, head, &node))
		return -EFAULT;
	for (u32 i = 0; node != head; i++) {
		if (i == MODULES_MAX)
			return -EUCLEAN;
		rc = read_module(mem, l, node - l->list, &r);
		if (rc)
			return rc;
		if (mem_u64(mem, node, &node))
			return -EFAULT;
	}
	rc = finish(&r, &s);
	if (rc)
		module_set_deinit(&s);
	else
		*ret = s;
	return rc;
}

void module_set_deinit(struct module_set *s)
{
	free(s->mods);
	free(s->ranges);
	free(s->syms);
	free(s->own);
	free(s->arena);
	for (u32 i = 0; s->btf && i < s->n_mods; i++)
		module_btf_unref(s->btf[i]);
	free(s->btf);
	*s = (struct module_set){ 0 };
}

/* A set of one module, under way. */
struct part {
	struct module_set set;
	struct buf arena;
};

/* How much there is of each, then room for it. */
static bool parts_alloc(const struct module_set *s, const u32 *which, u32 n, struct part *parts)
{
	bool ok = true;

	for (u32 i = 0; i < s->n_ranges; i++)
		if (which[s->ranges[i].module] != MODULE_STAYS)
			parts[which[s->ranges[i].module]].set.n_ranges++;
	for (u32 i = 0; i < s->n_syms; i++)
		if (which[s->syms[i].module] != MODULE_STAYS)
			parts[which[s->syms[i].module]].set.n_syms++;
	for (u32 i = 0; i < n; i++) {
		struct module_set *p = &parts[i].set;

		p->mods = calloc(1, sizeof(*p->mods));
		p->ranges = calloc(p->n_ranges + 1, sizeof(*p->ranges));
		p->syms = calloc(p->n_syms + 1, sizeof(*p->syms));
		p->btf = calloc(1, sizeof(struct module_btf *));
		p->n_ranges = p->n_syms = 0;
		ok &= p->mods && p->ranges && p->syms && p->btf;
	}
	return ok;
}

static void parts_fill(const struct module_set *s, const u32 *which, struct part *parts)
{
	for (u32 i = 0; i < s->n_mods; i++) {
		struct part *p = which[i] == MODULE_STAYS ? NULL : &parts[which[i]];

		if (!p)
			continue;
		p->set.mods[0] = s->mods[i];
		p->set.n_mods = 1;
		p->set.btf[0] = s->btf ? module_btf_ref(s->btf[i]) : NULL;
		buf_add(&p->arena, s->mods[i].name, strlen(s->mods[i].name) + 1);
	}
	for (u32 i = 0; i < s->n_ranges; i++) {
		u32 to = which[s->ranges[i].module];

		if (to == MODULE_STAYS)
			continue;
		parts[to].set.ranges[parts[to].set.n_ranges] = s->ranges[i];
		parts[to].set.ranges[parts[to].set.n_ranges++].module = 0;
	}
	for (u32 i = 0; i < s->n_syms; i++) {
		u32 to = which[s->syms[i].module];
		const char *name = module_sym_name(s, &s->syms[i]);
		struct module_sym *sym;
		struct part *p;

		if (to == MODULE_STAYS)
			continue;
		p = &parts[to];
		sym = &p->set.syms[p->set.n_syms++];
		*sym = s->syms[i];
		sym->module = 0;
		sym->name = (u32)p->arena.len;
		buf_add(&p->arena, name, strlen(name) + 1);
	}
}

/* The names become the set's; what looks them up is made. */
static int part_finish(struct part *p)
{
	if (buf_failed(&p->arena))
		return -ENOMEM;
	p->set.arena_bytes = p->arena.len;
	p->set.arena = no_cleanup_ptr(p->arena.data);
	p->set.mods[0].name = p->set.arena;
	return module_syms_index(&p->set);
}

int module_set_extract(const struct module_set *s, const u32 *which, u32 n, struct module_set *ret)
{
	_cleanup_free_ struct part *parts = calloc(n + 1, sizeof(*parts));
	int rc = 0;

	if (!parts)
		return -ENOMEM;
	if (parts_alloc(s, which, n, parts))
		parts_fill(s, which, parts);
	else
		rc = -ENOMEM;
	for (u32 i = 0; i < n && !rc; i++)
		rc = part_finish(&parts[i]);
	for (u32 i = 0; i < n; i++) {
		buf_deinit(&parts[i].arena);
		if (rc)
			module_set_deinit(&parts[i].set);
		else
			ret[i] = parts[i].set;
	}
	return rc;
}

const struct module_range *module_range_at(const struct module_set *s, u64 addr)
{
	u32 low = 0, high = s->n_ranges;

	while (low < high) {
		u32 mid = low + (high - low) / 2;
		const struct module_range *r = &s->ranges[mid];

		if (addr < r->start)
			high = mid;
		else if (addr >= r->end)
			low = mid + 1;
		else
			return r;
	}
	return NULL;
}
