/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ftrace_caller and the function tracer, for x86-64.
 *
 * Position independent without relocations: references within text are resolved by the assembler,
 * everything else is a FIXUP. General registers only; no stack below %rsp is relied on (an
 * interrupt may overwrite it at once: kernels have no red zone). No lock, no call into the guest,
 * no loop without a small bound; safe in process, softirq, irq and NMI context at every
 * instruction.
 *
 * Registers. At a call site the traced function's arguments are live (rdi rsi rdx rcx r8 r9, al for
 * variable arguments) and everything callee-saved. Free are r10, r11 and the arithmetic flags: the
 * kernel's own ftrace_caller does not save them either (Linux v6.1 arch/x86/kernel/ftrace_64.S
 * save_mcount_regs), and a compiler that knew from -fipa-ra that a local function leaves r10 alone
 * does not exist: gcc switches -fipa-ra off under -pg.
 *
 * IBT: everything here is reached by direct call or jump and by ret, so no endbr64 is needed.
 * Supervisor shadow stacks are not used by Linux; call and ret are balanced all the same.
 *
 * What a record costs natively, by bench_agent with a part taken out (AMD EPYC 7003 under KVM, best
 * of 8 x 15 rounds): 14.8 ns in all with the calls to it, 14.2 in overwrite mode. Of that rdtsc
 * 5.7, pushfq 1.7, the lock prefix 0.5, looking whether the task has a name 0.4; two more registers
 * saved and restored 0.0 to 0.2, so r8 and r9 would be to be had where they saved anything.
 */
#include "guest-agent/agent_abi.h"
#include "guest-agent/agent_offsets.h"
#include "guest-agent/linkage.h"

/* Linux v6.1 arch/x86/include/asm/preempt.h: bit 31 of __preempt_count is need_resched, inverted */
#define PREEMPT_COUNT_IDLE 0x80000000
#define PREEMPT_NEED_RESCHED_BIT 31
/* Linux v6.1 include/linux/preempt.h */
#define PREEMPT_MASK 0x000000ff
#define SOFTIRQ_OFFSET 0x00000100
#define SOFTIRQ_DISABLE_MASK 0x0000fe00
#define HARDIRQ_MASK 0x000f0000
#define NMI_MASK 0x00f00000
#define X86_EFLAGS_IF 0x200

	.section .rodata.agent_fixups, "a", @progbits
	.p2align 2
agent_fixups:

	.section .rodata.agent_text, "a", @progbits
	.p2align 12
agent_text:

/*
 * ftrace_caller - what every armed call site calls
 *
 * In:       all registers of the traced function at its entry
 * Out:      all unchanged but r10, r11, flags; control after the call site
 * Stack:    8(%rsp)  return address into the traced function's caller (parent)
 *            (%rsp)  return address into the traced function: call site + 5 (ip)
 *           The frame is not set up yet: the site is the first instruction, or follows endbr64.
 *
 * ftrace_call and ftrace_graph_call are rewritten by the host while the guest runs or stands still:
 * one instruction of MCOUNT_INSN_SIZE bytes each, ftrace_call within one aligned 8-byte word.
 */
SYM_FUNC_START(ftrace_caller)
SYM_INNER_LABEL(ftrace_call)
	.byte	0xe8			/* call ftrace_stub; the long form whatever the assembler */
	.long	ftrace_stub - . - 4
SYM_INNER_LABEL(ftrace_graph_call)
	.byte	0x0f, 0x1f, 0x44, 0x00, 0x00
	RETURN
SYM_INNER_LABEL(ftrace_caller_end)
SYM_FUNC_END(ftrace_caller)

/* ftrace_stub - the tracer that does nothing */
SYM_FUNC_START(ftrace_stub)
	RETURN
SYM_FUNC_END(ftrace_stub)

/* Where function_trace_call finds things once it has saved four registers. */
#define FRAME_IP 40 /* call site + 5 */
#define FRAME_PARENT 48

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

