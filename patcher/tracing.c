// SPDX-License-Identifier: Apache-2.0
/* The agent as tracers use it. See tracing.h. */
#define LOG_PREFIX "tracing"
#include "patcher/tracing.h"

#include "base/cleanup.h"
#include "base/log.h"
#include "patcher/agent.h"
#include "patcher/follow.h"
#include "patcher/ftrace.h"
#include "patcher/graph.h"
#include "patcher/guest_priv.h"
#include "patcher/helpers.h"
#include "patcher/options.h"
#include "patcher/quiesce.h"
#include "patcher/remains.h"
#include "patcher/rewrite.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HEADER(member) offsetof(struct agent_header, member)
#define WRITERS_NS     (10 * NSEC_PER_SEC)

int tracing_claim(struct guest *g, struct err *err)
{
	struct err why = { 0 };
	int rc;

	/* a snapshot that was loaded meanwhile may have brought an agent */
	if (!g->claimed && !g->agent.loaded && remains_hooked(g))
		guest_note_restored(g);
	rc = guest_check_alive(g, &why);
	if (rc && why.code == ERR_GUEST_RESTORED && !g->claimed)
		rc = guest_renew(g, err);
	else if (rc)
		return err_set(err, rc, why.code, why.addr, "%s", why.msg);
	if (rc)
		return rc;
	if (g->claimed)
		return err_set(err, -EBUSY, ERR_TRACE_LIMIT, 0, "%s has a trace already",
			       g->target);
	g->claimed = true;
	return 0;
}

void tracing_release(struct guest *g)
{
	g->claimed = false;
}

void tracing_unsettled(struct guest *g)
{
	g->agent.unsettled = g->agent.loaded;
}

/* Context: the agent is off, nothing is armed. */
static int wait_for_writers(struct guest *g, struct err *err)
{
	int rc;

	if (!g->agent.unsettled)
		return 0;
	rc = quiesce_range(g, g->agent.text, g->agent.text + g->agent.text_bytes, WRITERS_NS, err);
	g->agent.unsettled = rc != 0;
	return rc;
}

static int set_u32(struct guest *g, size_t off, u32 v, struct err *err)
{
	return agent_write_header(g, off, &v, sizeof(v), err);
}

/* What an earlier trace left is not the next one's; every task is named anew for its reader. */
static int begin_ring(struct guest *g, size_t cpu_off, struct err *err)
{
	struct agent_cpu c;
	int rc = vm_view_read(g->agent.view, cpu_off, &c, sizeof(c));

	if (rc)
		return err_set(err, rc, ERR_VMM_GONE, g->agent.data,
			       "cannot read the agent's rings");
	rc = agent_write_header(g, cpu_off + offsetof(struct agent_cpu, tail), &c.head,
				sizeof(c.head), err);
	return rc ? rc : set_u32(g, cpu_off + offsetof(struct agent_cpu, last_pid), ~0u, err);
}

/* ftrace_graph_call comes first and does not fall through: each call is recorded by one of the two. */
static int choose_tracer(struct guest *g, bool graph, struct err *err)
{
	const struct agent_blob *blob = agent_blob_get();
	bool full = g->agent.header.options & AGENT_OPT_FULL;
	int rc;

	if (graph) {
		rc = graph_prepare(g, err);
		return rc ? rc
			  : ftrace_enable_ftrace_graph_caller(
				    g, full ? blob->graph_full_caller : blob->ftrace_graph_caller,
				    err);
	}
	rc = ftrace_update_ftrace_func(
		g, full ? blob->function_full_call : blob->function_trace_call, err);
	return !rc && g->agent.graph ? ftrace_disable_ftrace_graph_caller(g, err) : rc;
}

static int check_pids(const struct tracing_opts *opts, struct err *err)
{
	if (opts->n_pids > AGENT_MAX_PIDS)
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0, "at most %d pids, not %zu",
			       AGENT_MAX_PIDS, opts->n_pids);
	return 0;
}

/*
 * What watches the kernel's text from inside would take ours for an attack. LKRG: a module, "p_lkrg" up to
 * 0.8.
 */
static int check_guards(struct guest *g, struct err *err)
{
	static const char *const names[] = { "lkrg", "p_lkrg" };
	const struct kernel_module *m = kernel_modules(g->k);

	for (size_t i = 0; i < kernel_module_count(g->k); i++) {
		for (size_t n = 0; n < ARRAY_SIZE(names); n++) {
			if (!strcmp(m[i].name, names[n]))
				return err_set(
					err, -EPERM, ERR_GUEST_GUARD, m[i].base,
					"%s has the module %s, which guards the kernel's text",
					g->target, m[i].name);
		}
	}
	return 0;
}

/* Context: the agent is off, @opts are checked. */
static int set_pids(struct guest *g, const struct tracing_opts *opts, struct err *err)
{
	u32 pids[AGENT_MAX_PIDS] = { 0 };
	int rc;

	if (opts->n_pids)
		memcpy(pids, opts->pids, opts->n_pids * sizeof(*pids));
	rc = agent_write_header(g, HEADER(pids), pids, sizeof(pids), err);
	return rc ? rc : set_u32(g, HEADER(n_pids), (u32)opts->n_pids, err);
}

