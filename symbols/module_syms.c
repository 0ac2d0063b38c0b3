// SPDX-License-Identifier: Apache-2.0
/* A module's symbols: Elf64_Sym table, strings, nm's letters (struct mod_kallsyms). */
#include "symbols/module_syms.h"

#include "base/cleanup.h"
#include "symbols/mem.h"
#include "symbols/sym_table.h"

#include <ctype.h>
#include <elf.h>
#include <errno.h>

#define SYMTAB_MAX  (1u << 17)
#define STRTAB_MAX  (16u << 20)
#define EXPORTS_MAX (1u << 16)
#define ARENA_MAX   (64u << 20) /* all modules together */
#define SYMS_MAX    (1u << 20)

struct tables {
	Elf64_Sym *sym;
	char *str; /* NUL-terminated */
	size_t str_bytes;
	char *type;
	u32 n;
};

static void tables_deinit(struct tables *t)
{
	free(t->sym);
	free(t->str);
	free(t->type);
}

bool module_name_valid(const char *name)
{
	for (; *name; name++)
		if (*name < 0x21 || *name > 0x7e)
			return false;
	return true;
}

/* The table's length is nowhere: as far as the last name starts, then up to that name's end. */
static int read_strings(const struct sym_mem *mem, u64 addr, struct tables *t)
{
	size_t last = 0, len, cap;

	for (u32 i = 0; i < t->n; i++)
		last = MAX(last, (size_t)t->sym[i].st_name);
	if (last > STRTAB_MAX)
		return -EUCLEAN;
	cap = last + SYM_NAME_MAX + PAGE_SIZE;
	t->str = malloc(cap + 1);
	if (!t->str)
		return -ENOMEM;
	if (last && mem_read(mem, addr, t->str, last))
		return -EFAULT;
	for (len = last; len < last + SYM_NAME_MAX;) {
		size_t n = PAGE_SIZE - (addr + len) % PAGE_SIZE;

		if (len + n > cap)
			n = cap - len;
		if (mem_read(mem, addr + len, t->str + len, n))
			return -EFAULT;
		len += n;
		if (memchr(t->str + len - n, '\0', n))
			break;
	}
	t->str[len] = '\0';
	t->str_bytes = len;
	return 0;
}

static int read_tables(const struct sym_mem *mem, const struct module_layout *l, u64 ks,
		       struct tables *t)
{
	u64 sym, str, type = 0;

	if (mem_u64(mem, ks + l->symtab, &sym) || mem_u32(mem, ks + l->num_symtab, &t->n) ||
	    mem_u64(mem, ks + l->strtab, &str) ||
	    (l->has_typetab && mem_u64(mem, ks + l->typetab, &type)))
		return -EFAULT;
	if (t->n > SYMTAB_MAX)
		return -EUCLEAN;
	if (!t->n)
		return 0;
	t->sym = malloc(t->n * sizeof(*t->sym));
	t->type = malloc(t->n);
	if (!t->sym || !t->type)
		return -ENOMEM;
	memset(t->type, '?', t->n);
	if (mem_read(mem, sym, t->sym, t->n * sizeof(*t->sym)) ||
	    (type && mem_read(mem, type, t->type, t->n)))
		return -EFAULT;
	return read_strings(mem, str, t);
}

/* is_mapping_symbol() (include/linux/module_symbol.h v6.3), which find_kallsyms_symbol() skips. */
static bool mapping_symbol(const char *s)
{
	if ((s[0] == '.' && s[1] == 'L') || (s[0] == 'L' && s[1] == '0'))
		return true;
	return s[0] == '$' && s[1] && strchr("axtd", s[1]) && (!s[2] || s[2] == '.');
}