/*
 * function_trace_call - write one AGENT_REC_FUNCTION record
 *
 * In:       as ftrace_caller, one return address deeper
 * Out:      all registers unchanged but r10, r11, flags
 * Stack:    FRAME_PARENT(%rsp)  parent
 *           FRAME_IP(%rsp)      call site + 5
 *           32(%rsp)            return address into ftrace_caller
 *           0..24(%rsp)         rsi, rdx, rcx, rax of the traced function
 *
 * What can be known beforehand is worked out before the slot is reserved, the TSC above all: the
 * time in which a preempted writer holds up a reader is then some 5 ns, not 20. Word 2 goes last;
 * x86 keeps stores in order.
 */
SYM_FUNC_START(function_trace_call)
	cmpl	$0, AGENT_HOLE(%rip)
	FIXUP	AGENT_FIX_DATA, AGENT_HEADER_ENABLED, 1
	je	.Lreturn
	movl	%gs:AGENT_HOLE, %r10d
	FIXUP	AGENT_FIX_GS_CPU
	cmpl	$AGENT_HOLE, %r10d
	FIXUP	AGENT_FIX_NR_CPUS
	jae	.Lno_cpu
	pushq	%rax
	pushq	%rcx
	pushq	%rdx
	pushq	%rsi
	movq	%gs:AGENT_HOLE, %r11
	FIXUP	AGENT_FIX_GS_CURRENT
	movl	AGENT_HOLE(%r11), %esi
	FIXUP	AGENT_FIX_TASK_PID
	cmpl	$0, AGENT_HOLE(%rip)
	FIXUP	AGENT_FIX_DATA, AGENT_HEADER_N_PIDS, 1
	jne	.Lpid_filter
.Lpid_wanted:
	/*
	 * Is this the task that was named last on this CPU? By pid, not by task_struct: that is
	 * used again at once in a fork storm, under the same comm.
	 */
	movl	%r10d, %eax
	leaq	AGENT_HOLE(%rip), %rcx
	FIXUP	AGENT_FIX_DATA, AGENT_CPU_OFF
	shlq	$AGENT_CPU_SHIFT, %rax
	addq	%rax, %rcx			/* rcx: struct agent_cpu */
	movq	AGENT_HOLE(%r11), %rax
	FIXUP	AGENT_FIX_TASK_COMM
	movq	AGENT_HOLE(%r11), %rdx
	FIXUP	AGENT_FIX_TASK_COMM, 8
	leaq	(%rax, %rdx, 2), %rdx
	cmpq	%rdx, AGENT_CPU_LAST_COMM(%rcx)
	jne	.Lcomm
	cmpl	%esi, AGENT_CPU_LAST_PID(%rcx)
	jne	.Lcomm
.Lcomm_done:
	/* Nothing but locks held and interrupts off is the most frequent; the rest is below. */
	movl	%gs:AGENT_HOLE, %eax
	FIXUP	AGENT_FIX_GS_PREEMPT
	subl	$PREEMPT_COUNT_IDLE, %eax
	cmpl	$AGENT_CTX_PREEMPT, %eax
	ja	.Lcontext
	cmpb	$0, AGENT_HOLE(%r11)
	FIXUP	AGENT_FIX_TASK_MIGRATE, 0, 1
	jne	.Lcontext
	pushfq
	popq	%rdx
	notl	%edx
	andl	$X86_EFLAGS_IF, %edx
	shrl	$2, %edx			/* 0x200 -> AGENT_CTX_IRQS_OFF */
	orl	%edx, %eax
	shlq	$AGENT_CTX_SHIFT, %rax
	leaq	(AGENT_REC_FUNCTION << AGENT_TYPE_SHIFT)(%rsi, %rax), %r11
