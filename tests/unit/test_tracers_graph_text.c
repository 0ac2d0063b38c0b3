// SPDX-License-Identifier: Apache-2.0
/* tracers/out_graph.c against what real kernels printed, and by itself. */
#include "guest-agent/agent_abi.h"
#include "tracers/output.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEXT  0xffffffff81000000
#define FUNCS 128
#define CPUS  2

static char funcs[FUNCS][64];

static bool sym(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	u64 i = (addr - TEXT) / 16;

	(void)arg;
	if (addr < TEXT || i >= FUNCS || !funcs[i][0])
		return false;
	*ret = (struct kernel_sym){ .name = funcs[i], .type = 't' };
	if (!strncmp(funcs[i], "ext4_", 5))
		ret->module = "ext4";
	*off_ret = addr % 16;
	return true;
}

static const struct output_names names = { .sym = sym, .arg = NULL };

/* Address of the function @name. */
static u64 func(const char *name)
{
	u64 i;

	for (i = 0; funcs[i][0] && strcmp(funcs[i], name) != 0; i++)
		assert_in_range(i, 0, FUNCS - 2);
	snprintf(funcs[i], sizeof(funcs[i]), "%.58s", name);
	return TEXT + 16 * i + 4;
}

static struct out_layout *layout;
static struct buf out;

static void begin(u32 vcpus)
{
	struct output_meta meta = { .tracer = "function_graph", .vcpus = vcpus };

	memset(funcs, 0, sizeof(funcs));
	assert_int_equal(out_layout_create(&meta, &layout, NULL), 0);
	buf_reset(&out);
	out_layout_head(layout, &out, &meta);
}

static void end(const char *want)
{
	static const char head[] = "# tracer: function_graph\n#\n"
				   "# CPU  DURATION                  FUNCTION CALLS\n"
				   "# |     |   |                     |   |   |   |\n";

	out_layout_flush(layout, &out, &names);
	assert_false(buf_failed(&out));
	assert_memory_equal(out.data, head, strlen(head));
	assert_string_equal(out.data + strlen(head), want);
	out_layout_destroy(layout);
	buf_deinit(&out);
}

static struct trace_record at = { .comm = "sh", .pid = 7 };

static void put(u8 type, const char *name, u16 depth, u64 ns)
{
	struct trace_record r = at;

	r.type = type;
	r.ip = func(name);
	r.depth = depth;
	r.duration_ns = ns;
	out_layout_record(layout, &out, &r, &names);
}

/* The kernel's text back into records. */
struct reading {
	struct trace_record task[CPUS]; /* pid and comm */
	struct trace_record leaf_end[CPUS]; /* type 0: none; comes before its CPU's next record */
	char entered[CPUS][50][64];
	int returns, leaves, named, switches;
};

static void task_of(char *text, struct trace_record *ret)
{
	char *dash = strrchr(text, '-');

	assert_non_null(dash);
	*dash = 0;
	snprintf(ret->comm, sizeof(ret->comm), "%.16s", text);
	ret->pid = (u32)strtoul(dash + 1, NULL, 10);
}

static bool is_switch(const char *line, u32 *cpu, char from[32], char to[32])
{
	return sscanf(line, " %u) %31s => %31s", cpu, from, to) == 3;
}

/* Whom each CPU ran before its first switch. */
static void first_tasks(FILE *f, struct reading *rd)
{
	char line[256], from[32], to[32];
	bool seen[CPUS] = { false };
	u32 cpu;

	while (fgets(line, sizeof(line), f)) {
		if (!is_switch(line, &cpu, from, to) || seen[cpu])
			continue;
		task_of(from, &rd->task[cpu]);
		seen[cpu] = true;
	}
	rewind(f);
}

static void feed_leaf_end(struct reading *rd, u32 cpu)
{
	if (rd->leaf_end[cpu].type)
		out_layout_record(layout, &out, &rd->leaf_end[cpu], &names);
	rd->leaf_end[cpu].type = 0;
}

/* "1234.56" us to ns */
static u64 duration_of(const char *text)
{
	char *dot;
	u64 ns = strtoull(text, &dot, 10) * 1000, unit = 100;

	for (dot += *dot == '.'; *dot >= '0' && *dot <= '9'; dot++, unit /= 10)
		ns += (u64)(*dot - '0') * unit;
	return ns;
}

