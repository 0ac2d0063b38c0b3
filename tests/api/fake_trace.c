// SPDX-License-Identifier: Apache-2.0
/*
 * Tracing without a guest, behind the contract of tracers/trace.h. Records come at a steady rate from
 * a thread; their numbers follow from seq alone. The guest's kind says what happens:
 *
 *   fake         1000 records a second
 *   fake-fast    as many as a million a second
 *   fake-quiet   none
 *   fake-one     one, and then none
 *   fake-frames  as fake; the first call of function_graph could not be followed
 *   fake-lossy   as fake; each 100th record is lost in the guest and counted, each 200th one's capture
 *                on the host; two functions are unheeded, forks and switches were missed
 *   fake-renames the first 40 records are of functions of a module that was unloaded since
 *   fake-reads   each reading of records takes 20 ms
 *   fake-dies    after 200 records its VMM is gone
 *   fake-stop    the first attempt to stop fails, journal.failed
 *   fake-mute    as fake-fast; of system calls there are captures alone, of which nothing can be told
 *   fake-forgets as fake; three system calls were forgotten
 *   fake-slow    starting waits for the file that HVFTRACE_FAKE_GATE names
 *
 * The tracer function_graph makes calls in groups of six records: a call with one callee, both with
 * their returns, then a call that never returns. The tracer syscalls makes calls of openat(), of four
 * records each.
 *
 * Options show in the log, "engine: ...", as they were understood; args are two words, retval is -2.
 * Those of function_graph are refused for the tracer function.
 *
 * A filter "err:CODE" makes starting fail with this code; "pids": [99999] with filter.no_such_pid.
 */
#include "tracers/filter.h"
#include "tracers/trace.h"

#include "fake_trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEFAULT_BUFFER 65536
#define BOOT_NS        5000000000ull
#define RENAMED_AFTER  40

static u64 now_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (u64)ts.tv_sec * NSEC_PER_SEC + (u64)ts.tv_nsec;
}

static void record_at(const struct trace *t, u64 seq, struct trace_record *r)
{
	const struct kernel *k = &t->guest->kernel;

	*r = (struct trace_record){
		.seq = seq,
		.ts_ns = BOOT_NS + seq * 1000,
		.ip = k->sites[t->armed[seq % t->info.n_functions]].ip,
		.parent = k->sites[0].ip + 16,
		.pid = 100 + (u32)(seq % 3),
		.tgid = 100,
		.cpu = (u16)(seq % 2),
		.type = TRACE_FUNCTION,
	};
	snprintf(r->comm, sizeof(r->comm), "%s",
		 seq % 3 ? "sh"
			 : "b\xff\x1b"
			   "d");
}

static void add_args(struct trace_record *r)
{
	r->n_args = 2;
	r->args[0] = 0xffff888100bd2a00;
	r->args[1] = r->seq;
}

static void count_calls(struct trace *t)
{
	struct trace_info *i = &t->info;

	i->n_entries = i->n_returns = i->n_never = 0;
	for (size_t k = 0; k < t->n_turns; k++) {
		u64 end = k + 1 < t->n_turns ? t->turns[k + 1].from : i->n_records + 1;
		u64 of = end - t->turns[k].from - !!k, left = of % 6, n = of / 6;

		if (!t->turns[k].graph)
			continue;
		i->n_entries += 3 * n + MIN(left, 2) + (left == 5);
		i->n_returns += 2 * n + (left > 2) + (left > 3);
		i->n_never += n;
	}
	i->n_inside = i->n_entries - i->n_returns - i->n_never;
	i->lost_frames = fake_is(t->guest, "fake-frames");
}

static void tell(struct trace *t)
{
	pthread_mutex_lock(&t->notify_lock);
	if (t->notify)
		t->notify(t->notify_arg);
	pthread_mutex_unlock(&t->notify_lock);
}

