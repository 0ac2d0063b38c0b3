// SPDX-License-Identifier: Apache-2.0
/* tracers/store.c: order, overwriting, names, and readers beside the one who appends. */
#include "tracers/comms.h"
#include "tracers/store.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#define WORDS TRACE_MAX_ARGS

static __thread struct err last_err;

/* Everything in it follows from i, so that a reader can check a record by itself. */
static struct trace_record make_record(u64 i, u32 tasks)
{
	struct trace_record r = { .ts_ns = i * 1000,
				  .ip = 0xffffffff81000000 + i % 1000000 * 16,
				  .parent = 0xffffffffc0000000 + i % 999983,
				  .pid = (u32)(i % tasks),
				  .cpu = (u16)(i % 600),
				  .ctx = (u16)(i % 2048),
				  .depth = (u16)(i * 7),
				  .type = (u8)(TRACE_FUNCTION + i % 5) };

	if (r.type == TRACE_GRAPH_RETURN) {
		r.parent = 0;
		r.duration_ns = i * 0x9e3779b97f4a7c15 >> (12 + i / 4 % 52);
		r.has_retval = i / 5 % 2;
		r.retval = r.has_retval ? i * 3 : 0;
	} else if (r.type == TRACE_SWITCH) {
		r.ip = r.parent = 0;
		r.prev_pid = (u32)i & 0x3fffff;
	} else {
		r.n_args = (u8)(i / 5 % (TRACE_MAX_ARGS + 1));
		for (u64 k = 0; k < r.n_args; k++)
			r.args[k] = i + (k << 60);
	}
	r.tgid = r.pid + 1;
	snprintf(r.comm, sizeof(r.comm), "t%u", r.pid);
	return r;
}

static void check_record(const struct trace_record *got, u64 i, u32 tasks)
{
	struct trace_record want = make_record(i, tasks);

	assert_int_equal(got->seq, i);
	assert_int_equal(got->ts_ns, want.ts_ns);
	assert_int_equal(got->ip, want.ip);
	assert_int_equal(got->parent, want.parent);
	assert_int_equal(got->pid, want.pid);
	assert_int_equal(got->tgid, want.tgid);
	assert_int_equal(got->cpu, want.cpu);
	assert_int_equal(got->ctx, want.ctx);
	assert_int_equal(got->type, want.type);
	assert_int_equal(got->depth, want.depth);
	assert_int_equal(got->duration_ns, want.duration_ns);
	assert_int_equal(got->prev_pid, want.prev_pid);
	assert_int_equal(got->n_args, want.n_args);
	assert_memory_equal(got->args, want.args, sizeof(want.args));
	assert_int_equal(got->has_retval, want.has_retval);
	assert_int_equal(got->retval, want.retval);
	assert_string_equal(got->comm, want.comm);
}

/* Records @from .. @from + @n - 1, in one call. */
static void append(struct store *s, u64 from, size_t n, u32 tasks)
{
	static struct trace_record r[4096];

	assert_in_range(n, 1, ARRAY_SIZE(r));
	for (size_t i = 0; i < n; i++)
		r[i] = make_record(from + i, tasks);
	store_append(s, r, n);
	assert_int_equal(r[0].seq, from);
	assert_int_equal(r[n - 1].seq, from + n - 1);
}

/* store_read() with its results one by one */
static int read_some(struct store *s, u64 after, struct trace_record *buf, size_t max,
		     size_t *n_ret, u64 *oldest_ret)
{
	struct trace_page page = { .buf = buf, .max = max };
	int rc = store_read(s, after, &page, &last_err);

	*n_ret = page.n;
	*oldest_ret = page.oldest_seq;
	return rc;
}

