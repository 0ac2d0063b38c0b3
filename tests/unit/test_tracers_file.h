/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of recordings and their fuzz target share. */
#ifndef TESTS_UNIT_TEST_TRACERS_FILE_H
#define TESTS_UNIT_TEST_TRACERS_FILE_H

#include "tracers/output.h"
#include "tracers/rec_format.h"

/* A chunk with its right checksum, whatever it holds. */
static void add_chunk(struct buf *b, u8 type, const void *payload, u32 len)
{
	u32 crc = rec_crc32(rec_crc32(0, &type, 1), payload, len);

	buf_add(b, &type, 1);
	buf_add(b, &len, 4);
	buf_add(b, payload, len);
	buf_add(b, &crc, 4);
}

#endif
