/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tracer needs of an attached guest: the agent switched on and off, sites armed, rings. All
 * with the guest lock held unless said otherwise. Must not know tracers.
 */
#ifndef PATCHER_TRACING_H
#define PATCHER_TRACING_H

#include "guest-agent/agent_abi.h"
#include "patcher/guest.h"

struct tracing_opts {
	bool overwrite;
	bool paused; /* tracing_rearm(): the agent stays off */
	bool graph; /* function_graph: returns are followed too */
	const u32 *pids; /* at most AGENT_MAX_PIDS */
	size_t n_pids;
	u32 stack_depth; /* callers that sites with AGENT_SITE_STACK tell; 0: AGENT_MAX_STACK */
	bool switches; /* tell every task switch: AGENT_REC_SWITCH, on all CPUs, whatever the pids */
	/* function_graph */
	u32 max_depth; /* calls with this many around them are not followed; 0: all are */
	u64 threshold; /* TSC ticks: only returns of calls that took as long are recorded; 0: all */
	bool no_irqs; /* what hard interrupts call is not followed */
	bool roots; /* only sites with AGENT_SITE_ROOT and what they call */
	/* syscalls, with graph: the registers of system calls are known to the agent, and captures */
	bool syscalls;
	const struct agent_capture *captures; /* at most AGENT_MAX_CAPTURES */
	size_t n_captures;
	const struct agent_user_step *steps; /* at most AGENT_USER_STEPS */
	size_t n_steps;
	bool who; /* uid and cgroup of each call */
	bool follow; /* of pids all threads, and what they fork: see follow.h. Needs sites with FORK and EXIT */
	bool by_uid; /* only tasks with uid */
	u32 uid;
	/* what is asked of single sites; sites that are not armed do not matter */
	const struct tracing_site *sites;
	size_t n_sites;
	size_t max_stacks; /* tracing_arm_more(): of all armed sites so many may have STACK */
};

struct tracing_site {
	u32 site; /* index into kernel_sites() */
	u32 what; /* AGENT_SITE_*: number of arguments, STACK; to function_graph alone ROOT, NOTRACE, RETVAL,
		     SYSCALL, number + 1 of a capture or of the first step */
};

/* What tracing_arm_more() did. */
struct tracing_more {
	size_t n_armed;
	size_t n_unheeded; /* of all of @site, armed before or now: of which something is asked that is not told */
};

/* What is seen by call sites that are armed for that. */
#define TRACING_FORKS    1u
#define TRACING_EXITS    2u
#define TRACING_SWITCHES 4u

struct tracing_counts {
	size_t n_armed;
	size_t n_skipped; /* in use by the guest by now, or gone with their module */
	u32 missed; /* tracing_refresh(): TRACING_* that the guest's own tracing has, or had since the last one */
};

/* A call whose return will never be seen. */
struct tracing_unreturned {
	u64 ip; /* call site */
	u64 parent;
	u64 tsc; /* at entry, guest TSC */
	u32 pid;
};

/* Counters of function_graph since the agent was loaded; they only grow. */
struct tracing_graph {
	u64 lost_frames; /* calls not followed since every frame was in use: FUNCTION records */
	u64 lost_returns; /* returns that the ring had no room for; also in its losses */
	u64 frame_errors; /* returns from another stack address than the entry's */
};

/** tracing_claim - one trace at a time a guest; -EBUSY (trace.limit); what
 * guest_check_alive() returns: -ESRCH (vmm.gone), -ESTALE (guest.rebooted). Undo: tracing_release(). */
must_check int tracing_claim(struct guest *g, struct err *err);
void tracing_release(struct guest *g);

/**
 * tracing_unsettled - records of the trace that ends were reserved and never written: somebody may be inside still
 *
 * Who was preempted there would write into a slot that is a later trace's by then, which waits for its own writer for
 * ever. So the next tracing_prepare() waits until nobody is inside.
 */
void tracing_unsettled(struct guest *g);

/**
 * tracing_prepare - agent in the guest, its tracer chosen, filters set; switched off, nothing armed
 *
 * Return: -EPERM (guest.integrity_guard) what watches the kernel's text is loaded; -EBUSY (guest.text_busy) also:
 * see tracing_unsettled(); what agent_load(), options_write() and ftrace_update_ftrace_func() return. Undo: guest_detach().
 */
must_check int tracing_prepare(struct guest *g, const struct tracing_opts *opts, struct err *err);

/**
 * tracing_set_graph - follow returns from now on, or no more; sites stay armed, the agent on
 *
 * Off: as tracing_disarm() does, what was hijacked is put back as far as it can be.
 */
must_check int tracing_set_graph(struct guest *g, bool on, struct err *err);

