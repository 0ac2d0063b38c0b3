// SPDX-License-Identifier: Apache-2.0
/* Stacks are kept once, stay where they are, and are bounded; text, JSON and the recording have them. */
#include "tracers/output.h"
#include "tracers/profile.h"
#include "tracers/stacks.h"
#include "tracers/store.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#define BASE 0xffffffff81000000ull

static const u32 callers[] = { 0x81000110, 0x81000205, 0x81000300 };

/* A function every 0x100 bytes: fn0, fn1 ... */
static bool sym(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	static char name[8][8];
	u64 i = (addr - BASE) / 0x100;

	(void)arg;
	if (i >= ARRAY_SIZE(name))
		return false;
	snprintf(name[i], sizeof(name[i]), "fn%u", (unsigned int)i);
	*ret = (struct kernel_sym){ name[i], NULL, BASE + i * 0x100, 0x100, 'T' };
	*off_ret = addr - ret->addr;
	return true;
}

static const struct output_names names = { .sym = sym };

static void each_is_kept_once(void **state)
{
	struct stacks *s = stacks_create();
	const struct trace_stack *a, *b;
	u32 other[] = { 0x81000110, 0x81000205, 0x81000301 };

	(void)state;
	assert_non_null(s);
	a = stacks_get(s, callers, 3);
	assert_non_null(a);
	assert_ptr_equal(stacks_get(s, callers, 3), a);
	b = stacks_get(s, other, 3);
	assert_ptr_not_equal(b, a);
	assert_ptr_not_equal(stacks_get(s, callers, 2), a);
	assert_int_equal(a->n, 3);
	assert_memory_equal(a->low, callers, sizeof(callers));
	assert_true(trace_stack_addr(a, 0) == BASE + 0x110);
	for (u32 i = 0; i < 2 * STACKS_MAX; i++) {
		other[2] = i;
		(void)!stacks_get(s, other, 3);
	}
	assert_true(stacks_refused(s) > 0);
	assert_memory_equal(a->low, callers, sizeof(callers));
	assert_ptr_equal(stacks_get(s, callers, 3), a); /* known ones are found all the same */
	assert_int_equal(stacks_refused(s), 2 * STACKS_MAX - (STACKS_MAX - 3));
	stacks_destroy(s);
}

static u64 cpu_ms(void)
{
	struct rusage r;

	assert_int_equal(getrusage(RUSAGE_SELF, &r), 0);
	return (u64)r.ru_utime.tv_sec * 1000 + (u64)r.ru_utime.tv_usec / 1000;
}

/*
 * Stacks of one caller each that a hash without a key has in 64 places next to each other. Each costs what others
 * cost, and none is refused.
 */
static void chosen_stacks(void **state)
{
	static u32 chosen[20000];
	const u64 factor = 0x9e3779b97f4a7c15;
	struct stacks *s = stacks_create();
	u32 n = 0;
	u64 began;

	(void)state;
	for (u32 low = 0; n < ARRAY_SIZE(chosen); low++) {
		if (!(((low ^ 1) * factor) >> 32 & (2 * STACKS_MAX - 64)))
			chosen[n++] = low;
	}
	began = cpu_ms();
	for (u32 round = 0; round < 3; round++) {
		for (u32 i = 0; i < n; i++)
			assert_non_null(stacks_get(s, &chosen[i], 1));
	}
	assert_in_range(cpu_ms() - began, 0, 250);
	assert_int_equal(stacks_refused(s), 0);
	stacks_destroy(s);
}

static struct trace_record call(const struct trace_stack *stack)
{
	return (struct trace_record){ .seq = 1,
				      .ts_ns = 1500000,
				      .ip = BASE + 4,
				      .parent = BASE + 0x110,
				      .pid = 7,
				      .tgid = 7,
				      .type = TRACE_FUNCTION,
				      .comm = "cat",
				      .stack = stack };
}

/* As the kernel has it: the event's own line, then the function and who called it. */
static void as_text(void **state)
{
	struct stacks *s = stacks_create();
	struct trace_record r = call(stacks_get(s, callers, 3));
	struct output_meta meta = { .tracer = "function_graph", .vcpus = 1 };
	struct out_layout *l;
	struct buf b = { 0 };

	(void)state;
	out_text_record(&b, &r, &names);
	/* the last one's call is the last instruction of fn2: it does not return */
	assert_string_equal(b.data,
			    "             cat-7       [000] .....     0.001500: fn0 <-fn1\n"
			    "             cat-7       [000] .....     0.001500: <stack trace>\n"
			    " => fn0\n => fn1\n => fn2\n => fn2\n");
	buf_reset(&b);
	r.type = TRACE_GRAPH_ENTRY;
	r.depth = 1;
	assert_int_equal(out_layout_create(&meta, &l, NULL), 0);
	out_layout_record(l, &b, &r, &names);
	out_layout_flush(l, &b, &names);
	assert_string_equal(b.data, " 0)               |    fn0() {\n"
				    " 0)               |      /* <stack trace>\n"
				    " => fn0\n => fn1\n => fn2\n => fn2 */\n");
	out_layout_destroy(l);
	buf_deinit(&b);
	stacks_destroy(s);
}

