// SPDX-License-Identifier: Apache-2.0
/*
 * What the options ask of the agent, one by one, natively: arguments, return values, roots and what is
 * not to be traced, depth, threshold, interrupts, task switches; full rings, no frame, no task entry.
 * What happens between two instructions of it: test_agent_nesting.c.
 */
#include "tests/unit/test_agent_lib.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define SLOTS   1024
#define A       3
#define B       4
#define C       5
#define D       6
#define TASKS   (AGENT_OPT_FULL | AGENT_OPT_TASKS)
#define ARGS(n) ((u32)(n) << AGENT_SITE_ARGS_SHIFT)

static struct rig rig;
static struct rig_seen seen;

static void open_with(struct rig_opts o)
{
	o.slots = o.slots ? o.slots : SLOTS;
	o.full = true;
	o.sites = 64;
	o.tasks = o.tasks ? o.tasks : 64;
	rig_open(&rig, &o);
}

static void open_graph(u32 options)
{
	open_with((struct rig_opts){ .graph = true, .options = options });
}

/* Nobody is in a call any more, and nothing went wrong. */
static void close_quiet(void)
{
	u64 errors = 0;

	for (u32 cpu = 0; cpu < RIG_CPUS; cpu++)
		errors += rig.cpu[cpu].frame_errors + rig.cpu[cpu].orphans;
	assert_int_equal(errors, 0);
	assert_int_equal(rig_check_frames(&rig), 0);
	assert_int_equal(rig_words(&rig), 0);
	rig_close(&rig);
}

static void look(void)
{
	rig_look(&rig, 0, &seen);
	rig.cpu[0].tail = rig.cpu[0].head;
}

/*
 * What was recorded, as text: a letter for an entry, a small one for a return, A? for a FUNCTION, A!
 * for a SWITCH.
 */
static const char *tree(void)
{
	static char text[2 * RIG_SEEN];
	size_t at = 0;

	look();
	for (u32 i = 0; i < seen.n; i++) {
		const struct ring_record *rec = &seen.v[i].rec;
		u32 site = 0;

		while (site < RIG_SITES && rig_ip(&rig, site) != rec->ip)
			site++;
		if ((u32)rec->type == AGENT_REC_SWITCH) {
			text[at++] = '!';
			continue;
		}
		assert_in_range(site, A, A + 20);
		text[at++] = (char)(site - A + (rec->type == AGENT_REC_GRAPH_RETURN ? 'a' : 'A'));
		if (rec->type == AGENT_REC_FUNCTION)
			text[at++] = '?';
	}
	text[at] = 0;
	return text;
}

static void call_b(void)
{
	rig_call(&rig, B);
}

static void call_c(void)
{
	rig_call(&rig, C);
}

static void call_b_then_d(void)
{
	rig_call(&rig, B);
	rig_call(&rig, D);
}

/* A { B { C } D } */
static void make_tree(void)
{
	rig_body(&rig, A, call_b_then_d);
	rig_body(&rig, B, call_c);
}

static void fill_regs(u64 in[R_COUNT], u64 salt)
{
	for (u32 i = 0; i < R_FLAGS; i++)
		in[i] = 0xa000000000000000ull + salt * 0x100000 + i * 0x101;
	in[R_FLAGS] = 2 | FLAG_IF;
}

static void assert_args(const struct rig_record *rec, const u64 in[R_COUNT], u32 n)
{
	static const int reg[AGENT_MAX_ARGS] = { R_RDI, R_RSI, R_RDX, R_RCX, R_R8, R_R9 };

	assert_int_equal(rec->n_data, n);
	for (u32 i = 0; i < n; i++) {
		assert_int_equal(rec->kind[i], AGENT_DATA_ARG | i);
		assert_true(rec->data[i] == in[reg[i]]);
	}
}

