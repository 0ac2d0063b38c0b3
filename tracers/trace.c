// SPDX-License-Identifier: Apache-2.0
/* A trace: from the choice of functions to records in the store. See trace.h. */
#define LOG_PREFIX "trace"
#include "tracers/trace.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "guest-agent/agent_abi.h"
#include "tracers/trace_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FINISH_WAIT_NS (500 * NSEC_PER_MSEC)
#define TURN_WAIT_NS   (5 * NSEC_PER_SEC)

/* Indexed by is-it-graph. */
static const char *const tracers[] = { "function", "function_graph" };

int trace_check_pids(struct guest *g, const struct trace_opts *opts, struct err *err)
{
	if (opts->n_pids > AGENT_MAX_PIDS)
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0, "at most %d pids, not %zu",
			       AGENT_MAX_PIDS, opts->n_pids);
	for (size_t i = 0; i < opts->n_pids; i++) {
		char comm[TRACE_COMM_LEN + 1];
		u32 tgid;
		int rc = guest_find_task(g, opts->pids[i], comm, &tgid, err);

		if (rc)
			return rc;
	}
	return 0;
}

static int prototype(void *arg, const struct ftrace_site *site, struct kernel_func *ret)
{
	return kernel_func_then(arg, site->ip, kernel_epoch(arg), ret);
}

int trace_choose(struct trace *t, const struct trace_opts *opts, bool later, struct choice *ret,
		 struct err *err)
{
	struct kernel *k = guest_kernel(t->g);
	struct choose_input in = { .sites = { kernel_sites(k), kernel_site_count(k),
					      kernel_version(k), later },
				   .func = prototype,
				   .arg = k };

	return choose_sites(&in, opts, ret, err);
}

static int start_drain(struct trace *t, const struct trace_opts *opts, u64 threshold,
		       struct err *err)
{
	struct drain_opts d = {
		.graph = t->graph,
		.data = opts->args || opts->retval || opts->threshold_ns || t->sys || t->stacks,
		.stacks = t->stacks,
		.captures = t->sys,
		.switches = opts->switches,
		.no_sleep = opts->no_sleep_time,
		.threshold = threshold,
		.clock = trace_record_clock,
		.duration = trace_record_duration,
		.clock_arg = t,
		.record = trace_take_record,
		.record_arg = t,
	};
	int rc;

	tracing_rings(t->g, &d.header, &d.io.read, &d.io.write, &d.io.arg);
	rc = drain_create(&d, &t->drain, err);
	if (rc)
		return rc;
	if (!tracing_lost_nocpu(t->g, &t->lost_nocpu))
		return err_set(err, -ESRCH, ERR_VMM_GONE, 0, "cannot read the agent's header");
	if (t->stacks && !tracing_stack_stats(t->g, &t->stack_base))
		return err_set(err, -ESRCH, ERR_VMM_GONE, 0, "cannot read the agent's counters");
	if (t->graph && !tracing_graph_stats(t->g, &t->base))
		return err_set(err, -ESRCH, ERR_VMM_GONE, 0, "cannot read the agent's counters");
	if (trace_clock_copy(&t->clock, &t->drain_clock))
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for the guest's clock");
	return trace_start_threads(t, err);
}

/* What was forked before the agent followed. On failure nothing stays armed. */
static int follow(struct trace *t, const struct tracing_opts *to, struct err *err)
{
	struct err undo = { 0 };
	int rc = tracing_follow(t->g, to, err);

	if (rc && tracing_disarm(t->g, NULL, &undo))
		err_wrap(err, "could not be undone now, the journal keeps it (%.60s)", undo.msg);
	return rc;
}

void trace_agent_opts(const struct trace *t, const struct trace_opts *opts,
		      struct tracing_opts *ret)
{
	*ret = (struct tracing_opts){ .overwrite = opts->overwrite,
				      .graph = t->graph,
				      .pids = opts->pids,
				      .n_pids = opts->n_pids,
				      .max_depth = opts->max_depth,
				      .no_irqs = opts->no_irqs,
				      .roots = opts->n_graph,
				      .stack_depth = opts->stack_depth,
				      .switches = opts->switches || opts->no_sleep_time };
}

