// SPDX-License-Identifier: Apache-2.0
/*
 * Addresses that a guest makes up, as many as it likes: a recording names so many, and tells of the others. Addresses that someone chose to share a place in a table do not.
 */
#include "tests/unit/test_tracers_file.h"

#include "tracers/addr_hash.h"
#include "tracers/rec_priv.h"
#include "tracers/rec_writer_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BASE   0xffffffff81000000
#define FACTOR 0x9e3779b97f4a7c15 /* of the hashes that all tables had in common */
#define SYMS   65536u

static char short_name[] = "function", long_name[REC_NAME_MAX + 1];

/* Each fourth byte has a name. */
static bool some_sym(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	if (addr % 4)
		return false;
	*ret = (struct kernel_sym){ .name = arg, .addr = addr, .size_bytes = 4, .type = 't' };
	*off_ret = 0;
	return true;
}

static struct output_meta meta = { .tracer = "function" };

/* Record @i, of two addresses that no other has. */
static struct trace_record make_record(u64 i)
{
	return (struct trace_record){ .seq = i + 1,
				      .ts_ns = i,
				      .type = TRACE_FUNCTION,
				      .ip = BASE + 2 * i,
				      .parent = BASE + 2 * i + 1 };
}

/* Record @i as it should be read: what there was no room for is the one symbol that says so. */
static void check_record(const struct trace_record *r, u64 i, const struct output_names *names)
{
	const struct trace_record want = make_record(i);
	struct kernel_sym sym;
	u64 off;

	assert_int_equal(r->seq, want.seq);
	if (i < OUTPUT_ADDRS_MAX / 2) {
		assert_int_equal(r->ip, want.ip);
		assert_int_equal(r->parent, want.parent);
		return;
	}
	assert_int_equal(r->ip, OUTPUT_SHARED_ADDR);
	assert_int_equal(r->parent, OUTPUT_SHARED_ADDR);
	assert_true(names->sym(names->arg, r->ip, &sym, &off));
	assert_string_equal(sym.name, OUTPUT_SHARED_NAME);
}

/* More addresses than a kernel has: memory ends growing, and the recording can be read. */
static void a_recording_ends_growing(void **state)
{
	const struct output_names names = { .sym = some_sym, .arg = short_name };
	const u64 n = OUTPUT_ADDRS_MAX / 2 + 1000;
	struct output_names back;
	struct rec_reader *reader;
	struct rec_writer *w;
	struct trace_record r;
	enum rec_kind kind = REC_RECORD;
	struct buf out = { 0 };
	struct err err = { 0 };

	(void)state;
	assert_int_equal(rec_writer_create(&meta, &w, NULL), 0);
	rec_writer_head(w, &out);
	for (u64 i = 0; i < n; i++) {
		r = make_record(i);
		rec_writer_add(w, &out, &r, &names);
	}
	/* those that have a name keep it */
	r = make_record(n);
	r.ip = BASE;
	rec_writer_add(w, &out, &r, &names);
	assert_true(w->seen_slots <= 4 * OUTPUT_ADDRS_MAX);
	assert_int_equal(w->n_shared, 2 * 1000 + 1);
	rec_writer_end(w, &out, &meta);
	assert_false(buf_failed(&out));
	rec_writer_destroy(w);
	assert_int_equal(rec_reader_open_mem(out.data, out.len, &reader, &err), 0);
	back = rec_reader_names(reader);
	for (u64 i = 0; i < n; i++) {
		assert_int_equal(rec_reader_next(reader, &kind, &r, &err), 0);
		assert_int_equal(kind, REC_RECORD);
		check_record(&r, i, &back);
	}
	assert_int_equal(rec_reader_next(reader, &kind, &r, &err), 0);
	assert_int_equal(r.ip, BASE);
	assert_int_equal(rec_reader_next(reader, &kind, &r, &err), 0);
	assert_int_equal(kind, REC_END);
	assert_int_equal(rec_reader_meta(reader)->n_unnamed, 2 * 1000 + 1);
	rec_reader_close(reader);
	buf_deinit(&out);
}

