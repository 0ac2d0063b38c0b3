// SPDX-License-Identifier: Apache-2.0
/* tracers/ring.c against a ring in an array, written here word by word, and against lies. */
#include "test_tracers_ring_fake.h"

#include <errno.h>

static void records_come_in_order(void **state)
{
	u64 pending;

	(void)state;
	start(AGENT_MODE_DISCARD);
	drain_at(0, 0);
	assert_int_equal(n, 0);
	assert_int_equal(tails_written, 0);
	for (u64 lap = 0; lap < 10; lap++) {
		u64 first = cpu->head;

		write_functions(SLOTS - 3);
		assert_int_equal(ring_pending(&reader, &pending), 0);
		assert_int_equal(pending, SLOTS - 3);
		drain_at(0, 0);
		assert_int_equal(n, SLOTS - 3);
		for (size_t i = 0; i < n; i++)
			assert_delivered(i, first + i);
	}
	assert_int_equal(tails_written, 10);
	assert_int_equal(accounted(), cpu->head);
}

static void no_more_than_asked_for(void **state)
{
	(void)state;
	start(AGENT_MODE_DISCARD);
	write_functions(20);
	assert_int_equal(ring_drain(&reader, out, 7, 0, 0, &n), 0);
	assert_int_equal(n, 7);
	assert_int_equal(cpu->tail, 7);
	assert_int_equal(ring_drain(&reader, out, 0, 0, 0, &n), 0);
	assert_int_equal(n, 0);
	drain_at(0, 0);
	assert_int_equal(n, 13);
	assert_delivered(0, 7);
}

static void pairs_become_names(void **state)
{
	(void)state;
	start(AGENT_MODE_DISCARD);
	write_pair(42, "sixteen-bytes--!");
	write_functions(1);
	drain_at(0, 0);
	assert_int_equal(n, 2);
	assert_int_equal(out[0].type, RING_COMM);
	assert_int_equal(out[0].pid, 42);
	assert_int_equal(out[0].tgid, 43);
	assert_memory_equal(out[0].comm, "sixteen-bytes--!", 16);
	assert_delivered(1, 2);
	/* the two halves at the ring's ends */
	write_functions(SLOTS - 1 - 3);
	drain_at(0, 0);
	write_pair(43, "over-the-end\0\0\0\0");
	drain_at(0, 0);
	assert_int_equal(n, 1);
	assert_memory_equal(out[0].comm, "over-the-end\0\0\0\0", 16);
	/* in two drains */
	write_pair(44, "in-two-steps\0\0\0\0");
	cpu->head--;
	drain_at(0, 0);
	assert_int_equal(n, 0);
	cpu->head++;
	drain_at(0, 0);
	assert_int_equal(n, 1);
	assert_int_equal(out[0].pid, 44);
	assert_int_equal(accounted(), cpu->head);
}

static void half_a_name_is_no_name(void **state)
{
	u64 half = 0x4141414141414141;

	(void)state;
	start(AGENT_MODE_DISCARD);
	write_record(cpu->head++, 1, half, low36(AGENT_REC_COMM_B, 9, 0));
	write_record(cpu->head++, 1, half, low36(AGENT_REC_COMM_A, 9, 0));
	write_functions(1);
	write_record(cpu->head++, 1, half, low36(AGENT_REC_COMM_B, 9, 0));
	write_record(cpu->head++, 1, half, low36(AGENT_REC_COMM_A, 9, 0));
	write_record(cpu->head++, 1, half, low36(AGENT_REC_COMM_B, 8, 0));
	drain_at(0, 0);
	assert_int_equal(n, 1);
	assert_int_equal(out[0].type, RING_FUNCTION);
	assert_int_equal(reader.stats.comms, 5);
}

/* Every state a slot can be left in between reservation and the last store. */
static void discard_waits_for_a_writer(void **state)
{
	(void)state;
	for (int written = 0; written < 3; written++) {
		u64 w[3];

		start(AGENT_MODE_DISCARD);
		write_functions(SLOTS); /* old bytes everywhere */
		drain_at(0, 0);
		words(w, cpu->head, 5, 6, low36(AGENT_REC_FUNCTION, 7, 3));
		memcpy(slot(cpu->head), w, (size_t)written * 8);
		cpu->head++;
		write_functions(3);
		drain_at(1000, 0);
		assert_int_equal(n, 0);
		assert_int_equal(cpu->tail, SLOTS);
		drain_at(1000 + 5 * RING_STALL_NS, 0);
		assert_int_equal(n, 0);
		assert_int_equal(reader.stats.stalled_ns, 5 * RING_STALL_NS);
		write_function(SLOTS);
		drain_at(1000 + 6 * RING_STALL_NS, 0);
		assert_int_equal(n, 4);
		assert_delivered(0, SLOTS);
		assert_int_equal(reader.stats.stalled_ns, 0);
		assert_int_equal(accounted(), cpu->head);
		assert_int_equal(reader.stats.torn, 0);
	}
}

