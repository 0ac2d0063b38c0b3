// SPDX-License-Identifier: Apache-2.0
/* The blob is what link.c and the patcher take it for, and agent_link() refuses what cannot be. */
#include "guest-agent/agent_abi.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TEXT_MAX (AGENT_TEXT_BYTES + 32768)
#define TEXT_VA  0xffffffffc0100000ull
#define DATA_VA  0xffffffffc0300000ull

static agent_u8 text[TEXT_MAX];

static struct agent_header header(void)
{
	struct agent_header h = { .nr_cpus = 2,
				  .ring_slots = 131072,
				  .nr_frames = 4096,
				  .text = TEXT_VA,
				  .data = DATA_VA };

	assert_int_equal(agent_layout(&h), 0);
	return h;
}

/* As on a 6.1 kernel. */
static const agent_s64 *values(void)
{
	static agent_s64 v[AGENT_FIX_MAX];

	memset(v, 0, sizeof(v));
	v[AGENT_FIX_GS_CURRENT] = 0x1fbc0;
	v[AGENT_FIX_GS_CPU] = 0x1fb08;
	v[AGENT_FIX_GS_PREEMPT] = 0x1fb10;
	v[AGENT_FIX_TASK_PID] = 0x9d0;
	v[AGENT_FIX_TASK_TGID] = 0x9d4;
	v[AGENT_FIX_TASK_COMM] = 0xbc0;
	v[AGENT_FIX_TASK_MIGRATE] = 0x3fc;
	v[AGENT_FIX_TASK_START] = 0xa40;
	v[AGENT_FIX_CALL_STACK] = (agent_s64)0xffffffff81190480;
	v[AGENT_FIX_CALL_COPY] = (agent_s64)0xffffffff812a1cd0;
	return v;
}

static int link_with(const struct agent_header *h, const agent_s64 *v)
{
	const struct agent_blob *b = agent_blob_get();

	assert_true(agent_text_bytes(h) <= sizeof(text));
	memcpy(text, b->text, b->text_bytes);
	return agent_link(b, h, v, text);
}

static int field(agent_u32 off)
{
	int v;

	memcpy(&v, text + off, sizeof(v));
	return v;
}

static void symbols_are_what_they_say(void **state)
{
	static const agent_u8 nop5[] = { 0x0f, 0x1f, 0x44, 0x00, 0x00 };
	const struct agent_blob *b = agent_blob_get();
	int rel;

	(void)state;
	assert_int_equal(b->text[b->ftrace_call], 0xe9);
	memcpy(&rel, b->text + b->ftrace_call + 1, 4);
	assert_int_equal((int)b->ftrace_call + 5 + rel, b->ftrace_stub);
	/* One aligned word holds the whole instruction: it can be changed with one store. */
	assert_true(b->ftrace_call % 8 <= 3 && b->ftrace_graph_call % 8 <= 3);
	assert_int_equal(b->ftrace_call, b->ftrace_graph_call + 5);
	assert_memory_equal(b->text + b->ftrace_graph_call, nop5, 5);
	assert_int_equal(b->text[b->ftrace_stub], 0xc3);
	assert_true(b->function_trace_call > b->ftrace_stub);
	assert_true(b->function_trace_call < b->text_bytes);
	assert_true(b->ftrace_caller <= b->ftrace_call);
	assert_true(b->function_full_call > b->function_trace_call);
	assert_true(b->graph_full_caller > b->ftrace_graph_caller);
	assert_true(b->graph_full_caller < b->text_bytes && b->function_full_call < b->text_bytes);
	/* a static mcount's: one aligned word, to the stub at rest */
	assert_int_equal(b->text[b->mcount_call], 0xe9);
	memcpy(&rel, b->text + b->mcount_call + 1, 4);
	assert_int_equal((int)b->mcount_call + 5 + rel, b->ftrace_stub);
	assert_true(b->mcount_call % 8 <= 3 && b->mcount_caller == b->mcount_call);
	assert_true(b->mcount_trace_call > b->mcount_call && b->mcount_trace_call < b->text_bytes);
}

/*
 * A missing lock shows only when two CPUs are in the agent at once, which a busy machine may not
 * have happen. No other instruction of the agent contains these bytes.
 */
