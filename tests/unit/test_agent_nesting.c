// SPDX-License-Identifier: Apache-2.0
/*
 * Where a task is in its calls, natively: struct agent_task under everything that can happen between two
 * instructions of a full entry and return. After each run every frame and every word is accounted for.
 */
#include "tests/unit/test_agent_tasks.h"

static u32 injected, changes;
static int last;

static void inject_irq(struct rig *r, void *arg)
{
	u32 was = r->percpu[0].preempt_count;

	(void)arg;
	r->percpu[0].preempt_count += 0x10000;
	rig_call(r, IRQ);
	r->percpu[0].preempt_count = was;
	injected++;
}

/* The interrupt knows whether it is inside the interrupted call: at first not, then so, then not. */
static void inject_irq_depth(struct rig *r, void *arg)
{
	int now;

	(void)arg;
	r->cpu[0].tail = r->cpu[0].head;
	now = rig_depth(&rig, IRQ);
	assert_in_range(now, 0, 1);
	changes += now != last;
	last = now;
	injected++;
}

/* The same with roots: what the interrupt calls is seen inside the root, and only there. */
static void inject_irq_seen(struct rig *r, void *arg)
{
	u64 head = r->cpu[0].head;
	int now;

	(void)arg;
	rig_call(r, IRQ);
	now = r->cpu[0].head != head;
	changes += now != last;
	last = now;
	injected++;
}

static void inject_preempt(struct rig *r, void *arg)
{
	(void)arg;
	for (u32 task = 1; task < 4; task++) {
		rig_run(r, 0, task);
		rig_call(r, IRQ);
	}
	rig_run(r, 0, 0);
	injected++;
}

static void inject_migrate(struct rig *r, void *arg)
{
	inject_preempt(r, arg);
	rig_run(r, 1, 0);
	rig_on(r, 1);
	rig_call(r, IRQ);
}

static void inject_crowd(struct rig *r, void *arg)
{
	(void)arg;
	crowd(1, RIG_TASKS);
	rig_run(r, 0, 0);
	injected++;
}

/* Tasks that are inside for as long as the interrupted one is. */
static void inject_stuck(struct rig *r, void *arg)
{
	for (u32 task = 1; task <= *(u32 *)arg; task++) {
		rig_run(r, 0, task);
		get_stuck();
	}
	rig_run(r, 0, 0);
	injected++;
}

static void inject_trace(struct rig *r, void *arg)
{
	(void)r;
	(void)arg;
	begin_trace();
	injected++;
}

static u32 path[RIG_PATH_MAX];

static void prepare(bool named)
{
	if (named)
		rig_call(&rig, VICTIM);
	for (u32 cpu = 0; cpu < RIG_CPUS; cpu++)
		rig.cpu[cpu].tail = rig.cpu[cpu].head;
	injected = changes = 0;
	last = 0;
}

/* Interruptions of one call before every PERIODth instruction from @i on: as close as its loops can bear. */
#define PERIOD 29u

static void run(u32 i, void (*inject)(struct rig *r, void *arg), u32 arg, bool named)
{
	prepare(named);
	rig_step(&rig, VICTIM, RIG_EVERY(PERIOD, i % PERIOD), inject, &arg, false);
	assert_in_range(injected, 10, 60);
	assert_in_range(rig_stack(), 200, STACK_MAX);
}

/* How many instructions there are. */
static u32 find_path(struct rig_opts o, bool named)
{
	u32 n;

	open_rig(o);
	prepare(named);
	n = rig_path(&rig, VICTIM, path);
	close_with(0, 0);
	assert_in_range(n, 200, 900);
	return n;
}

/* The interrupted call is whole: an entry with its arguments, a return with its value. */
static void assert_victim(void)
{
	u32 entries = 0, returns = 0;

	for (u32 cpu = 0; cpu < RIG_CPUS; cpu++) {
		rig_look(&rig, cpu, &seen);
		for (u32 i = 0; i < seen.n; i++) {
			const struct rig_record *v = &seen.v[i];

			if (v->rec.ip != rig_ip(&rig, VICTIM))
				continue;
			entries += v->rec.type == AGENT_REC_GRAPH_ENTRY;
			returns += v->rec.type == AGENT_REC_GRAPH_RETURN;
			assert_int_equal(v->n_data, v->rec.type == AGENT_REC_GRAPH_ENTRY ? 3 : 1);
			assert_true(v->data[0] ==
				    0x0101010101010101ull * (v->rec.type == AGENT_REC_GRAPH_ENTRY
								     ? R_RDI + 1
								     : R_RAX + 1));
		}
	}
	assert_int_equal(entries, 1);
	assert_int_equal(returns, 1);
}

