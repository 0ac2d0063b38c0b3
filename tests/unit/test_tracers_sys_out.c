// SPDX-License-Identifier: Apache-2.0
/* JSON forms, summary, filters and the capture plan. JSON is read back by jansson. */
#include "tracers/syscalls/filter.h"
#include "tracers/syscalls/output.h"
#include "tracers/syscalls/plan.h"

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct syscall_entry openat_entry = { .name = "openat",
					     .kernel_name = "openat",
					     .nr = 257,
					     .described = true,
					     .n_args = 4,
					     .args = { { "int", "dfd" },
						       { "const char *", "filename" },
						       { "int", "flags" },
						       { "umode_t", "mode" } } };
static struct syscall_entry execve_entry = { .name = "execve", .kernel_name = "execve" };
static struct syscall_entry connect_entry = { .name = "connect", .kernel_name = "connect" };
static struct syscall_entry brk_entry = { .name = "brk", .kernel_name = "brk" };
static struct syscall_entry exit_entry = { .name = "exit_group", .kernel_name = "exit_group" };

static const struct out_sys_opts opts = { .boot_ns = 1700000000ull * NSEC_PER_SEC,
					  .host = "vm\"1",
					  .version = "9.9" };
static struct decoded scratch;
static struct buf line;

static struct syscall_event openat(s64 ret)
{
	return (struct syscall_event){
		.entry = &openat_entry,
		.seq = 7,
		.ts_ns = 12345,
		.duration_ns = 5000,
		.args = { (u64)-100, 0x7ffc0000, 0, 0 },
		.ret = ret,
		.nr = 257,
		.pid = 42,
		.tgid = 41,
		.n_args = 4,
		.comm = "cat",
		.n_captures = 1,
		.captures = { { .arg = 1, .what = CAPTURE_STRING, .full_len = 11, .len = 11 } },
		.data = (const u8 *)"/etc/passwd",
		.data_len = 11
	};
}

typedef void (*form)(struct buf *b, const struct syscall_event *e, struct decoded *d,
		     const struct out_sys_opts *o);