.Lcontext_done:					/* r11: low 36 bits of word 2 */
	rdtsc
	movzwl	%dx, %esi
	shlq	$32, %rsi
	orq	%rax, %rsi			/* rsi: word 0 but for the lap */

	cmpl	$AGENT_MODE_DISCARD, AGENT_HOLE(%rip)
	FIXUP	AGENT_FIX_DATA, AGENT_HEADER_MODE, 1
	jne	.Loverwrite
	movq	AGENT_CPU_HEAD(%rcx), %rax
	TRY_RESERVE 1, .Lfull
	jne	.Lagain
.Lreserved:					/* rax: index of the record */
	testl	$(AGENT_COMM_PERIOD - 1), %eax
	jz	.Lforget
.Lforgotten:
	leaq	AGENT_HOLE(%rip), %rcx
	FIXUP	AGENT_FIX_RING
	imulq	$AGENT_HOLE, %r10, %r10
	FIXUP	AGENT_FIX_RING_BYTES
	addq	%rcx, %r10			/* r10: this CPU's ring */
	leaq	AGENT_HOLE(%rax), %rdx
	FIXUP	AGENT_FIX_RING_SLOTS
	shrq	$AGENT_HOLE8, %rdx
	FIXUP8	AGENT_FIX_RING_SHIFT
	shlq	$AGENT_LAP_SHIFT, %rdx
	orq	%rdx, %rsi			/* rsi: word 0 */
	andl	$AGENT_HOLE, %eax
	FIXUP	AGENT_FIX_RING_MASK
	leaq	(%rax, %rax, 2), %rax
	leaq	(%r10, %rax, 8), %r10		/* r10: the slot */

	movl	FRAME_IP(%rsp), %edx
	movl	FRAME_PARENT(%rsp), %eax
	subl	$5, %edx
	shlq	$32, %rax
	orq	%rdx, %rax			/* rax: word 1 */
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
.Lrestore:
	popq	%rsi
	popq	%rdx
	popq	%rcx
	popq	%rax
.Lreturn:
	RETURN

.Loverwrite:
	movl	$1, %eax
	lock xaddq %rax, AGENT_CPU_HEAD(%rcx)
	jmp	.Lreserved

/* Name the task again with the next record. */
.Lforget:
	movl	$-1, AGENT_CPU_LAST_PID(%rcx)
	jmp	.Lforgotten

/* Somebody reserved between our look at head and the cmpxchg: an interrupt, or a migrated task. */
.Lagain:
	.rept	AGENT_RESERVE_TRIES - 1
	TRY_RESERVE 1, .Lfull
	je	.Lreserved
	.endr
.Lfull:
	lock incq AGENT_CPU_LOST(%rcx)
	jmp	.Lrestore

/* A CPU that appeared after the agent was loaded. */
.Lno_cpu:
	lock incq AGENT_HOLE(%rip)
	FIXUP	AGENT_FIX_DATA, AGENT_HEADER_LOST_NOCPU
	RETURN

/* esi: pid. The host may change list and length at any time: at most AGENT_MAX_PIDS rounds. */
.Lpid_filter:
	movl	AGENT_HOLE(%rip), %eax
	FIXUP	AGENT_FIX_DATA, AGENT_HEADER_N_PIDS
	leaq	AGENT_HOLE(%rip), %rdx
	FIXUP	AGENT_FIX_DATA, AGENT_HEADER_PIDS
	testl	%eax, %eax
	jz	.Lpid_wanted
	cmpl	$AGENT_MAX_PIDS, %eax
	ja	.Lrestore
.Lpid_next:
	cmpl	%esi, -4(%rdx, %rax, 4)
	je	.Lpid_wanted
	subl	$1, %eax
	jnz	.Lpid_next
	jmp	.Lrestore

/*
 * An interrupt, a softirq, a reschedule pending, migration disabled ...: work the context out.
 * In: r11 task, esi pid. Out: r11. Clobbers: rax, rdx. As Linux v6.1 kernel/trace/trace.c
 * tracing_gen_ctx_irq_test(). Adding a mask to a masked value carries out of its top bit exactly
 * when the value is not 0: no branches, of which interrupts would have the predictor miss most.
 */
