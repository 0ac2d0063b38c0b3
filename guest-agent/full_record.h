/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of the agent's C: room in a ring, words in it, and what of the kernel's memory goes there. Only
 * full.c includes it. What is recorded of which call is decided there.
 */
#ifndef GUEST_AGENT_FULL_RECORD_H
#define GUEST_AGENT_FULL_RECORD_H

#include "guest-agent/full_64.h"

#define NO_INDEX (-1ll)
#define CALL_STACK_MAX \
	16384 /* THREAD_SIZE, v6.1 arch/x86/include/asm/page_64_types.h; more under KASAN */
#define CAPTURE_TOP 0x2000 /* error pointers, and room for an object below them */

/* What graph_full_caller and function_full_call save, and what lies above it on the stack. */
struct full_regs {
	agent_u64 rax;
	agent_u64 arg[AGENT_MAX_ARGS]; /* rdi, rsi, rdx, rcx, r8, r9 */
	agent_u64 ip; /* call site + 5 */
	agent_u64 cell; /* the traced function's return address */
};

/* What return_to_handler saves. */
struct full_return_regs {
	agent_u64 rdx, rax;
	agent_u64 cell; /* the true return address by now */
};

struct call {
	struct agent_header *h;
	struct agent_cpu *cpu;
	agent_u64 task;
	agent_u64 tsc;
	agent_u32 cpu_no;
	agent_u32 pid;
	agent_u32 ip; /* low half of the call site */
	agent_u32 what; /* AGENT_SITE_* */
	agent_u32 n_stack; /* callers in the scratch, to be written behind its record */
	bool irqs; /* were on before the gate was opened */
	struct agent_cpu *gate; /* that is open; else NULL */
};

/* TRY_RESERVE; *at_ret: the first of @n records of ours, if so. */
static inline bool try_reserve(const struct call *c, agent_u32 n, bool *full_ret, agent_u64 *at_ret)
{
	agent_u64 at = READ_ONCE(c->cpu->head);

	*at_ret = at;
	*full_ret = (agent_s64)(at - READ_ONCE(c->cpu->tail)) >
		    (agent_s64)c->h->ring_slots - (agent_s64)n;
	return likely(!*full_ret) && likely(change(&c->cpu->head, at, at + n));
}

/* Not at the first try. */
__attribute__((noinline)) static agent_s64 reserve_later(const struct call *c, agent_u32 n)
{
	bool full = false;
	agent_u64 at;

	for (agent_u32 tries = 1; tries < AGENT_RESERVE_TRIES && !full; tries++) {
		if (try_reserve(c, n, &full, &at))
			return (agent_s64)at;
	}
	return NO_INDEX;
}

/* *at_ret: index of the first of @n records of ours. False: no room, or too much traffic. */
static always_inline bool reserve_slots(const struct call *c, agent_u32 n, agent_s64 *at_ret)
{
	agent_u64 at;
	bool full;

	if (unlikely(c->h->mode != AGENT_MODE_DISCARD)) {
		at = __atomic_fetch_add(&c->cpu->head, n, __ATOMIC_SEQ_CST);
	} else if (unlikely(!try_reserve(c, n, &full, &at))) {
		agent_s64 later = reserve_later(c, n);

		if (later == NO_INDEX)
			return false;
		at = (agent_u64)later;
	}
	/* name the task again with the next record */
	if (unlikely(((at - 1) ^ (at + n - 1)) >= AGENT_COMM_PERIOD))
		WRITE_ONCE(c->cpu->last_pid, ~0u);
	*at_ret = (agent_s64)at;
	return true;
}

_Static_assert(!(AGENT_COMM_PERIOD & (AGENT_COMM_PERIOD - 1)), "bits above it say which period");

__attribute__((noinline)) static agent_s64 reserve(const struct call *c, agent_u32 n)
{
	agent_s64 at;

	return reserve_slots(c, n, &at) ? at : NO_INDEX;
}

/*
 * The slots of a reservation of several: a record's own, and those of its DATA, which are filled first. What is the
 * same for all of them is worked out once.
 */
struct room {
	agent_u64 *first; /* the record's */
	agent_u64 first_w0;
	agent_u64 *slot; /* the next DATA's */
	agent_u64 w0;
	agent_u64 *ring, *end;
	agent_u64 low36; /* of DATA, without context */
};

