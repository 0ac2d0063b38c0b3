/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace's records on their way to one client, for as long as the trace runs or the client stays.
 * Whatever the client does, the drain never waits for it: what it was too slow for is reported to it
 * as lost.
 */
#ifndef API_STREAM_H
#define API_STREAM_H

#include "api/auth.h"
#include "base/err.h"
#include "base/types.h"
#include "tracers/output.h"

struct MHD_Connection;
struct MHD_Response;
struct request;
struct server;
struct trace_entry;

/* What follows the number in the id of the last event: who comes back with it has had everything. */
#define STREAM_END_ID ".end"

enum stream_format {
	STREAM_NDJSON,
	STREAM_SSE, /* the same objects as server-sent events */
	STREAM_TEXT,
	STREAM_RECORDING,
	STREAM_FALCO, /* of the tracer syscalls alone, like the next */
	STREAM_OCSF,
	STREAM_FORMAT_MAX
};

/* What becomes of the trace when the client leaves before the stream's end. */
enum stream_on_close {
	STREAM_CLOSE_KEEP,
	STREAM_CLOSE_STOP,
	STREAM_CLOSE_DELETE
};

struct stream_opts {
	enum stream_format format;
	u64 after; /* sequence number; 0 for the oldest kept */
	enum stream_on_close on_close;
	const struct identity *who; /* copied */
	struct out_layout_opts layout; /* STREAM_TEXT */
};

/**
 * stream_take_after - from where on @rq wants to read
 * @ended_ret: it has had the end, too
 *
 * Last-Event-ID, which a browser that comes back sends to the same URL, counts for more than `after`.
 * Return: 0; -EINVAL it is no number, the problem is the reply.
 */
must_check int stream_take_after(struct request *rq, u64 *after_ret, bool *ended_ret);

/**
 * stream_check_after - can one go on after record @after of @t? 0 is its beginning
 *
 * A number that the trace has not come to is of another one. Context: a user of @t. Return: 0; -ESTALE no, records.gone is the reply.
 */
must_check int stream_check_after(struct request *rq, struct trace_entry *t, u64 after);

/** stream_fill_meta - what heads say of @t; @after: where one begins. Context: a user of @t */
void stream_fill_meta(struct output_meta *meta, struct trace_entry *t, u64 after);

/** stream_media_type - how @format is called in Accept and Content-Type */
const char *stream_media_type(enum stream_format format);

/**
 * stream_choose - the first format that an Accept header names
 * @accept: NULL is as good as "*" "/" "*"
 *
 * Return: false when it names none that there is.
 */
bool stream_choose(const char *accept, enum stream_format *ret);

/**
 * stream_create - a response that streams @t on @conn
 *
 * Context: a user of @t. Return: 0; -ENOMEM; -EINVAL the format is another tracer's (bad_request); or what rec_writer_create() returns.
 */
must_check int stream_create(struct server *srv, struct MHD_Connection *conn, struct trace_entry *t,
			     const struct stream_opts *opts, struct MHD_Response **ret,
			     struct err *err);

#endif
