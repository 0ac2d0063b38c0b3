/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of a few instructions for our own VMM: each is entered like Linux, in 64-bit mode with
 * boot_params in rsi (the last one by PVH), shows one thing, and ends with a status. CASE says which.
 */
#define BOOT_E820_ENTRIES 0x1e8
#define BOOT_E820_TABLE   0x2d0
#define COM1              0x3f8
#define DEBUG_EXIT        0xf4
#define I8042_COMMAND     0x64
#define PM1_CONTROL       0x604
#define CMOS              0x70
#define PVPANIC           0x505
#define LAPIC_ICR         0xfee00300
#define ICR_INIT          0xc4500 /* all others */
#define ICR_SIPI          0xc4600
/* what our VMM has in low memory: machine/boot_x86.h */
#define GDT               0x500
#define CODE64            0x10
#define PML4              0x9000
#define TRAMPOLINE        0x8000
/* struct pvh_start_info */
#define PVH_MAGIC     0x336ec578
#define PVH_N_MODULES 12
#define PVH_MODULES   16
#define PVH_CMDLINE   24
#define PVH_MEMMAP    40
#define PVH_N_MEMMAP  48

	.text
	.globl _start

/* Ends the machine; its exit status is 2 v + 1. */
.macro leave v
	mov $\v, %eax
	mov $DEBUG_EXIT, %edx
	out %eax, %dx
	hlt
.endm

/* An interrupt gate for vector @n, to @handler (below 64 KiB of the image's start, which is at 2 MiB). */
.macro gate n, handler
	lea \handler(%rip), %rax
	lea idt+16*\n(%rip), %rdi
	mov %ax, (%rdi)
	movw $0x10, 2(%rdi)
	movw $0x8e00, 4(%rdi)
	shr $16, %rax
	mov %ax, 6(%rdi)
.endm

_start:
#if CASE == 1 /* prints through the serial port */
	lea text(%rip), %rsi
	mov $COM1, %edx
1:	lodsb
	test %al, %al
	jz 2f
	out %al, %dx
	jmp 1b
2:	leave 7
text:	.asciz "bare guest\n"

#elif CASE == 2 /* no IDT: a triple fault */
	ud2

#elif CASE == 3 /* resets itself by the keyboard controller */
	mov $0xfe, %al
	out %al, $I8042_COMMAND
	hlt

#elif CASE == 4 /* powers itself off by ACPI */
	mov $(0x2000 | 5 << 10), %ax
	mov $PM1_CONTROL, %edx
	out %ax, %dx
	hlt

#elif CASE == 5 /* int3 comes to its handler, with the address behind it, and the guest goes on there */
	gate 3, on_int3
	lidt idtr(%rip)
	xor %ebx, %ebx
	int3
behind:
	cmp $1, %ebx
	jne bad
	int3
	int3
	cmp $3, %ebx
	jne bad
	leave 9
on_int3:
	test %ebx, %ebx
	jnz 1f
	lea behind(%rip), %rax
	cmp %rax, (%rsp)
	jne bad
1:	inc %ebx
	iretq
bad:	leave 1

#elif CASE == 6 /* what KVM's emulator may not know: the state of vector registers */
	mov $0x20, %eax
	mov %cr4, %rax
	or $0x40000, %rax /* OSXSAVE */
	mov %rax, %cr4
	xor %ecx, %ecx
	xgetbv
	leave 3

#elif CASE == 7 /* sums its RAM as the firmware's map tells it, in MiB; touches the end of each run */
	movzbl BOOT_E820_ENTRIES(%rsi), %ecx
	lea BOOT_E820_TABLE(%rsi), %rdi
	xor %ebx, %ebx
1:	cmpl $1, 16(%rdi)
	jne 2f
	mov (%rdi), %rax
	mov 8(%rdi), %rdx
	add %rdx, %rbx
	add %rdx, %rax
	mov %rax, %rdx
	shr $32, %rdx
	jnz 2f /* beyond the first page tables */
	movq $0x5a5a, -8(%rax)
	cmpq $0x5a5a, -8(%rax)
	jne 3f
