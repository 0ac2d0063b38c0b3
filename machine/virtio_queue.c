// SPDX-License-Identifier: Apache-2.0
/* A split virtqueue, seen from the device. See virtio_queue.h. */
#include "machine/virtio_queue.h"

#include <errno.h>
#include <linux/virtio_ring.h>
#include <string.h>

#define DESC_BYTES   16
#define AVAIL_HEADER 4 /* flags, index */
#define USED_HEADER  4
#define USED_BYTES   8

int virtq_check(const struct virtq *q)
{
	if (!q->size || q->size > VIRTQ_MAX_SIZE || (q->size & (q->size - 1)))
		return -EINVAL;
	/* with the event indexes at the end of both rings, though they are not used */
	if (q->desc % 16 || q->avail % 2 || q->used % 4 ||
	    !mem_at(q->mem, gpa(q->desc), (u64)q->size * DESC_BYTES) ||
	    !mem_at(q->mem, gpa(q->avail), AVAIL_HEADER + 2ull * q->size + 2) ||
	    !mem_at(q->mem, gpa(q->used), USED_HEADER + (u64)q->size * USED_BYTES + 2))
		return -EFAULT;
	return 0;
}

/* A 16-bit word that the driver writes while we read: once, whole, and before what it speaks of. */
static u16 load(const struct virtq *q, u64 addr)
{
	const u16 *p = mem_at(q->mem, gpa(addr), sizeof(*p));

	return p ? __atomic_load_n(p, __ATOMIC_ACQUIRE) : 0;
}

static void store(const struct virtq *q, u64 addr, u16 v)
{
	u16 *p = mem_at(q->mem, gpa(addr), sizeof(*p));

	if (p)
		__atomic_store_n(p, v, __ATOMIC_RELEASE);
}

/* Append one buffer. */
static bool add(const struct virtq *q, const struct vring_desc *d, struct virtq_chain *c)
{
	bool in = d->flags & VRING_DESC_F_WRITE;
	void *p = mem_at(q->mem, gpa(d->addr), d->len);

	if (!p || c->n_out + c->n_in == VIRTQ_MAX_IOV || (!in && c->n_in))
		return false;
	c->iov[c->n_out + c->n_in] = (struct iovec){ p, d->len };
	if (in) {
		c->n_in++;
		c->in_bytes += d->len;
	} else {
		c->n_out++;
		c->out_bytes += d->len;
	}
	return true;
}

int virtq_pop(struct virtq *q, struct virtq_chain *ret)
{
	struct vring_desc d;
	u16 avail, i;

	if (!q->ready)
		return 0;
	avail = load(q, q->avail + 2);
	if (avail == q->last_avail)
		return 0;
	if ((u16)(avail - q->last_avail) > q->size)
		return -EBADMSG;
	i = load(q, q->avail + AVAIL_HEADER + 2ull * (q->last_avail & (q->size - 1)));
	ret->head = i;
	ret->n_out = ret->n_in = 0;
	ret->out_bytes = ret->in_bytes = 0;
	/* a chain is never longer than its queue: one that is goes round in a circle */
	for (u32 n = 0; n < q->size; n++) {
		if (i >= q->size ||
		    !mem_read(q->mem, gpa(q->desc + (u64)i * DESC_BYTES), &d, sizeof(d)))
			return -EBADMSG;
		if ((d.flags & VRING_DESC_F_INDIRECT) || !add(q, &d, ret))
			return -EBADMSG;
		if (!(d.flags & VRING_DESC_F_NEXT)) {
			q->last_avail++;
			return 1;
		}
		i = d.next;
	}
	return -EBADMSG;
}

void virtq_push(struct virtq *q, const struct virtq_chain *c, u32 written)
{
	struct vring_used_elem e = { .id = c->head, .len = written };
	u64 at = q->used + USED_HEADER + (u64)(q->next_used & (q->size - 1)) * USED_BYTES;

	if (!mem_write(q->mem, gpa(at), &e, sizeof(e)))
		return;
	q->next_used++;
	store(q, q->used + 2, q->next_used);
}

bool virtq_wants_interrupt(const struct virtq *q)
{
	/* what was pushed must be seen before the driver's flag is looked at */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return !(load(q, q->avail) & VRING_AVAIL_F_NO_INTERRUPT);
}

u32 virtq_slice(const struct virtq_chain *c, bool in, u64 off, u64 len, struct iovec *ret)
{
	const struct iovec *v = c->iov + (in ? c->n_out : 0);
	u32 n = in ? c->n_in : c->n_out;
	u64 end, total = in ? c->in_bytes : c->out_bytes;
	u32 k = 0;

	if (!len || add_overflows(off, len, &end) || end > total)
		return 0;
	for (u32 i = 0; i < n && len; i++) {
		u64 part;

		if (off >= v[i].iov_len) {
			off -= v[i].iov_len;
			continue;
		}
		part = MIN(len, v[i].iov_len - off);
		ret[k++] = (struct iovec){ (u8 *)v[i].iov_base + off, part };
		len -= part;
		off = 0;
	}
	return k;
}

bool virtq_read(const struct virtq_chain *c, u64 off, void *buf, u64 len)
{
	struct iovec v[VIRTQ_MAX_IOV];
	u32 n = virtq_slice(c, false, off, len, v);
	u8 *to = buf;

	for (u32 i = 0; i < n; i++) {
		memcpy(to, v[i].iov_base, v[i].iov_len);
		to += v[i].iov_len;
	}
	return n > 0;
}

bool virtq_write(const struct virtq_chain *c, u64 off, const void *buf, u64 len)
{
	struct iovec v[VIRTQ_MAX_IOV];
	u32 n = virtq_slice(c, true, off, len, v);
	const u8 *from = buf;

	for (u32 i = 0; i < n; i++) {
		memcpy(v[i].iov_base, from, v[i].iov_len);
		from += v[i].iov_len;
	}
	return n > 0;
}
