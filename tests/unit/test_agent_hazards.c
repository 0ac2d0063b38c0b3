// SPDX-License-Identifier: Apache-2.0
/*
 * What makes following returns hard and has no other place: a return from another cell, the guest's own
 * kretprobe on the same one, before us and after us, and more depth than can be counted.
 */
#include "tests/unit/test_agent_lib.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define SLOTS 1024
#define A     3
#define B     4
#define TASKS (AGENT_OPT_FULL | AGENT_OPT_TASKS)

/*
 * The guest's kretprobe, as far as a cell is concerned: what it found there goes into its own memory, its trampoline
 * takes that up again. As the body of a traced function it comes after us; as its caller, before us.
 */
extern u64 own_saved[8], own_depth, own_returns;
extern void own_after_us(void), own_before_us(void);
extern const u8 own_trampoline[];
extern const void *own_next;

/* Assembler. */
/* clang-format off */
__asm__("	.text\n"
	"own_hijack:\n"			/* the cell is at 8(%rsp) */
	"	leaq own_saved(%rip), %r10\n"
	"	movq own_depth(%rip), %r11\n"
	"	movq 8(%rsp), %rax\n"
	"	movq %rax, (%r10, %r11, 8)\n"
	"	incq own_depth(%rip)\n"
	"	leaq own_trampoline(%rip), %rax\n"
	"	movq %rax, 8(%rsp)\n"
	"	ret\n"
	"	.globl own_after_us\n"
	"own_after_us:\n"
	"	call own_hijack\n"
	"	ret\n"
	"	.globl own_before_us\n"
	"own_before_us:\n"
	"	call own_hijack\n"
	"	jmp *own_next(%rip)\n"
	"	.globl own_trampoline\n"
	"own_trampoline:\n"
	"	subq $8, %rsp\n"
	"	incq own_returns(%rip)\n"
	"	decq own_depth(%rip)\n"
	"	leaq own_saved(%rip), %r10\n"
	"	movq own_depth(%rip), %r11\n"
	"	movq (%r10, %r11, 8), %r10\n"
	"	movq %r10, (%rsp)\n"
	"	ret\n"
	"	.bss\n"
	"	.p2align 3\n"
	"	.globl own_saved, own_depth, own_returns, own_next\n"
	"own_saved:	.zero 64\n"
	"own_depth:	.zero 8\n"
	"own_returns:	.zero 8\n"
	"own_next:	.zero 8\n"
	"	.text\n");
/* clang-format on */

static struct rig rig;
static struct rig_seen seen;

static void open_graph(u32 options, u64 threshold)
{
	struct rig_opts o = { .slots = SLOTS,
			      .graph = true,
			      .full = options,
			      .options = options,
			      .threshold = threshold,
			      .sites = 64,
			      .tasks = 64 };

	rig_open(&rig, &o);
	own_depth = own_returns = 0;
}

static void close_quiet(u32 frames, u32 errors)
{
	assert_int_equal(RIG_COUNTER(&rig, frame_errors), errors);
	assert_int_equal(RIG_COUNTER(&rig, orphans), 0);
	assert_int_equal(rig_check_frames(&rig), frames);
	rig_close(&rig);
}

static void check_books(u32 site, u32 n)
{
	struct rig_books b = rig_books(&rig, site);

	assert_int_equal(b.entries, n);
	assert_int_equal(b.returns, n);
}

static agent_u64 *moved;

/* The innermost frame says another cell from here on. */
static void move_cell(void)
{
	for (u32 i = 0; i < rig.hdr->nr_frames; i++) {
		if (!rig.frames[i].slot)
			continue;
		moved = &rig.frames[i].slot;
		*moved += 8;
	}
}

/* FP_TEST: counted, nothing else; the guest goes on where it should, and the frame is not given away. */
static void another_cell(void **state)
{
	(void)state;
	for (u32 full = 0; full < 2; full++) {
		open_graph(full ? TASKS : 0, 0);
		rig_body(&rig, A, move_cell);
		rig_call(&rig, A);
		check_books(A, 1);
		assert_int_equal(RIG_COUNTER(&rig, frame_errors), 1);
		assert_true(*moved != 0);
		rig_body(&rig, A, NULL);
		rig_call(&rig, A);
		check_books(A, 2);
		close_quiet(1, 1);
	}
}

/* Its trampoline returns through ours. */
static void kretprobe_after_us(void **state)
{
	(void)state;
	for (u32 full = 0; full < 2; full++) {
		open_graph(full ? TASKS : 0, 0);
		rig_body(&rig, A, own_after_us);
		for (u32 i = 0; i < 5; i++)
			rig_call(&rig, A);
		assert_int_equal(own_returns, 5);
		assert_int_equal(own_depth, 0);
		check_books(A, 5);
		close_quiet(0, 0);
	}
}

/* Ours returns through its trampoline, which is the caller that a record has. */
static void kretprobe_before_us(void **state)
{
	void (*fn)(void);

	(void)state;
	for (u32 full = 0; full < 2; full++) {
		open_graph(full ? TASKS : 0, 0);
		fn = rig_function(&rig, A);
		memcpy(&own_next, &fn, sizeof(fn));
		for (u32 i = 0; i < 5; i++)
			own_before_us();
		assert_int_equal(own_returns, 5);
		check_books(A, 5);
		rig_look(&rig, 0, &seen);
		assert_true((u32)seen.v[0].rec.parent == (u32)(uintptr_t)own_trampoline);
		close_quiet(0, 0);
	}
}

/* Before us, we, after us, and we again on a function that is jumped to. */
static void kretprobes_around_us(void **state)
{
	void (*fn)(void);

	(void)state;
	for (u32 full = 0; full < 2; full++) {
		open_graph(full ? TASKS : 0, 0);
		rig_tail(&rig, A, B);
		rig_body(&rig, B, own_after_us);
		fn = rig_function(&rig, A);
		memcpy(&own_next, &fn, sizeof(fn));
		for (u32 i = 0; i < 5; i++)
			own_before_us();
		assert_int_equal(own_returns, 10);
		assert_int_equal(own_depth, 0);
		check_books(A, 5);
		check_books(B, 5);
		close_quiet(0, 0);
	}
}

static void call_b(void)
{
	for (u32 i = 0; i < rig.hdr->nr_frames; i++) {
		if (rig.frames[i].slot)
			rig.frames[i].state |= AGENT_FRAME_MAX_DEPTH << AGENT_FRAME_DEPTH_SHIFT;
	}
	rig_call(&rig, B);
	__asm__ volatile("" : : : "memory"); /* no tail call */
}

/* Deeper than can be counted is as deep as can be counted. */
static void depth_has_an_end(void **state)
{
	u32 deepest = 0;

	(void)state;
	open_graph(TASKS, 1);
	rig_body(&rig, A, call_b);
	rig_call(&rig, A);
	rig_look(&rig, 0, &seen);
	assert_int_equal(seen.n, 2);
	for (u32 i = 0; i < seen.v[0].n_data; i++) {
		if (seen.v[0].kind[i] == AGENT_DATA_DEPTH)
			deepest = (u32)seen.v[0].data[i];
	}
	assert_int_equal(deepest, AGENT_FRAME_MAX_DEPTH);
	close_quiet(0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_cell),        cmocka_unit_test(kretprobe_after_us),
		cmocka_unit_test(kretprobe_before_us), cmocka_unit_test(kretprobes_around_us),
		cmocka_unit_test(depth_has_an_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