2:	add $20, %rdi
	loop 1b
	shr $20, %rbx
	cmp $(EXPECT - 1), %ebx /* the BIOS's part is missing */
	jne 3f
	leave 5
3:	leave 1

#elif CASE == 9 /* says again what it receives, up to a q */
1:	mov $(COM1 + 5), %edx
	in %dx, %al
	test $1, %al
	jz 1b
	mov $COM1, %edx
	in %dx, %al
	cmp $'q', %al
	je 2f
	out %al, %dx
	jmp 1b
2:	leave 4

#elif CASE == 10 /* prints without end */
	mov $COM1, %edx
	mov $'x', %al
1:	out %al, %dx
	jmp 1b

#elif CASE == 11 /* says b when its memory is new, then does what is typed: reset, triple fault, panic, quit */
	cmpq $0, 0x300000
	jne 9f
	cmpb $0x55, changed(%rip) /* its own image is as it was loaded */
	jne 9f
	mov $CMOS, %edx
	mov $0x40, %al
	out %al, %dx
	inc %edx
	in %dx, %al
	test %al, %al
	jnz 9f
	mov $0x77, %al
	out %al, %dx
	movq $1, 0x300000
	movb $1, changed(%rip)
	mov $'b', %al
	mov $COM1, %edx
	out %al, %dx
1:	mov $(COM1 + 5), %edx
	in %dx, %al
	test $1, %al
	jz 1b
	mov $COM1, %edx
	in %dx, %al
	cmp $'p', %al
	jne 2f
	mov $1, %al
	mov $PVPANIC, %edx
	out %al, %dx
	jmp 1b
2:	cmp $'t', %al
	jne 3f
	ud2
3:	cmp $'r', %al
	jne 4f
	mov $0xfe, %al
	out %al, $I8042_COMMAND
4:	leave 4
9:	leave 1
	.data
changed: .byte 0x55
	.text

#elif CASE == 12 /* what is at 4 GiB: l says it (0, 5 for what s stores, else n), q quits */
	movabs $0x100000083, %rax
	mov %rax, above(%rip)
	lea above + 3(%rip), %rax
	mov 0x9000, %rbx
	and $-4096, %rbx
	mov %rax, 32(%rbx)
	movabs $0x100000000, %rbx
1:	mov $(COM1 + 5), %edx
	in %dx, %al
	test $1, %al
	jz 1b
	mov $COM1, %edx
	in %dx, %al
	cmp $'q', %al
	je 4f
	cmp $'s', %al
	jne 2f
	movl $0x5a5a, (%rbx)
	jmp 1b
2:	mov (%rbx), %ecx
	mov $'0', %al
	test %ecx, %ecx
	jz 3f
	mov $'5', %al
	cmp $0x5a5a, %ecx
	je 3f
	mov $'n', %al
3:	out %al, %dx
	jmp 1b
4:	leave 4
	.bss
	.balign 4096
above:	.skip 4096
	.text

#elif CASE == 8 /* runs until it is ended */
1:	pause
	jmp 1b

#elif CASE == 13 /* PVH: prints its command line and its initrd, sums its RAM in MiB */
	leave 2 /* entered the other way */
	.code32
pvh_start:
	cld
	cmpl $PVH_MAGIC, (%ebx)
	jne 9f
	mov %cr0, %eax
	test $0x80000000, %eax
	jnz 9f
	mov %ss, %ecx
	mov %ecx, %ds /* its descriptor is in the table, as it says */
	mov $COM1, %edx
	mov PVH_CMDLINE(%ebx), %esi
1:	lodsb
	test %al, %al
	jz 2f
	out %al, %dx
	jmp 1b