/* So with names of a thousand bytes: a reader has room for all that is written. */
static void long_names_end_it_before(void **state)
{
	const struct output_names names = { .sym = some_sym, .arg = long_name };
	struct rec_writer *w;
	struct buf out = { 0 };
	u64 bytes = 0;

	(void)state;
	memset(long_name, 'n', REC_NAME_MAX);
	assert_int_equal(rec_writer_create(&meta, &w, NULL), 0);
	for (u64 i = 0; i < 2 * 150000; i += 2) {
		struct trace_record r = make_record(i);

		rec_writer_add(w, &out, &r, &names);
		bytes += out.len;
		rec_writer_whole(w, &out);
		buf_reset(&out);
	}
	assert_true(w->kept <= OUTPUT_NAMES_MAX);
	assert_true(w->n_shared > 0);
	assert_in_range(bytes, OUTPUT_NAMES_MAX / 2, OUTPUT_NAMES_MAX + (32u << 20));
	rec_writer_destroy(w);
	buf_deinit(&out);
}

static struct rec_reader *reader_of(struct buf *file)
{
	struct rec_reader *reader;
	struct trace_record r;
	enum rec_kind kind = REC_RECORD;

	add_chunk(file, REC_CHUNK_END, "{}", 2);
	assert_int_equal(rec_reader_open_mem(file->data, file->len, &reader, NULL), 0);
	assert_int_equal(rec_reader_next(reader, &kind, &r, NULL), 0);
	assert_int_equal(kind, REC_END);
	return reader;
}

static void begin(struct buf *file)
{
	u32 head[2] = { REC_VERSION, 0 };

	buf_add(file, REC_MAGIC, REC_MAGIC_BYTES);
	buf_add(file, head, sizeof(head));
	add_chunk(file, REC_CHUNK_META, "{}", 2);
}

static void add_sym(struct buf *file, u64 addr)
{
	u8 payload[15] = { 0 };

	memcpy(payload, &addr, sizeof(addr));
	add_chunk(file, REC_CHUNK_SYM, payload, sizeof(payload));
}

/* 1 / @n modulo 2^64: five steps of Newton's, each with twice the bits. */
static u64 inverse(u64 n)
{
	u64 x = n;

	for (int i = 0; i < 6; i++)
		x *= 2 - n * x;
	return x;
}

/* A file's addresses were chosen for one place: what it takes to find each once is as if they were not. */
static void chosen_addresses(void **state)
{
	struct rec_reader *reader;
	struct buf file = { 0 };
	u64 steps = 0;

	(void)state;
	begin(&file);
	for (u64 i = 1; i <= SYMS; i++)
		add_sym(&file, i * inverse(FACTOR));
	reader = reader_of(&file);
	assert_int_equal(reader->n_syms, SYMS);
	for (size_t h = 0; h < reader->by_addr_slots; h++) {
		u32 i = reader->by_addr[h];

		if (i)
			steps += 1 + ((h - addr_hash(reader->syms[i - 1].addr, reader->key)) &
				      (reader->by_addr_slots - 1));
	}
	assert_in_range(steps, SYMS, 8 * SYMS);
	rec_reader_close(reader);
	buf_deinit(&file);
}

/* And of two tables of one process each has a key of its own. */
static void keys_differ(void **state)
{
	u32 same = 0;
	u64 a = addr_hash_key(), b = addr_hash_key();

	(void)state;
	assert_int_not_equal(a, b);
	for (u64 i = 1; i <= SYMS; i++)
		same += addr_hash(i * inverse(FACTOR), a) % SYMS ==
			addr_hash(i * inverse(FACTOR), b) % SYMS;
	assert_true(same < 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_recording_ends_growing),
		cmocka_unit_test(long_names_end_it_before),
		cmocka_unit_test(chosen_addresses),
		cmocka_unit_test(keys_differ),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
