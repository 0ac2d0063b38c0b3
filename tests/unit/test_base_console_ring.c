// SPDX-License-Identifier: Apache-2.0
/* base/console_ring.c: what a reader is given, and what it believes. */
#include "base/console_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

struct pair {
	struct console_ring writer, reader;
	int fd;
};

static int make(void **state)
{
	struct pair *p = calloc(1, sizeof(*p));

	*state = p;
	return console_ring_create(&p->writer, &p->fd, NULL) ||
	       console_ring_open(&p->reader, p->fd);
}

static int drop(void **state)
{
	struct pair *p = *state;

	console_ring_deinit(&p->writer);
	console_ring_deinit(&p->reader);
	close(p->fd);
	free(p);
	return 0;
}

static void say(struct pair *p, const char *text)
{
	console_ring_put(&p->writer, text, strlen(text));
}

static void assert_says(struct pair *p, u64 *at, const char *want)
{
	char buf[200];
	u64 lost;
	size_t n = console_ring_read(&p->reader, at, buf, sizeof(buf), &lost);

	assert_int_equal(lost, 0);
	assert_int_equal(n, strlen(want));
	assert_memory_equal(buf, want, n);
}

static void test_in_order(void **state)
{
	struct pair *p = *state;
	u64 at = 0, lost;
	char two[2];

	assert_says(p, &at, "");
	say(p, "first");
	say(p, " and second");
	assert_int_equal(console_ring_read(&p->reader, &at, two, 2, &lost), 2);
	assert_memory_equal(two, "fi", 2);
	assert_says(p, &at, "rst and second");
	assert_says(p, &at, "");
	say(p, "x");
	assert_says(p, &at, "x");
}

static void test_tail_begins_with_a_line(void **state)
{
	static const struct {
		u64 bytes, at;
	} cases[] = {
		{ 0, 22 },  { 1, 21 },  { 5, 19 },  { 3, 19 }, { 4, 19 }, { 10, 19 },
		{ 11, 11 }, { 12, 11 }, { 21, 11 }, { 22, 0 }, { 23, 0 }, { UINT64_MAX, 0 },
	};
	struct pair *p = *state;
	char many[10000];

	say(p, "the first\r\na line\r\nend"); /* lines at 0, 11, 19 */
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		if (console_ring_tail(&p->reader, cases[i].bytes) != cases[i].at)
			fail_msg("%llu: %llu", (unsigned long long)cases[i].bytes,
				 (unsigned long long)console_ring_tail(&p->reader, cases[i].bytes));
	}
	/* of a line without an end what was asked for is there */
	memset(many, 'x', sizeof(many));
	console_ring_put(&p->writer, many, sizeof(many));
	assert_int_equal(console_ring_tail(&p->reader, 9000), 22 + 1000);
}

static void test_what_was_overwritten_is_told(void **state)
{
	struct pair *p = *state;
	u64 at = 0, lost = 0, total = 0;
	char line[64], buf[4096];
	size_t n;

	for (int i = 0; i < 30000; i++) {
		snprintf(line, sizeof(line), "line %-40d\n", i);
		say(p, line);
		total += strlen(line);
	}
	assert_true(total > CONSOLE_RING_BYTES);
	assert_int_equal(console_ring_end(&p->reader), total);
	assert_int_equal(console_ring_read(&p->reader, &at, buf, sizeof(buf), &lost), 0);
	assert_int_equal(lost, total - CONSOLE_RING_BYTES);
	assert_int_equal(at, lost);
	while ((n = console_ring_read(&p->reader, &at, buf, sizeof(buf), &lost)))
		assert_int_equal(lost, 0);
	assert_int_equal(at, total);
	/* the tail is of what is kept, and begins with a line, too */
	at = console_ring_tail(&p->reader, UINT64_MAX);
	assert_true(at > total - CONSOLE_RING_BYTES && at < total - CONSOLE_RING_BYTES + 64);
	console_ring_read(&p->reader, &at, buf, 5, &lost);
	assert_memory_equal(buf, "line ", 5);
}

static void test_more_at_once_than_there_is_room(void **state)
{
	size_t n = 3 * CONSOLE_RING_BYTES + 12345;
	u8 *much = malloc(n), *got = malloc(CONSOLE_RING_BYTES);
	struct pair *p = *state;
	u64 at, lost;

	for (size_t i = 0; i < n; i++)
		much[i] = (u8)(i * 7 + (i >> 8));
	console_ring_put(&p->writer, much, n);
	at = n - CONSOLE_RING_BYTES;
	assert_int_equal(console_ring_read(&p->reader, &at, got, CONSOLE_RING_BYTES, &lost),
			 CONSOLE_RING_BYTES);
	assert_memory_equal(got, much + n - CONSOLE_RING_BYTES, CONSOLE_RING_BYTES);
	free(much);
	free(got);
}

