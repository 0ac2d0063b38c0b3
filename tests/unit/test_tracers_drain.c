// SPDX-License-Identifier: Apache-2.0
/* tracers/drain.c under function_graph: order, depth, calls that never return, books. */
#include "tracers/drain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define CPUS     2
#define SLOTS    256
#define RING_OFF 8192
#define DEEP     32768 /* more than one round takes */
#define BYTES    (RING_OFF + CPUS * DEEP * AGENT_RECORD_BYTES)
#define TEXT     0xffffffff81000000
#define LOW36    0xfffffffffull

static u64 data[BYTES / 8];
static struct trace_record got[512];
static size_t n_got;
static struct drain *d;
static u32 slots;

static struct agent_cpu *cpu_at(u32 cpu)
{
	return (struct agent_cpu *)&data[AGENT_CPU_OFF / 8] + cpu;
}

static int io_read(void *arg, u64 off, void *buf, size_t len)
{
	(void)arg;
	memcpy(buf, (u8 *)data + off, len);
	return 0;
}

static int io_write(void *arg, u64 off, const void *buf, size_t len)
{
	(void)arg;
	memcpy((u8 *)data + off, buf, len);
	return 0;
}

static u64 clock(void *arg, u32 cpu, u64 tsc48)
{
	(void)arg;
	(void)cpu;
	return tsc48 * 10;
}

static u64 duration(void *arg, u64 ticks)
{
	(void)arg;
	return ticks * 10;
}

static void take(void *arg, const struct trace_record *r)
{
	(void)arg;
	assert_in_range(n_got, 0, ARRAY_SIZE(got) - 1);
	got[n_got++] = *r;
}

static struct drain_opts options(void)
{
	return (struct drain_opts){ .io = { io_read, io_write, NULL },
				    .graph = true,
				    .header = { .nr_cpus = CPUS,
						.ring_slots = SLOTS,
						.ring_off = RING_OFF,
						.nr_frames = 64 },
				    .clock = clock,
				    .duration = duration,
				    .record = take };
}

static int begin(const struct drain_opts *o)
{
	memset(data, 0, sizeof(data));
	n_got = 0;
	slots = o->header.ring_slots;
	return drain_create(o, &d, NULL);
}

static int setup(void **state)
{
	struct drain_opts o = options();

	(void)state;
	return begin(&o);
}

static int teardown(void **state)
{
	(void)state;
	drain_destroy(d);
	return 0;
}

static void put(u32 cpu, u64 w0, u64 w1, u32 type, u32 pid)
{
	u64 index = cpu_at(cpu)->head++;
	u64 low = (u64)(type >> 8) << AGENT_CTX_SHIFT | (u64)(type & 7) << AGENT_TYPE_SHIFT | pid;
	u64 *w = &data[RING_OFF / 8 + (cpu * slots + index % slots) * 3];

	w[0] = (index / slots + 1) << 48 | w0;
	w[1] = w1;
	w[2] = (w[0] ^ (w1 << 23 | w1 >> 41) ^ low) * AGENT_CHECK_MUL;
	w[2] = (w[2] & ~LOW36) | low;
}

static void entry(u32 cpu, u32 pid, u32 f, u64 tsc)
{
	put(cpu, tsc, 0x8200000081000000 + f, AGENT_REC_GRAPH_ENTRY, pid);
}

static void ret(u32 cpu, u32 pid, u32 f, u64 tsc, u64 ticks)
{
	put(cpu, tsc, ticks << 32 | (0x81000000 + f), AGENT_REC_GRAPH_RETURN, pid);
}

static void word(u32 cpu, u32 pid, u64 tsc, u32 what, u64 value)
{
	put(cpu, tsc, value, what << 8 | AGENT_REC_DATA, pid);
}

/* @cpu turns from @prev to @next */
static void turn(u32 cpu, u32 prev, u32 next, u64 tsc)
{
	put(cpu, tsc, prev, AGENT_REC_SWITCH, next);
}

static void name(u32 cpu, u32 pid, const char comm[16])
{
	u64 half[2];

	memcpy(half, comm, 16);
	put(cpu, pid, half[0], AGENT_REC_COMM_A, pid);
	put(cpu, pid, half[1], AGENT_REC_COMM_B, pid);
}

static void rounds(int n)
{
	bool more;
	size_t taken;

	while (n--)
		assert_int_equal(drain_round(d, 1, &taken, &more, NULL), 0);
}

