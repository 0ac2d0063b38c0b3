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
static struct virtio_console hvc;
static char disk[64];

static void ignore(void *arg, u32 gsi, bool level)
{
	(void)arg;
	(void)gsi;
	(void)level;
}

static const struct virtio_ops *blk_ops, *rng_ops, *hvc_ops; /* the devices' own */

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
	n = (d == &rng ? rng_ops : d == &hvc.dev ? hvc_ops : blk_ops)->handle(d, queue, c);
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

	const struct disk_source source = { .path = disk };
	struct err err = { 0 };

	if (virtio_blk_init(&blk, &source, 0, &mem, irq, &err) < 0) {
		fprintf(stderr, "%s\n", err.msg);
		abort();
	}
	virtio_rng_init(&rng, &mem, irq);
	virtio_console_init(&hvc, -1, &mem, irq);
	blk_ops = blk.dev.ops;
	rng_ops = rng.ops;
	hvc_ops = hvc.dev.ops;
	if (!virtio_console_receive(&hvc, (const u8 *)"some bytes that were typed", 26))
		abort();
}

static struct virtio_dev *device(u8 kind)
{
	struct virtio_dev *const d[] = { &blk.dev, &rng, &hvc.dev, &hvc.dev };

	return d[kind >> 6];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct virtio_ops ops[3];
	size_t n_ops;

	if (size < 1)
		return 0;
	n_ops = MIN((size_t)data[0] % MAX_OPS, (size - 1) / OP_BYTES);
	set_up();
	start_devices();
	for (u8 i = 0; i < 3; i++) {
		struct virtio_dev *d = device((u8)(i << 6));

		ops[i] = *d->ops;
		ops[i].handle = check_and_handle;
		d->ops = &ops[i];
	}
	/* queues first, then what they may point to */
	memset(mem.base + PREPARED, 0, 0x4000);
	memcpy(mem.base + PREPARED, data + 1 + n_ops * OP_BYTES,
	       MIN(size - 1 - n_ops * OP_BYTES, (size_t)0x4000));
	for (size_t i = 0; i < n_ops; i++) {
		const u8 *op = data + 1 + i * OP_BYTES;
		struct virtio_dev *d = device(op[0]);
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
			virtio_run_queue(d, op[1] % d->ops->n_queues);
			break;
		}
	}
	virtio_blk_deinit(&blk);
	virtio_deinit(&rng);
	virtio_console_deinit(&hvc);
	return 0;
}