/* SLOT and STORE */
static inline void put_slot(agent_u64 *slot, agent_u64 w0, agent_u64 w1, agent_u64 low36)
{
	agent_u64 check = w0 ^ low36 ^ (w1 << AGENT_CHECK_ROTATE | w1 >> (64 - AGENT_CHECK_ROTATE));

	check = check * AGENT_CHECK_MUL >> AGENT_CHECK_SHIFT << AGENT_CHECK_SHIFT;
	WRITE_ONCE(slot[0], w0);
	WRITE_ONCE(slot[1], w1);
	WRITE_ONCE(slot[2], check | low36);
}

static inline void next_slot(struct room *m)
{
	m->slot += AGENT_RECORD_BYTES / sizeof(*m->slot);
	if (unlikely(m->slot == m->end)) {
		m->slot = m->ring;
		m->w0 += 1ull << AGENT_LAP_SHIFT;
	}
}

static inline void open_room(const struct call *c, agent_s64 index, struct room *m)
{
	char *ring = ring_of(c->cpu_no);

	m->ring = (agent_u64 *)ring;
	m->end = (agent_u64 *)ring_end(ring);
	m->slot = (agent_u64 *)(ring + ring_slot((agent_u64)index) * AGENT_RECORD_BYTES);
	m->w0 = (ring_lap((agent_u64)index) + 1) << AGENT_LAP_SHIFT | (c->tsc & AGENT_TSC_MASK);
	m->low36 = AGENT_REC_DATA << AGENT_TYPE_SHIFT | c->pid;
	m->first = m->slot;
	m->first_w0 = m->w0;
	next_slot(m);
}

static inline void put_low36(struct room *m, agent_u64 low36, agent_u64 word)
{
	put_slot(m->slot, m->w0, word, low36);
	next_slot(m);
}

static inline agent_u64 data_low36(const struct room *m, agent_u64 context)
{
	return context << AGENT_CTX_SHIFT | m->low36;
}

static inline void put_data(struct room *m, agent_u64 context, agent_u64 word)
{
	put_low36(m, data_low36(m, context), word);
}

#define NEXT_CONTEXT \
	(1ull << AGENT_CTX_SHIFT) /* added to the low 36 bits: DATA of the next number */

/* What is copied, at the address @from of the kernel's. */
struct piece {
	agent_u32 program;
	agent_u32 there, n; /* bytes */
	agent_u64 key;
	agent_u64 from;
};

/* Slots of its DATA. */
static inline agent_u32 piece_slots(const struct piece *p)
{
	return 1 + (p->n + 7) / 8;
}

/* Last: a reader that finds it has its DATA. */
static inline void put_record(const struct room *m, agent_u64 w1, agent_u64 low36)
{
	put_slot(m->first, m->first_w0, w1, low36);
}

/* One slot. */
__attribute__((noinline)) static void store(const struct call *c, agent_s64 index, agent_u64 w1,
					    agent_u64 low36)
{
	struct room m;

	open_room(c, index, &m);
	put_record(&m, w1, low36);
}

static void store_data(const struct call *c, agent_s64 index, agent_u64 context, agent_u64 word)
{
	store(c, index, word,
	      context << AGENT_CTX_SHIFT | AGENT_REC_DATA << AGENT_TYPE_SHIFT | c->pid);
}

/* Of the gate that is open. */
static struct agent_scratch *scratch(const struct call *c)
{
	const struct agent_cpu *first = in_data(c->h, AGENT_CPU_OFF);

	return (struct agent_scratch *)in_data(c->h, c->h->scratch_off) + (c->gate - first);
}

static agent_u32 stack_words(const struct call *c)
{
	return (c->n_stack + 1) / 2;
}

__attribute__((noinline)) static void store_stack(const struct call *c, agent_s64 at)
{
	const agent_u64 *caller = scratch(c)->word;

	for (agent_u32 i = 0; i * 2 < c->n_stack; i++) {
		agent_u64 word = (agent_u32)caller[i * 2];

		if (i * 2 + 1 < c->n_stack)
			word |= caller[i * 2 + 1] << 32;
		store_data(c, at + i, AGENT_DATA_STACK | i, word);
	}
}

/*
 * A system call's registers: the task's, at the top of the stack that we are on, hence mapped. A kernel
 * that calls a handler with anything else, as none is known to, has no words recorded.
 */
static agent_u64 call_regs(const struct full_regs *r)
{
	agent_u64 off = r->arg[0] - (agent_u64)&r->cell;

	return off < CALL_STACK_MAX && !(off & 7) ? r->arg[0] : 0;
}

static agent_u64 call_reg(const struct call *c, agent_u64 regs, agent_u32 i)
{
	bool is32 = c->what & AGENT_SITE_SYSCALL32;
	agent_u64 v = peek(regs + c->h->syscall_regs[is32][i]);

	return is32 ? (agent_u32)v : v;
}

