// SPDX-License-Identifier: Apache-2.0
/* /v1/guests and /v1/guests/{g}. */
#include "api/body.h"
#include "api/docs.h"
#include "api/registry.h"
#include "api/resources.h"
#include "api/server.h"
#include "patcher/facts.h"

#include <stdio.h>
#include <stdlib.h>

static json_t *windows_doc(const struct guest_info *i)
{
	const struct vm_windows *w = &i->windows;

	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "count", (json_int_t)w->count,
			 "last_ns", (json_int_t)w->last_ns, "max_ns", (json_int_t)w->max_ns,
			 "total_ns", (json_int_t)w->total_ns, "write_max_ns",
			 (json_int_t)w->write_max_ns, "write_total_ns",
			 (json_int_t)w->write_total_ns, "limit_ns", (json_int_t)i->window_limit_ns);
}

static json_t *agent_doc(const struct guest_info *i)
{
	if (!i->agent_loaded)
		return json_pack("{s:b, s:n, s:n, s:i}", "loaded", 0, "text", "data", "bytes", 0);
	return json_pack("{s:b, s:o, s:o, s:I}", "loaded", 1, "text", json_addr(i->agent_text),
			 "data", json_addr(i->agent_data), "bytes", (json_int_t)i->agent_bytes);
}

static json_t *trace_ids(struct guest_entry *g)
{
	json_t *ids = json_array();
	struct trace_entry **all;
	size_t n;

	all = registry_traces(g->reg, g->name, &n);
	for (size_t i = 0; all && i < n; i++) {
		json_array_append_new(ids, json_string(all[i]->id));
		registry_trace_put(all[i]);
	}
	free(all);
	return ids;
}

static json_t *doc_of(struct guest_entry *g, const struct guest_info *info)
{
	const struct guest_info i = *info;
	json_t *doc;

	doc = json_pack("{s:s, s:o, s:o, s:s, s:s, s:s, s:i, s:I, s:I}", "name", g->name, "target",
			json_text(g->target), "attached", json_time(g->attached_ns), "state",
			i.state ? i.state : "running", "accel", i.accel ? i.accel : "unknown",
			"console", i.console ? i.console : "none", "vmm_pid", (int)i.vmm_pid,
			"vcpus", (json_int_t)i.vcpus, "ram_bytes", (json_int_t)i.ram_bytes);
	if (!doc)
		return NULL;
	json_object_update_new(
		doc, json_pack("{s:o, s:o, s:o, s:o, s:i, s:I, s:I, s:I, s:I, s:I, s:I}", "release",
			       json_text(i.release), "banner", json_text(i.banner), "build_id",
			       json_text(i.build_id), "kaslr_offset", json_addr(i.kaslr_offset),
			       "paging_levels", i.paging_levels, "symbols", (json_int_t)i.n_symbols,
			       "functions", (json_int_t)i.n_functions, "traceable",
			       (json_int_t)i.n_traceable, "in_use", (json_int_t)i.n_in_use,
			       "modules", (json_int_t)i.n_modules, "armed", (json_int_t)i.n_armed));
	json_object_update_new(doc, json_pack("{s:I, s:I, s:o, s:o, s:o}", "find_ns",
					      (json_int_t)i.find_ns, "lend_ns",
					      (json_int_t)i.lend_ns, "agent", agent_doc(&i),
					      "windows", windows_doc(&i), "traces", trace_ids(g)));
	if (!json_object_get(doc, "banner") || !json_object_get(doc, "traces")) {
		json_decref(doc);
		return NULL;
	}
	return doc;
}

json_t *guest_doc(struct guest_entry *g)
{
	struct guest_info info = { 0 };

	guest_info(g->guest, &info);
	return doc_of(g, &info);
}

json_t *restore_doc(const struct guest_restore *r)
{
	return json_pack(
		"{s:I, s:I, s:I, s:I, s:b, s:b}", "sites_restored", (json_int_t)r->sites_restored,
		"sites_changed", (json_int_t)r->sites_changed, "returns_restored",
		(json_int_t)r->returns_restored, "returns_left", (json_int_t)r->returns_left,
		"memory_freed", (int)r->memory_freed, "verified", (int)r->verified);
}

json_t *items_doc(json_t *items)
{
	return items ? json_pack("{s:o}", "items", items) : NULL;
}

