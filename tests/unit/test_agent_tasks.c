// SPDX-License-Identifier: Apache-2.0
/*
 * Where a task is in its calls, natively: struct agent_task with tasks that die inside, that leave calls
 * without a return, that move, that are more than the table holds; with traces that follow one another.
 */
#include "tests/unit/test_agent_tasks.h"

/* What the agent knows of a stack it knows of one page: @fn has the upper part of one. */
static void in_one_page(void (*fn)(void))
{
	u8 room[100];

	__asm__ volatile("" : : "r"(room) : "memory"); /* all of it is used */
	if (((uintptr_t)room & 4095) > 3500)
		fn();
	else
		in_one_page(fn);
	__asm__ volatile("" : : "r"(room) : "memory");
}

/* A call left without a return does not count once its task calls from further out. */
static void leave_and_call(void)
{
	for (u32 i = 0; i < 5; i++) {
		get_stuck();
		assert_int_equal(rig_words(&rig), 1);
		assert_int_equal(rig_depth(&rig, INNER), 0);
	}
}

static void left_without_return(void **state)
{
	(void)state;
	open_rig((struct rig_opts){ .threshold = 1 });
	in_one_page(leave_and_call);
	close_with(5, 0);
}

static void leave_inside(void)
{
	get_stuck();
	assert_int_equal(rig_depth(&rig, IRQ), 1);
	get_stuck();
}

static void leave_some(void)
{
	in_one_page(leave_inside);
}

/* Inside of calls that do go on: these stay, and go back to where they were. */
static void left_inside(void **state)
{
	(void)state;
	open_rig((struct rig_opts){ .threshold = 1 });
	rig_body(&rig, VICTIM, leave_some);
	rig_call(&rig, VICTIM);
	close_with(2, 0);
}

/* The task ended inside; its task_struct is another task now, which has begun later. */
static void another_life(void **state)
{
	(void)state;
	open_rig((struct rig_opts){ .threshold = 1 });
	/* on another stack in effect: far below, so that only its age tells */
	get_stuck();
	for (u32 f = 0; f < rig.hdr->nr_frames; f++)
		rig.frames[f].slot += rig.frames[f].slot ? 0x10000 : 0;
	assert_int_equal(rig_depth(&rig, INNER), 1); /* taken for inside */
	rig.task[0].start_time -= 100; /* exec() of a thread: the same life */
	assert_int_equal(rig_depth(&rig, INNER), 1);
	rig.task[0].start_time += 200;
	assert_int_equal(rig_depth(&rig, INNER), 0);
	assert_int_equal(rig_words(&rig), 0);
	close_with(1, 0);
}

static void full_table(void **state)
{
	struct rig_books b;

	(void)state;
	open_rig((struct rig_opts){ .max_depth = 1 });
	crowd(0, RIG_TASKS);
	b = rig_books(&rig, CROWD);
	assert_int_equal(b.entries, 8);
	assert_int_equal(b.returns, 8);
	assert_int_equal(b.functions, RIG_TASKS - 8);
	assert_int_equal(RIG_COUNTER(&rig, lost_frames), RIG_TASKS - 8);
	/* under roots only what is one, and under a threshold nothing, is known to be wanted */
	rig.hdr->options |= AGENT_OPT_ROOTS;
	crowd(0, RIG_TASKS);
	assert_int_equal(rig_books(&rig, CROWD).functions, RIG_TASKS - 8);
	rig_site(&rig, CROWD, AGENT_SITE_ROOT);
	rig.hdr->threshold = 1;
	crowd(0, RIG_TASKS);
	assert_int_equal(rig_books(&rig, CROWD).functions, RIG_TASKS - 8);
	assert_int_equal(RIG_COUNTER(&rig, lost_frames), 2 * (RIG_TASKS - 8));
	close_with(0, 0);
}

/* Eight tasks die inside; once the host has given one's frame back, a ninth has its place. */
static void dead_tasks_make_room(void **state)
{
	(void)state;
	open_rig((struct rig_opts){ .threshold = 1 });
	for (u32 task = 0; task < 8; task++) {
		rig_run(&rig, 0, task);
		get_stuck();
	}
	assert_int_equal(rig_words(&rig), 8);
	for (u32 task = 8; task < RIG_TASKS; task++) {
		rig_run(&rig, 0, task);
		assert_int_equal(rig_depth(&rig, INNER), -1);
	}
	assert_int_equal(RIG_COUNTER(&rig, lost_frames), RIG_TASKS - 8);
	rig_reclaim(&rig, 5);
	rig_run(&rig, 0, 9);
	get_stuck();
	rig_run(&rig, 0, 10);
	assert_int_equal(rig_depth(&rig, INNER), -1);
	/* a dead one that lives after all has lost its place, and no more */
	rig_run(&rig, 0, 5);
	assert_int_equal(rig_depth(&rig, INNER), -1);
	rig_run(&rig, 0, 7);
	rig_reclaim(&rig, 7);
	assert_int_equal(rig_depth(&rig, INNER), 0);
	assert_int_equal(rig_words(&rig), 7);
	close_with(7, 7);
}

static void move_on(void)
{
	rig_run(&rig, 1, 0);
	rig_run(&rig, 0, 5);
	rig_on(&rig, 1);
	rig_call(&rig, INNER);
}

static void migrated_inside(void **state)
{
	(void)state;
	open_rig((struct rig_opts){ .max_depth = 2 });
	rig_body(&rig, VICTIM, move_on);
	rig_body(&rig, INNER, call_irq_inner);
	rig_call(&rig, VICTIM);
	assert_int_equal(rig_books(&rig, VICTIM).returns, 1);
	assert_int_equal(rig_books(&rig, INNER).entries, 1);
	assert_int_equal(rig_books(&rig, INNER).returns, 1);
	assert_int_equal(rig_books(&rig, IRQ_INNER).entries, 0);
	rig_look(&rig, 1, &seen);
	assert_int_equal(seen.n, 3); /* in, out of INNER, out of VICTIM */
	close_with(0, 0);
}

static void begin_trace_and_call(void)
{
	begin_trace();
	rig_call(&rig, IRQ);
}

/* Another trace begins while a task is inside: its old frame returns, harming nothing. */
static void another_trace(void **state)
{
	(void)state;
	open_rig((struct rig_opts){ .max_depth = 2 });
	rig_body(&rig, VICTIM, begin_trace_and_call);
	rig_call(&rig, VICTIM);
	assert_int_equal(rig_books(&rig, IRQ).entries, 1);
	assert_int_equal(rig_books(&rig, IRQ_INNER).entries, 1); /* depth is counted from anew */
	assert_int_equal(rig_books(&rig, VICTIM).returns, 1);
	close_with(0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(left_without_return),  cmocka_unit_test(left_inside),
		cmocka_unit_test(another_life),         cmocka_unit_test(full_table),
		cmocka_unit_test(dead_tasks_make_room), cmocka_unit_test(migrated_inside),
		cmocka_unit_test(another_trace),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
