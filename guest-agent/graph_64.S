/* SPDX-License-Identifier: Apache-2.0 */
/*
 * function_graph: calls followed to their return. A part of ftrace_64.S, which includes it: all of
 * the agent is one piece of text without relocations. See struct agent_frame for the idea.
 */
#define TAKE_CPUS 16 /* other CPUs' lists that are looked at for a free frame */
#define PUT_TRIES 64

/* FRAME_OF - the address of frame number \r - 1 */
.macro FRAME_OF r, tmp
	shlq	$AGENT_FRAME_SHIFT, \r
	leaq	AGENT_HOLE(%rip), \tmp
	FIXUP	AGENT_FIX_FRAMES, -AGENT_FRAME_BYTES
	addq	\tmp, \r
.endm

/*
 * POP_FRAME - one attempt to take the first frame of the list of the CPU at \cpu
 *
 * In:   %rax  free_frames as seen last
 * Out:  ZF set: %rdi is the frame; ZF clear: somebody else was faster, %rax is the new list; at
 *       \empty when there is none
 * Clobbers: %rdx, %r8
 *
 * The frame may be somebody else's by the time its next is read; then the upper half of the list's
 * word is another, which counts every change.
 */
.macro POP_FRAME cpu, empty
	movl	%eax, %edi
	testl	%edi, %edi
	jz	\empty
	FRAME_OF %rdi, %rdx
	movl	AGENT_FRAME_NEXT(%rdi), %r8d
	movq	%rax, %rdx
	shrq	$32, %rdx
	addl	$1, %edx
	shlq	$32, %rdx
	orq	%r8, %rdx
	lock cmpxchgq %rdx, AGENT_CPU_FREE_FRAMES(\cpu)
.endm

/*
 * PUSH_FRAME - one attempt to put frame %rdi into the list of the CPU at %rcx
 *
 * In:   %rax  free_frames as seen last   %r8d  number of the frame + 1
 * Out:  ZF set: done; ZF clear: %rax is the new list. Clobbers: %rdx
 */
.macro PUSH_FRAME
	movl	%eax, AGENT_FRAME_NEXT(%rdi)
	movq	%rax, %rdx
	shrq	$32, %rdx
	addl	$1, %edx
	shlq	$32, %rdx
	orq	%r8, %rdx
	lock cmpxchgq %rdx, AGENT_CPU_FREE_FRAMES(%rcx)
.endm

/* FRAME_NUMBER - %r8: 8 * number of the frame at %rdi; clobbers %rax */
.macro FRAME_NUMBER
	leaq	AGENT_HOLE(%rip), %rax
	FIXUP	AGENT_FIX_FRAMES
	movq	%rdi, %r8
	subq	%rax, %r8
	shrq	$(AGENT_FRAME_SHIFT - 3), %r8
.endm

/* Where ftrace_graph_caller finds things once it has saved six registers. */
#define GRAPH_IP 48 /* call site + 5 */
#define GRAPH_CELL 56 /* holds the return address of the traced function */

/* GRAPH_RESTORE - these six again */
.macro GRAPH_RESTORE
	popq	%r8
	popq	%rdi
	popq	%rsi
	popq	%rdx
	popq	%rcx
	popq	%rax
.endm

/*
 * ftrace_graph_caller - follow a call: write one AGENT_REC_GRAPH_ENTRY record, have the traced
 * function return to a trampoline of ours (prepare_ftrace_return of Linux)
 *
 * In:       as ftrace_caller; jumped to
 * Out:      all registers unchanged but r10, r11, flags; the cell holds a trampoline's address
 *
 * The frame is nobody else's until the cell points to its trampoline. Its slot is written last:
 * where it is not 0 the host finds the rest filled in.
 */
SYM_FUNC_START(ftrace_graph_caller)
	NOT_ENABLED .Lgraph_return
	THIS_CPU .Lno_cpu
	pushq	%rax
	pushq	%rcx
	pushq	%rdx
	pushq	%rsi
	pushq	%rdi
	pushq	%r8
	THIS_TASK
	PID_FILTER .Lgraph_restore
	CPU_DATA ax
	movq	AGENT_CPU_FREE_FRAMES(%rcx), %rax
	POP_FRAME %rcx, .Ltake_frame
	jne	.Ltake_frame