static void reads_in_order_and_says_what_is_gone(void **state)
{
	struct trace_record buf[2000];
	struct store_info info;
	struct store *s;
	u64 oldest;
	size_t n;

	(void)state;
	assert_int_equal(store_create(1000, WORDS, true, &s, NULL), 0); /* 1024 */
	assert_int_equal(read_some(s, 0, buf, 10, &n, &oldest), 0);
	assert_int_equal(n, 0);
	append(s, 1, 1000, 50);
	assert_int_equal(read_some(s, 0, buf, 2000, &n, &oldest), 0);
	assert_int_equal(n, 1000);
	for (size_t i = 0; i < n; i++)
		check_record(&buf[i], i + 1, 50);
	assert_int_equal(read_some(s, 1000, buf, 10, &n, &oldest), 0);
	assert_int_equal(n, 0);
	assert_int_equal(read_some(s, 123456, buf, 10, &n, &oldest), 0);
	assert_int_equal(n, 0);
	assert_int_equal(read_some(s, UINT64_MAX, buf, 10, &n, &oldest), 0);
	assert_int_equal(n, 0);

	append(s, 1001, 500, 50); /* 477 .. 1500 are left */
	store_info(s, &info);
	assert_int_equal(info.newest_seq, 1500);
	assert_int_equal(info.oldest_seq, 477);
	assert_int_equal(read_some(s, 475, buf, 10, &n, &oldest), -ESTALE);
	assert_int_equal(last_err.code, ERR_CURSOR_GONE);
	assert_string_equal(last_err.msg, "record 476 was overwritten; the oldest kept is 477");
	assert_int_equal(oldest, 477);
	assert_int_equal(n, 0);
	assert_int_equal(read_some(s, 476, buf, 2000, &n, &oldest), 0);
	assert_int_equal(n, 1024);
	check_record(&buf[0], 477, 50);
	check_record(&buf[1023], 1500, 50);
	assert_int_equal(read_some(s, 0, buf, 3, &n, &oldest), 0);
	assert_int_equal(n, 3);
	check_record(&buf[2], 479, 50);
	store_destroy(s);
}

/* Names come and go for ever in a table of fixed size. */
static void names_are_given_up_with_their_records(void **state)
{
	struct trace_record buf[256];
	struct store_info info;
	struct store *s;
	u64 oldest;
	size_t n;

	(void)state;
	assert_int_equal(store_create(4096, WORDS, true, &s, NULL), 0);
	for (u64 i = 1; i < 400000; i += 1000)
		append(s, i, 1000, 100003); /* 100,003 names, 4096 of them at a time */
	for (u64 after = 400000 - 4096; after < 400000; after += n) {
		assert_int_equal(read_some(s, after, buf, 256, &n, &oldest), 0);
		assert_int_equal(n, 256);
		for (size_t i = 0; i < n; i++)
			check_record(&buf[i], after + 1 + i, 100003);
	}
	store_info(s, &info);
	assert_int_equal(info.commless, 0);
	store_destroy(s);
}

static void too_many_names_are_counted(void **state)
{
	struct trace_record r, got;
	struct store_info info;
	struct store *s;
	u64 oldest;
	size_t n;

	(void)state;
	assert_int_equal(store_create(65536, WORDS, true, &s, NULL), 0);
	for (u64 i = 1; i <= 20000; i++) {
		r = make_record(i, 1000000);
		store_append(s, &r, 1);
	}
	store_info(s, &info);
	assert_int_equal(info.commless, 20000 - 16383);
	assert_int_equal(read_some(s, 19999, &got, 1, &n, &oldest), 0);
	assert_int_equal(n, 1);
	assert_string_equal(got.comm, "<...>");
	assert_int_equal(got.pid, 20000);
	assert_int_equal(read_some(s, 99, &got, 1, &n, &oldest), 0);
	check_record(&got, 100, 1000000);
	store_destroy(s);
}

static u64 cpu_ms(void)
{
	struct rusage r;

	assert_int_equal(getrusage(RUSAGE_SELF, &r), 0);
	return (u64)r.ru_utime.tv_sec * 1000 + (u64)r.ru_utime.tv_usec / 1000;
}