static json_t *parsed(form f, const struct syscall_event *e)
{
	json_t *obj;

	buf_reset(&line);
	f(&line, e, &scratch, &opts);
	assert_false(line.failed);
	assert_ptr_equal(memchr(line.data, '\n', line.len), line.data + line.len - 1);
	obj = json_loadb(line.data, line.len, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(obj);
	return obj;
}

static s64 num(const json_t *o, const char *a, const char *b)
{
	const json_t *v = json_object_get(o, a);

	return json_integer_value(b ? json_object_get(v, b) : v);
}

static const char *text(const json_t *o, const char *a, const char *b)
{
	const json_t *v = json_object_get(o, a);
	const char *s = json_string_value(b ? json_object_get(v, b) : v);

	return s ? s : "(none)";
}

static void ndjson_byte_for_byte(void **state)
{
	struct syscall_event e = openat(3);

	(void)state;
	json_decref(parsed(out_sys_json, &e));
	assert_string_equal(
		line.data,
		"{\"seq\":7,\"type\":\"syscall\",\"ts_ns\":12345,\"cpu\":0,\"pid\":42,\"tgid\":41,"
		"\"comm\":\"cat\",\"uid\":0,\"cgroup\":null,\"abi\":\"x86_64\",\"nr\":257,\"syscall\":\"openat\","
		"\"state\":\"returned\",\"duration_ns\":5000,\"args\":["
		"{\"index\":0,\"name\":\"dfd\",\"type\":\"int\",\"value\":\"-100\","
		"\"text\":\"AT_FDCWD\"},"
		"{\"index\":1,\"name\":\"filename\",\"type\":\"const char *\","
		"\"value\":\"0x7ffc0000\",\"text\":\"\\\"/etc/passwd\\\"\","
		"\"string\":\"/etc/passwd\",\"source\":\"kernel\",\"length\":11},"
		"{\"index\":2,\"name\":\"flags\",\"type\":\"int\",\"value\":\"0\","
		"\"text\":\"O_RDONLY\"}],"
		"\"ret\":\"3\",\"ret_text\":\"3\",\"error\":null}\n");
}

static void ndjson_marks(void **state)
{
	struct syscall_event e = openat(-512);
	json_t *o, *arg;

	(void)state;
	e.state = SYSCALL_RESTARTED;
	e.captures[0].failed = true;
	e.captures[0].len = 0;
	e.tgid = 0;
	e.nr = -1;
	o = parsed(out_sys_json, &e);
	assert_true(json_is_null(json_object_get(o, "tgid")));
	assert_true(json_is_null(json_object_get(o, "nr")));
	assert_true(json_is_null(json_object_get(o, "ret")));
	assert_string_equal(text(o, "restart", NULL), "sa_restart");
	assert_string_equal(text(o, "error", NULL), "ERESTARTSYS");
	arg = json_array_get(json_object_get(o, "args"), 1);
	assert_true(json_is_true(json_object_get(arg, "unread")));
	assert_null(json_object_get(arg, "string"));
	json_decref(o);

	e = openat(3);
	e.data = (const u8 *)"/\xff\xc3\xa9\0\n\"abcd";
	e.captures[0].truncated = true;
	e.captures[0].source = CAPTURE_USER_ENTER;
	e.captures[0].full_len = CAPTURE_LEN_UNKNOWN;
	o = parsed(out_sys_json, &e);
	arg = json_array_get(json_object_get(o, "args"), 1);
	assert_true(json_is_true(json_object_get(arg, "truncated")));
	assert_string_equal(text(arg, "source", NULL), "user_enter");
	assert_string_equal(text(arg, "hex", NULL), "2fffc3a9000a2261626364");
	assert_null(json_object_get(arg, "length"));
	json_decref(o);
	buf_reset(&line);
	out_sys_json_lost(&line, 12, 7);
	assert_string_equal(line.data, "{\"type\":\"lost\",\"seq\":7,\"count\":12,\"after\":7}\n");
}

static void text_with_cgroup(void **state)
{
	struct out_sys_opts o = { .pid = true, .cgroup = true };
	struct syscall_event e = openat(3);

	(void)state;
	e.cgroup = 4711;
	buf_reset(&line);
	out_sys_text(&line, &e, &scratch, &o);
	assert_int_equal(strncmp(line.data, "42    4711  openat(", 19), 0);
}

static void falco(void **state)
{
	struct syscall_event e = openat(-2);
	json_t *o;

	(void)state;
	e.data = (const u8 *)"/etc/nowhere";
	e.cgroup = 4711;
	o = parsed(out_sys_falco, &e);
	assert_int_equal(num(o, "output_fields", "thread.cgroup.id"), 4711);
	assert_string_equal(text(o, "hostname", NULL), "vm\"1");
	assert_string_equal(text(o, "source", NULL), "syscall");
	assert_string_equal(text(o, "time", NULL), "2023-11-14T22:13:20.000012345Z");
	assert_string_equal(text(o, "output_fields", "evt.type"), "openat");
	assert_string_equal(text(o, "output_fields", "evt.args"),
			    "dfd=AT_FDCWD filename=\"/etc/nowher\" flags=O_RDONLY");
	assert_string_equal(text(o, "output_fields", "fd.name"), "/etc/nowher");
	assert_string_equal(text(o, "output_fields", "proc.name"), "cat");
	assert_int_equal(num(o, "output_fields", "proc.pid"), 41);
	assert_int_equal(num(o, "output_fields", "thread.tid"), 42);
	assert_int_equal(num(o, "output_fields", "evt.rawres"), -2);
	assert_true(
		json_is_true(json_object_get(json_object_get(o, "output_fields"), "evt.failed")));
	json_decref(o);
}

/* What every class of OCSF 1.3.0 requires. */
static void required(const json_t *o, int class_uid, int activity_id)
{
	static const char *const keys[] = { "activity_id", "category_uid", "class_uid", "type_uid",
					    "time",        "severity_id",  "metadata",  "device",
					    "actor",       "status_id" };

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		assert_non_null(json_object_get(o, keys[i]));
	assert_int_equal(num(o, "class_uid", NULL), class_uid);
	assert_int_equal(num(o, "category_uid", NULL), class_uid / 1000);
	assert_int_equal(num(o, "activity_id", NULL), activity_id);
	assert_int_equal(num(o, "type_uid", NULL), class_uid * 100 + activity_id);
	assert_string_equal(text(o, "metadata", "version"), "1.3.0");
	assert_string_equal(text(json_object_get(o, "metadata"), "product", "name"), "hvftrace");
}

static void ocsf(void **state)
{
	struct syscall_event e = openat(-2);
	json_t *o;

	(void)state;
	e.cgroup = 4711;
	o = parsed(out_sys_ocsf, &e);
	required(o, 1001, 14);
	assert_int_equal(num(o, "unmapped", "cgroup"), 4711);
	assert_int_equal(num(o, "time", NULL), 1700000000000);
	assert_int_equal(num(o, "status_id", NULL), 2);
	assert_string_equal(text(o, "status_code", NULL), "ENOENT");
	assert_string_equal(text(o, "file", "name"), "passwd");
	assert_string_equal(text(o, "file", "path"), "/etc/passwd");
	assert_int_equal(num(json_object_get(o, "actor"), "process", "pid"), 41);
	json_decref(o);

	e = (struct syscall_event){ .entry = &execve_entry,
				    .args = { 1, 2, 3 },
				    .pid = 5,
				    .n_args = 6,
				    .state = SYSCALL_EXECVE,
				    .comm = "sh",
				    .comm_after = "ls",
				    .n_captures = 2,
				    .captures = { { .arg = 0, .what = CAPTURE_STRING, .len = 7 },
						  { .arg = 1,
						    .what = CAPTURE_STRINGS,
						    .off = 7,
						    .len = 6,
						    .count = 2 } },
				    .data = (const u8 *)"/bin/lsls\0-l\0",
				    .data_len = 13 };
	o = parsed(out_sys_ocsf, &e);
	required(o, 1007, 1);
	assert_string_equal(text(o, "process", "name"), "ls");
	assert_string_equal(text(o, "process", "cmd_line"), "ls -l");
	assert_string_equal(text(json_object_get(o, "process"), "file", "path"), "/bin/ls");
	assert_string_equal(text(json_object_get(o, "actor"), "process", "name"), "sh");
	json_decref(o);

	e = (struct syscall_event){
		.entry = &exit_entry, .args = { 3 }, .pid = 5, .n_args = 6, .state = SYSCALL_NEVER
	};
	o = parsed(out_sys_ocsf, &e);
	required(o, 1007, 2);
	assert_int_equal(num(o, "exit_code", NULL), 3);
	json_decref(o);

	e = (struct syscall_event){
		.entry = &connect_entry,
		.args = { 3, 4, 16 },
		.n_captures = 1,
		.captures = { { .arg = 1, .what = CAPTURE_SOCKADDR, .len = 8 } },
		.data = (const u8 *)"\2\0\0\120\1\2\3\4",
		.data_len = 8
	};
	o = parsed(out_sys_ocsf, &e);
	required(o, 4001, 1);
	assert_string_equal(text(o, "dst_endpoint", "ip"), "1.2.3.4");
	assert_int_equal(num(o, "dst_endpoint", "port"), 80);
	json_decref(o);

	e = (struct syscall_event){ .entry = &brk_entry, .pid = 5, .n_args = 6 };
	o = parsed(out_sys_ocsf, &e);
	required(o, 1003, 4);
	assert_string_equal(text(o, "kernel", "name"), "brk");
	assert_int_equal(num(o, "kernel", "type_id"), 2);
	json_decref(o);
}

static void summary(void **state)
{
	struct sys_summary *s = sys_summary_create();
	struct syscall_event ok = openat(3), failed = openat(-2);
	struct syscall_event brk = { .entry = &brk_entry, .duration_ns = 15000 };

	(void)state;
	assert_int_equal(sys_summary_add(s, &ok), 0);
	assert_int_equal(sys_summary_add(s, &failed), 0);
	assert_int_equal(sys_summary_add(s, &brk), 0);
	buf_reset(&line);
	sys_summary_print(s, &line);
	assert_string_equal(line.data,
			    "% time     seconds  usecs/call     calls    errors syscall\n"
			    "------ ----------- ----------- --------- --------- ----------------\n"
			    " 60.00    0.000015          15         1           brk\n"
			    " 40.00    0.000010           5         2         1 openat\n"
			    "------ ----------- ----------- --------- --------- ----------------\n"
			    "100.00    0.000025           8         3         1 total\n");
	sys_summary_destroy(s);
	sys_summary_destroy(NULL);
}

/* A recording says what calls are called. Nothing that a terminal acts upon is shown. */
static void names_are_shown_as_text(void **state)
{
	struct syscall_entry entry = { .name = "\x1b]0;x\a" };
	struct syscall_event e = { .entry = &entry, .pid = 1 };
	struct sys_summary *s = sys_summary_create();

	(void)state;
	buf_reset(&line);
	out_sys_text(&line, &e, &scratch, &opts);
	assert_non_null(strstr(line.data, "?]0;x?("));
	assert_int_equal(sys_summary_add(s, &e), 0);
	sys_summary_print(s, &line);
	assert_non_null(strstr(line.data, " ?]0;x?\n"));
	assert_null(strchr(line.data, '\x1b'));
	assert_null(strchr(line.data, '\a'));
	sys_summary_destroy(s);
}

static bool wanted(const char *name, size_t n, const char *const *calls)
{
	const struct syscall_filter_opts o = { .calls = calls, .n_calls = n };
	struct syscall_filter *f;
	bool yes;

	assert_int_equal(syscall_filter_create(&o, &f, NULL), 0);
	yes = syscall_filter_name(f, name);
	syscall_filter_destroy(f);
	return yes;
}

#define WANTED(name, ...)                                                           \
	wanted(name, sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *), \
	       (const char *const[]){ __VA_ARGS__ })

