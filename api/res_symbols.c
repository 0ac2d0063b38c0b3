// SPDX-License-Identifier: Apache-2.0
/* /v1/guests/{g}/symbols: all that kallsyms and the modules' tables have, data too. */
#include "api/registry.h"
#include "api/resources.h"
#include "api/server.h"
#include "tracers/filter.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SYMBOLS_LIMIT     1000
#define SYMBOLS_MAX_LIMIT 10000

struct selection {
	const struct request *rq; /* its "glob" parameters */
	const char *module; /* NULL: any; "kernel": the kernel's own */
	u64 limit;
	u64 from; /* index of the first symbol to look at */
	u64 address; /* 0: not asked for */
	u64 *cost; /* of comparing so far */
};

/* "0x" and hex digits. */
static bool parse_address(const char *text, u64 *ret)
{
	size_t digits;

	if (strncmp(text, "0x", 2) != 0)
		return false;
	digits = strspn(text + 2, "0123456789abcdefABCDEF");
	if (!digits || digits > 16 || text[2 + digits])
		return false;
	*ret = strtoull(text + 2, NULL, 16);
	return true;
}

static bool is_selected(const struct selection *sel, const struct kernel_sym *s)
{
	if (sel->module && strcmp(sel->module, s->module ? s->module : "kernel") != 0)
		return false;
	return res_glob_matches(sel->rq, s->name, s->module, sel->cost);
}

static int parse_selection(struct request *rq, struct selection *ret)
{
	const char *address = request_query(rq, "address");

	*ret = (struct selection){ .rq = rq, .module = request_query(rq, "module") };
	if (request_query_u64(rq, "limit", SYMBOLS_LIMIT, SYMBOLS_MAX_LIMIT, &ret->limit) < 0 ||
	    request_query_u64(rq, "cursor", 0, INT64_MAX, &ret->from) < 0)
		return -EINVAL;
	if (!ret->limit) {
		request_refuse(rq, "limit", "must be a number, 1 to %d", SYMBOLS_MAX_LIMIT);
		return -EINVAL;
	}
	if (address && (!parse_address(address, &ret->address) || !ret->address)) {
		request_refuse(rq, "address", "must be an address as 0xffffffff81000000");
		return -EINVAL;
	}
	return 0;
}

static json_t *symbol_doc(const struct kernel_sym *s)
{
	char type[2] = { s->type >= 0x20 && s->type < 0x7f ? s->type : '?', 0 };

	return json_pack("{s:o, s:o, s:o, s:I, s:s}", "name", json_text(s->name), "module",
			 json_text(s->module), "address", json_addr(s->addr), "bytes",
			 (json_int_t)s->size_bytes, "type", type);
}

/* The symbol that covers the address, with how far into it that is. */
static json_t *at_address(const struct kernel *k, const struct selection *sel)
{
	json_t *items = json_array(), *doc;
	struct kernel_sym s;

	if (items && kernel_sym_at(k, sel->address, &s) && is_selected(sel, &s)) {
		doc = symbol_doc(&s);
		if (!doc ||
		    json_object_set_new(doc, "offset",
					json_integer((json_int_t)(sel->address - s.addr))) ||
		    json_array_append_new(items, doc)) {
			json_decref(items);
			return NULL;
		}
	}
	return json_pack("{s:o, s:n}", "items", items, "next_cursor");
}

/* A page; the guest's lock is held, since a refresh would replace them. */
static json_t *page(const struct kernel *k, const struct selection *sel)
{
	json_t *items = json_array(), *next = NULL;
	size_t n = kernel_sym_count(k);
	struct kernel_sym s;

	for (u64 i = sel->from; items && i < n && *sel->cost <= FILTER_MAX_COST; i++) {
		kernel_sym_get(k, (size_t)i, &s);
		if (!is_selected(sel, &s))
			continue;
		if (json_array_size(items) == sel->limit) {
			next = json_sprintf("%llu", (unsigned long long)i);
			break;
		}
		if (json_array_append_new(items, symbol_doc(&s))) {
			json_decref(items);
			return NULL;
		}
	}
	return json_pack("{s:o, s:o}", "items", items, "next_cursor", next ? next : json_null());
}

void res_symbols_list(struct request *rq)
{
	struct guest_entry *g;
	struct selection sel;
	struct err err = { 0 };
	const struct kernel *k;
	json_t *doc;
	u64 cost = 0;

	if (parse_selection(rq, &sel) < 0)
		return;
	sel.cost = &cost;
	if (registry_guest_get(server_registry(rq->srv), rq->params[0], &g, &err) < 0) {
		request_error(rq, &err);
		return;
	}
	guest_lock(g->guest);
	k = guest_kernel(g->guest);
	doc = sel.address ? at_address(k, &sel) : page(k, &sel);
	guest_unlock(g->guest);
	registry_guest_put(g);
	if (res_too_costly(cost, &err)) {
		json_decref(doc);
		request_error(rq, &err);
		return;
	}
	request_json(rq, 200, doc);
}
