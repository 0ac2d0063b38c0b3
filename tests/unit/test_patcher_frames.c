// SPDX-License-Identifier: Apache-2.0
/* patcher/frames*.c on a made-up memory: which frames are dead, put back, given back. */
#include "patcher/frames.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEXT       0xffffffffc0000000ull
#define DATA       0xffffffffc0100000ull
#define STACK      0xffffc90000000000ull
#define STACK_LEN  0x1000u
#define TASKS      0xffff888000000000ull
#define N_TASKS    8u
#define TRUE_RET   0xffffffff81000123ull
#define RETHOOK    0xffffffff81000999ull
#define START      1000u
#define NR         64u
#define GONE       0xffffc9000dead000ull /* not mapped */
#define TRAMP(n)   (TEXT + AGENT_TEXT_BYTES + (u64)(n)*AGENT_TRAMP_BYTES)
#define CELL(i)    (STACK + 8 * (u64)(i))
#define TASK(i)    (TASKS + (i) * sizeof(struct fake_task))
#define STATE_DEAD 0x80u

struct fake_task {
	u64 start_time;
	u32 state, on_cpu;
};

struct fake {
	struct frames f;
	struct agent_header h;
	u8 *data;
	u64 stack[STACK_LEN / 8];
	struct fake_task task[N_TASKS];
	bool rebooted, gone;
	u32 n_told;
	struct tracing_unreturned told;
	void (*meanwhile)(struct fake *k); /* once, at the next read of guest memory */
	bool read_only;
};

static struct fake k;

static void *at(u64 addr, size_t len)
{
	if (addr >= STACK && addr - STACK <= sizeof(k.stack) - len)
		return (u8 *)k.stack + (addr - STACK);
	if (addr >= TASKS && addr - TASKS <= sizeof(k.task) - len)
		return (u8 *)k.task + (addr - TASKS);
	return NULL;
}

static int mem_read(void *arg, u64 addr, void *buf, size_t len)
{
	void (*meanwhile)(struct fake *) = k.meanwhile;
	const void *p = at(addr, len);

	(void)arg;
	if (k.gone)
		return -ESRCH;
	if (!p)
		return -EFAULT;
	memcpy(buf, p, len);
	k.meanwhile = NULL;
	if (meanwhile)
		meanwhile(&k);
	return 0;
}

static int mem_write(void *arg, u64 addr, const void *buf, size_t len)
{
	void *p = at(addr, len);

	(void)arg;
	if (!p)
		return -EFAULT;
	if (!k.read_only)
		memcpy(p, buf, len);
	return 0;
}

static int data_read(void *arg, u64 off, void *buf, size_t len)
{
	(void)arg;
	assert_true(off + len <= agent_data_bytes(&k.h));
	memcpy(buf, k.data + off, len);
	return k.gone ? -ESRCH : 0;
}

static int data_write(void *arg, u64 off, const void *buf, size_t len)
{
	(void)arg;
	assert_true(off + len <= agent_data_bytes(&k.h));
	memcpy(k.data + off, buf, len);
	return 0;
}

static bool is_ours(void *arg)
{
	(void)arg;
	return !k.rebooted;
}

static int setup(void **state)
{
	(void)state;
	memset(&k, 0, sizeof(k));
	k.h = (struct agent_header){ .nr_cpus = 1, .ring_slots = 64, .nr_frames = NR };
	if (agent_layout(&k.h))
		return -1;
	k.h.text = TEXT;
	k.h.data = DATA;
	k.data = calloc(1, agent_data_bytes(&k.h));
	k.f.io = (struct frames_io){ mem_read, mem_write, data_read, data_write, is_ours, &k };
	k.f.start_time = offsetof(struct fake_task, start_time);
	k.f.state = offsetof(struct fake_task, state);
	k.f.state_bytes = 4;
	k.f.on_cpu = offsetof(struct fake_task, on_cpu);
	k.f.on_cpu_bytes = 1; /* as on v7.2, with other members behind it; an int before */
	k.f.foreign[0] = RETHOOK;
	for (u32 i = 0; i < N_TASKS; i++)
		k.task[i] = (struct fake_task){ .start_time = START, .on_cpu = 0x100 };
	return k.data && !frames_init(&k.f, &k.h) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	frames_deinit(&k.f);
	free(k.data);
	return 0;
}

static struct agent_header *header(void)
{
	return (struct agent_header *)k.data;
}

