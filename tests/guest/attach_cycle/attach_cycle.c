// SPDX-License-Identifier: Apache-2.0
/*
 * The engine without daemon and HTTP: attach, arm, follow returns, count records, disarm, detach, on a
 * guest that the caller started. Small enough to run under ASan, and to be killed at any fault point.
 *
 *	attach_cycle TARGET STATE-DIR [GLOB [CYCLES [MILLISECONDS [WINDOW-MILLISECONDS]]]]
 *	attach_cycle --recover STATE-DIR
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "guest-agent/agent_abi.h"
#include "patcher/guest_priv.h"
#include "patcher/tracing.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *what, const struct err *err)
{
	fprintf(stderr, "%s: %s (%s)\n", what, err->msg, err_code_name(err->code));
	return 1;
}

static size_t choose(struct guest *g, const char *glob, u32 *site)
{
	const struct ftrace_site *s = kernel_sites(guest_kernel(g));
	size_t n = 0;

	for (u32 i = 0; i < kernel_site_count(guest_kernel(g)); i++) {
		if (s[i].state == SITE_OK && !fnmatch(glob, s[i].name, FNM_EXTMATCH))
			site[n++] = i;
	}
	return n;
}

/* Records reserved and refused since the agent was loaded, over all CPUs. */
static void totals(struct guest *g, u64 *reserved, u64 *lost)
{
	*reserved = *lost = 0;
	for (u32 cpu = 0; cpu < g->agent.header.nr_cpus; cpu++) {
		struct agent_cpu c;

		if (vm_view_read(g->agent.view, AGENT_CPU_OFF + (u64)cpu * AGENT_CPU_BYTES, &c,
				 sizeof(c)))
			continue;
		*reserved += c.head;
		*lost += c.lost;
	}
}

/* Returns followed for half of the time, then only calls, then both again. */
static int trace_for(struct guest *g, u64 ms, struct err *err)
{
	int rc;

	guest_sleep_ns(ms * NSEC_PER_MSEC / 2);
	rc = tracing_set_graph(g, false, err);
	guest_sleep_ns(ms * NSEC_PER_MSEC / 4);
	if (!rc)
		rc = tracing_set_graph(g, true, err);
	guest_sleep_ns(ms * NSEC_PER_MSEC / 4);
	return rc ? rc : tracing_collect(g, NULL, NULL, err);
}

static int cycle(struct guest *g, const u32 *site, size_t n, u64 ms, struct err *err)
{
	const struct tracing_opts opts = { .overwrite = true, .graph = true };
	struct tracing_counts counts = { 0 };
	struct guest_restore r = { 0 };
	struct guest_info info;
	u64 reserved = 0, lost = 0, start;
	struct tracing_more more = { 0 };
	int rc;

	start = monotonic_ns();
	rc = tracing_claim(g, err);
	if (!rc)
		rc = tracing_prepare(g, &opts, err);
	/* some as if their module had come later */
	if (!rc)
		rc = tracing_arm(g, site, n - n / 2, &counts, err);
	if (!rc)
		rc = tracing_arm_more(g, site + n - n / 2, n / 2, NULL, &more, err);
	if (rc)
		return rc;
	counts.n_armed += more.n_armed;
	printf("armed %zu in %.1f ms", counts.n_armed, (double)(monotonic_ns() - start) / 1e6);
	rc = trace_for(g, ms, err);
	start = monotonic_ns();
	if (!rc)
		rc = tracing_disarm(g, &r, err);
	totals(g, &reserved, &lost);
	tracing_release(g);
	guest_unlock(g);
	guest_info(g, &info);
	guest_lock(g);
	printf(", %llu records, %llu refused, restored %llu sites and %llu returns (%llu left) in %.1f ms, lend %.0f ms, windows %llu max %.1f ms total %.1f ms, at most %llu pieces written in one, %.3f ms\n",
	       (unsigned long long)reserved, (unsigned long long)lost,
	       (unsigned long long)r.sites_restored, (unsigned long long)r.returns_restored,
	       (unsigned long long)r.returns_left, (double)(monotonic_ns() - start) / 1e6,
	       (double)info.lend_ns / 1e6, (unsigned long long)info.windows.count,
	       (double)info.windows.max_ns / 1e6, (double)info.windows.total_ns / 1e6,
	       (unsigned long long)info.windows.write_max_n,
	       (double)info.windows.write_max_ns / 1e6);
	return rc;
}

int main(int argc, char **argv)
{
	struct guest_opts opts = { .state_dir = argc > 2 ? argv[2] : NULL };
	const char *glob = argc > 3 ? argv[3] : "*";
	int cycles = argc > 4 ? atoi(argv[4]) : 1;
	u64 ms = argc > 5 ? (u64)atoll(argv[5]) : 1000;
	_cleanup_free_ u32 *site = NULL;
	struct guest_restore r;
	struct guest_info info;
	struct err err = { 0 };
	struct guest *g;
	size_t n;
	int rc = 0;

	opts.window_limit_ns = argc > 6 ? (u64)atoll(argv[6]) * NSEC_PER_MSEC : 0;
	if (argc < 3) {
		fprintf(stderr, "usage: attach_cycle TARGET STATE-DIR [GLOB [CYCLES [MILLISECONDS "
				"[WINDOW-MILLISECONDS]]]]\n");
		return 2;
	}
	if (!strcmp(argv[1], "--recover")) {
		u32 recovered;

		if (guest_recover(argv[2], &recovered, &err))
			return fail("recover", &err);
		printf("recovered %u\n", recovered);
		return 0;
	}
	if (guest_attach(argv[1], &opts, &g, &err))
		return fail("attach", &err);
	guest_info(g, &info);
	printf("%s %s: %zu symbols, %zu functions (%zu traceable), %zu modules, found in %.1f ms\n",
	       info.accel, info.release, info.n_symbols, info.n_functions, info.n_traceable,
	       info.n_modules, (double)info.find_ns / 1e6);
	site = calloc(info.n_functions + 1, sizeof(*site));
	if (!site)
		return 1;
	n = choose(g, glob, site);
	guest_lock(g);
	for (int i = 0; !rc && i < cycles; i++)
		rc = cycle(g, site, n, ms, &err);
	guest_unlock(g);
	if (rc)
		fail("cycle", &err);
	if (guest_detach(g, &r, &err))
		return fail("detach", &err);
	printf("detached: memory %s, text %s\n", r.memory_freed ? "given back" : "NOT given back",
	       r.verified ? "as before" : "NOT as before");
	return rc || !r.memory_freed || !r.verified;
}
