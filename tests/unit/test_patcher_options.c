// SPDX-License-Identifier: Apache-2.0
/* Options of a trace in the agent's terms: the plain path where nothing needs more, tables that hold. */
#include "patcher/options.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ARGS(n) ((u32)(n) << AGENT_SITE_ARGS_SHIFT)
#define IP      0x81000000u

static u64 ip_of(void *arg, size_t i)
{
	(void)arg;
	return 0xffffffff00000000ull | (IP + 16 * i);
}

static const struct site_ips ten = { ip_of, NULL, 10 }, five = { ip_of, NULL, 5 };

static struct agent_header header(u32 site_slots)
{
	struct agent_header h = { .nr_cpus = 2,
				  .ring_slots = 1024,
				  .nr_frames = 64,
				  .site_slots = site_slots,
				  .task_slots = 16 };

	assert_int_equal(agent_layout(&h), 0);
	return h;
}

/* As the agent looks it up. */
static u32 what_of(const struct agent_header *h, const struct agent_site *table, u32 ip)
{
	u32 at = agent_site_slot(h, ip);

	for (u32 n = 0; n < AGENT_SITE_PROBES; n++) {
		const struct agent_site *s = &table[(at + n) & (h->site_slots - 1)];

		if (s->ip == ip)
			return s->what;
		if (!s->ip)
			return 0;
	}
	return 0;
}

static u32 options_of(struct tracing_opts o)
{
	struct agent_header h = { .options = ~0u, .max_depth = 9, .threshold = 9 };

	options_header(&o, &h);
	assert_int_equal(h.max_depth, o.graph ? o.max_depth : 0);
	assert_int_equal(h.threshold, o.graph ? o.threshold : 0);
	return h.options;
}

static void only_what_is_needed(void **state)
{
	const u32 full = AGENT_OPT_FULL, tasks = AGENT_OPT_FULL | AGENT_OPT_TASKS;
	const struct tracing_site args = { 1, ARGS(2) }, notrace = { 1, AGENT_SITE_NOTRACE },
				  retval = { 1, AGENT_SITE_RETVAL },
				  stack = { 1, AGENT_SITE_STACK };

	(void)state;
	assert_int_equal(options_of((struct tracing_opts){ .graph = true }), 0);
	assert_int_equal(options_of((struct tracing_opts){ .n_pids = 1 }), 0);
	assert_int_equal(options_of((struct tracing_opts){ .graph = true, .max_depth = 1 }), tasks);
	assert_int_equal(options_of((struct tracing_opts){ .graph = true, .threshold = 1 }), tasks);
	assert_int_equal(options_of((struct tracing_opts){ .graph = true, .roots = true }),
			 tasks | AGENT_OPT_ROOTS);
	assert_int_equal(options_of((struct tracing_opts){ .graph = true, .no_irqs = true }),
			 full | AGENT_OPT_NO_IRQS);
	assert_int_equal(options_of((struct tracing_opts){ .switches = true }),
			 full | AGENT_OPT_SWITCHES);
	assert_int_equal(
		options_of((struct tracing_opts){ .graph = true, .sites = &notrace, .n_sites = 1 }),
		tasks);
	assert_int_equal(
		options_of((struct tracing_opts){ .graph = true, .sites = &retval, .n_sites = 1 }),
		full);
	/* unwound with the true returns of the task's calls, also once the trace is turned over */
	for (u32 graph = 0; graph < 2; graph++)
		assert_int_equal(options_of((struct tracing_opts){
					 .graph = graph, .sites = &stack, .n_sites = 1 }),
				 tasks | AGENT_OPT_STACKS);
	for (u32 graph = 0; graph < 2; graph++)
		assert_int_equal(options_of((struct tracing_opts){
					 .graph = graph, .sites = &args, .n_sites = 1 }),
				 full);
	/* what only function_graph has does not slow the function tracer down */
	assert_int_equal(options_of((struct tracing_opts){ .max_depth = 1,
							   .threshold = 1,
							   .roots = true,
							   .no_irqs = true,
							   .sites = &notrace,
							   .n_sites = 1 }),
			 0);
}

static void sites_are_found(void **state)
{
	struct agent_header h = header(64);
	struct agent_site table[64];
	const struct tracing_site sites[] = {
		{ 3, AGENT_SITE_ROOT },
		{ 5, ARGS(6) | AGENT_SITE_RETVAL },
		{ 3, ARGS(2) },
	};
	struct tracing_opts o = { .graph = true, .sites = sites, .n_sites = 3 };

	(void)state;
	assert_int_equal(options_sites(&o, &h, &ten, 5, table), 0);
	assert_int_equal(what_of(&h, table, IP + 48), AGENT_SITE_ROOT | ARGS(2));
	assert_int_equal(what_of(&h, table, IP + 80),
			 ARGS(6) | AGENT_SITE_RETVAL | AGENT_SITE_SWITCH | AGENT_SITE_HIDDEN);
	assert_int_equal(what_of(&h, table, IP), 0);
	o.graph = false;
	assert_int_equal(options_sites(&o, &h, &ten, SIZE_MAX, table), 0);
	assert_int_equal(what_of(&h, table, IP + 48), ARGS(2));
	assert_int_equal(what_of(&h, table, IP + 80), ARGS(6));
	assert_int_equal(options_sites(&o, &h, &five, SIZE_MAX, table), -EINVAL);
}