static void final_gives_up_at_once(void **state)
{
	(void)state;
	start(AGENT_MODE_DISCARD);
	cpu->head++;
	write_functions(3);
	drain_at(0, RING_FINAL);
	assert_int_equal(n, 3);
	assert_int_equal(reader.stats.torn, 1);
	assert_int_equal(accounted(), cpu->head);
}

static void overwrite_counts_laps_exactly(void **state)
{
	(void)state;
	start(AGENT_MODE_OVERWRITE);
	write_functions(10);
	drain_at(0, 0);
	write_functions(SLOTS); /* not lapped, just full */
	drain_at(0, 0);
	assert_int_equal(n, SLOTS);
	assert_int_equal(reader.stats.overwritten, 0);
	write_functions(3 * SLOTS + 5);
	drain_at(0, 0);
	assert_int_equal(n, SLOTS);
	assert_delivered(0, cpu->head - SLOTS);
	assert_int_equal(reader.stats.overwritten, 2 * SLOTS + 5);
	assert_int_equal(accounted(), cpu->head);
}

static void overwrite_gives_a_writer_its_time(void **state)
{
	(void)state;
	start(AGENT_MODE_OVERWRITE);
	write_functions(2);
	cpu->head += 2; /* two that do not come */
	write_functions(2);
	drain_at(1000, 0);
	assert_int_equal(n, 2);
	drain_at(1000 + RING_STALL_NS - 1, 0);
	assert_int_equal(n, 0);
	assert_int_equal(reader.stats.stalled_ns, RING_STALL_NS - 1);
	cpu->head++; /* a third, much later */
	drain_at(1000 + RING_STALL_NS, 0);
	assert_int_equal(n, 2); /* both gave up together, the late one has its own time */
	assert_delivered(0, 4);
	assert_int_equal(reader.stats.torn, 2);
	assert_int_equal(reader.pos, 6);
	write_function(6);
	drain_at(1000 + RING_STALL_NS + 5, 0);
	assert_int_equal(n, 1);
	assert_int_equal(accounted(), cpu->head);
}

static void overwrite_does_not_wait_until_lapped(void **state)
{
	(void)state;
	start(AGENT_MODE_OVERWRITE);
	cpu->head++;
	write_functions(SLOTS / 2 - 1);
	drain_at(1000, 0);
	assert_int_equal(n, 0);
	write_functions(1);
	drain_at(1001, 0);
	assert_int_equal(n, SLOTS / 2);
	assert_int_equal(reader.stats.torn, 1);
}

/* A writer of an older lap comes late and leaves its own words, one, two or all three. */
static void late_writer_is_not_delivered(void **state)
{
	(void)state;
	for (size_t from = 0; from < 3; from++) {
		u64 w[3];

		start(AGENT_MODE_OVERWRITE);
		write_functions(SLOTS + 10);
		words(w, 5, 77, 88, low36(AGENT_REC_FUNCTION, 7, 3));
		memcpy(slot(5) + from, w + from, (3 - from) * 8);
		drain_at(0, RING_FINAL);
		assert_int_equal(n, SLOTS - 1);
		for (size_t i = 0; i < n; i++)
			assert_int_not_equal(out[i].tsc, 77);
		assert_int_equal(reader.stats.torn, 1);
		assert_int_equal(reader.stats.overwritten, 10);
		assert_int_equal(accounted(), cpu->head);
	}
}

/* The guest writes a lap and a bit right after we copied the slots: what we have is still whole. */
static void lap_after_copy(u64 off)
{
	if (off < RING_OFF)
		return;
	on_read = NULL;
	write_functions(SLOTS + 3);
}

/* The guest laps us between our look at head and the copy. */
static void lap_before_copy(u64 off)
{
	if (off >= RING_OFF)
		return;
	on_read = NULL;
	write_functions(SLOTS - 4);
}

