// SPDX-License-Identifier: Apache-2.0
/* Any bytes as vmcoreinfo's text: strings end inside their arrays and are what they should be. */
#include "symbols/vmcoreinfo.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vmcoreinfo v, again;
	u8 *copy = malloc(size + 5);

	if (vmcoreinfo_parse(data, size, &v))
		goto out;
	if (!v.release[0] || !memchr(v.release, '\0', sizeof(v.release)) ||
	    !memchr(v.build_id, '\0', sizeof(v.build_id)))
		abort();
	for (const char *p = v.build_id; *p; p++)
		if (!isxdigit((unsigned char)*p))
			abort();
	if (v.l5_enabled < -1 || v.l5_enabled > 1)
		abort();
	/* What lies behind a NUL is not read: the page's tail is anybody's. */
	memcpy(copy, data, size);
	memcpy(copy + size, "\0X=1\n", 5);
	if (size + 5 <= VMCOREINFO_BYTES_MAX &&
	    (vmcoreinfo_parse(copy, size + 5, &again) || again.phys_base != v.phys_base ||
	     strcmp(again.release, v.release)))
		abort();
out:
	free(copy);
	return 0;
}
