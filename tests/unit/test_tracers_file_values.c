// SPDX-License-Identifier: Apache-2.0
/* Recordings of version 3: values and prototypes, switches, turns; versions 1 and 2 are still read. */
#include "tests/unit/test_tracers_file.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define BASE    0xffffffff81000000
#define RECORDS 3000

static u64 rng;
static char long_name[300];

static u64 next_random(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng;
}

static bool fake_sym(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	(void)arg;
	*ret = (struct kernel_sym){ .name = "f", .addr = addr, .size_bytes = 16, .type = 't' };
	*off_ret = 0;
	return true;
}

static int asked;

/* Each third function has none. */
static bool fake_func(void *arg, u64 ip, struct kernel_func *ret)
{
	static const char *const names[] = { "a", "b", "", "a_longer_name" };
	u32 n = (u32)(ip >> 4);

	(void)arg;
	asked++;
	*ret = (struct kernel_func){ .n_params = (u8)(n % (KERNEL_FUNC_MAX_PARAMS + 1)),
				     .n_regs = (u8)(n % 7) };
	ret->ret = (struct kernel_val){
		.name = "", .type = "long", .size = 8, .reg = 0xff, .kind = 2
	};
	for (u32 i = 0; i < ret->n_params; i++)
		ret->params[i] =
			(struct kernel_val){ .name = n % 50 ? names[(n + i) % 4] : long_name,
					     .type = names[i % 4],
					     .size = (u8)(n + i),
					     .reg = i < 6 ? (u8)i : 0xff,
					     .kind = (n + i) % (KERNEL_VAL_OTHER + 1) };
	return n % 3;
}

static const struct output_names names = { .sym = fake_sym, .func = fake_func };

static struct trace_record make_record(u64 seq)
{
	struct trace_record r = {
		.seq = seq, .ts_ns = seq * 100, .comm = "c", .pid = 3, .tgid = 3
	};

	r.type = (u8)(TRACE_FUNCTION + next_random() % 6);
	r.cpu = (u16)(next_random() % 3);
	r.ctx = (u16)(next_random() % 4);
	if (r.type == TRACE_SWITCH) {
		r.prev_pid = (u32)(next_random() >> 44);
		return r;
	}
	r.depth = (u16)(next_random() % (r.type == TRACE_TRACER ? 2 : 60));
	if (r.type == TRACE_TRACER)
		return r;
	r.ip = BASE + next_random() % 300 * 16;
	if (r.type == TRACE_GRAPH_RETURN) {
		r.duration_ns = next_random() >> 30;
		r.has_retval = next_random() % 2;
		r.retval = r.has_retval ? next_random() >> next_random() % 64 : 0;
		return r;
	}
	r.parent = BASE + next_random() % 300 * 16;
	r.n_args = (u8)(next_random() % (TRACE_MAX_ARGS + 1));
	for (u32 i = 0; i < r.n_args; i++)
		r.args[i] = next_random() >> next_random() % 64;
	return r;
}

static void same_val(const struct kernel_val *got, const struct kernel_val *want)
{
	assert_int_equal(got->kind, want->kind);
	assert_int_equal(got->size, want->size);
	assert_int_equal(got->reg, want->reg);
	assert_string_equal(got->type, want->type);
	if (want->name == long_name) /* cut */
		assert_int_equal(strlen(got->name), REC_VAL_NAME);
	else
		assert_string_equal(got->name, want->name);
}

static void check_func(const struct output_names *got_names, u64 ip)
{
	struct kernel_func got, want;
	bool known = fake_func(NULL, ip, &want);

	assert_int_equal(got_names->func(got_names->arg, ip, &got), known);
	if (!known)
		return;
	assert_int_equal(got.n_params, want.n_params);
	assert_int_equal(got.n_regs, want.n_regs);
	same_val(&got.ret, &want.ret);
	for (u32 i = 0; i < got.n_params; i++)
		same_val(&got.params[i], &want.params[i]);
}

