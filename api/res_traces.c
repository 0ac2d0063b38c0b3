// SPDX-License-Identifier: Apache-2.0
/* /v1/traces, /v1/traces/{t} and what hangs below it, except the stream. */
#include "api/body.h"
#include "api/docs.h"
#include "api/names_then.h"
#include "api/registry.h"
#include "api/resources.h"
#include "api/server.h"
#include "api/stream.h"
#include "base/cleanup.h"
#include "tracers/output.h"
#include "tracers/sys_out.h"
#include "tracers/sys_parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORDS_LIMIT     1000
#define RECORDS_MAX_LIMIT 10000

static const char *const state_names[] = {
	[TRACE_RUNNING] = "running",
	[TRACE_STOPPED] = "stopped",
	[TRACE_FAILED] = "failed",
};

static json_t *failure_doc(const struct trace_info *i)
{
	struct problem p;

	if (i->state != TRACE_FAILED)
		return json_null();
	problem_from_err(&p, &i->error);
	return problem_json(&p, NULL);
}

/* Part of the request, or an empty array where it had none. */
static json_t *asked(json_t *request, const char *key)
{
	json_t *v = json_object_get(request, key);

	return v ? json_incref(v) : json_array();
}

/* Of the options, those that were asked for. */
static json_t *options_doc(json_t *request)
{
	static const char *const options[] = { "graph",        "graph_notrace", "max_graph_depth",
					       "threshold_ns", "irqs",          "sleep_time",
					       "retval",       "args",          "switches",
					       "failed",       "persistent",    "stack",
					       "stack_depth" };
	json_t *doc = json_object(), *v;

	for (size_t i = 0; doc && i < ARRAY_SIZE(options); i++) {
		v = json_object_get(request, options[i]);
		if (v && json_object_set(doc, options[i], v)) {
			json_decref(doc);
			doc = NULL;
		}
	}
	return doc;
}

/* null as long as the trace follows no returns. */
static json_t *graph_doc(const struct trace_info *i)
{
	bool is_graph = i->tracer && strcmp(i->tracer, "function") != 0;

	if (!is_graph && !i->n_entries)
		return json_null();
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "entries", (json_int_t)i->n_entries,
			 "returns", (json_int_t)i->n_returns, "never_returned",
			 (json_int_t)i->n_never, "inside", (json_int_t)i->n_inside, "lost_returns",
			 (json_int_t)i->lost_returns, "lost_frames", (json_int_t)i->lost_frames,
			 "frame_errors", (json_int_t)i->frame_errors);
}

/* How the calls of the tracer syscalls ended; null for others. */
static json_t *calls_doc(const struct trace_info *i)
{
	if (!i->tracer || strcmp(i->tracer, "syscalls") != 0)
		return json_null();
	return json_pack("{s:I, s:I, s:I, s:I, s:I}", "calls", (json_int_t)i->n_calls, "filtered",
			 (json_int_t)i->n_filtered, "unfinished", (json_int_t)i->n_unfinished,
			 "forgotten", (json_int_t)i->n_forgotten, "orphans",
			 (json_int_t)i->n_orphans);
}

json_t *trace_missed_doc(const struct trace_info *i)
{
	json_t *list = json_array();

	if (i->missed_forks)
		json_array_append_new(list, json_string("forks"));
	if (i->missed_switches)
		json_array_append_new(list, json_string("switches"));
	return list;
}

/* Of a guest with a life of its own. */
static json_t *life_doc(struct trace_entry *t, const struct trace_info *i)
{
	char next[24];

	registry_continued_by(t, next);
	return json_pack("{s:I, s:I, s:o, s:o}", "taken", (json_int_t)i->n_taken, "unheeded",
			 (json_int_t)i->n_unheeded, "missed", trace_missed_doc(i), "continued_by",
			 next[0] ? json_string(next) : json_null());
}

/* null unless some were asked for. */
static json_t *stacks_doc(const json_t *request, const struct trace_info *i)
{
	if (!json_array_size(json_object_get(request, "stack")))
		return json_null();
	return json_pack("{s:I, s:I}", "lost", (json_int_t)i->lost_stacks, "skipped_calls",
			 (json_int_t)i->n_skipped_calls);
}

