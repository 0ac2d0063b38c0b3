// SPDX-License-Identifier: Apache-2.0
/*
 * function_graph, natively: calls that nest, recurse, jump, never return; interrupts, preemption and
 * migration between any two instructions of the way in and of the way back. After each run every
 * frame is in one list, once, or belongs to a call that has not returned.
 */
#include "tests/unit/test_agent_lib.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include <cmocka.h>

#define SLOTS     1024
#define OUTER     3
#define INNER     4
#define LEAF      5
#define STEPS_MAX 600

static struct rig rig;

/* What one ring holds from its first record to its head, COMM records apart. */
struct seen {
	struct ring_record rec[SLOTS];
	u64 w1[SLOTS];
	u32 n, entries, returns, functions;
};
static struct seen seen;

static void open_rig(u32 frames, u32 slots)
{
	struct rig_opts o = { .slots = slots, .frames = frames, .graph = true };

	rig_open(&rig, &o);
	rig_run(&rig, 0, 0);
}

static void look(u32 cpu)
{
	memset(&seen, 0, sizeof(seen));
	for (u64 i = rig.cpu[cpu].tail; i < rig.cpu[cpu].head; i++) {
		const u64 *w = rig_ring(&rig, cpu, i % rig.hdr->ring_slots);
		struct ring_record *rec = &seen.rec[seen.n];

		assert_true(rig_decode(w, i, rig.hdr->ring_slots, rec));
		if (rec->type == AGENT_REC_COMM_A || rec->type == AGENT_REC_COMM_B)
			continue;
		seen.w1[seen.n++] = w[1];
		seen.entries += rec->type == AGENT_REC_GRAPH_ENTRY;
		seen.returns += rec->type == AGENT_REC_GRAPH_RETURN;
		seen.functions += rec->type == AGENT_REC_FUNCTION;
	}
}

static u64 ticks(u32 i)
{
	return agent_duration((u32)(seen.w1[i] >> 32));
}

static void assert_record(u32 i, u32 type, u32 site)
{
	assert_true(i < seen.n);
	assert_int_equal(seen.rec[i].type, type);
	assert_int_equal(seen.rec[i].ip, rig_ip(&rig, site));
}

/* The return's time less its duration is the entry's time. */
static void assert_pair(u32 entry, u32 ret, u32 site)
{
	assert_record(entry, AGENT_REC_GRAPH_ENTRY, site);
	assert_record(ret, AGENT_REC_GRAPH_RETURN, site);
	assert_true(seen.rec[ret].tsc - ticks(ret) == seen.rec[entry].tsc);
	assert_int_equal(seen.rec[ret].pid, seen.rec[entry].pid);
}

static u64 sum(size_t off)
{
	u64 n = 0;

	for (u32 cpu = 0; cpu < rig.hdr->nr_cpus; cpu++)
		n += *(const u64 *)((const u8 *)&rig.cpu[cpu] + off);
	return n;
}

#define COUNTER(member) sum(offsetof(struct agent_cpu, member))

static void call_inner(void)
{
	rig_call(&rig, INNER);
}

static void call_leaf_twice(void)
{
	rig_call(&rig, LEAF);
	rig_call(&rig, LEAF);
}

static void nested(void **state)
{
	(void)state;
	open_rig(0, SLOTS);
	rig_body(&rig, OUTER, call_inner);
	rig_body(&rig, INNER, call_leaf_twice);
	rig_call(&rig, OUTER);
	look(0);
	assert_int_equal(seen.n, 8);
	assert_pair(0, 7, OUTER);
	assert_pair(1, 6, INNER);
	assert_pair(2, 3, LEAF);
	assert_pair(4, 5, LEAF);
	assert_true(ticks(7) >= ticks(6));
	assert_true(ticks(6) >= ticks(3) + ticks(5));
	assert_int_equal(rig_check_frames(&rig), 0);
	assert_int_equal(COUNTER(frame_errors), 0);
	rig_close(&rig);
}