static int u64_cmp(const void *a, const void *b)
{
	const u64 *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Addresses of what the module exports, sorted: each entry is relative to itself. */
static int read_exports(const struct sym_mem *mem, const struct module_layout *l, u64 module,
			struct buf *ret)
{
	_cleanup_free_ u8 *raw = NULL;
	u64 at;
	u32 n;

	if (!l->export_bytes)
		return 0;
	if (mem_u64(mem, module + l->syms, &at) || mem_u32(mem, module + l->num_syms, &n))
		return -EFAULT;
	if (!at || !n)
		return 0;
	if (n > EXPORTS_MAX || l->export_bytes < 4 || l->export_bytes > 64)
		return -EUCLEAN;
	raw = malloc((size_t)n * l->export_bytes);
	if (!raw)
		return -ENOMEM;
	if (mem_read(mem, at, raw, (size_t)n * l->export_bytes))
		return -EFAULT;
	for (u32 i = 0; i < n; i++) {
		u64 off = (u64)i * l->export_bytes;
		u64 addr = at + off + (u64)(s64)(s32)load_u32(raw + off);

		buf_add(ret, &addr, sizeof(addr));
	}
	if (buf_failed(ret))
		return -ENOMEM;
	qsort(ret->data, ret->len / sizeof(u64), sizeof(u64), u64_cmp);
	return 0;
}

static char shown_type(char type, u64 addr, const struct buf *exports)
{
	bool exported = exports->len && bsearch(&addr, exports->data, exports->len / sizeof(u64),
						sizeof(u64), u64_cmp);

	if (type < 0x21 || type > 0x7e)
		return '?';
	return (char)(exported ? toupper((unsigned char)type) : tolower((unsigned char)type));
}

int module_syms_read(const struct sym_mem *mem, const struct module_layout *l, u32 index,
		     struct kernel_module *m, struct buf *syms, struct buf *arena)
{
	_cleanup_(tables_deinit) struct tables t = { 0 };
	_cleanup_buf_ struct buf exports = { 0 };
	u64 ks;
	int rc;

	if (mem_u64(mem, m->struct_addr + l->kallsyms, &ks))
		return -EFAULT;
	if (!ks) /* early in loading */
		return 0;
	rc = read_tables(mem, l, ks, &t);
	if (!rc)
		rc = read_exports(mem, l, m->struct_addr, &exports);
	if (rc)
		return rc;
	/* Index 0 is ELF's empty symbol. */
	for (u32 i = 1; i < t.n; i++) {
		const char *name = t.str + t.sym[i].st_name;
		struct module_sym s = { .addr = t.sym[i].st_value, .module = index, .order = i };

		if (t.sym[i].st_shndx == SHN_UNDEF || !*name)
			continue;
		if (strnlen(name, SYM_NAME_MAX) == SYM_NAME_MAX || !module_name_valid(name) ||
		    arena->len > ARENA_MAX || syms->len / sizeof(s) >= SYMS_MAX)
			return -EUCLEAN;
		s.name = (u32)arena->len;
		s.mapping = mapping_symbol(name);
		s.type = shown_type(t.type[i], s.addr, &exports);
		buf_add(arena, name, strlen(name) + 1);
		buf_add(syms, &s, sizeof(s));
		m->n_syms++;
	}
	return 0;
}

int module_syms_index(struct module_set *s)
{
	u32 range = 0;

	s->own = malloc((s->n_syms + 1) * sizeof(*s->own));
	if (!s->own)
		return -ENOMEM;
	for (u32 i = 0; i < s->n_syms; i++) {
		const struct module_sym *sym = &s->syms[i];

		while (range < s->n_ranges && s->ranges[range].end <= sym->addr)
			range++;
		if (range == s->n_ranges)
			break;
		/* what lies elsewhere than its module is a per-CPU offset, or a lie */
		if (sym->mapping || sym->addr < s->ranges[range].start ||
		    sym->module != s->ranges[range].module)
			continue;
		if (!s->n_own || s->syms[s->own[s->n_own - 1]].addr != sym->addr)
			s->own[s->n_own++] = i;
	}
	return 0;
}

const struct module_sym *module_sym_at(const struct module_set *s, u64 addr, u64 *next_ret)
{
	const struct module_range *r = module_range_at(s, addr);
	const struct module_sym *sym;
	u32 low = 0, high = s->n_own;

	if (!r)
		return NULL;
	while (low < high) {
		u32 mid = low + (high - low) / 2;

		if (s->syms[s->own[mid]].addr <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	if (next_ret)
		*next_ret = low < s->n_own ? MIN(s->syms[s->own[low]].addr, r->end) : r->end;
	sym = low ? &s->syms[s->own[low - 1]] : NULL;
	return sym && sym->addr >= r->start ? sym : NULL;
}

u64 module_sym_next(const struct module_set *s, u32 i, u64 end)
{
	u64 addr = s->syms[i].addr;
	u32 low = i + 1, high = s->n_syms;

	while (low < high) {
		u32 mid = low + (high - low) / 2;

		if (s->syms[mid].addr <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low < s->n_syms ? MIN(s->syms[low].addr, end) : end;
}
