/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that is in a guest's RAM when its first vCPU starts. Must not know KVM.
 *
 *   0x500   GDT            0x20000  command line           0xe0000  ACPI tables
 *   0x7000  boot_params    0x9000   page tables: the       0xf0000  MP table
 *                                   first 4 GiB, identity, 2 MiB pages
 */
#ifndef MACHINE_BOOT_X86_H
#define MACHINE_BOOT_X86_H

#include "machine/acpi_x86.h"
#include "machine/mem.h"

#define BOOT_GDT           0x500
#define BOOT_GDT_ENTRIES   4
#define BOOT_CS            0x10 /* __BOOT_CS, __BOOT_DS of the 64-bit boot protocol */
#define BOOT_DS            0x18
#define BOOT_PARAMS        0x7000
#define BOOT_STACK         0x7000 /* grows down from there; kernels set up their own at once */
#define BOOT_PML4          0x9000
#define BOOT_CMDLINE       0x20000
#define BOOT_CMDLINE_MAX   0x10000
#define BOOT_ACPI          0xe0000
#define BOOT_ACPI_BYTES    0x10000
#define BOOT_MPTABLE       0xf0000
#define BOOT_MPTABLE_BYTES 0x10000

struct boot_config {
	const char *kernel;
	const char *initrd; /* NULL: none */
	const char *cmdline;
	u32 cpus;
	const struct virtio_place *virtio;
	u32 n_virtio;
};

/**
 * boot_load - load kernel and initrd, write all that the kernel is told
 * @entry_ret: where the first vCPU starts, in 64-bit mode with rsi = BOOT_PARAMS
 *
 * Context: before any vCPU runs. Return: 0; as image_load(); -ENOSPC the initrd does not fit;
 * -E2BIG the command line is too long; -EINVAL as mptable_write() and acpi_write().
 * Source: Linux v6.12 Documentation/arch/x86/boot.rst, zero-page.rst.
 */
must_check int boot_load(const struct guest_mem *m, const struct boot_config *c, u64 *entry_ret,
			 struct err *err);

#endif
