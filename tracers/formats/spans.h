/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries and returns as calls that nest, task by task, whatever was lost between them: for formats
 * that pair a beginning with the next end. Private to tracers/formats/.
 */
#ifndef TRACERS_FORMATS_SPANS_H
#define TRACERS_FORMATS_SPANS_H

#include "tracers/formats/priv.h"

enum span_end {
	SPAN_RETURNED, /* @duration_ns is the record's */
	SPAN_RETURN_LOST, /* a later record says that it must be over */
	SPAN_NEVER, /* its task ended inside */
	SPAN_INSIDE, /* not over at the end of the trace */
};

struct span {
	struct task *task;
	const struct frame *call;
	const struct trace_record *r; /* what told it; NULL at the end of the trace */
	u64 ts_ns; /* never before that of what the same task had before */
	enum span_end how; /* of end() */
	bool entry_lost; /* it began earlier: at r->ts_ns - r->duration_ns, maybe inside another's time */
};

/* Of a task they come like brackets: an end is always that of the innermost. */
struct span_ops {
	void (*begin)(struct export *x, struct buf *b, const struct span *s);
	void (*end)(struct export *x, struct buf *b, const struct span *s);
};

/** spans_add - a record of a call; others are nothing to it */
void spans_add(struct export *x, struct buf *b, struct task *t, const struct trace_record *r,
	       const struct span_ops *ops);
/** spans_finish - all calls of @t that are open, at @ts_ns */
void spans_finish(struct export *x, struct buf *b, struct task *t, u64 ts_ns,
		  const struct span_ops *ops);

#endif
