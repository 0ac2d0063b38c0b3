// SPDX-License-Identifier: Apache-2.0
/*
 * A virtio driver that does what it likes: register accesses and guest memory are the input. Properties:
 * no buffer of a chain lies outside of guest RAM, chains end, and what a device says it wrote fits into
 * the buffers that it was given. The RAM has no slack around it, so that a step out of it is seen.
 *
 * Input: operations of 8 bytes, { kind, register / 4, value (4), place (2) }, the rest goes to guest RAM.
 * Programs of the host's come by sockets, say something, and read little.
 */
#include "machine/virtio_devices.h"
#include "machine/virtio_net.h"
#include "machine/virtio_vsock.h"

#include <fcntl.h>
#include <linux/virtio_mmio.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define RAM_BYTES  (16ull << 20)
#define DISK_BYTES (64ull << 10)
#define MAX_OPS    64
#define OP_BYTES   8
#define N_DEVICES  5
#define N_PROGRAMS 4
#define PREPARED   0x4000 /* where queues lie when the input asks for prepared ones */

static struct guest_mem mem;
static struct virtio_blk blk;
static struct virtio_dev rng;
static struct virtio_console hvc;
static struct virtio_net net;
static struct virtio_vsock vsock;
static int tap; /* the host's end */
static char sock_path[64];
static char disk[64];

static void ignore(void *arg, u32 gsi, bool level)
{
	(void)arg;
	(void)gsi;
	(void)level;
}

static struct virtio_dev *const devices[N_DEVICES] = { &blk.dev, &rng, &hvc.dev, &net.dev,
						       &vsock.dev };
static const struct virtio_ops *own_ops[N_DEVICES];
static int program[N_PROGRAMS];

static const struct virtio_ops *ops_of(const struct virtio_dev *d)
{
	for (u32 i = 0; i < N_DEVICES; i++) {
		if (devices[i] == d)
			return own_ops[i];
	}
	abort();
}

/* Every buffer is guest RAM, and no more is said to be written than there is room for. */
static u32 check_and_handle(struct virtio_dev *d, u32 queue, const struct virtq_chain *c)
{
	u64 bytes = 0;
	u32 n;

	if (c->n_out + c->n_in > VIRTQ_MAX_IOV || c->n_out + c->n_in == 0)
		abort();
	for (u32 i = 0; i < c->n_out + c->n_in; i++) {
		const u8 *p = c->iov[i].iov_base;

		if (p < mem.base || c->iov[i].iov_len > mem.len ||
		    (u64)(p - mem.base) > mem.len - c->iov[i].iov_len)
			abort();
		bytes += c->iov[i].iov_len;
	}
	if (bytes != c->out_bytes + c->in_bytes)
		abort();
	/* what one request may move is bounded by RAM, not by time: leave out the largest */
	if (bytes > 1u << 20)
		return 0;
	n = ops_of(d)->handle(d, queue, c);
	if (n > c->in_bytes)
		abort();
	return n;
}

static void write_reg(struct virtio_dev *d, u64 reg, u32 v)
{
	virtio_io(d, reg, (u8 *)&v, sizeof(v), true);
}

/* A driver that did all right so far. */
static void bring_up(struct virtio_dev *d)
{
	write_reg(d, VIRTIO_MMIO_STATUS, 0);
	write_reg(d, VIRTIO_MMIO_STATUS, 3);
	write_reg(d, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
	write_reg(d, VIRTIO_MMIO_DRIVER_FEATURES, 1);
	write_reg(d, VIRTIO_MMIO_STATUS, 11);
	/* all queues are the same one */
	for (u32 i = 0; i < d->ops->n_queues; i++) {
		write_reg(d, VIRTIO_MMIO_QUEUE_SEL, i);
		write_reg(d, VIRTIO_MMIO_QUEUE_NUM, 16);
		write_reg(d, VIRTIO_MMIO_QUEUE_DESC_LOW, PREPARED);
		write_reg(d, VIRTIO_MMIO_QUEUE_AVAIL_LOW, PREPARED + 16 * 16);
		write_reg(d, VIRTIO_MMIO_QUEUE_USED_LOW, PREPARED + 0x1000);
		write_reg(d, VIRTIO_MMIO_QUEUE_READY, 1);
	}
	write_reg(d, VIRTIO_MMIO_STATUS, 15);
}

static void set_up(void)
{
	int fd;

	if (mem.base)
		return;
	fd = memfd_create("disk", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, DISK_BYTES) < 0 || mem_init(&mem, RAM_BYTES, NULL) < 0)
		abort();
	snprintf(disk, sizeof(disk), "/proc/self/fd/%d", fd);
	snprintf(sock_path, sizeof(sock_path), "/tmp/hvf-fuzz-%d", (int)getpid());
	signal(SIGPIPE, SIG_IGN);
}

