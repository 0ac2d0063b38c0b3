// SPDX-License-Identifier: Apache-2.0
/*
 * The gate to the guest's own functions, and the callers of a call that it brings: natively, with a function
 * that stands for the guest's unwinder and is itself traced. NMIs, interrupts, migration and the host's look
 * at the frames between any two instructions.
 */
#include "tests/unit/test_agent_lib.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define SLOTS     4096
#define VICTIM    3
#define INNER     4
#define CALLEE    5
#define IRQ       20
#define IRQ_INNER 21
#define CROWD     23
#define ARGS(n)   ((u32)(n) << AGENT_SITE_ARGS_SHIFT)

#define IP 0 /* struct pt_regs of this guest, in words */
#define SP 3
#define BP 5
#define CS 7

static struct rig rig;
static struct rig_seen seen;
static u64 unwound[AGENT_MAX_STACK]; /* what the unwinder finds */
static u32 n_unwound;
static s64 answer; /* instead of how many it found, if not 0 */
static u32 calls, asked;
static u64 regs_seen[8];
static bool wrong; /* something was not as it must be during a call */
static u32 nmis;

/* A gate is open on the CPU that we are on, and interrupts cannot come. */
static bool is_inside(u32 cpu)
{
	return rig_irqs_off() && rig.cpu[cpu].busy == (u64)(uintptr_t)rig.percpu[cpu].current_task;
}

/* stack_trace_save_regs() */
static u64 unwinder(const u64 *regs, u64 *store, u32 size, u32 skip)
{
	u32 n = MIN(n_unwound, size);
	u64 aligned;

	__asm__ volatile("movq %%rsp, %0" : "=r"(aligned));
	calls++;
	asked = size;
	memcpy(regs_seen, regs, sizeof(regs_seen));
	wrong |= skip != 1 || !is_inside(0) || !store || (aligned & 7);
	if (!store)
		return 0;
	memcpy(store, unwound, n * sizeof(*store));
	rig_call(&rig, CALLEE); /* traced, as what the real one calls may be */
	return answer ? (u64)answer : n;
}

static void as_body(u32 site, u64 (*fn)(const u64 *, u64 *, u32, u32))
{
	void (*body)(void);

	memcpy(&body, &fn, sizeof(body));
	rig_body(&rig, site, body);
}

static void open_calls(struct rig_opts o)
{
	static const u16 regs[AGENT_STACK_REGS] = { IP * 8, SP * 8, BP * 8, CS * 8 };

	o.calls = true;
	o.full = true;
	o.slots = o.slots ? o.slots : SLOTS;
	o.sites = 64;
	o.tasks = AGENT_TASK_BUCKET;
	o.options |= AGENT_OPT_FULL | AGENT_OPT_STACKS | (o.graph ? AGENT_OPT_TASKS : 0);
	rig_open(&rig, &o);
	memcpy(rig.hdr->stack_regs, regs, sizeof(regs));
	rig_site(&rig, VICTIM, AGENT_SITE_STACK | ARGS(2));
	as_body(RIG_CALL_STACK, unwinder);
	for (u32 i = 0; i < AGENT_MAX_STACK; i++)
		unwound[i] = 0xffffffff81000000 + i * 0x1000;
	n_unwound = 5;
	answer = 0;
	calls = asked = nmis = 0;
	wrong = false;
	rig_run(&rig, 0, 0);
}

static void close_calls(void)
{
	assert_false(rig_irqs_off());
	assert_false(wrong);
	for (u32 cpu = 0; cpu < RIG_CPUS; cpu++)
		assert_true(rig.cpu[cpu].busy == 0);
	assert_int_equal(RIG_COUNTER(&rig, frame_errors) + RIG_COUNTER(&rig, orphans), 0);
	assert_int_equal(rig_check_frames(&rig), 0);
	rig_close(&rig);
}

