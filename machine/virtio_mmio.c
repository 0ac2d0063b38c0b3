// SPDX-License-Identifier: Apache-2.0
/*
 * The registers of a virtio device. See virtio_mmio.h.
 * Source: Virtual I/O Device (VIRTIO) 1.2, 2.1 (status), 4.2.2 (registers); <linux/virtio_mmio.h>.
 */
#include "machine/virtio_mmio.h"

#include <errno.h>
#include <linux/virtio_config.h>
#include <linux/virtio_mmio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MAGIC   0x74726976 /* "virt" */
#define VERSION 2
#define VENDOR  0x54465648 /* "HVFT" */

void virtio_init(struct virtio_dev *d, const struct virtio_ops *ops, void *priv,
		 const struct guest_mem *mem, struct irq_line irq)
{
	*d = (struct virtio_dev){ .ops = ops, .priv = priv, .irq = irq };
	for (u32 i = 0; i < VIRTIO_MAX_QUEUES; i++)
		d->queue[i].mem = mem;
	/* that there are none is found out by virtio_start() */
	d->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	d->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->idle, NULL);
}

void virtio_deinit(struct virtio_dev *d)
{
	virtio_stop(d);
	if (d->wake_fd >= 0)
		close(d->wake_fd);
	if (d->cancel_fd >= 0)
		close(d->cancel_fd);
	d->wake_fd = d->cancel_fd = -1;
	pthread_cond_destroy(&d->idle);
	pthread_mutex_destroy(&d->lock);
}

static void raise_event(int fd)
{
	const u64 one = 1;

	(void)!write(fd, &one, sizeof(one)); /* full is raised, too */
}

static void lower_event(int fd)
{
	u64 n;

	(void)!read(fd, &n, sizeof(n));
}

/* Called with the lock. */
static void interrupt(struct virtio_dev *d, u32 why)
{
	d->interrupts |= why;
	irq_set(&d->irq, true);
}

/* The driver broke the rules: nothing more is done for it until it resets the device. With the lock. */
static void give_up(struct virtio_dev *d)
{
	d->status |= VIRTIO_CONFIG_S_NEEDS_RESET;
	if (d->status & VIRTIO_CONFIG_S_DRIVER_OK)
		interrupt(d, VIRTIO_MMIO_INT_CONFIG);
}

static bool is_live(const struct virtio_dev *d)
{
	return (d->status & VIRTIO_CONFIG_S_DRIVER_OK) &&
	       !(d->status & VIRTIO_CONFIG_S_NEEDS_RESET);
}

bool virtio_is_live(struct virtio_dev *d)
{
	bool live;

	pthread_mutex_lock(&d->lock);
	live = is_live(d);
	pthread_mutex_unlock(&d->lock);
	return live;
}

/* With the lock. */
static void kick(struct virtio_dev *d, u32 queue)
{
	if (!d->kicked)
		raise_event(d->wake_fd);
	d->kicked |= 1u << queue;
}

void virtio_run_queue(struct virtio_dev *d, u32 queue)
{
	struct virtq *q = &d->queue[queue];
	struct virtq_chain c;
	u32 generation, written, todo = VIRTQ_MAX_SIZE;

	pthread_mutex_lock(&d->lock);
	while (is_live(d) && !d->stopping && (!d->ops->has_work || d->ops->has_work(d, queue))) {
		int got;

		/* a driver that goes on giving keeps nobody from its other queues */
		if (!todo--) {
			kick(d, queue);
			break;
		}
		got = virtq_pop(q, &c);
		if (got < 0)
			give_up(d);
		if (got <= 0)
			break;
		generation = d->generation;
		pthread_mutex_unlock(&d->lock);
		written = d->ops->handle(d, queue, &c);
		pthread_mutex_lock(&d->lock);
		if (generation != d->generation)
			break;
		virtq_push(q, &c, written);
		if (virtq_wants_interrupt(q))
			interrupt(d, VIRTIO_MMIO_INT_VRING);
	}
	pthread_mutex_unlock(&d->lock);
}

void virtio_kick(struct virtio_dev *d, u32 queue)
{
	pthread_mutex_lock(&d->lock);
	kick(d, queue);
	pthread_mutex_unlock(&d->lock);
}

/* Everything that there is to do now. Return: descriptors to wait for, from @p[1] on. */
static u32 work_once(struct virtio_dev *d, u32 kicked, struct pollfd *p, u32 ready)
{
	for (u32 i = 0; i < d->ops->n_queues; i++) {
		if (kicked & 1u << i)
			virtio_run_queue(d, i);
	}
	if (ready)
		d->ops->on_ready(d, p + 1, ready);
	return d->ops->wait_for ? d->ops->wait_for(d, p + 1) : 0;
}

