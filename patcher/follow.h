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
 * follow_again - another look, now that the agent follows: what was forked, and what ended, since it did not
 * @opts: its pids may be none: what is in the set has its family
 *
 * Calls in between of what was forked are missed, nobody else's; pids of what ended are followed no more. The set is
 * changed in stop windows, as the agent changes it, too. Context: guest lock held.
 */
must_check int follow_again(struct guest *g, const struct tracing_opts *opts, struct err *err);

#endif