/* One guest that hangs is not to keep the list from who wants it. */
void res_guests_list(struct request *rq)
{
	struct guest_entry *g = NULL;
	json_t *items = json_array();
	bool failed = !items;

	while ((g = registry_guest_next(server_registry(rq->srv), g))) {
		struct guest_info info = { 0 };

		guest_glance(g->guest, &info);
		failed |= json_array_append_new(items, doc_of(g, &info)) < 0;
	}
	if (failed) {
		json_decref(items);
		items = NULL;
	}
	request_json(rq, 200, items_doc(items));
}

void res_guests_create(struct request *rq)
{
	struct guest_entry *g;
	struct guest_opts opts = { 0 };
	struct body_guest b;
	struct err err = { 0 };
	struct problem p;
	int r;

	if (body_guest_parse(rq->body.data, rq->body.len, &b, &p) < 0) {
		request_problem(rq, &p);
		return;
	}
	opts.boot_ns = b.boot_ns;
	opts.window_limit_ns = b.window_limit_ns;
	r = registry_attach(server_registry(rq->srv), b.target, b.name, &opts, &g, &err);
	body_guest_deinit(&b);
	if (r < 0) {
		request_error(rq, &err);
		return;
	}
	snprintf(rq->reply.location, sizeof(rq->reply.location), "/v1/guests/%s", g->name);
	request_json(rq, 201, guest_doc(g));
	registry_guest_put(g);
}

void res_guests_get(struct request *rq)
{
	struct guest_entry *g;
	struct err err = { 0 };

	if (registry_guest_get(server_registry(rq->srv), rq->params[0], &g, &err) < 0) {
		request_error(rq, &err);
		return;
	}
	request_json(rq, 200, guest_doc(g));
	registry_guest_put(g);
}

static json_t *tracer_doc(const char *name, const char *why_not)
{
	return json_pack("{s:s, s:b, s:s?}", "name", name, "available", !why_not, "why_not",
			 why_not);
}

static json_t *facts_doc(const struct guest_facts *f, const struct guest_info *i)
{
	static const char *const lockdowns[] = { NULL, "none", "integrity", "confidentiality" };
	const char *why_not = f->no_agent;
	json_t *config = json_object();

	if (!why_not && !i->n_traceable)
		why_not = "no call site is left that the guest does not use itself";
	for (size_t k = 0; k < f->n_config; k++)
		json_object_set_new(config, f->config[k].name, json_boolean(f->config[k].set));
	return json_pack("{s:o, s:s, s:s?, s:I, s:s, s:b, s:[o, o, o]}", "config", config,
			 "preemption", f->preemption, "lockdown", lockdowns[f->lockdown],
			 "btf_bytes", (json_int_t)f->btf_types_bytes, "agent_memory",
			 f->agent_in_vmm ? "vmm" : "guest", "ftrace_enabled",
			 (int)f->ftrace_enabled, "tracers", tracer_doc("function", why_not),
			 tracer_doc("function_graph", why_not),
			 tracer_doc("syscalls", why_not ? why_not : f->no_syscalls));
}

void res_guests_facts(struct request *rq)
{
	struct guest_facts facts;
	struct guest_info info;
	struct guest_entry *g;
	struct err err = { 0 };

	if (registry_guest_get(server_registry(rq->srv), rq->params[0], &g, &err) < 0) {
		request_error(rq, &err);
		return;
	}
	guest_get_facts(g->guest, &facts);
	guest_info(g->guest, &info);
	request_json(rq, 200, facts_doc(&facts, &info));
	registry_guest_put(g);
}

void res_guests_release(struct request *rq)
{
	struct guest_entry *g;
	struct err err = { 0 };
	int r;

	if (registry_guest_get(server_registry(rq->srv), rq->params[0], &g, &err) < 0) {
		request_error(rq, &err);
		return;
	}
	r = guest_release(g->guest, &err);
	if (r < 0)
		request_error(rq, &err);
	else
		request_json(rq, 200, guest_doc(g));
	registry_guest_put(g);
}

void res_guests_delete(struct request *rq)
{
	struct guest_restore restore;
	struct err err = { 0 };
	bool force;

	if (request_query_bool(rq, "force", &force) < 0)
		return;
	if (registry_detach(server_registry(rq->srv), rq->params[0], force, &restore, &err) < 0) {
		request_error(rq, &err);
		return;
	}
	request_json(
		rq, 200,
		json_pack("{s:s, s:o}", "name", rq->params[0], "restore", restore_doc(&restore)));
}
