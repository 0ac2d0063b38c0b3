// SPDX-License-Identifier: Apache-2.0
/* A console: hvc0 in the guest. See virtio_devices.h. */
#include "machine/output.h"
#include "machine/virtio_devices.h"

#include <linux/virtio_console.h>
#include <linux/virtio_ids.h>

enum {
	QUEUE_RECEIVE,
	QUEUE_TRANSMIT,
	N_QUEUES
};

static u32 transmit(struct virtio_console *v, const struct virtq_chain *c)
{
	for (u32 i = 0; i < c->n_out; i++)
		output_write(v->out_fd, c->iov[i].iov_base, c->iov[i].iov_len, v->dev.cancel_fd);
	return 0;
}

static u32 receive(struct virtio_console *v, const struct virtq_chain *c)
{
	u32 n = 0;

	pthread_mutex_lock(&v->lock);
	while (v->n && virtq_write(c, n, &v->input[v->head], 1)) {
		v->head = (v->head + 1) % CONSOLE_INPUT_BYTES;
		v->n--;
		n++;
	}
	pthread_cond_signal(&v->room);
	pthread_mutex_unlock(&v->lock);
	return n;
}

static u32 handle(struct virtio_dev *d, u32 queue, const struct virtq_chain *c)
{
	return queue == QUEUE_RECEIVE ? receive(d->priv, c) : transmit(d->priv, c);
}

/* A buffer to receive into waits until something was typed. */
static bool has_work(struct virtio_dev *d, u32 queue)
{
	struct virtio_console *v = d->priv;
	bool any;

	if (queue != QUEUE_RECEIVE)
		return true;
	pthread_mutex_lock(&v->lock);
	any = v->n > 0;
	pthread_mutex_unlock(&v->lock);
	return any;
}

static const struct virtio_ops console_ops = {
	.name = "hvc",
	.id = VIRTIO_ID_CONSOLE,
	.n_queues = N_QUEUES,
	.handle = handle,
	.has_work = has_work,
};

void virtio_console_init(struct virtio_console *v, int out_fd, const struct guest_mem *mem,
			 struct irq_line irq)
{
	*v = (struct virtio_console){ .out_fd = out_fd };
	virtio_init(&v->dev, &console_ops, v, mem, irq);
	v->dev.config_bytes = sizeof(struct virtio_console_config);
	pthread_mutex_init(&v->lock, NULL);
	pthread_cond_init(&v->room, NULL);
}

void virtio_console_deinit(struct virtio_console *v)
{
	virtio_deinit(&v->dev);
	pthread_cond_destroy(&v->room);
	pthread_mutex_destroy(&v->lock);
}

bool virtio_console_receive(void *dev, const u8 *buf, size_t n)
{
	struct virtio_console *v = dev;
	bool open;

	pthread_mutex_lock(&v->lock);
	for (size_t i = 0; i < n && !v->closed; i++) {
		while (v->n == CONSOLE_INPUT_BYTES && !v->closed)
			pthread_cond_wait(&v->room, &v->lock);
		v->input[(v->head + v->n) % CONSOLE_INPUT_BYTES] = buf[i];
		v->n += v->n < CONSOLE_INPUT_BYTES;
	}
	open = !v->closed;
	pthread_mutex_unlock(&v->lock);
	virtio_kick(&v->dev, QUEUE_RECEIVE);
	return open;
}

void virtio_console_close(void *dev)
{
	struct virtio_console *v = dev;

	pthread_mutex_lock(&v->lock);
	v->closed = true;
	pthread_cond_broadcast(&v->room);
	pthread_mutex_unlock(&v->lock);
}