static void is(size_t i, u8 type, u32 f, u64 tsc, u16 depth)
{
	assert_in_range(i, 0, n_got - 1);
	assert_int_equal(got[i].type, type);
	assert_int_equal(got[i].ip, TEXT + f);
	assert_int_equal(got[i].ts_ns, tsc * 10);
	assert_int_equal(got[i].depth, depth);
}

/* A task that goes to another CPU in the middle, and an interrupt that is written too early. */
static void order_and_depth(void **state)
{
	(void)state;
	name(0, 7, "task\0\0\0\0\0\0\0\0\0\0\0\0");
	entry(0, 7, 1, 100);
	entry(0, 7, 9, 120); /* the interrupt */
	ret(0, 7, 9, 130, 10);
	entry(0, 7, 2, 110); /* its TSC was read before */
	ret(1, 7, 2, 200, 90);
	entry(1, 7, 3, 210);
	ret(0, 7, 3, 300, 90);
	ret(0, 7, 1, 310, 210);
	rounds(3);
	assert_int_equal(n_got, 8);
	is(0, TRACE_GRAPH_ENTRY, 1, 100, 0);
	is(1, TRACE_GRAPH_ENTRY, 9, 120, 1);
	is(2, TRACE_GRAPH_RETURN, 9, 130, 1);
	is(3, TRACE_GRAPH_ENTRY, 2, 110, 1);
	is(4, TRACE_GRAPH_RETURN, 2, 200, 1);
	is(5, TRACE_GRAPH_ENTRY, 3, 210, 1);
	is(6, TRACE_GRAPH_RETURN, 3, 300, 1);
	is(7, TRACE_GRAPH_RETURN, 1, 310, 0);
	assert_int_equal(got[0].parent, 0xffffffff82000000);
	assert_int_equal(got[7].parent, 0);
	assert_int_equal(got[7].duration_ns, 2100);
	assert_int_equal(got[6].cpu, 0);
	for (size_t i = 0; i < n_got; i++) {
		assert_int_equal(got[i].pid, 7);
		assert_string_equal(got[i].comm, "task");
	}
}

static void never_comes_after_its_entry(void **state)
{
	struct drain_counts c;

	(void)state;
	rounds(5);
	name(1, 9, "gone\0\0\0\0\0\0\0\0\0\0\0\0");
	entry(1, 9, 4, 100);
	/* the host looks at the frames before it looks at the ring */
	assert_int_equal(drain_never(d, 9, TEXT + 4, TEXT + 0x77, 100), 0);
	assert_int_equal(drain_never(d, 9, TEXT + 5, TEXT + 0x77, 50), 0); /* not known */
	entry(0, 8, 1, 150);
	rounds(3);
	assert_int_equal(n_got, 4);
	is(0, TRACE_GRAPH_ENTRY, 4, 100, 0);
	is(1, TRACE_GRAPH_ENTRY, 1, 150, 0);
	is(2, TRACE_GRAPH_NEVER, 4, 150, 0);
	assert_int_equal(got[2].cpu, 1);
	assert_int_equal(got[2].pid, 9);
	assert_int_equal(got[2].parent, TEXT + 0x77);
	assert_string_equal(got[2].comm, "gone");
	assert_int_equal(got[3].type, TRACE_GRAPH_NEVER);
	assert_int_equal(got[3].cpu, 0);
	/* at the end nothing is held back */
	assert_int_equal(drain_never(d, 8, TEXT + 1, 0, 150), 0);
	assert_int_equal(drain_finish(d, 0, NULL), 0);
	assert_int_equal(n_got, 5);
	drain_counts(d, &c);
	assert_int_equal(c.entries, 2);
	assert_int_equal(c.returns, 0);
	assert_int_equal(c.never, 3);
}

/* The ring was full: the return that closes the outermost call is gone. */
static void losses_do_not_pile_up(void **state)
{
	(void)state;
	for (u64 t = 100; t < 10000; t += 100) {
		entry(0, 7, 1, t);
		cpu_at(0)->lost++;
		rounds(2);
	}
	for (size_t i = 0; i < n_got; i++)
		is(i, TRACE_GRAPH_ENTRY, 1, 100 + 100 * i, 0);
	assert_int_equal(n_got, 99);
}

