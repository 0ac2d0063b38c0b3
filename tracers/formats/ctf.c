// SPDX-License-Identifier: Apache-2.0
/*
 * The Common Trace Format 1.8: metadata in TSDL, and a stream a CPU of packets, as one tar archive. A
 * packet's context says how many events the stream has lost so far (events_discarded); a loss is put down
 * to the CPU of the next record, as only the sum is known. An event's time never goes back in a stream: a
 * record that comes late has the time of the one before it.
 *
 * Source: "Common Trace Format v1.8.3", DiaMon; names of fields as LTTng's kernel tracer has them.
 */
#include "tracers/formats/ctf_metadata.h"
#include "tracers/formats/priv.h"
#include "tracers/formats/sorter.h"
#include "tracers/formats/tar.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPOOL_BLOCK   65536u
#define PACKET_BYTES  32768u
#define EVENT_BYTES   4096u /* more than any has: three names, a comm, numbers */
#define NAME_BYTES    511u
#define STEPS_AT_ONCE 4096u
#define PART_BYTES    65536u
#define MAGIC         0xc1fc1fc1u

enum {
	EVENT_FUNCTION,
	EVENT_ENTRY,
	EVENT_EXIT,
	EVENT_NEVER,
	EVENT_SWITCH,
	EVENT_SYS_ENTER,
	EVENT_SYS_EXIT,
	EVENT_LOST,
};

struct packet_head {
	u32 magic, stream_id;
	/* context */
	u64 begin_ns, end_ns;
	u64 content_bits, packet_bits;
	u64 discarded;
	u32 cpu;
} __attribute__((packed));

struct ctf_cpu {
	u8 packet[PACKET_BYTES];
	u32 used; /* 0: none under way */
	u64 begin_ns, last_ns, discarded;
	struct spool_stream stream;
};

struct ctf {
	struct spool *spool;
	struct sorter *sorter;
	struct ctf_cpu **cpu;
	u32 n_cpus, last_cpu;
	u64 lost; /* not in a packet yet */
	bool flushed, metadata_done, in_file;
	u32 next_cpu;
	struct spool_place place;
};

static int create(struct export *x, struct err *err)
{
	struct ctf *c = x->priv = calloc(1, sizeof(*c));
	int r = 0;

	if (!c)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for an export");
	if (strcmp(x->meta.tracer, "syscalls") == 0)
		r = sorter_create(&x->opts.tmp, SORTER_RUN, &c->sorter, err);
	return r ? r : spool_create(&x->opts.tmp, SPOOL_BLOCK, &c->spool, err);
}

static void destroy(struct export *x)
{
	struct ctf *c = x->priv;

	if (!c)
		return;
	for (u32 i = 0; i < c->n_cpus; i++) {
		if (c->cpu[i])
			spool_stream_deinit(&c->cpu[i]->stream);
		free(c->cpu[i]);
	}
	free(c->cpu);
	spool_place_deinit(&c->place);
	spool_destroy(c->spool);
	sorter_destroy(c->sorter);
	free(c);
}

static struct ctf_cpu *cpu_of(struct export *x, u32 cpu)
{
	struct ctf *c = x->priv;

	if (cpu >= c->n_cpus) {
		struct ctf_cpu **more = reallocarray(c->cpu, cpu + 1, sizeof(struct ctf_cpu *));

		if (!more) {
			export_fail(x, -ENOMEM);
			return NULL;
		}
		memset(more + c->n_cpus, 0, (cpu + 1 - c->n_cpus) * sizeof(struct ctf_cpu *));
		c->cpu = more;
		c->n_cpus = cpu + 1;
	}
	if (!c->cpu[cpu])
		c->cpu[cpu] = calloc(1, sizeof(struct ctf_cpu));
	if (!c->cpu[cpu])
		export_fail(x, -ENOMEM);
	return c->cpu[cpu];
}

static void flush_packet(struct export *x, u32 cpu)
{
	struct ctf *c = x->priv;
	struct ctf_cpu *s = c->cpu[cpu];
	struct packet_head h = { .magic = MAGIC,
				 .begin_ns = s->begin_ns,
				 .end_ns = s->last_ns,
				 .content_bits = s->used * 8ull,
				 .packet_bits = s->used * 8ull,
				 .discarded = s->discarded,
				 .cpu = cpu };
	int r;

	if (!s->used)
		return;
	memcpy(s->packet, &h, sizeof(h));
	r = spool_add(c->spool, &s->stream, s->packet, s->used);
	if (r < 0)
		export_fail(x, r);
	s->used = 0;
}

/* An event being made at @p of @s. */
struct event {
	struct ctf_cpu *s;
	u8 *p;
};

static u8 *put(u8 *p, const void *v, size_t n)
{
	memcpy(p, v, n);
	return p + n;
}

static u8 *put_u32(u8 *p, u32 v)
{
	return put(p, &v, sizeof(v));
}

static u8 *put_u64(u8 *p, u64 v)
{
	return put(p, &v, sizeof(v));
}

