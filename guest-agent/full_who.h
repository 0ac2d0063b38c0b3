/* SPDX-License-Identifier: Apache-2.0 */
/* Whose calls are asked for, and how that follows a task's forks. Only full.c includes it. */
#ifndef GUEST_AGENT_FULL_WHO_H
#define GUEST_AGENT_FULL_WHO_H

#include "guest-agent/full_record.h"

static agent_u64 *followed(const struct call *c, agent_u32 pid)
{
	return (agent_u64 *)in_data(c->h, c->h->followed_off) + (pid & AGENT_PID_MASK) / 64;
}

static bool is_followed(const struct call *c)
{
	return READ_ONCE(*followed(c, c->pid)) >> (c->pid % 64) & 1;
}

/*
 * The set of followed tasks grows before the new one runs, and a pid is taken out before it can be another
 * task's: v6.1 kernel/fork.c kernel_clone(), kernel/exit.c release_task(). Not at do_exit(): a thread that
 * calls execve() takes over the pid of its leader, which is released under the thread's old one (fs/exec.c
 * de_thread()).
 */
__attribute__((noinline)) static void follow_task(const struct call *c, const struct full_regs *r)
{
	agent_u64 task = r->arg[0];
	agent_u32 pid;

	if (!(c->h->options & AGENT_OPT_FOLLOW) || !in_kernel(c, task) || task & 7)
		return;
	pid = task_pid(task);
	if (c->what & AGENT_SITE_EXIT) {
		if (READ_ONCE(*followed(c, pid)) >> pid % 64 & 1)
			__atomic_fetch_and(followed(c, pid), ~(1ull << pid % 64), __ATOMIC_RELAXED);
	} else if (is_followed(c)) {
		__atomic_fetch_or(followed(c, pid), 1ull << pid % 64, __ATOMIC_RELAXED);
	}
}

/* The host may change list and length at any time. */
__attribute__((noinline)) static bool pid_chosen(const struct call *c)
{
	agent_u32 n = READ_ONCE(c->h->n_pids);

	if (unlikely(c->h->options & AGENT_OPT_UIDS) && c->h->uid != task_uid(c))
		return false;
	if (unlikely(c->h->options & AGENT_OPT_FOLLOW))
		return is_followed(c);
	if (likely(!n))
		return true;
	if (n > AGENT_MAX_PIDS)
		return false;
	while (n--) {
		if (READ_ONCE(c->h->pids[n]) == c->pid)
			return true;
	}
	return false;
}

static void record_switch(struct call *c, agent_u64 prev)
{
	agent_u64 low36;
	agent_s64 at;

	/* a clone of the function might have lost its parameter: then nobody ran before */
	if (unlikely((prev ^ c->task) >> 63 || prev & 7))
		prev = c->task;
	name_task(c->cpu, c->cpu_no, c->task, c->pid);
	low36 = record_low36(c->task, c->pid, AGENT_REC_SWITCH);
	c->tsc = rdtsc();
	at = reserve(c, 1);
	if (unlikely(at < 0))
		count(&c->cpu->lost);
	else
		store(c, at, task_pid(prev), low36);
}

/* What a site has that is no call of its own. */
#define SITE_EVENTS (AGENT_SITE_FORK | AGENT_SITE_EXIT | AGENT_SITE_SWITCH)

/* False: that was all. */
__attribute__((noinline)) static bool site_event(struct call *c, const struct full_regs *r)
{
	if (c->what & (AGENT_SITE_FORK | AGENT_SITE_EXIT)) {
		follow_task(c, r);
		return false;
	}
	/* finish_task_switch(prev): prev is kept until it drops it */
	record_switch(c, r->arg[0]);
	return !(c->what & AGENT_SITE_HIDDEN);
}

#endif
