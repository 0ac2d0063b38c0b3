// SPDX-License-Identifier: Apache-2.0
/*
 * What the host has written is written by the guest before anything goes that a copy of its memory may lead to: which
 * pages and cells, in which order, and what stays when it cannot be. A task of the guest's is played here.
 */
#include "patcher/rewrite.h"

#include "guest-agent/agent_abi.h"
#include "patcher/agent.h"
#include "patcher/frames.h"
#include "patcher/ftrace.h"
#include "patcher/gate_priv.h"
#include "patcher/graph.h"
#include "patcher/interlock.h"
#include "patcher/text.h"
#include "test_patcher_fake.h"
#include "test_patcher_task.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BITS_BYTES 65536u
#define DATA_BYTES (2u << 20)

/* The linker has these called instead: see CMakeLists.txt. */
int __wrap_vm_view_read(struct vm_view *view, u64 off, void *buf, size_t len);
int __wrap_vm_view_write(struct vm_view *view, u64 off, const void *buf, size_t len);
void __wrap_vm_view_destroy(struct vm_view *view);
bool __wrap_agent_is_in_view(const struct guest *g);
u32 __wrap_graph_cells(struct guest *g, const struct frames_cell **ret);
void __wrap_graph_forget_cells(struct guest *g);
int __wrap_graph_unload(struct guest *g, struct err *err);
int __wrap_callers_let_go(struct guest *g, struct err *err);

static struct {
	u64 fails_at; /* writing there into the agent's data fails */
	u8 data[DATA_BYTES];
	struct frames_cell cells[70000];
	u32 n_cells, forgotten;
} t;

int __wrap_vm_view_read(struct vm_view *view, u64 off, void *buf, size_t len)
{
	(void)view;
	memcpy(buf, t.data + off, len);
	return 0;
}

int __wrap_vm_view_write(struct vm_view *view, u64 off, const void *buf, size_t len)
{
	(void)view;
	assert_true(off + len <= sizeof(t.data));
	if (t.fails_at && off == t.fails_at)
		return -EFAULT;
	memcpy(t.data + off, buf, len);
	return 0;
}

void __wrap_vm_view_destroy(struct vm_view *view)
{
	(void)view;
}

bool __wrap_agent_is_in_view(const struct guest *g)
{
	(void)g;
	return true;
}

u32 __wrap_graph_cells(struct guest *g, const struct frames_cell **ret)
{
	(void)g;
	*ret = t.cells;
	return t.n_cells;
}

void __wrap_graph_forget_cells(struct guest *g)
{
	(void)g;
	t.n_cells = 0;
	t.forgotten++;
}

int __wrap_graph_unload(struct guest *g, struct err *err)
{
	(void)g;
	(void)err;
	return 0;
}

int __wrap_callers_let_go(struct guest *g, struct err *err)
{
	(void)g;
	(void)err;
	return 0;
}

static int setup(void **state)
{
	int rc = fake_setup(state);
	struct agent_header *h = &fake.g.agent.header;

	memset(&t, 0, sizeof(t));
	task_setup();
	fake.g.rewrite = true;
	*h = (struct agent_header){ .nr_cpus = 1,
				    .ring_slots = AGENT_MIN_SLOTS,
				    .nr_frames = 4096,
				    .site_slots = AGENT_MIN_SITES,
				    .task_slots = 1024 };
	assert_int_equal(agent_layout(h), 0);
	fake.g.agent.text = TEXT;
	fake.g.agent.text_bytes = 0x3000;
	fake.g.agent.data = DATA;
	fake.g.agent.data_bytes = agent_data_bytes(h);
	assert_true(agent_data_bytes(h) <= sizeof(t.data));
	fake.g.agent.view = (struct vm_view *)(void *)&t;
	return rc;
}

static int teardown(void **state)
{
	rewrite_forget(&fake.g);
	return fake_teardown(state);
}

/* Where nothing of that is needed there is less code, and no call. */
static void a_gate_of_another_guest(void **state)
{
	struct gate *gate;
	struct err err = { 0 };

	(void)state;
	fake.g.rewrite = false;
	assert_int_equal(gate_open(&fake.g, &gate, &err), 0);
	assert_int_equal(gate_again(gate), 0);
	assert_int_equal(gate_cells(gate), 0);
	assert_int_equal(*fake_at(task.cave + 192 + INTERLOCK_BYTES, 1), 0);
	rewrite_note(&fake.g, fake_site(0));
	assert_int_equal(rewrite_put_back(gate, &fake.g, &err), 0);
	assert_int_equal(gate_close(gate, &err), 0);
	assert_int_equal(task.n_calls, 0);
}

