// SPDX-License-Identifier: Apache-2.0
/* /v1/guests/{g}/functions and /v1/guests/{g}/modules. */
#include "api/docs.h"
#include "api/registry.h"
#include "api/resources.h"
#include "api/server.h"
#include "tracers/filter.h"
#define LOG_PREFIX "functions"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTIONS_LIMIT     1000
#define FUNCTIONS_MAX_LIMIT 10000

static const char *const state_names[] = {
	[SITE_OK] = "traceable",
	[SITE_DISABLED] = "disabled",
	[SITE_IN_USE] = "in_use",
};

/* What of a guest's functions is asked for. */
struct selection {
	const struct request *rq; /* its "glob" parameters */
	const char *module; /* NULL: any; "kernel": the kernel's own */
	int state; /* enum site_state, -1 for any */
	u64 limit;
	u64 from; /* index of the first site to look at */
	u64 *cost; /* of comparing so far */
};

bool res_glob_matches(const struct request *rq, const char *name, const char *module, u64 *cost)
{
	bool any = false;

	for (size_t i = 0; i < rq->n_query; i++) {
		if (strcmp(rq->query[i].name, "glob") != 0)
			continue;
		any = true;
		if (filter_match_cost(rq->query[i].value ? rq->query[i].value : "", name, module,
				      cost))
			return true;
	}
	return !any;
}

bool res_too_costly(u64 cost, struct err *err)
{
	return cost > FILTER_MAX_COST &&
	       err_set(err, -E2BIG, ERR_FILTER_COST, 0,
		       "glob: it takes too long to compare them with all names");
}

static bool is_selected(const struct selection *sel, const struct ftrace_site *s)
{
	if (sel->state >= 0 && s->state != (enum site_state)sel->state)
		return false;
	if (sel->module && strcmp(sel->module, s->module ? s->module : "kernel") != 0)
		return false;
	return res_glob_matches(sel->rq, s->name, s->module, sel->cost);
}

static bool parse_cursor(const char *text, u64 *index_ret, u64 *ip_ret)
{
	size_t digits = strspn(text, "0123456789");
	size_t hex = text[digits] == '-' ? strspn(text + digits + 1, "0123456789abcdef") : 0;

	if (!digits || digits > 18 || !hex || hex > 16 || text[digits + 1 + hex])
		return false;
	*index_ret = strtoull(text, NULL, 10);
	*ip_ret = strtoull(text + digits + 1, NULL, 16);
	return true;
}

/*
 * A cursor is "INDEX-IP" of the last site shown. Modules that came or went shift the indices, so the
 * address has the last word: a site that is not there any more makes the client begin again.
 */
static int apply_cursor(struct request *rq, const struct kernel *k, struct selection *sel)
{
	const char *text = request_query(rq, "cursor");
	const struct ftrace_site *sites = kernel_sites(k), *s;
	struct err err = { 0 };
	u64 index, ip;

	if (!text)
		return 0;
	if (!parse_cursor(text, &index, &ip)) {
		request_refuse(rq, "cursor", "must be the next_cursor of an earlier answer");
		return -EINVAL;
	}
	if (index < kernel_site_count(k) && sites[index].ip == ip) {
		sel->from = index + 1;
		return 0;
	}
	s = kernel_site_at(k, ip);
	if (s) {
		sel->from = (u64)(s - sites) + 1;
		return 0;
	}
	err_set(&err, -ESTALE, ERR_CONFLICT, ip,
		"the guest's functions changed since the last page; begin again without a cursor");
	request_error(rq, &err);
	return -ESTALE;
}

static int parse_selection(struct request *rq, struct selection *ret)
{
	const char *state = request_query(rq, "state");
	int s;

	*ret = (struct selection){ .rq = rq, .module = request_query(rq, "module"), .state = -1 };
	if (request_query_u64(rq, "limit", FUNCTIONS_LIMIT, FUNCTIONS_MAX_LIMIT, &ret->limit) < 0)
		return -EINVAL;
	if (!ret->limit) {
		request_refuse(rq, "limit", "must be a number, 1 to %d", FUNCTIONS_MAX_LIMIT);
		return -EINVAL;
	}
	if (!state)
		return 0;
	for (s = 0; s < (int)ARRAY_SIZE(state_names) && strcmp(state, state_names[s]) != 0; s++)
		;
	if (s == (int)ARRAY_SIZE(state_names)) {
		request_refuse(rq, "state", "must be traceable, disabled or in_use");
		return -EINVAL;
	}
	ret->state = s;
	return 0;
}

