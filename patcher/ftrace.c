// SPDX-License-Identifier: Apache-2.0
/* Call sites. See ftrace.h. */
#define LOG_PREFIX "ftrace"
#include "patcher/ftrace.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/log.h"
#include "guest-agent/agent_abi.h"
#include "patcher/agent.h"
#include "patcher/helpers.h"
#include "patcher/interlock.h"
#include "patcher/rewrite.h"
#include "patcher/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define JOURNAL_SPARE 1024u /* call sites noted in vain before that is worth a new file */

/* What one site holds and what it will hold. */
static int plan_site(struct guest *g, u32 site, const u8 *nop, struct text_change *c,
		     struct err *err)
{
	const struct ftrace_site *s = &kernel_sites(g->k)[site];
	const u8 *rest;
	u64 caller = g->agent.text + agent_blob_get()->ftrace_caller;

	*c = (struct text_change){ .addr = s->ip, .rec = s->rec, .len = MCOUNT_INSN_SIZE };
	if (site >= g->n_baseline)
		return err_set(err, -EINVAL, ERR_GUEST_CHANGED, s->ip,
			       "what %s held before is not known", s->name);
	rest = g->baseline + (size_t)site * MCOUNT_INSN_SIZE;
	if (!insn_is_site_nop(rest))
		return err_set(err, -EINVAL, ERR_GUEST_CHANGED, s->ip,
			       "%s at 0x%llx is not one nop of 5 bytes: %02x %02x %02x %02x %02x",
			       s->name, (unsigned long long)s->ip, rest[0], rest[1], rest[2],
			       rest[3], rest[4]);
	/* the only one that the interlock puts back, and that the guest's own tracing takes */
	if (memcmp(rest, nop, MCOUNT_INSN_SIZE))
		return err_set(err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, s->ip,
			       "%s at 0x%llx has another nop than this kernel makes", s->name,
			       (unsigned long long)s->ip);
	memcpy(c->old, rest, MCOUNT_INSN_SIZE);
	if (insn_make_call(s->ip, caller, c->new))
		return err_set(err, -ERANGE, ERR_GUEST_UNSUPPORTED, s->ip,
			       "%s at 0x%llx is out of reach of the agent at 0x%llx", s->name,
			       (unsigned long long)s->ip, (unsigned long long)caller);
	return 0;
}

/* Pass 1, nothing written. */
static int plan(struct guest *g, const u32 *site, size_t n, struct text_change *c, struct err *err)
{
	u8 nop[MCOUNT_INSN_SIZE];

	guest_site_nop(g, nop);
	for (size_t i = 0; i < n; i++) {
		int rc = plan_site(g, site[i], nop, &c[i], err);

		if (rc)
			return rc;
	}
	text_sort(c, n);
	return 0;
}

static void count(const struct text_change *c, size_t n, struct ftrace_counts *ret)
{
	memset(ret, 0, sizeof(*ret));
	for (size_t i = 0; i < n; i++) {
		ret->n_armed += c[i].result == TEXT_DONE || c[i].result == TEXT_ALREADY;
		ret->n_in_use += c[i].result == TEXT_IN_USE;
		ret->n_differs += c[i].result == TEXT_DIFFERS;
		ret->n_gone += c[i].result == TEXT_UNMAPPED;
	}
}

/* Drop what is not to be written; the rest keeps its order. */
static size_t keep(struct text_change *c, size_t n, enum text_result result)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		if (c[i].result == result)
			c[kept++] = c[i];
	}
	return kept;
}

static int first_differs(struct guest *g, const struct text_change *c, size_t n, struct err *err)
{
	for (size_t i = 0; i < n; i++) {
		struct kernel_sym sym = { .name = "?" };
		u8 found[MCOUNT_INSN_SIZE] = { 0 };

		if (c[i].result != TEXT_DIFFERS)
			continue;
		kernel_sym_at(g->k, c[i].addr, &sym);
		if (guest_read(g, c[i].addr, found, sizeof(found), err))
			return -EFAULT;
		return err_set(err, -EINVAL, ERR_GUEST_CHANGED, c[i].addr,
			       "%s at 0x%llx holds %02x %02x %02x %02x %02x, not the nop expected",
			       sym.name, (unsigned long long)c[i].addr, found[0], found[1],
			       found[2], found[3], found[4]);
	}
	return 0;
}