/* Guest lock held. */
static int start_locked(struct trace *t, const struct trace_opts *opts, struct err *err)
{
	struct tracing_opts to;
	_cleanup_(choice_deinit) struct choice c = { 0 };
	struct tracing_counts counts;
	int rc;

	trace_agent_opts(t, opts, &to);
	rc = guest_refresh(t->g, false, err);
	if (!rc)
		rc = trace_check_pids(t->g, opts, err);
	if (!rc)
		rc = t->sys ? trace_sys_choose(t, &c, &to, err)
			    : trace_choose(t, opts, false, &c, err);
	if (!rc)
		rc = trace_clock_init(guest_kernel(t->g), &t->mem, &t->clock, err);
	if (rc)
		return rc;
	to.threshold = trace_clock_ticks(&t->clock, opts->threshold_ns);
	to.sites = c.what;
	to.n_sites = c.n_what;
	trace_life_begin(t);
	rc = tracing_prepare(t->g, &to, err);
	if (!rc)
		rc = start_drain(t, opts, to.threshold, err);
	if (rc)
		return rc;
	rc = tracing_arm(t->g, c.site, c.n, &counts, err);
	if (!rc && to.follow)
		rc = follow(t, &to, err);
	if (rc)
		return rc;
	t->armed = t->tended = true;
	t->info.n_functions = counts.n_armed;
	t->info.n_skipped = c.n_skipped + counts.n_skipped;
	return 0;
}

void trace_free(struct trace *t)
{
	trace_end_threads(t);
	drain_destroy(t->drain);
	trace_clock_deinit(&t->clock);
	trace_clock_deinit(&t->drain_clock);
	trace_clock_deinit(&t->post.clock);
	free(t->post.never.call);
	trace_sys_destroy(t->sys);
	trace_life_deinit(t);
	store_destroy(t->store);
	trace_markers_destroy(t->markers);
	stacks_destroy(t->stacks);
	free(t->late.call);
	free(t->turn_late.call);
	pthread_cond_destroy(&t->wake);
	pthread_cond_destroy(&t->care_wake);
	pthread_cond_destroy(&t->turned);
	pthread_mutex_destroy(&t->lock);
	pthread_mutex_destroy(&t->control);
	free(t);
}

static bool is_syscalls(const struct trace_opts *opts)
{
	return !strcmp(opts->tracer, "syscalls");
}

/* Values that a record of this trace can have. */
static u32 words_kept(const struct trace_opts *opts)
{
	return opts->args || is_syscalls(opts) ? TRACE_MAX_ARGS : opts->retval;
}

static int trace_new(struct guest *g, const struct trace_opts *opts, struct trace **ret,
		     struct err *err)
{
	struct trace *t;
	pthread_condattr_t attr;
	int rc;

	struct trace_opts as_function = *opts;
	bool graph = !strcmp(opts->tracer, tracers[true]) || is_syscalls(opts);

	if (!graph && strcmp(opts->tracer, tracers[false]))
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0, "there is no tracer '%.40s'",
			       opts->tracer);
	rc = choose_check(opts, err);
	if (rc)
		return rc;
	as_function.tracer = tracers[false];
	t = calloc(1, sizeof(*t));
	if (!t)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a trace");
	t->g = g;
	guest_mem(g, &t->mem);
	pthread_mutex_init(&t->control, NULL);
	pthread_mutex_init(&t->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&t->wake, &attr);
	pthread_cond_init(&t->care_wake, &attr);
	pthread_cond_init(&t->turned, &attr);
	pthread_condattr_destroy(&attr);
	t->graph = t->ever_graph = graph;
	t->needs_graph = is_syscalls(opts) || choose_check(&as_function, NULL) != 0;
	t->info.tracer = is_syscalls(opts) ? "syscalls" : tracers[graph];
	t->info.started_ns = clock_ns(CLOCK_REALTIME);
	rc = store_create(opts->buffer_records, words_kept(opts), opts->n_stack, &t->store, err);
	if (!rc && opts->n_stack) {
		t->stacks = stacks_create();
		if (!t->stacks)
			rc = err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for stacks");
	}
	if (!rc)
		rc = trace_life_init(t, opts, err);
	if (!rc && is_syscalls(opts))
		rc = trace_sys_create(t, opts, err);
	if (rc) {
		trace_free(t);
		return rc;
	}
	*ret = t;
	return 0;
}

