/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call sites that the agent itself lives by: of tasks that begin, that end, and of task switches. The guest's own
 * tracing may take them over as any other; then what they tell is missed until they are back.
 */
#ifndef PATCHER_HELPERS_H
#define PATCHER_HELPERS_H

#include "patcher/tracing.h"

/** helpers_find_switch - finish_task_switch() among kernel_sites(); -ENOENT (filter.no_match), -EBUSY (conflict) */
must_check int helpers_find_switch(struct guest *g, size_t *ret, struct err *err);

/** helpers_note - which they are, of @opts; @switch_ip: of finish_task_switch(), 0: is not needed. Context: none armed */
void helpers_note(struct guest *g, const struct tracing_opts *opts, u64 switch_ip);

/** helpers_armed - after ftrace_make_call(): -EBUSY (conflict) when the guest itself has one of them */
must_check int helpers_armed(struct guest *g, struct err *err);

/** helpers_look - after text_check() of all that is armed: who is away is missed, until helpers_missed() */
void helpers_look(struct guest *g);

/** helpers_away - TRACING_* that are not armed, as of the last text_check() or text_apply() of all */
u32 helpers_away(const struct guest *g);

/** helpers_missed - TRACING_* that were away since the last time, or are */
u32 helpers_missed(struct guest *g);

#endif