static struct agent_frame *frame(u32 n)
{
	return (struct agent_frame *)(k.data + k.h.frames_off) + n;
}

static u32 ring(u64 i)
{
	return ((u32 *)(k.data + k.h.reclaim_off))[i % NR];
}

/* A call of task 0 that was followed; its cell leads to it. Entered in the order of numbers. */
static struct agent_frame *enter(u32 n, u32 cell, u64 ret)
{
	struct agent_frame *fr = frame(n);

	*fr = (struct agent_frame){ .slot = CELL(cell),
				    .ret = ret,
				    .owner = TASK(0),
				    .start_time = START,
				    .tsc = 5000 + n,
				    .ip = 0x81000100 + n,
				    .parent = 0x81000123,
				    .pid = 40 + n };
	k.stack[cell] = TRAMP(n);
	return fr;
}

static void tell(void *arg, const struct tracing_unreturned *u)
{
	(void)arg;
	k.n_told++;
	k.told = *u;
}

static void collect(u64 given_back)
{
	u64 tail = k.f.tail;

	assert_int_equal(frames_collect(&k.f, false, tell, NULL), 0);
	assert_int_equal(k.f.tail - tail, given_back);
	assert_int_equal(header()->reclaim_tail, k.f.tail);
}

static void settle(u64 given_back)
{
	u64 tail = k.f.tail;

	assert_int_equal(frames_settle(&k.f), 0);
	assert_int_equal(k.f.tail - tail, given_back);
}

static void a_dead_owner_gives_its_frames_back(void **state)
{
	(void)state;
	enter(7, 3, TRUE_RET);
	enter(9, 4, TRUE_RET);
	collect(0);
	k.task[0].state = STATE_DEAD;
	collect(2);
	assert_int_equal(frame(7)->slot | frame(9)->slot, 0);
	assert_int_equal(ring(0) + ring(1), 8 + 10);
	assert_int_equal(k.n_told, 2);
	assert_true(k.told.ip - k.told.pid == 0xffffffff81000100 - 40 && k.told.parent == TRUE_RET);
	assert_int_equal(k.told.tsc, 5000 + k.told.pid - 40);
	collect(0);
}

static void an_owner_that_may_run_keeps_them(void **state)
{
	(void)state;
	enter(7, 3, TRUE_RET);
	k.task[0] = (struct fake_task){ START, STATE_DEAD, 1 }; /* still on its way out */
	collect(0);
	k.task[0] = (struct fake_task){ START, 1, 0 };
	collect(0);
	k.task[0] = (struct fake_task){ START - 1, 0, 0 }; /* a thread's exec */
	collect(0);
	k.task[0] = (struct fake_task){ START, STATE_DEAD | 1, 0 };
	collect(0);
	frame(7)->owner = 0xffff999900000000; /* cannot be read */
	collect(0);
	frame(7)->owner = 0x7000; /* nor is this one */
	collect(0);
}

static void another_life_of_the_task_struct_is_a_death(void **state)
{
	(void)state;
	enter(7, 3, TRUE_RET);
	k.task[0] = (struct fake_task){ START + 1, 0, 1 };
	enter(8, 4, TRUE_RET)->start_time = START + 1; /* of the new one */
	collect(1);
	assert_int_equal(frame(7)->slot, 0);
	assert_true(frame(8)->slot != 0);
}

static void reuse_frame(struct fake *f)
{
	(void)f;
	enter(7, 5, TRUE_RET)->tsc = 9999;
}

static void return_frame(struct fake *f)
{
	(void)f;
	frame(7)->slot = 0;
}

static void a_frame_that_changes_meanwhile_is_left_alone(void **state)
{
	(void)state;
	enter(7, 3, TRUE_RET);
	k.task[0].state = STATE_DEAD;
	k.meanwhile = reuse_frame;
	collect(0);
	assert_true(frame(7)->slot == CELL(5));
	k.meanwhile = return_frame;
	collect(0);
	assert_int_equal(k.n_told, 0);
}

static void a_cell_that_leads_elsewhere_is_a_death(void **state)
{
	(void)state;
	enter(7, 3, TRUE_RET);
	enter(8, 3, TRUE_RET + 8);
	collect(1);
	assert_int_equal(frame(7)->slot, 0);
	assert_true(frame(8)->slot == CELL(3));
	assert_int_equal(k.told.pid, 47);
	enter(9, 3, TRUE_RET);
	k.stack[3] = TRAMP(8); /* an older one buries no newer one */
	collect(0);
}