int trace_start(struct guest *g, const struct trace_opts *opts, struct trace **ret, struct err *err)
{
	struct trace *t = NULL;
	int rc;

	rc = trace_new(g, opts, &t, err);
	if (rc)
		return rc;
	guest_lock(g);
	rc = tracing_claim(g, err);
	if (!rc) {
		rc = start_locked(t, opts, err);
		if (rc)
			tracing_release(g);
	}
	guest_unlock(g);
	if (rc) {
		trace_free(t);
		return rc;
	}
	*ret = t;
	return 0;
}

/* Another trace may come. Context: no thread runs any more */
static void release_guest(struct trace *t)
{
	struct drain_losses l;

	drain_losses(t->drain, &l);
	guest_lock(t->g);
	if (l.torn || l.left || t->info.state == TRACE_FAILED)
		tracing_unsettled(t->g);
	tracing_release(t->g);
	guest_unlock(t->g);
}

/* t->control held. */
static int stop_trace(struct trace *t, struct err *err)
{
	struct guest_restore restore = { 0 };
	struct err drain_err = { 0 }, post_err = { 0 };
	bool stays, gave_up;
	int rc;

	if (!t->armed)
		return 0;
	guest_lock(t->g);
	/* a last time, while their frames still tell; that it fails tracing_disarm() will tell */
	if (t->graph)
		(void)!tracing_collect(t->g, trace_note_unreturned, &t->late, NULL);
	rc = tracing_disarm(t->g, &restore, err);
	stays = rc && err->code != ERR_VMM_GONE && err->code != ERR_GUEST_REBOOTED &&
		err->code != ERR_GUEST_RESTORED;
	t->tended &= stays; /* who looks after it next arms nothing any more */
	guest_unlock(t->g);
	if (stays)
		return rc; /* still armed, or partly: the guest stays claimed, try again */
	trace_end_threads(t);
	gave_up = trace_take_post(t, &post_err);
	trace_pass_unreturned(t, &t->turn_late);
	trace_pass_unreturned(t, &t->late);
	if (rc) /* nothing is left to disarm */
		trace_failed(t, err);
	if (t->info.state != TRACE_FAILED && gave_up)
		trace_failed(t, &post_err);
	if (t->info.state != TRACE_FAILED && drain_finish(t->drain, FINISH_WAIT_NS, &drain_err))
		trace_failed(t, &drain_err);
	trace_sys_finish(t);
	(void)trace_take_markers(t, true);
	trace_flush(t);
	trace_update_losses(t);
	trace_update_graph(t);
	release_guest(t);
	t->armed = false;
	pthread_mutex_lock(&t->lock);
	if (t->info.state == TRACE_RUNNING)
		t->info.state = TRACE_STOPPED;
	t->info.stopped_ns = clock_ns(CLOCK_REALTIME);
	t->info.restore = restore;
	pthread_mutex_unlock(&t->lock);
	trace_notify(t);
	return 0;
}

int trace_stop(struct trace *t, struct err *err)
{
	struct err stop_err = { 0 };
	int rc;

	pthread_mutex_lock(&t->control);
	rc = stop_trace(t, err ? err : &stop_err);
	pthread_mutex_unlock(&t->control);
	return rc;
}

/* The guest's part of a turn. Calls that never return are found while their frames still tell. */
static int turn_guest(struct trace *t, bool on, struct unreturned *late, struct err *err)
{
	struct tracing_graph base;
	int rc;

	guest_lock(t->g);
	rc = t->tended ? 0 : trace_refuse(err);
	if (!rc && on && !t->ever_graph) {
		if (!tracing_graph_stats(t->g, &base))
			rc = err_set(err, -ESRCH, ERR_VMM_GONE, 0,
				     "cannot read the agent's counters");
		else
			t->base = base;
	}
	if (!rc && on)
		drain_expect_graph(t->drain);
	if (!rc && !on)
		rc = tracing_collect(t->g, trace_note_unreturned, late, err);
	if (!rc)
		rc = tracing_set_graph(t->g, on, err);
	guest_unlock(t->g);
	return rc;
}

