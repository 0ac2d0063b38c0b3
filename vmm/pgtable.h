/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's page tables. Reads entries through a callback, so that it is tested and fuzzed from a
 * byte array. Must not know where memory comes from.
 */
#ifndef VMM_PGTABLE_H
#define VMM_PGTABLE_H

#include "vmm/vm.h"

struct pgtable {
	/* the 8 bytes at guest physical @addr; 0 or -EFAULT outside RAM */
	int (*read_entry)(void *arg, u64 addr, u64 *entry_ret);
	void *arg;
	gpa_t root;
	int levels; /* 4 or 5 */
};

/**
 * pgtable_walk - translate @addr; at most five entries are read, whatever the tables say
 *
 * Return: 0; -EFAULT not canonical, not present, or an entry lies outside RAM; -EINVAL bad levels.
 * Source: Intel SDM vol. 3A, 4.5 "4-level paging and 5-level paging", tables 4-14 to 4-20.
 */
must_check int pgtable_walk(const struct pgtable *pt, gva_t addr, struct vm_mapping *ret,
			    struct err *err);

#endif
