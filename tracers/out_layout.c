// SPDX-License-Identifier: Apache-2.0
/* The text layout that goes with a tracer. See output.h. */
#include "tracers/out_layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct out_layout {
	struct out_graph *graph;
	bool is_graph; /* else each record is a line by itself */
	struct output_meta meta;
};

int out_layout_create(const struct output_meta *meta, struct out_layout **ret, struct err *err)
{
	struct out_layout *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for an output");
	l->meta = *meta;
	l->is_graph = !strcmp(meta->tracer, "function_graph");
	rc = out_graph_create(meta, &l->graph, err);
	if (rc) {
		free(l);
		return rc;
	}
	*ret = l;
	return 0;
}

void out_layout_destroy(struct out_layout *l)
{
	if (!l)
		return;
	out_graph_destroy(l->graph);
	free(l);
}

bool out_layout_option(struct out_layout_opts *opts, const char *name, size_t len)
{
	const struct {
		const char *name;
		bool *on;
	} options[] = {
		{ "latency-format", &opts->latency },    { "funcgraph-abstime", &opts->abstime },
		{ "funcgraph-proc", &opts->proc },       { "funcgraph-tail", &opts->tail },
		{ "funcgraph-retaddr", &opts->retaddr }, { "cgroup", &opts->cgroup },
	};

	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		if (strlen(options[i].name) == len && !memcmp(options[i].name, name, len)) {
			*options[i].on = true;
			return true;
		}
	}
	return false;
}

void out_layout_set(struct out_layout *l, const struct out_layout_opts *opts)
{
	out_graph_set(l->graph, opts);
}

void out_layout_head(const struct out_layout *l, struct buf *b, const struct output_meta *meta)
{
	if (l->is_graph)
		out_graph_head(l->graph, b, meta);
	else
		out_text_head(b, meta);
}

/* Its counts are not known in the middle of a stream. */
static void turn(struct out_layout *l, struct buf *b, bool graph, const struct output_names *names)
{
	struct output_meta meta = l->meta;

	out_layout_flush(l, b, names);
	l->is_graph = graph;
	meta.n_records = meta.n_lost = 0;
	memset(meta.tracer, 0, sizeof(meta.tracer));
	strcpy(meta.tracer, graph ? "function_graph" : "function");
	out_layout_head(l, b, &meta);
}

void out_layout_record(struct out_layout *l, struct buf *b, const struct trace_record *r,
		       const struct output_names *names)
{
	/* what is still recorded of the other tracer, when it was turned off, has that one's layout */
	bool is_call = r->type == TRACE_GRAPH_ENTRY || r->type == TRACE_GRAPH_RETURN ||
		       r->type == TRACE_GRAPH_NEVER;

	if (r->type == TRACE_TRACER)
		turn(l, b, r->depth, names);
	else if (l->is_graph || is_call)
		out_graph_record(l->graph, b, r, names);
	else if (l->meta.args)
		out_text_record_args(b, r, names);
	else
		out_text_record(b, r, names);
}

void out_layout_flush(struct out_layout *l, struct buf *b, const struct output_names *names)
{
	out_graph_flush(l->graph, b, names);
}

void out_layout_forget(struct out_layout *l)
{
	out_graph_forget(l->graph);
}

bool out_layout_holds(const struct out_layout *l)
{
	return out_graph_holds(l->graph);
}

/* As print_trace_line() does (Linux v6.1 kernel/trace/trace.c), without its "CPU:n". */
void out_layout_lost(struct out_layout *l, struct buf *b, u64 count,
		     const struct output_names *names)
{
	out_layout_flush(l, b, names);
	buf_addf(b, "[LOST %llu EVENTS]\n", (unsigned long long)count);
}
