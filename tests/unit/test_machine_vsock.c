// SPDX-License-Identifier: Apache-2.0
/* machine/: sockets between guest and host: both ways in, flow control, ends, a guest that breaks rules. */
#include "machine/virtio_vsock.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/test_machine_driver.h"

#define RX     0
#define TX     1
#define HEADER ((u32)sizeof(struct virtio_vsock_hdr))
#define CID    5
#define ALLOC  10000u /* the guest's room */

static struct virtio_vsock vsock;
static char path[] = "/tmp/hvf-vsock-XXXXXX";

static int set_up(void **state)
{
	const struct vsock_source source = { .path = path, .cid = CID };

	signal(SIGPIPE, SIG_IGN);
	strcpy(path + strlen(path) - 6, "XXXXXX");
	close(mkstemp(path));
	unlink(path);
	if (driver_set_up(state) != 0 || virtio_vsock_init(&vsock, &source, &m, irq, NULL) != 0)
		return -1;
	bring_up(&vsock.dev, UINT64_MAX);
	for (int i = 0; i < RING - 2; i++)
		offer(RX, HEADER + 1000, true);
	return virtio_start(&vsock.dev, NULL);
}

static int tear_down(void **state)
{
	virtio_vsock_deinit(&vsock);
	unlink(path);
	return driver_tear_down(state);
}

/* A program of the host's that says what it wants. */
static int come(const char *what)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct timeval limit = { .tv_sec = 10 };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	strcpy(addr.sun_path, path);
	assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
	assert_int_equal(write(fd, what, strlen(what)), strlen(what));
	return fd;
}

static void expect_bytes(int fd, const char *text)
{
	char got[64] = "";
	size_t n = 0;

	while (n < strlen(text)) {
		ssize_t did = read(fd, got + n, strlen(text) - n);

		if (did <= 0)
			fail_msg("\"%s\" expected, \"%s\" came", text, got);
		n += (size_t)did;
	}
	assert_string_equal(got, text);
}

static void expect_end(int fd)
{
	char byte;
	ssize_t n = read(fd, &byte, 1);

	assert_true(n == 0 || (n < 0 && errno == ECONNRESET));
}

static void send_packet(struct virtio_vsock_hdr h, const void *data)
{
	u64 at = buffer(TX);

	h.src_cid = h.src_cid ? h.src_cid : CID;
	h.dst_cid = h.dst_cid ? h.dst_cid : 2;
	h.type = h.type ? h.type : VIRTIO_VSOCK_TYPE_STREAM;
	h.buf_alloc = ALLOC;
	put(at, &h, HEADER);
	if (data)
		put(at + HEADER, data, h.len);
	offer(TX, HEADER + (data ? h.len : 0), false);
	out(&vsock.dev, VIRTIO_MMIO_QUEUE_NOTIFY, TX);
	for (int i = 0; i < 10000 && get16(USED(TX) + 2) != next_avail[TX]; i++)
		usleep(1000);
	assert_int_equal(given_back(TX, NULL), 0);
}

static void packet(u16 op, u32 guest, u32 to, u32 flags)
{
	send_packet(
		(struct virtio_vsock_hdr){
			.op = op, .src_port = guest, .dst_port = to, .flags = flags },
		NULL);
}

/* The next packet for the guest; its payload's address is returned. */
static u64 expect_packet_of_any(struct virtio_vsock_hdr *ret)
{
	int len = -1;
	u64 at = 0;

	for (int i = 0; i < 10000 && len < 0; i++) {
		len = given_back(RX, &at);
		if (len < 0)
			usleep(1000);
	}
	assert_true(len >= (int)HEADER);
	assert_true(mem_read(&m, gpa(at), ret, HEADER));
	assert_int_equal(len, HEADER + ret->len);
	assert_int_equal(ret->src_cid, 2);
	assert_int_equal(ret->dst_cid, CID);
	offer(RX, HEADER + 1000, true);
	out(&vsock.dev, VIRTIO_MMIO_QUEUE_NOTIFY, RX);
	return at + HEADER;
}

static u64 expect_packet(u16 op, struct virtio_vsock_hdr *ret)
{
	u64 at = expect_packet_of_any(ret);

	assert_int_equal(ret->op, op);
	return at;
}

/* A program that has connected to the guest's port 7; the host's port is returned. */
static u32 connected(int *fd_ret)
{
	struct virtio_vsock_hdr h;
	char answer[32];

	*fd_ret = come("CONNECT 7\n");
	expect_packet(VIRTIO_VSOCK_OP_REQUEST, &h);
	assert_int_equal(h.dst_port, 7);
	assert_int_equal(h.buf_alloc, VSOCK_BUFFER);
	packet(VIRTIO_VSOCK_OP_RESPONSE, 7, h.src_port, 0);
	snprintf(answer, sizeof(answer), "OK %u\n", h.src_port);
	expect_bytes(*fd_ret, answer);
	return h.src_port;
}

