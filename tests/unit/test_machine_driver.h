/* SPDX-License-Identifier: Apache-2.0 */
/* A virtio driver in a test: RAM, queues at fixed places, requests of one buffer. After cmocka's headers. */
#ifndef TEST_MACHINE_DRIVER_H
#define TEST_MACHINE_DRIVER_H

#include "machine/virtio_mmio.h"

#include <linux/virtio_config.h>
#include <linux/virtio_mmio.h>
#include <linux/virtio_ring.h>

#define RAM_BYTES   (16ull << 20)
#define RING        16 /* descriptors of a queue */
#define QUEUE(q)    (0x10000ull * (1 + (q)))
#define DESC(q)     QUEUE(q)
#define AVAIL(q)    (QUEUE(q) + 0x1000)
#define USED(q)     (QUEUE(q) + 0x2000)
#define BUFFER(q)   (0x100000ull * (1 + (q))) /* a buffer of BUFFER_STEP for each descriptor */
#define BUFFER_STEP 0x8000u

static struct guest_mem m;
static bool line;
static u16 next_avail[VIRTIO_MAX_QUEUES], seen_used[VIRTIO_MAX_QUEUES];

static void set_line(void *arg, u32 gsi, bool level)
{
	(void)arg;
	(void)gsi;
	line = level;
}

static const struct irq_line irq = { set_line, NULL, 5 };

static void put(u64 at, const void *p, u64 len)
{
	assert_true(mem_write(&m, gpa(at), p, len));
}

static void put16(u64 at, u16 v)
{
	u16 *p = mem_at(&m, gpa(at), sizeof(*p));

	assert_non_null(p);
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
}

/* As a driver reads an index: what it speaks of is read after. */
static u16 get16(u64 at)
{
	const u16 *p = mem_at(&m, gpa(at), sizeof(*p));

	assert_non_null(p);
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static u32 get32(u64 at)
{
	u32 v = 0;

	assert_true(mem_read(&m, gpa(at), &v, sizeof(v)));
	return v;
}

static u32 in(struct virtio_dev *d, u64 reg)
{
	u32 v = 0;

	virtio_io(d, reg, (u8 *)&v, sizeof(v), false);
	return v;
}

static void out(struct virtio_dev *d, u64 reg, u32 v)
{
	virtio_io(d, reg, (u8 *)&v, sizeof(v), true);
}

/* As a driver does it, VIRTIO 1.2, 3.1.1, with all features that it may have of @features. */
static void bring_up(struct virtio_dev *d, u64 features)
{
	out(d, VIRTIO_MMIO_STATUS, 0);
	out(d, VIRTIO_MMIO_STATUS, 3);
	out(d, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 0);
	out(d, VIRTIO_MMIO_DRIVER_FEATURES, (u32)(features & d->features));
	out(d, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
	out(d, VIRTIO_MMIO_DRIVER_FEATURES, 1);
	out(d, VIRTIO_MMIO_STATUS, 11);
	assert_true(in(d, VIRTIO_MMIO_STATUS) & VIRTIO_CONFIG_S_FEATURES_OK);
	for (u32 q = 0; q < d->ops->n_queues; q++) {
		put16(AVAIL(q), 0);
		put16(AVAIL(q) + 2, 0);
		put16(USED(q) + 2, 0);
		next_avail[q] = seen_used[q] = 0;
		out(d, VIRTIO_MMIO_QUEUE_SEL, q);
		out(d, VIRTIO_MMIO_QUEUE_NUM, RING);
		out(d, VIRTIO_MMIO_QUEUE_DESC_LOW, (u32)DESC(q));
		out(d, VIRTIO_MMIO_QUEUE_AVAIL_LOW, (u32)AVAIL(q));
		out(d, VIRTIO_MMIO_QUEUE_USED_LOW, (u32)USED(q));
		out(d, VIRTIO_MMIO_QUEUE_READY, 1);
		assert_int_equal(in(d, VIRTIO_MMIO_QUEUE_READY), 1);
	}
	out(d, VIRTIO_MMIO_STATUS, 15);
}

/* The next buffer of a queue: where the driver may write what it sends. */
static u64 buffer(u32 q)
{
	return BUFFER(q) + (u64)(next_avail[q] % RING) * BUFFER_STEP;
}

/* Offer it, to be read by the device or written. Return: where it is. */
static u64 offer(u32 q, u32 len, bool to_write)
{
	u16 i = next_avail[q] % RING;
	u64 at = buffer(q);
	struct vring_desc desc = { at, len, to_write ? VRING_DESC_F_WRITE : 0, 0 };

	put(DESC(q) + i * sizeof(desc), &desc, sizeof(desc));
	put16(AVAIL(q) + 4 + 2ull * i, i);
	put16(AVAIL(q) + 2, ++next_avail[q]);
	return at;
}

/* Bytes that the device wrote into the next buffer that it gave back; -1: none came. */
static int given_back(u32 q, u64 *at_ret)
{
	u16 i = seen_used[q] % RING;
	u32 id;

	if (get16(USED(q) + 2) == seen_used[q])
		return -1;
	seen_used[q]++;
	id = get32(USED(q) + 4 + 8ull * i);
	assert_true(id < RING);
	if (at_ret)
		*at_ret = BUFFER(q) + (u64)id * BUFFER_STEP;
	return (int)get32(USED(q) + 8 + 8ull * i);
}

static int driver_set_up(void **state)
{
	(void)state;
	line = false;
	return mem_init(&m, RAM_BYTES, NULL);
}

static int driver_tear_down(void **state)
{
	(void)state;
	mem_deinit(&m);
	return 0;
}

#endif
