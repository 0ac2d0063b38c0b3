// SPDX-License-Identifier: Apache-2.0
/* tracers/out_values.c: arguments and return values in every output, and the layout's options. */
#include "guest-agent/agent_abi.h"
#include "tracers/output.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define IP     0xffffffff81000004
#define PARENT 0xffffffff82000010
#define STACK  0xff

static struct kernel_func proto;
static bool known;
static int asked;

static bool sym(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	(void)arg;
	*ret = (struct kernel_sym){ .name = addr == IP ? "f" : "caller", .size_bytes = 0x20 };
	*off_ret = addr & 0xf;
	return true;
}

static bool func(void *arg, u64 ip, struct kernel_func *ret)
{
	(void)arg;
	assert_int_equal(ip, IP);
	asked++;
	*ret = proto;
	return known;
}

static const char *enumerator(void *arg, const struct kernel_val *v, s64 val)
{
	(void)arg;
	assert_int_equal(v->kind, KERNEL_VAL_ENUM);
	return val == -3 ? "BLUE" : NULL;
}

static const struct output_names names = { .sym = sym, .func = func, .enumerator = enumerator };

#define VAL(n, t, s, r, k)                                                                \
	{                                                                                 \
		.name = (n), .type = (t), .size = (s), .reg = (r), .kind = KERNEL_VAL_##k \
	}

/* Of one parameter. */
static void set_param(struct kernel_val v)
{
	known = true;
	proto = (struct kernel_func){ .n_params = 1, .params = { v } };
}

static void set_ret(struct kernel_val v)
{
	known = true;
	proto = (struct kernel_func){ .ret = v };
}

static struct trace_record record(u8 type)
{
	return (struct trace_record){ .type = type,
				      .ip = IP,
				      .parent = type == TRACE_GRAPH_RETURN ? 0 : PARENT,
				      .pid = 7,
				      .comm = "sh",
				      .ts_ns = 5000001999,
				      .ctx = AGENT_CTX_IRQS_OFF | 1 };
}

static struct buf out;

static const char *json(const struct trace_record *r)
{
	buf_reset(&out);
	out_json_record(&out, r, &names);
	assert_false(buf_failed(&out));
	return out.data;
}

static const char *text(const struct trace_record *r)
{
	const char *body;

	buf_reset(&out);
	out_text_record_args(&out, r, &names);
	body = strstr(out.data, ": f(");
	assert_non_null(body);
	return body + 2;
}

/* The lines of @n records, without the head. */
static const char *graph(const struct out_layout_opts *opts, const struct trace_record *r, size_t n)
{
	struct output_meta meta = { .tracer = "function_graph", .vcpus = 1 };
	struct out_layout *l;

	buf_reset(&out);
	assert_int_equal(out_layout_create(&meta, &l, NULL), 0);
	if (opts)
		out_layout_set(l, opts);
	for (size_t i = 0; i < n; i++)
		out_layout_record(l, &out, &r[i], &names);
	out_layout_flush(l, &out, &names);
	out_layout_destroy(l);
	assert_false(buf_failed(&out));
	return out.data;
}

