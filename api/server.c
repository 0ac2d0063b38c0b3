// SPDX-License-Identifier: Apache-2.0
/*
 * The HTTP side, on libmicrohttpd: one epoll thread a listening socket, which never waits for
 * anything. A handler that may wait runs on a worker while its connection is suspended.
 *
 * The library calls on_request() once with the headers, then for each piece of the body, then with
 * none: only there a reply is queued, since a reply to the first call would close the connection.
 */
#include "api/server.h"

#include "api/body.h"
#include "api/hub.h"
#include "api/listen.h"
#include "api/registry.h"
#include "api/router.h"
#include "api/work.h"
#include "base/cleanup.h"
#define LOG_PREFIX "http"
#include "base/log.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>

#define MAX_CONNECTIONS   256u
#define MAX_WORKERS       64
#define IDLE_TIMEOUT_SEC  60u
#define CONNECTION_MEMORY (64u * 1024)
#define MAX_DISCARD       (8ul * REQUEST_MAX_BODY) /* of a body that is too large, to be able to answer */
#define STOP_GRACE_NS     (2 * NSEC_PER_SEC)

struct listener {
	struct server *srv;
	struct MHD_Daemon *daemon;
	bool is_tcp;
};

struct server {
	struct registry *registry;
	struct hub *hub;
	struct work *work;
	struct listener listen[SERVER_MAX_LISTEN];
	size_t n_listen;
	u64 started_ns, id_base;
	atomic_ullong n_requests, n_open, n_busy;
	atomic_bool stopping;
};

struct registry *server_registry(struct server *srv)
{
	return srv->registry;
}

struct hub *server_hub(struct server *srv)
{
	return srv->hub;
}

struct work *server_work(struct server *srv)
{
	return srv->work;
}

u64 server_started_ns(const struct server *srv)
{
	return srv->started_ns;
}

u64 server_requests(const struct server *srv)
{
	return atomic_load(&srv->n_requests);
}

u64 server_connections(const struct server *srv)
{
	return atomic_load(&srv->n_open);
}

static u64 clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (u64)ts.tv_sec * NSEC_PER_SEC + (u64)ts.tv_nsec;
}

static void request_destroy(struct request *rq)
{
	if (!rq)
		return;
	if (rq->reply.response)
		MHD_destroy_response(rq->reply.response);
	for (size_t i = 0; i < REQUEST_MAX_PARAMS; i++)
		free(rq->params[i]);
	for (size_t i = 0; i < rq->n_query; i++) {
		free(rq->query[i].name);
		free(rq->query[i].value);
	}
	free(rq->method);
	free(rq->path);
	free(rq->content_type);
	free(rq->accept);
	free(rq->accept_encoding);
	free(rq->if_none_match);
	buf_deinit(&rq->body);
	buf_deinit(&rq->reply.body);
	free(rq);
}

/* A header as a copy: a worker must not look into the connection. NULL when not sent. */
static char *copy_header(struct MHD_Connection *conn, const char *name)
{
	const char *v = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, name);

	return v ? strdup(v) : NULL;
}

static struct request *request_create(struct server *srv, struct MHD_Connection *conn,
				      const char *method, const char *path)
{
	struct request *rq = calloc(1, sizeof(*rq));
	u64 n = atomic_fetch_add(&srv->n_requests, 1);

	if (!rq)
		return NULL;
	rq->srv = srv;
	rq->conn = conn;
	rq->started_ns = clock_ns(CLOCK_MONOTONIC);
	snprintf(rq->id, sizeof(rq->id), "%016llx", (unsigned long long)(srv->id_base + n));
	rq->method = strdup(method);
	rq->path = strdup(path);
	rq->content_type = copy_header(conn, MHD_HTTP_HEADER_CONTENT_TYPE);
	rq->accept = copy_header(conn, MHD_HTTP_HEADER_ACCEPT);
	rq->accept_encoding = copy_header(conn, MHD_HTTP_HEADER_ACCEPT_ENCODING);
	rq->if_none_match = copy_header(conn, MHD_HTTP_HEADER_IF_NONE_MATCH);
	if (!rq->method || !rq->path) {
		request_destroy(rq);
		return NULL;
	}
	atomic_fetch_add(&srv->n_busy, 1);
	return rq;
}

/* What only the page's files have. */
static enum MHD_Result add_page_headers(const struct reply *rp, struct MHD_Response *resp)
{
	enum MHD_Result ok = MHD_YES;

