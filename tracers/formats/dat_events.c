// SPDX-License-Identifier: Apache-2.0
/*
 * Records as ftrace's events. Calls: function, funcgraph_entry, funcgraph_exit; sched_switch without
 * the priorities and the state, which are not known; sys_enter and sys_exit. A loss is in the ring's own
 * place for it, the missed-events flag and count of a page: that of the next record, whose CPU need not be
 * the one that lost, as only the sum is known.
 */
#include "tracers/formats/dat.h"

#include "guest-agent/agent_abi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SPOOL_BLOCK   65536u
#define STEPS_AT_ONCE 4096u

static int create_any(struct export *x, bool v7, struct err *err)
{
	struct dat *d = x->priv = calloc(1, sizeof(*d));
	int r = 0;

	if (!d)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for an export");
	d->v7 = v7;
	if (v7) {
		d->zstd = ZSTD_createCCtx();
		d->packed = malloc(ZSTD_compressBound(DAT_CHUNK));
	}
	if (v7 && (!d->zstd || !d->packed))
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for an export");
	if (strcmp(x->meta.tracer, "syscalls") == 0)
		r = sorter_create(&x->opts.tmp, SORTER_RUN, &d->sorter, err);
	return r ? r : spool_create(&x->opts.tmp, SPOOL_BLOCK, &d->spool, err);
}

static int create(struct export *x, struct err *err)
{
	return create_any(x, false, err);
}

static int create_v7(struct export *x, struct err *err)
{
	return create_any(x, true, err);
}

static void destroy(struct export *x)
{
	struct dat *d = x->priv;

	if (!d)
		return;
	for (u32 i = 0; i < d->n_cpus; i++) {
		if (d->cpu[i]) {
			spool_stream_deinit(&d->cpu[i]->stream);
			free(d->cpu[i]->chunk);
		}
		free(d->cpu[i]);
	}
	free(d->cpu);
	spool_place_deinit(&d->place);
	spool_destroy(d->spool);
	sorter_destroy(d->sorter);
	ZSTD_freeCCtx(d->zstd);
	free(d->packed);
	buf_deinit(&d->head);
	free(d);
}

static struct dat_common common(u16 type, u32 pid, u16 ctx)
{
	static const struct {
		u16 ours;
		u8 theirs;
	} map[] = { { AGENT_CTX_IRQS_OFF, 0x01 }, { AGENT_CTX_HARDIRQ, 0x08 },
		    { AGENT_CTX_SOFTIRQ, 0x10 },  { AGENT_CTX_RESCHED, 0x20 },
		    { AGENT_CTX_NMI, 0x40 },      { AGENT_CTX_BH_OFF, 0x80 } };
	u8 flags = 0;

	for (size_t i = 0; i < ARRAY_SIZE(map); i++)
		flags |= ctx & map[i].ours ? map[i].theirs : 0;
	return (struct dat_common){ .type = type,
				    .flags = flags,
				    .preempt_count = (u8)((ctx & AGENT_CTX_PREEMPT) |
							  (ctx & AGENT_CTX_MIGRATE ? 0x10 : 0)),
				    .pid = (s32)pid };
}

static void add_function(struct export *x, const struct trace_record *r)
{
	struct {
		struct dat_common common;
		u64 ip, parent;
	} e = { common(DAT_FUNCTION, r->pid, r->ctx), r->ip, r->parent };

	export_sym(x, r->parent);
	dat_ring_add(x, r->cpu, r->ts_ns, &e, sizeof(e));
}

static void add_entry(struct export *x, const struct trace_record *r)
{
	struct {
		struct dat_common common;
		u64 func;
		s32 depth;
	} e = { common(DAT_GRAPH_ENTRY, r->pid, r->ctx), r->ip, r->depth };

	dat_ring_add(x, r->cpu, r->ts_ns, &e, 20);
}

static void add_exit(struct export *x, const struct trace_record *r)
{
	struct {
		struct dat_common common;
		u64 func, calltime, rettime;
		u32 overrun;
		s32 depth;
	} e = { common(DAT_GRAPH_EXIT, r->pid, r->ctx),
		r->ip,
		r->ts_ns - MIN(r->ts_ns, r->duration_ns),
		r->ts_ns,
		0,
		r->depth };

	if (r->duration_ns > r->ts_ns) /* what the difference says is what counts */
		e.rettime = r->duration_ns;
	dat_ring_add(x, r->cpu, r->ts_ns, &e, sizeof(e));
}

static void add_never(struct export *x, const struct trace_record *r)
{
	struct {
		struct dat_common common;
		u64 func;
	} e = { common(DAT_NEVER, r->pid, r->ctx), r->ip };

	dat_ring_add(x, r->cpu, r->ts_ns, &e, sizeof(e));
}

static void add_switch(struct export *x, const struct sys_step *s)
{
	struct {
		struct dat_common common;
		char prev_comm[TRACE_COMM_LEN];
		s32 prev_pid;
		char next_comm[TRACE_COMM_LEN];
		s32 next_pid;
	} e = { .common = common(DAT_SCHED_SWITCH, (u32)s->nr, s->ctx),
		.prev_pid = s->nr,
		.next_pid = (s32)s->pid };
	const struct task *prev = s->nr ? tasks_find(x->tasks, (u32)s->nr) : NULL;

	memcpy(e.next_comm, s->comm, sizeof(e.next_comm));
	if (!s->nr)
		strcpy(e.prev_comm, "swapper"); /* the idle task of any CPU */
	else
		memcpy(e.prev_comm, prev ? prev->comm : "<...>", prev ? TRACE_COMM_LEN : 6);
	dat_ring_add(x, s->cpu, s->ts_ns, &e, sizeof(e));
}

