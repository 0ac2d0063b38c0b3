/* SPDX-License-Identifier: Apache-2.0 */
/* A call's steps: see agent_user.h. Only full.c includes it. */
#ifndef GUEST_AGENT_FULL_STEPS_H
#define GUEST_AGENT_FULL_STEPS_H

#include "guest-agent/full_path.h"
#include "guest-agent/full_user.h"

/* @n elements at @from. False: they are not there. */
static always_inline bool read_elements(struct user_read *u, agent_u64 from, agent_u64 n,
					agent_u32 max)
{
	agent_u32 bytes;

	if (u->s->each && n < AGENT_CAPTURE_UNKNOWN)
		n *= u->s->each;
	bytes = n < max ? (agent_u32)n : max;
	return !bytes ||
	       read_bytes(u, from, bytes, n < AGENT_CAPTURE_UNKNOWN ? (agent_u32)n : bytes);
}

__attribute__((noinline)) static bool read_step(struct user_read *u)
{
	const struct agent_user_step *s = u->s;
	agent_u32 max = at_most(s->max, AGENT_USER_MAX);
	agent_u64 from, n;

	u->number = 0;
	if (likely(s->op <= AGENT_USER_STRINGS || s->op == AGENT_USER_IOVEC)) {
		; /* a few reads until there is something to be recorded: with the gate open, if it is */
	} else if (u->entry) {
		write_entry(u, NULL);
	}
	if (s->op == AGENT_USER_ARGS)
		return read_args(u);
	if (s->op == AGENT_USER_FD) {
		read_fd(u,
			(agent_u32)(s->base == AGENT_USER_RESULT ? u->ret : user_arg(u, s->base)));
		return true;
	}
	if (!find_bytes(u, &from, &n))
		return false;
	if (!from)
		return true;
	switch (s->op) {
	case AGENT_USER_STRING:
		return read_string(u, from, max, 0);
	case AGENT_USER_STRINGS:
		return read_strings(u, from, max);
	case AGENT_USER_COUNT:
		return read_count(u, from);
	case AGENT_USER_IOVEC:
		return read_iovec(u, from, n);
	default:
		if (s->flags & AGENT_USER_RET && u->ret < n)
			n = u->ret;
		return read_elements(u, from, n, max);
	}
}

/* Two arguments of a call of the kernel's own ABI say what is to be read, and nothing else does: as write(). */
static always_inline bool is_plain(const struct user_read *u, agent_u32 flags)
{
	return u->s->op == AGENT_USER_BYTES && (u->s->ptr_at & u->s->len_at) < 0 &&
	       !(flags & (AGENT_USER_SP | AGENT_USER_LEN_PTR | AGENT_USER_RET)) && !is_compat(u);
}

/* An entry's step. */
static always_inline bool read_at_entry(struct user_read *u, agent_u32 flags)
{
	const agent_u16 *at = u->c->h->syscall_regs[0];
	agent_u32 base = READ_ONCE(u->s->base), len = READ_ONCE(u->s->len);
	agent_u64 from;

	if (!is_plain(u, flags) || base >= AGENT_MAX_ARGS || len >= AGENT_MAX_ARGS)
		return read_step(u);
	from = peek(u->regs + at[base]);
	return !from ||
	       read_elements(u, from, peek(u->regs + at[len]), at_most(u->s->max, AGENT_USER_MAX));
}

static bool step_applies(const struct user_read *u)
{
	const struct agent_user_step *s = u->s;

	return s->if_arg >= AGENT_MAX_ARGS ||
	       ((agent_u32)user_arg(u, s->if_arg) & s->if_mask) == s->if_value;
}

static const struct agent_user_step *first_step(const struct call *c, agent_u32 *n_ret)
{
	agent_u32 i = (c->what >> AGENT_SITE_USER_SHIFT & AGENT_SITE_USER_MASK) - 1;

	*n_ret = i < AGENT_USER_STEPS ? at_most(AGENT_USER_STEPS - i, AGENT_USER_RUN) : 0;
	return (const struct agent_user_step *)in_data(c->h, c->h->steps_off) + i;
}

/*
 * An entry's record, with the first that is read, and what else is; the gate is open, and closed then.
 * @left_ret: what is left for the call's end: AGENT_FRAME_USER if anything is, and AGENT_FRAME_RETRY bits. Most
 * calls that only pass memory on have nothing left. False: there is no room for the record.
 */
__attribute__((noinline)) static bool user_entry(struct call *c, const struct full_regs *r,
						 agent_u32 parent, agent_u32 *left_ret)
{
	struct user_read u = { .c = c, .regs = r->arg[0], .entry = r, .parent = parent };
	agent_u32 n, left = 0;

	u.s = first_step(c, &n);
	for (agent_u32 i = 0; i < n; i++, u.s++) {
		agent_u32 flags = READ_ONCE(u.s->flags);

		u.key = u.s->tag;
		if (!step_applies(&u))
			; /* nor does it at the end */
		else if (flags & AGENT_USER_AT_EXIT)
			left |= AGENT_FRAME_USER;
		else if (!read_at_entry(&u, flags) && i < RETRIES)
			left |= AGENT_FRAME_USER | (agent_u32)AGENT_FRAME_RETRY << i;
		if (flags & AGENT_USER_LAST || unlikely(u.refused))
			break;
	}
	if (u.entry)
		write_entry(&u, NULL);
	*left_ret = left;
	return !u.refused;
}

/*
 * Before the return's record, and a tick earlier. What failed at the entry is there by now if the kernel
 * itself has read it.
 */
__attribute__((noinline)) static void user_exit(struct call *c, agent_u64 regs, agent_u32 state,
						agent_u64 ret)
{
	struct user_read u = { .c = c, .regs = regs, .ret = ret };
	bool failed = ret >= -(agent_u64)4095;
	agent_u32 n;

	c->tsc--;
	u.s = first_step(c, &n);
	for (agent_u32 i = 0; i < n; i++, u.s++) {
		agent_u32 flags = READ_ONCE(u.s->flags);
		bool again = i < RETRIES && state & (agent_u32)AGENT_FRAME_RETRY << i;

		u.key = u.s->tag | AGENT_USER_EXIT;
		if (u.s->op == AGENT_USER_ARGS)
			u.key |= AGENT_USER_MM;
		if ((again ||
		     (flags & AGENT_USER_AT_EXIT && failed == !!(flags & AGENT_USER_ERROR))) &&
		    step_applies(&u) && !read_step(&u))
			record_failed(&u, 0);
		if (flags & AGENT_USER_LAST)
			break;
	}
	c->tsc++;
}

#endif
