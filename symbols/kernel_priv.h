/* SPDX-License-Identifier: Apache-2.0 */
/* struct kernel, for kernel*.c alone. */
#ifndef SYMBOLS_KERNEL_PRIV_H
#define SYMBOLS_KERNEL_PRIV_H

#include "symbols/arch.h"
#include "symbols/btf.h"
#include "symbols/ftrace_pages.h"
#include "symbols/kernel.h"
#include "symbols/module_btf.h"
#include "symbols/modules.h"
#include "symbols/sym_table.h"
#include "symbols/vmcoreinfo.h"

#include <pthread.h>
#include <stdatomic.h>

struct addr_range {
	u64 start, end;
};

/* A module that is no more, for the records that name it. */
struct retired_module {
	struct retired_module *next; /* the one that went before */
	u32 born, died; /* epochs: it was there in born .. died - 1 */
	struct module_set set; /* it alone */
};

struct kernel {
	atomic_uint refs;
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
	struct module_btf_layout module_btf_layout;
	u64 pages_head;
	struct ftrace_layout ftrace_layout;

	/* Read again by kernel_refresh(). */
	struct module_set mods;
	struct site_list sites;
	u32 *by_ip; /* indexes of sites by ip; NULL when they are in that order already */
	char *site_names; /* of sites that have no symbol's name */
	u32 *born; /* epoch that each module of mods came in */
	u32 epoch;
	u32 generation; /* of what names are kept in: see kernel_generation() */
	u64 modules_sign; /* see kernel_stale() */
	struct retired_module *retired; /* newest first */
	pthread_rwlock_t *names; /* over mods, born, epoch, retired */
};

/* Release, version, build id; where vmcoreinfo is, once the kernel has made it. */
void kernel_load_identity(struct kernel *k);
/* kernel_modules.c: what kernel_refresh() replaces modules by. */

/** modules_sign - what kernel_stale() compares; 0: it cannot be read now */
u64 modules_sign(const struct kernel *k);
/** modules_replace - @set takes the place of k->mods, whose modules that are not in it retire. Return: 0; -ENOMEM */
must_check int modules_replace(struct kernel *k, struct module_set *set);
void modules_deinit(struct kernel *k);
/** modules_btf_then - types of the module that kernel_sym_then() finds; NULL: it has none */
const struct btf_types *modules_btf_then(const struct kernel *k, u64 addr, u32 epoch);
/** module_sym_own - of @set; @next: the end of the symbol */
void module_sym_own(const struct module_set *set, const struct module_sym *s, u64 next,
		    struct kernel_sym *ret);

/* for _cleanup_() */
void kernel_destroyp(struct kernel **k);

#endif