static u32 callers(const struct rig_record *rec, u32 ret[AGENT_MAX_STACK])
{
	u32 n = 0;

	for (u32 i = 0; i < rec->n_data; i++) {
		if ((rec->kind[i] & AGENT_DATA_KIND) != AGENT_DATA_STACK)
			continue;
		assert_int_equal(rec->kind[i] & AGENT_DATA_NUMBER, n / 2);
		ret[n++] = (u32)rec->data[i];
		if (rec->data[i] >> 32)
			ret[n++] = (u32)(rec->data[i] >> 32);
	}
	return n;
}

/* The record at @i is VICTIM's, with what the unwinder found behind its caller. */
static void assert_callers(u32 i, u32 type, u32 parent, u32 n)
{
	u32 got[AGENT_MAX_STACK + 1];

	assert_true(i < seen.n);
	assert_int_equal(seen.v[i].rec.type, type);
	assert_true(seen.v[i].rec.ip == rig_ip(&rig, VICTIM));
	assert_int_equal(callers(&seen.v[i], got), n);
	for (u32 k = 0; k < n; k++)
		assert_int_equal(got[k], k ? (u32)unwound[k - 1] : parent);
}

static void call_victim(u64 in[R_COUNT], u64 out[R_COUNT])
{
	for (u32 i = 0; i < R_FLAGS; i++)
		in[i] = 0x4000000000000000 + i * 0x1001;
	in[R_FLAGS] = 2 | FLAG_IF;
	rig_call_regs(&rig, VICTIM, in, out);
}

/* What the unwinder is given, what is recorded, and that what it calls is not. */
static void callers_are_told(void **state)
{
	u64 in[R_COUNT], out[R_COUNT];

	(void)state;
	for (u32 graph = 0; graph < 2; graph++) {
		u32 type = graph ? AGENT_REC_GRAPH_ENTRY : AGENT_REC_FUNCTION;

		open_calls((struct rig_opts){ .graph = graph });
		call_victim(in, out);
		rig_look(&rig, 0, &seen);
		assert_int_equal(seen.n, 1 + graph);
		assert_callers(0, type, (u32)rig_regs_parent(), 6);
		assert_int_equal(seen.v[0].n_data, 2 + 3);
		assert_int_equal(calls, 1);
		assert_int_equal(asked, AGENT_MAX_STACK - 1);
		assert_int_equal(rig.cpu[0].skipped, 2); /* the unwinder, and what it calls */
		assert_int_equal((u32)regs_seen[IP], (u32)rig_regs_parent() - 1);
		assert_true(regs_seen[BP] == in[R_RBP]);
		assert_int_equal(regs_seen[CS] & 3, 0);
		for (int i = 0; i < R_FLAGS; i++) /* as without */
			assert_true(
				(graph && i != R_RAX && i != R_RBX && i != R_RBP && i < R_R12) ||
				i == R_R10 || i == R_R11 || in[i] == out[i]);
		close_calls();
	}
}

static void limits(void **state)
{
	u64 in[R_COUNT], out[R_COUNT];
	u32 parent = (u32)rig_regs_parent();

	(void)state;
	open_calls((struct rig_opts){ 0 });
	rig.hdr->stack_max = 1; /* nobody has to be asked */
	call_victim(in, out);
	assert_int_equal(calls, 0);
	rig.hdr->stack_max = 4;
	call_victim(in, out);
	assert_int_equal(asked, 3);
	n_unwound = rig.hdr->stack_max = AGENT_MAX_STACK;
	call_victim(in, out);
	rig.hdr->stack_max = AGENT_MAX_STACK + 1; /* makes no sense: the caller alone */
	call_victim(in, out);
	rig.hdr->stack_max = AGENT_MAX_STACK;
	answer = -22; /* an error, as a number of entries */
	call_victim(in, out);
	answer = 0;
	n_unwound = 5;
	unwound[2] = rig.hdr->text + 100; /* ours: never shown */
	call_victim(in, out);
	unwound[2] = 0;
	call_victim(in, out);
	unwound[2] = 0xffffffff81002000;
	rig.hdr->calls = 0;
	call_victim(in, out);
	rig_look(&rig, 0, &seen);
	assert_callers(0, AGENT_REC_FUNCTION, parent, 1);
	assert_callers(1, AGENT_REC_FUNCTION, parent, 4);
	assert_callers(2, AGENT_REC_FUNCTION, parent, AGENT_MAX_STACK);
	assert_callers(3, AGENT_REC_FUNCTION, parent, 1);
	assert_callers(4, AGENT_REC_FUNCTION, parent, 1);
	assert_callers(5, AGENT_REC_FUNCTION, parent, 3);
	assert_callers(6, AGENT_REC_FUNCTION, parent, 3);
	assert_callers(7, AGENT_REC_FUNCTION, parent, 1);
	close_calls();
}

