// SPDX-License-Identifier: Apache-2.0
/* api/page.c: whether gzip may be sent, and whether a client has the file already. */
#include "api/page.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void gzip_is_sent_to_who_takes_it(void **state)
{
	(void)state;
	assert_true(page_takes_gzip("gzip"));
	assert_true(page_takes_gzip("GZIP"));
	assert_true(page_takes_gzip("deflate, gzip;q=0.5, br"));
	assert_true(page_takes_gzip("gzip ; q=0.001"));
	assert_true(page_takes_gzip("*"));
	assert_true(page_takes_gzip(" ,, gzip"));
	assert_true(page_takes_gzip("gzip;"));
	assert_false(page_takes_gzip(NULL));
	assert_false(page_takes_gzip(""));
	assert_false(page_takes_gzip(","));
	assert_false(page_takes_gzip("gzip;q=0"));
	assert_false(page_takes_gzip("gzip; q=0.000"));
	assert_false(page_takes_gzip("identity"));
	assert_false(page_takes_gzip("xgzip, gzipx"));
	assert_false(page_takes_gzip("*;q=0"));
}

static void a_tag_is_found_among_others(void **state)
{
	(void)state;
	assert_true(page_etag_matches("\"a1\"", "\"a1\""));
	assert_true(page_etag_matches("W/\"a1\"", "\"a1\""));
	assert_true(page_etag_matches("\"x\", W/\"y\" ,\"a1\"", "\"a1\""));
	assert_true(page_etag_matches("*", "\"a1\""));
	assert_false(page_etag_matches(NULL, "\"a1\""));
	assert_false(page_etag_matches("", "\"a1\""));
	assert_false(page_etag_matches("W/", "\"a1\""));
	assert_false(page_etag_matches("a1", "\"a1\""));
	assert_false(page_etag_matches("\"a12\"", "\"a1\""));
	assert_false(page_etag_matches("\"a\"", "\"a1\""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gzip_is_sent_to_who_takes_it),
		cmocka_unit_test(a_tag_is_found_among_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
