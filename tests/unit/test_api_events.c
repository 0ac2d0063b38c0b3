// SPDX-License-Identifier: Apache-2.0
/* api/events.c: what is kept, in which order, and what is told of the rest. */
#include "api/events.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define FIRST 1000000

static unsigned woken;

struct hub;
void hub_wake(struct hub *h, const void *topic);
void hub_wake(struct hub *h, const void *topic)
{
	(void)h;
	(void)topic;
	woken++;
}

struct seen {
	u64 first, last, n;
	char text[256]; /* of the last */
};

static void put(void *arg, u64 seq, const char *json, size_t len)
{
	struct seen *s = arg;

	if (!s->n++)
		s->first = seq;
	else
		assert_int_equal(seq, s->last + 1);
	s->last = seq;
	assert_true(len < sizeof(s->text));
	memcpy(s->text, json, len);
	s->text[len] = 0;
}

static struct events *make(unsigned n)
{
	struct events *e;
	struct err err = { 0 };

	assert_int_equal(events_create(NULL, FIRST, &e, &err), 0);
	for (unsigned i = 0; i < n; i++)
		events_add(e, "marker", json_pack("{s:i}", "i", (int)i));
	return e;
}

static void nothing_yet(void **state)
{
	struct events *e = make(0);
	struct events_page page = { .max = 10 };
	struct seen s = { 0 };
	struct err err = { 0 };

	(void)state;
	assert_int_equal(events_read(e, &page, put, &s, &err), 0);
	assert_int_equal(s.n + page.n + page.oldest_seq, 0);
	events_destroy(e);
}

static void events_are_numbered(void **state)
{
	struct events *e = make(3);
	struct events_page page = { .max = 2 };
	struct seen s = { 0 };
	struct err err = { 0 };

	(void)state;
	assert_int_equal(events_read(e, &page, put, &s, &err), 0);
	assert_int_equal(s.first, FIRST);
	assert_int_equal(page.after, FIRST + 1);
	assert_int_equal(page.n, 2);
	assert_int_equal(events_read(e, &page, put, &s, &err), 0);
	assert_int_equal(s.n, 3);
	assert_ptr_equal(strstr(s.text, "{\"seq\":1000002,\"type\":\"marker\",\"time\":\""),
			 s.text);
	assert_non_null(strstr(s.text, ",\"i\":2}"));
	assert_int_equal(events_read(e, &page, put, &s, &err), 0);
	assert_int_equal(page.n, 0);
	assert_int_equal(page.after, FIRST + 2);
	events_destroy(e);
}

static void the_oldest_give_way(void **state)
{
	struct events *e = make(EVENTS_KEPT + 5);
	struct events_page page = { .max = EVENTS_KEPT };
	struct seen s = { 0 };
	struct err err = { 0 };

	(void)state;
	assert_int_equal(events_read(e, &page, put, &s, &err), 0);
	assert_int_equal(s.first, FIRST + 5);
	assert_int_equal(s.n, EVENTS_KEPT);
	page.after = FIRST + 3; /* the next is gone */
	assert_int_equal(events_read(e, &page, put, &s, &err), -ESTALE);
	assert_int_equal(err.code, ERR_CURSOR_GONE);
	assert_int_equal(page.oldest_seq, FIRST + 5);
	page.after = FIRST + 4;
	assert_int_equal(events_read(e, &page, put, &(struct seen){ 0 }, &err), 0);
	assert_int_equal(page.n, EVENTS_KEPT);
	events_destroy(e);
}

static void numbers_of_other_runs_are_refused(void **state)
{
	static const u64 bad[] = { 1, FIRST - 2, FIRST + 3, INT64_MAX };
	struct events *e = make(3);
	struct seen s = { 0 };
	struct err err = { 0 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct events_page page = { .after = bad[i], .max = 10 };

		assert_int_equal(events_read(e, &page, put, &s, &err), -ESTALE);
		assert_int_equal(page.oldest_seq, FIRST);
	}
	events_destroy(e);
}

static void no_memory_is_no_event(void **state)
{
	struct events *e = make(1);
	struct events_page page = { .max = 10 };
	struct seen s = { 0 };
	struct err err = { 0 };

	(void)state;
	events_add(e, "marker", NULL);
	assert_int_equal(events_read(e, &page, put, &s, &err), 0);
	assert_int_equal(s.n, 1);
	assert_true(woken > 0);
	events_destroy(e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_yet),
		cmocka_unit_test(events_are_numbered),
		cmocka_unit_test(the_oldest_give_way),
		cmocka_unit_test(numbers_of_other_runs_are_refused),
		cmocka_unit_test(no_memory_is_no_event),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
