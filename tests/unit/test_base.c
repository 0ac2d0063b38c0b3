// SPDX-License-Identifier: Apache-2.0
/* base/: errors, buffer, cursor. */
#include "base/buf.h"
#include "base/cursor.h"
#include "base/err.h"
#include "base/utf8.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void err_keeps_code_and_message(void **state)
{
	struct err e = { 0 };

	(void)state;
	assert_int_equal(err_set(&e, -EINVAL, ERR_GUEST_CHANGED, 0x10, "found %02x", 0xcc),
			 -EINVAL);
	assert_int_equal(err_wrap(&e, "site %d", 7), -EINVAL);
	assert_string_equal(e.msg, "site 7: found cc");
	assert_string_equal(err_code_name(e.code), "guest.text_changed");
	assert_int_equal(err_code_status(e.code), 409);
	assert_int_equal(err_set(NULL, -EIO, ERR_NONE, 0, "nobody listens"), -EIO);
}

static void every_code_has_name_and_hint(void **state)
{
	(void)state;
	for (int c = 0; c < ERR_CODE_MAX; c++) {
		assert_non_null(err_code_name((enum err_code)c));
		assert_non_null(err_code_hint((enum err_code)c));
		assert_in_range(err_code_status((enum err_code)c), 400, 599);
	}
}

static void buf_grows(void **state)
{
	struct buf b = { 0 };

	(void)state;
	for (int i = 0; i < 1000; i++)
		buf_addf(&b, "%03d,", i);
	assert_false(buf_failed(&b));
	assert_int_equal(b.len, 4000);
	assert_memory_equal(b.data + 3996, "999,", 5);
	buf_deinit(&b);
}

static void cursor_does_not_move_on_failure(void **state)
{
	static const u8 bytes[] = { 1, 2, 3, 4, 5, 6, 7 };
	struct cursor c = cursor_init(bytes, sizeof(bytes));
	u32 v = 0;
	u64 w = 9;

	(void)state;
	assert_true(cursor_u32(&c, &v));
	assert_int_equal(v, 0x04030201);
	assert_false(cursor_u64(&c, &w));
	assert_int_equal(w, 9);
	assert_int_equal(cursor_left(&c), 3);
}

static void utf8_is_told_from_other_bytes(void **state)
{
	static const struct {
		const char *s;
		size_t left, want;
	} cases[] = {
		{ "a", 1, 1 },
		{ "", 0, 0 },
		{ "\0", 1, 1 },
		{ "\x7f", 1, 1 },
		{ "\x80", 1, 0 },
		{ "\xc1\xbf", 2, 0 }, /* overlong */
		{ "\xc2\x80", 2, 2 },
		{ "\xc2\x7f", 2, 0 },
		{ "\xc2\x80", 1, 0 }, /* cut */
		{ "\xdf\xbf!", 3, 2 },
		{ "\xe0\x9f\xbf", 3, 0 }, /* overlong */
		{ "\xe0\xa0\x80", 3, 3 },
		{ "\xed\x9f\xbf", 3, 3 },
		{ "\xed\xa0\x80", 3, 0 }, /* a surrogate */
		{ "\xef\xbf\xbd", 3, 3 },
		{ "\xef\xbf\xbd", 2, 0 },
		{ "\xef\xbf\xc0", 3, 0 },
		{ "\xf0\x8f\xbf\xbf", 4, 0 }, /* overlong */
		{ "\xf0\x90\x80\x80", 4, 4 },
		{ "\xf4\x8f\xbf\xbf", 4, 4 },
		{ "\xf4\x90\x80\x80", 4, 0 }, /* above U+10FFFF */
		{ "\xf4\x8f\xbf\xbf", 3, 0 },
		{ "\xf5\x80\x80\x80", 4, 0 },
		{ "\xff", 1, 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(utf8_len((const u8 *)cases[i].s, cases[i].left), cases[i].want);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(err_keeps_code_and_message),
		cmocka_unit_test(every_code_has_name_and_hint),
		cmocka_unit_test(buf_grows),
		cmocka_unit_test(utf8_is_told_from_other_bytes),
		cmocka_unit_test(cursor_does_not_move_on_failure),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
