// SPDX-License-Identifier: Apache-2.0
/* The daemon's traces. See registry.h. */
#include "api/events.h"
#include "api/hub.h"
#include "api/names_then.h"
#include "api/registry_impl.h"
#define LOG_PREFIX "registry"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How long a trace that goes waits for its streams to read the rest. */
#define CLOSE_GRACE_SEC 1

void trace_entry_unref(struct trace_entry *t)
{
	if (--t->refs)
		return;
	guest_entry_unref(t->guest);
	json_decref(t->request);
	names_kept_destroy(atomic_load(&t->names));
	pthread_mutex_destroy(&t->op);
	free(t);
}

/* From the drain thread. */
static void notify(void *arg)
{
	struct trace_entry *t = arg;

	hub_wake(t->reg->hub, t);
}

/* Tell @type of @t as an event. */
static void event_of(struct trace_entry *t, const char *type, const struct trace_info *i)
{
	events_add(t->reg->events, type,
		   json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:b}", "guest", t->guest->name,
			     "trace", t->id, "tracer", i->tracer ? i->tracer : "", "functions",
			     (json_int_t)i->n_functions, "records", (json_int_t)i->n_records,
			     "lost", (json_int_t)i->n_lost, "verified",
			     i->state != TRACE_RUNNING && i->restore.verified));
}

void registry_trace_event(struct trace_entry *t, const char *type)
{
	struct trace_info i = { 0 };

	trace_get_info(t->trace, &i);
	event_of(t, type, &i);
}

static enum trace_state state_of(const struct trace_entry *t)
{
	struct trace_info i = { 0 };

	trace_get_info(t->trace, &i);
	return i.state;
}

static struct trace_entry *find_trace(struct registry *reg, const char *id)
{
	struct trace_entry *t;

	for (t = reg->traces; t && strcmp(t->id, id) != 0; t = t->next)
		;
	return t;
}

/* What was asked for, as it is shown again. */
static json_t *request_doc(const struct body_trace *body)
{
	json_t *doc = json_copy(body->doc);

	if (doc && !json_object_get(doc, "mode"))
		json_object_set_new(doc, "mode", json_string("discard"));
	return doc;
}

int registry_new_entry(struct guest_entry *g, json_t *request, struct trace_entry **ret,
		       struct err *err)
{
	struct trace_entry *t = calloc(1, sizeof(*t));
	int r;

	if (t && request)
		r = trace_ids_take(g->reg->ids, &t->number, err);
	else
		r = err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for another trace");
	if (r < 0) {
		free(t);
		json_decref(request);
		return r;
	}
	snprintf(t->id, sizeof(t->id), "t%llu", (unsigned long long)t->number);
	t->request = request;
	t->reg = g->reg;
	t->guest = g;
	t->state = ENTRY_OPENING;
	t->refs = 1;
	pthread_mutex_init(&t->op, NULL);
	pthread_mutex_lock(&g->reg->lock);
	g->refs++;
	pthread_mutex_unlock(&g->reg->lock);
	*ret = t;
	return 0;
}

void registry_drop_entry(struct trace_entry *t)
{
	trace_ids_give_back(t->reg->ids, t->number);
	registry_trace_unref(t);
}

void registry_publish(struct trace_entry *t)
{
	struct registry *reg = t->reg;
	struct trace_entry **at;

	pthread_mutex_lock(&reg->lock);
	for (at = &reg->traces; *at; at = &(*at)->next)
		;
	*at = t;
	t->state = ENTRY_READY;
	t->users++;
	t->refs++;
	reg->totals.traces_started++;
	pthread_mutex_unlock(&reg->lock);
}

void registry_trace_opts(const struct body_trace *body, struct trace_opts *ret)
{
	*ret = (struct trace_opts){
		.tracer = body->tracer,
		.filter = body->filter,
		.n_filter = body->n_filter,
		.notrace = body->notrace,
		.n_notrace = body->n_notrace,
		.pids = body->pids,
		.n_pids = body->n_pids,
		.graph = body->graph,
		.n_graph = body->n_graph,
		.graph_notrace = body->graph_notrace,
		.n_graph_notrace = body->n_graph_notrace,
		.stack = body->stack,
		.n_stack = body->n_stack,
		.stack_depth = body->stack_depth,
		.max_depth = body->max_graph_depth,
		.threshold_ns = body->threshold_ns,
		.no_irqs = !body->irqs,
		.no_sleep_time = !body->sleep_time,
		.retval = body->retval,
		.args = body->args,
		.switches = body->switches,
		.failed_only = body->failed,
		.follow_forks = body->follow_forks,
		.comm = body->comm,
		.path = body->path,
		.by_uid = body->has_uid,
		.uid = body->uid,
		.by_cgroup = body->has_cgroup,
		.cgroup = body->cgroup,
		.string_max = body->string_max,
		.fd_paths = body->fd_paths,
		.env = body->env,
		.raw = body->raw,
		.overwrite = body->overwrite,
		.buffer_records = body->buffer_records,
	};
}

