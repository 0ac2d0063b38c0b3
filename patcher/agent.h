/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's life in a guest: memory lent by the guest's own allocator, protected by its own
 * set_memory functions, filled, and given back.
 */
#ifndef PATCHER_AGENT_H
#define PATCHER_AGENT_H

#include "patcher/guest_priv.h"

/* Behind the blob and its trampolines, a page of its own: the interlock. */
#define AGENT_INTERLOCK_BYTES PAGE_SIZE

struct gate;

/**
 * agent_load - bring the agent into the guest; nothing calls it yet
 *
 * Text ends up read-only and executable, data writable and not executable: checked by a walk of the
 * guest's page tables, never both. Loaded already: returns 0. Context: guest lock held.
 * Return: 0; -ENOMEM the guest has no memory to lend (guest.alloc_failed); what gate_open() and
 * gate_call() return. On failure everything is given back. Undo: agent_unload().
 */
must_check int agent_load(struct guest *g, struct err *err);

/**
 * agent_unload - give the agent's memory back to the guest
 *
 * Precondition: no site calls it. Waits until no task is inside (synchronize_rcu_tasks of the guest,
 * then a look at every stack) and no call returns through it; memory made writable and not executable again before it is freed.
 */
int agent_unload(struct guest *g, struct err *err);

/**
 * agent_wait_quiet - until no task of the guest is inside the agent's text, or will come back into it
 * @gate: the guest is asked, too, for its grace periods; NULL: quiesce_range() alone, see spare_x86.c needs_gate()
 */
must_check int agent_wait_quiet(struct gate *gate, struct guest *g, struct err *err);

/** agent_forget - the agent is no more in the guest, nor is anything of it */
void agent_forget(struct guest *g);

/**
 * agent_left_cpu - is no task in a function of the guest's that the agent called on @cpu? Also without an agent
 * @on_cpu: of struct task_struct
 */
bool agent_left_cpu(struct guest *g, u32 cpu, const struct guest_member *on_cpu);

/**
 * agent_is_in_view - is what the view shows still the agent's data, of this session?
 *
 * A snapshot that is loaded puts another time's memory there, which may be anybody's: asked before each
 * write. No lock needed while a trace runs. Also false when it cannot be read.
 */
bool agent_is_in_view(const struct guest *g);

/** agent_next_epoch - the armed sites have changed; told in the header, when there is one */
void agent_next_epoch(struct guest *g);

/** agent_write_header - write a member of struct agent_header at @off; the guest sees it at once */
must_check int agent_write_header(struct guest *g, size_t off, const void *v, size_t n,
				  struct err *err);

#endif