static void tail_calls_are_alive(void **state)
{
	(void)state;
	enter(7, 3, TRUE_RET);
	enter(8, 3, TRAMP(7));
	enter(9, 3, TRAMP(8));
	collect(0);
	/* 9 is on its way out: it has put back what it found */
	k.stack[3] = TRAMP(8);
	collect(0);
	/* 7's slot is its own again, 9 is on its way in: it has not written the cell yet */
	frame(8)->slot = 0;
	enter(9, 3, TRAMP(7));
	k.stack[3] = TRAMP(7);
	collect(0);
	/* whatever the clocks say */
	frame(9)->tsc = 1;
	collect(0);
}

static void what_the_guest_itself_keeps_is_alive(void **state)
{
	(void)state;
	enter(7, 3, TRUE_RET); /* then a kretprobe took it from the cell */
	enter(8, 3, RETHOOK);
	collect(0);
	frame(8)->ret = TRAMP(9);
	enter(9, 3, RETHOOK);
	k.stack[3] = TRAMP(8);
	collect(0);
}

static void orphans_are_given_back(void **state)
{
	(void)state;
	frame(5)->slot = AGENT_ORPHAN;
	collect(1);
	assert_int_equal(ring(0), 6);
	assert_int_equal(frame(5)->slot, 0);
	assert_int_equal(k.n_told, 0); /* it did return */
}

static void what_a_live_frame_leads_to_is_alive(void **state)
{
	(void)state;
	enter(7, 3, TRUE_RET)->owner = TASK(1);
	enter(8, 3, TRAMP(7));
	k.task[1].state = STATE_DEAD;
	collect(0);
	k.task[0].state = STATE_DEAD;
	collect(2);
}

static void a_stack_that_is_gone_is_a_death(void **state)
{
	(void)state;
	enter(7, 3, TRUE_RET)->slot = GONE;
	collect(0);
	assert_int_equal(frames_collect(&k.f, true, tell, NULL), 0);
	assert_int_equal(k.n_told, 1);
	assert_int_equal(frame(7)->slot, 0);
}

static void nothing_is_written_after_a_reboot(void **state)
{
	(void)state;
	enter(7, 3, TRUE_RET);
	frame(9)->slot = AGENT_ORPHAN;
	k.task[0].state = STATE_DEAD;
	k.rebooted = true;
	assert_int_equal(frames_collect(&k.f, true, tell, NULL), -ESTALE);
	assert_true(frame(7)->slot == CELL(3));
	assert_int_equal(frame(9)->slot, AGENT_ORPHAN);
	k.rebooted = false;
	k.gone = true;
	assert_int_equal(frames_collect(&k.f, true, tell, NULL), -ESRCH);
}

static void the_ring_goes_round(void **state)
{
	(void)state;
	for (u32 i = 0; i < 3 * NR; i++) {
		frame(i % NR)->slot = AGENT_ORPHAN;
		collect(1);
		assert_int_equal(ring(i), i % NR + 1);
		header()->reclaim_head = k.f.tail;
	}
}

static void a_ring_that_makes_no_sense_is_left_alone(void **state)
{
	static const u64 heads[] = { 1, ~0ull, 1ull << 63, NR };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
		header()->reclaim_head = heads[i];
		frame(5)->slot = AGENT_ORPHAN;
		collect(0);
		assert_int_equal(frame(5)->slot, AGENT_ORPHAN);
	}
	/* the guest takes none, and makes frames up: the ring is full */
	header()->reclaim_head = 0;
	for (u32 i = 0; i < NR; i++) {
		frame(5)->slot = AGENT_ORPHAN;
		collect(1);
	}
	frame(5)->slot = AGENT_ORPHAN;
	collect(0);
}

