// SPDX-License-Identifier: Apache-2.0
/*
 * The HTTP side, on libmicrohttpd: one epoll thread a listening socket, which never waits for
 * anything. A handler that may wait runs on a worker while its connection is suspended.
 *
 * The library calls on_request() once with the headers, then for each piece of the body, then with
 * none: only there a reply is queued, since a reply to the first call would close the connection.
 */
#include "api/server.h"

#include "api/admit.h"
#include "api/audit.h"
#include "api/events.h"
#include "api/hub.h"
#include "api/registry.h"
#include "api/router.h"
#include "api/tls.h"
#include "api/watch.h"
#include "api/work.h"
#include "base/cleanup.h"
#include "base/clock.h"
#define LOG_PREFIX "http"
#include "base/log.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define MAX_CONNECTIONS   512u /* of each listening socket */
#define MAX_STREAMS       256
#define MAX_PER_ADDRESS   128u /* connections of one IP address */
#define MAX_UNKNOWN       20 /* lines a second in the audit log about who is not known */
#define MAX_WORKERS       64
#define IDLE_TIMEOUT_SEC  60u
#define CONNECTION_MEMORY (64u * 1024)
#define MAX_DISCARD       (8ul * REQUEST_MAX_BODY) /* of a body that is too large, to be able to answer */
#define STOP_GRACE_NS     (2 * NSEC_PER_SEC)
#define DRAIN_NS          NSEC_PER_SEC

struct listener {
	struct server *srv;
	struct MHD_Daemon *daemon;
	struct admit_place place;
};