/* Names that a hash without a key has all in one place. */
static void chosen_names(void **state)
{
	static struct trace_record r[16000];
	const u64 letters = 0x6161616161616161;
	struct store_info info;
	struct store *s;
	u64 began;

	(void)state;
	for (u64 i = 0; i < ARRAY_SIZE(r); i++) {
		/* 16 letters, of which 6 say which one it is */
		u64 word[2] = { 0, letters + (i & 0xf) + (i << 4 & 0xf00) + (i << 8 & 0xf0000) +
					   (i << 12 & 0xf000000) };

		word[0] = word[1] * 31 ^ 0x9f9f9f9f9f9f9f9f;
		r[i] = (struct trace_record){ .type = TRACE_FUNCTION, .pid = 7 };
		memcpy(r[i].comm, word, sizeof(word));
		assert_int_equal(strlen(r[i].comm), 16);
	}
	assert_int_equal(store_create(32768, 0, false, &s, NULL), 0);
	began = cpu_ms();
	for (u32 round = 0; round < 3; round++)
		store_append(s, r, ARRAY_SIZE(r));
	assert_in_range(cpu_ms() - began, 0, 250);
	store_info(s, &info);
	assert_int_equal(info.commless, 0);
	store_destroy(s);
}

/* As a guest has them: 16 bytes without a NUL, or whatever behind one. */
static void names_end_where_they_end(void **state)
{
	struct trace_record r = { .type = TRACE_FUNCTION, .pid = 7 }, got;
	struct trace_page page = { .buf = &got, .max = 1 };
	char want[TRACE_COMM_LEN + 1];
	struct store *s;
	u64 words[2], again[2];

	(void)state;
	assert_int_equal(store_create(64, 0, false, &s, NULL), 0);
	for (size_t len = 0; len <= TRACE_COMM_LEN; len++) {
		for (u32 rest = 0; rest < 3; rest++) {
			memset(r.comm, "\x80\xff\x01"[rest], TRACE_COMM_LEN);
			memset(r.comm, 'a', len);
			memset(want, 0, sizeof(want));
			memset(want, 'a', len);
			if (len < TRACE_COMM_LEN)
				r.comm[len] = 0;
			comms_words(r.comm, words);
			memcpy(again, want, sizeof(again));
			assert_memory_equal(words, again, sizeof(again));
			store_append(s, &r, 1);
			assert_int_equal(store_read(s, r.seq - 1, &page, NULL), 0);
			assert_string_equal(got.comm, want);
		}
	}
	store_destroy(s);
}

static void refuses_silly_sizes(void **state)
{
	struct store *s;
	struct err err;

	(void)state;
	assert_int_equal(store_create(UINT32_MAX, WORDS, true, &s, &err), -EINVAL);
	assert_int_equal(err.code, ERR_BAD_REQUEST);
	assert_int_equal(store_create(0, WORDS, true, &s, &err), 0);
	store_destroy(s);
	store_destroy(NULL);
}

#define TOTAL 300000u

struct reader_result {
	struct store *s;
	atomic_bool *done;
	u64 seen, missed;
	bool wrong;
};

static bool right(const struct trace_record *got, u64 seq)
{
	struct trace_record want = make_record(seq, 77);

	return got->seq == seq && got->ts_ns == want.ts_ns && got->ip == want.ip &&
	       got->pid == want.pid && !strcmp(got->comm, want.comm);
}

static void *reader(void *arg)
{
	struct reader_result *res = arg;
	struct trace_record buf[700];
	u64 after = 0, oldest;
	bool last;
	size_t n;

	do {
		last = atomic_load(res->done);
		if (read_some(res->s, after, buf, 700, &n, &oldest) == -ESTALE) {
			res->missed += oldest - 1 - after;
			after = oldest - 1;
			last = false;
			continue;
		}
		if (n && !after) {
			res->missed += buf[0].seq - 1;
			after = buf[0].seq - 1;
		}
		for (size_t i = 0; i < n; i++)
			res->wrong |= !right(&buf[i], after + 1 + i);
		after += n;
		res->seen += n;
	} while (!last || n);
	return NULL;
}

