// SPDX-License-Identifier: Apache-2.0
/* api/audit.c: a disk that is full for a while costs the lines of that time, and no other. */
#include "api/audit.h"

#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/hvf-audit-XXXXXX", path[64];

static int setup(void **state)
{
	(void)state;
	strcpy(dir + strlen(dir) - 6, "XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/log", dir);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(dir);
}

static void add(struct audit *a, int status)
{
	const struct audit_entry e = {
		.who = "uid:0", .role = "admin", .operation = "POST /v1/guests", .status = status
	};

	audit_add(a, &e);
}

/* As a disk that has @more bytes left for the file; ~0: all it wants */
static void leave(rlim_t more)
{
	struct rlimit l;
	struct stat st;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &l), 0);
	assert_int_equal(stat(path, &st), 0);
	l.rlim_cur = more == ~(rlim_t)0 ? l.rlim_max : (rlim_t)st.st_size + more;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &l), 0);
}

/* The statuses of the lines that are whole, as digits; "-" for one that is not. */
static const char *lines(void)
{
	static char ret[64];
	char line[1024];
	FILE *f = fopen(path, "r");
	size_t n = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		json_t *doc = json_loads(line, 0, NULL);

		assert_true(n < sizeof(ret) - 1);
		ret[n++] = doc ? (char)('0' + json_integer_value(json_object_get(doc, "status")))
			       : '-';
		json_decref(doc);
	}
	ret[n] = '\0';
	fclose(f);
	return ret;
}

static void a_full_disk(void **state)
{
	struct audit *a;
	struct err err = { 0 };

	(void)state;
	assert_int_equal(audit_create(path, &a, &err), 0);
	add(a, 1);
	leave(20);
	add(a, 2); /* half of it */
	add(a, 3); /* nothing */
	leave(~(rlim_t)0);
	add(a, 4);
	add(a, 5);
	assert_int_equal(audit_failures(a), 2);
	assert_string_equal(lines(), "1-45");
	/* and room for no more than the end of the line that was cut */
	leave(20);
	add(a, 6);
	leave(1);
	add(a, 7);
	leave(~(rlim_t)0);
	add(a, 8);
	assert_string_equal(lines(), "1-45-8");
	assert_int_equal(audit_failures(a), 4);
	audit_destroy(a);
}

static void what_another_time_left(void **state)
{
	static const struct {
		const char *was, *want;
	} t[] = { { "", "1" }, { "{\"status\": 7}\n", "71" }, { "{\"status\": 7", "-1" } };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		FILE *f = fopen(path, "w");
		struct audit *a;
		struct err err = { 0 };

		assert_non_null(f);
		fputs(t[i].was, f);
		fclose(f);
		assert_int_equal(audit_create(path, &a, &err), 0);
		add(a, 1);
		assert_string_equal(lines(), t[i].want);
		audit_destroy(a);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_full_disk, setup, teardown),
		cmocka_unit_test_setup_teardown(what_another_time_left, setup, teardown),
	};

	signal(SIGXFSZ, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
