// SPDX-License-Identifier: Apache-2.0
/* Recordings: what is written comes back; a cut file up to its cut; a damaged one never as good. */
#include "tests/unit/test_tracers_file.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define BASE    0xffffffff81000000
#define RECORDS 6000

static u64 rng;

static bool graph; /* records of function_graph */

static u64 next_random(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng;
}

/* A kernel where every 16 bytes are a function; each third is a module's, each fifth unknown. */
static bool fake_sym(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	static char name[4][32];
	static unsigned int turn;
	char *s = name[turn++ % 4];
	u64 start = addr & ~15ull;

	(void)arg;
	if (start / 16 % 5 == 0)
		return false;
	snprintf(s, sizeof(name[0]), "func_%llx", (unsigned long long)start & 0xffffff);
	*ret = (struct kernel_sym){ s, start / 16 % 3 ? NULL : "mod", start, 16, 't' };
	*off_ret = addr - start;
	return true;
}

static const struct output_names fake_names = { .sym = fake_sym, .arg = NULL };

static struct trace_record make_record(u64 seq)
{
	struct trace_record r = { .seq = seq, .type = TRACE_FUNCTION };

	r.ts_ns =
		1000000000 + seq * 200 - next_random() % 5000; /* CPUs interleave: not monotonic */
	r.ip = BASE + next_random() % 2000 * 16;
	r.parent = BASE + next_random() % 8000 * 4;
	r.cpu = (u16)(next_random() % 4);
	r.ctx = (u16)(next_random() % 3 ? 0 : next_random() & 0x7ff);
	r.pid = (u32)(next_random() % 300);
	r.tgid = r.pid / 2;
	snprintf(r.comm, sizeof(r.comm), "task-%u", r.pid % 50);
	if (!graph)
		return r;
	r.type = (u8)(TRACE_FUNCTION + next_random() % 4);
	r.depth = (u16)(next_random() % 30 ? next_random() % 50 : 65535);
	if (r.type == TRACE_GRAPH_RETURN) {
		r.parent = 0;
		r.duration_ns = next_random() >> next_random() % 60;
	}
	return r;
}

static struct output_meta meta = { .tracer = "function",
				   .guest = "qemu:/run/\xff\"vm",
				   .release = "6.1.0-57-cloud-amd64",
				   .vcpus = 4,
				   .started_ns = 1795962544123456789 };

/* The buffer is emptied into @file after every @flush_every records, as a stream would do. */
static void write_all(struct buf *file, size_t flush_every)
{
	struct output_meta end = meta;
	struct rec_writer *w;
	struct buf b = { 0 };

	rng = 88172645463325252;
	assert_int_equal(rec_writer_create(&meta, &w, NULL), 0);
	rec_writer_head(w, &b);
	for (u64 i = 1; i <= RECORDS; i++) {
		struct trace_record r = make_record(i);

		if (i == RECORDS / 2)
			rec_writer_lost(w, &b, 77);
		rec_writer_add(w, &b, &r, &fake_names);
		if (i % flush_every == 0) {
			rec_writer_whole(w, &b);
			buf_add(file, b.data, b.len);
			buf_reset(&b);
		}
	}
	end.n_records = RECORDS;
	end.n_lost = 77;
	end.n_functions = 3;
	end.n_restored = 2;
	end.restored = true;
	end.missed_switches = true;
	rec_writer_end(w, &b, &end);
	buf_add(file, b.data, b.len);
	assert_false(buf_failed(&b));
	assert_false(buf_failed(file));
	buf_deinit(&b);
	rec_writer_destroy(w);
}

static void check_name(const struct output_names *names, u64 addr)
{
	struct kernel_sym got, want;
	u64 got_off, want_off;
	bool known = fake_sym(NULL, addr, &want, &want_off);

	assert_int_equal(names->sym(names->arg, addr, &got, &got_off), known);
	if (!known)
		return;
	assert_string_equal(got.name, want.name);
	assert_int_equal(!got.module, !want.module);
	assert_int_equal(got.addr, want.addr);
	assert_int_equal(got.size_bytes, want.size_bytes);
	assert_int_equal(got.type, want.type);
	assert_int_equal(got_off, want_off);
}

