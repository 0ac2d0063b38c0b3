// SPDX-License-Identifier: Apache-2.0
/* machine/: a network card, at a socket in place of a tap, and at a tap where there may be one. */
#include "machine/virtio_net.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/test_machine_driver.h"

#define RX     0
#define TX     1
#define HEADER 12

static struct virtio_net net;
static int host; /* the other end of what stands for the tap */

/* Packets whole and one by one, as a tap has them. */
static void connect_card(u32 header)
{
	struct tap tap = { .header = header, .mac = { 2, 1, 2, 3, 4, 5 } };
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds),
			 0);
	tap.fd = fds[0];
	host = fds[1];
	virtio_net_init(&net, &tap, &m, irq);
	bring_up(&net.dev, UINT64_MAX);
}

static void disconnect_card(void)
{
	virtio_net_deinit(&net);
	close(host);
}

static void send_packet(const void *p, u32 len, u32 offered)
{
	u8 zeros[HEADER] = { 0 };

	put(buffer(TX), zeros, HEADER);
	if (len)
		put(buffer(TX) + HEADER, p, len);
	offer(TX, offered, false);
	virtio_run_queue(&net.dev, TX);
	assert_int_equal(given_back(TX, NULL), 0);
}

static void test_sends(void **state)
{
	static u8 packet[60], got[100];

	(void)state;
	memset(packet, 0x42, sizeof(packet));
	connect_card(HEADER);
	send_packet(packet, sizeof(packet), HEADER + sizeof(packet));
	assert_int_equal(read(host, got, sizeof(got)), HEADER + sizeof(packet));
	assert_memory_equal(got + HEADER, packet, sizeof(packet));
	disconnect_card();
	/* a tap without headers */
	connect_card(0);
	assert_false(net.dev.features & 1ull << VIRTIO_NET_F_CSUM);
	send_packet(packet, sizeof(packet), HEADER + sizeof(packet));
	assert_int_equal(read(host, got, sizeof(got)), sizeof(packet));
	assert_memory_equal(got, packet, sizeof(packet));
	/* too short, and too long, to be one; nothing to read; a tap that takes nothing */
	send_packet(packet, 13, HEADER + 13);
	send_packet(packet, 0, 3);
	send_packet(packet, 0, NET_MAX_PACKET + 1);
	offer(TX, 100, true);
	virtio_run_queue(&net.dev, TX);
	assert_int_equal(given_back(TX, NULL), 0);
	assert_int_equal(read(host, got, sizeof(got)), -1);
	assert_int_equal(virtio_net_counters(&net).tx_dropped, 4);
	assert_int_equal(virtio_net_counters(&net).tx_packets, 1);
	signal(SIGPIPE, SIG_IGN);
	shutdown(host, SHUT_RD);
	send_packet(packet, sizeof(packet), HEADER + sizeof(packet));
	assert_int_equal(virtio_net_counters(&net).tx_dropped, 5);
	disconnect_card();
}

static void arrive(u8 fill, u32 len)
{
	static u8 packet[NET_MAX_PACKET];

	memset(packet, 0, HEADER);
	memset(packet + HEADER, fill, len);
	assert_int_equal(write(host, packet, HEADER + len), HEADER + len);
}

static void test_receives(void **state)
{
	u64 at = 0;

	(void)state;
	connect_card(HEADER);
	arrive('a', 60);
	virtio_run_queue(&net.dev, RX);
	assert_int_equal(given_back(RX, NULL),
			 -1); /* no buffer: it waits, and the rest stays outside */
	arrive('b', 60);
	offer(RX, 2000, true);
	virtio_run_queue(&net.dev, RX);
	assert_int_equal(given_back(RX, &at), HEADER + 60);
	assert_int_equal(get16(at + 10), 1); /* buffers of this packet */
	assert_memory_equal(mem_at(&m, gpa(at + HEADER), 2), "aa", 2);
	assert_true(line);
	offer(RX, 2000, true);
	offer(RX, 2000, true);
	virtio_run_queue(&net.dev, RX);
	assert_int_equal(given_back(RX, &at), HEADER + 60);
	assert_memory_equal(mem_at(&m, gpa(at + HEADER), 2), "bb", 2);
	assert_int_equal(given_back(RX, NULL), -1);
	/* longer than its buffer: dropped, counted, the next one comes */
	arrive('c', 3000);
	arrive('d', 60);
	offer(RX, 2000, true);
	virtio_run_queue(&net.dev, RX);
	assert_int_equal(given_back(RX, NULL), 0);
	assert_int_equal(given_back(RX, &at), HEADER + 60);
	assert_memory_equal(mem_at(&m, gpa(at + HEADER), 2), "dd", 2);
	assert_int_equal(virtio_net_counters(&net).rx_dropped, 1);
	assert_int_equal(virtio_net_counters(&net).rx_packets, 3);
	/* what waited is of the driver before */
	virtio_run_queue(&net.dev, RX);
	arrive('e', 60);
	virtio_run_queue(&net.dev, RX);
	bring_up(&net.dev, UINT64_MAX);
	offer(RX, 2000, true);
	virtio_run_queue(&net.dev, RX);
	assert_int_equal(given_back(RX, NULL), -1);
	disconnect_card();
}

