/* SPDX-License-Identifier: Apache-2.0 */
/* The virtio devices that a guest of ours may have. */
#ifndef MACHINE_VIRTIO_DEVICES_H
#define MACHINE_VIRTIO_DEVICES_H

#include "machine/disk.h"
#include "machine/virtio_mmio.h"

struct virtio_blk {
	struct virtio_dev dev;
	struct disk disk;
	char serial[20]; /* not terminated when it is full */
};

/**
 * virtio_blk_init - a disk for a guest
 * @index: of the disk in its machine, for its serial number
 *
 * Return: 0; errors of disk_open(). virtio_blk_deinit() is fine after a failure. Source: VIRTIO 1.2, 5.2.
 */
must_check int virtio_blk_init(struct virtio_blk *b, const struct disk_source *source, u32 index,
			       const struct guest_mem *mem, struct irq_line irq, struct err *err);
void virtio_blk_deinit(struct virtio_blk *b);

#define CONSOLE_INPUT_BYTES 256

/* A console of one port. */
struct virtio_console {
	struct virtio_dev dev;
	int out_fd; /* what the guest sends; -1: nowhere */
	pthread_mutex_t lock; /* of all below; taken within no other */
	pthread_cond_t room; /* input was taken */
	bool closed; /* no more input is waited for */
	u8 input[CONSOLE_INPUT_BYTES];
	u32 head, n;
};

/** virtio_console_init - output goes to @out_fd, which stays the caller's. Source: VIRTIO 1.2, 5.3. */
void virtio_console_init(struct virtio_console *v, int out_fd, const struct guest_mem *mem,
			 struct irq_line irq);
void virtio_console_deinit(struct virtio_console *v);

/** virtio_console_receive / virtio_console_close - as serial_receive() and serial_close() */
must_check bool virtio_console_receive(void *dev, const u8 *buf, size_t n);
void virtio_console_close(void *dev);

/** virtio_rng_init - random numbers of the host's. Source: VIRTIO 1.2, 5.4. */
void virtio_rng_init(struct virtio_dev *d, const struct guest_mem *mem, struct irq_line irq);

#endif
