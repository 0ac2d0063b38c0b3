// SPDX-License-Identifier: Apache-2.0
/* Initcalls as initcall_debug prints them, through a recording: it names the functions that are arguments. */
#include "tracers/out_initcalls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define ONE_INITCALL 0xffffffff81000b40ull
#define KERNEL_INIT  0xffffffff81400010ull
#define PERF_INIT    0xffffffff81d20000ull
#define MODULE_INIT  0xffffffffc0001000ull
#define VARIABLE     0xffffffff81c00000ull
#define EVIL_INIT    0xffffffffc0002000ull

static bool sym(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	static const struct kernel_sym known[] = {
		{ "do_one_initcall", NULL, ONE_INITCALL, 0x200, 'T' },
		{ "kernel_init", NULL, KERNEL_INIT, 0x100, 't' },
		{ "perf_init", NULL, PERF_INIT, 0x5b0, 't' },
		{ "mod_init", "mod", MODULE_INIT, 0x20, 't' },
		{ "variable", NULL, VARIABLE, 8, 'D' },
		{ "\x1b]0;x\a", "\x1b[2J", EVIL_INIT, 16, 't' },
	};

	(void)arg;
	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (addr - known[i].addr < known[i].size_bytes) {
			*ret = known[i];
			*off_ret = addr - known[i].addr;
			return true;
		}
	}
	return false;
}

static const struct output_names names = { .sym = sym };

static struct trace_record make(u8 type, u32 pid, u64 ts_ns)
{
	return (struct trace_record){ .type = type,
				      .pid = pid,
				      .ts_ns = ts_ns,
				      .ip = ONE_INITCALL,
				      .parent = type == TRACE_GRAPH_RETURN ? 0 : KERNEL_INIT + 5 };
}

static struct trace_record call(u32 pid, u64 ts_ns, u64 fn)
{
	struct trace_record r = make(TRACE_GRAPH_ENTRY, pid, ts_ns);

	r.n_args = 1;
	r.args[0] = fn;
	return r;
}

static struct trace_record done(u32 pid, u64 ts_ns, u64 ns, s32 ret)
{
	struct trace_record r = make(TRACE_GRAPH_RETURN, pid, ts_ns);

	r.duration_ns = ns;
	r.has_retval = true;
	r.retval = (u32)ret;
	return r;
}

/* What a recording of these shows. */
static void shows(struct trace_record *rec, size_t n, const char *want)
{
	struct output_meta meta = { .tracer = "function_graph", .vcpus = 2 };
	struct out_initcalls *o = out_initcalls_create();
	struct buf file = { 0 }, text = { 0 };
	struct output_names read;
	struct rec_reader *reader;
	struct rec_writer *w;
	struct trace_record r;
	enum rec_kind kind;

	assert_non_null(o);
	assert_int_equal(rec_writer_create(&meta, &w, NULL), 0);
	rec_writer_head(w, &file);
	for (size_t i = 0; i < n; i++) {
		rec[i].seq = i + 1;
		rec_writer_add(w, &file, &rec[i], &names);
	}
	rec_writer_end(w, &file, &meta);
	rec_writer_destroy(w);
	assert_int_equal(rec_reader_open_mem(file.data, file.len, &reader, NULL), 0);
	read = rec_reader_names(reader);
	while (!rec_reader_next(reader, &kind, &r, NULL) && kind == REC_RECORD)
		out_initcalls_record(o, &text, &r, &read);
	buf_add(&text, "", 1);
	assert_string_equal(text.data, want);
	out_initcalls_destroy(o);
	rec_reader_close(reader);
	buf_deinit(&file);
	buf_deinit(&text);
}

