/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate of the agent's C to functions of the guest's kernel: see AGENT_CALL_STACK. Only full.c
 * includes it.
 */
#ifndef GUEST_AGENT_FULL_CALL_H
#define GUEST_AGENT_FULL_CALL_H

#include "guest-agent/full_64.h"
#include "guest-agent/full_record.h"

/* Four arguments, as the calling convention has them. */
#define DEFINE_GUEST_CALL(name)                                                              \
	static inline agent_u64 name(agent_u64 a1, agent_u64 a2, agent_u64 a3, agent_u64 a4) \
	{                                                                                    \
		agent_u64 ret;                                                               \
                                                                                             \
		__asm__ volatile("call " #name                                               \
				 : "=a"(ret), "+D"(a1), "+S"(a2), "+d"(a3), "+c"(a4)         \
				 :                                                           \
				 : "r8", "r9", "r10", "r11", "cc", "memory");                \
		return ret;                                                                  \
	}

DEFINE_GUEST_CALL(guest_call_stack) /* (regs, entries, number of entries, how many to leave out) */
DEFINE_GUEST_CALL(guest_call_copy) /* (to, from, bytes): 0, or an error */
DEFINE_GUEST_CALL(guest_call_strncpy) /* (to, from, bytes): bytes with the NUL, or an error */

static inline void irqs_off(void)
{
	__asm__ volatile("cli" ::: "memory");
}

static inline void irqs_on(void)
{
	__asm__ volatile("sti" ::: "memory");
}

/* Nobody else has the task's own word on its CPU: it says that we are inside of what we called. */
static bool in_gate(const struct call *c)
{
	return READ_ONCE(c->cpu->busy) == c->task;
}

/*
 * From here to gate_close() the task stays on this CPU, the scratch is its own, and the guest's functions may
 * be called. False: not from here. The CPU may be another than that whose ring @c writes to.
 */
static always_inline bool gate_open_here(struct call *c)
{
	agent_u32 n;

	c->irqs = flags() & X86_EFLAGS_IF;
	irqs_off();
	n = this_cpu();
	if (likely(n < c->h->nr_cpus && !(preempt_count() & NMI_MASK))) {
		c->gate = (struct agent_cpu *)in_data(c->h, AGENT_CPU_OFF) + n;
		if (READ_ONCE(c->gate->busy) != c->task) {
			WRITE_ONCE(c->gate->busy, c->task);
			return true;
		}
	}
	c->gate = NULL;
	if (c->irqs)
		irqs_on();
	return false;
}

__attribute__((noinline)) static bool gate_open(struct call *c)
{
	return gate_open_here(c);
}

/* Nothing, if it is not open. */
static void gate_close(struct call *c)
{
	if (likely(!c->gate))
		return;
	WRITE_ONCE(c->gate->busy, 0);
	c->gate = NULL;
	if (c->irqs)
		irqs_on();
}

#endif