/* A millisecond's worth of records. The lock is held. */
static void produce(struct trace *t)
{
	struct trace_info *i = &t->info;

	if (i->n_records && fake_is(t->guest, "fake-one"))
		return;
	i->n_records += t->per_tick;
	if (t->lost_every)
		i->lost_ring = i->n_records / t->lost_every;
	i->lost_captures = i->lost_ring / 2;
	i->n_unheeded = t->lost_every ? 2 : 0;
	i->missed_forks = i->missed_switches = t->lost_every;
	i->n_lost = i->lost_ring + i->lost_torn;
	count_calls(t);
	if (i->n_records > t->kept)
		i->oldest_seq = i->n_records - t->kept + 1;
	else if (i->n_records)
		i->oldest_seq = 1;
	if (t->dies_at && i->n_records >= t->dies_at) {
		i->state = TRACE_FAILED;
		i->stopped_ns = now_ns(CLOCK_REALTIME);
		err_set(&i->error, -ESRCH, ERR_VMM_GONE, 0, "the VMM's process ended");
		t->ending = true;
	}
}

static void *drain(void *arg)
{
	struct trace *t = arg;
	struct timespec until;
	u64 at;

	pthread_mutex_lock(&t->lock);
	while (!t->ending) {
		at = now_ns(CLOCK_MONOTONIC) + NSEC_PER_MSEC;
		until.tv_sec = (time_t)(at / NSEC_PER_SEC);
		until.tv_nsec = (long)(at % NSEC_PER_SEC);
		pthread_cond_timedwait(&t->end, &t->lock, &until);
		if (t->ending || !t->per_tick || t->info.paused)
			continue;
		produce(t);
		pthread_mutex_unlock(&t->lock);
		tell(t);
		pthread_mutex_lock(&t->lock);
	}
	pthread_mutex_unlock(&t->lock);
	tell(t);
	return NULL;
}

static bool any_match(const char *const *globs, size_t n, const struct ftrace_site *s)
{
	for (size_t i = 0; i < n; i++) {
		if (filter_match(globs[i], s->name, s->module))
			return true;
	}
	return false;
}

static void turn(struct trace *t, bool graph)
{
	t->turns[t->n_turns].from = t->info.n_records + 1;
	t->turns[t->n_turns++].graph = graph;
	if (t->n_turns > 1 && !t->info.n_records++)
		t->info.oldest_seq = 1;
	t->info.tracer = graph ? "function_graph" : "function";
}

int trace_set_graph(struct trace *t, bool on, struct err *err)
{
	int r = 0;

	pthread_mutex_lock(&t->lock);
	if (t->info.state != TRACE_RUNNING)
		r = err_set(err, -EBUSY, ERR_CONFLICT, 0, "the trace is not running");
	else if (t->calls)
		r = err_set(err, -EINVAL, ERR_BAD_REQUEST, 0, "a trace of system calls stays one");
	else if (!on && t->needs_graph)
		r = err_set(err, -EINVAL, ERR_BAD_REQUEST, 0, "%s is for the tracer function_graph",
			    t->needs_graph);
	else if (t->n_turns == FAKE_TURNS)
		r = err_set(err, -ENOSPC, ERR_NO_MEMORY, 0, "switched too often for a fake");
	else if (t->turns[t->n_turns - 1].graph != on)
		turn(t, on);
	pthread_mutex_unlock(&t->lock);
	return r;
}

void fake_choose(struct trace *t, const struct trace_opts *o)
{
	const struct kernel *k = &t->guest->kernel;

	t->info.n_functions = t->info.n_skipped = 0;
	for (size_t i = 0; i < FAKE_FUNCTIONS; i++) {
		const struct ftrace_site *s = &k->sites[i];

		if (o->n_filter && !any_match(o->filter, o->n_filter, s))
			continue;
		if (any_match(o->notrace, o->n_notrace, s))
			continue;
		if (s->state == SITE_OK)
			t->armed[t->info.n_functions++] = i;
		else
			t->info.n_skipped++;
	}
}

