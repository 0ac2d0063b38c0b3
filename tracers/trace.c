// SPDX-License-Identifier: Apache-2.0
/* A trace: from the choice of functions to records in the store. See trace.h. */
#define LOG_PREFIX "trace"
#include "tracers/trace.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "guest-agent/agent_abi.h"
#include "patcher/tracing.h"
#include "tracers/clock.h"
#include "tracers/drain.h"
#include "tracers/filter.h"
#include "tracers/store.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCH          256u
#define POLL_MIN_NS    500000ull
#define POLL_MAX_NS    (10 * NSEC_PER_MSEC)
#define LOOK_AGAIN_NS  (2 * NSEC_PER_SEC)
#define FINISH_WAIT_NS (500 * NSEC_PER_MSEC)
#define COLLECT_NS     (100 * NSEC_PER_MSEC)

/* Indexed by is-it-graph. */
static const char *const tracers[] = { "function", "function_graph" };

/* Calls that will never return, as the patcher found them. */
struct unreturned {
	struct tracing_unreturned *call;
	size_t n, cap;
};

struct trace {
	struct guest *g;
	struct sym_mem mem;
	struct trace_clock clock;
	struct drain *drain;
	struct store *store;
	struct trace_record batch[BATCH];
	size_t n_batch;
	pthread_t thread;
	bool thread_runs;
	bool armed;
	bool graph;
	u64 lost_nocpu; /* when we began */
	struct tracing_graph base; /* when we began */
	struct unreturned late; /* found by trace_stop() */

	pthread_mutex_t lock; /* all below */
	pthread_cond_t wake;
	bool stop;
	struct trace_info info;
	void (*notify)(void *arg);
	void *notify_arg;
};

static void notify(struct trace *t)
{
	pthread_mutex_lock(&t->lock);
	if (t->notify)
		t->notify(t->notify_arg);
	pthread_mutex_unlock(&t->lock);
}

static void flush_batch(struct trace *t)
{
	if (t->n_batch)
		store_append(t->store, t->batch, t->n_batch);
	t->n_batch = 0;
}

static void take_record(void *arg, const struct trace_record *r)
{
	struct trace *t = arg;

	t->batch[t->n_batch++] = *r;
	if (t->n_batch == BATCH)
		flush_batch(t);
}

static u64 record_clock(void *arg, u32 cpu, u64 tsc48)
{
	struct trace *t = arg;

	return trace_clock_record_ns(&t->clock, cpu, tsc48);
}