/**
 * tracing_arm - arm sites, then switch the agent on. On failure nothing stays armed.
 *
 * With opts->switches finish_task_switch() is armed too: not in @ret, and not recorded as a call unless it
 * is one of @site. -EBUSY (conflict): the guest itself uses it, or what opts->follow needs.
 */
must_check int tracing_arm(struct guest *g, const u32 *site, size_t n, struct tracing_counts *ret,
			   struct err *err);

/**
 * tracing_follow - after tracing_arm() with opts->follow, and when forks or exits were missed: see follow_again()
 * @opts: NULL: who is followed has what it forked, no more
 */
must_check int tracing_follow(struct guest *g, const struct tracing_opts *opts, struct err *err);

/**
 * tracing_refresh - the guest has a life of its own: kernel tables as they are now, and what became of sites
 * @fresh: as guest_refresh()
 * @ret: n_armed: sites that call the agent now; n_skipped: those that it has for its own tracing, or that
 *       went away with their module just now
 *
 * See ftrace_sort_out(). Return: 0; what guest_refresh() and ftrace_sort_out() return.
 */
must_check int tracing_refresh(struct guest *g, bool fresh, struct tracing_counts *ret,
			       struct err *err);

/**
 * tracing_arm_more - ftrace_make_more() while the agent is on
 * @opts: sites and max_stacks alone are looked at: what is asked of those of @site that are not armed yet. What an
 *        option asks for that no site of the trace's beginning needed is not told, nor what the agent's table has no
 *        room for; NULL: nothing is asked
 */
must_check int tracing_arm_more(struct guest *g, const u32 *site, size_t n,
				const struct tracing_opts *opts, struct tracing_more *ret,
				struct err *err);

/** tracing_taken - sites that the guest's own tracing took over since the agent was loaded; it only grows. No
 * lock needed; false: cannot read. */
bool tracing_taken(struct guest *g, u64 *ret);

/**
 * tracing_disarm - switch the agent off, put every site back, then every hijacked return address
 *
 * What cannot be put back yet (a return address that the guest's own kretprobe or function_graph
 * keeps elsewhere) stays in use, passive, and holds up guest_detach(); ret->returns_left counts it.
 */
must_check int tracing_disarm(struct guest *g, struct guest_restore *ret, struct err *err);

/**
 * tracing_rings - how to read the agent's data, and the header as the host wrote it
 *
 * The functions may be called without the guest lock until guest_detach().
 */
void tracing_rings(struct guest *g, struct agent_header *header_ret,
		   int (**read_ret)(void *arg, u64 off, void *buf, size_t len),
		   int (**write_ret)(void *arg, u64 off, const void *buf, size_t len),
		   void **arg_ret);

/** tracing_lost_nocpu - records of CPUs that appeared after the agent was loaded; false: cannot read.
 * No lock needed. */
bool tracing_lost_nocpu(struct guest *g, u64 *ret);

/**
 * tracing_collect - give frames back whose functions will never return
 * @fn: called for each; may be NULL
 *
 * A frame is dead when the task that entered the function is (TASK_DEAD and off its CPU, or its
 * task_struct has begun another life), or when its stack cell holds a newer frame's trampoline that
 * does not lead to it. Decided by reads alone, each looked at again afterwards. Context: guest lock
 * held, vCPUs run; every 100 ms or so while function_graph is on. Return: 0; -ESRCH (vmm.gone); -ESTALE
 * (guest.rebooted), found out before anything is written; -ENOMEM.
 */
must_check int tracing_collect(struct guest *g,
			       void (*fn)(void *arg, const struct tracing_unreturned *u), void *arg,
			       struct err *err);

/** tracing_graph_stats - no lock needed; false: cannot read */
bool tracing_graph_stats(struct guest *g, struct tracing_graph *ret);

/** tracing_set_enabled - the agent records, or returns at once; sites stay armed */
must_check int tracing_set_enabled(struct guest *g, bool on, struct err *err);

/**
 * tracing_rearm - of a trace that runs: other sites and other filters from now on
 *
 * Rings, open calls and the tracer stay; options are all of @opts, those that did not change too. On failure
 * nothing is armed.
 */
must_check int tracing_rearm(struct guest *g, const struct tracing_opts *opts, const u32 *site,
			     size_t n, struct tracing_counts *ret, struct err *err);

/* Counters of sites with AGENT_SITE_STACK since the agent was loaded; they only grow. */
struct tracing_stacks {
	u64 skipped; /* calls met while the agent had called into the guest: not recorded */
	u64 no_stack; /* records that were to have callers and have none */
};

/** tracing_stack_stats - no lock needed; false: cannot read */
bool tracing_stack_stats(struct guest *g, struct tracing_stacks *ret);

/** tracing_off - switch the agent off; sites stay armed. For a trace that failed. */
void tracing_off(struct guest *g);

#endif
