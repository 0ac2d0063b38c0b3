// SPDX-License-Identifier: Apache-2.0
/* vmm/libvirt_list.c against a libvirt of our own, which hangs. */
#include "vmm/libvirt_list.h"

#include "base/clock.h"
#include "vmm/libvirt_lib.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CALLERS 20
#define ENOUGH  (20 * NSEC_PER_SEC)
#define SHORT   (50 * NSEC_PER_MSEC)

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool hang;
	unsigned n_open, n_closed, n_waiting;
	int n_domains;
} fake = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static struct lv_conn *fake_open(const char *uri)
{
	assert_string_equal(uri, "qemu:///system");
	pthread_mutex_lock(&fake.lock);
	fake.n_open++;
	pthread_cond_broadcast(&fake.changed);
	while (fake.hang)
		pthread_cond_wait(&fake.changed, &fake.lock);
	pthread_mutex_unlock(&fake.lock);
	return (struct lv_conn *)&fake;
}

static int fake_close(struct lv_conn *c)
{
	(void)c;
	pthread_mutex_lock(&fake.lock);
	fake.n_closed++;
	pthread_cond_broadcast(&fake.changed);
	pthread_mutex_unlock(&fake.lock);
	return 0;
}

static int fake_list(struct lv_conn *c, struct lv_dom ***ret, unsigned flags)
{
	(void)c;
	(void)flags;
	if (fake.n_domains < 0)
		return -1;
	*ret = calloc((size_t)fake.n_domains + 1, sizeof(struct lv_dom *));
	assert_non_null(*ret);
	return fake.n_domains;
}

static int fake_dom_free(struct lv_dom *d)
{
	(void)d;
	return 0;
}

static const char *fake_dom_name(struct lv_dom *d)
{
	(void)d;
	return "vm";
}

static int fake_dom_uuid(struct lv_dom *d, char *ret)
{
	(void)d;
	snprintf(ret, LV_UUID_BYTES, "ab3d89b0-4c0e-49e1-a883-7322a1346cbe");
	return 0;
}

static unsigned fake_dom_id(struct lv_dom *d)
{
	(void)d;
	return 3;
}

static int fake_dom_state(struct lv_dom *d, int *state, int *reason, unsigned flags)
{
	(void)d;
	(void)flags;
	*state = 1;
	*reason = 0;
	return 0;
}

static const char *fake_error_text(void)
{
	return "as the test wants it";
}

static const struct lv_lib fake_lib = {
	.open_read_only = fake_open,
	.close = fake_close,
	.list = fake_list,
	.dom_free = fake_dom_free,
	.dom_name = fake_dom_name,
	.dom_uuid = fake_dom_uuid,
	.dom_id = fake_dom_id,
	.dom_state = fake_dom_state,
	.error_text = fake_error_text,
};

static void set_hang(bool hang)
{
	pthread_mutex_lock(&fake.lock);
	fake.hang = hang;
	pthread_cond_broadcast(&fake.changed);
	pthread_mutex_unlock(&fake.lock);
}

static unsigned n_open(void)
{
	unsigned n;

	pthread_mutex_lock(&fake.lock);
	n = fake.n_open;
	pthread_mutex_unlock(&fake.lock);
	return n;
}

static int setup(void **state)
{
	(void)state;
	lv_lib_fake(&fake_lib);
	fake.n_open = fake.n_closed = fake.n_waiting = 0;
	fake.n_domains = 2;
	set_hang(false);
	return 0;
}

/* Asks, and says how long that took. */
static u64 ask(u64 timeout_ns, int want, size_t want_n)
{
	struct lv_domain *domain = NULL;
	u64 start = monotonic_ns();
	struct err err = { 0 };
	size_t n = 0;
	int rc = lv_list(timeout_ns, &domain, &n, &err);

	if (rc != want)
		fail_msg("%d instead of %d: %s", rc, want, err.msg);
	assert_int_equal(n, want_n);
	if (rc < 0)
		assert_true(err.msg[0]);
	for (size_t i = 0; i < n; i++)
		assert_string_equal(domain[i].name, "vm");
	free(domain);
	return monotonic_ns() - start;
}

static void each_asks_anew(void **state)
{
	(void)state;
	ask(ENOUGH, 0, 2);
	fake.n_domains = 3;
	ask(ENOUGH, 0, 3);
	fake.n_domains = -1;
	ask(ENOUGH, -ENOTCONN, 0);
	fake.n_domains = 0;
	ask(ENOUGH, 0, 0);
	assert_int_equal(fake.n_open, 4);
	assert_int_equal(fake.n_closed, 4);
}

/* One thread and one connection hang, whoever asks; who asks when that is known does not wait. */
static void a_libvirtd_that_hangs(void **state)
{
	u64 waited = 0;

	(void)state;
	set_hang(true);
	assert_true(ask(SHORT, -ETIMEDOUT, 0) >= SHORT);
	for (unsigned i = 0; i < CALLERS; i++)
		waited += ask(SHORT, -ETIMEDOUT, 0);
	assert_true(waited < CALLERS * SHORT / 2);
	assert_int_equal(n_open(), 1);
	set_hang(false);
	ask(ENOUGH, 0, 2); /* what was owed, or a new one */
	pthread_mutex_lock(&fake.lock);
	while (fake.n_closed < fake.n_open)
		pthread_cond_wait(&fake.changed, &fake.lock);
	pthread_mutex_unlock(&fake.lock);
	ask(ENOUGH, 0, 2);
	assert_true(n_open() <= 3);
}

static void *caller(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&fake.lock);
	fake.n_waiting++;
	pthread_cond_broadcast(&fake.changed);
	pthread_mutex_unlock(&fake.lock);
	ask(ENOUGH, 0, 2);
	return NULL;
}

/* All who ask meanwhile get what the first one asked for, each its own copy. */
static void many_share_an_answer(void **state)
{
	pthread_t thread[CALLERS];

	(void)state;
	set_hang(true);
	for (unsigned i = 0; i < CALLERS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, caller, NULL), 0);
	pthread_mutex_lock(&fake.lock);
	while (fake.n_waiting < CALLERS || !fake.n_open)
		pthread_cond_wait(&fake.changed, &fake.lock);
	assert_int_equal(fake.n_open, 1);
	pthread_mutex_unlock(&fake.lock);
	set_hang(false);
	for (unsigned i = 0; i < CALLERS; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(fake.n_open, fake.n_closed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(each_asks_anew, setup),
		cmocka_unit_test_setup(a_libvirtd_that_hangs, setup),
		cmocka_unit_test_setup(many_share_an_answer, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
