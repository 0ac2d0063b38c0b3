// SPDX-License-Identifier: Apache-2.0
/* tracers/ring.c: AGENT_REC_DATA with the record that they belong to, and without. */
#include "test_tracers_ring_fake.h"

/* A call of pid 7 at @tsc, reserved together with @n_data words; nothing is written yet. */
static u64 reserve_call(u64 n_data)
{
	u64 index = cpu->head;

	cpu->head += 1 + n_data;
	return index;
}

static void write_call(u64 index, u32 type, u64 tsc)
{
	write_record(index, tsc, 0x9000000080000000ull, low36(type, 7, 3));
}

static void write_data(u64 index, u64 tsc, u16 what, u64 word)
{
	write_record(index, tsc, word, low36(AGENT_REC_DATA, 7, what));
}

static void assert_lost(u64 torn)
{
	assert_int_equal(reader.stats.torn, torn);
	assert_int_equal(accounted(), reader.pos - reader.start);
}

static void data_goes_with_its_record(void **state)
{
	u64 at;

	(void)state;
	start(AGENT_MODE_DISCARD);
	at = reserve_call(2);
	write_call(at, AGENT_REC_GRAPH_ENTRY, 100);
	write_data(at + 1, 100, AGENT_DATA_ARG, 0xffff888000000001);
	write_data(at + 2, 100, AGENT_DATA_ARG | 1, UINT64_MAX);
	at = reserve_call(2);
	write_call(at, AGENT_REC_GRAPH_RETURN, 200);
	write_data(at + 1, 200, AGENT_DATA_RETVAL, (u64)-2);
	write_data(at + 2, 200, AGENT_DATA_DEPTH, 70000);
	at = reserve_call(1);
	write_call(at, AGENT_REC_FUNCTION, 300);
	write_data(at + 1, 300, 0x700, 5); /* of a later agent */
	write_record(cpu->head++, 400, 0xffffffffull << 32 | 9, low36(AGENT_REC_SWITCH, 8, 0));
	drain_at(0, RING_DATA);
	assert_int_equal(n, 4);
	assert_int_equal(out[0].type, RING_GRAPH_ENTRY);
	assert_int_equal(out[0].n_args, 2);
	assert_int_equal(out[0].args[0], 0xffff888000000001);
	assert_int_equal(out[0].args[1], UINT64_MAX);
	assert_false(out[0].has_retval || out[0].has_depth);
	assert_true(out[1].has_retval && out[1].has_depth);
	assert_int_equal(out[1].retval, (u64)-2);
	assert_int_equal(out[1].depth, UINT16_MAX);
	assert_int_equal(out[1].n_args, 0);
	assert_int_equal(out[2].n_args, 0);
	assert_int_equal(out[3].type, RING_SWITCH);
	assert_int_equal(out[3].pid, 8);
	assert_int_equal(out[3].prev_pid, 9);
	assert_int_equal(out[3].ip | out[3].parent, 0);
	assert_int_equal(reader.stats.data, 5);
	assert_int_equal(reader.stats.switches, 1);
	assert_lost(0);
	/* who did not ask for them */
	start(AGENT_MODE_DISCARD);
	at = reserve_call(1);
	write_call(at, AGENT_REC_GRAPH_ENTRY, 100);
	write_data(at + 1, 100, AGENT_DATA_ARG, 1);
	drain_at(0, 0);
	assert_int_equal(n, 1);
	assert_int_equal(out[0].n_args, 0);
	assert_lost(0);
}

/* A system call that no frame was free for is a FUNCTION: its number, and whose it is, are known all the same. */
static void a_call_without_a_frame(void **state)
{
	u64 at;

	(void)state;
	for (u32 is32 = 0; is32 < 2; is32++) {
		start(AGENT_MODE_DISCARD);
		at = reserve_call(3);
		write_call(at, AGENT_REC_FUNCTION, 100);
		write_data(at + 1, 100, AGENT_DATA_ARG, 5);
		write_data(at + 2, 100, (u16)(AGENT_DATA_NR | is32), 57);
		write_data(at + 3, 100, AGENT_DATA_WHO, 4711ull << 32 | 1000);
		at = reserve_call(2); /* these are of calls alone */
		write_call(at, AGENT_REC_GRAPH_RETURN, 200);
		write_data(at + 1, 200, AGENT_DATA_NR, 57);
		write_data(at + 2, 200, AGENT_DATA_WHO, 1000);
		drain_at(0, RING_DATA);
		assert_int_equal(n, 2);
		assert_int_equal(out[0].type, RING_FUNCTION);
		assert_true(out[0].n_args == 1 && out[0].nr1 == 58 && out[0].nr32 == is32);
		assert_true(out[0].has_who && out[0].who == (4711ull << 32 | 1000));
		assert_true(!out[1].has_who && !out[1].nr1);
		assert_lost(0);
	}
}