static void one_after_the_other(void **state)
{
	struct trace_record rec[] = { call(1, 104212345, PERF_INIT), done(1, 104319999, 107654, 0),
				      call(1, 2104320000, MODULE_INIT),
				      done(1, 2105320000, 1000000, -19) };

	(void)state;
	shows(rec, ARRAY_SIZE(rec),
	      "[    0.104212] calling  perf_init+0x0/0x5b0 @ 1\n"
	      "[    0.104319] initcall perf_init+0x0/0x5b0 returned 0 after 107 usecs\n"
	      "[    2.104320] calling  mod_init+0x0/0x20 [mod] @ 1\n"
	      "[    2.105320] initcall mod_init+0x0/0x20 [mod] returned -19 after 1000 usecs\n");
}

/* Of several tasks, one inside another's, one whose beginning was lost, and what is no initcall. */
static void tasks_and_losses(void **state)
{
	struct trace_record rec[] = { done(9, 500, 10, 0),        call(1, 1000, PERF_INIT),
				      call(2, 2000, MODULE_INIT), call(2, 2500, PERF_INIT),
				      done(1, 3000, 2000, 0),     done(2, 4000, 1500, 1),
				      done(2, 5000, 3000, 0),     call(3, 6000, VARIABLE) };

	(void)state;
	rec[7].ip = KERNEL_INIT;
	shows(rec, ARRAY_SIZE(rec),
	      "[    0.000001] calling  perf_init+0x0/0x5b0 @ 1\n"
	      "[    0.000002] calling  mod_init+0x0/0x20 [mod] @ 2\n"
	      "[    0.000002] calling  perf_init+0x0/0x5b0 @ 2\n"
	      "[    0.000003] initcall perf_init+0x0/0x5b0 returned 0 after 2 usecs\n"
	      "[    0.000004] initcall perf_init+0x0/0x5b0 returned 1 after 1 usecs\n"
	      "[    0.000005] initcall mod_init+0x0/0x20 [mod] returned 0 after 3 usecs\n");
}

/* Only functions are named by a recording: another word stays a number, however it looks. */
static void what_is_no_function(void **state)
{
	struct trace_record rec[] = { call(1, 1000, VARIABLE), call(1, 1000, 0x1234),
				      call(1, 1000, PERF_INIT + 4) };

	(void)state;
	shows(rec, ARRAY_SIZE(rec),
	      "[    0.000001] calling  0xffffffff81c00000 @ 1\n"
	      "[    0.000001] calling  0x1234 @ 1\n"
	      "[    0.000001] calling  0xffffffff81d20004 @ 1\n");
}

/* More are open than are kept: the oldest are given up, nothing else. */
static void too_many_open(void **state)
{
	struct out_initcalls *o = out_initcalls_create();
	struct buf text = { 0 };
	struct trace_record r;

	(void)state;
	for (u32 pid = 1; pid <= 1000; pid++) {
		r = call(pid, 1000, PERF_INIT);
		out_initcalls_record(o, &text, &r, &names);
	}
	assert_int_equal(out_initcalls_count(o), 1000);
	buf_reset(&text);
	r = done(1, 2000, 5000, 0);
	out_initcalls_record(o, &text, &r, &names);
	assert_int_equal(text.len, 0);
	r = done(1000, 2000, 5000, 0);
	out_initcalls_record(o, &text, &r, &names);
	assert_true(text.len > 0);
	out_initcalls_destroy(o);
	buf_deinit(&text);
}

/* Nothing that a terminal acts upon. */
static void names_are_shown_as_text(void **state)
{
	struct trace_record rec[] = { call(1, 1000, EVIL_INIT), done(1, 2000, 1000, 0) };

	(void)state;
	shows(rec, ARRAY_SIZE(rec),
	      "[    0.000001] calling  ?]0;x?+0x0/0x10 [?[2J] @ 1\n"
	      "[    0.000002] initcall ?]0;x?+0x0/0x10 [?[2J] returned 0 after 1 usecs\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_after_the_other),     cmocka_unit_test(tasks_and_losses),
		cmocka_unit_test(names_are_shown_as_text), cmocka_unit_test(what_is_no_function),
		cmocka_unit_test(too_many_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
