// SPDX-License-Identifier: Apache-2.0
/*
 * /v1/guests/{g}/console. What a guest says is bytes that it chose: they go out as application/octet-stream, which no
 * browser shows, and as nothing else. A reader that is too slow is told how much it missed, in the bytes themselves, and
 * nothing is kept for it.
 */
#include "api/hub.h"
#include "api/registry.h"
#include "api/resources.h"
#include "api/server.h"
#include "base/cleanup.h"
#include "base/console_ring.h"
#include "vmm/console.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEDIA_TYPE "application/octet-stream"
/* should a browser show it all the same, then as the document of nobody, without script */
#define POLICY       "default-src 'none'; sandbox"
#define TAIL_DEFAULT (32ul << 10)
#define BLOCK        (32ul << 10)
#define NOTE_BYTES   96

/* One who follows. Beyond this nothing is kept for him. */
struct console_stream {
	struct hub_client client;
	struct server *srv;
	struct identity who;
	struct vm_console *console; /* a reference */
	u64 at;
	bool ended; /* what there is up to @last is the end of it, whatever is said meanwhile */
	u64 last;
	size_t note_len, note_off;
	char note[NOTE_BYTES];
};

static size_t put_note(char *note, u64 lost)
{
	int n = snprintf(note, NOTE_BYTES, "\r\n[hvftrace: %llu bytes were not read in time]\r\n",
			 (unsigned long long)lost);

	return (size_t)n;
}

/* Context: the hub's lock is held; @c is a console_stream's first member. */
static bool is_ready(const struct hub_client *c)
{
	const struct console_stream *s = (const struct console_stream *)(const void *)c;

	return vm_console_end(s->console) != s->at || vm_console_ended(s->console);
}

static size_t take_note(struct console_stream *s, char *buf, size_t max)
{
	size_t n = MIN(max, s->note_len - s->note_off);

	memcpy(buf, s->note + s->note_off, n);
	s->note_off += n;
	return n;
}

/* Return: bytes, 0 when there are none now. */
static size_t take(struct console_stream *s, char *buf, size_t max)
{
	u64 lost = 0;
	size_t n;

	if (s->note_off < s->note_len)
		return take_note(s, buf, max);
	if (s->ended)
		max = s->at < s->last ? MIN(max, s->last - s->at) : 0;
	n = max ? vm_console_read(s->console, &s->at, buf, max, &lost) : 0;
	if (!lost)
		return n;
	s->note_len = put_note(s->note, lost);
	s->note_off = 0;
	return take_note(s, buf, max);
}

/* Before anything is read: a guest that does not pause would keep its reader from ever finding out. */
static void look_for_end(struct console_stream *s)
{
	if (s->ended || (!vm_console_ended(s->console) && !hub_is_ending(server_hub(s->srv))))
		return;
	s->ended = true;
	s->last = vm_console_end(s->console); /* what a VMM that has ended said is all there */
}

static ssize_t read_console(void *cls, uint64_t pos, char *buf, size_t max)
{
	struct console_stream *s = cls;
	struct hub *hub = server_hub(s->srv);
	size_t n;

	(void)pos;
	for (;;) {
		if (hub_denied(hub, &s->client))
			return MHD_CONTENT_READER_END_OF_STREAM;
		look_for_end(s);
		n = take(s, buf, max);
		if (n)
			return (ssize_t)n;
		if (s->ended)
			return MHD_CONTENT_READER_END_OF_STREAM;
		switch (hub_wait(hub, &s->client, false)) {
		case HUB_SUSPENDED:
			return 0;
		case HUB_AGAIN:
		case HUB_BEAT:
		case HUB_ENDING:
			break;
		case HUB_CLIENT_GONE:
			return MHD_CONTENT_READER_END_WITH_ERROR;
		}
	}
}

static void stream_free(struct console_stream *s)
{
	vm_console_unref(s->console);
	free(s);
}

static void on_freed(void *cls)
{
	struct console_stream *s = cls;

	hub_remove(server_hub(s->srv), &s->client);
	stream_free(s);
}

/* NULL without memory. */
static struct MHD_Response *follow(struct request *rq, struct vm_console *console, u64 at)
{
	struct console_stream *s = calloc(1, sizeof(*s));
	struct MHD_Response *resp;

	if (!s)
		return NULL;
	s->srv = rq->srv;
	s->who = rq->who;
	s->at = at;
	s->console = vm_console_ref(console);
	hub_client_init(&s->client, rq->conn, s, &s->who, false);
	s->client.ready = is_ready;
	resp = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, read_console, s,
						 on_freed);
	if (!resp) {
		stream_free(s);
		return NULL;
	}
	hub_add(server_hub(rq->srv), &s->client);
	if (!auth_still(server_auth(rq->srv), &s->who))
		hub_deny(server_hub(rq->srv), &s->client);
	return resp;
}

/* What there is from @at on, up to where it ends now. */
static void answer(struct request *rq, const struct vm_console *console, u64 at)
{
	u64 end = vm_console_end(console), lost;
	_cleanup_free_ char *block = malloc(BLOCK);
	char note[NOTE_BYTES];
	struct buf b = { 0 };

	while (block && at < end) {
		size_t n = vm_console_read(console, &at, block, MIN(BLOCK, end - at), &lost);

		if (n)
			buf_add(&b, block, n);
		else if (lost)
			buf_add(&b, note, put_note(note, lost));
		else
			break;
	}
	if (!block || buf_failed(&b)) {
		buf_deinit(&b);
		request_json(rq, 503, NULL);
		return;
	}
	request_text(rq, 200, MEDIA_TYPE, &b);
	rq->reply.policy = POLICY;
}

static int find(struct request *rq, struct vm_console **ret)
{
	struct guest_entry *g;
	struct err err = { 0 };
	int r = registry_guest_get(server_registry(rq->srv), rq->params[0], &g, &err);

	if (r == 0) {
		r = guest_console(g->guest, ret, &err);
		registry_guest_put(g);
	}
	if (r)
		request_error(rq, &err);
	return r;
}

void res_console_read(struct request *rq)
{
	struct vm_console *console;
	bool follows;
	u64 tail, at;

	if (request_query_u64(rq, "tail", TAIL_DEFAULT, CONSOLE_RING_BYTES, &tail) < 0 ||
	    request_query_bool(rq, "follow", &follows) < 0 || find(rq, &console))
		return;
	at = vm_console_tail(console, tail);
	if (follows) {
		rq->reply.response = follow(rq, console, at);
		if (rq->reply.response) {
			rq->reply.status = 200;
			rq->reply.type = MEDIA_TYPE;
			rq->reply.policy = POLICY;
			rq->reply.is_stream = true;
		} else {
			request_json(rq, 503, NULL);
		}
	} else {
		answer(rq, console, at);
	}
	vm_console_unref(console);
}

void res_console_type(struct request *rq)
{
	struct vm_console *console;
	struct err err = { 0 };

	if (find(rq, &console))
		return;
	if (vm_console_type(console, rq->body.data, rq->body.len, &err) < 0)
		request_error(rq, &err);
	else
		request_json(rq, 200,
			     json_pack("{s:s, s:I}", "guest", rq->params[0], "bytes",
				       (json_int_t)rq->body.len));
	vm_console_unref(console);
}
