// SPDX-License-Identifier: Apache-2.0
/* Sockets between guest and host: the guest's side, packets. See virtio_vsock.h. */
#include "machine/virtio_vsock.h"

#include "machine/listen.h"

#include <errno.h>
#include <linux/virtio_ids.h>
#include <linux/vm_sockets.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEADER ((u32)sizeof(struct virtio_vsock_hdr))

enum {
	QUEUE_RECEIVE, /* by the guest */
	QUEUE_TRANSMIT,
	QUEUE_EVENT, /* nothing to tell: we do not migrate */
	N_QUEUES
};

static u32 bit(u32 op)
{
	return 1u << op;
}

/* The guest's view of a connection that is not, or not any more. */
static void refuse(struct virtio_vsock *v, u32 host_port, u32 guest_port)
{
	if (v->n_resets < VSOCK_MAX_RESETS)
		v->reset[v->n_resets++] = (struct vsock_reset){ host_port, guest_port };
	else
		__atomic_fetch_add(&v->refused, 1, __ATOMIC_RELAXED);
}

/* Both sides are told that it is over. */
static void break_off(struct virtio_vsock *v, struct vsock_conn *c)
{
	refuse(v, c->host_port, c->guest_port);
	vsock_close(c);
}

static void stage(struct virtio_vsock *v, struct vsock_conn *c, u16 op, u32 flags, u32 len)
{
	v->header = (struct virtio_vsock_hdr){ .src_cid = VMADDR_CID_HOST,
					       .dst_cid = v->cid,
					       .src_port = c->host_port,
					       .dst_port = c->guest_port,
					       .len = len,
					       .type = VIRTIO_VSOCK_TYPE_STREAM,
					       .op = op,
					       .flags = flags,
					       .buf_alloc = VSOCK_BUFFER,
					       .fwd_cnt = c->forwarded };
	c->told = c->forwarded;
	c->due &= ~bit(VIRTIO_VSOCK_OP_CREDIT_UPDATE);
	v->has_staged = true;
	v->staged = len;
	v->staged_at = 0;
}

/* Bytes for the guest, as many as it has room for. Return: true when something is staged. */
static bool stage_bytes(struct virtio_vsock *v, struct vsock_conn *c)
{
	u32 used = c->sent - c->peer_fwd;
	u32 room = used < c->peer_alloc ? c->peer_alloc - used : 0;
	ssize_t n;

	if (c->state != VSOCK_OPEN || !c->readable || c->host_done || c->guest_deaf || !room)
		return false;
	do
		n = read(c->fd, v->payload, MIN(room, VSOCK_MAX_PAYLOAD));
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN) {
		c->readable = false;
		return false;
	}
	if (n > 0) {
		c->sent += (u32)n;
		stage(v, c, VIRTIO_VSOCK_OP_RW, 0, (u32)n);
		return true;
	}
	/* the program writes no more, or is gone */
	c->host_done = true;
	stage(v, c, VIRTIO_VSOCK_OP_SHUTDOWN,
	      n < 0 || c->hung_up ? VIRTIO_VSOCK_SHUTDOWN_SEND | VIRTIO_VSOCK_SHUTDOWN_RCV
				  : VIRTIO_VSOCK_SHUTDOWN_SEND,
	      0);
	return true;
}

static bool stage_due(struct virtio_vsock *v, struct vsock_conn *c)
{
	static const u16 ops[] = { VIRTIO_VSOCK_OP_REQUEST, VIRTIO_VSOCK_OP_RESPONSE,
				   VIRTIO_VSOCK_OP_CREDIT_UPDATE };

	if (c->state < VSOCK_CONNECTS)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		if (c->due & bit(ops[i])) {
			c->due &= ~bit(ops[i]);
			stage(v, c, ops[i], 0, 0);
			return true;
		}
	}
	return stage_bytes(v, c);
}

/* The next packet for the guest; connections take turns. */
static bool stage_next(struct virtio_vsock *v)
{
	struct vsock_conn none = { .fd = -1 };

	if (v->has_staged)
		return true;
	if (v->n_resets) {
		v->n_resets--;
		none.host_port = v->reset[v->n_resets].host_port;
		none.guest_port = v->reset[v->n_resets].guest_port;
		stage(v, &none, VIRTIO_VSOCK_OP_RST, 0, 0);
		return true;
	}
	for (u32 i = 0; i < VSOCK_MAX_CONNS; i++) {
		u32 k = (v->turn + i) % VSOCK_MAX_CONNS;

		if (stage_due(v, &v->conn[k])) {
			v->turn = k + 1;
			return true;
		}
	}
	return false;
}