static atomic_bool stop;

/* Bytes that tell where they are. */
static void *write_on(void *arg)
{
	struct pair *p = arg;
	u64 at = 0;
	u8 piece[1000];

	while (!atomic_load(&stop)) {
		for (size_t i = 0; i < sizeof(piece); i++)
			piece[i] = (u8)((at + i) % 251);
		console_ring_put(&p->writer, piece, sizeof(piece));
		at += sizeof(piece);
	}
	return NULL;
}

/* Whatever the reader is given is what was said there, however fast it is overwritten. */
static void test_never_torn(void **state)
{
	struct pair *p = *state;
	u64 at = 0, lost, n_lost = 0, n_read = 0;
	static u8 buf[CONSOLE_RING_BYTES];
	pthread_t thread;

	atomic_store(&stop, false);
	pthread_create(&thread, NULL, write_on, p);
	for (int i = 0; i < 3000 || !n_lost || !n_read; i++) {
		u64 from = at;
		size_t n = console_ring_read(&p->reader, &at, buf, sizeof(buf), &lost);

		n_lost += lost;
		n_read += n;
		assert_int_equal(at, from + n + lost);
		for (size_t k = 0; k < n; k++) {
			if (buf[k] != (u8)((from + k) % 251))
				fail_msg("byte %llu", (unsigned long long)(from + k));
		}
		if (i % 100 == 0) /* far behind, where it is being overwritten */
			at -= MIN(at, CONSOLE_RING_BYTES - 2000);
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
}

/* The counters as a writer may set them that does what it likes: nothing outside of the ring is read, and all ends. */
static void test_a_writer_that_lies(void **state)
{
	static const u64 lies[] = {
		0, 1, CONSOLE_RING_BYTES, CONSOLE_RING_BYTES + 1, 1ull << 63, UINT64_MAX
	};
	static u8 buf[CONSOLE_RING_BYTES];
	struct pair *p = *state;
	u64 *counters = (u64 *)(void *)p->writer.shared + 1;
	u64 at, lost;

	for (size_t b = 0; b < ARRAY_SIZE(lies); b++) {
		for (size_t d = 0; d < ARRAY_SIZE(lies); d++) {
			counters[0] = lies[b];
			counters[1] = lies[d];
			for (size_t k = 0; k < ARRAY_SIZE(lies); k++) {
				at = lies[k];
				assert_true(console_ring_read(&p->reader, &at, buf, sizeof(buf),
							      &lost) <= sizeof(buf));
				assert_true(at <= lies[d]);
				(void)console_ring_read(&p->reader, &at, buf, sizeof(buf), &lost);
				assert_true(at <= lies[d]);
				assert_true(console_ring_tail(&p->reader, lies[k]) <= lies[d]);
			}
		}
	}
}

static void test_what_is_none(void **state)
{
	struct console_ring r;
	int fd, ends[2];

	(void)state;
	fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
	assert_int_equal(console_ring_open(&r, fd), -EINVAL);
	close(fd);
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(console_ring_open(&r, ends[0]), -EINVAL);
	close(ends[0]);
	close(ends[1]);
	/* memory that may shrink while it is mapped */
	fd = memfd_create(CONSOLE_RING_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(fd, 4096 + CONSOLE_RING_BYTES), 0);
	assert_int_equal(console_ring_open(&r, fd), -EINVAL);
	/* sealed, but no console's */
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
	assert_int_equal(console_ring_open(&r, fd), -EINVAL);
	close(fd);
	/* of another size */
	fd = memfd_create(CONSOLE_RING_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
	assert_int_equal(console_ring_open(&r, fd), -EINVAL);
	close(fd);
	assert_int_equal(console_ring_open(&r, -1), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_in_order, make, drop),
		cmocka_unit_test_setup_teardown(test_tail_begins_with_a_line, make, drop),
		cmocka_unit_test_setup_teardown(test_what_was_overwritten_is_told, make, drop),
		cmocka_unit_test_setup_teardown(test_more_at_once_than_there_is_room, make, drop),
		cmocka_unit_test_setup_teardown(test_never_torn, make, drop),
		cmocka_unit_test_setup_teardown(test_a_writer_that_lies, make, drop),
		cmocka_unit_test(test_what_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
