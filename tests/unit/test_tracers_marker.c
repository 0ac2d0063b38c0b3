// SPDX-License-Identifier: Apache-2.0
/* Markers through all that shows and keeps records; and copies of a store. */
#include "tracers/output.h"
#include "tracers/profile.h"
#include "tracers/store.h"
#include "tracers/sys_out.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char text[] = "load \"test\" \x1b[1m begins";

static bool no_sym(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	(void)arg;
	(void)addr;
	*ret = (struct kernel_sym){ 0 };
	*off_ret = 0;
	return false;
}

static const struct output_names names = { .sym = no_sym };

static struct trace_record marker(u64 seq)
{
	return (struct trace_record){ .seq = seq,
				      .ts_ns = 12345678900,
				      .type = TRACE_MARKER,
				      .text = text,
				      .comm = "<...>" };
}

static void as_json(void **state)
{
	struct trace_record r = marker(7);
	_cleanup_buf_ struct buf b = { 0 };

	(void)state;
	out_json_record(&b, &r, &names);
	assert_string_equal(b.data, "{\"seq\":7,\"type\":\"marker\",\"ts_ns\":12345678900,"
				    "\"text\":\"load \\\"test\\\" \\u001b[1m begins\"}\n");
}

static void as_text(void **state)
{
	struct trace_record r = marker(7);
	_cleanup_buf_ struct buf b = { 0 };

	(void)state;
	out_text_record(&b, &r, &names);
	assert_string_equal(
		b.data, "          <host>-0       [000] .....    12.345679: tracing_mark_write: "
			"load \"test\" ?[1m begins\n");
}

static void in_a_graph(void **state)
{
	const struct output_meta meta = { .tracer = "function_graph" };
	struct trace_record r[] = {
		{ .seq = 1, .type = TRACE_GRAPH_ENTRY, .ip = 0x1000, .pid = 3, .comm = "sh" },
		marker(2),
		{ .seq = 3,
		  .type = TRACE_GRAPH_RETURN,
		  .ip = 0x1000,
		  .pid = 3,
		  .comm = "sh",
		  .duration_ns = 1000 },
	};
	_cleanup_buf_ struct buf b = { 0 };
	struct out_layout *l;
	struct err err = { 0 };

	(void)state;
	assert_int_equal(out_layout_create(&meta, &l, &err), 0);
	for (size_t i = 0; i < ARRAY_SIZE(r); i++)
		out_layout_record(l, &b, &r[i], &names);
	out_layout_flush(l, &b, &names);
	/* the call is still one without callees: a marker is of no task */
	assert_non_null(strstr(b.data, "1.000 us    |  0x1000();\n"));
	assert_non_null(strstr(b.data, "|  /* load \"test\" ?[1m begins */\n"));
	assert_null(strstr(b.data, "=>"));
	out_layout_destroy(l);
}

static void between_system_calls(void **state)
{
	static const struct {
		enum sys_format format;
		const char *starts;
	} forms[] = { { SYS_JSON, "{\"seq\":7,\"type\":\"marker\"" },
		      { SYS_TEXT, "          <host>-0 " },
		      { SYS_FALCO, "" },
		      { SYS_SUMMARY, "" } };
	struct trace_record r = marker(7);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		struct sys_out *o = sys_out_create(forms[i].format, "g");
		_cleanup_buf_ struct buf b = { 0 };

		assert_non_null(o);
		sys_out_record(o, &b, &r, &names);
		if (*forms[i].starts)
			assert_ptr_equal(strstr(b.data, forms[i].starts), b.data);
		else
			assert_int_equal(b.len, 0);
		sys_out_destroy(o);
	}
}

