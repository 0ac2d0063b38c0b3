// SPDX-License-Identifier: Apache-2.0
/* The agent, natively: what a record says, what is kept, what is lost and counted. */
#include "tests/unit/test_agent_lib.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SLOTS 64

static struct rig rig;

static void open_rig(u32 mode)
{
	struct rig_opts o = { .slots = SLOTS, .mode = mode };

	rig_open(&rig, &o);
}

/* Slot @index of CPU @cpu must hold a valid record. */
static struct ring_record record(u32 cpu, u64 index)
{
	struct ring_record rec = { 0 };

	assert_true(rig_decode(rig_ring(&rig, cpu, index % rig.hdr->ring_slots), index,
			       rig.hdr->ring_slots, &rec));
	return rec;
}

static void assert_comm(u32 cpu, u64 index, const struct fake_task *t)
{
	static const u8 types[] = { AGENT_REC_COMM_A, AGENT_REC_COMM_B };

	for (unsigned int half = 0; half < 2; half++) {
		const u64 *w = rig_ring(&rig, cpu, (index + half) % SLOTS);
		struct ring_record rec = record(cpu, index + half);

		assert_int_equal(rec.type, types[half]);
		assert_int_equal(rec.pid, t->pid);
		assert_int_equal(rec.tsc, t->tgid);
		assert_int_equal(rec.ctx, 0);
		assert_memory_equal(&w[1], t->comm + (size_t)half * 8, 8);
	}
}

static void assert_function(u32 cpu, u64 index, u32 site, u32 pid, u16 ctx)
{
	struct ring_record rec = record(cpu, index);

	assert_int_equal(rec.type, AGENT_REC_FUNCTION);
	assert_int_equal(rec.ip, rig_ip(&rig, site));
	assert_int_equal(rec.pid, pid);
	assert_int_equal(rec.ctx, ctx);
}

static void all_registers_survive(const struct rig_opts *o)
{
	/* fresh task (COMM path), same task, context path; DF set and clear */
	static const u32 preempt[] = { RIG_PREEMPT_IDLE, RIG_PREEMPT_IDLE, 0x00110301 };
	u64 in[R_COUNT], out[R_COUNT];

	rig_open(&rig, o);
	for (unsigned int round = 0; round < ARRAY_SIZE(preempt); round++) {
		for (int i = 0; i < R_FLAGS; i++)
			in[i] = 0xf00d000000000000ull + (u64)(i + 1) * 0x010203040506ull + round;
		in[R_FLAGS] = 2 | FLAG_IF | (round & 1 ? FLAG_DF : 0);
		rig.percpu[0].preempt_count = preempt[round];
		rig_call_regs(&rig, round, in, out);
		for (int i = 0; i < R_FLAGS; i++)
			if (i != R_R10 && i != R_R11)
				assert_int_equal(in[i], out[i]);
		assert_int_equal(in[R_FLAGS] & FLAG_DF, out[R_FLAGS] & FLAG_DF);
		assert_int_equal(out[R_RSP], 0);
		assert_int_equal(record(0, 2 + round).parent, rig_regs_parent());
		assert_int_equal(record(0, 2 + round).ip, rig_ip(&rig, round));
	}
	assert_int_equal(rig.cpu[0].head, 5);
	rig_close(&rig);
}

static void registers_survive(void **state)
{
	const struct rig_opts plain = { .slots = SLOTS };
	const struct rig_opts odd = { .slots = 128,
				      .mode = AGENT_MODE_OVERWRITE,
				      .gs_bias = 0x3000,
				      .no_migrate = true,
				      .thunk = true };

	(void)state;
	all_registers_survive(&plain);
	all_registers_survive(&odd);
}