/* Every number of arguments, all registers, both tracers, both ways to return, discard and overwrite. */
static void arguments(void **state)
{
	(void)state;
	for (u32 variant = 0; variant < 8; variant++) {
		bool graph = variant & 1;

		open_with((struct rig_opts){ .graph = graph,
					     .options = variant & 4 ? TASKS : AGENT_OPT_FULL,
					     .thunk = variant & 2,
					     .mode = variant & 2 ? AGENT_MODE_OVERWRITE : 0,
					     .gs_bias = variant & 4 ? 0x3000 : 0 });
		for (u32 n = 0; n <= AGENT_MAX_ARGS; n++)
			rig_site(&rig, 10 + n, ARGS(n));
		for (u32 n = 0; n <= AGENT_MAX_ARGS; n++) {
			u64 in[R_COUNT], out[R_COUNT];

			fill_regs(in, n);
			rig_call_regs(&rig, 10 + n, in, out);
			for (int i = 0; i < R_FLAGS; i++) {
				bool lost = i == R_R10 || i == R_R11 ||
					    (graph && (i == R_RCX || i == R_RSI || i == R_RDI ||
						       i == R_R8 || i == R_R9));

				assert_true(lost || in[i] == out[i]);
			}
			assert_int_equal(out[R_RSP], 0);
			look();
			assert_int_equal(seen.n, graph ? 2 : 1);
			assert_int_equal(seen.v[0].rec.type,
					 graph ? AGENT_REC_GRAPH_ENTRY : AGENT_REC_FUNCTION);
			assert_int_equal(seen.v[0].rec.ip, rig_ip(&rig, 10 + n));
			assert_int_equal(seen.v[0].rec.parent, rig_regs_parent());
			assert_int_equal(seen.v[0].rec.pid, 100);
			assert_args(&seen.v[0], in, n);
			if (graph)
				assert_int_equal(seen.v[1].n_data, 0);
		}
		close_quiet();
	}
}

static void return_values(void **state)
{
	u64 in[R_COUNT], out[R_COUNT];

	(void)state;
	for (u32 options = AGENT_OPT_FULL; options <= TASKS; options += AGENT_OPT_TASKS) {
		open_graph(options);
		rig_site(&rig, A, AGENT_SITE_RETVAL | ARGS(2));
		rig_site(&rig, C, AGENT_SITE_RETVAL);
		rig_body(&rig, A, call_b);
		rig_body(&rig, B, call_c);
		fill_regs(in, 7);
		rig_call_regs(&rig, C, in, out);
		look();
		assert_int_equal(seen.n, 2);
		assert_int_equal(seen.v[0].n_data, 0);
		assert_int_equal(seen.v[1].n_data, 1);
		assert_int_equal(seen.v[1].kind[0], AGENT_DATA_RETVAL);
		assert_true(seen.v[1].data[0] == in[R_RAX] && out[R_RAX] == in[R_RAX]);
		assert_true(out[R_RDX] == in[R_RDX]);
		rig_call(&rig, A);
		assert_string_equal(tree(), "ABCcba");
		assert_int_equal(seen.v[0].n_data, 2);
		assert_int_equal(seen.v[3].n_data, 1);
		assert_int_equal(seen.v[4].n_data, 0);
		assert_int_equal(seen.v[5].n_data, 1);
		/* the entry's time is the return's less its duration, as on the plain path */
		assert_true(seen.v[5].rec.tsc - agent_duration((u32)(seen.v[5].w1 >> 32)) ==
			    seen.v[0].rec.tsc);
		close_quiet();
	}
}

static void max_depth(void **state)
{
	static const char *const want[] = { "ABCcbDda", "Aa", "ABbDda", "ABCcbDda" };

	(void)state;
	for (u32 max = 0; max < ARRAY_SIZE(want); max++) {
		open_with((struct rig_opts){ .graph = true, .options = TASKS, .max_depth = max });
		make_tree();
		for (u32 round = 0; round < 2; round++) {
			rig_call(&rig, A);
			assert_string_equal(tree(), want[max]);
		}
		close_quiet();
	}
}

/* Tail calls nest as ftrace has them: who jumps has not returned. */
static void tail_calls(void **state)
{
	u64 in[R_COUNT], out[R_COUNT];

	(void)state;
	open_with((struct rig_opts){ .graph = true, .options = TASKS, .max_depth = 2 });
	rig_tail(&rig, A, B);
	rig_tail(&rig, B, C);
	fill_regs(in, 1);
	rig_call_regs(&rig, A, in, out);
	assert_string_equal(tree(), "ABba");
	assert_int_equal(seen.v[0].rec.parent, rig_regs_parent());
	assert_int_equal(seen.v[1].rec.parent, rig_regs_parent());
	rig.hdr->max_depth = 0;
	rig_call_regs(&rig, A, in, out);
	assert_string_equal(tree(), "ABCcba");
	assert_int_equal(seen.v[2].rec.parent, rig_regs_parent());
	close_quiet();
}

