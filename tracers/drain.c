// SPDX-License-Identifier: Apache-2.0
/* Rings into one ordered stream. See drain.h. */
#include "tracers/drain.h"

#include "base/clock.h"
#include "tracers/calls.h"
#include "tracers/comms.h"
#include "tracers/drain_priv.h"
#include "tracers/sleeps.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define QUEUE_TOTAL  65536u /* records held over all CPUs, 8 MiB */
#define QUEUE_MIN    512u
#define QUEUE_MAX    16384u
#define POLL_NS      (2 * NSEC_PER_MSEC)
#define HARD_NS      (5 * NSEC_PER_SEC)
#define NEVER_ROUNDS 2 /* after which every entry made before is handed on */

enum turn {
	TURN_NONE,
	TURN_TO_GRAPH,
	TURN_TO_FUNCTION,
};

/* A call that will never return. */
struct never {
	u64 ip, parent, tsc;
	u64 round; /* in which it was told */
	u32 pid;
};

struct drain {
	struct drain_opts opts;
	u32 n_cpus;
	size_t cap; /* of each queue */
	struct queue *queue;
	struct heap heap;
	u64 newest; /* latest TSC taken so far, if @any was */
	bool any;
	bool begun; /* there is a watermark */
	u64 watermark; /* latest TSC taken up to the round before: all up to it is here */
	u64 left; /* in the rings when we stopped reading */
	struct comms *comms; /* pid -> comm, for tasks named on another CPU */
	struct calls *calls;
	u64 lost; /* records, of which calls knows */
	bool switches_lost; /* not told yet to those who must know */
	bool doubt; /* some ring was not read up to its @doubt */
	u64 last_ns; /* of the latest record handed on */
	u64 round;
	struct never *never; /* told but not handed on; the oldest first */
	size_t n_never, never_cap;
	u64 never_handed_on;
	u64 too_short; /* returns below the threshold without their sleep */
	struct sleeps *sleeps; /* NULL: durations are as they are */
	atomic_bool graph;
	enum turn turn;
	bool turn_told, turn_done;
	u64 turn_round;
};

static void take_comm(struct drain *d, struct queue *q, const struct ring_record *r)
{
	q->comm_pid = r->pid;
	q->comm_tgid = r->tgid;
	memcpy(q->comm, r->comm, RING_COMM_LEN);
	q->comm[RING_COMM_LEN] = 0;
	comms_set(d->comms, r->pid, r->tgid, q->comm);
}

static void name_task(const struct drain *d, const struct queue *q, struct trace_record *t)
{
	if (!t->pid) {
		memcpy(t->comm, "<idle>", 7); /* as ftrace has it, on every CPU */
	} else if (t->pid == q->comm_pid && q->comm[0]) {
		memcpy(t->comm, q->comm, sizeof(t->comm));
		t->tgid = q->comm_tgid;
	} else if (!comms_get(d->comms, t->pid, &t->tgid, t->comm)) {
		memcpy(t->comm, "<...>", 6);
	}
}

static void tell_turn(struct drain *d)
{
	struct trace_record t = { .ts_ns = d->last_ns,
				  .type = TRACE_TRACER,
				  .depth = d->turn == TURN_TO_GRAPH,
				  .comm = "<...>" };

	d->turn_told = true;
	d->opts.record(d->opts.record_arg, &t);
}

static bool is_call(const struct ring_record *r)
{
	return r->type == RING_GRAPH_ENTRY || r->type == RING_GRAPH_RETURN;
}

/* What @r says besides the function; false: it is not handed on. */
static bool measure(struct drain *d, u32 cpu, const struct ring_record *r, struct trace_record *t)
{
	const struct sleeper who = { cpu, r->pid };
	u64 asleep = d->sleeps ? sleeps_total(d->sleeps, who) : 0, mark = asleep, ticks = r->ticks,
	    slept;

	if (d->sleeps && r->type == RING_GRAPH_RETURN)
		mark = sleeps_at(d->sleeps, who, r->tsc - ticks);
	t->depth = calls_follow(d->calls, r, cpu, &mark);
	if (r->has_depth)
		t->depth = r->depth;
	if (r->type != RING_GRAPH_RETURN) {
		t->nr = (s32)r->nr1 - 1;
		t->nr32 = r->nr32;
		t->who = r->has_who ? r->who : UINT32_MAX;
		t->capture = r->capture && !r->capture->stack ? r->capture : NULL;
		t->n_args = r->n_args;
		memcpy(t->args, r->args, r->n_args * sizeof(*t->args));
		return true;
	}
	slept = asleep > mark ? asleep - mark : 0;
	ticks -= MIN(ticks, slept);
	t->duration_ns = d->opts.duration(d->opts.clock_arg, ticks);
	t->has_retval = r->has_retval;
	t->retval = r->has_retval ? r->retval : 0;
	/* The agent compared what it had not rounded yet. */
	if (r->ticks + ring_rounding(r->ticks) >= d->opts.threshold + slept)
		return true;
	d->too_short++;
	return false;
}

