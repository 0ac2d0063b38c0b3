// SPDX-License-Identifier: Apache-2.0
/* machine/: virtqueues, the registers of virtio devices, disk and rng, with a driver that may lie. */
#include "machine/virtio_devices.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_config.h>
#include <linux/virtio_mmio.h>
#include <linux/virtio_ring.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define SIZE   8
#define DESC   0x1000
#define AVAIL  0x2000
#define USED   0x3000
#define BUFFER 0x10000
#define MIB    (1ull << 20)

static struct guest_mem m;
static bool line;
static u16 next_avail;

static void set_line(void *arg, u32 gsi, bool level)
{
	(void)arg;
	(void)gsi;
	line = level;
}

static const struct irq_line irq = { set_line, NULL, 5 };

static int set_up(void **state)
{
	(void)state;
	next_avail = 0;
	line = false;
	return mem_init(&m, 16 * MIB, NULL);
}

static int tear_down(void **state)
{
	(void)state;
	mem_deinit(&m);
	return 0;
}

static void put16(u64 at, u16 v)
{
	assert_true(mem_write(&m, gpa(at), &v, sizeof(v)));
}

/* As a driver reads an index: what it speaks of is read after. */
static u16 get16(u64 at)
{
	const u16 *p = mem_at(&m, gpa(at), sizeof(*p));

	assert_non_null(p);
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static void desc(u16 i, u64 addr, u32 len, u16 flags, u16 next)
{
	struct vring_desc d = { addr, len, flags, next };

	assert_true(mem_write(&m, gpa(DESC + i * sizeof(d)), &d, sizeof(d)));
}

static void offer(u16 head)
{
	put16(AVAIL + 4 + 2 * (next_avail % SIZE), head);
	put16(AVAIL + 2, ++next_avail);
}

static struct virtq queue(void)
{
	return (struct virtq){
		.mem = &m, .size = SIZE, .ready = true, .desc = DESC, .avail = AVAIL, .used = USED
	};
}

static void test_chain(void **state)
{
	struct virtq q = queue();
	struct virtq_chain c;
	char text[8] = "";

	(void)state;
	assert_int_equal(virtq_pop(&q, &c), 0);
	desc(0, BUFFER, 3, VRING_DESC_F_NEXT, 2);
	desc(2, BUFFER + 100, 4, VRING_DESC_F_NEXT, 1);
	desc(1, BUFFER + 200, 5, VRING_DESC_F_WRITE, 0);
	assert_true(mem_write(&m, gpa(BUFFER), "abc", 3));
	assert_true(mem_write(&m, gpa(BUFFER + 100), "defg", 4));
	offer(0);
	assert_int_equal(virtq_pop(&q, &c), 1);
	assert_int_equal(c.n_out, 2);
	assert_int_equal(c.n_in, 1);
	assert_int_equal(c.out_bytes, 7);
	assert_int_equal(c.in_bytes, 5);
	assert_true(virtq_read(&c, 2, text, 3));
	assert_string_equal(text, "cde");
	assert_false(virtq_read(&c, 5, text, 3));
	assert_false(virtq_read(&c, UINT64_MAX, text, 3));
	assert_false(virtq_read(&c, 0, text, 0));
	assert_true(virtq_write(&c, 1, "wxyz", 4));
	assert_false(virtq_write(&c, 2, "wxyz", 4));
	virtq_push(&q, &c, 5);
	assert_int_equal(get16(USED + 2), 1);
	assert_int_equal(get16(USED + 4), 0);
	assert_int_equal(get16(USED + 8), 5);
	assert_true(virtq_wants_interrupt(&q));
	put16(AVAIL, VRING_AVAIL_F_NO_INTERRUPT);
	assert_false(virtq_wants_interrupt(&q));
	assert_int_equal(virtq_pop(&q, &c), 0);
}

static void refuse(u16 head)
{
	struct virtq q = queue();
	struct virtq_chain c;

	next_avail = 0;
	offer(head);
	assert_int_equal(virtq_pop(&q, &c), -EBADMSG);
}

static void test_lies(void **state)
{
	struct virtq q = queue();
	struct virtq_chain c;

	(void)state;
	desc(0, BUFFER, 16, VRING_DESC_F_NEXT, 0); /* a circle */
	refuse(0);
	refuse(SIZE); /* no such descriptor */
	desc(0, BUFFER, 16, VRING_DESC_F_NEXT, SIZE);
	refuse(0);
	desc(0, BUFFER, 0, 0, 0); /* nothing */
	refuse(0);
	desc(0, 16 * MIB - 1, 2, 0, 0); /* over the end of RAM */
	refuse(0);
	desc(0, UINT64_MAX - 1, 4, 0, 0);
	refuse(0);
	desc(0, BUFFER, 0xffffffff, 0, 0);
	refuse(0);
	desc(0, BUFFER, 16, VRING_DESC_F_INDIRECT, 0); /* was not offered */
	refuse(0);
	desc(0, BUFFER, 16, VRING_DESC_F_WRITE | VRING_DESC_F_NEXT, 1); /* read after written */
	desc(1, BUFFER, 16, 0, 0);
	refuse(0);
	put16(AVAIL + 2, SIZE + 1); /* more than there is room for */
	assert_int_equal(virtq_pop(&q, &c), -EBADMSG);
	q.ready = false;
	assert_int_equal(virtq_pop(&q, &c), 0);
}

static void test_places(void **state)
{
	struct virtq q = queue();

	(void)state;
	assert_int_equal(virtq_check(&q), 0);
#define BAD(field, value, no)                          \
	do {                                           \
		q = queue();                           \
		q.field = value;                       \
		assert_int_equal(virtq_check(&q), no); \
	} while (0)
	BAD(size, 0, -EINVAL);
	BAD(size, 3, -EINVAL);
	BAD(size, 2 * VIRTQ_MAX_SIZE, -EINVAL);
	BAD(desc, DESC + 8, -EFAULT);
	BAD(avail, AVAIL + 1, -EFAULT);
	BAD(used, USED + 2, -EFAULT);
	BAD(desc, 16 * MIB - 16, -EFAULT);
	BAD(avail, 16 * MIB - 4, -EFAULT);
	BAD(used, 0xfffffffffffffffcull, -EFAULT);
#undef BAD
}

static u32 in(struct virtio_dev *d, u64 reg)
{
	u32 v = 0;

	virtio_io(d, reg, (u8 *)&v, sizeof(v), false);
	return v;
}

static void out(struct virtio_dev *d, u64 reg, u32 v)
{
	virtio_io(d, reg, (u8 *)&v, sizeof(v), true);
}

#define ACKNOWLEDGED (VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER)

/* As a driver does it, VIRTIO 1.2, 3.1.1. */
static void bring_up(struct virtio_dev *d)
{
	out(d, VIRTIO_MMIO_STATUS, 0);
	out(d, VIRTIO_MMIO_STATUS, ACKNOWLEDGED);
	out(d, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
	out(d, VIRTIO_MMIO_DRIVER_FEATURES, 1);
	out(d, VIRTIO_MMIO_STATUS, ACKNOWLEDGED | VIRTIO_CONFIG_S_FEATURES_OK);
	assert_true(in(d, VIRTIO_MMIO_STATUS) & VIRTIO_CONFIG_S_FEATURES_OK);
	out(d, VIRTIO_MMIO_QUEUE_SEL, 0);
	assert_int_equal(in(d, VIRTIO_MMIO_QUEUE_NUM_MAX), VIRTQ_MAX_SIZE);
	out(d, VIRTIO_MMIO_QUEUE_NUM, SIZE);
	out(d, VIRTIO_MMIO_QUEUE_DESC_LOW, DESC);
	out(d, VIRTIO_MMIO_QUEUE_AVAIL_LOW, AVAIL);
	out(d, VIRTIO_MMIO_QUEUE_USED_LOW, USED);
	out(d, VIRTIO_MMIO_QUEUE_READY, 1);
	assert_int_equal(in(d, VIRTIO_MMIO_QUEUE_READY), 1);
	out(d, VIRTIO_MMIO_STATUS,
	    ACKNOWLEDGED | VIRTIO_CONFIG_S_FEATURES_OK | VIRTIO_CONFIG_S_DRIVER_OK);
	next_avail = 0;
	put16(AVAIL, 0);
	put16(AVAIL + 2, 0);
	put16(USED + 2, 0);
}

static void test_registers(void **state)
{
	struct virtio_dev d;
	u8 byte = 0xff;

	(void)state;
	virtio_rng_init(&d, &m, irq);
	assert_int_equal(in(&d, VIRTIO_MMIO_MAGIC_VALUE), 0x74726976);
	assert_int_equal(in(&d, VIRTIO_MMIO_VERSION), 2);
	assert_int_equal(in(&d, VIRTIO_MMIO_DEVICE_ID), 4);
	/* features: what was not offered is refused, and so is a driver before version 1 */
	out(&d, VIRTIO_MMIO_STATUS, ACKNOWLEDGED | VIRTIO_CONFIG_S_FEATURES_OK);
	assert_int_equal(in(&d, VIRTIO_MMIO_STATUS), ACKNOWLEDGED);
	out(&d, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
	out(&d, VIRTIO_MMIO_DRIVER_FEATURES, 3);
	out(&d, VIRTIO_MMIO_STATUS,
	    ACKNOWLEDGED | VIRTIO_CONFIG_S_FEATURES_OK | VIRTIO_CONFIG_S_DRIVER_OK);
	assert_int_equal(in(&d, VIRTIO_MMIO_STATUS), ACKNOWLEDGED);
	/* no such queue, no such width, no such feature word */
	out(&d, VIRTIO_MMIO_QUEUE_SEL, 1);
	assert_int_equal(in(&d, VIRTIO_MMIO_QUEUE_NUM_MAX), 0);
	out(&d, VIRTIO_MMIO_QUEUE_READY, 1);
	assert_int_equal(in(&d, VIRTIO_MMIO_QUEUE_READY), 0);
	out(&d, VIRTIO_MMIO_QUEUE_NOTIFY, 0xffffffff);
	out(&d, VIRTIO_MMIO_DEVICE_FEATURES_SEL, 77);
	assert_int_equal(in(&d, VIRTIO_MMIO_DEVICE_FEATURES), 0);
	virtio_io(&d, VIRTIO_MMIO_STATUS, &byte, 1, false);
	assert_int_equal(byte, 0);
	/* a queue outside of RAM: the device says that it must be reset */
	out(&d, VIRTIO_MMIO_QUEUE_SEL, 0);
	out(&d, VIRTIO_MMIO_QUEUE_NUM, SIZE);
	out(&d, VIRTIO_MMIO_QUEUE_DESC_HIGH, 1);
	out(&d, VIRTIO_MMIO_QUEUE_READY, 1);
	assert_int_equal(in(&d, VIRTIO_MMIO_QUEUE_READY), 0);
	assert_true(in(&d, VIRTIO_MMIO_STATUS) & VIRTIO_CONFIG_S_NEEDS_RESET);
	bring_up(&d);
	virtio_deinit(&d);
}

static void test_rng(void **state)
{
	struct virtio_dev d;
	u8 bytes[300];
	u32 zeros = 0;

	(void)state;
	virtio_rng_init(&d, &m, irq);
	bring_up(&d);
	desc(0, BUFFER, 300, VRING_DESC_F_WRITE, 0);
	offer(0);
	virtio_run_queue(&d, 0);
	assert_int_equal(get16(USED + 2), 1);
	assert_int_equal(get16(USED + 8), 256);
	assert_true(mem_read(&m, gpa(BUFFER), bytes, sizeof(bytes)));
	for (u32 i = 0; i < 256; i++)
		zeros += !bytes[i];
	assert_true(zeros < 32);
	assert_int_equal(bytes[256], 0);
	assert_true(line);
	assert_int_equal(in(&d, VIRTIO_MMIO_INTERRUPT_STATUS), VIRTIO_MMIO_INT_VRING);
	out(&d, VIRTIO_MMIO_INTERRUPT_ACK, VIRTIO_MMIO_INT_VRING);
	assert_false(line);
	/* a lie ends it until it is reset */
	offer(SIZE);
	virtio_run_queue(&d, 0);
	assert_true(in(&d, VIRTIO_MMIO_STATUS) & VIRTIO_CONFIG_S_NEEDS_RESET);
	assert_int_equal(in(&d, VIRTIO_MMIO_INTERRUPT_STATUS), VIRTIO_MMIO_INT_CONFIG);
	desc(0, BUFFER, 8, VRING_DESC_F_WRITE, 0);
	offer(0);
	virtio_run_queue(&d, 0);
	assert_int_equal(get16(USED + 2), 1);
	bring_up(&d);
	assert_false(line);
	offer(0);
	virtio_run_queue(&d, 0);
	assert_int_equal(get16(USED + 2), 1);
	/* by its thread */
	assert_int_equal(virtio_start(&d, NULL), 0);
	offer(0);
	out(&d, VIRTIO_MMIO_QUEUE_NOTIFY, 0);
	for (int i = 0; i < 5000 && get16(USED + 2) != 2; i++)
		usleep(1000);
	assert_int_equal(get16(USED + 2), 2);
	virtio_deinit(&d);
}

static struct virtio_blk blk;

/* One request; returns its status byte. */
static u8 request(u32 type, u64 sector, u32 len, bool in_data)
{
	struct virtio_blk_outhdr h = { .type = type, .sector = sector };
	u16 used = get16(USED + 2);
	u8 status = 0xff;

	assert_true(mem_write(&m, gpa(BUFFER), &h, sizeof(h)));
	assert_true(mem_write(&m, gpa(BUFFER + 0x100), &status, 1));
	desc(0, BUFFER, sizeof(h), VRING_DESC_F_NEXT, len ? 1 : 2);
	desc(1, BUFFER + 0x1000, len, VRING_DESC_F_NEXT | (in_data ? VRING_DESC_F_WRITE : 0), 2);
	desc(2, BUFFER + 0x100, 1, VRING_DESC_F_WRITE, 0);
	offer(0);
	virtio_run_queue(&blk.dev, 0);
	assert_int_equal(get16(USED + 2), used + 1);
	assert_true(mem_read(&m, gpa(BUFFER + 0x100), &status, 1));
	return status;
}

static void test_disk(void **state)
{
	int fd = memfd_create("disk", MFD_CLOEXEC);
	char path[64], text[16] = "";
	const struct disk_source writer = { .path = path };
	struct err err = { 0 };
	u64 capacity = 0;

	(void)state;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	assert_int_equal(virtio_blk_init(&blk, &writer, 0, &m, irq, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "it is empty"));
	virtio_blk_deinit(&blk);
	assert_int_equal(ftruncate(fd, 10 * 512 + 100), 0);
	assert_int_equal(pwrite(fd, "sector nine", 11, 9 * 512), 11);
	assert_int_equal(virtio_blk_init(&blk, &writer, 3, &m, irq, &err), 0);
	virtio_io(&blk.dev, VIRTIO_MMIO_CONFIG, (u8 *)&capacity, 8, false);
	assert_int_equal(capacity, 10);
	virtio_io(&blk.dev, VIRTIO_MMIO_CONFIG + 0xef8, (u8 *)&capacity, 8, false);
	assert_int_equal(capacity, 0);
	bring_up(&blk.dev);
	assert_int_equal(request(VIRTIO_BLK_T_IN, 9, 512, true), VIRTIO_BLK_S_OK);
	assert_int_equal(get16(USED + 8), 513);
	assert_true(mem_read(&m, gpa(BUFFER + 0x1000), text, 11));
	assert_string_equal(text, "sector nine");
	assert_true(mem_write(&m, gpa(BUFFER + 0x1000), "written", 7));
	assert_int_equal(request(VIRTIO_BLK_T_OUT, 1, 1024, false), VIRTIO_BLK_S_OK);
	assert_int_equal(pread(fd, text, 7, 512), 7);
	assert_memory_equal(text, "written", 7);
	assert_int_equal(request(VIRTIO_BLK_T_FLUSH, 0, 0, false), VIRTIO_BLK_S_OK);
	assert_int_equal(request(VIRTIO_BLK_T_GET_ID, 0, 20, true), VIRTIO_BLK_S_OK);
	assert_string_equal(mem_at(&m, gpa(BUFFER + 0x1000), 20), "hvftrace-3");
	/* over the end, by a sector, by all, around; half a sector; nothing; what there is not */
	assert_int_equal(request(VIRTIO_BLK_T_IN, 9, 1024, true), VIRTIO_BLK_S_IOERR);
	assert_int_equal(request(VIRTIO_BLK_T_OUT, 10, 512, false), VIRTIO_BLK_S_IOERR);
	assert_int_equal(request(VIRTIO_BLK_T_IN, 1ull << 55, 512, true), VIRTIO_BLK_S_IOERR);
	assert_int_equal(request(VIRTIO_BLK_T_IN, UINT64_MAX, 512, true), VIRTIO_BLK_S_IOERR);
	assert_int_equal(request(VIRTIO_BLK_T_IN, 0, 100, true), VIRTIO_BLK_S_IOERR);
	assert_int_equal(request(VIRTIO_BLK_T_IN, 0, 0, true), VIRTIO_BLK_S_IOERR);
	assert_int_equal(request(99, 0, 512, true), VIRTIO_BLK_S_UNSUPP);
	virtio_blk_deinit(&blk);
	close(fd);
}

static void test_disk_is_kept(void **state)
{
	char path[] = "/tmp/hvf-disk-XXXXXX";
	const struct disk_source reader = { .path = path, .read_only = true },
				 writer = { .path = path };
	int fd = mkostemp(path, O_CLOEXEC);
	struct virtio_blk second;
	struct err err = { 0 };

	(void)state;
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_int_equal(virtio_blk_init(&blk, &reader, 0, &m, irq, &err), 0);
	assert_true(blk.dev.features & 1ull << VIRTIO_BLK_F_RO);
	bring_up(&blk.dev);
	assert_int_equal(request(VIRTIO_BLK_T_OUT, 0, 512, false), VIRTIO_BLK_S_IOERR);
	assert_int_equal(request(VIRTIO_BLK_T_IN, 0, 512, true), VIRTIO_BLK_S_OK);
	/* two may read, none may write beside them */
	assert_int_equal(virtio_blk_init(&second, &reader, 0, &m, irq, &err), 0);
	virtio_blk_deinit(&second);
	assert_int_equal(virtio_blk_init(&second, &writer, 0, &m, irq, &err), -EBUSY);
	assert_non_null(strstr(err.msg, "another guest has it"));
	virtio_blk_deinit(&second);
	virtio_blk_deinit(&blk);
	unlink(path);
	close(fd);
}

static void test_console(void **state)
{
	struct virtio_console v;
	char text[8] = "";
	int fds[2];

	(void)state;
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	virtio_console_init(&v, fds[1], &m, irq);
	bring_up(&v.dev); /* queue 0: to receive */
	desc(0, BUFFER, 4, VRING_DESC_F_WRITE, 0);
	desc(1, BUFFER + 8, 4, VRING_DESC_F_WRITE, 0);
	offer(0);
	offer(1);
	virtio_run_queue(&v.dev, 0);
	assert_int_equal(get16(USED + 2), 0); /* nothing was typed */
	assert_true(virtio_console_receive(&v, (const u8 *)"typed", 5));
	virtio_run_queue(&v.dev, 0);
	assert_int_equal(get16(USED + 2), 2);
	assert_int_equal(get16(USED + 8), 4);
	assert_int_equal(get16(USED + 16), 1);
	assert_memory_equal(mem_at(&m, gpa(BUFFER), 4), "type", 4);
	assert_memory_equal(mem_at(&m, gpa(BUFFER + 8), 1), "d", 1);
	/* one to read is of no use there: it comes back with nothing in it, and the byte stays */
	desc(2, BUFFER, 4, 0, 0);
	offer(2);
	assert_true(virtio_console_receive(&v, (const u8 *)"x", 1));
	virtio_run_queue(&v.dev, 0);
	assert_int_equal(get16(USED + 24), 0);
	offer(0);
	virtio_run_queue(&v.dev, 0);
	assert_memory_equal(mem_at(&m, gpa(BUFFER), 1), "x", 1);
	/* the other queue sends */
	out(&v.dev, VIRTIO_MMIO_QUEUE_SEL, 1);
	out(&v.dev, VIRTIO_MMIO_QUEUE_NUM, SIZE);
	out(&v.dev, VIRTIO_MMIO_QUEUE_DESC_LOW, DESC);
	out(&v.dev, VIRTIO_MMIO_QUEUE_AVAIL_LOW, AVAIL);
	out(&v.dev, VIRTIO_MMIO_QUEUE_USED_LOW, USED);
	put16(AVAIL + 2, 0);
	next_avail = 0;
	out(&v.dev, VIRTIO_MMIO_QUEUE_READY, 1);
	assert_true(mem_write(&m, gpa(BUFFER), "sent", 4));
	desc(0, BUFFER, 2, VRING_DESC_F_NEXT, 1);
	desc(1, BUFFER + 2, 2, 0, 0);
	offer(0);
	virtio_run_queue(&v.dev, 1);
	assert_int_equal(read(fds[0], text, sizeof(text)), 4);
	assert_string_equal(text, "sent");
	virtio_console_close(&v);
	assert_false(virtio_console_receive(&v, (const u8 *)"y", 1));
	virtio_console_deinit(&v);
	close(fds[0]);
	close(fds[1]);
}

/* A device whose request takes until it is told to give up, or until @go. */
struct slow {
	struct virtio_dev dev;
	_Atomic bool inside, left;
	bool heeds; /* the cancel */
	int go_fd;
};

static u32 slow_handle(struct virtio_dev *d, u32 queue, const struct virtq_chain *c)
{
	struct slow *s = d->priv;
	struct pollfd p[] = { { .fd = s->go_fd, .events = POLLIN },
			      { .fd = s->heeds ? d->cancel_fd : -1, .events = POLLIN } };

	(void)queue;
	s->inside = true;
	(void)poll(p, 2, -1);
	assert_true(virtq_write(c, 0, "late", 4));
	s->left = true;
	return 4;
}

static void *reset_it(void *arg)
{
	struct slow *s = arg;

	out(&s->dev, VIRTIO_MMIO_STATUS, 0);
	assert_true(s->left);
	return NULL;
}

/* After a reset the device touches the driver's memory no more: the reset waits for the request in flight. */
static void check_reset(bool heeds)
{
	static const struct virtio_ops ops = {
		.name = "slow", .id = 99, .n_queues = 1, .handle = slow_handle
	};
	struct slow s = { .heeds = heeds, .go_fd = eventfd(0, EFD_CLOEXEC) };
	const u64 one = 1;
	pthread_t t;

	virtio_init(&s.dev, &ops, &s, &m, irq);
	assert_int_equal(virtio_start(&s.dev, NULL), 0);
	bring_up(&s.dev);
	desc(0, BUFFER, 8, VRING_DESC_F_WRITE, 0);
	offer(0);
	out(&s.dev, VIRTIO_MMIO_QUEUE_NOTIFY, 0);
	for (int i = 0; i < 5000 && !s.inside; i++)
		usleep(1000);
	assert_true(s.inside);
	assert_int_equal(pthread_create(&t, NULL, reset_it, &s), 0);
	if (!heeds) {
		/* it has begun, and waits */
		for (int i = 0; i < 5000 && in(&s.dev, VIRTIO_MMIO_STATUS); i++)
			usleep(1000);
		assert_int_equal(in(&s.dev, VIRTIO_MMIO_STATUS), 0);
		assert_false(s.left);
		assert_int_equal(write(s.go_fd, &one, sizeof(one)), sizeof(one));
	}
	pthread_join(t, NULL);
	assert_int_equal(get16(USED + 2), 0); /* not given back to a driver that forgot it */
	assert_false(line);
	/* and it works again */
	s.inside = s.left = s.heeds = false;
	assert_int_equal(write(s.go_fd, &one, sizeof(one)), sizeof(one));
	bring_up(&s.dev);
	offer(0);
	out(&s.dev, VIRTIO_MMIO_QUEUE_NOTIFY, 0);
	for (int i = 0; i < 5000 && get16(USED + 2) != 1; i++)
		usleep(1000);
	assert_int_equal(get16(USED + 2), 1);
	virtio_deinit(&s.dev);
	close(s.go_fd);
}

static void test_reset_in_flight(void **state)
{
	(void)state;
	check_reset(true);
	check_reset(false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_chain, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_lies, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_places, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_registers, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_rng, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_console, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_reset_in_flight, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_disk, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_disk_is_kept, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
