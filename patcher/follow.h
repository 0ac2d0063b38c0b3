/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which tasks are followed, and what they fork: the agent's set of pids (struct agent_header, followed_off).
 * The agent itself adds a new task before it first runs, and takes one out when it exits; here is what there
 * is at the start.
 */
#ifndef PATCHER_FOLLOW_H
#define PATCHER_FOLLOW_H

#include "patcher/tracing.h"

/**
 * follow_begin - the set anew: all threads of opts->pids, which may be pids or tgids
 *
 * Context: guest lock held, the agent is off. Return: 0; what tasks_for_each() returns; -ENOMEM; vmm.gone.
 */
must_check int follow_begin(struct guest *g, const struct tracing_opts *opts, struct err *err);

/**
 * follow_again - a second look, now that the agent follows: what was forked since the first one
 *
 * Their calls in between are missed, nobody else's. Added in a stop window, as the agent changes the set,
 * too. Context: guest lock held.
 */
must_check int follow_again(struct guest *g, const struct tracing_opts *opts, struct err *err);

#endif
