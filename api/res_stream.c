// SPDX-License-Identifier: Apache-2.0
/* /v1/traces/{t}/stream. */
#include "api/registry.h"
#include "api/resources.h"
#include "api/server.h"
#include "api/stream.h"

#include <errno.h>
#include <stdlib.h>
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

int stream_take_after(struct request *rq, u64 *after_ret, bool *ended_ret)
{
	const char *text = rq->last_event_id;
	char *end;
	u64 n;

	*ended_ret = false;
	if (request_query_u64(rq, "after", 0, INT64_MAX, after_ret) < 0)
		return -EINVAL;
	if (!text)
		return 0;
	errno = 0;
	n = strtoull(text, &end, 10);
	*ended_ret = strcmp(end, STREAM_END_ID) == 0;
	if (*text < '0' || *text > '9' || errno || n > INT64_MAX || (*end && !*ended_ret)) {
		request_refuse(rq, "Last-Event-ID", "must be the id of an event of this stream");
		return -EINVAL;
	}
	*after_ret = n;
	return 0;
}

int stream_check_after(struct request *rq, struct trace_entry *t, u64 after)
{
	struct trace_record rec;
	struct trace_page page = { .buf = &rec, .max = 1 };
	struct trace_info now = { 0 };
	struct err err = { 0 };
	struct problem p;
	int r = 0;

	trace_get_info(t->trace, &now);
	page.oldest_seq = now.oldest_seq;
	if (after > now.n_records)
		r = err_set(&err, -ESTALE, ERR_CURSOR_GONE, 0,
			    "trace %s has no record %llu, as its newest is %llu: that number is of "
			    "another trace",
			    t->id, (unsigned long long)after, (unsigned long long)now.n_records);
	else if (after)
		r = trace_read(t->trace, after, &page, &err);
	if (r != -ESTALE)
		return 0; /* anything else the stream itself will tell */
	problem_from_err(&p, &err);
	p.oldest_seq = page.oldest_seq;
	request_problem(rq, &p);
	return r;
}

static int stream(struct request *rq, const struct stream_opts *opts, struct err *err)
{
	struct trace_entry *t;
	int r;

	r = registry_trace_get(server_registry(rq->srv), rq->params[0], &t, err);
	if (r < 0)
		return r;
	r = stream_check_after(rq, t, opts->after);
	if (r == 0)
		r = stream_create(rq->srv, rq->conn, t, opts, &rq->reply.response, err);
	registry_trace_put(t);
	return r;
}

static void nothing_more(struct request *rq)
{
	struct buf none = { 0 };

	request_text(rq, 204, NULL, &none); /* which makes a browser stop asking */
}

void res_traces_stream(struct request *rq)
{
	struct stream_opts opts = { .who = &rq->who };
	struct err err = { 0 };
	struct problem p;
	bool ended;
	int r;

	if (stream_take_after(rq, &opts.after, &ended) < 0 ||
	    take_on_close(rq, &opts.on_close) < 0 || take_layout(rq, &opts.layout) < 0)
		return;
	if (strcmp(rq->method, "HEAD") == 0) /* asks, and changes nothing */
		opts.on_close = STREAM_CLOSE_KEEP;
	if (!stream_choose(rq->accept, &opts.format)) {
		problem_from_code(&p, PROBLEM_ACCEPT, "a stream comes as %s, %s, %s or %s",
				  stream_media_type(STREAM_NDJSON), stream_media_type(STREAM_SSE),
				  stream_media_type(STREAM_TEXT),
				  stream_media_type(STREAM_RECORDING));
		request_problem(rq, &p);
		return;
	}
	if (opts.on_close != STREAM_CLOSE_KEEP && rq->who.role < ROLE_OPERATOR) {
		problem_from_code(&p, PROBLEM_ROLE, "on_close=%s is for the role operator",
				  request_query(rq, "on_close"));
		request_problem(rq, &p);
		return;
	}
	if (ended) {
		nothing_more(rq);
		return;
	}
	r = stream(rq, &opts, &err);
	if (r < 0) {
		if (!rq->reply.status)
			request_error(rq, &err);
		return;
	}
	rq->reply.status = 200;
	rq->reply.type = stream_media_type(opts.format);
	rq->reply.is_stream = true;
}
