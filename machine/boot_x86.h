/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that is in a guest's RAM when its first vCPU starts. Must not know KVM.
 *
 *   0x500   GDT            0x20000  command line           0xe0000  ACPI tables
 *   0x7000  boot_params    0x9000   page tables: the       0xf0000  MP table
 *           or PVH info             first 4 GiB, identity, 2 MiB pages
 */
#ifndef MACHINE_BOOT_X86_H
#define MACHINE_BOOT_X86_H

#include "machine/acpi_x86.h"
#include "machine/mem.h"

#define BOOT_GDT           0x500
#define BOOT_GDT_ENTRIES   5
#define BOOT_CS            0x10 /* __BOOT_CS, __BOOT_DS of the 64-bit boot protocol */
#define BOOT_DS            0x18
#define BOOT_CS32          0x20 /* of the PVH protocol, which has no selectors of its own */
#define BOOT_PARAMS        0x7000 /* what the first vCPU is told the address of */
#define BOOT_STACK         0x7000 /* grows down from there; kernels set up their own at once */
#define BOOT_PML4          0x9000
#define BOOT_CMDLINE       0x20000
#define BOOT_CMDLINE_MAX   0x10000
#define BOOT_ACPI          0xe0000
#define BOOT_ACPI_BYTES    0x10000
#define BOOT_MPTABLE       0xf0000
#define BOOT_MPTABLE_BYTES 0x10000

/* How a kernel is entered, and in which form it is told what there is. */
enum boot_protocol {
	BOOT_AUTO, /* Linux's, where the file has an entry for it */
	BOOT_LINUX, /* 64-bit mode, rsi = BOOT_PARAMS: a struct boot_params */
	BOOT_PVH /* 32-bit mode without paging, ebx = BOOT_PARAMS: a struct pvh_start_info */
};

/* What a PVH kernel is told. Source: Xen xen/include/public/arch-x86/hvm/start_info.h, version 1. */
struct pvh_start_info {
	u32 magic;
	u32 version;
	u32 flags;
	u32 n_modules;
	u64 modules; /* guest physical, as all that follow: struct pvh_module */
	u64 cmdline;
	u64 rsdp;
	u64 memmap; /* struct pvh_memmap_entry */
	u32 n_memmap;
	u32 reserved;
};

struct pvh_module {
	u64 addr, len;
	u64 cmdline; /* 0: none */
	u64 reserved;
};

struct pvh_memmap_entry {
	u64 addr, len;
	u32 type; /* as in an e820 map */
	u32 reserved;
};

#define PVH_MAGIC 0x336ec578u

struct boot_config {
	enum boot_protocol protocol;
	const char *kernel;
	const char *initrd; /* NULL: none */
	const char *cmdline;
	u32 cpus;
	const struct virtio_place *virtio;
	u32 n_virtio;
};

/* Where the first vCPU starts, and in which mode. */
struct boot_start {
	enum boot_protocol protocol; /* not BOOT_AUTO */
	u64 entry; /* guest physical */
};

/**
 * boot_load - load kernel and initrd, write all that the kernel is told
 *
 * Context: before any vCPU runs. Return: 0; as image_load(); -ENOEXEC the kernel has no entry for the protocol
 * asked for; -ENOSPC the initrd does not fit; -E2BIG the command line is too long; -EINVAL as mptable_write()
 * and acpi_write().
 * Source: Linux v6.12 Documentation/arch/x86/boot.rst, zero-page.rst; Xen docs/misc/pvh.pandoc.
 */
must_check int boot_load(const struct guest_mem *m, const struct boot_config *c,
			 struct boot_start *ret, struct err *err);

#endif
