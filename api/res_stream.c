// SPDX-License-Identifier: Apache-2.0
/* /v1/traces/{t}/stream. */
#include "api/registry.h"
#include "api/resources.h"
#include "api/server.h"
#include "api/stream.h"

void res_traces_stream(struct request *rq)
{
	struct stream_opts opts = { 0 };
	struct trace_entry *t;
	struct err err = { 0 };
	struct problem p;
	int r;

	if (request_query_u64(rq, "after", 0, INT64_MAX, &opts.after) < 0 ||
	    request_query_bool(rq, "stop_on_close", &opts.stop_on_close) < 0)
		return;
	if (!stream_choose(rq->accept, &opts.format)) {
		problem_from_code(&p, PROBLEM_ACCEPT, "a stream comes as %s, %s or %s",
				  stream_media_type(STREAM_NDJSON), stream_media_type(STREAM_TEXT),
				  stream_media_type(STREAM_RECORDING));
		request_problem(rq, &p);
		return;
	}
	if (registry_trace_get(server_registry(rq->srv), rq->params[0], &t, &err) < 0) {
		request_error(rq, &err);
		return;
	}
	r = stream_create(rq->srv, rq->conn, t, &opts, &rq->reply.response, &err);
	registry_trace_put(t);
	if (r < 0) {
		request_error(rq, &err);
		return;
	}
	rq->reply.status = 200;
	rq->reply.type = stream_media_type(opts.format);
	rq->reply.is_stream = true;
}