/* The first option that the tracer function has no use for; NULL when there is none. */
static const char *graph_option(const struct trace_opts *o)
{
	const struct {
		bool given;
		const char *name;
	} options[] = {
		{ o->n_graph, "graph" },
		{ o->n_graph_notrace, "graph_notrace" },
		{ o->max_depth, "max_graph_depth" },
		{ o->threshold_ns, "threshold_ns" },
		{ o->no_irqs, "irqs" },
		{ o->no_sleep_time, "sleep_time" },
		{ o->retval, "retval" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		if (options[i].given)
			return options[i].name;
	}
	return NULL;
}

static void log_globs(const char *key, const char *const *globs, size_t n)
{
	for (size_t i = 0; i < n && i < 8; i++)
		fprintf(stderr, " %s:%s", key, globs[i]);
	fprintf(stderr, " n_%s:%zu", key, n);
}

static void log_options(const struct trace_opts *o)
{
	flockfile(stderr);
	fprintf(stderr, "engine: %s", o->tracer);
	log_globs("filter", o->filter, o->n_filter);
	log_globs("notrace", o->notrace, o->n_notrace);
	log_globs("graph", o->graph, o->n_graph);
	log_globs("graph_notrace", o->graph_notrace, o->n_graph_notrace);
	if (o->n_stack) {
		log_globs("stack", o->stack, o->n_stack);
		fprintf(stderr, " stack_depth:%u", o->stack_depth);
	}
	fprintf(stderr,
		" max_depth:%u threshold_ns:%llu no_irqs:%d no_sleep_time:%d retval:%d args:%d switches:%d\n",
		o->max_depth, (unsigned long long)o->threshold_ns, o->no_irqs, o->no_sleep_time,
		o->retval, o->args, o->switches);
	funlockfile(stderr);
}

static int refuse(struct trace *t, const struct trace_opts *o, struct err *err)
{
	enum err_code code;

	if (!t->turns[0].graph && t->needs_graph)
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0,
			       "%s is for the tracer function_graph", t->needs_graph);
	for (size_t i = 0; i < o->n_filter; i++) {
		if (strncmp(o->filter[i], "err:", 4) != 0)
			continue;
		code = fake_code(o->filter[i] + 4);
		if (code != ERR_CODE_MAX)
			return err_set(err, -EIO, code, 0, "asked to fail with %s",
				       err_code_name(code));
	}
	for (size_t i = 0; i < o->n_pids; i++) {
		if (o->pids[i] == 99999)
			return err_set(err, -ESRCH, ERR_FILTER_PID, 0,
				       "the guest has no task 99999");
	}
	if (!t->info.n_functions)
		return err_set(err, -ENOENT, ERR_FILTER_EMPTY, 0, "no function matches \"%.60s\"",
			       o->n_filter ? o->filter[0] : "");
	if (t->guest->has_trace)
		return err_set(err, -EBUSY, ERR_TRACE_LIMIT, 0, "the guest has a trace already");
	return 0;
}

static void set_rate(struct trace *t)
{
	const struct guest *g = t->guest;

	t->per_tick = fake_is(g, "fake-quiet") ? 0 : 1;
	if (fake_is(g, "fake-fast") || fake_is(g, "fake-reads") || fake_is(g, "fake-mute"))
		t->per_tick = 1000;
	t->lost_every = fake_is(g, "fake-lossy") ? 100 : 0;
	t->dies_at = fake_is(g, "fake-dies") ? 200 : 0;
}

