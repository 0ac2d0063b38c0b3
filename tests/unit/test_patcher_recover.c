// SPDX-License-Identifier: Apache-2.0
/*
 * What the journal has, and what it has not, is put back: in which order, and what is given back.
 */
#include "guest-agent/agent_abi.h"
#include "patcher/agent.h"
#include "patcher/callers.h"
#include "patcher/ftrace.h"
#include "patcher/gate.h"
#include "patcher/guest_priv.h"
#include "patcher/interlock.h"
#include "patcher/remains.h"
#include "patcher/text.h"
#include "symbols/kernel.h"
#include "test_patcher_fake.h"
#include "vmm/vm.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

int __wrap_guest_check_stays(struct guest *g, struct err *err);

int __wrap_guest_check_stays(struct guest *g, struct err *err)
{
	(void)g;
	(void)err;
	return 0;
}

/* A snapshot of when more was armed: the journal has the agent, and none of its call sites. */
static void sites_that_no_journal_has(void **state)
{
	const u64 interlock = TEXT + 0x2000;
	struct err err = { 0 };

	(void)state;
	fake_lend(0x3000, 0x4000);
	/* a smaller trace came after: that the journal has */
	fake_call(fake_site(0), TEXT + 0x10);
	fake_note(fake_site(0), 0, TEXT + 0x10, JOURNAL_SITE);
	assert_int_equal(
		text_from_journal(&fake.g, JOURNAL_SITE, &fake.g.armed, &fake.g.n_armed, &err), 0);
	fake_call(fake_site(1), TEXT + 0x10);
	fake_call(fake_site(4), TEXT + 0x2fff);
	fake_call(fake_site(2), TEXT + 0x3000); /* not ours */
	fake_call(fake_site(3), LOCK);
	fake_call(HOOK, interlock);
	fake_call(interlock, LOCK); /* as the interlock begins */
	assert_int_equal(callers_let_go(&fake.g, &err), -EBUSY);
	assert_int_equal(ftrace_make_nop(&fake.g, NULL, &err), 0);
	assert_int_equal(fake.n_written, 1);
	assert_int_equal(callers_let_go(&fake.g, &err), 0);
	assert_true(fake_at_rest(0) && fake_at_rest(1) && fake_at_rest(4));
	assert_true(fake_calls(HOOK, LOCK));
	assert_true(fake_calls(fake_site(2), TEXT + 0x3000) && fake_calls(fake_site(3), LOCK));
	assert_int_equal(fake.n_written, 4);
	assert_int_equal(fake_when(HOOK), 3); /* until the last site is back */
	assert_int_equal(fake_n_noted(JOURNAL_SITE) + fake_n_noted(JOURNAL_INTERLOCK), 0);
	assert_null(fake.g.hook);
	assert_int_equal(fake.g.n_armed, 0);
	/* and once more: there is nothing */
	assert_int_equal(callers_let_go(&fake.g, &err), 0);
	assert_int_equal(fake.n_written, 4);
}

/* The hook alone is reason enough; one that cannot be undone keeps the text where it is. */
static void a_hook_that_no_journal_has(void **state)
{
	struct err err = { 0 };

	(void)state;
	fake_lend(0x3000, 0x4000);
	fake_call(HOOK, TEXT + 0x2000);
	fake_call(fake_site(0), TEXT + 0x10);
	assert_int_equal(callers_let_go(&fake.g, &err), -EINVAL);
	assert_int_equal(err.code, ERR_GUEST_CHANGED);
	assert_int_equal(fake.n_written, 0);
	free(fake.g.armed);
	fake.g.armed = NULL;
	fake.g.n_armed = 0;
	fake_call(TEXT + 0x2000, LOCK);
	memcpy(fake_at(fake_site(0), sizeof(fake_nop)), fake_nop, sizeof(fake_nop));
	assert_int_equal(callers_let_go(&fake.g, &err), 0);
	assert_true(fake_calls(HOOK, LOCK));
	assert_int_equal(fake.n_written, 1);
}

static struct agent_header put_header(void)
{
	struct agent_header h = { .magic = AGENT_MAGIC,
				  .abi_version = AGENT_ABI_VERSION,
				  .nr_cpus = 1,
				  .ring_slots = AGENT_MIN_SLOTS,
				  .nr_frames = 4096,
				  .site_slots = AGENT_MIN_SITES,
				  .task_slots = 1024 };

	assert_int_equal(agent_layout(&h), 0);
	h.text = TEXT;
	h.data = DATA;
	memcpy(fake_at(DATA, sizeof(h)), &h, sizeof(h));
	return h;
}

