// SPDX-License-Identifier: Apache-2.0
/* Streams. See stream.h. */
#include "api/stream.h"

#include "api/audit.h"
#include "api/hub.h"
#include "api/names_then.h"
#include "api/registry.h"
#include "api/server.h"
#include "api/sse.h"
#include "api/work.h"
#include "base/buf.h"
#include "tracers/sys_out.h"
#define LOG_PREFIX "stream"
#include "base/log.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define STREAM_BATCH 256 /* records formatted at a time */
#define STREAM_BLOCK (32ul * 1024)
#define STREAM_FULL  (STREAM_BLOCK / 2) /* of small records several batches make a block ... */
#define STREAM_MANY  16 /* ... but not more: of some nothing is to be shown */

struct stream {
	struct hub_client client;
	struct server *srv;
	struct trace_entry *trace; /* a reference */
	enum stream_format format;
	enum stream_on_close on_close;
	struct identity who;
	bool ended; /* nothing comes after what is in @out */
	bool denied; /* its client may not have it any more */
	u64 after; /* the last sequence number that was sent or reported lost */
	u64 resume; /* where a client goes on: @after, or before the parts of a call that is not complete */
	u64 lost_seen; /* of the trace's own losses, how many were reported */
	u64 lost_here; /* records that were overwritten before this client took them */
	struct output_meta meta;
	struct names_then then;
	const struct output_names *names; /* the trace's, while it is in use */
	struct rec_writer *writer; /* STREAM_RECORDING */
	struct out_layout *layout; /* STREAM_TEXT */
	struct sys_out *sys; /* syscalls, all but STREAM_RECORDING */
	struct buf out;
	size_t off; /* what of @out has been sent */
	struct trace_record recs[STREAM_BATCH];
};

static const char *const media_types[] = {
	[STREAM_NDJSON] = "application/x-ndjson",
	[STREAM_SSE] = "text/event-stream",
	[STREAM_TEXT] = "text/plain",
	[STREAM_RECORDING] = "application/vnd.hvftrace.recording",
	[STREAM_FALCO] = "application/vnd.hvftrace.falco",
	[STREAM_OCSF] = "application/vnd.hvftrace.ocsf",
};

const char *stream_media_type(enum stream_format format)
{
	return format == STREAM_TEXT ? "text/plain; charset=utf-8" : media_types[format];
}

static bool range_is(const char *range, size_t len, const char *type)
{
	return strlen(type) == len && strncasecmp(range, type, len) == 0;
}

static bool choose_one(const char *range, size_t len, enum stream_format *ret)
{
	for (int f = 0; f < STREAM_FORMAT_MAX; f++) {
		if (range_is(range, len, media_types[f])) {
			*ret = (enum stream_format)f;
			return true;
		}
	}
	*ret = range_is(range, len, "text/*") ? STREAM_TEXT : STREAM_NDJSON;
	return *ret == STREAM_TEXT || range_is(range, len, "*/*") ||
	       range_is(range, len, "application/*") || range_is(range, len, "application/jsonl");
}

bool stream_choose(const char *accept, enum stream_format *ret)
{
	size_t len;

	if (!accept)
		accept = "*/*";
	while (*accept) {
		accept += strspn(accept, " \t,");
		len = strcspn(accept, " \t,;");
		if (len && choose_one(accept, len, ret))
			return true;
		accept += len;
		accept += strcspn(accept, ",");
	}
	return false;
}

/* For what is left of a trace that is gone. */
static bool no_sym(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	(void)arg;
	(void)addr;
	*ret = (struct kernel_sym){ 0 };
	*off_ret = 0;
	return false;
}

static const struct output_names no_names = { .sym = no_sym };

/* From here to end_names(), as a user of the trace, addresses have names. */
static void begin_names(struct stream *s)
{
	names_then_begin(&s->then, s->trace, s->after);
	s->names = &s->then.names;
}

static void end_names(struct stream *s)
{
	s->names = &no_names;
	names_then_end(&s->then);
}

static bool is_json(const struct stream *s)
{
	return s->format == STREAM_NDJSON || s->format == STREAM_SSE;
}

static void frame_seq(struct stream *s, size_t from, u64 seq)
{
	if (s->format == STREAM_SSE)
		sse_frame_seq(&s->out, from, seq);
}

/* @seq: where one goes on after it */
static void put_lost(struct stream *s, u64 count, u64 seq)
{
	size_t from = s->out.len;

	if (is_json(s)) {
		out_json_lost(&s->out, count, s->after, seq);
		frame_seq(s, from, seq);
		return;
	}
	if (s->sys) {
		sys_out_lost(s->sys, &s->out, count, s->after);
		return;
	}
	switch (s->format) {
	case STREAM_RECORDING:
		rec_writer_lost(s->writer, &s->out, count);
		break;
	default:
		out_layout_lost(s->layout, &s->out, count, s->names);
	}
}

