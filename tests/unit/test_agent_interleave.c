// SPDX-License-Identifier: Apache-2.0
/*
 * Everything that can happen between two instructions of the agent, made to happen between every
 * two: interrupts that trace, preemption by others for up to whole laps of the ring, migration.
 * After each run the books must balance and every record delivered must be one that was made.
 */
#include "tests/unit/test_agent_lib.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SLOTS     64
#define OUT_MAX   4096
#define STEPS_MAX 400 /* the longest path has some 170 instructions */
#define VICTIM    11 /* site of the call that is interrupted */

static struct rig rig;

/* The world of one run: readers, what was called, what was delivered. */
static struct {
	struct ring_reader reader[RIG_CPUS];
	u64 now_ns;
	u64 calls;
	u32 made[RIG_SITES][RIG_TASKS];
	u32 got[RIG_SITES][RIG_TASKS];
	char name[RIG_CPUS][RIG_TASKS][16];
	bool named[RIG_CPUS][RIG_TASKS];
	u64 nameless;
} w;

static void world_open(u32 mode)
{
	struct rig_opts o = { .slots = SLOTS, .mode = mode };
	struct ring_io io;

	rig_open(&rig, &o);
	memset(&w, 0, sizeof(w));
	w.now_ns = 1000;
	io = rig_io(&rig);
	for (u32 cpu = 0; cpu < RIG_CPUS; cpu++)
		assert_int_equal(ring_reader_init(&w.reader[cpu], &io, rig.hdr, cpu), 0);
	rig_run(&rig, 0, 0);
}

/* @task, now current on this CPU, calls @site. */
static void call(u32 site, u32 task)
{
	w.calls++;
	w.made[site][task]++;
	rig_call(&rig, site);
}

static void check_record(u32 cpu, const struct ring_record *rec)
{
	u32 task = rec->pid - 100, site;

	assert_true(task < RIG_TASKS);
	if (rec->type == RING_COMM) {
		assert_int_equal(rec->tgid, 50 + task);
		assert_memory_equal(rec->comm, rig.task[task].comm, 16);
		w.named[cpu][task] = true;
		return;
	}
	assert_int_equal(rec->type, RING_FUNCTION);
	for (site = 0; site < RIG_SITES; site++)
		if (rig_ip(&rig, site) == rec->ip)
			break;
	assert_true(site < RIG_SITES);
	w.got[site][task]++;
	if (site == VICTIM)
		assert_int_equal(rec->parent, rig_regs_parent());
	if (!w.named[cpu][task])
		w.nameless++;
}

static void drain(u32 cpu, unsigned int flags)
{
	static struct ring_record out[OUT_MAX];
	size_t n;

	assert_int_equal(ring_drain(&w.reader[cpu], out, OUT_MAX, w.now_ns, flags, &n), 0);
	for (size_t i = 0; i < n; i++)
		check_record(cpu, &out[i]);
}

/* All rings are read to the end: does everything add up? Returns how many slots were lost. */
static u64 balance(void)
{
	u64 functions = 0, refused = 0, lost = 0, reserved, pairs;

	for (u32 cpu = 0; cpu < RIG_CPUS; cpu++) {
		const struct ring_stats *s = &w.reader[cpu].stats;

		drain(cpu, RING_FINAL);
		reserved = rig.cpu[cpu].head;
		assert_int_equal(s->functions + s->comms + s->torn + s->overwritten, reserved);
		assert_int_equal(s->refused, rig.cpu[cpu].lost);
		functions += s->functions;
		refused += s->refused;
		lost += s->torn + s->overwritten;
		pairs = reserved - s->functions - s->torn - s->overwritten;
		assert_int_equal(pairs, s->comms);
	}
	for (u32 site = 0; site < RIG_SITES; site++)
		for (u32 task = 0; task < RIG_TASKS; task++)
			assert_true(w.got[site][task] <= w.made[site][task]);
	assert_true(functions + refused <= w.calls);
	assert_true(functions + refused + lost >= w.calls);
	if (lost == 0 && refused == 0)
		assert_int_equal(w.nameless, 0);
	return lost;
}

static u64 refused(void)
{
	u64 n = 0;

	for (u32 cpu = 0; cpu < RIG_CPUS; cpu++)
		n += rig.cpu[cpu].lost;
	return n;
}

struct scenario {
	u32 mode;
	bool named; /* the interrupted task's COMM is in the ring already: the short path */
	u32 preempt_count; /* of the interrupted call */
	void (*inject)(struct rig *r, void *arg);
	u32 arg;
	u64 lost_max; /* slots that may be lost */
	u64 refused_max;
};