/* Return values and what belongs to the caller; also through a thunk and with DF set. */
static void registers_survive(void **state)
{
	const struct rig_opts opts[] = {
		{ .slots = SLOTS, .graph = true },
		{ .slots = 128,
		  .mode = AGENT_MODE_OVERWRITE,
		  .gs_bias = 0x3000,
		  .no_migrate = true,
		  .thunk = true,
		  .graph = true },
	};
	static const int kept[] = { R_RAX, R_RDX, R_RBX, R_RBP, R_R12, R_R13, R_R14, R_R15 };
	u64 in[R_COUNT], out[R_COUNT];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(opts); i++) {
		rig_open(&rig, &opts[i]);
		for (u32 round = 0; round < 3; round++) {
			for (int r = 0; r < R_FLAGS; r++)
				in[r] = 0xf00d000000000000ull + (u64)(r + 1) * 0x10203040506 +
					round;
			in[R_FLAGS] = 2 | FLAG_IF | (round & 1 ? FLAG_DF : 0);
			rig.percpu[0].preempt_count = round < 2 ? RIG_PREEMPT_IDLE : 0x00110301;
			rig_call_regs(&rig, round, in, out);
			for (size_t k = 0; k < ARRAY_SIZE(kept); k++)
				assert_int_equal(in[kept[k]], out[kept[k]]);
			assert_int_equal(in[R_FLAGS] & FLAG_DF, out[R_FLAGS] & FLAG_DF);
			assert_int_equal(out[R_RSP], 0);
		}
		assert_int_equal(rig_check_frames(&rig), 0);
		rig_close(&rig);
	}
}

/* OUTER jumps to INNER, which jumps to LEAF: all return to OUTER's caller, who is everybody's. */
static void tail_calls(void **state)
{
	u64 in[R_COUNT] = { 0 }, out[R_COUNT];

	(void)state;
	open_rig(0, SLOTS);
	rig_tail(&rig, OUTER, INNER);
	rig_tail(&rig, INNER, LEAF);
	in[R_FLAGS] = 2;
	rig_call_regs(&rig, OUTER, in, out);
	assert_int_equal(out[R_RSP], 0);
	look(0);
	assert_int_equal(seen.n, 6);
	assert_pair(0, 5, OUTER);
	assert_pair(1, 4, INNER);
	assert_pair(2, 3, LEAF);
	for (u32 i = 0; i < 3; i++)
		assert_int_equal((s64)seen.w1[i] >> 32, (s64)rig_regs_parent());
	assert_int_equal(rig_check_frames(&rig), 0);
	assert_int_equal(COUNTER(frame_errors), 0);
	rig_close(&rig);
}

static u32 depth;

static void recurse(void)
{
	if (depth--)
		rig_call(&rig, OUTER);
}

/* More calls at once than there are frames: the rest is told as plain calls, nothing is lost. */
static void deeper_than_frames(void **state)
{
	(void)state;
	open_rig(64, SLOTS);
	rig_body(&rig, OUTER, recurse);
	for (u32 round = 0; round < 3; round++) {
		depth = 99;
		rig_call(&rig, OUTER);
	}
	look(0);
	assert_int_equal(seen.entries, 3 * 64);
	assert_int_equal(seen.returns, 3 * 64);
	assert_int_equal(seen.functions, 3 * 36);
	assert_int_equal(COUNTER(lost_frames), 3 * 36);
	assert_int_equal(COUNTER(lost), 0);
	assert_int_equal(rig_check_frames(&rig), 0);
	rig_close(&rig);
}

static void ring_full(void **state)
{
	(void)state;
	open_rig(0, 64);
	rig_body(&rig, OUTER, recurse);
	depth = 39; /* a COMM pair, 40 entries: 22 returns fit */
	rig_call(&rig, OUTER);
	rig_call(&rig, LEAF); /* entry refused: no frame is kept for it */
	look(0);
	assert_int_equal(seen.entries, 40);
	assert_int_equal(seen.returns, 22);
	assert_int_equal(COUNTER(lost_returns), 18);
	assert_int_equal(COUNTER(lost), 19);
	assert_int_equal(rig_check_frames(&rig), 0);
	rig_close(&rig);
}

/* Switched off in between: the way back works on, quietly. */
static void switch_off(void)
{
	rig.hdr->enabled = 0;
	rig_call(&rig, LEAF);
}

static void off_inside(void **state)
{
	(void)state;
	open_rig(0, SLOTS);
	rig_body(&rig, OUTER, switch_off);
	rig_call(&rig, OUTER);
	look(0);
	assert_int_equal(seen.entries, 1);
	assert_int_equal(seen.returns, 0);
	assert_int_equal(rig_check_frames(&rig), 0);
	rig_close(&rig);
}

static jmp_buf away;

static void never_return(void)
{
	longjmp(away, 1);
}

/* What the host does with a frame whose function will never return. */
static void reclaim(u32 frame)
{
	u32 *ring = (u32 *)(rig.data + rig.hdr->reclaim_off);

	rig.frames[frame].slot = 0;
	ring[rig.hdr->reclaim_tail++ & (rig.hdr->nr_frames - 1)] = frame + 1;
}

