// SPDX-License-Identifier: Apache-2.0
/* Tasks that are followed from the start. See follow.h. */
#include "patcher/follow.h"

#include "base/cleanup.h"
#include "patcher/agent.h"
#include "patcher/tasks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BYTES     (AGENT_FOLLOWED_WORDS * sizeof(agent_u64))
#define PASSES    8 /* generations that are found, should a child come before its parent in the list */
#define ADDED_MAX 256u /* in one stop window */
#define EXIT_DEAD 0x10u /* v6.1 include/linux/sched.h; the same in v6.12 */

struct added {
	u64 task;
	u32 pid;
};

struct look {
	struct guest *g;
	const struct tracing_opts *opts;
	u64 *set;
	u64 *alive; /* pids that a walk has met */
	u32 pid, tgid, parent, exit_state; /* offsets in task_struct */
	bool forks; /* also tasks whose parent is in the set */
	struct added added[ADDED_MAX];
	size_t n_added;
	bool more;
};

static bool in_set(const u64 *set, u32 pid)
{
	return set[(pid & AGENT_PID_MASK) / 64] >> (pid % 64) & 1;
}

static void add(u64 *set, u32 pid)
{
	set[(pid & AGENT_PID_MASK) / 64] |= 1ull << (pid % 64);
}

static bool asked_for(const struct look *l, u32 pid, u32 tgid)
{
	for (size_t i = 0; i < l->opts->n_pids; i++) {
		if (l->opts->pids[i] == pid || l->opts->pids[i] == tgid)
			return true;
	}
	return false;
}

static bool is_pid_in_set(const struct look *l, u64 task)
{
	u32 pid;

	return !guest_read(l->g, task + l->pid, &pid, 4, NULL) && pid && in_set(l->set, pid);
}

/* Forked by one that is followed, or a thread of one: its parent is that one's parent. */
static bool family_in_set(const struct look *l, u64 task, u32 tgid)
{
	u64 parent;

	return l->forks &&
	       (in_set(l->set, tgid) || (!guest_read(l->g, task + l->parent, &parent, 8, NULL) &&
					 is_pid_in_set(l, parent)));
}

static bool look_at(void *arg, u64 task)
{
	struct look *l = arg;
	u32 pid, tgid;

	if (guest_read(l->g, task + l->pid, &pid, 4, NULL) ||
	    guest_read(l->g, task + l->tgid, &tgid, 4, NULL) || !pid || in_set(l->set, pid))
		return true;
	if (!asked_for(l, pid, tgid) && !family_in_set(l, task, tgid))
		return true;
	l->more = true;
	if (l->forks && l->n_added == ADDED_MAX) /* the next look finds it */
		return true;
	add(l->set, pid);
	if (l->forks)
		l->added[l->n_added++] = (struct added){ task, pid };
	return true;
}

static bool note_alive(void *arg, u64 task)
{
	struct look *l = arg;
	u32 pid;

	if (!guest_read(l->g, task + l->pid, &pid, 4, NULL))
		add(l->alive, pid);
	return true;
}

static void look_deinit(struct look *l)
{
	free(l->set);
	free(l->alive);
}

static int look_init(struct look *l, struct guest *g, const struct tracing_opts *opts,
		     struct err *err)
{
	*l = (struct look){ .g = g, .opts = opts };
	if (kernel_btf_offset(g->k, "task_struct", "pid", &l->pid) ||
	    kernel_btf_offset(g->k, "task_struct", "tgid", &l->tgid) ||
	    kernel_btf_offset(g->k, "task_struct", "exit_state", &l->exit_state) ||
	    kernel_btf_offset(g->k, "task_struct", "real_parent", &l->parent))
		return err_set(err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0,
			       "this kernel's struct task_struct has no pid, tgid, exit_state or "
			       "real_parent");
	l->set = calloc(AGENT_FOLLOWED_WORDS, sizeof(*l->set));
	l->alive = calloc(AGENT_FOLLOWED_WORDS, sizeof(*l->alive));
	if (l->set && l->alive)
		return 0;
	look_deinit(l);
	l->set = l->alive = NULL;
	return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory to follow tasks");
}

