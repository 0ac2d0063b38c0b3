// SPDX-License-Identifier: Apache-2.0
/* Calls that nest. See spans.h. */
#include "tracers/formats/spans.h"

#include "tracers/out_values.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void pop(struct export *x, struct buf *b, struct span *s, const struct span_ops *ops)
{
	struct frame *f = &s->task->frames[s->task->n_frames - 1];

	s->call = f;
	s->task->last_ns = s->ts_ns;
	ops->end(x, b, s);
	free(f->args);
	s->task->n_frames--;
}

/* NULL: too deep, or no memory */
static struct frame *push(struct export *x, struct task *t)
{
	struct frame *bigger;
	u32 cap = t->frames_cap ? t->frames_cap * 2 : 8;

	if (t->n_frames == FRAMES_MAX)
		return NULL;
	if (t->n_frames == t->frames_cap) {
		bigger = reallocarray(t->frames, cap, sizeof(*bigger));
		if (!bigger) {
			export_fail(x, -ENOMEM);
			return NULL;
		}
		t->frames = bigger;
		t->frames_cap = cap;
	}
	return &t->frames[t->n_frames++];
}

static char *args_text(struct export *x, const struct trace_record *r)
{
	char text[ARGS_TEXT_MAX], *p;

	if (!r->n_args)
		return NULL;
	*fmt_args(text, r, x->names) = 0;
	p = strdup(text);
	if (!p)
		export_fail(x, -ENOMEM);
	return p;
}

static const struct frame *top(const struct task *t)
{
	return t->n_frames ? &t->frames[t->n_frames - 1] : NULL;
}

static void begin(struct export *x, struct buf *b, struct span *s, const struct span_ops *ops)
{
	struct frame *f = push(x, s->task);

	if (!f) {
		x->n_left_out++;
		return;
	}
	*f = (struct frame){ .ip = s->r->ip,
			     .ts_ns = s->ts_ns,
			     .sym = export_sym(x, s->r->ip),
			     .depth = s->r->depth,
			     .args = args_text(x, s->r) };
	s->call = f;
	s->task->last_ns = s->ts_ns;
	ops->begin(x, b, s);
}

static void enter(struct export *x, struct buf *b, struct span *s, const struct span_ops *ops)
{
	s->how = SPAN_RETURN_LOST;
	while (s->task->n_frames && top(s->task)->depth >= s->r->depth)
		pop(x, b, s, ops);
	begin(x, b, s, ops);
}

static void leave(struct export *x, struct buf *b, struct span *s, const struct span_ops *ops)
{
	const struct trace_record *r = s->r;
	const struct frame *f;
	u64 now = s->ts_ns;

	s->how = SPAN_RETURN_LOST;
	while (s->task->n_frames && top(s->task)->depth > r->depth)
		pop(x, b, s, ops);
	f = top(s->task);
	s->how = r->type == TRACE_GRAPH_NEVER ? SPAN_NEVER : SPAN_RETURNED;
	if (f && f->depth == r->depth && f->ip == r->ip) {
		pop(x, b, s, ops);
		return;
	}
	if (r->type == TRACE_GRAPH_NEVER)
		return;
	s->how = SPAN_RETURN_LOST;
	if (f && f->depth == r->depth)
		pop(x, b, s, ops);
	/* its entry is not there: it begins as early as what is shown already allows */
	s->entry_lost = true;
	s->how = SPAN_RETURNED;
	s->ts_ns = MAX(s->task->last_ns, now - MIN(now, r->duration_ns));
	begin(x, b, s, ops);
	f = top(s->task);
	s->ts_ns = now;
	if (f && f->depth == r->depth && f->ip == r->ip)
		pop(x, b, s, ops);
}

void spans_add(struct export *x, struct buf *b, struct task *t, const struct trace_record *r,
	       const struct span_ops *ops)
{
	struct span s = { .task = t, .r = r, .ts_ns = MAX(t->last_ns, r->ts_ns) };

	if (r->type == TRACE_GRAPH_ENTRY)
		enter(x, b, &s, ops);
	else if (r->type == TRACE_GRAPH_RETURN || r->type == TRACE_GRAPH_NEVER)
		leave(x, b, &s, ops);
	t->last_ns = s.ts_ns;
}

void spans_finish(struct export *x, struct buf *b, struct task *t, u64 ts_ns,
		  const struct span_ops *ops)
{
	struct span s = { .task = t, .ts_ns = MAX(t->last_ns, ts_ns), .how = SPAN_INSIDE };

	while (t->n_frames)
		pop(x, b, &s, ops);
	t->last_ns = s.ts_ns;
}
