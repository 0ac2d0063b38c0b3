// SPDX-License-Identifier: Apache-2.0
/*
 * A virtio driver that does what it likes: register accesses and guest memory are the input. Properties:
 * no buffer of a chain lies outside of guest RAM, chains end, and what a device says it wrote fits into
 * the buffers that it was given. The RAM has no slack around it, so that a step out of it is seen.
 *
 * Input: operations of 8 bytes, { kind, register / 4, value (4), place (2) }, the rest goes to guest RAM.
 */
#include "machine/virtio_devices.h"

#include <fcntl.h>
#include <linux/virtio_mmio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RAM_BYTES  (16ull << 20)
#define DISK_BYTES (64ull << 10)
#define MAX_OPS    64
#define OP_BYTES   8
#define PREPARED   0x4000 /* where queues lie when the input asks for prepared ones */

static struct guest_mem mem;
static struct virtio_blk blk;
static struct virtio_dev rng;
static char disk[64];

static void ignore(void *arg, u32 gsi, bool level)
{
	(void)arg;
	(void)gsi;
	(void)level;
}

static u32 (*real_handle)(struct virtio_dev *, u32, const struct virtq_chain *);
static struct virtio_ops checked_ops[2];

/* Every buffer is guest RAM, and no more is said to be written than there is room for. */
static u32 check_and_handle(struct virtio_dev *d, u32 queue, const struct virtq_chain *c)
{
	u64 bytes = 0;
	u32 n;

	if (c->n_out + c->n_in > VIRTQ_MAX_IOV || c->n_out + c->n_in == 0)
		abort();
	for (u32 i = 0; i < c->n_out + c->n_in; i++) {
		const u8 *p = c->iov[i].iov_base;

		if (p < mem.base || c->iov[i].iov_len > mem.len ||
		    (u64)(p - mem.base) > mem.len - c->iov[i].iov_len)
			abort();
		bytes += c->iov[i].iov_len;
	}
	if (bytes != c->out_bytes + c->in_bytes)
		abort();
	/* what one request may move is bounded by RAM, not by time: leave out the largest */
	if (bytes > 1u << 20)
		return 0;
	n = (d == &rng ? checked_ops[1].handle : real_handle)(d, queue, c);
	if (n > c->in_bytes)
		abort();
	return n;
}

static void write_reg(struct virtio_dev *d, u64 reg, u32 v)
{
	virtio_io(d, reg, (u8 *)&v, sizeof(v), true);
}

/* A driver that did all right so far. */
static void bring_up(struct virtio_dev *d)
{
	write_reg(d, VIRTIO_MMIO_STATUS, 0);
	write_reg(d, VIRTIO_MMIO_STATUS, 3);
	write_reg(d, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
	write_reg(d, VIRTIO_MMIO_DRIVER_FEATURES, 1);
	write_reg(d, VIRTIO_MMIO_STATUS, 11);
	write_reg(d, VIRTIO_MMIO_QUEUE_SEL, 0);
	write_reg(d, VIRTIO_MMIO_QUEUE_NUM, 16);
	write_reg(d, VIRTIO_MMIO_QUEUE_DESC_LOW, PREPARED);
	write_reg(d, VIRTIO_MMIO_QUEUE_AVAIL_LOW, PREPARED + 16 * 16);
	write_reg(d, VIRTIO_MMIO_QUEUE_USED_LOW, PREPARED + 0x1000);
	write_reg(d, VIRTIO_MMIO_QUEUE_READY, 1);
	write_reg(d, VIRTIO_MMIO_STATUS, 15);
}

static void set_up(void)
{
	int fd;

	if (mem.base)
		return;
	fd = memfd_create("disk", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, DISK_BYTES) < 0 || mem_init(&mem, RAM_BYTES, NULL) < 0)
		abort();
	snprintf(disk, sizeof(disk), "/proc/self/fd/%d", fd);
}

static void start_devices(void)
{
	const struct irq_line irq = { ignore, NULL, 5 };

	struct err err = { 0 };

	if (virtio_blk_init(&blk, disk, false, 0, &mem, irq, &err) < 0) {
		fprintf(stderr, "%s\n", err.msg);
		abort();
	}
	virtio_rng_init(&rng, &mem, irq);
	checked_ops[0] = *blk.dev.ops;
	checked_ops[1] = *rng.ops;
	real_handle = checked_ops[0].handle;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct virtio_ops blk_ops, rng_ops;
	size_t n_ops;

	if (size < 1)
		return 0;
	n_ops = MIN((size_t)data[0] % MAX_OPS, (size - 1) / OP_BYTES);
	set_up();
	start_devices();
	blk_ops = checked_ops[0];
	rng_ops = checked_ops[1];
	blk_ops.handle = rng_ops.handle = check_and_handle;
	blk.dev.ops = &blk_ops;
	rng.ops = &rng_ops;
	/* queues first, then what they may point to */
	memset(mem.base + PREPARED, 0, 0x4000);
	memcpy(mem.base + PREPARED, data + 1 + n_ops * OP_BYTES,
	       MIN(size - 1 - n_ops * OP_BYTES, (size_t)0x4000));
	for (size_t i = 0; i < n_ops; i++) {
		const u8 *op = data + 1 + i * OP_BYTES;
		struct virtio_dev *d = op[0] & 0x80 ? &rng : &blk.dev;
		u32 value;
		u16 place;

		memcpy(&value, op + 2, sizeof(value));
		memcpy(&place, op + 6, sizeof(place));
		switch (op[0] & 3) {
		case 0:
			write_reg(d, op[1] * 4ull, value);
			break;
		case 1:
			virtio_io(d, place % VIRTIO_MMIO_BYTES, (u8 *)&value, 1 + (op[1] & 3),
				  false);
			break;
		case 2:
			bring_up(d);
			break;
		default:
			memcpy(mem.base + PREPARED + place % 0x3ffc, &value, sizeof(value));
			virtio_run_queue(d, 0);
			break;
		}
	}
	virtio_blk_deinit(&blk);
	virtio_deinit(&rng);
	return 0;
}