static void *work(void *arg)
{
	struct pollfd p[1 + VIRTIO_MAX_POLL];
	struct virtio_dev *d = arg;
	u32 kicked, generation, n = 0;
	bool ready = false;

	pthread_mutex_lock(&d->lock);
	while (!d->stopping) {
		kicked = d->kicked;
		d->kicked = 0;
		d->busy = true;
		pthread_mutex_unlock(&d->lock);
		n = work_once(d, kicked, p, ready ? n : 0);
		pthread_mutex_lock(&d->lock);
		d->busy = ready = false;
		pthread_cond_broadcast(&d->idle);
		if (d->kicked || d->stopping)
			continue;
		generation = d->generation;
		pthread_mutex_unlock(&d->lock);
		p[0] = (struct pollfd){ .fd = d->wake_fd, .events = POLLIN };
		if (poll(p, 1 + n, -1) > 0) {
			if (p[0].revents)
				lower_event(d->wake_fd);
			ready = true;
		}
		pthread_mutex_lock(&d->lock);
		/* what they meant may be gone */
		ready = ready && generation == d->generation;
	}
	pthread_mutex_unlock(&d->lock);
	return NULL;
}

int virtio_start(struct virtio_dev *d, struct err *err)
{
	int no = d->wake_fd < 0 || d->cancel_fd < 0 ? EMFILE
						    : pthread_create(&d->thread, NULL, work, d);

	if (no)
		return err_set(err, -no, ERR_IO, 0, "the thread of %s: %s", d->ops->name,
			       strerrordesc_np(no));
	d->started = true;
	(void)pthread_setname_np(d->thread, d->ops->name);
	return 0;
}

void virtio_stop(struct virtio_dev *d)
{
	if (!d->started)
		return;
	pthread_mutex_lock(&d->lock);
	d->stopping = true;
	raise_event(d->wake_fd);
	raise_event(d->cancel_fd);
	pthread_mutex_unlock(&d->lock);
	pthread_join(d->thread, NULL);
	d->started = false;
}

/* With the lock, which is let go of while the thread finishes. */
static void reset(struct virtio_dev *d)
{
	d->status = d->kicked = 0;
	d->generation++;
	if (d->busy)
		raise_event(d->cancel_fd);
	while (d->busy)
		pthread_cond_wait(&d->idle, &d->lock);
	if (!d->stopping)
		lower_event(d->cancel_fd);
	for (u32 i = 0; i < VIRTIO_MAX_QUEUES; i++)
		d->queue[i] = (struct virtq){ .mem = d->queue[i].mem };
	d->status = d->interrupts = d->kicked = 0;
	d->features_sel = d->driver_sel = d->queue_sel = 0;
	d->driver_features = 0;
	if (d->ops->reset)
		d->ops->reset(d);
	irq_set(&d->irq, false);
	raise_event(d->wake_fd); /* wait for other descriptors now */
}

void virtio_reset(struct virtio_dev *d)
{
	pthread_mutex_lock(&d->lock);
	reset(d);
	pthread_mutex_unlock(&d->lock);
}

static u64 offered(const struct virtio_dev *d)
{
	return d->features | 1ull << VIRTIO_F_VERSION_1;
}

/* The driver only ever adds bits; the one for its features stays only if we have them all. */
static void set_status(struct virtio_dev *d, u32 v)
{
	u32 broken = d->status & VIRTIO_CONFIG_S_NEEDS_RESET;

	if (!v) {
		reset(d);
		return;
	}
	if ((v & VIRTIO_CONFIG_S_FEATURES_OK) && !(d->status & VIRTIO_CONFIG_S_FEATURES_OK) &&
	    ((d->driver_features & ~offered(d)) ||
	     !(d->driver_features & 1ull << VIRTIO_F_VERSION_1)))
		v &= ~(u32)VIRTIO_CONFIG_S_FEATURES_OK;
	if (!(v & VIRTIO_CONFIG_S_FEATURES_OK))
		v &= ~(u32)VIRTIO_CONFIG_S_DRIVER_OK;
	if ((v & ~d->status & VIRTIO_CONFIG_S_FEATURES_OK) && d->ops->negotiated)
		d->ops->negotiated(d);
	/* its thread may wait for other descriptors from now on */
	if (v & ~d->status & VIRTIO_CONFIG_S_DRIVER_OK)
		raise_event(d->wake_fd);
	d->status = (v & 0xff) | broken;
}

/* NULL when the driver selected none that there is. */
static struct virtq *selected(struct virtio_dev *d)
{
	return d->queue_sel < d->ops->n_queues ? &d->queue[d->queue_sel] : NULL;
}

static void set_half(u64 *v, bool high, u32 half)
{
	*v = high ? (*v & 0xffffffff) | (u64)half << 32 : (*v & ~0xffffffffull) | half;
}

