// SPDX-License-Identifier: Apache-2.0
/* api/hub.c without HTTP: how often those are looked at that nobody tells of. */
#include "api/hub.h"
#include "base/clock.h"

#include <microhttpd.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include <cmocka.h>

static sem_t resumed;
static atomic_uint looks;
static atomic_bool has_news;

void MHD_suspend_connection(struct MHD_Connection *conn)
{
	(void)conn;
}

void MHD_resume_connection(struct MHD_Connection *conn)
{
	(void)conn;
	sem_post(&resumed);
}

const union MHD_ConnectionInfo *MHD_get_connection_info(struct MHD_Connection *conn,
							enum MHD_ConnectionInfoType what, ...)
{
	(void)conn, (void)what;
	return NULL;
}

static bool is_ready(const struct hub_client *c)
{
	(void)c;
	atomic_fetch_add(&looks, 1);
	return atomic_load(&has_news);
}

static struct hub *begin(struct hub_client *c)
{
	struct err err = { 0 };
	struct hub *h;

	sem_init(&resumed, 0, 0);
	atomic_store(&looks, 0);
	assert_int_equal(hub_create(15 * NSEC_PER_SEC, &h, &err), 0);
	hub_client_init(c, NULL, NULL, NULL, false);
	c->ready = is_ready;
	hub_add(h, c);
	nanosleep(&(struct timespec){ .tv_nsec = 20 * (long)NSEC_PER_MSEC },
		  NULL); /* its thread waits */
	return h;
}

static void suspend(struct hub *h, struct hub_client *c)
{
	while (hub_wait(h, c, false) != HUB_SUSPENDED)
		;
}

/* As a stream does of a guest that has said more each time. */
static void one_who_always_has_something_is_looked_at_25_times_a_second(void **state)
{
	struct hub_client c;
	struct hub *h = begin(&c);
	u64 from = monotonic_ns(), now = from;
	unsigned n = 0;

	(void)state;
	atomic_store(&has_news, true);
	for (; now - from < 400 * NSEC_PER_MSEC; n++) {
		suspend(h, &c);
		sem_wait(&resumed);
		now = monotonic_ns();
	}
	assert_in_range(n, 2, (now - from) / (40 * NSEC_PER_MSEC) + 1);
	hub_remove(h, &c);
	hub_destroy(h);
}

static void one_who_has_nothing_is_looked_at_until_there_is_something(void **state)
{
	struct hub_client c;
	struct hub *h = begin(&c);
	struct timespec rest = { .tv_nsec = 300 * (long)NSEC_PER_MSEC };
	u64 from = monotonic_ns();

	(void)state;
	atomic_store(&has_news, false);
	suspend(h, &c);
	nanosleep(&rest, NULL);
	assert_int_not_equal(sem_trywait(&resumed), 0);
	assert_in_range(atomic_load(&looks), 2, (monotonic_ns() - from) / (40 * NSEC_PER_MSEC) + 1);
	atomic_store(&has_news, true);
	sem_wait(&resumed);
	hub_remove(h, &c);
	hub_destroy(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_who_always_has_something_is_looked_at_25_times_a_second),
		cmocka_unit_test(one_who_has_nothing_is_looked_at_until_there_is_something),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
