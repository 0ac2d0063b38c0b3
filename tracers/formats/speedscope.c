// SPDX-License-Identifier: Apache-2.0
/*
 * speedscope's own format: an evented profile a task. Its JSON has each profile's events together, so they
 * wait in a spool, a stream a task: each is a step up or down, the frame's number and the time.
 * What was lost is said in the name, which speedscope shows.
 *
 * Source: speedscope v1.25 file-format-schema.json, src/lib/file-format-spec.ts.
 */
#include "tracers/fmt.h"
#include "tracers/formats/priv.h"
#include "tracers/formats/spans.h"
#include "tracers/out_values.h"
#include "tracers/rec_format.h"
#include "tracers/rec_varint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define BLOCK      1024u /* of a task's stream: one lies in memory for each task */
#define PART_BYTES 65536u

enum step {
	STEP_CLOSE,
	STEP_OPEN
};

enum stage {
	STAGE_START,
	STAGE_PROFILES,
	STAGE_FRAMES
};

struct speedscope {
	struct spool *spool;
	enum stage stage;
	u32 next; /* task or frame */
	bool any;
	/* the task under way */
	bool open;
	struct spool_place place;
	u8 chunk[512];
	u32 off, len;
};

static int create(struct export *x, struct err *err)
{
	struct speedscope *s = x->priv = calloc(1, sizeof(*s));

	return s ? spool_create(&x->opts.tmp, BLOCK, &s->spool, err)
		 : err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for an export");
}

static void destroy(struct export *x)
{
	struct speedscope *s = x->priv;

	if (!s)
		return;
	spool_place_deinit(&s->place);
	spool_destroy(s->spool);
	free(s);
}

/* Steps of a task never go back in time: @ts_ns is last_ns or later. */
static void step(struct export *x, struct task *t, enum step way, u32 sym, u64 ts_ns)
{
	struct speedscope *s = x->priv;
	u8 bytes[2 * REC_VARINT_MAX], *p;
	int r;

	p = put_varint(bytes, (u64)sym << 1 | way);
	p = put_varint(p, ts_ns);
	r = spool_add(s->spool, &t->stream, bytes, (size_t)(p - bytes));
	if (r < 0)
		export_fail(x, r);
}

static void begin_call(struct export *x, struct buf *b, const struct span *s)
{
	(void)b;
	step(x, s->task, STEP_OPEN, s->call->sym, s->ts_ns);
}

static void end_call(struct export *x, struct buf *b, const struct span *s)
{
	(void)b;
	step(x, s->task, STEP_CLOSE, s->call->sym, s->ts_ns);
}

static const struct span_ops span_ops = { begin_call, end_call };

static void record(struct export *x, struct buf *b, const struct trace_record *r)
{
	struct task *t;
	unsigned news;

	if (r->type != TRACE_GRAPH_ENTRY && r->type != TRACE_GRAPH_RETURN &&
	    r->type != TRACE_GRAPH_NEVER)
		return;
	t = export_task(x, r, &news);
	if (t)
		spans_add(x, b, t, r, &span_ops);
}

static void syscall_event(struct export *x, struct buf *b, const struct syscall_event *e)
{
	struct trace_record who = { .pid = e->pid, .tgid = e->tgid, .cpu = e->cpu };
	u32 sym = export_call_sym(x, e);
	struct task *t;
	unsigned news;
	u64 ts;

	(void)b;
	memcpy(who.comm, e->comm, sizeof(who.comm));
	t = export_task(x, &who, &news);
	if (!t)
		return;
	ts = MAX(e->ts_ns, t->last_ns);
	step(x, t, STEP_OPEN, sym, ts);
	ts = MAX(ts, e->ts_ns + e->duration_ns);
	step(x, t, STEP_CLOSE, sym, ts);
	t->last_ns = ts;
}

static void lost(struct export *x, struct buf *b, u64 count)
{
	/* told at the end */
	(void)x;
	(void)b;
	(void)count;
}