static void roots(void **state)
{
	(void)state;
	open_graph(TASKS | AGENT_OPT_ROOTS);
	make_tree();
	rig_site(&rig, B, AGENT_SITE_ROOT);
	rig_call(&rig, A);
	assert_string_equal(tree(), "BCcb");
	rig_call(&rig, C);
	assert_string_equal(tree(), "");
	rig_site(&rig, C, AGENT_SITE_ROOT); /* a root in a root; and by itself */
	rig_call(&rig, B);
	rig_call(&rig, C);
	assert_string_equal(tree(), "BCcbCc");
	rig.hdr->max_depth = 1; /* counted from the root on */
	rig_call(&rig, A);
	assert_string_equal(tree(), "Bb");
	close_quiet();
}

static void notrace(void **state)
{
	(void)state;
	open_graph(TASKS);
	make_tree();
	rig_site(&rig, B, AGENT_SITE_NOTRACE);
	rig_call(&rig, A);
	rig_call(&rig, C);
	assert_string_equal(tree(), "ADdaCc");
	rig_site(&rig, C, AGENT_SITE_RETVAL | ARGS(3)); /* neither its DATA */
	rig_call(&rig, B);
	assert_string_equal(tree(), "");
	/* what is not to be traced wins over a root, in it and of the same function */
	rig.hdr->options |= AGENT_OPT_ROOTS;
	rig_site(&rig, C, AGENT_SITE_ROOT);
	rig_site(&rig, D, AGENT_SITE_ROOT | AGENT_SITE_NOTRACE);
	rig_call(&rig, A);
	assert_string_equal(tree(), "");
	rig_call(&rig, C);
	assert_string_equal(tree(), "Cc");
	close_quiet();
}

static void irq_calls_b(void)
{
	rig.percpu[0].preempt_count += 0x10000;
	rig_call(&rig, B);
	rig.percpu[0].preempt_count -= 0x10000;
	rig_call(&rig, D);
}

static void no_irqs(void **state)
{
	(void)state;
	for (u32 options = AGENT_OPT_FULL; options <= TASKS; options += AGENT_OPT_TASKS) {
		open_graph(options | AGENT_OPT_NO_IRQS);
		rig_body(&rig, A, irq_calls_b);
		rig_body(&rig, B, call_c);
		rig_call(&rig, A);
		assert_string_equal(tree(), "ADda");
		rig.percpu[0].preempt_count += 0x300; /* a softirq is none */
		rig_call(&rig, C);
		assert_string_equal(tree(), "Cc");
		rig.hdr->options = options;
		rig_call(&rig, A);
		assert_string_equal(tree(), "ABCcbDda");
		close_quiet();
	}
	/* what was asked for by name is followed in an interrupt too: v6.1 ftrace_graph_addr() */
	open_graph(TASKS | AGENT_OPT_NO_IRQS | AGENT_OPT_ROOTS);
	rig_body(&rig, A, irq_calls_b);
	rig_body(&rig, B, call_c);
	rig_site(&rig, A, AGENT_SITE_ROOT);
	rig_call(&rig, A);
	assert_string_equal(tree(), "ADda");
	rig_site(&rig, B, AGENT_SITE_ROOT);
	rig_call(&rig, A);
	assert_string_equal(tree(), "ABCcbDda");
	close_quiet();
}

/* Under a clock of ours each call takes exactly @ticks. */
static void timed_call(u32 site, u64 ticks)
{
	rig_tsc(0x123456789abcull, ticks);
	rig_step(&rig, site, 0xffffffff, NULL, NULL, false);
	rig_tsc(0, 0);
	look();
}

