// SPDX-License-Identifier: Apache-2.0
/* /v1/traces/{t}/stream. */
#include "api/registry.h"
#include "api/resources.h"
#include "api/server.h"
#include "api/stream.h"

#include <errno.h>
#include <string.h>

static int take_on_close(struct request *rq, enum stream_on_close *ret)
{
	static const char *const words[] = {
		[STREAM_CLOSE_KEEP] = "keep",
		[STREAM_CLOSE_STOP] = "stop",
		[STREAM_CLOSE_DELETE] = "delete",
	};
	const char *text = request_query(rq, "on_close");

	for (size_t i = 0; text && i < ARRAY_SIZE(words); i++) {
		if (strcmp(text, words[i]) == 0) {
			*ret = (enum stream_on_close)i;
			return 0;
		}
	}
	if (!text)
		return 0;
	request_refuse(rq, "on_close", "must be keep, stop or delete");
	return -EINVAL;
}

/* layout=NAME,NAME... */
static int take_layout(struct request *rq, struct out_layout_opts *ret)
{
	const char *text = request_query(rq, "layout");

	while (text && *text) {
		size_t len = strcspn(text, ",");

		if (!out_layout_option(ret, text, len)) {
			request_refuse(rq, "layout", "must be of " OUT_LAYOUT_OPTIONS);
			return -EINVAL;
		}
		text += len + (text[len] == ',');
	}
	return 0;
}

void res_traces_stream(struct request *rq)
{
	struct stream_opts opts = { 0 };
	struct trace_entry *t;
	struct err err = { 0 };
	struct problem p;
	int r;

	if (request_query_u64(rq, "after", 0, INT64_MAX, &opts.after) < 0 ||
	    take_on_close(rq, &opts.on_close) < 0 || take_layout(rq, &opts.layout) < 0)
		return;
	if (strcmp(rq->method, "HEAD") == 0) /* asks, and changes nothing */
		opts.on_close = STREAM_CLOSE_KEEP;
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