/* No room for all of it: nothing is written, and that is one lost record. */
static void no_room(void **state)
{
	u64 in[R_COUNT], out[R_COUNT];

	(void)state;
	open_calls((struct rig_opts){ .slots = 64 });
	n_unwound = AGENT_MAX_STACK;
	call_victim(in, out);
	call_victim(in, out);
	assert_int_equal(rig.cpu[0].lost, 1);
	rig_look(&rig, 0, &seen);
	assert_int_equal(seen.n, 1);
	close_calls();
}

/* Where the gate is not opened the record comes without; a word that a dead task left behind is no obstacle. */
static void not_from_here(void **state)
{
	u64 in[R_COUNT], out[R_COUNT];

	(void)state;
	open_calls((struct rig_opts){ 0 });
	rig.percpu[0].preempt_count += 0x100000; /* NMI */
	call_victim(in, out);
	rig.percpu[0].preempt_count = RIG_PREEMPT_IDLE;
	assert_int_equal(rig.cpu[0].no_stack, 1);
	assert_int_equal(calls, 0);
	rig.cpu[0].busy = (u64)(uintptr_t)&rig.task[3];
	call_victim(in, out);
	assert_int_equal(calls, 1);
	rig_look(&rig, 0, &seen);
	assert_int_equal(seen.n, 2);
	assert_int_equal(seen.v[0].n_data, 2);
	assert_callers(1, AGENT_REC_FUNCTION, (u32)rig_regs_parent(), 6);
	close_calls();
}

/* The guest has no such function: linked so that nothing is called. */
static void no_function(void **state)
{
	u64 in[R_COUNT], out[R_COUNT];

	(void)state;
	open_calls((struct rig_opts){ .graph = true });
	rig_close(&rig);
	rig_open(&rig, &(struct rig_opts){ .slots = SLOTS,
					   .full = true,
					   .sites = 64,
					   .options = AGENT_OPT_FULL | AGENT_OPT_STACKS });
	rig_site(&rig, VICTIM, AGENT_SITE_STACK);
	rig.hdr->calls = AGENT_CALL_STACK;
	call_victim(in, out);
	rig_look(&rig, 0, &seen);
	assert_callers(0, AGENT_REC_FUNCTION, (u32)rig_regs_parent(), 1);
	close_calls();
}

/* Under a threshold the return has them, and only that of a call which took as long. */
static void returns_have_them(void **state)
{
	u64 in[R_COUNT], out[R_COUNT];

	(void)state;
	open_calls((struct rig_opts){ .graph = true, .threshold = 1 });
	call_victim(in, out);
	rig.hdr->threshold = 1ull << 40;
	call_victim(in, out);
	assert_int_equal(calls, 1);
	rig_look(&rig, 0, &seen);
	assert_int_equal(seen.n, 1);
	assert_callers(0, AGENT_REC_GRAPH_RETURN, (u32)rig_regs_parent(), 6);
	assert_int_equal((u32)regs_seen[IP], (u32)rig_regs_parent() - 1);
	close_calls();
}

/* True returns for the unwinder */

static u64 cells[8], truth[8];
static u32 n_cells;

static bool in_agent(u64 addr)
{
	return addr - rig.hdr->text < rig.text_bytes;
}

