/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long each task has been switched out, from task switches in the order of their time; for durations
 * without sleep. Bounded memory; one thread.
 *
 * Where something is not known (a switch was lost or came late, a task was forgotten for others, a call
 * began long ago) the sleep counts as less than it was, never as more: durations come out too long at worst.
 */
#ifndef TRACERS_SLEEPS_H
#define TRACERS_SLEEPS_H

#include "base/types.h"

struct sleeps;

struct sleeps *sleeps_create(void); /* NULL: no memory */
void sleeps_destroy(struct sleeps *s);

/* A task: pid 0 is the idle task of its CPU. */
struct sleeper {
	u32 cpu, pid;
};

/**
 * sleeps_switch - @cpu turned from task @prev to @next at @tsc (48 bits)
 *
 * In the order of @tsc over all CPUs; one that is earlier than one before it is late: behind a preempted
 * writer, see drain.h.
 */
void sleeps_switch(struct sleeps *s, u32 cpu, u32 prev, u32 next, u64 tsc);

/** sleeps_lost - switches may have been lost, none later than @tsc: who is out since before counts as awake */
void sleeps_lost(struct sleeps *s, u64 tsc);

/** sleeps_total - TSC ticks that a task has been out by now, of its sleeps that are over */
u64 sleeps_total(const struct sleeps *s, struct sleeper who);

/** sleeps_at - what sleeps_total() was at @tsc, as far as that is remembered; else more */
u64 sleeps_at(const struct sleeps *s, struct sleeper who, u64 tsc);

#endif
