/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fast, unchecked number and byte formatting for the output writers. The caller has reserved the
 * room; every function returns where to go on. Private to tracers/.
 */
#ifndef TRACERS_FMT_H
#define TRACERS_FMT_H

#include "base/types.h"

#include <string.h>

#define FMT_U64_MAX 20 /* bytes that a decimal u64 needs at most */
#define FMT_HEX_MAX 16

static inline char *fmt_bytes(char *p, const void *s, size_t n)
{
	memcpy(p, s, n);
	return p + n;
}

#define FMT_LIT(p, lit) fmt_bytes(p, lit, sizeof(lit) - 1)

static inline char *fmt_pad(char *p, char c, size_t n)
{
	memset(p, c, n);
	return p + n;
}

static inline size_t fmt_digits(u64 v)
{
	size_t n = 1;

	for (; v >= 10000; v /= 10000)
		n += 4;
	return n + (v >= 10) + (v >= 100) + (v >= 1000);
}

/* exactly @n digits, leading zeros; two digits a division */
static inline char *fmt_u64_n(char *p, u64 v, size_t n)
{
	static const char pairs[] = "00010203040506070809101112131415161718192021222324"
				    "25262728293031323334353637383940414243444546474849"
				    "50515253545556575859606162636465666768697071727374"
				    "75767778798081828384858687888990919293949596979899";
	size_t left = n;

	for (; left >= 2; left -= 2, v /= 100)
		memcpy(p + left - 2, pairs + 2 * (v % 100), 2);
	if (left)
		*p = (char)('0' + v % 10);
	return p + n;
}

static inline char *fmt_u64(char *p, u64 v)
{
	return fmt_u64_n(p, v, fmt_digits(v));
}

/* Eight digits of the lower half of @v, all at once: each in a byte of its own, the first in the lowest. */
static inline u64 fmt_hex8(u64 v)
{
	u64 letters;

	v = __builtin_bswap64(v << 32);
	v = (v | v << 16) & 0x0000ffff0000ffff;
	v = (v | v << 8) & 0x00ff00ff00ff00ff;
	v = (v >> 4 | v << 8) & 0x0f0f0f0f0f0f0f0f;
	letters = (v + 0x0606060606060606) >> 4 & 0x0101010101010101; /* 10 and more */
	return v + 0x3030303030303030 + letters * ('a' - '0' - 10);
}

static inline void fmt_hex16(char *p, u64 v)
{
	u64 high = fmt_hex8(v >> 32), low = fmt_hex8(v);

	memcpy(p, &high, sizeof(high));
	memcpy(p + sizeof(high), &low, sizeof(low));
}

static inline char *fmt_hex(char *p, u64 v, size_t min_digits)
{
	size_t n = v ? (size_t)(67 - __builtin_clzll(v)) / 4 : 1;

	if (n < min_digits)
		n = min_digits;
	if (n == FMT_HEX_MAX) {
		fmt_hex16(p, v);
		return p + n;
	}
	for (size_t i = n; i-- > 0; v >>= 4)
		p[i] = "0123456789abcdef"[v & 15];
	return p + n;
}

#endif
