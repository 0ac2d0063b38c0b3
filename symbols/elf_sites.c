// SPDX-License-Identifier: Apache-2.0
/* Call sites of a file. See elf_sites.h. */
#include "symbols/elf_sites.h"

#include "base/buf.h"
#include "base/cleanup.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ENDBR_BYTES     4u
#define NO_SECTION      0u
#define MAX_NOPS_BEFORE 64u
#define MAX_SECTIONS \
	16384u /* of an object with a section a function; tables of each are looked for in all */
#define MAX_LINKED   1024u
#define OLD_GCC_CALL 1u /* a relocation is behind the opcode e8 */

/* A function, by section and address; several names of one stand side by side, the best first. */
struct func {
	u64 value, size;
	u32 section;
	u32 rank;
	const char *name;
};

struct elf {
	const u8 *data;
	size_t len;
	Elf64_Ehdr head;
	bool object; /* ET_REL */
	u32 symtab, strtab; /* sections; NO_SECTION: none */
	struct func *func;
	size_t n_funcs;
	struct buf sites; /* struct elf_site, kind and name still missing */
	bool prologue;
};

static bool at(const struct elf *e, u64 off, void *ret, size_t n)
{
	if (off > e->len || n > e->len - off)
		return false;
	memcpy(ret, e->data + off, n);
	return true;
}

static bool section(const struct elf *e, u32 i, Elf64_Shdr *ret)
{
	return i < e->head.e_shnum &&
	       at(e, e->head.e_shoff + (u64)i * sizeof(*ret), ret, sizeof(*ret));
}

/* The bytes of a section; NULL: it has none in the file, or they are not all there. */
static const u8 *contents(const struct elf *e, const Elf64_Shdr *s)
{
	if (s->sh_type == SHT_NOBITS || s->sh_offset > e->len || s->sh_size > e->len - s->sh_offset)
		return NULL;
	return e->data + s->sh_offset;
}

/* A string of a string table; NULL when it does not lie in one that ends. */
static const char *string(const struct elf *e, u32 table, u64 off)
{
	Elf64_Shdr s;
	const u8 *text;

	if (!section(e, table, &s))
		return NULL;
	text = contents(e, &s);
	if (!text || off >= s.sh_size || text[s.sh_size - 1])
		return NULL;
	return (const char *)text + off;
}

static size_t symbol_count(const struct elf *e)
{
	Elf64_Shdr s;

	if (e->symtab == NO_SECTION || !section(e, e->symtab, &s) || !contents(e, &s))
		return 0;
	return s.sh_size / sizeof(Elf64_Sym);
}

static bool symbol(const struct elf *e, u64 i, Elf64_Sym *ret, const char **name_ret)
{
	Elf64_Shdr s;

	if (i >= symbol_count(e) || !section(e, e->symtab, &s) ||
	    !at(e, s.sh_offset + i * sizeof(*ret), ret, sizeof(*ret)))
		return false;
	*name_ret = string(e, e->strtab, ret->st_name);
	return *name_ret != NULL;
}

static bool is_mcount(const char *name)
{
	static const char *const names[] = { "__fentry__", "mcount", "_mcount", "__mcount" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (strcmp(name, names[i]) == 0)
			return true;
	}
	return false;
}

static int by_place(const void *a, const void *b)
{
	const struct func *x = a, *y = b;

	if (x->section != y->section)
		return x->section < y->section ? -1 : 1;
	if (x->value != y->value)
		return x->value < y->value ? -1 : 1;
	return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static int read_functions(struct elf *e)
{
	size_t n = symbol_count(e);
	const char *name;
	Elf64_Sym s;

	e->func = calloc(n ? n : 1, sizeof(*e->func));
	if (!e->func)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		u32 bind;

		if (!symbol(e, i, &s, &name) || ELF64_ST_TYPE(s.st_info) != STT_FUNC ||
		    !s.st_size || s.st_shndx == SHN_UNDEF || s.st_shndx >= e->head.e_shnum)
			continue;
		bind = ELF64_ST_BIND(s.st_info);
		e->func[e->n_funcs++] = (struct func){ s.st_value, s.st_size, s.st_shndx,
						       bind == STB_GLOBAL ? 0u
						       : bind == STB_WEAK ? 1u
									  : 2u,
						       name };
	}
	qsort(e->func, e->n_funcs, sizeof(*e->func), by_place);
	return 0;
}

