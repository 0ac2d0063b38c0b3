/* SPDX-License-Identifier: Apache-2.0 */
/* One module's symbol table, read into the buffers of modules.c; for that file alone. */
#ifndef SYMBOLS_MODULE_SYMS_H
#define SYMBOLS_MODULE_SYMS_H

#include "base/buf.h"
#include "symbols/modules.h"

#define MODULE_NAME_MAX 64u /* MODULE_NAME_LEN is 64 - sizeof(unsigned long) */

/** module_name_valid - printable, no space: it goes into "name [module]" and into JSON */
bool module_name_valid(const char *name);

/**
 * module_syms_read - append @m's symbols to @syms, their names to @arena; sets @m->n_syms
 *
 * Return: 0; -EFAULT; -EUCLEAN; -ENOMEM.
 */
must_check int module_syms_read(const struct sym_mem *mem, const struct module_layout *l, u32 index,
				struct kernel_module *m, struct buf *syms, struct buf *arena);

/** module_syms_index - what module_sym_at() looks at: ranges and symbols are there, in order. Return: 0; -ENOMEM */
must_check int module_syms_index(struct module_set *s);

#endif
