/* SPDX-License-Identifier: Apache-2.0 */
/* A network card, whose packets go to and come from a tap. */
#ifndef MACHINE_VIRTIO_NET_H
#define MACHINE_VIRTIO_NET_H

#include "machine/tap.h"
#include "machine/virtio_mmio.h"

#define NET_MAX_PACKET \
	(12u + 65536u + 18u) /* header, the longest unsegmented packet, Ethernet's own */

/* Each is only counted up; atomic. */
struct net_counters {
	u64 rx_packets, tx_packets; /* the guest's view: it received, it sent */
	u64 rx_dropped; /* no longer a packet that fits its buffer */
	u64 tx_dropped; /* the tap did not take it, or it is none */
	u64 tap_errors; /* it could not be read from: it is gone */
};

struct virtio_net {
	struct virtio_dev dev;
	struct tap tap;
	struct net_counters count;
	bool broken; /* the tap is gone: it is not asked any more */
	u32 waiting; /* bytes of @packet that a buffer is waited for; no more is taken from the tap meanwhile */
	u8 packet[NET_MAX_PACKET]; /* with its header */
};

/**
 * virtio_net_init - a network card at a tap
 *
 * Checksums and segmentation are left to whom the tap can leave them. A guest that gives no buffers stops us
 * from reading, so that the host's queue fills and the host counts what it drops. @tap is handed over.
 * Source: VIRTIO 1.2, 5.1.
 */
void virtio_net_init(struct virtio_net *n, const struct tap *tap, const struct guest_mem *mem,
		     struct irq_line irq);
void virtio_net_deinit(struct virtio_net *n);

/** virtio_net_counters - a copy of what was counted so far. Context: any thread. */
struct net_counters virtio_net_counters(const struct virtio_net *n);

#endif
