// SPDX-License-Identifier: Apache-2.0
/* What can be changed while a trace runs, and snapshots. See trace.h. */
#include "tracers/trace_priv.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>

static void set_paused(struct trace *t, bool paused)
{
	pthread_mutex_lock(&t->lock);
	t->info.paused = paused;
	pthread_mutex_unlock(&t->lock);
}

int trace_set_recording(struct trace *t, bool on, struct err *err)
{
	int rc = 0;

	pthread_mutex_lock(&t->control);
	if (!t->armed || t->info.state != TRACE_RUNNING) {
		rc = trace_refuse(err);
	} else if (!on && t->opts.follow_forks) {
		rc = err_set(err, -EINVAL, ERR_BAD_REQUEST, 0,
			     "a trace that follows forks cannot pause: it would lose who is whose");
	} else if (t->info.paused == on) {
		guest_lock(t->g);
		rc = t->tended ? tracing_set_enabled(t->g, on, err) : trace_refuse(err);
		guest_unlock(t->g);
		if (!rc)
			set_paused(t, !on);
	}
	pthread_mutex_unlock(&t->control);
	return rc;
}

/* Guest lock held. */
static int rearm(struct trace *t, const struct trace_opts *opts, struct err *err)
{
	struct trace_opts now = *opts;
	struct tracing_counts counts = { 0 };
	_cleanup_(choice_deinit) struct choice c = { 0 };
	struct tracing_opts to;
	int rc;

	if (!t->tended)
		return trace_refuse(err);
	now.tracer = t->info.tracer; /* it may have been turned */
	rc = choose_check(&now, err);
	if (!rc)
		rc = trace_check_pids(t->g, &now, err);
	if (!rc)
		rc = trace_choose(t, &now, false, &c, err);
	if (rc)
		return rc;
	trace_agent_opts(t, &now, &to);
	to.paused = t->info.paused;
	to.threshold = trace_clock_ticks(&t->clock, now.threshold_ns);
	to.sites = c.what;
	to.n_sites = c.n_what;
	rc = trace_life_set_opts(t, &now, err);
	if (!rc)
		rc = tracing_rearm(t->g, &to, c.site, c.n, &counts, err);
	pthread_mutex_lock(&t->lock);
	t->info.n_functions = rc ? 0 : counts.n_armed;
	t->info.n_skipped = rc ? 0 : c.n_skipped + counts.n_skipped;
	t->info.n_unheeded = 0;
	pthread_mutex_unlock(&t->lock);
	return rc;
}

int trace_set_filter(struct trace *t, const struct trace_opts *opts, struct err *err)
{
	int rc;

	pthread_mutex_lock(&t->control);
	if (!t->armed || t->info.state != TRACE_RUNNING) {
		rc = trace_refuse(err);
	} else if (t->sys) {
		rc = err_set(err, -EINVAL, ERR_BAD_REQUEST, 0,
			     "which system calls are traced cannot be changed while they are");
	} else {
		guest_lock(t->g);
		rc = rearm(t, opts, err);
		guest_unlock(t->g);
	}
	pthread_mutex_unlock(&t->control);
	return rc;
}

static int fill_snapshot(struct trace *t, struct trace *s, struct err *err)
{
	int rc;

	rc = store_copy(t->store, &s->store, err);
	if (!rc) /* after the store: so there are all that it has */
		rc = trace_markers_copy(t, s, err);
	if (!rc)
		rc = trace_life_copy(t, s, err);
	s->stacks = stacks_ref(t->stacks);
	if (!rc && t->sys)
		rc = trace_sys_copy(t, s, err);
	return rc;
}

int trace_snapshot(struct trace *t, struct trace **ret, struct err *err)
{
	struct trace *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a snapshot");
	s->g = t->g;
	s->mem = t->mem;
	pthread_mutex_init(&s->control, NULL);
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->wake, NULL);
	pthread_cond_init(&s->care_wake, NULL);
	pthread_cond_init(&s->turned, NULL);
	trace_get_info(t, &s->info);
	s->info.state = TRACE_STOPPED;
	s->info.stopped_ns = clock_ns(CLOCK_REALTIME);
	s->info.paused = false;
	s->info.restore = (struct guest_restore){ .verified = true }; /* it changed nothing */
	rc = fill_snapshot(t, s, err);
	if (rc)
		trace_free(s);
	else
		*ret = s;
	return rc;
}
