// SPDX-License-Identifier: Apache-2.0
/* vmm/libvirt_link.c: a goodbye that comes at the last moment is no answer that libvirt owes. */
#include "vmm/libvirt_link.h"

#include "test_vmm_libvirt_fake.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define TIMES 40 /* more than attempts may be owed answers */

/* The linker has this called instead: see CMakeLists.txt. */
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
				  const struct timespec *until);
int __real_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
				  const struct timespec *until);

static bool
	late; /* the time is over, and what was waited for is there before the lock is had again */

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
				  const struct timespec *until)
{
	const struct timespec nap = { 0, 2000000 };
	bool closed = false;

	if (!late)
		return __real_pthread_cond_timedwait(cond, lock, until);
	pthread_mutex_unlock(lock);
	while (!closed) {
		fake_lock();
		closed = fake.n_closed == fake.n_open;
		fake_unlock();
		nanosleep(&nap, NULL);
	}
	pthread_mutex_lock(lock);
	return ETIMEDOUT;
}

static void closed_at_the_last_moment(void **state)
{
	const struct lv_target t = { .uri = "qemu:///system", .domain = "vm" };
	struct err err = { 0 };

	(void)state;
	lv_lib_fake(&fake_lib);
	fake.id = 3;
	fake.type = "QEMU";
	for (int i = 0; i < TIMES; i++) {
		struct lv_link *l = NULL;

		if (lv_link_open(&t, 20 * NSEC_PER_SEC, &l, &err) < 0)
			fail_msg("after %d: %s", i, err.msg);
		late = true;
		lv_link_close(l);
		late = false;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(closed_at_the_last_moment) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