static void threshold(void **state)
{
	(void)state;
	open_with((struct rig_opts){ .graph = true, .options = TASKS, .threshold = 1000 });
	rig_site(&rig, C, AGENT_SITE_RETVAL | ARGS(6));
	for (u64 ticks = 998; ticks <= 1002; ticks++) {
		timed_call(C, ticks);
		assert_int_equal(seen.n, ticks >= 1000);
		if (!seen.n)
			continue;
		assert_int_equal(seen.v[0].rec.type, AGENT_REC_GRAPH_RETURN);
		assert_int_equal(agent_duration((u32)(seen.v[0].w1 >> 32)), ticks);
		assert_int_equal(seen.v[0].rec.tsc, 0x123456789abcull + ticks);
		assert_int_equal(seen.v[0].n_data, 2);
		assert_int_equal(seen.v[0].kind[0], AGENT_DATA_DEPTH);
		assert_int_equal(seen.v[0].data[0], 0);
		assert_int_equal(seen.v[0].kind[1], AGENT_DATA_RETVAL);
		assert_true(seen.v[0].data[1] == 0x0101010101010101ull * (R_RAX + 1));
	}
	/* durations that the record rounds */
	rig.hdr->threshold = 0x123456789;
	timed_call(A, 0x123456788);
	assert_int_equal(seen.n, 0);
	timed_call(A, 0x123456789);
	assert_int_equal(seen.n, 1);
	assert_int_equal(seen.v[0].n_data, 1);
	assert_in_range(agent_duration((u32)(seen.v[0].w1 >> 32)), 0x123456789 - 0x40, 0x123456789);
	/* depths */
	make_tree();
	rig.hdr->threshold = 1;
	rig_call(&rig, A);
	assert_string_equal(tree(), "cbda");
	assert_int_equal(seen.v[0].data[0], 2);
	assert_int_equal(seen.v[1].data[0], 1);
	assert_int_equal(seen.v[2].data[0], 1);
	assert_int_equal(seen.v[3].data[0], 0);
	close_quiet();
}

/* finish_task_switch(prev), on the task that runs now. */
static void switch_from(u32 site, u32 prev)
{
	u64 in[R_COUNT], out[R_COUNT];

	fill_regs(in, 0);
	in[R_RDI] = (u64)(uintptr_t)&rig.task[prev];
	rig_call_regs(&rig, site, in, out);
	assert_true(out[R_RAX] == in[R_RAX]);
}

static void switches(void **state)
{
	(void)state;
	for (u32 graph = 0; graph < 2; graph++) {
		open_with((struct rig_opts){ .graph = graph,
					     .options = AGENT_OPT_FULL | AGENT_OPT_SWITCHES });
		rig_site(&rig, A, AGENT_SITE_SWITCH | AGENT_SITE_HIDDEN);
		rig_site(&rig, B, AGENT_SITE_SWITCH);
		rig.hdr->pids[0] = 103;
		rig.hdr->n_pids = 1;
		rig_run(&rig, 0, 2);
		switch_from(A, 5);
		rig_call(&rig, C); /* not wanted */
		assert_string_equal(tree(), "!");
		assert_int_equal(seen.v[0].rec.pid, 102);
		assert_int_equal(seen.v[0].w1, 105);
		assert_int_equal(seen.v[0].n_data, 0);
		rig_run(&rig, 0, 3);
		switch_from(A, 4);
		assert_string_equal(tree(), "!");
		switch_from(B, 2);
		rig_call(&rig, C);
		assert_string_equal(tree(), graph ? "!BbCc" : "!B?C?");
		assert_int_equal(seen.v[1].rec.pid, 103);
		assert_int_equal(seen.v[0].rec.pid, 103);
		assert_int_equal(seen.v[0].w1, 102);
		close_quiet();
	}
}

/* All of a record or nothing, at every distance from a full ring, wherever the ring's end is. */
static void full_ring(void **state)
{
	u64 in[R_COUNT], out[R_COUNT], lost;
	bool tasks;

	(void)state;
	fill_regs(in, 9);
	for (u32 i = 0; i < 2 * 12 * 40; i++) {
		u32 left = i / 2 % 12;

		tasks = i & 1;
		open_with((struct rig_opts){
			.graph = true, .slots = 64, .options = tasks ? TASKS : AGENT_OPT_FULL });
		rig_site(&rig, A, ARGS(6) | AGENT_SITE_RETVAL);
		rig_body(&rig, A, call_c);
		for (u32 n = 0; n < 1 + i / 24; n++) {
			rig_call(&rig, D);
			look();
		}
		/* a reader that is late leaves so many slots; where it stands does not matter else */
		rig.cpu[0].tail = rig.cpu[0].head - (64 - left);
		rig_call_regs(&rig, A, in, out);
		lost = rig.cpu[0].lost;
		assert_true(rig.cpu[0].head - rig.cpu[0].tail <= 64);
		rig.cpu[0].tail += 64 - left;
		look();
		if (left >= 7) {
			assert_int_equal(seen.v[0].rec.ip, rig_ip(&rig, A));
			assert_args(&seen.v[0], in, 6);
			assert_int_equal(seen.n, 1 + MIN(left - 7, 2) + (left == 11));
			assert_int_equal(lost, left < 9 ? 2 : left < 11);
		} else {
			/* C is recorded where it fits; A not, but C is still inside of it */
			assert_int_equal(seen.n, MIN(left, 2));
			assert_int_equal(lost, left < 2 ? 2 : 1);
		}
		close_quiet();
	}
}