/* Where a queue lies is taken while it is not ready, and looked at once when it becomes so. */
static void write_queue(struct virtio_dev *d, struct virtq *q, u64 off, u32 v)
{
	if (off == VIRTIO_MMIO_QUEUE_READY) {
		q->ready = v == 1 && virtq_check(q) == 0;
		if (v == 1 && !q->ready)
			give_up(d);
		return;
	}
	if (q->ready)
		return;
	switch (off) {
	case VIRTIO_MMIO_QUEUE_NUM:
		q->size = v;
		break;
	case VIRTIO_MMIO_QUEUE_DESC_LOW:
	case VIRTIO_MMIO_QUEUE_DESC_HIGH:
		set_half(&q->desc, off == VIRTIO_MMIO_QUEUE_DESC_HIGH, v);
		break;
	case VIRTIO_MMIO_QUEUE_AVAIL_LOW:
	case VIRTIO_MMIO_QUEUE_AVAIL_HIGH:
		set_half(&q->avail, off == VIRTIO_MMIO_QUEUE_AVAIL_HIGH, v);
		break;
	case VIRTIO_MMIO_QUEUE_USED_LOW:
	case VIRTIO_MMIO_QUEUE_USED_HIGH:
		set_half(&q->used, off == VIRTIO_MMIO_QUEUE_USED_HIGH, v);
		break;
	default:
		break;
	}
}

static void write_reg(struct virtio_dev *d, u64 off, u32 v)
{
	switch (off) {
	case VIRTIO_MMIO_DEVICE_FEATURES_SEL:
		d->features_sel = v;
		break;
	case VIRTIO_MMIO_DRIVER_FEATURES_SEL:
		d->driver_sel = v;
		break;
	case VIRTIO_MMIO_DRIVER_FEATURES:
		if (d->driver_sel < 2 && !(d->status & VIRTIO_CONFIG_S_FEATURES_OK))
			set_half(&d->driver_features, d->driver_sel, v);
		break;
	case VIRTIO_MMIO_QUEUE_SEL:
		d->queue_sel = v;
		break;
	case VIRTIO_MMIO_QUEUE_NOTIFY:
		if (v < d->ops->n_queues)
			kick(d, v);
		break;
	case VIRTIO_MMIO_INTERRUPT_ACK:
		d->interrupts &= ~v;
		if (!d->interrupts)
			irq_set(&d->irq, false);
		break;
	case VIRTIO_MMIO_STATUS:
		set_status(d, v);
		break;
	default:
		if (selected(d))
			write_queue(d, selected(d), off, v);
		break;
	}
}

static u32 read_reg(struct virtio_dev *d, u64 off)
{
	const struct virtq *q = selected(d);

	switch (off) {
	case VIRTIO_MMIO_MAGIC_VALUE:
		return MAGIC;
	case VIRTIO_MMIO_VERSION:
		return VERSION;
	case VIRTIO_MMIO_DEVICE_ID:
		return d->ops->id;
	case VIRTIO_MMIO_VENDOR_ID:
		return VENDOR;
	case VIRTIO_MMIO_DEVICE_FEATURES:
		return d->features_sel < 2 ? (u32)(offered(d) >> (32 * d->features_sel)) : 0;
	case VIRTIO_MMIO_QUEUE_NUM_MAX:
		return q ? VIRTQ_MAX_SIZE : 0;
	case VIRTIO_MMIO_QUEUE_READY:
		return q && q->ready;
	case VIRTIO_MMIO_INTERRUPT_STATUS:
		return d->interrupts;
	case VIRTIO_MMIO_STATUS:
		return d->status;
	default: /* the config's generation, too: it never changes */
		return 0;
	}
}

/* Registers are 32 bits wide, the config space is bytes; what a driver writes there is not kept. */
void virtio_io(void *dev, u64 off, u8 *data, u32 len, bool is_write)
{
	struct virtio_dev *d = dev;
	u32 v = 0;

	if (off >= VIRTIO_MMIO_CONFIG) {
		off -= VIRTIO_MMIO_CONFIG;
		for (u32 i = 0; !is_write && i < len; i++)
			data[i] = off + i < d->config_bytes ? d->config[off + i] : 0;
		return;
	}
	if (len != sizeof(v) || off % sizeof(v)) {
		if (!is_write)
			memset(data, 0, len);
		return;
	}
	pthread_mutex_lock(&d->lock);
	if (is_write) {
		memcpy(&v, data, sizeof(v));
		write_reg(d, off, v);
	} else {
		v = read_reg(d, off);
		memcpy(data, &v, sizeof(v));
	}
	pthread_mutex_unlock(&d->lock);
}
