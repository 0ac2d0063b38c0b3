// SPDX-License-Identifier: Apache-2.0
/*
 * What the tracers do when options ask more of them than one record a call: the C of the agent.
 * Reached by jumps from ftrace_caller that the host patches in, and by returns whose frame says so;
 * the plain paths of ftrace_64.S and graph_64.S know nothing of it.
 *
 * The same rules as there: safe in process, softirq, irq and NMI context at every instruction, no
 * lock, no loop without a small bound, general registers only, no data of its own; no call into the guest
 * but through the gate of full_call.h. compile-full.sh makes text without relocations of it and refuses what would not be that. A
 * call site may be met with little stack left: each function here is to need little.
 *
 * Which calls are followed is decided as by Linux v6.1 kernel/trace/trace_functions_graph.c
 * trace_graph_entry(), with what that keeps in current->trace_recursion and in current's ret_stack
 * kept in struct agent_task and in the states of frames.
 */
#include "guest-agent/full_64.h"
#include "guest-agent/full_path.h"
#include "guest-agent/full_record.h"
#include "guest-agent/full_stack.h"
#include "guest-agent/full_steps.h"
#include "guest-agent/full_who.h"

#define SITES_FIRST \
	(AGENT_OPT_SWITCHES | AGENT_OPT_FOLLOW) /* what is asked of some is not by task */

#define FIND_TRIES 4 /* places of a bucket that others take while we are about to */
#define SKIP_MAX   16 /* calls that are found out to have been left without a return */

#define INHERITED (AGENT_FRAME_NOTRACE | AGENT_FRAME_ROOT | AGENT_FRAME_IRQ)

/* A task's word, or one that can be its. */
struct place {
	agent_u64 *word; /* 0: its bucket is full */
	agent_u64 seen;
	bool own;
};

void full_graph_entry(struct full_regs *r, agent_u64 bp);
void full_function_entry(struct full_regs *r, agent_u64 bp);
void full_graph_return(struct agent_frame *f, struct full_return_regs *r, agent_u64 bp);

/* Who calls, and is it asked for */

/* Behind its first place, @i. */
__attribute__((noinline)) static agent_u32 site_behind(const struct agent_header *h, agent_u32 ip,
						       agent_u32 i)
{
	agent_u32 mask = h->site_slots - 1;
	const agent_u64 *table = in_data(h, h->sites_off);

	for (agent_u32 n = 1; n < AGENT_SITE_PROBES; n++) {
		agent_u64 site = READ_ONCE(table[i = (i + 1) & mask]);

		if ((agent_u32)site == ip)
			return (agent_u32)(site >> 32);
		if (!(agent_u32)site)
			return 0;
	}
	return 0;
}

static inline agent_u32 site_what(const struct agent_header *h, agent_u32 ip)
{
	agent_u32 slots = h->site_slots;
	agent_u32 i = (agent_u32)((agent_u64)(ip * AGENT_SITE_MUL) * slots >> 32);
	const agent_u64 *table = in_data(h, h->sites_off);
	agent_u64 site;

	if (!slots)
		return 0;
	/* whole, as the host writes it: a task may be preempted here from one trace into the next */
	site = READ_ONCE(table[i]);
	if (likely((agent_u32)site == ip))
		return (agent_u32)(site >> 32);
	return (agent_u32)site ? site_behind(h, ip, i) : 0;
}

static void use_cpu(struct call *c, agent_u32 n)
{
	c->cpu_no = n;
	c->cpu = (struct agent_cpu *)in_data(c->h, AGENT_CPU_OFF) + n;
}

/* A CPU that appeared after the agent was loaded has no ring. */
static bool find_cpu(struct call *c)
{
	agent_u32 n = this_cpu();

	if (likely(n < c->h->nr_cpus)) {
		use_cpu(c, n);
		return true;
	}
	count(&c->h->lost_nocpu);
	return false;
}

static always_inline bool begin(struct call *c, const struct full_regs *r)
{
	bool chosen;

	c->h = header(); /* that it is on was looked at on the way here */
	if (!find_cpu(c))
		return false;
	c->task = this_task();
	if (unlikely(in_gate(c))) {
		count(&c->cpu->skipped);
		return false;
	}
	c->n_stack = 0;
	c->gate = NULL;
	c->pid = task_pid(c->task);
	c->ip = (agent_u32)r->ip - 5;
	c->what = 0;
	chosen = c->h->options & (SITES_FIRST | AGENT_OPT_UIDS) || READ_ONCE(c->h->n_pids);
	if (unlikely(chosen) && !(c->h->options & SITES_FIRST) && !pid_chosen(c))
		return false;
	c->what = site_what(c->h, c->ip);
	if (unlikely(c->what & SITE_EVENTS) && !site_event(c, r))
		return false;
	return likely(!chosen) || !(c->h->options & SITES_FIRST) || pid_chosen(c);
}

