// SPDX-License-Identifier: Apache-2.0
/* api/body.c: what the black box tests cannot say as exactly. */
#include "api/body.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static int parse_trace(const char *text, struct body_trace *b, struct problem *p)
{
	return body_trace_parse(text, strlen(text), b, p);
}

static void trace_is_read_whole(void **state)
{
	struct body_trace b;
	struct problem p;

	(void)state;
	assert_int_equal(
		parse_trace("{\"tracer\":\"function\",\"filter\":[\"vfs_*\",\":mod:ext4\"],"
			    "\"notrace\":[\"vfs_read\"],\"pids\":[1,4194304],"
			    "\"mode\":\"overwrite\",\"buffer_records\":1024}",
			    &b, &p),
		0);
	assert_string_equal(b.tracer, "function");
	assert_int_equal(b.n_filter, 2);
	assert_string_equal(b.filter[1], ":mod:ext4");
	assert_int_equal(b.n_notrace, 1);
	assert_int_equal(b.n_pids, 2);
	assert_int_equal(b.pids[1], 4194304);
	assert_true(b.overwrite);
	assert_int_equal(b.buffer_records, 1024);
	body_trace_deinit(&b);
}

static void trace_has_defaults(void **state)
{
	struct body_trace b;
	struct problem p;

	(void)state;
	assert_int_equal(parse_trace("{\"tracer\":\"function\"}", &b, &p), 0);
	assert_int_equal(b.n_filter + b.n_notrace + b.n_pids, 0);
	assert_int_equal(b.n_graph + b.n_graph_notrace + b.max_graph_depth + b.threshold_ns, 0);
	assert_true(b.irqs && b.sleep_time);
	assert_false(b.retval || b.args || b.switches);
	assert_false(b.overwrite);
	assert_int_equal(b.buffer_records, 0);
	body_trace_deinit(&b);
}

static void graph_options_are_read(void **state)
{
	struct body_trace b;
	struct problem p;

	(void)state;
	assert_int_equal(
		parse_trace("{\"tracer\":\"function_graph\",\"graph\":[\"vfs_read\",\"vfs_w*\"],"
			    "\"graph_notrace\":[\"ext4_*\"],\"max_graph_depth\":65535,"
			    "\"threshold_ns\":3600000000000,\"irqs\":false,\"sleep_time\":false,"
			    "\"retval\":true,\"args\":true,\"switches\":true}",
			    &b, &p),
		0);
	assert_int_equal(b.n_graph, 2);
	assert_string_equal(b.graph[1], "vfs_w*");
	assert_int_equal(b.n_graph_notrace, 1);
	assert_string_equal(b.graph_notrace[0], "ext4_*");
	assert_int_equal(b.max_graph_depth, 65535);
	assert_int_equal(b.threshold_ns, 3600 * NSEC_PER_SEC);
	assert_false(b.irqs || b.sleep_time);
	assert_true(b.retval && b.args && b.switches);
	body_trace_deinit(&b);
}

static void graph_options_are_judged(void **state)
{
	static const struct {
		const char *member, *pointer, *detail;
	} bad[] = {
		{ "\"graph\":\"x\"", "/graph", "must be an array of strings" },
		{ "\"graph_notrace\":[\"x\",2]", "/graph_notrace/1", "must be a string" },
		{ "\"max_graph_depth\":65536", "/max_graph_depth", "must be 0 to 65535" },
		{ "\"max_graph_depth\":4294967297", "/max_graph_depth", "must be 0 to 65535" },
		{ "\"max_graph_depth\":2.0", "/max_graph_depth", "must be an integer" },
		{ "\"threshold_ns\":-1", "/threshold_ns", "must be 0 to 3600000000000" },
		{ "\"threshold_ns\":3600000000001", "/threshold_ns", "must be 0 to 3600000000000" },
		{ "\"irqs\":1", "/irqs", "must be true or false" },
		{ "\"sleep_time\":null", "/sleep_time", "must be true or false" },
		{ "\"retval\":\"true\"", "/retval", "must be true or false" },
		{ "\"args\":{}", "/args", "must be true or false" },
	};
	struct body_trace b;
	struct problem p;
	char text[128];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		snprintf(text, sizeof(text), "{\"tracer\":\"function_graph\",%s}", bad[i].member);
		assert_int_equal(parse_trace(text, &b, &p), -EINVAL);
		assert_int_equal(p.n_errors, 1);
		assert_string_equal(p.errors[0].pointer, bad[i].pointer);
		assert_string_equal(p.errors[0].detail, bad[i].detail);
	}
}

static void calls_options_are_read(void **state)
{
	struct body_trace b;
	struct problem p;

	(void)state;
	assert_int_equal(
		parse_trace(
			"{\"tracer\":\"syscalls\",\"pids\":[7],\"follow_forks\":true,"
			"\"comm\":\"ss*\",\"path\":\"/etc\",\"uid\":0,"
			"\"cgroup\":4294967297,\"string_max\":4096,\"fd_paths\":true,\"env\":true,\"raw\":true,"
			"\"failed\":true}",
			&b, &p),
		0);
	assert_true(b.follow_forks && b.fd_paths && b.failed && b.env && b.raw);
	assert_string_equal(b.comm, "ss*");
	assert_string_equal(b.path, "/etc");
	assert_true(b.has_uid && b.uid == 0 && b.has_cgroup && b.cgroup == 4294967297);
	assert_int_equal(b.string_max, 4096);
	body_trace_deinit(&b);
	assert_int_equal(parse_trace("{\"tracer\":\"syscalls\"}", &b, &p), 0);
	assert_false(b.env || b.raw);
	assert_false(b.follow_forks || b.fd_paths || b.has_uid || b.has_cgroup || b.string_max);
	assert_true(!b.comm && !b.path);
	body_trace_deinit(&b);
	assert_int_equal(parse_trace("{\"tracer\":\"syscalls\",\"uid\":-1,\"cgroup\":0,"
				     "\"string_max\":7,\"comm\":5}",
				     &b, &p),
			 -EINVAL);
	assert_int_equal(p.n_errors, 4);
}