	if (rp->encoding)
		ok &= MHD_add_response_header(resp, MHD_HTTP_HEADER_CONTENT_ENCODING, rp->encoding);
	if (rp->varies)
		ok &= MHD_add_response_header(resp, MHD_HTTP_HEADER_VARY, "Accept-Encoding");
	if (rp->etag[0])
		ok &= MHD_add_response_header(resp, MHD_HTTP_HEADER_ETAG, rp->etag);
	if (rp->policy) {
		ok &= MHD_add_response_header(resp, "Content-Security-Policy", rp->policy);
		ok &= MHD_add_response_header(resp, "Referrer-Policy", "no-referrer");
		ok &= MHD_add_response_header(resp, "Cross-Origin-Opener-Policy", "same-origin");
	}
	return ok;
}

/* Hand the reply to the library. */
static enum MHD_Result queue_reply(struct request *rq)
{
	struct reply *rp = &rq->reply;
	struct MHD_Response *resp = rp->response;
	enum MHD_Result ok = MHD_YES;

	rp->response = NULL;
	if (!resp) {
		/* the buffer's storage goes with the response; MHD frees it with free(3) */
		resp = MHD_create_response_from_buffer(rp->body.len, rp->body.data,
						       MHD_RESPMEM_MUST_FREE);
		if (!resp)
			return MHD_NO;
		rp->body = (struct buf){ 0 };
	}
	ok &= MHD_add_response_header(resp, "X-Request-Id", rq->id);
	ok &= MHD_add_response_header(resp, "X-Content-Type-Options", "nosniff");
	ok &= MHD_add_response_header(resp, MHD_HTTP_HEADER_CACHE_CONTROL,
				      rp->immutable ? "no-cache" : "no-store");
	if (rp->type)
		ok &= MHD_add_response_header(resp, MHD_HTTP_HEADER_CONTENT_TYPE, rp->type);
	if (rp->location[0])
		ok &= MHD_add_response_header(resp, MHD_HTTP_HEADER_LOCATION, rp->location);
	ok &= add_page_headers(rp, resp);
	if (rp->allow[0])
		ok &= MHD_add_response_header(resp, MHD_HTTP_HEADER_ALLOW, rp->allow);
	if (rp->is_stream) {
		/* its reader may take its time; and with no time limit it serves nothing else after */
		ok &= MHD_add_response_header(resp, MHD_HTTP_HEADER_CONNECTION, "close");
		MHD_set_connection_option(rq->conn, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
	}
	if (ok == MHD_YES)
		ok = MHD_queue_response(rq->conn, (unsigned)rp->status, resp);
	MHD_destroy_response(resp);
	return ok;
}

static void run_handler(void *arg)
{
	struct request *rq = arg;

	rq->route->handler(rq);
	rq->state = REQUEST_ANSWERED;
	MHD_resume_connection(rq->conn);
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

static bool is_json(const char *type)
{
	size_t n = strlen("application/json");

	return type && strncasecmp(type, "application/json", n) == 0 &&
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
	struct problem p;

	if (rq->body_bytes > REQUEST_MAX_BODY) {
		problem_from_code(&p, PROBLEM_BODY_SIZE,
				  "the request's body has more than %d bytes", REQUEST_MAX_BODY);
		request_problem(rq, &p);
		return -EINVAL;
	}
	if (buf_failed(&rq->body)) {
		request_json(rq, 503, NULL);
		return -EINVAL;
	}
	if (!(rq->route->flags & ROUTE_BODY)) {
		if (strcmp(rq->route->method, "POST") != 0 ||
		    body_is_empty(rq->body.data, rq->body.len))
			return 0;
		problem_bad_request(&p, "this operation takes no body");
		request_problem(rq, &p);
		return -EINVAL;
	}
	if (!is_json(rq->content_type)) {
		problem_from_code(&p, PROBLEM_MEDIA_TYPE_IN, "the request's body is %.80s",
				  rq->content_type ? rq->content_type : "of no stated type");
		request_problem(rq, &p);
		return -EINVAL;
	}
	return 0;
}

/*
 * A web page that the user happens to look at must not reach the daemon: neither under a name that
 * was made to resolve to loopback (DNS rebinding: Host), nor by a request of its own (Origin).
 */
static bool is_foreign(struct request *rq, const struct listener *l)
{
	const char *host, *origin;

	host = MHD_lookup_connection_value(rq->conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
	origin = MHD_lookup_connection_value(rq->conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_ORIGIN);
	if (l->is_tcp && (!host || !listen_is_loopback(host)))
		return true;
	if (!origin)
		return false;
	return !host || strncmp(origin, "http://", 7) != 0 || strcasecmp(origin + 7, host) != 0;
}

/* Find the route and check what holds for all; the reply is made when it returns false. */
static bool route_request(struct request *rq, const struct listener *l)
{
	struct problem p;

	if (atomic_load(&rq->srv->stopping)) {
		refuse(rq, PROBLEM_STOPPING, "the daemon is stopping");
		return false;
	}
	if (is_foreign(rq, l)) {
		refuse(rq, PROBLEM_ORIGIN, "the request's Host or Origin is not this daemon");
		return false;
	}
	switch (router_find(rq->method, rq->path, &rq->route, rq->params, rq->reply.allow)) {
	case ROUTER_FOUND:
		rq->reply.allow[0] = 0;
		break;
	case ROUTER_NO_METHOD:
		problem_from_code(&p, PROBLEM_METHOD, "%.80s does not take %.20s", rq->path,
				  rq->method);
		request_problem(rq, &p);
		return false;
	case ROUTER_NO_MEMORY:
		request_json(rq, 503, NULL);
		return false;
	case ROUTER_NO_PATH:
		problem_from_code(&p, PROBLEM_NO_ROUTE, "there is nothing at %.120s", rq->path);
		request_problem(rq, &p);
		return false;
	}
	return check_query(rq) == 0 && check_body(rq) == 0;
}

static enum MHD_Result dispatch(struct request *rq, const struct listener *l)
{
	if (!route_request(rq, l))
		return queue_reply(rq);
	if (rq->route->flags & ROUTE_INLINE) {
		rq->route->handler(rq);
		return queue_reply(rq);
	}
	rq->state = REQUEST_WORKING;
	MHD_suspend_connection(rq->conn);
	if (work_submit(rq->srv->work, run_handler, rq) == 0)
		return MHD_YES;
	request_json(rq, 503, NULL);
	rq->state = REQUEST_ANSWERED;
	MHD_resume_connection(rq->conn);
	return MHD_YES;
}

/* The headers are there: refuse at once what announces too large a body. */
static enum MHD_Result begin(struct request *rq)
{
	const char *len;
	struct problem p;

	len = MHD_lookup_connection_value(rq->conn, MHD_HEADER_KIND,
					  MHD_HTTP_HEADER_CONTENT_LENGTH);
	if (!len || strtoull(len, NULL, 10) <= REQUEST_MAX_BODY)
		return MHD_YES;
	problem_from_code(&p, PROBLEM_BODY_SIZE, "the request's body has %.20s bytes", len);
	request_problem(rq, &p);
	rq->state = REQUEST_ANSWERED;
	return queue_reply(rq);
}

/* NOLINTNEXTLINE(readability-function-size): the library's signature */
static enum MHD_Result on_request(void *cls, struct MHD_Connection *conn, const char *url,
				  const char *method, const char *version, const char *upload,
				  size_t *upload_size, void **con_cls)
{
	struct listener *l = cls;
	struct request *rq = *con_cls;

	(void)version;
	if (!rq) {
		rq = request_create(l->srv, conn, method, url);
		*con_cls = rq;
		return rq ? begin(rq) : MHD_NO;
	}
	if (*upload_size) {
		rq->body_bytes += *upload_size;
		if (rq->body_bytes > MAX_DISCARD)
			return MHD_NO;
		if (rq->body_bytes <= REQUEST_MAX_BODY)
			buf_add(&rq->body, upload, *upload_size);
		*upload_size = 0;
		return MHD_YES;
	}
	if (rq->state == REQUEST_READING)
		return dispatch(rq, l);
	return queue_reply(rq);
}

static void on_completed(void *cls, struct MHD_Connection *conn, void **con_cls,
			 enum MHD_RequestTerminationCode code)
{
	struct request *rq = *con_cls;

	(void)cls;
	(void)conn;
	(void)code;
	if (!rq)
		return;
	log_debug("%s %s %s: %d, %llu us", rq->id, rq->method, rq->path, rq->reply.status,
		  (unsigned long long)(clock_ns(CLOCK_MONOTONIC) - rq->started_ns) / 1000);
	atomic_fetch_sub(&rq->srv->n_busy, 1);
	request_destroy(rq);
	*con_cls = NULL;
}

static void on_connection(void *cls, struct MHD_Connection *conn, void **socket_context,
			  enum MHD_ConnectionNotificationCode code)
{
	struct listener *l = cls;

	(void)conn;
	(void)socket_context;
	if (code == MHD_CONNECTION_NOTIFY_STARTED)
		atomic_fetch_add(&l->srv->n_open, 1);
	else
		atomic_fetch_sub(&l->srv->n_open, 1);
}

static void on_library_log(void *cls, const char *fmt, va_list ap) printf_like(2, 0);
static void on_library_log(void *cls, const char *fmt, va_list ap)
{
	char line[256];

	(void)cls;
	vsnprintf(line, sizeof(line), fmt, ap);
	line[strcspn(line, "\n")] = 0;
	log_debug("%s", line);
}

int server_create(const struct server_opts *opts, struct server **ret, struct err *err)
{
	struct server *srv = calloc(1, sizeof(*srv));
	int r;

	if (!srv)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for the server");
	srv->started_ns = clock_ns(CLOCK_REALTIME);
	/* request ids of two runs of the daemon should differ; they need not be secret */
	if (getrandom(&srv->id_base, sizeof(srv->id_base), GRND_NONBLOCK) < 0)
		srv->id_base = srv->started_ns;
	srv->id_base &= ~0xffffffffull;
	r = hub_create(opts->heartbeat_ns, &srv->hub, err);
	if (r == 0)
		r = work_create(MAX_WORKERS, &srv->work, err);
	if (r == 0)
		r = registry_create(opts->state_dir, srv->hub, &srv->registry, err);
	if (r < 0) {
		work_destroy(srv->work);
		hub_destroy(srv->hub);
		free(srv);
		return r;
	}
	*ret = srv;
	return 0;
}

int server_listen(struct server *srv, int fd, bool is_tcp, struct err *err)
{
	struct listener *l = &srv->listen[srv->n_listen];
	unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC |
			 MHD_USE_ERROR_LOG;

	if (srv->n_listen == SERVER_MAX_LISTEN) {
		close(fd);
		return err_set(err, -E2BIG, ERR_BAD_REQUEST, 0, "at most %d sockets to listen on",
			       SERVER_MAX_LISTEN);
	}
	*l = (struct listener){ .srv = srv, .is_tcp = is_tcp };
	/* clang-format off: one option a line */
	l->daemon = MHD_start_daemon(
		flags, 0, NULL, NULL, on_request, l, MHD_OPTION_EXTERNAL_LOGGER, on_library_log,
		NULL, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL,
		MHD_OPTION_NOTIFY_CONNECTION, on_connection, l, MHD_OPTION_CONNECTION_LIMIT,
		MAX_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, IDLE_TIMEOUT_SEC,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY, MHD_OPTION_END);
	/* clang-format on */
	if (!l->daemon) {
		close(fd);
		return err_set(err, -EIO, ERR_IO, 0, "the HTTP server did not start");
	}
	srv->n_listen++;
	return 0;
}

/* Let replies that are on the way arrive; who does not read them has had the time. */
static void wait_for_requests(struct server *srv)
{
	u64 end = clock_ns(CLOCK_MONOTONIC) + STOP_GRACE_NS;
	struct timespec step = { .tv_nsec = 10 * (long)NSEC_PER_MSEC };

	while (atomic_load(&srv->n_busy) && clock_ns(CLOCK_MONOTONIC) < end)
		nanosleep(&step, NULL);
}

unsigned server_destroy(struct server *srv)
{
	unsigned n_failed;
	int fds[SERVER_MAX_LISTEN] = { 0 };

	if (!srv)
		return 0;
	for (size_t i = 0; i < srv->n_listen; i++)
		fds[i] = MHD_quiesce_daemon(srv->listen[i].daemon);
	atomic_store(&srv->stopping, true);
	work_drain(srv->work);
	/* stopping a trace lets its streams read the rest and end by themselves */
	n_failed = registry_close(srv->registry);
	hub_end(srv->hub);
	work_drain(srv->work);
	wait_for_requests(srv);
	for (size_t i = 0; i < srv->n_listen; i++) {
		MHD_stop_daemon(srv->listen[i].daemon);
		if (fds[i] >= 0)
			close(fds[i]);
	}
	work_destroy(srv->work);
	registry_destroy(srv->registry);
	hub_destroy(srv->hub);
	free(srv);
	return n_failed;
}