/* Behind a tail call: the caller of the function that jumped here. */
static agent_u32 true_parent(agent_u64 cell)
{
	agent_u64 off = cell - trampolines();

	if (likely(off >= trampoline_bytes()))
		return (agent_u32)cell;
	return frame_at((agent_u32)(off / AGENT_TRAMP_BYTES))->parent;
}

/* Where the task is: see struct agent_task */

static agent_u64 task_key(agent_u64 task)
{
	return task >> 6 << AGENT_TASK_FRAME_BITS;
}

static agent_u64 *task_bucket(const struct call *c)
{
	agent_u32 slots = c->h->task_slots;
	agent_u32 n = (agent_u32)((agent_u64)((agent_u32)(c->task >> 6) * AGENT_TASK_MUL) *
					  (slots / AGENT_TASK_BUCKET) >>
				  32);

	return slots ? (agent_u64 *)in_data(c->h, c->h->tasks_off) + (size_t)n * AGENT_TASK_BUCKET
		     : NULL;
}

static agent_u32 word_frame(agent_u64 word)
{
	return word & ((1u << AGENT_TASK_FRAME_BITS) - 1);
}

static bool same_key(agent_u64 word, agent_u64 key)
{
	return word && (word ^ key) >> AGENT_TASK_FRAME_BITS == 0;
}

/*
 * Nobody is in the call that the word names: whose it was has left it behind. The word is looked at again
 * afterwards: its task may have returned, which frees the frame, and be in another call by now.
 */
static bool is_stale(const struct call *c, const agent_u64 *place, agent_u64 word)
{
	agent_u32 n = word_frame(word) - 1;
	const struct agent_frame *f;

	if (n >= c->h->nr_frames)
		return true;
	f = frame_at(n);
	return (READ_ONCE(f->slot) <= AGENT_ORPHAN ||
		!same_key(word, task_key(READ_ONCE(f->owner)))) &&
	       READ_ONCE(*place) == word;
}

/* The task's own word, else one that is free, else one that was left. */
static void find_place(const struct call *c, struct place *p)
{
	agent_u64 key = task_key(c->task), *bucket = task_bucket(c);

	p->word = NULL;
	p->seen = 0;
	p->own = false;
	if (!bucket)
		return;
	for (agent_u32 i = 0; i < AGENT_TASK_BUCKET; i++) {
		agent_u64 word = READ_ONCE(bucket[i]);

		if (same_key(word, key)) {
			p->word = &bucket[i];
			p->seen = word;
			p->own = true;
			return;
		}
		if (!word && !p->word)
			p->word = &bucket[i];
	}
	for (agent_u32 i = 0; !p->word && i < AGENT_TASK_BUCKET; i++) {
		p->seen = READ_ONCE(bucket[i]);
		if (!p->seen || is_stale(c, &bucket[i], p->seen))
			p->word = &bucket[i];
	}
}

/*
 * Number + 1 of the frame of the call that this one is in; 0: it is in none that is followed.
 *
 * A frame of another life of the task_struct does not count (start_time grows from one life to the
 * next, and within one only goes down: v6.1 fs/exec.c de_thread()). Nor does a call whose cell lies
 * below ours in one page, hence on one stack, or is ours: its function was left without a return.
 */
static agent_u32 innermost(const struct call *c, const struct place *p, const struct full_regs *r)
{
	agent_u64 cell = (agent_u64)&r->cell, ours = trampolines();
	agent_u32 n = p->own ? word_frame(p->seen) : 0;

	for (agent_u32 tries = 0; n - 1 < c->h->nr_frames && tries < SKIP_MAX; tries++) {
		const struct agent_frame *f = frame_at(n - 1);
		agent_u64 slot = READ_ONCE(f->slot);

		if (slot <= AGENT_ORPHAN || f->owner != c->task ||
		    f->start_time < task_start_time(c->task))
			return 0;
		if (cell < slot || (cell ^ slot) >> 12 ||
		    (cell == slot && r->cell == ours + (agent_u64)(n - 1) * AGENT_TRAMP_BYTES))
			return n;
		n = f->prev;
	}
	return 0;
}