static void lapped_while_reading(void **state)
{
	(void)state;
	start(AGENT_MODE_OVERWRITE);
	write_functions(20);
	on_read = lap_after_copy;
	drain_at(0, 0);
	assert_int_equal(n, 20);
	assert_delivered(19, 19);
	assert_int_equal(reader.stats.overwritten, 0);
	drain_at(0, 0);
	assert_int_equal(n, SLOTS);
	assert_int_equal(reader.stats.overwritten, 3);
	assert_int_equal(accounted(), cpu->head);

	start(AGENT_MODE_OVERWRITE);
	write_functions(20);
	on_read = lap_before_copy;
	drain_at(0, 0);
	assert_int_equal(reader.stats.overwritten, 16);
	assert_int_equal(n, 4);
	assert_delivered(0, 16);
	drain_at(0, 0);
	assert_int_equal(n, SLOTS - 4);
	assert_int_equal(accounted(), cpu->head);
}

static void refusals_are_passed_on(void **state)
{
	(void)state;
	memset(data, 0, sizeof(data));
	start(AGENT_MODE_DISCARD);
	cpu->lost = 10;
	assert_int_equal(init(AGENT_MODE_DISCARD), 0);
	cpu->lost = 13;
	drain_at(0, 0);
	assert_int_equal(reader.stats.refused, 3);
	cpu->lost = 14;
	drain_at(0, 0);
	assert_int_equal(reader.stats.refused, 4);
}

static void next_reader_goes_on(void **state)
{
	(void)state;
	for (u32 mode = AGENT_MODE_DISCARD; mode <= AGENT_MODE_OVERWRITE; mode++) {
		start(mode);
		write_functions(30);
		assert_int_equal(ring_drain(&reader, out, 11, 0, 0, &n), 0);
		assert_int_equal(init(mode), 0); /* the daemon died and came back */
		drain_at(0, 0);
		assert_int_equal(n, 19);
		assert_delivered(0, 11);
		assert_int_equal(reader.start, 11);
	}
}

static void assert_broken(int no)
{
	u64 pending;

	assert_int_equal(ring_drain(&reader, out, ARRAY_SIZE(out), 0, 0, &n), no);
	assert_int_equal(n, 0);
	cpu->head = reader.pos; /* repenting does not help */
	cpu->lost = 0;
	io_error = 0;
	assert_int_equal(ring_drain(&reader, out, ARRAY_SIZE(out), 0, 0, &n), no);
	assert_int_equal(ring_pending(&reader, &pending), no);
}

static void lies_are_found_out(void **state)
{
	(void)state;
	for (u32 mode = AGENT_MODE_DISCARD; mode <= AGENT_MODE_OVERWRITE; mode++) {
		start(mode);
		write_functions(30);
		drain_at(0, 0);
		cpu->head = 29;
		assert_broken(-EUCLEAN);

		start(mode);
		cpu->head = 1ull << 60;
		assert_broken(-EUCLEAN);

		start(mode);
		cpu->lost = 5;
		drain_at(0, 0);
		cpu->lost = 4;
		assert_broken(-EUCLEAN);

		start(mode);
		cpu->tail = 1;
		assert_int_equal(init(mode), -EUCLEAN);

		start(mode);
		io_error = -ESRCH;
		assert_broken(-ESRCH);
	}
	start(AGENT_MODE_DISCARD);
	cpu->head = SLOTS + 1;
	assert_broken(-EUCLEAN);
}

/* A snapshot was loaded: tail, which nobody but us writes, is another. Nothing is written there. */
static void another_time_is_found_out(void **state)
{
	(void)state;
	for (u32 mode = AGENT_MODE_DISCARD; mode <= AGENT_MODE_OVERWRITE; mode++) {
		start(mode);
		write_functions(20);
		drain_at(0, 0);
		write_functions(20);
		cpu->tail = 7;
		n = 99;
		assert_int_equal(ring_drain(&reader, out, 100, 0, 0, &n), -ESTALE);
		assert_int_equal(cpu->tail, 7);
		assert_broken(-ESTALE);
		/* what would be a lie of the guest's own else */
		start(mode);
		write_functions(20);
		drain_at(0, 0);
		cpu->head = 3;
		cpu->tail = 2;
		assert_broken(-ESTALE);
		assert_int_equal(cpu->tail, 2);
	}
}