static u64 record_duration(void *arg, u64 ticks)
{
	struct trace *t = arg;

	return trace_clock_duration_ns(&t->clock, ticks);
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

static void update_graph(struct trace *t)
{
	struct trace_info *i = &t->info;
	struct tracing_graph now = t->base;
	struct drain_counts c;

	if (!t->graph)
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
	pthread_mutex_unlock(&t->lock);
}

static void update_losses(struct trace *t)
{
	struct drain_losses l;
	u64 nocpu = t->lost_nocpu;

	drain_losses(t->drain, &l);
	/* the guest's number: it may say anything, but not go back */
	if (!tracing_lost_nocpu(t->g, &nocpu) || nocpu < t->lost_nocpu)
		nocpu = t->lost_nocpu;
	pthread_mutex_lock(&t->lock);
	t->info.lost_ring = l.refused + l.overwritten + l.left + nocpu - t->lost_nocpu;
	t->info.lost_torn = l.torn;
	t->info.n_lost = t->info.lost_ring + t->info.lost_torn;
	pthread_mutex_unlock(&t->lock);
}

static void note_unreturned(void *arg, const struct tracing_unreturned *call)
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

/* Context: the drain thread, or nobody else drains. */
static void pass_unreturned(struct trace *t, struct unreturned *u)
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

/* Frames of calls that will never return go back to the guest, and the calls into the stream. */
static int collect(struct trace *t, u64 now, u64 *last, struct err *err)
{
	struct unreturned u = { 0 };
	int rc;

	if (!t->graph || now - *last < COLLECT_NS)
		return 0;
	*last = now;
	guest_lock(t->g);
	rc = tracing_collect(t->g, note_unreturned, &u, err);
	guest_unlock(t->g);
	pass_unreturned(t, &u);
	update_graph(t); /* here, since it looks at every CPU's counters in the guest */
	return rc;
}

static void failed(struct trace *t, const struct err *err)
{
	log_error("%s", err->msg);
	pthread_mutex_lock(&t->lock);
	t->info.state = TRACE_FAILED;
	t->info.error = *err;
	pthread_mutex_unlock(&t->lock);
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

/* Every few seconds: is it still the kernel that we know, and does its clock still run as we think? */
static int look_again(struct trace *t, u64 now, u64 *last, struct err *err)
{
	struct err clock_err = { 0 };
	int rc;

	if (now - *last < LOOK_AGAIN_NS)
		return 0;
	*last = now;
	guest_lock(t->g);
	rc = guest_check_alive(t->g, err);
	if (!rc && trace_clock_refresh(guest_kernel(t->g), &t->mem, &t->clock, &clock_err))
		log_warn("the guest's clock could not be read again: %s", clock_err.msg);
	guest_unlock(t->g);
	return rc;
}

/* Rings that make no sense, or cannot be read, are most often those of a guest that was rebooted. */
static void drain_failed(struct trace *t, struct err *err)
{
	struct err why = { 0 };

	guest_lock(t->g);
	if (guest_check_alive(t->g, &why) && why.code != ERR_NONE)
		*err = why;
	tracing_off(t->g); /* nobody reads any more; the sites are put back when it is stopped */
	guest_unlock(t->g);
	flush_batch(t);
	failed(t, err);
	notify(t);
}

static void *drain_thread(void *arg)
{
	struct trace *t = arg;
	u64 poll = POLL_MIN_NS, looked = clock_ns(CLOCK_MONOTONIC), collected = looked;
	struct err err = { 0 };
	bool more = false;
	size_t n;

	while (pause_for(t, more ? 0 : poll)) {
		u64 now = clock_ns(CLOCK_MONOTONIC);

		if (drain_round(t->drain, now, &n, &more, &err) ||
		    collect(t, now, &collected, &err) || look_again(t, now, &looked, &err)) {
			drain_failed(t, &err);
			return NULL;
		}
		flush_batch(t);
		update_losses(t);
		if (n)
			notify(t);
		poll = n ? POLL_MIN_NS : MIN(poll * 2, POLL_MAX_NS);
	}
	return NULL;
}

static int check_pids(struct guest *g, const struct trace_opts *opts, struct err *err)
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

/* Which call sites. Guest lock held. */
static int choose(struct trace *t, const struct trace_opts *opts, u32 **site_ret, size_t *n_ret,
		  struct err *err)
{
	struct kernel *k = guest_kernel(t->g);
	struct filter_input in = { kernel_sites(k), kernel_site_count(k), kernel_version(k) };
	_cleanup_free_ u64 *on = calloc(FILTER_BITMAP_WORDS(in.n) + 1, sizeof(*on));
	_cleanup_free_ u32 *site = calloc(in.n + 1, sizeof(*site));
	struct filter_counts counts;
	size_t n = 0;
	int rc;

	if (!on || !site)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for %zu functions", in.n);
	rc = filter_select(&in, opts, on, &counts, err);
	if (rc)
		return rc;
	for (u32 i = 0; i < in.n; i++) {
		if (filter_bit(on, i))
			site[n++] = i;
	}
	t->info.n_skipped = counts.n_in_use + counts.n_disabled + counts.n_denied;
	*site_ret = no_cleanup_ptr(site);
	*n_ret = n;
	return 0;
}

static int start_drain(struct trace *t, struct err *err)
{
	struct drain_opts d = {
		.graph = t->graph,
		.clock = record_clock,
		.duration = record_duration,
		.clock_arg = t,
		.record = take_record,
		.record_arg = t,
	};
	int rc;

	tracing_rings(t->g, &d.header, &d.io.read, &d.io.write, &d.io.arg);
	rc = drain_create(&d, &t->drain, err);
	if (rc)
		return rc;
	if (!tracing_lost_nocpu(t->g, &t->lost_nocpu))
		return err_set(err, -ESRCH, ERR_VMM_GONE, 0, "cannot read the agent's header");
	if (t->graph && !tracing_graph_stats(t->g, &t->base))
		return err_set(err, -ESRCH, ERR_VMM_GONE, 0, "cannot read the agent's counters");
	if (pthread_create(&t->thread, NULL, drain_thread, t))
		return err_set(err, -EAGAIN, ERR_NO_MEMORY, 0,
			       "cannot start a thread to drain rings");
	t->thread_runs = true;
	return 0;
}

/* Guest lock held. */
static int start_locked(struct trace *t, const struct trace_opts *opts, struct err *err)
{
	struct tracing_opts to = { .overwrite = opts->overwrite,
				   .graph = t->graph,
				   .pids = opts->pids,
				   .n_pids = opts->n_pids };
	_cleanup_free_ u32 *site = NULL;
	struct tracing_counts counts;
	size_t n = 0;
	int rc;

	rc = check_pids(t->g, opts, err);
	if (!rc)
		rc = choose(t, opts, &site, &n, err);
	if (!rc)
		rc = trace_clock_init(guest_kernel(t->g), &t->mem, &t->clock, err);
	if (!rc)
		rc = tracing_prepare(t->g, &to, err);
	if (!rc)
		rc = start_drain(t, err);
	if (!rc)
		rc = tracing_arm(t->g, site, n, &counts, err);
	if (rc)
		return rc;
	t->armed = true;
	t->info.n_functions = counts.n_armed;
	t->info.n_skipped += counts.n_skipped;
	return 0;
}

static void end_thread(struct trace *t)
{
	if (!t->thread_runs)
		return;
	pthread_mutex_lock(&t->lock);
	t->stop = true;
	pthread_cond_signal(&t->wake);
	pthread_mutex_unlock(&t->lock);
	pthread_join(t->thread, NULL);
	t->thread_runs = false;
}

static void trace_free(struct trace *t)
{
	end_thread(t);
	drain_destroy(t->drain);
	trace_clock_deinit(&t->clock);
	store_destroy(t->store);
	free(t->late.call);
	pthread_cond_destroy(&t->wake);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

/* Values that a record of this trace can have. */
static u32 words_kept(const struct trace_opts *opts)
{
	return opts->args ? TRACE_MAX_ARGS : opts->retval;
}

static int trace_new(struct guest *g, const struct trace_opts *opts, struct trace **ret,
		     struct err *err)
{
	struct trace *t;
	pthread_condattr_t attr;
	int rc;

	bool graph = !strcmp(opts->tracer, tracers[true]);

	if (!graph && strcmp(opts->tracer, tracers[false]))
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0, "there is no tracer '%.40s'",
			       opts->tracer);
	t = calloc(1, sizeof(*t));
	if (!t)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a trace");
	t->g = g;
	guest_mem(g, &t->mem);
	pthread_mutex_init(&t->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&t->wake, &attr);
	pthread_condattr_destroy(&attr);
	t->graph = graph;
	t->info.tracer = tracers[graph];
	t->info.started_ns = clock_ns(CLOCK_REALTIME);
	rc = store_create(opts->buffer_records, words_kept(opts), &t->store, err);
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

int trace_stop(struct trace *t, struct err *err_ret)
{
	struct guest_restore restore = { 0 };
	struct err stop_err = { 0 }, *err = err_ret ? err_ret : &stop_err;
	struct err drain_err = { 0 };
	int rc;

	if (!t->armed)
		return 0;
	guest_lock(t->g);
	/* a last time, while their frames still tell; that it fails tracing_disarm() will tell */
	if (t->graph)
		(void)!tracing_collect(t->g, note_unreturned, &t->late, NULL);
	rc = tracing_disarm(t->g, &restore, err);
	guest_unlock(t->g);
	if (rc && err->code != ERR_VMM_GONE && err->code != ERR_GUEST_REBOOTED)
		return rc; /* still armed, or partly: the guest stays claimed, try again */
	end_thread(t);
	pass_unreturned(t, &t->late);
	if (rc) /* nothing is left to disarm */
		failed(t, err);
	if (t->info.state != TRACE_FAILED && drain_finish(t->drain, FINISH_WAIT_NS, &drain_err))
		failed(t, &drain_err);
	flush_batch(t);
	update_losses(t);
	update_graph(t);
	guest_lock(t->g);
	tracing_release(t->g);
	guest_unlock(t->g);
	t->armed = false;
	pthread_mutex_lock(&t->lock);
	if (t->info.state == TRACE_RUNNING)
		t->info.state = TRACE_STOPPED;
	t->info.stopped_ns = clock_ns(CLOCK_REALTIME);
	t->info.restore = restore;
	pthread_mutex_unlock(&t->lock);
	notify(t);
	return 0;
}

void trace_destroy(struct trace *t)
{
	struct err err = { 0 };

	if (!t)
		return;
	if (trace_stop(t, &err)) {
		log_error("a trace could not be stopped, the journal keeps what is left: %s",
			  err.msg);
		end_thread(t);
		/* the next trace puts back what this one could not */
		guest_lock(t->g);
		tracing_off(t->g);
		tracing_release(t->g);
		guest_unlock(t->g);
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
	return store_read(t->store, after, page, err);
}

void trace_set_notify(struct trace *t, void (*fn)(void *arg), void *arg)
{
	pthread_mutex_lock(&t->lock);
	t->notify = fn;
	t->notify_arg = arg;
	pthread_mutex_unlock(&t->lock);
}

bool trace_sym(struct trace *t, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	if (!kernel_sym_at(guest_kernel(t->g), addr, ret))
		return false;
	*off_ret = addr - ret->addr;
	return true;
}

struct guest *trace_guest(struct trace *t)
{
	return t->g;
}