.Lcontext:
	orl	$(AGENT_REC_FUNCTION << AGENT_TYPE_SHIFT), %esi
	cmpb	$1, AGENT_HOLE(%r11)		/* CF: migration is not disabled */
	FIXUP	AGENT_FIX_TASK_MIGRATE, 0, 1
	sbbl	%edx, %edx
	notl	%edx
	andl	$AGENT_CTX_MIGRATE, %edx
	pushfq
	popq	%r11
	notl	%r11d
	andl	$X86_EFLAGS_IF, %r11d
	shrl	$2, %r11d			/* 0x200 -> AGENT_CTX_IRQS_OFF */
	orl	%r11d, %edx
	movl	%gs:AGENT_HOLE, %eax
	FIXUP	AGENT_FIX_GS_PREEMPT
	movl	%eax, %r11d
	notl	%r11d
	shrl	$PREEMPT_NEED_RESCHED_BIT, %r11d
	shll	$8, %r11d			/* -> AGENT_CTX_RESCHED */
	orl	%r11d, %edx
	movl	%eax, %r11d
	andl	$SOFTIRQ_OFFSET, %r11d
	shrl	$4, %r11d			/* 0x100 -> AGENT_CTX_SOFTIRQ */
	orl	%r11d, %edx
	movl	%eax, %r11d
	andl	$SOFTIRQ_DISABLE_MASK, %r11d
	addl	$SOFTIRQ_DISABLE_MASK, %r11d
	shrl	$7, %r11d			/* 0x10000 -> AGENT_CTX_BH_OFF */
	andl	$AGENT_CTX_BH_OFF, %r11d
	orl	%r11d, %edx
	movl	%eax, %r11d
	andl	$HARDIRQ_MASK, %r11d
	addl	$HARDIRQ_MASK, %r11d
	shrl	$15, %r11d			/* 0x100000 -> AGENT_CTX_HARDIRQ */
	andl	$AGENT_CTX_HARDIRQ, %r11d
	orl	%r11d, %edx
	movl	%eax, %r11d
	andl	$NMI_MASK, %r11d
	addl	$NMI_MASK, %r11d
	shrl	$18, %r11d			/* 0x1000000 -> AGENT_CTX_NMI */
	andl	$AGENT_CTX_NMI, %r11d
	orl	%r11d, %edx
	andl	$PREEMPT_MASK, %eax
	movl	$AGENT_CTX_PREEMPT, %r11d
	cmpl	%r11d, %eax
	cmovbl	%eax, %r11d			/* min(depth, 15) */
	orl	%edx, %r11d
	shlq	$AGENT_CTX_SHIFT, %r11
	orq	%rsi, %r11
	jmp	.Lcontext_done

/*
 * COMM_RECORD - write one half of a COMM pair
 *
 * In:   %rax index of the pair's first, %rbx ring, %r11 task, %esi pid, \word half of the comm
 * Clobbers: %rdx, %rbp, \word
 */
.macro COMM_RECORD n, type, word
	leaq	\n(%rax), %rbp
	leaq	AGENT_HOLE(%rax), %rdx
	FIXUP	AGENT_FIX_RING_SLOTS, \n
	andl	$AGENT_HOLE, %ebp
	FIXUP	AGENT_FIX_RING_MASK
	leaq	(%rbp, %rbp, 2), %rbp
	leaq	(%rbx, %rbp, 8), %rbp
	shrq	$AGENT_HOLE8, %rdx
	FIXUP8	AGENT_FIX_RING_SHIFT
	shlq	$AGENT_LAP_SHIFT, %rdx
	orq	%rdi, %rdx
	movq	%rdx, (%rbp)
	movq	\word, 8(%rbp)
	rolq	$AGENT_CHECK_ROTATE, \word
	xorq	\word, %rdx
	leaq	(\type << AGENT_TYPE_SHIFT)(%rsi), \word
	xorq	\word, %rdx
	imulq	.Lcheck_mul(%rip), %rdx
	shrq	$AGENT_CHECK_SHIFT, %rdx
	shlq	$AGENT_CHECK_SHIFT, %rdx
	orq	\word, %rdx
	movq	%rdx, 16(%rbp)
