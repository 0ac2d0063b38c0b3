// SPDX-License-Identifier: Apache-2.0
/*
 * Records in the layout of the kernel's own `function_graph` tracer with its default options.
 *
 * A call that is followed at once, on its CPU, by its own return shows as one line. So an entry is
 * held until the next record of its CPU is there, and everything after it too, since lines come in
 * the order of their records; at most HOLD_MAX of them, and not beyond out_layout_flush().
 *
 * Source: Linux v6.1 kernel/trace/trace_functions_graph.c, read for its layout; trace_output.c
 * trace_find_mark(); compared with the `trace` file of 6.1 and 6.12 guests (tests/unit/data). Return
 * values and addresses as of v6.13, arguments as of v6.15. Under a threshold only returns are there,
 * each with its name, as the kernel has it with tracing_thresh.
 *
 * Deviations, besides those of out_text.c for names:
 * - a call that is held in vain is shown as "f() {" and "}", as trace_pipe does for one whose return
 *   is not there yet.
 * - a return's "}" goes with the entry that the CPU showed last at that depth. When it is another
 *   function's, as after a loss or another task, the kernel writes the name behind it; so do we.
 *   The kernel looks at the function alone; here a leaf must have its entry's depth as well.
 * - in the line between two tasks the kernel names the one before as it is called by the time of
 *   printing; here it has the name that it had.
 * - "==========>" and "<==========" are around functions in the kernel's .irqentry.text. On x86
 *   those are assembler stubs since v5.8, none of which can be traced: there are no such lines.
 * - comments for what the kernel has no records of: a call that will never return, and one whose
 *   return is not followed, as the agent was out of frames.
 */
#include "tracers/out_layout.h"

#include "tracers/fmt.h"
#include "tracers/out_values.h"

#include <errno.h>
#include <stdlib.h>

#define HOLD_MAX       1024u /* a power of two */
#define DEPTH_MAX      50u /* FTRACE_RETFUNC_DEPTH */
#define INDENT_MAX     512u
#define PROC_WIDTH     14
#define PROC_COMM      7
#define CPUS_AT_ONCE   64u
#define LINE_MAX_BYTES (2 * INDENT_MAX + 10 * TEXT_NAME_MAX + ARGS_TEXT_MAX + 512)

enum held_state {
	HELD_READY, /* all that its line needs is known */
	HELD_WAITING, /* an entry, whose CPU has had no record since */
	HELD_LEAF, /* an entry with its return */
};

struct held {
	struct trace_record r; /* HELD_LEAF: duration_ns and retval are its return's */
	enum held_state state;
};

struct cpu {
	u64 waiting; /* 1 + index of its HELD_WAITING; 0: none */
	u64 entered[DEPTH_MAX]; /* the function shown as entered at each depth; 0: none */
	bool has_last;
	u32 last_pid;
	char last_comm[TRACE_COMM_LEN + 1];
};

struct out_graph {
	struct out_layout_opts opts;
	size_t cpu_width;
	u32 n_cpus;
	struct cpu **cpu;
	u64 first, next; /* indexes into held, modulo HOLD_MAX */
	struct held held[HOLD_MAX];
};

int out_graph_create(const struct output_meta *meta, struct out_graph **ret, struct err *err)
{
	struct out_graph *o = calloc(1, sizeof(*o));

	if (!o)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a call graph");
	o->cpu_width = fmt_digits(meta->vcpus ? meta->vcpus - 1 : 0);
	*ret = o;
	return 0;
}

void out_graph_destroy(struct out_graph *o)
{
	if (!o)
		return;
	for (u32 i = 0; i < o->n_cpus; i++)
		free(o->cpu[i]);
	free(o->cpu);
	free(o);
}

void out_graph_set(struct out_graph *o, const struct out_layout_opts *opts)
{
	o->opts = *opts;
}

static void add_latency_head(struct buf *b, const struct out_layout_opts *opts)
{
	static const char *const lines[] = { "  _-----=> irqs-off        ",
					     " / _----=> need-resched    ",
					     "| / _---=> hardirq/softirq ",
					     "|| / _--=> preempt-depth   ",
					     "||| /                      " };
	int width = 4 + (opts->abstime ? 16 : 0) + (opts->proc ? 17 : 0);

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
		buf_addf(b, "#%*s%s\n", width, "", lines[i]);
}

