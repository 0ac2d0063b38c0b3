/* SPDX-License-Identifier: Apache-2.0 */
/* Who answers at a port or an MMIO address. Filled while a machine is built, then only read. */
#ifndef MACHINE_BUS_H
#define MACHINE_BUS_H

#include "base/err.h"
#include "base/types.h"

#define BUS_MAX_RANGES 64

/*
 * A device's answer to one access.
 * @off:  into the device's range; [@off, @off + @len) lies within it
 * @data: written: what the guest wrote; read: to be filled, all ones before
 * @len:  1, 2, 4 or 8
 * Context: any vCPU's thread; several at a time: the device locks.
 */
typedef void bus_fn(void *dev, u64 off, u8 *data, u32 len, bool is_write);

struct bus_range {
	u64 base, len;
	bus_fn *fn;
	void *dev;
};

struct bus {
	struct bus_range range[BUS_MAX_RANGES];
	size_t n;
};

/** bus_add - @fn answers for [@base, @base + @len); -EEXIST on overlap, -E2BIG, -EINVAL */
must_check int bus_add(struct bus *b, u64 base, u64 len, bus_fn *fn, void *dev, struct err *err);

/**
 * bus_access - one access of the guest
 * @len: 1 to 8
 *
 * An access that no device claims as a whole reads as ones, and writes nothing.
 */
void bus_access(const struct bus *b, u64 addr, u8 *data, u32 len, bool is_write);

/* A line into the interrupt controller. */
struct irq_line {
	void (*set)(void *arg, u32 gsi, bool level);
	void *arg;
	u32 gsi;
};

static inline void irq_set(const struct irq_line *irq, bool level)
{
	irq->set(irq->arg, irq->gsi, level);
}

#endif
