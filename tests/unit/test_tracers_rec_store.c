// SPDX-License-Identifier: Apache-2.0
/* Recordings on disk: what is stored comes back, a cut file up to the cut, limits lose what they say. */
#include "base/cleanup.h"
#include "tracers/output.h"
#include "tracers/rec_store.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zstd.h>

#include <cmocka.h>

#define BASE    0xffffffff81000000
#define RECORDS 200000ull

static char path[64];
static int fd;
static u64 gap_at,
	ring_at; /* losses before these records: of 7 sequence numbers, of 5 in the guest */
static u32 n_tasks;

static int setup(void **state)
{
	(void)state;
	strcpy(path, "/tmp/hvf-store-XXXXXX");
	fd = mkstemp(path);
	gap_at = ring_at = 0;
	n_tasks = 100;
	return fd < 0;
}

static int teardown(void **state)
{
	(void)state;
	close(fd);
	return unlink(path);
}

static bool sym(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	static char name[32];

	(void)arg;
	snprintf(name, sizeof(name), "f%llx", (unsigned long long)(addr - BASE));
	*ret = (struct kernel_sym){ .name = name, .addr = addr, .type = 't' };
	*off_ret = 0;
	return true;
}

static const struct output_names names = { .sym = sym };

static struct trace_record record(u64 seq)
{
	u64 h = seq * 0x9e3779b97f4a7c15;
	struct trace_record r = { .seq = seq,
				  .type = TRACE_FUNCTION,
				  .ts_ns = 1000000 + seq * 100 + h % 90,
				  .ip = BASE + (h >> 40) % 500 * 16,
				  .parent = BASE + (h >> 30) % 500 * 16,
				  .pid = (u32)(h >> 20) % n_tasks,
				  .cpu = (u16)(h >> 50) % 4 };

	snprintf(r.comm, sizeof(r.comm), "t%u", r.pid);
	return r;
}

static u64 first_after_gap(u64 seq)
{
	return seq + (gap_at && seq >= gap_at ? 7 : 0);
}

/* The recording of @n records as the daemon sends it, in pieces of @piece bytes, into @s or @all. */
static void make(struct rec_store *s, struct buf *all, u64 n, size_t piece)
{
	struct output_meta meta = { .tracer = "function", .guest = "g", .vcpus = 4 };
	struct rec_writer *w;
	struct buf b = { 0 };

	assert_int_equal(rec_writer_create(&meta, &w, NULL), 0);
	rec_writer_head(w, &b);
	for (u64 i = 1; i <= n; i++) {
		struct trace_record r = record(first_after_gap(i));

		if (i == gap_at)
			rec_writer_lost(w, &b, 7);
		if (i == ring_at)
			rec_writer_lost(w, &b, 5);
		rec_writer_add(w, &b, &r, &names);
		if (i % 256 && i != n)
			continue;
		if (i == n) {
			meta.n_records = n;
			rec_writer_end(w, &b, &meta);
		}
		rec_writer_whole(w, &b);
		for (size_t at = 0; s && at < b.len; at += piece)
			assert_int_equal(rec_store_add(s, b.data + at, MIN(piece, b.len - at)), 0);
		if (all)
			buf_add(all, b.data, b.len);
		buf_reset(&b);
	}
	rec_writer_destroy(w);
	buf_deinit(&b);
}

static void store(const struct rec_store_opts *opts, u64 n, size_t piece, bool finish)
{
	struct rec_store *s;

	assert_int_equal(rec_store_create(fd, opts, &s, NULL), 0);
	make(s, NULL, n, piece);
	if (finish)
		assert_int_equal(rec_store_finish(s), 0);
	rec_store_destroy(s);
}

struct seen {
	u64 records, lost, first, last;
	enum rec_kind end;
};

/* Each record that is there must be the one with its number. Return: 0, or the reader's failure */
static int read_back(struct seen *seen)
{
	struct trace_record got, want;
	struct output_names read_names;
	struct kernel_sym a;
	struct rec_reader *r;
	int rc;
	u64 off;

	*seen = (struct seen){ 0 };
	rc = rec_reader_open(path, &r, NULL);
	if (rc)
		return rc;
	read_names = rec_reader_names(r);
	while (!(rc = rec_reader_next(r, &seen->end, &got, NULL)) && seen->end <= REC_LOST) {
		if (seen->end == REC_LOST) {
			seen->lost += got.seq;
			continue;
		}
		want = record(got.seq);
		assert_true(got.seq > seen->last);
		assert_int_equal(got.ip, want.ip);
		assert_int_equal(got.ts_ns, want.ts_ns);
		assert_string_equal(got.comm, want.comm);
		assert_true(read_names.sym(read_names.arg, got.ip, &a, &off));
		seen->first = seen->first ? seen->first : got.seq;
		seen->last = got.seq;
		seen->records++;
	}
	rec_reader_close(r);
	return rc;
}

