// SPDX-License-Identifier: Apache-2.0
/*
 * The Trace Event format, JSON object form. A call is one complete ("X") event, written when it is over,
 * so nothing has to pair beginnings with ends; one that is not over has its time so far and says why
 * ("end" in its args). Losses are global instants, and totals in otherData. Task switches are a process
 * "CPUs", a thread each.
 *
 * Times are microseconds of the guest's trace clock, with three decimals: JSON's readers have doubles,
 * which are exact to the ns for 104 days of a guest's life.
 * Source: "Trace Event Format", Google, 2016.
 */
#include "tracers/fmt.h"
#include "tracers/formats/priv.h"
#include "tracers/formats/spans.h"
#include "tracers/out_values.h"

#include <errno.h>
#include <stdlib.h>

#define CPUS_PID    4194304u /* PID_MAX_LIMIT: no task's */
#define EVENT_BYTES (6 * (3 * 1024 + ARGS_TEXT_MAX) + 512)

struct running {
	u64 since_ns;
	u32 pid;
	char comm[TRACE_COMM_LEN + 1];
	bool known, named;
};

struct chrome {
	struct running *cpu;
	u32 n_cpus;
	bool any; /* an event: the next needs a comma */
	bool in_end;
	u32 next_task; /* of the end */
};

static int create(struct export *x, struct err *err)
{
	x->priv = calloc(1, sizeof(struct chrome));
	return x->priv ? 0 : err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for an export");
}

static void destroy(struct export *x)
{
	struct chrome *c = x->priv;

	if (c)
		free(c->cpu);
	free(c);
}

static void add_field(struct buf *b, const char *key, const char *value, size_t max)
{
	buf_addf(b, "\"%s\":", key);
	out_json_string(b, value, strnlen(value, max));
}

static void head(struct export *x, struct buf *b)
{
	const struct output_meta *m = &x->meta;
	char time[40];

	buf_adds(b, "{\"displayTimeUnit\":\"ns\",\"otherData\":{");
	add_field(b, "producer", "hvftrace " HVF_VERSION, 64);
	buf_adds(b, ",");
	add_field(b, "guest", m->guest, sizeof(m->guest));
	buf_adds(b, ",");
	add_field(b, "kernel", m->release, sizeof(m->release));
	buf_adds(b, ",");
	add_field(b, "tracer", m->tracer, sizeof(m->tracer));
	buf_addf(b,
		 ",\"clock\":\"the guest's trace clock\",\"started\":\"%s\",\"clock_zero\":\"%s\","
		 "\"vcpus\":%u},\"traceEvents\":[",
		 export_time(m->started_ns, time), export_time(m->boot_ns, (char[40]){ 0 }),
		 m->vcpus);
}

static char *start(struct chrome *c, struct buf *b)
{
	char *p = buf_reserve(b, EVENT_BYTES);

	if (!p)
		return NULL;
	if (c->any)
		*p++ = ',';
	c->any = true;
	return FMT_LIT(p, "\n{\"ph\":\"");
}

static void finish(struct buf *b, char *p)
{
	*p++ = '}';
	*p = 0;
	b->len = (size_t)(p - b->data);
}

static char *add_us(char *p, u64 ns)
{
	p = fmt_u64(p, ns / 1000);
	*p++ = '.';
	return fmt_u64_n(p, ns % 1000, 3);
}

static char *add_ids(char *p, u32 pid, u32 tid)
{
	p = fmt_u64(FMT_LIT(p, ",\"pid\":"), pid);
	return fmt_u64(FMT_LIT(p, ",\"tid\":"), tid);
}

/* A process is a thread group; whose tgid is not known is one of its own. Idle tasks are pid 0's. */
static char *add_task(char *p, const struct task *t)
{
	if (!t->pid)
		return add_ids(p, 0, (u32)t->key);
	return add_ids(p, t->tgid ? t->tgid : t->pid, t->pid);
}

