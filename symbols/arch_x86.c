// SPDX-License-Identifier: Apache-2.0
/* x86-64: image placement and page tables, for finding the kernel before anything else is known. */
#include "symbols/arch.h"

#include "symbols/mem.h"

#define PTE_PRESENT 0x1ull
#define PTE_PS      0x80ull
#define PTE_ADDR    0x000ffffffffff000ull

/*
 * Intel SDM vol. 3A, 4.5. Only the kernel's half is asked for. No more than @levels reads: the walk
 * cannot loop whatever the tables hold.
 */
static bool translate(const struct sym_mem *mem, gpa_t root, int levels, u64 va, gpa_t *ret)
{
	u64 table = root.v & PTE_ADDR;

	for (int level = levels; level >= 1; level--) {
		unsigned int shift = 12 + 9 * ((unsigned int)level - 1);
		u64 in_page = (1ull << shift) - 1;
		u64 entry;

		if (mem_phys(mem, table + ((va >> shift) & 511) * 8, &entry, sizeof(entry)))
			return false;
		if (!(entry & PTE_PRESENT))
			return false;
		if (level > 3 && (entry & PTE_PS)) /* reserved in PML4 and PML5 entries */
			return false;
		if (level == 1 || (entry & PTE_PS)) {
			*ret = gpa((entry & PTE_ADDR & ~in_page) | (va & in_page));
			return true;
		}
		table = entry & PTE_ADDR;
	}
	return false;
}

/*
 * image_align: CONFIG_PHYSICAL_ALIGN is at least 2 MiB on x86-64, and arch/x86/kernel/vmlinux.lds.S
 * aligns .rodata by X86_ALIGN_RODATA_BEGIN to HPAGE_SIZE (v6.1; since 2.6.x under DEBUG_RODATA).
 * image_base: __START_KERNEL_map; KERNEL_IMAGE_SIZE is 1 GiB with KASLR, else 512 MiB
 * (arch/x86/include/asm/page_64_types.h). link_text: __START_KERNEL, CONFIG_PHYSICAL_START 16 MiB.
 * landing pad: endbr64, 4 bytes; vmlinux.lds.S has the symbol under CONFIG_X86_KERNEL_IBT (v5.18+).
 */
const struct sym_arch sym_arch_x86 = {
	.name = "x86_64",
	.image_align_bytes = 2ull << 20,
	.image_max_bytes = 1ull << 30,
	.image_base = 0xffffffff80000000ull,
	.link_text = 0xffffffff81000000ull,
	.levels_min = 4,
	.levels_max = 5,
	.root_symbol = "init_top_pgt",
	.landing_pad_symbol = "__ibt_endbr_seal",
	.landing_pad_bytes = 4,
	.translate = translate,
};
