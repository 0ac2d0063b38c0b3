/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who called: the guest's own unwinder, asked through the gate. Only full.c includes it.
 *
 * It knows no function at a trampoline's address and would end at the first hijacked return. So for the time
 * that it runs, those of this task get their true addresses back. Nobody can tell: interrupts are off, what
 * an NMI calls is skipped and returns to where it came from, and another task has no business on this
 * one's stack. To the host each such frame says so itself (AGENT_FRAME_TRUE), and its task is in the gate.
 */
#ifndef GUEST_AGENT_FULL_STACK_H
#define GUEST_AGENT_FULL_STACK_H

#include "guest-agent/full_call.h"

#define TAILS_MAX 16 /* tail calls on one cell */
#define CHAIN_MAX 256 /* calls around this one that are looked at */
#define KERNEL_CS \
	0x10 /* v2.6.0+ arch/x86/include/asm/segment.h: any with the privilege of the kernel */
#define STACK_CELL 8

static agent_u64 trampoline(agent_u32 n)
{
	return trampolines() + (agent_u64)n * AGENT_TRAMP_BYTES;
}

/* Where a return to @ret from the cell at @slot gets to in the end; 0: it cannot be told. */
static agent_u64 true_return(const struct call *c, agent_u64 ret, agent_u64 slot)
{
	for (agent_u32 i = 0; i < TAILS_MAX; i++) {
		agent_u64 off = ret - trampolines();
		const struct agent_frame *f;

		if (off >= (agent_u64)c->h->nr_frames * AGENT_TRAMP_BYTES)
			return ret;
		f = frame_at((agent_u32)(off / AGENT_TRAMP_BYTES));
		if (READ_ONCE(f->slot) != slot)
			return 0;
		ret = f->ret;
	}
	return 0;
}

/* A cell of a stack of ours: the task's, or one that its interrupts are on. */
static agent_u64 *cell_of(const struct agent_frame *f)
{
	return (agent_u64 *)f->slot; /* NOLINT(performance-no-int-to-ptr) */
}

/*
 * The frame is innermost on its cell where that leads to it, and then in use: not even the host, which
 * may take back others meanwhile, takes such a one. Those of calls that it tail-called for say the same.
 */
static agent_u32 mark_frames(const struct call *c, struct agent_scratch *s, agent_u32 outer)
{
	agent_u64 born = task_start_time(c->task), slot = 0;
	agent_u32 n = 0, at = outer - 1;

	for (agent_u32 i = 0; i < CHAIN_MAX && n < AGENT_MAX_STACK && at < c->h->nr_frames; i++) {
		struct agent_frame *f = frame_at(at);

		if (READ_ONCE(f->slot) <= AGENT_ORPHAN || f->owner != c->task ||
		    f->start_time < born)
			break;
		if (f->slot == slot || READ_ONCE(*cell_of(f)) == trampoline(at)) {
			slot = f->slot;
			s->shown[n++] = at;
			WRITE_ONCE(f->state, f->state | AGENT_FRAME_TRUE);
		}
		at = f->prev - 1;
	}
	return n;
}

static agent_u32 show_returns(const struct call *c, struct agent_scratch *s, agent_u32 outer)
{
	agent_u32 n = mark_frames(c, s, outer);

	for (agent_u32 i = 0; i < n; i++) {
		const struct agent_frame *f = frame_at(s->shown[i]);
		agent_u64 ret = true_return(c, f->ret, f->slot);

		if (ret && READ_ONCE(*cell_of(f)) == trampoline(s->shown[i]))
			WRITE_ONCE(*cell_of(f), ret);
	}
	return n;
}

static void hide_returns(const struct call *c, const struct agent_scratch *s, agent_u32 n)
{
	for (agent_u32 i = 0; i < n; i++) { /* the innermost of a cell first: it is its own again */
		struct agent_frame *f = frame_at(s->shown[i]);

		if (READ_ONCE(*cell_of(f)) == true_return(c, f->ret, f->slot))
			WRITE_ONCE(*cell_of(f), trampoline(s->shown[i]));
		WRITE_ONCE(f->state, f->state & ~(agent_u32)AGENT_FRAME_TRUE);
	}
}

static void put_reg(const struct call *c, struct agent_scratch *s, agent_u32 i, agent_u64 v)
{
	agent_u32 off = c->h->stack_regs[i];

	if (off <= AGENT_SCRATCH_REGS - sizeof(v))
		*(agent_u64 *)(s->regs + off) = v;
}

/*
 * As if the caller had been interrupted within its call instruction: what is unwound by is then that
 * instruction's state, and not that of a function which may begin behind a call that does not return. The
 * unwinder tells of that address first, it is left out.
 */
static agent_u32 unwind(const struct call *c, struct agent_scratch *s, agent_u64 cell, agent_u64 bp,
			agent_u32 outer)
{
	agent_u32 max = c->h->stack_max - 1, shown, n;

	if (!(c->h->calls & AGENT_CALL_STACK) || !max || max >= AGENT_MAX_STACK)
		return 0;
	put_reg(c, s, 0, s->word[0] - 1);
	put_reg(c, s, 1, cell + STACK_CELL);
	put_reg(c, s, 2, bp);
	put_reg(c, s, 3, KERNEL_CS);
	shown = show_returns(c, s, outer);
	n = (agent_u32)guest_call_stack((agent_u64)s->regs, (agent_u64)&s->word[1], max, 1);
	hide_returns(c, s, shown);
	return n <= max ? n : 0;
}

/* The first address that is ours, as behind a return that the guest keeps elsewhere, ends it. */
static agent_u32 true_callers(const struct call *c, const struct agent_scratch *s, agent_u32 n)
{
	agent_u64 bytes = AGENT_TEXT_BYTES + (agent_u64)c->h->nr_frames * AGENT_TRAMP_BYTES;

	for (agent_u32 i = 0; i < n; i++) {
		if (s->word[i] - c->h->text < bytes || !s->word[i])
			return i;
	}
	return n;
}

/*
 * The callers of the call whose return address, @ret, is or was at @cell, inside frame @outer (number + 1, or
 * 0). Where that worked the gate is open afterwards, until gate_close().
 */
__attribute__((noinline)) static void take_stack(struct call *c, agent_u64 ret,
						 const agent_u64 *cell, agent_u64 bp,
						 agent_u32 outer)
{
	agent_u64 va = (agent_u64)cell;
	struct agent_scratch *s;

	if (unlikely(!gate_open(c))) {
		count(&c->cpu->no_stack);
		return;
	}
	s = scratch(c);
	s->word[0] = true_return(c, ret, va);
	if (s->word[0])
		c->n_stack = true_callers(c, s, 1 + unwind(c, s, va, bp, outer));
}

#endif