static void same_record(const struct trace_record *got, const struct trace_record *want)
{
	assert_int_equal(got->seq, want->seq);
	assert_int_equal(got->ts_ns, want->ts_ns);
	assert_int_equal(got->type, want->type);
	assert_int_equal(got->ip, want->ip);
	assert_int_equal(got->parent, want->parent);
	assert_int_equal(got->depth, want->depth);
	assert_int_equal(got->duration_ns, want->duration_ns);
	assert_int_equal(got->prev_pid, want->prev_pid);
	assert_int_equal(got->n_args, want->n_args);
	assert_memory_equal(got->args, want->args, sizeof(want->args));
	assert_int_equal(got->has_retval, want->has_retval);
	assert_int_equal(got->retval, want->retval);
	assert_int_equal(got->cpu, want->cpu);
	assert_int_equal(got->ctx, want->ctx);
	assert_int_equal(got->pid, want->pid);
}

static void values_come_back(void **state)
{
	struct output_meta meta = { .tracer = "function", .vcpus = 3, .args = true };
	struct output_names got_names;
	struct trace_record r, want;
	struct rec_writer *w;
	struct rec_reader *reader;
	struct buf b = { 0 };
	enum rec_kind kind;

	(void)state;
	memset(long_name, 'x', sizeof(long_name) - 1);
	rng = 88172645463325252;
	asked = 0;
	assert_int_equal(rec_writer_create(&meta, &w, NULL), 0);
	rec_writer_head(w, &b);
	for (u64 i = 1; i <= RECORDS; i++) {
		r = make_record(i);
		rec_writer_add(w, &b, &r, &names);
	}
	assert_in_range(asked, 1, 300); /* each is looked for once */
	rec_writer_end(w, &b, &meta);
	rec_writer_destroy(w);
	assert_false(buf_failed(&b));
	assert_int_equal(rec_reader_open_mem(b.data, b.len, &reader, NULL), 0);
	assert_true(rec_reader_meta(reader)->args);
	got_names = rec_reader_names(reader);
	rng = 88172645463325252;
	for (u64 i = 1; i <= RECORDS; i++) {
		want = make_record(i);
		assert_int_equal(rec_reader_next(reader, &kind, &r, NULL), 0);
		assert_int_equal(kind, REC_RECORD);
		same_record(&r, &want);
		if (r.n_args || r.has_retval)
			check_func(&got_names, r.ip);
	}
	assert_int_equal(rec_reader_next(reader, &kind, &r, NULL), 0);
	assert_int_equal(kind, REC_END);
	rec_reader_close(reader);
	buf_deinit(&b);
}

/* Two enums of one function, and what it returns: names go with the values that occur. */
static bool enum_func(void *arg, u64 ip, struct kernel_func *ret)
{
	(void)arg;
	(void)ip;
	*ret = (struct kernel_func){ .n_params = 3,
				     .n_regs = 3,
				     .ret = { .name = "",
					      .type = "e",
					      .size = 4,
					      .kind = KERNEL_VAL_ENUM,
					      .btf_id = 70 },
				     .params = { { .name = "a",
						   .type = "e",
						   .size = 4,
						   .kind = KERNEL_VAL_ENUM,
						   .btf_id = 70 },
						 { .name = "n",
						   .type = "int",
						   .size = 4,
						   .reg = 1,
						   .kind = KERNEL_VAL_SIGNED },
						 { .name = "b",
						   .type = "g",
						   .size = 8,
						   .reg = 2,
						   .kind = KERNEL_VAL_ENUM,
						   .btf_id = 71 } } };
	return true;
}

static const char *enum_name(void *arg, const struct kernel_val *v, s64 val)
{
	(void)arg;
	if (v->btf_id == 70)
		return val == -3 ? "BLUE" : val == 1 ? "RED" : NULL;
	assert_int_equal(v->btf_id, 71);
	return val == 1ll << 40 ? "HUGE" : NULL;
}

