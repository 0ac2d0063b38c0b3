/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registers of a virtio device on MMIO, and what all such devices have in common. A device is an
 * operations table, a config space and a worker thread that takes requests off its queues.
 */
#ifndef MACHINE_VIRTIO_MMIO_H
#define MACHINE_VIRTIO_MMIO_H

#include "machine/bus.h"
#include "machine/virtio_queue.h"

#include <poll.h>
#include <pthread.h>

#define VIRTIO_MMIO_BYTES 0x1000
#define VIRTIO_MAX_QUEUES 3
#define VIRTIO_MAX_CONFIG 128
#define VIRTIO_MAX_POLL   136 /* descriptors that a device's thread waits for */

struct virtio_dev;

struct virtio_ops {
	const char *name; /* of its thread */
	u32 id; /* VIRTIO_ID_* */
	u32 n_queues;
	/*
	 * required; do what one request asks. Return: bytes written into its buffers. Context: the
	 * device's thread, no lock held. A driver that resets the device meanwhile waits for it, so
	 * whoever waits in here for more than the host's disk must give up once d->cancel_fd can be
	 * read from.
	 */
	u32 (*handle)(struct virtio_dev *d, u32 queue, const struct virtq_chain *c);
	/*
	 * optional; is there anything to do with a request of this queue? Else it is left for a
	 * virtio_kick(). Context: as handle(), but under the device's lock.
	 */
	bool (*has_work)(struct virtio_dev *d, u32 queue);
	/*
	 * optional, both or none; fill @p with up to VIRTIO_MAX_POLL descriptors that the thread is to wait
	 * for, beside kicks; and look at what came of it (not called when the device was reset meanwhile).
	 * Context: as handle().
	 */
	u32 (*wait_for)(struct virtio_dev *d, struct pollfd *p);
	void (*on_ready)(struct virtio_dev *d, const struct pollfd *p, u32 n);
	/* optional; the driver's features are settled. Context: a vCPU's thread, the device's lock held. */
	void (*negotiated)(struct virtio_dev *d);
	/* optional; forget the driver. Context: as negotiated(), and the device's thread is at nothing. */
	void (*reset)(struct virtio_dev *d);
};

struct virtio_dev {
	const struct virtio_ops *ops;
	void *priv; /* the device's own */
	u64 features; /* offered; VIRTIO_F_VERSION_1 comes by itself */
	u8 config[VIRTIO_MAX_CONFIG]; /* does not change once the guest runs */
	u32 config_bytes;
	struct irq_line irq;

	int wake_fd, cancel_fd; /* eventfds: there is something to do; a reset or the end waits */
	pthread_t thread;
	bool started; /* of who starts and stops it */
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t idle; /* the thread is at nothing */
	bool stopping, busy;
	u32 kicked; /* queues with something to do, a bit each */
	u32 status, interrupts;
	u32 features_sel, driver_sel, queue_sel;
	u64 driver_features;
	u32 generation; /* of resets: what was taken before one is not given back after it */
	struct virtq queue[VIRTIO_MAX_QUEUES];
};

/**
 * virtio_init - a device of @ops; the caller then sets features and config, and starts it
 * @d: all its storage; zeroed here
 */
void virtio_init(struct virtio_dev *d, const struct virtio_ops *ops, void *priv,
		 const struct guest_mem *mem, struct irq_line irq);

/** virtio_start - its thread; -EAGAIN when there can be no more */
must_check int virtio_start(struct virtio_dev *d, struct err *err);

/** virtio_kick - look at a queue again. Context: any thread, not under the device's lock. */
void virtio_kick(struct virtio_dev *d, u32 queue);

/** virtio_stop - end the thread, after the request that it is at */
void virtio_stop(struct virtio_dev *d);

/**
 * virtio_reset - as the driver does it: forget it, after the request that the thread is at
 *
 * Nothing touches the driver's memory or the interrupt line after. Context: any thread but the device's own.
 */
void virtio_reset(struct virtio_dev *d);

/** virtio_is_live - is there a driver that is ready, and has broken no rule? Context: the device's thread. */
must_check bool virtio_is_live(struct virtio_dev *d);
void virtio_deinit(struct virtio_dev *d);

/** virtio_io - a bus_fn for its VIRTIO_MMIO_BYTES of registers */
void virtio_io(void *dev, u64 off, u8 *data, u32 len, bool is_write);

/**
 * virtio_run_queue - handle the requests of one queue; after VIRTQ_MAX_SIZE of them it is kicked again
 *
 * Context: the device's thread, or a test without one; takes the lock between requests.
 */
void virtio_run_queue(struct virtio_dev *d, u32 queue);

#endif