static void put_record(struct stream *s, const struct trace_record *r)
{
	size_t from = s->out.len;

	if (s->sys) {
		sys_out_record(s->sys, &s->out, r, s->names);
		frame_seq(s, from, r->seq);
		if (!sys_out_inside(s->sys))
			s->resume = r->seq;
		return;
	}
	s->resume = r->seq;
	switch (s->format) {
	case STREAM_NDJSON:
	case STREAM_SSE:
		out_json_record(&s->out, r, s->names);
		frame_seq(s, from, r->seq);
		break;
	case STREAM_RECORDING:
		rec_writer_add(s->writer, &s->out, r, s->names);
		break;
	default:
		out_layout_record(s->layout, &s->out, r, s->names);
	}
}

static void put_gap(struct stream *s, u64 next_seq)
{
	if (next_seq <= s->after + 1)
		return;
	s->lost_here += next_seq - s->after - 1;
	atomic_fetch_add(&s->trace->lost_readers, next_seq - s->after - 1);
	put_lost(s, next_seq - s->after - 1, next_seq - 1);
	s->after = s->resume = next_seq - 1; /* what came of a call before it is of no use */
}

/* The last words: totals and why. */
static void put_end(struct stream *s, const struct trace_info *i, const char *reason)
{
	size_t from = s->out.len;
	char id[32];

	s->meta.n_records = i->n_records;
	s->meta.n_lost = i->n_lost + s->lost_here;
	s->meta.n_functions = i->n_functions;
	s->meta.n_restored = i->restore.sites_restored;
	s->meta.missed_forks = i->missed_forks;
	s->meta.missed_switches = i->missed_switches;
	s->meta.boot_ns = i->boot_ns;
	s->meta.zero_mono_ns = i->zero_mono_ns;
	s->meta.restored = i->state != TRACE_RUNNING && i->restore.verified;
	if (is_json(s)) {
		out_json_end(&s->out, &s->meta, reason);
		snprintf(id, sizeof(id), "%llu" STREAM_END_ID, (unsigned long long)i->n_records);
		if (s->format == STREAM_SSE)
			sse_frame(&s->out, from, id);
	} else if (s->format == STREAM_RECORDING)
		rec_writer_end(s->writer, &s->out, &s->meta);
	else if (s->layout)
		out_layout_flush(s->layout, &s->out, s->names);
	s->ended = true;
}

static void put_new_losses(struct stream *s, const struct trace_info *i)
{
	if (i->n_lost <= s->lost_seen)
		return;
	put_lost(s, i->n_lost - s->lost_seen, s->resume);
	s->lost_seen = i->n_lost;
}

/* Up to STREAM_BATCH more records. Return: how many; negative: it is over, or there is a gap. */
static ssize_t fill_batch(struct stream *s, struct trace *t, const struct trace_info *info)
{
	struct trace_page page = { .buf = s->recs, .max = STREAM_BATCH };
	struct err err = { 0 };
	int r = trace_read(t, s->after, &page, &err);

	if (r == -ESTALE)
		put_gap(s, page.oldest_seq);
	else if (r < 0)
		put_end(s, info, err_code_name(err.code));
	if (r < 0)
		return r;
	for (size_t k = 0; k < page.n; k++) {
		put_gap(s, s->recs[k].seq);
		names_then_at(&s->then, s->recs[k].seq);
		put_record(s, &s->recs[k]);
		s->after = s->recs[k].seq;
	}
	return (ssize_t)page.n;
}

/* Format what there is, as a user of the trace. Return: has it been enough for now, although there is more? */
static bool fill_from(struct stream *s, struct trace *t)
{
	struct trace_info info = { 0 };
	u64 before = s->after;
	u32 batches = 0;
	ssize_t n;

	/* the state first: when it says "stopped", a read that finds nothing after it is the end */
	trace_get_info(t, &info);
	put_new_losses(s, &info);
	if (s->sys)
		sys_out_boot(s->sys, info.boot_ns);
	do
		n = fill_batch(s, t, &info);
	while (n == STREAM_BATCH && s->out.len < STREAM_FULL && ++batches < STREAM_MANY);
	if (n || s->after != before || info.state == TRACE_RUNNING)
		return batches == STREAM_MANY;
	put_end(s, &info, info.state == TRACE_FAILED ? err_code_name(info.error.code) : "stopped");
	return false;
}

