/* SPDX-License-Identifier: Apache-2.0 */
/* Protocol buffers' wire format, as much as a writer of a few messages needs. Private to tracers/formats/. */
#ifndef TRACERS_FORMATS_PB_H
#define TRACERS_FORMATS_PB_H

#include "tracers/rec_varint.h"

#include <string.h>

enum {
	PB_VARINT = 0,
	PB_FIXED64 = 1,
	PB_BYTES = 2
};

#define PB_FIELD_MAX 20 /* of a number with its key */

static inline u8 *pb_key(u8 *p, u32 field, u32 wire)
{
	return put_varint(p, field << 3 | wire);
}

static inline u8 *pb_u64(u8 *p, u32 field, u64 v)
{
	return put_varint(pb_key(p, field, PB_VARINT), v);
}

static inline u8 *pb_fixed64(u8 *p, u32 field, u64 v)
{
	p = pb_key(p, field, PB_FIXED64);
	memcpy(p, &v, sizeof(v));
	return p + sizeof(v);
}

static inline u8 *pb_bytes(u8 *p, u32 field, const void *data, size_t len)
{
	p = put_varint(pb_key(p, field, PB_BYTES), len);
	memcpy(p, data, len);
	return p + len;
}

/*
 * A message inside of another: its length is not known yet, so three bytes are kept for it (2 MiB). Varints
 * may be longer than they need to be.
 */
#define PB_LEN_BYTES 3

static inline u8 *pb_open(u8 *p, u32 field)
{
	return pb_key(p, field, PB_BYTES) + PB_LEN_BYTES;
}

/* @start: what pb_open() returned */
static inline u8 *pb_close(u8 *start, u8 *end)
{
	size_t len = (size_t)(end - start);

	start[-3] = (u8)(len | 0x80);
	start[-2] = (u8)(len >> 7 | 0x80);
	start[-1] = (u8)(len >> 14 & 0x7f);
	return end;
}

#endif