/* Columns as v6.1 __print_graph_headers_flags() has them. */
void out_graph_head(const struct out_graph *o, struct buf *b, const struct output_meta *meta)
{
	const struct out_layout_opts *opts = &o->opts;

	buf_addf(b, "# tracer: %s\n#\n", meta->tracer);
	if (opts->latency)
		add_latency_head(b, opts);
	buf_addf(b, "#%s CPU%s%s  DURATION                  FUNCTION CALLS\n",
		 opts->abstime ? "     TIME       " : "", opts->proc ? "  TASK/PID       " : "",
		 opts->latency ? "||||   " : "");
	buf_addf(b, "#%s |  %s%s   |   |                     |   |   |   |\n",
		 opts->abstime ? "      |         " : "", opts->proc ? "   |    |        " : "",
		 opts->latency ? "||||   " : "");
}

/* NULL: no memory */
static struct cpu *cpu_of(struct out_graph *o, u32 cpu)
{
	struct cpu **more;
	u32 n;

	if (cpu >= o->n_cpus) {
		n = cpu + CPUS_AT_ONCE;
		more = reallocarray(o->cpu, n, sizeof(struct cpu *));
		if (!more)
			return NULL;
		memset(more + o->n_cpus, 0, (n - o->n_cpus) * sizeof(struct cpu *));
		o->cpu = more;
		o->n_cpus = n;
	}
	if (!o->cpu[cpu])
		o->cpu[cpu] = calloc(1, sizeof(struct cpu));
	return o->cpu[cpu];
}

static char *add_cpu(char *p, const struct out_graph *o, u32 cpu)
{
	size_t digits = fmt_digits(cpu);

	*p++ = ' ';
	p = fmt_pad(p, ' ', digits < o->cpu_width ? o->cpu_width - digits : 0);
	return FMT_LIT(fmt_u64_n(p, cpu, digits), ") ");
}

/* Name and pid, in the middle of their column. */
static char *add_proc(char *p, const char *comm, u32 pid)
{
	size_t len = strnlen(comm, PROC_COMM), width = len + 1 + fmt_digits(pid);
	size_t pad = width < PROC_WIDTH ? PROC_WIDTH - width : 0;

	p = fmt_pad(p, ' ', pad / 2);
	p = fmt_printable(p, comm, len);
	*p++ = '-';
	p = fmt_u64(p, pid);
	return fmt_pad(p, ' ', pad - pad / 2);
}

#define RULE " ------------------------------------------\n"

/* The lines between two tasks of a CPU. */
static char *add_switch(char *p, const struct out_graph *o, struct cpu *c,
			const struct trace_record *r)
{
	bool same = c->has_last && c->last_pid == r->pid;

	if (c->has_last && !same) {
		p = add_cpu(FMT_LIT(p, RULE), o, r->cpu);
		p = FMT_LIT(add_proc(p, c->last_comm, c->last_pid), " => ");
		p = FMT_LIT(add_proc(p, r->comm, r->pid), "\n" RULE "\n");
	}
	c->has_last = true;
	c->last_pid = r->pid;
	memcpy(c->last_comm, r->comm, sizeof(c->last_comm));
	return p;
}

static char mark_of(u64 ns)
{
	static const struct {
		u64 above;
		char mark;
	} marks[] = {
		{ 1000000000, '$' }, { 100000000, '@' }, { 10000000, '*' },
		{ 1000000, '#' },    { 100000, '!' },    { 10000, '+' },
	};

	for (size_t i = 0; i < ARRAY_SIZE(marks); i++) {
		if (ns > marks[i].above)
			return marks[i].mark;
	}
	return ' ';
}

/* us with as many decimals as seven digits allow, three at most */
static char *add_duration(char *p, u64 ns)
{
	size_t digits = fmt_digits(ns / 1000), decimals = digits < 7 ? MIN(7 - digits, 3ul) : 0;
	size_t width = digits + (decimals ? decimals + 1 : 0);
	u64 fraction = ns % 1000;

	for (size_t i = decimals; i < 3; i++)
		fraction /= 10;
	*p++ = mark_of(ns);
	*p++ = ' ';
	p = fmt_u64_n(p, ns / 1000, digits);
	if (decimals) {
		*p++ = '.';
		p = fmt_u64_n(p, fraction, decimals);
	}
	p = FMT_LIT(p, " us ");
	p = fmt_pad(p, ' ', width < 8 ? 8 - width : 0);
	return FMT_LIT(p, "|  ");
}

static char *add_indent(char *p, const struct trace_record *r)
{
	return fmt_pad(p, ' ', 2 * MIN((size_t)r->depth, (size_t)INDENT_MAX));
}

/* As %ps has it. */
static char *add_sym(char *p, u64 addr, const struct output_names *names)
{
	struct kernel_sym sym;
	u64 off;

	if (!names->sym(names->arg, addr, &sym, &off))
		return fmt_hex(FMT_LIT(p, "0x"), addr, 1);
	p = fmt_printable(p, sym.name, strnlen(sym.name, TEXT_NAME_MAX));
	if (!sym.module)
		return p;
	p = fmt_printable(FMT_LIT(p, " ["), sym.module, strnlen(sym.module, TEXT_NAME_MAX));
	*p++ = ']';
	return p;
}

