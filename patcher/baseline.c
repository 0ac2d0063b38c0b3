// SPDX-License-Identifier: Apache-2.0
/* Call sites as the guest had them. See baseline.h. */
#define LOG_PREFIX "guest"
#include "patcher/baseline.h"

#include "base/cleanup.h"
#include "base/log.h"
#include "patcher/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int by_ip(const void *a, const void *b, void *arg)
{
	const struct ftrace_site *sites = arg;
	u64 x = sites[*(const u32 *)a].ip, y = sites[*(const u32 *)b].ip;

	return x < y ? -1 : x > y;
}

int baseline_read(struct guest *g, u8 **bytes_ret, struct err *err)
{
	const struct ftrace_site *sites = kernel_sites(g->k);
	size_t n = kernel_site_count(g->k);
	_cleanup_free_ u32 *order = calloc(n + 1, sizeof(*order));
	_cleanup_free_ u64 *addr = calloc(n + 1, sizeof(*addr));
	_cleanup_free_ u8 *sorted = calloc(n + 1, MCOUNT_INSN_SIZE);
	_cleanup_free_ bool *sorted_ok = calloc(n + 1, sizeof(*sorted_ok));
	_cleanup_free_ u8 *bytes = calloc(n + 1, MCOUNT_INSN_SIZE);
	struct text_sites read = { addr, n, MCOUNT_INSN_SIZE, sorted, sorted_ok };
	int rc;

	if (!order || !addr || !sorted || !sorted_ok || !bytes)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for %zu call sites", n);
	for (u32 i = 0; i < n; i++)
		order[i] = i;
	qsort_r(order, n, sizeof(*order), by_ip, (void *)(uintptr_t)sites);
	for (size_t i = 0; i < n; i++)
		addr[i] = sites[order[i]].ip;
	rc = text_read_sites(g, &read, err);
	if (rc)
		return rc;
	for (size_t i = 0; i < n; i++) {
		memcpy(bytes + (size_t)order[i] * MCOUNT_INSN_SIZE, sorted + i * MCOUNT_INSN_SIZE,
		       MCOUNT_INSN_SIZE);
	}
	*bytes_ret = no_cleanup_ptr(bytes);
	return 0;
}

int baseline_take(struct guest *g, struct err *err)
{
	int rc = baseline_read(g, &g->baseline, err);

	if (rc)
		return rc;
	g->n_baseline = kernel_site_count(g->k);
	g->baseline_ip = calloc(g->n_baseline + 1, sizeof(*g->baseline_ip));
	if (!g->baseline_ip)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for %zu call sites",
			       g->n_baseline);
	for (size_t i = 0; i < g->n_baseline; i++)
		g->baseline_ip[i] = kernel_sites(g->k)[i].ip;
	return 0;
}

/* A site that was there before: in which record, so that one that came back is not taken for it. */
struct known {
	u64 ip;
	const u8 *bytes;
};

static int known_by_ip(const void *a, const void *b)
{
	const struct known *x = a, *y = b;

	return x->ip < y->ip ? -1 : x->ip > y->ip;
}

int baseline_refresh(struct guest *g, struct err *err)
{
	_cleanup_free_ struct known *known = calloc(g->n_baseline + 1, sizeof(*known));
	u8 *old = g->baseline;
	u64 *old_ip = g->baseline_ip;
	size_t n_old = g->n_baseline;
	int rc;

	if (!known)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for %zu call sites",
			       n_old);
	for (size_t i = 0; i < n_old; i++)
		known[i] = (struct known){ old_ip[i], old + i * MCOUNT_INSN_SIZE };
	qsort(known, n_old, sizeof(*known), known_by_ip);
	rc = kernel_refresh(g->k, err);
	if (rc)
		return rc;
	g->baseline = NULL;
	g->baseline_ip = NULL;
	rc = baseline_take(g, err);
	for (size_t i = 0; !rc && i < g->n_baseline; i++) {
		const struct known key = { .ip = g->baseline_ip[i] };
		const struct known *was = bsearch(&key, known, n_old, sizeof(*known), known_by_ip);

		if (was &&
		    insn_is_site_nop(was->bytes)) /* else the guest's own, which may have let go */
			memcpy(g->baseline + i * MCOUNT_INSN_SIZE, was->bytes, MCOUNT_INSN_SIZE);
	}
	free(old);
	free(old_ip);
	if (rc) /* the tables are new, and nothing is known of them: nothing can be armed */
		g->n_baseline = 0;
	return rc;
}

/* Every recorded site against the bytes of the attach; true when all are as before or explained. */
bool baseline_verify(struct guest *g)
{
	_cleanup_free_ u8 *now = NULL;
	struct err err = { 0 };
	bool good = true;

	if (kernel_refresh(g->k, &err) || baseline_read(g, &now, &err)) {
		log_warn("%s: cannot verify: %s", g->target, err.msg);
		return false;
	}
	for (size_t i = 0; i < g->n_baseline; i++) {
		const struct ftrace_site *s = kernel_site_at(g->k, g->baseline_ip[i]);
		size_t at;

		if (!s) /* its module went away meanwhile */
			continue;
		at = (size_t)(s - kernel_sites(g->k));
		if (!memcmp(now + at * MCOUNT_INSN_SIZE, g->baseline + i * MCOUNT_INSN_SIZE,
			    MCOUNT_INSN_SIZE))
			continue;
		/* in use by the guest now, or it was at attach */
		if (s->flags & kernel_site_use_mask(g->k) ||
		    (!insn_is_site_nop(g->baseline + i * MCOUNT_INSN_SIZE) &&
		     insn_is_site_nop(now + at * MCOUNT_INSN_SIZE))) {
			log_info("%s: %s was changed by the guest meanwhile", g->target, s->name);
			continue;
		}
		log_error("%s: %s at 0x%llx differs from what was there at attach", g->target,
			  s->name, (unsigned long long)s->ip);
		good = false;
	}
	return good;
}
