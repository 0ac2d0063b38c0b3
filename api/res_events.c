// SPDX-License-Identifier: Apache-2.0
/* /v1/events and /v1/events/stream. */
#include "api/events.h"
#include "api/hub.h"
#include "api/resources.h"
#include "api/server.h"
#include "api/sse.h"
#include "api/stream.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS_LIMIT     1000
#define EVENTS_MAX_BATCH 64
#define BLOCK            (32ul * 1024)

struct event_stream {
	struct hub_client client;
	struct identity who;
	struct server *srv;
	bool sse, ended;
	u64 after;
	struct buf out;
	size_t off;
};

/* The problem of an event that is not kept; the reply is made. */
static void gone(struct request *rq, const struct err *err, u64 oldest)
{
	struct problem p;

	problem_from_err(&p, err);
	p.oldest_seq = oldest;
	request_problem(rq, &p);
}

static void put_item(void *arg, u64 seq, const char *json, size_t len)
{
	struct buf *b = arg;

	(void)seq;
	if (b->len && b->data[b->len - 1] != '[')
		buf_adds(b, ",\n");
	buf_add(b, json, len);
}

void res_events_list(struct request *rq)
{
	struct events_page page = { 0 };
	struct buf b = { 0 };
	struct err err = { 0 };
	u64 limit;

	if (request_query_u64(rq, "after", 0, INT64_MAX, &page.after) < 0 ||
	    request_query_u64(rq, "limit", EVENTS_LIMIT, EVENTS_KEPT, &limit) < 0)
		return;
	if (!limit) {
		request_refuse(rq, "limit", "must be a number, 1 to %d", EVENTS_KEPT);
		return;
	}
	page.max = (size_t)limit;
	buf_adds(&b, "{\"items\":[");
	if (events_read(server_events(rq->srv), &page, put_item, &b, &err) < 0) {
		buf_deinit(&b);
		gone(rq, &err, page.oldest_seq);
		return;
	}
	buf_addf(&b, "],\"next_after\":%llu,\"oldest_seq\":%llu}\n", (unsigned long long)page.after,
		 (unsigned long long)page.oldest_seq);
	if (buf_failed(&b)) {
		buf_deinit(&b);
		request_json(rq, 503, NULL);
		return;
	}
	request_text(rq, 200, "application/json", &b);
}

static void put_line(void *arg, u64 seq, const char *json, size_t len)
{
	struct event_stream *s = arg;
	size_t from = s->out.len;

	buf_add(&s->out, json, len);
	buf_adds(&s->out, "\n");
	if (s->sse)
		sse_frame_seq(&s->out, from, seq);
}

/* A line of the stream's own. */
static void put_own(struct event_stream *s, const char *what, const char *more)
{
	size_t from = s->out.len;

	buf_addf(&s->out, "{\"type\":\"%s\",\"seq\":%llu%s}\n", what, (unsigned long long)s->after,
		 more);
	if (s->sse)
		sse_frame(&s->out, from, "");
}

/* Was something put? */
static bool fill(struct event_stream *s)
{
	struct events_page page = { .after = s->after, .max = EVENTS_MAX_BATCH };
	struct events *ev = server_events(s->srv);
	size_t from;

	buf_reset(&s->out);
	s->off = 0;
	if (events_read(ev, &page, put_line, s, NULL) == -ESTALE) {
		from = s->out.len;
		buf_addf(&s->out,
			 "{\"type\":\"lost\",\"seq\":%llu,\"count\":%llu,\"after\":%llu}\n",
			 (unsigned long long)page.oldest_seq - 1,
			 (unsigned long long)(page.oldest_seq - s->after - 1),
			 (unsigned long long)s->after);
		page.after = page.oldest_seq - 1;
		if (s->sse)
			sse_frame_seq(&s->out, from, page.after);
	}
	s->after = page.after;
	return s->out.len;
}

static ssize_t read_events(void *cls, uint64_t pos, char *buf, size_t max)
{
	struct event_stream *s = cls;
	struct hub *hub = server_hub(s->srv);
	size_t n;

	(void)pos;
	while (s->off == s->out.len) {
		if (s->ended)
			return MHD_CONTENT_READER_END_OF_STREAM;
		if (hub_denied(hub, &s->client)) {
			buf_reset(&s->out);
			s->off = 0;
			put_own(s, "end", ",\"reason\":\"token_removed\"");
			s->ended = true;
			continue;
		}
		if (fill(s))
			continue;
		switch (hub_wait(hub, &s->client, false)) {
		case HUB_SUSPENDED:
			return 0;
		case HUB_AGAIN:
			break;
		case HUB_BEAT:
			put_own(s, "heartbeat", "");
			break;
		case HUB_ENDING:
			put_own(s, "end", ",\"reason\":\"daemon_stopping\"");
			s->ended = true;
			break;
		case HUB_CLIENT_GONE:
			return MHD_CONTENT_READER_END_WITH_ERROR;
		}
	}
	if (buf_failed(&s->out))
		return MHD_CONTENT_READER_END_WITH_ERROR;
	n = MIN(max, s->out.len - s->off);
	memcpy(buf, s->out.data + s->off, n);
	s->off += n;
	hub_output(hub, &s->client);
	return (ssize_t)n;
}

static void on_freed(void *cls)
{
	struct event_stream *s = cls;

	hub_remove(server_hub(s->srv), &s->client);
	buf_deinit(&s->out);
	free(s);
}

static struct MHD_Response *create(struct request *rq, bool sse, u64 after)
{
	struct event_stream *s = calloc(1, sizeof(*s));
	struct MHD_Response *resp;

	if (!s)
		return NULL;
	s->srv = rq->srv;
	s->sse = sse;
	s->after = after;
	if (sse)
		sse_head(&s->out);
	s->who = rq->who;
	hub_client_init(&s->client, rq->conn, server_events(rq->srv), &s->who, true);
	resp = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, read_events, s, on_freed);
	if (!resp) {
		buf_deinit(&s->out);
		free(s);
		return NULL;
	}
	hub_add(server_hub(rq->srv), &s->client);
	if (!auth_still(server_auth(rq->srv), &s->who))
		hub_deny(server_hub(rq->srv), &s->client);
	return resp;
}

static void put_nothing(void *arg, u64 seq, const char *json, size_t len)
{
	(void)arg;
	(void)seq;
	(void)json;
	(void)len;
}

void res_events_stream(struct request *rq)
{
	struct events_page page = { .max = 1 };
	enum stream_format format;
	struct err err = { 0 };
	struct problem p;
	bool ended;
	u64 after;

	if (stream_take_after(rq, &after, &ended) < 0)
		return;
	if (!stream_choose(rq->accept, &format) ||
	    (format != STREAM_NDJSON && format != STREAM_SSE)) {
		problem_from_code(&p, PROBLEM_ACCEPT, "events come as %s or %s",
				  stream_media_type(STREAM_NDJSON), stream_media_type(STREAM_SSE));
		request_problem(rq, &p);
		return;
	}
	page.after = after;
	if (events_read(server_events(rq->srv), &page, put_nothing, NULL, &err) < 0) {
		gone(rq, &err, page.oldest_seq);
		return;
	}
	rq->reply.response = create(rq, format == STREAM_SSE, after);
	if (!rq->reply.response) {
		request_json(rq, 503, NULL);
		return;
	}
	rq->reply.status = 200;
	rq->reply.type = stream_media_type(format);
	rq->reply.is_stream = true;
}