static void record_is_exact(void **state)
{
	u64 before, after;

	(void)state;
	open_rig(AGENT_MODE_DISCARD);
	before = __builtin_ia32_rdtsc() & AGENT_TSC_MASK;
	rig_call(&rig, 0);
	rig_call(&rig, 7);
	after = __builtin_ia32_rdtsc() & AGENT_TSC_MASK;
	assert_comm(0, 0, &rig.task[0]);
	assert_function(0, 2, 0, 100, 0);
	assert_function(0, 3, 7, 100, 0);
	assert_in_range(record(0, 2).tsc, before, record(0, 3).tsc);
	assert_in_range(record(0, 3).tsc, before, after);
	rig_on(&rig, 3);
	rig_call(&rig, 9);
	assert_comm(3, 0, &rig.task[3]);
	assert_function(3, 2, 9, 103, 0);
	assert_int_equal(rig.cpu[0].head, 4);
	assert_int_equal(rig.cpu[1].head, 0);
	assert_int_equal(rig.cpu[3].head, 3);
	rig_close(&rig);
}

/* The kernel's own rules, put down a second time. Linux v6.1 tracing_gen_ctx_irq_test(). */
static u16 context(u32 preempt_count, bool irqs_off, bool migrate)
{
	u32 depth = preempt_count & 0xff;
	u16 ctx = (u16)(depth > 15 ? 15 : depth);

	if (!(preempt_count & 0x80000000))
		ctx |= AGENT_CTX_RESCHED;
	if (preempt_count & 0x00100)
		ctx |= AGENT_CTX_SOFTIRQ;
	if ((preempt_count & 0xff00) >> 9)
		ctx |= AGENT_CTX_BH_OFF;
	if (preempt_count & 0xf0000)
		ctx |= AGENT_CTX_HARDIRQ;
	if (preempt_count & 0xf00000)
		ctx |= AGENT_CTX_NMI;
	return (u16)(ctx | (irqs_off ? AGENT_CTX_IRQS_OFF : 0) | (migrate ? AGENT_CTX_MIGRATE : 0));
}

static void context_is_exact(void **state)
{
	static const u32 counts[] = {
		0x80000000, 0x00000000, 0x80000001, 0x8000000e, 0x8000000f, 0x80000010,
		0x800000ff, 0x80000100, 0x80000200, 0x80000300, 0x8000fe00, 0x8000ff00,
		0x80010000, 0x80080000, 0x800f0000, 0x80100000, 0x80110000, 0x80800000,
		0x80f00000, 0x80ffffff, 0x00ffffff, 0x00110301, 0x80010102,
	};
	struct rig_opts o = { .slots = 1024 };
	u64 index = 2;

	(void)state;
	rig_open(&rig, &o);
	for (size_t i = 0; i < ARRAY_SIZE(counts) * 4; i++) {
		bool irqs_off = i & 1, migrate = i & 2;
		u32 count = counts[i / 4];

		rig.percpu[0].preempt_count = count;
		rig.task[0].migration_disabled = migrate ? 2 : 0;
		rig_step(&rig, 5, ~0u, NULL, NULL, irqs_off);
		assert_function(0, index++, 5, 100, context(count, irqs_off, migrate));
	}
	rig_close(&rig);
}

static void kernel_without_migration_disabled(void **state)
{
	struct rig_opts o = { .slots = SLOTS, .no_migrate = true };

	(void)state;
	rig_open(&rig, &o);
	memset(&rig.task[0].migration_disabled, 0xff, 2);
	memcpy(rig.task[0].comm, "fifteen-bytes--", 16);
	rig_call(&rig, 1);
	assert_comm(0, 0, &rig.task[0]);
	assert_function(0, 2, 1, 100, 0);
	rig_close(&rig);
}