static void arguments(void **state)
{
	static const struct {
		struct kernel_val v;
		u64 word;
		const char *text, *json;
	} t[] = {
		{ VAL("p", "file", 8, 0, POINTER), 0xffff888100bd2a00,
		  "f(p=0xffff888100bd2a00) <-caller\n",
		  "{\"name\":\"p\",\"type\":\"file *\",\"value\":\"0xffff888100bd2a00\",\"text\":"
		  "\"0xffff888100bd2a00\"}" },
		/* what lies above the value is left over */
		{ VAL("n", "int", 4, 0, SIGNED), 0x12345678fffffffe, "f(n=-2) <-caller\n",
		  "{\"name\":\"n\",\"type\":\"int\",\"value\":\"0xfffffffe\",\"text\":\"-2\"}" },
		{ VAL("b", "bool", 1, 0, BOOL), 0xabcdef01, "f(b=0x1) <-caller\n",
		  "{\"name\":\"b\",\"type\":\"bool\",\"value\":\"0x1\",\"text\":\"0x1\"}" },
		{ VAL("u", "u16", 2, 0, UNSIGNED), 0xffffffff, "f(u=0xffff) <-caller\n",
		  "\"text\":\"0xffff\"}" },
		{ VAL("l", "loff_t", 8, 0, SIGNED), (u64)INT64_MIN,
		  "f(l=-9223372036854775808) <-caller\n",
		  "\"value\":\"0x8000000000000000\",\"text\":\"-9223372036854775808\"}" },
		{ VAL("e", "", 4, 0, ENUM), 3, "f(e=3) <-caller\n",
		  "\"type\":\"enum\",\"value\":\"0x3\",\"text\":\"3\"}" },
		{ VAL("e", "color", 4, 0, ENUM), 0x12345678fffffffd, "f(e=-3) <-caller\n",
		  "\"value\":\"0xfffffffd\",\"text\":\"-3 (BLUE)\"}" },
		{ VAL("", "", 8, 0, POINTER), 0, "f(0x0) <-caller\n",
		  "{\"name\":\"\",\"type\":\"void *\",\"value\":\"0x0\"" },
		{ VAL("s", "pair", 8, 0, OTHER), 9, "f(s=(STRUCT)[0x9]) <-caller\n",
		  "\"type\":\"pair\",\"value\":\"0x9\",\"text\":\"(STRUCT)[0x9]\"" },
		{ VAL("w", "__int128", 16, 0, SIGNED), 9, "f(...) <-caller\n",
		  "\"value\":null,\"text\":\"...\"" }, /* the other word is not there */
		{ VAL("s", "big", 40, STACK, OTHER), 9, "f(...) <-caller\n", "\"value\":null" },
		{ VAL("x\"\n", "a\tb", 4, 0, SIGNED), 1, "f(x\"?=1) <-caller\n",
		  "{\"name\":\"x\\\"\\n\",\"type\":\"a\\tb\"" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct trace_record r = record(TRACE_FUNCTION);

		set_param(t[i].v);
		r.n_args = 1;
		r.args[0] = t[i].word;
		assert_string_equal(text(&r), t[i].text);
		assert_non_null(strstr(json(&r), t[i].json));
		assert_non_null(strstr(json(&r), ",\"args\":[{"));
	}
}

static void several_arguments(void **state)
{
	struct trace_record r = record(TRACE_FUNCTION);

	(void)state;
	known = true;
	proto = (struct kernel_func){
		.n_params = 5,
		.params = { VAL("a", "int", 4, 0, SIGNED), VAL("big", "big", 40, STACK, OTHER),
			    VAL("p", "pair", 16, 1, OTHER), VAL("c", "int", 4, STACK, SIGNED),
			    VAL("d", "int", 4, STACK, SIGNED) }
	};
	r.n_args = 3;
	memcpy(r.args, (u64[]){ 1, 2, 3 }, 24);
	assert_string_equal(text(&r), "f(a=1, big=..., p=(STRUCT)[0x2:0x3], ...) <-caller\n");
	assert_non_null(strstr(json(&r), "\"value\":\"0x2:0x3\""));
	r.n_args = 2; /* half of the pair was lost */
	assert_string_equal(text(&r), "f(a=1, ...) <-caller\n");
	r.n_args = 0;
	assert_string_equal(text(&r), "f() <-caller\n");
	assert_null(strstr(json(&r), "args"));
	/* nobody knows the prototype */
	known = false;
	r.n_args = 2;
	assert_string_equal(text(&r), "f(0x1, 0x2) <-caller\n");
	assert_non_null(strstr(json(&r),
			       ",\"args\":[{\"name\":null,\"type\":null,\"value\":\"0x1\",\"text\":"
			       "\"0x1\"},{\"name\":null,"));
	/* as many as there can be, with the longest names */
	known = true;
	proto.n_params = KERNEL_FUNC_MAX_PARAMS;
	for (u32 i = 0; i < KERNEL_FUNC_MAX_PARAMS; i++) {
		static char name[2000];

		memset(name, '"', sizeof(name) - 1);
		proto.params[i] = (struct kernel_val)VAL(name, name, 16, 0, OTHER);
	}
	(void)text(&r);
	(void)json(&r);
}

static void return_values(void **state)
{
	static const struct {
		struct kernel_val v;
		u64 rax;
		const char *text, *json;
	} t[] = {
		{ VAL("", "int", 4, 0, SIGNED), 0xfffffffe, "-2",
		  "{\"type\":\"int\",\"value\":\"0xfffffffe\",\"text\":\"-2 (ENOENT)\"}" },
		{ VAL("", "int", 4, 0, SIGNED), 0xabcd00000010, "0x10",
		  "{\"type\":\"int\",\"value\":\"0x10\",\"text\":\"16\"}" },
		{ VAL("", "int", 4, 0, SIGNED), 0x80000000, "0x80000000",
		  "\"text\":\"-2147483648\"" },
		{ VAL("", "long", 8, 0, SIGNED), (u64)-512, "-512",
		  "\"text\":\"-512 (ERESTARTSYS)\"" },
		{ VAL("", "long", 8, 0, SIGNED), (u64)-4095, "-4095", "\"text\":\"-4095\"" },
		{ VAL("", "long", 8, 0, SIGNED), (u64)-4096, "0xfffffffffffff000",
		  "\"text\":\"-4096\"" },
		{ VAL("", "file", 8, 0, POINTER), (u64)-13, "-13",
		  "{\"type\":\"file *\",\"value\":\"0xfffffffffffffff3\",\"text\":\"-13 (EACCES)\"}" },
		{ VAL("", "u32", 4, 0, UNSIGNED), 0xfffffffe, "0xfffffffe",
		  "\"text\":\"0xfffffffe\"" },
		{ VAL("", "unsigned long", 8, 0, UNSIGNED), (u64)-12, "-12", "(ENOMEM)" },
		{ VAL("", "bool", 1, 0, BOOL), 0xffffff00, "0x0", "\"text\":\"0x0\"" },
	};
	struct trace_record r = record(TRACE_GRAPH_RETURN);
	char want[64];

	(void)state;
	r.has_retval = true;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		set_ret(t[i].v);
		r.retval = t[i].rax;
		snprintf(want, sizeof(want), "} /* f ret=%s */\n", t[i].text);
		assert_non_null(strstr(graph(NULL, &r, 1), want));
		assert_non_null(strstr(json(&r), ",\"retval\":{"));
		assert_non_null(strstr(out.data, t[i].json));
	}
	known = false; /* the kernel's rule */
	r.retval = 0xfffffffe;
	assert_non_null(strstr(graph(NULL, &r, 1), "} /* f ret=-2 */\n"));
	assert_non_null(strstr(
		json(&r), "{\"type\":null,\"value\":\"0xfffffffe\",\"text\":\"-2 (ENOENT)\"}"));
	r.retval = 0x1fffffffe;
	assert_non_null(strstr(graph(NULL, &r, 1), "} /* f ret=0x1fffffffe */\n"));
	r.has_retval = false;
	assert_null(strstr(json(&r), "retval"));
	assert_non_null(strstr(graph(NULL, &r, 1), "} /* f */\n"));
}

