// SPDX-License-Identifier: Apache-2.0
/* An agent is known by its text, with what is linked in left out, and by nothing less. */
#include "patcher/remains.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEXT 0xffffffffc0400000ull
#define DATA 0xffffffffc0800000ull

/* As agent_link() leaves it; the trampolines behind do not matter. */
static u8 *linked(u32 nr_frames, u64 thunk, s64 task_off)
{
	struct agent_header h = { .nr_cpus = 4,
				  .ring_slots = 4096,
				  .nr_frames = nr_frames,
				  .site_slots = 1024,
				  .task_slots = 16 };
	const struct agent_blob *blob = agent_blob_get();
	agent_s64 v[AGENT_FIX_MAX] = { 0 };
	u8 *text;

	assert_int_equal(agent_layout(&h), 0);
	h.text = TEXT;
	h.data = DATA;
	for (int i = 0; i < AGENT_FIX_MAX; i++)
		v[i] = task_off;
	v[AGENT_FIX_RETURN] = (agent_s64)thunk;
	v[AGENT_FIX_CALL_STACK] = v[AGENT_FIX_CALL_COPY] = (agent_s64)thunk;
	v[AGENT_FIX_CALL_STRNCPY] = 0;
	text = malloc(agent_text_bytes(&h));
	assert_non_null(text);
	memcpy(text, blob->text, blob->text_bytes);
	assert_int_equal(agent_link(blob, &h, v, text), 0);
	return text;
}

static void known_however_it_was_linked(void **state)
{
	const struct agent_blob *blob = agent_blob_get();
	u8 *a = linked(4096, 0, 0x500), *b = linked(65536, TEXT + 0x100000, 0x9c8);

	(void)state;
	assert_true(remains_is_agent(a, blob->text_bytes));
	assert_true(remains_is_agent(b, blob->text_bytes));
	/* the tracer that is on, and function_graph */
	memset(b + blob->ftrace_call, 0xe9, 5);
	memset(b + blob->ftrace_graph_call, 0xe9, 5);
	assert_true(remains_is_agent(b, blob->text_bytes));
	assert_false(remains_is_agent(b, blob->text_bytes - 1));
	free(a);
	free(b);
}

/* Any other byte makes it something else: another version, or the guest's own. */
static void one_byte_is_enough(void **state)
{
	const struct agent_blob *blob = agent_blob_get();
	u8 *text = linked(4096, TEXT + 0x100000, 0x500);
	u32 n_free = 0;

	(void)state;
	for (u32 i = 0; i < blob->text_bytes; i++) {
		text[i] ^= 0x55;
		n_free += remains_is_agent(text, blob->text_bytes);
		text[i] ^= 0x55;
	}
	assert_true(remains_is_agent(text, blob->text_bytes));
	assert_true(n_free > 0);
	assert_true(n_free <= blob->n_fixups * 5 + 10);
	memset(text, 0, blob->text_bytes);
	assert_false(remains_is_agent(text, blob->text_bytes));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_however_it_was_linked),
		cmocka_unit_test(one_byte_is_enough),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