int follow_begin(struct guest *g, const struct tracing_opts *opts, struct err *err)
{
	struct look l;
	int rc = look_init(&l, g, opts, err);

	if (!rc)
		rc = tasks_for_each(g, look_at, &l, err);
	if (!rc)
		rc = agent_write_header(g, g->agent.header.followed_off, l.set, BYTES, err);
	look_deinit(&l);
	return rc;
}

/* In a window: nothing runs that could change the guest's words meanwhile. */
static int change(struct look *l, u32 pid, u64 drop, u64 put)
{
	struct guest *g = l->g;
	u64 off = g->agent.header.followed_off + (pid & AGENT_PID_MASK) / 64 * 8, word, now;
	int rc = vm_view_read(g->agent.view, off, &word, sizeof(word));

	now = (word & ~drop) | put;
	return rc || now == word ? rc : vm_view_write(g->agent.view, off, &now, sizeof(now));
}

static int end_window(struct look *l, int rc, struct err *err)
{
	if (rc)
		(void)err_set(err, rc, ERR_VMM_GONE, l->g->agent.data,
			      "cannot write the agent's memory");
	if (vm_resume(l->g->vm, rc ? NULL : err))
		return rc ? rc : -EIO;
	return rc;
}

/* It is that task still, and the agent will see its release_task(): v6.1 kernel/exit.c sets EXIT_DEAD before. */
static bool will_be_seen(struct look *l, const struct added *a)
{
	u32 pid, exit_state;

	return !guest_read(l->g, a->task + l->pid, &pid, 4, NULL) && pid == a->pid &&
	       !guest_read(l->g, a->task + l->exit_state, &exit_state, 4, NULL) &&
	       exit_state != EXIT_DEAD;
}

static int put(struct look *l, struct err *err)
{
	int rc = guest_pause(l->g, err);

	if (rc)
		return rc;
	for (size_t i = 0; !rc && i < l->n_added; i++) {
		u32 pid = l->added[i].pid;
		u64 bit = 1ull << (pid % 64);

		if (will_be_seen(l, &l->added[i]))
			rc = change(l, pid, 0, bit);
		else
			l->set[(pid & AGENT_PID_MASK) / 64] &= ~bit;
	}
	return end_window(l, rc, err);
}

static int drop_words(struct look *l, u32 *word, struct err *err)
{
	int rc = guest_pause(l->g, err);

	if (rc)
		return rc;
	for (u32 n = 0; !rc && *word < AGENT_FOLLOWED_WORDS && n < ADDED_MAX; ++*word) {
		u64 dead = l->set[*word] & ~l->alive[*word];

		if (!dead)
			continue;
		rc = change(l, *word * 64, dead, 0);
		l->set[*word] &= ~dead;
		n++;
	}
	return end_window(l, rc, err);
}

/*
 * Tasks that ended while their release_task() was not seen: they are in the set, and whoever gets their pid would be
 * followed. One that was in the set when that was read, and alive, was on the list from before until its release_task():
 * so a walk from then on misses none. (If the pid is already that of one which is followed, the looks that come now add
 * it again.)
 */
static int drop_dead(struct look *l, struct err *err)
{
	int rc = tasks_for_each(l->g, note_alive, l, err);
	u32 word = 0;

	while (!rc) {
		while (word < AGENT_FOLLOWED_WORDS && !(l->set[word] & ~l->alive[word]))
			word++;
		if (word == AGENT_FOLLOWED_WORDS)
			break;
		rc = drop_words(l, &word, err);
	}
	return rc;
}

int follow_again(struct guest *g, const struct tracing_opts *opts, struct err *err)
{
	struct look l;
	int rc = look_init(&l, g, opts, err);

	if (!rc && vm_view_read(g->agent.view, g->agent.header.followed_off, l.set, BYTES))
		rc = err_set(err, -EIO, ERR_VMM_GONE, g->agent.data,
			     "cannot read the agent's memory");
	if (!rc)
		rc = drop_dead(&l, err);
	l.forks = l.more = true;
	for (int pass = 0; !rc && l.more && pass < PASSES; pass++) {
		l.more = false;
		l.n_added = 0;
		rc = tasks_for_each(g, look_at, &l, err);
		if (!rc && l.n_added)
			rc = put(&l, err);
	}
	look_deinit(&l);
	return rc;
}