static void start_net(struct irq_line irq)
{
	struct tap end = { .header = 12 };
	char packet[100] = "";
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
		abort();
	end.fd = fds[0];
	tap = fds[1];
	virtio_net_init(&net, &end, &mem, irq);
	for (int i = 0; i < 3; i++)
		(void)!write(tap, packet, sizeof(packet));
}

/* Two connect to the guest, two wait for it; what they say is heard at the first look. */
static void start_vsock(struct irq_line irq)
{
	static const char *const say[N_PROGRAMS] = { "CONNECT 7\nto the guest", "CONNECT 1\n",
						     "LISTEN 1\n", "LISTEN 7\nearly" };
	const struct vsock_source source = { .path = sock_path, .cid = 3 };
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct err err = { 0 };

	unlink(sock_path);
	if (virtio_vsock_init(&vsock, &source, &mem, irq, &err) < 0)
		abort();
	strcpy(addr.sun_path, sock_path);
	for (u32 i = 0; i < N_PROGRAMS; i++) {
		program[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (connect(program[i], (struct sockaddr *)&addr, sizeof(addr)) < 0)
			abort();
		(void)!write(program[i], say[i], strlen(say[i]));
	}
}

/* What a device's thread does when it is woken by something other than a kick. */
static void look(struct virtio_dev *d)
{
	struct pollfd p[VIRTIO_MAX_POLL];
	u32 n;

	if (!d->ops->wait_for)
		return;
	n = d->ops->wait_for(d, p);
	if (n > VIRTIO_MAX_POLL)
		abort();
	if (n && poll(p, n, 0) > 0)
		d->ops->on_ready(d, p, n);
}

static void start_devices(void)
{
	const struct irq_line irq = { ignore, NULL, 5 };

	const struct disk_source source = { .path = disk };
	struct err err = { 0 };

	if (virtio_blk_init(&blk, &source, 0, &mem, irq, &err) < 0) {
		fprintf(stderr, "%s\n", err.msg);
		abort();
	}
	virtio_rng_init(&rng, &mem, irq);
	virtio_console_init(&hvc, -1, &mem, irq);
	start_net(irq);
	start_vsock(irq);
	if (!virtio_console_receive(&hvc, (const u8 *)"some bytes that were typed", 26))
		abort();
}

static struct virtio_dev *device(u8 kind)
{
	return devices[(kind >> 4) % N_DEVICES];
}

static void stop_devices(void)
{
	virtio_blk_deinit(&blk);
	virtio_deinit(&rng);
	virtio_console_deinit(&hvc);
	virtio_net_deinit(&net);
	virtio_vsock_deinit(&vsock);
	close(tap);
	for (u32 i = 0; i < N_PROGRAMS; i++)
		close(program[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct virtio_ops ops[N_DEVICES];
	size_t n_ops;

	if (size < 1)
		return 0;
	n_ops = MIN((size_t)data[0] % MAX_OPS, (size - 1) / OP_BYTES);
	set_up();
	start_devices();
	for (u32 i = 0; i < N_DEVICES; i++) {
		own_ops[i] = devices[i]->ops;
		ops[i] = *own_ops[i];
		ops[i].handle = check_and_handle;
		devices[i]->ops = &ops[i];
	}
	/* queues first, then what they may point to */
	memset(mem.base + PREPARED, 0, 0x4000);
	memcpy(mem.base + PREPARED, data + 1 + n_ops * OP_BYTES,
	       MIN(size - 1 - n_ops * OP_BYTES, (size_t)0x4000));
	for (size_t i = 0; i < n_ops; i++) {
		const u8 *op = data + 1 + i * OP_BYTES;
		struct virtio_dev *d = device(op[0]);
		u32 value;
		u16 place;

		memcpy(&value, op + 2, sizeof(value));
		memcpy(&place, op + 6, sizeof(place));
		switch (op[0] & 3) {
		case 0:
			write_reg(d, op[1] * 4ull, value);
			break;
		case 1:
			virtio_io(d, place % VIRTIO_MMIO_BYTES, (u8 *)&value, 1 + (op[1] & 3),
				  false);
			break;
		case 2:
			bring_up(d);
			break;
		default:
			memcpy(mem.base + PREPARED + place % 0x3ffc, &value, sizeof(value));
			virtio_run_queue(d, op[1] % d->ops->n_queues);
			look(d);
			break;
		}
	}
	stop_devices();
	return 0;
}