.Lhave_frame:					/* rdi: the frame */
	NAME_TASK
	movq	AGENT_HOLE(%r11), %rax
	FIXUP	AGENT_FIX_TASK_START
	movq	%r11, AGENT_FRAME_OWNER(%rdi)
	movq	%rax, AGENT_FRAME_START_TIME(%rdi)
	movq	%rsi, AGENT_FRAME_PID(%rdi)	/* and state: 0 */
	movq	GRAPH_CELL(%rsp), %rdx
	leaq	agent_trampolines(%rip), %r8
	movq	%rdx, AGENT_FRAME_RET(%rdi)
	movq	%rdx, %rax
	subq	%r8, %rax
	cmpq	$AGENT_HOLE, %rax
	FIXUP	AGENT_FIX_TRAMP_BYTES
	jb	.Ltail_call
.Lparent_known:
	movl	GRAPH_IP(%rsp), %eax
	subl	$5, %eax
	movl	%edx, AGENT_FRAME_PARENT(%rdi)
	movl	%eax, AGENT_FRAME_IP(%rdi)
	LOW_36	AGENT_REC_GRAPH_ENTRY
	rdtsc
	shlq	$32, %rdx
	orq	%rdx, %rax
	movq	%rax, AGENT_FRAME_TSC(%rdi)
	shlq	$16, %rax
	shrq	$16, %rax
	movq	%rax, %rsi			/* rsi: word 0 but for the lap */
	RESERVE	.Lgraph_full
	SLOT
	movl	AGENT_FRAME_PARENT(%rdi), %eax
	movl	AGENT_FRAME_IP(%rdi), %edx
	shlq	$32, %rax
	orq	%rdx, %rax
	STORE
	FRAME_NUMBER
	leaq	agent_trampolines(%rip), %rax
	addq	%rax, %r8
	leaq	GRAPH_CELL(%rsp), %rax
	movq	%rax, AGENT_FRAME_SLOT(%rdi)
	movq	%r8, (%rax)
.Lgraph_restore:
	GRAPH_RESTORE
.Lgraph_return:
	RETURN

	.subsection 1
/* The true caller is that of the function that jumped here. */
.Ltail_call:
	shlq	$(AGENT_FRAME_SHIFT - 3), %rax
	leaq	AGENT_HOLE(%rip), %rdx
	FIXUP	AGENT_FIX_FRAMES
	movl	AGENT_FRAME_PARENT(%rdx, %rax), %edx
	jmp	.Lparent_known
.Ltake_frame:
	call	take_frame
	testq	%rdi, %rdi
	jnz	.Lhave_frame
	/* None is free: the call alone is told. */
	lock incq AGENT_CPU_LOST_FRAMES(%rcx)
	GRAPH_RESTORE
	jmp	function_trace_call
.Lgraph_full:
	lock incq AGENT_CPU_LOST(%rcx)
	call	put_frame
	jmp	.Lgraph_restore
	.subsection 0
SYM_FUNC_END(ftrace_graph_caller)

/*
 * graph_full_caller - ftrace_graph_caller where options ask for more than it does: full.c
 *
 * In, out:  as ftrace_graph_caller
 * Stack:    0..72(%rsp) struct full_regs when C is called
 */
SYM_FUNC_START(graph_full_caller)
	NOT_ENABLED .Lgraph_return
	FULL_SAVE
	movq	%rbp, %rsi
	call	full_graph_entry
	FULL_RESTORE
	RETURN
SYM_FUNC_END(graph_full_caller)