static void interrupted(void **state)
{
	(void)state;
	for (u32 i = 0; i < 8 * PERIOD; i++) {
		u32 variant = i / PERIOD;
		struct rig_opts o = { .options = variant & 1 ? TASKS : AGENT_OPT_FULL,
				      .mode = variant & 2 ? AGENT_MODE_OVERWRITE : 0,
				      .max_depth = (variant & 5) == 5,
				      .thunk = variant & 2 };
		struct rig_books b;

		open_rig(o);
		rig.percpu[0].preempt_count = variant & 2 ? 0x00110301 : RIG_PREEMPT_IDLE;
		run(i, inject_irq, 0, variant & 4);
		assert_victim();
		b = rig_books(&rig, IRQ);
		assert_int_equal(b.entries, b.returns);
		assert_int_equal(rig_books(&rig, IRQ_INNER).entries, o.max_depth ? 0 : injected);
		if (!o.max_depth)
			assert_int_equal(b.entries, injected);
		else
			assert_in_range(b.entries, 2, injected - 2);
		close_with(0, 0);
	}
}

/* What is told as inside of the call is between its two records, and its two times. */
static void assert_inside(void)
{
	const struct rig_record *v = seen.v;
	u32 last_one;

	rig_look(&rig, 0, &seen);
	assert_in_range(seen.n, 2, RIG_SEEN);
	last_one = seen.n - 1;
	assert_int_equal(v[0].rec.type, AGENT_REC_GRAPH_ENTRY);
	assert_int_equal(v[last_one].rec.type, AGENT_REC_GRAPH_RETURN);
	assert_true(v[0].rec.ip == rig_ip(&rig, VICTIM) && v[last_one].rec.ip == v[0].rec.ip);
	for (u32 i = 0; i < seen.n; i++)
		assert_in_range(v[i].rec.tsc, v[0].rec.tsc, v[last_one].rec.tsc);
}

static void interrupts_know_where_they_are(void **state)
{
	(void)state;
	for (u32 i = 0; i < PERIOD; i++) {
		open_rig((struct rig_opts){ .threshold = 1 });
		run(i, inject_irq_depth, 0, true);
		assert_int_equal(changes, 2);
		assert_int_equal(last, 0);
		close_with(0, 0);
		open_rig((struct rig_opts){ .options = TASKS | AGENT_OPT_ROOTS });
		run(i, inject_irq_seen, 0, true);
		assert_int_equal(changes, 2);
		assert_int_equal(last, 0);
		assert_victim();
		assert_inside();
		close_with(0, 0);
	}
}

static void preempted(void **state)
{
	(void)state;
	for (u32 i = 0; i < PERIOD; i++) {
		open_rig((struct rig_opts){ 0 });
		run(i, inject_preempt, 0, true);
		assert_victim();
		assert_int_equal(RIG_COUNTER(&rig, lost_frames), 0);
		close_with(0, 0);
		/* more tasks than places, come and gone: the interrupted one has its own all the same */
		open_rig((struct rig_opts){ 0 });
		run(i, inject_crowd, 0, true);
		assert_victim();
		assert_int_equal(rig_books(&rig, VICTIM).functions, 0);
		close_with(0, 0);
	}
}

/* From every instruction on: elsewhere. */
static void migrated(void **state)
{
	const struct rig_opts o = { .options = TASKS | AGENT_OPT_ROOTS };

	(void)state;
	for (u32 named = 0; named < 2; named++) {
		u32 n = find_path(o, named);

		for (u32 i = 0; i < n; i++) {
			open_rig(o);
			prepare(named);
			rig_break(&rig, VICTIM, path[i], inject_migrate, NULL);
			assert_int_equal(injected, 1);
			assert_victim();
			close_with(0, 0);
		}
	}
}

