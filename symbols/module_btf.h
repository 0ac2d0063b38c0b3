/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types of the guest's modules: the kernel keeps a blob for each that came with one
 * (CONFIG_DEBUG_INFO_BTF_MODULES; v5.11 kernel/bpf/btf.c). Offsets come from the kernel's own BTF.
 */
#ifndef SYMBOLS_MODULE_BTF_H
#define SYMBOLS_MODULE_BTF_H

#include "symbols/modules.h"

#include <stdatomic.h>

/* Of one module; shared by the sets that have the module. */
struct module_btf {
	atomic_uint refs;
	struct btf_types types;
};

struct module_btf_layout {
	u64 head; /* the symbol "btf_modules"; 0: this kernel keeps none */
	u32 list, btf, module; /* in struct btf_module */
	u32 data, data_bytes, first, strings_first; /* in struct btf */
};

/** module_btf_layout_init - @head stays 0 where the types do not tell */
void module_btf_layout_init(const struct btf_types *b, u64 head, struct module_btf_layout *ret);

/**
 * module_btfs_read - the types of @set's modules
 * @base: the kernel's own; must outlive the set
 * @old: the set before: modules that are in both keep what was read then
 *
 * A module whose blob cannot be read, or is not sound, or goes on from other types than @base, has none: it
 * costs prototypes, nothing else. Return: 0; -ENOMEM.
 */
must_check int module_btfs_read(const struct sym_mem *mem, const struct module_btf_layout *l,
				const struct btf_types *base, const struct module_set *old,
				struct module_set *set);

/** module_btf_at - types of the module that has @addr; NULL: no module, or no types */
const struct btf_types *module_btf_at(const struct module_set *s, u64 addr);

/** module_btf_ref, module_btf_unref - @m may be NULL */
struct module_btf *module_btf_ref(struct module_btf *m);
void module_btf_unref(struct module_btf *m);

#endif
