// SPDX-License-Identifier: Apache-2.0
/* x86-64: per-CPU variables from inside the guest. */
#include "symbols/kernel_priv.h"

#include <errno.h>

/*
 * The kernel's GS base is this CPU's __per_cpu_offset, so what is added to it is the symbol's
 * value: a small offset up to v6.14, an address in the top 2 GiB since v6.15 (commit
 * 9d7de2aa8b41); either is the sign extension of its low 32 bits, as %gs:disp32 does it.
 */
int kernel_percpu_gs(const struct kernel *k, const char *name, s32 *disp_ret)
{
	u64 sym;

	if (kernel_sym(k, name, &sym))
		return -ENOENT;
	if ((s64)sym != (s32)sym)
		return -ERANGE;
	*disp_ret = (s32)sym;
	return 0;
}