static void comm_on_switch_and_on_change(void **state)
{
	(void)state;
	open_rig(AGENT_MODE_DISCARD);
	rig_call(&rig, 0); /* 0 1 comm, 2 */
	rig_run(&rig, 0, 5);
	rig_call(&rig, 1); /* 3 4 comm, 5 */
	assert_comm(0, 3, &rig.task[5]);
	assert_function(0, 5, 1, 105, 0);
	memcpy(rig.task[5].comm, "ls", 3); /* exec */
	rig_call(&rig, 2); /* 6 7 comm, 8 */
	assert_comm(0, 6, &rig.task[5]);
	rig.task[5].comm[9] = 'x'; /* only the second half */
	rig_call(&rig, 3); /* 9 10 comm, 11 */
	assert_comm(0, 9, &rig.task[5]);
	rig.task[5].pid = 4194303; /* the task_struct is somebody else's now, under the same comm */
	rig.task[5].tgid = 4194302;
	rig_call(&rig, 4); /* 12 13 comm, 14 */
	assert_comm(0, 12, &rig.task[5]);
	assert_function(0, 14, 4, 4194303, 0);
	rig_call(&rig, 5); /* 15 */
	assert_function(0, 15, 5, 4194303, 0);
	assert_int_equal(rig.cpu[0].head, 16);
	rig_close(&rig);
}

static void task_is_named_again(void **state)
{
	struct rig_opts o = { .slots = 2 * AGENT_COMM_PERIOD, .mode = AGENT_MODE_OVERWRITE };
	u64 last = 0, pairs = 0;

	(void)state;
	rig_open(&rig, &o);
	for (u32 i = 0; i < 3 * AGENT_COMM_PERIOD; i++)
		rig_call(&rig, 0);
	for (u64 i = rig.cpu[0].head - o.slots; i < rig.cpu[0].head; i++) {
		if (record(0, i).type != AGENT_REC_COMM_A)
			continue;
		assert_true(!last || i - last <= AGENT_COMM_PERIOD + 2);
		last = i;
		pairs++;
	}
	assert_true(pairs >= 2);
	assert_true(rig.cpu[0].head - last <= AGENT_COMM_PERIOD + 2);
	rig_close(&rig);
}

static void pid_filter(void **state)
{
	(void)state;
	open_rig(AGENT_MODE_DISCARD);
	rig.hdr->n_pids = AGENT_MAX_PIDS;
	for (u32 i = 0; i < AGENT_MAX_PIDS; i++)
		rig.hdr->pids[i] = 1000 + i;
	rig_call(&rig, 0);
	assert_int_equal(rig.cpu[0].head, 0);
	for (u32 i = 0; i < AGENT_MAX_PIDS; i++) {
		rig.hdr->pids[i] = 100;
		rig_call(&rig, 1);
		rig.hdr->pids[i] = 1000 + i;
		assert_function(0, 2 + i, 1, 100, 0);
		rig.cpu[0].tail = rig.cpu[0].head;
	}
	assert_int_equal(rig.cpu[0].head, 2 + AGENT_MAX_PIDS);
	rig.hdr->n_pids = 1;
	rig.hdr->pids[1] = 100; /* beyond the list */
	rig_call(&rig, 2);
	rig.hdr->n_pids =
		AGENT_MAX_PIDS + 1; /* nonsense traces nothing, and reads nothing beyond */
	rig.hdr->lost_nocpu = 100;
	rig_call(&rig, 2);
	rig.hdr->n_pids = 0xffffffff;
	rig_call(&rig, 2);
	assert_int_equal(rig.cpu[0].head, 2 + AGENT_MAX_PIDS);
	assert_int_equal(rig.cpu[0].lost, 0);
	rig_close(&rig);
}

static void disabled_does_nothing(void **state)
{
	(void)state;
	open_rig(AGENT_MODE_OVERWRITE);
	rig.hdr->enabled = 0;
	for (u32 i = 0; i < 100; i++)
		rig_call(&rig, i);
	assert_int_equal(rig.cpu[0].head, 0);
	assert_int_equal(rig.cpu[0].last_pid, 0);
	assert_int_equal(rig_ring(&rig, 0, 0)[0], 0);
	rig_close(&rig);
}