static bool take_switch(struct drain *d, u32 cpu, const struct ring_record *r,
			struct trace_record *t)
{
	if (d->sleeps)
		sleeps_switch(d->sleeps, cpu, r->prev_pid, r->pid, r->tsc);
	t->prev_pid = r->prev_pid;
	return d->opts.switches;
}

static void hand_on(struct drain *d, u32 cpu, const struct ring_record *r)
{
	static const u8 types[] = {
		[RING_FUNCTION] = TRACE_FUNCTION,
		[RING_GRAPH_ENTRY] = TRACE_GRAPH_ENTRY,
		[RING_GRAPH_RETURN] = TRACE_GRAPH_RETURN,
		[RING_SWITCH] = TRACE_SWITCH,
	};
	struct trace_record t;

	if (!d->graph && is_call(r))
		return;
	trace_record_clear(&t);
	t.ip = r->ip;
	t.parent = r->parent;
	t.pid = r->pid;
	t.cpu = (u16)cpu;
	t.ctx = r->ctx;
	t.type = types[r->type];
	if (d->opts.stacks && r->capture && r->capture->stack)
		t.stack = captured_stack(d->opts.stacks, r->capture);
	if (r->type == RING_SWITCH ? !take_switch(d, cpu, r, &t) : !measure(d, cpu, r, &t))
		return;
	if (d->turn && !d->turn_told && r->type != RING_SWITCH &&
	    is_call(r) == (d->turn == TURN_TO_GRAPH))
		tell_turn(d);
	t.ts_ns = d->opts.clock(d->opts.clock_arg, cpu, r->tsc);
	name_task(d, &d->queue[cpu], &t);
	d->last_ns = t.ts_ns;
	d->opts.record(d->opts.record_arg, &t);
}

/* Those told in a round up to @until. */
static void hand_on_never(struct drain *d, u64 until)
{
	size_t n;

	for (n = 0; n < d->n_never && d->never[n].round <= until; n++) {
		const struct never *v = &d->never[n];
		struct open_call call = { 0 };
		struct trace_record t = { .ts_ns = d->last_ns,
					  .ip = v->ip,
					  .parent = v->parent,
					  .pid = v->pid,
					  .type = TRACE_GRAPH_NEVER };

		if (!calls_forget(d->calls, v->pid, v->ip, v->tsc, &call))
			call = (struct open_call){ 0 };
		t.cpu = call.cpu;
		t.depth = call.depth;
		name_task(d, &d->queue[call.cpu], &t);
		d->never_handed_on++;
		d->opts.record(d->opts.record_arg, &t);
	}
	d->n_never -= n;
	if (n)
		memmove(d->never, d->never + n, d->n_never * sizeof(*d->never));
}

int drain_never(struct drain *d, u32 pid, u64 ip, u64 parent, u64 tsc)
{
	size_t cap = MAX(d->never_cap * 2, (size_t)64);
	struct never *more;

	if (d->opts.threshold)
		return 0;
	if (d->n_never == d->never_cap) {
		more = reallocarray(d->never, cap, sizeof(*more));
		if (!more)
			return -ENOMEM;
		d->never = more;
		d->never_cap = cap;
	}
	d->never[d->n_never++] = (struct never){ ip, parent, tsc, d->round, pid };
	return 0;
}

/* COMM records carry no time: they take effect when they come first in their queue. */
static void take_leading_comms(struct drain *d, struct queue *q)
{
	while (q->n && q->rec[q->first].type == RING_COMM) {
		take_comm(d, q, &q->rec[q->first]);
		q->first++;
		q->n--;
	}
}

