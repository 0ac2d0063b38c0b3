/* SPDX-License-Identifier: Apache-2.0 */
/* struct kernel, for kernel*.c alone. */
#ifndef SYMBOLS_KERNEL_PRIV_H
#define SYMBOLS_KERNEL_PRIV_H

#include "symbols/arch.h"
#include "symbols/btf.h"
#include "symbols/ftrace_pages.h"
#include "symbols/kernel.h"
#include "symbols/modules.h"
#include "symbols/sym_table.h"
#include "symbols/vmcoreinfo.h"

struct addr_range {
	u64 start, end;
};

struct kernel {
	struct sym_mem mem;
	struct kernel_location loc;
	struct sym_table syms;
	struct btf_types btf;

	char release[128];
	char build_id[64];
	u32 version;
	gva_t vmcoreinfo; /* 0: none */
	u64 vmcoreinfo_bytes;

	struct addr_range image; /* what kallsyms speaks of: _stext .. _end */
	struct addr_range text[2]; /* where call sites may lie: text, init sections */
	u64 site_offset_max; /* FTRACE_MCOUNT_MAX_OFFSET */
	u64 percpu_offsets; /* __per_cpu_offset; 0 on a kernel without SMP */
	u32 nr_cpu_ids;

	bool has_modules;
	u64 modules_head;
	struct module_layout module_layout;
	u64 pages_head;
	struct ftrace_layout ftrace_layout;

	/* Read again by kernel_refresh(). */
	struct module_set mods;
	struct site_list sites;
	u32 *by_ip; /* indexes of sites by ip; NULL when they are in that order already */
	char *site_names; /* of sites that have no symbol's name */
};

/* Release, version, build id; where vmcoreinfo is, once the kernel has made it. */
void kernel_load_identity(struct kernel *k);

/* for _cleanup_() */
void kernel_destroyp(struct kernel **k);

#endif
