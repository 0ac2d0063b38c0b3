// SPDX-License-Identifier: Apache-2.0
/* machine/: kernel files, initrd and tables in a guest's RAM, and CPUID, without KVM. */
#include "machine/boot_x86.h"
#include "machine/cpuid_x86.h"
#include "machine/image.h"
#include "machine/mptable_x86.h"

#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (1ull << 20)

static struct guest_mem m;
static char path[64];
static int file = -1;

static int set_up(void **state)
{
	(void)state;
	file = memfd_create("kernel", MFD_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	return mem_init(&m, 64 * MIB, NULL);
}

static int tear_down(void **state)
{
	(void)state;
	close(file);
	mem_deinit(&m);
	return 0;
}

static void put(u64 off, const void *p, size_t n)
{
	assert_int_equal(pwrite(file, p, n, (off_t)off), n);
}

/* A bzImage of one setup sector and @payload bytes, at 16 MiB. */
static struct setup_header make_bzimage(u32 payload)
{
	struct setup_header h = { .setup_sects = 1,
				  .boot_flag = 0xaa55,
				  .header = 0x53726448,
				  .version = 0x20f,
				  .loadflags = LOADED_HIGH,
				  .initrd_addr_max = 0x7fffffff,
				  .xloadflags = XLF_KERNEL_64,
				  .cmdline_size = 100,
				  .pref_address = 16 * MIB,
				  .init_size = 4 * MIB };

	put(0x1f1, &h, sizeof(h));
	put(1024, "payload", 7);
	assert_int_equal(ftruncate(file, 1024 + payload), 0);
	return h;
}

static void test_bzimage(void **state)
{
	struct kernel_image k;

	(void)state;
	make_bzimage(8192);
	assert_int_equal(image_load(&m, path, &k, NULL), 0);
	assert_int_equal(k.entry, 16 * MIB + 0x200);
	assert_int_equal(k.end, 20 * MIB);
	assert_int_equal(k.cmdline_max, 100);
	assert_int_equal(k.hdr.type_of_loader, 0xff);
	assert_memory_equal(mem_at(&m, gpa(16 * MIB), 7), "payload", 7);
}

static void refuse(int no, const char *words)
{
	struct kernel_image k;
	struct err err = { 0 };

	assert_int_equal(image_load(&m, path, &k, &err), no);
	assert_non_null(strstr(err.msg, words));
}

/* A field of a file's header, what it is set to, and what is said then. */
struct lie {
	size_t off, bytes;
	u64 value;
	int no;
	const char *words;
};

#define LIE(type, field, value, no, words)                                             \
	{                                                                              \
		offsetof(type, field), sizeof(((type *)NULL)->field), value, no, words \
	}

/* Each of @lies alone, in the header of @n bytes that belongs at @at of the file. */
static void refuse_all(const struct lie *lies, size_t n_lies, const void *header, size_t n, u64 at)
{
	for (size_t i = 0; i < n_lies; i++) {
		put(at, header, n);
		put(at + lies[i].off, &lies[i].value, lies[i].bytes);
		refuse(lies[i].no, lies[i].words);
	}
}

static void test_bad_bzimages(void **state)
{
#define HDR(field, value, no, words) LIE(struct setup_header, field, value, no, words)
	static const struct lie lies[] = {
		HDR(header, 0, -ENOEXEC, "neither a bzImage nor an ELF file"),
		HDR(boot_flag, 0, -ENOEXEC, "neither"),
		HDR(version, 0x20b, -ENOEXEC, "too old"),
		HDR(loadflags, 0, -ENOEXEC, "too old"),
		HDR(xloadflags, 0, -ENOEXEC, "64-bit"),
		HDR(pref_address, 0, -ENOEXEC, "no sense"),
		HDR(pref_address, UINT64_MAX - 5, -ENOEXEC, "no sense"),
		HDR(pref_address, 62 * MIB, -ENOSPC,
		    "needs memory up to 66 MiB; the guest has 64 MiB"),
		HDR(init_size, 0xffffffff, -ENOSPC, "the guest has 64 MiB"),
		HDR(setup_sects, 255, -ENOEXEC, "cut short"),
	};
#undef HDR
	struct setup_header h = make_bzimage(8192);

	(void)state;
	refuse_all(lies, ARRAY_SIZE(lies), &h, sizeof(h), 0x1f1);
	assert_int_equal(ftruncate(file, 300), 0);
	refuse(-ENOEXEC, "neither");
	assert_int_equal(ftruncate(file, 0), 0);
	refuse(-ENOEXEC, "neither");
}

struct elf {
	Elf64_Ehdr eh;
	Elf64_Phdr ph[2];
};

#define NOTES_AT 0x1080 /* in the file */

/* A note as linkers write it. */
struct note {
	Elf64_Nhdr nh;
	char name[4];
	u32 desc[2];
};

static struct elf make_elf(void)
{
	struct elf e = { .eh = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, 1 },
				 .e_type = ET_EXEC,
				 .e_machine = EM_X86_64,
				 .e_version = 1,
				 .e_entry = 2 * MIB + 0x40,
				 .e_phoff = sizeof(Elf64_Ehdr),
				 .e_ehsize = sizeof(Elf64_Ehdr),
				 .e_phentsize = sizeof(Elf64_Phdr),
				 .e_phnum = 2 },
			 .ph = { { .p_type = PT_LOAD,
				   .p_offset = 0x1000,
				   .p_paddr = 2 * MIB,
				   .p_filesz = 0x100,
				   .p_memsz = 0x2000 },
				 { .p_type = PT_NOTE, .p_paddr = UINT64_MAX } } };

	assert_int_equal(ftruncate(file, 0x1100), 0);
	put(0x1000, "text", 4);
	put(0, &e, sizeof(e));
	return e;
}

