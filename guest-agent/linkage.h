/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Assembler macros of the agent. Its instructions lie in .rodata of the host's library: there they
 * are bytes to copy, never executed in place. link.c shares the placeholders.
 */
#ifndef GUEST_AGENT_LINKAGE_H
#define GUEST_AGENT_LINKAGE_H

/*
 * What stands in a field before agent_link() fills it in. 32 bits wide on purpose, so that every
 * assembler picks the long form of the instruction, and checked there: a field that is not where
 * its fixup says is found when the agent is linked, not in the guest.
 */
#define AGENT_HOLE  0x11223344
#define AGENT_HOLE8 0x11

#ifdef __ASSEMBLER__
/* The formatter knows no assembler. */
/* clang-format off */
#define SYM_FUNC_START(name)   \
	.p2align 4, 0xcc;      \
	.type name, @function; \
	name:

#define SYM_FUNC_END(name) .size name, . - name

#define SYM_INNER_LABEL(name) name:

/*
 * FIXUP - name the 4-byte field of the instruction just before
 * \tail: bytes of immediate after the field; for a field that is the immediate itself, 0
 */
.macro FIXUP kind, addend=0, tail=0
.Lfix\@:
	.pushsection .rodata.agent_fixups, "a", @progbits
	.long .Lfix\@ - 4 - \tail - agent_text
	.long \kind
	.long \addend
	.long \tail
	.popsection
.endm

/* FIXUP8 - as FIXUP, for an instruction that ends in a 1-byte immediate */
.macro FIXUP8 kind
.Lfix\@:
	.pushsection .rodata.agent_fixups, "a", @progbits
	.long .Lfix\@ - 1 - agent_text
	.long \kind
	.long 0
	.long 0
	.popsection
.endm

/*
 * RETURN - five bytes which agent_link() may turn into `jmp rel32` to the guest's return thunk
 *
 * A kernel that mitigates Retbleed or SRSO has no ret of its own left: each is `jmp
 * __x86_return_thunk` (Linux v6.1 arch/x86/include/asm/linkage.h RET, arch/x86/kernel/alternative.c
 * apply_returns()). A plain ret in the agent would be the one return that user space may still
 * train the predictor for. The int3 after it stop straight-line speculation, as CONFIG_SLS does.
 */
.macro RETURN
	ret
	int3
	int3
	int3
	int3
	FIXUP AGENT_FIX_RETURN
.endm
/* clang-format on */
#endif

#endif
