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
 *
 * What follows interlock_again is for us to call, through the gate: the guest writes what the host has written
 * without its VMM's knowledge. See rewrite.h. It does as the guest's own ftrace does: ftrace_lock, then text_mutex.
 *
 *	In:    rdi  REWRITE_TWO   the 5 bytes at rsi and at rdx as they are
 *	            REWRITE_LIST  the low halves of sites that hold our call, to where r14 points, which moves on
 *	            else          address of a bit for each page of the top 2 GiB: of each that is set, and has a
 *	                          call site, these bytes as they are; the bit is cleared
 *
 * As they are: by text_poke(), with no int3 in between. interlock_back is for the last call through a gate, which puts
 * back what leads there: the host does, in a stop window, while the task waits inside, which then writes the same
 * sites, and the 5 bytes at rdi, as they are. So nobody need come by any more, and no CPU meets an int3, which not every
 * KVM that emulates kernel code knows. At most REWRITE_SITES of them, on the stack.
 *
 *	In:    rdi  the guest's call that leads through the interlock     Out: eax  0, or -1: the host did not come
 *	The word behind the one that sites are counted in: 1 the task waits, 2 the host has put all back
 *
 * interlock_cells is the same for cells of stacks:
 *
 *	In:    rdi  list of { address, value }    esi  how many
 *
 * One that is mapped and has that value is written as it is, in one locked instruction. From the look to the write
 * interrupts are off: no grace period ends in between, by which stacks go away since about v5.18.
 */
	.section .rodata.interlock, "a", @progbits
	.globl	interlock_start, interlock_end, interlock_return
	.globl	interlock_fix_lock, interlock_fix_pages, interlock_fix_records, interlock_fix_index
	.globl	interlock_fix_use, interlock_fix_nofault, interlock_fix_ours, interlock_fix_poke
	.globl	interlock_fix_count, interlock_fix_rec_bytes, interlock_fix_next, interlock_fix_finish
	.globl	interlock_fix_nop
	.globl	interlock_again, interlock_back, interlock_cells, interlock_full_end
	.globl	interlock_fix_records_lock, interlock_fix_text_lock, interlock_fix_lock2, interlock_fix_unlock
	.globl	interlock_fix_rewrite, interlock_fix_nofault2, interlock_fix_state, interlock_fix_sleep

#define REWRITE_LIST  1
#define REWRITE_SITES 480
#define STATE_WAITS   1
#define STATE_GO_ON   2
#define WAITS         3000	/* of 20 ms, or a tick or two more: the host may need a minute, and a task that waits 120 s is told of */
#define WAIT_MS       20
#define BITS_BELOW   65536	/* the lower half of 4 GiB has none: bit 0x80000 is the first */

	.balign	16
interlock_start:
	.byte	0xe8			/* call the function that takes a mutex */
interlock_fix_lock:
	.long	0x11223344
	pushq	%rbx
	pushq	%rbp
	pushq	%r12
	pushq	%r13
	subq	$8, %rsp
	xorl	%r13d, %r13d
.Lwalk:
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
	cmpq	$REWRITE_LIST, %r13
	ja	.Lrewrite
	je	.Lread
	testl	$0x11223344, 8(%rbp)
	.set	interlock_fix_use, . - 4
	jz	.Lnext
.Lread:
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
	testq	%r13, %r13
	jnz	.Llist
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
	testq	%r13, %r13
	jnz	.Lunlock
.Lleave:
	addq	$8, %rsp
	popq	%r13
	popq	%r12
	popq	%rbp
	popq	%rbx
interlock_return:			/* the host makes this a jump where functions return by a thunk */
	ret
	.byte	0xcc, 0xcc, 0xcc, 0xcc
interlock_fix_nop:
	.byte	0xcc, 0xcc, 0xcc, 0xcc, 0xcc
	.balign	16, 0xcc
interlock_end:				/* a gate with little room ends here: nothing leads on, as nobody calls the rest */

interlock_again:
	pushq	%rbx
	pushq	%rbp
	pushq	%r12
	pushq	%r13
	subq	$8, %rsp
	movq	%rdi, %r13
	movq	%rsi, %rbx
	movq	%rdx, %rbp
	movslq	interlock_fix_records_lock(%rip), %rdi
	call	.Llock
	movslq	interlock_fix_text_lock(%rip), %rdi
	call	.Llock
	cmpq	$REWRITE_LIST, %r13
	jae	.Lwalk
	movq	%rbp, %rdi
	call	.Lsame
	movq	%rbx, %rdi
	call	.Lsame
	jmp	.Lunlock
