/* SPDX-License-Identifier: Apache-2.0 */
/* A trace of the fake engine: records (fake_trace.c), and what is changed about it (fake_control.c). */
#ifndef TESTS_API_FAKE_TRACE_H
#define TESTS_API_FAKE_TRACE_H

#include "tracers/trace.h"

#include "fake_engine.h"

#include <pthread.h>

#define FAKE_TURNS      64
#define FAKE_MARKERS    64
#define FAKE_CALL_PARTS 4 /* records of a system call */

struct trace {
	struct guest *guest;
	pthread_mutex_t lock;
	pthread_cond_t end;
	pthread_t thread;
	pthread_mutex_t notify_lock; /* so that the notifier is gone once it was taken away */
	void (*notify)(void *arg);
	void *notify_arg;
	struct trace_info info;
	u64 lost_every, per_tick, dies_at;
	u32 kept;
	bool ending, joined, args, retval;
	bool calls; /* the tracer syscalls */
	bool is_snapshot;
	const char *needs_graph; /* an option */
	/* from which record on it is function_graph, or no more; that record says so, but for the first */
	struct {
		u64 from;
		bool graph;
	} turns[FAKE_TURNS];
	size_t n_turns;
	size_t armed[FAKE_FUNCTIONS];
	struct fake_marker {
		u64 seq;
		char *text;
	} markers[FAKE_MARKERS];
	size_t n_markers;
};

/** fake_choose - which sites @o chooses, into @t. Context: t->lock held, or nobody else knows @t. */
void fake_choose(struct trace *t, const struct trace_opts *o);

/** fake_mark_of - the marker that is record @seq; NULL: it is none. Context: t->lock held. */
const char *fake_mark_of(const struct trace *t, u64 seq);

/** fake_graph_part - make @r, which is one of function, the @nth record of calls, from 0 on; see fake_trace.c */
void fake_graph_part(const struct trace *t, u64 nth, struct trace_record *r);

/** fake_call_part - make @r, which has its seq and time, the @nth part of system calls, from 0 on */
void fake_call_part(u64 nth, struct trace_record *r);
/** fake_call_sym - is @addr these calls' handler? */
bool fake_call_sym(u64 addr, struct kernel_sym *ret);

#endif
