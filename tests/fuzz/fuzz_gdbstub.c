// SPDX-License-Identifier: Apache-2.0
/*
 * The gdb packet codec. Properties: decoding does not depend on how bytes arrive, payloads stay
 * within bounds, and what is encoded decodes to itself.
 */
#include "vmm/gdbstub_client.h"

#include <stdlib.h>
#include <string.h>

static struct gdb_decoder whole, bytes;

static void arbitrary(const char *data, size_t size)
{
	size_t pos = 0;
	size_t at = 0;

	memset(&whole, 0, sizeof(whole));
	memset(&bytes, 0, sizeof(bytes));
	while (pos < size) {
		size_t used = 0;
		size_t one = 0;
		int rc = gdb_decode(&whole, data + pos, size - pos, &used);
		int rc2 = 0;

		if (used == 0 || used > size - pos || whole.len > GDB_PAYLOAD_MAX)
			abort();
		pos += used;
		while (rc2 == 0 && at < pos) {
			rc2 = gdb_decode(&bytes, data + at, 1, &one);
			at++;
		}
		if (rc != rc2 || at != pos)
			abort();
		if (rc == 1 && (whole.len != bytes.len || whole.payload[whole.len] != '\0' ||
				memcmp(whole.payload, bytes.payload, whole.len) != 0))
			abort();
		if (rc == 1)
			(void)gdb_is_stop_reply(whole.payload);
	}
}

static void round_trip(const char *data, size_t size)
{
	static char out[GDB_FRAME_MAX(GDB_PAYLOAD_MAX)];
	size_t used = 0;
	size_t n;

	if (size > GDB_PAYLOAD_MAX)
		size = GDB_PAYLOAD_MAX;
	n = gdb_encode(out, sizeof(out), data, size);
	memset(&whole, 0, sizeof(whole));
	if (n == 0 || n > sizeof(out) || gdb_decode(&whole, out, n, &used) != 1 || used != n)
		abort();
	if (whole.len != size || memcmp(whole.payload, data, size) != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	arbitrary((const char *)data, size);
	round_trip((const char *)data, size);
	return 0;
}