/* Reserved together, the record written last: with it all is there. */
static void a_record_comes_with_its_data(void **state)
{
	u64 at;

	(void)state;
	start(AGENT_MODE_DISCARD);
	write_functions(SLOTS - 4);
	drain_at(0, RING_DATA);
	assert_int_equal(n, SLOTS - 4);
	write_functions(2);
	at = reserve_call(2); /* across the ring's end */
	write_function(cpu->head++);
	drain_at(0, RING_DATA);
	assert_int_equal(n, 2); /* the second one is written, and nothing of its own follows */
	write_data(at + 2, 100, AGENT_DATA_ARG | 1, 2);
	drain_at(0, RING_DATA);
	assert_int_equal(n, 0);
	write_data(at + 1, 100, AGENT_DATA_ARG, 1);
	write_call(at, AGENT_REC_GRAPH_ENTRY, 100);
	drain_at(0, RING_DATA);
	assert_int_equal(n, 2);
	assert_int_equal(out[0].n_args, 2);
	assert_int_equal(out[0].args[1], 2);
	assert_delivered(1, SLOTS + 1);
	assert_lost(0);
}

static u32 reads;
static u64 late;

/* The copy took the words behind the record before those of the record itself. */
static void write_late(u64 off)
{
	if (off < RING_OFF || ++reads != 1)
		return;
	write_data(late + 1, 100, AGENT_DATA_ARG, 1);
	write_data(late + 2, 100, AGENT_DATA_ARG | 1, 2);
}

static void a_torn_copy_is_read_again(void **state)
{
	(void)state;
	for (u32 mode = AGENT_MODE_DISCARD; mode <= AGENT_MODE_OVERWRITE; mode++) {
		start(mode);
		late = reserve_call(2);
		write_call(late, AGENT_REC_GRAPH_ENTRY, 100);
		cpu->head++; /* another's, who is preempted */
		reads = 0;
		on_read = write_late;
		drain_at(0, RING_DATA);
		assert_int_equal(n, 1);
		assert_int_equal(out[0].n_args, 2);
		assert_int_equal(out[0].args[1], 2);
		assert_int_equal(reads, 2);
		assert_lost(0);
	}
}

/* Room for one at a time: nothing is lost and everything comes. */
static void data_with_little_room(void **state)
{
	(void)state;
	start(AGENT_MODE_DISCARD);
	for (u64 i = 0; i < 5; i++) {
		u64 at = reserve_call(1);

		write_call(at, AGENT_REC_GRAPH_ENTRY, i);
		write_data(at + 1, i, AGENT_DATA_ARG, 10 + i);
	}
	for (u64 i = 0; i < 5; i++) {
		assert_int_equal(ring_drain(&reader, out, 1, 0, RING_DATA, &n), 0);
		assert_int_equal(n, 1);
		assert_int_equal(out[0].tsc, i);
		assert_int_equal(out[0].n_args, 1);
		assert_int_equal(out[0].args[0], 10 + i);
	}
	assert_lost(0);
}

static void what_is_torn_counts_once(void **state)
{
	u64 at;

	(void)state;
	/* a record is missing: its DATA are nobody's, not even the record's before it */
	start(AGENT_MODE_DISCARD);
	write_call(reserve_call(0), AGENT_REC_GRAPH_ENTRY, 90);
	at = reserve_call(2);
	write_data(at + 1, 100, AGENT_DATA_ARG, 1);
	write_data(at + 2, 100, AGENT_DATA_ARG | 1, 1);
	drain_at(0, RING_DATA | RING_FINAL);
	assert_int_equal(n, 1);
	assert_int_equal(out[0].n_args, 0);
	assert_lost(1);
	/* DATA is missing, which the agent does not do: no record is lost, words before the gap are good */
	start(AGENT_MODE_DISCARD);
	at = reserve_call(3);
	write_call(at, AGENT_REC_GRAPH_ENTRY, 100);
	write_data(at + 1, 100, AGENT_DATA_ARG, 1);
	write_data(at + 3, 100, AGENT_DATA_ARG | 2, 3);
	write_function(cpu->head++);
	drain_at(0, RING_DATA | RING_FINAL);
	assert_int_equal(n, 2);
	assert_int_equal(out[0].n_args, 1);
	assert_int_equal(reader.stats.data, 2);
	assert_lost(1);
	/* another's DATA are not taken for one's own: of another task, of another time, twice */
	start(AGENT_MODE_DISCARD);
	at = reserve_call(4);
	write_call(at, AGENT_REC_GRAPH_ENTRY, 100);
	write_record(at + 1, 100, 1, low36(AGENT_REC_DATA, 8, AGENT_DATA_ARG));
	write_data(at + 2, 101, AGENT_DATA_ARG, 1);
	write_data(at + 3, 100, AGENT_DATA_RETVAL, 1);
	write_data(at + 4, 100, AGENT_DATA_ARG | 7, 1);
	drain_at(0, RING_DATA);
	assert_int_equal(n, 1);
	assert_int_equal(out[0].n_args, 0);
	assert_false(out[0].has_retval);
	assert_lost(0);
	/* a writer that never comes back holds nothing of others */
	start(AGENT_MODE_OVERWRITE);
	at = reserve_call(1);
	write_call(at, AGENT_REC_GRAPH_ENTRY, 100);
	drain_at(0, RING_DATA);
	assert_int_equal(n, 1);
	drain_at(RING_STALL_NS, RING_DATA);
	assert_int_equal(n, 0);
	assert_lost(1);
}

