/* SPDX-License-Identifier: Apache-2.0 */
/* Short reads through struct sym_mem. Guests are little-endian, as this host is (base/cursor.h). */
#ifndef SYMBOLS_MEM_H
#define SYMBOLS_MEM_H

#include "symbols/kernel.h"

#include <string.h>

static inline must_check int mem_read(const struct sym_mem *mem, u64 addr, void *buf, size_t len)
{
	return mem->read(mem->arg, gva(addr), buf, len);
}

static inline must_check int mem_u32(const struct sym_mem *mem, u64 addr, u32 *ret)
{
	return mem->read(mem->arg, gva(addr), ret, sizeof(*ret));
}

static inline must_check int mem_u64(const struct sym_mem *mem, u64 addr, u64 *ret)
{
	return mem->read(mem->arg, gva(addr), ret, sizeof(*ret));
}

static inline must_check int mem_phys(const struct sym_mem *mem, u64 addr, void *buf, size_t len)
{
	return mem->read_phys(mem->arg, gpa(addr), buf, len);
}

/* Loads from bytes at hand; the caller has checked the bounds. */
static inline u16 load_u16(const void *p)
{
	u16 v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline u32 load_u32(const void *p)
{
	u32 v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline u64 load_u64(const void *p)
{
	u64 v;

	memcpy(&v, p, sizeof(v));
	return v;
}

#endif
