/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entered like Linux: 64-bit mode, the first 4 GiB mapped one to one by tables at 0x9000. Maps itself at -2 GiB, and
 * once more at -6 GiB, which nothing reaches from here by a call, and goes there. __fentry__ returns at once, as when
 * no tracer is active; mcount is the one of the kernel's documentation, Documentation/trace/ftrace-design.rst.
 */
#define BASE      0xffffffff80000000
#define BOOT_PML4 0x9000
#define GS_BASE   0xc0000101
#define MIB_64    32

	.section .text.head, "ax"
	.globl start
start:
	mov $(pd - BASE), %edi
	mov $0x83, %eax
	mov $MIB_64, %ecx
1:	mov %rax, (%rdi)
	add $8, %rdi
	add $0x200000, %rax
	dec %ecx
	jnz 1b
	mov $(pd - BASE + 3), %eax
	mov %rax, pdpt - BASE + 510 * 8
	mov %rax, pdpt - BASE + 506 * 8
	mov $(pdpt - BASE + 3), %eax
	mov %rax, BOOT_PML4 + 511 * 8
	movabs $2f, %rax
	jmp *%rax
2:	mov $stack_top, %rsp
	mov $percpu, %rax
	mov %rax, %rdx
	shr $32, %rdx
	mov $GS_BASE, %ecx
	wrmsr
	xor %ebp, %ebp
	call run

	.text
	.globl mcount, __fentry__
	.type mcount, @function
	.type __fentry__, @function
mcount:	cmpq $ftrace_stub, ftrace_trace_function(%rip)
	jne 1f
	.globl ftrace_stub
ftrace_stub:
	ret
1:	push %rax
	push %rcx
	push %rdx
	push %rsi
	push %rdi
	push %r8
	push %r9
	mov 8(%rbp), %rdi /* frompc */
	mov 56(%rsp), %rsi
	sub $5, %rsi /* selfpc */
	call *ftrace_trace_function(%rip)
	pop %r9
	pop %r8
	pop %rdi
	pop %rsi
	pop %rdx
	pop %rcx
	pop %rax
	ret
	.size mcount, . - mcount
__fentry__:
	ret
	.size __fentry__, . - __fentry__
	.globl padding
padding:
	.skip 64, 0xcc

	.data
	.globl ftrace_trace_function
ftrace_trace_function:
#ifdef GUEST_TRACES
	.quad guest_tracer
#else
	.quad ftrace_stub
#endif

	.bss
	.balign 4096
pdpt:	.skip 4096
pd:	.skip 4096
	.skip 4096
stack_top:
	.section .note.GNU-stack, "", @progbits
