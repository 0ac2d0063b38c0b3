/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent's C (full.c) has of the machine, of the guest's kernel and of the agent's assembler:
 * inline assembler around the same fixups, and calls of the routines that both share. Only full.c, with full_record.h,
 * includes it: compile-full.sh turns both into text that ftrace_64.S includes, where FIXUP and the
 * labels are.
 */
#ifndef GUEST_AGENT_FULL_64_H
#define GUEST_AGENT_FULL_64_H

#include "guest-agent/agent_abi.h"
#include "guest-agent/linkage.h"
#include "guest-agent/record_64.h"

#include <stdbool.h>
#include <stddef.h>

#define STR_1(x)     #x
#define STR(x)       STR_1(x)
#define HOLE         STR(AGENT_HOLE)
#define HOLE8        STR(AGENT_HOLE8)
#define FIXUP(kind)  "\n\tFIXUP " STR(kind)
#define FIXUP8(kind) "\n\tFIXUP8 " STR(kind)

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* What a system call passes on every way: a call and a return are dear where code is translated. */
/* NOLINTNEXTLINE(readability-identifier-naming): the kernel's name of it */
#define always_inline inline __attribute__((always_inline))

/* Another CPU, the host or an interrupt may look at it, or change it, between any two instructions. */
#define READ_ONCE(x)     (*(const volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, v) (*(volatile __typeof__(x) *)&(x) = (v))

/* Pointers into the agent's data, and of the guest's stack, are made of numbers. */
/* NOLINTBEGIN(performance-no-int-to-ptr) */

static inline struct agent_header *header(void)
{
	struct agent_header *h;

	__asm__("leaq " HOLE "(%%rip), %0" FIXUP(AGENT_FIX_DATA) : "=r"(h));
	return h;
}

static inline agent_u64 trampolines(void)
{
	agent_u64 va;

	__asm__("leaq agent_trampolines(%%rip), %0" : "=r"(va));
	return va;
}

static inline void *in_data(const struct agent_header *h, agent_u64 off)
{
	return (char *)h + off;
}

static inline struct agent_frame *frame_at(agent_u32 n)
{
	struct agent_frame *first;

	__asm__("leaq " HOLE "(%%rip), %0" FIXUP(AGENT_FIX_FRAMES) : "=r"(first));
	return first + n;
}

static inline agent_u32 frame_number(const struct agent_frame *f)
{
	return (agent_u32)(f - frame_at(0));
}

/* How far trampolines go. */
static inline agent_u32 trampoline_bytes(void)
{
	agent_u32 bytes;

	__asm__("movl $" HOLE ", %0" FIXUP(AGENT_FIX_TRAMP_BYTES) : "=r"(bytes));
	return bytes;
}

/* A CPU's ring, and where record @index of it goes: SLOT */
static inline char *ring_of(agent_u32 cpu)
{
	agent_u64 off;
	char *first;

	__asm__("leaq " HOLE "(%%rip), %0" FIXUP(AGENT_FIX_RING) : "=r"(first));
	__asm__("imulq $" HOLE ", %1, %0" FIXUP(AGENT_FIX_RING_BYTES)
		: "=r"(off)
		: "r"((agent_u64)cpu)
		: "cc");
	return first + off;
}

static inline char *ring_end(char *ring)
{
	__asm__("addq $" HOLE ", %0" FIXUP(AGENT_FIX_RING_BYTES) : "+r"(ring) : : "cc");
	return ring;
}

static inline agent_u64 ring_slot(agent_u64 index)
{
	agent_u32 slot = (agent_u32)index;

	__asm__("andl $" HOLE ", %0" FIXUP(AGENT_FIX_RING_MASK) : "+r"(slot) : : "cc");
	return slot;
}

/* How often the ring was filled before. */
static inline agent_u64 ring_lap(agent_u64 index)
{
	__asm__("shrq $" HOLE8 ", %0" FIXUP8(AGENT_FIX_RING_SHIFT) : "+r"(index) : : "cc");
	return index;
}

static inline agent_u32 this_cpu(void)
{
	agent_u32 cpu;

	__asm__ volatile("movl %%gs:" HOLE ", %0" FIXUP(AGENT_FIX_GS_CPU) : "=r"(cpu));
	return cpu;
}

static inline agent_u64 this_task(void)
{
	agent_u64 task;

	__asm__ volatile("movq %%gs:" HOLE ", %0" FIXUP(AGENT_FIX_GS_CURRENT) : "=r"(task));
	return task;
}

static inline agent_u32 preempt_count(void)
{
	agent_u32 count;

	__asm__ volatile("movl %%gs:" HOLE ", %0" FIXUP(AGENT_FIX_GS_PREEMPT) : "=r"(count));
	return count;
}

static inline agent_u32 task_pid(agent_u64 task)
{
	agent_u32 pid;

	__asm__ volatile("movl " HOLE "(%1), %0" FIXUP(AGENT_FIX_TASK_PID) : "=r"(pid) : "r"(task));
	return pid;
}

static inline agent_u64 task_start_time(agent_u64 task)
{
	agent_u64 t;

	__asm__ volatile("movq " HOLE "(%1), %0" FIXUP(AGENT_FIX_TASK_START) : "=r"(t) : "r"(task));
	return t;
}