int trace_start(struct guest *g, const struct trace_opts *opts, struct trace **ret, struct err *err)
{
	struct trace *t = calloc(1, sizeof(*t));
	pthread_condattr_t attr;
	int r;

	if (!t)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory");
	if (fake_is(g, "fake-slow"))
		fake_gate();
	t->guest = g;
	turn(t, strcmp(opts->tracer, "function_graph") == 0);
	t->calls = strcmp(opts->tracer, "syscalls") == 0;
	if (t->calls) {
		t->info.tracer = "syscalls";
		t->info.n_calls = 12;
		t->info.n_forgotten = fake_is(g, "fake-forgets") ? 3 : 0;
	}
	t->kept = opts->buffer_records ? opts->buffer_records : DEFAULT_BUFFER;
	t->needs_graph = graph_option(opts);
	t->args = opts->args;
	t->retval = opts->retval;
	log_options(opts);
	fake_choose(t, opts);
	set_rate(t);
	guest_lock(g);
	r = refuse(t, opts, err);
	if (r == 0) {
		g->has_trace = g->agent_loaded = true;
		g->n_armed = t->info.n_functions;
		g->windows =
			(struct vm_windows){ .count = g->windows.count + 1,
					     .last_ns = 2500000,
					     .max_ns = 3000000,
					     .total_ns = g->windows.total_ns + 2500000,
					     .write_max_ns = 200000,
					     .write_total_ns = g->windows.write_total_ns + 200000 };
	}
	guest_unlock(g);
	if (r < 0) {
		free(t);
		return r;
	}
	pthread_mutex_init(&t->lock, NULL);
	pthread_mutex_init(&t->notify_lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&t->end, &attr);
	pthread_condattr_destroy(&attr);
	t->info.started_ns = now_ns(CLOCK_REALTIME);
	if (pthread_create(&t->thread, NULL, drain, t)) {
		free(t);
		return err_set(err, -EAGAIN, ERR_NO_MEMORY, 0, "no thread");
	}
	*ret = t;
	return 0;
}

int trace_stop(struct trace *t, struct err *err)
{
	struct guest *g = t->guest;
	bool fails;

	if (t->is_snapshot)
		return 0;
	guest_lock(g);
	fails = fake_is(g, "fake-stop") && g->n_stops++ == 0;
	guest_unlock(g);
	if (fails)
		return err_set(err, -EIO, ERR_JOURNAL, 0, "the journal cannot be written");
	pthread_mutex_lock(&t->lock);
	t->ending = true;
	pthread_cond_signal(&t->end);
	pthread_mutex_unlock(&t->lock);
	if (t->joined) /* another may have begun since */
		return 0;
	pthread_join(t->thread, NULL);
	t->joined = true;
	pthread_mutex_lock(&t->lock);
	if (t->info.state == TRACE_RUNNING) {
		t->info.state = TRACE_STOPPED;
		t->info.stopped_ns = now_ns(CLOCK_REALTIME);
		t->info.restore = (struct guest_restore){ .sites_restored = t->info.n_functions,
							  .verified = true };
	}
	pthread_mutex_unlock(&t->lock);
	guest_lock(g);
	g->n_armed = 0;
	g->has_trace = false;
	guest_unlock(g);
	tell(t);
	if (t->info.state == TRACE_FAILED) {
		if (err)
			*err = t->info.error;
		return -ESRCH;
	}
	return 0;
}