enum merge_limit {
	MERGE_HERE, /* up to where all is here */
	MERGE_ALL,
};

/* All up to the watermark was read since, but of a ring that has more only what was taken. */
static u64 limit_of(const struct drain *d)
{
	u64 limit = d->watermark;

	for (u32 cpu = 0; cpu < d->n_cpus; cpu++) {
		const struct queue *q = &d->queue[cpu];

		if (q->more && q->any && tsc_distance(q->newest, limit) < 0)
			limit = q->newest;
	}
	return limit;
}

/* Returns how many left the queues. */
static size_t merge(struct drain *d, enum merge_limit kind)
{
	struct heap *h = &d->heap;
	u64 limit = limit_of(d);
	size_t n;

	h->n = 0;
	for (u32 cpu = 0; cpu < d->n_cpus; cpu++) {
		take_leading_comms(d, &d->queue[cpu]);
		if (d->queue[cpu].n)
			h->cpu[h->n++] = cpu;
	}
	for (u32 i = h->n / 2; i-- > 0;)
		heap_sift_down(h, d->queue, i);
	for (n = 0; h->n; n++) {
		u32 cpu = h->cpu[0];
		struct queue *q = &d->queue[cpu];

		if (kind == MERGE_HERE && tsc_distance(queue_head(q), limit) > 0)
			return n;
		hand_on(d, cpu, &q->rec[q->first]);
		ring_give_back(&q->reader, &q->rec[q->first]);
		q->first++;
		q->n--;
		take_leading_comms(d, q);
		if (!q->n)
			h->cpu[0] = h->cpu[--h->n];
		heap_sift_down(h, d->queue, 0);
	}
	return n;
}

/*
 * A queue that is full is no reason to go further: what ends earliest is handed on as a whole, so that
 * there is room. Where nothing was taken nor can be handed on, all is here, or times make no sense.
 */
static void merge_round(struct drain *d, size_t n_taken)
{
	if (!(d->begun && merge(d, MERGE_HERE)) && !n_taken)
		merge(d, MERGE_ALL);
	d->watermark = d->newest;
	d->begun = d->any;
}

static int read_failed(int rc, u32 cpu, struct err *err)
{
	if (rc == -ESTALE)
		return err_set(err, rc, ERR_GUEST_RESTORED, 0, "a snapshot was loaded");
	return err_set(err, rc, rc == -EUCLEAN ? ERR_GUEST_MEMORY : ERR_VMM_GONE, 0,
		       rc == -EUCLEAN ? "the ring of CPU %u in the guest makes no sense"
				      : "cannot read the ring of CPU %u in the guest",
		       cpu);
}

static int fill(struct drain *d, u32 cpu, u64 now_ns, u32 flags, size_t *n_ret, struct err *err)
{
	struct queue *q = &d->queue[cpu];
	size_t room, n = 0;
	u64 left;
	int rc;

	if (q->first) {
		memmove(q->rec, q->rec + q->first, q->n * sizeof(*q->rec));
		q->first = 0;
	}
	room = d->cap - q->n;
	if (room)
		rc = ring_drain(&q->reader, q->rec + q->n, room, now_ns,
				flags | (d->opts.data ? RING_DATA : 0), &n);
	else /* look whether it refused records */
		rc = ring_pending(&q->reader, &left);
	for (size_t i = q->n; i < q->n + n; i++) {
		if (q->rec[i].type == RING_COMM ||
		    (q->any && tsc_distance(q->rec[i].tsc, q->newest) <= 0))
			continue;
		q->newest = q->rec[i].tsc;
		q->any = true;
	}
	if (q->any && (!d->any || tsc_distance(q->newest, d->newest) > 0)) {
		d->newest = q->newest;
		d->any = true;
	}
	q->n += n;
	q->more = n == room;
	*n_ret = n;
	return rc ? read_failed(rc, cpu, err) : 0;
}

/* All that is in the rings now may be older than a loss. (One that cannot be read fails the next round.) */
static void doubt_rings(struct drain *d)
{
	for (u32 cpu = 0; cpu < d->n_cpus; cpu++) {
		struct queue *q = &d->queue[cpu];
		u64 n;

		if (!ring_pending(&q->reader, &n))
			q->doubt = q->reader.pos + n;
	}
}