/* Snapshots have a limit of their own. */
static unsigned count_traces(struct guest_entry *g)
{
	unsigned n = 0;

	pthread_mutex_lock(&g->reg->lock);
	for (struct trace_entry *t = g->reg->traces; t; t = t->next)
		n += t->guest == g && !t->snapshot_of[0];
	pthread_mutex_unlock(&g->reg->lock);
	return n;
}

int registry_trace_go_on(struct guest_entry *g, const struct body_trace *body,
			 struct trace_entry **ret, struct err *err)
{
	struct trace_opts opts;
	struct trace_entry *t;
	int r;

	r = registry_new_entry(g, request_doc(body), &t, err);
	if (r < 0)
		return r;
	t->persistent = body->persistent;
	registry_trace_opts(body, &opts);
	r = trace_start(g->guest, &opts, &t->trace, err);
	if (r < 0) {
		registry_drop_entry(t);
		return r;
	}
	registry_publish(t);
	trace_set_notify(t->trace, notify, t);
	log_info("trace %s of guest %s: started", t->id, g->name);
	registry_trace_event(t, "trace_started");
	*ret = t;
	return 0;
}

int registry_trace_start(struct guest_entry *g, const struct body_trace *body,
			 struct trace_entry **ret, struct err *err)
{
	char running[24];

	/* that one runs is the better reason, and the engine's to tell */
	if (count_traces(g) >= REGISTRY_MAX_ENDED && !registry_running_trace(g, running))
		return err_set(err, -EBUSY, ERR_TRACE_ENDED, 0,
			       "guest %s has %u traces that have ended", g->name,
			       REGISTRY_MAX_ENDED);
	return registry_trace_go_on(g, body, ret, err);
}

int registry_trace_stop(struct trace_entry *t, struct err *err)
{
	enum trace_state was;
	int r;

	pthread_mutex_lock(&t->op);
	was = state_of(t);
	r = trace_stop(t->trace, err);
	if (r == 0 && was == TRACE_RUNNING && state_of(t) == TRACE_STOPPED)
		registry_trace_event(t, "trace_stopped");
	pthread_mutex_unlock(&t->op);
	hub_wake(t->reg->hub, t);
	return r;
}

/* Wait until its streams have ended, for a while. The lock is held. */
static void wait_for_streams(struct trace_entry *t)
{
	struct timespec until;
	int r = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += CLOSE_GRACE_SEC;
	while (t->streams && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&t->reg->changed, &t->reg->lock, &until);
}

static void forget(struct trace_entry *t)
{
	struct registry *reg = t->reg;
	struct trace_entry **at;

	for (at = &reg->traces; *at != t; at = &(*at)->next)
		;
	*at = t->next;
	t->guest->snapshots -= !!t->snapshot_of[0];
	reg->totals.records += t->last.n_records;
	reg->totals.lost += t->last.n_lost;
	reg->totals.lost_captures += t->last.lost_captures;
	trace_entry_unref(t);
	pthread_cond_broadcast(&reg->changed);
}

/* @t is CLOSING by the caller alone. On failure it is READY again. */
static int close_trace(struct trace_entry *t, bool force, struct err *err)
{
	struct registry *reg = t->reg;
	struct trace *trace = t->trace;
	struct trace_info last;
	struct err why = { 0 };
	int r;

	r = registry_trace_stop(t, &why);
	pthread_mutex_lock(&reg->lock);
	if (r < 0 && !force && why.code != ERR_VMM_GONE) {
		t->state = ENTRY_READY;
		pthread_cond_broadcast(&reg->changed);
		pthread_mutex_unlock(&reg->lock);
		if (err)
			*err = why;
		return r;
	}
	if (r < 0)
		log_warn("trace %s: %s (%s); deleted all the same", t->id, why.msg,
			 err_code_name(why.code));
	wait_for_streams(t);
	pthread_mutex_unlock(&reg->lock);
	trace_get_info(trace, &last);
	pthread_mutex_lock(&reg->lock);
	t->last = last;
	t->state = ENTRY_CLOSED;
	while (t->users)
		pthread_cond_wait(&reg->changed, &reg->lock);
	t->trace = NULL;
	pthread_mutex_unlock(&reg->lock);
	event_of(t, "trace_deleted", &last);
	trace_set_notify(trace, NULL, NULL);
	trace_destroy(trace);
	hub_wake(reg->hub, t);
	pthread_mutex_lock(&reg->lock);
	log_info("trace %s of guest %s: deleted, %llu records, %llu lost", t->id, t->guest->name,
		 (unsigned long long)t->last.n_records, (unsigned long long)t->last.n_lost);
	forget(t);
	pthread_mutex_unlock(&reg->lock);
	return 0;
}

int registry_trace_delete(struct registry *reg, const char *id, bool force,
			  struct trace_entry **last_ret, struct err *err)
{
	struct trace_entry *t;
	int r;

