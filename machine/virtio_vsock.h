/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets between the guest (AF_VSOCK) and programs of the host, which come by a unix socket and say in a
 * line what they want:
 *
 *   CONNECT PORT   to the guest's port; answered "OK HOSTPORT" once the guest has accepted, as Firecracker does
 *   LISTEN PORT    be the next one that the guest connects to at CID 2; "OK GUESTPORT" once it has
 *
 * Then all bytes are the other side's. Who is refused finds its connection closed. Everything is a
 * connection that was accepted: so a confined process needs neither socket() nor connect(), with which it
 * could reach any service of the host. (vhost-vsock would put the guest's packets into the host's kernel, needs
 * a device of its own and a CID that is unique on the host.)
 */
#ifndef MACHINE_VIRTIO_VSOCK_H
#define MACHINE_VIRTIO_VSOCK_H

#include "machine/virtio_mmio.h"

#include <linux/virtio_vsock.h>

#define VSOCK_MAX_CONNS   64
#define VSOCK_MAX_RESETS  64
#define VSOCK_BUFFER      (64u << 10) /* of a connection, from the guest */
#define VSOCK_MAX_PAYLOAD 4096u
#define VSOCK_LINE        32
#define VSOCK_CID_DEFAULT 3u

struct vsock_source {
	const char *path; /* of the unix socket, which is made, mode 0600 */
	u64 cid; /* the guest's */
};

enum vsock_state {
	VSOCK_FREE,
	VSOCK_ASKS, /* has not said yet what it wants */
	VSOCK_LISTENS,
	VSOCK_CONNECTS, /* the guest has not answered yet */
	VSOCK_OPEN,
	VSOCK_ENDS, /* the guest is told; what it sent before goes out */
};

struct vsock_conn {
	enum vsock_state state;
	int fd;
	u32 host_port, guest_port;
	u32 due; /* packets for the guest, a bit each: VIRTIO_VSOCK_OP_* */
	bool readable, host_done; /* there are bytes for the guest; there will be no more */
	bool hung_up; /* the program is gone altogether */
	bool guest_done; /* it sends no more */
	bool guest_deaf; /* it takes no more */
	u32 peer_alloc, peer_fwd; /* the guest's room: what it said last */
	u32 sent; /* bytes, to the guest */
	u32 forwarded, told; /* bytes taken from it and passed on; what it knows of it */
	u32 head, n; /* in @buf */
	u8 *buf; /* VSOCK_BUFFER bytes, from the guest; NULL: not open */
	u32 line_n;
	char line[VSOCK_LINE];
};

/* A connection that the guest believes in, and that does not exist. */
struct vsock_reset {
	u32 host_port, guest_port;
};

struct virtio_vsock {
	struct virtio_dev dev;
	u64 cid;
	int listen_fd; /* -1: none */
	struct vsock_conn conn[VSOCK_MAX_CONNS];
	struct vsock_reset reset[VSOCK_MAX_RESETS];
	u32 n_resets;
	u32 next_port;
	u32 turn; /* the connection that may send first */
	u32 staged, staged_at; /* bytes of payload in @payload, and how many of them went out */
	struct virtio_vsock_hdr header; /* of what is staged */
	bool has_staged;
	u64 refused; /* atomic: programs, or the guest's connections, that found no place */
	u8 payload[VSOCK_MAX_PAYLOAD];
};

/**
 * virtio_vsock_init - sockets of a guest, by a unix socket that is made at @source->path
 *
 * Return: 0; errors of listen_at(). virtio_vsock_deinit() is fine after a failure.
 * Source: VIRTIO 1.2, 5.10.
 */
must_check int virtio_vsock_init(struct virtio_vsock *v, const struct vsock_source *source,
				 const struct guest_mem *mem, struct irq_line irq, struct err *err);
void virtio_vsock_deinit(struct virtio_vsock *v);

/* vsock_host.c: the host's side. Context of all: the device's thread, or its reset. */

/** vsock_find - the open or opening connection of these ports; NULL: none */
struct vsock_conn *vsock_find(struct virtio_vsock *v, u32 host_port, u32 guest_port);

/** vsock_accept - a program of the host came */
void vsock_accept(struct virtio_vsock *v);

/** vsock_read_line - take what an ASKS program says; true once something is due to the guest */
void vsock_read_line(struct virtio_vsock *v, struct vsock_conn *c);

/** vsock_open - @c is connected: tell its program, take bytes from now on; false: it went away */
must_check bool vsock_open(struct vsock_conn *c, u32 port);

/** vsock_take - bytes that the guest sent; false when it had no room for them, or the program is gone */
must_check bool vsock_take(struct vsock_conn *c, const struct virtq_chain *chain, u32 len);

/** vsock_pass_on - write what was taken, as far as the program reads; false when it is gone */
must_check bool vsock_pass_on(struct vsock_conn *c);

/** vsock_close - forget it; the guest is not told */
void vsock_close(struct vsock_conn *c);

#endif
