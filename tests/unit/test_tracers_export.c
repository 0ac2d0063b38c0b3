// SPDX-License-Identifier: Apache-2.0
/* Exports: the parts that they are made of, and what they must be whatever the records are. */
#include "tests/unit/test_tracers_export.h"

#include "tracers/formats/sorter.h"
#include "tracers/formats/spool.h"
#include "tracers/formats/tables.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

static u64 rng;

static u32 dice(u32 n)
{
	rng = rng * 6364136223846793005 + 1442695040888963407;
	return (u32)(rng >> 33) % n;
}

static int setup(void **state)
{
	(void)state;
	rng = 7;
	return 0;
}

static void streams_keep_apart(void **state)
{
	struct spool_stream st[37] = { { .bytes = 0 } };
	struct spool_place place = { 0 };
	u32 written[37] = { 0 };
	struct spool *s;
	u8 byte, chunk[100];

	(void)state;
	assert_int_equal(spool_create(NULL, 64, &s, NULL), 0);
	for (u32 i = 0; i < 20000; i++) {
		u32 k = dice(37), len = dice(100);

		for (u32 j = 0; j < len; j++)
			chunk[j] = (u8)(k * 7 + written[k]++);
		assert_int_equal(spool_add(s, &st[k], chunk, len), 0);
	}
	for (u32 k = 0; k < 37; k++) {
		u32 n = 0;

		assert_int_equal(st[k].bytes, written[k]);
		while (spool_read(s, &st[k], &place, &byte, 1) == 1)
			assert_int_equal(byte, (u8)(k * 7 + n++));
		assert_int_equal(n, written[k]);
		spool_place_deinit(&place);
		spool_stream_deinit(&st[k]);
	}
	spool_destroy(s);
	assert_int_equal(spool_create(&(struct spool_dir){ .path = "/nowhere" }, 64, &s, NULL), 0);
	assert_int_equal(spool_add(s, &st[0], chunk, 50), 0);
	assert_int_equal(spool_add(s, &st[0], chunk, 50), -ENOENT);
	assert_int_equal(spool_add(s, &st[0], chunk, 1), -ENOENT);
	spool_stream_deinit(&st[0]);
	spool_destroy(s);
}

/* As on a file system with too little on it, for all that is free is to be spared. */
static void room_is_left_to_others(void **state)
{
	const struct spool_dir dirs[] = { { .spare = UINT64_MAX }, { .spare = 1 } };
	struct spool_stream st = { .bytes = 0 };
	struct spool *s;
	u8 chunk[64] = { 0 };

	(void)state;
	assert_int_equal(spool_create(&dirs[0], 64, &s, NULL), 0);
	assert_int_equal(spool_add(s, &st, chunk, 50), 0); /* in memory */
	assert_int_equal(spool_add(s, &st, chunk, 50), -ENOSPC);
	assert_int_equal(spool_add(s, &st, chunk, 1), -ENOSPC);
	spool_stream_deinit(&st);
	spool_destroy(s);
	assert_int_equal(spool_create(&dirs[1], 64, &s, NULL), 0);
	for (u32 i = 0; i < 40000; i++) /* over more than one look */
		assert_int_equal(spool_add(s, &st, chunk, sizeof(chunk)), 0);
	spool_stream_deinit(&st);
	spool_destroy(s);
}

/* Runs of 8 steps: some 400,000 need all levels of merging but the last. */
static void any_number_is_sorted(void **state)
{
	static const u32 counts[] = { 0, 1, 8, 9, 8 * 48, 8 * 48 + 1, 8 * 48 * 48 + 5, 100000 };
	struct sys_step step, last;
	struct sorter *s;
	u64 sum;

	(void)state;
	for (u32 c = 0; c < ARRAY_SIZE(counts); c++) {
		sum = 0;
		assert_int_equal(sorter_create(NULL, 8, &s, NULL), 0);
		for (u32 i = 0; i < counts[c]; i++) {
			step = (struct sys_step){ .ts_ns = dice(5000), .ret = i };
			sum += step.ts_ns;
			assert_int_equal(sorter_add(s, &step), 0);
		}
		last = (struct sys_step){ .ret = -1 };
		for (u32 i = 0; i < counts[c]; i++) {
			assert_int_equal(sorter_next(s, &step), 1);
			assert_true(step.ts_ns > last.ts_ns ||
				    (step.ts_ns == last.ts_ns && step.ret > last.ret));
			sum -= step.ts_ns;
			last = step;
		}
		assert_int_equal(sum, 0);
		assert_int_equal(sorter_next(s, &step), 0);
		sorter_destroy(s);
	}
}

