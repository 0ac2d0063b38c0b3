/* SPDX-License-Identifier: Apache-2.0 */
/* Plain types that every host folder shares. Leaf: includes nothing of ours. */
#ifndef BASE_TYPES_H
#define BASE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;

/* Guest virtual and guest physical addresses: structs, so that mixing them does not compile. */
typedef struct {
	u64 v;
} gva_t;
typedef struct {
	u64 v;
} gpa_t;

static inline gva_t gva(u64 v)
{
	return (gva_t){ v };
}

static inline gpa_t gpa(u64 v)
{
	return (gpa_t){ v };
}

#define must_check              __attribute__((warn_unused_result))
#define printf_like(fmt, first) __attribute__((format(printf, fmt, first)))
#define ARRAY_SIZE(a)           (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)               ((a) < (b) ? (a) : (b))
#define MAX(a, b)               ((a) > (b) ? (a) : (b))

#define PAGE_SIZE 4096ull
#define PAGE_MASK (~(PAGE_SIZE - 1))

#define NSEC_PER_SEC  1000000000ull
#define NSEC_PER_MSEC 1000000ull

/* true on overflow; *sum_ret is then undefined */
static inline bool add_overflows(u64 a, u64 b, u64 *sum_ret)
{
	return __builtin_add_overflow(a, b, sum_ret);
}

#endif
