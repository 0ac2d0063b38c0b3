/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kallsyms' compressed tables in the bytes of a kernel image, found by their structure: nothing
 * needs to be known but that they are somewhere in these bytes. Must not know guest memory.
 */
#ifndef SYMBOLS_KALLSYMS_H
#define SYMBOLS_KALLSYMS_H

#include "base/types.h"
#include "symbols/sym_table.h"

/* Where the tables lie in the bytes; everything was checked by kallsyms_find(). */
struct kallsyms_layout {
	u32 n_syms;
	size_t names;
	size_t names_end;
	size_t token_table;
	size_t token_index;
	size_t offsets;
	u64 relative_base;
	bool absolute_percpu;
	bool place_relative; /* relative_base is where the bytes begin: 0 until kallsyms_place() */
	size_t text_bytes; /* all names expanded: type, name, NUL */
};

/* A name to look for without expanding everything. */
struct kallsyms_want {
	const char *name;
	u64 addr;
	bool found;
};

/*
 * Steps, some nanoseconds each, that a search for one table may take in one run of bytes. The honest need a
 * few million: each position on the way there and on the way back to the first name, and each name. Memory
 * made so that everything looks like a table takes what it gets.
 */
#define KALLSYMS_STEPS (1ull << 25)

/**
 * kallsyms_find - find the tables in @data
 * @from: in: where to start; out when they are not there: where to go on with more bytes behind
 * @steps: in: how many the search may take; out: how many are left
 *
 * All names are walked and compared with the markers, so that a layout is right or not returned.
 * Return: 0; -ENOENT; -E2BIG no steps are left.
 * Source: scripts/kallsyms.c write_src() v5.4, v6.1, v6.12, v7.0.
 */
must_check int kallsyms_find(const u8 *data, size_t len, size_t *from, u64 *steps,
			     struct kallsyms_layout *ret);

/**
 * kallsyms_place - say where in the guest the first of the bytes lies
 *
 * Since v7.0 the tables have no address in them, only distances between themselves and the symbols. Until this
 * is called addresses count from the first byte, and those before it are negative. Does nothing to tables that
 * know their addresses. Return: 0; -EUCLEAN there they would not be a kernel's.
 */
must_check int kallsyms_place(const u8 *data, struct kallsyms_layout *l, u64 first);

/** kallsyms_lookup - addresses of the first symbols called so; fills @wants */
void kallsyms_lookup(const u8 *data, const struct kallsyms_layout *l, struct kallsyms_want *wants,
		     size_t n_wants);

/** kallsyms_expand - all symbols into @t, indexed; -ENOMEM, -EUCLEAN, -E2BIG */
must_check int kallsyms_expand(const u8 *data, const struct kallsyms_layout *l,
			       struct sym_table *t);

#endif
