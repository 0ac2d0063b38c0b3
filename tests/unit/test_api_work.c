// SPDX-License-Identifier: Apache-2.0
/* api/work.c: jobs run, at most so many at a time, and none is left when the pool goes. */
#include "api/work.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include <cmocka.h>

static struct {
	pthread_mutex_t lock;
	pthread_cond_t change;
	unsigned running, most, open;
	atomic_uint n_done;
} s = { .lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER };

static void count(void *arg)
{
	atomic_fetch_add((atomic_uint *)arg, 1);
}

/* A job that ends only once the test lets it. */
static void wait_for_gate(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&s.lock);
	s.running++;
	if (s.running > s.most)
		s.most = s.running;
	pthread_cond_broadcast(&s.change);
	while (!s.open)
		pthread_cond_wait(&s.change, &s.lock);
	s.running--;
	pthread_mutex_unlock(&s.lock);
	atomic_fetch_add(&s.n_done, 1);
}

static void all_jobs_run(void **state)
{
	atomic_uint n = 0;
	struct work *w;

	(void)state;
	assert_int_equal(work_create(4, &w, NULL), 0);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(work_submit(w, count, &n), 0);
	assert_true(work_drain(w, WORK_FOREVER));
	assert_int_equal(n, 1000);
	assert_true(work_drain(w, 0)); /* of nothing is fine */
	work_destroy(w);
}

static void at_most_so_many_at_a_time(void **state)
{
	struct work *w;

	(void)state;
	assert_int_equal(work_create(3, &w, NULL), 0);
	for (int i = 0; i < 10; i++)
		assert_int_equal(work_submit(w, wait_for_gate, NULL), 0);
	pthread_mutex_lock(&s.lock);
	while (s.running < 3) /* and so many there are: none waits for another that is busy */
		pthread_cond_wait(&s.change, &s.lock);
	assert_false(work_drain(w, 1000)); /* and it does not wait for ever */
	s.open = 1;
	pthread_cond_broadcast(&s.change);
	pthread_mutex_unlock(&s.lock);
	assert_true(work_drain(w, WORK_FOREVER));
	assert_int_equal(s.n_done, 10);
	assert_int_equal(s.most, 3);
	work_destroy(w);
}

static void what_is_queued_runs_before_the_end(void **state)
{
	atomic_uint n = 0;
	struct work *w;

	(void)state;
	assert_int_equal(work_create(1, &w, NULL), 0);
	for (int i = 0; i < 100; i++)
		assert_int_equal(work_submit(w, count, &n), 0);
	work_destroy(w);
	assert_int_equal(n, 100);
	work_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_jobs_run),
		cmocka_unit_test(at_most_so_many_at_a_time),
		cmocka_unit_test(what_is_queued_runs_before_the_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