static bool in_kernel(const struct call *c, agent_u64 p)
{
	return p >= c->h->kernel_half && p < -(agent_u64)CAPTURE_TOP;
}

/* Where handlers are shared by the ABIs the task's state says which one it is. */
static bool is_call32(const struct call *c)
{
	agent_u32 at = c->h->where.task_status;

	return c->what & AGENT_SITE_SYSCALL32 ||
	       (at && (agent_u32)peek(c->task + at) & AGENT_TS_COMPAT);
}

/* The object that the pointer at @at + @off leads to; 0: to none of the kernel's. */
static always_inline agent_u64 leads_to(agent_u64 half, agent_u64 at, agent_u32 off)
{
	agent_u64 p = peek(at + off);

	return likely(p >= half && p < -(agent_u64)CAPTURE_TOP) ? p : 0;
}

/* The task's own credentials are changed by nobody else. */
static always_inline agent_u32 task_uid(const struct call *c)
{
	const struct agent_header *h = c->h;
	agent_u64 cred;

	if (unlikely(!h->where.task_cred))
		return 0xffffffff;
	cred = leads_to(h->kernel_half, c->task, h->where.task_cred);
	return likely(cred) ? (agent_u32)peek(cred + h->where.cred_uid) : 0xffffffff;
}

/*
 * Its group, and what that hangs on, may be taken away at any time, and are freed after a grace period:
 * without interrupts there is no end of that.
 */
static always_inline agent_u32 task_cgroup(const struct call *c)
{
	const struct agent_header *h = c->h;
	agent_u64 p, half = h->kernel_half, saved = 0;
	agent_u32 id = 0;

	if (unlikely(!h->where.task_cgroups))
		return 0;
	if (!c->gate) /* where it is open there are none anyway */
		saved = irq_save();
	p = leads_to(half, c->task, h->where.task_cgroups);
	if (likely(p))
		p = leads_to(half, p, h->where.css_set_cgroup);
	if (likely(p))
		p = leads_to(half, p, h->where.cgroup_node);
	if (likely(p))
		id = (agent_u32)peek(p + h->where.node_id);
	if (!c->gate)
		irq_restore(saved);
	return id;
}

static agent_u64 who(const struct call *c)
{
	return (agent_u64)task_cgroup(c) << 32 | task_uid(c);
}

/* Low 36 bits of its record: the context is the call's, not that of the gate. */
static always_inline agent_u64 low36_of(const struct call *c, agent_u32 type)
{
	agent_u64 low36 = record_low36(c->task, c->pid, type);

	if (c->gate && c->irqs)
		low36 &= ~((agent_u64)AGENT_CTX_IRQS_OFF << AGENT_CTX_SHIFT);
	return low36;
}

static agent_u8 byte_at(agent_u64 p)
{
	return *(const volatile agent_u8 *)p;
}

#define EACH_BYTE(b) (0x0101010101010101ull * (b))

/* The lowest bit that is set is of the first byte of @word that is 0; none is: there is no such byte. */
static agent_u64 zero_bytes(agent_u64 word)
{
	return (word - EACH_BYTE(1)) & ~word & EACH_BYTE(0x80);
}

/*
 * How much of the string at @p there is, @max at most. A word that is aligned lies in one page as a whole, so there
 * is no harm in what is behind the string's end.
 */
static agent_u32 string_len(agent_u64 p, agent_u32 max)
{
	agent_u64 zero;
	agent_u32 n = 0;

	for (; n < max && (p + n) & 7; n++) {
		if (!byte_at(p + n))
			return n;
	}
	for (; n + 8 <= max; n += 8) {
		zero = zero_bytes(peek(p + n));
		if (zero)
			return n + (agent_u32)__builtin_ctzll(zero) / 8;
	}
	while (n < max && byte_at(p + n))
		n++;
	return n;
}

/* The first @n of the bytes at @p, 8 at most: what is behind them is not looked at unless it is in their word. */
static agent_u64 word_at(agent_u64 p, agent_u32 n)
{
	agent_u64 word = 0;

	if (!(p & 7)) {
		word = peek(p);
		return n < 8 ? word & ((1ull << 8 * n) - 1) : word;
	}
	for (agent_u32 k = 0; k < n; k++)
		word |= (agent_u64)byte_at(p + k) << (8 * k);
	return word;
}

