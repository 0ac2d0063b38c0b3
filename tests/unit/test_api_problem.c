// SPDX-License-Identifier: Apache-2.0
/* api/problem.c: documents, and text that a guest chose. */
#include "api/problem.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *member(json_t *doc, const char *key)
{
	return json_string_value(json_object_get(doc, key));
}

static void of_an_error(void **state)
{
	struct err err = { 0 };
	struct problem p;
	json_t *doc;

	(void)state;
	err_set(&err, -EINVAL, ERR_GUEST_CHANGED, 0xffffffff81000004, "found cc, expected e8");
	problem_from_err(&p, &err);
	doc = problem_json(&p, "1a");
	assert_string_equal(member(doc, "type"), "urn:hvftrace:problem:guest.text_changed");
	assert_string_equal(member(doc, "title"), "Conflict");
	assert_int_equal(json_integer_value(json_object_get(doc, "status")), 409);
	assert_string_equal(member(doc, "detail"), "found cc, expected e8");
	assert_string_equal(member(doc, "address"), "0xffffffff81000004");
	assert_string_equal(member(doc, "request_id"), "1a");
	assert_null(json_object_get(doc, "errors"));
	assert_null(json_object_get(doc, "oldest_seq"));
	json_decref(doc);
}

static void every_status_has_a_title(void **state)
{
	struct problem p;

	(void)state;
	for (int c = 0; c < ERR_CODE_MAX; c++)
		assert_string_not_equal(problem_reason(err_code_status((enum err_code)c)), "Error");
	for (int c = 0; c < PROBLEM_CODE_MAX; c++) {
		problem_from_code(&p, (enum problem_code)c, "x");
		assert_string_not_equal(problem_reason(p.status), "Error");
		assert_true(p.hint[0] && p.code[0]);
	}
}

static void without_a_message_it_says_something(void **state)
{
	struct err err = { .no = -EIO };
	struct problem p;

	(void)state;
	problem_from_err(&p, &err);
	assert_string_equal(p.detail, "the operation failed");
	assert_string_equal(p.code, "internal");
}

static void text_is_always_utf8(void **state)
{
	/* overlong, surrogate, past U+10FFFF, cut short, lone continuation: one U+FFFD a byte */
	static const struct {
		const char *in, *out;
	} rows[] = {
		{ "plain", "plain" },
		{ "", "" },
		{ "\xc3\xa4", "\xc3\xa4" },
		{ "\xf0\x9f\x90\xa7", "\xf0\x9f\x90\xa7" },
		{ "a\xff"
		  "b",
		  "a\xef\xbf\xbd"
		  "b" },
		{ "\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd" },
		{ "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
		{ "\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
		{ "\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd" },
		{ "\x80", "\xef\xbf\xbd" },
	};
	json_t *text;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		text = json_text(rows[i].in);
		assert_non_null(text);
		assert_string_equal(json_string_value(text), rows[i].out);
		json_decref(text);
	}
	assert_true(json_is_null(json_text(NULL)));
}

static void addresses_and_times(void **state)
{
	json_t *v;

	(void)state;
	v = json_addr(0xffffffffffffffff);
	assert_string_equal(json_string_value(v), "0xffffffffffffffff");
	json_decref(v);
	v = json_time(1795964195404547316);
	assert_string_equal(json_string_value(v), "2026-11-29T14:56:35.404547316Z");
	json_decref(v);
	v = json_time(1000000001);
	assert_string_equal(json_string_value(v), "1970-01-01T00:00:01.000000001Z");
	json_decref(v);
	assert_true(json_is_null(json_time(0)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_an_error),
		cmocka_unit_test(every_status_has_a_title),
		cmocka_unit_test(without_a_message_it_says_something),
		cmocka_unit_test(text_is_always_utf8),
		cmocka_unit_test(addresses_and_times),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