/* Who is not recorded for want of room is a root all the same. */
static void full_ring_at_the_root(void **state)
{
	(void)state;
	open_with((struct rig_opts){
		.graph = true, .slots = 64, .options = TASKS | AGENT_OPT_ROOTS });
	rig_site(&rig, A, AGENT_SITE_ROOT | ARGS(6));
	make_tree();
	rig_call(&rig, A);
	look();
	rig.cpu[0].tail = rig.cpu[0].head - (64 - 6);
	rig_call(&rig, A);
	rig.cpu[0].tail += 64 - 6;
	assert_string_equal(tree(), "BCcbDd");
	assert_int_equal(rig.cpu[0].lost, 1);
	close_quiet();
}

static u32 depth;

static void recurse(void)
{
	if (--depth)
		rig_call(&rig, A);
}

/* Every frame taken: plain calls, with their arguments; but under a threshold nothing. */
static void no_frame(void **state)
{
	(void)state;
	for (u32 i = 0; i < 3; i++) {
		u32 options = i ? TASKS : AGENT_OPT_FULL, plain = 0;

		open_with((struct rig_opts){
			.graph = true, .frames = 64, .options = options, .threshold = i == 2 });
		rig_site(&rig, A, ARGS(1));
		rig_body(&rig, A, recurse);
		depth = 70;
		rig_call(&rig, A);
		look();
		for (u32 n = 0; n < seen.n; n++) {
			plain += seen.v[n].rec.type == AGENT_REC_FUNCTION;
			assert_int_equal(seen.v[n].n_data,
					 seen.v[n].rec.type != AGENT_REC_GRAPH_RETURN || i == 2);
		}
		assert_int_equal(plain, i == 2 ? 0 : 6);
		assert_int_equal(seen.n, i == 2 ? 64 : 64 + 64 + 6);
		assert_int_equal(rig.cpu[0].lost_frames, 6);
		close_quiet();
	}
}

/* Off, or on a CPU without a ring, in between. */
static void switch_off(void)
{
	rig.hdr->enabled = 0;
	rig_call(&rig, C);
}

static void lose_cpu(void)
{
	rig.percpu[0].cpu_number = RIG_CPUS;
	rig_call(&rig, C);
}

static void off_inside(void **state)
{
	(void)state;
	open_graph(TASKS);
	rig_body(&rig, A, switch_off);
	rig_call(&rig, A);
	assert_string_equal(tree(), "A");
	close_quiet();
	open_graph(TASKS);
	rig_body(&rig, A, lose_cpu);
	rig_call(&rig, A);
	assert_string_equal(tree(), "A");
	assert_int_equal(rig.hdr->lost_nocpu, 2);
	close_quiet();
}

/* The site table: nothing of one is another's, neighbours and collisions included. */
static void every_site_its_own(void **state)
{
	(void)state;
	open_with((struct rig_opts){ .graph = false, .options = AGENT_OPT_FULL });
	for (u32 site = 0; site < 48; site++)
		rig_site(&rig, site, ARGS(site % 7));
	for (u32 site = 0; site < 60; site++) {
		rig_call(&rig, site);
		look();
		assert_int_equal(seen.n, 1);
		assert_int_equal(seen.v[0].n_data, site < 48 ? site % 7 : 0);
	}
	rig.hdr->site_slots = 0;
	rig_call(&rig, 6);
	look();
	assert_int_equal(seen.v[0].n_data, 0);
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arguments),
		cmocka_unit_test(return_values),
		cmocka_unit_test(max_depth),
		cmocka_unit_test(tail_calls),
		cmocka_unit_test(roots),
		cmocka_unit_test(notrace),
		cmocka_unit_test(no_irqs),
		cmocka_unit_test(threshold),
		cmocka_unit_test(switches),
		cmocka_unit_test(full_ring),
		cmocka_unit_test(full_ring_at_the_root),
		cmocka_unit_test(no_frame),
		cmocka_unit_test(off_inside),
		cmocka_unit_test(every_site_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
