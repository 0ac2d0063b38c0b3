// SPDX-License-Identifier: Apache-2.0
/* Who answers at an address. See bus.h. */
#include "machine/bus.h"

#include <errno.h>
#include <string.h>

int bus_add(struct bus *b, u64 base, u64 len, bus_fn *fn, void *dev, struct err *err)
{
	u64 end;

	if (!len || add_overflows(base, len, &end))
		return err_set(err, -EINVAL, ERR_NONE, base, "a device's range is empty or wraps");
	if (b->n == BUS_MAX_RANGES)
		return err_set(err, -E2BIG, ERR_NONE, base, "more than %d ranges of devices",
			       BUS_MAX_RANGES);
	for (size_t i = 0; i < b->n; i++) {
		const struct bus_range *r = &b->range[i];

		if (base < r->base + r->len && r->base < end)
			return err_set(err, -EEXIST, ERR_NONE, base, "two devices at 0x%llx",
				       (unsigned long long)base);
	}
	b->range[b->n++] = (struct bus_range){ base, len, fn, dev };
	return 0;
}

void bus_access(const struct bus *b, u64 addr, u8 *data, u32 len, bool is_write)
{
	if (!is_write)
		memset(data, 0xff, len);
	for (size_t i = 0; i < b->n; i++) {
		const struct bus_range *r = &b->range[i];

		if (addr >= r->base && len <= r->len && addr - r->base <= r->len - len) {
			r->fn(r->dev, addr - r->base, data, len, is_write);
			return;
		}
	}
}
