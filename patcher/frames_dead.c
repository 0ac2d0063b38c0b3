// SPDX-License-Identifier: Apache-2.0
/* Which frames are dead, and how they are given back. See frames.h. */
#include "patcher/frames_priv.h"

#include <errno.h>
#include <stdlib.h>

#define TASK_DEAD 0x80u /* v4.14+ include/linux/sched.h */
/* What one call does: a guest that makes up frames must not keep us for long. */
#define CELL_CHAIN_MAX 64u
#define CELL_DEAD_MAX  4096u

static bool chain_has(const struct frames *f, u32 n)
{
	for (u32 i = 0; i < f->n_chain; i++) {
		if (f->chain[i].n == n)
			return true;
	}
	return false;
}

/* A task_struct, which may be another's by now, or no task_struct at all. */
struct task {
	bool known;
	u64 start_time;
	bool ended;
};

/*
 * v6.1 kernel/sched/core.c do_task_dead(): sets TASK_DEAD while it runs, with preemption off, and
 * finish_task() clears on_cpu once its stack is not used any more. Hence in this order.
 */
static int read_task(const struct frames *f, u64 owner, struct task *ret)
{
	u64 state = 0, on_cpu = 0;
	int rc = -EFAULT;

	*ret = (struct task){ 0 };
	if (owner & KERNEL_HALF)
		rc = f->io.read(f->io.arg, owner + f->state, &state, f->state_bytes);
	if (!rc)
		rc = f->io.read(f->io.arg, owner + f->on_cpu, &on_cpu, f->on_cpu_bytes);
	if (!rc)
		rc = frames_read_u64(f, owner + f->start_time, &ret->start_time);
	if (rc)
		return rc == -EFAULT ? 0 : rc; /* cannot tell: taken for alive */
	ret->known = true;
	ret->ended = state == TASK_DEAD && !on_cpu;
	return 0;
}

/* Within one life start_time only goes down (v6.1 fs/exec.c de_thread()). */
static bool is_dead(const struct task *t, const struct agent_frame *fr)
{
	return t->known && (t->start_time > fr->start_time || t->ended);
}

static int by_owner(const void *a, const void *b, void *arg)
{
	const struct frames_copy *v = arg;
	u64 x = v[*(const u32 *)a].f.owner, y = v[*(const u32 *)b].f.owner;

	return x < y ? -1 : x > y;
}

static int by_slot(const void *a, const void *b, void *arg)
{
	const struct frames_copy *v = arg;
	u64 x = v[*(const u32 *)a].f.slot, y = v[*(const u32 *)b].f.slot;

	return x < y ? -1 : x > y;
}

/* Tasks are read after every frame was: one that had ended by then had when the frame was read, or
 * the frame is another's by now, and that is looked at again. */
static int judge_owners(struct frames *f, struct frames_snapshot *s, u32 *order)
{
	struct task t = { 0 };
	int rc = 0;

	qsort_r(order, s->n, sizeof(*order), by_owner, s->v);
	for (u32 i = 0; !rc && i < s->n; i++) {
		struct frames_copy *c = &s->v[order[i]];

		if (i == 0 || s->v[order[i - 1]].f.owner != c->f.owner)
			rc = read_task(f, c->f.owner, &t);
		if (c->verdict == IN_USE && is_dead(&t, &c->f))
			c->verdict = DEAD_OWNER;
	}
	return rc;
}

/*
 * Whom the cell that frames @order[0..n) share leads to. A frame that is on the way is alive. So is
 * one that leads to it: an entry that has not written the cell yet, or a return that has just put
 * there what it found; both have that one as their ret.
 */