/* What is staged, or as much of it as the buffer holds: the rest goes into the next one. */
static u32 receive(struct virtio_vsock *v, const struct virtq_chain *c)
{
	struct virtio_vsock_hdr h = v->header;
	u32 len;

	if (!v->has_staged || c->in_bytes < HEADER || (v->staged && c->in_bytes == HEADER))
		return 0;
	len = (u32)MIN((u64)(v->staged - v->staged_at), c->in_bytes - HEADER);
	h.len = len;
	if (!virtq_write(c, 0, &h, HEADER) ||
	    (len && !virtq_write(c, HEADER, v->payload + v->staged_at, len)))
		return 0;
	v->staged_at += len;
	v->has_staged = v->staged_at < v->staged;
	return HEADER + len;
}

static struct vsock_conn *listener(struct virtio_vsock *v, u32 port)
{
	for (u32 i = 0; i < VSOCK_MAX_CONNS; i++) {
		if (v->conn[i].state == VSOCK_LISTENS && v->conn[i].host_port == port)
			return &v->conn[i];
	}
	return NULL;
}

static void on_request(struct virtio_vsock *v, const struct virtio_vsock_hdr *h)
{
	struct vsock_conn *c;

	if (vsock_find(v, h->dst_port, h->src_port)) {
		refuse(v, h->dst_port, h->src_port);
		return;
	}
	while ((c = listener(v, h->dst_port))) {
		c->guest_port = h->src_port;
		c->peer_alloc = h->buf_alloc;
		c->peer_fwd = h->fwd_cnt;
		if (vsock_open(c, h->src_port)) {
			c->due = bit(VIRTIO_VSOCK_OP_RESPONSE);
			return;
		}
		vsock_close(c); /* it does not wait any more: the next one */
	}
	refuse(v, h->dst_port, h->src_port);
}

static void on_shutdown(struct virtio_vsock *v, struct vsock_conn *c, u32 flags)
{
	bool gone;

	c->guest_done = c->guest_done || (flags & VIRTIO_VSOCK_SHUTDOWN_SEND);
	c->guest_deaf = c->guest_deaf || (flags & VIRTIO_VSOCK_SHUTDOWN_RCV);
	if (c->guest_deaf)
		(void)shutdown(c->fd, SHUT_RD); /* the program is told when it writes */
	gone = !vsock_pass_on(c);
	if (!gone && (!c->guest_done || !c->guest_deaf))
		return;
	/* an orderly end: it waits for this answer, then forgets; our program may still have to read */
	if (c->n && !gone) {
		refuse(v, c->host_port, c->guest_port);
		c->state = VSOCK_ENDS;
	} else {
		break_off(v, c);
	}
}

static void on_packet(struct virtio_vsock *v, struct vsock_conn *c,
		      const struct virtio_vsock_hdr *h, const struct virtq_chain *chain)
{
	c->peer_alloc = h->buf_alloc;
	c->peer_fwd = h->fwd_cnt;
	switch (h->op) {
	case VIRTIO_VSOCK_OP_RESPONSE:
		if (c->state != VSOCK_CONNECTS || !vsock_open(c, c->host_port))
			break_off(v, c);
		return;
	case VIRTIO_VSOCK_OP_RST:
		vsock_close(c);
		return;
	case VIRTIO_VSOCK_OP_SHUTDOWN:
		if (c->state == VSOCK_OPEN)
			on_shutdown(v, c, h->flags);
		return;
	case VIRTIO_VSOCK_OP_RW:
		if (c->state != VSOCK_OPEN || c->guest_done || !vsock_take(c, chain, h->len))
			break_off(v, c);
		return;
	case VIRTIO_VSOCK_OP_CREDIT_UPDATE:
		return;
	case VIRTIO_VSOCK_OP_CREDIT_REQUEST:
		c->due |= bit(VIRTIO_VSOCK_OP_CREDIT_UPDATE);
		return;
	default:
		break_off(v, c);
		return;
	}
}

static void transmit(struct virtio_vsock *v, const struct virtq_chain *chain)
{
	struct virtio_vsock_hdr h;
	struct vsock_conn *c;

	if (!virtq_read(chain, 0, &h, HEADER) || h.len > chain->out_bytes - HEADER ||
	    h.src_cid != v->cid || h.dst_cid != VMADDR_CID_HOST)
		return;
	if (h.type != VIRTIO_VSOCK_TYPE_STREAM) {
		refuse(v, h.dst_port, h.src_port);
		return;
	}
	if (h.op == VIRTIO_VSOCK_OP_REQUEST) {
		on_request(v, &h);
		return;
	}
	c = vsock_find(v, h.dst_port, h.src_port);
	if (c && c->state != VSOCK_ENDS)
		on_packet(v, c, &h, chain);
	else if (!c && h.op != VIRTIO_VSOCK_OP_RST)
		refuse(v, h.dst_port, h.src_port);
}

static u32 handle(struct virtio_dev *d, u32 queue, const struct virtq_chain *c)
{
	struct virtio_vsock *v = d->priv;

	if (queue == QUEUE_RECEIVE)
		return receive(v, c);
	transmit(v, c);
	return 0;
}

