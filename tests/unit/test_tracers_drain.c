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
#define BYTES    (RING_OFF + CPUS * SLOTS * AGENT_RECORD_BYTES)
#define TEXT     0xffffffff81000000
#define LOW36    0xfffffffffull

static u64 data[BYTES / 8];
static struct trace_record got[512];
static size_t n_got;
static struct drain *d;

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

static int setup(void **state)
{
	struct drain_opts o = { .io = { io_read, io_write, NULL },
				.graph = true,
				.header = { .nr_cpus = CPUS,
					    .ring_slots = SLOTS,
					    .ring_off = RING_OFF,
					    .nr_frames = 64 },
				.clock = clock,
				.duration = duration,
				.record = take };

	(void)state;
	memset(data, 0, sizeof(data));
	n_got = 0;
	return drain_create(&o, &d, NULL);
}

static int teardown(void **state)
{
	(void)state;
	drain_destroy(d);
	return 0;
}

static void put(u32 cpu, u64 w0, u64 w1, u32 type, u32 pid)
{
	u64 index = cpu_at(cpu)->head++, low = (u64)type << AGENT_TYPE_SHIFT | pid;
	u64 *w = &data[RING_OFF / 8 + (cpu * SLOTS + index % SLOTS) * 3];

	w[0] = (index / SLOTS + 1) << 48 | w0;
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(order_and_depth, setup, teardown),
		cmocka_unit_test_setup_teardown(never_comes_after_its_entry, setup, teardown),
		cmocka_unit_test_setup_teardown(losses_do_not_pile_up, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
