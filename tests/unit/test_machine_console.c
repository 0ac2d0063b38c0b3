// SPDX-License-Identifier: Apache-2.0
/* machine/console.c, machine/output.c: what is typed at a guest's console, and what it says, for whoever may look in. */
#include "base/console_ring.h"
#include "machine/console.h"
#include "machine/output.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* A device that keeps what was typed. */
struct taker {
	pthread_mutex_t lock;
	char text[64];
	size_t n;
};

static bool taker_receive(void *dev, const u8 *buf, size_t n)
{
	struct taker *t = dev;

	pthread_mutex_lock(&t->lock);
	assert_true(t->n + n < sizeof(t->text));
	memcpy(t->text + t->n, buf, n);
	t->n += n;
	pthread_mutex_unlock(&t->lock);
	return true;
}

static void taker_close(void *dev)
{
	(void)dev;
}

static void assert_taken(struct taker *t, const char *want)
{
	const struct timespec step = { .tv_nsec = 1000000 };
	bool same = false;

	for (int i = 0; i < 10000 && !same; i++) {
		pthread_mutex_lock(&t->lock);
		same = t->n == strlen(want) && memcmp(t->text, want, t->n) == 0;
		pthread_mutex_unlock(&t->lock);
		nanosleep(&step, NULL);
	}
	assert_true(same);
}

static int connect_to(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	return fd;
}

/* By the pipe that whoever may look into this process finds, whatever else there is, and as long as it runs. */
static void test_typed_by_the_pipe(void **state)
{
	struct taker t = { .lock = PTHREAD_MUTEX_INITIALIZER };
	const struct console_sink sink = { &t, taker_receive, taker_close };
	char dir[] = "/tmp/hvf-console-XXXXXX", path[sizeof(dir) + 8];
	struct console c;
	int fd;

	(void)state;
	assert_int_equal(output_offer(NULL), 0);
	/* no other way */
	assert_int_equal(console_open(&c, NULL, sink, NULL), 0);
	assert_int_equal(console_start(&c, NULL), 0);
	assert_int_equal(write(c.pipe[1], "a", 1), 1);
	assert_taken(&t, "a");
	console_close(&c);
	assert_int_equal(c.pipe[1], -1);
	/* before a client of the socket, meanwhile and after */
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/input", dir);
	assert_int_equal(console_open(&c, path, sink, NULL), 0);
	assert_int_equal(console_start(&c, NULL), 0);
	assert_int_equal(write(c.pipe[1], "b", 1), 1);
	assert_taken(&t, "ab");
	fd = connect_to(path);
	assert_int_equal(write(fd, "c", 1), 1);
	assert_taken(&t, "abc");
	assert_int_equal(write(c.pipe[1], "d", 1), 1);
	assert_taken(&t, "abcd");
	assert_int_equal(write(fd, "e", 1), 1);
	assert_taken(&t, "abcde");
	close(fd);
	assert_int_equal(write(c.pipe[1], "f", 1), 1);
	assert_taken(&t, "abcdef");
	console_close(&c);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0);
}

/* What a guest says others find in memory, in whatever becomes of it where it goes. */
static void test_output_is_offered(void **state)
{
	struct console_ring ring;
	char link[64], path[64], buf[16];
	ssize_t n = 0;
	u64 at, lost;
	int fd = -1;

	(void)state;
	assert_int_equal(output_offer(NULL), 0);
	for (fd = 1000; fd >= 0;
	     fd--) { /* the newest has the highest number of those there are, as none is closed */
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, link, sizeof(link) - 1);
		if (n > 0 && strncmp(link, "/memfd:" CONSOLE_RING_NAME, 23) == 0)
			break;
	}
	assert_int_equal(console_ring_open(&ring, fd), 0);
	at = console_ring_end(&ring);
	output_limit(0); /* no room in its file any more */
	output_write(-1, "no", 2, -1);
	output_limit(UINT64_MAX);
	output_write(-1, "where", 5, -1);
	assert_int_equal(console_ring_read(&ring, &at, buf, sizeof(buf), &lost), 7);
	assert_memory_equal(buf, "nowhere", 7);
	console_ring_deinit(&ring);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_typed_by_the_pipe),
		cmocka_unit_test(test_output_is_offered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