static void test_host_connects(void **state)
{
	struct virtio_vsock_hdr h;
	u32 port;
	u64 at;
	int fd;

	(void)state;
	port = connected(&fd);
	assert_int_equal(write(fd, "hello", 5), 5);
	at = expect_packet(VIRTIO_VSOCK_OP_RW, &h);
	assert_int_equal(h.len, 5);
	assert_memory_equal(mem_at(&m, gpa(at), 5), "hello", 5);
	send_packet(
		(struct virtio_vsock_hdr){
			.op = VIRTIO_VSOCK_OP_RW, .src_port = 7, .dst_port = port, .len = 6 },
		"answer");
	expect_bytes(fd, "answer");
	/* the program has no more to say; the guest neither: an orderly end */
	shutdown(fd, SHUT_WR);
	expect_packet(VIRTIO_VSOCK_OP_SHUTDOWN, &h);
	assert_int_equal(h.flags, VIRTIO_VSOCK_SHUTDOWN_SEND);
	assert_int_equal(h.fwd_cnt, 6);
	send_packet(
		(struct virtio_vsock_hdr){
			.op = VIRTIO_VSOCK_OP_RW, .src_port = 7, .dst_port = port, .len = 4 },
		"last");
	packet(VIRTIO_VSOCK_OP_SHUTDOWN, 7, port, 3);
	expect_packet(VIRTIO_VSOCK_OP_RST, &h);
	expect_bytes(fd, "last");
	expect_end(fd);
	close(fd);
	/* refused, and given up */
	fd = come("CONNECT 8\n");
	expect_packet(VIRTIO_VSOCK_OP_REQUEST, &h);
	packet(VIRTIO_VSOCK_OP_RST, 8, h.src_port, 0);
	expect_end(fd);
	close(fd);
	fd = come("CONNECT 9\n");
	expect_packet(VIRTIO_VSOCK_OP_REQUEST, &h);
	close(fd);
	expect_packet(VIRTIO_VSOCK_OP_RST, &h);
	assert_int_equal(h.dst_port, 9);
}

static void test_guest_connects(void **state)
{
	struct virtio_vsock_hdr h;
	int first, second, gone;

	(void)state;
	packet(VIRTIO_VSOCK_OP_REQUEST, 1024, 80, 0);
	expect_packet(VIRTIO_VSOCK_OP_RST, &h);
	assert_int_equal(h.dst_port, 1024);
	assert_int_equal(h.src_port, 80);
	gone = come("LISTEN 80\n");
	close(gone);
	first = come("LISTEN 80\n");
	second = come("LISTEN 81\n");
	for (int i = 0; i < 2000; i++) { /* until both have been heard */
		packet(VIRTIO_VSOCK_OP_REQUEST, 1025, 81, 0);
		while (given_back(RX, NULL) < 0)
			usleep(1000);
		offer(RX, HEADER + 1000, true);
		if (vsock_find(&vsock, 81, 1025))
			break;
	}
	expect_bytes(second, "OK 1025\n");
	packet(VIRTIO_VSOCK_OP_REQUEST, 1026, 80, 0);
	expect_packet(VIRTIO_VSOCK_OP_RESPONSE, &h);
	expect_bytes(first, "OK 1026\n");
	/* one guest connection a program: the next finds nobody */
	packet(VIRTIO_VSOCK_OP_REQUEST, 1027, 80, 0);
	expect_packet(VIRTIO_VSOCK_OP_RST, &h);
	/* a program that ends tells the guest that it neither sends nor takes any more */
	close(first);
	expect_packet(VIRTIO_VSOCK_OP_SHUTDOWN, &h);
	assert_int_equal(h.flags, 3);
	assert_int_equal(h.dst_port, 1026);
	packet(VIRTIO_VSOCK_OP_RST, 1026, 80, 0);
	/* a guest that is reset leaves nobody behind */
	bring_up(&vsock.dev, UINT64_MAX);
	expect_end(second);
	close(second);
}

