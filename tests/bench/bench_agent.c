// SPDX-License-Identifier: Apache-2.0
/*
 * What the agent costs: its own object code, called natively on this host. Prints one JSON object.
 * Times are the best of several rounds: the machine is shared, and the least disturbed round is the
 * one that says most about the code. Fails only on what cannot be (a record lost or damaged).
 */
#include "tests/unit/test_agent_lib.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define ROUNDS     15
#define CALLS      65536u /* a round; with the pairs less than a ring */
#define SLICE      8192u /* calls timed at once: over before the scheduler looks */
#define RING_SLOTS 131072u /* 3 MiB, the product's default order */

#ifdef __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif
#ifndef BENCH_FLAGS
#define BENCH_FLAGS ""
#endif

static struct rig rig;
static struct ring_record out[RING_SLOTS];

static double now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static void empty_ring(void)
{
	rig.cpu[0].tail = rig.cpu[0].head;
}

/* ns a call of a traced function, best round; the ring is empty before each. */
static double cost(void)
{
	void (*fn)(void) = rig_function(&rig, 3);
	double best = 1e18;

	for (u32 i = 0; i < ROUNDS * (CALLS / SLICE); i++) {
		double t;

		empty_ring();
		t = now_ns();
		for (u32 n = 0; n < SLICE; n++)
			fn();
		t = (now_ns() - t) / SLICE;
		best = t < best ? t : best;
	}
	if (rig.cpu[0].lost)
		fail_msg("%llu records were refused", (unsigned long long)rig.cpu[0].lost);
	return best;
}

/* The same call of the same site with the tracer switched off at the first instruction. */
static double cost_disabled(void)
{
	double ns;

	rig.hdr->enabled = 0;
	ns = cost();
	rig.hdr->enabled = 1;
	return ns;
}

static double cost_filtered(u32 pid, u32 n_pids)
{
	double ns;

	for (u32 i = 0; i < n_pids; i++)
		rig.hdr->pids[i] = 4000 + i;
	rig.hdr->pids[0] = pid;
	rig.hdr->n_pids = n_pids;
	ns = cost();
	rig.hdr->n_pids = 0;
	return ns;
}

static double cost_context(u32 preempt_count)
{
	double ns;

	rig.percpu[0].preempt_count = preempt_count;
	ns = cost();
	rig.percpu[0].preempt_count = RIG_PREEMPT_IDLE;
	return ns;
}

/* Two tasks take turns: every record is preceded by a pair. */
static double cost_switch(void)
{
	double best = 1e18;

	for (int i = 0; i < ROUNDS; i++) {
		double t;

		empty_ring();
		t = now_ns();
		for (u32 n = 0; n < CALLS / 2; n++) {
			rig_run(&rig, 0, n & 1);
			rig_call(&rig, 3);
		}
		t = (now_ns() - t) / (CALLS / 2);
		best = t < best ? t : best;
	}
	rig_run(&rig, 0, 0);
	return best;
}

static double drain_rate(void)
{
	struct ring_io io = rig_io(&rig);
	struct ring_reader r;
	double best = 0;

	for (int i = 0; i < ROUNDS; i++) {
		size_t n = 0;
		double t;

		empty_ring();
		if (ring_reader_init(&r, &io, rig.hdr, 0))
			fail_msg("ring_reader_init");
		for (u32 c = 0; c < CALLS; c++)
			rig_call(&rig, 3);
		t = now_ns();
		if (ring_drain(&r, out, ARRAY_SIZE(out), 0, 0, &n) || r.stats.functions != CALLS)
			fail_msg("drained %llu of %u", (unsigned long long)r.stats.functions,
				 CALLS);
		t = CALLS / (now_ns() - t) * 1e9;
		best = t > best ? t : best;
	}
	return best;
}

static void print_cpu_model(void)
{
	char line[256], *model;
	FILE *f = fopen("/proc/cpuinfo", "re");

	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, "model name", 10) != 0)
			continue;
		model = strchr(line, ':');
		line[strcspn(line, "\n")] = 0;
		printf("  \"cpu\": \"%s\",\n", model ? model + 2 : "");
		break;
	}
	if (f)
		fclose(f);
}