static void filters(void **state)
{
	const u32 pids[] = { 41 };
	struct syscall_event e = openat(-2), ok = openat(3);
	const char *const bad[] = { "%files" };
	struct syscall_filter_opts o = { .calls = bad, .n_calls = 1 };
	struct syscall_filter *f = NULL;
	struct err err;

	(void)state;
	assert_int_equal(syscall_filter_create(&o, &f, &err), -EINVAL);
	assert_int_equal(err.code, ERR_BAD_REQUEST);
	assert_true(wanted("brk", 0, NULL));
	assert_true(WANTED("openat", "%file"));
	assert_false(WANTED("brk", "%file"));
	assert_true(WANTED("brk", "!%file"));
	assert_false(WANTED("openat", "%file", "!open*"));
	assert_true(WANTED("openat", "%network", "*at"));
	assert_true(WANTED("frobnicate", "frob*"));
	o = (struct syscall_filter_opts){
		.failed_only = true, .pids = pids, .n_pids = 1, .comm = "c?t", .path = "/etc"
	};
	assert_int_equal(syscall_filter_create(&o, &f, &err), 0);
	assert_true(syscall_filter_match(f, &e));
	assert_false(syscall_filter_match(f, &ok));
	e.tgid = 40;
	assert_false(syscall_filter_match(f, &e));
	e.pid = 41;
	assert_true(syscall_filter_match(f, &e));
	strcpy(e.comm, "dog");
	assert_false(syscall_filter_match(f, &e));
	strcpy(e.comm, "cut");
	e.data = (const u8 *)"/usr/passwd";
	assert_false(syscall_filter_match(f, &e));
	syscall_filter_destroy(f);
	syscall_filter_destroy(NULL);
	o = (struct syscall_filter_opts){ .by_uid = true, .uid = 1000 };
	assert_int_equal(syscall_filter_create(&o, &f, &err), 0);
	e.uid = 0;
	assert_false(syscall_filter_match(f, &e));
	e.uid = 1000;
	assert_true(syscall_filter_match(f, &e));
	e.uid = SYSCALL_NO_UID; /* the agent has let it pass */
	assert_true(syscall_filter_match(f, &e));
	syscall_filter_destroy(f);
	o = (struct syscall_filter_opts){ .by_cgroup = true, .cgroup = 47 };
	assert_int_equal(syscall_filter_create(&o, &f, &err), 0);
	e.cgroup = 0;
	assert_false(syscall_filter_match(f, &e));
	e.cgroup = 47;
	assert_true(syscall_filter_match(f, &e));
	syscall_filter_destroy(f);
}

