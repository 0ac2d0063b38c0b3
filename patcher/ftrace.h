/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call sites: nop to call and back, in ftrace's own words (Linux v6.12 include/linux/ftrace.h).
 * Two layers as there: sites call ftrace_caller [agent]; inside it ftrace_call is patched to the
 * active tracer and ftrace_graph_call between a nop and the graph caller.
 */
#ifndef PATCHER_FTRACE_H
#define PATCHER_FTRACE_H

#include "patcher/guest.h"

/* What became of the sites asked for. */
struct ftrace_counts {
	size_t n_armed;
	size_t n_in_use; /* the guest uses them: left alone */
	size_t n_differs; /* bytes were not the nop: left alone */
	size_t n_gone; /* their module went away */
};

/**
 * ftrace_make_call - turn the nops of many sites into calls of ftrace_caller [agent]
 * @site: indices into kernel_sites()
 *
 * Before: MCOUNT_INSN_SIZE bytes of one nop at each site. After: a call. Other vCPUs may execute a
 * site at any time; each is written in a stop window. A site whose bytes are not a one-instruction
 * nop fails the whole call and nothing stays changed, unless the guest's record says that the guest
 * uses it. Precondition: agent loaded, no site armed.
 * Context: guest lock held. Return: 0; -EINVAL bytes differ (guest.text_changed); -ERANGE out of
 * rel32's reach; what text_apply() returns. Undo: ftrace_make_nop().
 */
must_check int ftrace_make_call(struct guest *g, const u32 *site, size_t n,
				struct ftrace_counts *counts_ret, struct err *err);

/**
 * ftrace_make_nop - put every armed site back
 * @ret: what was put back; may be NULL
 *
 * Sites that hold something else by now were changed by the guest: left, counted. The interlock goes out after
 * them, unless it is that of a gate which could not be closed: then its sites are in still. Context: guest
 * lock held. Return: 0; what text_apply() returns, then the journal keeps what is left.
 */
must_check int ftrace_make_nop(struct guest *g, struct guest_restore *ret, struct err *err);

/**
 * ftrace_make_more - sites that came later, while others are armed
 * @n_ret: how many of them are armed now that were not before
 *
 * As ftrace_make_call(), but a site that is armed already, in use, or does not hold the nop expected, is left
 * alone. Context: guest lock held. Return: 0; what text_apply() returns.
 */
must_check int ftrace_make_more(struct guest *g, const u32 *site, size_t n, size_t *n_ret,
				struct err *err);

/**
 * ftrace_sort_out - what became of the armed sites
 *
 * Sites that the guest's own tracing took over and has let go of are armed again; those whose module went away
 * are forgotten: nothing is written where they were. Context: guest lock held, kernel tables fresh.
 * Return: 0; what text_apply() returns.
 */
must_check int ftrace_sort_out(struct guest *g, struct ftrace_counts *counts_ret, struct err *err);

/**
 * ftrace_update_ftrace_func - patch ftrace_call [agent] to jump to @offset in the agent's text
 *
 * Before and after: a 5-byte jmp. Context: guest lock held; sites may be live. Undo: the same with
 * the offset of ftrace_stub.
 */
must_check int ftrace_update_ftrace_func(struct guest *g, u32 offset, struct err *err);

/**
 * ftrace_enable_ftrace_graph_caller - patch ftrace_graph_call [agent] to jump to a graph caller
 * ftrace_disable_ftrace_graph_caller - and back
 * @offset: in the agent's text, of ftrace_graph_caller or graph_full_caller
 *
 * Before: a 5-byte nop. After: a 5-byte jmp. That way already: returns 0; from one graph caller to the
 * other there is a nop for a moment. Context: guest lock held;
 * sites may be live. Calls that were followed still return through the agent after the undo:
 * graph_put_back().
 */
must_check int ftrace_enable_ftrace_graph_caller(struct guest *g, u32 offset, struct err *err);
must_check int ftrace_disable_ftrace_graph_caller(struct guest *g, struct err *err);

#endif