int ftrace_make_call(struct guest *g, const u32 *site, size_t n, struct ftrace_counts *counts_ret,
		     struct err *err)
{
	_cleanup_free_ struct text_change *c = calloc(n ? n : 1, sizeof(*c));
	struct ftrace_counts before;
	size_t m;
	int rc;

	if (!c)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for %zu call sites", n);
	if (!g->agent.loaded || g->n_armed)
		return err_set(err, -EBUSY, ERR_CONFLICT, 0,
			       "the guest has armed call sites already");
	rc = plan(g, site, n, c, err);
	if (!rc)
		rc = text_check(g, c, n, err);
	if (!rc)
		rc = first_differs(g, c, n, err);
	if (rc)
		return rc;
	count(c, n, &before);
	m = keep(c, n, TEXT_TODO);
	/* from before the first site is armed until after the last one is back */
	rc = interlock_in(g, g->agent.text + g->agent.interlock, err);
	if (rc)
		return rc;
	rc = text_journal(g, c, m, JOURNAL_SITE, err);
	if (rc) { /* nothing was written */
		struct err undo = { 0 };

		if (journal_undone(g->journal, JOURNAL_SITE, NULL) || interlock_out(g, &undo))
			err_wrap(err, "the journal is damaged too");
		return rc;
	}
	g->armed = no_cleanup_ptr(c);
	g->n_armed = m;
	fault_point("arm.journalled");
	rc = text_apply(g, g->armed, m, err);
	if (!rc)
		rc = first_differs(g, g->armed, m, err);
	if (rc) {
		struct err undo = { 0 };

		if (ftrace_make_nop(g, NULL, &undo))
			err_wrap(err, "could not be undone now, the journal keeps it (%.60s)",
				 undo.msg);
		return rc;
	}
	count(g->armed, m, counts_ret);
	counts_ret->n_in_use += before.n_in_use;
	counts_ret->n_gone += before.n_gone;
	agent_next_epoch(g);
	fault_point("arm.done");
	return 0;
}

/*
 * Has the guest given its init sections away (v6.1 init/main.c free_initmem())? Their call sites went with
 * them, ftrace_free_init_mem() dropped the records. What lies there now is somebody else's.
 */
static bool init_is_gone(struct guest *g, u64 *begin_ret, u64 *end_ret)
{
	u64 addr;
	u32 state;
	s64 running;

	return !kernel_sym(g->k, "__init_begin", begin_ret) &&
	       !kernel_sym(g->k, "__init_end", end_ret) &&
	       !kernel_sym(g->k, "system_state", &addr) &&
	       !kernel_btf_enum(g->k, "SYSTEM_RUNNING", &running) &&
	       !guest_read(g, addr, &state, sizeof(state), NULL) && state >= (u64)running;
}

/* What became of the armed sites. Those that are gone with their section are as good as restored. */
static void judge(struct guest *g, struct guest_restore *r)
{
	u64 begin = 0, end = 0;
	bool gone = init_is_gone(g, &begin, &end);

	for (size_t i = 0; i < g->n_armed; i++) {
		enum text_result result = g->armed[i].result;
		bool in_init = g->armed[i].addr >= begin && g->armed[i].addr < end;

		if (result == TEXT_DONE || result == TEXT_ALREADY || (gone && in_init))
			r->sites_restored++;
		else if (result == TEXT_DIFFERS || result == TEXT_UNMAPPED)
			r->sites_changed++;
	}
}

/* Where the gate is in, it is the gate's, and goes out after its sites: gate_close(). */
static int hook_out(struct guest *g, struct err *err)
{
	return journal_state(g->journal)->mailbox ? 0 : interlock_out(g, err);
}