static json_t *site_doc(const struct ftrace_site *s)
{
	return json_pack("{s:o, s:o, s:o, s:s}", "name", json_text(s->name), "module",
			 json_text(s->module), "ip", json_addr(s->ip), "state",
			 state_names[s->state]);
}

/* A page of sites; the guest's lock is held, since a refresh would replace them. */
static json_t *page(const struct kernel *k, const struct selection *sel)
{
	const struct ftrace_site *sites = kernel_sites(k);
	size_t n = kernel_site_count(k), i, last = 0;
	json_t *items = json_array(), *next = NULL;

	for (i = sel->from; items && i < n && *sel->cost <= FILTER_MAX_COST; i++) {
		if (!is_selected(sel, &sites[i]))
			continue;
		if (json_array_size(items) == sel->limit) {
			next = json_sprintf("%zu-%llx", last, (unsigned long long)sites[last].ip);
			break;
		}
		if (json_array_append_new(items, site_doc(&sites[i]))) {
			json_decref(items);
			return NULL;
		}
		last = i;
	}
	return json_pack("{s:o, s:o}", "items", items, "next_cursor", next ? next : json_null());
}

/* What a guest that cannot be read now was like is what there is to tell. */
static void refresh(struct guest *g, bool fresh)
{
	struct err err = { 0 };

	if (guest_refresh(g, fresh, &err))
		log_debug("%s", err.msg);
}

void res_functions_list(struct request *rq)
{
	struct guest_entry *g;
	struct selection sel;
	struct err err = { 0 };
	const struct kernel *k;
	json_t *doc = NULL;
	u64 cost = 0;
	int r;

	if (parse_selection(rq, &sel) < 0)
		return;
	sel.cost = &cost;
	if (registry_guest_get(server_registry(rq->srv), rq->params[0], &g, &err) < 0) {
		request_error(rq, &err);
		return;
	}
	guest_lock(g->guest);
	/* the pages of one list are of one moment, unless modules come or go */
	refresh(g->guest, !request_query(rq, "cursor"));
	k = guest_kernel(g->guest);
	r = apply_cursor(rq, k, &sel);
	if (r == 0)
		doc = page(k, &sel);
	guest_unlock(g->guest);
	registry_guest_put(g);
	if (res_too_costly(cost, &err)) {
		json_decref(doc);
		request_error(rq, &err);
	} else if (r == 0) {
		request_json(rq, 200, doc);
	}
}

static json_t *module_doc(const struct kernel_module *m)
{
	return json_pack("{s:o, s:o, s:I, s:I, s:I}", "name", json_text(m->name), "base",
			 json_addr(m->base), "text_bytes", (json_int_t)m->text_bytes, "symbols",
			 (json_int_t)m->n_syms, "functions", (json_int_t)m->n_sites);
}

void res_modules_list(struct request *rq)
{
	const struct kernel_module *modules;
	json_t *items = json_array();
	struct guest_entry *g;
	struct err err = { 0 };
	const struct kernel *k;

	if (registry_guest_get(server_registry(rq->srv), rq->params[0], &g, &err) < 0) {
		json_decref(items);
		request_error(rq, &err);
		return;
	}
	guest_lock(g->guest);
	refresh(g->guest, false);
	k = guest_kernel(g->guest);
	modules = kernel_modules(k);
	for (size_t i = 0; items && i < kernel_module_count(k); i++) {
		if (json_array_append_new(items, module_doc(&modules[i]))) {
			json_decref(items);
			items = NULL;
		}
	}
	guest_unlock(g->guest);
	registry_guest_put(g);
	request_json(rq, 200, items_doc(items));
}