static void test_elf(void **state)
{
	struct kernel_image k;

	(void)state;
	make_elf();
	assert_int_equal(image_load(&m, path, &k, NULL), 0);
	assert_int_equal(k.entry, 2 * MIB + 0x40);
	assert_int_equal(k.start, 2 * MIB);
	assert_int_equal(k.end, 2 * MIB + 0x2000);
	assert_memory_equal(mem_at(&m, gpa(2 * MIB), 4), "text", 4);
}

static void test_bad_elfs(void **state)
{
#define HDR(field, value, no, words) LIE(struct elf, field, value, no, words)
	static const struct lie lies[] = {
		HDR(eh.e_machine, EM_AARCH64, -ENOEXEC, "no x86-64 kernel"),
		HDR(eh.e_type, ET_DYN, -ENOEXEC, "no x86-64 kernel"),
		HDR(eh.e_phnum, 0, -ENOEXEC, "program headers"),
		HDR(eh.e_entry, 4 * MIB, -ENOEXEC, "entry lies outside"),
		HDR(ph[0].p_filesz, 0x3000, -ENOEXEC, "no sense"),
		HDR(ph[0].p_paddr, 0x7000, -ENOEXEC, "no sense"),
		HDR(ph[0].p_paddr, UINT64_MAX - 1, -ENOEXEC, "no sense"),
		HDR(ph[0].p_paddr, 64 * MIB, -ENOSPC, "the guest has 64 MiB"),
		HDR(ph[0].p_memsz, 1ull << 40, -ENOSPC, "the guest has 64 MiB"),
		HDR(ph[0].p_offset, 0x10000, -EIO, "cut short"),
		HDR(ph[0].p_type, PT_NOTE, -ENOEXEC, "entry lies outside"),
	};
#undef HDR
	struct elf e = make_elf();

	(void)state;
	refuse_all(lies, ARRAY_SIZE(lies), &e, sizeof(e), 0);
}

static const struct note pvh_note = { { 4, 4, 18 }, "Xen", { 2 * MIB + 0x80, 0 } };