static void same_record(const struct trace_record *got, const struct trace_record *want)
{
	assert_int_equal(got->seq, want->seq);
	assert_int_equal(got->ts_ns, want->ts_ns);
	assert_int_equal(got->ip, want->ip);
	assert_int_equal(got->parent, want->parent);
	assert_int_equal(got->pid, want->pid);
	assert_int_equal(got->tgid, want->tgid);
	assert_int_equal(got->cpu, want->cpu);
	assert_int_equal(got->ctx, want->ctx);
	assert_int_equal(got->type, want->type);
	assert_int_equal(got->depth, want->depth);
	assert_int_equal(got->duration_ns, want->duration_ns);
	assert_string_equal(got->comm, want->comm);
}

/* Reads to the end or the cut; every record read is the one that was written. */
static enum rec_kind read_back(struct rec_reader *r, u64 *n_ret)
{
	struct output_names names = rec_reader_names(r);
	struct trace_record got, want;
	enum rec_kind kind;

	rng = 88172645463325252;
	for (*n_ret = 0;;) {
		assert_int_equal(rec_reader_next(r, &kind, &got, NULL), 0);
		if (kind == REC_LOST) {
			assert_int_equal(got.seq, 77);
			assert_int_equal(*n_ret, RECORDS / 2 - 1);
		} else if (kind == REC_RECORD) {
			want = make_record(++*n_ret);
			same_record(&got, &want);
			check_name(&names, got.ip);
			if (got.type != TRACE_GRAPH_RETURN)
				check_name(&names, got.parent);
		} else {
			return kind;
		}
	}
}

static void check_round_trip(size_t flush_every)
{
	const struct output_meta *m;
	struct trace_record rec;
	struct buf file = { 0 };
	struct rec_reader *r;
	enum rec_kind kind;
	u64 n;

	write_all(&file, flush_every);
	assert_int_equal(rec_reader_open_mem(file.data, file.len, &r, NULL), 0);
	m = rec_reader_meta(r);
	assert_string_equal(m->tracer, meta.tracer);
	assert_int_equal(file.data[REC_MAGIC_BYTES], REC_VERSION_3); /* no stacks */
	assert_string_equal(m->guest, "qemu:/run/\xef\xbf\xbd\"vm");
	assert_string_equal(m->release, meta.release);
	assert_int_equal(m->vcpus, 4);
	assert_int_equal(m->started_ns, meta.started_ns);
	assert_int_equal(read_back(r, &n), REC_END);
	assert_int_equal(n, RECORDS);
	assert_int_equal(m->n_records, RECORDS);
	assert_int_equal(m->n_lost, 77);
	assert_int_equal(m->n_functions, 3);
	assert_int_equal(m->n_restored, 2);
	assert_true(m->missed_switches && !m->missed_forks);
	assert_true(m->restored);
	assert_int_equal(rec_reader_next(r, &kind, &rec, NULL), 0); /* and it stays the end */
	assert_int_equal(kind, REC_END);
	rec_reader_close(r);
	buf_deinit(&file);
}

static void what_is_written_comes_back(void **state)
{
	(void)state;
	check_round_trip(1);
	check_round_trip(7);
	check_round_trip(1000);
	check_round_trip(RECORDS * 2);
}

/* Once all names are known. Random functions, CPUs and contexts are about the worst case. */
static void few_bytes_a_record(void **state)
{
	struct rec_writer *w;
	struct buf b = { 0 };
	size_t named = 0;

	(void)state;
	rng = 88172645463325252;
	assert_int_equal(rec_writer_create(&meta, &w, NULL), 0);
	for (u64 i = 1; i <= 60000; i++) {
		struct trace_record r = make_record(i);

		if (i == 40001)
			named = b.len;
		rec_writer_add(w, &b, &r, &fake_names);
	}
	assert_in_range((b.len - named) / 20000, 5, 14);
	rec_writer_destroy(w);
	buf_deinit(&b);
}

