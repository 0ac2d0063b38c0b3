// SPDX-License-Identifier: Apache-2.0
/* What is in a guest's RAM when it starts. See boot_x86.h. */
#include "machine/boot_x86.h"

#include "base/cleanup.h"
#include "machine/image.h"
#include "machine/mptable_x86.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define LOW_RAM_END   0x9fc00 /* where a PC's extended BIOS data begins */
#define HIGH_RAM      0x100000
#define E820_RAM      1
#define E820_RESERVED 2
#define E820_MOST     5

/* A PVH kernel's, all in the page that boot_params take otherwise. */
#define PVH_MODULES (BOOT_PARAMS + 0x100)
#define PVH_MEMMAP  (BOOT_PARAMS + 0x200)

#define PT_PRESENT_WRITABLE 3ull
#define PT_LARGE            0x80ull
#define TABLE_ENTRIES       512

/* Flat segments, as the boot protocol wants them: Intel SDM vol. 3A, 3.4.5. */
static const u64 gdt[BOOT_GDT_ENTRIES] = {
	[BOOT_CS / 8] = 0x00af9b000000ffff, /* code, 64-bit */
	[BOOT_DS / 8] = 0x00cf93000000ffff, /* data */
	[BOOT_CS32 / 8] = 0x00cf9b000000ffff, /* code, 32-bit */
};

static void write_page_tables(const struct guest_mem *m)
{
	u64 *pml4 = mem_at(m, gpa(BOOT_PML4), 6 * PAGE_SIZE);
	u64 *pdpt = pml4 + TABLE_ENTRIES;
	u64 *pd = pdpt + TABLE_ENTRIES;

	memset(pml4, 0, 6 * PAGE_SIZE);
	pml4[0] = (BOOT_PML4 + PAGE_SIZE) | PT_PRESENT_WRITABLE;
	for (u64 i = 0; i < 4; i++)
		pdpt[i] = (BOOT_PML4 + (2 + i) * PAGE_SIZE) | PT_PRESENT_WRITABLE;
	for (u64 i = 0; i < 4 * TABLE_ENTRIES; i++)
		pd[i] = i << 21 | PT_LARGE | PT_PRESENT_WRITABLE;
}

/* At the highest place below both the hole and what the kernel can reach. */
static int load_initrd(const struct guest_mem *m, const char *path, struct kernel_image *k,
		       struct err *err)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	u64 top = MIN(mem_low_bytes(m), (u64)k->hdr.initrd_addr_max + 1);
	u64 at, len;
	struct stat st;
	void *p;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(err, -errno, ERR_IO, 0, "%s: %s", path, strerrordesc_np(errno));
	len = (u64)st.st_size;
	if (!S_ISREG(st.st_mode) || !len)
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0, "%s: not a file with an initrd",
			       path);
	if (len > top || ((top - len) & PAGE_MASK) < k->end)
		return err_set(err, -ENOSPC, ERR_BAD_REQUEST, 0,
			       "%s: the initrd has %llu MiB, there is room for %llu MiB behind the "
			       "kernel; give the guest more memory",
			       path, (unsigned long long)((len + (1 << 20) - 1) >> 20),
			       (unsigned long long)(top > k->end ? (top - k->end) >> 20 : 0));
	at = (top - len) & PAGE_MASK;
	p = mem_at(m, gpa(at), len);
	if (!p)
		return err_set(err, -ENOSPC, ERR_BAD_REQUEST, 0, "%s: no room", path);
	k->hdr.ramdisk_image = (u32)at;
	k->hdr.ramdisk_size = (u32)len;
	return image_pread(fd, p, len, 0, path, err);
}

static int write_cmdline(const struct guest_mem *m, const char *text, struct kernel_image *k,
			 struct err *err)
{
	u64 len = strlen(text);

	if (len > k->cmdline_max || len >= BOOT_CMDLINE_MAX)
		return err_set(err, -E2BIG, ERR_BAD_REQUEST, 0,
			       "the kernel takes a command line of %u bytes, not %llu",
			       k->cmdline_max, (unsigned long long)len);
	k->hdr.cmd_line_ptr = BOOT_CMDLINE;
	if (!mem_write(m, gpa(BOOT_CMDLINE), text, len + 1))
		return err_set(err, -ENOSPC, ERR_NONE, BOOT_CMDLINE,
			       "no room for the command line");
	return 0;
}