.endm

/*
 * Another task than the last one: name it. In, preserved: rcx agent_cpu, r10 cpu, r11 task, esi
 * pid.
 *
 * What is remembered is what was written, and only once it is: an interrupt in between names the
 * task again, which costs two slots and nothing else. A task that is preempted before it remembers
 * may do so after its successor did. Then the CPU's next record does not match and names its task
 * again, or it is the late one's own, whose name the ring has had. No room: nothing is remembered,
 * the next record tries again.
 */
.Lcomm:
	pushq	%rbx
	pushq	%rbp
	pushq	%rdi
	pushq	%r8
	pushq	%r9
	pushq	%r12
	movq	AGENT_HOLE(%r11), %r8
	FIXUP	AGENT_FIX_TASK_COMM
	movq	AGENT_HOLE(%r11), %r9
	FIXUP	AGENT_FIX_TASK_COMM, 8
	movl	AGENT_HOLE(%r11), %edi
	FIXUP	AGENT_FIX_TASK_TGID
	leaq	(%r8, %r9, 2), %r12
	cmpl	$AGENT_MODE_DISCARD, AGENT_HOLE(%rip)
	FIXUP	AGENT_FIX_DATA, AGENT_HEADER_MODE, 1
	jne	.Lcomm_overwrite
	movq	AGENT_CPU_HEAD(%rcx), %rax
	.rept	AGENT_RESERVE_TRIES
	TRY_RESERVE 2, .Lcomm_out
	je	.Lcomm_reserved
	.endr
	jmp	.Lcomm_out
.Lcomm_overwrite:
	movl	$2, %eax
	lock xaddq %rax, AGENT_CPU_HEAD(%rcx)
.Lcomm_reserved:
	movl	%r10d, %ebx
	imulq	$AGENT_HOLE, %rbx, %rbx
	FIXUP	AGENT_FIX_RING_BYTES
	leaq	AGENT_HOLE(%rip), %rdx
	FIXUP	AGENT_FIX_RING
	addq	%rdx, %rbx
	COMM_RECORD 0, AGENT_REC_COMM_A, %r8
	COMM_RECORD 1, AGENT_REC_COMM_B, %r9
	movq	%r12, AGENT_CPU_LAST_COMM(%rcx)
	movl	%esi, AGENT_CPU_LAST_PID(%rcx)
.Lcomm_out:
	popq	%r12
	popq	%r9
	popq	%r8
	popq	%rdi
	popq	%rbp
	popq	%rbx
	jmp	.Lcomm_done
	.p2align 3
.Lcheck_mul:
	.quad	AGENT_CHECK_MUL
SYM_FUNC_END(function_trace_call)
	.org	agent_text + AGENT_TEXT_BYTES, 0xcc	/* fails when the code outgrew it */
agent_text_end:

	.section .rodata.agent_fixups, "a", @progbits
agent_fixups_end:

/* struct agent_blob; the two pointers are relocated by the host's loader */
	.section .data.rel.ro, "aw", @progbits
	.p2align 3
	.globl agent_blob
	.hidden agent_blob
	.type agent_blob, @object
agent_blob:
	.quad	agent_text
	.long	agent_text_end - agent_text
	.long	0
	.quad	agent_fixups
	.long	(agent_fixups_end - agent_fixups) / 16
	.long	ftrace_caller - agent_text
	.long	ftrace_call - agent_text
	.long	ftrace_graph_call - agent_text
	.long	ftrace_stub - agent_text
	.long	function_trace_call - agent_text
	.long	ftrace_stub - agent_text
	.long	ftrace_stub - agent_text
	.long	0
	.size agent_blob, . - agent_blob

	.section .note.GNU-stack, "", @progbits