/* make_elf(), with @n bytes of notes; its own entry is at @entry. */
static void make_pvh(u64 entry, const void *notes, size_t n)
{
	struct elf e = make_elf();

	e.eh.e_entry = entry;
	e.ph[1].p_offset = NOTES_AT;
	e.ph[1].p_filesz = n;
	put(0, &e, sizeof(e));
	put(NOTES_AT, notes, n);
}

static u64 pvh_entry(void)
{
	struct kernel_image k;
	struct err err = { 0 };

	assert_int_equal(image_load(&m, path, &k, &err), 0);
	return k.pvh_entry;
}

static void test_pvh_notes(void **state)
{
	const struct note other = { { 4, 4, 1 }, "GNU", { 7, 0 } };
	struct note n = pvh_note, both[2] = { other, pvh_note };
	const u8 *bytes = (const u8 *)both;
	struct kernel_image k;
	struct elf e;

	(void)state;
	make_pvh(2 * MIB + 0x40, &n, sizeof(n) - 4);
	assert_int_equal(pvh_entry(), 2 * MIB + 0x80);
	n.nh.n_descsz = 8;
	make_pvh(2 * MIB + 0x40, &n, sizeof(n));
	assert_int_equal(pvh_entry(), 2 * MIB + 0x80);
	/* behind another one; not this one, of no such name, type or length, cut short */
	both[0].nh.n_descsz = 8;
	make_pvh(2 * MIB + 0x40, both, sizeof(both));
	assert_int_equal(pvh_entry(), 2 * MIB + 0x80);
	for (size_t len = 0; len < sizeof(both) - 4; len++) {
		make_pvh(2 * MIB + 0x40, bytes, len);
		assert_int_equal(pvh_entry(), 0);
	}
	for (int i = 0; i < 4; i++) {
		n = pvh_note;
		if (i == 0)
			n.name[0] = 'Y';
		else if (i == 1)
			n.nh.n_type = 17;
		else if (i == 2)
			n.nh.n_descsz = 2;
		else
			n.nh.n_descsz = UINT32_MAX;
		make_pvh(2 * MIB + 0x40, &n, sizeof(n));
		assert_int_equal(pvh_entry(), 0);
	}
	/* an entry outside of what is loaded is none */
	n = pvh_note;
	n.desc[0] = 4 * MIB;
	make_pvh(2 * MIB + 0x40, &n, sizeof(n) - 4);
	assert_int_equal(pvh_entry(), 0);
	make_pvh(4 * MIB, &n, sizeof(n) - 4);
	refuse(-ENOEXEC, "entry lies outside");
	/* it alone is enough */
	make_pvh(0xffffffff81000000, &pvh_note, sizeof(pvh_note));
	assert_int_equal(image_load(&m, path, &k, NULL), 0);
	assert_int_equal(k.entry, 0);
	/* notes that the file does not hold */
	e = make_elf();
	e.ph[1].p_filesz = 1 << 20;
	put(0, &e, sizeof(e));
	assert_int_equal(pvh_entry(), 0);
	e.ph[1].p_offset = UINT64_MAX - 100;
	put(0, &e, sizeof(e));
	assert_int_equal(pvh_entry(), 0);
}

static u8 sum(const void *p, size_t n)
{
	u8 s = 0;

	for (size_t i = 0; i < n; i++)
		s = (u8)(s + ((const u8 *)p)[i]);
	return s;
}