/* By the index, if there is one: how many records the end says there were; 0: no index */
static u64 totals(void)
{
	struct rec_reader *r;
	int n;
	u64 records;

	assert_int_equal(rec_reader_open(path, &r, NULL), 0);
	n = rec_reader_totals(r, NULL);
	assert_in_range(n + 1, 1, 2);
	records = rec_reader_meta(r)->n_records;
	rec_reader_close(r);
	return n ? records : 0;
}

static u64 file_size(void)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return (u64)st.st_size;
}

static void round_trip(void **state)
{
	const struct rec_store_opts opts = { 0 };
	struct buf plain = { 0 };
	struct seen s;

	(void)state;
	gap_at = 1000;
	ring_at = 150000;
	store(&opts, RECORDS, 4099, true);
	assert_int_equal(read_back(&s), 0);
	assert_int_equal(s.end, REC_END);
	assert_int_equal(s.records, RECORDS);
	assert_int_equal(s.lost, 12);
	assert_int_equal(totals(), RECORDS);
	make(NULL, &plain, RECORDS, 1);
	assert_in_range(file_size(), 1, plain.len * 3 / 4);
	buf_deinit(&plain);
}

/* More tasks than slots: their definitions change while the recording goes on. */
static void tasks_that_change_slots(void **state)
{
	const struct rec_store_opts opts = { 0 };
	struct seen s;

	(void)state;
	n_tasks = 60000;
	store(&opts, RECORDS, 1 << 20, true);
	assert_int_equal(read_back(&s), 0);
	assert_int_equal(s.records, RECORDS);
}

/* As kill -9 leaves it: wherever it was cut, all whole blocks are there, and it says that it was cut. */
static void cut_anywhere(void **state)
{
	const struct rec_store_opts opts = { 0 };
	u64 size, last = 0;
	struct seen s;

	(void)state;
	store(&opts, RECORDS, 65536, true);
	size = file_size();
	for (u64 at = 40; at < size; at += size / 97) {
		assert_int_equal(truncate(path, (off_t)(size - at)), 0);
		if (read_back(&s)) { /* cut before its metadata */
			assert_true(size - at < 400);
			continue;
		}
		assert_int_equal(totals(), 0);
		assert_int_equal(s.end, size - at > size - 400 ? s.end : REC_CUT);
		assert_int_equal(s.records, s.last);
		assert_true(!last || s.records <= last);
		last = s.records;
	}
	assert_in_range(last, 0, RECORDS / 50);
}

/* What waits in memory is in the file after a second. */
static void flushed_by_time(void **state)
{
	const struct rec_store_opts opts = { 0 };
	struct rec_store *w;
	struct seen s;
	u64 before;

	(void)state;
	assert_int_equal(rec_store_create(fd, &opts, &w, NULL), 0);
	make(w, NULL, 300, 100);
	before = file_size();
	assert_int_equal(rec_store_tick(w), 0);
	for (int i = 0; i < 300 && file_size() == before; i++) {
		usleep(10000);
		assert_int_equal(rec_store_tick(w), 0);
	}
	rec_store_destroy(w); /* without an end */
	assert_int_equal(read_back(&s), 0);
	assert_int_equal(s.records, 300);
}

static void kept_within_bytes(void **state)
{
	const struct rec_store_opts opts = { .max_bytes = 1 << 20 };
	struct stat st;
	struct seen s;

	(void)state;
	gap_at = 1000; /* of a block that goes */
	ring_at = 1300;
	store(&opts, 4 * RECORDS, 65536, true);
	assert_int_equal(read_back(&s), 0);
	assert_int_equal(s.end, REC_END);
	assert_int_equal(s.last, 4 * RECORDS + 7);
	assert_int_equal(totals(), 4 * RECORDS);
	assert_in_range(s.records, 1000, 3 * RECORDS);
	/* all that is not there is lost: 7 numbers were never given out to records, 5 never had one */
	assert_int_equal(s.records + s.lost, 4 * RECORDS + 12);
	assert_int_equal(s.records, s.last - s.first + 1);
	assert_int_equal(fstat(fd, &st), 0);
	assert_true(st.st_blocks * 512 < st.st_size);
}

