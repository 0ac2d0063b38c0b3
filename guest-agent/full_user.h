/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program's memory and credentials, while it is in a system call: see agent_user.h. Only full.c includes
 * it. Unlike the rest of the agent this runs in process context alone, on a stack with nothing on it but
 * the call's own entry, so that it may take some of it.
 */
#ifndef GUEST_AGENT_FULL_USER_H
#define GUEST_AGENT_FULL_USER_H

#include "guest-agent/full_call.h"
#include "guest-agent/full_record.h"

#define USER_PAGE    4096u
#define STRING_PART  64u /* bytes of a string that are read at a time, to find its end */
#define POINTERS_MAX AGENT_USER_COUNTED
#define RETRIES      6 /* bits from AGENT_FRAME_RETRY on */

struct user_read {
	struct call *c;
	const struct agent_user_step *s;
	agent_u64 regs;
	agent_u64 key; /* without number */
	agent_u64 ret; /* of the call; at its end */
	/* The entry whose record what is read first goes into; NULL: it is written, or this is the call's end */
	const struct full_regs *entry;
	agent_u32 parent;
	agent_u32
		number; /* of read_bytes()'s next piece; of the step, whichever of its reads it is of */
	bool refused; /* it had no room: what would follow is nobody's */
};

/* The bytes of one record, as words; the compiler knows no memset() here. */
struct user_bytes {
	agent_u64 word[AGENT_CAPTURE_WORDS];
};

static inline bool in_process(void)
{
	return !(preempt_count() & (NMI_MASK | HARDIRQ_MASK | SOFTIRQ_OFFSET));
}

/*
 * By the guest's copy_from_user_nofault(): Linux v6.1 and v6.12 mm/maccess.c. With page faults disabled it fails
 * where it would have to wait, it checks the range itself, and a fault in it is the guest's own exception
 * table's. The gate is open for no longer than that; but from before the entry until its record is written.
 */
static always_inline bool read_user(const struct user_read *u, void *dst, agent_u64 from,
				    agent_u32 n)
{
	agent_u64 failed;

	if (!(u->c->h->calls & AGENT_CALL_COPY) || (!u->c->gate && !gate_open(u->c)))
		return false;
	failed = guest_call_copy((agent_u64)dst, from, n, 0);
	if (!u->entry)
		gate_close(u->c);
	return !failed;
}

__attribute__((noinline)) static bool from_user(const struct user_read *u, void *dst,
						agent_u64 from, agent_u32 n)
{
	return read_user(u, dst, from, n);
}

static agent_u32 in_page(agent_u64 p)
{
	return USER_PAGE - (agent_u32)(p & (USER_PAGE - 1));
}

static agent_u32 at_most(agent_u32 a, agent_u32 b)
{
	return a < b ? a : b;
}

static bool is_compat(const struct user_read *u)
{
	return u->c->what & AGENT_SITE_SYSCALL32;
}

static bool user_pointer(const struct user_read *u, agent_u64 at, agent_u64 *ret)
{
	*ret = 0;
	return from_user(u, ret, at, is_compat(u) ? 4 : 8);
}

/* The entry's own record, with @p or without. What follows has a tick more. */
static always_inline void write_entry(struct user_read *u, const struct piece *p)
{
	struct call *c = u->c;

	u->refused = !record_syscall(c, AGENT_REC_GRAPH_ENTRY, u->parent, u->entry, p);
	u->entry = NULL;
	gate_close(c);
	c->tsc++;
}

__attribute__((noinline)) static void record_user(struct user_read *u, agent_u32 number,
						  agent_u64 bits, agent_u32 there,
						  const struct user_bytes *b, agent_u32 n)
{
	struct call *c = u->c;
	const struct piece p = {
		.program = AGENT_CAPTURE_USER,
		.there = there,
		.n = n,
		.key = u->key | bits | (agent_u64)(number & 0xffff) << AGENT_USER_NUMBER_SHIFT,
		.from = (agent_u64)b,
	};

	if (unlikely(u->refused))
		return;
	if (u->entry) {
		write_entry(u, &p);
		return;
	}
	name_task(c->cpu, c->cpu_no, c->task, c->pid);
	(void)record_piece(c, &p);
}

static void record_failed(struct user_read *u, agent_u32 number)
{
	record_user(u, number, AGENT_USER_FAILED, AGENT_CAPTURE_UNKNOWN, NULL, 0);
}

/* Of a stack that has nothing on it yet. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wframe-larger-than="
/* @n of @there bytes, in pieces. False: the first piece is not there; of several such reads, any. */
__attribute__((noinline)) static bool read_bytes(struct user_read *u, agent_u64 from, agent_u32 n,
						 agent_u32 there)
{
	struct user_bytes b;

	do {
		agent_u32 part = at_most(at_most(n, AGENT_CAPTURE_MAX), in_page(from));

		if (part && !read_user(u, &b, from, part))
			return u->number && u->s->op != AGENT_USER_IOVEC;
		record_user(u, u->number++, 0, there, &b, part);
		from += part;
		n -= part;
	} while (n && !u->refused);
	return true;
}

/* Up to its NUL, in @b. False: its beginning is not there. */
static bool fill_string(const struct user_read *u, struct user_bytes *b, agent_u64 from,
			agent_u32 max, agent_u32 *n_ret, bool *end_ret)
{
	agent_u8 *text = (agent_u8 *)b;
	agent_u32 n = 0;

	*end_ret = false;
	while (n < max) {
		agent_u32 part = at_most(at_most(max - n, STRING_PART), in_page(from + n));

		if (!from_user(u, text + n, from + n, part))
			break;
		for (agent_u32 i = 0; i < part; i++) {
			if (READ_ONCE(text[n + i]))
				continue;
			*n_ret = n + i;
			*end_ret = true;
			return true;
		}
		n += part;
	}
	*n_ret = n;
	return n != 0;
}