/* @f is the innermost call from now on. False: there is no room, or not any more. */
static bool enter_task(const struct call *c, struct place *p, const struct agent_frame *f)
{
	agent_u64 word = task_key(c->task) | (frame_number(f) + 1);

	for (agent_u32 tries = 0; p->word && tries < FIND_TRIES; tries++) {
		if (likely(change(p->word, p->seen, word)))
			return true;
		if (p->own) /* the host has begun another trace */
			return false;
		find_place(c, p);
	}
	return false;
}

/* The call around @f is the innermost one again, whatever was left inside without a return. */
static void leave_task(const struct call *c, const struct agent_frame *f)
{
	struct place p;

	find_place(c, &p);
	if (p.own)
		(void)change(p.word, p.seen, f->prev ? task_key(c->task) | f->prev : 0);
}

/* Following a call */

static bool in_hardirq(void)
{
	return preempt_count() & HARDIRQ_MASK;
}

/*
 * Is the call to be followed, inside frame @outer (number + 1, or 0)? @state_ret: state of its frame.
 * In the order of trace_graph_entry(); but that has a function with NOTRACE too deep for max_depth
 * take a frame, which shows nowhere.
 */
static bool decide(const struct call *c, agent_u32 outer, agent_u32 *state_ret)
{
	const struct agent_header *h = c->h;
	agent_u32 state = 0, depth = 0;

	if (outer) {
		agent_u32 around = frame_at(outer - 1)->state;

		state = around & INHERITED;
		depth = around >> AGENT_FRAME_DEPTH_SHIFT;
		depth += depth < AGENT_FRAME_MAX_DEPTH;
	}
	if (state & AGENT_FRAME_NOTRACE || (h->max_depth && depth >= h->max_depth))
		return false;
	state |= AGENT_FRAME_TASK | depth << AGENT_FRAME_DEPTH_SHIFT;
	if (c->what & AGENT_SITE_NOTRACE) {
		*state_ret = state | AGENT_FRAME_NOTRACE | AGENT_FRAME_QUIET;
		return true;
	}
	if (h->options & AGENT_OPT_ROOTS) {
		/* ftrace_graph_addr(): asked for by name, it is followed in interrupts too */
		if (c->what & AGENT_SITE_ROOT)
			state = (state & ~(agent_u32)AGENT_FRAME_IRQ) | AGENT_FRAME_ROOT |
				(in_hardirq() ? AGENT_FRAME_IRQ : 0);
		if (!(state & AGENT_FRAME_ROOT))
			return false;
	}
	*state_ret = state;
	return !(h->options & AGENT_OPT_NO_IRQS) || state & AGENT_FRAME_IRQ || !in_hardirq();
}

/* The one step that frees: whoever turns slot from the cell's address into 0 disposes of the frame. */
static void free_frame(struct call *c, struct agent_frame *f, const agent_u64 *cell)
{
	if (change(&f->slot, (agent_u64)cell, 0))
		put_frame(c->cpu, f);
}

/* Has it an entry record? */
static bool is_recorded(agent_u32 state)
{
	return !(state & (AGENT_FRAME_QUIET | AGENT_FRAME_THRESHOLD));
}

/* There is nothing to follow it with. Under a threshold only returns count. */
static void not_followed(struct call *c, const struct full_regs *r, agent_u32 state)
{
	count(&c->cpu->lost_frames);
	if (!is_recorded(state))
		return;
	name_task(c->cpu, c->cpu_no, c->task, c->pid);
	c->tsc = rdtsc();
	record_call(c, AGENT_REC_FUNCTION, true_parent(r->cell), r);
}

/* What of the entry the capture at the return needs. */
static agent_u32 captured_key(const struct call *c, const struct full_regs *r, agent_u32 state)
{
	agent_u32 number = state >> AGENT_FRAME_DEPTH_SHIFT;
	agent_u32 key = c->h->captures[number % AGENT_MAX_CAPTURES].key;

	return key < AGENT_MAX_ARGS ? (agent_u32)r->arg[key] : 0;
}

static void fill(const struct call *c, struct agent_frame *f, const struct full_regs *r,
		 agent_u32 state, agent_u32 outer)
{
	f->ret = r->cell;
	f->owner = c->task;
	f->start_time = task_start_time(c->task);
	f->tsc = c->tsc;
	f->ip = c->ip;
	f->parent = unlikely(state & AGENT_FRAME_CAPTURE) ? captured_key(c, r, state)
							  : true_parent(r->cell);
	f->pid = c->pid;
	f->state = state;
	f->prev = outer;
	WRITE_ONCE(f->slot, (agent_u64)&r->cell);
}

