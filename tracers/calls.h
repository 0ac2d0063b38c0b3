/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which calls each task is inside, from the records alone: gives every record of function_graph its
 * depth. Records may be missing anywhere. One thread; bounded memory.
 */
#ifndef TRACERS_CALLS_H
#define TRACERS_CALLS_H

#include "base/types.h"
#include "tracers/ring.h"

struct calls;

/** calls_create - @n_calls: as many can be open at once; more forget the task unheard of longest */
struct calls *calls_create(u32 n_calls); /* NULL: no memory */
void calls_destroy(struct calls *g);

/**
 * calls_follow - take the next record of the merged stream; gives its depth
 * @r:    RING_FUNCTION, RING_GRAPH_ENTRY or RING_GRAPH_RETURN
 * @mark: an entry's is kept with the call; with its return it comes back, if the entry is known, else
 *        it stays as it is
 *
 * Depth is the number of calls known to be open around the record's own, in its task. An interrupt
 * counts as called by the task that it interrupted, as in ftrace. Calls inside one that returns are
 * over, whether their own returns came or not. A return whose entry is not known changes nothing
 * else.
 */
u16 calls_follow(struct calls *g, const struct ring_record *r, u32 cpu, u64 *mark);

/* A call that was open. */
struct open_call {
	u16 depth;
	u16 cpu; /* of its entry */
};

/** calls_forget - the call of @pid to @ip that began at @tsc never returns; false: not known */
bool calls_forget(struct calls *g, u32 pid, u64 ip, u64 tsc, struct open_call *ret);

/**
 * calls_lost - records were lost, no later than @tsc
 *
 * A lost return leaves its call open for ever when it was the task's outermost. Calls as old as a
 * loss are therefore given up when the task is seen to make the same call, from the same place,
 * again. (A function that calls itself from one place can then show too little depth, until it is
 * through.)
 */
void calls_lost(struct calls *g, u64 tsc);

/** calls_clear - no call is open any more */
void calls_clear(struct calls *g);

/** calls_open - how many are open now */
u32 calls_open(const struct calls *g);

#endif
