/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest: each vCPU calls a function with a patchable site for ever, and counts.
 *
 * In:    %rdi  this vCPU's struct guest_counters   %rsp  its stack
 * Only instructions that KVM emulates in kernel mode everywhere (no SSE, no int3).
 */
#include "tests/guest/kvm_window/layout.h"

	.section .rodata
	.balign 16
	.globl guest_code
	.globl guest_code_end
	.globl guest_site
	.globl guest_target
guest_code:
	movq	COUNT_HITS(%rdi), %rsi
	call	func
	movq	COUNT_HITS(%rdi), %rax
	subq	%rsi, %rax
	cmpq	$1, %rax
	ja	2f
1:	incq	COUNT_LOOPS(%rdi)
	jmp	guest_code
2:	incq	COUNT_ERRORS(%rdi)
	jmp	1b

	/* 8-byte boundary inside the site: a write in two halves would show */
	.balign 8
	nop
	nop
	nop
	nop
	nop
func:
guest_site:
	.byte	0x0f, 0x1f, 0x44, 0x00, 0x00
	incq	COUNT_CALLS(%rdi)
	ret

	.balign 16
guest_target:
	incq	COUNT_HITS(%rdi)
	ret
guest_code_end:
	.section .note.GNU-stack, "", @progbits