/* With what is read of the program's memory. False: there is no room. */
static bool record_entry(struct call *c, struct agent_frame *f, const struct full_regs *r,
			 agent_u32 state)
{
	agent_u32 left = 0;

	if (!(state & AGENT_FRAME_USER))
		return likely(c->what & AGENT_SITE_SYSCALL)
			       ? record_syscall(c, AGENT_REC_GRAPH_ENTRY, f->parent, r, NULL)
			       : record_call(c, AGENT_REC_GRAPH_ENTRY, f->parent, r);
	if (!user_entry(c, r, f->parent, &left))
		return false;
	f->state = (state & ~(agent_u32)AGENT_FRAME_USER) | left;
	return true;
}

/*
 * The frame is filled in before slot says that it is in use, that is before the task's word names it, and
 * all is done before the cell leads to it. A call whose entry the ring has no room for is followed all
 * the same where what is inside depends on it.
 */
static void follow(struct call *c, struct full_regs *r, agent_u32 state, agent_u32 outer,
		   struct place *p)
{
	bool recorded = is_recorded(state);
	struct agent_frame *f = take_frame(c->cpu, c->cpu_no);

	if (unlikely(!f)) {
		not_followed(c, r, state);
		return;
	}
	if (recorded)
		name_task(c->cpu, c->cpu_no, c->task, c->pid);
	c->tsc = rdtsc();
	/* nothing is inside of a root that has not been told yet: an interrupt from here on would come first */
	fill(c, f, r, state & ~(agent_u32)AGENT_FRAME_ROOT, outer);
	if (state & AGENT_FRAME_TASK && !enter_task(c, p, f)) {
		free_frame(c, f, &r->cell);
		not_followed(c, r, state);
		return;
	}
	if (recorded && !record_entry(c, f, r, state)) {
		if (!(state & AGENT_FRAME_TASK)) {
			free_frame(c, f, &r->cell);
			return;
		}
		f->state |= AGENT_FRAME_QUIET;
	}
	f->state |= state & AGENT_FRAME_ROOT;
	WRITE_ONCE(r->cell, trampolines() + (agent_u64)frame_number(f) * AGENT_TRAMP_BYTES);
}

/* A site with a capture: is it to be followed to its return? Else all is done. */
static bool capture(struct call *c, const struct full_regs *r, agent_u32 *state_ret)
{
	agent_u32 number = (c->what >> AGENT_SITE_CAPTURE_SHIFT & AGENT_SITE_CAPTURE_MASK) - 1;
	const struct agent_capture *program = &c->h->captures[number % AGENT_MAX_CAPTURES];

	*state_ret = AGENT_FRAME_QUIET | AGENT_FRAME_CAPTURE | number << AGENT_FRAME_DEPTH_SHIFT;
	if (program->flags & AGENT_CAPTURE_RETURN)
		return true;
	if (program->base < AGENT_MAX_ARGS) {
		c->tsc = rdtsc();
		record_capture(c, number, r->arg[program->base], r, 0);
	}
	return false;
}

/* A call: as the options say. False: it is not followed. */
static bool choose(const struct call *c, const struct full_regs *r, struct place *p,
		   agent_u32 *state_ret, agent_u32 *outer_ret)
{
	agent_u32 options = c->h->options;

	if (options & AGENT_OPT_TASKS) {
		find_place(c, p);
		*outer_ret = innermost(c, p, r);
		if (!decide(c, *outer_ret, state_ret))
			return false;
	} else if (options & AGENT_OPT_NO_IRQS && in_hardirq()) {
		return false;
	}
	if (c->what & AGENT_SITE_RETVAL)
		*state_ret |= AGENT_FRAME_RETVAL;
	if (c->h->threshold)
		*state_ret |= AGENT_FRAME_THRESHOLD;
	return true;
}

/*
 * A system call whose program's memory is read: with the return, from its registers again. Interrupts are off once
 * for what is read first, whose call it is, and the record of both.
 */
__attribute__((noinline)) static agent_u32 begin_user(struct call *c, const struct full_regs *r,
						      agent_u32 state)
{
	agent_u64 regs = call_regs(r);

	if (!regs || !in_process() || state & (AGENT_FRAME_TASK | AGENT_FRAME_THRESHOLD))
		return 0;
	if (!c->gate)
		(void)gate_open_here(c);
	return AGENT_FRAME_USER | (agent_u32)(regs - (agent_u64)&r->cell) / 8
					  << AGENT_FRAME_DEPTH_SHIFT;
}