/*
 * What was lost is older than our knowing of it; but what is in the rings may be older yet, as a full
 * ring refuses what is newer than all that it has. So until every ring was read up to where it ended when
 * we knew, whatever was read last may be older than the loss. It is not handed on yet.
 */
static void note_losses(struct drain *d)
{
	struct drain_losses l;
	bool was_doubt = d->doubt;
	u64 lost;

	drain_losses(d, &l);
	lost = l.refused + l.overwritten + l.torn;
	if (lost == d->lost && !d->switches_lost && !was_doubt)
		return;
	if (lost != d->lost || d->switches_lost)
		doubt_rings(d);
	d->lost = lost;
	d->switches_lost = false;
	d->doubt = false;
	for (u32 cpu = 0; cpu < d->n_cpus; cpu++)
		d->doubt |= d->queue[cpu].reader.pos < d->queue[cpu].doubt;
	if (!d->any) /* nothing is known that it could be about */
		return;
	calls_lost(d->calls, d->newest);
	if (d->sleeps)
		sleeps_lost(d->sleeps, d->newest);
}

static int round_of(struct drain *d, u64 now_ns, u32 flags, size_t *n_ret, bool *more_ret,
		    struct err *err)
{
	size_t n, total = 0;
	int rc = 0;

	*more_ret = false;
	for (u32 cpu = 0; !rc && cpu < d->n_cpus; cpu++) {
		rc = fill(d, cpu, now_ns, flags, &n, err);
		total += n;
		*more_ret |= d->queue[cpu].more;
	}
	*n_ret = total;
	d->round++;
	note_losses(d);
	return rc;
}

void drain_switches_lost(struct drain *d)
{
	d->switches_lost = true;
	note_losses(d);
}

void drain_expect_graph(struct drain *d)
{
	d->graph = true;
}

void drain_turn(struct drain *d, bool graph)
{
	d->turn = graph ? TURN_TO_GRAPH : TURN_TO_FUNCTION;
	d->turn_told = d->turn_done = false;
}

void drain_turned(struct drain *d, bool done)
{
	d->turn_done = done;
	d->turn_round = d->round;
	if (done)
		return;
	d->turn = d->turn == TURN_TO_GRAPH ? TURN_TO_FUNCTION : TURN_TO_GRAPH;
	if (d->turn_told)
		tell_turn(d);
	d->turn = TURN_NONE;
}

bool drain_turning(const struct drain *d)
{
	return d->turn != TURN_NONE;
}

static void end_turn(struct drain *d)
{
	if (!d->turn_done)
		return;
	if (!d->turn_told)
		tell_turn(d);
	if (d->turn == TURN_TO_FUNCTION)
		calls_clear(d->calls);
	d->turn = TURN_NONE;
	d->turn_done = false;
}

int drain_round(struct drain *d, u64 now_ns, size_t *n_ret, bool *more_ret, struct err *err)
{
	int rc = round_of(d, now_ns, 0, n_ret, more_ret, err);

	merge_round(d, *n_ret);
	if (d->round > NEVER_ROUNDS)
		hand_on_never(d, d->round - NEVER_ROUNDS);
	if (d->round > d->turn_round + NEVER_ROUNDS)
		end_turn(d);
	return rc;
}

static bool pending(struct drain *d)
{
	for (u32 cpu = 0; cpu < d->n_cpus; cpu++) {
		u64 n;

		if (!ring_pending(&d->queue[cpu].reader, &n) && n)
			return true;
	}
	return false;
}

int drain_finish(struct drain *d, u64 wait_ns, struct err *err)
{
	const struct timespec poll = { 0, POLL_NS };
	u64 deadline = monotonic_ns() + wait_ns, hard = deadline + HARD_NS;
	/* what the rings can hold, twice: a guest that goes on writing does not keep us for ever */
	u64 budget = 2ull * d->n_cpus * d->opts.header.ring_slots;
	size_t n = 0;
	bool more;
	int rc = 0;

	while (!rc && budget && monotonic_ns() < hard && pending(d) &&
	       (n || monotonic_ns() < deadline)) {
		rc = drain_round(d, monotonic_ns(), &n, &more, err);
		budget -= MIN(budget, (u64)n);
		if (!n)
			nanosleep(&poll, NULL);
	}
	while (!rc && budget && monotonic_ns() < hard && pending(d)) {
		rc = round_of(d, monotonic_ns(), RING_FINAL, &n, &more, err);
		merge_round(d, n);
		budget -= MIN(budget, (u64)n);
	}
	note_losses(d); /* pending() may have seen one */
	merge(d, MERGE_ALL);
	hand_on_never(d, UINT64_MAX);
	end_turn(d);
	for (u32 cpu = 0; cpu < d->n_cpus; cpu++) {
		u64 left;

		if (!ring_pending(&d->queue[cpu].reader, &left))
			d->left += MIN(left, (u64)d->opts.header.ring_slots);
	}
	return rc;
}

