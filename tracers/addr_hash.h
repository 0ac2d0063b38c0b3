/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hash of tables by address, or by words, that a guest or a file fills. Each table has a key that nobody else knows, so
 * that nobody can choose a million addresses that take each other's places.
 */
#ifndef TRACERS_ADDR_HASH_H
#define TRACERS_ADDR_HASH_H

#include "base/clock.h"
#include "base/types.h"

#include <sys/random.h>

/** addr_hash_key - of a new table */
static inline u64 addr_hash_key(void)
{
	u64 key;

	if (getrandom(&key, sizeof(key), GRND_NONBLOCK) != sizeof(key))
		key = monotonic_ns() * 0xff51afd7ed558ccd; /* early at boot */
	return key;
}

/*
 * To be taken modulo a power of two. Both halves of one product: as quick as a hash without a key. The factor is of the
 * key, too: by a known one some keys lead what was chosen for it to few places.
 */
static inline u32 addr_hash(u64 addr, u64 key)
{
	unsigned __int128 m = (unsigned __int128)(addr ^ key) * ((key << 32 | key >> 32) | 1);

	return (u32)((u64)m >> 32 ^ (u64)(m >> 64));
}

/* Of several words, one after the other: @h is what came of those before; of the first it is the key. */
static inline u64 words_hash(u64 word, u64 h)
{
	unsigned __int128 m = (unsigned __int128)(word ^ h) * ((h ^ 0x9e3779b97f4a7c15) | 1);

	return (u64)m ^ (u64)(m >> 64);
}

#endif