static void nonsense_is_refused(void **state)
{
	struct agent_header h = header(64);
	struct agent_site table[64];
	static const u32 bad[] = { AGENT_SITE_SWITCH, AGENT_SITE_HIDDEN, 0x20,
				   ARGS(7),           1u << 12,          1u << 31 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct tracing_site s = { 1, bad[i] };
		struct tracing_opts o = { .sites = &s, .n_sites = 1 };

		assert_int_equal(options_sites(&o, &h, &ten, SIZE_MAX, table), -EINVAL);
	}
}

/* Half full, as the patcher makes it at most; as dense as functions may lie, and at random. */
static void tables_hold_what_they_are_for(void **state)
{
	const u32 slots = 131072;
	struct agent_header h = header(slots);
	struct agent_site *table = malloc(slots * sizeof(*table));
	u32 *ips = malloc(slots / 2 * sizeof(*ips));

	(void)state;
	assert_non_null(table);
	assert_non_null(ips);
	for (u32 round = 0; round < 6; round++) {
		u32 ip = IP, seed = round + 1;

		memset(table, 0, slots * sizeof(*table));
		for (u32 i = 0; i < slots / 2; i++) {
			seed = seed * 1664525 + 1013904223;
			ip += round < 3 ? 16u << round : 16 + (seed >> 16) % 977;
			ips[i] = ip;
			assert_int_equal(agent_put_site(&h, table, ip, i | 1u << 31), 0);
		}
		for (u32 i = 0; i < slots / 2; i++) {
			assert_int_equal(what_of(&h, table, ips[i]), i | 1u << 31);
			assert_int_equal(what_of(&h, table, ips[i] + 1), 0);
		}
	}
	free(table);
	free(ips);
}

static void full_tables_say_so(void **state)
{
	struct agent_header h = header(64);
	struct agent_site table[64] = { { 0, 0 } };
	int rc = 0;
	u32 n = 0;

	(void)state;
	assert_int_equal(agent_put_site(&h, table, 0, 1), -EINVAL);
	while (!rc) {
		rc = agent_put_site(&h, table, IP + 16 * n, 1);
		n++;
		assert_true(n <= 65);
	}
	assert_int_equal(rc, -ENOSPC);
	assert_true(n > 48);
	h.site_slots = 0;
	assert_int_equal(agent_put_site(&h, table, IP, 1), -EINVAL);
}

static bool is_odd(void *arg, u32 ip)
{
	(void)arg;
	return (ip - IP) / 16 % 2;
}

static bool is_none(void *arg, u32 ip)
{
	(void)arg;
	(void)ip;
	return false;
}

/* While the agent is on: one word each, and whoever else is in the table is found all the time. */
static void one_more_while_it_is_on(void **state)
{
	struct agent_site table[64] = { 0 }, before[64];
	struct agent_header h = header(64);
	u32 slot, n, changed;

	(void)state;
	for (n = 0; n < 200; n++) {
		struct agent_site site = { IP + 16 * n, n + 1 };
		int rc;

		memcpy(before, table, sizeof(table));
		rc = options_put_late(&h, table, site, is_odd, NULL, &slot);
		changed = 0;
		for (u32 i = 0; i < 64; i++) {
			if (!memcmp(&table[i], &before[i], sizeof(table[i])))
				continue;
			changed++;
			assert_int_equal(slot, i);
			assert_true(!before[i].ip || is_odd(NULL, before[i].ip));
		}
		assert_int_equal(changed, !rc);
		if (rc) {
			assert_int_equal(rc, -ENOSPC);
			assert_int_equal(slot, 64);
			break;
		}
		assert_int_equal(what_of(&h, table, site.ip), n + 1);
		for (u32 k = 0; k < n; k += 2) /* those that may not go */
			assert_int_equal(what_of(&h, table, IP + 16 * k), k + 1);
	}
	assert_true(n > 64); /* places of those that may were used again */
}