static void a_call_with_everything(void **state)
{
	const struct out_layout_opts all = { true, true, true, true, true, true },
				     tail = { .tail = true }, retaddr = { .retaddr = true };
	struct trace_record r[3] = { record(TRACE_GRAPH_ENTRY), record(TRACE_GRAPH_RETURN),
				     record(TRACE_GRAPH_RETURN) };

	(void)state;
	set_param((struct kernel_val)VAL("n", "int", 4, 0, SIGNED));
	proto.ret = (struct kernel_val)VAL("", "int", 4, 0, SIGNED);
	r[0].n_args = 1;
	r[0].args[0] = 5;
	r[1].has_retval = true;
	r[1].duration_ns = 1500;
	assert_string_equal(graph(NULL, r, 2), " 0)   1.500 us    |  f(n=5); /* ret=0x0 */\n");
	assert_string_equal(graph(&all, r, 2),
			    "    5.000001 |   0)      sh-7      |  d..1. |   1.500 us    |  "
			    "f(n=5); /* <-caller+0x0/0x20 ret=0x0 */\n");
	r[1].has_retval = false;
	assert_string_equal(graph(&tail, r, 2), " 0)   1.500 us    |  f(n=5);\n");
	assert_string_equal(graph(&retaddr, r, 1),
			    " 0)               |  f(n=5) { /* <-caller+0x0/0x20 */\n");
	r[1].cpu = r[2].cpu = 0;
	r[2] = r[1];
	r[1] = r[0]; /* calls itself, the return of the outer is not there */
	r[1].depth = r[2].depth = 1;
	assert_string_equal(graph(NULL, r, 3), " 0)               |  f(n=5) {\n"
					       " 0)   1.500 us    |    f(n=5);\n");
	r[1].type = TRACE_SWITCH;
	r[1].prev_pid = 3;
	r[1].depth = 0;
	r[2].depth = 0;
	assert_string_equal(
		graph(&tail, r, 3),
		" 0)               |  f(n=5) {\n"
		" 0)               |  /* sched_switch: prev_pid=3 ==> next_comm=sh next_pid=7 */\n"
		" 0)   1.500 us    |  } /* f */\n");
}