static void in_a_recording(void **state)
{
	const struct output_meta meta = { .tracer = "function", .guest = "g" };
	_cleanup_buf_ struct buf b = { 0 };
	char longest[TRACE_MARKER_MAX + 1];
	struct trace_record r = marker(1), got;
	struct rec_writer *w;
	struct rec_reader *rd;
	struct err err = { 0 };
	enum rec_kind kind;

	(void)state;
	memset(longest, 'x', TRACE_MARKER_MAX);
	longest[TRACE_MARKER_MAX] = 0;
	assert_int_equal(rec_writer_create(&meta, &w, &err), 0);
	rec_writer_head(w, &b);
	for (u64 seq = 1; seq <= 3; seq++) {
		r = marker(seq);
		if (seq == 2)
			r.text = longest;
		rec_writer_add(w, &b, &r, &names);
	}
	rec_writer_end(w, &b, &meta);
	rec_writer_destroy(w);
	assert_false(buf_failed(&b));
	assert_int_equal(rec_reader_open_mem(b.data, b.len, &rd, &err), 0);
	for (u64 seq = 1; seq <= 3; seq++) {
		assert_int_equal(rec_reader_next(rd, &kind, &got, &err), 0);
		assert_int_equal(kind, REC_RECORD);
		assert_int_equal(got.type, TRACE_MARKER);
		assert_int_equal(got.seq, seq);
		assert_int_equal(got.ts_ns, r.ts_ns);
		assert_string_equal(got.text, seq == 2 ? longest : text);
	}
	assert_int_equal(rec_reader_next(rd, &kind, &got, &err), 0);
	assert_int_equal(kind, REC_END);
	rec_reader_close(rd);
}

static void a_store_keeps_which(void **state)
{
	struct trace_record r[3], got[3];
	struct trace_page page = { .buf = got, .max = 3 };
	struct store *s, *copy;
	struct err err = { 0 };

	(void)state;
	assert_int_equal(store_create(1024, 0, false, &s, &err), 0);
	for (u32 i = 0; i < 3; i++) {
		r[i] = marker(0);
		r[i].prev_pid = i * 2000;
	}
	store_append(s, r, 3);
	assert_int_equal(store_copy(s, &copy, &err), 0);
	store_append(s, r, 3); /* not in the copy */
	store_destroy(s);
	assert_int_equal(store_read(copy, 0, &page, &err), 0);
	assert_int_equal(page.n, 3);
	for (u32 i = 0; i < 3; i++) {
		assert_int_equal(got[i].seq, i + 1);
		assert_int_equal(got[i].type, TRACE_MARKER);
		assert_int_equal(got[i].prev_pid, i * 2000);
	}
	store_destroy(copy);
}

/* Round a ring that was filled more than once, with names and values. */
static void a_copy_is_the_same(void **state)
{
	struct trace_record got[2][64];
	struct trace_page page;
	struct store *s[2];
	struct err err = { 0 };

	(void)state;
	assert_int_equal(store_create(1024, TRACE_MAX_ARGS, false, &s[0], &err), 0);
	for (u64 i = 0; i < 3000; i++) {
		struct trace_record r = { .type = TRACE_FUNCTION,
					  .ts_ns = i,
					  .ip = 0xffffffff81000000 + i,
					  .parent = 0xffffffff82000000 + i,
					  .n_args = (u8)(i % 7),
					  .args = { i, i + 1, i + 2, i + 3, i + 4, i + 5 } };

		snprintf(r.comm, sizeof(r.comm), "task%llu", (unsigned long long)(i % 50));
		store_append(s[0], &r, 1);
	}
	assert_int_equal(store_copy(s[0], &s[1], &err), 0);
	for (u64 after = 3000 - 1024; after < 3000; after += 64) {
		memset(got, 0, sizeof(got));
		for (size_t k = 0; k < 2; k++) {
			page = (struct trace_page){ .buf = got[k], .max = 64 };
			assert_int_equal(store_read(s[k], after, &page, &err), 0);
			assert_int_equal(page.n, MIN((u64)64, 3000 - after));
		}
		assert_memory_equal(got[0], got[1], sizeof(got[0]));
	}
	store_destroy(s[0]);
	store_destroy(s[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_json),
		cmocka_unit_test(as_text),
		cmocka_unit_test(in_a_graph),
		cmocka_unit_test(between_system_calls),
		cmocka_unit_test(in_a_recording),
		cmocka_unit_test(a_store_keeps_which),
		cmocka_unit_test(a_copy_is_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
