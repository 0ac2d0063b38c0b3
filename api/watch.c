// SPDX-License-Identifier: Apache-2.0
/* Looking after guests and traces. See watch.h. */
#include "api/watch.h"

#include "api/auth.h"
#include "api/docs.h"
#include "api/events.h"
#include "api/hub.h"
#include "api/registry.h"
#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TRACES_NS (500 * NSEC_PER_MSEC)
#define GUESTS_NS (2 * NSEC_PER_SEC)
#define LOSSES_NS \
	(10 * NSEC_PER_SEC) /* of a trace that runs: more often would drive other events out */

struct watch {
	pthread_mutex_t lock; /* ending */
	pthread_cond_t end;
	pthread_t thread;
	struct watch_opts on;
	u64 auth_changes; /* of them, those that streams were looked through for */
	bool ending;
};

static json_t *trace_event(const struct trace_entry *t)
{
	return json_pack("{s:s, s:s}", "guest", t->guest->name, "trace", t->id);
}

/* What of @now is new, if it is time to tell it; this thread alone touches what was told. */
static u64 to_tell(const struct trace_info *i, u64 now, u64 *told, u64 *told_ns)
{
	u64 more = now > *told ? now - *told : 0;

	if (!more || (*told && i->state == TRACE_RUNNING && monotonic_ns() - *told_ns < LOSSES_NS))
		return 0;
	*told = now;
	*told_ns = monotonic_ns();
	return more;
}

static void tell_losses(struct watch *w, struct trace_entry *t, const struct trace_info *i)
{
	u64 records = to_tell(i, i->n_lost, &t->lost_told, &t->lost_told_ns);
	u64 captures = to_tell(i, i->lost_captures, &t->captures_told, &t->captures_told_ns);
	json_t *more;

	if (records) {
		more = trace_event(t);
		json_object_set_new(more, "count", json_integer((json_int_t)records));
		json_object_set_new(more, "lost", json_integer((json_int_t)i->n_lost));
		json_object_set_new(more, "records", json_integer((json_int_t)i->n_records));
		events_add(w->on.events, "records_lost", more);
	}
	if (captures) {
		more = trace_event(t);
		json_object_set_new(more, "count", json_integer((json_int_t)captures));
		json_object_set_new(more, "lost", json_integer((json_int_t)i->lost_captures));
		events_add(w->on.events, "captures_lost", more);
	}
}

/* Told when there are more than before; it may have been fewer meanwhile. */
static void look_at_unheeded(struct watch *w, struct trace_entry *t, const struct trace_info *i)
{
	json_t *more;

	if (i->n_unheeded > t->unheeded_told) {
		more = trace_event(t);
		json_object_set_new(more, "count", json_integer((json_int_t)i->n_unheeded));
		events_add(w->on.events, "functions_unheeded", more);
	}
	t->unheeded_told = i->n_unheeded;
}

/* Once for each, when it begins. */
static void look_at_missed(struct watch *w, struct trace_entry *t, const struct trace_info *i)
{
	json_t *more;

	if (i->missed_forks == t->forks_told && i->missed_switches == t->switches_told)
		return;
	more = trace_event(t);
	json_object_set_new(more, "missed", trace_missed_doc(i));
	events_add(w->on.events, "tasks_missed", more);
	t->forks_told = i->missed_forks;
	t->switches_told = i->missed_switches;
}

static void look_at_trace(struct watch *w, struct trace_entry *t)
{
	struct trace_info i = { 0 };
	json_t *more;

	trace_get_info(t->trace, &i);
	tell_losses(w, t, &i);
	look_at_unheeded(w, t, &i);
	look_at_missed(w, t, &i);
	if (i.state != TRACE_FAILED || t->failure_told)
		return;
	t->failure_told = true;
	more = trace_event(t);
	json_object_set_new(more, "code", json_string(err_code_name(i.error.code)));
	json_object_set_new(more, "detail", json_text(i.error.msg));
	events_add(w->on.events, "trace_failed", more);
	if (i.error.code == ERR_GUEST_REBOOTED)
		events_add(w->on.events, "guest_rebooted",
			   json_pack("{s:s}", "guest", t->guest->name));
}

static void look_at_traces(struct watch *w)
{
	struct trace_entry **all;
	size_t n;

	all = registry_traces(w->on.reg, NULL, &n);
	for (size_t k = 0; all && k < n; k++) {
		look_at_trace(w, all[k]);
		registry_trace_put(all[k]);
	}
	free(all);
}

/* What was told is this thread's alone, too. A guest that is gone has no monitor to wait for. */
static void look_at_guest(struct watch *w, struct guest_entry *g)
{
	bool gone = guest_is_gone(g->guest), silent = !gone && guest_is_silent(g->guest);

	if (gone && !g->gone_told)
		events_add(w->on.events, "guest_gone", json_pack("{s:s}", "guest", g->name));
	g->gone_told |= gone;
	if (!gone && silent != g->silent_told)
		events_add(w->on.events, silent ? "vmm_silent" : "vmm_answers",
			   json_pack("{s:s}", "guest", g->name));
	g->silent_told = silent;
}

static void look_at_guests(struct watch *w)
{
	struct guest_entry *g = NULL;

	while ((g = registry_guest_next(w->on.reg, g)))
		look_at_guest(w, g);
}

static bool still(void *arg, const struct identity *who)
{
	return auth_still(arg, who);
}

static void look_at_tokens(struct watch *w)
{
	u64 changes = auth_changes(w->on.auth);

	if (changes == w->auth_changes)
		return;
	w->auth_changes = changes;
	hub_review(w->on.hub, still, w->on.auth);
}

static void *watch(void *arg)
{
	struct watch *w = arg;
	u64 at = monotonic_ns(), guests_at = at;
	struct timespec until;

	pthread_mutex_lock(&w->lock);
	while (!w->ending) {
		at = monotonic_ns() + TRACES_NS;
		until = timespec_of(at);
		if (pthread_cond_timedwait(&w->end, &w->lock, &until) != ETIMEDOUT)
			continue;
		pthread_mutex_unlock(&w->lock);
		look_at_traces(w);
		look_at_tokens(w);
		if (monotonic_ns() - guests_at >= GUESTS_NS) {
			look_at_guests(w);
			guests_at = monotonic_ns();
		}
		pthread_mutex_lock(&w->lock);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

int watch_create(const struct watch_opts *opts, struct watch **ret, struct err *err)
{
	struct watch *w = calloc(1, sizeof(*w));
	pthread_condattr_t attr;
	int r;

	if (!w)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory to look after guests");
	w->on = *opts;
	w->auth_changes = auth_changes(w->on.auth);
	pthread_mutex_init(&w->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&w->end, &attr);
	pthread_condattr_destroy(&attr);
	r = pthread_create(&w->thread, NULL, watch, w);
	if (r) {
		free(w);
		return err_set(err, -r, ERR_NO_MEMORY, 0, "cannot start looking after guests");
	}
	*ret = w;
	return 0;
}

void watch_destroy(struct watch *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->ending = true;
	pthread_cond_signal(&w->end);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	pthread_cond_destroy(&w->end);
	pthread_mutex_destroy(&w->lock);
	free(w);
}