static void what_was_asked_there_before_goes(void **state)
{
	struct agent_site table[64] = { 0 };
	struct agent_header h = header(64);
	u32 slot;

	(void)state;
	assert_int_equal(
		options_put_late(&h, table, (struct agent_site){ IP, 5 }, is_odd, NULL, &slot), 0);
	assert_int_equal(
		options_put_late(&h, table, (struct agent_site){ IP, 5 }, is_odd, NULL, &slot), 0);
	assert_int_equal(slot, 64); /* it is so */
	assert_int_equal(
		options_put_late(&h, table, (struct agent_site){ IP, 0 }, is_odd, NULL, &slot), 0);
	assert_int_not_equal(slot, 64);
	assert_int_equal(what_of(&h, table, IP), 0);
	assert_int_equal(
		options_put_late(&h, table, (struct agent_site){ IP + 64, 0 }, is_odd, NULL, &slot),
		0);
	assert_int_equal(slot, 64); /* nothing is asked of who is not there: nothing changes */
	h.site_slots = 0;
	assert_int_equal(
		options_put_late(&h, NULL, (struct agent_site){ IP, 0 }, is_odd, NULL, &slot), 0);
	assert_int_equal(
		options_put_late(&h, NULL, (struct agent_site){ IP, 1 }, is_odd, NULL, &slot),
		-ENOSPC);
}

/* Callers of so many functions alone, whoever has them; and whoever has less than was asked is counted. */
static void late_ones_share_what_room_there_is(void **state)
{
	struct agent_site table[64] = { 0 };
	struct agent_header h = header(64);
	struct options_late l = { .h = &h, .table = table, .is_dead = is_odd, .max_stacks = 3 };
	const u32 stack = AGENT_SITE_STACK, both = AGENT_SITE_STACK | 2u << AGENT_SITE_ARGS_SHIFT;
	u32 slot;

	(void)state;
	assert_int_equal(agent_put_site(&h, table, IP, both), 0);
	assert_int_equal(agent_put_site(&h, table, IP + 16, stack), 0); /* its module is gone */
	options_late_init(&l);
	assert_int_equal(l.stacks, 1);
	assert_int_equal(options_late_site(&l, IP, both, both), 64); /* is armed, and has it */
	assert_int_equal(l.n_unheeded, 0);
	for (u32 n = 0; n < 4; n++) { /* two more are told, two are not */
		slot = options_late_site(&l, IP + 16 * (2 * n + 3), both, both);
		assert_int_not_equal(slot, 64);
		assert_int_equal(table[slot].what, n < 2 ? both : both & ~stack);
		assert_int_equal(l.n_unheeded, n < 2 ? 0 : n - 1);
	}
	assert_int_equal(l.stacks, 3);
	/* the next look: armed by now as they are */
	l.is_dead = is_none;
	options_late_init(&l);
	l.n_unheeded = 0;
	for (u32 n = 0; n < 4; n++)
		assert_int_equal(options_late_site(&l, IP + 16 * (2 * n + 3), both, both), 64);
	assert_int_equal(l.n_unheeded, 2);
	/* what the agent as it is does not heed is counted, too; what nobody asks for is not */
	l.is_dead = is_odd;
	assert_int_equal(options_late_site(&l, IP + 16 * 21, 0, 0), 64);
	assert_int_equal(options_late_site(&l, IP + 16 * 23, AGENT_SITE_NOTRACE, 0), 64);
	assert_int_equal(l.n_unheeded, 3);
}

static void late_ones_without_a_table(void **state)
{
	struct agent_header h = header(0);
	struct options_late l = { .h = &h, .is_dead = is_odd, .max_stacks = 3 };

	(void)state;
	options_late_init(&l);
	assert_int_equal(options_late_site(&l, IP, AGENT_SITE_ROOT, AGENT_SITE_ROOT), 0);
	assert_int_equal(options_late_site(&l, IP + 16, AGENT_SITE_ROOT, AGENT_SITE_ROOT), 0);
	assert_int_equal(l.n_unheeded, 2);
	assert_int_equal(l.stacks, 0);
}

static void its_name(void **state)
{
	(void)state;
	assert_true(options_is_switch("finish_task_switch"));
	assert_true(options_is_switch("finish_task_switch.isra.0"));
	assert_true(options_is_switch("finish_task_switch.constprop.12"));
	assert_false(options_is_switch("finish_task_switches"));
	assert_false(options_is_switch("finish_task_switch.cold"));
	assert_false(options_is_switch("finish_task"));
	assert_false(options_is_switch(""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_what_is_needed),
		cmocka_unit_test(sites_are_found),
		cmocka_unit_test(nonsense_is_refused),
		cmocka_unit_test(tables_hold_what_they_are_for),
		cmocka_unit_test(full_tables_say_so),
		cmocka_unit_test(one_more_while_it_is_on),
		cmocka_unit_test(what_was_asked_there_before_goes),
		cmocka_unit_test(late_ones_share_what_room_there_is),
		cmocka_unit_test(late_ones_without_a_table),
		cmocka_unit_test(its_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