/* What a layout holds back must not wait for a record that may not come. */
static void put_held(struct stream *s)
{
	bool used = s->layout && registry_trace_use(s->trace);

	if (used)
		begin_names(s);
	if (s->layout && !used)
		out_layout_forget(s->layout);
	if (s->layout)
		out_layout_flush(s->layout, &s->out, s->names);
	if (used) {
		end_names(s);
		registry_trace_unuse(s->trace);
	}
}

/* Quiet for a while. No id, since there is nothing to go on after that there was not before. */
static void put_beat(struct stream *s)
{
	size_t from = s->out.len;

	if (!is_json(s)) {
		put_held(s);
		return;
	}
	buf_addf(&s->out, "{\"type\":\"heartbeat\",\"seq\":%llu}\n", (unsigned long long)s->resume);
	if (s->format == STREAM_SSE)
		sse_frame(&s->out, from, "");
}

/* Put what is new into @out. Return: false when there is nothing; @more_ret: to be shown, of what was looked at. */
static bool fill(struct stream *s, bool *more_ret)
{
	buf_reset(&s->out);
	s->off = 0;
	*more_ret = false;
	if (registry_trace_use(s->trace)) {
		begin_names(s);
		*more_ret = fill_from(s, s->trace->trace);
		if (s->writer)
			rec_writer_whole(s->writer, &s->out);
		end_names(s);
		registry_trace_unuse(s->trace);
	} else {
		/* deleted under us: what we had not sent yet is gone, and so are names */
		if (s->layout)
			out_layout_forget(s->layout);
		put_gap(s, s->trace->last.n_records + 1);
		put_new_losses(s, &s->trace->last);
		put_end(s, &s->trace->last, "deleted");
	}
	return s->out.len || s->ended;
}

/* Ended for a reason that is not the trace's. */
static void end_early(struct stream *s, const char *reason)
{
	put_end(s, &(struct trace_info){ .n_records = s->resume, .n_lost = s->lost_seen }, reason);
}

static void deny(struct stream *s)
{
	buf_reset(&s->out);
	s->off = 0;
	s->denied = true;
	put_held(s);
	end_early(s, "token_removed");
}

static ssize_t read_stream(void *cls, uint64_t pos, char *buf, size_t max)
{
	struct stream *s = cls;
	bool more;
	size_t n;

	(void)pos;
	while (s->off == s->out.len) {
		if (s->ended)
			return MHD_CONTENT_READER_END_OF_STREAM;
		if (hub_denied(server_hub(s->srv), &s->client)) {
			deny(s);
			continue;
		}
		if (fill(s, &more))
			continue;
		if (more) { /* other connections first */
			hub_yield(server_hub(s->srv), &s->client);
			return 0;
		}
		switch (hub_wait(server_hub(s->srv), &s->client,
				 s->layout && out_layout_holds(s->layout))) {
		case HUB_SUSPENDED:
			return 0;
		case HUB_AGAIN:
			break;
		case HUB_BEAT:
			put_beat(s);
			break;
		case HUB_ENDING:
			put_held(s);
			end_early(s, "daemon_stopping");
			break;
		case HUB_CLIENT_GONE:
			return MHD_CONTENT_READER_END_WITH_ERROR;
		}
	}
	if (buf_failed(&s->out)) {
		log_error("no memory for a stream of trace %s; it is cut", s->trace->id);
		return MHD_CONTENT_READER_END_WITH_ERROR;
	}
	n = MIN(max, s->out.len - s->off);
	memcpy(buf, s->out.data + s->off, n);
	s->off += n;
	hub_output(server_hub(s->srv), &s->client);
	return (ssize_t)n;
}

/* What is left to do when a client has left. */
struct leaving {
	struct server *srv;
	struct trace_entry *trace; /* a reference */
	struct identity who;
	bool delete;
};

static int stop_trace(struct trace_entry *t, struct err *err)
{
	int r;

	if (!registry_trace_use(t))
		return err_set(err, -ENOENT, ERR_NOT_FOUND, 0, "it is gone");
	r = registry_trace_stop(t, err);
	registry_trace_unuse(t);
	return r;
}

static int delete_trace(struct trace_entry *t, struct err *err)
{
	struct trace_entry *last;
	int r = registry_trace_delete(t->reg, t->id, false, &last, err);

	if (r == 0)
		registry_trace_unref(last);
	return r;
}

