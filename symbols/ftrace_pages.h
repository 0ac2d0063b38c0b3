/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's own list of call sites, ftrace_pages_start. Must not know names. */
#ifndef SYMBOLS_FTRACE_PAGES_H
#define SYMBOLS_FTRACE_PAGES_H

#include "symbols/btf.h"
#include "symbols/kernel.h"

#define FTRACE_SITES_MAX (1u << 20)

/* Offsets and flags, all from BTF. */
struct ftrace_layout {
	u32 next, records, index; /* in struct ftrace_page */
	u32 capacity;
	bool capacity_is_order;
	u32 rec_bytes, ip, flags; /* struct dyn_ftrace */
	u64 disabled; /* FTRACE_FL_DISABLED */
	u64 in_use; /* the reference count's bits and the flags that say who uses it */
};

struct site_list {
	struct ftrace_site *sites;
	u32 n;
};

/** ftrace_layout_init - -ENOENT: the kernel has no dynamic ftrace; -EUCLEAN sizes beyond reason */
must_check int ftrace_layout_init(const struct btf_types *b, struct ftrace_layout *ret);

/** ftrace_state - what flags of a record say */
enum site_state ftrace_state(const struct ftrace_layout *l, u64 flags);

/**
 * ftrace_pages_read - all records, in the guest's order; names and modules are left NULL
 * @head: value of the symbol ftrace_pages_start
 *
 * Return: 0; -EFAULT a pointer leads nowhere; -EUCLEAN a count is beyond its page or the list has
 * no end; -ENOMEM. *ret is from malloc.
 */
must_check int ftrace_pages_read(const struct sym_mem *mem, u64 head, const struct ftrace_layout *l,
				 struct site_list *ret);

#endif
