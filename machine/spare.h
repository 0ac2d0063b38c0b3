/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory above a guest's RAM that no firmware table names, so that its kernel neither counts nor uses it:
 * room for whoever traces the guest. A memfd of its own, shared, whose name says where the guest would see
 * it: "hvftrace-spare@HEX", guest physical. The host gives pages as they are touched: unused it costs nothing.
 */
#ifndef MACHINE_SPARE_H
#define MACHINE_SPARE_H

#include "base/err.h"
#include "base/types.h"

#define SPARE_BYTES (160ull << 20) /* rings of 128 MiB and the agent's tables */
#define SPARE_ALIGN (1ull << 30)

struct guest_spare {
	u8 *base; /* NULL: none */
	u64 gpa;
	int fd;
};

/**
 * spare_init - make it, at the first multiple of SPARE_ALIGN from @ram_end on
 *
 * Return: 0; a system error of memfd_create(2) or mmap(2).
 */
must_check int spare_init(struct guest_spare *s, u64 ram_end, struct err *err);
void spare_deinit(struct guest_spare *s);

/** spare_clear - as new: what a tracer had there was of a kernel that is no more */
must_check int spare_clear(struct guest_spare *s, struct err *err);

#endif