static struct fake_piece *piece_of(u64 addr)
{
	for (size_t i = 0; i < ARRAY_SIZE(fake_pieces); i++) {
		if (fake_pieces[i].addr == addr)
			return &fake_pieces[i];
	}
	return NULL;
}

/* Nothing goes back to the allocator that may be somebody else's: the header says that it is ours, or it stays. */
static void lent_is_there_by_its_header(void **state)
{
	struct agent_header h = put_header();
	u64 text_bytes = agent_text_bytes(&h) + AGENT_INTERLOCK_BYTES;

	(void)state;
	assert_true(remains_journalled_stays(&fake.g)); /* there is nothing */
	fake_lend(text_bytes, agent_data_bytes(&h));
	assert_true(remains_journalled_stays(&fake.g));
	/* as it is given back: no more executable, and then freed */
	piece_of(TEXT)->executable = false;
	assert_true(remains_journalled_stays(&fake.g));
	assert_int_equal(journal_freed(fake.g.journal, JOURNAL_AGENT_TEXT, NULL), 0);
	assert_true(remains_journalled_stays(&fake.g));
	/* another module's data lies there now */
	fake_lend(text_bytes, agent_data_bytes(&h));
	memset(fake_at(DATA, sizeof(h)), 0x5a, sizeof(h));
	assert_false(remains_journalled_stays(&fake.g));
	piece_of(TEXT)->executable = true;
	assert_false(remains_journalled_stays(&fake.g));
	/* another agent's: elsewhere, or of another size */
	h.data = DATA + PAGE_SIZE;
	memcpy(fake_at(DATA, sizeof(h)), &h, sizeof(h));
	assert_false(remains_journalled_stays(&fake.g));
	put_header();
	fake_lend(text_bytes, agent_data_bytes(&h) + PAGE_SIZE);
	assert_false(remains_journalled_stays(&fake.g));
	/* nothing at all */
	fake_lend(text_bytes, agent_data_bytes(&h));
	piece_of(TEXT)->len = 0;
	assert_false(remains_journalled_stays(&fake.g));
	piece_of(TEXT)->len = sizeof(piece_of(TEXT)->bytes);
	assert_true(remains_journalled_stays(&fake.g));
	/* in memory that the VMM lent, each entry of the page table is looked at */
	assert_int_equal(journal_agent_came(fake.g.journal, 0xffffffff9fa00000, text_bytes,
					    0xffffffff9fc00000, agent_data_bytes(&h), NULL),
			 0);
	assert_true(remains_journalled_stays(&fake.g));
}

static void mailbox(u32 box_state, u64 seq)
{
	memcpy(fake_at(BOX, 4), &box_state, sizeof(box_state));
	memcpy(fake_at(BOX + 56, 8), &seq, sizeof(seq));
}

/* While an agent is loaded it has no header yet: the gate's last call is the proof. */
static void lent_is_there_by_the_mailbox(void **state)
{
	const u64 seq = 0x123456789a;
	const struct {
		u32 state;
		u64 seq;
		bool pending, done;
	} boxes[] = {
		{ 0, 0, false, false }, /* of a time with no gate */
		{ 3, 7, false, false }, /* of another one */
		{ 3, seq - 2, false, false },
		{ 3, seq - 1, true, false }, /* noted, not yet come to */
		{ 0, seq - 1, true, false },
		{ 1, seq - 1, false, false }, /* nothing is noted while a call goes on */
		{ 2, seq - 1, false, false },
		{ 1, seq, true, true },
		{ 3, seq, true, true },
		{ 3, seq + 1, true, true },
		{ 3, seq + 1000, false, false },
	};
	struct journal *j = fake.g.journal;

	(void)state;
	assert_int_equal(journal_mailbox(j, BOX, NULL), 0);
	assert_true(remains_journalled_stays(&fake.g)); /* nothing is lent, nothing asked for */
	for (size_t i = 0; i < ARRAY_SIZE(boxes); i++) {
		mailbox(boxes[i].state, boxes[i].seq);
		assert_int_equal(journal_alloc(j, JOURNAL_AGENT_TEXT, TEXT, 0x3000, NULL), 0);
		assert_int_equal(journal_pending(j, JOURNAL_AGENT_DATA, 0x4000, seq, NULL), 0);
		assert_int_equal(remains_journalled_stays(&fake.g), boxes[i].pending);
		assert_int_equal(journal_alloc(j, JOURNAL_AGENT_DATA, DATA, 0x4000, NULL), 0);
		assert_int_equal(remains_journalled_stays(&fake.g), boxes[i].done);
	}
	/* without a gate that is no proof of anything */
	mailbox(3, seq);
	assert_true(remains_journalled_stays(&fake.g));
	assert_int_equal(journal_mailbox(j, 0, NULL), 0);
	assert_false(remains_journalled_stays(&fake.g));
}