static void feed_line(struct reading *rd, char *line)
{
	char *bar = strstr(line, "|  "), *body, *paren, name[64];
	u32 cpu = (u32)strtoul(line, NULL, 10);
	struct trace_record r;

	assert_non_null(bar);
	assert_in_range(cpu, 0, CPUS - 1);
	feed_leaf_end(rd, cpu);
	body = bar + 3 + strspn(bar + 3, " ");
	r = rd->task[cpu];
	r.cpu = (u16)cpu;
	r.depth = (u16)((body - bar - 3) / 2);
	if (strstr(line, " us "))
		r.duration_ns = duration_of(line + strlen(" 0) + "));
	paren = strchr(body, '(');
	if (*body == '}') {
		r.type = TRACE_GRAPH_RETURN;
		if (sscanf(body, "} /* %63s", name) == 1)
			rd->named++;
		else
			strcpy(name, rd->entered[cpu][r.depth]);
		rd->returns++;
		r.ip = func(name);
		out_layout_record(layout, &out, &r, &names);
		return;
	}
	assert_non_null(paren);
	*paren = 0;
	r.type = TRACE_GRAPH_ENTRY;
	r.ip = func(body);
	strcpy(rd->entered[cpu][r.depth], body);
	if (paren[2] == ';') {
		rd->leaf_end[cpu] = r;
		rd->leaf_end[cpu].type = TRACE_GRAPH_RETURN;
		rd->leaves++;
	}
	r.duration_ns = 0;
	out_layout_record(layout, &out, &r, &names);
}

static void compare_with_kernel(const char *path)
{
	static char want[100000];
	struct reading rd = { 0 };
	char line[256], from[32], to[32];
	FILE *f = fopen(path, "re");
	size_t n;
	u32 cpu;

	assert_non_null(f);
	n = fread(want, 1, sizeof(want) - 1, f);
	want[n] = 0;
	rewind(f);
	first_tasks(f, &rd);
	begin(CPUS);
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		if (is_switch(line, &cpu, from, to)) {
			feed_leaf_end(&rd, cpu);
			task_of(to, &rd.task[cpu]);
			rd.switches++;
		} else if (line[0] == ' ' && line[1] != '-') {
			feed_line(&rd, line);
		}
	}
	for (cpu = 0; cpu < CPUS; cpu++)
		feed_leaf_end(&rd, cpu);
	fclose(f);
	out_layout_flush(layout, &out, &names);
	assert_int_equal(out.len, n);
	assert_string_equal(out.data, want);
	assert_in_range(rd.leaves, 100, 500);
	assert_in_range(rd.returns, 100, 500);
	assert_in_range(rd.named, 3, 50);
	assert_in_range(rd.switches, 10, 100);
	out_layout_destroy(layout);
	buf_deinit(&out);
}

static void same_bytes_as_linux_6_1(void **state)
{
	(void)state;
	compare_with_kernel("unit/data/function_graph-6.1.txt");
}

static void same_bytes_as_linux_6_12(void **state)
{
	(void)state;
	compare_with_kernel("unit/data/function_graph-6.12.txt");
}

static void every_width_and_mark(void **state)
{
	static const u64 ns[] = { 0,          999,        1000,        10000,       10001,
				  100001,     1000001,    10000001,    100000001,   999999999,
				  1000000001, 9999999999, 99999999999, 123456789012 };

	(void)state;
	begin(1);
	for (size_t i = 0; i < ARRAY_SIZE(ns); i++) {
		put(TRACE_GRAPH_ENTRY, "f", 0, 0);
		put(TRACE_GRAPH_RETURN, "f", 0, ns[i]);
	}
	end(" 0)   0.000 us    |  f();\n"
	    " 0)   0.999 us    |  f();\n"
	    " 0)   1.000 us    |  f();\n"
	    " 0)   10.000 us   |  f();\n"
	    " 0) + 10.001 us   |  f();\n"
	    " 0) ! 100.001 us  |  f();\n"
	    " 0) # 1000.001 us |  f();\n"
	    " 0) * 10000.00 us |  f();\n"
	    " 0) @ 100000.0 us |  f();\n"
	    " 0) @ 999999.9 us |  f();\n"
	    " 0) $ 1000000 us  |  f();\n"
	    " 0) $ 9999999 us  |  f();\n"
	    " 0) $ 99999999 us |  f();\n"
	    " 0) $ 123456789 us |  f();\n");
}

static void held_until_it_is_known(void **state)
{
	struct buf *b = &out;
	size_t len;

	(void)state;
	begin(2);
	len = b->len;
	put(TRACE_GRAPH_ENTRY, "f", 0, 0);
	assert_int_equal(b->len, len);
	at.cpu = 1;
	at.pid = 8;
	put(TRACE_GRAPH_ENTRY, "g", 0, 0);
	put(TRACE_GRAPH_RETURN, "g", 0, 700);
	assert_int_equal(b->len, len); /* comes after f, which may still be a leaf */
	at.cpu = 0;
	at.pid = 7;
	put(TRACE_GRAPH_ENTRY, "h", 1, 0);
	assert_true(b->len > len);
	put(TRACE_GRAPH_RETURN, "h", 1, 500);
	put(TRACE_GRAPH_RETURN, "f", 0, 20000);
	end(" 0)               |  f() {\n"
	    " 1)   0.700 us    |  g();\n"
	    " 0)   0.500 us    |    h();\n"
	    " 0) + 20.000 us   |  }\n");
}

