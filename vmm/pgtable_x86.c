// SPDX-License-Identifier: Apache-2.0
/* x86-64 page walks, 4 and 5 levels. See pgtable.h. */
#include "vmm/pgtable.h"

#include <errno.h>

#define PTE_PRESENT (1ull << 0)
#define PTE_WRITE   (1ull << 1)
#define PTE_USER    (1ull << 2)
#define PTE_LARGE   (1ull << 7) /* PS in levels 2 and 3; PAT in level 1 */
#define PTE_NX      (1ull << 63)
#define PTE_ADDR    0x000ffffffffff000ull /* bits 51..12 */

#define LEVEL_BITS 9
#define LEVEL_PAGE 1 /* 4 KiB */
#define LEVEL_1G   3 /* the highest level whose entry may map a page itself */

static unsigned int level_shift(int level)
{
	return 12 + LEVEL_BITS * (unsigned int)(level - 1);
}

/* Bits above the highest translated one must all equal it (SDM vol. 1, 3.3.7.1). */
static bool canonical(u64 addr, int levels)
{
	unsigned int bits = level_shift(levels + 1);
	s64 high = (s64)addr >> (bits - 1);

	return high == 0 || high == -1;
}

int pgtable_walk(const struct pgtable *pt, gva_t addr, struct vm_mapping *ret, struct err *err)
{
	u64 table = pt->root.v & PTE_ADDR;
	bool w = true;
	bool x = true;
	bool u = true;

	if (pt->levels != 4 && pt->levels != 5)
		return err_set(err, -EINVAL, ERR_NONE, addr.v, "no page table root is set");
	if (!canonical(addr.v, pt->levels))
		return err_set(err, -EFAULT, ERR_GUEST_MEMORY, addr.v,
			       "0x%llx is not a canonical address", (unsigned long long)addr.v);
	for (int level = pt->levels; level >= LEVEL_PAGE; level--) {
		unsigned int shift = level_shift(level);
		u64 pte = table + ((addr.v >> shift) & 511) * sizeof(u64);
		u64 mask = (1ull << shift) - 1;
		u64 entry;

		if (pt->read_entry(pt->arg, pte, &entry) < 0)
			return err_set(err, -EFAULT, ERR_GUEST_MEMORY, addr.v,
				       "page table of 0x%llx points outside RAM (0x%llx)",
				       (unsigned long long)addr.v, (unsigned long long)pte);
		if (!(entry & PTE_PRESENT))
			return err_set(err, -EFAULT, ERR_GUEST_MEMORY, addr.v,
				       "0x%llx is not mapped in the guest (level %d)",
				       (unsigned long long)addr.v, level);
		w = w && (entry & PTE_WRITE);
		u = u && (entry & PTE_USER);
		x = x && !(entry & PTE_NX);
		if (level == LEVEL_PAGE || (level <= LEVEL_1G && (entry & PTE_LARGE))) {
			*ret = (struct vm_mapping){
				.gpa = gpa((entry & PTE_ADDR & ~mask) | (addr.v & mask)),
				.pte = gpa(pte),
				.entry = entry,
				.page_bytes = mask + 1,
				.writable = w,
				.executable = x,
				.user = u,
			};
			return 0;
		}
		table = entry & PTE_ADDR;
	}
	return -EFAULT; /* not reached: level 1 always returns */
}