__attribute__((noinline)) static bool read_string(struct user_read *u, agent_u64 from,
						  agent_u32 max, agent_u32 number)
{
	struct user_bytes b;
	agent_u32 n, total = 0;
	bool end;

	do {
		if (!fill_string(u, &b, from + total, at_most(max - total, AGENT_CAPTURE_MAX), &n,
				 &end))
			return total != 0;
		total += n;
		record_user(u, number, 0, end ? total : AGENT_CAPTURE_UNKNOWN, &b, n);
		number += u->s->op == AGENT_USER_STRING;
	} while (!end && total < max && u->s->op == AGENT_USER_STRING && !u->refused);
	return true;
}

#pragma GCC diagnostic pop

static bool read_strings(struct user_read *u, agent_u64 from, agent_u32 max)
{
	agent_u32 size = is_compat(u) ? 4 : 8, i = 0;
	agent_u64 p = 0;

	for (; i < AGENT_USER_ELEMENTS && max && !u->refused; i++, from += size) {
		agent_u32 part = at_most(max, u->s->each);

		if (!user_pointer(u, from, &p))
			return i != 0;
		if (!p)
			break;
		if (!read_string(u, p, part, i))
			record_failed(u, i);
		max -= part;
	}
	/* how many came before this one, which is none */
	record_user(u, 0xffff, (agent_u64)i << AGENT_USER_COUNT_SHIFT,
		    p ? AGENT_CAPTURE_UNKNOWN : 0, NULL, 0);
	return true;
}

static bool read_count(struct user_read *u, agent_u64 from)
{
	agent_u32 size = is_compat(u) ? 4 : 8, n = 0;
	agent_u64 p;

	for (; n < POINTERS_MAX; n++, from += size) {
		if (!user_pointer(u, from, &p))
			return false;
		if (!p)
			break;
	}
	record_user(u, 0, (agent_u64)n << AGENT_USER_COUNT_SHIFT, 0, NULL, 0);
	return true;
}

static bool read_iovec(struct user_read *u, agent_u64 from, agent_u64 n)
{
	agent_u32 size = is_compat(u) ? 4 : 8;
	agent_u64 left = u->s->flags & AGENT_USER_RET ? u->ret : ~0ull, base, len;

	for (agent_u32 i = 0; i < AGENT_USER_ELEMENTS && i < n && left && !u->refused;
	     i++, from += 2 * size) {
		if (!user_pointer(u, from, &base) || !user_pointer(u, from + size, &len))
			return i != 0;
		if (len > left)
			len = left;
		left -= len;
		len = len < u->s->each ? len : u->s->each;
		if (!read_bytes(u, base, at_most((agent_u32)len, AGENT_CAPTURE_MAX),
				(agent_u32)len)) {
			record_failed(u, u->number);
			break; /* whose the others' bytes are could not be told */
		}
	}
	return true;
}

/* The kernel has put it there, and there is no other thread yet: v6.1 fs/binfmt_elf.c create_elf_tables() */
static bool read_args(struct user_read *u)
{
	const struct agent_where *w = &u->c->h->where;
	bool env = u->s->flags & AGENT_USER_ENV;
	agent_u32 from_at = env ? w->mm_env_start : w->mm_arg_start;
	agent_u32 end_at = env ? w->mm_env_end : w->mm_arg_end;
	agent_u64 mm, from, end;

	if (!w->task_mm || !from_at || !end_at)
		return false;
	mm = peek(u->c->task + w->task_mm);
	if (!in_kernel(u->c, mm))
		return false;
	from = peek(mm + from_at);
	end = peek(mm + end_at);
	if (end < from || end - from > 0xffffffff)
		return false;
	return read_bytes(u, from, at_most((agent_u32)(end - from), u->s->max),
			  (agent_u32)(end - from));
}

static agent_u64 user_arg(const struct user_read *u, agent_u32 i)
{
	return i < AGENT_MAX_ARGS ? call_reg(u->c, u->regs, i) : 0;
}

/* Where the step's bytes are, and how many of what it counts. False: it cannot be told. */
static bool find_bytes(const struct user_read *u, agent_u64 *from_ret, agent_u64 *n_ret)
{
	const struct agent_user_step *s = u->s;
	agent_u64 base = user_arg(u, s->base), n = ~0ull, v = 0;

	if (s->len < AGENT_MAX_ARGS)
		n = user_arg(u, s->len);
	if (likely((s->ptr_at & s->len_at) < 0 &&
		   !(s->flags & (AGENT_USER_SP | AGENT_USER_LEN_PTR)))) {
		*from_ret = base;
		*n_ret = n;
		return true;
	}
	if (s->flags & AGENT_USER_SP) {
		if (!u->c->h->where.regs_sp)
			return false;
		base = peek(u->regs + u->c->h->where.regs_sp) + (agent_u64)(agent_s64)s->ptr_at;
	}
	if (s->flags & AGENT_USER_LEN_PTR) {
		if (!from_user(u, &v, n, 4))
			return false;
		n = v;
	}
	if (s->len_at >= 0) {
		n = 0;
		if (!from_user(u, &n, base + (agent_u32)s->len_at,
			       s->each > 1 && !is_compat(u) ? 8 : 4))
			return false;
	}
	if (s->ptr_at >= 0 && !(s->flags & AGENT_USER_SP) &&
	    !user_pointer(u, base + (agent_u32)s->ptr_at, &base))
		return false;
	*from_ret = base;
	*n_ret = n;
	return true;
}

#endif
