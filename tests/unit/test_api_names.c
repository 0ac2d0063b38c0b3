// SPDX-License-Identifier: Apache-2.0
/* api/names.c: guests' names. */
#include "api/names.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void what_is_a_name(void **state)
{
	char longest[NAME_MAX_BYTES + 2];

	(void)state;
	memset(longest, 'a', sizeof(longest));
	longest[NAME_MAX_BYTES] = 0;
	assert_true(name_valid("web1"));
	assert_true(name_valid("A.b_c-9"));
	assert_true(name_valid("_x"));
	assert_true(name_valid(longest));
	longest[NAME_MAX_BYTES] = 'a';
	longest[NAME_MAX_BYTES + 1] = 0;
	assert_false(name_valid(longest));
	assert_false(name_valid(""));
	assert_false(name_valid("."));
	assert_false(name_valid("..x"));
	assert_false(name_valid("-x"));
	assert_false(name_valid("a/b"));
	assert_false(name_valid("a b"));
	assert_false(name_valid("\xc3\xa4"));
}

static void one_is_found_for_every_target(void **state)
{
	static const struct {
		const char *target, *name;
	} rows[] = {
		{ "qemu:/run/vm/web1.qmp", "web1" },
		{ "qemu:/run/vm/web1.example.org.sock", "web1.example.org" },
		{ "qemu:/run/vm/web1/qmp", "web1" },
		{ "qemu:/run/vm/web1/qmp.sock", "web1" },
		{ "qemu:/var/lib/libvirt/qemu/domain-3-db/monitor.sock", "domain-3-db" },
		{ "qemu:web1", "web1" },
		{ "libvirt:qemu:///system/web1", "web1" },
		{ "libvirt:qemu:///system/a b", "a-b" },
		{ "libvirt:qemu+unix:///system/web1?socket=/run/x", "web1" },
		{ "libvirt:", "guest" },
		{ "qemu:/qmp", "qmp" },
		{ "qemu:/", "guest" },
		{ "qemu:", "guest" },
		{ "", "guest" },
		{ "pid:123", "pid-123" },
		{ "pid:", "pid-" },
		{ "qemu:/x/.hidden", "_hidden" },
		{ "qemu:/x/a b\xff", "a-b-" },
		{ "nonsense", "nonsense" },
	};
	char name[NAME_MAX_BYTES + 1];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		name_derive(rows[i].target, name);
		assert_string_equal(name, rows[i].name);
		assert_true(name_valid(name));
	}
}

static void a_long_target_is_cut(void **state)
{
	char target[1000], name[NAME_MAX_BYTES + 1];

	(void)state;
	memset(target, 'x', sizeof(target));
	target[sizeof(target) - 1] = 0;
	name_derive(target, name);
	assert_int_equal(strlen(name), NAME_MAX_BYTES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_a_name),
		cmocka_unit_test(one_is_found_for_every_target),
		cmocka_unit_test(a_long_target_is_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