/* A system call's entry with a piece of its memory, as long as one can be; only with room to be had. */
static void a_piece_of_a_call(void **state)
{
	static struct ring_capture rooms[1];
	const u32 n_data = AGENT_MAX_CALL_DATA;
	u64 at, sizes = 700ull << AGENT_CAPTURE_THERE_SHIFT | AGENT_CAPTURE_MAX;

	(void)state;
	for (u32 room = 0; room < 2; room++) {
		for (u64 head = 0; head < SLOTS; head++) { /* over the ring's end, too */
			start(AGENT_MODE_DISCARD);
			write_functions(head);
			drain_at(0, RING_DATA);
			reader.fresh = rooms;
			reader.n_fresh = room;
			at = reserve_call(n_data);
			write_call(at, AGENT_REC_GRAPH_ENTRY, 100);
			for (u32 i = 0; i < AGENT_MAX_ARGS; i++)
				write_data(at + 1 + i, 100, (u16)(AGENT_DATA_ARG | i), i);
			write_data(at + 7, 100, AGENT_DATA_NR, 1);
			write_data(at + 8, 100, AGENT_DATA_WHO, 5);
			write_data(at + 9, sizes, AGENT_DATA_CAPTURE | AGENT_CAPTURE_USER, 0x77);
			for (u32 i = 0; i < AGENT_CAPTURE_WORDS; i++)
				write_data(at + 10 + i, 100, (u16)(AGENT_DATA_BYTES | i), ~(u64)i);
			drain_at(0, RING_DATA);
			assert_int_equal(n, 1);
			assert_int_equal(out[0].n_args, AGENT_MAX_ARGS);
			assert_true(out[0].has_who && out[0].nr1 == 2);
			assert_int_equal(reader.captures_dropped, !room);
			assert_int_equal(reader.stats.data, n_data);
			if (room) {
				assert_ptr_equal(out[0].capture, rooms);
				assert_true(rooms[0].key == 0x77 && rooms[0].there == 700 &&
					    rooms[0].n == AGENT_CAPTURE_MAX &&
					    rooms[0].program == AGENT_CAPTURE_USER);
				for (u32 i = 0; i < AGENT_CAPTURE_WORDS; i++)
					assert_true(rooms[0].words[i] == ~(u64)i);
			} else {
				assert_null(out[0].capture);
			}
			assert_lost(0);
		}
	}
}

static void a_piece_that_is_cut(void **state)
{
	static struct ring_capture rooms[1];
	u64 at;

	(void)state;
	/* by a slot that was not written: what is before it is told, as many bytes as there are */
	start(AGENT_MODE_DISCARD);
	reader.fresh = rooms;
	reader.n_fresh = 1;
	at = reserve_call(4);
	write_call(at, AGENT_REC_GRAPH_ENTRY, 100);
	write_data(at + 1, 20ull << AGENT_CAPTURE_THERE_SHIFT | 20, AGENT_DATA_CAPTURE | 3, 0);
	write_data(at + 2, 100, AGENT_DATA_BYTES, 1);
	write_data(at + 4, 100, AGENT_DATA_BYTES | 2, 3);
	drain_at(0, RING_DATA | RING_FINAL);
	assert_int_equal(n, 1);
	assert_true(out[0].capture && out[0].capture->n == 8 && out[0].capture->program == 3);
	assert_true(out[0].capture->cut);
	assert_lost(1);
	/* of a return, of another task, a second one: none */
	start(AGENT_MODE_DISCARD);
	reader.fresh = rooms;
	reader.n_fresh = 1;
	at = reserve_call(1);
	write_call(at, AGENT_REC_GRAPH_RETURN, 100);
	write_data(at + 1, 20, AGENT_DATA_CAPTURE, 0);
	at = reserve_call(1);
	write_call(at, AGENT_REC_GRAPH_ENTRY, 100);
	write_record(at + 1, 20, 1, low36(AGENT_REC_DATA, 8, AGENT_DATA_CAPTURE));
	drain_at(0, RING_DATA);
	assert_int_equal(n, 2);
	assert_true(!out[0].capture && !out[1].capture);
	assert_int_equal(reader.n_fresh, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(data_goes_with_its_record),
		cmocka_unit_test(a_call_without_a_frame),
		cmocka_unit_test(a_record_comes_with_its_data),
		cmocka_unit_test(a_torn_copy_is_read_again),
		cmocka_unit_test(data_with_little_room),
		cmocka_unit_test(what_is_torn_counts_once),
		cmocka_unit_test(a_piece_of_a_call),
		cmocka_unit_test(a_piece_that_is_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