2:	cmpl $1, PVH_N_MODULES(%ebx)
	jne 9f
	mov PVH_MODULES(%ebx), %edi
	mov (%edi), %esi
	mov 8(%edi), %ecx
	rep outsb
	mov PVH_N_MEMMAP(%ebx), %ecx
	mov PVH_MEMMAP(%ebx), %edi
	xor %ebp, %ebp
3:	cmpl $1, 16(%edi)
	jne 4f
	mov 8(%edi), %eax
	mov 12(%edi), %edx
	shrd $20, %edx, %eax
	add %eax, %ebp
4:	add $24, %edi
	loop 3b
	cmp $(EXPECT - 1), %ebp
	jne 9f
	leave 5
9:	leave 1
	.pushsection .note.Xen, "a", @note
	.balign 4
	.long 4, 4, 18
	.asciz "Xen"
	.long pvh_start
	.popsection
	.code64

#elif CASE == 14 /* two vCPUs: a has the first, b the second one come to mark; d and e set and clear a breakpoint of
		    the guest's own, t traps after an instruction; says each again, q quits */
	lea trampoline(%rip), %rsi
	mov $TRAMPOLINE, %edi
	mov $(trampoline_end - trampoline), %ecx
	rep movsb
	mov $LAPIC_ICR, %edi
	movl $ICR_INIT, (%rdi)
	movl $(ICR_SIPI | TRAMPOLINE >> 12), (%rdi)
	gate 1, on_debug
	lidt idtr(%rip)
1:	mov $(COM1 + 5), %edx
	in %dx, %al
	test $1, %al
	jz 1b
	mov $COM1, %edx
	in %dx, %al
	cmp $'q', %al
	je 9f
	cmp $'a', %al
	jne 2f
	call mark
2:	cmp $'b', %al
	jne 4f
	movl $1, wanted(%rip)
3:	pause
	cmpl $0, wanted(%rip)
	jne 3b
4:	cmp $'d', %al
	jne 5f
	lea never(%rip), %rbx
	mov %rbx, %db0
	mov $0x401, %ebx
	mov %rbx, %db7
5:	cmp $'e', %al
	jne 6f
	mov $0x400, %ebx
	mov %rbx, %db7
6:	cmp $'t', %al
	jne 7f
	pushf
	orq $0x100, (%rsp)
	popf
	nop
7:	mov $COM1, %edx
	out %al, %dx
	jmp 1b
9:	mov traps(%rip), %eax /* ends with 4 and how many there were */
	add $4, %eax
	mov $DEBUG_EXIT, %edx
	out %eax, %dx
	hlt
on_debug: /* its flag is that the trap is over */
	incq traps(%rip)
	andq $~0x100, 16(%rsp)
	iretq
	.globl mark, mark1, mark2, mark3, mark4, mark5, never
mark:	inc %rbx
mark1:	push %rax
mark2:	out %al, $0x80
mark3:	pop %rax
mark4:	cmp $0, %ebx
mark5:	ret
never:	ret
	.code16
trampoline:
	cli
	xor %ax, %ax
	mov %ax, %ds
	lgdtl TRAMPOLINE + gdtr - trampoline
	mov $0x20, %eax /* PAE */
	mov %eax, %cr4
	mov $PML4, %eax
	mov %eax, %cr3
	mov $0xc0000080, %ecx
	mov $0x100, %eax /* EFER.LME */
	xor %edx, %edx
	wrmsr
	mov $0x80000001, %eax
	mov %eax, %cr0
	ljmpl $CODE64, $second
gdtr:	.word 39
	.long GDT
trampoline_end:
	.code64
second:	mov $0x7800, %esp
	xor %ebx, %ebx
1:	pause
	cmpl $1, wanted(%rip)
	jne 1b
	call mark
	movl $0, wanted(%rip)
	jmp 1b
	.data
wanted:	.long 0
traps:	.quad 0
	.text
#endif

	.data
	.balign 16
idtr:	.word 16 * 32 - 1
	.quad idt
	.balign 16
idt:	.fill 16 * 32, 1, 0
	.section .note.GNU-stack, "", @progbits
