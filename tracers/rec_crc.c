// SPDX-License-Identifier: Apache-2.0
/* CRC-32 (IEEE 802.3, reflected, polynomial 0xedb88320), eight bytes a step with eight tables. */
#include "tracers/rec_format.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static u32 table[8][256];
static atomic_bool made; /* the table is: asked for each few bytes */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_table(void)
{
	for (u32 i = 0; i < 256; i++) {
		u32 c = i;

		for (int bit = 0; bit < 8; bit++)
			c = c & 1 ? (c >> 1) ^ 0xedb88320 : c >> 1;
		table[0][i] = c;
	}
	for (u32 i = 0; i < 256; i++) {
		for (int t = 1; t < 8; t++)
			table[t][i] = (table[t - 1][i] >> 8) ^ table[0][table[t - 1][i] & 0xff];
	}
	atomic_store_explicit(&made, true, memory_order_release);
}

u32 rec_crc32(u32 crc, const void *data, size_t len)
{
	const u8 *p = data;
	u32 rest;
	u64 w;

	if (!atomic_load_explicit(&made, memory_order_acquire))
		pthread_once(&once, make_table);
	crc = ~crc;
	for (; len >= 8; len -= 8, p += 8) {
		memcpy(&w, p, sizeof(w));
		w ^= crc;
		crc = table[7][w & 0xff] ^ table[6][(w >> 8) & 0xff] ^ table[5][(w >> 16) & 0xff] ^
		      table[4][(w >> 24) & 0xff] ^ table[3][(w >> 32) & 0xff] ^
		      table[2][(w >> 40) & 0xff] ^ table[1][(w >> 48) & 0xff] ^ table[0][w >> 56];
	}
	/* fewer than 8, as a record mostly is: a table each here, too, so that no byte waits for another */
	w = crc;
	rest = (u32)(w >> 8 * len);
	for (size_t i = 0; i < len; i++)
		rest ^= table[len - 1 - i][(p[i] ^ w >> 8 * i) & 0xff];
	return ~rest;
}