/* graph_full_caller: ftrace_graph_caller, with options */
void full_graph_entry(struct full_regs *r, agent_u64 bp)
{
	agent_u32 state = 0, outer = 0;
	struct place p; /* of a state with TASK alone */
	struct call c;

	if (!begin(&c, r))
		return;
	if (c.what >> AGENT_SITE_CAPTURE_SHIFT & AGENT_SITE_CAPTURE_MASK
		    ? !capture(&c, r, &state)
		    : !choose(&c, r, &p, &state, &outer))
		return;
	/* first, so that what it takes is not part of the call's time */
	if (unlikely(c.what & AGENT_SITE_STACK) && is_recorded(state))
		take_stack(&c, r->cell, &r->cell, bp, outer);
	if (c.what >> AGENT_SITE_USER_SHIFT & AGENT_SITE_USER_MASK && c.what & AGENT_SITE_SYSCALL)
		state |= begin_user(&c, r, state);
	follow(&c, r, state, outer, &p);
	gate_close(&c);
}

/* function_full_call: function_trace_call, with arguments, task switches and callers */
void full_function_entry(struct full_regs *r, agent_u64 bp)
{
	struct call c;

	if (!begin(&c, r))
		return;
	if (unlikely(c.what & AGENT_SITE_STACK))
		take_stack(&c, r->cell, &r->cell, bp, 0);
	name_task(c.cpu, c.cpu_no, c.task, c.pid);
	c.tsc = rdtsc();
	record_call(&c, AGENT_REC_FUNCTION, (agent_u32)r->cell, r);
	gate_close(&c);
}

/* A return that is to be recorded; under a threshold with the callers that its entry did not tell. */
static void tell_return(struct call *c, const struct agent_frame *f,
			const struct full_return_regs *r, agent_u64 bp)
{
	if (f->state & AGENT_FRAME_THRESHOLD) {
		if (ticks_of(c, f) < c->h->threshold)
			return;
		if (c->h->options & AGENT_OPT_STACKS && site_what(c->h, f->ip) & AGENT_SITE_STACK)
			take_stack(c, r->cell, &r->cell, bp, f->prev);
	}
	record_return(c, f, r->rax);
	gate_close(c);
}

/* What is left to be read of a program's memory. */
static void call_ends(struct call *c, const struct agent_frame *f, const struct full_return_regs *r)
{
	agent_u64 regs = (agent_u64)&r->cell + (agent_u64)(f->state >> AGENT_FRAME_DEPTH_SHIFT) * 8;

	c->ip = f->ip;
	c->what = site_what(c->h, f->ip);
	if (c->what & AGENT_SITE_SYSCALL && in_process())
		user_exit(c, regs, f->state, r->rax);
}

/* return_to_handler, of a frame with a state. The guest's way on needs nothing of ours any more. */
void full_graph_return(struct agent_frame *f, struct full_return_regs *r, agent_u64 bp)
{
	struct call c;
	bool has_cpu;

	c.h = header();
	c.task = this_task();
	c.pid = task_pid(c.task);
	c.n_stack = 0;
	c.gate = NULL;
	has_cpu = find_cpu(&c);
	if (unlikely(!has_cpu)) /* its frame goes into the first CPU's list */
		use_cpu(&c, 0);
	if (unlikely(READ_ONCE(f->slot) != (agent_u64)&r->cell)) {
		if (has_cpu)
			count(&c.cpu->frame_errors);
	} else if (f->state & AGENT_FRAME_TASK && f->owner == c.task) {
		leave_task(&c, f);
	}
	c.tsc = rdtsc(); /* not before: what an interrupt calls inside of it is not to be later than its end */
	if (unlikely(!has_cpu) || !READ_ONCE(c.h->enabled)) {
		/* nothing to write, or nowhere */
	} else if (!(f->state & AGENT_FRAME_QUIET)) {
		if (f->state & AGENT_FRAME_USER && READ_ONCE(f->slot) == (agent_u64)&r->cell)
			call_ends(&c, f, r);
		tell_return(&c, f, r, bp);
	} else if (f->state & AGENT_FRAME_CAPTURE) {
		c.ip = f->ip;
		record_capture(&c, f->state >> AGENT_FRAME_DEPTH_SHIFT, r->rax, NULL, f->parent);
	}
	free_frame(&c, f, &r->cell);
}