static void readers_see_each_record_once(void **state)
{
	struct reader_result res[3];
	pthread_t threads[3];
	atomic_bool done = false;
	struct store *s;

	(void)state;
	assert_int_equal(store_create(8192, WORDS, true, &s, NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(res); i++) {
		res[i] = (struct reader_result){ .s = s, .done = &done };
		assert_int_equal(pthread_create(&threads[i], NULL, reader, &res[i]), 0);
	}
	for (u64 i = 1; i <= TOTAL; i += 500)
		append(s, i, 500, 77);
	atomic_store(&done, true);
	for (size_t i = 0; i < ARRAY_SIZE(res); i++) {
		pthread_join(threads[i], NULL);
		assert_false(res[i].wrong);
		assert_int_equal(res[i].seen + res[i].missed, TOTAL);
		assert_true(res[i].seen >= 8192);
	}
	store_destroy(s);
}

static void *copier(void *arg)
{
	struct reader_result *res = arg;
	struct store *c;
	struct reader_result of_copy = { .done = res->done };

	if (store_copy(res->s, &c, NULL) < 0)
		return NULL;
	of_copy.s = c;
	atomic_store(res->done, true);
	reader(&of_copy);
	*res = of_copy;
	store_destroy(c);
	return NULL;
}

/*
 * Whoever appends goes on while it is copied, and what the copy has is right: names, too, though those that were
 * in use are given up and taken by others meanwhile.
 */
static void copied_while_it_grows(void **state)
{
	u64 i = 1, during = 0;
	struct store *s;

	(void)state;
	assert_int_equal(store_create(1 << 18, WORDS, true, &s, NULL), 0);
	for (; i <= 1 << 18; i += 1024)
		append(s, i, 1024, 77);
	for (int round = 0; round < 5; round++) {
		atomic_bool done = false;
		struct reader_result res = { .s = s, .done = &done };
		pthread_t thread;
		u64 before = i - 1;

		assert_int_equal(pthread_create(&thread, NULL, copier, &res), 0);
		for (; !atomic_load(&done); i += 64, during++)
			append(s, i, 64, 77);
		pthread_join(thread, NULL);
		assert_false(res.wrong);
		assert_in_range(res.seen + res.missed, before, i - 1);
		assert_true(res.seen > 1 << 16);
	}
	assert_true(during > 5 * 8);
	store_destroy(s);
}

/* A host that has no room for what is asked for. Sanitizers take terabytes of addresses for themselves. */
static void more_than_the_host_has(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	(void)state;
	skip();
#else
	struct rlimit was, low = { .rlim_cur = 1ul << 30 };
	struct err err = { 0 };
	struct store *s;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_AS, &was), 0);
	low.rlim_max = was.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_AS, &low), 0);
	assert_int_equal(store_create(STORE_MAX_RECORDS, 0, false, &s, &err), -ENOMEM);
	assert_int_equal(err.code, ERR_NO_MEMORY);
	assert_int_equal(err_code_status(err.code), 503);
	assert_int_equal(setrlimit(RLIMIT_AS, &was), 0);
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_in_order_and_says_what_is_gone),
		cmocka_unit_test(names_are_given_up_with_their_records),
		cmocka_unit_test(too_many_names_are_counted),
		cmocka_unit_test(chosen_names),
		cmocka_unit_test(names_end_where_they_end),
		cmocka_unit_test(refuses_silly_sizes),
		cmocka_unit_test(more_than_the_host_has),
		cmocka_unit_test(readers_see_each_record_once),
		cmocka_unit_test(copied_while_it_grows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
