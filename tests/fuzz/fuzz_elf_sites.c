// SPDX-License-Identifier: Apache-2.0
/* Any file: every site lies in order, and has a name. */
#include "symbols/elf_sites.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct elf_sites s;
	struct err err = { 0 };

	if (elf_sites_read(data, size, &s, &err))
		return 0;
	for (size_t i = 0; i < s.n; i++) {
		if (!s.site[i].name || (i && s.site[i - 1].section > s.site[i].section))
			abort();
	}
	elf_sites_deinit(&s);
	return 0;
}