static void name_task(struct chrome *c, struct buf *b, const struct task *t)
{
	char *p = start(c, b);

	if (!p)
		return;
	p = add_task(FMT_LIT(p, "M\",\"name\":\"thread_name\""), t);
	p = FMT_LIT(p, ",\"args\":{\"name\":\"");
	p = fmt_json_escaped(p, t->comm, strnlen(t->comm, TRACE_COMM_LEN));
	finish(b, FMT_LIT(p, "\"}"));
	if (t->pid && t->tgid && t->tgid != t->pid)
		return;
	p = start(c, b);
	if (!p)
		return;
	p = add_task(FMT_LIT(p, "M\",\"name\":\"process_name\""), t);
	p = FMT_LIT(p, ",\"args\":{\"name\":\"");
	p = t->pid ? fmt_json_escaped(p, t->comm, strnlen(t->comm, TRACE_COMM_LEN))
		   : FMT_LIT(p, "idle");
	finish(b, FMT_LIT(p, "\"}"));
}

static char *add_name(char *p, const struct exp_sym *sym)
{
	p = FMT_LIT(p, ",\"name\":\"");
	p = fmt_bytes(p, sym->json, sym->json_len);
	return FMT_LIT(p, "\"");
}

static char *add_text(char *p, const char *key, const char *text, size_t len)
{
	*p++ = '"';
	p = fmt_bytes(p, key, strlen(key));
	p = FMT_LIT(p, "\":\"");
	p = fmt_json_escaped(p, text, len);
	return FMT_LIT(p, "\",");
}

static void begin_call(struct export *x, struct buf *b, const struct span *s)
{
	/* told when it is over */
	(void)x;
	(void)b;
	(void)s;
}

static void end_call(struct export *x, struct buf *b, const struct span *s)
{
	static const char *const ends[] = {
		[SPAN_RETURN_LOST] = "return lost",
		[SPAN_NEVER] = "task ended inside",
		[SPAN_INSIDE] = "still inside",
	};
	bool returned = s->how == SPAN_RETURNED;
	u64 ns = returned ? s->r->duration_ns : s->ts_ns - s->call->ts_ns;
	const struct exp_sym *sym = syms_at(x->syms, s->call->sym);
	char *p = start(x->priv, b), ret[RETVAL_TEXT_MAX];

	if (!p)
		return;
	p = add_us(FMT_LIT(p, "X\",\"ts\":"),
		   returned ? s->r->ts_ns - MIN(ns, s->r->ts_ns) : s->call->ts_ns);
	p = add_us(FMT_LIT(p, ",\"dur\":"), ns);
	p = add_name(add_task(p, s->task), sym);
	p = FMT_LIT(p, ",\"args\":{");
	if (sym->module)
		p = add_text(p, "module", sym->module, strlen(sym->module));
	if (s->call->args)
		p = add_text(p, "args", s->call->args, strlen(s->call->args));
	if (returned && s->r->has_retval)
		p = add_text(p, "ret", ret, (size_t)(fmt_retval(ret, s->r, x->names) - ret));
	if (!returned)
		p = add_text(p, "end", ends[s->how], strlen(ends[s->how]));
	if (s->entry_lost)
		p = add_text(p, "entry", "lost", 4);
	if (s->r)
		p = fmt_u64(FMT_LIT(p, "\"cpu\":"), s->r->cpu);
	else
		p--; /* the comma after "end" */
	finish(b, FMT_LIT(p, "}"));
}

static const struct span_ops span_ops = { begin_call, end_call };