/* System calls are not in the order of time: with them, nothing is put into pages before the end. */
static void step(struct export *x, struct sys_step *s)
{
	struct dat *d = x->priv;
	int r = sorter_add(d->sorter, s);

	if (r < 0)
		export_fail(x, r);
}

static void switched(struct export *x, const struct trace_record *r)
{
	struct dat *d = x->priv;
	struct sys_step s = sys_step_switch(r);

	if (d->sorter)
		step(x, &s);
	else
		add_switch(x, &s);
}

static void record(struct export *x, struct buf *b, const struct trace_record *r)
{
	unsigned news;

	(void)b;
	if (r->type != TRACE_SWITCH && r->type > TRACE_GRAPH_NEVER)
		return;
	export_task(x, r, &news); /* a task too many has no name in the file, but its events */
	if (r->type == TRACE_SWITCH) {
		switched(x, r);
		return;
	}
	export_sym(x, r->ip);
	if (r->type == TRACE_FUNCTION)
		add_function(x, r);
	else if (r->type == TRACE_GRAPH_ENTRY)
		add_entry(x, r);
	else if (r->type == TRACE_GRAPH_RETURN)
		add_exit(x, r);
	else
		add_never(x, r);
}

static void syscall_event(struct export *x, struct buf *b, const struct syscall_event *e)
{
	struct trace_record who = { .pid = e->pid, .tgid = e->tgid, .cpu = e->cpu };
	struct sys_step s = { .ts_ns = e->ts_ns,
			      .kind = STEP_ENTER,
			      .pid = e->pid,
			      .tgid = e->tgid,
			      .sym = export_call_sym(x, e),
			      .nr = e->nr,
			      .cpu = e->cpu,
			      .n_args = e->n_args,
			      .ret = e->ret };
	unsigned news;

	(void)b;
	memcpy(who.comm, e->comm, sizeof(who.comm));
	memcpy(s.comm, e->comm, sizeof(s.comm));
	memcpy(s.args, e->args, sizeof(s.args));
	export_task(x, &who, &news);
	if (!((struct dat *)x->priv)->sorter)
		return; /* a recording that says it is of another tracer */
	step(x, &s);
	s.kind = STEP_EXIT;
	s.ts_ns += e->duration_ns;
	if (e->state != SYSCALL_NEVER && e->state != SYSCALL_UNFINISHED)
		step(x, &s);
}

static void add_step(struct export *x, const struct sys_step *s)
{
	struct {
		struct dat_common common;
		s64 id;
		u64 args[SYSCALL_ARGS];
		u64 handler;
	} enter = { .common = common(DAT_SYS_ENTER, s->pid, 0),
		    .id = s->nr,
		    .handler = syms_at(x->syms, s->sym)->addr };
	struct {
		struct dat_common common;
		s64 id, ret;
		u64 handler;
	} exit = { common(DAT_SYS_EXIT, s->pid, 0), s->nr, s->ret, enter.handler };

	memcpy(enter.args, s->args, sizeof(enter.args));
	if (s->kind == STEP_ENTER)
		dat_ring_add(x, s->cpu, s->ts_ns, &enter, sizeof(enter));
	else if (s->kind == STEP_EXIT)
		dat_ring_add(x, s->cpu, s->ts_ns, &exit, sizeof(exit));
	else if (s->kind == STEP_SWITCH)
		add_switch(x, s);
	else
		((struct dat *)x->priv)->missed += (u64)s->ret;
}

static void lost(struct export *x, struct buf *b, u64 count)
{
	struct sys_step s = { .ts_ns = x->last_ns, .kind = STEP_LOST, .ret = (s64)count };
	struct dat *d = x->priv;

	(void)b;
	if (d->sorter)
		step(x, &s);
	else
		d->missed += count;
}

/* A part of what was sorted. Return: is there more? */
static bool put_sorted(struct export *x)
{
	struct dat *d = x->priv;
	struct sys_step s;

	for (u32 i = 0; i < STEPS_AT_ONCE; i++) {
		int r = sorter_next(d->sorter, &s);

		if (r < 0)
			export_fail(x, r);
		if (r <= 0)
			return false;
		add_step(x, &s);
	}
	return true;
}

/* What was lost after the last record: an event says so, whose page has the flag. */
static void put_last_loss(struct export *x)
{
	struct dat *d = x->priv;
	struct {
		struct dat_common common;
		u64 count;
	} e = { common(DAT_LOST, 0, 0), d->missed };

	if (d->missed)
		dat_ring_add(x, d->last_cpu, x->last_ns, &e, sizeof(e));
}

static bool end(struct export *x, struct buf *b)
{
	struct dat *d = x->priv;

	if (!d->flushed) {
		if (d->sorter && put_sorted(x))
			return true;
		put_last_loss(x);
		dat_ring_flush(x);
		d->flushed = true;
	}
	return dat_file_end(x, b);
}

const struct export_ops export_trace_dat = {
	.create = create,
	.destroy = destroy,
	.record = record,
	.syscall = syscall_event,
	.lost = lost,
	.end = end,
};

const struct export_ops export_trace_dat_v7 = {
	.create = create_v7,
	.destroy = destroy,
	.record = record,
	.syscall = syscall_event,
	.lost = lost,
	.end = end,
};