static void test_mptable(void **state)
{
	const u8 *mp;
	u16 len;

	(void)state;
	assert_int_equal(mptable_write(&m, gpa(BOOT_MPTABLE), BOOT_MPTABLE_BYTES, 3, NULL), 0);
	mp = mem_at(&m, gpa(BOOT_MPTABLE), BOOT_MPTABLE_BYTES);
	assert_memory_equal(mp, "_MP_", 4);
	assert_int_equal(sum(mp, 16), 0);
	assert_memory_equal(mp + 16, "PCMP", 4);
	memcpy(&len, mp + 20, 2);
	assert_int_equal(sum(mp + 16, len), 0);
	/* three processors, a bus, an IO-APIC, 15 lines and two local ones */
	assert_int_equal(len, 44 + 3 * 20 + 8 + 8 + 17 * 8);
	assert_int_equal(mptable_write(&m, gpa(BOOT_MPTABLE), BOOT_MPTABLE_BYTES, 254, NULL), 0);
	assert_int_equal(mptable_write(&m, gpa(BOOT_MPTABLE), BOOT_MPTABLE_BYTES, 255, NULL),
			 -EINVAL);
	assert_int_equal(mptable_write(&m, gpa(BOOT_MPTABLE), BOOT_MPTABLE_BYTES, 0, NULL),
			 -EINVAL);
	assert_int_equal(mptable_write(&m, gpa(BOOT_MPTABLE), 100, 2, NULL), -ENOSPC);
	assert_int_equal(mptable_write(&m, gpa(64 * MIB), 4096, 2, NULL), -ENOSPC);
}

/* A table by its address; its length and checksum are right. */
static const u8 *table(u64 addr, const char *signature)
{
	const u8 *t = mem_at(&m, gpa(addr), 36);
	u32 len;

	assert_non_null(t);
	assert_memory_equal(t, signature, 4);
	memcpy(&len, t + 4, 4);
	t = mem_at(&m, gpa(addr), len);
	assert_non_null(t);
	assert_int_equal(sum(t, len), 0);
	return t;
}

static u64 field(const u8 *t, size_t off, size_t n)
{
	u64 v = 0;

	memcpy(&v, t + off, n);
	return v;
}

static void test_acpi(void **state)
{
	const struct virtio_place places[] = { { 0xd0000000, 5 }, { 0xd0001000, 6 } };
	struct acpi_config c = { 2, places, 2 };
	const u8 *rsdp, *xsdt, *fadt, *madt, *dsdt;

	(void)state;
	assert_int_equal(acpi_write(&m, gpa(BOOT_ACPI), BOOT_ACPI_BYTES, &c, NULL), 0);
	rsdp = mem_at(&m, gpa(BOOT_ACPI), 36);
	assert_memory_equal(rsdp, "RSD PTR ", 8);
	assert_int_equal(sum(rsdp, 20), 0);
	assert_int_equal(sum(rsdp, 36), 0);
	xsdt = table(field(rsdp, 24, 8), "XSDT");
	assert_int_equal(field(xsdt, 4, 4), 36 + 2 * 8);
	fadt = table(field(xsdt, 36, 8), "FACP");
	madt = table(field(xsdt, 44, 8), "APIC");
	assert_int_equal(field(madt, 36, 4), LAPIC_ADDR);
	assert_int_equal(field(madt, 4, 4), 44 + 2 * 8 + 12 + 2 * 10 + 6);
	dsdt = table(field(fadt, 140, 8), "DSDT");
	assert_int_equal(field(fadt, 40, 4), field(fadt, 140, 8));
	assert_memory_equal(mem_at(&m, gpa(field(fadt, 36, 4)), 4), "FACS", 4);
	assert_int_equal(field(fadt, 36, 4) % 64, 0);
	assert_non_null(memmem(dsdt, field(dsdt, 4, 4), "LNRO0005", 9));
	assert_non_null(memmem(dsdt, field(dsdt, 4, 4), "VI01", 4));
	assert_null(memmem(dsdt, field(dsdt, 4, 4), "VI02", 4));
	/* limits */
	assert_int_equal(acpi_write(&m, gpa(BOOT_ACPI), 500, &c, NULL), -ENOSPC);
	c.cpus = 254;
	assert_int_equal(acpi_write(&m, gpa(BOOT_ACPI), BOOT_ACPI_BYTES, &c, NULL), 0);
	c.cpus = 255;
	assert_int_equal(acpi_write(&m, gpa(BOOT_ACPI), BOOT_ACPI_BYTES, &c, NULL), -EINVAL);
}