static void a_cut_file_is_good_up_to_the_cut(void **state)
{
	struct buf file = { 0 };
	struct rec_reader *r;
	struct err err;
	u64 n, most = 0;

	(void)state;
	write_all(&file, 50);
	for (size_t len = 0; len < file.len; len += len < 500 ? 1 : 1 + file.len / 97) {
		/* a copy of the exact size, so that a sanitizer sees any read behind it */
		char *copy = malloc(len ? len : 1);

		memcpy(copy, file.data, len);
		if (rec_reader_open_mem(copy, len, &r, &err)) {
			assert_int_equal(err.code, ERR_FILE_FORMAT);
			assert_in_range(len, 0, 300);
		} else {
			assert_int_equal(read_back(r, &n), REC_CUT);
			assert_true(n >= most);
			most = n;
			rec_reader_close(r);
		}
		free(copy);
	}
	assert_in_range(most, RECORDS / 2, RECORDS);
	buf_deinit(&file);
}

static void any_flipped_bit_is_found(void **state)
{
	struct buf file = { 0 };
	struct trace_record rec;
	enum rec_kind kind;
	struct rec_reader *r;
	struct err err = { 0 };

	(void)state;
	write_all(&file, 50);
	rng = 1234567;
	for (int i = 0; i < 200; i++) {
		size_t pos = 0;
		u64 at = next_random() % file.len;
		u8 bit = (u8)(1 << next_random() % 8);
		int rc;

		file.data[at] = (char)(file.data[at] ^ bit);
		rc = rec_reader_open_mem(file.data, file.len, &r, &err);
		if (!rc) {
			do {
				rc = rec_reader_next(r, &kind, &rec, &err);
				pos++;
			} while (!rc && (kind == REC_RECORD || kind == REC_LOST));
			/* the length of the last chunks may point behind the end: a cut, not the end */
			assert_true(rc == -EBADMSG || kind == REC_CUT || at < REC_HEAD_BYTES);
			if (rc) /* and damage is for good */
				assert_int_equal(rec_reader_next(r, &kind, &rec, NULL), -EBADMSG);
			rec_reader_close(r);
		}
		if (rc) {
			assert_int_equal(rc, -EBADMSG);
			assert_int_equal(err.code, ERR_FILE_FORMAT);
			assert_true(strlen(err.msg) > 10);
		}
		file.data[at] = (char)(file.data[at] ^ bit);
	}
	buf_deinit(&file);
}

static void refuses_other_files(void **state)
{
	struct buf file = { 0 };
	struct rec_reader *r;
	struct err err;

	(void)state;
	assert_int_equal(rec_reader_open_mem("hello, world: not one", 21, &r, &err), -EBADMSG);
	assert_string_equal(err.msg, "not a recording of hvftrace");
	assert_int_equal(rec_reader_open("/nonexistent/file", &r, &err), -ENOENT);
	assert_int_equal(err.code, ERR_NOT_FOUND);
	write_all(&file, 50);
	file.data[REC_MAGIC_BYTES] = 9;
	assert_int_equal(rec_reader_open_mem(file.data, file.len, &r, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "version 9"));
	buf_deinit(&file);
}

