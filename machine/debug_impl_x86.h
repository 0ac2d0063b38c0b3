/* SPDX-License-Identifier: Apache-2.0 */
/* What debug_x86.c and debug_vcpu_x86.c share. With go_lock, and all vCPUs out of the guest, unless it says otherwise. */
#ifndef MACHINE_DEBUG_IMPL_X86_H
#define MACHINE_DEBUG_IMPL_X86_H

#include "machine/debug_x86.h"

#define DEBUG_LEAVE_NS (NSEC_PER_SEC / 2) /* for all vCPUs to be out of the guest, and for a step */

/* debug_x86.c */

/** debug_find - the point of this kind and address, or NULL; DEBUG_FREE, 0: one that is free */
struct debug_point *debug_find(struct debug *d, enum debug_kind kind, u64 addr);

/** debug_held_by - is the guest held, and by a point of this kind? */
bool debug_held_by(const struct debug *d, enum debug_kind kind);

/** debug_show_held - the guest is held, or not any more, which the page tells. Whoever is out. */
void debug_show_held(struct machine *m, bool held);

/** debug_end_hold - nothing holds the guest; whoever was shown where a vCPU is must ask again */
void debug_end_hold(struct machine *m);

/** debug_end_order - nothing of an order is armed, nobody held by it */
void debug_end_order(struct machine *m, enum debug_reason reason);

/* debug_vcpu_x86.c */

/** debug_set_vcpu - tell KVM: all points, or a single step without them. Also the vCPU's own thread. 0, or -errno. */
must_check int debug_set_vcpu(const struct vcpu *v, bool step);

/** debug_uses_dr7 - does the guest use the vCPU's debug registers? Also the vCPU's own thread. */
bool debug_uses_dr7(const struct vcpu *v);

#endif