static void plan(void **state)
{
	const struct plan_opts o = { .string_max = 64 };
	struct plan p;

	(void)state;
	assert_true(plan_for("openat", &o, &p));
	assert_int_equal(p.n, 1);
	assert_int_equal(p.steps[0].arg, 1);
	assert_int_equal(p.steps[0].what, CAPTURE_STRING);
	assert_string_equal(p.steps[0].kernel, "getname_flags");
	assert_false(p.steps[0].at_exit);
	assert_true(plan_for("read", &o, &p));
	assert_int_equal(p.steps[0].len, PLAN_RET);
	assert_true(p.steps[0].at_exit);
	assert_int_equal(p.steps[0].max, 64);
	assert_true(plan_for("connect", &o, &p));
	assert_string_equal(p.steps[0].kernel, "move_addr_to_kernel");
	assert_true(plan_for("accept4", &o, &p));
	assert_int_equal(p.n, 3);
	assert_int_equal(p.steps[0].len, PLAN_PTR);
	assert_true(plan_for("recvmsg", &o, &p));
	assert_int_equal(p.n, 5);
	assert_true(plan_for("execve", &o, &p));
	assert_int_equal(p.n, 3);
	assert_int_equal(p.steps[1].what, CAPTURE_STRINGS);
	assert_false(plan_for("getpid", &o, &p));
	assert_false(plan_for("frobnicate", &o, &p));
	assert_true(plan_for_cmd("ioctl", 0x5413, &o, &p));
	assert_int_equal(p.steps[0].arg, 2);
	assert_int_equal(p.steps[0].max, 8);
	assert_false(plan_for_cmd("ioctl", 1, &o, &p));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ndjson_byte_for_byte),
		cmocka_unit_test(ndjson_marks),
		cmocka_unit_test(text_with_cgroup),
		cmocka_unit_test(falco),
		cmocka_unit_test(ocsf),
		cmocka_unit_test(summary),
		cmocka_unit_test(names_are_shown_as_text),
		cmocka_unit_test(filters),
		cmocka_unit_test(plan),
	};
	int rc = cmocka_run_group_tests(tests, NULL, NULL);

	decoded_deinit(&scratch);
	buf_deinit(&line);
	return rc;
}