static void as_json(void **state)
{
	struct stacks *s = stacks_create();
	struct trace_record r = call(stacks_get(s, callers, 3));
	struct buf b = { 0 };

	(void)state;
	out_json_record(&b, &r, &names);
	assert_non_null(strstr(b.data, ",\"stack\":[\"fn1+0x10\",\"fn2+0x5\",\"fn2+0x100\"]}\n"));
	buf_deinit(&b);
	stacks_destroy(s);
}

static void kept_for_readers(void **state)
{
	struct stacks *s = stacks_create();
	struct trace_record r[2] = { call(stacks_get(s, callers, 2)), call(NULL) }, got[2];
	struct trace_page page = { .buf = got, .max = 2 };
	struct store *store;

	(void)state;
	assert_int_equal(store_create(1024, 0, true, &store, NULL), 0);
	for (u32 i = 0; i < 2000; i++) /* the second one's place had one before */
		store_append(store, r, 2 - (i & 1));
	store_append(store, r, 2);
	assert_int_equal(store_read(store, 3000, &page, NULL), 0);
	assert_int_equal(page.n, 2);
	assert_ptr_equal(got[0].stack, r[0].stack);
	assert_null(got[1].stack);
	store_destroy(store);
	stacks_destroy(s);
}

/* Of @data: how many records, the third's stack compared. */
static void read_recording(const struct buf *b)
{
	struct rec_reader *reader;
	struct trace_record r;
	enum rec_kind kind;
	u64 off;
	struct kernel_sym found;
	struct output_names n;

	assert_int_equal(rec_reader_open_mem(b->data, b->len, &reader, NULL), 0);
	assert_true(rec_reader_meta(reader)->stacks);
	n = rec_reader_names(reader);
	for (u32 i = 0; i < 4; i++) {
		assert_int_equal(rec_reader_next(reader, &kind, &r, NULL), 0);
		assert_int_equal(kind, REC_RECORD);
		if (i == 1) {
			assert_null(r.stack);
			continue;
		}
		assert_int_equal(r.stack->n, i == 3 ? 2 : 3);
		assert_memory_equal(r.stack->low, callers, r.stack->n * sizeof(u32));
		assert_true(n.sym(n.arg, trace_stack_addr(r.stack, 1) - 1, &found, &off));
		assert_string_equal(found.name, "fn2");
	}
	assert_int_equal(rec_reader_next(reader, &kind, &r, NULL), 0);
	assert_int_equal(kind, REC_END);
	rec_reader_close(reader);
}

static void in_a_recording(void **state)
{
	struct stacks *s = stacks_create();
	const struct trace_stack *stack[] = { stacks_get(s, callers, 3), NULL,
					      stacks_get(s, callers, 3),
					      stacks_get(s, callers, 2) };
	struct output_meta meta = { .tracer = "function", .vcpus = 1, .stacks = true };
	struct rec_writer *w;
	struct buf b = { 0 };
	u8 *version;

	(void)state;
	assert_int_equal(rec_writer_create(&meta, &w, NULL), 0);
	rec_writer_head(w, &b);
	for (u32 i = 0; i < ARRAY_SIZE(stack); i++) {
		struct trace_record r = call(stack[i]);

		r.seq = i + 1;
		rec_writer_add(w, &b, &r, &names);
	}
	rec_writer_end(w, &b, &meta);
	rec_writer_destroy(w);
	read_recording(&b);
	/* a reader of before says so, and what says that it is of before cannot have them */
	version = (u8 *)b.data + 8;
	assert_int_equal(*version, 4);
	*version = 3;
	{
		struct rec_reader *reader;
		struct trace_record r;
		enum rec_kind kind;
		struct err err = { 0 };

		assert_int_equal(rec_reader_open_mem(b.data, b.len, &reader, NULL), 0);
		assert_int_equal(rec_reader_next(reader, &kind, &r, &err), -EBADMSG);
		rec_reader_close(reader);
	}
	buf_deinit(&b);
	stacks_destroy(s);
}

/* Of the function tracer's: calls with their callers, counted. */
static void folded(void **state)
{
	struct stacks *s = stacks_create();
	struct profile *p = profile_create(true);
	struct trace_record r = call(stacks_get(s, callers, 2));
	struct buf b = { 0 };

	(void)state;
	for (u32 i = 0; i < 3; i++)
		assert_int_equal(profile_add(p, &r, &names), 0);
	r.stack = NULL;
	assert_int_equal(profile_add(p, &r, &names), 0);
	profile_folded(p, &b);
	assert_string_equal(b.data, "cat;fn2;fn1;fn0 3\n");
	buf_deinit(&b);
	profile_destroy(p);
	stacks_destroy(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_is_kept_once),
		cmocka_unit_test(chosen_stacks),
		cmocka_unit_test(as_text),
		cmocka_unit_test(as_json),
		cmocka_unit_test(kept_for_readers),
		cmocka_unit_test(in_a_recording),
		cmocka_unit_test(folded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