struct server {
	struct registry *registry;
	struct hub *hub;
	struct work *work;
	struct listener listen[SERVER_MAX_LISTEN];
	size_t n_listen;
	u64 started_ns, id_base;
	struct auth *auth;
	struct audit *audit;
	struct events *events;
	struct watch *watch;
	const struct tls_files *tls; /* the caller's */
	atomic_ullong unknown_sec, n_unknown; /* refused since nobody knows them, in this second */
	atomic_ullong n_requests, n_open, n_busy, n_streams;
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

u64 server_streams(const struct server *srv)
{
	return atomic_load(&srv->n_streams);
}

struct events *server_events(struct server *srv)
{
	return srv->events;
}

struct auth *server_auth(struct server *srv)
{
	return srv->auth;
}

struct audit *server_audit(struct server *srv)
{
	return srv->audit;
}

u64 server_connections(const struct server *srv)
{
	return atomic_load(&srv->n_open);
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
	free(rq->last_event_id);
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
	rq->last_event_id = copy_header(conn, "Last-Event-ID");
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
	if (rp->status == 401)
		ok &= MHD_add_response_header(resp, MHD_HTTP_HEADER_WWW_AUTHENTICATE,
					      "Bearer realm=\"hvftrace\"");
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

static void refuse(struct request *rq, enum problem_code code, const char *detail)
{
	struct problem p;

	problem_from_code(&p, code, "%s", detail);
	request_problem(rq, &p);
}

/* Who is not known must not be able to fill the disk. */
static bool may_tell_unknown(struct server *srv)
{
	u64 now = monotonic_ns() / NSEC_PER_SEC;

	if (atomic_exchange(&srv->unknown_sec, now) != now)
		atomic_store(&srv->n_unknown, 0);
	return atomic_fetch_add(&srv->n_unknown, 1) < MAX_UNKNOWN;
}

/* Into the audit log, if it was to change anything; also when it was refused. */
static void note_change(struct request *rq)
{
	struct audit_entry e = {
		.who = rq->who.name,
		.role = role_name(rq->who.role),
		.pid = rq->client_pid,
		.request_id = rq->id,
		.path = rq->path,
		.status = rq->reply.status,
		.result = rq->reply.body.data,
		.result_len = rq->reply.body.len,
		.duration_ns = clock_ns(CLOCK_MONOTONIC) - rq->started_ns,
	};
	char operation[128];

	if (!rq->route || strcmp(rq->route->method, "GET") == 0 ||
	    ((e.status == 401 || (e.status >= 400 && rq->who.role <= ROLE_ANYBODY)) &&
	     !may_tell_unknown(rq->srv)))
		return;
	snprintf(operation, sizeof(operation), "%s %s", rq->route->method, rq->route->path);
	e.operation = operation;
	e.body = rq->route->flags & ROUTE_BYTES ? NULL : rq->body.data;
	e.body_len = rq->body.len;
	audit_add(rq->srv->audit, &e);
}

static void run_handler(void *arg)
{
	struct request *rq = arg;

	rq->route->handler(rq);
	note_change(rq);
	rq->state = REQUEST_ANSWERED;
	MHD_resume_connection(rq->conn);
}

/* A stream stays: those there are must leave room for requests that stop something. */
static bool take_stream(struct request *rq)
{
	if (!(rq->route->flags & ROUTE_STREAM))
		return true;
	if (atomic_fetch_add(&rq->srv->n_streams, 1) < MAX_STREAMS) {
		rq->has_stream = true;
		return true;
	}
	atomic_fetch_sub(&rq->srv->n_streams, 1);
	refuse(rq, PROBLEM_STREAMS, "too many streams are open");
	return false;
}

static bool admit(struct request *rq, const struct listener *l)
{
	if (atomic_load(&rq->srv->stopping)) {
		refuse(rq, PROBLEM_STOPPING, "the daemon is stopping");
		return false;
	}
	return admit_request(rq, &l->place) && take_stream(rq);
}

static enum MHD_Result dispatch(struct request *rq, const struct listener *l)
{
	if (!admit(rq, l)) {
		note_change(rq);
		return queue_reply(rq);
	}
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
static enum MHD_Result begin(struct request *rq, const struct listener *l)
{
	const char *len;
	struct problem p;

	admit_identify(rq, &l->place);
	rq->body_limit = rq->who.role > ROLE_ANYBODY ? REQUEST_MAX_BODY : REQUEST_MAX_UNKNOWN;
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
		return rq ? begin(rq, l) : MHD_NO;
	}
	if (*upload_size) {
		rq->body_bytes += *upload_size;
		if (rq->body_bytes > MAX_DISCARD)
			return MHD_NO;
		if (rq->body_bytes <= rq->body_limit)
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
	if (rq->has_stream)
		atomic_fetch_sub(&rq->srv->n_streams, 1);
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
	srv->auth = opts->auth;
	srv->tls = opts->tls;
	r = hub_create(opts->heartbeat_ns, &srv->hub, err);
	if (r == 0)
		r = work_create(MAX_WORKERS, &srv->work, err);
	if (r == 0)
		r = audit_create(opts->audit_log, &srv->audit, err);
	if (r == 0)
		r = events_create(srv->hub, srv->started_ns / 1000, &srv->events, err);
	if (r == 0)
		r = registry_create(opts->state_dir, srv->hub, srv->events, &srv->registry, err);
	if (r == 0)
		r = watch_create(
			&(struct watch_opts){ srv->registry, srv->events, srv->auth, srv->hub },
			&srv->watch, err);
	if (r < 0) {
		registry_destroy(srv->registry);
		events_destroy(srv->events);
		audit_destroy(srv->audit);
		work_destroy(srv->work);
		hub_destroy(srv->hub);
		free(srv);
		return r;
	}
	events_add(srv->events, "daemon_started", json_pack("{s:s}", "version", HVF_VERSION));
	*ret = srv;
	return 0;
}

int server_listen(struct server *srv, const struct listen_socket *s, struct err *err)
{
	struct MHD_OptionItem tls[8];
	struct listener *l = &srv->listen[srv->n_listen];
	unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC |
			 MHD_USE_ERROR_LOG | (s->is_tls ? MHD_USE_TLS : 0);
	int fd = s->fd;

	if (srv->n_listen == SERVER_MAX_LISTEN) {
		close(fd);
		return err_set(err, -E2BIG, ERR_BAD_REQUEST, 0, "at most %d sockets to listen on",
			       SERVER_MAX_LISTEN);
	}
	tls_options(s->is_tls ? srv->tls : NULL, tls);
	*l = (struct listener){
		.srv = srv, .place = { .auth = srv->auth, .is_tcp = s->is_tcp, .is_tls = s->is_tls }
	};
	/* clang-format off: one option a line */
	l->daemon = MHD_start_daemon(
		flags, 0, NULL, NULL, on_request, l, MHD_OPTION_EXTERNAL_LOGGER, on_library_log,
		NULL, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL,
		MHD_OPTION_NOTIFY_CONNECTION, on_connection, l, MHD_OPTION_CONNECTION_LIMIT,
		MAX_CONNECTIONS, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
		s->is_tcp ? MAX_PER_ADDRESS : 0u, MHD_OPTION_CONNECTION_TIMEOUT, IDLE_TIMEOUT_SEC,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY, MHD_OPTION_ARRAY,
		tls, MHD_OPTION_END);
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

unsigned server_destroy(struct server *srv, bool *unended_ret)
{
	unsigned n_failed, n_unended;
	int fds[SERVER_MAX_LISTEN] = { 0 };

	*unended_ret = false;
	if (!srv)
		return 0;
	for (size_t i = 0; i < srv->n_listen; i++)
		fds[i] = MHD_quiesce_daemon(srv->listen[i].daemon);
	atomic_store(&srv->stopping, true);
	events_add(srv->events, "daemon_stopping", json_object());
	/* what is nearly done may be; guests do not wait to be put back for one that takes long to attach */
	(void)work_drain(srv->work, DRAIN_NS);
	/* stopping a trace lets its streams read the rest and end by themselves */
	n_failed = registry_close(srv->registry, &n_unended);
	watch_destroy(srv->watch);
	hub_end(srv->hub);
	(void)work_drain(srv->work, n_unended ? DRAIN_NS : WORK_FOREVER);
	wait_for_requests(srv);
	/* for guests as if we had been killed there: if its journal was begun, it stays */
	*unended_ret = n_unended;
	if (n_unended)
		return n_failed + n_unended;
	for (size_t i = 0; i < srv->n_listen; i++) {
		MHD_stop_daemon(srv->listen[i].daemon);
		if (fds[i] >= 0)
			close(fds[i]);
	}
	work_destroy(srv->work);
	registry_destroy(srv->registry);
	events_destroy(srv->events);
	hub_destroy(srv->hub);
	audit_destroy(srv->audit);
	free(srv);
	return n_failed;
}