/* The words that are whole may lie anywhere. */
static always_inline void put_piece(struct room *m, const struct piece *p)
{
	agent_u64 w0 = m->w0, from = p->from, low36 = data_low36(m, AGENT_DATA_BYTES);
	agent_u32 n = p->n;

	m->w0 = (w0 & ~AGENT_TSC_MASK) | (agent_u64)p->there << AGENT_CAPTURE_THERE_SHIFT | p->n;
	put_slot(m->slot, m->w0, p->key,
		 (agent_u64)(AGENT_DATA_CAPTURE | p->program) << AGENT_CTX_SHIFT | m->low36);
	m->w0 = w0;
	next_slot(m);
	for (; n >= 8; n -= 8, from += 8, low36 += NEXT_CONTEXT)
		put_low36(m, low36, peek(from));
	if (n)
		put_low36(m, low36, word_at(from, n));
}

/* The first @n of a system call's words. */
static always_inline void put_args(struct room *m, const struct call *c, agent_u64 regs,
				   agent_u32 n)
{
	const agent_u16 *at = c->h->syscall_regs[0];
	agent_u64 low36 = data_low36(m, AGENT_DATA_ARG), mask = ~0ull;

	if (unlikely(c->what & AGENT_SITE_SYSCALL32)) {
		at = c->h->syscall_regs[1];
		mask = 0xffffffff;
	}
	for (; n; n--, at++, low36 += NEXT_CONTEXT)
		put_low36(m, low36, peek(regs + *at) & mask);
}

static agent_u32 piece_of(agent_u32 n)
{
	return n < AGENT_CAPTURE_MAX ? n : AGENT_CAPTURE_MAX;
}

/* A GRAPH_ENTRY of a system call's handler, or a FUNCTION. As record_call(). @p: of its memory; or NULL */
__attribute__((noinline)) static bool record_syscall(const struct call *c, agent_u32 type,
						     agent_u32 parent, const struct full_regs *r,
						     const struct piece *p)
{
	agent_u32 n = c->what >> AGENT_SITE_ARGS_SHIFT & AGENT_SITE_ARGS_MASK;
	agent_u64 regs = call_regs(r), low36 = low36_of(c, type);
	bool nr = regs && c->what & AGENT_SITE_NR, is_who = c->h->options & AGENT_OPT_WHO;
	struct room m;
	agent_s64 at;

	if (n > AGENT_MAX_ARGS)
		n = AGENT_MAX_ARGS;
	if (unlikely(!regs))
		n = 0;
	if (unlikely(!reserve_slots(c, 1 + n + nr + is_who + (p ? piece_slots(p) : 0), &at))) {
		count(&c->cpu->lost);
		return false;
	}
	open_room(c, at, &m);
	put_args(&m, c, regs, n);
	if (nr)
		put_data(&m, AGENT_DATA_NR | is_call32(c), call_reg(c, regs, AGENT_MAX_ARGS));
	if (is_who)
		put_data(&m, AGENT_DATA_WHO, who(c));
	if (p)
		put_piece(&m, p);
	put_record(&m, (agent_u64)parent << 32 | c->ip, low36);
	return true;
}

/*
 * A FUNCTION or a GRAPH_ENTRY with the site's arguments. The reader finds the DATA with the record. The
 * caller has named the task: from further out, for the sake of the stack.
 */
static bool record_call(const struct call *c, agent_u32 type, agent_u32 parent,
			const struct full_regs *r)
{
	agent_u32 n = c->what >> AGENT_SITE_ARGS_SHIFT & AGENT_SITE_ARGS_MASK;
	agent_u64 low36;
	agent_s64 at;

	if (unlikely(c->what & AGENT_SITE_SYSCALL))
		return record_syscall(c, type, parent, r, NULL);
	if (n > AGENT_MAX_ARGS)
		n = AGENT_MAX_ARGS;
	low36 = low36_of(c, type);
	at = reserve(c, 1 + n + stack_words(c));
	if (unlikely(at < 0)) {
		count(&c->cpu->lost);
		return false;
	}
	for (agent_u32 i = 0; i < n; i++)
		store_data(c, at + 1 + i, AGENT_DATA_ARG | i, r->arg[i]);
	if (unlikely(c->n_stack))
		store_stack(c, at + 1 + n);
	store(c, at, (agent_u64)parent << 32 | c->ip, low36);
	return true;
}