void drain_counts(const struct drain *d, struct drain_counts *ret)
{
	*ret = (struct drain_counts){ .never = d->never_handed_on };
	for (u32 cpu = 0; cpu < d->n_cpus; cpu++) {
		ret->entries += d->queue[cpu].reader.stats.entries;
		ret->returns += d->queue[cpu].reader.stats.returns;
	}
	ret->returns -= d->too_short;
}

void drain_losses(const struct drain *d, struct drain_losses *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->left = d->left;
	for (u32 cpu = 0; cpu < d->n_cpus; cpu++) {
		const struct ring_stats *s = &d->queue[cpu].reader.stats;

		ret->refused += s->refused;
		ret->overwritten += s->overwritten;
		ret->torn += s->torn;
		ret->captures += d->queue[cpu].reader.captures_dropped;
		ret->stalled_ns = MAX(ret->stalled_ns, s->stalled_ns);
	}
}

/* As many as there can be records: so there is always one. Most are never touched. */
static int give_captures(struct queue *q, size_t n)
{
	q->captures = calloc(n, sizeof(*q->captures));
	q->reader.fresh = q->captures;
	q->reader.n_fresh = q->captures ? n : 0;
	return q->captures ? 0 : -ENOMEM;
}

int drain_create(const struct drain_opts *opts, struct drain **ret, struct err *err)
{
	struct drain *d = calloc(1, sizeof(*d));
	int rc = 0;

	if (!d)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory to drain rings");
	d->opts = *opts;
	d->graph = opts->graph;
	d->n_cpus = opts->header.nr_cpus;
	d->cap = MIN(MAX(QUEUE_TOTAL / MAX(d->n_cpus, 1u), QUEUE_MIN), QUEUE_MAX);
	d->queue = calloc(d->n_cpus, sizeof(*d->queue));
	d->heap.cpu = calloc(d->n_cpus, sizeof(*d->heap.cpu));
	d->comms = comms_create();
	/* some may be open only for us, as their returns were lost */
	d->calls = calls_create(2 * MIN(opts->header.nr_frames, (u32)AGENT_MAX_FRAMES));
	if (opts->no_sleep)
		d->sleeps = sleeps_create();
	if (!d->queue || !d->heap.cpu || !d->comms || !d->calls || (opts->no_sleep && !d->sleeps))
		rc = -ENOMEM;
	for (u32 cpu = 0; !rc && cpu < d->n_cpus; cpu++) {
		d->queue[cpu].rec = calloc(d->cap, sizeof(*d->queue[cpu].rec));
		rc = d->queue[cpu].rec ? ring_reader_init(&d->queue[cpu].reader, &opts->io,
							  &opts->header, cpu)
				       : -ENOMEM;
		if (!rc && (opts->captures || opts->stacks))
			rc = give_captures(&d->queue[cpu], d->cap + 1);
		if (rc && rc != -ENOMEM) {
			drain_destroy(d);
			return read_failed(rc, cpu, err);
		}
	}
	if (rc) {
		drain_destroy(d);
		return err_set(err, rc, ERR_NO_MEMORY, 0, "no memory to drain %u rings",
			       opts->header.nr_cpus);
	}
	*ret = d;
	return 0;
}

void drain_destroy(struct drain *d)
{
	if (!d)
		return;
	for (u32 cpu = 0; d->queue && cpu < d->n_cpus; cpu++) {
		free(d->queue[cpu].rec);
		free(d->queue[cpu].captures);
	}
	free(d->queue);
	free(d->heap.cpu);
	comms_destroy(d->comms);
	calls_destroy(d->calls);
	sleeps_destroy(d->sleeps);
	free(d->never);
	free(d);
}