static void values(void **state)
{
	struct drain_opts o = options();

	(void)state;
	o.data = true;
	begin(&o);
	entry(0, 7, 1, 100);
	word(0, 7, 100, AGENT_DATA_ARG, 11);
	word(0, 7, 100, AGENT_DATA_ARG | 1, 22);
	ret(0, 7, 1, 200, 100);
	word(0, 7, 200, AGENT_DATA_RETVAL, (u64)-5);
	rounds(3);
	assert_int_equal(n_got, 2);
	assert_int_equal(got[0].n_args, 2);
	assert_int_equal(got[0].args[0], 11);
	assert_int_equal(got[0].args[1], 22);
	assert_false(got[0].has_retval);
	assert_true(got[1].has_retval);
	assert_int_equal(got[1].retval, (u64)-5);
	assert_int_equal(got[1].n_args, 0);
	drain_destroy(d);
}

/* 13 hours at 3 GHz: the upper half of what 48 bits can say. */
static void the_first_round_has_any_time(void **state)
{
	const u64 t = 0x900000000000;
	struct drain_opts o = options();

	(void)state;
	o.no_sleep = true;
	begin(&o);
	cpu_at(0)->lost++;
	rounds(1);
	entry(1, 7, 1, t + 200);
	rounds(1);
	assert_int_equal(n_got, 0);
	entry(0, 7, 2, t + 100); /* its CPU was read before it */
	rounds(2);
	assert_int_equal(n_got, 2);
	is(0, TRACE_GRAPH_ENTRY, 2, t + 100, 0);
	is(1, TRACE_GRAPH_ENTRY, 1, t + 200, 1);
	turn(0, 7, 8, t + 300);
	turn(0, 8, 7, t + 350);
	ret(0, 7, 1, t + 400, 200);
	cpu_at(1)->lost++; /* not of that time, but who knows */
	rounds(3);
	assert_int_equal(got[2].duration_ns, 2000);
	turn(0, 7, 8, t + 500);
	turn(0, 8, 7, t + 550);
	ret(0, 7, 2, t + 600, 500);
	rounds(3);
	assert_int_equal(got[3].duration_ns, 4500);
	drain_destroy(d);
}

/* A task leaves a CPU whose ring takes rounds to read: what it does elsewhere is not told before. */
static void a_long_ring_keeps_its_place(void **state)
{
	struct drain_opts o = options();
	size_t taken;
	bool more;

	(void)state;
	o.header.ring_slots = DEEP;
	begin(&o);
	for (u64 t = 11; cpu_at(0)->head < DEEP - 1; t++)
		turn(0, 3, 3, t);
	entry(0, 7, 1, 50000);
	ret(1, 7, 1, 60000, 10000);
	for (int i = 0; i < 8 && n_got < 2; i++) {
		assert_int_equal(drain_round(d, 1, &taken, &more, NULL), 0);
		assert_true(more || cpu_at(0)->tail == DEEP);
	}
	assert_int_equal(n_got, 2);
	is(0, TRACE_GRAPH_ENTRY, 1, 50000, 0);
	is(1, TRACE_GRAPH_RETURN, 1, 60000, 0);
	drain_destroy(d);
	/* times that make no sense do not stop it */
	begin(&o);
	for (u64 i = 0; i < DEEP; i++)
		turn(0, 3, 3, (i << 46) & AGENT_TSC_MASK);
	entry(1, 7, 1, 5);
	rounds(12);
	assert_int_equal(cpu_at(0)->tail, DEEP);
	assert_int_equal(n_got, 1);
	drain_destroy(d);
}

/* One writer is preempted behind its reservation: what other CPUs record meanwhile is handed on. */
static void a_preempted_writer_holds_up_its_own_ring(void **state)
{
	struct drain_opts o = options();
	struct drain_losses l;
	u64 hole, made = 0;

	(void)state;
	o.data = true;
	begin(&o);
	entry(0, 7, 1, 100);
	hole = cpu_at(0)->head++;
	for (u64 t = 200; t < 200 + 10 * 4 * SLOTS / 5; t += 10, made += 2) {
		entry(1, 8, 3, t);
		ret(1, 8, 3, t + 5, 5);
		rounds(1);
		assert_in_range(cpu_at(1)->head - cpu_at(1)->tail, 0, 2);
	}
	rounds(2);
	assert_int_equal(n_got, 1 + made);
	is(0, TRACE_GRAPH_ENTRY, 1, 100, 0);
	is(1, TRACE_GRAPH_ENTRY, 3, 200, 0);
	cpu_at(0)->head = hole;
	entry(0, 9, 4, 110);
	rounds(3);
	assert_int_equal(n_got, 2 + made);
	is(1 + made, TRACE_GRAPH_ENTRY, 4, 110, 0);
	drain_losses(d, &l);
	assert_int_equal(l.torn + l.refused, 0);
	drain_destroy(d);
}

