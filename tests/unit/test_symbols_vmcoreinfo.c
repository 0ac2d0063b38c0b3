// SPDX-License-Identifier: Apache-2.0
/* symbols/vmcoreinfo.c: a real text, cut ones and damaged ones. */
#include "symbols/vmcoreinfo.h"

#include "base/cleanup.h"
#include "test_symbols_fake.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void real_text(void **state)
{
	size_t len;
	_cleanup_free_ char *text = fake_file("vmcoreinfo-6.1.txt", &len);
	struct vmcoreinfo v;

	(void)state;
	assert_int_equal(vmcoreinfo_parse(text, len, &v), 0);
	assert_string_equal(v.release, "6.1.0-57-cloud-amd64");
	assert_string_equal(v.build_id, "01d2640d3a13145ee314eb05b155f141b7b7058b");
	assert_int_equal(v.stext, 0xffffffff81000000ull);
	assert_int_equal(v.swapper_pg_dir, 0xffffffff82a10000ull);
	assert_true(v.kallsyms_offsets < v.kallsyms_names);
	assert_true(v.kallsyms_names < v.kallsyms_token_index);
	assert_true(v.has_phys_base && v.has_kernel_offset);
	assert_int_equal(v.phys_base, 0);
	assert_int_equal(v.kernel_offset, 0);
	assert_int_equal(v.l5_enabled, 1);
}

/* Cut at each byte: what is there is right, what is not is absent; never a half number. */
static void cut_text(void **state)
{
	size_t len;
	_cleanup_free_ char *text = fake_file("vmcoreinfo-6.1.txt", &len);
	struct vmcoreinfo all, v;

	(void)state;
	assert_int_equal(vmcoreinfo_parse(text, len, &all), 0);
	for (size_t n = 0; n < len; n++) {
		_cleanup_free_ char *cut = malloc(n + 1);

		memcpy(cut, text, n);
		if (n < strlen("OSRELEASE=6.1.0-57-cloud-amd64\n")) {
			assert_int_equal(vmcoreinfo_parse(cut, n, &v), -ENOENT);
			continue;
		}
		assert_int_equal(vmcoreinfo_parse(cut, n, &v), 0);
		assert_true(v.stext == 0 || v.stext == all.stext);
		assert_true(v.kallsyms_names == 0 || v.kallsyms_names == all.kallsyms_names);
		assert_true(v.l5_enabled == -1 || v.l5_enabled == all.l5_enabled);
	}
}

static void negative_phys_base(void **state)
{
	static const char text[] = "OSRELEASE=1.2.3\nNUMBER(phys_base)=-16777216\n";
	struct vmcoreinfo v;

	(void)state;
	assert_int_equal(vmcoreinfo_parse(text, sizeof(text), &v), 0);
	assert_true(v.has_phys_base);
	assert_int_equal(v.phys_base, -16777216ll);
	assert_int_equal(v.l5_enabled, -1);
}

static void lies(void **state)
{
	static const char *const bad[] = {
		"",
		"\n",
		"OSRELEASE=\n",
		"OSRELEASE=a b\n",
		"OSRELEASE=x",
		"XOSRELEASE=6\n",
		"OSRELEASE=6\x01\n",
	};
	static const char odd[] = "OSRELEASE=6.1\nSYMBOL(_stext)=ffffffff810000000\n"
				  "NUMBER(phys_base)=12x\nKERNELOFFSET=\nSYMBOL(swapper_pg_dir)=-\n"
				  "BUILD-ID=xyz\nNUMBER(pgtable_l5_enabled)=7\n";
	struct vmcoreinfo v;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(vmcoreinfo_parse(bad[i], strlen(bad[i]), &v), -ENOENT);
	assert_int_equal(vmcoreinfo_parse(odd, sizeof(odd), &v), 0);
	assert_int_equal(v.stext, 0);
	assert_int_equal(v.swapper_pg_dir, 0);
	assert_false(v.has_phys_base);
	assert_false(v.has_kernel_offset);
	assert_string_equal(v.build_id, "");
	assert_int_equal(v.l5_enabled, -1);
}

static void long_release(void **state)
{
	char text[400];
	struct vmcoreinfo v;

	(void)state;
	memset(text, 'r', sizeof(text));
	memcpy(text, "OSRELEASE=", 10);
	text[sizeof(text) - 1] = '\n';
	assert_int_equal(vmcoreinfo_parse(text, sizeof(text), &v), -ENOENT);
	text[10 + sizeof(v.release) - 1] = '\n';
	assert_int_equal(vmcoreinfo_parse(text, sizeof(text), &v), 0);
	assert_int_equal(strlen(v.release), sizeof(v.release) - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(real_text),          cmocka_unit_test(cut_text),
		cmocka_unit_test(negative_phys_base), cmocka_unit_test(lies),
		cmocka_unit_test(long_release),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