static void test_boot_load(void **state)
{
	struct boot_config c = { .kernel = path, .cmdline = "console=ttyS0", .cpus = 2 };
	const struct boot_params *bp;
	struct err err = { 0 };
	char initrd[64], line[102];
	int fd = memfd_create("initrd", MFD_CLOEXEC);
	struct boot_start start;

	(void)state;
	make_bzimage(8192);
	snprintf(initrd, sizeof(initrd), "/proc/self/fd/%d", fd);
	assert_int_equal(write(fd, "initrd", 6), 6);
	c.initrd = initrd;
	assert_int_equal(boot_load(&m, &c, &start, &err), 0);
	assert_int_equal(start.entry, 16 * MIB + 0x200);
	assert_int_equal(start.protocol, BOOT_LINUX);
	bp = mem_at(&m, gpa(BOOT_PARAMS), sizeof(*bp));
	assert_int_equal(bp->hdr.ramdisk_image, 64 * MIB - PAGE_SIZE);
	assert_int_equal(bp->hdr.ramdisk_size, 6);
	assert_memory_equal(mem_at(&m, gpa(64 * MIB - PAGE_SIZE), 6), "initrd", 6);
	assert_string_equal(mem_at(&m, gpa(bp->hdr.cmd_line_ptr), 14), "console=ttyS0");
	assert_int_equal(bp->e820_entries, 4);
	assert_int_equal(bp->e820_table[3].addr, MIB);
	assert_int_equal(bp->e820_table[3].size, 63 * MIB);
	/* an initrd that would lie over the kernel, one that is none, a command line too long */
	assert_int_equal(ftruncate(fd, 44 * MIB), 0);
	assert_int_equal(boot_load(&m, &c, &start, &err), 0);
	assert_int_equal(ftruncate(fd, 44 * MIB + 1), 0);
	assert_int_equal(boot_load(&m, &c, &start, &err), -ENOSPC);
	assert_non_null(strstr(err.msg, "room for 44 MiB"));
	c.initrd = "/dev/null";
	assert_int_equal(boot_load(&m, &c, &start, &err), -EINVAL);
	c.initrd = NULL;
	memset(line, 'x', sizeof(line));
	line[101] = 0;
	c.cmdline = line;
	assert_int_equal(boot_load(&m, &c, &start, &err), -E2BIG);
	line[100] = 0;
	assert_int_equal(boot_load(&m, &c, &start, &err), 0);
	close(fd);
}