static void instant(struct export *x, struct buf *b, const struct trace_record *r,
		    const struct task *t)
{
	u32 ip = export_sym(x, r->ip), caller = export_sym(x, r->parent);
	const struct exp_sym *parent = syms_at(x->syms, caller);
	char *p = start(x->priv, b), args[ARGS_TEXT_MAX];

	if (!p)
		return;
	p = add_us(FMT_LIT(p, "i\",\"s\":\"t\",\"ts\":"), r->ts_ns);
	p = add_name(add_task(p, t), syms_at(x->syms, ip));
	p = FMT_LIT(p, ",\"args\":{");
	p = add_text(p, "parent", parent->name, parent->name_len);
	if (r->n_args)
		p = add_text(p, "args", args, (size_t)(fmt_args(args, r, x->names) - args));
	finish(b, FMT_LIT(fmt_u64(FMT_LIT(p, "\"cpu\":"), r->cpu), "}"));
}

static struct running *cpu_of(struct export *x, u32 cpu)
{
	struct chrome *c = x->priv;
	struct running *more;

	if (cpu < c->n_cpus)
		return &c->cpu[cpu];
	more = reallocarray(c->cpu, cpu + 1, sizeof(*more));
	if (!more) {
		export_fail(x, -ENOMEM);
		return NULL;
	}
	memset(more + c->n_cpus, 0, (cpu + 1 - c->n_cpus) * sizeof(*more));
	c->cpu = more;
	c->n_cpus = cpu + 1;
	return &c->cpu[cpu];
}

/* What @cpu ran until @now_ns. Time in its idle task is left empty. */
static void add_run(struct export *x, struct buf *b, u32 cpu, u64 now_ns)
{
	struct chrome *c = x->priv;
	struct running *run = &c->cpu[cpu];
	char *p;

	if (!run->named) {
		run->named = true;
		p = start(c, b);
		if (!p)
			return;
		p = add_ids(FMT_LIT(p, "M\",\"name\":\"thread_name\""), CPUS_PID, cpu);
		p = fmt_u64(FMT_LIT(p, ",\"args\":{\"name\":\"CPU "), cpu);
		finish(b, FMT_LIT(p, "\"}"));
		p = start(c, b);
		if (!p)
			return;
		p = add_ids(FMT_LIT(p, "M\",\"name\":\"process_name\""), CPUS_PID, cpu);
		finish(b, FMT_LIT(p, ",\"args\":{\"name\":\"CPUs\"}"));
	}
	if (!run->known || !run->pid)
		return;
	p = start(c, b);
	if (!p)
		return;
	p = add_us(FMT_LIT(p, "X\",\"ts\":"), run->since_ns);
	p = add_us(FMT_LIT(p, ",\"dur\":"), now_ns - MIN(now_ns, run->since_ns));
	p = add_ids(p, CPUS_PID, cpu);
	p = FMT_LIT(p, ",\"name\":\"");
	p = fmt_json_escaped(p, run->comm, strnlen(run->comm, TRACE_COMM_LEN));
	p = fmt_u64(FMT_LIT(p, "\",\"args\":{\"pid\":"), run->pid);
	finish(b, FMT_LIT(p, "}"));
}

static void switched(struct export *x, struct buf *b, const struct trace_record *r)
{
	struct running *run = cpu_of(x, r->cpu);

	if (!run)
		return;
	if (run->known && run->pid != r->prev_pid)
		run->known = false; /* a switch was lost */
	add_run(x, b, r->cpu, r->ts_ns);
	run = cpu_of(x, r->cpu);
	run->known = true;
	run->since_ns = r->ts_ns;
	run->pid = r->pid;
	memcpy(run->comm, r->comm, sizeof(run->comm));
}

static void record(struct export *x, struct buf *b, const struct trace_record *r)
{
	struct task *t;
	unsigned news;

	if (r->type == TRACE_SWITCH)
		switched(x, b, r);
	if (r->type > TRACE_GRAPH_NEVER)
		return;
	t = export_task(x, r, &news);
	if (!t)
		return;
	if (news)
		name_task(x->priv, b, t);
	if (r->type == TRACE_FUNCTION)
		instant(x, b, r, t);
	else
		spans_add(x, b, t, r, &span_ops);
}