static void add_start(struct export *x, struct buf *b)
{
	const struct output_meta *m = &x->meta;
	char time[40];

	buf_adds(b, "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",");
	buf_adds(b, "\"exporter\":\"hvftrace " HVF_VERSION "\",\"name\":\"");
	for (int i = 0; i < 2; i++) {
		const char *s = i ? m->release : m->guest;
		size_t max = i ? sizeof(m->release) : sizeof(m->guest), len = strnlen(s, max);
		char *p = buf_reserve(b, 6 * max);

		if (!p)
			return;
		b->len += (size_t)(fmt_json_escaped(p, s, len) - p);
		buf_adds(b, i ? "" : ", Linux ");
	}
	buf_addf(b, ", %s", export_time(m->started_ns, time));
	if (x->n_lost || x->n_left_out)
		buf_addf(b, ", %llu events lost", (unsigned long long)x->n_lost + x->n_left_out);
	buf_adds(b, "\",\"profiles\":[");
}

static bool get_byte(struct export *x, u8 *ret)
{
	struct speedscope *s = x->priv;
	const struct task *t = tasks_at(x->tasks, s->next);
	ssize_t n;

	if (s->off == s->len) {
		n = spool_read(s->spool, &t->stream, &s->place, s->chunk, sizeof(s->chunk));
		if (n < 0)
			export_fail(x, (int)n);
		if (n <= 0)
			return false;
		s->off = 0;
		s->len = (u32)n;
	}
	*ret = s->chunk[s->off++];
	return true;
}

static bool get_number(struct export *x, u64 *ret)
{
	u8 byte;

	*ret = 0;
	for (unsigned shift = 0; shift < 64; shift += 7) {
		if (!get_byte(x, &byte))
			return false;
		*ret |= ((u64)byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return true;
	}
	return false;
}

static void open_profile(struct export *x, struct buf *b, const struct task *t)
{
	struct speedscope *s = x->priv;
	char *p;

	buf_adds(b, s->any ? ",\n" : "\n");
	buf_adds(b, "{\"type\":\"evented\",\"unit\":\"nanoseconds\",\"name\":\"");
	p = buf_reserve(b, 6 * sizeof(t->comm));
	if (!p)
		return;
	b->len += (size_t)(fmt_json_escaped(p, t->comm, strnlen(t->comm, TRACE_COMM_LEN)) - p);
	if (t->pid)
		buf_addf(b, " (%u)", t->pid);
	else
		buf_addf(b, " (idle, CPU %u)", (u32)t->key);
	buf_addf(b, "\",\"startValue\":%llu,\"endValue\":%llu,\"events\":[",
		 (unsigned long long)x->first_ns, (unsigned long long)MAX(x->last_ns, t->last_ns));
	s->any = s->open = true;
	s->off = s->len = 0;
}

/* A part of the profile of task s->next; false: it is complete. */
static bool add_profile(struct export *x, struct buf *b)
{
	struct speedscope *s = x->priv;
	const struct task *t = tasks_at(x->tasks, s->next);
	size_t before = b->len;
	bool first = !s->open;
	u64 what, at;
	char *p;

	if (!s->open)
		open_profile(x, b, t);
	while (get_number(x, &what) && get_number(x, &at)) {
		p = buf_reserve(b, 96);
		if (!p)
			return false;
		if (!first)
			*p++ = ',';
		first = false;
		p = FMT_LIT(p, "{\"type\":\"");
		*p++ = (what & 1) == STEP_OPEN ? 'O' : 'C';
		p = fmt_u64(FMT_LIT(p, "\",\"frame\":"), (what >> 1) - 1);
		p = fmt_u64(FMT_LIT(p, ",\"at\":"), MAX(at, x->first_ns));
		*p++ = '}';
		*p = 0;
		b->len = (size_t)(p - b->data);
		if (b->len - before >= PART_BYTES)
			return true;
	}
	buf_adds(b, "]}");
	s->open = false;
	spool_place_deinit(&s->place);
	return false;
}

static void add_frame(struct export *x, struct buf *b, u32 id)
{
	const struct exp_sym *sym = syms_at(x->syms, id);
	char *p = buf_reserve(b, sym->json_len + 64);

	if (!p)
		return;
	if (id > 1)
		*p++ = ',';
	p = FMT_LIT(p, "{\"name\":\"");
	p = fmt_bytes(p, sym->json, sym->json_len);
	*p++ = '"';
	*p = 0;
	b->len = (size_t)(p - b->data);
	if (sym->module) {
		buf_adds(b, ",\"file\":");
		out_json_string(b, sym->module, strlen(sym->module));
	}
	buf_adds(b, "}");
}

static bool end(struct export *x, struct buf *b)
{
	struct speedscope *s = x->priv;
	size_t before = b->len;

	if (s->stage == STAGE_START) {
		for (u32 i = 0; i < tasks_count(x->tasks); i++)
			spans_finish(x, b, tasks_at(x->tasks, i), x->last_ns, &span_ops);
		add_start(x, b);
		s->stage = STAGE_PROFILES;
	}
	while (s->stage == STAGE_PROFILES && s->next < tasks_count(x->tasks)) {
		bool empty = !tasks_at(x->tasks, s->next)->stream.bytes;

		if (!empty && add_profile(x, b))
			return true;
		s->next++;
		if (b->len - before >= PART_BYTES)
			return true;
	}
	if (s->stage == STAGE_PROFILES) {
		buf_adds(b, "],\n\"shared\":{\"frames\":[");
		s->stage = STAGE_FRAMES;
		s->next = 0;
	}
	while (s->next < syms_count(x->syms)) {
		add_frame(x, b, ++s->next);
		if (b->len - before >= PART_BYTES)
			return true;
	}
	buf_adds(b, "]}}\n");
	return false;
}

const struct export_ops export_speedscope = {
	.create = create,
	.destroy = destroy,
	.record = record,
	.syscall = syscall_event,
	.lost = lost,
	.end = end,
};
