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

struct look {
	struct guest *g;
	const struct tracing_opts *opts;
	u64 *set;
	u32 pid, tgid, parent; /* offsets in task_struct */
	bool forks; /* also tasks whose parent is in the set */
	u32 added[ADDED_MAX];
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

static bool parent_in_set(const struct look *l, u64 task)
{
	u64 parent;
	u32 pid;

	return l->forks && !guest_read(l->g, task + l->parent, &parent, 8, NULL) &&
	       !guest_read(l->g, parent + l->pid, &pid, 4, NULL) && pid && in_set(l->set, pid);
}

static bool look_at(void *arg, u64 task)
{
	struct look *l = arg;
	u32 pid, tgid;

	if (guest_read(l->g, task + l->pid, &pid, 4, NULL) ||
	    guest_read(l->g, task + l->tgid, &tgid, 4, NULL) || !pid || in_set(l->set, pid))
		return true;
	if (!asked_for(l, pid, tgid) && !parent_in_set(l, task))
		return true;
	if (l->forks && l->n_added == ADDED_MAX) { /* the next look finds it */
		l->more = true;
		return true;
	}
	add(l->set, pid);
	if (l->forks && l->n_added < ADDED_MAX)
		l->added[l->n_added++] = pid;
	l->more = true;
	return true;
}

static int look_init(struct look *l, struct guest *g, const struct tracing_opts *opts,
		     struct err *err)
{
	*l = (struct look){ .g = g, .opts = opts };
	if (kernel_btf_offset(g->k, "task_struct", "pid", &l->pid) ||
	    kernel_btf_offset(g->k, "task_struct", "tgid", &l->tgid) ||
	    kernel_btf_offset(g->k, "task_struct", "real_parent", &l->parent))
		return err_set(err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0,
			       "this kernel's struct task_struct has no pid, tgid or real_parent");
	l->set = calloc(BYTES / sizeof(*l->set), sizeof(*l->set));
	return l->set ? 0 : err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory to follow tasks");
}

int follow_begin(struct guest *g, const struct tracing_opts *opts, struct err *err)
{
	struct look l;
	int rc = look_init(&l, g, opts, err);

	if (!rc)
		rc = tasks_for_each(g, look_at, &l, err);
	if (!rc)
		rc = agent_write_header(g, g->agent.header.followed_off, l.set, BYTES, err);
	free(l.set);
	return rc;
}

/* A bit each, in the guest's own words: nothing runs that could change them meanwhile. */
static int put(struct look *l, struct err *err)
{
	struct guest *g = l->g;
	int rc = guest_pause(g, err);

	if (rc)
		return rc;
	for (size_t i = 0; !rc && i < l->n_added; i++) {
		u64 off = g->agent.header.followed_off + (l->added[i] & AGENT_PID_MASK) / 64 * 8;
		u64 word;

		rc = vm_view_read(g->agent.view, off, &word, sizeof(word));
		word |= 1ull << (l->added[i] % 64);
		if (!rc)
			rc = vm_view_write(g->agent.view, off, &word, sizeof(word));
	}
	if (rc)
		(void)err_set(err, rc, ERR_VMM_GONE, g->agent.data,
			      "cannot write the agent's memory");
	if (vm_resume(g->vm, rc ? NULL : err))
		return rc ? rc : -EIO;
	return rc;
}

int follow_again(struct guest *g, const struct tracing_opts *opts, struct err *err)
{
	struct look l;
	int rc = look_init(&l, g, opts, err);

	if (!rc && vm_view_read(g->agent.view, g->agent.header.followed_off, l.set, BYTES))
		rc = err_set(err, -EIO, ERR_VMM_GONE, g->agent.data,
			     "cannot read the agent's memory");
	l.forks = l.more = true;
	for (int pass = 0; !rc && l.more && pass < PASSES; pass++) {
		l.more = false;
		l.n_added = 0;
		rc = tasks_for_each(g, look_at, &l, err);
		if (!rc && l.n_added)
			rc = put(&l, err);
	}
	free(l.set);
	return rc;
}