static void shared_words_are_locked(void **state)
{
	static const struct {
		agent_u8 bytes[4];
		size_t len;
	} ops[] = {
		{ { 0x48, 0x0f, 0xb1 }, 3 }, /* cmpxchg of head */
		{ { 0x48, 0x0f, 0xc1 }, 3 }, /* xadd of head */
		{ { 0x48, 0xff, 0x41, 0x08 }, 4 }, /* inc of lost(%rcx) */
		{ { 0x48, 0xff, 0x05 }, 3 }, /* inc of lost_nocpu(%rip) */
	};
	const struct agent_blob *b = agent_blob_get();

	(void)state;
	for (size_t op = 0; op < sizeof(ops) / sizeof(ops[0]); op++) {
		unsigned int n = 0;

		for (agent_u32 i = 1; i + ops[op].len <= b->text_bytes; i++) {
			if (memcmp(b->text + i, ops[op].bytes, ops[op].len) != 0)
				continue;
			assert_int_equal(b->text[i - 1], 0xf0);
			n++;
		}
		assert_true(n > 0);
	}
	/* with any register: what the compiler made of the C too */
	for (agent_u32 i = 2; i + 2 <= b->text_bytes; i++) {
		const agent_u8 *p = b->text + i;

		if (p[0] == 0x0f && (p[1] == 0xb1 || p[1] == 0xc1) && (p[-1] & 0xf8) == 0x48)
			assert_int_equal(p[-2], 0xf0);
	}
}

static void fixups_are_filled(void **state)
{
	const struct agent_blob *b = agent_blob_get();
	struct agent_header h = header();
	const agent_s64 *v = values();
	unsigned int seen = 0;

	(void)state;
	assert_int_equal(link_with(&h, v), 0);
	for (agent_u32 i = 0; i < b->n_fixups; i++) {
		const struct agent_fixup *f = &b->fixups[i];
		agent_u64 next = TEXT_VA + f->off + 4 + f->tail;

		seen |= 1u << f->kind;
		if (f->kind == AGENT_FIX_DATA)
			assert_true(next + (agent_u64)(agent_s64)field(f->off) ==
				    DATA_VA + f->addend);
		else if (f->kind == AGENT_FIX_RING)
			assert_true(next + (agent_u64)(agent_s64)field(f->off) ==
				    DATA_VA + h.ring_off);
		else if (f->kind <= AGENT_FIX_TASK_MIGRATE)
			assert_int_equal(field(f->off), v[f->kind] + f->addend);
		else if (f->kind == AGENT_FIX_RETURN)
			assert_int_equal(text[f->off - 1], 0xc3);
		else if (f->kind == AGENT_FIX_RING_SHIFT)
			assert_int_equal(text[f->off], 17);
		else if (f->kind == AGENT_FIX_CALL_STRNCPY) /* the guest has none: -1 */
			assert_memory_equal(text + f->off - 1, "\x48\x83\xc8\xff\x90", 5);
		else if (f->kind >= AGENT_FIX_CALL_STACK)
			assert_true(text[f->off - 1] == 0xe8 &&
				    next + (agent_u64)(agent_s64)field(f->off) ==
					    (agent_u64)v[f->kind]);
	}
	assert_int_equal(seen, (1u << AGENT_FIX_MAX) - 1);
	for (agent_u32 i = 0; i + 4 <= b->text_bytes; i++)
		assert_int_not_equal(field(i), 0x11223344); /* none was forgotten */
}

static void return_goes_through_the_thunk(void **state)
{
	const struct agent_blob *b = agent_blob_get();
	const agent_u64 thunk = 0xffffffff82001480ull;
	struct agent_header h = header();
	agent_s64 v[AGENT_FIX_MAX];
	agent_u32 n = 0;

	(void)state;
	memcpy(v, values(), sizeof(v));
	v[AGENT_FIX_RETURN] = (agent_s64)thunk;
	assert_int_equal(link_with(&h, v), 0);
	for (agent_u32 i = 0; i < b->n_fixups; i++) {
		agent_u32 off = b->fixups[i].off;

		if (b->fixups[i].kind != AGENT_FIX_RETURN)
			continue;
		assert_int_equal(text[off - 1], 0xe9);
		assert_true(TEXT_VA + off + 4 + (agent_u64)(agent_s64)field(off) == thunk);
		n++;
	}
	assert_true(n >= 4);
}

