/* SPDX-License-Identifier: Apache-2.0 */
/* The text layouts, one a tracer. Private to tracers/; users take struct out_layout of output.h. */
#ifndef TRACERS_OUT_LAYOUT_H
#define TRACERS_OUT_LAYOUT_H

#include "tracers/output.h"

#define TEXT_NAME_MAX 1024 /* a longer name is cut: KSYM_NAME_LEN is 512 since v6.1 */

/** fmt_printable - @s without what the terminal would act on; as long as @len at most */
char *fmt_printable(char *p, const char *s, size_t len);
/** out_printable - append the same of a whole name */
void out_printable(struct buf *b, const char *name);

/**
 * out_stack - "<stack trace>" and a line " => function" for @ip and each of its callers, no line end
 *
 * The same as v6.1 kernel/trace/trace_output.c trace_stack_print() shows of func_stack_trace.
 */
void out_stack(struct buf *b, u64 ip, const struct trace_stack *s,
	       const struct output_names *names);

/** fmt_switch - TRACE_SWITCH as an event; under 100 bytes */
char *fmt_switch(char *p, const struct trace_record *r);

struct out_graph;
must_check int out_graph_create(const struct output_meta *meta, struct out_graph **ret,
				struct err *err);
void out_graph_destroy(struct out_graph *o);
void out_graph_set(struct out_graph *o, const struct out_layout_opts *opts);
void out_graph_head(const struct out_graph *o, struct buf *b, const struct output_meta *meta);
void out_graph_record(struct out_graph *o, struct buf *b, const struct trace_record *r,
		      const struct output_names *names);
/** out_graph_forget - what stacks and texts of held records point to is gone */
void out_graph_forget(struct out_graph *o);
bool out_graph_holds(const struct out_graph *o);
void out_graph_flush(struct out_graph *o, struct buf *b, const struct output_names *names);

#endif