static char *add_call_args(char *p, const struct syscall_event *e)
{
	p = FMT_LIT(p, ",\"args\":{\"args\":[");
	for (u32 i = 0; i < e->n_args; i++) {
		p = fmt_hex(FMT_LIT(p, "\"0x"), e->args[i], 1);
		p = FMT_LIT(p, "\",");
	}
	p -= e->n_args > 0;
	p = FMT_LIT(p, "],");
	if (e->nr >= 0) {
		p = fmt_u64(FMT_LIT(p, "\"nr\":"), (u64)e->nr);
		*p++ = ',';
	}
	if (e->state != SYSCALL_NEVER && e->state != SYSCALL_UNFINISHED) {
		p = FMT_LIT(p, "\"ret\":\"");
		if (e->ret < 0)
			*p++ = '-';
		p = fmt_u64(p, e->ret < 0 ? 0 - (u64)e->ret : (u64)e->ret);
		p = FMT_LIT(p, "\",");
	} else {
		p = FMT_LIT(p, "\"end\":\"not seen\",");
	}
	return FMT_LIT(fmt_u64(FMT_LIT(p, "\"cpu\":"), e->cpu), "}");
}

static void syscall_event(struct export *x, struct buf *b, const struct syscall_event *e)
{
	struct trace_record who = { .pid = e->pid, .tgid = e->tgid, .cpu = e->cpu };
	u32 sym = export_call_sym(x, e);
	unsigned news;
	struct task *t;
	char *p;

	memcpy(who.comm, e->comm, sizeof(who.comm));
	t = export_task(x, &who, &news);
	if (!t)
		return;
	if (news)
		name_task(x->priv, b, t);
	p = start(x->priv, b);
	if (!p)
		return;
	p = add_us(FMT_LIT(p, "X\",\"cat\":\"syscall\",\"ts\":"), e->ts_ns);
	p = add_us(FMT_LIT(p, ",\"dur\":"), e->duration_ns);
	p = add_name(add_task(p, t), syms_at(x->syms, sym));
	finish(b, add_call_args(p, e));
}

static void lost(struct export *x, struct buf *b, u64 count)
{
	char *p = start(x->priv, b);

	if (!p)
		return;
	p = add_us(FMT_LIT(p, "i\",\"s\":\"g\",\"cat\":\"lost\",\"ts\":"), x->last_ns);
	p = fmt_u64(FMT_LIT(add_ids(p, 0, 0), ",\"name\":\"lost "), count);
	p = fmt_u64(FMT_LIT(p, " events\",\"args\":{\"count\":"), count);
	finish(b, FMT_LIT(p, "}"));
}

static bool end(struct export *x, struct buf *b)
{
	struct chrome *c = x->priv;
	u32 n = tasks_count(x->tasks);

	for (u32 cpu = 0; cpu < c->n_cpus && !c->in_end; cpu++)
		add_run(x, b, cpu, x->last_ns);
	c->in_end = true;
	for (size_t begun = b->len; c->next_task < n && b->len - begun < 65536; c->next_task++)
		spans_finish(x, b, tasks_at(x->tasks, c->next_task), x->last_ns, &span_ops);
	if (c->next_task < n)
		return true;
	buf_addf(b,
		 "\n],\"hvftrace\":{\"records\":%llu,\"lost\":%llu,\"left_out\":%llu,"
		 "\"clock_zero\":\"%s\",\"restored\":%s}}\n",
		 (unsigned long long)x->n_records, (unsigned long long)x->n_lost,
		 (unsigned long long)x->n_left_out, export_time(export_boot_ns(x), (char[40]){ 0 }),
		 x->meta.restored ? "true" : "false");
	return false;
}

const struct export_ops export_chrome = {
	.create = create,
	.destroy = destroy,
	.head = head,
	.record = record,
	.syscall = syscall_event,
	.lost = lost,
	.end = end,
};
