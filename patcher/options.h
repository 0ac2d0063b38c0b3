/* SPDX-License-Identifier: Apache-2.0 */
/* What struct tracing_opts asks of the agent, in the agent's terms: options and tables in its data. */
#ifndef PATCHER_OPTIONS_H
#define PATCHER_OPTIONS_H

#include "patcher/tracing.h"

/**
 * options_header - members of @h that follow from @opts: options, max_depth, threshold
 *
 * Pure. Options stay 0 where the plain path does: then what it writes is all that is asked for.
 */
void options_header(const struct tracing_opts *opts, struct agent_header *h);

/* The kernel's call sites by number. */
struct site_ips {
	u64 (*ip)(void *arg, size_t i);
	void *arg;
	size_t n;
};

/**
 * options_sites - fill the agent's site table
 * @sites:       call sites of the kernel: what tracing_site.site counts
 * @switch_site: index of finish_task_switch(), or SIZE_MAX for none; HIDDEN until it is armed for itself
 * @table:       h->site_slots entries; written
 *
 * Pure. Return: 0; -EINVAL a site or what is asked of it is out of range; -ENOSPC see agent_put_site().
 */
must_check int options_sites(const struct tracing_opts *opts, const struct agent_header *h,
			     const struct site_ips *sites, size_t switch_site,
			     struct agent_site *table);

/** options_is_switch - is it the name of finish_task_switch(), as the compiler may have it? */
bool options_is_switch(const char *name);

/**
 * options_write - the agent does as @opts says from now on; nobody is told anything yet
 *
 * Precondition: agent loaded and switched off. What an earlier trace has left in the table of tasks goes:
 * a task that is still inside of that counts as in no call. Context: guest lock held.
 * Return: 0; -ENOENT the kernel has no finish_task_switch() to trace (filter.no_match); -EBUSY it traces that itself (conflict); -ENOTSUP its struct
 * pt_regs is not as expected (guest.unsupported); -EINVAL what
 * options_sites() says (bad_request); -ENOSPC; -ENOMEM; -ESRCH (vmm.gone). Undo: none is needed.
 */
must_check int options_write(struct guest *g, const struct tracing_opts *opts, struct err *err);

/**
 * options_arm_list - the sites to arm: @site, and finish_task_switch() where task switches are told
 * @ret: free() it
 *
 * Writes to the agent whether that is there for itself too. Context: agent off; guest lock held.
 */
must_check int options_arm_list(struct guest *g, const u32 *site, size_t n, u32 **ret,
				size_t *n_ret, struct err *err);

/**
 * options_put_late - what is asked of one more site, in one word, so that the agent may be on
 * @is_dead:  is this entry's call site no longer armed? Then its place may be taken
 * @slot_ret: of the entry that has changed; h->site_slots: none has
 *
 * Pure. Return: 0; -ENOSPC no place is left where the agent would find it.
 */
must_check int options_put_late(const struct agent_header *h, struct agent_site *table,
				struct agent_site site, bool (*is_dead)(void *arg, u32 ip),
				void *arg, u32 *slot_ret);

/* Sites that come while the agent is on: what is asked of them against what there is room for. */
struct options_late {
	const struct agent_header *h;
	struct agent_site *table; /* as the guest has it */
	bool (*is_dead)(void *arg, u32 ip); /* as options_put_late() */
	void *arg;
	size_t stacks, max_stacks; /* sites of @table that have STACK and are armed */
	size_t n_unheeded;
};

/** options_late_init - Pure: @l but stacks, n_unheeded is set */
void options_late_init(struct options_late *l);

/**
 * options_late_site - what is asked of one site more, or of one that is armed
 * @asked:  by options
 * @heeded: of @asked what the agent heeds as it is
 *
 * Of an armed one nothing changes. Pure but for @l. Return: the slot that has changed; h->site_slots: none has.
 */
u32 options_late_site(struct options_late *l, u32 ip, u32 asked, u32 heeded);

/**
 * options_more_sites - what is asked of those of @site that are not armed; before they are
 * @opts: as tracing_arm_more()
 * @n_unheeded_ret: see struct tracing_more
 *
 * What an earlier module's function at the same place was asked goes. Context: guest lock held. Return: 0;
 * -ENOMEM; -EINVAL; -ESRCH (vmm.gone). A site that has no place in the table is told plainly.
 */
must_check int options_more_sites(struct guest *g, const u32 *site, size_t n,
				  const struct tracing_opts *opts, size_t *n_unheeded_ret,
				  struct err *err);

#endif
