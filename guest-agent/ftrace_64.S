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
#include "guest-agent/record_64.h"

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
 * one instruction of MCOUNT_INSN_SIZE bytes each, within one aligned 8-byte word.
 *
 * Linux calls the tracer, then comes to ftrace_graph_call. Here the graph caller goes first and never
 * falls through, and both are jumps: a call is recorded once, switching between the two on a live
 * trace is one instruction, and a call and a return less are executed, which under TCG is a fifth of a
 * record's cost.
 */
	.p2align 4, 0xcc
	.byte	0xcc, 0xcc, 0xcc
	.type ftrace_caller, @function
SYM_INNER_LABEL(ftrace_caller)
SYM_INNER_LABEL(ftrace_graph_call)
	.byte	0x0f, 0x1f, 0x44, 0x00, 0x00
SYM_INNER_LABEL(ftrace_call)
	.byte	0xe9			/* jmp ftrace_stub; the long form whatever the assembler */
	.long	ftrace_stub - . - 4
SYM_FUNC_END(ftrace_caller)

/* ftrace_stub - the tracer that does nothing */
SYM_FUNC_START(ftrace_stub)
	RETURN
SYM_FUNC_END(ftrace_stub)

/* Where function_trace_call finds things once it has saved four registers. */
#define FRAME_IP 32 /* call site + 5 */
#define FRAME_PARENT 40

/*
 * function_trace_call, mcount_trace_call - write one AGENT_REC_FUNCTION record
 *
 * In:       as ftrace_caller, as mcount_caller; jumped to
 * Out:      all registers unchanged but r10, r11, flags
 * Stack:    FRAME_PARENT(%rsp)  parent, of function_trace_call
 *           FRAME_IP(%rsp)      call site + 5
 *           0..24(%rsp)         rsi, rdx, rcx, rax of the traced function
 *
 * What can be known beforehand is worked out before the slot is reserved, the TSC above all: the
 * time in which a preempted writer holds up a reader is then some 5 ns, not 20.
 */
.macro FUNCTION_TRACE_CALL name, parent
SYM_FUNC_START(\name)
	NOT_ENABLED .Lreturn\@
	THIS_CPU .Lno_cpu
	pushq	%rax
	pushq	%rcx
	pushq	%rdx
	pushq	%rsi
	THIS_TASK
	PID_FILTER .Lrestore\@
	CPU_DATA ax
	NAME_TASK
	LOW_36	AGENT_REC_FUNCTION
	rdtsc
	movzwl	%dx, %esi
	shlq	$32, %rsi
	orq	%rax, %rsi			/* rsi: word 0 but for the lap */
	RESERVE	.Lfull\@
	SLOT
	movl	FRAME_IP(%rsp), %edx
	movl	\parent, %eax
	subl	$5, %edx
	shlq	$32, %rax
	orq	%rdx, %rax
	STORE
.Lrestore\@:
	popq	%rsi
	popq	%rdx
	popq	%rcx
	popq	%rax
.Lreturn\@:
	RETURN
.Lfull\@:
	lock incq AGENT_CPU_LOST(%rcx)
	jmp	.Lrestore\@
SYM_FUNC_END(\name)
.endm

	FUNCTION_TRACE_CALL function_trace_call, FRAME_PARENT(%rsp)

/* A CPU that the rings do not know: nothing was saved yet. */
.Lno_cpu:
	lock incq AGENT_HOLE(%rip)
	FIXUP	AGENT_FIX_DATA, AGENT_HEADER_LOST_NOCPU
	RETURN

/* FULL_SAVE, FULL_RESTORE - struct full_regs of full.c; what C may clobber besides is free here */
.macro FULL_SAVE
	pushq	%r9
	pushq	%r8
	pushq	%rcx
	pushq	%rdx
	pushq	%rsi
	pushq	%rdi
	pushq	%rax
	movq	%rsp, %rdi
.endm

.macro FULL_RESTORE
	popq	%rax
	popq	%rdi
	popq	%rsi
	popq	%rdx
	popq	%rcx
	popq	%r8
	popq	%r9
.endm

/*
 * GUEST_CALL - call a function of the guest's kernel
 *
 * In, out:  as the calling convention has it, up to six arguments and a word of result. From full_call.h alone:
 *           interrupts are off, and agent_cpu.busy is set.
 *
 * The kernel's functions rely on 8 bytes of alignment and on a clear direction flag. None of them uses
 * vector registers without saving them.
 */
.macro GUEST_CALL name, kind
SYM_FUNC_START(\name)
	pushq	%rbp
	movq	%rsp, %rbp
	andq	$-16, %rsp
	cld
	.byte	0xe8
	.long	AGENT_HOLE
	FIXUP	\kind
	movq	%rbp, %rsp
	popq	%rbp
	RETURN
