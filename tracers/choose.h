/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a trace's options ask for: which call sites to arm, and what of each. Must not know how it is
 * done: patcher/tracing.h's words.
 */
#ifndef TRACERS_CHOOSE_H
#define TRACERS_CHOOSE_H

#include "patcher/tracing.h"
#include "tracers/filter.h"

struct choose_input {
	/* sites.later: there may be too many whose callers are asked for */
	struct filter_input sites;
	/* prototype of a site's function; 0 or -errno: not known */
	int (*func)(void *arg, const struct ftrace_site *site, struct kernel_func *ret);
	void *arg;
};

struct choice {
	u32 *site; /* to arm: indexes into the sites */
	size_t n;
	struct tracing_site *what; /* of those of whom something is asked */
	size_t n_what;
	size_t n_skipped; /* matched but left alone */
};

/**
 * choose_check - do options go together?
 *
 * Those that are about calls that return, or about calls around a call, need function_graph. Return: 0;
 * -EINVAL (bad_request), with the option and the tracer in the message.
 */
must_check int choose_check(const struct trace_opts *opts, struct err *err);

/**
 * choose_sites - the sites of @opts, as set_ftrace_filter, set_ftrace_notrace, set_graph_function and
 * set_graph_notrace choose them
 *
 * What is armed is filter (all, if there is none) and graph, without notrace. A site of graph_notrace
 * that is not armed by these stays so: what it calls is traced. A function's argument words and return
 * value follow its prototype; where none is known it is asked for its return value alone, and a void
 * function never.
 *
 * Context: the caller holds what protects the sites. Return: 0; what filter_select() returns; -ENOENT
 * none of graph's functions is left (filter.no_match). Undo: choice_deinit().
 */
must_check int choose_sites(const struct choose_input *in, const struct trace_opts *opts,
			    struct choice *ret, struct err *err);
void choice_deinit(struct choice *c);

#endif