int tracing_prepare(struct guest *g, const struct tracing_opts *opts, struct err *err)
{
	int rc = check_pids(opts, err);

	if (!rc)
		rc = guest_check_alive(g, err);
	if (!rc)
		rc = guest_check_stays(g, err);
	if (!rc)
		rc = check_guards(g, err);
	if (!rc && g->n_armed) /* could not be put back earlier */
		rc = ftrace_make_nop(g, NULL, err);
	if (!rc)
		rc = agent_load(g, err);
	if (rc)
		return rc;
	g->agent.header.mode = opts->overwrite ? AGENT_MODE_OVERWRITE : AGENT_MODE_DISCARD;
	rc = set_u32(g, HEADER(enabled), 0, err);
	if (!rc)
		rc = wait_for_writers(g, err);
	if (!rc)
		rc = set_u32(g, HEADER(mode), g->agent.header.mode, err);
	if (!rc)
		rc = set_pids(g, opts, err);
	for (u32 cpu = 0; !rc && cpu < g->agent.header.nr_cpus; cpu++)
		rc = begin_ring(g, AGENT_CPU_OFF + (size_t)cpu * AGENT_CPU_BYTES, err);
	if (!rc)
		rc = graph_settle(g, err);
	/* by the words for followed pids, which are written after */
	if (!rc && opts->graph)
		rc = rewrite_returns(g, err);
	if (!rc)
		rc = options_write(g, opts, err);
	return rc ? rc : choose_tracer(g, opts->graph, err);
}

static int arm(struct guest *g, const u32 *site, size_t n, bool on, struct tracing_counts *ret,
	       struct err *err)
{
	_cleanup_free_ u32 *all = NULL;
	struct ftrace_counts counts;
	struct err undo = { 0 };
	size_t n_all;
	int rc;

	rc = options_arm_list(g, site, n, &all, &n_all, err);
	/* all that sites will lead to was written before: a copy that begins from here on has it */
	if (!rc)
		rc = guest_check_stays(g, err);
	if (!rc)
		rc = ftrace_make_call(g, all, n_all, &counts, err);
	if (rc)
		return rc;
	rc = guest_check_stays(g, err);
	if (!rc)
		rc = helpers_armed(g, err);
	ret->n_armed = counts.n_armed - (n_all - n);
	ret->n_skipped = counts.n_in_use + counts.n_gone + counts.n_differs;
	if (!rc)
		rc = set_u32(g, HEADER(enabled), on, err);
	if (rc && ftrace_make_nop(g, NULL, &undo))
		err_wrap(err, "could not be undone now, the journal keeps it (%.60s)", undo.msg);
	return rc;
}

int tracing_arm(struct guest *g, const u32 *site, size_t n, struct tracing_counts *ret,
		struct err *err)
{
	return arm(g, site, n, true, ret, err);
}

int tracing_set_enabled(struct guest *g, bool on, struct err *err)
{
	int rc = guest_check_alive(g, err);

	return rc ? rc : set_u32(g, HEADER(enabled), on, err);
}

int tracing_rearm(struct guest *g, const struct tracing_opts *opts, const u32 *site, size_t n,
		  struct tracing_counts *ret, struct err *err)
{
	int rc = check_pids(opts, err);

	if (!rc)
		rc = tracing_set_enabled(g, false, err);
	if (!rc)
		rc = ftrace_make_nop(g, NULL, err);
	if (!rc)
		rc = set_pids(g, opts, err);
	if (!rc)
		rc = options_write(g, opts, err);
	if (!rc)
		rc = choose_tracer(g, opts->graph, err);
	return rc ? rc : arm(g, site, n, !opts->paused, ret, err);
}

int tracing_refresh(struct guest *g, bool fresh, struct tracing_counts *ret, struct err *err)
{
	struct ftrace_counts counts = { 0 };
	int rc = guest_refresh(g, fresh, err);

	if (!rc)
		rc = ftrace_sort_out(g, &counts, err);
	if (rc)
		return rc;
	ret->n_armed = counts.n_armed;
	if (g->agent.switch_hidden && counts.n_armed && !(helpers_away(g) & TRACING_SWITCHES))
		ret->n_armed--;
	ret->n_skipped = counts.n_in_use + counts.n_gone + counts.n_differs;
	ret->missed = helpers_missed(g);
	return 0;
}

int tracing_arm_more(struct guest *g, const u32 *site, size_t n, const struct tracing_opts *opts,
		     struct tracing_more *ret, struct err *err)
{
	int rc;

	*ret = (struct tracing_more){ 0 };
	rc = options_more_sites(g, site, n, opts, &ret->n_unheeded, err);
	return rc ? rc : ftrace_make_more(g, site, n, &ret->n_armed, err);
}