static void test_boot_load_pvh(void **state)
{
	struct boot_config c = { .kernel = path, .cmdline = "console=ttyS0", .cpus = 2 };
	const struct pvh_memmap_entry *e;
	const struct pvh_start_info *p;
	const struct pvh_module *initrd;
	struct err err = { 0 };
	struct boot_start start;
	char name[64];
	int fd = memfd_create("initrd", MFD_CLOEXEC);

	(void)state;
	/* Linux's protocol where it can be, the other one when that is asked for, or nothing else can be */
	make_pvh(2 * MIB + 0x40, &pvh_note, sizeof(pvh_note));
	assert_int_equal(boot_load(&m, &c, &start, &err), 0);
	assert_int_equal(start.protocol, BOOT_LINUX);
	assert_int_equal(start.entry, 2 * MIB + 0x40);
	c.protocol = BOOT_PVH;
	assert_int_equal(boot_load(&m, &c, &start, &err), 0);
	assert_int_equal(start.protocol, BOOT_PVH);
	assert_int_equal(start.entry, 2 * MIB + 0x80);
	p = mem_at(&m, gpa(BOOT_PARAMS), PAGE_SIZE);
	assert_int_equal(p->n_modules, 0);
	make_pvh(0xffffffff81000000, &pvh_note, sizeof(pvh_note));
	c.protocol = BOOT_LINUX;
	assert_int_equal(boot_load(&m, &c, &start, &err), -ENOEXEC);
	assert_non_null(strstr(err.msg, "try --protocol pvh"));
	c.protocol = BOOT_AUTO;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	assert_int_equal(write(fd, "initrd", 6), 6);
	c.initrd = name;
	assert_int_equal(boot_load(&m, &c, &start, &err), 0);
	assert_int_equal(start.protocol, BOOT_PVH);
	/* what it is told */
	assert_int_equal(p->magic, PVH_MAGIC);
	assert_int_equal(p->version, 1);
	assert_string_equal(mem_at(&m, gpa(p->cmdline), 14), "console=ttyS0");
	assert_memory_equal(mem_at(&m, gpa(p->rsdp), 8), "RSD PTR ", 8);
	assert_int_equal(p->n_modules, 1);
	initrd = mem_at(&m, gpa(p->modules), sizeof(*initrd));
	assert_int_equal(initrd->len, 6);
	assert_memory_equal(mem_at(&m, gpa(initrd->addr), 6), "initrd", 6);
	assert_int_equal(p->n_memmap, 4);
	e = mem_at(&m, gpa(p->memmap), 4 * sizeof(*e));
	assert_int_equal(e[0].addr, 0);
	assert_int_equal(e[3].addr, MIB);
	assert_int_equal(e[3].len, 63 * MIB);
	assert_int_equal(e[3].type, 1);
	close(fd);
	/* a bzImage has no such note */
	assert_int_equal(ftruncate(file, 0), 0);
	make_bzimage(8192);
	c = (struct boot_config){ .protocol = BOOT_PVH, .kernel = path, .cmdline = "", .cpus = 1 };
	assert_int_equal(boot_load(&m, &c, &start, &err), -ENOEXEC);
	assert_non_null(strstr(err.msg, "has no PVH entry"));
}

static void test_cpuid(void **state)
{
	struct kvm_cpuid2 *t = calloc(1, sizeof(*t) + 4 * sizeof(t->entries[0]));
	struct cpuid_config c = { .id = 1, .cpus = 3, .tsc_deadline = true };

	(void)state;
	assert_non_null(t);
	t->nent = 4;
	t->entries[0] = (struct kvm_cpuid_entry2){ .function = 1, .ebx = 0x0800, .ecx = ~0u };
	t->entries[1] = (struct kvm_cpuid_entry2){ .function = 7, .ebx = ~0u, .edx = ~0u };
	t->entries[2] = (struct kvm_cpuid_entry2){ .function = 0xb, .index = 1, .ecx = 9 };
	t->entries[3] = (struct kvm_cpuid_entry2){ .function = 0x80000001, .edx = 1u << 27 };
	cpuid_filter(t, &c);
	assert_int_equal(t->entries[0].ebx, 1 << 24 | 3 << 16 | 0x0800);
	assert_false(t->entries[0].ecx & 1 << 3); /* monitor */
	assert_true(t->entries[0].ecx & 1 << 24); /* deadline timer */
	assert_true(t->entries[0].ecx & 1 << 13); /* cmpxchg16b */
	assert_true(t->entries[1].ebx & 1 << 20); /* smap */
	assert_int_equal(t->entries[2].eax, 2); /* two bits of a core's number */
	assert_int_equal(t->entries[2].ebx, 3);
	assert_int_equal(t->entries[2].edx, 1);
	/* an emulator's */
	c.emulated = true;
	c.tsc_deadline = false;
	cpuid_filter(t, &c);
	assert_false(t->entries[0].ecx & (1 << 13 | 1 << 23 | 1 << 24 | 1 << 26));
	assert_false(t->entries[1].ebx & (1 << 9 | 1 << 10 | 1 << 20));
	assert_false(t->entries[1].edx & 1 << 4);
	assert_int_equal(t->entries[3].edx, 0);
	free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_bzimage, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_bad_bzimages, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_elf, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_bad_elfs, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_pvh_notes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_mptable, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_acpi, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_boot_load, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_boot_load_pvh, set_up, tear_down),
		cmocka_unit_test(test_cpuid),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
