// SPDX-License-Identifier: Apache-2.0
/*
 * Open calls by task. See calls.h.
 *
 * Open calls are frames of one pool, linked from a task's innermost to its outermost; a task is in
 * the table only while it has some. So a task that comes and goes, as in a storm of forks, leaves
 * nothing behind but calls that never return. When the pool is used up the task that was heard of
 * longest ago goes.
 *
 * A return says when its call began: its TSC less the duration. That, not the function alone, tells
 * which entry is its own.
 */
#include "tracers/calls.h"

#include "tracers/addr_hash.h"

#include <stdlib.h>
#include <string.h>

#define NONE        UINT32_MAX
#define IDLE        0x80000000u /* key of CPU 0's idle task; a pid has 22 bits */
#define TSC_BITS    48
#define CALLS_MIN   64u
#define CALLS_MAX   (1u << 20)
#define DEPTH_LIMIT UINT16_MAX
#define WALK_MAX    4096u /* of one task's open calls: a guest that makes them up must not cost more */

struct call {
	u64 tsc, mark;
	u32 ip, parent; /* low halves */
	u32 outer; /* the next call outwards; in the list of free ones, the next */
	u16 depth, cpu;
};

struct task {
	u32 key;
	u32 top; /* innermost call; NONE: the slot is free */
	u32 chain; /* next of the same hash; in the list of free ones, the next */
	u32 newer, older; /* by when they were heard of */
};

struct calls {
	u32 n; /* calls, and tasks: each has one at least */
	u32 mask; /* of the hash */
	u64 hash_key;
	u32 n_open;
	struct call *call;
	struct task *task;
	u32 *bucket;
	u32 free_call, free_task;
	u32 newest, oldest;
	u64 lost_tsc;
	bool lost;
};

static s64 tsc_distance(u64 a, u64 b)
{
	return (s64)((a - b) << (64 - TSC_BITS)) >> (64 - TSC_BITS);
}

struct calls *calls_create(u32 n_calls)
{
	struct calls *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->n = MIN(MAX(n_calls, CALLS_MIN), CALLS_MAX);
	g->hash_key = addr_hash_key();
	g->mask = (1u << (32 - __builtin_clz(g->n - 1))) - 1;
	g->call = calloc(g->n, sizeof(*g->call));
	g->task = calloc(g->n, sizeof(*g->task));
	g->bucket = calloc((size_t)g->mask + 1, sizeof(*g->bucket));
	if (!g->call || !g->task || !g->bucket) {
		calls_destroy(g);
		return NULL;
	}
	for (u32 i = 0; i < g->n; i++) {
		g->call[i].outer = i + 1 < g->n ? i + 1 : NONE;
		g->task[i].chain = g->call[i].outer;
	}
	memset(g->bucket, 0xff, ((size_t)g->mask + 1) * sizeof(*g->bucket));
	g->newest = g->oldest = NONE;
	return g;
}

void calls_destroy(struct calls *g)
{
	if (!g)
		return;
	free(g->call);
	free(g->task);
	free(g->bucket);
	free(g);
}

u32 calls_open(const struct calls *g)
{
	return g->n_open;
}

static u32 *bucket_of(struct calls *g, u32 key)
{
	return &g->bucket[addr_hash(key, g->hash_key) & g->mask];
}

static u32 find(struct calls *g, u32 key)
{
	u32 t = *bucket_of(g, key);

	while (t != NONE && g->task[t].key != key)
		t = g->task[t].chain;
	return t;
}

static void unlink_age(struct calls *g, u32 t)
{
	struct task *p = &g->task[t];

	*(p->newer == NONE ? &g->newest : &g->task[p->newer].older) = p->older;
	*(p->older == NONE ? &g->oldest : &g->task[p->older].newer) = p->newer;
}

static void link_newest(struct calls *g, u32 t)
{
	struct task *p = &g->task[t];

	p->newer = NONE;
	p->older = g->newest;
	*(g->newest == NONE ? &g->oldest : &g->task[g->newest].newer) = t;
	g->newest = t;
}

static void heard_of(struct calls *g, u32 t)
{
	if (g->newest == t)
		return;
	unlink_age(g, t);
	link_newest(g, t);
}

static void free_task(struct calls *g, u32 t)
{
	u32 *link = bucket_of(g, g->task[t].key);

	while (*link != t)
		link = &g->task[*link].chain;
	*link = g->task[t].chain;
	unlink_age(g, t);
	g->task[t].chain = g->free_task;
	g->free_task = t;
}

static void free_call(struct calls *g, u32 c)
{
	g->call[c].outer = g->free_call;
	g->free_call = c;
	g->n_open--;
}

/* The task stays, even without a call. */
static void pop(struct calls *g, u32 t)
{
	u32 c = g->task[t].top;

	g->task[t].top = g->call[c].outer;
	free_call(g, c);
}