static void leave(void *arg)
{
	struct leaving *l = arg;
	struct trace_entry *t = l->trace;
	struct err err = { 0 };
	struct audit_entry e = { .who = l->who.name, .role = role_name(l->who.role) };
	char path[64];
	int r;

	r = l->delete ? delete_trace(t, &err) : stop_trace(t, &err);
	if (r < 0 && err.code != ERR_NOT_FOUND)
		log_error("trace %s: %s (%s)", t->id, err.msg, err_code_name(err.code));
	else if (r == 0)
		log_info("trace %s: %s, since its client left", t->id,
			 l->delete ? "deleted" : "stopped");
	if (err.code != ERR_NOT_FOUND) { /* else somebody else was faster */
		snprintf(path, sizeof(path), "/v1/traces/%s/stream", t->id);
		e.path = path;
		e.operation = l->delete ? "on_close=delete" : "on_close=stop";
		e.status = r < 0 ? err_code_status(err.code) : 200;
		audit_add(server_audit(l->srv), &e);
	}
	registry_trace_unref(t);
	free(l);
}

/* May wait, so not here; the job has a reference of its own. */
static void begin_leaving(struct stream *s)
{
	struct leaving *l = calloc(1, sizeof(*l));

	if (!l) {
		log_error("no memory to end trace %s, whose client left", s->trace->id);
		return;
	}
	*l = (struct leaving){ s->srv, s->trace, s->who, s->on_close == STREAM_CLOSE_DELETE };
	registry_trace_ref(s->trace);
	if (work_submit(server_work(s->srv), leave, l) == 0)
		return;
	registry_trace_unref(s->trace);
	free(l);
}

static void stream_free(struct stream *s)
{
	rec_writer_destroy(s->writer);
	out_layout_destroy(s->layout);
	sys_out_destroy(s->sys);
	buf_deinit(&s->out);
	free(s);
}

static void on_response_freed(void *cls)
{
	struct stream *s = cls;

	hub_remove(server_hub(s->srv), &s->client);
	if (s->on_close != STREAM_CLOSE_KEEP && (!s->ended || s->denied))
		begin_leaving(s);
	registry_stream_end(s->trace);
	stream_free(s);
}

static int begin_syscalls(struct stream *s, const struct out_layout_opts *layout, struct err *err)
{
	static const enum sys_format formats[] = {
		[STREAM_NDJSON] = SYS_JSON, [STREAM_SSE] = SYS_JSON,  [STREAM_TEXT] = SYS_TEXT,
		[STREAM_FALCO] = SYS_FALCO, [STREAM_OCSF] = SYS_OCSF,
	};

	s->sys = sys_out_create(formats[s->format], s->meta.guest);
	if (!s->sys)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for another stream");
	sys_out_layout(s->sys, layout);
	return 0;
}

static int put_head(struct stream *s, const struct out_layout_opts *layout, struct err *err)
{
	bool syscalls = strcmp(s->meta.tracer, "syscalls") == 0;
	int r = 0;

	if (s->format == STREAM_SSE)
		sse_head(&s->out);

	if (!syscalls && s->format >= STREAM_FALCO)
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0, "%s is for the tracer syscalls",
			       media_types[s->format]);
	if (syscalls && s->format != STREAM_RECORDING)
		return begin_syscalls(s, layout, err);
	if (s->format == STREAM_TEXT)
		r = out_layout_create(&s->meta, &s->layout, err);
	else if (s->format == STREAM_RECORDING)
		r = rec_writer_create(&s->meta, &s->writer, err);
	if (r < 0)
		return r;
	if (s->layout) {
		out_layout_set(s->layout, layout);
		out_layout_head(s->layout, &s->out, &s->meta);
	} else if (s->writer) {
		rec_writer_head(s->writer, &s->out);
	}
	return 0;
}

int stream_create(struct server *srv, struct MHD_Connection *conn, struct trace_entry *t,
		  const struct stream_opts *opts, struct MHD_Response **ret, struct err *err)
{
	struct stream *s = calloc(1, sizeof(*s));
	struct trace_info info = { 0 };
	int r;

	if (!s)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for another stream");
	s->srv = srv;
	s->trace = t;
	s->format = opts->format;
	s->after = s->resume = opts->after;
	s->on_close = opts->on_close;
	s->who = *opts->who;
	s->names = &no_names;
	names_then_init(&s->then);
	hub_client_init(&s->client, conn, t, &s->who, is_json(s));
	stream_fill_meta(&s->meta, t, s->after);
	trace_get_info(t->trace, &info);
	if (s->after) /* who goes on has been told of those before */
		s->lost_seen = info.n_lost;
	r = put_head(s, &opts->layout, err);
	if (r < 0) {
		stream_free(s);
		return r;
	}
	*ret = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, s,
						 on_response_freed);
	if (!*ret) {
		stream_free(s);
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for another stream");
	}
	registry_stream_begin(t);
	hub_add(server_hub(srv), &s->client);
	if (!auth_still(server_auth(srv), &s->who))
		hub_deny(server_hub(srv), &s->client);
	return 0;
}