/* The best name of the function that holds @addr; NULL: none does. */
static const struct func *function_at(const struct elf *e, u32 sec, u64 addr)
{
	size_t low = 0, high = e->n_funcs;
	const struct func *f;

	while (low < high) { /* the first one behind */
		size_t mid = low + (high - low) / 2;

		f = &e->func[mid];
		if (f->section < sec || (f->section == sec && f->value <= addr))
			low = mid + 1;
		else
			high = mid;
	}
	if (!low)
		return NULL;
	f = &e->func[low - 1];
	while (f > e->func && f[-1].section == sec && f[-1].value == f->value)
		f--;
	return f->section == sec && addr - f->value < f->size ? f : NULL;
}

/* The section that a virtual address lies in. */
static u32 section_of(const struct elf *e, u64 addr)
{
	Elf64_Shdr s;

	for (u32 i = 1; section(e, i, &s); i++) {
		if ((s.sh_flags & SHF_ALLOC) && addr >= s.sh_addr && addr - s.sh_addr < s.sh_size)
			return i;
	}
	return NO_SECTION;
}

/* Up to @n bytes of text; how many there are. */
static size_t text_at(const struct elf *e, u32 sec, u64 addr, u8 *buf, size_t n)
{
	Elf64_Shdr s;
	const u8 *bytes;
	u64 off;

	if (!section(e, sec, &s))
		return 0;
	bytes = contents(e, &s);
	off = e->object ? addr : addr - s.sh_addr;
	if (!bytes || off >= s.sh_size)
		return 0;
	n = MIN(n, (size_t)(s.sh_size - off));
	memcpy(buf, bytes + off, n);
	return n;
}

static int add_site(struct elf *e, u32 sec, u64 addr)
{
	struct elf_site s = { .addr = addr, .section = sec };

	if (e->sites.len / sizeof(s) >= ELF_SITES_MAX)
		return -EUCLEAN;
	buf_add(&e->sites, &s, sizeof(s));
	return buf_failed(&e->sites) ? -ENOMEM : 0;
}

/* A relocation of @sec, and the name of what it refers to ("" for a section). */
struct reloc {
	Elf64_Rela rela;
	Elf64_Sym sym;
	const char *name;
};

static int each_reloc(struct elf *e, u32 sec,
		      int (*fn)(struct elf *e, u32 sec, const struct reloc *r))
{
	Elf64_Shdr s;
	int rc = 0;

	for (u32 i = 1; !rc && section(e, i, &s); i++) {
		if (s.sh_type != SHT_RELA || s.sh_info != sec || !contents(e, &s))
			continue;
		for (u64 k = 0; !rc && k < s.sh_size / sizeof(Elf64_Rela); k++) {
			struct reloc r;

			if (!at(e, s.sh_offset + k * sizeof(r.rela), &r.rela, sizeof(r.rela)) ||
			    !symbol(e, ELF64_R_SYM(r.rela.r_info), &r.sym, &r.name))
				return -EUCLEAN;
			rc = fn(e, sec, &r);
		}
	}
	return rc;
}

/* An entry of a table of addresses, in an object. */
static int table_reloc(struct elf *e, u32 sec, const struct reloc *r)
{
	(void)sec;
	if (ELF64_R_TYPE(r->rela.r_info) != R_X86_64_64)
		return -EUCLEAN;
	return add_site(e, r->sym.st_shndx, r->sym.st_value + (u64)r->rela.r_addend);
}

/* A table of addresses: by relocations in an object, by value in a linked file. */
static int read_table(struct elf *e, const u8 *bytes, u64 n, u32 sec)
{
	int rc = 0;

	if (e->object)
		return each_reloc(e, sec, table_reloc);
	for (u64 i = 0; !rc && bytes && i + 8 <= n; i += 8) {
		u64 addr;

		memcpy(&addr, bytes + i, sizeof(addr));
		rc = addr ? add_site(e, section_of(e, addr), addr) : 0;
	}
	return rc;
}

/* 1: there is such a section and it was read. */
static int read_named_tables(struct elf *e, const char *name)
{
	bool found = false;
	Elf64_Shdr s;
	int rc = 0;

	/* with -ffunction-sections an object has one a function */
	for (u32 i = 1; !rc && section(e, i, &s); i++) {
		const char *have = string(e, e->head.e_shstrndx, s.sh_name);

		if (!have || strcmp(have, name) != 0 || !s.sh_size)
			continue;
		found = true;
		rc = read_table(e, contents(e, &s), s.sh_size, i);
	}
	return rc ? rc : found;
}

