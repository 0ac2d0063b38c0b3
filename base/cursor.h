/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounds-checked little-endian reader over bytes that cannot be trusted.
 * Invariant: on failure the position does not move and *_ret is not written.
 */
#ifndef BASE_CURSOR_H
#define BASE_CURSOR_H

#include "base/types.h"

#include <string.h>

struct cursor {
	const u8 *data;
	size_t len;
	size_t pos;
};

static inline struct cursor cursor_init(const void *data, size_t len)
{
	return (struct cursor){ data, len, 0 };
}

static inline size_t cursor_left(const struct cursor *c)
{
	return c->len - c->pos;
}

static inline must_check bool cursor_bytes(struct cursor *c, void *ret, size_t n)
{
	if (cursor_left(c) < n)
		return false;
	memcpy(ret, c->data + c->pos, n);
	c->pos += n;
	return true;
}

static inline must_check bool cursor_skip(struct cursor *c, size_t n)
{
	if (cursor_left(c) < n)
		return false;
	c->pos += n;
	return true;
}

static inline must_check bool cursor_seek(struct cursor *c, size_t pos)
{
	if (pos > c->len)
		return false;
	c->pos = pos;
	return true;
}

static inline must_check bool cursor_u8(struct cursor *c, u8 *ret)
{
	return cursor_bytes(c, ret, sizeof(*ret));
}

static inline must_check bool cursor_u16(struct cursor *c, u16 *ret)
{
	return cursor_bytes(c, ret, sizeof(*ret));
}

static inline must_check bool cursor_u32(struct cursor *c, u32 *ret)
{
	return cursor_bytes(c, ret, sizeof(*ret));
}

static inline must_check bool cursor_u64(struct cursor *c, u64 *ret)
{
	return cursor_bytes(c, ret, sizeof(*ret));
}

#endif
