// SPDX-License-Identifier: Apache-2.0
/* api/registry.c: guests that nobody lets go, whatever is done to the host's clock meanwhile; one that is slow to go. */
#include "api/events.h"
#include "api/hub.h"
#include "api/registry.h"
#include "api/systemd.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define SECOND NSEC_PER_SEC

/* The linker has this called instead: see CMakeLists.txt. */
int __wrap_clock_gettime(clockid_t id, struct timespec *ret);
int __real_clock_gettime(clockid_t id, struct timespec *ret);

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
				  const struct timespec *until);
int __real_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
				  const struct timespec *until);
int __wrap_guest_detach(struct guest *g, struct guest_restore *ret, struct err *err);
int __real_guest_detach(struct guest *g, struct guest_restore *ret, struct err *err);
void __wrap_systemd_notify(const char *state);

static time_t realtime_off, monotonic_off; /* seconds */

int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
	int r = __real_clock_gettime(id, ret);

	ret->tv_sec += id == CLOCK_REALTIME    ? realtime_off
		       : id == CLOCK_MONOTONIC ? monotonic_off
					       : 0;
	return r;
}

static bool no_waiting; /* whatever is waited for with an end does not come before that */
static unsigned told_before; /* that guests take longer, before one is detached */
static atomic_uint n_told;

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
				  const struct timespec *until)
{
	if (!no_waiting)
		return __real_pthread_cond_timedwait(cond, lock, until);
	pthread_mutex_unlock(lock);
	usleep(1000);
	pthread_mutex_lock(lock);
	return ETIMEDOUT;
}

int __wrap_guest_detach(struct guest *g, struct guest_restore *ret, struct err *err)
{
	for (int i = 0; i < 20000 && n_told < told_before; i++)
		usleep(1000);
	if (told_before) /* nothing more comes */
		usleep(100000);
	return __real_guest_detach(g, ret, err);
}

void __wrap_systemd_notify(const char *state)
{
	assert_non_null(strstr(state, "EXTEND_TIMEOUT_USEC="));
	n_told++;
}

/* A registry with one guest, which is held. */
struct rig {
	char dir[32];
	struct hub *hub;
	struct events *events;
	struct registry *reg;
	struct guest_entry *g;
};

static void open_rig(struct rig *r)
{
	const struct guest_opts opts = { .boot_ns = SECOND };
	struct err err = { 0 };

	strcpy(r->dir, "/tmp/hvf-registry-XXXXXX");
	assert_non_null(mkdtemp(r->dir));
	assert_int_equal(hub_create(60 * SECOND, &r->hub, &err), 0);
	assert_int_equal(events_create(r->hub, 1, &r->events, &err), 0);
	assert_int_equal(registry_create(r->dir, r->hub, r->events, &r->reg, &err), 0);
	assert_int_equal(registry_attach(r->reg, "qemu:/fake", "g", &opts, &r->g, &err), 0);
}

/* After registry_close() */
static void close_rig(struct rig *r)
{
	registry_destroy(r->reg);
	events_destroy(r->events);
	hub_destroy(r->hub);
	rmdir(r->dir);
}

/* Held for @monotonic seconds, while the clock went on by @realtime; is it let go after 60? */
static bool is_let_go(time_t monotonic, time_t realtime)
{
	struct rig rig;
	unsigned n_unended = 0;
	bool held;

	realtime_off = monotonic_off = 0;
	open_rig(&rig);
	assert_true(guest_is_held(rig.g->guest));
	realtime_off = realtime;
	monotonic_off = monotonic;
	registry_release_held(rig.reg, 60 * SECOND);
	held = guest_is_held(rig.g->guest);
	realtime_off = monotonic_off = 0;
	registry_guest_put(rig.g);
	assert_int_equal(registry_close(rig.reg, &n_unended), 0);
	close_rig(&rig);
	return !held;
}

static void held_for_too_long(void **state)
{
	(void)state;
	assert_false(is_let_go(0, 0));
	assert_false(is_let_go(50, 50));
	assert_true(is_let_go(70, 70));
	assert_true(is_let_go(70, -3600)); /* the clock was set back */
	assert_true(is_let_go(70, 0));
	assert_false(is_let_go(10, 3600)); /* and forth */
}

/* Ten minutes of it: the service manager is told from the start, and not without an end. */
static void slow_to_go(void **state)
{
	struct rig rig;
	unsigned n_unended = 0;

	(void)state;
	open_rig(&rig);
	registry_guest_put(rig.g);
	n_told = 0;
	told_before = 1 + 20;
	no_waiting = true;
	assert_int_equal(registry_close(rig.reg, &n_unended), 0);
	no_waiting = false;
	told_before = 0;
	assert_int_equal(n_told, 1 + 20 + 1); /* and that it went */
	close_rig(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(held_for_too_long),
					    cmocka_unit_test(slow_to_go) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