/* Bytes of the file in blocks of a kind, heads and all; of the index, how many entries are not of a block. */
static u64 bytes_of(u8 kind, u64 *strays_ret)
{
	struct store_index_entry e;
	struct store_block h;
	static u64 offs[1 << 15];
	static u8 plain[sizeof(offs) * 3];
	u64 sum = 0, at = STORE_HEAD_BYTES, n = 0;
	_cleanup_free_ u8 *packed = NULL;

	while (pread(fd, &h, sizeof(h), (off_t)at) == sizeof(h) && h.magic == STORE_BLOCK_MAGIC) {
		if (h.kind == kind)
			sum += sizeof(h) + h.packed_len;
		if (h.kind == STORE_INDEX)
			break;
		offs[n++] = at;
		assert_true(n < ARRAY_SIZE(offs));
		at += sizeof(h) + h.packed_len;
	}
	assert_int_equal(h.kind, STORE_INDEX);
	packed = malloc(h.packed_len);
	assert_int_equal(pread(fd, packed, h.packed_len, (off_t)(at + sizeof(h))), h.packed_len);
	assert_int_equal(ZSTD_decompress(plain, sizeof(plain), packed, h.packed_len), h.plain_len);
	*strays_ret = h.plain_len / sizeof(e) != n;
	for (u64 i = 0; i < n && !*strays_ret; i++) {
		memcpy(&e, plain + i * sizeof(e), sizeof(e));
		*strays_ret = e.off != offs[i];
	}
	return sum;
}

/* Blocks of a few hundred bytes, definitions between: less than a page each, and yet their space comes back. */
static void small_blocks_give_their_space_back(void **state)
{
	const struct rec_store_opts opts = { .max_bytes = 16 << 10 };
	u64 n = RECORDS / 20, keep, records, strays;
	struct stat st;
	struct seen s;

	(void)state;
	n_tasks = 1 << 18; /* slots are used again all the time, which ends a block */
	ring_at = 1300;
	store(&opts, n, 65536, true);
	assert_int_equal(read_back(&s), 0);
	assert_int_equal(s.end, REC_END);
	assert_int_equal(s.last, n);
	assert_int_equal(s.records + s.lost, n + 5);
	assert_int_equal(totals(), n);
	keep = bytes_of(STORE_KEEP, &strays);
	assert_int_equal(strays, 0);
	records = bytes_of(STORE_RECORDS, &strays);
	assert_int_equal(fstat(fd, &st), 0);
	assert_true((u64)st.st_size > 2 * keep);
	assert_in_range(st.st_blocks * 512, keep, keep + records + (64 << 10));
}

/* Killed at any moment, whatever was being dropped: the file is good up to there. */
static void killed_while_it_drops(void **state)
{
	const struct rec_store_opts opts = { .max_bytes = 16 << 10 };
	struct seen s;

	(void)state;
	n_tasks = 1 << 18;
	for (int i = 0; i < 20; i++) {
		pid_t pid;

		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
		pid = fork();
		if (!pid) {
			store(&opts, RECORDS, 65536, true);
			_exit(0);
		}
		while (file_size() < (u64)(60 + i * 7) << 10)
			;
		assert_int_equal(kill(pid, SIGKILL), 0);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
		assert_int_equal(read_back(&s), 0);
		assert_int_equal(s.end, REC_CUT);
		assert_int_equal(s.records + s.lost, s.last);
	}
}

/* A symbol's definition over and over, as nobody would write it, in a file of a few kilobytes. */
static void names_without_end(void **state)
{
	static u8 chunk[REC_CHUNK_HEAD + REC_CHUNK_MAX + REC_CHUNK_TAIL];
	static const u8 def[12] = { 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0 }; /* and 4 more: no names */
	const struct rec_store_opts opts = { 0 };
	const u32 len = REC_CHUNK_MAX / 16 * 15; /* 15 bytes each: whole ones */
	struct output_meta meta = { .tracer = "function", .guest = "g" };
	_cleanup_buf_ struct buf b = { 0 };
	struct rec_writer *w;
	struct rec_store *s;
	struct seen seen;
	u32 crc;

	(void)state;
	assert_int_equal(rec_writer_create(&meta, &w, NULL), 0);
	rec_writer_head(w, &b);
	assert_int_equal(rec_store_create(fd, &opts, &s, NULL), 0);
	assert_int_equal(rec_store_add(s, b.data, b.len), 0);
	chunk[0] = REC_CHUNK_SYM;
	memcpy(chunk + 1, &len, sizeof(len));
	for (u32 at = 0; at < len; at += 15)
		memcpy(chunk + REC_CHUNK_HEAD + at, def, sizeof(def));
	crc = rec_crc32(rec_crc32(0, chunk, 1), chunk + REC_CHUNK_HEAD, len);
	memcpy(chunk + REC_CHUNK_HEAD + len, &crc, sizeof(crc));
	for (int i = 0; i < 64; i++)
		assert_int_equal(rec_store_add(s, chunk, REC_CHUNK_HEAD + len + REC_CHUNK_TAIL), 0);
	assert_int_equal(rec_store_finish(s), 0);
	rec_store_destroy(s);
	rec_writer_destroy(w);
	assert_true(file_size() < 100 << 10);
	assert_int_equal(read_back(&seen), -EBADMSG);
}

