// SPDX-License-Identifier: Apache-2.0
/* Return addresses back where they belong. See frames.h. */
#include "patcher/frames_priv.h"

#include "base/fault.h"

#include <errno.h>
#include <stdlib.h>

int frames_candidates(struct frames *f, u32 **ret, u32 *n_ret)
{
	_cleanup_snapshot_ struct frames_snapshot s = { 0 };
	_cleanup_free_ u32 *v = NULL;
	int rc = frames_take_snapshot(f, &s);
	u64 cell;
	u32 n = 0;

	if (!rc && s.n)
		v = malloc(s.n * sizeof(*v));
	if (!rc && s.n && !v)
		rc = -ENOMEM;
	for (u32 i = 0; !rc && i < s.n; i++) {
		const struct frames_copy *c = &s.v[i];

		if (!frames_has_cell(&c->f))
			continue;
		rc = frames_read_u64(f, c->f.slot, &cell);
		if (!rc)
			v[n++] = c->n;
		rc = rc == -EFAULT ? 0 : rc;
	}
	if (rc)
		return rc;
	*ret = no_cleanup_ptr(v);
	*n_ret = n;
	return 0;
}

static int note_cell(struct frames *f, u64 addr, u64 value)
{
	if (f->n_cells == f->max_cells) {
		u32 max = MAX(f->max_cells * 2, 256u);
		struct frames_cell *more = reallocarray(f->cells, max, sizeof(*more));

		if (!more)
			return -ENOMEM;
		f->cells = more;
		f->max_cells = max;
	}
	f->cells[f->n_cells++] = (struct frames_cell){ addr, value };
	return 0;
}

int frames_shorten_cells(struct frames *f)
{
	u32 kept = 0;

	for (u32 i = 0; i < f->n_cells; i++) {
		u64 now;
		int rc = frames_read_u64(f, f->cells[i].addr, &now);

		if (rc && rc != -EFAULT)
			return rc;
		if (!rc && now == f->cells[i].value)
			f->cells[kept++] = f->cells[i];
	}
	f->n_cells = kept;
	return 0;
}

/*
 * A cell that does not hold the frame's trampoline. Where it holds the true address, the entry has not
 * written it yet, or the handler has, or it was put back by a daemon that died before it could give the
 * frame back: over, once nobody is on the way. If that call has returned since, only put_back tells, which
 * is written before the cell. Idle tasks leave calls without a return when their CPU
 * goes offline, and begin a new stack on top. Anything else is not for us to judge: the guest's own
 * tracing may know our address, and have it nowhere but in its own memory while its handler runs.
 */
static int note_without_cell(struct frames *f, u32 n, const struct agent_frame *fr, u64 cell)
{
	u64 final;
	u32 other;

	if (frames_is_trampoline(f, cell, &other) || frames_is_foreign(f, cell))
		return 0;
	if (fr->pid && fr->put_back != (u32)fr->tsc &&
	    (frames_walk_chain(f, NULL, fr, &final) || cell != final))
		return 0;
	f->restored[n] = (struct frames_life){ n, fr->slot, fr->tsc, cell };
	return note_cell(f, fr->slot, cell);
}

static int mark_put_back(struct frames *f, u32 n, u64 tsc)
{
	const u32 low = (u32)tsc;

	return f->io.data_write(f->io.arg,
				frames_off_of(f, n) + offsetof(struct agent_frame, put_back), &low,
				sizeof(low));
}

int frames_put_back(struct frames *f, u32 n)
{
	struct agent_frame fr;
	u64 cell, final, now;
	int rc = frames_read(f, n, &fr);

	/* the task is about to write our address back, within microseconds: the next round finds it */
	if (rc || !frames_has_cell(&fr) || fr.state & AGENT_FRAME_TRUE)
		return rc;
	rc = frames_read_u64(f, fr.slot, &cell);
	if (!rc && cell != frames_trampoline(f, n))
		return note_without_cell(f, n, &fr, cell);
	if (!rc)
		rc = frames_walk_chain(f, NULL, &fr, &final);
	if (rc)
		return rc == -EFAULT || rc == -ENOENT ? 0 : rc;
	rc = note_cell(f, fr.slot, final);
	if (!rc)
		rc = mark_put_back(f, n, fr.tsc);
	for (u32 i = 0; !rc && i < f->n_chain; i++)
		rc = mark_put_back(f, f->chain[i].n, f->chain[i].tsc);
	if (!rc)
		rc = f->io.write(f->io.arg, fr.slot, &final, sizeof(final));
	if (!rc)
		rc = frames_read_u64(f, fr.slot, &now);
	if (rc || now != final)
		return rc == -ESRCH || rc == -ENOMEM ? rc : -EPERM;
	f->restored[n] = (struct frames_life){ n, fr.slot, fr.tsc, final };
	for (u32 i = 0; i < f->n_chain; i++) {
		f->chain[i].put_back = final;
		f->restored[f->chain[i].n] = f->chain[i];
	}
	fault_point("graph.restored");
	return 1;
}

int frames_settle(struct frames *f)
{
	_cleanup_snapshot_ struct frames_snapshot s = { 0 };
	int rc = frames_take_snapshot(f, &s);

	for (u32 i = 0; !rc && i < s.n; i++) {
		struct frames_copy *c = &s.v[i];
		u64 cell = 0;

		if (!frames_was_restored(f, c->n, &c->f))
			continue;
		rc = frames_read_u64(f, c->f.slot, &cell);
		/* written again by somebody who had read it before; or by the guest's kretprobe, which
		 * then knows our address in its place */
		if ((rc && rc != -EFAULT) || cell == frames_trampoline(f, c->n) ||
		    (frames_is_foreign(f, cell) && cell != f->restored[c->n].put_back))
			continue;
		rc = 0;
		c->verdict = QUIET;
	}
	/* the others' handlers gave them back meanwhile */
	for (u32 n = 0; !rc && n < f->nr; n++) {
		const struct frames_copy *c = frames_find(&s, n);

		if (!c || !frames_was_restored(f, n, &c->f))
			f->restored[n].slot = 0;
	}
	if (!rc)
		rc = frames_finish(f, &s, NULL, NULL);
	if (!rc)
		fault_point("graph.settled");
	return rc;
}