static void bench_mode(const char *name, u32 mode)
{
	struct rig_opts o = { .nr_cpus = 1, .slots = RING_SLOTS, .mode = mode };
	double ns;

	rig_open(&rig, &o);
	(void)cost(); /* touch the ring's pages */
	ns = cost();
	printf("  \"%s\": {\"record_ns\": %.1f, \"records_per_s\": %.0f, \"pid_match_ns\": %.1f, "
	       "\"pid_miss_ns\": %.1f, \"pid_miss_64_ns\": %.1f, \"preempt_off_ns\": %.1f, "
	       "\"hardirq_ns\": %.1f, \"task_switch_ns\": %.1f, \"disabled_ns\": %.1f, "
	       "\"drain_records_per_s\": %.0f},\n",
	       name, ns, 1e9 / ns, cost_filtered(100, 1), cost_filtered(1, 1), cost_filtered(1, 64),
	       cost_context(0x80000001), cost_context(0x80010000), cost_switch(), cost_disabled(),
	       drain_rate());
	rig_close(&rig);
}

/* Entry and return of one traced function, both records. */
static void bench_graph(void)
{
	struct rig_opts o = { .nr_cpus = 1,
			      .slots = RING_SLOTS,
			      .frames = 4096,
			      .graph = true,
			      .mode = AGENT_MODE_OVERWRITE };
	double ns;

	rig_open(&rig, &o);
	(void)cost();
	ns = cost();
	printf("  \"graph\": {\"pair_ns\": %.1f, \"hardirq_ns\": %.1f, \"disabled_ns\": %.1f},\n",
	       ns, cost_context(0x80010000), cost_disabled());
	rig_close(&rig);
}

/* What options cost: the full path, with what it looks up and writes. */
static double cost_full(bool graph, u32 options, u64 threshold, u32 what)
{
	struct rig_opts o = { .nr_cpus = 1,
			      .slots = RING_SLOTS,
			      .frames = 4096,
			      .graph = graph,
			      .full = true,
			      .options = AGENT_OPT_FULL | options,
			      .threshold = threshold,
			      .sites = 131072,
			      .tasks = 1024,
			      .mode = AGENT_MODE_OVERWRITE };
	double ns;

	rig_open(&rig, &o);
	if (what)
		rig_site(&rig, 3, what);
	(void)cost();
	ns = cost();
	rig_close(&rig);
	return ns;
}

static void bench_full(void)
{
	const u32 tasks = AGENT_OPT_TASKS, roots = AGENT_OPT_TASKS | AGENT_OPT_ROOTS;

	printf("  \"full\": {\"function_ns\": %.1f, \"function_args_ns\": %.1f, \"pair_ns\": %.1f, "
	       "\"pair_args_retval_ns\": %.1f, \"pair_roots_ns\": %.1f, \"not_in_root_ns\": %.1f, "
	       "\"pair_notrace_ns\": %.1f, \"below_threshold_ns\": %.1f},\n",
	       cost_full(false, 0, 0, 0), cost_full(false, 0, 0, 3 << AGENT_SITE_ARGS_SHIFT),
	       cost_full(true, 0, 0, 0),
	       cost_full(true, 0, 0, AGENT_SITE_RETVAL | 3 << AGENT_SITE_ARGS_SHIFT),
	       cost_full(true, roots, 0, AGENT_SITE_ROOT), cost_full(true, roots, 0, 0),
	       cost_full(true, tasks, 0, AGENT_SITE_NOTRACE), cost_full(true, tasks, 1u << 30, 0));
}

static u64 tsc_ns10(void)
{
	double best = 1e18;

	for (int i = 0; i < ROUNDS; i++) {
		u64 sum = 0;
		double t = now_ns();

		for (u32 n = 0; n < CALLS; n++)
			sum += __builtin_ia32_rdtsc();
		t = (now_ns() - t) / CALLS;
		__asm__ volatile("" : : "r"(sum));
		best = t < best ? t : best;
	}
	return (u64)(best * 10);
}

int main(void)
{
	u64 tsc = tsc_ns10();

	printf("{\n  \"bench\": \"agent\",\n  \"compiler\": \"" COMPILER
	       "\",\n  \"flags\": \"" BENCH_FLAGS "\",\n");
	print_cpu_model();
	printf("  \"ring_slots\": %u, \"rdtsc_ns\": %llu.%llu,\n", RING_SLOTS,
	       (unsigned long long)tsc / 10, (unsigned long long)tsc % 10);
	bench_mode("discard", AGENT_MODE_DISCARD);
	bench_mode("overwrite", AGENT_MODE_OVERWRITE);
	bench_graph();
	bench_full();
	printf("  \"text_bytes\": %u\n}\n", agent_blob_get()->text_bytes);
	return 0;
}