static void senseless_slots_are_torn(void **state)
{
	(void)state;
	start(AGENT_MODE_DISCARD);
	for (u32 i = 0; i < 3; i++)
		write_record(cpu->head++, 1, 2, low36(0, 9, (u16)i));
	/* five laps ahead, which head denies */
	words(slot(cpu->head), cpu->head + 5 * SLOTS, 1, 2, low36(AGENT_REC_FUNCTION, 9, 0));
	cpu->head++;
	write_functions(1);
	drain_at(0, 0);
	assert_int_equal(reader.stats.torn, 4);
	assert_int_equal(n, 1);
	assert_delivered(0, 4);
}

static void calls_and_returns(void **state)
{
	static const struct {
		u32 coded;
		u64 ticks;
	} cases[] = {
		{ 0, 0 },
		{ 1, 1 },
		{ (1u << 27) - 1, (1u << 27) - 1 },
		{ 1u << 27 | 1u << 26, 1ull << 27 },
		{ 5u << 27 | ((1u << 27) - 1), ((1ull << 27) - 1) << 5 },
		{ ~0u, ((1ull << 27) - 1) << 31 },
	};

	(void)state;
	start(AGENT_MODE_DISCARD);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		write_record(cpu->head++, 10 * i, 0x9000000080000001,
			     low36(AGENT_REC_GRAPH_ENTRY, 7, 3));
		write_record(cpu->head++, 10 * i + 5, (u64)cases[i].coded << 32 | 0x80000001,
			     low36(AGENT_REC_GRAPH_RETURN, 7, 2));
	}
	write_functions(1);
	drain_at(0, 0);
	assert_int_equal(n, 2 * ARRAY_SIZE(cases) + 1);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct ring_record *e = &out[2 * i], *r = e + 1;

		assert_int_equal(e->type, RING_GRAPH_ENTRY);
		assert_int_equal(e->tsc, 10 * i);
		assert_int_equal(e->parent, 0xffffffff90000000);
		assert_int_equal(e->ticks, 0);
		assert_int_equal(r->type, RING_GRAPH_RETURN);
		assert_int_equal(r->tsc, 10 * i + 5);
		assert_int_equal(r->ip, e->ip);
		assert_int_equal(r->parent, 0);
		assert_int_equal(r->ticks, cases[i].ticks);
		assert_int_equal(r->pid, 7);
		assert_int_equal(r->ctx, 2);
	}
	assert_int_equal(reader.stats.entries, ARRAY_SIZE(cases));
	assert_int_equal(reader.stats.returns, ARRAY_SIZE(cases));
	assert_int_equal(reader.stats.functions, 1);
	assert_int_equal(accounted(), cpu->head);
}

static void bad_headers(void **state)
{
	struct ring_io io = { io_read, io_write, data };
	const struct agent_header good = { .nr_cpus = 1,
					   .ring_slots = SLOTS,
					   .ring_off = RING_OFF };
	struct agent_header h = good;

	(void)state;
	start(AGENT_MODE_DISCARD);
	assert_int_equal(ring_reader_init(&reader, &io, &h, 0), 0);
	assert_int_equal(ring_reader_init(&reader, &io, &h, 1), -EINVAL);
	h.ring_slots = 0;
	assert_int_equal(ring_reader_init(&reader, &io, &h, 0), -EINVAL);
	h.ring_slots = 96;
	assert_int_equal(ring_reader_init(&reader, &io, &h, 0), -EINVAL);
	h.ring_slots = AGENT_MAX_SLOTS * 2u;
	assert_int_equal(ring_reader_init(&reader, &io, &h, 0), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(records_come_in_order),
		cmocka_unit_test(no_more_than_asked_for),
		cmocka_unit_test(pairs_become_names),
		cmocka_unit_test(half_a_name_is_no_name),
		cmocka_unit_test(discard_waits_for_a_writer),
		cmocka_unit_test(final_gives_up_at_once),
		cmocka_unit_test(overwrite_counts_laps_exactly),
		cmocka_unit_test(overwrite_gives_a_writer_its_time),
		cmocka_unit_test(overwrite_does_not_wait_until_lapped),
		cmocka_unit_test(late_writer_is_not_delivered),
		cmocka_unit_test(lapped_while_reading),
		cmocka_unit_test(refusals_are_passed_on),
		cmocka_unit_test(next_reader_goes_on),
		cmocka_unit_test(lies_are_found_out),
		cmocka_unit_test(another_time_is_found_out),
		cmocka_unit_test(senseless_slots_are_torn),
		cmocka_unit_test(calls_and_returns),
		cmocka_unit_test(bad_headers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