/* From every instruction on the table is as good as full, or full: then the call alone is told. */
static void crowded_out(void **state)
{
	const struct rig_opts o = { .frames = 64 };

	(void)state;
	for (u32 others = 7; others <= 8; others++) {
		u32 n = find_path(o, true), out = 0;

		for (u32 i = 0; i < n; i++) {
			struct rig_books b;
			u32 words;

			open_rig(o);
			prepare(true);
			rig_break(&rig, VICTIM, path[i], inject_stuck, &others);
			b = rig_books(&rig, VICTIM);
			assert_int_equal(b.entries, b.returns);
			assert_int_equal(b.entries + b.functions, 1);
			out += b.functions;
			words = rig_words(&rig);
			assert_in_range(words, 7, others);
			close_with(words, words);
		}
		assert_in_range(out, others == 7 ? 0 : 50, others == 7 ? 0 : 600);
	}
}

/* The host begins another trace at every instruction. */
static void trace_begun(void **state)
{
	u32 n = find_path((struct rig_opts){ 0 }, true);

	(void)state;
	for (u32 i = 0; i < n; i++) {
		open_rig((struct rig_opts){ 0 });
		prepare(true);
		rig_break(&rig, VICTIM, path[i], inject_trace, NULL);
		assert_int_equal(rig_books(&rig, VICTIM).entries, rig_books(&rig, VICTIM).returns);
		assert_int_equal(
			rig_books(&rig, VICTIM).entries + rig_books(&rig, VICTIM).functions, 1);
		close_with(0, 0);
	}
}

/* The interrupted task dies there: what it holds is what the host finds and gives back. */
static sigjmp_buf died;

static void inject_death(struct rig *r, void *arg)
{
	(void)r;
	(void)arg;
	siglongjmp(died, 1);
}

static void die_at(u32 off)
{
	if (sigsetjmp(died, 1) == 0)
		rig_break(&rig, VICTIM, off, inject_death, NULL);
}

static void dies_anywhere(void **state)
{
	u32 n = find_path((struct rig_opts){ 0 }, true);

	(void)state;
	for (u32 i = 0; i < n; i++) {
		open_rig((struct rig_opts){ 0 });
		prepare(true);
		die_at(path[i]);
		rig_reclaim(&rig, 0);
		rig.cpu[0].tail =
			rig.cpu[0].head; /* it may have reserved what it will never write */
		/* another task, and the next life of the dead one: as if nothing had been */
		for (u32 task = 0; task < 9; task++) {
			rig.task[task].start_time += 1000;
			rig_run(&rig, 0, task);
			rig_call(&rig, IRQ);
			assert_int_equal(rig_books(&rig, IRQ).returns, task + 1);
		}
		assert_int_equal(rig_words(&rig), 0);
		rig_close(&rig);
	}
}

/* A ring too small for what interrupts write, emptied now and then: refused ones are counted, all or none. */
static void inject_some(struct rig *r, void *arg)
{
	u32 *made = arg;

	inject_irq(r, NULL);
	++*made;
	if (*made % 7)
		return;
	r->cpu[0].tail = r->cpu[0].head;
}

static void little_room(void **state)
{
	(void)state;
	for (u32 options = AGENT_OPT_FULL; options <= TASKS; options += AGENT_OPT_TASKS) {
		open_rig((struct rig_opts){ .options = options, .slots = 64 });
		rig_site(&rig, IRQ, ARGS(6) | AGENT_SITE_RETVAL);
		rig_site(&rig, IRQ_INNER, ARGS(1));
		run(3, inject_some, 0, false);
		rig_look(&rig, 0, &seen);
		assert_in_range(RIG_COUNTER(&rig, lost), 3, 4 * injected);
		close_with(0, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(interrupted),   cmocka_unit_test(interrupts_know_where_they_are),
		cmocka_unit_test(preempted),     cmocka_unit_test(migrated),
		cmocka_unit_test(crowded_out),   cmocka_unit_test(trace_begun),
		cmocka_unit_test(dies_anywhere), cmocka_unit_test(little_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