/* The firmware's map of memory; the last run is empty where all fits below the hole. */
static u32 memory_map(const struct guest_mem *m, struct boot_e820_entry *e)
{
	const struct boot_e820_entry all[E820_MOST] = {
		{ 0, LOW_RAM_END, E820_RAM },
		{ LOW_RAM_END, 0xa0000 - LOW_RAM_END, E820_RESERVED },
		{ BOOT_ACPI, HIGH_RAM - BOOT_ACPI, E820_RESERVED },
		{ HIGH_RAM, mem_low_bytes(m) - HIGH_RAM, E820_RAM },
		{ MEM_HOLE_END, mem_high_bytes(m), E820_RAM },
	};

	memcpy(e, all, sizeof(all));
	return mem_high_bytes(m) ? E820_MOST : E820_MOST - 1;
}

static void write_zero_page(const struct guest_mem *m, const struct kernel_image *k)
{
	struct boot_params *bp = mem_at(m, gpa(BOOT_PARAMS), sizeof(*bp));
	struct boot_e820_entry map[E820_MOST];

	memset(bp, 0, sizeof(*bp));
	bp->hdr = k->hdr;
	bp->acpi_rsdp_addr = BOOT_ACPI;
	bp->e820_entries = (u8)memory_map(m, map);
	memcpy(bp->e820_table, map, sizeof(map));
}

static void write_pvh_info(const struct guest_mem *m, const struct kernel_image *k)
{
	struct pvh_start_info *info = mem_at(m, gpa(BOOT_PARAMS), PAGE_SIZE);
	struct pvh_module *initrd = mem_at(m, gpa(PVH_MODULES), sizeof(*initrd));
	struct pvh_memmap_entry *e = mem_at(m, gpa(PVH_MEMMAP), E820_MOST * sizeof(*e));
	struct boot_e820_entry map[E820_MOST];

	memset(info, 0, PAGE_SIZE);
	*info = (struct pvh_start_info){ .magic = PVH_MAGIC,
					 .version = 1,
					 .cmdline = BOOT_CMDLINE,
					 .rsdp = BOOT_ACPI,
					 .memmap = PVH_MEMMAP,
					 .n_memmap = memory_map(m, map) };
	for (u32 i = 0; i < info->n_memmap; i++)
		e[i] = (struct pvh_memmap_entry){ .addr = map[i].addr,
						  .len = map[i].size,
						  .type = map[i].type };
	if (!k->hdr.ramdisk_size)
		return;
	info->n_modules = 1;
	info->modules = PVH_MODULES;
	*initrd = (struct pvh_module){ .addr = k->hdr.ramdisk_image, .len = k->hdr.ramdisk_size };
}

static int choose_protocol(const struct boot_config *c, const struct kernel_image *k,
			   struct boot_start *ret, struct err *err)
{
	enum boot_protocol p = c->protocol;

	if (p == BOOT_AUTO)
		p = k->entry ? BOOT_LINUX : BOOT_PVH;
	*ret = (struct boot_start){ p, p == BOOT_PVH ? k->pvh_entry : k->entry };
	if (ret->entry)
		return 0;
	return err_set(err, -ENOEXEC, ERR_BAD_REQUEST, 0,
		       p == BOOT_PVH
			       ? "%s has no PVH entry: ELF files with a note that says so do"
			       : "%s has no 64-bit entry in what is loaded: try --protocol pvh",
		       c->kernel);
}

int boot_load(const struct guest_mem *m, const struct boot_config *c, struct boot_start *ret,
	      struct err *err)
{
	struct acpi_config acpi = { c->cpus, c->virtio, c->n_virtio };
	struct kernel_image k;
	int rc;

	rc = image_load(m, c->kernel, &k, err);
	if (!rc)
		rc = choose_protocol(c, &k, ret, err);
	if (!rc && c->initrd)
		rc = load_initrd(m, c->initrd, &k, err);
	if (!rc)
		rc = write_cmdline(m, c->cmdline, &k, err);
	if (!rc)
		rc = mptable_write(m, gpa(BOOT_MPTABLE), BOOT_MPTABLE_BYTES, c->cpus, err);
	if (!rc)
		rc = acpi_write(m, gpa(BOOT_ACPI), BOOT_ACPI_BYTES, &acpi, err);
	if (rc)
		return rc;
	if (ret->protocol == BOOT_PVH)
		write_pvh_info(m, &k);
	else
		write_zero_page(m, &k);
	write_page_tables(m);
	if (!mem_write(m, gpa(BOOT_GDT), gdt, sizeof(gdt)))
		return err_set(err, -ENOSPC, ERR_NONE, BOOT_GDT, "no room for the GDT");
	return 0;
}