/* What a guest brings along that was copied just after a gate was closed; not what another tracer has there. */
static void a_mailbox_that_was_left(void **state)
{
	struct box *box = (struct box *)(void *)fake_at(BOX, sizeof(*box));
	const u64 seq = 0x123456789a;
	const struct box left = { .state = 3, .fn = KERNEL + 0x1600, .seq = seq, .closing = 2 };
	const struct box others[] = {
		{ .state = 1, .fn = KERNEL, .seq = seq },
		{ .state = 2, .inside = 1, .fn = KERNEL, .seq = seq },
		{ .state = 3, .inside = 1, .fn = KERNEL, .seq = seq },
		{ .state = 3, .fn = 0x1234, .seq = seq },
		{ .state = 3, .fn = KERNEL },
	};
	struct gate *gate, *second;
	struct err err = { 0 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		*box = others[i];
		assert_int_equal(gate_open(&fake.g, &gate, &err), -EBUSY);
	}
	*box = left;
	assert_int_equal(gate_open(&fake.g, &gate, &err), 0);
	*box = left; /* as another daemon would see it */
	assert_int_equal(gate_open(&fake.g, &second, &err), -EBUSY);
	assert_int_equal(gate_close(gate, &err), 0);
	assert_int_equal(box->fn + box->seq, 0);
	assert_false(journal_outstanding(fake.g.journal));
}

static size_t n_bits(void)
{
	const u8 *b = t.data + fake.g.agent.header.followed_off + BITS_BYTES;
	size_t n = 0;

	for (size_t i = 0; i < BITS_BYTES; i++)
		n += (size_t)__builtin_popcount(b[i]);
	return n;
}

static bool bit(u64 addr)
{
	u64 page = (addr & 0x7fffffff) / PAGE_SIZE;

	return t.data[fake.g.agent.header.followed_off + BITS_BYTES + page / 8] >> page % 8 & 1;
}

static void pages_and_cells(void **state)
{
	const u64 off = fake.g.agent.header.followed_off;
	struct gate *gate;
	struct err err = { 0 };

	(void)state;
	assert_int_equal(gate_open(&fake.g, &gate, &err), 0);
	task.n_calls = 0;
	assert_int_equal(rewrite_put_back(gate, &fake.g, &err), 0);
	assert_int_equal(task.n_calls, 0); /* nothing was put back */
	rewrite_note(&fake.g, KERNEL + 0x10);
	rewrite_note(&fake.g, KERNEL + 0x18);
	rewrite_note(&fake.g, KERNEL + 0x2ffd); /* on two pages */
	rewrite_note(&fake.g, 0xffffffffc0001000);
	rewrite_note(&fake.g, 0xffff888000000000); /* no text */
	t.n_cells = 30000;
	for (u32 i = 0; i < t.n_cells; i++)
		t.cells[i] = (struct frames_cell){ 0xffffc90000000000 + i * 8, i };
	assert_int_equal(rewrite_put_back(gate, &fake.g, &err), 0);
	assert_int_equal(n_bits(), 4);
	assert_true(bit(KERNEL) && bit(KERNEL + 0x2000) && bit(KERNEL + 0x3000));
	assert_true(bit(0xffffffffc0001000));
	assert_int_equal(task.n_calls, 3);
	assert_int_equal(task.call[0].fn, task_again());
	assert_int_equal(task.call[0].args[0], DATA + off + BITS_BYTES);
	/* as many at once as there is room for */
	assert_int_equal(task.call[1].fn, interlock_cells_addr(task.cave + 192));
	assert_int_equal(task.call[1].args[0], DATA + off + 2 * BITS_BYTES);
	assert_int_equal(task.call[1].args[1] + task.call[2].args[1], 30000);
	assert_memory_equal(t.data + off + 2 * BITS_BYTES, t.cells + task.call[1].args[1],
			    task.call[2].args[1] * sizeof(*t.cells));
	assert_int_equal(t.forgotten, 1);
	/* that was it; but what an earlier daemon put back is not known */
	task.n_calls = 0;
	assert_int_equal(rewrite_put_back(gate, &fake.g, &err), 0);
	assert_int_equal(task.n_calls, 0);
	rewrite_note_any(&fake.g);
	assert_int_equal(rewrite_put_back(gate, &fake.g, &err), 0);
	assert_int_equal(n_bits(), BITS_BYTES * 8);
	/* a VMM that can be asked says that nothing is being copied */
	rewrite_note(&fake.g, KERNEL);
	rewrite_note_any(&fake.g);
	rewrite_settled(&fake.g);
	task.n_calls = 0;
	assert_int_equal(rewrite_put_back(gate, &fake.g, &err), 0);
	assert_int_equal(task.n_calls, 0);
	assert_int_equal(gate_close(gate, &err), 0);
}

