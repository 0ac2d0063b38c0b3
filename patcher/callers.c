// SPDX-License-Identifier: Apache-2.0
/* Call sites that lead into memory of ours. See callers.h. */
#define LOG_PREFIX "guest"
#include "patcher/callers.h"

#include "base/cleanup.h"
#include "base/log.h"
#include "patcher/baseline.h"
#include "patcher/ftrace.h"
#include "patcher/interlock.h"
#include "patcher/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int callers_find(struct guest *g, u64 lo, u64 hi, struct text_change **ret, size_t *n_ret,
		 struct err *err)
{
	const struct ftrace_site *sites = kernel_sites(g->k);
	size_t n_sites = kernel_site_count(g->k), n = 0;
	_cleanup_free_ struct text_change *c = calloc(n_sites + 1, sizeof(*c));
	_cleanup_free_ u8 *bytes = NULL;
	u8 nop[MCOUNT_INSN_SIZE];
	int rc;

	if (!c)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for %zu call sites",
			       n_sites);
	guest_site_nop(g, nop);
	rc = baseline_read(g, &bytes, err);
	if (rc)
		return rc;
	for (size_t i = 0; i < n_sites; i++) {
		const u8 *found = bytes + i * MCOUNT_INSN_SIZE;
		u64 target;

		if (!insn_call_target(sites[i].ip, found, &target) || target < lo || target >= hi)
			continue;
		c[n] = (struct text_change){ .addr = sites[i].ip,
					     .rec = sites[i].rec,
					     .len = MCOUNT_INSN_SIZE };
		memcpy(c[n].old, nop, sizeof(nop));
		memcpy(c[n++].new, found, MCOUNT_INSN_SIZE);
	}
	text_sort(c, n);
	*ret = no_cleanup_ptr(c);
	*n_ret = n;
	return 0;
}

int callers_find_hook(struct guest *g, u64 lo, u64 hi, struct err *err)
{
	struct text_change *c;
	u8 call[MCOUNT_INSN_SIZE];
	struct err none = { 0 };
	u64 site, target;
	int rc = interlock_look(g, &site, call, &none);

	if (rc && rc != -ENOTSUP) /* a kernel without that call was never armed */
		return err_set(err, rc, none.code, none.addr, "%s", none.msg);
	if (rc || !insn_call_target(site, call, &target) || target < lo || target >= hi)
		return 0;
	c = calloc(1, sizeof(*c));
	if (!c)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for the interlock");
	c->len = MCOUNT_INSN_SIZE;
	if (!interlock_was(g, target, c)) {
		free(c);
		return err_set(
			err, -EINVAL, ERR_GUEST_CHANGED, site,
			"the call at 0x%llx leads to 0x%llx, which is not the interlock that was left there; it stays in the guest",
			(unsigned long long)site, (unsigned long long)target);
	}
	g->hook = c;
	return text_journal(g, c, 1, JOURNAL_INTERLOCK, err);
}

int callers_let_go(struct guest *g, struct err *err)
{
	const struct journal_state *s = journal_state(g->journal);
	u64 lo = s->alloc[JOURNAL_AGENT_TEXT], hi = lo + s->alloc_bytes[JOURNAL_AGENT_TEXT];
	struct guest_restore r;
	int rc;

	if (!lo)
		return 0;
	if (g->n_armed || g->hook)
		return err_set(err, -EBUSY, ERR_CONFLICT, 0, "the guest has armed call sites");
	rc = guest_refresh(g, false, err);
	free(g->armed);
	g->armed = NULL;
	if (!rc)
		rc = callers_find(g, lo, hi, &g->armed, &g->n_armed, err);
	if (!rc && g->n_armed)
		rc = text_journal(g, g->armed, g->n_armed, JOURNAL_SITE, err);
	if (!rc)
		rc = callers_find_hook(g, lo, hi, err);
	if (rc || (!g->n_armed && !g->hook))
		return rc;
	rc = ftrace_make_nop(g, &r, err);
	if (!rc)
		log_warn("%s: %llu call sites led to the agent though no journal told of them",
			 g->target, (unsigned long long)r.sites_restored);
	return rc;
}
