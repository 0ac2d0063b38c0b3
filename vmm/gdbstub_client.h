/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GDB remote protocol, as much as a stop window under TCG needs. Runs in the child of tcg_window.c,
 * forked from a process with threads: everything here is async-signal-safe, nothing allocates.
 * Source: GDB manual, "Remote Protocol"; QEMU 7.2 gdbstub/gdbstub.c.
 */
#ifndef VMM_GDBSTUB_CLIENT_H
#define VMM_GDBSTUB_CLIENT_H

#include "base/types.h"

struct vm_phys_text;

#define GDB_PAYLOAD_MAX        4096 /* QEMU's PacketSize is 0x1000 */
#define GDB_FRAME_MAX(payload) (2 * (payload) + 4) /* every byte escaped; $ # and two digits */

/**
 * gdb_encode - frame a payload: $payload#sum, escaping what must be
 *
 * Return: bytes written to @out, 0 when @cap is too small.
 */
size_t gdb_encode(char *out, size_t cap, const char *payload, size_t len);

enum gdb_state {
	GDB_IDLE,
	GDB_BODY,
	GDB_ESCAPE,
	GDB_REPEAT,
	GDB_SUM1,
	GDB_SUM2
};

/* Takes packets out of a stream that comes in any pieces; zero-initialised. */
struct gdb_decoder {
	enum gdb_state state;
	size_t len;
	u8 sum; /* computed */
	u8 want; /* first digit of the sum received */
	bool bad; /* too long or malformed: skipped as a whole */
	char payload[GDB_PAYLOAD_MAX + 1]; /* NUL-terminated once complete */
};

/**
 * gdb_decode - feed bytes until a packet is complete
 * @used_ret: bytes taken; the rest is for the next call
 *
 * Acknowledgements and bytes between packets are dropped. Return: 1 a packet is in @d->payload,
 * valid until the next call; 0 more is needed; -EPROTO a packet was malformed and was dropped.
 */
int gdb_decode(struct gdb_decoder *d, const char *data, size_t len, size_t *used_ret);

/** gdb_is_stop_reply - one that may come unasked: T05..., S05, W00, X09 */
bool gdb_is_stop_reply(const char *payload);

struct gdb_conn {
	int fd; /* -1 when not connected */
	struct gdb_decoder dec;
	char in[4096];
	size_t in_len, in_pos;
	char out[16384]; /* whole packets; what a timeout left unsent stays for the next try */
	size_t out_len, out_pos;
	size_t pending; /* packets without an answer so far */
	bool detaching; /* the detach packet is in @out, or sent */
};

/**
 * gdb_connect - connect to the stub at @path, which stops the guest, and have it answer
 *
 * Return: 0, every vCPU is out; -ETIMEDOUT; -ECONNREFUSED and others of connect(2). On a failure
 * after connecting, @c stays connected: gdb_detach() must get the guest going.
 */
int gdb_connect(struct gdb_conn *c, const char *path, u64 deadline_ns);

/** gdb_request - send a payload, wait for its answer in @c->dec.payload. 0; -ETIMEDOUT; -ESRCH. */
int gdb_request(struct gdb_conn *c, const char *payload, u64 deadline_ns);

/**
 * gdb_write_phys - write all pieces to guest physical memory, many packets in flight
 * @bad_ret: index of the piece that was refused
 *
 * Return: 0; -EPERM a piece was refused; -ETIMEDOUT; -ESRCH.
 */
int gdb_write_phys(struct gdb_conn *c, const struct vm_phys_text *text, size_t n, size_t *bad_ret,
		   u64 deadline_ns);

/** gdb_detach - let the guest go on and close. 0; -ETIMEDOUT and still connected; -ESRCH closed. */
int gdb_detach(struct gdb_conn *c, u64 deadline_ns);

/** gdb_drop - close without a word: leaves the guest stopped if it was */
void gdb_drop(struct gdb_conn *c);

#endif
