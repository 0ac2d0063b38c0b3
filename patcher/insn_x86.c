// SPDX-License-Identifier: Apache-2.0
/* Call-site instructions. See insn_x86.h. */
#include "patcher/insn_x86.h"

#include <Zydis/Zydis.h>
#include <errno.h>
#include <string.h>

const u8 insn_nop[MCOUNT_INSN_SIZE] = { 0x0f, 0x1f, 0x44, 0x00, 0x00 };

bool insn_is_site_nop(const u8 *bytes)
{
	static const u8 nop[][MCOUNT_INSN_SIZE] = {
		{ 0x0f, 0x1f, 0x44, 0x00, 0x00 }, /* today's kernels, gcc -mnop-mcount */
		{ 0x0f, 0x1f, 0x44, 0x00, 0x08 }, /* clang -fpatchable-function-entry=5 */
		{ 0x66, 0x66, 0x66, 0x66, 0x90 }, /* old kernels */
	};
	ZydisDecodedInstruction insn;
	ZydisDecoder decoder;
	bool known = false;

	for (size_t i = 0; i < ARRAY_SIZE(nop); i++)
		known |= !memcmp(bytes, nop[i], MCOUNT_INSN_SIZE);
	if (!known)
		return false;
	/* the list above is short, the rule is the decoder's: one instruction of just this length */
	if (ZYAN_FAILED(
		    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64)))
		return false;
	if (ZYAN_FAILED(
		    ZydisDecoderDecodeInstruction(&decoder, NULL, bytes, MCOUNT_INSN_SIZE, &insn)))
		return false;
	return insn.length == MCOUNT_INSN_SIZE && insn.mnemonic == ZYDIS_MNEMONIC_NOP;
}

static int make_rel32(u8 opcode, u64 ip, u64 target, u8 *bytes_ret)
{
	s64 rel = (s64)(target - (ip + MCOUNT_INSN_SIZE));
	s32 rel32 = (s32)rel;

	if (rel != rel32)
		return -ERANGE;
	bytes_ret[0] = opcode;
	memcpy(bytes_ret + 1, &rel32, sizeof(rel32));
	return 0;
}

int insn_make_call(u64 ip, u64 target, u8 *bytes_ret)
{
	return make_rel32(0xe8, ip, target, bytes_ret);
}

int insn_make_jump(u64 ip, u64 target, u8 *bytes_ret)
{
	return make_rel32(0xe9, ip, target, bytes_ret);
}

void insn_make_veneer(u64 target, u8 *bytes_ret)
{
	static const u8 jump[] = { 0xff, 0x25, 0, 0, 0, 0 };

	memcpy(bytes_ret, jump, sizeof(jump));
	memcpy(bytes_ret + sizeof(jump), &target, sizeof(target));
}

bool insn_takes_jump(const u8 *code, size_t len, size_t *off_ret)
{
	static const u8 endbr64[] = { 0xf3, 0x0f, 0x1e, 0xfa };
	ZydisDecodedInstruction insn;
	ZydisDecoder decoder;
	size_t at = 0;

	if (len >= sizeof(endbr64) && !memcmp(code, endbr64, sizeof(endbr64)))
		at = sizeof(endbr64);
	if (ZYAN_FAILED(
		    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64)) ||
	    ZYAN_FAILED(ZydisDecoderDecodeInstruction(&decoder, NULL, code + at, len - at, &insn)))
		return false;
	*off_ret = at;
	return insn.length >= MCOUNT_INSN_SIZE;
}

bool insn_call_target(u64 ip, const u8 *bytes, u64 *target_ret)
{
	s32 rel32;

	if (bytes[0] != 0xe8)
		return false;
	memcpy(&rel32, bytes + 1, sizeof(rel32));
	*target_ret = ip + MCOUNT_INSN_SIZE + (u64)(s64)rel32;
	return true;
}

static bool ends_straight_line(const ZydisDecodedInstruction *i)
{
	switch (i->meta.category) {
	case ZYDIS_CATEGORY_CALL:
	case ZYDIS_CATEGORY_COND_BR:
	case ZYDIS_CATEGORY_UNCOND_BR:
	case ZYDIS_CATEGORY_RET:
	case ZYDIS_CATEGORY_INTERRUPT:
		return true;
	default:
		return false;
	}
}

/* mov $imm, %edi or %rdi. */
static bool sets_rdi(const ZydisDecodedInstruction *i, const ZydisDecodedOperand *op, u64 *v_ret)
{
	if (i->mnemonic != ZYDIS_MNEMONIC_MOV || op[0].type != ZYDIS_OPERAND_TYPE_REGISTER ||
	    op[1].type != ZYDIS_OPERAND_TYPE_IMMEDIATE)
		return false;
	if (op[0].reg.value == ZYDIS_REGISTER_EDI)
		*v_ret = (u32)op[1].imm.value.u;
	else if (op[0].reg.value == ZYDIS_REGISTER_RDI)
		*v_ret = op[1].imm.is_signed ? (u64)op[1].imm.value.s : op[1].imm.value.u;
	else
		return false;
	return true;
}

bool insn_find_call(const u8 *code, size_t len, u64 rdi, size_t *off_ret)
{
	ZydisDecodedOperand op[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction i;
	ZydisDecoder decoder;
	bool set = false;
	u64 v;

	if (ZYAN_FAILED(
		    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64)))
		return false;
	for (size_t at = 0; at < len; at += i.length) {
		if (ZYAN_FAILED(ZydisDecoderDecodeFull(&decoder, code + at, len - at, &i, op)))
			return false;
		if (sets_rdi(&i, op, &v))
			set = v == rdi;
		if (!ends_straight_line(&i))
			continue;
		*off_ret = at;
		return set && code[at] == 0xe8 && i.length == MCOUNT_INSN_SIZE;
	}
	return false;
}

static bool is_relative(const ZydisDecodedInstruction *i)
{
	return i->raw.imm[0].is_relative && i->raw.imm[0].is_signed;
}

bool insn_leads_only(u64 ip, const u8 *code, size_t len, bool (*may)(void *arg, u64 target),
		     void *arg)
{
	ZydisDecodedInstruction i;
	ZydisDecoder decoder;

	if (ZYAN_FAILED(
		    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64)))
		return false;
	for (size_t at = 0; at < len; at += i.length) {
		u64 target;

		if (ZYAN_FAILED(
			    ZydisDecoderDecodeInstruction(&decoder, NULL, code + at, len - at, &i)))
			return false;
		if (!ends_straight_line(&i) || i.meta.category == ZYDIS_CATEGORY_RET ||
		    i.mnemonic == ZYDIS_MNEMONIC_INT3)
			continue;
		if (!is_relative(&i))
			return false;
		target = ip + at + i.length + (u64)i.raw.imm[0].value.s;
		if (target - ip >= len && !may(arg, target))
			return false;
	}
	return true;
}
