// SPDX-License-Identifier: Apache-2.0
/* What is changed about a trace of the fake engine while it runs; see fake_trace.c. */
#include "fake_trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int stopped(struct err *err)
{
	return err_set(err, -EBUSY, ERR_CONFLICT, 0, "the trace was stopped");
}

int trace_set_recording(struct trace *t, bool on, struct err *err)
{
	int r = 0;

	pthread_mutex_lock(&t->lock);
	if (t->info.state != TRACE_RUNNING)
		r = stopped(err);
	else
		t->info.paused = !on;
	pthread_mutex_unlock(&t->lock);
	return r;
}

int trace_set_filter(struct trace *t, const struct trace_opts *opts, struct err *err)
{
	struct trace *probe = calloc(1, sizeof(*probe));
	int r = 0;

	if (!probe)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory");
	probe->guest = t->guest;
	fake_choose(probe, opts);
	for (size_t i = 0; r == 0 && i < opts->n_pids; i++) {
		if (opts->pids[i] == 99999)
			r = err_set(err, -ESRCH, ERR_FILTER_PID, 0, "the guest has no task 99999");
	}
	if (r == 0 && !probe->info.n_functions)
		r = err_set(err, -ENOENT, ERR_FILTER_EMPTY, 0, "no function matches \"%.60s\"",
			    opts->n_filter ? opts->filter[0] : "");
	free(probe);
	if (r < 0)
		return r;
	pthread_mutex_lock(&t->lock);
	if (t->info.state != TRACE_RUNNING)
		r = stopped(err);
	else
		fake_choose(t, opts);
	pthread_mutex_unlock(&t->lock);
	return r;
}

int trace_mark(struct trace *t, const char *text, u64 host_ns, struct err *err)
{
	int r = 0;

	(void)host_ns;
	pthread_mutex_lock(&t->lock);
	if (t->info.state != TRACE_RUNNING) {
		r = stopped(err);
	} else if (t->n_markers == FAKE_MARKERS) {
		r = err_set(err, -ENOSPC, ERR_TRACE_MARKERS, 0, "the trace has %d markers",
			    FAKE_MARKERS);
	} else {
		if (!t->info.n_records++)
			t->info.oldest_seq = 1;
		t->markers[t->n_markers++] =
			(struct fake_marker){ t->info.n_records, strdup(text) };
	}
	pthread_mutex_unlock(&t->lock);
	return r;
}

const char *fake_mark_of(const struct trace *t, u64 seq)
{
	for (size_t i = 0; i < t->n_markers; i++) {
		if (t->markers[i].seq == seq)
			return t->markers[i].text;
	}
	return NULL;
}

int trace_snapshot(struct trace *t, struct trace **ret, struct err *err)
{
	struct trace *s = malloc(sizeof(*s));

	if (!s)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory");
	pthread_mutex_lock(&t->lock);
	memcpy(s, t, sizeof(*s));
	for (size_t i = 0; i < s->n_markers; i++)
		s->markers[i].text = strdup(s->markers[i].text);
	pthread_mutex_unlock(&t->lock);
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->notify_lock, NULL);
	pthread_cond_init(&s->end, NULL);
	s->notify = NULL;
	s->is_snapshot = s->joined = true;
	s->info.state = TRACE_STOPPED;
	s->info.restore = (struct guest_restore){ .verified = true };
	*ret = s;
	return 0;
}