/* A vmlinux has the table within .init.data, between two symbols. */
static int read_vmlinux_table(struct elf *e)
{
	u64 start = 0, stop = 0, off;
	const char *name;
	const u8 *bytes;
	Elf64_Sym s;
	Elf64_Shdr h;
	u32 sec;

	for (size_t i = 0; i < symbol_count(e); i++) {
		if (!symbol(e, i, &s, &name))
			continue;
		if (strcmp(name, "__start_mcount_loc") == 0)
			start = s.st_value;
		else if (strcmp(name, "__stop_mcount_loc") == 0)
			stop = s.st_value;
	}
	sec = section_of(e, start);
	if (e->object || stop <= start || sec == NO_SECTION || !section(e, sec, &h))
		return 0;
	bytes = contents(e, &h);
	off = start - h.sh_addr;
	if (!bytes || stop - h.sh_addr > h.sh_size)
		return -EUCLEAN;
	return read_table(e, bytes + off, stop - start, NO_SECTION) ?: 1;
}

/* recordmcount: in an object the calls are known by their relocations. */
static int call_reloc(struct elf *e, u32 sec, const struct reloc *r)
{
	u32 type = (u32)ELF64_R_TYPE(r->rela.r_info);
	u8 opcode;

	if (!is_mcount(r->name) || (type != R_X86_64_PC32 && type != R_X86_64_PLT32) ||
	    r->rela.r_offset < OLD_GCC_CALL ||
	    text_at(e, sec, r->rela.r_offset - OLD_GCC_CALL, &opcode, 1) != 1 || opcode != 0xe8)
		return 0;
	e->prologue |= strcmp(r->name, "__fentry__") != 0;
	return add_site(e, sec, r->rela.r_offset - OLD_GCC_CALL);
}

static bool is_nop5(const u8 *b)
{
	static const u8 now[] = { 0x0f, 0x1f, 0x44, 0x00, 0x00 };
	static const u8 old[] = { 0x66, 0x66, 0x66, 0x66, 0x90 };
	static const u8 clang[] = { 0x0f, 0x1f, 0x44, 0x00, 0x08 };

	return !memcmp(b, now, sizeof(now)) || !memcmp(b, old, sizeof(old)) ||
	       !memcmp(b, clang, sizeof(clang));
}

static bool is_endbr(const u8 *b)
{
	static const u8 endbr64[ENDBR_BYTES] = { 0xf3, 0x0f, 0x1e, 0xfa };

	return !memcmp(b, endbr64, sizeof(endbr64));
}

static u64 call_target(u64 addr, const u8 *b)
{
	s32 rel;

	memcpy(&rel, b + 1, sizeof(rel));
	return addr + ELF_SITE_BYTES + (u64)(s64)rel;
}

/* Is @target mcount or __fentry__ of this linked file? */
static bool calls_mcount(const struct elf *e, u64 target, bool *prologue_ret)
{
	const struct func *f = function_at(e, section_of(e, target), target);

	/* of several names any may be it */
	for (; f && f < e->func + e->n_funcs && f->value == target; f++) {
		if (is_mcount(f->name)) {
			*prologue_ret = strcmp(f->name, "__fentry__") != 0;
			return true;
		}
	}
	return false;
}

/* A linked file: the nop that a function begins with, or its first call of mcount. */
static int record_linked(struct elf *e, const struct func *f)
{
	enum {
		LOOK = 256
	};
	u8 b[LOOK];
	size_t n = text_at(e, f->section, f->value, b, MIN(f->size, (u64)LOOK));
	size_t start = n >= ENDBR_BYTES && is_endbr(b) ? ENDBR_BYTES : 0;

	if (start + ELF_SITE_BYTES <= n && is_nop5(b + start))
		return add_site(e, f->section, f->value + start);
	if (e->object)
		return 0;
	for (size_t i = start; i + ELF_SITE_BYTES <= n; i++) {
		bool prologue = false;

		/* 32 bits that lead to it are no accident */
		if (b[i] != 0xe8 || !calls_mcount(e, call_target(f->value + i, b + i), &prologue))
			continue;
		e->prologue |= prologue;
		return add_site(e, f->section, f->value + i);
	}
	return 0;
}

static int record(struct elf *e)
{
	Elf64_Shdr s;
	int rc = 0;

	for (u32 i = 1; e->object && !rc && section(e, i, &s); i++) {
		if (s.sh_flags & SHF_EXECINSTR)
			rc = each_reloc(e, i, call_reloc);
	}
	for (size_t i = 0; !rc && i < e->n_funcs; i++) {
		const struct func *f = &e->func[i];

		/* names of one function stand side by side */
		if (!i || f[-1].section != f->section || f[-1].value != f->value)
			rc = record_linked(e, f);
	}
	return rc;
}

/* The first of several nops, each shorter than a call. */
static bool is_short_nop(const u8 *b, size_t n)
{
	return (n >= 1 && b[0] == 0x90) || (n >= 2 && b[0] == 0x66 && b[1] == 0x90) ||
	       (n >= 3 && b[0] == 0x0f && b[1] == 0x1f && (b[2] == 0x00 || b[2] == 0x40));
}