static int untar(const struct buf *b, size_t piece)
{
	struct tar_reader t = { 0 };
	size_t files = 0;
	const struct tar_sink sink = { any_file, any_data, &files };

	for (size_t at = 0; at < b->len; at += piece) {
		int r = tar_read(&t, &sink, b->data + at, MIN(piece, b->len - at));

		if (r)
			return r;
	}
	return tar_complete(&t) ? (int)files : 0;
}

static void archives(void **state)
{
	static const char *const bad[] = { "../x", "/x", ".x", "a/b", "", "a\nb", "-rf" };
	_cleanup_buf_ struct buf b = { 0 };

	(void)state;
	tar_head(&b, "metadata", 700, 0);
	for (int i = 0; i < 700; i++)
		buf_adds(&b, "x");
	tar_pad(&b, 700);
	tar_head(&b, "empty", 0, 0);
	tar_pad(&b, 0);
	tar_end(&b);
	for (size_t piece = 1; piece < 1100; piece += 37)
		assert_int_equal(untar(&b, piece), 2);
	b.data[3] ^= 1;
	assert_int_equal(untar(&b, 512), -EBADMSG);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		buf_reset(&b);
		tar_head(&b, bad[i], 0, 0);
		tar_end(&b);
		assert_int_equal(untar(&b, 512), -EBADMSG);
	}
	buf_reset(&b);
	tar_head(&b, "big", 1ull << 40, 0);
	assert_int_equal(untar(&b, 512), 0); /* not complete */
}

static bool sym(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	static char name[3000];

	(void)arg;
	if (addr % 7 == 0)
		return false;
	memset(name, 'n', sizeof(name) - 1);
	snprintf(name, sizeof(name), "f\"\\\n\xff %llx", (unsigned long long)addr / 16);
	if (addr % 97 == 1)
		name[strlen(name)] = 'y'; /* longer than any may be shown */
	*ret = (struct kernel_sym){ .name = name,
				    .module = addr % 5 ? NULL : "m d\"]",
				    .addr = addr / 16 * 16,
				    .type = 't' };
	*off_ret = addr % 16;
	return true;
}

/* Any record at all: times and depths jump, entries and returns do not fit each other. */
static struct trace_record any_record(u64 seq)
{
	struct trace_record r = { .seq = seq,
				  .type = (u8)(dice(100) ? TRACE_FUNCTION + dice(TRACE_SYSCALL)
							 : dice(256)),
				  .ts_ns = dice(20) ? 1000000 * seq + dice(3000000) : dice(1000),
				  .ip = 0xffffffff81000000 + dice(3000),
				  .parent = 0xffffffff81000000 + dice(3000),
				  .duration_ns = dice(5) ? dice(10000000) : ~0ull >> dice(64),
				  .pid = dice(12),
				  .tgid = dice(12),
				  .cpu = (u16)dice(3),
				  .ctx = (u16)dice(65536),
				  .depth = (u16)(dice(50) ? dice(8) : dice(65536)),
				  .n_args = (u8)dice(3),
				  .has_retval = dice(2),
				  .prev_pid = dice(12) };

	memset(r.comm, 1 + (int)dice(255), dice(TRACE_COMM_LEN + 1));
	return r;
}

