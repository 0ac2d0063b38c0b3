// SPDX-License-Identifier: Apache-2.0
/* A trace's thread that drains: rings into the store. It takes the guest's lock for nothing that it reads. */
#define LOG_PREFIX "trace"
#include "tracers/trace_priv.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define POLL_MIN_NS 500000ull
#define POLL_MAX_NS (10 * NSEC_PER_MSEC)
#define COUNT_NS    (100 * NSEC_PER_MSEC)

void trace_notify(struct trace *t)
{
	pthread_mutex_lock(&t->lock);
	if (t->notify)
		t->notify(t->notify_arg);
	pthread_mutex_unlock(&t->lock);
}

/* Records are read after they were written: of all delays the shortest is nearest to none. */
static void learn_zero(struct trace *t)
{
	s64 zero = (s64)(clock_ns(CLOCK_MONOTONIC) - t->batch[t->n_batch - 1].ts_ns);

	if (t->info.zero_mono_ns && zero >= t->info.zero_mono_ns)
		return;
	pthread_mutex_lock(&t->lock);
	t->info.zero_mono_ns = zero;
	pthread_mutex_unlock(&t->lock);
}

void trace_flush(struct trace *t)
{
	if (t->n_batch)
		learn_zero(t);
	if (t->n_batch)
		store_append(t->store, t->batch, t->n_batch);
	t->n_batch = 0;
}

void trace_take_record(void *arg, const struct trace_record *r)
{
	struct trace *t = arg;

	if (!t->info.boot_ns) { /* only this thread sets it */
		pthread_mutex_lock(&t->lock);
		t->info.boot_ns = clock_ns(CLOCK_REALTIME) - r->ts_ns;
		pthread_mutex_unlock(&t->lock);
	}
	if (t->sys)
		trace_sys_take(t, r);
	else
		trace_keep_record(t, r);
}

void trace_keep_record(void *arg, const struct trace_record *r)
{
	struct trace *t = arg;

	t->batch[t->n_batch++] = *r;
	if (t->n_batch == TRACE_BATCH)
		trace_flush(t);
}

u64 trace_record_clock(void *arg, u32 cpu, u64 tsc48)
{
	struct trace *t = arg;

	return trace_clock_record_ns(&t->drain_clock, cpu, tsc48);
}

u64 trace_record_duration(void *arg, u64 ticks)
{
	struct trace *t = arg;

	return trace_clock_duration_ns(&t->drain_clock, ticks);
}

/* What a counter of the guest's, which may say anything, has grown by; never less than before. */
static u64 grown(u64 now, u64 base, u64 before)
{
	return now > base ? MAX(now - base, before) : before;
}

static u64 less(u64 a, u64 b)
{
	return a > b ? a - b : 0;
}

void trace_update_graph(struct trace *t)
{
	struct trace_info *i = &t->info;
	struct tracing_graph now = t->base;
	struct drain_counts c;

	if (!t->ever_graph)
		return;
	drain_counts(t->drain, &c);
	if (!tracing_graph_stats(t->g, &now))
		now = t->base;
	pthread_mutex_lock(&t->lock);
	i->n_entries = c.entries;
	i->n_returns = c.returns;
	i->n_never = c.never;
	i->lost_returns = grown(now.lost_returns, t->base.lost_returns, i->lost_returns);
	i->lost_frames = grown(now.lost_frames, t->base.lost_frames, i->lost_frames);
	i->frame_errors = grown(now.frame_errors, t->base.frame_errors, i->frame_errors);
	/* less than there are when entries were lost whose returns were not */
	i->n_inside = less(less(less(c.entries, c.returns), c.never), i->lost_returns);
	trace_sys_counts(t);
	pthread_mutex_unlock(&t->lock);
}

void trace_update_losses(struct trace *t)
{
	struct drain_losses l;
	struct tracing_stacks stacks = t->stack_base;
	u64 nocpu = t->lost_nocpu;

	drain_losses(t->drain, &l);
	/* the guest's number: it may say anything, but not go back */
	if (!tracing_lost_nocpu(t->g, &nocpu) || nocpu < t->lost_nocpu)
		nocpu = t->lost_nocpu;
	if (t->stacks && !tracing_stack_stats(t->g, &stacks))
		stacks = t->stack_base;
	pthread_mutex_lock(&t->lock);
	if (t->stacks) {
		struct trace_info *i = &t->info;

		i->lost_stacks = grown(stacks.no_stack + l.captures + stacks_refused(t->stacks),
				       t->stack_base.no_stack, i->lost_stacks);
		i->n_skipped_calls =
			grown(stacks.skipped, t->stack_base.skipped, i->n_skipped_calls);
	}
	t->info.lost_ring = l.refused + l.overwritten + l.left + nocpu - t->lost_nocpu;
	t->info.lost_torn = l.torn;
	t->info.n_lost = t->info.lost_ring + t->info.lost_torn;
	pthread_mutex_unlock(&t->lock);
}

void trace_note_unreturned(void *arg, const struct tracing_unreturned *call)
{
	struct unreturned *u = arg;
	size_t cap = MAX(u->cap * 2, (size_t)64);
	struct tracing_unreturned *more;

	if (u->n == u->cap) {
		more = reallocarray(u->call, cap, sizeof(*more));
		if (!more)
			return; /* it counts as still inside */
		u->call = more;
		u->cap = cap;
	}
	u->call[u->n++] = *call;
}

