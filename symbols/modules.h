/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's loaded modules: where they lie and their symbols, from the kernel's own list. Offsets
 * come from BTF; must not know sites.
 */
#ifndef SYMBOLS_MODULES_H
#define SYMBOLS_MODULES_H

#include "symbols/btf.h"
#include "symbols/kernel.h"

#define MODULE_MEMS_MAX 16 /* MOD_MEM_NUM_TYPES is 7 on v6.4 .. v6.12 */

/* Offsets in struct module and what hangs on it. */
struct module_layout {
	u32 list, name, name_bytes, state, kallsyms;
	s64 unformed; /* MODULE_STATE_UNFORMED: not yet to be looked at */
	struct {
		u32 base, bytes, text_bytes; /* offsets in struct module */
		bool text, init;
	} mems[MODULE_MEMS_MAX];
	u32 n_mems;
	u32 symtab, num_symtab, strtab, typetab; /* in struct mod_kallsyms */
	bool has_typetab;
	u32 syms, num_syms; /* exported, in struct module */
	u32 export_bytes; /* sizeof(struct kernel_symbol); 0: not known, all shown lower case */
};

/* Part of a module's memory. */
struct module_range {
	u64 start, end;
	u64 text_end; /* start when there is no code in it */
	u32 module;
};

struct module_sym {
	u64 addr;
	u32 name; /* offset in the arena */
	u32 module;
	u32 order; /* index in its module's symbol table */
	char type;
	bool mapping; /* listed, but never the answer to a lookup */
};

struct module_set {
	struct kernel_module *mods;
	u32 n_mods;
	struct module_range *ranges; /* by address */
	u32 n_ranges;
	struct module_sym *syms; /* by address, then by order */
	u32 n_syms;
	u32 *own; /* those that a look-up may answer, by address: the first of each that is not a mapping one */
	u32 n_own;
	char *arena;
	size_t arena_bytes;
	struct module_btf **
		btf; /* of each module, NULL where there is none; NULL: of none. See module_btf.h */
};

/** module_layout_init - from BTF; -ENOENT when a member that is needed does not exist */
must_check int module_layout_init(const struct btf_types *b, struct module_layout *ret);

/**
 * modules_read - walk the list at @head (the symbol "modules")
 *
 * Return: 0; -EFAULT a pointer leads nowhere (perhaps a module went away meanwhile); -EUCLEAN the
 * list has no end or a size is beyond reason; -ENOMEM.
 */
must_check int modules_read(const struct sym_mem *mem, u64 head, const struct module_layout *l,
			    struct module_set *ret);
void module_set_deinit(struct module_set *s);

#define MODULE_STAYS UINT32_MAX

/**
 * module_set_extract - modules of @s as sets of their own
 *
 * @which: of each module of @s which of the @n sets of @ret it becomes, no two the same; or MODULE_STAYS
 * Return: 0; -ENOMEM.
 */
must_check int module_set_extract(const struct module_set *s, const u32 *which, u32 n,
				  struct module_set *ret);

/** module_range_at - the part that has @addr, NULL when none has */
const struct module_range *module_range_at(const struct module_set *s, u64 addr);

/**
 * module_sym_at - the symbol that covers @addr in the module that has it
 *
 * As find_kallsyms_symbol() picks it (kernel/module/kallsyms.c v6.1): the highest value not above
 * @addr, of equal ones the first in the symbol table; unnamed and mapping symbols do not count.
 */
const struct module_sym *module_sym_at(const struct module_set *s, u64 addr, u64 *next_ret);

/** module_sym_next - the first address behind that of symbol @i of all; @end when that comes first */
u64 module_sym_next(const struct module_set *s, u32 i, u64 end);

static inline const char *module_sym_name(const struct module_set *s, const struct module_sym *sym)
{
	return s->arena + sym->name;
}

#endif