static void never_returned(void **state)
{
	(void)state;
	open_rig(64, SLOTS);
	rig_body(&rig, OUTER, never_return);
	for (u32 f = 0; f < rig.hdr->nr_frames; f++)
		rig.frames[f].state = AGENT_FRAME_TASK | AGENT_FRAME_QUIET;
	for (u32 round = 1; round <= 200; round++) {
		if (setjmp(away) == 0)
			rig_call(&rig, OUTER);
		assert_int_equal(rig_check_frames(&rig), 1);
		for (u32 f = 0; f < rig.hdr->nr_frames; f++) {
			if (!rig.frames[f].slot)
				continue;
			assert_true(rig.frames[f].owner == (u64)(uintptr_t)&rig.task[0]);
			assert_int_equal(rig.frames[f].start_time, 1000);
			assert_int_equal(rig.frames[f].pid, 100);
			assert_int_equal(rig.frames[f].state, 0); /* whatever it was */
			reclaim(f);
		}
	}
	assert_int_equal(rig_check_frames(&rig), 0);
	assert_int_equal(COUNTER(lost_frames), 0);
	rig_close(&rig);
}

/* This CPU's list is empty: reclaimed frames first, then the other CPUs'. */
static void frames_come_from_anywhere(void **state)
{
	(void)state;
	open_rig(64, SLOTS);
	rig.cpu[0].free_frames = 0;
	for (u32 f = 0; f < 16; f++)
		reclaim(f);
	rig_body(&rig, OUTER, recurse);
	depth = 63;
	rig_call(&rig, OUTER);
	assert_int_equal(COUNTER(lost_frames), 0);
	assert_int_equal(rig_check_frames(&rig), 0);
	assert_int_equal(rig.hdr->reclaim_head, 16);
	rig_close(&rig);
}

/* The host put the true address back: the frame stays until the host gives it back. */
static void put_back(void)
{
	for (u32 f = 0; f < rig.hdr->nr_frames; f++) {
		if (rig.frames[f].slot)
			*(u64 *)(uintptr_t)rig.frames[f].slot = rig.frames[f].ret; /* NOLINT */
	}
}

static void put_back_inside(void **state)
{
	(void)state;
	open_rig(0, SLOTS);
	rig_body(&rig, OUTER, put_back);
	rig_call(&rig, OUTER);
	look(0);
	assert_int_equal(seen.returns, 0);
	assert_int_equal(rig_check_frames(&rig), 1);
	rig_close(&rig);
}

static u64 aged;

/* As if the entry had been that long ago. */
static void age(void)
{
	for (u32 f = 0; f < rig.hdr->nr_frames; f++) {
		if (rig.frames[f].slot)
			rig.frames[f].tsc -= aged;
	}
}

static void durations_are_coded(void **state)
{
	(void)state;
	assert_int_equal(agent_duration(0), 0);
	assert_int_equal(agent_duration(0x7ffffff), 0x7ffffff);
	assert_int_equal(agent_duration(1u << 27 | 0x4000000), 0x8000000);
	assert_true(agent_duration(31u << 27 | 0x7ffffff) == 0x7ffffffull << 31);
	open_rig(0, SLOTS);
	rig_body(&rig, OUTER, age);
	for (aged = 1 << 20; aged < __builtin_ia32_rdtsc() / 2; aged = aged * 3 + 1) {
		rig.cpu[0].tail = rig.cpu[0].head;
		rig_call(&rig, OUTER);
		look(0);
		/* the call itself took a little, rounding may take away 2^-26 */
		assert_true(ticks(1) >= aged - (aged >> 26));
		assert_true(ticks(1) < aged + (1 << 24));
	}
	rig_close(&rig);
}

/* Interleavings */

static u32 injected;

static void inject_irq(struct rig *r, void *arg)
{
	u32 was = r->percpu[0].preempt_count;

	(void)arg;
	r->percpu[0].preempt_count += 0x10000;
	rig_call(r, OUTER + 10);
	r->percpu[0].preempt_count = was;
	injected++;
}

static void inject_preempt(struct rig *r, void *arg)
{
	(void)arg;
	for (u32 task = 1; task < 4; task++) {
		rig_run(r, 0, task);
		rig_call(r, OUTER + 10);
	}
	rig_run(r, 0, 0);
	injected++;
}

static void inject_migrate(struct rig *r, void *arg)
{
	inject_preempt(r, arg);
	rig_run(r, 1, 0);
	rig_on(r, 1);
	rig_call(r, OUTER + 10);
}

/* A call that does not come back before the interrupted one is done: its frame stays taken. */
static void inject_stuck(struct rig *r, void *arg)
{
	rig_run(r, 0, 2);
	if (setjmp(away) == 0)
		rig_call(r, OUTER + 20);
	rig_run(r, 0, 0);
	(void)arg;
	injected++;
}

static void inject_drain(struct rig *r, void *arg)
{
	(void)arg;
	for (u32 i = 0; i < 50; i++)
		rig_call(r, OUTER + 10);
	for (u32 cpu = 0; cpu < RIG_CPUS; cpu++)
		r->cpu[cpu].tail = r->cpu[cpu].head;
	injected++;
}

