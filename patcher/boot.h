/* SPDX-License-Identifier: Apache-2.0 */
/* A guest from its first instruction on: held where it can be traced before its first initcall. */
#ifndef PATCHER_BOOT_H
#define PATCHER_BOOT_H

#include "patcher/guest_priv.h"

/**
 * boot_hold - start a guest that waits, and hold it when its kernel can be traced
 * @g: vm and journal are open, nothing else is known yet
 *
 * That is once ftrace_init() has turned the call sites into nops and the kernel's clock runs, in
 * start_kernel() and before the first initcall: at a breakpoint of the VMM's (vm_break()), else found by polling the
 * guest's memory, which the guest may outrun; which it was is logged. @g->k is read anew then. The guest stays held:
 * vm_release(). Nothing is changed in it.
 * Context: as guest_attach(). Return: 0; -EBUSY it does not wait (conflict); -ENOTSUP the VMM has no memory for
 * the agent (guest.unsupported), or this kernel lacks what is looked for; -ETIMEDOUT (guest.not_booted); -EAGAIN
 * the host was too slow, and initcalls have run (guest.not_held); -ESRCH (vmm.gone).
 */
must_check int boot_hold(struct guest *g, u64 timeout_ns, struct err *err);

#endif
