// SPDX-License-Identifier: Apache-2.0
/* vmm/gdbstub_client.c: the packet codec, and the client against a stub of our own. */
#include "vmm/gdbstub_client.h"

#include "base/clock.h"
#include "vmm/vm_ops.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static int decode(const char *bytes, size_t len, char *out)
{
	struct gdb_decoder d = { 0 };
	size_t used = 0;
	int rc = gdb_decode(&d, bytes, len, &used);

	if (rc == 1)
		strcpy(out, d.payload);
	return rc;
}

static void encode_known(void **state)
{
	char out[64];

	(void)state;
	assert_int_equal(gdb_encode(out, sizeof(out), "OK", 2), 6);
	assert_memory_equal(out, "$OK#9a", 6);
	assert_int_equal(gdb_encode(out, sizeof(out), "", 0), 4);
	assert_memory_equal(out, "$#00", 4);
	assert_int_equal(gdb_encode(out, sizeof(out), "a#", 2), 7);
	assert_memory_equal(out, "$a}\x03#e1", 7);
	assert_int_equal(gdb_encode(out, 5, "OK", 2), 0); /* no room */
}

static void decode_known(void **state)
{
	char out[GDB_PAYLOAD_MAX + 1];

	(void)state;
	assert_int_equal(decode("+$OK#9a", 7, out), 1);
	assert_string_equal(out, "OK");
	assert_int_equal(decode("$0* #7a", 7, out), 1); /* a 0 and three more */
	assert_string_equal(out, "0000");
	assert_int_equal(decode("$a}\x03#e1", 7, out), 1);
	assert_string_equal(out, "a#");
	assert_int_equal(decode("$OK#9b", 6, out), -EPROTO);
	assert_int_equal(decode("$OK#zz", 6, out), -EPROTO);
	assert_int_equal(decode("$* #4a", 6, out), -EPROTO); /* repeats nothing */
	assert_int_equal(decode("++--garbage", 11, out), 0);
	assert_int_equal(decode("$cut$OK#9a", 10, out), 1);
	assert_string_equal(out, "OK");
}

static void decode_too_long(void **state)
{
	static char big[GDB_PAYLOAD_MAX * 2];
	struct gdb_decoder d = { 0 };
	size_t used = 0;
	size_t n = 0;
	u8 sum = 0;

	(void)state;
	big[n++] = '$';
	for (int i = 0; i < GDB_PAYLOAD_MAX + 1; i++) {
		big[n++] = 'x';
		sum = (u8)(sum + 'x');
	}
	n += (size_t)snprintf(big + n, sizeof(big) - n, "#%02x$OK#9a", sum);
	assert_int_equal(gdb_decode(&d, big, n, &used), -EPROTO);
	assert_int_equal(gdb_decode(&d, big + used, n - used, &used), 1); /* goes on behind it */
	assert_string_equal(d.payload, "OK");
}

static void round_trip(void **state)
{
	char payload[256];
	char frame[GDB_FRAME_MAX(256)];
	struct gdb_decoder d = { 0 };

	(void)state;
	for (int i = 0; i < 256; i++)
		payload[i] = (char)i;
	for (size_t len = 0; len <= 256; len++) {
		size_t n = gdb_encode(frame, sizeof(frame), payload, len);
		size_t used;

		assert_true(n >= len + 4);
		for (size_t i = 0; i + 1 < n; i++) /* a byte at a time */
			assert_int_equal(gdb_decode(&d, frame + i, 1, &used), 0);
		assert_int_equal(gdb_decode(&d, frame + n - 1, 1, &used), 1);
		assert_int_equal(d.len, len);
		assert_memory_equal(d.payload, payload, len);
	}
}

static void stop_replies(void **state)
{
	(void)state;
	assert_true(gdb_is_stop_reply("T05thread:01;"));
	assert_true(gdb_is_stop_reply("S05"));
	assert_true(gdb_is_stop_reply("W00"));
	assert_false(gdb_is_stop_reply("OK"));
	assert_false(gdb_is_stop_reply(""));
	assert_false(gdb_is_stop_reply("E14"));
}

/* A stub that behaves like QEMU's: acknowledges, reports a stop unasked, writes one byte array. */
struct stub {
	int listener;
	u8 mem[65536];
	int writes;
	u64 refuse; /* a write here is answered with an error */
	bool silent; /* accepts, answers nothing until it sees a detach packet */
	bool phys;
	bool running;
};

static void stub_write(struct stub *s, const char *payload, char *reply)
{
	unsigned long long at;
	unsigned int len;
	int hex = 0;

	strcpy(reply, "E22");
	if (sscanf(payload, "M%llx,%x:%n", &at, &len, &hex) != 2 || hex == 0 || !s->phys)
		return;
	if (at == s->refuse || at + len > sizeof(s->mem)) {
		strcpy(reply, "E14");
		return;
	}
	for (unsigned int i = 0; i < len; i++) {
		unsigned int b;

		if (sscanf(payload + hex + 2 * i, "%2x", &b) != 1)
			return;
		s->mem[at + i] = (u8)b;
	}
	s->writes++;
	strcpy(reply, "OK");
}

static bool stub_packet(struct stub *s, int fd, const char *payload)
{
	char reply[64] = "";
	char frame[128];
	size_t n;

	if (strcmp(payload, "D") == 0)
		s->running = true;
	if (s->silent && !s->running)
		return true;
	if (payload[0] == 'M')
		stub_write(s, payload, reply);
	else if (strncmp(payload, "Qqemu.PhyMemMode:", 17) == 0)
		strcpy(reply, "OK");
	else if (s->running)
		strcpy(reply, "OK");
	if (strncmp(payload, "Qqemu.PhyMemMode:", 17) == 0)
		s->phys = payload[17] == '1';
	n = gdb_encode(frame, sizeof(frame), reply, strlen(reply));
	if (send(fd, "+", 1, MSG_NOSIGNAL) < 0 || send(fd, frame, n, MSG_NOSIGNAL) < 0)
		return false;
	if (s->silent && s->running) { /* what it owes for the packets before */
		for (int i = 0; i < 2; i++)
			if (send(fd, frame, n, MSG_NOSIGNAL) < 0)
				return false;
	}
	return true;
}

