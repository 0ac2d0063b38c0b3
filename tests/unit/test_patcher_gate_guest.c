// SPDX-License-Identifier: Apache-2.0
/*
 * A gate whose code, and what leads to it, is written by the guest as well: as it is opened, closed, and recovered from
 * what a daemon that died has left.
 */
#include "patcher/gate_priv.h"
#include "patcher/interlock.h"
#include "test_patcher_fake.h"
#include "test_patcher_task.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The linker has this called instead: see CMakeLists.txt. */
int __wrap_remains_note(struct guest *g, u64 text, struct err *err);

static u64 noted_text;

int __wrap_remains_note(struct guest *g, u64 text, struct err *err)
{
	(void)g;
	(void)err;
	noted_text = text;
	return 0;
}

static int setup(void **state)
{
	int rc = fake_setup(state);

	task_setup();
	fake.g.rewrite = true;
	return rc;
}

/* What led to the gate's code is written by the guest before the code goes. */
static void a_gate(void **state)
{
	struct gate *gate;
	struct err err = { 0 };

	(void)state;
	assert_int_equal(gate_open(&fake.g, &gate, &err), 0);
	assert_int_equal(task.n_calls, 1);
	assert_int_equal(task.call[0].fn, task_again());
	assert_int_equal(task.call[0].args[0], REWRITE_TWO);
	/* in the page of the code, and of what the guest takes for its text */
	assert_true(task.cave >= FAKE_ETEXT && task.call[0].args[1] < FAKE_ETEXT);
	assert_int_equal((task.call[0].args[1] + 4) & PAGE_MASK, task.cave & PAGE_MASK);
	assert_int_equal(task.call[0].args[2], HOOK);
	assert_true(task.call[0].armed && fake_calls(HOOK, task.cave + 192));
	assert_int_equal(gate_again(gate), task_again());
	assert_int_equal(gate_close(gate, &err), 0);
	assert_int_equal(task.n_calls, 2);
	assert_int_equal(task.call[1].fn, task_back());
	assert_int_equal(task.written_back, 1);
	for (size_t i = 0; i < N_SITES; i++)
		assert_true(fake_at_rest(i));
	assert_true(fake_calls(HOOK, LOCK));
	assert_int_equal(*fake_at(task.cave, 1), 0);
	assert_false(journal_outstanding(fake.g.journal));
}

/* A call that was given up and has ended since: what the guest has lent by it is noted before the last call. */
static void a_result_is_not_lost(void **state)
{
	struct box *box = task_box();
	struct journal *j = fake.g.journal;
	struct gate *gate;
	struct err err = { 0 };

	(void)state;
	assert_int_equal(gate_open(&fake.g, &gate, &err), 0);
	assert_int_equal(journal_pending(j, JOURNAL_AGENT_DATA, 0x4000, gate_next_seq(gate), &err),
			 0);
	box->seq = gate_next_seq(gate);
	box->ret = DATA;
	assert_int_equal(gate_close(gate, &err), 0);
	assert_int_equal(task.written_back, 1);
	assert_int_equal(journal_state(j)->alloc[JOURNAL_AGENT_DATA], DATA);
}

static void forget(struct gate *gate)
{
	free(gate->code);
	free(gate->sites);
	free(gate);
}

/* What was open when its daemon died is closed in the same way. */
static void a_gate_of_a_daemon_that_died(void **state)
{
	struct gate *gate;
	struct err err = { 0 };

	(void)state;
	assert_int_equal(gate_open(&fake.g, &gate, &err), 0);
	interlock_forget(&fake.g);
	assert_int_equal(gate_recover(&fake.g, &err), 0);
	assert_int_equal(task.n_calls, 3);
	assert_int_equal(task.call[1].args[0], REWRITE_TWO);
	assert_int_equal(task.call[2].fn, task_back());
	assert_int_equal(task.written_back, 1);
	assert_false(journal_outstanding(fake.g.journal));
	forget(gate);
}

