/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing one record, for x86-64: the macros that every tracer of the agent is made of. What they
 * call out of line is in ftrace_64.S.
 */
#ifndef GUEST_AGENT_RECORD_64_H
#define GUEST_AGENT_RECORD_64_H

/* Linux v6.1 arch/x86/include/asm/preempt.h: bit 31 of __preempt_count is need_resched, inverted */
#define PREEMPT_COUNT_IDLE       0x80000000
#define PREEMPT_NEED_RESCHED_BIT 31
/* Linux v6.1 include/linux/preempt.h */
#define PREEMPT_MASK         0x000000ff
#define SOFTIRQ_OFFSET       0x00000100
#define SOFTIRQ_DISABLE_MASK 0x0000fe00
#define HARDIRQ_MASK         0x000f0000
#define NMI_MASK             0x00f00000
#define X86_EFLAGS_IF        0x200

#ifdef __ASSEMBLER__
/* The formatter knows no assembler. */
/* clang-format off */
/*
 * The steps of writing a record, one macro each, in the order in which they are used. Registers:
 *
 *   %r10d  CPU                %rcx  struct agent_cpu
 *   %r11   current, later the low 36 bits of word 2
 *   %esi   pid, later (%rsi) word 0
 *   %rax, %rdx  free
 *
 * What is seldom needed lies out of line, behind everything else: .subsection 1.
 */

/* NOT_ENABLED - go to \out unless the agent is switched on */
.macro NOT_ENABLED out
	cmpl	$0, AGENT_HOLE(%rip)
	FIXUP	AGENT_FIX_DATA, AGENT_HEADER_ENABLED, 1
	je	\out
.endm

/* THIS_CPU - %r10d; a CPU that appeared after the agent was loaded goes to \no_cpu */
.macro THIS_CPU no_cpu
	movl	%gs:AGENT_HOLE, %r10d
	FIXUP	AGENT_FIX_GS_CPU
	cmpl	$AGENT_HOLE, %r10d
	FIXUP	AGENT_FIX_NR_CPUS
	jae	\no_cpu
.endm

/* THIS_TASK - %r11 and %esi */
.macro THIS_TASK
	movq	%gs:AGENT_HOLE, %r11
	FIXUP	AGENT_FIX_GS_CURRENT
	movl	AGENT_HOLE(%r11), %esi
	FIXUP	AGENT_FIX_TASK_PID
.endm

/*
 * PID_FILTER - go to \out unless the task is wanted. The host may change list and length at any
 * time: at most AGENT_MAX_PIDS rounds.
 */
.macro PID_FILTER out
	cmpl	$0, AGENT_HOLE(%rip)
	FIXUP	AGENT_FIX_DATA, AGENT_HEADER_N_PIDS, 1
	jne	.Lpids\@
.Lwanted\@:
	.subsection 1
.Lpids\@:
	movl	AGENT_HOLE(%rip), %eax
	FIXUP	AGENT_FIX_DATA, AGENT_HEADER_N_PIDS
	leaq	AGENT_HOLE(%rip), %rdx
	FIXUP	AGENT_FIX_DATA, AGENT_HEADER_PIDS
	testl	%eax, %eax
	jz	.Lwanted\@
	cmpl	$AGENT_MAX_PIDS, %eax
	ja	\out
.Lnext_pid\@:
	cmpl	%esi, -4(%rdx, %rax, 4)
	je	.Lwanted\@
	subl	$1, %eax
	jnz	.Lnext_pid\@
	jmp	\out
	.subsection 0
.endm

/* CPU_DATA - %rcx from %r10d; clobbers \tmp */
.macro CPU_DATA tmp
	movl	%r10d, %e\tmp
	leaq	AGENT_HOLE(%rip), %rcx
	FIXUP	AGENT_FIX_DATA, AGENT_CPU_OFF
	shlq	$AGENT_CPU_SHIFT, %r\tmp
	addq	%r\tmp, %rcx
.endm

/*
 * NAME_TASK - is this the task that was named last on this CPU? By pid, not by task_struct: that is
 * used again at once in a fork storm, under the same comm.
 */
.macro NAME_TASK
	movq	AGENT_HOLE(%r11), %rax
	FIXUP	AGENT_FIX_TASK_COMM
	movq	AGENT_HOLE(%r11), %rdx
	FIXUP	AGENT_FIX_TASK_COMM, 8
	leaq	(%rax, %rdx, 2), %rdx
	cmpq	%rdx, AGENT_CPU_LAST_COMM(%rcx)
	jne	.Lname\@
	cmpl	%esi, AGENT_CPU_LAST_PID(%rcx)
	jne	.Lname\@
.Lnamed\@:
	.subsection 1
.Lname\@:
	call	name_task
	jmp	.Lnamed\@
	.subsection 0
.endm

/*
 * LOW_36 - from here on %r11 is the low 36 bits of word 2: pid, \type, context
 *
 * Nothing but locks held and interrupts off is the most frequent; the rest is in gen_context.
 */