static void *stub(void *arg)
{
	struct stub *s = arg;
	int fd = accept(s->listener, NULL, NULL);
	static struct gdb_decoder d;
	static const char stopped[] = "$T02thread:01;#04";
	char in[4096];
	ssize_t n;

	memset(&d, 0, sizeof(d));
	if (!s->silent && send(fd, stopped, sizeof(stopped) - 1, MSG_NOSIGNAL) < 0)
		return NULL;
	while ((n = recv(fd, in, sizeof(in), 0)) > 0) {
		size_t pos = 0;

		while (pos < (size_t)n) {
			size_t used = 0;

			if (gdb_decode(&d, in + pos, (size_t)n - pos, &used) == 1 &&
			    !stub_packet(s, fd, d.payload))
				break;
			pos += used;
		}
	}
	close(fd);
	return NULL;
}

static char stub_path[64];

static pthread_t start(struct stub *s)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	pthread_t t;

	snprintf(stub_path, sizeof(stub_path), "/tmp/hvf-test-gdb-%d", (int)getpid());
	strcpy(a.sun_path, stub_path);
	unlink(a.sun_path);
	s->listener = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(s->listener, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(s->listener, 1), 0);
	assert_int_equal(pthread_create(&t, NULL, stub, s), 0);
	return t;
}

static void stop(struct stub *s, pthread_t t)
{
	pthread_join(t, NULL);
	close(s->listener);
	unlink(stub_path);
}

static u64 in_ms(u64 ms)
{
	return monotonic_ns() + ms * NSEC_PER_MSEC;
}

#define N_PIECES 5000

static void window_of_many_writes(void **state)
{
	static struct vm_phys_text text[N_PIECES];
	static struct gdb_conn c;
	static struct stub s;
	pthread_t t;
	size_t bad = 99;

	(void)state;
	memset(&s, 0, sizeof(s));
	s.refuse = UINT64_MAX;
	t = start(&s);
	for (u32 i = 0; i < N_PIECES; i++) {
		text[i] = (struct vm_phys_text){ .gpa = i * 13ull, .len = 1 + i % 13 };
		memset(text[i].bytes, (int)i, sizeof(text[i].bytes));
	}
	assert_int_equal(gdb_connect(&c, stub_path, in_ms(5000)), 0);
	assert_int_equal(gdb_write_phys(&c, text, N_PIECES, &bad, in_ms(20000)), 0);
	assert_int_equal(gdb_detach(&c, in_ms(5000)), 0);
	assert_int_equal(c.fd, -1);
	stop(&s, t);
	assert_int_equal(s.writes, N_PIECES);
	assert_true(s.running);
	assert_false(s.phys);
	for (u32 i = 0; i < N_PIECES; i++)
		assert_memory_equal(s.mem + text[i].gpa, text[i].bytes, text[i].len);
}

static void refused_write_is_named(void **state)
{
	static struct gdb_conn c;
	static struct stub s;
	struct vm_phys_text text[64] = { 0 };
	size_t bad = 0;
	pthread_t t;

	(void)state;
	memset(&s, 0, sizeof(s));
	s.refuse = 40 * 16;
	t = start(&s);
	for (u32 i = 0; i < 64; i++)
		text[i] = (struct vm_phys_text){ .gpa = i * 16ull, .len = 16 };
	assert_int_equal(gdb_connect(&c, stub_path, in_ms(5000)), 0);
	assert_int_equal(gdb_write_phys(&c, text, 64, &bad, in_ms(5000)), -EPERM);
	assert_int_equal(bad, 40);
	/* every answer was taken: the connection is still in step */
	assert_int_equal(gdb_write_phys(&c, text, 40, &bad, in_ms(5000)), 0);
	assert_int_equal(gdb_detach(&c, in_ms(5000)), 0);
	stop(&s, t);
	assert_true(s.running);
}

/* A stub that does not answer in time still gets a detach packet, and its late answers are taken. */
static void late_stub_is_let_go(void **state)
{
	static struct gdb_conn c;
	static struct stub s;
	pthread_t t;

	(void)state;
	memset(&s, 0, sizeof(s));
	s.silent = true;
	t = start(&s);
	assert_int_equal(gdb_connect(&c, stub_path, in_ms(50)), -ETIMEDOUT);
	assert_true(c.fd >= 0);
	assert_int_equal(gdb_detach(&c, in_ms(5000)), 0);
	stop(&s, t);
	assert_true(s.running);
}

static void nobody_listens(void **state)
{
	static struct gdb_conn c;

	(void)state;
	assert_int_equal(gdb_connect(&c, "/nonexistent/gdb", in_ms(100)), -ENOENT);
	assert_int_equal(c.fd, -1);
	assert_int_equal(gdb_detach(&c, in_ms(100)), -ESRCH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(encode_known),           cmocka_unit_test(decode_known),
		cmocka_unit_test(decode_too_long),        cmocka_unit_test(round_trip),
		cmocka_unit_test(stop_replies),           cmocka_unit_test(window_of_many_writes),
		cmocka_unit_test(refused_write_is_named), cmocka_unit_test(late_stub_is_let_go),
		cmocka_unit_test(nobody_listens),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
