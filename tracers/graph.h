/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which calls each task is inside, from the records alone: gives every record of function_graph its
 * depth. Records may be missing anywhere. One thread; bounded memory.
 */
#ifndef TRACERS_GRAPH_H
#define TRACERS_GRAPH_H

#include "base/types.h"
#include "tracers/ring.h"

struct graph;

/** graph_create - @n_calls: as many can be open at once; more forget the task unheard of longest */
struct graph *graph_create(u32 n_calls); /* NULL: no memory */
void graph_destroy(struct graph *g);

/**
 * graph_follow - take the next record of the merged stream; gives its depth
 * @r: RING_FUNCTION, RING_GRAPH_ENTRY or RING_GRAPH_RETURN
 *
 * Depth is the number of calls known to be open around the record's own, in its task. An interrupt
 * counts as called by the task that it interrupted, as in ftrace. Calls inside one that returns are
 * over, whether their own returns came or not. A return whose entry is not known changes nothing
 * else.
 */
u16 graph_follow(struct graph *g, const struct ring_record *r, u32 cpu);

/* A call that was open. */
struct graph_call {
	u16 depth;
	u16 cpu; /* of its entry */
};

/** graph_forget - the call of @pid to @ip that began at @tsc never returns; false: not known */
bool graph_forget(struct graph *g, u32 pid, u64 ip, u64 tsc, struct graph_call *ret);

/**
 * graph_lost - records were lost, no later than @tsc
 *
 * A lost return leaves its call open for ever when it was the task's outermost. Calls as old as a
 * loss are therefore given up when the task is seen to make the same call, from the same place,
 * again. (A function that calls itself from one place can then show too little depth, until it is
 * through.)
 */
void graph_lost(struct graph *g, u64 tsc);

/** graph_open_calls - how many are open now */
u32 graph_open_calls(const struct graph *g);

#endif