static void switches_are_told_if_asked_for(void **state)
{
	struct drain_opts o = options();
	struct drain_counts c;

	(void)state;
	for (int asked = 0; asked < 2; asked++) {
		o.switches = asked;
		begin(&o);
		turn(1, 7, 0, 100);
		entry(1, 0, 1, 110);
		rounds(3);
		assert_int_equal(n_got, 1 + asked);
		drain_counts(d, &c);
		assert_int_equal(c.entries, 1);
		drain_destroy(d);
	}
	assert_int_equal(got[0].type, TRACE_SWITCH);
	assert_int_equal(got[0].pid, 0);
	assert_int_equal(got[0].prev_pid, 7);
	assert_int_equal(got[0].ip | got[0].parent, 0);
	assert_int_equal(got[0].ts_ns, 1000);
	assert_int_equal(got[0].cpu, 1);
}

/* As ftrace has it with sleep-time off: what a task slept is no one's time of the calls around. */
static void sleep_is_left_out(void **state)
{
	struct drain_opts o = options();

	(void)state;
	o.no_sleep = true;
	begin(&o);
	entry(0, 7, 1, 100);
	entry(0, 7, 2, 110);
	turn(0, 7, 8, 120);
	entry(0, 8, 3, 130);
	ret(0, 8, 3, 400, 270); /* it was not out */
	turn(1, 0, 7, 620); /* and comes back on another CPU */
	ret(1, 7, 2, 630, 520);
	entry(1, 7, 4, 640);
	ret(1, 7, 4, 650, 10);
	ret(1, 7, 1, 700, 600);
	rounds(3);
	assert_int_equal(n_got, 8);
	assert_int_equal(got[3].duration_ns, 2700);
	is(4, TRACE_GRAPH_RETURN, 2, 630, 1);
	assert_int_equal(got[4].duration_ns, 200);
	assert_int_equal(got[6].duration_ns, 100);
	is(7, TRACE_GRAPH_RETURN, 1, 700, 0);
	assert_int_equal(got[7].duration_ns, 1000);
	/* a switch is lost: the whole time counts */
	entry(0, 7, 1, 800);
	turn(0, 7, 8, 810);
	rounds(1);
	cpu_at(1)->lost++;
	rounds(1);
	ret(1, 7, 1, 900, 100);
	rounds(3);
	assert_int_equal(got[9].duration_ns, 1000);
	drain_destroy(d);
}

/* One round takes less than the ring has, and what was refused is newer than all of it. */
static void a_full_ring_hides_a_wakeup(void **state)
{
	struct drain_opts o = options();

	(void)state;
	o.no_sleep = true;
	o.header.nr_cpus = 1;
	o.header.ring_slots = DEEP;
	begin(&o);
	entry(0, 7, 1, 10);
	for (u64 t = 11; cpu_at(0)->head < DEEP - 1; t++)
		turn(0, 3, 3, t);
	turn(0, 7, 9, 50000); /* the last one that there is room for */
	cpu_at(0)->lost += 2; /* it was back at 50100, out again at 99900 */
	rounds(8);
	turn(0, 9, 7, 100000);
	ret(0, 7, 1, 100010, 100000);
	rounds(3);
	assert_int_equal(n_got, 2);
	assert_int_equal(got[1].duration_ns, 1000000);
	/* what comes later is known again */
	entry(0, 7, 1, 100020);
	turn(0, 7, 9, 100100);
	turn(0, 9, 7, 100200);
	ret(0, 7, 1, 100220, 200);
	rounds(3);
	assert_int_equal(got[3].duration_ns, 1000);
	drain_destroy(d);
}

static void only_long_calls(void **state)
{
	struct drain_opts o = options();
	struct drain_counts c;

	(void)state;
	o.data = o.no_sleep = true;
	o.threshold = 100;
	begin(&o);
	turn(0, 7, 8, 1050);
	turn(0, 8, 7, 1150);
	ret(0, 7, 2, 1200, 150); /* entered at 1050: 50 without its sleep */
	word(0, 7, 1200, AGENT_DATA_DEPTH, 3);
	ret(0, 7, 1, 1300, 300);
	word(0, 7, 1300, AGENT_DATA_DEPTH, 2);
	assert_int_equal(drain_never(d, 7, TEXT + 9, 0, 5), 0);
	rounds(5);
	assert_int_equal(n_got, 1);
	is(0, TRACE_GRAPH_RETURN, 1, 1300, 2);
	assert_int_equal(got[0].duration_ns, 2000);
	drain_counts(d, &c);
	assert_int_equal(c.entries, 0);
	assert_int_equal(c.returns, 1);
	assert_int_equal(c.never, 0);
	drain_destroy(d);
}