/* A gate that could not be closed: whoever puts call sites back leaves its interlock in until its own are back. */
static void the_gate_keeps_its_interlock(void **state)
{
	struct guest *g = &fake.g;
	struct err err = { 0 };

	(void)state;
	assert_int_equal(journal_mailbox(g->journal, BOX, NULL), 0);
	fake_note(HOOK, LOCK, CAVE + 0x40, JOURNAL_INTERLOCK);
	for (size_t i = 2; i < N_SITES; i++) {
		fake_note(fake_site(i), 0, CAVE, JOURNAL_GATE_SITE);
		fake_call(fake_site(i), CAVE);
	}
	fake_call(HOOK, CAVE + 0x40);
	assert_int_equal(interlock_adopt(g, &err), 0);
	assert_non_null(g->hook);
	/* as at the detach: nothing is armed, the interlock may be all that is left */
	assert_int_equal(ftrace_make_nop(g, NULL, &err), 0);
	assert_int_equal(fake.n_written, 0);
	/* and with sites of its own */
	fake_note(fake_site(0), 0, TEXT, JOURNAL_SITE);
	fake_call(fake_site(0), TEXT);
	assert_int_equal(text_from_journal(g, JOURNAL_SITE, &g->armed, &g->n_armed, &err), 0);
	assert_int_equal(ftrace_make_nop(g, NULL, &err), 0);
	assert_true(fake_at_rest(0));
	assert_true(fake_calls(HOOK, CAVE + 0x40));
	assert_int_equal(fake.n_written, 1);
	assert_int_equal(fake_n_noted(JOURNAL_INTERLOCK), 1);
	/* the gate's own way */
	assert_int_equal(gate_recover(g, &err), 0);
	for (size_t i = 2; i < N_SITES; i++)
		assert_true(fake_at_rest(i) && fake_when(fake_site(i)) < fake_when(HOOK));
	assert_true(fake_calls(HOOK, LOCK));
	assert_null(g->hook);
	assert_false(journal_outstanding(g->journal));
}

static void copy(u8 *to, bool back)
{
	for (size_t i = 0; i < ARRAY_SIZE(fake_pieces); i++) {
		u8 *at_copy = to + i * sizeof(fake_pieces[i].bytes);

		if (back)
			memcpy(fake_pieces[i].bytes, at_copy, sizeof(fake_pieces[i].bytes));
		else
			memcpy(at_copy, fake_pieces[i].bytes, sizeof(fake_pieces[i].bytes));
	}
}

static bool is_as(const u8 *was)
{
	for (size_t i = 0; i < ARRAY_SIZE(fake_pieces); i++) {
		if (memcmp(fake_pieces[i].bytes, was + i * sizeof(fake_pieces[i].bytes),
			   sizeof(fake_pieces[i].bytes)))
			return false;
	}
	return true;
}

/* Memory that was saved while a gate was open, and what the gate was opened in. */
static void open_gate(u8 *clean, u8 *open)
{
	struct gate *gate;
	struct err err = { 0 };

	copy(clean, false);
	assert_int_equal(gate_open(&fake.g, &gate, &err), 0);
	copy(open, false);
	assert_int_equal(gate_close(gate, &err), 0);
	assert_true(is_as(clean));
	assert_false(journal_outstanding(fake.g.journal));
	copy(open, true);
	fake.n_written = 0;
	for (size_t i = 1; i < N_SITES; i++)
		assert_false(fake_at_rest(i));
	assert_false(fake_calls(HOOK, LOCK));
}

static void came(const u8 *clean)
{
	struct err err = { 0 };
	bool found;

	assert_int_equal(gate_came(&fake.g, &found, &err), 0);
	assert_true(found);
	assert_true(journal_outstanding(fake.g.journal));
	assert_int_equal(gate_recover(&fake.g, &err), 0);
	assert_true(is_as(clean));
	assert_false(journal_outstanding(fake.g.journal));
	assert_int_equal(gate_came(&fake.g, &found, &err), 0);
	assert_false(found);
}

