/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All rings of one agent, merged into one stream ordered by time, with names and depths attached.
 * Knows rings and the clock; not who reads the stream.
 *
 * One CPU's records stay in the order of its ring, even where their times are not (agent_abi.h: an
 * interrupt may come between the reading of the TSC and the reservation). One task's records are in
 * the order in which it made them: on one CPU that is the ring's; and a task takes its time from one
 * CPU to another, so that all that lies before its record in the first ring is older than the next
 * in the other. Hence an entry comes before those of its callees, and a return after theirs.
 *
 * Except behind a writer that was preempted between reservation and record: its ring is read no further
 * until it wrote, other CPUs' records do not wait for that. They would have to until rings are full, for
 * as long as one task does not run. What lies behind it comes late, with its own time; what its tasks did
 * elsewhere meanwhile came before.
 */
#ifndef TRACERS_DRAIN_H
#define TRACERS_DRAIN_H

#include "guest-agent/agent_abi.h"
#include "tracers/ring.h"
#include "tracers/trace.h"

struct drain;

struct drain_opts {
	struct ring_io io; /* the agent's data */
	struct agent_header header; /* as the host wrote it */
	bool graph; /* function_graph: else returns are those of an earlier trace, and dropped */
	bool data; /* records may have arguments, return values or a depth: AGENT_REC_DATA */
	bool captures; /* TRACE_FUNCTION and TRACE_GRAPH_ENTRY may have a capture; with data */
	struct stacks *stacks; /* records may have callers, which go there; or NULL. With data */
	bool switches; /* hand on TRACE_SWITCH */
	bool no_sleep; /* durations without the time that tasks were switched out; needs AGENT_REC_SWITCH */
	/* TSC ticks; returns of calls that are known to have taken less, without sleep, are not handed on */
	u64 threshold;
	/* guest TSC to the guest's trace clock, ns; @tsc48 is what a record holds */
	u64 (*clock)(void *arg, u32 cpu, u64 tsc48);
	u64 (*duration)(void *arg, u64 ticks); /* TSC ticks to ns */
	void *clock_arg;
	/* called for each record, in order; comm and tgid are filled in, seq is not */
	void (*record)(void *arg, const struct trace_record *r);
	void *record_arg;
};

/* Records handed on by kind. */
struct drain_counts {
	u64 entries, returns, never; /* threshold: no entries, and never is not told */
};

struct drain_losses {
	u64 refused; /* the ring was full */
	u64 overwritten; /* overwrite mode: used again before they were read */
	u64 torn;
	u64 left; /* not read before the end */
	u64 captures; /* not in the other counts: what was copied, or callers, of records that are handed on */
	u64 stalled_ns; /* longest that a writer has been holding up its ring by now */
};

must_check int drain_create(const struct drain_opts *opts, struct drain **ret, struct err *err);
void drain_destroy(struct drain *d);

/**
 * drain_round - take what is in the rings and hand on what can be put in order
 * @now_ns:    CLOCK_MONOTONIC
 * @n_ret:     records taken out of the rings
 * @more_ret:  true when a ring had more than was taken: come again at once
 *
 * A record is handed on once every ring was read after its time: one round later. Context: one
 * thread. Return: 0; -EUCLEAN the guest's rings make no sense (guest.bad_memory); -ESRCH (vmm.gone).
 */
must_check int drain_round(struct drain *d, u64 now_ns, size_t *n_ret, bool *more_ret,
			   struct err *err);

/**
 * drain_finish - the last round: everything that is left, in order
 *
 * Precondition: the agent is off and no site calls it. Waits up to @wait_ns for writers that were
 * preempted in the agent; what they have not written by then is counted as torn.
 */
must_check int drain_finish(struct drain *d, u64 wait_ns, struct err *err);

/**
 * drain_never - a call will never return: hand on a TRACE_GRAPH_NEVER for it
 * @tsc: at entry
 *
 * Its entry may still be in a ring. So it is handed on two rounds later, with the time of the record
 * before it in the stream: that is when it became known. Its CPU is the entry's, 0 if that is not
 * known. Under a threshold it is not handed on, as entries are not. -ENOMEM: it is not handed on.
 */
must_check int drain_never(struct drain *d, u32 pid, u64 ip, u64 parent, u64 tsc);

/**
 * drain_expect_graph - entries and returns may come from now on
 *
 * Context: any thread; before the agent may write any.
 */
void drain_expect_graph(struct drain *d);

/**
 * drain_turn - the agent is about to be turned over to function_graph, or back
 *
 * A TRACE_TRACER goes into the stream: before the first entry or return; the other way, before the
 * first function's record. (Where the agent ran out of frames just before, a call that was not followed
 * is taken for that.) If there is none, once all that was recorded before drain_turned() was handed on.
 */
void drain_turn(struct drain *d, bool graph);
/**
 * drain_turned - it was, or, not @done, it was not and all is as before
 *
 * When all that was recorded before this call is handed on, calls that are open are taken for gone if
 * returns are not followed any more.
 */
void drain_turned(struct drain *d, bool done);
/** drain_turning - is what drain_turn() began not over yet? */
bool drain_turning(const struct drain *d);

/**
 * drain_switches_lost - task switches were not told for a while, up to some time before now
 *
 * Context: as drain_round(). For no_sleep: see sleeps_lost().
 */
void drain_switches_lost(struct drain *d);

void drain_counts(const struct drain *d, struct drain_counts *ret);
void drain_losses(const struct drain *d, struct drain_losses *ret);

#endif
