/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All rings of one agent, merged into one stream ordered by time, with names attached. Knows rings
 * and the clock; not who reads the stream.
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
	/* guest TSC to the guest's trace clock, ns; @tsc48 is what a record holds */
	u64 (*clock)(void *arg, u32 cpu, u64 tsc48);
	void *clock_arg;
	/* called for each record, in order; comm and tgid are filled in, seq is not */
	void (*record)(void *arg, const struct trace_record *r);
	void *record_arg;
};

struct drain_losses {
	u64 refused; /* the ring was full */
	u64 overwritten; /* overwrite mode: used again before they were read */
	u64 torn;
	u64 left; /* not read before the end */
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

void drain_losses(const struct drain *d, struct drain_losses *ret);

#endif