static void out_of_reach(void **state)
{
	struct agent_header h = header();
	agent_s64 v[AGENT_FIX_MAX];

	(void)state;
	h.data = TEXT_VA - 0x7fff0000ull;
	assert_int_equal(link_with(&h, values()), 0);
	h.data = TEXT_VA - 0x80001000ull;
	assert_int_equal(link_with(&h, values()), -ERANGE);
	h.data = 0xffff888000000000ull; /* the direct map */
	assert_int_equal(link_with(&h, values()), -ERANGE);
	h.data = DATA_VA;
	memcpy(v, values(), sizeof(v));
	v[AGENT_FIX_GS_CPU] = -0x7f000000ll; /* per-CPU symbols of 6.15 */
	assert_int_equal(link_with(&h, v), 0);
	v[AGENT_FIX_GS_CPU] = 0x80000000ll;
	assert_int_equal(link_with(&h, v), -ERANGE);
	memcpy(v, values(), sizeof(v));
	v[AGENT_FIX_RETURN] = (agent_s64)0xffff888000001000ull;
	assert_int_equal(link_with(&h, v), -ERANGE);
}

static void nonsense_is_refused(void **state)
{
	struct agent_header h = header();
	agent_s64 v[AGENT_FIX_MAX];

	(void)state;
	memcpy(v, values(), sizeof(v));
	v[AGENT_FIX_TASK_PID] = -1;
	assert_int_equal(link_with(&h, v), -EINVAL);
	v[AGENT_FIX_TASK_PID] = 1 << 20;
	assert_int_equal(link_with(&h, v), -EINVAL);
	h.ring_off += 4096;
	assert_int_equal(link_with(&h, values()), -EINVAL);
	h = header();
	h.abi_version++;
	assert_int_equal(link_with(&h, values()), -EINVAL);
	h = header();
	assert_int_equal(link_with(&h, values()), 0);
	/* a second time: the fields are not what they were */
	assert_int_equal(agent_link(agent_blob_get(), &h, values(), text), -EINVAL);
}

static void layout_has_bounds(void **state)
{
	static const struct {
		agent_u32 cpus, slots;
		int r;
	} cases[] = {
		{ 1, 64, 0 },
		{ 0, 64, -EINVAL },
		{ 1, 32, -EINVAL },
		{ 1, 100, -EINVAL },
		{ 8192, 0x4000000, 0 },
		{ 8193, 64, -EINVAL },
		{ 1, 0x8000000, -EINVAL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct agent_header h = { .nr_cpus = cases[i].cpus,
					  .ring_slots = cases[i].slots,
					  .nr_frames = 64 };
		agent_u64 rings = (agent_u64)h.nr_cpus * h.ring_slots * AGENT_RECORD_BYTES;

		assert_int_equal(agent_layout(&h), cases[i].r);
		if (cases[i].r)
			continue;
		assert_true(h.ring_off >= AGENT_CPU_OFF + h.nr_cpus * AGENT_CPU_BYTES);
		assert_int_equal(h.ring_off % 4096, 0);
		assert_int_equal(agent_data_bytes(&h) % 4096, 0);
		assert_true(agent_data_bytes(&h) >= h.ring_off + rings);
	}
}

/* Either table may be missing; else it is a power of two, and lies behind the rest. */
static void tables_have_bounds(void **state)
{
	static const struct {
		agent_u32 sites, tasks;
		int r;
	} cases[] = {
		{ 0, 0, 0 },
		{ 64, 0, 0 },
		{ 0, 8, 0 },
		{ 131072, 32768, 0 },
		{ 32, 8, -EINVAL },
		{ 96, 8, -EINVAL },
		{ 64, 4, -EINVAL },
		{ 64, 24, -EINVAL },
		{ 1u << 25, 8, -EINVAL },
		{ 64, 1u << 21, -EINVAL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct agent_header h = header();

		h.site_slots = cases[i].sites;
		h.task_slots = cases[i].tasks;
		assert_int_equal(agent_layout(&h), cases[i].r);
		if (cases[i].r)
			continue;
		assert_true(h.sites_off == h.reclaim_off + h.nr_frames * 4ull);
		assert_true(h.tasks_off == h.sites_off + h.site_slots * 8ull);
		assert_int_equal(h.tasks_off % 64, 0); /* a bucket is one cache line */
		assert_true(agent_data_bytes(&h) >= h.tasks_off + h.task_slots * 8ull);
		h.tasks_off += 64;
		assert_int_equal(link_with(&h, values()), -EINVAL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(symbols_are_what_they_say),
		cmocka_unit_test(shared_words_are_locked),
		cmocka_unit_test(fixups_are_filled),
		cmocka_unit_test(return_goes_through_the_thunk),
		cmocka_unit_test(out_of_reach),
		cmocka_unit_test(nonsense_is_refused),
		cmocka_unit_test(layout_has_bounds),
		cmocka_unit_test(tables_have_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