static void enumerators_come_back(void **state)
{
	static const struct output_names with = { .sym = fake_sym,
						  .func = enum_func,
						  .enumerator = enum_name };
	struct output_meta meta = { .tracer = "function_graph", .vcpus = 1, .args = true };
	struct trace_record r = {
		.type = TRACE_GRAPH_ENTRY, .ip = BASE, .parent = BASE + 16, .n_args = 3
	};
	struct output_names got;
	struct rec_writer *w;
	struct rec_reader *reader;
	struct kernel_func f;
	struct buf b = { 0 };
	size_t len = 0;
	enum rec_kind kind;

	(void)state;
	assert_int_equal(rec_writer_create(&meta, &w, NULL), 0);
	rec_writer_head(w, &b);
	for (u32 i = 0; i < 300; i++) {
		r.seq = i + 1;
		r.args[0] = i % 2 ? 0x12345678fffffffd : 1; /* what is above it is left over */
		r.args[2] = i % 3 ? 1ull << 40 : 5;
		rec_writer_add(w, &b, &r, &with);
		if (i == 10)
			len = b.len;
	}
	assert_true(b.len - len < 290 * 24); /* not again and again */
	r.seq++;
	r.type = TRACE_GRAPH_RETURN;
	r.has_retval = true;
	r.retval = 1;
	rec_writer_add(w, &b, &r, &with);
	rec_writer_end(w, &b, &meta);
	rec_writer_destroy(w);
	assert_int_equal(rec_reader_open_mem(b.data, b.len, &reader, NULL), 0);
	got = rec_reader_names(reader);
	do {
		assert_int_equal(rec_reader_next(reader, &kind, &r, NULL), 0);
	} while (kind == REC_RECORD);
	assert_int_equal(kind, REC_END);
	assert_true(got.func(got.arg, BASE, &f));
	assert_string_equal(got.enumerator(got.arg, &f.params[0], -3), "BLUE");
	assert_string_equal(got.enumerator(got.arg, &f.params[0], 1), "RED");
	assert_null(got.enumerator(got.arg, &f.params[0], 2));
	assert_string_equal(got.enumerator(got.arg, &f.params[2], 1ll << 40), "HUGE");
	assert_null(got.enumerator(got.arg, &f.params[2], 5));
	assert_string_equal(got.enumerator(got.arg, &f.ret, 1), "RED");
	assert_null(got.enumerator(got.arg, &f.ret, -3)); /* did not occur */
	rec_reader_close(reader);
	buf_deinit(&b);
}

/* One symbol and then a chunk: what reading its first item gives. */
static int read_forged(u8 version, u8 type, const void *payload, u32 len, struct trace_record *rec)
{
	const u8 head[8] = { version };
	struct rec_reader *r;
	struct buf b = { 0 };
	enum rec_kind kind;
	int rc;

	buf_add(&b, REC_MAGIC, REC_MAGIC_BYTES);
	buf_add(&b, head, 8);
	add_chunk(&b, 'M', "{}", 2);
	add_chunk(&b, 'S', "\x10\0\0\0\0\0\0\0\0\0t\x01\0f\0\0", 16);
	add_chunk(&b, type, payload, len);
	assert_int_equal(rec_reader_open_mem(b.data, b.len, &r, NULL), 0);
	rc = rec_reader_next(r, &kind, rec, NULL);
	rec_reader_close(r);
	buf_deinit(&b);
	return rc;
}

#define START "\x01\0\0\0\0\0\0\0\0"

static void older_versions_are_read(void **state)
{
	struct trace_record r;

	(void)state;
	/* flags, ts, ip, parent */
	assert_int_equal(read_forged(1, 'R', START "\x20\x02\0\0", 9 + 4, &r), 0);
	assert_int_equal(r.type, TRACE_FUNCTION);
	assert_int_equal(r.ts_ns, 1);
	assert_int_equal(r.ip, 16);
	assert_int_equal(r.parent, 16);
	/* flags, ts, ip, parent, depth; depth, duration */
	assert_int_equal(read_forged(2, 'R', START "\x40\x02\0\0\x05", 9 + 5, &r), 0);
	assert_int_equal(r.type, TRACE_GRAPH_ENTRY);
	assert_int_equal(r.depth, 5);
	assert_int_equal(read_forged(2, 'R', START "\x60\x02\0\x05\x07", 9 + 5, &r), 0);
	assert_int_equal(r.duration_ns, 7);
	assert_int_equal(r.parent, 0);
	/* and have nothing of what came later */
	assert_int_equal(read_forged(2, 'R', START "\xa0\x02\x05", 9 + 3, &r), -EBADMSG);
	assert_int_equal(read_forged(2, 'P', "\0\0\0\0\0\0\0\0\0\0\0", 10, &r), -EBADMSG);
}