/* As a record of its own, whose context is the call's: it has none. False: there is no room. */
static always_inline bool record_piece_here(const struct call *c, const struct piece *p)
{
	struct room m;
	agent_s64 at;

	if (unlikely(!reserve_slots(c, 1 + piece_slots(p), &at))) {
		count(&c->cpu->lost);
		return false;
	}
	open_room(c, at, &m);
	put_piece(&m, p);
	put_record(&m, c->ip, AGENT_REC_FUNCTION << AGENT_TYPE_SHIFT | c->pid);
	return true;
}

__attribute__((noinline)) static bool record_piece(const struct call *c, const struct piece *p)
{
	return record_piece_here(c, p);
}

/* At most @max of a string, in pieces. */
__attribute__((noinline)) static void record_long(const struct call *c, struct piece *p,
						  agent_u32 max)
{
	agent_u32 done = 0, n;
	bool whole;

	do {
		n = piece_of(max - done);
		p->n = string_len(p->from, n);
		whole = p->n < n;
		done += p->n;
		p->there = whole ? done : AGENT_CAPTURE_UNKNOWN;
		if (!record_piece(c, p))
			return;
		p->from += p->n;
	} while (!whole && done < max);
}

/*
 * See struct agent_capture. @r: NULL at a return, where @low_key is what the frame has of it. The base is known to lie in the kernel's half; that
 * members of its object do follows.
 */
__attribute__((noinline)) static void record_capture(struct call *c, agent_u32 number,
						     agent_u64 base, const struct full_regs *r,
						     agent_u32 low_key)
{
	const struct agent_capture *p = &c->h->captures[number % AGENT_MAX_CAPTURES];
	agent_u32 max = p->max_bytes, there = AGENT_CAPTURE_UNKNOWN;
	agent_u64 from = base, key = 0;
	struct piece piece;

	if (!in_kernel(c, base))
		return;
	if (p->ptr_at >= 0)
		from = peek(base + (agent_u32)p->ptr_at);
	if (p->len_at >= 0)
		there = (agent_u32)peek(base + (agent_u32)p->len_at);
	else if (r && p->len < AGENT_MAX_ARGS)
		there = (agent_u32)r->arg[p->len];
	if (p->key_at >= 0)
		key = peek(base + (agent_u32)p->key_at);
	else if (p->key < AGENT_MAX_ARGS)
		key = r ? r->arg[p->key] : low_key;
	if (!in_kernel(c, from))
		return;
	name_task(c->cpu, c->cpu_no, c->task, c->pid);
	max = max < there ? max : there;
	piece = (struct piece){ number, there, piece_of(max), key, from };
	if (likely(p->flags & AGENT_CAPTURE_STRING)) {
		there = string_len(from, piece.n);
		if (unlikely(there == piece.n)) {
			record_long(c, &piece, max < AGENT_STRING_MAX ? max : AGENT_STRING_MAX);
			return;
		}
		piece.n = piece.there = there;
	}
	record_piece_here(c, &piece);
}

/* As it stands in a GRAPH_RETURN: see AGENT_DURATION_BITS. */
static agent_u32 coded(agent_u64 ticks)
{
	agent_u32 e = 0;

	if (ticks >> AGENT_DURATION_BITS)
		e = (agent_u32)(64 - AGENT_DURATION_BITS - __builtin_clzll(ticks));
	return e << AGENT_DURATION_BITS | (agent_u32)(ticks >> e);
}

static agent_u64 ticks_of(const struct call *c, const struct agent_frame *f)
{
	return c->tsc > f->tsc ? c->tsc - f->tsc : 0;
}

static void record_return(struct call *c, const struct agent_frame *f, agent_u64 rax)
{
	agent_u64 ticks = ticks_of(c, f), low36;
	agent_u32 state = f->state, n = 1;
	struct room m;
	agent_s64 at;

	name_task(c->cpu, c->cpu_no, c->task, c->pid);
	low36 = low36_of(c, AGENT_REC_GRAPH_RETURN);
	n += !!(state & AGENT_FRAME_THRESHOLD) + !!(state & AGENT_FRAME_RETVAL);
	if (unlikely(!reserve_slots(c, n + stack_words(c), &at))) {
		count(&c->cpu->lost);
		count(&c->cpu->lost_returns);
		return;
	}
	if (unlikely(c->n_stack))
		store_stack(c, at + n);
	open_room(c, at, &m);
	if (state & AGENT_FRAME_THRESHOLD)
		put_data(&m, AGENT_DATA_DEPTH, state >> AGENT_FRAME_DEPTH_SHIFT);
	if (state & AGENT_FRAME_RETVAL)
		put_data(&m, AGENT_DATA_RETVAL, rax);
	put_record(&m, (agent_u64)coded(ticks) << 32 | f->ip, low36);
}

#endif