/* No more than the guest has room for is sent, and no more is taken from it than we said we have. */
static void test_flow(void **state)
{
	static char much[VSOCK_BUFFER + 1];
	struct virtio_vsock_hdr h;
	u32 port, got = 0;
	int fd;

	(void)state;
	port = connected(&fd);
	assert_int_equal(write(fd, much, 15000), 15000);
	while (got < ALLOC) {
		expect_packet(VIRTIO_VSOCK_OP_RW, &h);
		got += h.len;
	}
	assert_int_equal(got, ALLOC);
	usleep(30000);
	assert_int_equal(given_back(RX, NULL), -1);
	send_packet((struct virtio_vsock_hdr){ .op = VIRTIO_VSOCK_OP_CREDIT_UPDATE,
					       .src_port = 7,
					       .dst_port = port,
					       .fwd_cnt = ALLOC },
		    NULL);
	while (got < 15000) {
		expect_packet(VIRTIO_VSOCK_OP_RW, &h);
		got += h.len;
	}
	assert_int_equal(got, 15000);
	packet(VIRTIO_VSOCK_OP_CREDIT_REQUEST, 7, port, 0);
	expect_packet(VIRTIO_VSOCK_OP_CREDIT_UPDATE, &h);
	/* the other way: what the program does not read fills our buffer, and no more */
	got = 0;
	for (u32 len = 16384; vsock_find(&vsock, port, 7) && got < 8 << 20; got += len)
		send_packet((struct virtio_vsock_hdr){ .op = VIRTIO_VSOCK_OP_RW,
						       .src_port = 7,
						       .dst_port = port,
						       .len = len },
			    much);
	assert_true(got > VSOCK_BUFFER && got < 8 << 20);
	do
		expect_packet_of_any(&h);
	while (h.op == VIRTIO_VSOCK_OP_CREDIT_UPDATE);
	assert_int_equal(h.op, VIRTIO_VSOCK_OP_RST);
	while (read(fd, much, sizeof(much)) > 0)
		;
	close(fd);
}

/* What it must not send is answered by a reset, or not at all; programs that speak nonsense are let go. */
static void test_rules(void **state)
{
	static const char *const lines[] = { "CONNECT\n",
					     "CONNECT x\n",
					     "CONNECT 4294967296\n",
					     "LISTEN 1 2\n",
					     "HELLO 5\n",
					     "\n",
					     "CONNECT 00000000000000000000000000000005\n" };
	struct virtio_vsock_hdr h;
	u32 port;
	int fd;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		fd = come(lines[i]);
		expect_end(fd);
		close(fd);
	}
	port = connected(&fd);
	/* of another guest, to another host, longer than it is: not heard */
	send_packet(
		(struct virtio_vsock_hdr){ .src_cid = 9, .op = 3, .src_port = 7, .dst_port = port },
		NULL);
	send_packet(
		(struct virtio_vsock_hdr){ .dst_cid = 9, .op = 3, .src_port = 7, .dst_port = port },
		NULL);
	send_packet(
		(struct virtio_vsock_hdr){
			.op = VIRTIO_VSOCK_OP_RW, .src_port = 7, .dst_port = port, .len = 50 },
		NULL);
	offer(TX, 20, false);
	out(&vsock.dev, VIRTIO_MMIO_QUEUE_NOTIFY, TX);
	for (int i = 0; i < 5000 && given_back(TX, NULL) < 0; i++)
		usleep(1000);
	assert_int_equal(write(fd, "x", 1), 1);
	expect_packet(VIRTIO_VSOCK_OP_RW, &h);
	/* another type of socket; bytes of a connection that is not; an operation that is none */
	send_packet((struct virtio_vsock_hdr){ .type = 2, .op = 1, .src_port = 50, .dst_port = 51 },
		    NULL);
	expect_packet(VIRTIO_VSOCK_OP_RST, &h);
	packet(VIRTIO_VSOCK_OP_RW, 60, 61, 0);
	expect_packet(VIRTIO_VSOCK_OP_RST, &h);
	assert_int_equal(h.dst_port, 60);
	packet(VIRTIO_VSOCK_OP_RST, 60, 61, 0); /* never answered by another one */
	packet(77, 7, port, 0);
	expect_packet(VIRTIO_VSOCK_OP_RST, &h);
	assert_int_equal(h.dst_port, 7);
	expect_end(fd);
	close(fd);
	assert_int_equal(given_back(RX, NULL), -1);
}

static void test_places(void **state)
{
	int fd[VSOCK_MAX_CONNS + 1];

	(void)state;
	for (u32 i = 0; i < VSOCK_MAX_CONNS; i++)
		fd[i] = come("LISTEN 9\n");
	fd[VSOCK_MAX_CONNS] = come("");
	expect_end(fd[VSOCK_MAX_CONNS]);
	assert_int_equal(__atomic_load_n(&vsock.refused, __ATOMIC_RELAXED), 1);
	for (u32 i = 0; i <= VSOCK_MAX_CONNS; i++)
		close(fd[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_host_connects, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_guest_connects, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_flow, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_rules, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_places, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