static u8 *put_string(u8 *p, const char *s, size_t max)
{
	p = put(p, s, strnlen(s, max));
	*p++ = 0;
	return p;
}

struct who {
	u32 pid, tgid;
	const char *comm;
	u16 ctx;
};

/* The event's head and context. The packet before is over when it is full or something was lost. */
static bool event_open(struct export *x, struct event *e, u32 cpu, u64 ts_ns, u16 id,
		       const struct who *who)
{
	struct ctf_cpu *s = cpu_of(x, cpu);
	struct ctf *c = x->priv;

	if (!s)
		return false;
	ts_ns = MAX(ts_ns, s->last_ns);
	if (c->lost || s->used + EVENT_BYTES > PACKET_BYTES)
		flush_packet(x, cpu);
	if (!s->used) {
		s->used = sizeof(struct packet_head);
		s->begin_ns = ts_ns;
		s->discarded += c->lost;
		c->lost = 0;
	}
	s->last_ns = ts_ns;
	c->last_cpu = cpu;
	e->s = s;
	e->p = put(s->packet + s->used, &id, sizeof(id));
	e->p = put_u64(e->p, ts_ns);
	e->p = put_u32(e->p, who->pid);
	e->p = put_u32(e->p, who->tgid);
	e->p = put_string(e->p, who->comm, TRACE_COMM_LEN);
	e->p = put(e->p, &who->ctx, sizeof(who->ctx));
	return true;
}

static void event_close(struct event *e)
{
	e->s->used = (u32)(e->p - e->s->packet);
}

/* Address, name, module. */
static u8 *put_sym(struct export *x, u8 *p, u64 addr)
{
	const struct exp_sym *sym = syms_at(x->syms, export_sym(x, addr));

	p = put_u64(p, addr);
	p = put_string(p, sym->name, NAME_BYTES);
	return put_string(p, sym->module ? sym->module : "", NAME_BYTES);
}

static void add_call(struct export *x, const struct trace_record *r)
{
	static const u8 ids[] = { [TRACE_FUNCTION] = EVENT_FUNCTION,
				  [TRACE_GRAPH_ENTRY] = EVENT_ENTRY,
				  [TRACE_GRAPH_RETURN] = EVENT_EXIT,
				  [TRACE_GRAPH_NEVER] = EVENT_NEVER };
	struct who who = { r->pid, r->tgid, r->comm, r->ctx };
	struct event e;

	if (!event_open(x, &e, r->cpu, r->ts_ns, ids[r->type], &who))
		return;
	e.p = put_sym(x, e.p, r->ip);
	if (r->type != TRACE_GRAPH_RETURN)
		e.p = put_sym(x, e.p, r->parent);
	if (r->type != TRACE_FUNCTION)
		e.p = put_u32(e.p, r->depth);
	if (r->type == TRACE_GRAPH_RETURN)
		e.p = put_u64(e.p, r->duration_ns);
	event_close(&e);
}

static void add_switch(struct export *x, const struct sys_step *s)
{
	const struct task *prev = s->nr ? tasks_find(x->tasks, (u32)s->nr) : NULL;
	const char *comm = prev ? prev->comm : s->nr ? "<...>" : "swapper";
	struct who who = { (u32)s->nr, prev ? prev->tgid : 0, comm, s->ctx };
	struct event e;

	if (!event_open(x, &e, s->cpu, s->ts_ns, EVENT_SWITCH, &who))
		return;
	e.p = put_string(e.p, comm, TRACE_COMM_LEN);
	e.p = put_u32(e.p, (u32)s->nr);
	e.p = put_string(e.p, s->comm, TRACE_COMM_LEN);
	e.p = put_u32(e.p, s->pid);
	event_close(&e);
}

static void add_step(struct export *x, const struct sys_step *s)
{
	const struct exp_sym *sym = syms_at(x->syms, s->sym);
	char comm[TRACE_COMM_LEN + 1] = { 0 };
	struct who who = { s->pid, s->tgid, comm, 0 };
	struct event e;

	memcpy(comm, s->comm, TRACE_COMM_LEN);
	if (s->kind == STEP_LOST)
		((struct ctf *)x->priv)->lost += (u64)s->ret;
	if (s->kind == STEP_SWITCH)
		add_switch(x, s);
	if (s->kind > STEP_EXIT ||
	    !event_open(x, &e, s->cpu, s->ts_ns,
			s->kind == STEP_ENTER ? EVENT_SYS_ENTER : EVENT_SYS_EXIT, &who))
		return;
	e.p = put_string(e.p, sym->name, NAME_BYTES);
	e.p = put_u32(e.p, (u32)s->nr);
	if (s->kind == STEP_ENTER)
		e.p = put(e.p, s->args, sizeof(s->args));
	else
		e.p = put_u64(e.p, (u64)s->ret);
	event_close(&e);
}