SYM_FUNC_END(\name)
.endm

/*
 * function_full_call - function_trace_call where options ask for more than it does: full.c
 *
 * In, out:  as function_trace_call
 * Stack:    0..72(%rsp) struct full_regs when C is called
 */
SYM_FUNC_START(function_full_call)
	NOT_ENABLED .Lreturn
	FULL_SAVE
	movq	%rbp, %rsi
	call	full_function_entry
	FULL_RESTORE
.Lreturn:
	RETURN
SYM_FUNC_END(function_full_call)

#include "guest-agent/graph_64.S"

/* full.c, compiled: for the compiler's part of the agent see compile-full.sh */
	.subsection 1
	.p2align 4, 0xcc
#include "guest-agent/full_64.inc"
	GUEST_CALL guest_call_stack, AGENT_FIX_CALL_STACK
	GUEST_CALL guest_call_copy, AGENT_FIX_CALL_COPY
	GUEST_CALL guest_call_strncpy, AGENT_FIX_CALL_STRNCPY
	.subsection 0

/*
 * mcount_caller - where the body of a static mcount leads (-pg without -mfentry)
 *
 * In:       %rbp the traced function's frame, which its prologue has set up before it called mcount
 * Out:      as ftrace_caller
 * Stack:    8(%rbp)  frompc: return address into the traced function's caller
 *            (%rsp)  selfpc: return address into the traced function, call site + 5
 *
 * mcount_call is what mcount has as a variable, ftrace_trace_function: one instruction within one aligned
 * 8-byte word, which leads to ftrace_stub while nobody traces.
 */
	.p2align 3, 0xcc
SYM_INNER_LABEL(mcount_caller)
SYM_INNER_LABEL(mcount_call)
	.byte	0xe9
	.long	ftrace_stub - . - 4

	FUNCTION_TRACE_CALL mcount_trace_call, 8(%rbp)

	.subsection 1
/*
 * reserve_again - somebody reserved between our look and the cmpxchg: an interrupt, a migrated task
 *
 * In:       %rcx agent_cpu, %rax head as seen last
 * Out:      %rax the index reserved, or -1: full, or too much traffic. Clobbers: rdx
 */
SYM_FUNC_START(reserve_again)
	.rept	AGENT_RESERVE_TRIES - 1
	TRY_RESERVE 1, .Lno_room
	je	.Lreserved_after_all
	.endr
.Lno_room:
	movq	$-1, %rax
.Lreserved_after_all:
	RETURN
SYM_FUNC_END(reserve_again)

/*
 * gen_context - what LOW_36 leaves: an interrupt, a softirq, a reschedule pending, migration
 * disabled ...
 *
 * In:       %r11 task, %esi pid and type
 * Out:      %r11 low 36 bits of word 2. Clobbers: rax, rdx
 *
 * As Linux v6.1 kernel/trace/trace.c tracing_gen_ctx_irq_test(). Adding a mask to a masked value
 * carries out of its top bit exactly when the value is not 0: no branches, of which interrupts would
 * have the predictor miss most.
 */
SYM_FUNC_START(gen_context)
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
	RETURN
SYM_FUNC_END(gen_context)


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
 * name_task - another task than the last one: write its COMM pair
 *
 * In, preserved: rcx agent_cpu, r10 cpu, r11 task, esi pid. Clobbers: rax, rdx
 *
 * What is remembered is what was written, and only once it is: an interrupt in between names the
 * task again, which costs two slots and nothing else. A task that is preempted before it remembers
 * may do so after its successor did. Then the CPU's next record does not match and names its task
 * again, or it is the late one's own, whose name the ring has had. No room: nothing is remembered,
 * the next record tries again.
 */
SYM_FUNC_START(name_task)
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
	RETURN
	.p2align 3
.Lcheck_mul:
	.quad	AGENT_CHECK_MUL
SYM_FUNC_END(name_task)
	.subsection 2
	.org	agent_text + AGENT_TEXT_BYTES, 0xcc	/* fails when the code outgrew it */
agent_trampolines:				/* written by agent_link() */
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
	.long	ftrace_graph_caller - agent_text
	.long	return_to_handler - agent_text
	.long	graph_full_caller - agent_text
	.long	function_full_call - agent_text
	.long	mcount_caller - agent_text
	.long	mcount_call - agent_text
	.long	mcount_trace_call - agent_text
	.long	0
	.size agent_blob, . - agent_blob

	.section .note.GNU-stack, "", @progbits