static void sites_away(void)
{
	for (size_t i = 0; i < N_SITES; i++)
		memcpy(fake_at(fake_site(i), 5), fake_nop, sizeof(fake_nop));
}

/* Its call sites, or all that led to it, were put back by the host alone: the guest writes them all the same. */
static void what_led_to_it_was_put_back(void **state)
{
	struct box *box = task_box();
	struct guest *g = &fake.g;
	struct gate *gate;
	struct err err = { 0 };

	(void)state;
	for (int hook = 0; hook < 2; hook++) {
		assert_int_equal(gate_open(g, &gate, &err), 0);
		sites_away();
		if (hook) {
			assert_int_equal(journal_undone(g->journal, JOURNAL_GATE_SITE, &err), 0);
			assert_int_equal(interlock_out(g, &err), 0);
			*box = (struct box){
				.state = 3, .fn = task_back(), .ret = UINT32_MAX, .seq = box->seq
			};
		}
		interlock_forget(g);
		task.n_calls = 0;
		task.written_back = 0;
		assert_int_equal(gate_recover(g, &err), 0);
		assert_int_equal(task.n_calls, 2);
		assert_int_equal(task.call[0].fn, task_again());
		assert_int_equal(task.call[1].fn, task_back());
		assert_int_equal(task.written_back, 1);
		assert_false(task_any_leads_here());
		assert_false(journal_outstanding(g->journal));
		forget(gate);
	}
}

/* A daemon died while a task waited in its gate: that task is told to go on, whatever was put back until then. */
static void a_task_waits_for_a_daemon_that_died(void **state)
{
	struct box *box = task_box();
	struct guest *g = &fake.g;
	struct gate *gate;
	struct err err = { 0 };

	(void)state;
	for (int away = 0; away < 2; away++) {
		assert_int_equal(gate_open(g, &gate, &err), 0);
		if (away) {
			sites_away();
			assert_int_equal(journal_undone(g->journal, JOURNAL_GATE_SITE, &err), 0);
			assert_int_equal(interlock_out(g, &err), 0);
		}
		*box = (struct box){ .state = 2, .fn = task_back(), .closing = 1, .seq = box->seq };
		interlock_forget(g);
		task.n_calls = 0;
		task.written_back = 0;
		assert_int_equal(gate_recover(g, &err), 0);
		assert_int_equal(task.n_calls, 0);
		assert_int_equal(task.written_back, 1);
		assert_false(journal_outstanding(g->journal));
		forget(gate);
	}
}

/* Nobody comes by: it is closed by the host alone if nothing is being copied, and somebody says so. */
static void nobody_comes_by(void **state)
{
	struct guest *g = &fake.g;
	struct gate *gate;
	struct err err = { 0 };

	(void)state;
	assert_int_equal(gate_open(g, &gate, &err), 0);
	sites_away();
	interlock_forget(g);
	task.idle = true;
	assert_int_equal(gate_recover(g, &err), -ETIMEDOUT);
	assert_int_equal(err.code, ERR_GUEST_GATE);
	assert_true(task_any_leads_here() && fake_calls(HOOK, task.cave + 192));
	assert_true(journal_outstanding(g->journal));
	interlock_forget(g);
	task.tells = true;
	task.leaves = -EBUSY;
	assert_int_not_equal(gate_recover(g, &err), 0);
	assert_true(task_any_leads_here());
	interlock_forget(g);
	task.leaves = 0;
	assert_int_equal(gate_recover(g, &err), 0);
	assert_true(!task_any_leads_here() && fake_calls(HOOK, LOCK) && !*fake_at(task.cave, 1));
	assert_false(journal_outstanding(g->journal));
	forget(gate);
}