static void put_back_writes_the_true_address(void **state)
{
	(void)state;
	enter(7, 3, TRUE_RET);
	enter(8, 4, TRUE_RET + 1);
	k.stack[4] = 0x1234; /* not there yet, or there no more */
	enter(9, 5, RETHOOK); /* the guest came first */
	enter(10, 6, TRUE_RET)->state = AGENT_FRAME_TRUE; /* for the moment, ours again soon */
	k.stack[6] = TRUE_RET;
	for (u32 i = 0; i < NR; i++)
		assert_int_equal(frames_put_back(&k.f, i), i == 7 || i == 9);
	assert_true(k.stack[3] == TRUE_RET && k.stack[4] == 0x1234 && k.stack[5] == RETHOOK);
	assert_true(k.f.n_cells == 2 && k.f.cells[1].value == RETHOOK);
	settle(2); /* not before: somebody may be on the way */
	k.stack[3]++; /* its owner goes on */
	assert_true(!frames_shorten_cells(&k.f) && k.f.n_cells == 1);
	frame(8)->pid = 0; /* an idle task's, left behind: its stack is used anew */
	assert_true(!frames_put_back(&k.f, 8) && frame(10)->slot == CELL(6));
	settle(1);
}

static void put_back_goes_through_tail_calls(void **state)
{
	struct frames_count c;

	(void)state;
	enter(7, 3, TRUE_RET);
	enter(8, 3, TRAMP(7));
	enter(9, 3, TRAMP(8));
	assert_int_equal(frames_put_back(&k.f, 7), 0);
	assert_int_equal(frames_put_back(&k.f, 8), 0);
	assert_int_equal(frames_put_back(&k.f, 9), 1);
	for (u32 i = 7; i <= 9; i++)
		assert_true(k.stack[3] == TRUE_RET && frame(i)->put_back == (u32)frame(i)->tsc);
	assert_true(!frames_count(&k.f, &c) && c.in_use == 3 && c.restored == 3);
	settle(3);
	assert_true(!frames_count(&k.f, &c) && !c.in_use);
}

static void what_cannot_be_resolved_is_not_written(void **state)
{
	static const u64 rets[] = { TRAMP(9),     TRAMP(7),  TRAMP(8),
				    TRAMP(8) + 3, TEXT + 16, TEXT + AGENT_TEXT_BYTES - 1 };
	static const u64 slots[] = { 1, 8, 0x7ffffffffff8, ~0ull, ~7ull, CELL(3) + 4, GONE };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rets); i++) {
		enter(8, 3, TRAMP(7)); /* a cycle, with the second */
		enter(7, 3, rets[i]);
		if (rets[i] == TRAMP(8))
			frame(8)->slot = CELL(4); /* of another cell */
		assert_int_equal(frames_put_back(&k.f, 7), 0);
		assert_true(k.stack[3] == TRAMP(7));
	}
	for (size_t i = 0; i < ARRAY_SIZE(slots); i++) {
		enter(7, 3, TRUE_RET)->slot = slots[i];
		assert_int_equal(frames_put_back(&k.f, 7), 0);
		assert_int_equal(frames_collect(&k.f, true, NULL, NULL), 0);
	}
}

/* Every frame leads to the next one, in one long way or in circles. */
static void long_chains_end(void **state)
{
	(void)state;
	for (u32 round = 2; round <= NR; round *= 2) {
		for (u32 i = 0; i < NR; i++)
			enter(i, 3, TRAMP((i + 1) % round));
		for (u32 i = 0; i < NR; i++) {
			k.stack[3] = TRAMP(i);
			assert_int_equal(frames_put_back(&k.f, i), 0);
			collect(0);
		}
	}
	frame(NR - 1)->ret = TRUE_RET;
	k.stack[3] = TRAMP(0);
	assert_int_equal(frames_put_back(&k.f, 0), 1);
	settle(NR);
}

static void a_write_that_does_not_take_is_said(void **state)
{
	(void)state;
	enter(7, 3, TRUE_RET);
	k.read_only = true;
	assert_int_equal(frames_put_back(&k.f, 7), -EPERM);
	settle(0);
	assert_true(frame(7)->slot == CELL(3));
}

static void settle_frees_only_what_is_still_the_same(void **state)
{
	(void)state;
	for (u32 i = 0; i < 4; i++) {
		enter(i, i, TRUE_RET);
		assert_int_equal(frames_put_back(&k.f, i), 1);
	}
	frame(1)->slot = 0; /* its own handler was faster */
	enter(2, 2, TRUE_RET)->tsc = 9999; /* used again, same cell */
	k.stack[3] = RETHOOK; /* a kretprobe was just about to take it */
	settle(1);
	assert_int_equal(ring(0), 1);
	assert_true(frame(2)->slot == CELL(2) && frame(3)->slot == CELL(3));
	k.stack[3] = TRUE_RET;
	settle(1);
	enter(5, 5, RETHOOK); /* it was there first: it knows nothing of ours */
	assert_int_equal(frames_put_back(&k.f, 5), 1);
	settle(1);
	enter(6, 6, RETHOOK); /* and came again after us: now it does */
	k.stack[6] = RETHOOK;
	assert_int_equal(frames_put_back(&k.f, 6), 0);
	settle(0);
}

