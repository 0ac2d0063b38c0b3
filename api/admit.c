// SPDX-License-Identifier: Apache-2.0
/* Whether a request is let in. See admit.h. */
#include "api/admit.h"

#include "api/body.h"
#include "api/listen.h"
#include "api/router.h"
#include "api/server.h"
#include "api/tls.h"
#include "base/cleanup.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#define MAX_PEER_GROUPS 256

/* The other end of a unix socket, as the kernel knows it. */
static void identify_local(struct request *rq, struct auth *auth, int fd)
{
	gid_t groups[MAX_PEER_GROUPS];
	socklen_t len = sizeof(struct ucred), groups_len = sizeof(groups);
	struct auth_peer peer = { .groups = groups };
	struct ucred cred;

	rq->who = (struct identity){ .role = ROLE_ANYBODY, .name = "?" };
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return;
	/* those of one in more groups than we have room for do not count */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &groups_len) == 0)
		peer.n_groups = groups_len / sizeof(groups[0]);
	peer.uid = cred.uid;
	peer.gid = cred.gid;
	rq->client_pid = (u32)cred.pid;
	auth_local(auth, &peer, &rq->who);
}

/* The token in Authorization; NULL: none. No cookie: a browser sends those to every port of a host. */
static const char *token_of(struct request *rq)
{
	const char *v;

	v = MHD_lookup_connection_value(rq->conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
	if (v && strncasecmp(v, "Bearer ", 7) == 0)
		return v + 7 + strspn(v + 7, " ");
	return NULL;
}

static void identify_remote(struct request *rq, const struct admit_place *place)
{
	const struct identity unknown = { .role = ROLE_ANYBODY, .name = "?" };
	const char *token = token_of(rq);
	char name[AUTH_MAX_NAME + 1];

	rq->who = unknown;
	if (token) /* a wrong one is not made good by anything else */
		rq->bad_token = !auth_token(place->auth, token, &rq->who);
	else if (!place->is_tls)
		auth_loopback(place->auth, &rq->who);
	else if (tls_peer_name(rq->conn, name))
		auth_cert(place->auth, name, &rq->who);
	/* of a certificate it is known whose it is, though there may be no rule for it */
	if (rq->bad_token || (!place->is_tls && rq->who.role == ROLE_ANYBODY))
		rq->who = unknown;
}

void admit_identify(struct request *rq, const struct admit_place *place)
{
	const union MHD_ConnectionInfo *info;

	rq->is_tls = place->is_tls;
	if (place->is_tcp) {
		identify_remote(rq, place);
		return;
	}
	info = MHD_get_connection_info(rq->conn, MHD_CONNECTION_INFO_CONNECTION_FD);
	identify_local(rq, place->auth, info ? info->connect_fd : -1);
}

static enum MHD_Result add_query(void *arg, enum MHD_ValueKind kind, const char *key,
				 const char *value)
{
	struct request *rq = arg;

	(void)kind;
	if (rq->n_query == REQUEST_MAX_QUERY)
		return MHD_NO;
	rq->query[rq->n_query].name = strdup(key ? key : "");
	rq->query[rq->n_query].value = value ? strdup(value) : NULL;
	if (!rq->query[rq->n_query].name || (value && !rq->query[rq->n_query].value)) {
		free(rq->query[rq->n_query].name);
		return MHD_NO;
	}
	rq->n_query++;
	return MHD_YES;
}

/* Only "glob" may come more than once, and nothing that the route does not know. */
static int check_query(struct request *rq)
{
	const char *const *known = rq->route->query;
	int n = MHD_get_connection_values(rq->conn, MHD_GET_ARGUMENT_KIND, NULL, NULL);
	struct problem p;

	MHD_get_connection_values(rq->conn, MHD_GET_ARGUMENT_KIND, add_query, rq);
	if (n > REQUEST_MAX_QUERY) {
		problem_bad_request(&p, "the query has %d parameters; at most %d are taken", n,
				    REQUEST_MAX_QUERY);
		request_problem(rq, &p);
		return -EINVAL;
	}
	for (size_t i = 0; i < rq->n_query; i++) {
		const char *name = rq->query[i].name;
		size_t k = 0;

		while (k < ROUTE_MAX_QUERY && known[k] && strcmp(known[k], name) != 0)
			k++;
		if (k == ROUTE_MAX_QUERY || !known[k]) {
			request_refuse(rq, name, "is not a parameter of this operation");
			return -EINVAL;
		}
		for (k = 0; k < i && strcmp(name, "glob") != 0; k++) {
			if (strcmp(rq->query[k].name, name) == 0) {
				request_refuse(rq, name, "is given twice");
				return -EINVAL;
			}
		}
	}
	return 0;
}

static bool is_type(const char *type, const char *wanted)
{
	size_t n = strlen(wanted);

	return type && strncasecmp(type, wanted, n) == 0 &&
	       (!type[n] || type[n] == ';' || type[n] == ' ');
}

static void refuse(struct request *rq, enum problem_code code, const char *detail)
{
	struct problem p;

	problem_from_code(&p, code, "%s", detail);
	request_problem(rq, &p);
}

static int check_body(struct request *rq)
{
	const char *wanted = "application/json";
	struct problem p;

	if (rq->body_bytes > rq->body_limit) {
		problem_from_code(&p, PROBLEM_BODY_SIZE,
				  "the request's body has more than %llu bytes",
				  (unsigned long long)rq->body_limit);
		request_problem(rq, &p);
		return -EINVAL;
	}
	if (buf_failed(&rq->body)) {
		request_json(rq, 503, NULL);
		return -EINVAL;
	}
	if (rq->route->flags & ROUTE_BYTES)
		wanted = "application/octet-stream";
	if (!(rq->route->flags & (ROUTE_BODY | ROUTE_BYTES))) {
		if (strcmp(rq->route->method, "POST") != 0 ||
		    body_is_empty(rq->body.data, rq->body.len))
			return 0;
		problem_bad_request(&p, "this operation takes no body");
		request_problem(rq, &p);
		return -EINVAL;
	}
	if (!is_type(rq->content_type, wanted)) {
		problem_from_code(&p, PROBLEM_MEDIA_TYPE_IN, "the request's body is %.80s",
				  rq->content_type ? rq->content_type : "of no stated type");
		if (rq->route->flags & ROUTE_BYTES)
			p.hint = "send Content-Type: application/octet-stream";
		request_problem(rq, &p);
		return -EINVAL;
	}
	return 0;
}

/*
 * A web page that the user happens to look at must not reach the daemon: neither under a name that
 * was made to resolve to loopback (DNS rebinding: Host), nor by a request of its own (Origin). With TLS the
 * certificate is not one for the other name.
 */
static bool is_foreign(struct request *rq, const struct admit_place *place)
{
	const char *scheme = place->is_tls ? "https://" : "http://", *host, *origin, *site;
	size_t n;

	host = MHD_lookup_connection_value(rq->conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
	origin = MHD_lookup_connection_value(rq->conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_ORIGIN);
	if (place->is_tcp && !place->is_tls && (!host || !listen_is_loopback(host)))
		return true;
	/* a plain GET of another page's has no Origin; the page itself may be linked to from anywhere */
	site = MHD_lookup_connection_value(rq->conn, MHD_HEADER_KIND, "Sec-Fetch-Site");
	if (site && strncmp(rq->path, "/v1/", 4) == 0 && strcmp(site, "same-origin") != 0 &&
	    strcmp(site, "none") != 0)
		return true;
	if (!origin)
		return false;
	n = strlen(scheme);
	return !host || strncmp(origin, scheme, n) != 0 || strcasecmp(origin + n, host) != 0;
}

/* May whoever it is do this? */
static bool check_role(struct request *rq)
{
	enum role least = rq->route->least ? rq->route->least : ROLE_ADMIN;
	struct problem p;

	if (rq->who.role >= least)
		return true;
	if (rq->who.role == ROLE_ANYBODY && rq->who.name[0] == '?')
		problem_from_code(&p, PROBLEM_WHO, "%s",
				  rq->bad_token ? "the token is none that this daemon knows"
						: "who you are is not known");
	else
		problem_from_code(&p, PROBLEM_ROLE, "%s %s is for the role %s; %s has %s",
				  rq->route->method, rq->route->path, role_name(least),
				  rq->who.name, role_name(rq->who.role));
	request_problem(rq, &p);
	return false;
}

static bool find_route(struct request *rq)
{
	struct problem p;

	switch (router_find(rq->method, rq->path, &rq->route, rq->params, rq->reply.allow)) {
	case ROUTER_FOUND:
		rq->reply.allow[0] = 0;
		return true;
	case ROUTER_NO_METHOD:
		problem_from_code(&p, PROBLEM_METHOD, "%.80s does not take %.20s", rq->path,
				  rq->method);
		request_problem(rq, &p);
		return false;
	case ROUTER_NO_MEMORY:
		request_json(rq, 503, NULL);
		return false;
	default:
		problem_from_code(&p, PROBLEM_NO_ROUTE, "there is nothing at %.120s", rq->path);
		request_problem(rq, &p);
		return false;
	}
}

bool admit_request(struct request *rq, const struct admit_place *place)
{
	if (is_foreign(rq, place)) {
		refuse(rq, PROBLEM_ORIGIN, "the request's Host or Origin is not this daemon");
		return false;
	}
	return find_route(rq) && check_role(rq) && check_query(rq) == 0 && check_body(rq) == 0;
}
