// SPDX-License-Identifier: Apache-2.0
/* See test_vmm_libvirt_fake.h. */
#include "test_vmm_libvirt_fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

struct fake_libvirt fake = { .lock = PTHREAD_MUTEX_INITIALIZER,
			     .changed = PTHREAD_COND_INITIALIZER };

void fake_lock(void)
{
	pthread_mutex_lock(&fake.lock);
}

void fake_unlock(void)
{
	pthread_cond_broadcast(&fake.changed);
	pthread_mutex_unlock(&fake.lock);
}

static int fake_error_code(void)
{
	return fake.error;
}

static const char *fake_error_text(void)
{
	return "as the test wants it";
}

/* What was registered at it; all of one connection have the same argument. */
struct lv_conn {
	void *arg;
	lv_free_cb free_arg;
};

static struct lv_conn *fake_open(const char *uri)
{
	struct lv_conn *c = NULL;

	assert_string_equal(uri, "qemu:///system");
	fake_lock();
	fake.n_tries++;
	while (fake.hang_open)
		pthread_cond_wait(&fake.changed, &fake.lock);
	if (!fake.refuse) {
		fake.alive = true;
		fake.n_open++;
		c = calloc(1, sizeof(*c));
	}
	fake_unlock();
	return c;
}

static int fake_close(struct lv_conn *c)
{
	free(c);
	fake_lock();
	fake.n_closed++;
	fake_unlock();
	return 0;
}

static int fake_is_alive(struct lv_conn *c)
{
	int ret;

	(void)c;
	fake_lock();
	ret = fake.alive;
	fake_unlock();
	return ret;
}

static const char *fake_type(struct lv_conn *c)
{
	(void)c;
	return fake.type;
}

static int fake_keep_alive(struct lv_conn *c, int seconds, unsigned n)
{
	(void)c;
	return seconds > 0 && n > 0 ? 0 : -1;
}

static struct lv_dom *look(bool found)
{
	fake_lock();
	if (fake.gone)
		fake.error = LV_ERR_NO_DOMAIN;
	else if (!found)
		fake.error = LV_ERR_NO_DOMAIN;
	else
		fake.n_dom++;
	found = found && !fake.gone;
	fake_unlock();
	return found ? (struct lv_dom *)&fake : NULL;
}

static struct lv_dom *fake_by_name(struct lv_conn *c, const char *name)
{
	(void)c;
	return look(strcmp(name, "vm") == 0);
}

static struct lv_dom *fake_by_uuid(struct lv_conn *c, const char *uuid)
{
	(void)c;
	return look(strcmp(uuid, FAKE_UUID) == 0);
}

static int fake_dom_free(struct lv_dom *d)
{
	(void)d;
	fake_lock();
	fake.n_dom--;
	fake_unlock();
	return 0;
}

static int fake_dom_uuid(struct lv_dom *d, char *ret)
{
	(void)d;
	memcpy(ret, FAKE_UUID, sizeof(FAKE_UUID));
	return 0;
}

static unsigned fake_dom_id(struct lv_dom *d)
{
	(void)d;
	return fake.id;
}

static int fake_event_add(struct lv_conn *c, struct lv_dom *d, int id, lv_any_cb cb, void *arg,
			  lv_free_cb free_arg)
{
	(void)d;
	c->arg = arg;
	c->free_arg = free_arg;
	fake_lock();
	if (id == LV_EVENT_ID_LIFECYCLE)
		fake.lifecycle = (lv_lifecycle_cb)cb;
	fake.arg = arg;
	fake.n_events++;
	fake_unlock();
	return id;
}

static int fake_event_remove(struct lv_conn *c, int callback)
{
	(void)callback;
	fake_lock();
	fake.n_events--;
	fake_unlock();
	c->free_arg(c->arg);
	return 0;
}

static int fake_close_add(struct lv_conn *c, lv_close_cb cb, void *arg, lv_free_cb free_arg)
{
	c->arg = arg;
	c->free_arg = free_arg;
	fake_lock();
	fake.on_close = cb;
	fake.n_events++;
	fake_unlock();
	return 0;
}

static int fake_close_remove(struct lv_conn *c, lv_close_cb cb)
{
	assert_ptr_equal((void *)(uintptr_t)cb, (void *)(uintptr_t)fake.on_close);
	return fake_event_remove(c, -1);
}

static int fake_loop_run(void)
{
	struct timespec t = { 0, 1000000 };

	nanosleep(&t, NULL);
	return 0;
}

static int fake_timer_add(int ms, lv_timeout_cb cb, void *arg, lv_free_cb free_arg)
{
	(void)cb;
	(void)arg;
	(void)free_arg;
	return ms < 0 ? 1 : -1;
}

static void fake_timer_update(int timer, int ms)
{
	assert_int_equal(timer, 1);
	(void)ms;
}

static int fake_timer_remove(int timer)
{
	return timer == 1 ? 0 : -1;
}

static int fake_monitor_command(struct lv_dom *d, const char *command, char **ret, unsigned flags)
{
	int rc = -1;

	(void)d;
	assert_int_equal(flags, 0); /* QMP, not HMP */
	fake_lock();
	snprintf(fake.command, sizeof(fake.command), "%s", command);
	fake.n_commands++;
	while (fake.hang)
		pthread_cond_wait(&fake.changed, &fake.lock);
	if (fake.answer) {
		*ret = strdup(fake.answer);
		rc = 0;
	}
	fake_unlock();
	return rc;
}

const struct lv_lib fake_lib = {
	.error_code = fake_error_code,
	.error_text = fake_error_text,
	.open = fake_open,
	.close = fake_close,
	.is_alive = fake_is_alive,
	.type = fake_type,
	.keep_alive = fake_keep_alive,
	.by_name = fake_by_name,
	.by_uuid = fake_by_uuid,
	.dom_free = fake_dom_free,
	.dom_uuid = fake_dom_uuid,
	.dom_id = fake_dom_id,
	.event_add = fake_event_add,
	.event_remove = fake_event_remove,
	.close_add = fake_close_add,
	.close_remove = fake_close_remove,
	.loop_run = fake_loop_run,
	.timer_add = fake_timer_add,
	.timer_update = fake_timer_update,
	.timer_remove = fake_timer_remove,
	.monitor_command = fake_monitor_command,
};