void trace_pass_unreturned(struct trace *t, struct unreturned *u)
{
	int rc = 0;

	for (size_t i = 0; i < u->n && !rc; i++)
		rc = drain_never(t->drain, u->call[i].pid, u->call[i].ip, u->call[i].parent,
				 u->call[i].tsc);
	if (rc)
		log_warn("no memory for calls that never return; they count as still inside");
	free(u->call);
	*u = (struct unreturned){ 0 };
}

void trace_failed(struct trace *t, const struct err *err)
{
	log_error("%s", err->msg);
	pthread_mutex_lock(&t->lock);
	t->info.state = TRACE_FAILED;
	t->info.error = *err;
	pthread_mutex_unlock(&t->lock);
}

/* What @turn asks of this thread; what it is then. */
static enum trace_turn turn_step(struct trace *t, enum trace_turn turn, struct unreturned *late)
{
	switch (turn) {
	case TRACE_TURN_GRAPH:
	case TRACE_TURN_FUNCTION:
		drain_turn(t->drain, turn == TRACE_TURN_GRAPH);
		return TRACE_TURN_TAKEN;
	case TRACE_TURN_DONE:
	case TRACE_TURN_FAILED:
		*late = t->turn_late;
		t->turn_late = (struct unreturned){ 0 };
		drain_turned(t->drain, turn == TRACE_TURN_DONE);
		return TRACE_TURN_ENDS;
	case TRACE_TURN_ENDS:
		return drain_turning(t->drain) ? turn : TRACE_TURN_NONE;
	default:
		return turn;
	}
}

static void take_turn(struct trace *t)
{
	struct unreturned late = { 0 };
	enum trace_turn next;

	pthread_mutex_lock(&t->lock);
	next = turn_step(t, t->turn, &late);
	if (next != t->turn)
		pthread_cond_broadcast(&t->turned);
	t->turn = next;
	pthread_mutex_unlock(&t->lock);
	trace_pass_unreturned(t, &late);
}

/* false when it is time to end */
static bool pause_for(struct trace *t, u64 ns)
{
	struct timespec until;
	bool stop;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)ns;
	until.tv_sec += until.tv_nsec / (long)NSEC_PER_SEC;
	until.tv_nsec %= (long)NSEC_PER_SEC;
	pthread_mutex_lock(&t->lock);
	while (!t->stop && ns && pthread_cond_timedwait(&t->wake, &t->lock, &until) != ETIMEDOUT)
		;
	stop = t->stop;
	pthread_mutex_unlock(&t->lock);
	return !stop;
}

void trace_give_up(struct trace *t, struct err *err)
{
	struct err why = { 0 };

	guest_lock(t->g);
	t->tended = false;
	if (err->code == ERR_GUEST_RESTORED)
		guest_note_restored(t->g);
	if (guest_check_alive(t->g, &why) && why.code != ERR_NONE)
		*err = why;
	tracing_off(t->g); /* nobody reads any more; the sites are put back when it is stopped */
	guest_unlock(t->g);
}

static void fail(struct trace *t, const struct err *err)
{
	trace_flush(t);
	trace_failed(t, err);
	trace_notify(t);
}

/* Of a guest that is what it was its rings are read to their end; in any other's memory they mean nothing. */
static void read_rest(struct trace *t, enum err_code why)
{
	struct err err = { 0 };

	if (why == ERR_VMM_GONE || why == ERR_GUEST_REBOOTED || why == ERR_GUEST_RESTORED)
		return;
	if (drain_finish(t->drain, 0, &err))
		log_warn("what was left in the rings could not be read: %s", err.msg);
	trace_flush(t);
	trace_update_losses(t);
	trace_update_graph(t);
}

/* What costs a look at every CPU's counters in the guest. */
static void count_graph(struct trace *t, u64 now, u64 *last)
{
	if (!t->graph || now - *last < COUNT_NS)
		return;
	*last = now;
	trace_update_graph(t);
}

/* false: the trace has failed */
static bool drain_once(struct trace *t, u64 now, size_t *n_ret, bool *more_ret)
{
	struct err err = { 0 };

	take_turn(t);
	/* after it: calls that were found never to return before a turn belong before it */
	if (trace_take_post(t, &err)) {
		read_rest(t, err.code);
		fail(t, &err);
		return false;
	}
	if (drain_round(t->drain, now, n_ret, more_ret, &err)) {
		trace_give_up(
			t, &err); /* takes the guest's lock: there is nothing to be read any more */
		fail(t, &err);
		return false;
	}
	return true;
}

static void drain_until_stop(struct trace *t)
{
	u64 poll = POLL_MIN_NS, counted = clock_ns(CLOCK_MONOTONIC);
	bool more = false;
	size_t n;

	while (pause_for(t, more ? 0 : poll)) {
		u64 now = clock_ns(CLOCK_MONOTONIC);

		if (!drain_once(t, now, &n, &more))
			return;
		count_graph(t, now, &counted);
		n += trace_take_markers(t, false);
		trace_flush(t);
		trace_update_losses(t);
		if (n)
			trace_notify(t);
		poll = n ? POLL_MIN_NS : MIN(poll * 2, POLL_MAX_NS);
	}
}

void *trace_thread(void *arg)
{
	struct trace *t = arg;

	drain_until_stop(t);
	pthread_mutex_lock(&t->lock);
	t->thread_ended = true;
	pthread_cond_broadcast(&t->turned);
	pthread_cond_signal(&t->care_wake);
	pthread_mutex_unlock(&t->lock);
	return NULL;
}
