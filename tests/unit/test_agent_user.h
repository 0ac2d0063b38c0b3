/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program whose system calls the agent reads memory of, natively. "The program" is two pages of this process,
 * of which copy_from_user_nofault() reads as much as a test lets it.
 */
#ifndef TEST_AGENT_USER_H
#define TEST_AGENT_USER_H

#include "tests/unit/test_agent_lib.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SLOTS  4096
#define CALL   3
#define PAGE   4096
#define NONE   AGENT_USER_NONE
#define TAG    0x1234
#define FAILED (AGENT_USER_FAILED | TAG)

struct fake_regs {
	u64 r10, r9, r8, dx, si, di, orig_ax, sp;
};

static struct rig rig;
static struct rig_seen seen;
/* What was read in one call, in its order: of the entry's own record, and of records of their own. */
static struct rig_piece piece[RIG_SEEN];
static u32 n_pieces;
static bool no_copy_user; /* the kernel has no copy_from_user_nofault() */
static bool counts_first; /* a step that may read much, for which the entry does not wait */
static _Alignas(PAGE) u8 memory[2 * PAGE];
static struct fake_regs regs;
static const struct agent_user_step plain = {
	.len = NONE, .if_arg = NONE, .ptr_at = -1, .len_at = -1, .tag = TAG
};

static struct {
	u64 from, to;
	u32 calls;
} readable;

/* The guest's copy_from_user_nofault(): -EFAULT where a part of it is not the program's memory. */
__attribute__((force_align_arg_pointer)) static long copy_from_user(void *dst, const void *src,
								    size_t n)
{
	u64 p = (u64)(uintptr_t)src;

	assert_true(rig_irqs_off());
	readable.calls++;
	if (p < readable.from || p >= readable.to || n > readable.to - p)
		return -EFAULT;
	memcpy(dst, src, n);
	return 0;
}

static void rig_user(const void *from, size_t n)
{
	readable.from = (u64)(uintptr_t)from;
	readable.to = readable.from + n;
	readable.calls = 0;
}

static u64 at(u32 off)
{
	return (u64)(uintptr_t)memory + off;
}

static void put(u32 off, u64 v, u32 size)
{
	memcpy(memory + off, &v, size);
}

static void open_rig(void)
{
	const struct rig_opts opts = { .slots = SLOTS,
				       .graph = true,
				       .full = true,
				       .options = AGENT_OPT_FULL,
				       .sites = 64,
				       .tasks = 64,
				       .calls = !no_copy_user };
	const u16 off[2][AGENT_SYSCALL_REGS] = {
#define R(m) offsetof(struct fake_regs, m)
		{ R(di), R(si), R(dx), R(r10), R(r8), R(r9), R(orig_ax) },
		{ R(di), R(si), R(dx), R(r10), R(r8), R(r9), R(orig_ax) },
	};

	rig_open(&rig, &opts);
	memcpy(rig.hdr->syscall_regs, off, sizeof(off));
	if (!no_copy_user)
		rig_body(&rig, RIG_CALL_COPY, (void (*)(void))copy_from_user);
	rig.hdr->kernel_half = 0x10000;
	rig.hdr->where.regs_sp = R(sp);
	for (u32 i = 0; i < sizeof(memory); i++)
		memory[i] = (u8)(i * 7 + i / 256 + 1);
	memset(&regs, 0, sizeof(regs));
	rig_user(memory, sizeof(memory));
}

static void close_rig(void)
{
	assert_int_equal(RIG_COUNTER(&rig, frame_errors) + RIG_COUNTER(&rig, orphans) +
				 RIG_COUNTER(&rig, lost),
			 0);
	assert_int_equal(rig_check_frames(&rig), 0);
	rig_close(&rig);
}

static void steps(const struct agent_user_step *s, u32 n)
{
	struct agent_user_step *to = (void *)((u8 *)rig.hdr + rig.hdr->steps_off);

	memcpy(to + 5, s, n * sizeof(*s));
	to[5 + n - 1].flags |= AGENT_USER_LAST;
}

static bool stepped, irqs_off; /* calls are made by rig_call_irqs() */

/* One call that returns @ret. What it tells but entry and return is in piece[]. */
static u32 call(u64 ret, u32 more)
{
	u64 in[R_COUNT] = { [R_FLAGS] = 2 | FLAG_IF, [R_RAX] = ret }, out[R_COUNT];
	struct fake_regs on_stack = regs; /* as a task's are */

	rig_site(&rig, CALL,
		 AGENT_SITE_SYSCALL | AGENT_SITE_RETVAL | more | 6u << AGENT_SITE_USER_SHIFT);
	in[R_RDI] = (u64)(uintptr_t)&on_stack;
	if (stepped)
		rig_call_irqs(&rig, CALL, in, out, irqs_off);
	else
		rig_call_regs(&rig, CALL, in, out);
	assert_true(out[R_RAX] == ret);
	rig_look(&rig, 0, &seen);
	rig.cpu[0].tail = rig.cpu[0].head;
	assert_in_range(seen.n, 2, RIG_SEEN);
	assert_int_equal(seen.v[seen.n - 1].rec.type, RING_GRAPH_RETURN);
	assert_int_equal(seen.v[seen.n - 1].data[0], ret);
	n_pieces = rig_pieces(&seen, counts_first, piece);
	return n_pieces;
}

static void assert_piece(u32 i, u64 key, u32 number, u64 from, u32 n, u32 there)
{
	assert_true(i < n_pieces);
	assert_true(piece[i].sizes == ((u64)there << 16 | n));
	assert_true(piece[i].key == (key | (u64)number << AGENT_USER_NUMBER_SHIFT));
	assert_int_equal(piece[i].n_bytes, (n + 7) / 8);
	if (n)
		assert_memory_equal(piece[i].bytes, (void *)(uintptr_t)from, n);
	for (u32 k = n; k & 7; k++)
		assert_int_equal(((const u8 *)piece[i].bytes)[k], 0);
}

#endif
