// SPDX-License-Identifier: Apache-2.0
/*
 * A guest's own map of its RAM, from arbitrary bytes. Properties: ranges are sorted, none is empty or wraps, no more
 * than there is room for, and they reach above 1 MiB; a layout that matches holds all of them.
 */
#include "vmm/layout.h"

#include <stdlib.h>
#include <string.h>

#define GIB (1ull << 30)

static void check(const struct e820_ram *ram, size_t n)
{
	const struct layout c = { .n = 2,
				  .piece = { { 0, GIB, 3 * GIB }, { 4 * GIB, 8 * GIB, 2 * GIB } } };

	if (n > 128)
		abort();
	for (size_t i = 0; i < n; i++) {
		if (ram[i].start >= ram[i].end || (i && ram[i].start < ram[i - 1].end))
			abort();
	}
	if (!n)
		return;
	if (ram[n - 1].end <= 1 << 20)
		abort();
	if (layout_matches_e820(&c, ram, n) &&
	    (ram[n - 1].end != 6 * GIB || ram[n - 1].start < 4 * GIB))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const u32 magic = 0x336ec578;
	struct e820_ram ram[128];
	u8 *low = malloc(MAX(size, (size_t)1));
	u8 page[4096] = { 0 };

	if (!low)
		return 0;
	memcpy(page, data, MIN(size, sizeof(page)));
	memcpy(page + 0x1fe, "\x55\xaa", 2);
	memcpy(page + 0x202, "HdrS", 4);
	check(ram, layout_parse_e820(page, ram));
	memcpy(low, data, size);
	if (size >= sizeof(magic))
		memcpy(low, &magic, sizeof(magic));
	for (u64 at = 0; at < MIN(size, (size_t)64); at++)
		check(ram, layout_parse_pvh(low, size, at, ram));
	free(low);
	return 0;
}