json_t *trace_doc(struct trace_entry *t)
{
	json_t *request = registry_trace_request(t), *doc;
	struct trace_info i = { 0 };

	if (t->trace)
		trace_get_info(t->trace, &i);
	else
		i = t->last;
	doc = json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:O, s:o}", "id", t->id, "guest",
			t->guest->name, "tracer", i.tracer, "state", state_names[i.state], "filter",
			asked(request, "filter"), "notrace", asked(request, "notrace"), "pids",
			asked(request, "pids"), "options", options_doc(request), "mode",
			json_object_get(request, "mode"), "stacks", stacks_doc(request, &i));
	json_decref(request);
	if (!doc)
		return NULL;
	json_object_update_new(
		doc,
		json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "functions",
			  (json_int_t)i.n_functions, "skipped", (json_int_t)i.n_skipped, "records",
			  (json_int_t)i.n_records, "oldest_seq", (json_int_t)i.oldest_seq, "lost",
			  (json_int_t)i.n_lost, "lost_ring", (json_int_t)i.lost_ring, "lost_torn",
			  (json_int_t)i.lost_torn, "lost_captures", (json_int_t)i.lost_captures,
			  "lost_readers", (json_int_t)atomic_load(&t->lost_readers)));
	json_object_update_new(doc, life_doc(t, &i));
	json_object_update_new(
		doc, json_pack("{s:b, s:o}", "tracing_on", i.state == TRACE_RUNNING && !i.paused,
			       "snapshot_of",
			       t->snapshot_of[0] ? json_string(t->snapshot_of) : json_null()));
	json_object_update_new(
		doc, json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "graph", graph_doc(&i), "syscalls",
			       calls_doc(&i), "started", json_time(i.started_ns), "stopped",
			       json_time(i.stopped_ns), "restore",
			       i.state == TRACE_RUNNING ? json_null() : restore_doc(&i.restore),
			       "error", failure_doc(&i)));
	if (!json_object_get(doc, "records") || !json_object_get(doc, "error")) {
		json_decref(doc);
		return NULL;
	}
	return doc;
}

static void list(struct request *rq, const char *guest)
{
	json_t *items = json_array();
	struct trace_entry **all;
	size_t n;

	all = registry_traces(server_registry(rq->srv), guest, &n);
	for (size_t i = 0; all && i < n; i++) {
		if (json_array_append_new(items, trace_doc(all[i]))) {
			json_decref(items);
			items = NULL;
		}
		registry_trace_put(all[i]);
	}
	if (!all) {
		json_decref(items);
		items = NULL;
	}
	free(all);
	request_json(rq, 200, items_doc(items));
}

void res_traces_list(struct request *rq)
{
	list(rq, NULL);
}

void res_guest_traces_list(struct request *rq)
{
	struct guest_entry *g;
	struct err err = { 0 };

	if (registry_guest_get(server_registry(rq->srv), rq->params[0], &g, &err) < 0) {
		request_error(rq, &err);
		return;
	}
	list(rq, g->name);
	registry_guest_put(g);
}

void res_traces_create(struct request *rq)
{
	struct guest_entry *g;
	struct trace_entry *t;
	struct body_trace b;
	struct err err = { 0 };
	struct problem p;
	int r;

	if (registry_guest_get(server_registry(rq->srv), rq->params[0], &g, &err) < 0) {
		request_error(rq, &err);
		return;
	}
	if (body_trace_parse(rq->body.data, rq->body.len, &b, &p) < 0) {
		registry_guest_put(g);
		request_problem(rq, &p);
		return;
	}
	r = registry_trace_start(g, &b, &t, &err);
	body_trace_deinit(&b);
	registry_guest_put(g);
	if (r < 0) {
		request_error(rq, &err);
		return;
	}
	snprintf(rq->reply.location, sizeof(rq->reply.location), "/v1/traces/%s", t->id);
	request_json(rq, 201, trace_doc(t));
	registry_trace_put(t);
}

/* The trace that the path names, as a user; NULL: the problem is the reply. */
static struct trace_entry *get(struct request *rq)
{
	struct trace_entry *t;
	struct err err = { 0 };

	if (registry_trace_get(server_registry(rq->srv), rq->params[0], &t, &err) == 0)
		return t;
	request_error(rq, &err);
	return NULL;
}

void res_traces_get(struct request *rq)
{
	struct trace_entry *t = get(rq);

	if (!t)
		return;
	request_json(rq, 200, trace_doc(t));
	registry_trace_put(t);
}

void res_traces_change(struct request *rq)
{
	struct body_change change = { 0 };
	struct trace_entry *t;
	struct err err = { 0 };
	struct problem p;

	t = get(rq);
	if (!t)
		return;
	if (body_change_parse(rq->body.data, rq->body.len, &change, &p) < 0)
		request_problem(rq, &p);
	else if (registry_trace_change(t, &change, &err) < 0)
		request_error(rq, &err);
	else
		request_json(rq, 200, trace_doc(t));
	body_change_deinit(&change);
	registry_trace_put(t);
}

void res_traces_mark(struct request *rq)
{
	struct body_marker marker = { 0 };
	struct trace_entry *t;
	struct err err = { 0 };
	struct problem p;

	t = get(rq);
	if (!t)
		return;
	if (body_marker_parse(rq->body.data, rq->body.len, &marker, &p) < 0)
		request_problem(rq, &p);
	else if (registry_trace_mark(t, marker.text, &marker.time_ns, &err) < 0)
		request_error(rq, &err);
	else
		request_json(rq, 201,
			     json_pack("{s:s, s:o}", "text", marker.text, "time",
				       json_time(marker.time_ns)));
	body_marker_deinit(&marker);
	registry_trace_put(t);
}

void res_traces_snapshot(struct request *rq)
{
	struct trace_entry *t = get(rq), *snapshot;
	struct err err = { 0 };

	if (!t)
		return;
	if (registry_trace_snapshot(t, &snapshot, &err) < 0) {
		request_error(rq, &err);
	} else {
		snprintf(rq->reply.location, sizeof(rq->reply.location), "/v1/traces/%s",
			 snapshot->id);
		request_json(rq, 201, trace_doc(snapshot));
		registry_trace_put(snapshot);
	}
	registry_trace_put(t);
}

