/* SPDX-License-Identifier: Apache-2.0 */
/* A ring in an array, written word by word, for the tests of tracers/ring.c. */
#ifndef TEST_TRACERS_RING_FAKE_H
#define TEST_TRACERS_RING_FAKE_H

#include "tracers/ring.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define SLOTS      64
#define CPUS       2
#define CPU        1
#define RING_OFF   8192
#define DATA_BYTES (RING_OFF + CPUS * SLOTS * AGENT_RECORD_BYTES)
#define LOW36      0xfffffffffull

static u64 data[DATA_BYTES / 8];
static struct agent_cpu *const cpu = (struct agent_cpu *)&data[AGENT_CPU_OFF / 8] + CPU;
static struct ring_reader reader;
static struct ring_record out[256];
static size_t n;
static u32 tails_written __attribute__((unused));
static int io_error;
static void (*on_read)(u64 off); /* after the bytes were copied: what the guest did meanwhile */

static inline int io_read(void *arg, u64 off, void *buf, size_t len)
{
	assert_ptr_equal(arg, data);
	assert_true(off <= DATA_BYTES && len <= DATA_BYTES - off);
	memcpy(buf, (u8 *)data + off, len);
	if (on_read)
		on_read(off);
	return io_error;
}

static inline int io_write(void *arg, u64 off, const void *buf, size_t len)
{
	assert_ptr_equal(arg, data);
	assert_int_equal(off,
			 AGENT_CPU_OFF + CPU * AGENT_CPU_BYTES + offsetof(struct agent_cpu, tail));
	assert_int_equal(len, 8);
	memcpy((u8 *)data + off, buf, len);
	tails_written++;
	return io_error;
}

static inline int init(u32 mode)
{
	struct agent_header h = { .nr_cpus = CPUS, .ring_slots = SLOTS, .mode = mode };
	struct ring_io io = { io_read, io_write, data };

	h.ring_off = RING_OFF;
	return ring_reader_init(&reader, &io, &h, CPU);
}

static inline void start(u32 mode)
{
	memset(data, 0, sizeof(data));
	on_read = NULL;
	io_error = 0;
	tails_written = 0;
	assert_int_equal(init(mode), 0);
}

static inline u64 *slot(u64 index)
{
	return &data[RING_OFF / 8 + (CPU * SLOTS + index % SLOTS) * 3];
}

static inline void words(u64 w[3], u64 index, u64 w0, u64 w1, u64 low)
{
	w[0] = (index / SLOTS + 1) << 48 | w0;
	w[1] = w1;
	w[2] = (w[0] ^ (w1 << 23 | w1 >> 41) ^ low) * AGENT_CHECK_MUL;
	w[2] = (w[2] & ~LOW36) | low;
}

static inline void write_record(u64 index, u64 w0, u64 w1, u64 low)
{
	words(slot(index), index, w0, w1, low);
}

static inline u64 low36(u32 type, u32 pid, u16 ctx)
{
	return (u64)ctx << AGENT_CTX_SHIFT | (u64)type << AGENT_TYPE_SHIFT | pid;
}

/* The function record of index @index, recognisable. */
static inline void write_function(u64 index)
{
	write_record(index, 1000 + index, (0x90000000ull + index) << 32 | (0x80000000ull + index),
		     low36(AGENT_REC_FUNCTION, 7, 3));
}

static inline void write_functions(u64 count)
{
	for (u64 i = 0; i < count; i++)
		write_function(cpu->head++);
}

static inline void write_pair(u32 pid, const char comm[16])
{
	u64 half[2];

	memcpy(half, comm, 16);
	write_record(cpu->head, pid + 1, half[0], low36(AGENT_REC_COMM_A, pid, 0));
	write_record(cpu->head + 1, pid + 1, half[1], low36(AGENT_REC_COMM_B, pid, 0));
	cpu->head += 2;
}

static inline void drain_at(u64 now_ns, unsigned int flags)
{
	assert_int_equal(ring_drain(&reader, out, ARRAY_SIZE(out), now_ns, flags, &n), 0);
	assert_int_equal(cpu->tail, reader.pos);
}

static inline void assert_delivered(size_t at, u64 index)
{
	assert_int_equal(out[at].type, RING_FUNCTION);
	assert_int_equal(out[at].tsc, 1000 + index);
	assert_int_equal(out[at].ip, 0xffffffff80000000ull + index);
	assert_int_equal(out[at].parent, 0xffffffff90000000ull + index);
	assert_int_equal(out[at].pid, 7);
	assert_int_equal(out[at].ctx, 3);
}

static inline u64 accounted(void)
{
	const struct ring_stats *s = &reader.stats;

	return s->functions + s->entries + s->returns + s->switches + s->comms + s->data + s->torn +
	       s->overwritten;
}

#endif