static void add_parts(struct export *x, struct buf *out, const struct output_names *names)
{
	export_head(x, out);
	for (u64 i = 1; i <= 20000; i++) {
		struct trace_record r = any_record(i);

		export_record(x, out, &r, names);
		if (!dice(300))
			export_lost(x, out, dice(1000));
	}
	while (export_end(x, out))
		;
}

static void whatever_the_records_are(void **state)
{
	const struct output_names names = { .sym = sym };
	const struct export_format *formats;
	size_t n;

	(void)state;
	formats = export_formats(&n);
	assert_true(n > 0);
	for (size_t i = 0; i < 2 * n; i++) {
		struct output_meta meta = { .guest = "g\"\n\xff", .vcpus = ~0u };
		_cleanup_buf_ struct buf out = { 0 };
		const char *bad;
		struct export *x;

		strcpy(meta.tracer, i < n ? "function_graph" : "syscalls");
		memset(meta.release, '"', sizeof(meta.release) - 1);
		assert_int_equal(export_create(&formats[i % n], &meta, NULL, &x, NULL), 0);
		add_parts(x, &out, &names);
		assert_int_equal(export_check(x, NULL), 0);
		assert_false(buf_failed(&out));
		bad = check_export(&formats[i % n], &out);
		if (bad)
			fail_msg("%s", bad);
		export_destroy(x);
	}
}

static void nothing_at_all(void **state)
{
	const struct output_meta meta = { .tracer = "function_graph" };
	const struct export_format *formats;
	size_t n;

	(void)state;
	formats = export_formats(&n);
	for (size_t i = 0; i < n; i++) {
		_cleanup_buf_ struct buf out = { 0 };
		const char *bad;
		struct export *x;

		assert_ptr_equal(export_find(formats[i].name), &formats[i]);
		assert_int_equal(export_create(&formats[i], &meta, NULL, &x, NULL), 0);
		export_head(x, &out);
		while (export_end(x, &out))
			;
		assert_int_equal(export_check(x, NULL), 0);
		bad = check_export(&formats[i], &out);
		if (bad)
			fail_msg("%s", bad);
		export_destroy(x);
	}
	assert_null(export_find("x"));
}

static void no_durations_no_stacks(void **state)
{
	const struct output_meta meta = { .tracer = "function" };
	struct err err = { 0 };
	struct export *x;

	(void)state;
	assert_int_equal(export_create(export_find("folded"), &meta, NULL, &x, &err), -EINVAL);
	assert_int_equal(err.code, ERR_BAD_REQUEST);
	assert_int_equal(export_create(export_find("speedscope"), &meta, NULL, &x, &err), -EINVAL);
}

/* Calls that could not be followed, all of them: they count, under their callers. */
static void callers_without_returns(void **state)
{
	static const u32 low[] = { 2, 0x81000013, 0x81000017 };
	const struct output_meta meta = { .tracer = "function_graph" };
	const struct output_names names = { .sym = sym };
	struct trace_record r = { .type = TRACE_FUNCTION,
				  .ip = 0xffffffff81000008,
				  .pid = 7,
				  .comm = "cat",
				  .stack = (const struct trace_stack *)low };
	_cleanup_buf_ struct buf out = { 0 };
	struct export *x;

	(void)state;
	assert_int_equal(export_create(export_find("folded"), &meta, NULL, &x, NULL), 0);
	for (r.seq = 1; r.seq <= 3; r.seq++)
		export_record(x, &out, &r, &names);
	while (export_end(x, &out))
		;
	assert_int_equal(export_check(x, NULL), 0);
	export_destroy(x);
	assert_non_null(strstr(out.data, "\ncat;f\"\\?? ffffffff8100001;f\"\\?? ffffffff8100001;"
					 "f\"\\?? ffffffff8100000 3\n"));
}

/* Each fourth byte has a name. */
static bool some_sym(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	(void)arg;
	if (addr % 4)
		return false;
	*ret = (struct kernel_sym){
		.name = "function", .addr = addr, .size_bytes = 4, .type = 't'
	};
	*off_ret = 0;
	return true;
}