	pthread_mutex_lock(&reg->lock);
	t = find_trace(reg, id);
	if (!t || t->state != ENTRY_READY) {
		pthread_mutex_unlock(&reg->lock);
		return err_set(err, -ENOENT, ERR_NOT_FOUND, 0, "there is no trace %.64s", id);
	}
	t->state = ENTRY_CLOSING;
	t->refs++; /* the caller's */
	pthread_mutex_unlock(&reg->lock);
	r = close_trace(t, force, err);
	if (r < 0)
		registry_trace_unref(t);
	else
		*last_ret = t;
	return r;
}

void registry_close_traces(struct guest_entry *g)
{
	struct registry *reg = g->reg;
	struct trace_entry *t;

	pthread_mutex_lock(&reg->lock);
	for (;;) {
		for (t = reg->traces; t && t->guest != g; t = t->next)
			;
		if (!t)
			break;
		if (t->state != ENTRY_READY) { /* somebody else is at it: see what becomes of it */
			pthread_cond_wait(&reg->changed, &reg->lock);
			continue;
		}
		t->state = ENTRY_CLOSING;
		pthread_mutex_unlock(&reg->lock);
		(void)close_trace(t, true,
				  NULL); /* cannot fail by force; what went wrong is logged */
		pthread_mutex_lock(&reg->lock);
	}
	pthread_mutex_unlock(&reg->lock);
}

int registry_trace_get(struct registry *reg, const char *id, struct trace_entry **ret,
		       struct err *err)
{
	struct trace_entry *t;
	int r = 0;

	pthread_mutex_lock(&reg->lock);
	t = find_trace(reg, id);
	if (t && t->state == ENTRY_READY) {
		t->users++;
		t->refs++;
		*ret = t;
	} else {
		r = err_set(err, -ENOENT, ERR_NOT_FOUND, 0, "there is no trace %.64s", id);
	}
	pthread_mutex_unlock(&reg->lock);
	return r;
}

void registry_trace_put(struct trace_entry *t)
{
	struct registry *reg = t->reg;

	pthread_mutex_lock(&reg->lock);
	t->users--;
	trace_entry_unref(t);
	pthread_cond_broadcast(&reg->changed);
	pthread_mutex_unlock(&reg->lock);
}

void registry_trace_ref(struct trace_entry *t)
{
	pthread_mutex_lock(&t->reg->lock);
	t->refs++;
	pthread_mutex_unlock(&t->reg->lock);
}

void registry_trace_unref(struct trace_entry *t)
{
	struct registry *reg = t->reg;

	pthread_mutex_lock(&reg->lock);
	trace_entry_unref(t);
	pthread_mutex_unlock(&reg->lock);
}

struct trace_entry **registry_traces(struct registry *reg, const char *guest, size_t *n_ret)
{
	struct trace_entry **all, *t;
	size_t n = 0;

	pthread_mutex_lock(&reg->lock);
	for (t = reg->traces; t; t = t->next)
		n++;
	all = calloc(n + 1, sizeof(struct trace_entry *));
	n = 0;
	for (t = reg->traces; all && t; t = t->next) {
		if (t->state != ENTRY_READY || (guest && strcmp(t->guest->name, guest) != 0))
			continue;
		t->users++;
		t->refs++;
		all[n++] = t;
	}
	pthread_mutex_unlock(&reg->lock);
	*n_ret = n;
	return all;
}

bool registry_running_trace(struct guest_entry *g, char id_ret[24])
{
	struct trace_info info;
	struct trace_entry **all;
	bool running = false;
	size_t n;

	all = registry_traces(g->reg, g->name, &n);
	if (!all) { /* no memory to look: better to refuse than to end somebody's trace */
		snprintf(id_ret, 24, "?");
		return true;
	}
	for (size_t i = 0; i < n; i++) {
		trace_get_info(all[i]->trace, &info);
		if (info.state == TRACE_RUNNING && !running) {
			running = true;
			memcpy(id_ret, all[i]->id, sizeof(all[i]->id));
		}
		registry_trace_put(all[i]);
	}
	free(all);
	return running;
}

void registry_stream_begin(struct trace_entry *t)
{
	pthread_mutex_lock(&t->reg->lock);
	t->refs++;
	t->streams++;
	pthread_mutex_unlock(&t->reg->lock);
}

void registry_stream_end(struct trace_entry *t)
{
	struct registry *reg = t->reg;

	pthread_mutex_lock(&reg->lock);
	t->streams--;
	trace_entry_unref(t);
	pthread_cond_broadcast(&reg->changed);
	pthread_mutex_unlock(&reg->lock);
}

bool registry_trace_use(struct trace_entry *t)
{
	bool usable;

	pthread_mutex_lock(&t->reg->lock);
	usable = t->state == ENTRY_READY || t->state == ENTRY_CLOSING;
	if (usable)
		t->users++;
	pthread_mutex_unlock(&t->reg->lock);
	return usable;
}

void registry_trace_unuse(struct trace_entry *t)
{
	pthread_mutex_lock(&t->reg->lock);
	t->users--;
	pthread_cond_broadcast(&t->reg->changed);
	pthread_mutex_unlock(&t->reg->lock);
}