/*
 * return_to_handler - what a trampoline calls: the traced function has returned
 *
 * In:       rax, rdx return values; callee-saved registers are the caller's again
 * Out:      these unchanged; control at the true return address. rcx, rsi, rdi, r8-r11 are a
 *           function's to lose (Linux v6.1 arch/x86/kernel/ftrace_64.S return_to_handler).
 * Stack:    (%rsp)  address of the trampoline + 5. It is the very cell that held the hijacked
 *           return address, as the trampoline's call pushed where the function's ret had popped:
 *           with the true address in it, a ret does the rest. The trampoline's call and that ret
 *           are a pair, so the return predictor stays in step.
 *
 * Once the true address is in the cell the guest's way on needs nothing of ours. What a full entry
 * has left to be done at the return is C: full_graph_return().
 */
SYM_FUNC_START(return_to_handler)
	pushq	%rax
	pushq	%rdx
	movq	16(%rsp), %rdi
	leaq	agent_trampolines + 5(%rip), %rax
	subq	%rax, %rdi			/* rdi: 8 * number */
	leaq	AGENT_HOLE(%rip), %rax
	FIXUP	AGENT_FIX_FRAMES
	leaq	(%rax, %rdi, AGENT_FRAME_BYTES / 8), %rdi
	movq	AGENT_FRAME_RET(%rdi), %rax
	movq	%rax, 16(%rsp)
	cmpl	$0, AGENT_FRAME_STATE(%rdi)
	jne	.Lfull_return
	rdtsc
	shlq	$32, %rdx
	leaq	(%rax, %rdx), %r8		/* r8: TSC */
	THIS_CPU .Lreturn_no_cpu
	CPU_DATA ax
	leaq	16(%rsp), %rax
	cmpq	%rax, AGENT_FRAME_SLOT(%rdi)
	jne	.Lframe_error
.Lframe_checked:
	NOT_ENABLED .Lfree_frame
	THIS_TASK
	NAME_TASK
	LOW_36	AGENT_REC_GRAPH_RETURN
	movq	%r8, %rsi
	shlq	$16, %rsi
	shrq	$16, %rsi			/* rsi: word 0 but for the lap */
	xorl	%eax, %eax
	subq	AGENT_FRAME_TSC(%rdi), %r8
	cmovcq	%rax, %r8			/* the TSCs of two CPUs may differ */
	movq	%r8, %rax
	shrq	$AGENT_DURATION_BITS, %rax
	jnz	.Llong_duration
.Lduration:					/* r8d: duration as recorded */
	movq	%rcx, %r9
	RESERVE	.Lreturn_full
	SLOT
	movl	AGENT_FRAME_IP(%rdi), %eax
	shlq	$32, %r8
	orq	%r8, %rax
	STORE
	movq	%r9, %rcx
.Lfree_frame:
	leaq	16(%rsp), %rax
	xorl	%edx, %edx
	lock cmpxchgq %rdx, AGENT_FRAME_SLOT(%rdi)
	jne	.Lreturned			/* the host was faster; or it is another call's */
	FRAME_NUMBER
	shrq	$3, %r8
	addl	$1, %r8d
	movq	AGENT_CPU_FREE_FRAMES(%rcx), %rax
	PUSH_FRAME
	jne	.Lput_frame
.Lreturned:
	popq	%rdx
	popq	%rax
	RETURN

	.subsection 1
.Lframe_error:
	lock incq AGENT_CPU_FRAME_ERRORS(%rcx)
	jmp	.Lframe_checked
/* Its record goes nowhere, its frame into the first CPU's list. */
.Lreturn_no_cpu:
	lock incq AGENT_HOLE(%rip)
	FIXUP	AGENT_FIX_DATA, AGENT_HEADER_LOST_NOCPU
	xorl	%r10d, %r10d
	CPU_DATA ax
	jmp	.Lfree_frame
.Llong_duration:
	bsrq	%rax, %rcx
	addl	$1, %ecx
	shrq	%cl, %r8			/* AGENT_DURATION_BITS bits, the first of them 1 */
	shll	$AGENT_DURATION_BITS, %ecx
	orl	%ecx, %r8d
	CPU_DATA ax
	jmp	.Lduration
.Lreturn_full:
	lock incq AGENT_CPU_LOST(%rcx)
	lock incq AGENT_CPU_LOST_RETURNS(%rcx)
	jmp	.Lfree_frame
