/* SPDX-License-Identifier: Apache-2.0 */
/* vmcoreinfo: the text that the kernel keeps for its crash tools. Parses bytes, nothing else. */
#ifndef SYMBOLS_VMCOREINFO_H
#define SYMBOLS_VMCOREINFO_H

#include "base/types.h"

#define VMCOREINFO_BYTES_MAX 4096 /* VMCOREINFO_BYTES is a page (include/linux/vmcore_info.h) */

/* What we use of it. Addresses are 0 where the kernel does not say. */
struct vmcoreinfo {
	char release[128]; /* OSRELEASE */
	char build_id[64]; /* BUILD-ID, hex; since v5.9 or so, "" before */
	u64 stext;
	u64 swapper_pg_dir;
	u64 kallsyms_names; /* these since v6.0 (commit 5fd8fea935a1) */
	u64 kallsyms_token_index;
	u64 kallsyms_offsets;
	u64 phys_base; /* NUMBER(phys_base) */
	u64 kernel_offset; /* KERNELOFFSET */
	bool has_phys_base;
	bool has_kernel_offset;
	int l5_enabled; /* NUMBER(pgtable_l5_enabled); -1 when not said */
};

/** vmcoreinfo_parse - read the text in @data, up to its NUL or @len; -ENOENT no OSRELEASE first */
must_check int vmcoreinfo_parse(const void *data, size_t len, struct vmcoreinfo *ret);

#endif
