/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which call sites lead into a piece of the guest's memory, by their bytes as they are now: what no list of
 * ours names may call it, too, when memory was put back to an earlier time.
 */
#ifndef PATCHER_CALLERS_H
#define PATCHER_CALLERS_H

#include "patcher/guest_priv.h"

struct text_change;

/**
 * callers_find - the recorded call sites that call into @lo .. @hi, as somebody of ours has armed them
 * @ret: sorted; old is the nop that they were, new the call that is there; free() it
 *
 * Nothing else in a guest leads into memory of ours. Nothing is changed. Context: guest lock held, tables of
 * modules as new as they need be. Return: 0; -ENOMEM; -ESRCH (vmm.gone).
 */
must_check int callers_find(struct guest *g, u64 lo, u64 hi, struct text_change **ret,
			    size_t *n_ret, struct err *err);

/**
 * callers_find_hook - the guest's call that leads through an interlock in @lo .. @hi, into g->hook and the journal
 *
 * Context: guest lock held, g->hook is NULL. Return: 0, also when there is none; -EINVAL it cannot be put back
 * (guest.text_changed); -ENOMEM; -EFAULT; what text_journal() returns.
 */
must_check int callers_find_hook(struct guest *g, u64 lo, u64 hi, struct err *err);

/**
 * callers_let_go - nothing calls the agent's text any more, whether the journal has it or not
 *
 * Sites, and the call of the guest's that leads through the interlock there: entered in the journal, then put
 * back. For the moment before that text is given back; tasks inside are not waited for. Context: guest lock
 * held, no window open, none of g->armed and g->hook. Return: 0; -EBUSY there are some (conflict); -EINVAL the
 * guest's call cannot be put back (guest.text_changed); what text_apply() and kernel_refresh() return: what is
 * left is in the journal.
 */
must_check int callers_let_go(struct guest *g, struct err *err);

#endif