/* What the unwinder would walk over: every cell of the task's calls. */
static u64 look_at_cells(const u64 *regs, u64 *store, u32 size, u32 skip)
{
	n_cells = 0;
	for (u32 i = 0; i < rig.hdr->nr_frames; i++) {
		const struct agent_frame *f = &rig.frames[i];
		u64 cell;

		if (!f->slot || f->owner != (u64)(uintptr_t)&rig.task[0])
			continue;
		memcpy(&cell, (const void *)(uintptr_t)f->slot, sizeof(cell));
		wrong |= in_agent(cell);
		n_cells++;
	}
	return unwinder(regs, store, size, skip);
}

static void call_tail(void)
{
	rig_call(&rig, IRQ);
}

static void call_victim_site(void)
{
	rig_call(&rig, VICTIM);
}

/* IRQ_INNER { IRQ, a tail call of CROWD { STUCK, one of VICTIM } } */
static void make_ancestors(void)
{
	rig_body(&rig, IRQ_INNER, call_tail);
	rig_tail(&rig, IRQ, CROWD);
	rig_body(&rig, CROWD, call_victim_site);
	as_body(RIG_CALL_STACK, look_at_cells);
}

static void all_ancestors_traced(void **state)
{
	u32 got[AGENT_MAX_STACK];

	(void)state;
	open_calls((struct rig_opts){ .graph = true });
	make_ancestors();
	for (u32 i = 0; i < 3; i++)
		rig_call(&rig, IRQ_INNER);
	assert_int_equal(calls, 3);
	assert_int_equal(n_cells, 3);
	rig_look(&rig, 0, &seen);
	assert_int_equal(seen.n, 3 * 8); /* each returned through its trampoline after all */
	assert_int_equal(callers(&seen.v[3], got), 6);
	assert_false(in_agent((rig.hdr->text & ~0xffffffffull) | got[0]));
	close_calls();
}

/* VICTIM is itself jumped to: its caller is the caller of the one that jumped. */
static void tail_called(void **state)
{
	u32 got[AGENT_MAX_STACK] = { 0 };

	(void)state;
	open_calls((struct rig_opts){ .graph = true });
	as_body(RIG_CALL_STACK, look_at_cells);
	rig_tail(&rig, IRQ, CROWD);
	rig_tail(&rig, CROWD, VICTIM);
	rig_call(&rig, IRQ);
	rig_look(&rig, 0, &seen);
	assert_int_equal(seen.n, 6);
	assert_int_equal(callers(&seen.v[2], got), 6);
	assert_int_equal(got[0], (u32)seen.v[0].rec.parent);
	close_calls();
}

/*
 * The host looks between two instructions: a frame of a call further out leads to its trampoline, or says that
 * it has the truth for the moment. (Its own frame, the last one, is about to be filled.)
 */
static void inject_look(struct rig *r, void *arg)
{
	(void)arg;
	for (u32 i = 0; i < n_cells; i++) {
		u64 cell;

		memcpy(&cell, (const void *)(uintptr_t)cells[i], sizeof(cell));
		for (u32 f = 0; f < r->hdr->nr_frames; f++) {
			if (r->frames[f].slot != cells[i] || in_agent(cell))
				continue;
			wrong |= !(r->frames[f].state & AGENT_FRAME_TRUE) || cell != truth[i] ||
				 !is_inside(0);
			nmis++;
		}
	}
}

/* From inside of followed calls, whose cells are remembered: one, where two of them are tail calls. */
static void step_victim(void)
{
	n_cells = 0;
	for (u32 i = 0; i < rig.hdr->nr_frames; i++) {
		if (!rig.frames[i].slot || in_agent(rig.frames[i].ret))
			continue;
		cells[n_cells] = rig.frames[i].slot;
		truth[n_cells++] = rig.frames[i].ret;
	}
	wrong |= n_cells != 2;
	rig_step(&rig, VICTIM, RIG_EVERY(1, 0), inject_look, NULL, false);
}

static void call_crowd(void)
{
	rig_call(&rig, CROWD);
	__asm__ volatile("" : : : "memory"); /* no tail call */
}