void trace_destroy(struct trace *t)
{
	struct err err;

	if (!t->joined)
		(void)!trace_stop(t, &err);
	for (size_t i = 0; i < t->n_markers; i++)
		free(t->markers[i].text);
	pthread_cond_destroy(&t->end);
	pthread_mutex_destroy(&t->notify_lock);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

void trace_get_info(struct trace *t, struct trace_info *ret)
{
	pthread_mutex_lock(&t->lock);
	*ret = t->info;
	pthread_mutex_unlock(&t->lock);
}

/* Which turn a record belongs to. */
static size_t turn_of(struct trace *t, u64 seq)
{
	size_t k;

	pthread_mutex_lock(&t->lock);
	for (k = t->n_turns - 1; k && t->turns[k].from > seq; k--)
		;
	pthread_mutex_unlock(&t->lock);
	return k;
}

int trace_read(struct trace *t, u64 after, struct trace_page *page, struct err *err)
{
	u64 newest, oldest, seq;
	const char *mark;

	page->n = 0;
	if (fake_is(t->guest, "fake-reads"))
		nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	pthread_mutex_lock(&t->lock);
	newest = t->info.n_records;
	oldest = t->info.oldest_seq;
	pthread_mutex_unlock(&t->lock);
	page->oldest_seq = oldest;
	if (after && after + 1 < oldest)
		return err_set(err, -ESTALE, ERR_CURSOR_GONE, 0,
			       "record %llu was overwritten; the oldest is %llu",
			       (unsigned long long)after + 1, (unsigned long long)oldest);
	for (seq = after ? after + 1 : MAX(oldest, 1); seq <= newest && page->n < page->max; seq++)
		record_at(t, seq, &page->buf[page->n++]);
	for (size_t i = 0; i < page->n; i++) {
		size_t k = turn_of(t, page->buf[i].seq);
		u64 nth = page->buf[i].seq - t->turns[k].from;

		if (t->calls)
			fake_call_part(fake_is(t->guest, "fake-mute") ? 1 : page->buf[i].seq - 1,
				       &page->buf[i]);
		else if (k && !nth)
			page->buf[i] = (struct trace_record){ .seq = page->buf[i].seq,
							      .ts_ns = page->buf[i].ts_ns,
							      .type = TRACE_TRACER,
							      .depth = t->turns[k].graph };
		else if (t->turns[k].graph)
			fake_graph_part(t, nth - !!k, &page->buf[i]);
		pthread_mutex_lock(&t->lock);
		mark = fake_mark_of(t, page->buf[i].seq);
		pthread_mutex_unlock(&t->lock);
		if (mark)
			page->buf[i] = (struct trace_record){ .seq = page->buf[i].seq,
							      .ts_ns = page->buf[i].ts_ns,
							      .type = TRACE_MARKER,
							      .text = mark };
		if (t->args && page->buf[i].ip && page->buf[i].type <= TRACE_GRAPH_ENTRY)
			add_args(&page->buf[i]);
	}
	return 0;
}

void trace_set_notify(struct trace *t, void (*fn)(void *arg), void *arg)
{
	pthread_mutex_lock(&t->notify_lock);
	t->notify = fn;
	t->notify_arg = arg;
	pthread_mutex_unlock(&t->notify_lock);
}

const char *trace_enumerator(struct trace *t, const struct kernel_val *v, s64 val)
{
	(void)t;
	(void)v;
	(void)val;
	return NULL;
}

bool trace_sym(struct trace *t, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	const struct kernel *k = &t->guest->kernel;
	u64 i = (addr - (k->sites[0].ip - 4)) / 64;

	*off_ret = 0;
	if (t->calls && fake_call_sym(addr, ret))
		return true;
	if (addr < k->sites[0].ip - 4 || i >= FAKE_FUNCTIONS)
		return false;
	*ret = (struct kernel_sym){ .name = k->sites[i].name,
				    .module = k->sites[i].module,
				    .addr = k->sites[i].ip - 4,
				    .size_bytes = 64,
				    .type = 't' };
	*off_ret = addr - ret->addr;
	return true;
}

/* All functions are int f(struct file *file, size_t count); but those of the module have no prototype. */
bool trace_sym_then(struct trace *t, u64 seq, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	if (!trace_sym(t, addr, ret, off_ret))
		return false;
	if (!trace_names_when(t, seq)) {
		ret->name = "gone_function";
		ret->module = "gone";
	}
	return true;
}

u64 trace_names_when(struct trace *t, u64 seq)
{
	return !fake_is(t->guest, "fake-renames") || seq > RENAMED_AFTER;
}

void trace_names_lock(struct trace *t)
{
	(void)t;
}

void trace_names_unlock(struct trace *t)
{
	(void)t;
}

bool trace_func_then(struct trace *t, u64 seq, u64 ip, struct kernel_func *ret)
{
	(void)seq;
	return trace_func(t, ip, ret);
}

bool trace_func(struct trace *t, u64 ip, struct kernel_func *ret)
{
	struct kernel_sym sym;
	u64 off;

	if (!trace_sym(t, ip, &sym, &off) || sym.module)
		return false;
	*ret = (struct kernel_func){
		.ret = { .type = "int", .size = 4, .kind = KERNEL_VAL_SIGNED },
		.n_params = 2,
		.n_regs = 2,
		.params = { { .name = "file",
			      .type = "file",
			      .size = 8,
			      .kind = KERNEL_VAL_POINTER },
			    { .name = "count",
			      .type = "size_t",
			      .size = 8,
			      .reg = 1,
			      .kind = KERNEL_VAL_UNSIGNED } },
	};
	return true;
}

struct guest *trace_guest(struct trace *t)
{
	return t->guest;
}