static void sort(struct export *x, struct sys_step *s)
{
	struct ctf *c = x->priv;
	int r = sorter_add(c->sorter, s);

	if (r < 0)
		export_fail(x, r);
}

static void switched(struct export *x, const struct trace_record *r)
{
	struct ctf *c = x->priv;
	struct sys_step s = sys_step_switch(r);

	if (c->sorter)
		sort(x, &s);
	else
		add_switch(x, &s);
}

static void record(struct export *x, struct buf *b, const struct trace_record *r)
{
	unsigned news;

	(void)b;
	if (r->type != TRACE_SWITCH && r->type > TRACE_GRAPH_NEVER)
		return;
	export_task(x, r, &news);
	if (r->type == TRACE_SWITCH)
		switched(x, r);
	else
		add_call(x, r);
}

static void syscall_event(struct export *x, struct buf *b, const struct syscall_event *e)
{
	struct ctf *c = x->priv;
	struct sys_step s = { .ts_ns = e->ts_ns,
			      .kind = STEP_ENTER,
			      .pid = e->pid,
			      .tgid = e->tgid,
			      .sym = export_call_sym(x, e),
			      .nr = e->nr,
			      .cpu = e->cpu,
			      .ret = e->ret };

	(void)b;
	memcpy(s.comm, e->comm, sizeof(s.comm));
	memcpy(s.args, e->args, sizeof(s.args));
	if (!c->sorter)
		return; /* a recording that says it is of another tracer */
	sort(x, &s);
	s.kind = STEP_EXIT;
	s.ts_ns += e->duration_ns;
	if (e->state != SYSCALL_NEVER && e->state != SYSCALL_UNFINISHED)
		sort(x, &s);
}

static void lost(struct export *x, struct buf *b, u64 count)
{
	struct sys_step s = { .ts_ns = x->last_ns, .kind = STEP_LOST, .ret = (s64)count };
	struct ctf *c = x->priv;

	(void)b;
	if (c->sorter)
		sort(x, &s);
	else
		c->lost += count;
}

static bool put_sorted(struct export *x)
{
	struct ctf *c = x->priv;
	struct sys_step s;

	for (u32 i = 0; i < STEPS_AT_ONCE; i++) {
		int r = sorter_next(c->sorter, &s);

		if (r < 0)
			export_fail(x, r);
		if (r <= 0)
			return false;
		add_step(x, &s);
	}
	return true;
}

static void put_last_loss(struct export *x)
{
	struct ctf *c = x->priv;
	struct who who = { 0, 0, "", 0 };
	u64 count = c->lost;
	struct event e;

	if (!count || !event_open(x, &e, c->last_cpu, x->last_ns, EVENT_LOST, &who))
		return;
	e.p = put_u64(e.p, count);
	event_close(&e);
}

static void add_metadata(struct export *x, struct buf *b)
{
	_cleanup_buf_ struct buf text = { 0 };

	ctf_metadata(x, &text);
	b->failed |= buf_failed(&text);
	if (buf_failed(&text))
		return;
	tar_head(b, "metadata", text.len, x->meta.started_ns / NSEC_PER_SEC);
	buf_add(b, text.data, text.len);
	tar_pad(b, text.len);
}

/* A part of CPU c->next_cpu's file. Return: is there more of it? */
static bool add_stream(struct export *x, struct buf *b)
{
	struct ctf *c = x->priv;
	const struct spool_stream *st = &c->cpu[c->next_cpu]->stream;
	char name[32];
	ssize_t n;

	if (!c->in_file) {
		snprintf(name, sizeof(name), "cpu_%u", c->next_cpu);
		tar_head(b, name, st->bytes, x->meta.started_ns / NSEC_PER_SEC);
		c->in_file = true;
	}
	if (!buf_reserve(b, PART_BYTES))
		return false;
	n = spool_read(c->spool, st, &c->place, b->data + b->len, PART_BYTES);
	if (n < 0)
		export_fail(x, (int)n);
	if (n > 0) {
		b->len += (size_t)n;
		return true;
	}
	tar_pad(b, st->bytes);
	spool_place_deinit(&c->place);
	c->in_file = false;
	return false;
}

static bool end(struct export *x, struct buf *b)
{
	struct ctf *c = x->priv;

	if (!c->flushed) {
		if (c->sorter && put_sorted(x))
			return true;
		put_last_loss(x);
		for (u32 i = 0; i < c->n_cpus; i++) {
			if (c->cpu[i])
				flush_packet(x, i);
		}
		c->flushed = true;
	}
	if (!c->metadata_done) {
		add_metadata(x, b);
		c->metadata_done = true;
	}
	while (c->next_cpu < c->n_cpus) {
		if (c->cpu[c->next_cpu] && add_stream(x, b))
			return true;
		c->next_cpu++;
	}
	tar_end(b);
	return false;
}

const struct export_ops export_ctf = {
	.create = create,
	.destroy = destroy,
	.record = record,
	.syscall = syscall_event,
	.lost = lost,
	.end = end,
};
