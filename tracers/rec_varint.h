/* SPDX-License-Identifier: Apache-2.0 */
/* LEB128 varints and zigzag, as recordings have them. Private to rec_file.c and rec_reader.c. */
#ifndef TRACERS_REC_VARINT_H
#define TRACERS_REC_VARINT_H

#include "base/cursor.h"
#include "base/types.h"

static inline u8 *put_varint(u8 *p, u64 v)
{
	while (v >= 0x80) {
		*p++ = (u8)(v | 0x80);
		v >>= 7;
	}
	*p++ = (u8)v;
	return p;
}

static inline u64 zigzag(s64 v)
{
	return ((u64)v << 1) ^ (u64)(v >> 63);
}

static inline bool get_varint(struct cursor *c, u64 *ret)
{
	u64 v = 0;

	for (unsigned int shift = 0; shift < 64 && c->pos < c->len; shift += 7) {
		u8 byte = c->data[c->pos++];

		if (shift == 63 && byte > 1)
			return false;
		v |= (u64)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*ret = v;
			return true;
		}
	}
	return false;
}

static inline bool get_varint_max(struct cursor *c, u64 max, u64 *ret)
{
	return get_varint(c, ret) && *ret <= max;
}

#endif