/* A call that was given up and has not returned keeps what leads to the code; one that nobody took is taken back. */
static void the_last_call_has_not_ended(void **state)
{
	struct box *box = task_box();
	struct guest *g = &fake.g;
	struct gate *gate;
	struct err err = { 0 };

	(void)state;
	assert_int_equal(gate_open(g, &gate, &err), 0);
	box->state = 2;
	assert_int_equal(gate_close(gate, &err), -EBUSY);
	assert_int_equal(err.code, ERR_GUEST_GATE);
	assert_true(task_any_leads_here() && fake_calls(HOOK, task.cave + 192) &&
		    *fake_at(task.cave, 1));
	box->state = 3;
	assert_int_equal(gate_recover(g, &err), 0);
	assert_int_equal(task.written_back, 1);
	assert_int_equal(gate_open(g, &gate, &err), 0);
	task.n_calls = 0;
	box->state = 1;
	box->fn = KERNEL;
	assert_int_equal(gate_close(gate, &err), 0);
	assert_int_equal(task.n_calls, 1);
	assert_int_equal(task.written_back, 2);
	assert_false(journal_outstanding(g->journal));
}

/* A migration that began after the first look: no call site is written, what is in stays as long as it goes on. */
static void it_begins_to_leave(void **state)
{
	struct gate *gate;
	struct err err = { 0 };

	(void)state;
	task.leaves = -EBUSY;
	assert_int_equal(gate_open(&fake.g, &gate, &err), -EBUSY);
	assert_int_equal(err.code, ERR_GUEST_LEAVES);
	for (size_t i = 0; i < N_SITES; i++)
		assert_true(fake_at_rest(i));
	assert_true(fake_calls(HOOK, task.cave + 192));
	assert_true(journal_outstanding(fake.g.journal));
	interlock_forget(&fake.g);
	assert_int_equal(gate_recover(&fake.g, &err), -EBUSY);
	interlock_forget(&fake.g);
	task.leaves = 0;
	assert_int_equal(gate_recover(&fake.g, &err), 0);
	assert_true(fake_calls(HOOK, LOCK));
	assert_false(journal_outstanding(fake.g.journal));
}

/* Whatever goes on through it says which agent there is, to who finds it in a copy. */
static void what_is_lent_is_told(void **state)
{
	const u64 args[4] = { DATA, DATA, 0x1000 }, fns[] = { KERNEL + 0x1700, KERNEL + 0x1b00 };
	struct guest *g = &fake.g;
	struct gate *gate;
	struct err err = { 0 };
	bool found;

	(void)state;
	fake_lend(0x3000, 0x4000);
	assert_int_equal(gate_open(g, &gate, &err), 0);
	noted_text = 0;
	assert_int_equal(gate_came(g, &found, &err), 0);
	assert_true(found);
	assert_int_equal(noted_text, TEXT);
	for (size_t i = 0; i < ARRAY_SIZE(fns); i++) {
		assert_int_equal(gate_call(gate, fns[i], args, NULL, &err), 0);
		noted_text = 0;
		assert_int_equal(gate_came(g, &found, &err), 0);
		assert_int_equal(noted_text, TEXT);
	}
	/* of a time with no agent */
	memset(&task_box()->args[3], 0, 8);
	noted_text = 1;
	assert_int_equal(gate_came(g, &found, &err), 0);
	assert_int_equal(noted_text, 1);
	assert_int_equal(gate_close(gate, &err), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_gate, setup, fake_teardown),
		cmocka_unit_test_setup_teardown(a_result_is_not_lost, setup, fake_teardown),
		cmocka_unit_test_setup_teardown(a_gate_of_a_daemon_that_died, setup, fake_teardown),
		cmocka_unit_test_setup_teardown(what_led_to_it_was_put_back, setup, fake_teardown),
		cmocka_unit_test_setup_teardown(a_task_waits_for_a_daemon_that_died, setup,
						fake_teardown),
		cmocka_unit_test_setup_teardown(nobody_comes_by, setup, fake_teardown),
		cmocka_unit_test_setup_teardown(the_last_call_has_not_ended, setup, fake_teardown),
		cmocka_unit_test_setup_teardown(it_begins_to_leave, setup, fake_teardown),
		cmocka_unit_test_setup_teardown(what_is_lent_is_told, setup, fake_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
