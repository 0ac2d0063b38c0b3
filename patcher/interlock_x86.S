/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interlock: our calls go out of the way of the guest's own tracing, from inside the guest, with
 * nobody of ours awake. Copied into the guest; the host fills in the fields named interlock_fix_*.
 *
 * ftrace_arch_code_modify_prepare() begins with mutex_lock(&text_mutex) (since Linux v5.1, commit
 * 9f255b632bf12; arch/x86/kernel/ftrace.c). That call leads here while calls of ours are in the guest.
 * Whoever comes is about to verify and change call sites, holds ftrace_lock, has already counted
 * its references in the records, and is in process context with interrupts on.
 *
 *	In:    rdi  &text_mutex, as the function that takes it wants it
 *	Out:   as that function: text_mutex held, callee-saved registers unchanged
 *
 * Each record of ftrace_pages_start that the guest has a reference to, and whose site holds our call,
 * gets its nop back by the guest's own text_poke_queue(), as its own ftrace writes it; the site is read
 * by copy_from_kernel_nofault(), as its own ftrace reads it. Under ftrace_lock the list stands still.
 * References are bits below 32 of flags, which is the second word of a record; ip is the first.
 */
	.section .rodata.interlock, "a", @progbits
	.globl	interlock_start, interlock_end, interlock_return
	.globl	interlock_fix_lock, interlock_fix_pages, interlock_fix_records, interlock_fix_index
	.globl	interlock_fix_use, interlock_fix_nofault, interlock_fix_ours, interlock_fix_poke
	.globl	interlock_fix_count, interlock_fix_rec_bytes, interlock_fix_next, interlock_fix_finish
	.globl	interlock_fix_nop

	.balign	16
interlock_start:
	.byte	0xe8			/* call the function that takes a mutex */
interlock_fix_lock:
	.long	0x11223344
	pushq	%rbx
	pushq	%rbp
	pushq	%r12
	subq	$8, %rsp
	movq	0x11223344, %rbx	/* ftrace_pages_start: kernel text and data lie in the top 2 GiB */
	.set	interlock_fix_pages, . - 4
.Lpage:
	testq	%rbx, %rbx
	jz	.Ldone
	movq	0x11223344(%rbx), %rbp
	.set	interlock_fix_records, . - 4
	movl	0x11223344(%rbx), %r12d
	.set	interlock_fix_index, . - 4
.Lrecord:
	testl	%r12d, %r12d
	jle	.Lnext_page
	testl	$0x11223344, 8(%rbp)
	.set	interlock_fix_use, . - 4
	jz	.Lnext
	movq	%rsp, %rdi
	movq	(%rbp), %rsi
	movl	$5, %edx
	.byte	0xe8			/* call copy_from_kernel_nofault */
interlock_fix_nofault:
	.long	0x11223344
	testq	%rax, %rax
	jnz	.Lnext
	cmpb	$0xe8, (%rsp)
	jne	.Lnext
	movl	1(%rsp), %eax		/* rel32; with the site's low half: where it goes, less 5 */
	addl	(%rbp), %eax
	cmpl	$0x11223344, %eax
	.set	interlock_fix_ours, . - 4
	jne	.Lnext
	movq	(%rbp), %rdi
	leaq	interlock_fix_nop(%rip), %rsi
	movl	$5, %edx
	xorl	%ecx, %ecx
	.byte	0xe8			/* call text_poke_queue */
interlock_fix_poke:
	.long	0x11223344
	movabsq	$0x1122334455667788, %rax
	.set	interlock_fix_count, . - 8
	lock incq (%rax)
.Lnext:
	addq	$0x11223344, %rbp
	.set	interlock_fix_rec_bytes, . - 4
	decl	%r12d
	jmp	.Lrecord
.Lnext_page:
	movq	0x11223344(%rbx), %rbx
	.set	interlock_fix_next, . - 4
	jmp	.Lpage
.Ldone:
	.byte	0xe8			/* call text_poke_finish */
interlock_fix_finish:
	.long	0x11223344
	addq	$8, %rsp
	popq	%r12
	popq	%rbp
	popq	%rbx
interlock_return:			/* the host makes this a jump where functions return by a thunk */
	ret
	.byte	0xcc, 0xcc, 0xcc, 0xcc
interlock_fix_nop:
	.byte	0xcc, 0xcc, 0xcc, 0xcc, 0xcc
interlock_end:
	.balign	16, 0xcc

	.section .note.GNU-stack, "", @progbits