/* An entry had read the cell before it was put back, and writes its own trampoline now. */
static void settle_keeps_what_an_entry_has_found(void **state)
{
	(void)state;
	enter(7, 3, TRUE_RET);
	assert_int_equal(frames_put_back(&k.f, 7), 1);
	enter(8, 3, TRAMP(7));
	settle(0);
	assert_int_equal(frames_put_back(&k.f, 8), 1);
	assert_true(k.stack[3] == TRUE_RET);
	settle(2);
}

/* As the one before, but 8 is on the way already: nothing of it is left on the stack. */
static void settle_keeps_what_a_return_will_use(void **state)
{
	(void)state;
	enter(7, 3, TRUE_RET);
	assert_int_equal(frames_put_back(&k.f, 7), 1);
	enter(8, 3, TRAMP(7));
	k.stack[3] = 0x5555;
	settle(0);
	frame(8)->slot = 0;
	settle(1);
}

static void without_a_ring_they_are_just_free(void **state)
{
	(void)state;
	k.f.discard = true;
	header()->reclaim_head = 77;
	frame(5)->slot = AGENT_ORPHAN;
	enter(7, 3, TRUE_RET);
	assert_int_equal(frames_put_back(&k.f, 7), 1);
	settle(0);
	collect(0);
	assert_true(!frame(5)->slot && !frame(7)->slot);
	assert_int_equal(header()->reclaim_tail, 0);
}

static void a_header_is_believed_when_all_of_it_fits(void **state)
{
	u64 text_bytes, data_bytes;
	struct agent_header h = k.h;

	(void)state;
	text_bytes = agent_text_bytes(&h);
	data_bytes = agent_data_bytes(&h);
	assert_true(frames_header_ok(&h, TEXT, text_bytes, DATA, data_bytes));
	assert_false(frames_header_ok(&h, TEXT + 4096, text_bytes, DATA, data_bytes));
	assert_false(frames_header_ok(&h, TEXT, text_bytes + 4096, DATA, data_bytes));
	assert_false(frames_header_ok(&h, TEXT, text_bytes, DATA - 4096, data_bytes));
	assert_false(frames_header_ok(&h, TEXT, text_bytes, DATA, data_bytes - 4096));
	for (size_t i = 0; i < 4; i++) {
		h = k.h;
		h.magic += i == 0;
		h.abi_version -= i == 1;
		h.nr_frames *= i == 2 ? 2 : 1;
		h.frames_off += i == 3 ? 64 : 0;
		assert_false(frames_header_ok(&h, TEXT, text_bytes, DATA, data_bytes));
	}
	memset(&h, 0, sizeof(h));
	assert_false(frames_header_ok(&h, 0, 0, 0, 0));
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(a_dead_owner_gives_its_frames_back),
		TEST(an_owner_that_may_run_keeps_them),
		TEST(another_life_of_the_task_struct_is_a_death),
		TEST(a_frame_that_changes_meanwhile_is_left_alone),
		TEST(a_cell_that_leads_elsewhere_is_a_death),
		TEST(tail_calls_are_alive),
		TEST(what_the_guest_itself_keeps_is_alive),
		TEST(orphans_are_given_back),
		TEST(what_a_live_frame_leads_to_is_alive),
		TEST(a_stack_that_is_gone_is_a_death),
		TEST(nothing_is_written_after_a_reboot),
		TEST(the_ring_goes_round),
		TEST(a_ring_that_makes_no_sense_is_left_alone),
		TEST(put_back_writes_the_true_address),
		TEST(put_back_goes_through_tail_calls),
		TEST(what_cannot_be_resolved_is_not_written),
		TEST(long_chains_end),
		TEST(a_write_that_does_not_take_is_said),
		TEST(settle_frees_only_what_is_still_the_same),
		TEST(settle_keeps_what_an_entry_has_found),
		TEST(settle_keeps_what_a_return_will_use),
		TEST(without_a_ring_they_are_just_free),
		TEST(a_header_is_believed_when_all_of_it_fits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
