/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate: runs one function of the guest's own kernel for us, in process context, when a task
 * passes a call site that was turned into a call of it. Copied into the padding at the end of kernel
 * text; the host fills in the fields named gate_fix_*. Position independent; everything it refers to
 * is absolute (mailbox) or %gs based.
 *
 * Reached by `call` from a recorded call site, so at a function's very first instruction:
 *
 *	(%rsp)   ip + 5, back into the function      8(%rsp)  the function's own return address
 *
 * All registers are live (arguments, callee-saved); flags and r10, r11 are not (the kernel's own
 * ftrace_caller clobbers them as well: v6.1 arch/x86/kernel/ftrace_64.S), yet all are kept.
 * No indirect branch, so it needs no endbr64 and works on sealed functions: the borrowed function is
 * entered with push + ret. Stack: 15 words and the borrowed function's own use; kernel code is built
 * with 8-byte stack alignment.
 *
 * It goes on only if interrupts are on, preempt_count is 0, the task is in no RCU read section, not
 * exiting and has no signal pending (vmalloc() fails with a fatal one); and if it wins the job.
 */
#define MAILBOX_STATE 0
#define MAILBOX_INSIDE 4
#define MAILBOX_FN 8
#define MAILBOX_ARG0 16
#define MAILBOX_ARG1 24
#define MAILBOX_ARG2 32
#define MAILBOX_ARG3 40
#define MAILBOX_RET 48

#define STATE_ARMED 1
#define STATE_RUNNING 2
#define STATE_DONE 3

#define X86_EFLAGS_IF 0x200
#define PREEMPT_NEED_RESCHED 0x80000000	/* inverted; v6.1 arch/x86/include/asm/preempt.h */
#define PF_EXITING 0x4			/* v6.1 include/linux/sched.h */
/*
 * Bit 2: v6.1 and v6.12 arch/x86/include/asm/thread_info.h. Bit 1 where x86 has the generic bits, as on v7.2:
 * include/asm-generic/thread_info_tif.h. The other one says there that something else is to be done on the way
 * back to user space: such a task is let pass, too.
 */
#define _TIF_SIGPENDING 0x6

	.section .rodata.gate, "a", @progbits
	.globl	gate_start, gate_end
	.globl	gate_fix_mailbox, gate_fix_preempt, gate_fix_current
	.globl	gate_fix_ti_flags, gate_fix_task_flags
	.globl	gate_rcu_start, gate_fix_rcu, gate_rcu_end

	.balign	16
gate_start:
	pushq	%rbx
	movabsq	$0x1122334455667788, %rbx
	.set	gate_fix_mailbox, . - 8
	lock incl MAILBOX_INSIDE(%rbx)
	pushfq
	pushq	%rax
	testl	$X86_EFLAGS_IF, 8(%rsp)
	jz	.Lout
	cmpl	$STATE_ARMED, MAILBOX_STATE(%rbx)
	jne	.Lout
	movl	%gs:0x11223344, %eax
	.set	gate_fix_preempt, . - 4
	andl	$~PREEMPT_NEED_RESCHED, %eax
	jnz	.Lout
	movq	%gs:0x11223344, %rax
	.set	gate_fix_current, . - 4
	testl	$_TIF_SIGPENDING, 0x11223344(%rax)
	.set	gate_fix_ti_flags, . - 8
	jnz	.Lout
	testl	$PF_EXITING, 0x11223344(%rax)
	.set	gate_fix_task_flags, . - 8
	jnz	.Lout
gate_rcu_start:
	cmpl	$0, 0x11223344(%rax)	/* the host makes this a nop where the guest has no such member */
	.set	gate_fix_rcu, . - 5
	jne	.Lout
gate_rcu_end:
	pushq	%rcx
	movl	$STATE_ARMED, %eax
	movl	$STATE_RUNNING, %ecx
	lock cmpxchgl %ecx, MAILBOX_STATE(%rbx)
	jne	.Lout_rcx
	pushq	%rdx
	pushq	%rsi
	pushq	%rdi
	pushq	%r8
	pushq	%r9
	pushq	%r10
	pushq	%r11
	movq	MAILBOX_ARG0(%rbx), %rdi
	movq	MAILBOX_ARG1(%rbx), %rsi
	movq	MAILBOX_ARG2(%rbx), %rdx
	movq	MAILBOX_ARG3(%rbx), %rcx
	cld
	call	.Lenter
	movq	%rax, MAILBOX_RET(%rbx)
	movl	$STATE_DONE, MAILBOX_STATE(%rbx)
	popq	%r11
	popq	%r10
	popq	%r9
	popq	%r8
	popq	%rdi
	popq	%rsi
	popq	%rdx
.Lout_rcx:
	popq	%rcx
.Lout:
	popq	%rax
	popfq
	lock decl MAILBOX_INSIDE(%rbx)
	popq	%rbx
	ret
.Lenter:
	pushq	MAILBOX_FN(%rbx)
	ret
gate_end:
	.balign	16, 0xcc

	.section .note.GNU-stack, "", @progbits