int ftrace_make_nop(struct guest *g, struct guest_restore *ret, struct err *err)
{
	struct guest_restore r = { 0 };
	int rc;

	if (!g->n_armed) {
		if (ret)
			*ret = r;
		return hook_out(g, err);
	}
	/* swapped back when it fails, so that it can be tried again */
	text_swap(g->armed, g->n_armed);
	fault_point("disarm.start");
	rc = text_apply(g, g->armed, g->n_armed, err);
	if (rc) {
		text_swap(g->armed, g->n_armed);
		return rc;
	}
	for (size_t i = 0; i < g->n_armed; i++)
		rewrite_note(g, g->armed[i].addr);
	judge(g, &r);
	/* each was read back in its window */
	r.verified = r.sites_restored == g->n_armed;
	if (ret)
		*ret = r;
	fault_point("disarm.written");
	rc = journal_undone(g->journal, JOURNAL_SITE, err);
	if (rc) {
		text_swap(g->armed, g->n_armed);
		return rc;
	}
	free(g->armed);
	g->armed = NULL;
	g->n_armed = 0;
	agent_next_epoch(g);
	return hook_out(g, err);
}

static int by_addr(const void *a, const void *b)
{
	const struct text_change *x = a, *y = b;

	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/* Those of @site that are not armed, planned and checked; how many can be. */
static int plan_more(struct guest *g, const u32 *site, size_t n, struct text_change *c,
		     size_t *m_ret, struct err *err)
{
	u8 nop[MCOUNT_INSN_SIZE];
	size_t m = 0;
	int rc;

	guest_site_nop(g, nop);
	for (size_t i = 0; i < n; i++) {
		if (site[i] >= g->n_baseline || plan_site(g, site[i], nop, &c[m], NULL))
			continue;
		if (!g->n_armed || !bsearch(&c[m], g->armed, g->n_armed, sizeof(*c), by_addr))
			m++;
	}
	text_sort(c, m);
	rc = text_check(g, c, m, err);
	*m_ret = rc ? 0 : keep(c, m, TEXT_TODO);
	return rc;
}

int ftrace_make_more(struct guest *g, const u32 *site, size_t n, size_t *n_ret, struct err *err)
{
	_cleanup_free_ struct text_change *c = calloc(n ? n : 1, sizeof(*c));
	struct text_change *all;
	size_t m;
	int rc;

	*n_ret = 0;
	if (!c)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for %zu call sites", n);
	if (!g->agent.loaded || !g->hook)
		return err_set(err, -EBUSY, ERR_CONFLICT, 0, "the guest has no armed call sites");
	rc = plan_more(g, site, n, c, &m, err);
	if (rc || !m)
		return rc;
	all = reallocarray(g->armed, g->n_armed + m, sizeof(*all));
	if (!all)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for %zu call sites", m);
	g->armed = all;
	rc = text_journal(g, c, m, JOURNAL_SITE, err);
	if (rc) /* nothing was written; what is noted is verified before it is undone */
		return rc;
	fault_point("arm.more_journalled");
	rc = text_apply(g, c, m, err);
	for (size_t i = 0; i < m; i++)
		*n_ret += c[i].result == TEXT_DONE;
	memcpy(g->armed + g->n_armed, c, m * sizeof(*c));
	g->n_armed += m;
	text_sort(g->armed, g->n_armed);
	agent_next_epoch(g);
	return rc;
}

/*
 * Is it still ours to look after? What holds our call is, wherever its record went: v6.1 ftrace_free_mem()
 * moves records. Else, with another record or none, its module went away, and what is there now is another's.
 */
static bool still_ours(struct guest *g, struct text_change *c)
{
	const struct ftrace_site *s = kernel_site_at(g->k, c->addr);
	u8 found[MCOUNT_INSN_SIZE];

	if (s && s->rec == c->rec)
		return true;
	if (guest_read(g, c->addr, found, sizeof(found), NULL) ||
	    memcmp(found, c->new, sizeof(found)))
		return false;
	if (s)
		c->rec = s->rec;
	return true;
}

/* Sites that went away with their modules are noted in the journal still, and more with each that comes. */
static void shorten_journal(struct guest *g)
{
	struct err err = { 0 };

	if (journal_state(g->journal)->n_text < 2 * g->n_armed + JOURNAL_SPARE)
		return;
	if (text_keep_in_journal(g, g->armed, g->n_armed, JOURNAL_SITE, &err))
		log_warn("%s: %s; it stays longer than it need be", g->target, err.msg);
}

int ftrace_sort_out(struct guest *g, struct ftrace_counts *counts_ret, struct err *err)
{
	size_t kept = 0, n_todo = 0, n_gone;
	int rc;

	for (size_t i = 0; i < g->n_armed; i++) {
		if (still_ours(g, &g->armed[i]))
			g->armed[kept++] = g->armed[i];
	}
	n_gone = g->n_armed - kept;
	g->n_armed = kept;
	rc = text_check(g, g->armed, g->n_armed, err);
	if (!rc)
		helpers_look(g);
	for (size_t i = 0; !rc && i < g->n_armed; i++)
		n_todo += g->armed[i].result == TEXT_TODO;
	if (!rc && n_todo)
		rc = text_apply(g, g->armed, g->n_armed, err);
	if (rc)
		return rc;
	if (n_gone)
		shorten_journal(g);
	count(g->armed, g->n_armed, counts_ret);
	counts_ret->n_gone += n_gone;
	return 0;
}

/* One instruction in the agent's text. Not journalled: that goes away as a whole. */
static int patch_agent(struct guest *g, struct text_change *c, const char *what, struct err *err)
{
	int rc = text_apply(g, c, 1, err);

	if (rc)
		return rc;
	if (c->result != TEXT_DONE && c->result != TEXT_ALREADY)
		return err_set(err, -EINVAL, ERR_GUEST_CHANGED, c->addr,
			       "%s [agent] at 0x%llx was changed", what,
			       (unsigned long long)c->addr);
	return 0;
}

int ftrace_update_ftrace_func(struct guest *g, u32 offset, struct err *err)
{
	u64 site = g->agent.text + agent_blob_get()->ftrace_call;
	struct text_change c = { .addr = site, .len = MCOUNT_INSN_SIZE };
	int rc;

	if (insn_make_jump(site, g->agent.text + g->agent.tracer, c.old) ||
	    insn_make_jump(site, g->agent.text + offset, c.new))
		return err_set(err, -ERANGE, ERR_NONE, site,
			       "ftrace_call [agent] cannot reach its tracer");
	rc = patch_agent(g, &c, "ftrace_call", err);
	if (!rc)
		g->agent.tracer = offset;
	return rc;
}

/* ftrace_mod_jmp(), Linux v6.1 arch/x86/kernel/ftrace.c */
static int graph_call(struct guest *g, u32 offset, bool on, struct err *err)
{
	const struct agent_blob *blob = agent_blob_get();
	u64 site = g->agent.text + blob->ftrace_graph_call;
	struct text_change c = { .addr = site, .len = MCOUNT_INSN_SIZE };
	int rc;

	if (insn_make_jump(site, g->agent.text + offset, c.new))
		return err_set(err, -ERANGE, ERR_NONE, site,
			       "ftrace_graph_call [agent] cannot reach its tracer");
	memcpy(c.old, insn_nop, sizeof(insn_nop));
	if (!on)
		text_swap(&c, 1);
	/* before: when it fails half way, the jmp may be there */
	g->agent.graph = true;
	g->agent.graph_tracer = offset;
	rc = patch_agent(g, &c, "ftrace_graph_call", err);
	if (rc)
		return rc;
	g->agent.graph = on;
	fault_point("graph.switched");
	return 0;
}

int ftrace_enable_ftrace_graph_caller(struct guest *g, u32 offset, struct err *err)
{
	int rc = 0;

	g->agent.graph_used = true;
	if (g->agent.graph && g->agent.graph_tracer != offset)
		rc = graph_call(g, g->agent.graph_tracer, false, err);
	return rc ? rc : graph_call(g, offset, true, err);
}

int ftrace_disable_ftrace_graph_caller(struct guest *g, struct err *err)
{
	return graph_call(g, g->agent.graph_tracer, false, err);
}