/* Ask the thread for @turn and wait until it says @want; t->lock held. false: it does not. */
static bool ask_thread(struct trace *t, enum trace_turn turn, enum trace_turn want)
{
	struct timespec until = timespec_of(monotonic_ns() + TURN_WAIT_NS);
	int rc = 0;

	t->turn = turn;
	while (t->turn != want && !t->thread_ended && !rc)
		rc = pthread_cond_timedwait(&t->turned, &t->lock, &until);
	return t->turn == want;
}

int trace_refuse(struct err *err)
{
	return err_set(err, -EBUSY, ERR_CONFLICT, 0, "the trace was stopped, or has failed");
}

static int may_turn(const struct trace *t, bool on, struct err *err)
{
	if (!t->armed || t->info.state != TRACE_RUNNING)
		return trace_refuse(err);
	if (t->needs_graph && (t->sys || !on))
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0,
			       t->sys ? "a trace of system calls stays one"
				      : "the trace has options of function_graph");
	return 0;
}

/* The thread is told before and after: the first record of the other kind may come in between. */
static int turn(struct trace *t, bool on, struct err *err)
{
	enum trace_turn begin = on ? TRACE_TURN_GRAPH : TRACE_TURN_FUNCTION;
	struct unreturned late = { 0 };
	bool taken;
	int rc;

	pthread_mutex_lock(&t->lock);
	taken = ask_thread(t, begin, TRACE_TURN_TAKEN);
	if (!taken)
		t->turn = TRACE_TURN_NONE;
	pthread_mutex_unlock(&t->lock);
	if (!taken)
		return err_set(err, -ETIMEDOUT, ERR_CONFLICT, 0,
			       "the trace's thread does not answer; the tracer was not changed");
	rc = turn_guest(t, on, &late, err);
	pthread_mutex_lock(&t->lock);
	free(t->turn_late.call);
	t->turn_late = late;
	if (!rc) {
		t->graph = on;
		t->ever_graph |= on;
		t->info.tracer = tracers[on];
	}
	if (!ask_thread(t, rc ? TRACE_TURN_FAILED : TRACE_TURN_DONE, TRACE_TURN_NONE) && !rc)
		rc = err_set(err, -ETIMEDOUT, ERR_CONFLICT, 0,
			     "the tracer was changed, but its records are not all read yet");
	pthread_mutex_unlock(&t->lock);
	return rc;
}

int trace_set_graph(struct trace *t, bool on, struct err *err)
{
	int rc;

	pthread_mutex_lock(&t->control);
	rc = may_turn(t, on, err);
	if (!rc && t->graph != on)
		rc = turn(t, on, err);
	pthread_mutex_unlock(&t->control);
	return rc;
}

void trace_destroy(struct trace *t)
{
	struct err err = { 0 };

	if (!t)
		return;
	if (trace_stop(t, &err)) {
		log_error("a trace could not be stopped, the journal keeps what is left: %s",
			  err.msg);
		trace_end_threads(t);
		/* the next trace puts back what this one could not */
		guest_lock(t->g);
		tracing_off(t->g);
		guest_unlock(t->g);
		release_guest(t);
	}
	trace_free(t);
}

void trace_get_info(struct trace *t, struct trace_info *ret)
{
	struct store_info s;

	pthread_mutex_lock(&t->lock);
	*ret = t->info;
	pthread_mutex_unlock(&t->lock);
	store_info(t->store, &s);
	ret->n_records = s.newest_seq;
	ret->oldest_seq = s.oldest_seq;
}

int trace_read(struct trace *t, u64 after, struct trace_page *page, struct err *err)
{
	int rc = store_read(t->store, after, page, err);

	trace_fill_markers(t, page);
	return rc;
}

void trace_set_notify(struct trace *t, void (*fn)(void *arg), void *arg)
{
	pthread_mutex_lock(&t->lock);
	t->notify = fn;
	t->notify_arg = arg;
	pthread_mutex_unlock(&t->lock);
}

const char *trace_enumerator(struct trace *t, const struct kernel_val *v, s64 val)
{
	return t->sys ? NULL : kernel_val_enumerator(v, val);
}

struct guest *trace_guest(struct trace *t)
{
	return t->g;
}