static void host_sees_no_lie(void **state)
{
	(void)state;
	open_calls((struct rig_opts){ .graph = true });
	rig_body(&rig, IRQ, call_crowd);
	rig_tail(&rig, CROWD, INNER);
	rig_body(&rig, INNER, step_victim);
	rig_call(&rig, IRQ);
	assert_int_equal(calls, 1);
	assert_in_range(nmis, 4, 10000); /* seen with the truth in place */
	close_calls();
}

/* What comes between any two instructions of the gate */

/* An NMI, whose functions are traced, and want their callers too. */
static void inject_nmi(struct rig *r, void *arg)
{
	u32 was = r->percpu[0].preempt_count;

	(void)arg;
	r->percpu[0].preempt_count += 0x100000;
	rig_call(r, IRQ);
	r->percpu[0].preempt_count = was;
	nmis++;
}

static void inject_interrupt(struct rig *r, void *arg)
{
	(void)arg;
	if (rig_irqs_off())
		return;
	rig_call(r, IRQ);
	nmis++;
}

static void inject_away(struct rig *r, void *arg)
{
	(void)arg;
	if (rig_irqs_off())
		return;
	rig_run(r, 0, 1);
	rig_run(r, 1, 0);
	rig_on(r, 1);
	nmis++;
}

static void interrupted(void **state)
{
	static void (*const how[])(struct rig *, void *) = { inject_nmi, inject_interrupt };

	(void)state;
	for (u32 variant = 0; variant < 4; variant++) {
		bool graph = variant & 1;
		struct rig_books b;

		for (u32 i = 0; i < 11; i++) {
			open_calls((struct rig_opts){ .graph = graph });
			rig_site(&rig, IRQ, AGENT_SITE_STACK);
			rig_step(&rig, VICTIM, RIG_EVERY(11, i), how[variant / 2], NULL, false);
			b = rig_books(&rig, IRQ);
			assert_true(nmis >= 10);
			/* those that fell into a call were skipped, the unwinder's two aside each */
			assert_int_equal(b.functions + b.entries + rig.cpu[0].skipped,
					 nmis + 2 * calls);
			assert_int_equal(b.returns, b.entries);
			if (variant / 2)
				assert_int_equal(calls, nmis + 1);
			else
				assert_int_equal(rig.cpu[0].no_stack + rig.cpu[0].skipped - 2,
						 nmis);
			b = rig_books(&rig, VICTIM);
			assert_int_equal(b.functions + b.entries, 1);
			close_calls();
		}
	}
}

/* Another CPU before the gate opens: it is that one's gate. */
static u64 unwinder_anywhere(const u64 *regs, u64 *store, u32 size, u32 skip)
{
	(void)regs;
	(void)size;
	(void)skip;
	store[0] = 0; /* what it finds does not count */
	calls++;
	wrong |= !is_inside(0) && !is_inside(1);
	rig_call(&rig, CALLEE);
	return 0;
}

static void migrated(void **state)
{
	static u32 path[RIG_PATH_MAX];
	u32 n;

	(void)state;
	open_calls((struct rig_opts){ .graph = true });
	n = rig_path(&rig, VICTIM, path);
	close_calls();
	assert_in_range(n, 200, RIG_PATH_MAX);
	for (u32 i = 0; i < n; i++) {
		open_calls((struct rig_opts){ .graph = true });
		as_body(RIG_CALL_STACK, unwinder_anywhere);
		rig_break(&rig, VICTIM, path[i], inject_away, NULL);
		assert_int_equal(calls, 1);
		assert_int_equal(RIG_COUNTER(&rig, skipped), 2);
		rig_on(&rig, 0);
		close_calls();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(callers_are_told),
		cmocka_unit_test(limits),
		cmocka_unit_test(no_room),
		cmocka_unit_test(not_from_here),
		cmocka_unit_test(no_function),
		cmocka_unit_test(returns_have_them),
		cmocka_unit_test(all_ancestors_traced),
		cmocka_unit_test(tail_called),
		cmocka_unit_test(host_sees_no_lie),
		cmocka_unit_test(interrupted),
		cmocka_unit_test(migrated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
