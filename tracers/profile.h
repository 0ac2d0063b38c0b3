/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of function_graph added up: by function, and by stack for flame graphs. One thread. Memory
 * grows, up to limits, with the functions and the stacks that occur; not with records or tasks. A function is
 * what was at its address at the time of the record: a module may have taken another's place.
 */
#ifndef TRACERS_PROFILE_H
#define TRACERS_PROFILE_H

#include "tracers/output.h"

/* All calls of one function. Times are of the calls that returned. */
struct profile_row {
	u64 ip; /* call site */
	const char *name,
		*module; /* NULL: not known; of the kernel's own too. As good as the profile */
	u64 hits; /* calls that returned */
	u64 untimed; /* calls whose return is not followed; all of the function tracer's */
	u64 total_ns; /* with callees; one that calls itself counts at each level */
	u64 self_ns; /* without the time in callees that are traced */
	u64 min_ns, max_ns;
	double avg_ns, stddev_ns; /* stddev: of the sample, 0 for one call */
};

struct profile;

/**
 * profile_create
 * @graph_time: as the kernel's option graph-time, which its function profiler heeds: without it the time of
 *              a call is that without its traced callees, in total_ns and all that is worked out of single calls
 *
 * Return: NULL: no memory.
 */
struct profile *profile_create(bool graph_time);
void profile_destroy(struct profile *p);

/** profile_add - the next record of a stream, in its order; @names are those of its time. Return: 0; -ENOMEM. */
must_check int profile_add(struct profile *p, const struct trace_record *r,
			   const struct output_names *names);

/* What a guest that makes functions and stacks up made too many of; told with the profile. */
struct profile_excess {
	u64 unnamed; /* times that a function was one too many, and is OUTPUT_SHARED_NAME */
	u64 shortened; /* that a stack was one too many, and counts as what it begins with */
};
void profile_excess(const struct profile *p, struct profile_excess *ret);

/** profile_rows - one a function, in no order; @p's, until the next profile_add() */
const struct profile_row *profile_rows(struct profile *p, size_t *n_ret);

/**
 * profile_folded - "comm;outermost;...;innermost NS" lines, as flamegraph.pl and others read them
 *
 * NS is the time in the innermost without its callees, of all calls with these callers. Where no call was
 * followed to its return, but callers were recorded (trace_opts.stack), it is how many such calls there were.
 */
void profile_folded(const struct profile *p, struct buf *b);
/** profile_folded_next - the next line of it, or none; *@next is 0 at first. false: that was all */
bool profile_folded_next(const struct profile *p, u32 *next, struct buf *b);

#endif