/* comm[0..7] + 2 * comm[8..15], as in agent_cpu.last_comm */
static inline agent_u64 task_comm(agent_u64 task)
{
	const agent_u64 *comm;

	__asm__ volatile("leaq " HOLE "(%1), %0" FIXUP(AGENT_FIX_TASK_COMM)
			 : "=r"(comm)
			 : "r"(task));
	return READ_ONCE(comm[0]) + 2 * READ_ONCE(comm[1]);
}

static inline bool task_migrates(agent_u64 task)
{
	const unsigned char *disabled;

	__asm__ volatile("leaq " HOLE "(%1), %0" FIXUP(AGENT_FIX_TASK_MIGRATE)
			 : "=r"(disabled)
			 : "r"(task));
	return READ_ONCE(*disabled) == 0;
}

/* A word of the guest's kernel, which is mapped. */
static inline agent_u64 peek(agent_u64 va)
{
	return *(const volatile agent_u64 *)va;
}

static inline agent_u64 rdtsc(void)
{
	agent_u32 lo, hi;

	__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
	return (agent_u64)hi << 32 | lo;
}

static inline agent_u64 flags(void)
{
	agent_u64 v;

	__asm__ volatile("pushfq\n\tpopq %0" : "=r"(v));
	return v;
}

/* Low 36 bits of a record's word 2: what LOW_36 of record_64.h works out. */
static inline agent_u64 record_low36(agent_u64 task, agent_u32 pid, agent_u32 type)
{
	agent_u32 count = preempt_count() - PREEMPT_COUNT_IDLE;
	register agent_u64 r11 __asm__("r11");

	if (likely(count <= AGENT_CTX_PREEMPT && task_migrates(task))) {
		agent_u32 off = (agent_u32)~flags() & X86_EFLAGS_IF;

		return (agent_u64)(count | off >> 2) << AGENT_CTX_SHIFT | type << AGENT_TYPE_SHIFT |
		       pid;
	}
	r11 = task;
	__asm__ volatile("call gen_context"
			 : "+r"(r11)
			 : "S"((agent_u64)(type << AGENT_TYPE_SHIFT | pid))
			 : "rax", "rdx", "cc");
	return r11;
}

static inline void name_task(struct agent_cpu *cpu, agent_u32 cpu_no, agent_u64 task, agent_u32 pid)
{
	register agent_u64 r10 __asm__("r10") = cpu_no;
	register agent_u64 r11 __asm__("r11") = task;

	if (likely(READ_ONCE(cpu->last_comm) == task_comm(task) && READ_ONCE(cpu->last_pid) == pid))
		return;
	__asm__ volatile("call name_task"
			 :
			 : "c"(cpu), "r"(r10), "r"(r11), "S"((agent_u64)pid)
			 : "rax", "rdx", "cc", "memory");
}

/* NOLINTNEXTLINE(readability-non-const-parameter): it is written */
static inline bool change(agent_u64 *p, agent_u64 from, agent_u64 to)
{
	return __atomic_compare_exchange_n(p, &from, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* The list @seen with frame number + 1 @first instead of its first one. */
static inline agent_u64 free_list(agent_u64 seen, agent_u32 first)
{
	return ((seen >> 32) + 1) << 32 | first;
}

/* POP_FRAME once; all else is take_frame's of graph_64.S. */
static inline struct agent_frame *take_frame(struct agent_cpu *cpu, agent_u32 cpu_no)
{
	register agent_u64 r10 __asm__("r10") = cpu_no;
	agent_u64 seen = READ_ONCE(cpu->free_frames);
	struct agent_frame *f = frame_at((agent_u32)seen - 1);

	if (likely((agent_u32)seen &&
		   change(&cpu->free_frames, seen, free_list(seen, READ_ONCE(f->next)))))
		return f;
	__asm__ volatile("call take_frame"
			 : "=D"(f)
			 : "c"(cpu), "r"(r10)
			 : "rax", "rdx", "r8", "cc", "memory");
	return f;
}

/* PUSH_FRAME once, else put_frame of graph_64.S */
static inline void put_frame(struct agent_cpu *cpu, struct agent_frame *f)
{
	agent_u64 seen = READ_ONCE(cpu->free_frames);

	WRITE_ONCE(f->next, (agent_u32)seen);
	if (likely(change(&cpu->free_frames, seen, free_list(seen, frame_number(f) + 1))))
		return;
	__asm__ volatile("call put_frame"
			 :
			 : "c"(cpu), "D"(f)
			 : "rax", "rdx", "r8", "cc", "memory");
}

static inline agent_u64 irq_save(void)
{
	agent_u64 saved;

	__asm__ volatile("pushfq\n\tpopq %0\n\tcli" : "=r"(saved) : : "memory");
	return saved;
}

static inline void irq_restore(agent_u64 saved)
{
	__asm__ volatile("pushq %0\n\tpopfq" : : "r"(saved) : "cc", "memory");
}

/* NOLINTNEXTLINE(readability-non-const-parameter): as above */
static inline void count(agent_u64 *p)
{
	__atomic_fetch_add(p, 1, __ATOMIC_RELAXED);
}
/* NOLINTEND(performance-no-int-to-ptr) */

#endif
