/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory above a guest's RAM that no firmware table names, so that its kernel neither counts nor uses it:
 * room for whoever traces the guest. A memfd of its own, whose name says where the guest would see it:
 * "hvftrace-spare@HEX", guest physical. It is mapped here, and has a slot of the VM's, only while it is
 * lent: who looks at this process's files sees that there is some, and at its mappings whether it is lent.
 *
 * It is asked for, and given back, by SPARE_SIGNAL with a value (sigqueue(3)), from whoever may trace this
 * process. The host gives pages as they are touched, and has them all back when it is not lent any more.
 */
#ifndef MACHINE_SPARE_H
#define MACHINE_SPARE_H

#include "base/err.h"
#include "base/types.h"

#define SPARE_BYTES  (160ull << 20) /* rings of 128 MiB and the agent's tables */
#define SPARE_ALIGN  (1ull << 30)
#define SPARE_SIGNAL SIGRTMIN /* as vmm/vm_ops.h has it */

/* What SPARE_SIGNAL's value asks for. */
enum spare_order {
	SPARE_TAKE_BACK,
	SPARE_LEND
};

struct guest_spare {
	u8 *base; /* NULL: not lent */
	u64 gpa;
	int fd;
};

/**
 * spare_init - make it, at the first multiple of SPARE_ALIGN from @ram_end on; it is not lent yet
 *
 * Return: 0; a system error of memfd_create(2).
 */
must_check int spare_init(struct guest_spare *s, u64 ram_end, struct err *err);
void spare_deinit(struct guest_spare *s);

/**
 * spare_map - it is all zeros, and about to be lent
 *
 * Not writable before spare_show(), which is how others tell that its slot is there, too. Return: 0; a system
 * error of mmap(2). Undo: spare_unmap().
 */
must_check int spare_map(struct guest_spare *s, struct err *err);

/** spare_show - it is lent. Return: 0; a system error of mprotect(2). */
must_check int spare_show(struct guest_spare *s, struct err *err);

/** spare_unmap - the guest cannot see it any more: the host has its pages back */
void spare_unmap(struct guest_spare *s);

/** spare_clear - as new: what a tracer had there was of a kernel that is no more */
must_check int spare_clear(struct guest_spare *s, struct err *err);

#endif
