// SPDX-License-Identifier: Apache-2.0
/* Traces that outlive the kernel they were started in. See registry.h. */
#include "api/registry_impl.h"
#include "api/work.h"
#define LOG_PREFIX "registry"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void registry_continued_by(struct trace_entry *t, char id_ret[24])
{
	pthread_mutex_lock(&t->reg->lock);
	memcpy(id_ret, t->continued_by, sizeof(t->continued_by));
	pthread_mutex_unlock(&t->reg->lock);
}

/*
 * Was it cut off, and is nobody going on with it yet? Then the caller is. Of one that is not persistent, too,
 * when a snapshot brought back what it had armed. Context: a user of @t.
 */
static bool claim(struct trace_entry *t)
{
	struct trace_info info;
	bool mine = false, restored;

	trace_get_info(t->trace, &info);
	restored = info.error.code == ERR_GUEST_RESTORED;
	if (info.state != TRACE_FAILED ||
	    !(restored || (t->persistent && info.error.code == ERR_GUEST_REBOOTED)))
		return false;
	pthread_mutex_lock(&t->reg->lock);
	if (!t->continued_by[0] && !t->given_back && !t->going_on && !t->reg->closing)
		mine = t->going_on = true;
	pthread_mutex_unlock(&t->reg->lock);
	return mine;
}

/* A guest that reboots without end is not to fill our memory: of a chain the last two stay. */
static void forget_older(struct trace_entry *t)
{
	struct trace_entry *last;
	struct err err = { 0 };

	if (!t->continues[0])
		return;
	if (registry_trace_delete(t->reg, t->continues, true, &last, &err) == 0)
		registry_trace_unref(last);
	t->continues[0] = 0;
}

/* As it was asked for. */
static int start_again(struct trace_entry *t, struct err *err)
{
	struct body_trace body;
	struct trace_entry *next;
	struct problem p = { 0 };
	char *text = json_dumps(t->request, JSON_COMPACT);
	int r;

	if (!text)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for another trace");
	r = body_trace_parse(text, strlen(text), &body, &p);
	free(text);
	if (r < 0)
		return err_set(err, r, ERR_BAD_REQUEST, 0,
			       "the trace's request cannot be repeated");
	r = registry_trace_go_on(t->guest, &body, &next, err);
	body_trace_deinit(&body);
	if (r < 0)
		return r;
	pthread_mutex_lock(&t->reg->lock);
	memcpy(t->continued_by, next->id, sizeof(next->id));
	memcpy(next->continues, t->id, sizeof(t->id));
	pthread_mutex_unlock(&t->reg->lock);
	forget_older(t);
	log_info("trace %s of guest %s goes on as %s", t->id, t->guest->name, next->id);
	registry_trace_put(next);
	return 0;
}

/* Context: a user of @t and of its guest. */
static int go_on(struct trace_entry *t, struct err *err)
{
	struct guest *g = t->guest->guest;
	int r;

	/* what it still holds of the guest */
	r = registry_trace_stop(t, err);
	if (r < 0)
		return r;
	guest_lock(g);
	r = guest_renew(g, err);
	guest_unlock(g);
	if (r < 0)
		return r;
	if (t->persistent)
		return start_again(t, err);
	pthread_mutex_lock(&t->reg->lock);
	t->given_back = true;
	pthread_mutex_unlock(&t->reg->lock);
	return 0;
}

/* In a worker, as a user of the trace. */
static void try_once(void *arg)
{
	struct trace_entry *t = arg;
	struct registry *reg = t->reg;
	struct guest_entry *g;
	struct err err = { 0 };

	if (!registry_guest_get(reg, t->guest->name, &g, &err)) {
		if (g == t->guest && go_on(t, &err) < 0)
			log_debug("trace %s: not yet: %s", t->id, err.msg);
		registry_guest_put(g);
	}
	pthread_mutex_lock(&reg->lock);
	t->going_on = false;
	pthread_mutex_unlock(&reg->lock);
	registry_trace_put(t);
}

void registry_continue(struct registry *reg, struct work *work)
{
	struct trace_entry **all;
	size_t n;

	all = registry_traces(reg, NULL, &n);
	for (size_t i = 0; all && i < n; i++) {
		if (!claim(all[i])) {
			registry_trace_put(all[i]);
			continue;
		}
		if (work_submit(work, try_once, all[i]) == 0)
			continue;
		pthread_mutex_lock(&reg->lock);
		all[i]->going_on = false;
		pthread_mutex_unlock(&reg->lock);
		registry_trace_put(all[i]);
	}
	free(all);
}