static int judge_cell(struct frames *f, struct frames_snapshot *s, const u32 *order, u32 n)
{
	u64 slot = s->v[order[0]].f.slot, cell, final;
	struct frames_copy *top;
	u32 by;
	int rc = frames_read_u64(f, slot, &cell);

	if (rc)
		return rc == -EFAULT ? 0 : rc;
	if (!frames_is_trampoline(f, cell, &by))
		return 0;
	top = frames_find(s, by);
	if (!top || top->f.slot != slot)
		return 0;
	rc = frames_walk_chain(f, s, &top->f, &final);
	if (rc || frames_is_foreign(f, final) || f->n_chain > CELL_CHAIN_MAX)
		return rc == -ENOENT ? 0 : rc;
	for (u32 i = 0; i < f->n_chain; i++)
		frames_find(s, f->chain[i].n)->on_chain = true;
	for (u32 i = 0; i < n && s->n_dead_cell < CELL_DEAD_MAX; i++) {
		struct frames_copy *c = &s->v[order[i]];

		if (c != top && !c->on_chain && c->verdict == IN_USE &&
		    (s64)(top->f.tsc - c->f.tsc) > 0 && c->f.ret != frames_trampoline(f, by)) {
			c->verdict = DEAD_CELL;
			c->by = by;
			s->n_dead_cell++;
		}
	}
	return 0;
}

static int judge_cells(struct frames *f, struct frames_snapshot *s, u32 *order)
{
	int rc = 0;
	u32 end;

	qsort_r(order, s->n, sizeof(*order), by_slot, s->v);
	for (u32 i = 0; !rc && i < s->n; i = end) {
		const struct agent_frame *fr = &s->v[order[i]].f;

		for (end = i + 1; end < s->n && s->v[order[end]].f.slot == fr->slot;)
			end++;
		if (end - i > 1 && frames_has_cell(fr))
			rc = judge_cell(f, s, order + i, end - i);
	}
	return rc;
}

/* A stack that is not mapped is nobody's: vmalloc()ed ones (CONFIG_VMAP_STACK) go with their task. */
static int judge_stacks(struct frames *f, struct frames_snapshot *s)
{
	u64 cell;

	for (u32 i = 0; i < s->n; i++) {
		struct frames_copy *c = &s->v[i];
		int rc;

		if (c->verdict != IN_USE || !frames_has_cell(&c->f))
			continue;
		rc = frames_read_u64(f, c->f.slot, &cell);
		if (rc == -EFAULT)
			c->verdict = DEAD_STACK;
		else if (rc)
			return rc;
	}
	return 0;
}

/* What a frame that stays in use leads to stays in use. Each turns at most once, so this ends. */
static void keep_reachable(const struct frames *f, struct frames_snapshot *s)
{
	for (u32 i = 0; i < s->n; i++) {
		const struct frames_copy *from = &s->v[i];
		struct frames_copy *c;
		u32 n;

		if (from->verdict != IN_USE)
			continue;
		while (frames_is_trampoline(f, from->f.ret, &n) && (c = frames_find(s, n)) &&
		       c->verdict != IN_USE) {
			c->verdict = IN_USE;
			from = c;
		}
	}
}

/* 1: still so, looked at anew. Then the frame is read again, last. */
static int still_dead_cell(struct frames *f, const struct frames_snapshot *s,
			   const struct frames_copy *c)
{
	struct agent_frame top;
	u64 cell, final;
	int rc = frames_read(f, c->by, &top);

	if (!rc && !frames_same_life(&top, &frames_find(s, c->by)->f))
		return 0;
	if (!rc)
		rc = frames_walk_chain(f, NULL, &top, &final);
	if (!rc && (frames_is_foreign(f, final) || chain_has(f, c->n)))
		return 0;
	if (!rc)
		rc = frames_read_u64(f, c->f.slot, &cell);
	if (rc)
		return rc == -EFAULT || rc == -ENOENT ? 0 : rc;
	return cell == frames_trampoline(f, c->by);
}

static int confirm(struct frames *f, const struct frames_snapshot *s, const struct frames_copy *c)
{
	struct agent_frame now;
	struct task t;
	u64 cell = 0;
	int rc = 0;

	switch (c->verdict) {
	case DEAD_OWNER:
		rc = read_task(f, c->f.owner, &t);
		if (!rc && !is_dead(&t, &c->f))
			return 0;
		break;
	case DEAD_CELL:
		rc = still_dead_cell(f, s, c);
		if (rc <= 0)
			return rc;
		rc = 0;
		break;
	case DEAD_STACK:
		rc = frames_read_u64(f, c->f.slot, &cell);
		if (!rc)
			return 0;
		rc = rc == -EFAULT ? 0 : rc;
		break;
	default:
		break;
	}
	if (!rc)
		rc = frames_read(f, c->n, &now);
	return rc ? rc : frames_same_life(&now, &c->f);
}

