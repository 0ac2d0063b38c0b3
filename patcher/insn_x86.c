// SPDX-License-Identifier: Apache-2.0
/* Call-site instructions. See insn_x86.h. */
#include "patcher/insn_x86.h"

#include <Zydis/Zydis.h>
#include <errno.h>
#include <string.h>

bool insn_is_site_nop(const u8 *bytes)
{
	static const u8 nop_now[MCOUNT_INSN_SIZE] = { 0x0f, 0x1f, 0x44, 0x00, 0x00 };
	static const u8 nop_old[MCOUNT_INSN_SIZE] = { 0x66, 0x66, 0x66, 0x66, 0x90 };
	ZydisDecodedInstruction insn;
	ZydisDecoder decoder;

	if (memcmp(bytes, nop_now, MCOUNT_INSN_SIZE) && memcmp(bytes, nop_old, MCOUNT_INSN_SIZE))
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

bool insn_call_target(u64 ip, const u8 *bytes, u64 *target_ret)
{
	s32 rel32;

	if (bytes[0] != 0xe8)
		return false;
	memcpy(&rel32, bytes + 1, sizeof(rel32));
	*target_ret = ip + MCOUNT_INSN_SIZE + (u64)(s64)rel32;
	return true;
}
