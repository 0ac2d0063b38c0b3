/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's own symbols in compact arrays: by address as kallsyms has them, by name through a
 * hash. Filled by one parser, then read-only. Must not know where they came from.
 */
#ifndef SYMBOLS_SYM_TABLE_H
#define SYMBOLS_SYM_TABLE_H

#include "base/types.h"

#define SYM_NAME_MAX  512 /* KSYM_NAME_LEN since v6.1 (include/linux/kallsyms.h); 128 before */
#define SYM_COUNT_MAX (1u << 20)

struct sym_table {
	u64 *addr; /* ascending */
	u32 *name; /* offset in the arena: type character, name, NUL */
	u64 *hash; /* hash of the name << 32 | index + 1; 0 is free */
	u32 *hashes; /* of each name, until sym_table_index() */
	char *arena;
	size_t arena_bytes;
	u32 n;
	u32 hash_mask;
};

/** sym_table_alloc - room for @n symbols and @arena_bytes of names; -ENOMEM, -E2BIG */
must_check int sym_table_alloc(struct sym_table *t, u32 n, size_t arena_bytes);
void sym_table_deinit(struct sym_table *t);

/** sym_name_hash - of @len bytes */
u32 sym_name_hash(const char *name, size_t len);

/** sym_table_set - symbol @i: its type and name are in the arena at @name, @len bytes and a NUL */
static inline void sym_table_set(struct sym_table *t, u32 i, u64 addr, size_t name, size_t len)
{
	t->addr[i] = addr;
	t->name[i] = (u32)name;
	t->hashes[i] = sym_name_hash(t->arena + name + 1, len - 1);
}

/**
 * sym_table_index - build the hash; the arrays are complete
 *
 * Of a name that occurs more than once the first is kept. Return: 0; -EUCLEAN when names collide as
 * no honest kernel's do.
 */
must_check int sym_table_index(struct sym_table *t);

static inline const char *sym_table_name(const struct sym_table *t, u32 i)
{
	return t->arena + t->name[i] + 1;
}

static inline char sym_table_type(const struct sym_table *t, u32 i)
{
	return t->arena[t->name[i]];
}

/** sym_table_find - index of the first symbol called @name; false when there is none */
bool sym_table_find(const struct sym_table *t, const char *name, u32 *ret);

/**
 * sym_table_at - the symbol that covers @addr: of several at one address the first, as
 * get_symbol_pos() picks it (kernel/kallsyms.c v6.1)
 *
 * @hint: in and out, where to start looking; saves the search for ascending addresses
 */
bool sym_table_at(const struct sym_table *t, u64 addr, u32 *hint, u32 *ret);

/** sym_table_next - the first address behind that of symbol @i; @end when there is none */
u64 sym_table_next(const struct sym_table *t, u32 i, u64 end);

#endif