/* Right checksums, wrong contents: what a forger writes. */
static void forged_contents_are_refused(void **state)
{
	static const struct {
		u8 type;
		u32 len;
		const char *payload;
	} cases[] = {
		/* seq 1, ts, flags, ts, symbols 0 and 0: none was defined */
		{ 'R', 13, "\x01\0\0\0\0\0\0\0\0\x20\0\0\0" },
		{ 'R', 10, "\x01\0\0\0\0\0\0\0\0\x30" }, /* a flag that must be clear */
		{ 'R', 12, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f\0\0" }, /* more than 64 bits */
		{ 'R', 3, "\x01\0\0" },
		{ 'T', 6, "\x80\x80\x01\0\0\0" }, /* a slot that does not exist */
		{ 'T', 6,
		  "\0\0\0\x11"
		  "ab" }, /* a comm of 17 bytes */
		{ 'T', 5,
		  "\0\0\0\x04"
		  "a" }, /* longer than the chunk */
		{ 'S', 17, "\0\0\0\0\0\0\0\0\0\0t\x02\0a\0\0\0" }, /* a NUL in a name */
		{ 'S', 15, "\0\0\0\0\0\0\0\0\0\0t\0\0\0\0" }, /* a type, but no name */
		{ 'S', 13, "\0\0\0\0\0\0\0\0\0\0t\xff\xff" },
		{ 'L', 15, "0123456789abcde" },
		{ 'M', 2, "{}" }, /* twice */
		{ 'E', 2, "[]" },
		{ 'E', 1, "{" },
	};
	struct trace_record rec;
	enum rec_kind kind;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct buf b = { 0 };
		struct rec_reader *r;
		struct err err = { 0 };
		int rc;

		buf_add(&b, REC_MAGIC "\x01\0\0\0\0\0\0\0", 16);
		add_chunk(&b, 'M', "{}", 2);
		add_chunk(&b, 'x', "a later one", 11); /* unknown: skipped */
		add_chunk(&b, cases[i].type, cases[i].payload, cases[i].len);
		assert_int_equal(rec_reader_open_mem(b.data, b.len, &r, NULL), 0);
		rc = rec_reader_next(r, &kind, &rec, &err);
		assert_int_equal(rc, -EBADMSG);
		assert_int_equal(err.code, ERR_FILE_FORMAT);
		rec_reader_close(r);
		buf_deinit(&b);
	}
}

/* Records of version 2, each with a symbol to refer to. */
static void forged_calls_are_refused(void **state)
{
#define START "\x01\0\0\0\0\0\0\0\0"
	static const struct {
		const char *payload;
		u32 len;
		int rc;
	} cases[] = {
		/* flags, ts, ip, parent, depth */
		{ START "\x20\0\0\0\0", 9 + 5, 0 },
		{ START "\x40\0\0\0\x05", 9 + 5, 0 },
		{ START "\x80\0\0\0\x05", 9 + 5, 0 },
		{ START "\x60\0\0\x05\x07", 9 + 5, 0 }, /* depth, duration */
		{ START "\x00\0\0\0\0", 9 + 5, -EBADMSG }, /* types there are not */
		{ START "\xa0\0\0\0\0", 9 + 5, -EBADMSG },
		{ START "\x40\0\0\0", 9 + 4, -EBADMSG }, /* no depth */
		{ START "\x40\0\0\x01\0", 9 + 5, -EBADMSG }, /* symbol 1 */
		{ START "\x40\0\0\0\x80\x80\x04", 9 + 7, -EBADMSG }, /* depth 65536 */
		{ START "\x60\0\0\x05", 9 + 4, -EBADMSG }, /* no duration */
	};
	struct trace_record rec;
	enum rec_kind kind;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct buf b = { 0 };
		struct rec_reader *r;

		buf_add(&b, REC_MAGIC "\x02\0\0\0\0\0\0\0", 16);
		add_chunk(&b, 'M', "{}", 2);
		add_chunk(&b, 'S', "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 15);
		add_chunk(&b, 'R', cases[i].payload, cases[i].len);
		assert_int_equal(rec_reader_open_mem(b.data, b.len, &r, NULL), 0);
		assert_int_equal(rec_reader_next(r, &kind, &rec, NULL), cases[i].rc);
		rec_reader_close(r);
		buf_deinit(&b);
	}
}