/* No journal has it, and it is put back: all of it, or what there is of it. */
static void a_gate_that_came(void **state)
{
	static u8 clean[sizeof(fake_pieces)], open[sizeof(fake_pieces)];
	const u64 alloc = KERNEL + 0x1300, bytes = 0x5000, data = DATA;
	u64 cave;
	size_t n = 0;
	u8 *code;
	struct err err = { 0 };
	bool found;

	(void)state;
	assert_int_equal(gate_came(&fake.g, &found, &err), 0);
	assert_false(found);
	open_gate(clean, open);
	assert_true(insn_call_target(fake_site(1), fake_at(fake_site(1), MCOUNT_INSN_SIZE), &cave));
	came(clean);
	/* taken before its sites were in; with a job that nobody had come by for; its call sites were another's */
	copy(open, true);
	for (size_t i = 1; i < N_SITES; i++)
		memcpy(fake_at(fake_site(i), sizeof(fake_nop)), fake_nop, sizeof(fake_nop));
	mailbox(1, 0x1234567890);
	came(clean);
	copy(open, true);
	fake_call(HOOK, LOCK);
	came(clean);
	/* the guest has lent memory through it, and nobody has noted that */
	copy(open, true);
	mailbox(3, 0x1234567890);
	memcpy(fake_at(BOX + 8, 8), &alloc, 8);
	memcpy(fake_at(BOX + 16, 8), &bytes, 8);
	memcpy(fake_at(BOX + 48, 8), &data, 8);
	assert_int_equal(gate_came(&fake.g, &found, &err), 0);
	assert_true(found && remains_journalled_stays(&fake.g));
	assert_int_equal(gate_recover(&fake.g, &err), 0);
	assert_true(is_as(clean));
	assert_int_equal(journal_state(fake.g.journal)->alloc[JOURNAL_AGENT_DATA], DATA);
	assert_int_equal(journal_state(fake.g.journal)->alloc_bytes[JOURNAL_AGENT_DATA], bytes);
	assert_int_equal(journal_freed(fake.g.journal, JOURNAL_AGENT_DATA, &err), 0);
	/* one byte, and it is not a gate of ours */
	copy(open, true);
	code = fake_at(cave, 1);
	for (size_t i = 0; i < PAGE_SIZE - (cave & ~PAGE_MASK); i++) {
		if (!code[i]) /* as is the padding */
			continue;
		n++;
		code[i] ^= 0x55;
		assert_int_equal(gate_came(&fake.g, &found, &err), 0);
		assert_false(found);
		code[i] ^= 0x55;
	}
	assert_true(n > 200);
	/* nor is it known what was there, where something else is around it */
	*fake_at((cave | ~PAGE_MASK) - 3, 1) ^= 0x55;
	assert_int_equal(gate_came(&fake.g, &found, &err), 0);
	assert_false(found);
}

/* A gate that the journal has, and call sites that led to it at another time. */
static void more_gate_sites_than_the_journal_has(void **state)
{
	static u8 clean[sizeof(fake_pieces)], open[sizeof(fake_pieces)];
	struct err err = { 0 };
	u64 cave;

	(void)state;
	open_gate(clean, open);
	assert_true(insn_call_target(fake_site(1), fake_at(fake_site(1), MCOUNT_INSN_SIZE), &cave));
	assert_int_equal(journal_mailbox(fake.g.journal, BOX, NULL), 0);
	fake_note(fake_site(2), 0, cave, JOURNAL_GATE_SITE);
	assert_int_equal(gate_recover(&fake.g, &err), 0);
	assert_true(is_as(clean));
	assert_false(journal_outstanding(fake.g.journal));
	/* the code last of all text, and the hook after the sites */
	for (size_t i = 1; i < N_SITES; i++)
		assert_true(fake_when(fake_site(i)) < fake_when(HOOK));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(sites_that_no_journal_has, fake_setup,
						fake_teardown),
		cmocka_unit_test_setup_teardown(a_hook_that_no_journal_has, fake_setup,
						fake_teardown),
		cmocka_unit_test_setup_teardown(lent_is_there_by_its_header, fake_setup,
						fake_teardown),
		cmocka_unit_test_setup_teardown(lent_is_there_by_the_mailbox, fake_setup,
						fake_teardown),
		cmocka_unit_test_setup_teardown(the_gate_keeps_its_interlock, fake_setup,
						fake_teardown),
		cmocka_unit_test_setup_teardown(a_gate_that_came, fake_setup, fake_teardown),
		cmocka_unit_test_setup_teardown(more_gate_sites_than_the_journal_has, fake_setup,
						fake_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
