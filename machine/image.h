/* SPDX-License-Identifier: Apache-2.0 */
/* Linux kernel files: a bzImage or an ELF vmlinux, into guest RAM. Must not know KVM. */
#ifndef MACHINE_IMAGE_H
#define MACHINE_IMAGE_H

#include "machine/mem.h"

#include <asm/bootparam.h>

/* What was loaded, and what its boot protocol says. */
struct kernel_image {
	struct setup_header hdr; /* of the file; one that we make for an ELF file, which has none */
	u64 entry; /* guest physical, for a CPU in 64-bit mode; 0: none */
	u64 pvh_entry; /* for one in 32-bit mode, by the PVH protocol; 0: none */
	u64 start, end; /* RAM that the kernel takes until it manages memory itself */
	u32 cmdline_max; /* bytes of its command line, without the zero at the end */
};

/**
 * image_load - put the kernel in file @path into RAM
 *
 * A bzImage unpacks itself when it runs. It goes to its preferred address, an ELF file where its
 * program headers say. Each has one of the two entries at least.
 * Context: before any vCPU runs. Return: 0; -ENOEXEC no such kernel, or one without an entry known here;
 * -ENOSPC it does not fit into RAM; -ENOENT, -EACCES, -EIO and others of open(2) and read(2).
 * Source: Linux v6.12 Documentation/arch/x86/boot.rst (header, 64-bit boot protocol); System V ABI, ELF;
 * Xen docs/misc/pvh.pandoc (the note with the PVH entry).
 */
must_check int image_load(const struct guest_mem *m, const char *path, struct kernel_image *ret,
			  struct err *err);

/** image_pread - all of @len bytes at @off of a file, or fail; a short file is -EIO */
must_check int image_pread(int fd, void *buf, u64 len, u64 off, const char *path, struct err *err);

#endif