static void forged_values_are_refused(void **state)
{
	static const struct {
		u8 type;
		const char *payload;
		u32 len;
		bool good;
	} cases[] = {
		{ 'R', START "\x50\0\x01\0\0\x05\x02\x07\x08", 9 + 9, true },
		{ 'R', START "\x50\0\x01\0\0\x05\0", 9 + 7, false }, /* no words */
		{ 'R', START "\x50\0\x01\0\0\x05\x07\1\2\3\4\5\6\7", 9 + 14, false }, /* too many */
		{ 'R', START "\x50\0\0\0\0\x05", 9 + 6, false }, /* more flags, but none */
		{ 'R', START "\x50\0\x04\0\0\x05", 9 + 6, false }, /* one there is not */
		{ 'R', START "\x50\0\x02\0\0\x05", 9 + 6,
		  false }, /* a depth that is there anyway */
		{ 'R', START "\x70\0\x01\0\x05\x07\x01\x09", 9 + 8, true },
		{ 'R', START "\x70\0\x01\0\x05\x07\x02\x09\x09", 9 + 9, false }, /* returns two */
		{ 'R', START "\x30\0\x02\0\0\x05", 9 + 6, true },
		{ 'R', START "\x20\0\0\0", 9 + 4, true },
		{ 'R', START "\xa0\0\x05", 9 + 3, true },
		{ 'R', START "\xb0\0\x05", 9 + 3, false },
		{ 'R', START "\xa0\0", 9 + 2, false },
		{ 'R', START "\xc0\0\x01", 9 + 3, true },
		{ 'R', START "\xc0\0\x02", 9 + 3, false }, /* no such tracer */
		{ 'R', START "\xe0\0\0\0\0", 9 + 5, true },
		{ 'R', START "\xe0\0\0\0", 9 + 4, false },
		{ 'R', START "\x00\0\0\0\0", 9 + 5, false }, /* a marker without text */
		{ 'R', START "\x00\0\2ab", 9 + 5, true },
		{ 'R', START "\x00\0\3ab", 9 + 5, false },
		{ 'R', START "\x10\0\2ab", 9 + 5, false },
		/* symbol, n_regs, n_params, kind, size, reg, name, type */
		{ 'P', "\0\0\0\0\0\0\0\0\0\0", 10, true },
		{ 'P', "\1\0\0\0\0\0\0\0\0\0", 10, false }, /* symbol 1 */
		{ 'P', "\0\7\0\0\0\0\0\0\0\0", 10, false },
		{ 'P', "\0\0\x11\0\0\0\0\0\0\0", 10, false },
		{ 'P', "\0\0\1\0\0\0\0\0\0\0", 10, false }, /* the parameter is missing */
		{ 'P', "\0\0\0\x08\0\0\0\0\0\0", 10, false }, /* a kind there is not */
		{ 'P', "\0\0\0\0\0\x06\0\0\0\0", 10, false }, /* a register there is not */
		{ 'P', "\0\0\0\0\0\xff\1\0\0\0\0", 11, false }, /* a NUL in a name */
		{ 'P', "\0\0\0\0\0\xff\2\0ab\xff\xff", 12, false },
	};
	struct trace_record r;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		int rc = read_forged(3, cases[i].type, cases[i].payload, cases[i].len, &r);

		assert_int_equal(rc, cases[i].good ? 0 : -EBADMSG);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(enumerators_come_back),
		cmocka_unit_test(values_come_back),
		cmocka_unit_test(older_versions_are_read),
		cmocka_unit_test(forged_values_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
