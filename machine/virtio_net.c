// SPDX-License-Identifier: Apache-2.0
/* A network card. See virtio_net.h. */
#include "machine/virtio_net.h"

#include <errno.h>
#include <linux/if_tun.h>
#include <linux/virtio_ids.h>
#include <linux/virtio_net.h>
#include <string.h>
#include <unistd.h>

#define HEADER   ((u32)sizeof(struct virtio_net_hdr_v1))
#define ETHERNET 14u /* shorter is no packet */

enum {
	QUEUE_RECEIVE,
	QUEUE_TRANSMIT,
	N_QUEUES
};

/* What the driver takes of what the tap can leave to it. */
static const struct {
	u32 feature, offload;
} guest_offloads[] = {
	{ VIRTIO_NET_F_GUEST_CSUM, TUN_F_CSUM },
	{ VIRTIO_NET_F_GUEST_TSO4, TUN_F_TSO4 },
	{ VIRTIO_NET_F_GUEST_TSO6, TUN_F_TSO6 },
	{ VIRTIO_NET_F_GUEST_ECN, TUN_F_TSO_ECN },
};

#define COUNT(n, what) __atomic_fetch_add(&(n)->count.what, 1, __ATOMIC_RELAXED)

struct net_counters virtio_net_counters(const struct virtio_net *n)
{
	return (struct net_counters){
		.rx_packets = __atomic_load_n(&n->count.rx_packets, __ATOMIC_RELAXED),
		.tx_packets = __atomic_load_n(&n->count.tx_packets, __ATOMIC_RELAXED),
		.rx_dropped = __atomic_load_n(&n->count.rx_dropped, __ATOMIC_RELAXED),
		.tx_dropped = __atomic_load_n(&n->count.tx_dropped, __ATOMIC_RELAXED),
		.tap_errors = __atomic_load_n(&n->count.tap_errors, __ATOMIC_RELAXED),
	};
}

/* The header goes to the tap as the driver wrote it: the host's kernel checks it, as it does anybody's. */
static u32 transmit(struct virtio_net *n, const struct virtq_chain *c)
{
	struct iovec v[VIRTQ_MAX_IOV];
	u32 skip = HEADER - n->tap.header, pieces = 0;
	ssize_t sent;

	if (c->out_bytes >= HEADER + ETHERNET && c->out_bytes <= NET_MAX_PACKET)
		pieces = virtq_slice(c, false, skip, c->out_bytes - skip, v);
	do
		sent = pieces ? writev(n->tap.fd, v, (int)pieces) : -1;
	while (pieces && sent < 0 && errno == EINTR);
	if (sent < 0)
		COUNT(n, tx_dropped);
	else
		COUNT(n, tx_packets);
	return 0;
}

static void give_up(struct virtio_net *n)
{
	n->broken = true;
	COUNT(n, tap_errors);
}

/* The next packet from the tap, unless one waits. */
static void fetch(struct virtio_net *n)
{
	u32 skip = HEADER - n->tap.header;
	ssize_t got;

	if (n->waiting || n->broken)
		return;
	memset(n->packet, 0, HEADER);
	do
		got = read(n->tap.fd, n->packet + skip, sizeof(n->packet) - skip);
	while (got < 0 && errno == EINTR);
	if (got >= (ssize_t)n->tap.header)
		n->waiting = (u32)got + skip;
	else if (got >= 0 || errno != EAGAIN)
		give_up(n);
}

static u32 receive(struct virtio_net *n, const struct virtq_chain *c)
{
	const struct virtio_net_hdr_v1 one = { .num_buffers = 1 };
	u32 len = n->waiting;

	if (!len)
		return 0;
	n->waiting = 0;
	memcpy(n->packet + offsetof(struct virtio_net_hdr_v1, num_buffers), &one.num_buffers,
	       sizeof(one.num_buffers));
	if (!virtq_write(c, 0, n->packet, len)) {
		COUNT(n, rx_dropped);
		return 0;
	}
	COUNT(n, rx_packets);
	return len;
}