/*
 * Into the reclaim ring: number first, then tail. The agent may take it from then on. 1: done; 0: the
 * guest's reclaim_head makes no sense, or the ring is full, which it cannot be by our own doing.
 */
static int give_back(struct frames *f, u32 n)
{
	const u64 free_slot = 0;
	const u32 entry = n + 1;
	u64 head = f->tail, tail = f->tail;
	int rc = 0;

	if (!f->discard)
		rc = f->io.data_read(f->io.arg, offsetof(struct agent_header, reclaim_head), &head,
				     sizeof(head));
	if (!rc && !f->discard)
		rc = f->io.data_read(f->io.arg, offsetof(struct agent_header, reclaim_tail), &tail,
				     sizeof(tail));
	if (rc)
		return rc;
	/* nobody but us writes it: it is of another time */
	if (tail != f->tail)
		return -ESTALE;
	if (head > f->tail || f->tail - head >= f->nr)
		return 0;
	rc = f->io.data_write(f->io.arg, frames_off_of(f, n) + offsetof(struct agent_frame, slot),
			      &free_slot, sizeof(free_slot));
	if (!rc)
		f->restored[n].slot = 0;
	if (rc || f->discard)
		return rc ? rc : 1;
	rc = f->io.data_write(f->io.arg, f->reclaim_off + 4 * (f->tail & (f->nr - 1)), &entry,
			      sizeof(entry));
	if (rc)
		return rc;
	f->tail++;
	rc = f->io.data_write(f->io.arg, offsetof(struct agent_header, reclaim_tail), &f->tail,
			      sizeof(f->tail));
	return rc ? rc : 1;
}

static void tell(const struct frames_copy *c,
		 void (*fn)(void *arg, const struct tracing_unreturned *u), void *arg)
{
	/* kernel and module text lies in the top 2 GiB */
	const struct tracing_unreturned u = { .ip = (u64)(s64)(s32)c->f.ip,
					      .parent = (u64)(s64)(s32)c->f.parent,
					      .tsc = c->f.tsc,
					      .pid = c->f.pid };

	/* a quiet frame's call has no entry record */
	if (fn && c->verdict != ORPHAN && c->verdict != QUIET && !(c->f.state & AGENT_FRAME_QUIET))
		fn(arg, &u);
}

int frames_finish(struct frames *f, struct frames_snapshot *s,
		  void (*fn)(void *arg, const struct tracing_unreturned *u), void *arg)
{
	bool asked = false;

	keep_reachable(f, s);
	for (u32 i = 0; i < s->n; i++) {
		const struct frames_copy *c = &s->v[i];
		int rc = c->verdict == IN_USE ? 0 : confirm(f, s, c);

		if (rc == 1 && !asked && !f->io.is_ours(f->io.arg))
			return -ESTALE;
		asked |= rc == 1;
		if (rc == 1)
			rc = give_back(f, c->n);
		if (rc < 0)
			return rc;
		if (rc)
			tell(c, fn, arg);
	}
	return 0;
}

int frames_collect(struct frames *f, bool cells,
		   void (*fn)(void *arg, const struct tracing_unreturned *u), void *arg)
{
	_cleanup_snapshot_ struct frames_snapshot s = { 0 };
	_cleanup_free_ u32 *order = NULL;
	int rc = frames_take_snapshot(f, &s);

	if (rc || !s.n)
		return rc;
	order = malloc(s.n * sizeof(*order));
	if (!order)
		return -ENOMEM;
	for (u32 i = 0; i < s.n; i++) {
		order[i] = i;
		if (s.v[i].f.slot == AGENT_ORPHAN)
			s.v[i].verdict = ORPHAN;
	}
	rc = judge_owners(f, &s, order);
	if (!rc)
		rc = judge_cells(f, &s, order);
	if (!rc && cells)
		rc = judge_stacks(f, &s);
	return rc ? rc : frames_finish(f, &s, fn, arg);
}
