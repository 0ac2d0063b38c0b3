/* SPDX-License-Identifier: Apache-2.0 */
/* What differs between architectures in finding a kernel; one const structure for each. */
#ifndef SYMBOLS_ARCH_H
#define SYMBOLS_ARCH_H

#include "symbols/kernel.h"

struct sym_arch {
	const char *name;
	u64 image_align_bytes; /* physical and virtual alignment of the image and of .rodata */
	u64 image_max_bytes; /* the window that the kernel image lies in */
	u64 image_base; /* first virtual address of that window; physical = v - base + phys_base */
	u64 link_text; /* _text when it was not moved (vmcoreinfo's KERNELOFFSET knows better) */
	int levels_min;
	int levels_max;
	const char *root_symbol; /* the kernel's own page table, in the image */
	/* The symbol that only a kernel with landing pads at function entry has, and their size: what a
	 * call site may lie behind its function's address. */
	const char *landing_pad_symbol;
	u64 landing_pad_bytes;
	/* Walks at most levels_max tables with read_phys alone; false when @va is not mapped. */
	bool (*translate)(const struct sym_mem *mem, gpa_t root, int levels, u64 va, gpa_t *ret);
};

extern const struct sym_arch sym_arch_x86;

/** sym_arch - the guests' architecture; x86-64 so far */
static inline const struct sym_arch *sym_arch(void)
{
	return &sym_arch_x86;
}

#endif