.macro LOW_36 type
	movl	%gs:AGENT_HOLE, %eax
	FIXUP	AGENT_FIX_GS_PREEMPT
	subl	$PREEMPT_COUNT_IDLE, %eax
	cmpl	$AGENT_CTX_PREEMPT, %eax
	ja	.Lcontext\@
	cmpb	$0, AGENT_HOLE(%r11)
	FIXUP	AGENT_FIX_TASK_MIGRATE, 0, 1
	jne	.Lcontext\@
	pushfq
	popq	%rdx
	notl	%edx
	andl	$X86_EFLAGS_IF, %edx
	shrl	$2, %edx			/* 0x200 -> AGENT_CTX_IRQS_OFF */
	orl	%edx, %eax
	shlq	$AGENT_CTX_SHIFT, %rax
	leaq	(\type << AGENT_TYPE_SHIFT)(%rsi, %rax), %r11
.Lcontext_done\@:
	.subsection 1
.Lcontext\@:
	orl	$(\type << AGENT_TYPE_SHIFT), %esi
	call	gen_context
	jmp	.Lcontext_done\@
	.subsection 0
.endm

/*
 * TRY_RESERVE - discard mode: one attempt to move head from %rax to %rax + \n
 *
 * In:   %rcx  struct agent_cpu   %rax  head as seen last
 * Out:  ZF set: %rax is the first index reserved; ZF clear: somebody else was faster, %rax is the
 *       new head; at \full when fewer than \n slots are free
 * Clobbers: %rdx
 *
 * A cmpxchg and not an xadd: a refused reservation must leave no hole. Locked although the line is
 * this CPU's own: a task that was preempted since it read its CPU number may sit on another one.
 * Signed: the head we hold may be older than tail, when others wrote and the host read meanwhile.
 * That is not "full", the cmpxchg finds it out.
 */
.macro TRY_RESERVE n, full
	movq	%rax, %rdx
	subq	AGENT_CPU_TAIL(%rcx), %rdx
	cmpq	$AGENT_HOLE, %rdx
	FIXUP	AGENT_FIX_RING_SLOTS, -\n
	jg	\full
	leaq	\n(%rax), %rdx
	lock cmpxchgq %rdx, AGENT_CPU_HEAD(%rcx)
.endm

/* RESERVE - %rax: index of a record of ours; to \full when there is no room, or too much traffic */
.macro RESERVE full
	cmpl	$AGENT_MODE_DISCARD, AGENT_HOLE(%rip)
	FIXUP	AGENT_FIX_DATA, AGENT_HEADER_MODE, 1
	jne	.Loverwrite\@
	movq	AGENT_CPU_HEAD(%rcx), %rax
	TRY_RESERVE 1, \full
	jne	.Lagain\@
.Lreserved\@:
	testl	$(AGENT_COMM_PERIOD - 1), %eax
	jz	.Lforget\@
.Lforgotten\@:
	.subsection 1
.Loverwrite\@:
	movl	$1, %eax
	lock xaddq %rax, AGENT_CPU_HEAD(%rcx)
	jmp	.Lreserved\@
.Lagain\@:
	call	reserve_again
	testq	%rax, %rax
	js	\full
	jmp	.Lreserved\@
	/* Name the task again with the next record. */
.Lforget\@:
	movl	$-1, AGENT_CPU_LAST_PID(%rcx)
	jmp	.Lforgotten\@
	.subsection 0
.endm

/* SLOT - %r10: the slot of record %rax; %rsi: word 0 with its lap. Clobbers %rcx, %rdx */
.macro SLOT
	leaq	AGENT_HOLE(%rip), %rcx
	FIXUP	AGENT_FIX_RING
	imulq	$AGENT_HOLE, %r10, %r10
	FIXUP	AGENT_FIX_RING_BYTES
	addq	%rcx, %r10			/* this CPU's ring */
	leaq	AGENT_HOLE(%rax), %rdx
	FIXUP	AGENT_FIX_RING_SLOTS
	shrq	$AGENT_HOLE8, %rdx
	FIXUP8	AGENT_FIX_RING_SHIFT
	shlq	$AGENT_LAP_SHIFT, %rdx
	orq	%rdx, %rsi
	andl	$AGENT_HOLE, %eax
	FIXUP	AGENT_FIX_RING_MASK
	leaq	(%rax, %rax, 2), %rax
	leaq	(%r10, %rax, 8), %r10
.endm

/*
 * STORE - write it; %rax: word 1. Clobbers %rax, %rcx, %rsi. Word 2 goes last; x86 keeps stores in
 * order.
 */
.macro STORE
	movq	%rsi, (%r10)
	movq	%rax, 8(%r10)
	rolq	$AGENT_CHECK_ROTATE, %rax
	xorq	%r11, %rsi
	xorq	%rsi, %rax
	movabsq	$AGENT_CHECK_MUL, %rcx
	imulq	%rcx, %rax
	shrq	$AGENT_CHECK_SHIFT, %rax
	shlq	$AGENT_CHECK_SHIFT, %rax
	orq	%r11, %rax
	movq	%rax, 16(%r10)
.endm
/* clang-format on */
#endif

#endif