/* A record's duration is rounded down from 2^27 ticks on: what the agent let pass stays. */
static void long_thresholds_lose_nothing(void **state)
{
	const u64 threshold = (1ull << 28) + 3, shown = 1ull << 28, code = 2ull << 27 | 1ull << 26;
	struct drain_opts o = options();

	(void)state;
	assert_int_equal(agent_duration((u32)code), shown);
	o.data = o.no_sleep = true;
	o.threshold = threshold;
	begin(&o);
	ret(0, 7, 1, 2 * shown, code); /* threshold ticks, exactly */
	turn(0, 7, 8, 3 * shown);
	turn(0, 8, 7, 3 * shown + 1);
	ret(0, 7, 2, 3 * shown + 2, code); /* one of them asleep: it took too little */
	rounds(3);
	assert_int_equal(n_got, 1);
	is(0, TRACE_GRAPH_RETURN, 1, 2 * shown, 0);
	assert_int_equal(got[0].duration_ns, shown * 10);
	drain_destroy(d);
}

static void function(u32 cpu, u32 pid, u32 f, u64 tsc)
{
	put(cpu, tsc, 0x8200000081000000 + f, AGENT_REC_FUNCTION, pid);
}

/* function, function_graph and back: a record between them says so, and depths begin anew. */
static void turns(void **state)
{
	struct drain_opts o = options();

	(void)state;
	o.graph = false;
	begin(&o);
	ret(0, 7, 1, 90, 5); /* of an earlier trace */
	function(0, 7, 1, 100);
	rounds(3);
	assert_int_equal(n_got, 1);
	function(0, 7, 1, 200); /* recorded before the turn, read after it */
	drain_expect_graph(d);
	drain_turn(d, true);
	rounds(5); /* as long as it takes */
	entry(0, 7, 2, 300);
	rounds(2);
	assert_int_equal(n_got, 4);
	drain_turned(d, true);
	assert_true(drain_turning(d));
	rounds(4);
	assert_false(drain_turning(d));
	assert_int_equal(n_got, 4);
	is(1, TRACE_FUNCTION, 1, 200, 0);
	assert_int_equal(got[2].type, TRACE_TRACER);
	assert_int_equal(got[2].depth, 1);
	is(3, TRACE_GRAPH_ENTRY, 2, 300, 0);
	entry(0, 7, 3, 400);
	drain_turn(d, false);
	drain_turned(d, true);
	rounds(4);
	assert_int_equal(n_got, 6);
	is(4, TRACE_GRAPH_ENTRY, 3, 400, 1);
	assert_int_equal(got[5].type, TRACE_TRACER);
	assert_int_equal(got[5].depth, 0);
	function(0, 7, 1, 500);
	ret(0, 7, 3, 600, 200); /* it was not put back in time: still told */
	rounds(3);
	is(6, TRACE_FUNCTION, 1, 500, 0);
	is(7, TRACE_GRAPH_RETURN, 3, 600, 0);
	drain_turn(d, true);
	drain_turned(d, false); /* it could not be done */
	assert_false(drain_turning(d));
	rounds(3);
	assert_int_equal(n_got, 8);
	drain_turn(d, true);
	drain_turned(d, true);
	entry(0, 7, 4, 700);
	assert_int_equal(drain_finish(d, 0, NULL), 0);
	is(9, TRACE_GRAPH_ENTRY, 4, 700, 0);
	assert_int_equal(n_got, 10);
	drain_destroy(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(order_and_depth, setup, teardown),
		cmocka_unit_test_setup_teardown(never_comes_after_its_entry, setup, teardown),
		cmocka_unit_test_setup_teardown(losses_do_not_pile_up, setup, teardown),
		cmocka_unit_test(values),
		cmocka_unit_test(a_preempted_writer_holds_up_its_own_ring),
		cmocka_unit_test(the_first_round_has_any_time),
		cmocka_unit_test(a_long_ring_keeps_its_place),
		cmocka_unit_test(switches_are_told_if_asked_for),
		cmocka_unit_test(sleep_is_left_out),
		cmocka_unit_test(a_full_ring_hides_a_wakeup),
		cmocka_unit_test(only_long_calls),
		cmocka_unit_test(long_thresholds_lose_nothing),
		cmocka_unit_test(turns),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
