// SPDX-License-Identifier: Apache-2.0
/* What is changed about traces that run, markers and snapshots. See registry.h. */
#include "api/events.h"
#include "api/hub.h"
#include "api/registry_impl.h"
#include "base/cleanup.h"
#include "base/clock.h"
#define LOG_PREFIX "registry"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

json_t *registry_trace_request(struct trace_entry *t)
{
	json_t *doc;

	pthread_mutex_lock(&t->reg->lock);
	doc = json_incref(t->request);
	pthread_mutex_unlock(&t->reg->lock);
	return doc;
}

static void set_request(struct trace_entry *t, json_t *doc)
{
	json_t *old;

	pthread_mutex_lock(&t->reg->lock);
	old = t->request;
	t->request = doc;
	pthread_mutex_unlock(&t->reg->lock);
	json_decref(old);
}

/* The trace's request with @change's filter, notrace and pids; NULL without memory. */
static json_t *merged(struct trace_entry *t, const struct body_change *change)
{
	static const char *const keys[] = { "filter", "notrace", "pids" };
	json_t *old = registry_trace_request(t), *doc = json_copy(old), *v;

	json_decref(old);
	for (size_t i = 0; doc && i < ARRAY_SIZE(keys); i++) {
		v = json_object_get(change->doc, keys[i]);
		if (v && json_object_set(doc, keys[i], v)) {
			json_decref(doc);
			return NULL;
		}
	}
	return doc;
}

static int set_filter(struct trace_entry *t, const struct body_change *change, struct err *err)
{
	json_t *doc = merged(t, change);
	_cleanup_free_ char *text = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
	struct trace_opts opts;
	struct body_trace body;
	struct problem p;
	int r;

	if (!text) {
		json_decref(doc);
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a change");
	}
	/* each part was good before */
	r = body_trace_parse(text, strlen(text), &body, &p);
	if (r < 0) {
		json_decref(doc);
		return err_set(err, r, ERR_BAD_REQUEST, 0, "%.200s", p.detail);
	}
	registry_trace_opts(&body, &opts);
	r = trace_set_filter(t->trace, &opts, err);
	body_trace_deinit(&body);
	if (r < 0)
		json_decref(doc);
	else
		set_request(t, doc);
	return r;
}

/* @was: the trace before. Context: t->op held. */
static int set_graph(struct trace_entry *t, bool on, const struct trace_info *was, struct err *err)
{
	bool switched = atomic_load(&t->switched);
	struct trace_info now = { 0 };
	int r;

	atomic_store(&t->switched, true); /* first, for who begins to read meanwhile */
	r = trace_set_graph(t->trace, on, err);
	trace_get_info(t->trace, &now);
	/* other failures come after the turn began */
	if ((r == 0 || r == -EINVAL) && strcmp(now.tracer, was->tracer) == 0)
		atomic_store(&t->switched, switched);
	return r;
}

int registry_trace_change(struct trace_entry *t, const struct body_change *change, struct err *err)
{
	struct trace_info info = { 0 };
	int r = 0;

	pthread_mutex_lock(&t->op);
	trace_get_info(t->trace, &info);
	if (info.state != TRACE_RUNNING)
		r = err_set(err, -EBUSY, ERR_CONFLICT, 0, "trace %s is not running any more",
			    t->id);
	/* what may be refused first; recording last, so that a pause holds until all is as asked for */
	if (r == 0 && change->has_tracer)
		r = set_graph(t, change->graph, &info, err);
	if (r == 0 && change->has_filter)
		r = set_filter(t, change, err);
	if (r == 0 && change->has_on)
		r = trace_set_recording(t->trace, change->on, err);
	pthread_mutex_unlock(&t->op);
	if (r < 0)
		return r;
	log_info("trace %s: changed", t->id);
	registry_trace_event(t, "trace_changed");
	return 0;
}

int registry_trace_mark(struct trace_entry *t, const char *text, u64 *host_ns, struct err *err)
{
	int r;

	if (!*host_ns)
		*host_ns = clock_ns(CLOCK_REALTIME);
	r = trace_mark(t->trace, text, *host_ns, err);
	if (r < 0)
		return r;
	events_add(t->reg->events, "marker",
		   json_pack("{s:s, s:s, s:o}", "guest", t->guest->name, "trace", t->id, "text",
			     json_text(text)));
	return 0;
}

/* One more of @g, or one less. false: there are too many */
static bool count_snapshot(struct guest_entry *g, bool more)
{
	bool room;

	pthread_mutex_lock(&g->reg->lock);
	room = !more || g->snapshots < REGISTRY_MAX_SNAPSHOTS;
	if (room)
		g->snapshots += more ? 1 : -1u;
	pthread_mutex_unlock(&g->reg->lock);
	return room;
}

static int snapshot(struct trace_entry *t, struct trace_entry **ret, struct err *err)
{
	json_t *request = registry_trace_request(t);
	struct trace_entry *s;
	int r;

	r = registry_new_entry(t->guest, request, &s, err);
	if (r < 0)
		return r;
	memcpy(s->snapshot_of, t->id, sizeof(s->snapshot_of));
	atomic_store(&s->switched, atomic_load(&t->switched));
	r = trace_snapshot(t->trace, &s->trace, err);
	if (r < 0)
		registry_drop_entry(s);
	else
		*ret = s;
	return r;
}

int registry_trace_snapshot(struct trace_entry *t, struct trace_entry **ret, struct err *err)
{
	int r;

	if (!count_snapshot(t->guest, true))
		return err_set(err, -EBUSY, ERR_TRACE_SNAPSHOTS, 0,
			       "guest %s has %u snapshots of traces", t->guest->name,
			       REGISTRY_MAX_SNAPSHOTS);
	r = snapshot(t, ret, err);
	if (r < 0) {
		(void)count_snapshot(t->guest, false);
		return r;
	}
	registry_publish(*ret);
	registry_trace_event(*ret, "trace_snapshot");
	log_info("trace %s: a snapshot of %s", (*ret)->id, t->id);
	return 0;
}