static void cpu_without_ring_is_counted(void **state)
{
	struct rig_opts o = { .nr_cpus = 2, .slots = SLOTS };

	(void)state;
	rig_open(&rig, &o);
	rig_on(&rig, 2);
	for (u32 i = 0; i < 5; i++)
		rig_call(&rig, i);
	rig.percpu[2].cpu_number = 0xffffffff;
	rig_call(&rig, 0);
	assert_int_equal(rig.hdr->lost_nocpu, 6);
	rig_on(&rig, 1);
	rig_call(&rig, 0);
	assert_int_equal(rig.cpu[0].head, 0);
	assert_int_equal(rig.cpu[1].head, 3);
	rig_close(&rig);
}

static void full_ring_refuses_and_counts(void **state)
{
	struct ring_record before, after;

	(void)state;
	open_rig(AGENT_MODE_DISCARD);
	for (u32 i = 0; i < SLOTS - 2 + 10; i++)
		rig_call(&rig, i);
	assert_int_equal(rig.cpu[0].head, SLOTS);
	assert_int_equal(rig.cpu[0].lost, 10);
	before = record(0, 2);
	rig.cpu[0].tail = 1; /* room for one record, not for a pair */
	rig_run(&rig, 0, 1);
	rig_call(&rig, 200);
	assert_function(0, SLOTS, 200, 101, 0);
	assert_int_equal(rig.cpu[0].last_pid, 100); /* the pair did not fit and stays due */
	after = record(0, 2);
	assert_memory_equal(&before, &after, sizeof(before));
	rig_call(&rig, 201);
	assert_int_equal(rig.cpu[0].lost, 11);
	rig.cpu[0].tail = 4;
	rig_call(&rig, 202); /* the pair and the record */
	assert_comm(0, SLOTS + 1, &rig.task[1]);
	assert_function(0, SLOTS + 3, 202, 101, 0);
	assert_int_equal(rig.cpu[0].lost, 11);
	assert_int_equal(rig.cpu[0].head, SLOTS + 4);
	rig_close(&rig);
}

static void pair_fits_but_record_does_not(void **state)
{
	(void)state;
	open_rig(AGENT_MODE_DISCARD);
	for (u32 i = 0; i < SLOTS - 2 - 2; i++)
		rig_call(&rig, i);
	rig_run(&rig, 0, 1);
	rig_call(&rig, 99);
	assert_comm(0, SLOTS - 2, &rig.task[1]);
	assert_int_equal(rig.cpu[0].head, SLOTS);
	assert_int_equal(rig.cpu[0].lost, 1);
	rig.cpu[0].tail = 1;
	rig_call(&rig, 98); /* named by then */
	assert_function(0, SLOTS, 98, 101, 0);
	rig_close(&rig);
}

static void overwrite_laps(void **state)
{
	const u64 laps = 70000; /* the lap's 16 bits wrap */
	const u64 end = laps * SLOTS + 5;

	(void)state;
	open_rig(AGENT_MODE_OVERWRITE);
	rig_call(&rig, 0);
	rig.cpu[0].head = (laps - 1) * SLOTS;
	while (rig.cpu[0].head < end)
		rig_call(&rig, (u32)(rig.cpu[0].head % RIG_SITES));
	for (u64 i = end - SLOTS; i < end; i++)
		(void)record(0, i);
	assert_int_equal(rig.cpu[0].lost, 0);
	assert_int_equal(record(0, end - 1).ip, rig_ip(&rig, (u32)((end - 1) % RIG_SITES)));
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(registers_survive),
		cmocka_unit_test(record_is_exact),
		cmocka_unit_test(context_is_exact),
		cmocka_unit_test(kernel_without_migration_disabled),
		cmocka_unit_test(comm_on_switch_and_on_change),
		cmocka_unit_test(task_is_named_again),
		cmocka_unit_test(pid_filter),
		cmocka_unit_test(disabled_does_nothing),
		cmocka_unit_test(cpu_without_ring_is_counted),
		cmocka_unit_test(full_ring_refuses_and_counts),
		cmocka_unit_test(pair_fits_but_record_does_not),
		cmocka_unit_test(overwrite_laps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