/* The function that a run of nops stands in front of (-fpatchable-function-entry=N,M); NULL: none. */
static const struct func *function_behind(const struct elf *e, const struct elf_site *s)
{
	u8 b[MAX_NOPS_BEFORE];
	size_t n = text_at(e, s->section, s->addr, b, sizeof(b));
	const struct func *f = NULL;

	for (u64 i = 0; !f && i < n && b[i] == 0x90; i++)
		f = function_at(e, s->section, s->addr + i + 1);
	return f;
}

static void judge(const struct elf *e, struct elf_site *s)
{
	const struct func *f = function_at(e, s->section, s->addr);
	u8 b[ELF_SITE_BYTES];
	size_t n = text_at(e, s->section, s->addr, b, sizeof(b));

	if (!f)
		f = function_behind(e, s);
	s->name = f ? f->name : "?";
	if (n == sizeof(b) && is_nop5(b))
		s->kind = ELF_SITE_NOP;
	else if (n == sizeof(b) && b[0] == 0xe8)
		s->kind = ELF_SITE_CALL;
	else
		s->kind = is_short_nop(b, n) ? ELF_SITE_NOPS : ELF_SITE_OTHER;
	if (!f && s->kind != ELF_SITE_OTHER)
		s->kind = ELF_SITE_WEAK;
}

static int by_addr(const void *a, const void *b)
{
	const struct elf_site *x = a, *y = b;

	if (x->section != y->section)
		return x->section < y->section ? -1 : 1;
	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static int find_sites(struct elf *e, enum elf_site_source *source_ret)
{
	int rc = read_named_tables(e, "__mcount_loc");

	*source_ret = ELF_SITES_MCOUNT_LOC;
	if (!rc)
		rc = read_vmlinux_table(e);
	if (!rc) {
		*source_ret = ELF_SITES_PATCHABLE;
		rc = read_named_tables(e, "__patchable_function_entries");
	}
	if (!rc) {
		*source_ret = ELF_SITES_RECORDED;
		rc = record(e);
	}
	return MIN(rc, 0);
}

static int open_elf(struct elf *e)
{
	const Elf64_Ehdr *h = &e->head;
	Elf64_Shdr s;

	if (!at(e, 0, &e->head, sizeof(e->head)) || memcmp(h->e_ident, ELFMAG, SELFMAG) != 0 ||
	    h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB ||
	    h->e_machine != EM_X86_64 || h->e_shentsize != sizeof(Elf64_Shdr) ||
	    h->e_shoff > e->len)
		return -ENOEXEC;
	e->object = h->e_type == ET_REL;
	if (h->e_shnum > (e->object ? MAX_SECTIONS : MAX_LINKED))
		return -EUCLEAN;
	for (u32 i = 1; section(e, i, &s); i++) {
		if (s.sh_type != SHT_SYMTAB)
			continue;
		e->symtab = i;
		e->strtab = s.sh_link;
	}
	return read_functions(e);
}

static void elf_deinit(struct elf *e)
{
	free(e->func);
	buf_deinit(&e->sites);
}

int elf_sites_read(const void *data, size_t len, struct elf_sites *ret, struct err *err)
{
	_cleanup_(elf_deinit) struct elf e = { .data = data, .len = len };
	int rc = open_elf(&e);

	*ret = (struct elf_sites){ 0 };
	if (!rc)
		rc = find_sites(&e, &ret->source);
	if (rc == -ENOMEM || buf_failed(&e.sites))
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a file's call sites");
	if (rc == -ENOEXEC)
		return err_set(err, rc, ERR_FILE_FORMAT, 0, "it is no ELF file for x86-64");
	if (rc)
		return err_set(err, -EUCLEAN, ERR_FILE_FORMAT, 0,
			       "its tables of symbols, relocations or call sites make no sense");
	ret->n = e.sites.len / sizeof(*ret->site);
	ret->site = (void *)no_cleanup_ptr(e.sites.data);
	ret->prologue = e.prologue;
	for (size_t i = 0; i < ret->n; i++)
		judge(&e, &ret->site[i]);
	if (ret->n)
		qsort(ret->site, ret->n, sizeof(*ret->site), by_addr);
	return 0;
}

void elf_sites_deinit(struct elf_sites *s)
{
	free(s->site);
	*s = (struct elf_sites){ 0 };
}

const char *elf_site_kind_name(enum elf_site_kind kind)
{
	static const char *const names[] = { "nop", "call", "nops", "weak", "other" };

	return names[kind];
}