.Lput_frame:
	call	put_frame
	jmp	.Lreturned
.Lfull_return:
	movq	%rsp, %rsi			/* struct full_return_regs */
	movq	%rbp, %rdx
	call	full_graph_return
	jmp	.Lreturned
	.subsection 0
SYM_FUNC_END(return_to_handler)

	.subsection 1
/*
 * take_frame - a frame, where the first attempt at this CPU's list gave none
 *
 * In:       %rcx agent_cpu, %r10d CPU
 * Out:      %rdi the frame, or 0. Clobbers: rax, rdx, r8
 *
 * Own list again, then what the host gave back, then the lists of other CPUs: a task that sleeps
 * takes its frame here and frees it wherever it wakes up.
 */
SYM_FUNC_START(take_frame)
	pushq	%r9
	movq	AGENT_CPU_FREE_FRAMES(%rcx), %rax
	.rept	AGENT_RESERVE_TRIES
	POP_FRAME %rcx, .Lreclaim
	je	.Ltaken
	.endr
.Lreclaim:
	movl	$AGENT_RESERVE_TRIES, %r9d
.Lreclaim_next:
	movq	AGENT_HOLE(%rip), %rax
	FIXUP	AGENT_FIX_DATA, AGENT_HEADER_RECLAIM_HEAD
	cmpq	%rax, AGENT_HOLE(%rip)
	FIXUP	AGENT_FIX_DATA, AGENT_HEADER_RECLAIM_TAIL
	je	.Lother_cpus
	movl	%eax, %edi
	andl	$AGENT_HOLE, %edi
	FIXUP	AGENT_FIX_FRAME_MASK
	leaq	AGENT_HOLE(%rip), %rdx
	FIXUP	AGENT_FIX_RECLAIM
	movl	(%rdx, %rdi, 4), %edi
	leaq	1(%rax), %rdx
	lock cmpxchgq %rdx, AGENT_HOLE(%rip)
	FIXUP	AGENT_FIX_DATA, AGENT_HEADER_RECLAIM_HEAD
	je	.Lreclaimed
	subl	$1, %r9d
	jnz	.Lreclaim_next
.Lother_cpus:
	pushq	%rcx
	pushq	%r10
	movl	$TAKE_CPUS, %r9d
.Lnext_cpu:
	addl	$1, %r10d
	cmpl	$AGENT_HOLE, %r10d
	FIXUP	AGENT_FIX_NR_CPUS
	jb	.Lsteal
	xorl	%r10d, %r10d
.Lsteal:
	CPU_DATA ax
	movq	AGENT_CPU_FREE_FRAMES(%rcx), %rax
	.rept	2
	POP_FRAME %rcx, .Lsteal_next
	je	.Lstolen
	.endr
.Lsteal_next:
	xorl	%edi, %edi
	subl	$1, %r9d
	jnz	.Lnext_cpu
.Lstolen:
	popq	%r10
	popq	%rcx
.Ltaken:
	popq	%r9
	RETURN
.Lreclaimed:
	FRAME_OF %rdi, %rdx
	jmp	.Ltaken
SYM_FUNC_END(take_frame)

/*
 * put_frame - put frame %rdi, whose slot is 0, into the list of the CPU at %rcx
 *
 * Clobbers: rax, rdx, r8. With too much traffic it is left to the host.
 */
SYM_FUNC_START(put_frame)
	pushq	%r9
	FRAME_NUMBER
	shrq	$3, %r8
	addl	$1, %r8d
	movl	$PUT_TRIES, %r9d
	movq	AGENT_CPU_FREE_FRAMES(%rcx), %rax
.Lput_again:
	PUSH_FRAME
	je	.Lput_done
	subl	$1, %r9d
	jnz	.Lput_again
	lock incq AGENT_CPU_ORPHANS(%rcx)
	movq	$AGENT_ORPHAN, AGENT_FRAME_SLOT(%rdi)
.Lput_done:
	popq	%r9
	RETURN
SYM_FUNC_END(put_frame)
	.subsection 0