static bool has_work(struct virtio_dev *d, u32 queue)
{
	if (queue == QUEUE_RECEIVE)
		return stage_next(d->priv);
	return queue == QUEUE_TRANSMIT;
}

static short events_of(const struct vsock_conn *c)
{
	short events = 0;

	if (c->state == VSOCK_ASKS || (c->state == VSOCK_OPEN && !c->readable && !c->host_done))
		events |= POLLIN;
	if (c->n)
		events |= POLLOUT;
	return events;
}

/* What came of requests may be due to the guest: first that, then wait. */
static u32 wait_for(struct virtio_dev *d, struct pollfd *p)
{
	struct virtio_vsock *v = d->priv;
	u32 n = 0;

	_Static_assert(VSOCK_MAX_CONNS < VIRTIO_MAX_POLL, "all of them");
	virtio_run_queue(d, QUEUE_RECEIVE);
	p[n++] = (struct pollfd){ .fd = v->listen_fd, .events = POLLIN };
	for (u32 i = 0; i < VSOCK_MAX_CONNS; i++) {
		const struct vsock_conn *c = &v->conn[i];
		short events = events_of(c);

		/* even without events it is told when a program went away; where that is known, not again */
		if (c->state != VSOCK_FREE && (events || (!c->readable && !c->host_done)))
			p[n++] = (struct pollfd){ .fd = c->fd, .events = events };
	}
	return n;
}

static void look_at(struct virtio_vsock *v, struct vsock_conn *c, short revents)
{
	switch (c->state) {
	case VSOCK_ASKS:
		vsock_read_line(v, c);
		return;
	case VSOCK_LISTENS:
		if (revents & (POLLHUP | POLLERR))
			vsock_close(c);
		return;
	case VSOCK_CONNECTS:
		if (revents & (POLLHUP | POLLERR))
			break_off(v, c);
		return;
	default:
		if (revents & (POLLIN | POLLHUP | POLLERR))
			c->readable = true;
		c->hung_up = c->hung_up || (revents & POLLHUP);
		if (!vsock_pass_on(c) && c->state == VSOCK_OPEN)
			break_off(v, c);
		else if (c->state == VSOCK_ENDS && (!c->n || revents & (POLLHUP | POLLERR)))
			vsock_close(c);
		return;
	}
}

static void on_ready(struct virtio_dev *d, const struct pollfd *p, u32 n)
{
	struct virtio_vsock *v = d->priv;

	for (u32 i = 1; i < n; i++) {
		for (u32 k = 0; p[i].revents && k < VSOCK_MAX_CONNS; k++) {
			if (v->conn[k].state != VSOCK_FREE && v->conn[k].fd == p[i].fd) {
				look_at(v, &v->conn[k], p[i].revents);
				break;
			}
		}
	}
	/* last, as a descriptor that was closed above may come again */
	if (p[0].revents & POLLIN)
		vsock_accept(v);
}

/* Who listens goes on to; connections are of a guest that is no more. */
static void on_reset(struct virtio_dev *d)
{
	struct virtio_vsock *v = d->priv;

	for (u32 i = 0; i < VSOCK_MAX_CONNS; i++) {
		if (v->conn[i].state >= VSOCK_CONNECTS)
			vsock_close(&v->conn[i]);
	}
	v->n_resets = 0;
	v->has_staged = false;
}

static const struct virtio_ops vsock_ops = {
	.name = "vsock",
	.id = VIRTIO_ID_VSOCK,
	.n_queues = N_QUEUES,
	.handle = handle,
	.has_work = has_work,
	.wait_for = wait_for,
	.on_ready = on_ready,
	.reset = on_reset,
};

int virtio_vsock_init(struct virtio_vsock *v, const struct vsock_source *source,
		      const struct guest_mem *mem, struct irq_line irq, struct err *err)
{
	struct virtio_vsock_config config = { .guest_cid = source->cid };

	*v = (struct virtio_vsock){ .cid = source->cid, .listen_fd = -1 };
	for (u32 i = 0; i < VSOCK_MAX_CONNS; i++)
		v->conn[i].fd = -1;
	virtio_init(&v->dev, &vsock_ops, v, mem, irq);
	memcpy(v->dev.config, &config, sizeof(config));
	v->dev.config_bytes = sizeof(config);
	return listen_at(source->path, "--vsock", &v->listen_fd, err);
}

void virtio_vsock_deinit(struct virtio_vsock *v)
{
	virtio_deinit(&v->dev);
	for (u32 i = 0; i < VSOCK_MAX_CONNS; i++)
		vsock_close(&v->conn[i]);
	if (v->listen_fd >= 0)
		close(v->listen_fd);
	v->listen_fd = -1;
}
