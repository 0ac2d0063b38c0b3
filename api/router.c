// SPDX-License-Identifier: Apache-2.0
/*
 * The routes. To add one: a line here, a handler in its resource's file, a path in openapi.yaml and
 * a test; tests/api/test_openapi.py compares the two lists.
 */
#include "api/router.h"

#include "api/resources.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTIONS "/v1/guests/{g}/functions"

static const struct route routes[] = {
	{ "GET", "/healthz", res_healthz, ROUTE_INLINE, { NULL }, ROLE_ANYBODY },
	{ "GET", "/version", res_version, ROUTE_INLINE, { NULL }, ROLE_ANYBODY },
	{ "GET", "/openapi.yaml", res_openapi, ROUTE_INLINE, { NULL }, ROLE_ANYBODY },
	{ "GET", "/", res_page, ROUTE_INLINE, { NULL }, ROLE_ANYBODY },
	{ "GET", "/assets/{file}", res_assets, ROUTE_INLINE, { NULL }, ROLE_ANYBODY },
	{ "GET", "/metrics", res_metrics, 0, { NULL }, ROLE_VIEWER },
	{ "GET", "/v1/events", res_events_list, 0, { "after", "limit" }, ROLE_VIEWER },
	{ "GET", "/v1/events/stream", res_events_stream, ROUTE_STREAM, { "after" }, ROLE_VIEWER },
	{ "GET", "/v1/machines", res_machines_list, 0, { NULL }, ROLE_VIEWER },
	{ "GET", "/v1/guests", res_guests_list, 0, { NULL }, ROLE_VIEWER },
	{ "POST", "/v1/guests", res_guests_create, ROUTE_BODY, { NULL }, ROLE_ADMIN },
	{ "GET", "/v1/guests/{g}", res_guests_get, 0, { NULL }, ROLE_VIEWER },
	{ "DELETE", "/v1/guests/{g}", res_guests_delete, 0, { "force" }, ROLE_ADMIN },
	{ "GET", "/v1/guests/{g}/facts", res_guests_facts, 0, { NULL }, ROLE_VIEWER },
	{ "GET",
	  "/v1/guests/{g}/console",
	  res_console_read,
	  ROUTE_STREAM,
	  { "tail", "follow" },
	  ROLE_OPERATOR },
	{ "POST", "/v1/guests/{g}/console", res_console_type, ROUTE_BYTES, { NULL }, ROLE_ADMIN },
	{ "POST", "/v1/guests/{g}/release", res_guests_release, 0, { NULL }, ROLE_ADMIN },
	{ "GET",
	  FUNCTIONS,
	  res_functions_list,
	  0,
	  { "glob", "module", "state", "limit", "cursor" },
	  ROLE_VIEWER },
	{ "GET", "/v1/guests/{g}/modules", res_modules_list, 0, { NULL }, ROLE_VIEWER },
	{ "GET",
	  "/v1/guests/{g}/symbols",
	  res_symbols_list,
	  0,
	  { "glob", "module", "address", "limit", "cursor" },
	  ROLE_VIEWER },
	{ "GET", "/v1/guests/{g}/traces", res_guest_traces_list, 0, { NULL }, ROLE_VIEWER },
	{ "POST", "/v1/guests/{g}/traces", res_traces_create, ROUTE_BODY, { NULL }, ROLE_OPERATOR },
	{ "GET", "/v1/traces", res_traces_list, 0, { NULL }, ROLE_VIEWER },
	{ "GET", "/v1/traces/{t}", res_traces_get, 0, { NULL }, ROLE_VIEWER },
	{ "PATCH", "/v1/traces/{t}", res_traces_change, ROUTE_BODY, { NULL }, ROLE_OPERATOR },
	{ "DELETE", "/v1/traces/{t}", res_traces_delete, 0, { "force" }, ROLE_OPERATOR },
	{ "POST", "/v1/traces/{t}/markers", res_traces_mark, ROUTE_BODY, { NULL }, ROLE_OPERATOR },
	{ "POST", "/v1/traces/{t}/snapshot", res_traces_snapshot, 0, { NULL }, ROLE_OPERATOR },
	{ "POST", "/v1/traces/{t}/stop", res_traces_stop, 0, { NULL }, ROLE_OPERATOR },
	{ "GET",
	  "/v1/traces/{t}/profile",
	  res_traces_profile,
	  0,
	  { "sort", "limit", "graph_time" },
	  ROLE_VIEWER },
	{ "GET",
	  "/v1/traces/{t}/records",
	  res_traces_records,
	  0,
	  { "after", "limit" },
	  ROLE_VIEWER },
	{ "GET",
	  "/v1/traces/{t}/export",
	  res_traces_export,
	  ROUTE_STREAM,
	  { "format", "host_trace_id" },
	  ROLE_VIEWER },
	{ "GET",
	  "/v1/traces/{t}/stream",
	  res_traces_stream,
	  ROUTE_STREAM,
	  { "after", "layout", "on_close" },
	  ROLE_VIEWER },
};

size_t router_count(void)
{
	return ARRAY_SIZE(routes);
}

const struct route *router_get(size_t i)
{
	return &routes[i];
}

/* Compare @path with a route's; the segments that "{..}" stands for go into @seg, up to @n_ret. */
static bool path_matches(const char *pattern, const char *path, const char *seg[REQUEST_MAX_PARAMS],
			 size_t len[REQUEST_MAX_PARAMS], size_t *n_ret)
{
	size_t n = 0, plen, slen;

	while (*pattern == '/' && *path == '/') {
		pattern++;
		path++;
		plen = strcspn(pattern, "/");
		slen = strcspn(path, "/");
		if (pattern[0] == '{') {
			if (!slen || slen > ROUTE_MAX_PARAM || n == REQUEST_MAX_PARAMS)
				return false;
			seg[n] = path;
			len[n++] = slen;
		} else if (plen != slen || memcmp(pattern, path, plen) != 0) {
			return false;
		}
		pattern += plen;
		path += slen;
	}
	*n_ret = n;
	return !*pattern && !*path;
}

static void add_allow(char allow[64], const char *method)
{
	size_t len = strlen(allow);

	snprintf(allow + len, 64 - len, "%s%s", len ? ", " : "", method);
	if (strcmp(method, "GET") == 0)
		add_allow(allow, "HEAD");
}

enum router_result router_find(const char *method, const char *path, const struct route **route_ret,
			       char *params_ret[REQUEST_MAX_PARAMS], char allow_ret[64])
{
	const char *seg[REQUEST_MAX_PARAMS];
	size_t len[REQUEST_MAX_PARAMS], n;
	bool known = false;

	if (strcmp(method, "HEAD") == 0)
		method = "GET";
	allow_ret[0] = 0;
	for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
		if (!path_matches(routes[i].path, path, seg, len, &n))
			continue;
		known = true;
		add_allow(allow_ret, routes[i].method);
		if (strcmp(routes[i].method, method) != 0)
			continue;
		for (size_t p = 0; p < n; p++) {
			params_ret[p] = strndup(seg[p], len[p]);
			if (!params_ret[p])
				return ROUTER_NO_MEMORY;
		}
		*route_ret = &routes[i];
		return ROUTER_FOUND;
	}
	return known ? ROUTER_NO_METHOD : ROUTER_NO_PATH;
}