static u32 handle(struct virtio_dev *d, u32 queue, const struct virtq_chain *c)
{
	return queue == QUEUE_RECEIVE ? receive(d->priv, c) : transmit(d->priv, c);
}

/* A buffer to receive into waits for a packet. */
static bool has_work(struct virtio_dev *d, u32 queue)
{
	struct virtio_net *n = d->priv;

	if (queue != QUEUE_RECEIVE)
		return true;
	fetch(n);
	return n->waiting > 0;
}

/* While a packet waits for a buffer the driver's next kick is what counts, not the tap. */
static u32 wait_for(struct virtio_dev *d, struct pollfd *p)
{
	const struct virtio_net *n = d->priv;

	if (n->waiting || n->broken || !virtio_is_live(d))
		return 0;
	*p = (struct pollfd){ .fd = n->tap.fd, .events = POLLIN };
	return 1;
}

static void on_ready(struct virtio_dev *d, const struct pollfd *p, u32 n)
{
	struct virtio_net *net = d->priv;

	(void)n;
	if (p->revents & POLLIN)
		virtio_run_queue(d, QUEUE_RECEIVE);
	else if (p->revents)
		give_up(net);
}

static void negotiated(struct virtio_dev *d)
{
	const struct virtio_net *n = d->priv;
	u32 offloads = 0;

	for (size_t i = 0; i < ARRAY_SIZE(guest_offloads); i++) {
		if (d->driver_features & d->features & 1ull << guest_offloads[i].feature)
			offloads |= guest_offloads[i].offload;
	}
	/* what the tap took once it takes again; if not, packets come whole and checked, as before */
	if (n->tap.offloads && !tap_offload(&n->tap, offloads))
		(void)tap_offload(&n->tap, 0);
}

static void on_reset(struct virtio_dev *d)
{
	struct virtio_net *n = d->priv;

	n->waiting = 0;
	n->broken = false;
	if (n->tap.offloads)
		(void)tap_offload(&n->tap, 0);
}

static const struct virtio_ops net_ops = {
	.name = "net",
	.id = VIRTIO_ID_NET,
	.n_queues = N_QUEUES,
	.handle = handle,
	.has_work = has_work,
	.wait_for = wait_for,
	.on_ready = on_ready,
	.negotiated = negotiated,
	.reset = on_reset,
};

static u64 features(const struct tap *t)
{
	u64 f = 1ull << VIRTIO_NET_F_MAC | 1ull << VIRTIO_NET_F_STATUS;

	if (!t->header)
		return f;
	/* what the guest sends unfinished the host's kernel finishes, where it must */
	f |= 1ull << VIRTIO_NET_F_CSUM | 1ull << VIRTIO_NET_F_HOST_TSO4 |
	     1ull << VIRTIO_NET_F_HOST_TSO6 | 1ull << VIRTIO_NET_F_HOST_ECN;
	for (size_t i = 0; i < ARRAY_SIZE(guest_offloads); i++) {
		if (t->offloads & guest_offloads[i].offload)
			f |= 1ull << guest_offloads[i].feature;
	}
	return f;
}

void virtio_net_init(struct virtio_net *n, const struct tap *tap, const struct guest_mem *mem,
		     struct irq_line irq)
{
	struct virtio_net_config config = { .status = VIRTIO_NET_S_LINK_UP };

	*n = (struct virtio_net){ .tap = *tap };
	virtio_init(&n->dev, &net_ops, n, mem, irq);
	memcpy(config.mac, n->tap.mac, MAC_BYTES);
	n->dev.features = features(&n->tap);
	_Static_assert(sizeof(config) <= VIRTIO_MAX_CONFIG, "it is copied");
	memcpy(n->dev.config, &config, sizeof(config));
	n->dev.config_bytes = sizeof(config);
}

void virtio_net_deinit(struct virtio_net *n)
{
	virtio_deinit(&n->dev);
	tap_close(&n->tap);
}