static void sites_that_were_put_back(void **state)
{
	struct guest *g = &fake.g;
	struct gate *gate;
	struct err err = { 0 };

	(void)state;
	fake_note(fake_site(0), 0, TEXT + 0x10, JOURNAL_SITE);
	fake_call(fake_site(0), TEXT + 0x10);
	assert_int_equal(text_from_journal(g, JOURNAL_SITE, &g->armed, &g->n_armed, &err), 0);
	assert_int_equal(ftrace_make_nop(g, NULL, &err), 0);
	assert_int_equal(gate_open(g, &gate, &err), 0);
	assert_int_equal(rewrite_put_back(gate, g, &err), 0);
	assert_int_equal(n_bits(), 1);
	assert_true(bit(fake_site(0)));
	assert_int_equal(gate_close(gate, &err), 0);
}

/* All that was filled in, and none of the rings; a VMM that says that nothing is being copied needs nothing. */
static void memory_lent(void **state)
{
	const struct agent_header *h = &fake.g.agent.header;
	struct gate *gate;
	struct err err = { 0 };

	(void)state;
	assert_int_equal(gate_open(&fake.g, &gate, &err), 0);
	task.n_calls = 0;
	assert_int_equal(rewrite_lent(gate, &fake.g, &err), 0);
	assert_int_equal(task.n_calls, 3);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(task.call[i].args[0], task.call[i].args[1]);
	assert_int_equal(task.call[0].args[0], DATA);
	assert_int_equal(task.call[0].args[2], h->ring_off);
	assert_int_equal(task.call[1].args[0] + task.call[1].args[2], DATA + agent_data_bytes(h));
	assert_int_equal(task.call[1].args[0], DATA + h->frames_off);
	assert_int_equal(task.call[2].args[0], TEXT);
	assert_int_equal(task.call[2].args[2], 0x3000);
	task.tells = true;
	assert_int_equal(rewrite_lent(gate, &fake.g, &err), 0);
	assert_int_equal(task.n_calls, 3);
	task.leaves = -EBUSY;
	assert_int_equal(rewrite_lent(gate, &fake.g, &err), -EBUSY);
	task.leaves = 0;
	assert_int_equal(gate_close(gate, &err), 0);
}

/* Cells whose frames are about to be used again. */
static void returns_alone(void **state)
{
	struct err err = { 0 };

	(void)state;
	assert_int_equal(rewrite_returns(&fake.g, &err), 0);
	assert_int_equal(task.n_calls, 0);
	t.n_cells = 3;
	assert_int_equal(rewrite_returns(&fake.g, &err), 0);
	assert_int_equal(task.n_calls, 3); /* the gate's own around it */
	assert_int_equal(task.call[1].args[1], 3);
	assert_false(journal_outstanding(fake.g.journal));
}

/* What sites and cells lead to is given back after they were written; if they were not, it stays, and is noted. */
static void an_agent_is_let_go(void **state)
{
	const u64 free_fn = KERNEL + 0x1600;
	struct err err = { 0 };
	size_t n_free = 0, i;

	(void)state;
	fake_lend(0x3000, fake.g.agent.data_bytes);
	rewrite_note(&fake.g, fake_site(0));
	t.n_cells = 1;
	assert_int_equal(agent_unload(&fake.g, &err), 0);
	for (i = 0; i < task.n_calls; i++) {
		if (task.call[i].fn == free_fn)
			n_free++;
		if (task.call[i].fn == task_again() && task.call[i].args[0] > DATA)
			assert_int_equal(n_free, 0);
	}
	assert_int_equal(n_free, 2);
	assert_int_equal(t.forgotten, 1);
	assert_false(journal_outstanding(fake.g.journal));
}

static void one_that_cannot_be_let_go(void **state)
{
	struct err err = { 0 };

	(void)state;
	fake_lend(0x3000, fake.g.agent.data_bytes);
	t.n_cells = 1;
	t.fails_at = fake.g.agent.header.followed_off + 2 * BITS_BYTES;
	assert_int_equal(agent_unload(&fake.g, &err), -EFAULT);
	assert_true(fake_calls(HOOK, LOCK) && !task_any_leads_here());
	for (size_t i = 0; i < task.n_calls; i++)
		assert_true(task.call[i].fn != KERNEL + 0x1600);
	assert_int_equal(journal_state(fake.g.journal)->alloc[JOURNAL_AGENT_TEXT], TEXT);
	assert_int_equal(journal_state(fake.g.journal)->alloc[JOURNAL_AGENT_DATA], DATA);
	assert_int_equal(t.n_cells, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_gate_of_another_guest, setup, teardown),
		cmocka_unit_test_setup_teardown(a_mailbox_that_was_left, setup, teardown),
		cmocka_unit_test_setup_teardown(pages_and_cells, setup, teardown),
		cmocka_unit_test_setup_teardown(sites_that_were_put_back, setup, teardown),
		cmocka_unit_test_setup_teardown(memory_lent, setup, teardown),
		cmocka_unit_test_setup_teardown(returns_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(an_agent_is_let_go, setup, teardown),
		cmocka_unit_test_setup_teardown(one_that_cannot_be_let_go, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