bool tracing_taken(struct guest *g, u64 *ret)
{
	return g->agent.view && !vm_view_read(g->agent.view, HEADER(taken), ret, sizeof(*ret));
}

/* A return address that stays hijacked is passive, and no reason to fail a stop. */
static int put_back(struct guest *g, struct guest_restore *ret, struct err *err)
{
	struct err e = { 0 };
	int rc = graph_put_back(g, ret, &e);

	if (rc && e.code == ERR_VMM_GONE)
		return err_set(err, rc, e.code, e.addr, "%s", e.msg);
	if (rc)
		log_warn("%s: return addresses: %s", g->target, e.msg);
	if (ret->returns_left)
		log_info("%s: %llu calls still return through the agent", g->target,
			 (unsigned long long)ret->returns_left);
	return 0;
}

int tracing_follow(struct guest *g, const struct tracing_opts *opts, struct err *err)
{
	static const struct tracing_opts none;

	return follow_again(g, opts ? opts : &none, err);
}

int tracing_disarm(struct guest *g, struct guest_restore *ret, struct err *err)
{
	struct guest_restore r = { 0 };
	int rc = guest_check_alive(g, err);

	if (!rc)
		rc = set_u32(g, HEADER(enabled), 0, err);
	if (!rc)
		rc = ftrace_make_nop(g, &r, err);
	if (!rc && g->agent.graph)
		rc = ftrace_disable_ftrace_graph_caller(g, err);
	if (!rc)
		rc = put_back(g, &r, err);
	/* the site that nobody asked for is not in n_armed either */
	if (!rc && g->agent.switch_hidden && r.sites_restored)
		r.sites_restored--;
	if (!rc)
		g->agent.switch_hidden = false;
	if (!rc && ret)
		*ret = r;
	return rc;
}

int tracing_set_graph(struct guest *g, bool on, struct err *err)
{
	struct guest_restore r;
	int rc = guest_check_alive(g, err);

	if (rc)
		return rc;
	if (!g->agent.loaded)
		return err_set(err, -EINVAL, ERR_CONFLICT, 0, "%s has no trace", g->target);
	rc = choose_tracer(g, on, err);
	return rc || on ? rc : put_back(g, &r, err);
}

int tracing_collect(struct guest *g, void (*fn)(void *arg, const struct tracing_unreturned *u),
		    void *arg, struct err *err)
{
	return graph_collect(g, fn, arg, err);
}

bool tracing_graph_stats(struct guest *g, struct tracing_graph *ret)
{
	*ret = (struct tracing_graph){ 0 };
	if (!g->agent.view)
		return false;
	for (u32 cpu = 0; cpu < g->agent.header.nr_cpus; cpu++) {
		struct agent_cpu c;

		if (vm_view_read(g->agent.view, AGENT_CPU_OFF + (u64)cpu * AGENT_CPU_BYTES, &c,
				 sizeof(c)))
			return false;
		ret->lost_frames += c.lost_frames;
		ret->lost_returns += c.lost_returns;
		ret->frame_errors += c.frame_errors;
	}
	return true;
}

bool tracing_stack_stats(struct guest *g, struct tracing_stacks *ret)
{
	*ret = (struct tracing_stacks){ 0 };
	if (!g->agent.view)
		return false;
	for (u32 cpu = 0; cpu < g->agent.header.nr_cpus; cpu++) {
		struct agent_cpu c;

		if (vm_view_read(g->agent.view, AGENT_CPU_OFF + (u64)cpu * AGENT_CPU_BYTES, &c,
				 sizeof(c)))
			return false;
		ret->skipped += c.skipped;
		ret->no_stack += c.no_stack;
	}
	return true;
}

static int ring_read(void *arg, u64 off, void *buf, size_t len)
{
	const struct guest *g = arg;

	return vm_view_read(g->agent.view, off, buf, len);
}

static int ring_write(void *arg, u64 off, const void *buf, size_t len)
{
	const struct guest *g = arg;

	if (!agent_is_in_view(g))
		return -ESTALE;
	return vm_view_write(g->agent.view, off, buf, len);
}

void tracing_rings(struct guest *g, struct agent_header *header_ret,
		   int (**read_ret)(void *arg, u64 off, void *buf, size_t len),
		   int (**write_ret)(void *arg, u64 off, const void *buf, size_t len),
		   void **arg_ret)
{
	*header_ret = g->agent.header;
	*read_ret = ring_read;
	*write_ret = ring_write;
	*arg_ret = g;
}

bool tracing_lost_nocpu(struct guest *g, u64 *ret)
{
	return g->agent.view && !vm_view_read(g->agent.view, HEADER(lost_nocpu), ret, sizeof(*ret));
}

void tracing_off(struct guest *g)
{
	struct err err = { 0 };

	if (!guest_check_alive(g, &err) && g->agent.loaded && set_u32(g, HEADER(enabled), 0, &err))
		log_warn("%s", err.msg);
}
