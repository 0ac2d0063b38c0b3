// SPDX-License-Identifier: Apache-2.0
/* Random numbers. See virtio_devices.h. */
#include "machine/virtio_devices.h"

#include <linux/virtio_ids.h>
#include <sys/random.h>

#define MOST 256 /* bytes a request: getrandom(2) gives them whole, without waiting */

static u32 handle(struct virtio_dev *d, u32 queue, const struct virtq_chain *c)
{
	u64 len = MIN(c->in_bytes, MOST);
	u8 bytes[MOST];

	(void)d;
	(void)queue;
	if (getrandom(bytes, len, 0) != (ssize_t)len || !virtq_write(c, 0, bytes, len))
		return 0;
	return (u32)len;
}

static const struct virtio_ops rng_ops = {
	.name = "rng",
	.id = VIRTIO_ID_RNG,
	.n_queues = 1,
	.handle = handle,
};

void virtio_rng_init(struct virtio_dev *d, const struct guest_mem *mem, struct irq_line irq)
{
	virtio_init(d, &rng_ops, NULL, mem, irq);
}
