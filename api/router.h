/* SPDX-License-Identifier: Apache-2.0 */
/* Which handler answers which method and path: one visible table, in router.c. */
#ifndef API_ROUTER_H
#define API_ROUTER_H

#include "api/request.h"
#include "base/types.h"

#define ROUTE_MAX_QUERY 8
#define ROUTE_MAX_PARAM 64 /* bytes of a path parameter */

enum route_flags {
	ROUTE_INLINE = 1, /* never waits: may run on the HTTP thread */
	ROUTE_BODY = 2, /* takes a JSON body */
	ROUTE_STREAM = 4, /* answers with a stream */
	ROUTE_BYTES = 8, /* takes bytes, of which the audit log is told the number alone */
};

struct route {
	const char *method; /* GET answers HEAD too */
	const char *path; /* a segment "{x}" stands for a parameter */
	void (*handler)(struct request *rq);
	unsigned flags;
	const char *query[ROUTE_MAX_QUERY]; /* names allowed in the query, NULL-terminated */
	enum role least; /* who may; ROLE_UNSET, as when it is left out, means admins */
};

enum router_result {
	ROUTER_FOUND,
	ROUTER_NO_PATH,
	ROUTER_NO_METHOD,
	ROUTER_NO_MEMORY
};

/**
 * router_find - the route of a request
 * @params_ret: copies of the path's parameters, to be freed; NULL-padded
 * @allow_ret:  with ROUTER_NO_METHOD the methods of the path, "GET, HEAD, POST"
 *
 * Context: any thread.
 */
enum router_result router_find(const char *method, const char *path, const struct route **route_ret,
			       char *params_ret[REQUEST_MAX_PARAMS], char allow_ret[64]);

size_t router_count(void);
const struct route *router_get(size_t i);

#endif