static void flushed_before_it_is_known(void **state)
{
	(void)state;
	begin(2);
	put(TRACE_GRAPH_ENTRY, "f", 0, 0);
	out_layout_flush(layout, &out, &names);
	put(TRACE_GRAPH_RETURN, "f", 0, 5);
	put(TRACE_GRAPH_ENTRY, "f", 0, 0);
	out_layout_lost(layout, &out, 12, &names);
	put(TRACE_GRAPH_RETURN, "f", 0, 6);
	/* one CPU waits for ever: the others go on all the same, in time */
	at.cpu = 1;
	put(TRACE_GRAPH_ENTRY, "w", 0, 0);
	at.cpu = 0;
	for (int i = 0; i < 1024; i++)
		put(TRACE_GRAPH_RETURN, "f", 0, 7);
	assert_non_null(strstr(out.data, "w() {\n 0)   0.007 us    |  } /* f */\n"));
	out.len = (size_t)(strstr(out.data, " 1) ") - out.data);
	out.data[out.len] = 0;
	end(" 0)               |  f() {\n"
	    " 0)   0.005 us    |  }\n"
	    " 0)               |  f() {\n"
	    "[LOST 12 EVENTS]\n"
	    " 0)   0.006 us    |  }\n");
}

static void what_is_no_leaf(void **state)
{
	(void)state;
	begin(2);
	put(TRACE_GRAPH_ENTRY, "f", 0, 0);
	put(TRACE_GRAPH_RETURN, "g", 0, 5); /* another function's */
	put(TRACE_GRAPH_ENTRY, "f", 0, 0);
	put(TRACE_GRAPH_RETURN, "f", 1, 5); /* another call's */
	put(TRACE_GRAPH_ENTRY, "f", 0, 0);
	put(TRACE_FUNCTION, "g", 1, 0); /* it has a callee, which was not followed */
	put(TRACE_GRAPH_RETURN, "f", 0, 5);
	put(TRACE_GRAPH_ENTRY, "f", 0, 0);
	at.pid = 9;
	strcpy(at.comm, "longer-than-7");
	put(TRACE_GRAPH_RETURN, "f", 0, 5); /* another task's */
	at.pid = 7;
	strcpy(at.comm, "sh");
	end(" 0)               |  f() {\n"
	    " 0)   0.005 us    |  } /* g */\n"
	    " 0)               |  f() {\n"
	    " 0)   0.005 us    |    } /* f */\n"
	    " 0)               |  f() {\n"
	    " 0)               |    /* g: return not followed */\n"
	    " 0)   0.005 us    |  }\n"
	    " 0)               |  f() {\n"
	    " ------------------------------------------\n"
	    " 0)      sh-7      =>   longer--9   \n"
	    " ------------------------------------------\n\n"
	    " 0)   0.005 us    |  }\n");
}

static void never_returned(void **state)
{
	(void)state;
	begin(2);
	put(TRACE_GRAPH_ENTRY, "do_exit", 0, 0);
	at.pid = 8;
	put(TRACE_GRAPH_ENTRY, "f", 0, 0);
	at.pid = 7;
	put(TRACE_GRAPH_NEVER, "do_exit", 0, 0);
	at.pid = 8;
	put(TRACE_GRAPH_RETURN, "f", 0, 1234); /* still a leaf */
	at.pid = 7;
	end(" 0)               |  do_exit() {\n"
	    " ------------------------------------------\n"
	    " 0)      sh-7      =>      sh-8     \n"
	    " ------------------------------------------\n\n"
	    " 0)   1.234 us    |  f();\n"
	    " 0)               |  /* do_exit never returned: sh-7 */\n");
}

static void odd_names(void **state)
{
	(void)state;
	begin(1000);
	put(TRACE_GRAPH_ENTRY, "ext4_f", 0, 0);
	put(TRACE_GRAPH_RETURN, "ext4_f", 0, 5);
	put(TRACE_GRAPH_ENTRY, "\033[2J", 60, 0);
	at.cpu = 65535;
	strcpy(at.comm, "\n\033");
	put(TRACE_GRAPH_RETURN, "x", 0, 5);
	{
		struct trace_record r = { .type = TRACE_GRAPH_RETURN, .ip = 0x1234, .depth = 60 };

		out_layout_record(layout, &out, &r, &names);
	}
	strcpy(at.comm, "sh");
	at.cpu = 0;
	assert_null(strchr(out.data, '\033'));
	assert_non_null(strstr(out.data, "   0)   0.005 us    |  ext4_f [ext4]();\n"));
	assert_non_null(strstr(out.data,
			       "| "
			       "                                                            "
			       "                                                            "
			       " ?[2J() {\n"));
	assert_non_null(strstr(out.data, " 65535)   0.005 us    |  } /* x */\n"));
	out_layout_destroy(layout);
	buf_deinit(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(same_bytes_as_linux_6_1),
		cmocka_unit_test(same_bytes_as_linux_6_12),
		cmocka_unit_test(every_width_and_mark),
		cmocka_unit_test(held_until_it_is_known),
		cmocka_unit_test(flushed_before_it_is_known),
		cmocka_unit_test(what_is_no_leaf),
		cmocka_unit_test(never_returned),
		cmocka_unit_test(odd_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