static void expect_rx(int bytes)
{
	for (int i = 0; i < 5000 && get16(USED(RX) + 2) == seen_used[RX]; i++)
		usleep(1000);
	assert_int_equal(given_back(RX, NULL), bytes);
}

/* By its thread: a packet wakes it, and one without a buffer neither keeps it busy nor is lost. */
static void test_by_its_thread(void **state)
{
	(void)state;
	connect_card(HEADER);
	assert_int_equal(virtio_start(&net.dev, NULL), 0);
	offer(RX, 2000, true);
	out(&net.dev, VIRTIO_MMIO_QUEUE_NOTIFY, RX);
	arrive('a', 60);
	expect_rx(HEADER + 60);
	for (u8 i = 0; i < 20; i++)
		arrive('b', 100u + i);
	for (u8 i = 0; i < 20; i++) {
		offer(RX, 2000, true);
		out(&net.dev, VIRTIO_MMIO_QUEUE_NOTIFY, RX);
		expect_rx(HEADER + 100 + i);
	}
	/* a reset, and another driver */
	bring_up(&net.dev, UINT64_MAX);
	offer(RX, 2000, true);
	out(&net.dev, VIRTIO_MMIO_QUEUE_NOTIFY, RX);
	arrive('c', 70);
	expect_rx(HEADER + 70);
	/* the tap goes away: it is not asked for ever */
	close(host);
	for (int i = 0; i < 5000 && !virtio_net_counters(&net).tap_errors; i++)
		usleep(1000);
	virtio_stop(&net.dev);
	assert_int_equal(virtio_net_counters(&net).tap_errors, 1);
	virtio_net_deinit(&net);
}

static int make_tap(const char *name, bool header)
{
	struct ifreq r = { .ifr_flags = IFF_TAP | IFF_NO_PI };
	int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC), on = 1;

	if (header)
		r.ifr_flags |= IFF_VNET_HDR;
	strcpy(r.ifr_name, name);
	if (fd >= 0 && (ioctl(fd, TUNSETIFF, &r) < 0 || ioctl(fd, TUNSETPERSIST, on) < 0)) {
		close(fd);
		return -1;
	}
	return fd;
}

static void refuse(const char *name, int no, const char *words)
{
	const struct net_source s = { .tap = name, .fd = -1 };
	struct err err = { 0 };
	struct tap t;

	assert_int_equal(tap_open(&t, &s, &err), no);
	assert_non_null(strstr(err.msg, words));
	tap_close(&t);
}

static void test_taps(void **state)
{
	const struct net_source named = { .tap = "hvftest0", .fd = -1 },
				with_mac = { .tap = "hvftest0", .fd = -1, .mac = { 6, 1 } };
	struct net_source by_fd = { .tap = NULL };
	struct tap t, again;
	int fd;

	(void)state;
	fd = unshare(CLONE_NEWNET) == 0 ? make_tap("hvftest0", true) : -1;
	if (fd < 0)
		skip(); /* needs privileges, and tun */
	refuse("hvftest0", -EBUSY, "another process has it");
	refuse("hvfnone0", -ENODEV, "ip tuntap add dev hvfnone0 mode tap");
	refuse("a-name-that-is-too-long", -EINVAL, "at most 15 characters");
	refuse("lo", -EINVAL, "not a tap");
	by_fd.fd = fd;
	assert_int_equal(tap_open(&t, &by_fd, NULL), 0);
	assert_int_equal(t.header, HEADER);
	tap_close(&t);
	assert_int_equal(tap_open(&t, &named, NULL), 0);
	assert_true(t.offloads & TUN_F_CSUM);
	assert_int_equal(t.mac[0] & 3, 2);
	memcpy(by_fd.mac, t.mac, MAC_BYTES);
	tap_close(&t);
	/* made up the same each time; or as asked for */
	assert_int_equal(tap_open(&again, &named, NULL), 0);
	assert_memory_equal(again.mac, by_fd.mac, MAC_BYTES);
	tap_close(&again);
	assert_int_equal(tap_open(&again, &with_mac, NULL), 0);
	assert_int_equal(again.mac[0], 6);
	/* the card offers what the tap does, and tells it what the driver takes */
	virtio_net_init(&net, &again, &m, irq);
	assert_true(net.dev.features & 1ull << VIRTIO_NET_F_GUEST_TSO4);
	bring_up(&net.dev, 1ull << VIRTIO_NET_F_GUEST_CSUM);
	virtio_net_deinit(&net);
	by_fd.fd = STDERR_FILENO;
	assert_int_equal(tap_open(&t, &by_fd, NULL), -EINVAL);
	tap_close(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_sends, driver_set_up, driver_tear_down),
		cmocka_unit_test_setup_teardown(test_receives, driver_set_up, driver_tear_down),
		cmocka_unit_test_setup_teardown(test_by_its_thread, driver_set_up,
						driver_tear_down),
		cmocka_unit_test_setup_teardown(test_taps, driver_set_up, driver_tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