void res_traces_stop(struct request *rq)
{
	struct trace_entry *t = get(rq);
	struct err err = { 0 };

	if (!t)
		return;
	if (registry_trace_stop(t, &err) < 0)
		request_error(rq, &err);
	else
		request_json(rq, 200, trace_doc(t));
	registry_trace_put(t);
}

void res_traces_delete(struct request *rq)
{
	struct trace_entry *t;
	struct err err = { 0 };
	bool force;

	if (request_query_bool(rq, "force", &force) < 0)
		return;
	if (registry_trace_delete(server_registry(rq->srv), rq->params[0], force, &t, &err) < 0) {
		request_error(rq, &err);
		return;
	}
	request_json(rq, 200, trace_doc(t));
	registry_trace_unref(t);
}

/* Items from records, one or many an item. Return: the seq that one goes on after. */
static u64 add_items(struct buf *b, const struct trace_page *page, u64 after, struct sys_out *calls,
		     struct names_then *then)
{
	const struct output_names *names = &then->names;
	const struct trace_record *recs = page->buf;
	/* as many as were asked for, hence a whole call at least */
	bool full = page->n == page->max, any = false;

	for (size_t k = 0; k < page->n; k++) {
		size_t start = b->len;

		if (any)
			buf_adds(b, ",\n");
		names_then_at(then, recs[k].seq);
		if (calls)
			sys_out_record(calls, b, &recs[k], names);
		else
			out_json_record(b, &recs[k], names);
		if (b->len == start + (any ? 2 : 0)) { /* the call is not complete */
			b->len = start;
			continue;
		}
		any = true;
		if (b->len && b->data[b->len - 1] == '\n')
			b->len--;
		after = recs[k].seq;
	}
	if (any)
		buf_adds(b, "\n");
	/* the rest of a call may not have come yet: it is read again then */
	return any || !page->n || (calls && !full) ? after : recs[page->n - 1].seq;
}

static void add_page(struct buf *b, struct trace_entry *t, const struct trace_page *page, u64 after,
		     struct sys_out *calls)
{
	struct names_then names;
	struct trace_info i = { 0 };

	trace_get_info(t->trace, &i);
	buf_addf(b, "{\"records\":%llu,\"lost\":%llu,\"state\":\"%s\",\"items\":[",
		 (unsigned long long)i.n_records, (unsigned long long)i.n_lost,
		 state_names[i.state]);
	names_then_init(&names);
	names_then_begin(&names, t, after);
	after = add_items(b, page, after, calls, &names);
	names_then_end(&names);
	buf_addf(b, "],\"next_after\":%llu}\n", (unsigned long long)after);
}

static bool is_syscalls(struct trace_entry *t)
{
	struct trace_info i = { 0 };

	trace_get_info(t->trace, &i);
	return strcmp(i.tracer, "syscalls") == 0;
}

/* Answer with the records after @after, at most @limit. Context: a user of @t. */
static void answer_records(struct request *rq, struct trace_entry *t, u64 after, u64 limit)
{
	bool syscalls = is_syscalls(t);
	struct sys_out *calls = syscalls ? sys_out_create(SYS_JSON, "") : NULL;
	/* a whole call at least */
	size_t max = syscalls ? MAX((size_t)limit, (size_t)SYS_PARTS_MAX) : limit;
	_cleanup_free_ struct trace_record *recs = calloc(max, sizeof(*recs));
	_cleanup_buf_ struct buf b = { 0 };
	struct err err = { 0 };
	struct problem p;
	struct trace_page page = { .buf = recs, .max = max };
	int r;

	if (!recs || (syscalls && !calls)) {
		sys_out_destroy(calls);
		request_json(rq, 503, NULL);
		return;
	}
	r = trace_read(t->trace, after, &page, &err);
	if (r < 0) {
		sys_out_destroy(calls);
		problem_from_err(&p, &err);
		p.oldest_seq = r == -ESTALE ? page.oldest_seq : 0;
		request_problem(rq, &p);
		return;
	}
	add_page(&b, t, &page, after, calls);
	sys_out_destroy(calls);
	if (buf_failed(&b))
		request_json(rq, 503, NULL);
	else
		request_text(rq, 200, "application/json", &b);
}

void res_traces_records(struct request *rq)
{
	struct trace_entry *t;
	u64 after, limit;

	if (request_query_u64(rq, "after", 0, INT64_MAX, &after) < 0 ||
	    request_query_u64(rq, "limit", RECORDS_LIMIT, RECORDS_MAX_LIMIT, &limit) < 0)
		return;
	if (!limit) {
		request_refuse(rq, "limit", "must be a number, 1 to %d", RECORDS_MAX_LIMIT);
		return;
	}
	t = get(rq);
	if (!t)
		return;
	if (stream_check_after(rq, t, after) == 0)
		answer_records(rq, t, after, limit);
	registry_trace_put(t);
}
