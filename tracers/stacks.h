/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks, each kept once: a function has few different callers, and many calls. What is kept stays where it
 * is until the end, so that readers need no lock. Bounded; must not know where stacks come from.
 */
#ifndef TRACERS_STACKS_H
#define TRACERS_STACKS_H

#include "tracers/trace.h"

#define STACKS_MAX      65536u /* different ones */
#define STACKS_MAX_ADDR (4u << 20) /* addresses in all of them: 16 MiB */

struct stacks;

struct stacks *stacks_create(void); /* NULL: no memory */
void stacks_destroy(struct stacks *s);
/** stacks_ref - another owner: they are gone when all have called stacks_destroy(). NULL stays NULL. */
struct stacks *stacks_ref(struct stacks *s);

/**
 * stacks_get - the stack with these @n addresses, at least one
 *
 * Context: one thread. Return: valid until stacks_destroy(); NULL: there are too many, counted.
 */
const struct trace_stack *stacks_get(struct stacks *s, const u32 *low, u32 n);

/** stacks_refused - how often stacks_get() had no room */
u64 stacks_refused(const struct stacks *s);

#endif