static void forget_task(struct calls *g, u32 t)
{
	while (g->task[t].top != NONE)
		pop(g, t);
	free_task(g, t);
}

static u16 depth_inside(const struct calls *g, u32 t)
{
	u32 top = t == NONE ? NONE : g->task[t].top;

	return top == NONE ? 0 : (u16)MIN(g->call[top].depth + 1, DEPTH_LIMIT);
}

/* See calls_lost(). */
static void give_up_doubtful(struct calls *g, u32 t, const struct ring_record *r)
{
	u32 c = g->task[t].top, steps = 0;

	while (c != NONE && ++steps <= WALK_MAX &&
	       (g->call[c].ip != (u32)r->ip || g->call[c].parent != (u32)r->parent ||
		tsc_distance(g->call[c].tsc, g->lost_tsc) > 0))
		c = g->call[c].outer;
	if (c == NONE || steps > WALK_MAX)
		return;
	while (g->task[t].top != c)
		pop(g, t);
	pop(g, t);
}

static u32 new_task(struct calls *g, u32 key)
{
	u32 t = g->free_task, *bucket = bucket_of(g, key);

	g->free_task = g->task[t].chain;
	g->task[t] = (struct task){ .key = key, .top = NONE, .chain = *bucket };
	*bucket = t;
	link_newest(g, t);
	return t;
}

static u16 enter(struct calls *g, u32 key, const struct ring_record *r, u32 cpu, u64 mark)
{
	u32 t = find(g, key), c;
	u16 depth;

	if (t != NONE && g->lost)
		give_up_doubtful(g, t, r);
	if (g->free_call == NONE) { /* as many tasks as calls: a free call means a free task */
		forget_task(g, g->oldest);
		t = find(g, key);
	}
	depth = depth_inside(g, t);
	if (t == NONE)
		t = new_task(g, key);
	c = g->free_call;
	g->free_call = g->call[c].outer;
	g->call[c] = (struct call){ .tsc = r->tsc,
				    .mark = mark,
				    .ip = (u32)r->ip,
				    .parent = (u32)r->parent,
				    .outer = g->task[t].top,
				    .depth = depth,
				    .cpu = (u16)cpu };
	g->task[t].top = c;
	g->n_open++;
	heard_of(g, t);
	return depth;
}

static u16 leave(struct calls *g, u32 key, const struct ring_record *r, u64 *mark)
{
	u32 t = find(g, key), c, steps = 0;
	u64 latest = r->tsc - r->ticks, earliest = latest - ring_rounding(r->ticks);
	u16 depth;

	if (t == NONE)
		return 0;
	/* What began later was called by it, and is over. */
	while (g->task[t].top != NONE && tsc_distance(g->call[g->task[t].top].tsc, latest) > 0)
		pop(g, t);
	c = g->task[t].top;
	while (c != NONE && ++steps <= WALK_MAX && g->call[c].ip != (u32)r->ip &&
	       tsc_distance(g->call[c].tsc, earliest) >= 0)
		c = g->call[c].outer;
	if (c != NONE && g->call[c].ip == (u32)r->ip &&
	    tsc_distance(g->call[c].tsc, earliest) >= 0) {
		while (g->task[t].top != c)
			pop(g, t);
		depth = g->call[c].depth;
		*mark = g->call[c].mark;
		pop(g, t);
	} else {
		depth = depth_inside(g, t);
	}
	if (g->task[t].top == NONE)
		free_task(g, t);
	else
		heard_of(g, t);
	return depth;
}

u16 calls_follow(struct calls *g, const struct ring_record *r, u32 cpu, u64 *mark)
{
	u32 key = r->pid ? r->pid : IDLE | cpu;

	if (r->type == RING_GRAPH_ENTRY)
		return enter(g, key, r, cpu, *mark);
	if (r->type == RING_GRAPH_RETURN)
		return leave(g, key, r, mark);
	return depth_inside(g, find(g, key));
}

bool calls_forget(struct calls *g, u32 pid, u64 ip, u64 tsc, struct open_call *ret)
{
	u32 t = find(g, pid), *link, c, steps = 0;

	if (t == NONE)
		return false;
	for (link = &g->task[t].top; *link != NONE && ++steps <= WALK_MAX;
	     link = &g->call[*link].outer) {
		c = *link;
		if (g->call[c].ip != (u32)ip || tsc_distance(g->call[c].tsc, tsc) != 0)
			continue;
		*ret = (struct open_call){ g->call[c].depth, g->call[c].cpu };
		*link = g->call[c].outer;
		free_call(g, c);
		if (g->task[t].top == NONE)
			free_task(g, t);
		return true;
	}
	return false;
}

void calls_clear(struct calls *g)
{
	while (g->oldest != NONE)
		forget_task(g, g->oldest);
}

void calls_lost(struct calls *g, u64 tsc)
{
	g->lost = true;
	g->lost_tsc = tsc;
}