static void heads(void **state)
{
	const struct out_layout_opts all = { true, true, true, true, true, true };
	struct output_meta meta = { .tracer = "function_graph", .vcpus = 1 };
	struct out_layout *l;

	(void)state;
	buf_reset(&out);
	assert_int_equal(out_layout_create(&meta, &l, NULL), 0);
	out_layout_set(l, &all);
	out_layout_head(l, &out, &meta);
	out_layout_destroy(l);
	assert_string_equal(
		out.data,
		"# tracer: function_graph\n#\n"
		"#                                       _-----=> irqs-off        \n"
		"#                                      / _----=> need-resched    \n"
		"#                                     | / _---=> hardirq/softirq \n"
		"#                                     || / _--=> preempt-depth   \n"
		"#                                     ||| /                      \n"
		"#     TIME        CPU  TASK/PID       ||||     DURATION                  FUNCTION CALLS\n"
		"#      |          |     |    |        ||||      |   |                     |   |   |   |\n");
}

/* Under a threshold there are returns alone. */
static void only_returns(void **state)
{
	struct trace_record r[2] = { record(TRACE_GRAPH_RETURN), record(TRACE_GRAPH_RETURN) };

	(void)state;
	r[0].depth = 2;
	r[0].duration_ns = r[1].duration_ns = 20000;
	r[1].depth = 1;
	assert_string_equal(graph(NULL, r, 2), " 0) + 20.000 us   |      } /* f */\n"
					       " 0) + 20.000 us   |    } /* f */\n");
}

/* function, then function_graph, then function: each part has its layout and head. */
static void a_stream_of_both(void **state)
{
	struct output_meta meta = { .tracer = "function", .vcpus = 1 };
	struct trace_record r = record(TRACE_FUNCTION);
	struct out_layout *l;
	const char *at;

	(void)state;
	known = false;
	buf_reset(&out);
	assert_int_equal(out_layout_create(&meta, &l, NULL), 0);
	out_layout_record(l, &out, &r, &names);
	r.type = TRACE_TRACER;
	r.depth = 1;
	out_layout_record(l, &out, &r, &names);
	r = record(TRACE_GRAPH_ENTRY);
	out_layout_record(l, &out, &r, &names);
	r.type = TRACE_TRACER;
	out_layout_record(l, &out, &r, &names);
	r = record(TRACE_FUNCTION);
	out_layout_record(l, &out, &r, &names);
	r = record(TRACE_SWITCH);
	r.prev_pid = 3;
	out_layout_record(l, &out, &r, &names);
	out_layout_flush(l, &out, &names);
	out_layout_destroy(l);
	at = out.data;
	for (const char *const *want =
		     (const char *const[]){
			     ": f <-caller\n", "# tracer: function_graph\n",
			     " 0)               |  f() {\n", "# tracer: function\n",
			     ": f <-caller\n",
			     ": sched_switch: prev_pid=3 ==> next_comm=sh next_pid=7\n", NULL };
	     *want; want++) {
		at = strstr(at, *want);
		assert_non_null(at);
		at += strlen(*want);
	}
	assert_int_equal(*at, 0);
}

static void json_of_what_is_no_call(void **state)
{
	struct trace_record r = record(TRACE_SWITCH);

	(void)state;
	r.seq = 4;
	r.prev_pid = 3;
	r.tgid = 6;
	assert_string_equal(
		json(&r), "{\"seq\":4,\"type\":\"switch\",\"ts_ns\":5000001999,\"cpu\":0,\"pid\":7,"
			  "\"tgid\":6,\"comm\":\"sh\",\"prev_pid\":3,\"context\":\"d..1.\"}\n");
	r.type = TRACE_TRACER;
	r.depth = 1;
	assert_string_equal(json(&r), "{\"seq\":4,\"type\":\"tracer\",\"ts_ns\":5000001999,"
				      "\"tracer\":\"function_graph\"}\n");
	r.depth = 0;
	assert_non_null(strstr(json(&r), "\"tracer\":\"function\"}"));
}

static void prototypes_are_cached(void **state)
{
	struct trace_record r = record(TRACE_FUNCTION);
	struct names_cache c;
	struct output_names cached;

	(void)state;
	set_param((struct kernel_val)VAL("n", "int", 4, 0, SIGNED));
	r.n_args = 1;
	assert_int_equal(names_cache_init(&c, &names, NAMES_CACHE_SLOTS, &cached), 0);
	asked = 0;
	for (int i = 0; i < 5; i++) {
		buf_reset(&out);
		out_text_record(&out, &r, &cached);
		assert_non_null(strstr(out.data, "f(n=0) <-caller"));
	}
	assert_int_equal(asked, 1);
	names_cache_deinit(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arguments),
		cmocka_unit_test(several_arguments),
		cmocka_unit_test(return_values),
		cmocka_unit_test(a_call_with_everything),
		cmocka_unit_test(heads),
		cmocka_unit_test(only_returns),
		cmocka_unit_test(a_stream_of_both),
		cmocka_unit_test(json_of_what_is_no_call),
		cmocka_unit_test(prototypes_are_cached),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	buf_deinit(&out);
	return failed;
}
