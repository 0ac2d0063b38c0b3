// SPDX-License-Identifier: Apache-2.0
/* api/trace_ids.c: no number is given out twice, whatever becomes of the daemon and of its file. */
#include "api/trace_ids.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64], file[128];

static int set_up(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/hvf-trace-ids-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(file, sizeof(file), "%s/last-trace", dir);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	(void)unlink(file);
	return rmdir(dir); /* fails if anything else was left */
}

static struct trace_ids *make(void)
{
	struct trace_ids *ids = trace_ids_create(dir);

	assert_non_null(ids);
	return ids;
}

static u64 take(struct trace_ids *ids)
{
	struct err err = { 0 };
	u64 n = 0;

	if (trace_ids_take(ids, &n, &err))
		fail_msg("%s", err.msg);
	return n;
}

static void put(const char *text)
{
	FILE *f = fopen(file, "we");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static void they_go_on_in_the_next_run(void **state)
{
	struct trace_ids *ids = make();

	(void)state;
	assert_int_equal(take(ids), 1);
	assert_int_equal(take(ids), 2);
	trace_ids_destroy(ids);
	ids = make();
	assert_int_equal(take(ids), 3);
	trace_ids_destroy(ids);
}

/* What became no trace may be given out again, but not by the next run, which cannot know. */
static void one_is_given_back(void **state)
{
	struct trace_ids *ids = make();

	(void)state;
	assert_int_equal(take(ids), 1);
	trace_ids_give_back(ids, 1);
	assert_int_equal(take(ids), 1);
	assert_int_equal(take(ids), 2);
	trace_ids_give_back(ids, 1); /* there is a later one */
	assert_int_equal(take(ids), 3);
	trace_ids_give_back(ids, 3);
	trace_ids_destroy(ids);
	ids = make();
	assert_int_equal(take(ids), 4);
	trace_ids_destroy(ids);
}

static void a_damaged_file_is_passed_by(void **state)
{
	static const char *const texts[] = { "",
					     "x\n",
					     "-1\n",
					     "7",
					     "7\n8\n",
					     "07\n",
					     " 7\n",
					     "18446744073709551615\n",
					     "99999999999999999999\n" };
	u64 now = (u64)time(NULL);
	struct trace_ids *ids;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		put(texts[i]);
		ids = make();
		assert_in_range(take(ids), now, now + 1000);
		trace_ids_destroy(ids);
	}
	put("7\n");
	ids = make();
	assert_int_equal(take(ids), 8);
	trace_ids_destroy(ids);
}

/* Else a trace could be started that the next run knows nothing of. */
static void what_cannot_be_written_down_is_refused(void **state)
{
	struct trace_ids *ids = make();
	char in_the_way[160];
	struct err err = { 0 };
	u64 n;

	(void)state;
	assert_int_equal(take(ids), 1);
	snprintf(in_the_way, sizeof(in_the_way), "%s.new", file);
	assert_int_equal(mkdir(in_the_way, 0700), 0);
	assert_true(trace_ids_take(ids, &n, &err) < 0);
	assert_int_equal(err.code, ERR_JOURNAL);
	assert_non_null(strstr(err.msg, file));
	assert_int_equal(rmdir(in_the_way), 0);
	assert_int_equal(take(ids), 2);
	trace_ids_destroy(ids);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(they_go_on_in_the_next_run, set_up, tear_down),
		cmocka_unit_test_setup_teardown(one_is_given_back, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_damaged_file_is_passed_by, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_cannot_be_written_down_is_refused, set_up,
						tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