static void reads_files(void **state)
{
	char path[] = "/tmp/test_tracers_file.XXXXXX";
	int fd = mkstemp(path);
	struct buf file = { 0 };
	struct rec_reader *r;
	u64 n;

	(void)state;
	assert_true(fd >= 0);
	write_all(&file, 50);
	assert_int_equal(write(fd, file.data, file.len - 3), file.len - 3);
	assert_int_equal(rec_reader_open(path, &r, NULL), 0);
	assert_int_equal(read_back(r, &n), REC_CUT);
	assert_int_equal(n, RECORDS);
	rec_reader_close(r);
	assert_int_equal(pwrite(fd, file.data, file.len, 0), file.len);
	assert_int_equal(rec_reader_open(path, &r, NULL), 0);
	assert_int_equal(read_back(r, &n), REC_END);
	rec_reader_close(r);
	close(fd);
	unlink(path);
	buf_deinit(&file);
}

/* More tasks at a time than there are slots: defined again, never mixed up. */
static void more_tasks_than_slots(void **state)
{
	struct trace_record rec = { .type = TRACE_FUNCTION, .ip = BASE + 16, .parent = BASE + 16 };
	struct buf b = { 0 };
	struct rec_writer *w;
	struct rec_reader *r;
	enum rec_kind kind;

	(void)state;
	assert_int_equal(rec_writer_create(&meta, &w, NULL), 0);
	rec_writer_head(w, &b);
	for (u64 seq = 1; seq <= 100000; seq++) {
		rec.seq = seq;
		rec.pid = (u32)(seq % 40000);
		snprintf(rec.comm, sizeof(rec.comm), "%u", rec.pid);
		rec_writer_add(w, &b, &rec, &fake_names);
	}
	rec_writer_whole(w, &b);
	assert_false(buf_failed(&b));
	assert_int_equal(rec_reader_open_mem(b.data, b.len, &r, NULL), 0);
	for (u64 seq = 1; seq <= 100000; seq++) {
		assert_int_equal(rec_reader_next(r, &kind, &rec, NULL), 0);
		assert_int_equal(kind, REC_RECORD);
		assert_int_equal(rec.pid, seq % 40000);
		assert_int_equal(strtoul(rec.comm, NULL, 10), rec.pid);
	}
	rec_reader_close(r);
	rec_writer_destroy(w);
	buf_deinit(&b);
}

static u32 crc_bit_by_bit(u32 crc, const u8 *p, size_t len)
{
	crc = ~crc;
	for (; len; len--) {
		crc ^= *p++;
		for (int i = 0; i < 8; i++)
			crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
	}
	return ~crc;
}

static void crc_is_the_usual_one(void **state)
{
	u8 data[40];

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (u8)(i * 151 + 7);
	for (size_t len = 0; len <= sizeof(data); len++)
		assert_int_equal(rec_crc32(0x12345678, data, len),
				 crc_bit_by_bit(0x12345678, data, len));
	assert_int_equal(rec_crc32(0, "123456789", 9), 0xcbf43926);
	assert_int_equal(rec_crc32(rec_crc32(0, "1234", 4), "56789", 5), 0xcbf43926);
	assert_int_equal(rec_crc32(0, "123456789123456789123456789", 27),
			 rec_crc32(rec_crc32(0, "12345678912", 11), "3456789123456789", 16));
}

static int as_graph(void **state)
{
	(void)state;
	graph = true;
	strcpy(meta.tracer, "function_graph");
	return 0;
}

static int as_function(void **state)
{
	(void)state;
	graph = false;
	strcpy(meta.tracer, "function");
	return 0;
}

#define GRAPH_TEST(f) cmocka_unit_test_setup_teardown(f, as_graph, as_function)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_comes_back),
		GRAPH_TEST(what_is_written_comes_back),
		cmocka_unit_test(few_bytes_a_record),
		cmocka_unit_test(a_cut_file_is_good_up_to_the_cut),
		GRAPH_TEST(a_cut_file_is_good_up_to_the_cut),
		cmocka_unit_test(any_flipped_bit_is_found),
		GRAPH_TEST(any_flipped_bit_is_found),
		cmocka_unit_test(refuses_other_files),
		cmocka_unit_test(forged_contents_are_refused),
		cmocka_unit_test(forged_calls_are_refused),
		cmocka_unit_test(reads_files),
		cmocka_unit_test(more_tasks_than_slots),
		cmocka_unit_test(crc_is_the_usual_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