/* Addresses that a guest makes up, as many as it likes: the table ends growing, and says so of the others. */
static void an_export_ends_growing(void **state)
{
	const struct output_names names = { .sym = some_sym };
	struct syms *s = syms_create();
	u32 id, shared;

	(void)state;
	for (u32 i = 0; i < OUTPUT_ADDRS_MAX; i++)
		assert_int_equal(syms_get(s, 0xffffffff81000000 + i, &names), i + 1);
	shared = syms_get(s, 0xffffffff81000000 - 1, &names);
	assert_true(syms_is_shared(s, shared));
	assert_string_equal(syms_at(s, shared)->name, OUTPUT_SHARED_NAME);
	for (u32 i = 2; i < 1000; i++)
		assert_int_equal(syms_get(s, 0xffffffff81000000 - i, &names), shared);
	assert_int_equal(syms_named(s, 4, "read"), shared);
	assert_int_equal(syms_count(s), OUTPUT_ADDRS_MAX + 1);
	id = syms_get(s, 0xffffffff81000000 + 4, &names);
	assert_int_equal(id, 5);
	assert_false(syms_is_shared(s, id));
	assert_string_equal(syms_at(s, id)->name, "function");
	assert_int_equal(syms_at(s, id)->type, 't');
	syms_destroy(s);
}

static void folded_stacks_end_growing(void **state)
{
	const struct output_meta meta = { .tracer = "function_graph" };
	const struct output_names names = { .sym = some_sym };
	struct trace_record r = {
		.type = TRACE_GRAPH_RETURN, .duration_ns = 2, .comm = "sh", .pid = 1
	};
	_cleanup_buf_ struct buf out = { 0 };
	struct export *x;

	(void)state;
	assert_int_equal(export_create(export_find("folded"), &meta, NULL, &x, NULL), 0);
	for (r.seq = 1; r.seq <= OUTPUT_ADDRS_MAX + 5; r.seq++) {
		r.ip = 0xffffffff81000001 + 2 * r.seq;
		export_record(x, &out, &r, &names);
	}
	while (export_end(x, &out))
		;
	assert_int_equal(export_check(x, NULL), 0);
	export_destroy(x);
	assert_non_null(strstr(out.data,
			       "\n# 5 times a function was one too many and is " OUTPUT_SHARED_NAME
			       ", 0 times a stack"));
	assert_non_null(strstr(out.data, "\nsh;" OUTPUT_SHARED_NAME " 10\n"));
}

static u64 cpu_ms(void)
{
	struct rusage r;

	assert_int_equal(getrusage(RUSAGE_SELF, &r), 0);
	return (u64)r.ru_utime.tv_sec * 1000 + (u64)r.ru_utime.tv_usec / 1000;
}

/* Pids of a recording from elsewhere that a hash without a key has all in one place. */
static void chosen_pids(void **state)
{
	static u32 pid[10000];
	struct tasks *t = tasks_create();
	struct trace_record r = { .comm = "x" };
	unsigned int news;
	struct task *k;
	u32 n = 0;
	u64 began, h;

	(void)state;
	assert_non_null(t);
	for (u32 i = 1; n < ARRAY_SIZE(pid); i++) {
		h = i * 0x9e3779b97f4a7c15;
		if (!((h ^ h >> 29) % 16384))
			pid[n++] = i;
	}
	began = cpu_ms();
	for (u32 i = 0; i < 4 * n; i++) {
		r.pid = pid[i % n];
		k = tasks_get(t, &r, &news);
		assert_ptr_equal(tasks_find(t, r.pid), k);
		assert_int_equal(news, i < n ? TASK_NEW : 0);
	}
	assert_in_range(cpu_ms() - began, 0, 150);
	tasks_destroy(t);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup(f, setup)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_export_ends_growing),
		T(folded_stacks_end_growing),
		T(streams_keep_apart),
		T(chosen_pids),
		T(room_is_left_to_others),
		T(any_number_is_sorted),
		T(archives),
		T(whatever_the_records_are),
		T(nothing_at_all),
		T(no_durations_no_stacks),
		T(callers_without_returns),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
