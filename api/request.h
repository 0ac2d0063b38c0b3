/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One HTTP request on its way through the daemon, and the reply a handler makes. Handlers know this
 * and not the HTTP library.
 */
#ifndef API_REQUEST_H
#define API_REQUEST_H

#include "api/auth.h"
#include "api/problem.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/types.h"

#include <jansson.h>

#define REQUEST_MAX_PARAMS 2
#define REQUEST_MAX_QUERY  32
#define REQUEST_MAX_BODY   2097152 /* room for 20,000 names of functions of 100 bytes each */

#define REQUEST_MAX_UNKNOWN 8192 /* of a body from somebody without a role */

struct MHD_Connection;
struct MHD_Response;
struct route;
struct server;

#define REPLY_ETAG_SIZE 20

struct reply {
	int status; /* HTTP; 0 until a handler answered */
	const char *type; /* media type; static storage */
	struct buf body;
	char location[128]; /* "" for none */
	char allow[64]; /* "" for none */
	const char *encoding; /* of the body, "gzip"; NULL for none; static storage */
	const char *policy; /* Content-Security-Policy; NULL for none; static storage */
	char etag[REPLY_ETAG_SIZE]; /* "" for none */
	bool varies; /* another Accept-Encoding may get another body */
	bool is_stream; /* @response goes on as long as its reader */
	bool immutable; /* the body never changes during the daemon's life */
	struct MHD_Response *response; /* a stream, already made; NULL for @body */
};

enum request_state {
	REQUEST_READING, /* its body is on the way */
	REQUEST_WORKING, /* a worker has it; the connection is suspended */
	REQUEST_ANSWERED, /* @reply is filled */
};

struct request {
	struct server *srv;
	struct MHD_Connection *conn;
	const struct route *route;
	enum request_state state;
	u64 started_ns; /* CLOCK_MONOTONIC */
	char id[20];
	struct identity who;
	u32 client_pid; /* 0 when not known */
	bool is_tls;
	bool bad_token; /* one came that nobody has */
	bool has_stream; /* counted as one */
	char *method, *path;
	char *content_type, *accept, *accept_encoding; /* NULL when not sent */
	char *if_none_match, *last_event_id;
	char *params[REQUEST_MAX_PARAMS]; /* what the {..} of the route's path stand for */
	struct {
		char *name, *value; /* value NULL: "?name" without "=" */
	} query[REQUEST_MAX_QUERY];
	size_t n_query;
	struct buf body;
	u64 body_bytes; /* received so far, kept or not */
	u64 body_limit; /* who may do nothing has little room */
	struct reply reply;
};

/** request_query - the value of query parameter @name; NULL when it is not given */
const char *request_query(const struct request *rq, const char *name);

/**
 * request_query_u64 - a number in the query
 * @fallback: *@ret when it is not given
 *
 * Return: 0; -EINVAL (bad_request), the problem is already the reply.
 */
must_check int request_query_u64(struct request *rq, const char *name, u64 fallback, u64 max,
				 u64 *ret);

/** request_query_bool - "true" or "false"; false when not given; otherwise as request_query_u64() */
must_check int request_query_bool(struct request *rq, const char *name, bool *ret);

/** request_json - answer with @doc, whose reference is taken; NULL makes it a no_memory problem */
void request_json(struct request *rq, int status, json_t *doc);

/** request_text - answer with @body, which is handed over and reset */
void request_text(struct request *rq, int status, const char *type, struct buf *body);

/** request_problem - answer with a problem document */
void request_problem(struct request *rq, const struct problem *p);

/** request_error - answer with the problem document of @err */
void request_error(struct request *rq, const struct err *err);

/** request_refuse - answer 400 with one sentence about the member of the query @name */
void request_refuse(struct request *rq, const char *name, const char *fmt, ...) printf_like(3, 4);

#endif