static void kept_within_age(void **state)
{
	const struct rec_store_opts opts = { .max_age_ns = 1 };
	struct seen s;

	(void)state;
	store(&opts, RECORDS, 65536, true);
	assert_int_equal(read_back(&s), 0);
	assert_int_equal(s.last, RECORDS);
	assert_in_range(s.records, 1, RECORDS / 2);
	assert_int_equal(s.records + s.lost, RECORDS);
}

/* The linker has this called instead: see CMakeLists.txt. */
int __wrap_fallocate(int file, int mode, off_t off, off_t len);
int __real_fallocate(int file, int mode, off_t off, off_t len);

static int no_holes; /* what a file system without them says */

int __wrap_fallocate(int file, int mode, off_t off, off_t len)
{
	errno = no_holes;
	return no_holes ? -1 : __real_fallocate(file, mode, off, len);
}

/* Found out before anything is recorded. */
static void limits_need_holes(void **state)
{
	static const struct rec_store_opts all[] = { { .max_bytes = 1 },
						     { .max_age_ns = 1 },
						     { 0 } };

	(void)state;
	no_holes = EOPNOTSUPP;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		bool limited = all[i].max_bytes || all[i].max_age_ns;
		struct rec_store *s = NULL;
		struct err err = { 0 };
		struct stat st;

		assert_int_equal(rec_store_create(fd, &all[i], &s, &err),
				 limited ? -EOPNOTSUPP : 0);
		assert_int_equal(fstat(fd, &st), 0);
		assert_int_equal(st.st_size, limited ? 0 : STORE_HEAD_BYTES);
		if (limited)
			assert_non_null(strstr(err.msg, "holes"));
		rec_store_destroy(s);
	}
	no_holes = 0;
}

static void limits_need_a_file(void **state)
{
	const struct rec_store_opts opts = { .max_bytes = 1 };
	struct rec_store *s;
	int p[2];

	(void)state;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	assert_int_equal(rec_store_create(p[1], &opts, &s, NULL), -EOPNOTSUPP);
	close(p[0]);
	close(p[1]);
}

static void damage_is_found(void **state)
{
	const struct rec_store_opts opts = { 0 };
	struct seen s;
	u64 size;
	u8 byte;

	(void)state;
	store(&opts, 20000, 65536, true);
	size = file_size() - 16; /* the trailer is not read */
	for (u64 at = STORE_HEAD_BYTES; at < size; at += 211) {
		assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
		byte ^= 0x10;
		assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
		if (!read_back(&s)) /* as the end of the blocks, or what comes after it */
			assert_true(s.end == REC_CUT || at > size - 1000);
		byte ^= 0x10;
		assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
	}
	assert_int_equal(read_back(&s), 0);
}

static void not_a_recording(void **state)
{
	const struct rec_store_opts opts = { 0 };
	struct err err = { 0 };
	struct rec_store *s;

	(void)state;
	assert_int_equal(rec_store_create(fd, &opts, &s, NULL), 0);
	assert_int_equal(rec_store_add(s, "{\"title\": \"a problem\"}", 22), -EBADMSG);
	assert_int_equal(rec_store_add(s, "", 0), -EBADMSG);
	rec_store_destroy(s);
	fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
	assert_int_equal(rec_store_create(fd, &opts, &s, &err), -ENOSPC);
	assert_int_equal(err.code, ERR_IO);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(round_trip),
		T(tasks_that_change_slots),
		T(cut_anywhere),
		T(flushed_by_time),
		T(kept_within_bytes),
		T(small_blocks_give_their_space_back),
		T(killed_while_it_drops),
		T(kept_within_age),
		T(limits_need_a_file),
		T(limits_need_holes),
		T(damage_is_found),
		T(not_a_recording),
		T(names_without_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
