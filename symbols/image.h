/* SPDX-License-Identifier: Apache-2.0 */
/* A run of the kernel image's bytes with kallsyms' tables in it, read by physical address. */
#ifndef SYMBOLS_IMAGE_H
#define SYMBOLS_IMAGE_H

#include "symbols/kallsyms.h"
#include "symbols/kernel.h"

struct image {
	u8 *data;
	size_t len;
	gpa_t base; /* of data[0], page aligned */
	struct kallsyms_layout kallsyms;
};

/**
 * image_read - read from @base on until kallsyms' tables are complete
 * @limit: give up after so many bytes
 * @steps: in and out, what is left for all images together; one takes KALLSYMS_STEPS at most
 *
 * Return: 0; -ENOENT no tables there; -E2BIG no steps are left; -ENOMEM.
 */
must_check int image_read(const struct sym_mem *mem, gpa_t base, size_t limit, u64 *steps,
			  struct image *ret);
void image_deinit(struct image *im);

/** image_of_kernel - the same for a kernel whose first frame is known; -ENOENT, -E2BIG, -ENOMEM */
must_check int image_of_kernel(const struct sym_mem *mem, gpa_t first, struct image *ret);

/*
 * For all images that memory may have: of those that are none 500 of the size of IMAGE_RODATA_SEARCH, or 64
 * that are made to take as long as they can. Some seconds.
 */
#define IMAGE_STEPS (1ull << 31)

#define IMAGE_RODATA_SEARCH (32u << 20) /* kallsyms ends 3 MiB into it on 6.1 and 6.12, 6 on 7.2 */
#define IMAGE_SEARCH        (96u << 20) /* from _text */

/* What the start of .rodata shows. */
enum {
	IMAGE_PEEK_BYTES = 4096
};

/* Of the scan of RAM for vmcoreinfo, page by page. */
#define SCAN_BYTES (32ull << 30)
#define SCAN_NS    (10 * NSEC_PER_SEC)

/* How kernel_locate() looks. */
struct kernel_search {
	bool (*confirm)(void *arg, const struct kernel_location *loc); /* as there; may be NULL */
	/* before RAM is scanned: may there be a Linux at all? May be NULL */
	bool (*may_be_linux)(void *arg);
	void *arg;
	u64 steps, scan_bytes, scan_ns;
};

/** kernel_locate_as - kernel_locate() within other bounds than IMAGE_STEPS, SCAN_BYTES and SCAN_NS */
must_check int kernel_locate_as(const struct sym_mem *mem, const struct kernel_search *how,
				struct kernel_location *ret, struct err *err);

/**
 * image_is_rodata - do these first bytes of a frame look like the start of a kernel's .rodata?
 *
 * init/version.o is linked second of all (after init/main.o), so its linux_banner (a weak copy
 * since v6.1, commit 2df8220cc511) and linux_proc_banner lie in the first few hundred bytes: seen
 * at 0x1a0 and 0x280 in Debian's 6.1, at 0xe0 and 0x1e0 in 6.12.
 */
bool image_is_rodata(const u8 *data, size_t len);

#endif