static void open_bodies(u32 frames, u32 slots, bool named)
{
	open_rig(frames, slots);
	rig_body(&rig, OUTER + 10, call_leaf_twice);
	rig_body(&rig, OUTER + 20, never_return);
	rig_tail(&rig, OUTER, INNER);
	if (named)
		rig_call(&rig, LEAF);
	injected = 0;
}

static void every_instruction(void (*inject)(struct rig *r, void *arg), u32 slots, u32 frames,
			      u32 stuck, bool named)
{
	static u32 path[RIG_PATH_MAX];
	u32 n;

	open_bodies(frames, slots, named);
	n = rig_path(&rig, OUTER, path);
	rig_close(&rig);
	assert_in_range(n, 120, STEPS_MAX);
	for (u32 i = 0; i < n; i++) {
		u64 entries = 0, returns = 0;

		open_bodies(frames, slots, named);
		rig_break(&rig, OUTER, path[i], inject, NULL);
		assert_true(injected > 0);
		assert_int_equal(rig_check_frames(&rig), stuck * injected);
		assert_int_equal(COUNTER(frame_errors), 0);
		assert_int_equal(COUNTER(orphans), 0);
		for (u32 cpu = 0; cpu < RIG_CPUS; cpu++) {
			look(cpu);
			entries += seen.entries;
			returns += seen.returns;
		}
		if (slots == SLOTS && inject != inject_drain)
			assert_int_equal(entries,
					 returns + COUNTER(lost_returns) + stuck * injected);
		rig_close(&rig);
	}
}

static void interrupted(void **state)
{
	(void)state;
	every_instruction(inject_irq, SLOTS, 0, 0, true);
	every_instruction(inject_irq, SLOTS, 0, 0, false);
	every_instruction(inject_stuck, SLOTS, 0, 1, true);
	every_instruction(inject_drain, 64, 0, 0, true);
}

static void preempted(void **state)
{
	(void)state;
	every_instruction(inject_preempt, SLOTS, 0, 0, true);
	every_instruction(inject_migrate, SLOTS, 0, 0, true);
}

/* With as many frames as one CPU has: lists run empty, frames wander. */
static void preempted_with_few_frames(void **state)
{
	(void)state;
	every_instruction(inject_migrate, SLOTS, 64, 0, false);
	every_instruction(inject_stuck, SLOTS, 64, 1, false);
}

/* Threads */

#define WRITERS 3
#define CALLS   200000u
static atomic_int running;
static _Thread_local u32 my_depth;

static void recurse_mine(void)
{
	if (my_depth--)
		rig_call(&rig, OUTER);
}

static void *writer(void *arg)
{
	u32 n = *(const u32 *)arg;

	rig_on(&rig, n % 2); /* two share a CPU, which no guest does */
	atomic_fetch_add(&running, 1);
	while (atomic_load(&running) < WRITERS)
		;
	for (u32 i = 0; i < CALLS / 8; i++) {
		my_depth = 7;
		rig_call(&rig, OUTER);
	}
	return NULL;
}

static void threads(void **state)
{
	static u32 numbers[WRITERS] = { 0, 1, 2 };
	pthread_t t[WRITERS];
	struct rig_opts o = {
		.slots = 1024, .frames = 64, .mode = AGENT_MODE_OVERWRITE, .graph = true
	};

	(void)state;
	atomic_store(&running, 0);
	rig_open(&rig, &o);
	rig_body(&rig, OUTER, recurse_mine);
	for (u32 i = 0; i < WRITERS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, writer, &numbers[i]), 0);
	for (u32 i = 0; i < WRITERS; i++)
		pthread_join(t[i], NULL);
	for (u32 f = 0; f < rig.hdr->nr_frames; f++) {
		if (rig.frames[f].slot == AGENT_ORPHAN)
			reclaim(f);
	}
	assert_int_equal(rig_check_frames(&rig), 0);
	assert_int_equal(COUNTER(frame_errors), 0);
	assert_true(COUNTER(head) > WRITERS * CALLS);
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nested),
		cmocka_unit_test(registers_survive),
		cmocka_unit_test(tail_calls),
		cmocka_unit_test(deeper_than_frames),
		cmocka_unit_test(ring_full),
		cmocka_unit_test(off_inside),
		cmocka_unit_test(never_returned),
		cmocka_unit_test(frames_come_from_anywhere),
		cmocka_unit_test(put_back_inside),
		cmocka_unit_test(durations_are_coded),
		cmocka_unit_test(interrupted),
		cmocka_unit_test(preempted),
		cmocka_unit_test(preempted_with_few_frames),
		cmocka_unit_test(threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