/* Run @s with the interruption before every instruction in turn. */
static void every_instruction(const struct scenario *s)
{
	unsigned int steps = 1;
	u32 arg = s->arg;

	for (unsigned int at = 0; steps >= at; at++) {
		world_open(s->mode);
		if (s->named)
			call(1, 0);
		rig.percpu[0].preempt_count =
			s->preempt_count ? s->preempt_count : RIG_PREEMPT_IDLE;
		w.calls++;
		w.made[VICTIM][0]++;
		steps = rig_step(&rig, VICTIM, at, s->inject, &arg, false);
		for (u32 cpu = 0; cpu < RIG_CPUS; cpu++)
			rig.percpu[cpu].preempt_count = RIG_PREEMPT_IDLE;
		call(2, 0); /* wherever the task is by now */
		drain(0, 0);
		assert_true(refused() <= s->refused_max);
		if (s->lost_max == 0)
			assert_int_equal(balance(), 0);
		else
			assert_true(balance() <= s->lost_max);
		rig_close(&rig);
	}
	assert_in_range(steps, 60, STEPS_MAX); /* the last run was not interrupted at all */
}

/* Both paths of the interrupted call: its task known to the ring, and not. */
static void both_paths(struct scenario s)
{
	s.named = true;
	every_instruction(&s);
	s.named = false;
	every_instruction(&s);
}

/* And the one with the long way to its context. */
static void all_paths(struct scenario s)
{
	both_paths(s);
	s.named = true;
	s.preempt_count = 0x00110301;
	every_instruction(&s);
}

/* An interrupt: same task, same CPU, functions of its own. */
static void inject_irq(struct rig *r, void *arg)
{
	u32 was = r->percpu[0].preempt_count;

	r->percpu[0].preempt_count += 0x10000;
	for (u32 i = 0; i < *(u32 *)arg; i++)
		call(20 + i % 100, 0);
	r->percpu[0].preempt_count = was;
}

/* Preempted: other tasks run here, then we go on on the same CPU. */
static void inject_preempt(struct rig *r, void *arg)
{
	for (u32 i = 0; i < *(u32 *)arg; i++) {
		u32 task = 1 + i % 3;

		rig_run(r, 0, task);
		call(20 + i % 100, task);
	}
	rig_run(r, 0, 0);
}

/* As inject_preempt(), and a reader comes by at each record. */
static void inject_preempt_and_drain(struct rig *r, void *arg)
{
	for (u32 i = 0; i < *(u32 *)arg; i++) {
		rig_run(r, 0, 1);
		call(20 + i % 100, 1);
		drain(0, 0);
	}
	rig_run(r, 0, 0);
}

/* Preempted and moved to CPU 1; CPU 0 goes to another task, both write on. */
static void inject_migrate(struct rig *r, void *arg)
{
	for (u32 i = 0; i < *(u32 *)arg; i++) {
		rig_run(r, 0, 2);
		rig_on(r, 0);
		call(20 + i % 100, 2);
		rig_run(r, 1, 3);
		rig_on(r, 1);
		call(120 + i % 100, 3);
	}
	rig_run(r, 1, 0); /* this is where we go on */
	rig_on(r, 1);
}

/* Moved away and back again. */
static void inject_migrate_back(struct rig *r, void *arg)
{
	inject_migrate(r, arg);
	call(240, 0);
	rig_run(r, 1, 4);
	call(241, 4);
	rig_on(r, 0);
	rig_run(r, 0, 0);
}

/* An interrupt, a preemption, an interrupt. */
static void inject_irq_irq(struct rig *r, void *arg)
{
	inject_irq(r, arg);
	inject_preempt(r, arg);
	inject_irq(r, arg);
}

static void interrupt_traces(void **state)
{
	struct scenario s = { .inject = inject_irq, .arg = 3 };

	(void)state;
	all_paths(s);
	s.mode = AGENT_MODE_OVERWRITE;
	all_paths(s);
	s.inject = inject_irq_irq;
	s.mode = AGENT_MODE_DISCARD;
	all_paths(s);
}

static void preempted_by_others(void **state)
{
	struct scenario s = { .inject = inject_preempt, .arg = 6 };

	(void)state;
	all_paths(s);
	s.mode = AGENT_MODE_OVERWRITE;
	all_paths(s);
}