/* Seconds and microseconds, rounded down. */
static char *add_abstime(char *p, u64 ts_ns)
{
	u64 us = ts_ns / 1000;
	size_t digits = fmt_digits(us / 1000000);

	p = fmt_pad(p, ' ', digits < 5 ? 5 - digits : 0);
	p = fmt_u64_n(p, us / 1000000, digits);
	*p++ = '.';
	return FMT_LIT(fmt_u64_n(p, us % 1000000, 6), " |  ");
}

/* What comes before the duration: v6.1 print_graph_prologue(). */
static char *add_prologue(char *p, const struct out_graph *o, const struct trace_record *r)
{
	if (o->opts.abstime)
		p = add_abstime(p, r->ts_ns);
	p = add_cpu(p, o, r->cpu);
	if (o->opts.proc)
		p = FMT_LIT(add_proc(p, r->comm, r->pid), " | ");
	if (!o->opts.latency)
		return p;
	*p++ = ' ';
	out_text_flags(r->ctx, p);
	return FMT_LIT(p + 5, " | ");
}

/* " <-name+0xoff/0xsize [module]" */
static char *add_retaddr(char *p, u64 addr, const struct output_names *names)
{
	struct kernel_sym sym;
	u64 off;

	p = FMT_LIT(p, " <-");
	if (!names->sym(names->arg, addr, &sym, &off))
		return fmt_hex(FMT_LIT(p, "0x"), addr, 1);
	p = fmt_printable(p, sym.name, strnlen(sym.name, TEXT_NAME_MAX));
	p = fmt_hex(FMT_LIT(p, "+0x"), off, 1);
	p = fmt_hex(FMT_LIT(p, "/0x"), sym.size_bytes, 1);
	if (!sym.module)
		return p;
	p = fmt_printable(FMT_LIT(p, " ["), sym.module, strnlen(sym.module, TEXT_NAME_MAX));
	return FMT_LIT(p, "]");
}

static void set_entered(struct cpu *c, const struct trace_record *r, u64 ip)
{
	if (r->depth < DEPTH_MAX)
		c->entered[r->depth] = ip;
}

static char *add_entry(char *p, const struct out_graph *o, struct cpu *c, const struct held *h,
		       const struct output_names *names)
{
	const struct trace_record *r = &h->r;
	bool leaf = h->state == HELD_LEAF, comment = o->opts.retaddr || (leaf && r->has_retval);

	p = leaf ? add_duration(p, r->duration_ns) : FMT_LIT(p, "              |  ");
	p = add_sym(add_indent(p, r), r->ip, names);
	p = fmt_args(p, r, names);
	set_entered(c, r, leaf ? 0 : r->ip);
	p = leaf ? FMT_LIT(p, ";") : FMT_LIT(p, " {");
	if (comment)
		p = FMT_LIT(p, " /*");
	if (o->opts.retaddr)
		p = add_retaddr(p, r->parent, names);
	if (leaf && r->has_retval)
		p = fmt_retval(FMT_LIT(p, " ret="), r, names);
	if (comment)
		p = FMT_LIT(p, " */");
	return FMT_LIT(p, "\n");
}

static char *add_return(char *p, const struct out_graph *o, struct cpu *c,
			const struct trace_record *r, const struct output_names *names)
{
	bool known = r->depth >= DEPTH_MAX || c->entered[r->depth] == r->ip;

	p = add_indent(add_duration(p, r->duration_ns), r);
	*p++ = '}';
	if (!known || o->opts.tail || r->has_retval) {
		p = add_sym(FMT_LIT(p, " /* "), r->ip, names);
		if (r->has_retval)
			p = fmt_retval(FMT_LIT(p, " ret="), r, names);
		p = FMT_LIT(p, " */");
	}
	*p++ = '\n';
	set_entered(c, r, 0);
	return p;
}

static char *add_comment(char *p, const struct trace_record *r, const struct output_names *names)
{
	p = add_indent(FMT_LIT(p, "              |  "), r);
	if (r->type == TRACE_MARKER) {
		p = fmt_printable(FMT_LIT(p, "/* "), r->text, strnlen(r->text, TRACE_MARKER_MAX));
		return FMT_LIT(p, " */\n");
	}
	if (r->type == TRACE_SWITCH)
		return FMT_LIT(fmt_switch(FMT_LIT(p, "/* "), r), " */\n");
	p = add_sym(FMT_LIT(p, "/* "), r->ip, names);
	if (r->type != TRACE_GRAPH_NEVER)
		return FMT_LIT(p, ": return not followed */\n");
	/* its task is not one that runs here: it would make a switch of tasks that there was not */
	p = FMT_LIT(p, " never returned: ");
	p = fmt_printable(p, r->comm, strnlen(r->comm, TRACE_COMM_LEN));
	*p++ = '-';
	return FMT_LIT(fmt_u64(p, r->pid), " */\n");
}

