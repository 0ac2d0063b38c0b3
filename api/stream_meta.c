// SPDX-License-Identifier: Apache-2.0
/* What heads say of a trace. See stream.h. */
#include "api/registry.h"
#include "api/stream.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOOK_PAGE 64
#define LOOK_MAX  4096 /* records */

/* Which tracer @r is of; NULL: of either. @lost_frames: calls that could not be followed look like function's. */
static const char *tracer_of(const struct trace_record *r, bool lost_frames)
{
	switch (r->type) {
	case TRACE_GRAPH_ENTRY:
	case TRACE_GRAPH_RETURN:
	case TRACE_GRAPH_NEVER:
		return "function_graph";
	case TRACE_TRACER: /* the end of the other's */
		return r->depth ? "function" : "function_graph";
	case TRACE_FUNCTION:
		return lost_frames ? NULL : "function";
	default:
		return NULL;
	}
}

/*
 * The tracer that a stream begins with. One that was switched has records of both, and tells between them:
 * what counts is the first that comes and is of one alone.
 */
static const char *first_tracer(struct trace_entry *t, u64 after, const struct trace_info *now)
{
	struct trace_record recs[LOOK_PAGE];
	struct trace_page page = { .buf = recs, .max = LOOK_PAGE };
	const char *tracer = NULL, *maybe = now->tracer;

	if (!atomic_load(&t->switched) || strcmp(now->tracer, "syscalls") == 0)
		return now->tracer;
	for (u64 seen = 0; !tracer && seen < LOOK_MAX; seen += page.n) {
		if (trace_read(t->trace, after, &page, NULL) == -ESTALE)
			(void)!trace_read(t->trace, page.oldest_seq - 1, &page, NULL);
		if (!page.n)
			break;
		for (size_t i = 0; i < page.n && !tracer; i++) {
			tracer = tracer_of(&recs[i], now->lost_frames);
			if (recs[i].type == TRACE_FUNCTION)
				maybe = "function";
		}
		after = recs[page.n - 1].seq;
	}
	return tracer ? tracer : maybe;
}

void stream_fill_meta(struct output_meta *meta, struct trace_entry *t, u64 after)
{
	json_t *request = registry_trace_request(t);
	struct guest_info g = { 0 };
	struct trace_info i = { 0 };

	guest_info(trace_guest(t->trace), &g);
	trace_get_info(t->trace, &i);
	snprintf(meta->tracer, sizeof(meta->tracer), "%s", first_tracer(t, after, &i));
	snprintf(meta->guest, sizeof(meta->guest), "%.63s", t->guest->name);
	snprintf(meta->release, sizeof(meta->release), "%s", g.release);
	meta->vcpus = g.vcpus;
	meta->args = json_is_true(json_object_get(request, "args"));
	meta->stacks = json_array_size(json_object_get(request, "stack"));
	json_decref(request);
	meta->started_ns = i.started_ns;
	meta->n_records = i.n_records;
	meta->n_lost = i.n_lost;
	meta->n_functions = i.n_functions;
}
