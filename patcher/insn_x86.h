/* SPDX-License-Identifier: Apache-2.0 */
/* What an x86-64 call site's bytes are. By a real decoder (Zydis). */
#ifndef PATCHER_INSN_X86_H
#define PATCHER_INSN_X86_H

#include "base/err.h"
#include "base/types.h"

#define MCOUNT_INSN_SIZE 5

/**
 * insn_is_site_nop - is this a call site at rest?
 * @bytes: MCOUNT_INSN_SIZE bytes
 *
 * True only for ONE nop of exactly MCOUNT_INSN_SIZE bytes. Two shorter nops are refused: a task that
 * was preempted between them would resume in the middle of the call that replaces them.
 * Today's kernels have 0f 1f 44 00 00, old ones 66 66 66 66 90; clang's patchable entries are 0f 1f 44 00 08.
 */
bool insn_is_site_nop(const u8 *bytes);

/**
 * insn_make_call - encode `call @target` at @ip (Intel SDM vol. 2A, CALL E8 cd)
 *
 * Return: 0; -ERANGE @target is out of rel32's reach: a veneer is needed.
 */
must_check int insn_make_call(u64 ip, u64 target, u8 *bytes_ret);

/** insn_make_jump - the same for `jmp @target` (Intel SDM vol. 2A, JMP E9 cd) */
must_check int insn_make_jump(u64 ip, u64 target, u8 *bytes_ret);

/**
 * insn_make_veneer - code of INSN_VENEER_SIZE bytes that goes on at @target, wherever that is
 *
 * For a call or jump that does not reach it: the veneer lies within its reach. `jmp *0(%rip)` and the address
 * (Intel SDM vol. 2A, JMP FF /4); changes no register and no flag. On a CPU that checks indirect branches @target
 * begins with endbr64. Linux needs none: its modules and the agent are within reach of all of its text.
 */
#define INSN_VENEER_SIZE 14
void insn_make_veneer(u64 target, u8 *bytes_ret);

/**
 * insn_takes_jump - may a jump be written over the first instruction of @code?
 * @off_ret: where: behind an endbr64
 *
 * True when that is ONE instruction of at least MCOUNT_INSN_SIZE bytes: a task that was preempted in @code stands
 * before it or behind it, never in the middle of what it is replaced by.
 */
bool insn_takes_jump(const u8 *code, size_t len, size_t *off_ret);

/** insn_nop - the nop of one instruction that 64-bit kernels have at call sites, since v5.13 all; and our agent */
extern const u8 insn_nop[MCOUNT_INSN_SIZE];

/** insn_call_target - where the 5-byte call at @ip goes; false when it is not one */
bool insn_call_target(u64 ip, const u8 *bytes, u64 *target_ret);

/**
 * insn_find_call - the first 5-byte call in @code before which rdi is set to the constant @rdi
 * @off_ret: where it begins
 *
 * Straight-line: false when a branch, another call, or something that does not decode, comes first.
 */
bool insn_find_call(const u8 *code, size_t len, u64 rdi, size_t *off_ret);

/**
 * insn_leads_only - does @code, all of a function at @ip, lead out of itself only to where @may allows?
 *
 * By calls and branches, taken or not. False when one goes by a register or memory, or something does not decode.
 */
bool insn_leads_only(u64 ip, const u8 *code, size_t len, bool (*may)(void *arg, u64 target),
		     void *arg);

#endif