/* Another event, which the kernel has as a comment: v6.1 print_graph_comment() */
static void print_stack(struct out_graph *o, struct buf *b, const struct trace_record *r,
			const struct output_names *names)
{
	struct trace_record inside = *r;
	char *start = buf_reserve(b, LINE_MAX_BYTES), *p = start;

	if (!p)
		return;
	inside.depth = (u16)(r->depth + (r->type == TRACE_GRAPH_ENTRY));
	p = add_prologue(p, o, r);
	p = FMT_LIT(add_indent(FMT_LIT(p, "              |  "), &inside), "/* ");
	*p = 0;
	b->len += (size_t)(p - start);
	out_stack(b, r->ip, r->stack, names);
	buf_adds(b, " */\n");
}

static void print(struct out_graph *o, struct buf *b, const struct held *h,
		  const struct output_names *names)
{
	const struct trace_record *r = &h->r;
	char *start = buf_reserve(b, LINE_MAX_BYTES), *p = start;
	struct cpu *c = cpu_of(o, r->cpu);

	if (!p || !c) {
		b->failed = true;
		return;
	}
	if (r->type != TRACE_GRAPH_NEVER && r->type != TRACE_MARKER)
		p = add_switch(p, o, c, r);
	p = add_prologue(p, o, r);
	if (r->type == TRACE_GRAPH_ENTRY)
		p = add_entry(p, o, c, h, names);
	else if (r->type == TRACE_GRAPH_RETURN)
		p = add_return(p, o, c, r, names);
	else
		p = add_comment(p, r, names);
	*p = 0;
	b->len += (size_t)(p - start);
	if (r->stack)
		print_stack(o, b, r, names);
}

static struct held *held_at(struct out_graph *o, u64 index)
{
	return &o->held[index % HOLD_MAX];
}

static void print_first(struct out_graph *o, struct buf *b, const struct output_names *names)
{
	struct held *h = held_at(o, o->first++);

	if (h->state == HELD_WAITING) {
		h->state = HELD_READY;
		o->cpu[h->r.cpu]->waiting = 0;
	}
	print(o, b, h, names);
}

/* What @r says of the entry that its CPU had before it. Return: true when it is that one's return. */
static bool settle(struct out_graph *o, struct cpu *c, const struct trace_record *r)
{
	struct held *e;

	if (!c->waiting)
		return false;
	e = held_at(o, c->waiting - 1);
	c->waiting = 0;
	e->state = HELD_READY;
	if (r->type != TRACE_GRAPH_RETURN || r->pid != e->r.pid || r->ip != e->r.ip ||
	    r->depth != e->r.depth)
		return false;
	e->state = HELD_LEAF;
	e->r.duration_ns = r->duration_ns;
	e->r.has_retval = r->has_retval;
	e->r.retval = r->retval;
	return true;
}

void out_graph_record(struct out_graph *o, struct buf *b, const struct trace_record *r,
		      const struct output_names *names)
{
	struct cpu *c = cpu_of(o, r->cpu);
	bool is_end;

	if (!c) {
		b->failed = true;
		return;
	}
	is_end = r->type != TRACE_GRAPH_NEVER && r->type != TRACE_MARKER && settle(o, c, r);
	if (!is_end) {
		if (o->next - o->first == HOLD_MAX)
			print_first(o, b, names);
		*held_at(o, o->next) = (struct held){ .r = *r };
		if (r->type == TRACE_GRAPH_ENTRY) {
			held_at(o, o->next)->state = HELD_WAITING;
			c->waiting = o->next + 1;
		}
		o->next++;
	}
	while (o->first != o->next && held_at(o, o->first)->state != HELD_WAITING)
		print_first(o, b, names);
}

void out_graph_forget(struct out_graph *o)
{
	for (u64 i = o->first; i != o->next; i++) {
		struct trace_record *r = &held_at(o, i)->r;

		r->stack = NULL;
		if (r->type == TRACE_MARKER)
			r->text = "(gone)";
	}
}

void out_graph_flush(struct out_graph *o, struct buf *b, const struct output_names *names)
{
	while (o->first != o->next)
		print_first(o, b, names);
}

bool out_graph_holds(const struct out_graph *o)
{
	return o->first != o->next;
}
