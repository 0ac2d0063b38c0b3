// SPDX-License-Identifier: Apache-2.0
/* The guest's tasks. See tasks.h. */
#include "patcher/tasks.h"

#include "base/clock.h"

#include <errno.h>

#define WALK_NS  (5 * NSEC_PER_SEC)
#define AGAIN_NS (100000ull)
#define MAX_TASKS \
	4194304u /* v6.1 include/linux/threads.h PID_MAX_LIMIT: more is a list that loops */

struct walk {
	struct guest *g;
	u32 tasks, thread_node, signal, thread_head, next, prev; /* offsets */
	u32 n;
	u64 deadline;
	bool (*fn)(void *arg, u64 task);
	void *arg;
	bool ended;
};

static int offsets(struct walk *w, struct err *err)
{
	const struct {
		const char *type, *path;
		u32 *ret;
	} want[] = {
		{ "task_struct", "tasks", &w->tasks },
		{ "task_struct", "thread_node", &w->thread_node },
		{ "task_struct", "signal", &w->signal },
		{ "signal_struct", "thread_head", &w->thread_head },
		{ "list_head", "next", &w->next },
		{ "list_head", "prev", &w->prev },
	};

	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		if (kernel_btf_offset(w->g->k, want[i].type, want[i].path, want[i].ret))
			return err_set(err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0,
				       "this kernel's struct %s has no %s", want[i].type,
				       want[i].path);
	}
	return 0;
}

static int no_end(u64 at, struct err *err)
{
	return err_set(err, -EUCLEAN, ERR_GUEST_MEMORY, at, "the guest's list of tasks has no end");
}

/* Also by time: a list that loops must not keep the guest lock. */
static bool too_many(struct walk *w)
{
	return ++w->n > MAX_TASKS || (w->n % 1024 == 0 && monotonic_ns() > w->deadline);
}

/*
 * From the list_head @at, which was reached from @from, to the next one. What was unlinked leads on (RCU). But its task
 * may be a new one by now, at the end of the list or in another list, and all that was behind it would be passed over.
 * Then @from is not before it; that is looked at last, so that no next of its new life is taken.
 * -EAGAIN: so it was.
 */
static int step(struct walk *w, u64 from, u64 at, u64 *next_ret)
{
	u64 prev;

	if (guest_read(w->g, at + w->next, next_ret, 8, NULL) ||
	    guest_read(w->g, at + w->prev, &prev, 8, NULL) || prev != from)
		return -EAGAIN;
	return 0;
}

static int threads(struct walk *w, u64 leader, struct err *err)
{
	u64 signal, head, from, node;
	int rc = 0;

	if (guest_read(w->g, leader + w->signal, &signal, 8, NULL))
		return -EAGAIN;
	if (!signal) {
		w->ended = !w->fn(w->arg, leader);
		return 0;
	}
	head = from = signal + w->thread_head;
	if (guest_read(w->g, head + w->next, &node, 8, NULL))
		return -EAGAIN;
	while (!rc && node != head && !w->ended) {
		u64 at = node;

		if (too_many(w))
			return no_end(head, err);
		rc = step(w, from, at, &node);
		if (!rc)
			w->ended = !w->fn(w->arg, at - w->thread_node);
		from = at;
	}
	return rc;
}

/* All tasks, or -EAGAIN: one ended under us, and its place in the list with it. */
static int walk(struct walk *w, u64 init, struct err *err)
{
	u64 head = init + w->tasks, from = head, at, next;
	int rc = threads(w, init, err);

	if (!rc && guest_read(w->g, head + w->next, &at, 8, err))
		return -EFAULT;
	while (!rc && !w->ended && at != head) {
		if (too_many(w))
			return no_end(init, err);
		rc = step(w, from, at, &next);
		if (!rc)
			rc = threads(w, at - w->tasks, err);
		from = at;
		at = next;
	}
	return rc;
}

int tasks_for_each(struct guest *g, bool (*fn)(void *arg, u64 task), void *arg, struct err *err)
{
	struct walk w = { .g = g, .fn = fn, .arg = arg, .deadline = monotonic_ns() + WALK_NS };
	u64 init;
	int rc;

	if (kernel_sym(g->k, "init_task", &init))
		return err_set(err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0,
			       "the kernel has no init_task");
	rc = offsets(&w, err);
	if (rc)
		return rc;
	for (;;) {
		w.n = 0;
		rc = walk(&w, init, err);
		if (rc != -EAGAIN || monotonic_ns() > w.deadline)
			break;
		guest_sleep_ns(AGAIN_NS);
	}
	return rc != -EAGAIN ? rc
			     : err_set(err, -EBUSY, ERR_GUEST_BUSY, init,
				       "the guest's list of tasks changes faster than it is read");
}

struct find {
	struct guest *g;
	u32 pid_off;
	u32 pid;
	u64 task;
};

static bool is_it(void *arg, u64 task)
{
	struct find *f = arg;
	u32 pid;

	if (guest_read(f->g, task + f->pid_off, &pid, sizeof(pid), NULL) || pid != f->pid)
		return true;
	f->task = task;
	return false;
}

int guest_find_task(struct guest *g, u32 pid, char *comm_ret, u32 *tgid_ret, struct err *err)
{
	struct find f = { .g = g, .pid = pid };
	u32 comm_off, tgid_off;
	int rc;

	if (kernel_btf_offset(g->k, "task_struct", "pid", &f.pid_off) ||
	    kernel_btf_offset(g->k, "task_struct", "tgid", &tgid_off) ||
	    kernel_btf_offset(g->k, "task_struct", "comm", &comm_off))
		return err_set(err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0,
			       "this kernel's struct task_struct has no pid, tgid or comm");
	rc = tasks_for_each(g, is_it, &f, err);
	if (rc)
		return rc;
	if (!f.task)
		return err_set(err, -ESRCH, ERR_FILTER_PID, 0, "the guest has no task with pid %u",
			       pid);
	comm_ret[16] = 0; /* v6.1 include/linux/sched.h TASK_COMM_LEN */
	rc = guest_read(g, f.task + comm_off, comm_ret, 16, err);
	return rc ? rc : guest_read(g, f.task + tgid_off, tgid_ret, sizeof(*tgid_ret), err);
}