static void at_most_so_many_faults_are_told(void **state)
{
	struct body_trace b;
	struct problem p;

	(void)state;
	assert_int_equal(
		parse_trace("{\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1,"
			    "\"i\":1,\"j\":1}",
			    &b, &p),
		-EINVAL);
	assert_int_equal(p.status, 400);
	assert_int_equal(p.n_errors, PROBLEM_MAX_ERRORS);
	assert_string_equal(p.errors[0].pointer, "/a");
	assert_string_equal(p.errors[0].detail, "no such member");
}

static void changes_are_read(void **state)
{
	static const char *const bad[] = { "{}",
					   "[]",
					   "",
					   "{\"tracer\":1}",
					   "{\"tracer\":\"x\"}",
					   "{\"tracer\":\"syscalls\"}",
					   "{\"tracing_on\":1}",
					   "{\"filter\":\"a\"}",
					   "{\"notrace\":[1]}",
					   "{\"pids\":[0]}",
					   "{\"tracer\":\"function\",\"mode\":\"discard\"}" };
	static const char on[] = "{\"tracer\":\"function_graph\"}";
	static const char off[] = "{\"tracer\":\"function\",\"tracing_on\":false,\"filter\":[]}";
	struct body_change b;
	struct problem p;

	(void)state;
	assert_int_equal(body_change_parse(on, strlen(on), &b, &p), 0);
	assert_true(b.has_tracer && b.graph && !b.has_on && !b.has_filter);
	body_change_deinit(&b);
	assert_int_equal(body_change_parse(off, strlen(off), &b, &p), 0);
	assert_true(b.has_tracer && !b.graph && b.has_on && !b.on && b.has_filter);
	body_change_deinit(&b);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(body_change_parse(bad[i], strlen(bad[i]), &b, &p), -EINVAL);
		assert_int_equal(p.status, 400);
	}
}

static void markers_are_read(void **state)
{
	static const struct {
		const char *text;
		u64 ns; /* 0: bad */
	} times[] = {
		{ "2026-01-31T23:59:59Z", 1769903999000000000 },
		{ "2026-01-31T23:59:59.25Z", 1769903999250000000 },
		{ "2026-01-31T23:59:59.123456789123Z", 1769903999123456789 },
		{ "2026-02-01T01:29:59+01:30", 1769903999000000000 },
		{ "2026-01-31T22:59:59-01:00", 1769903999000000000 },
		{ "2026-01-31T23:59:59", 0 },
		{ "2026-01-31T23:59:59Zx", 0 },
		{ "2026-01-31T23:59:59+1:00", 0 },
		{ "2026-01-31", 0 },
		{ "1969-01-31T23:59:59Z", 0 },
		{ "9999-12-31T23:59:59Z", 0 },
	};
	char doc[128];
	struct body_marker b;
	struct problem p;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
		snprintf(doc, sizeof(doc), "{\"text\":\"a\",\"time\":\"%s\"}", times[i].text);
		assert_int_equal(body_marker_parse(doc, strlen(doc), &b, &p),
				 times[i].ns ? 0 : -EINVAL);
		if (!times[i].ns)
			continue;
		assert_string_equal(b.text, "a");
		assert_int_equal(b.time_ns, times[i].ns);
		body_marker_deinit(&b);
	}
}

static void a_duplicate_is_pointed_at(void **state)
{
	static const char twice[] = "{\"target\":\"a\",\"target\":\"b\"}";
	struct body_guest b;
	struct problem p;

	(void)state;
	assert_int_equal(body_guest_parse(twice, strlen(twice), &b, &p), -EINVAL);
	assert_int_equal(p.n_errors, 1);
	assert_string_equal(p.errors[0].pointer, "/target");
	assert_string_equal(p.errors[0].detail, "the member is given twice");
}

static void bytes_past_the_end_do_not_count(void **state)
{
	static const char text[] = "{\"target\":\"qemu:/x\"}garbage";
	struct body_guest b;
	struct problem p;

	(void)state;
	assert_int_equal(body_guest_parse(text, strlen(text) - strlen("garbage"), &b, &p), 0);
	assert_string_equal(b.target, "qemu:/x");
	assert_null(b.name);
	body_guest_deinit(&b);
	assert_int_equal(body_guest_parse(text, strlen(text), &b, &p), -EINVAL);
	assert_int_equal(body_guest_parse(NULL, 0, &b, &p), -EINVAL);
}

static void empty_is_nothing_or_an_empty_object(void **state)
{
	(void)state;
	assert_true(body_is_empty(NULL, 0));
	assert_true(body_is_empty(" {} ", 4));
	assert_false(body_is_empty("[]", 2));
	assert_false(body_is_empty("{\"a\":1}", 7));
	assert_false(body_is_empty("{", 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(trace_is_read_whole),
		cmocka_unit_test(trace_has_defaults),
		cmocka_unit_test(graph_options_are_read),
		cmocka_unit_test(graph_options_are_judged),
		cmocka_unit_test(calls_options_are_read),
		cmocka_unit_test(at_most_so_many_faults_are_told),
		cmocka_unit_test(changes_are_read),
		cmocka_unit_test(markers_are_read),
		cmocka_unit_test(a_duplicate_is_pointed_at),
		cmocka_unit_test(bytes_past_the_end_do_not_count),
		cmocka_unit_test(empty_is_nothing_or_an_empty_object),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