.Llist:
	movl	(%rbp), %eax
	movl	%eax, (%r14)
	addq	$4, %r14
	jmp	.Lnext
.Lunlock:
	movslq	interlock_fix_text_lock(%rip), %rdi
	call	.Lunlock_one
	movslq	interlock_fix_records_lock(%rip), %rdi
	call	.Lunlock_one
	jmp	.Lleave
.Lrewrite:				/* the page of its first byte, and of its last */
	movl	(%rbp), %eax
	shrl	$12, %eax
	btrl	%eax, -BITS_BELOW(%r13)
	sbbl	%ecx, %ecx
	movl	(%rbp), %eax
	addl	$4, %eax
	shrl	$12, %eax
	btrl	%eax, -BITS_BELOW(%r13)
	jc	.Lset
	testl	%ecx, %ecx
	jz	.Lnext
.Lset:
	movq	(%rbp), %rdi
	call	.Lsame
	jmp	.Lnext
.Lsame:
	movq	%rdi, %rsi
	movl	$5, %edx
	.byte	0xe9			/* jmp text_poke */
interlock_fix_rewrite:
	.long	0x11223344
.Llock:
	xorl	%esi, %esi
	.byte	0xe9			/* jmp to the function that takes a mutex */
interlock_fix_lock2:
	.long	0x11223344
.Lunlock_one:
	.byte	0xe9			/* jmp mutex_unlock */
interlock_fix_unlock:
	.long	0x11223344

interlock_back:
	pushq	%rbx
	pushq	%rbp
	pushq	%r14
	pushq	%r15
	subq	$REWRITE_SITES * 4, %rsp
	movq	%rdi, %rbx
	movq	%rsp, %r14
	movl	$REWRITE_LIST, %edi
	call	interlock_again
	movabsq	$0x1122334455667788, %r15
	.set	interlock_fix_state, . - 8
	movl	$STATE_WAITS, (%r15)
	movl	$WAITS, %ebp
.Lwait:
	cmpl	$STATE_GO_ON, (%r15)
	je	.Lgo_on
	decl	%ebp
	js	.Lback_done
	movl	$WAIT_MS, %edi
	.byte	0xe8			/* call msleep */
interlock_fix_sleep:
	.long	0x11223344
	jmp	.Lwait
.Lgo_on:
	xorl	%ebp, %ebp
	movq	%rbx, %rsi		/* also where no site led here any more */
	jmp	.Lone
.Leach:
	cmpq	%rsp, %r14
	je	.Lback_done
	subq	$4, %r14
	movslq	(%r14), %rsi
.Lone:
	movq	%rbx, %rdx
	xorl	%edi, %edi		/* REWRITE_TWO */
	call	interlock_again
	jmp	.Leach
.Lback_done:
	movl	%ebp, %eax
	addq	$REWRITE_SITES * 4, %rsp
	popq	%r15
	popq	%r14
	popq	%rbp
	popq	%rbx
	jmp	interlock_return

interlock_cells:
	pushq	%rbx
	pushq	%rbp
	subq	$8, %rsp
	movq	%rdi, %rbx
	movl	%esi, %ebp
.Lcell:
	decl	%ebp
	js	.Lcells_done
	pushfq
	cli
	leaq	8(%rsp), %rdi
	movq	(%rbx), %rsi
	movl	$8, %edx
	.byte	0xe8			/* call copy_from_kernel_nofault */
interlock_fix_nofault2:
	.long	0x11223344
	testq	%rax, %rax
	jnz	.Lnext_cell
	movq	8(%rsp), %rax
	cmpq	%rax, 8(%rbx)
	jne	.Lnext_cell
	movq	(%rbx), %rax
	lock addq $0, (%rax)
.Lnext_cell:
	popfq
	addq	$16, %rbx
	jmp	.Lcell
.Lcells_done:
	addq	$8, %rsp
	popq	%rbp
	popq	%rbx
	jmp	interlock_return

interlock_fix_records_lock:		/* mutexes, of which the low half says it all */
	.long	0x11223344
interlock_fix_text_lock:
	.long	0x11223344
	.balign	16, 0xcc
interlock_full_end:

	.section .note.GNU-stack, "", @progbits
