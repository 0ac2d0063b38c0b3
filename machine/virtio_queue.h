/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A split virtqueue, seen from the device. All of it lies in the guest's RAM and may change at any time:
 * every descriptor is copied out once, then checked; every buffer is a piece of RAM or the chain is
 * refused. Must not know what a device does with its buffers.
 */
#ifndef MACHINE_VIRTIO_QUEUE_H
#define MACHINE_VIRTIO_QUEUE_H

#include "machine/mem.h"

#include <sys/uio.h>

#define VIRTQ_MAX_SIZE 256 /* descriptors of a queue */
#define VIRTQ_MAX_IOV  128 /* buffers of a chain */

struct virtq {
	const struct guest_mem *mem;
	u32 size; /* power of two; 0: not set up */
	bool ready;
	u64 desc, avail, used; /* guest physical */
	u16 last_avail, next_used;
};

/* One request: the buffers that the device reads, then those that it writes. */
struct virtq_chain {
	u16 head;
	u32 n_out, n_in;
	u64 out_bytes, in_bytes;
	struct iovec iov[VIRTQ_MAX_IOV]; /* n_out, then n_in */
};

/**
 * virtq_check - may the queue be used? All of its three parts must be RAM, and aligned
 *
 * Return: 0; -EINVAL the size; -EFAULT a part is not RAM, or not aligned.
 */
must_check int virtq_check(const struct virtq *q);

/**
 * virtq_pop - take the next request
 *
 * Context: one thread at a time. Return: 1 there is one; 0 none; -EBADMSG the guest's driver broke the
 * rules (a loop, an index out of range, a buffer that is not RAM, one to read after one to write,
 * nothing at all, more than VIRTQ_MAX_IOV): the queue is of no use any more.
 * Source: Virtual I/O Device (VIRTIO) 1.2, 2.7.
 */
must_check int virtq_pop(struct virtq *q, struct virtq_chain *ret);

/** virtq_push - give it back with @written bytes in its writable buffers */
void virtq_push(struct virtq *q, const struct virtq_chain *c, u32 written);

/** virtq_wants_interrupt - does the driver want one for what was pushed? */
bool virtq_wants_interrupt(const struct virtq *q);

/** virtq_read - copy @len bytes at @off of what the device reads; false when there are fewer */
must_check bool virtq_read(const struct virtq_chain *c, u64 off, void *buf, u64 len);

/** virtq_write - copy @len bytes to @off of what the device writes; false when there is less room */
must_check bool virtq_write(const struct virtq_chain *c, u64 off, const void *buf, u64 len);

/**
 * virtq_slice - the part [@off, @off + @len) of the buffers to read (@in false) or to write (true)
 * @ret: room for VIRTQ_MAX_IOV
 *
 * Return: how many pieces; 0 when there are fewer bytes than asked for.
 */
u32 virtq_slice(const struct virtq_chain *c, bool in, u64 off, u64 len, struct iovec *ret);

#endif