static void migrated(void **state)
{
	struct scenario s = { .inject = inject_migrate, .arg = 4 };

	(void)state;
	all_paths(s);
	s.inject = inject_migrate_back;
	all_paths(s);
	s.mode = AGENT_MODE_OVERWRITE;
	all_paths(s);
	s.inject = inject_migrate;
	all_paths(s);
}

/* Discard: the preempted writer's slot blocks the ring, later records are refused, none is torn. */
static void discard_whole_laps(void **state)
{
	struct scenario s = { .inject = inject_preempt, .refused_max = 3 * SLOTS };

	(void)state;
	s.arg = SLOTS - 8;
	both_paths(s);
	s.arg = 2 * SLOTS + 5;
	both_paths(s);
	s.inject = inject_preempt_and_drain;
	s.arg = 2 * SLOTS;
	both_paths(s);
}

/*
 * Overwrite: the late writer may spoil the slots it had reserved, its own and its COMM pair's, in
 * whichever lap they are by then, and the lapped ones are overwritten. All of it is counted,
 * nothing damaged is delivered (check_record() knows every record that was made).
 */
static void overwrite_whole_laps(void **state)
{
	struct scenario s = { .mode = AGENT_MODE_OVERWRITE, .lost_max = 16 * SLOTS };

	(void)state;
	/* One pair and a record each, so that the lap ends on each of the slots the victim has. */
	s.inject = inject_preempt_and_drain;
	for (s.arg = SLOTS - 3; s.arg <= SLOTS + 1; s.arg++)
		both_paths(s);
	s.inject = inject_preempt; /* every record has its pair here */
	for (s.arg = SLOTS / 3 - 1; s.arg <= SLOTS / 3 + 1; s.arg++)
		both_paths(s);
	s.arg = 2 * SLOTS;
	both_paths(s);
}

/* The slot that a late writer spoils just before it is read is seen as torn. */
static void late_writer_is_seen(void **state)
{
	struct scenario s = { .mode = AGENT_MODE_OVERWRITE, .named = true };
	unsigned int steps = 1, torn = 0, late = 0;
	u32 arg;

	(void)state;
	for (unsigned int at = 0; steps >= at; at++) {
		world_open(s.mode);
		call(1, 0);
		drain(0, 0);
		w.calls++;
		w.made[VICTIM][0]++;
		arg = SLOTS;
		steps = rig_step(&rig, VICTIM, at, inject_irq, &arg, false);
		(void)balance();
		torn += w.reader[0].stats.torn > 0;
		late += w.got[VICTIM][0] == 0;
		/* Reserved before a whole lap of others: never delivered. */
		if (w.got[VICTIM][0] == 0)
			assert_in_range(w.reader[0].stats.torn + w.reader[0].stats.overwritten, 1,
					2);
		rig_close(&rig);
	}
	/* Between reservation and the last store there are some 25 instructions. */
	assert_in_range(torn, 10, 40);
	assert_in_range(late, torn, 60);
}

/* Discard: a reader waits at a slot that is reserved but not written, and says so. */
static void inject_stalled(struct rig *r, void *arg)
{
	const struct ring_reader *rd = &w.reader[0];

	inject_irq(r, arg);
	drain(0, 0);
	w.now_ns += 10 * RING_STALL_NS;
	drain(0, 0);
	if (rd->pos < rig.cpu[0].head) {
		assert_int_equal(rd->stats.stalled_ns, 10 * RING_STALL_NS);
		w.nameless += 1000;
	}
}

static void reader_waits_in_discard(void **state)
{
	unsigned int steps = 1;
	u64 stalls = 0;
	u32 arg = 5;

	(void)state;
	for (unsigned int at = 0; steps >= at; at++) {
		world_open(AGENT_MODE_DISCARD);
		call(1, 0);
		w.calls++;
		w.made[VICTIM][0]++;
		steps = rig_step(&rig, VICTIM, at, inject_stalled, &arg, false);
		stalls += w.nameless / 1000;
		w.nameless %= 1000;
		drain(0, 0);
		assert_int_equal(w.reader[0].stats.stalled_ns, 0);
		assert_int_equal(balance(), 0);
		assert_int_equal(w.got[VICTIM][0], 1);
		rig_close(&rig);
	}
	assert_in_range(stalls, 10, 40);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(interrupt_traces),
		cmocka_unit_test(preempted_by_others),
		cmocka_unit_test(migrated),
		cmocka_unit_test(discard_whole_laps),
		cmocka_unit_test(overwrite_whole_laps),
		cmocka_unit_test(late_writer_is_seen),
		cmocka_unit_test(reader_waits_in_discard),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
