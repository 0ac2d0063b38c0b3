/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of struct agent_task share: one rig, its functions, and tasks that crowd its table. */
#ifndef TESTS_UNIT_TEST_AGENT_TASKS_H
#define TESTS_UNIT_TEST_AGENT_TASKS_H

#include "tests/unit/test_agent_lib.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define SLOTS     4096
#define VICTIM    3
#define INNER     4
#define IRQ       20
#define IRQ_INNER 21
#define STUCK     22
#define CROWD     23
#define TASKS     (AGENT_OPT_FULL | AGENT_OPT_TASKS)
#define ARGS(n)   ((u32)(n) << AGENT_SITE_ARGS_SHIFT)
#define STACK_MAX 340 /* 324 of ours */

static struct rig rig;
static struct rig_seen seen;
static jmp_buf away;

static void call_irq_inner(void)
{
	rig_call(&rig, IRQ_INNER);
}

static void never_return(void)
{
	longjmp(away, 1);
}

/* A call that the task that runs leaves without a return; further in than what is called later. */
static void get_stuck(void)
{
	u8 room[1200];

	__asm__ volatile("" : : "r"(room) : "memory"); /* all of it is used */
	if (setjmp(away) == 0)
		rig_call(&rig, STUCK);
	__asm__ volatile("" : : "r"(room) : "memory");
}

static void open_rig(struct rig_opts o)
{
	o.slots = o.slots ? o.slots : SLOTS;
	o.graph = o.full = true;
	o.sites = 64;
	o.tasks = o.tasks ? o.tasks : AGENT_TASK_BUCKET;
	o.options = o.options ? o.options : TASKS;
	rig_open(&rig, &o);
	rig_site(&rig, VICTIM, AGENT_SITE_ROOT | AGENT_SITE_RETVAL | ARGS(3));
	rig_body(&rig, VICTIM, NULL);
	rig_body(&rig, IRQ, call_irq_inner);
	rig_body(&rig, STUCK, never_return);
	rig_run(&rig, 0, 0);
}

static void close_with(u32 frames, u32 words)
{
	assert_int_equal(RIG_COUNTER(&rig, frame_errors) + RIG_COUNTER(&rig, orphans), 0);
	assert_int_equal(rig_check_frames(&rig), frames);
	assert_int_equal(rig_words(&rig), words);
	rig_close(&rig);
}

/* The next task, preempting: all are inside at once. */
static u32 crowd_size, crowd_task;

static void crowd_on(void)
{
	if (++crowd_task < crowd_size) {
		rig_run(&rig, 0, crowd_task);
		rig_call(&rig, CROWD);
	}
	rig_run(&rig, 0, --crowd_task);
}

static void crowd(u32 first, u32 size)
{
	rig_body(&rig, CROWD, crowd_on);
	crowd_task = first;
	crowd_size = size;
	rig_run(&rig, 0, first);
	rig_call(&rig, CROWD);
}

static void begin_trace(void)
{
	memset(rig.data + rig.hdr->tasks_off, 0, rig.hdr->task_slots * sizeof(struct agent_task));
}

#endif
