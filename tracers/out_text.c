// SPDX-License-Identifier: Apache-2.0
/*
 * Records in the layout of the kernel's own `function` tracer with its default options.
 *
 * Source: Linux v6.1 kernel/trace/trace.c print_func_help_header_irq(), print_event_info();
 * trace_output.c trace_print_context(), trace_print_lat_fmt(), trace_seq_print_sym(); compared
 * with the `trace` file of 6.1 and 6.12 guests (tests/unit/data). The layout is the same in both.
 *
 * Deviations, all of them where the agent sees less or the terminal must be protected:
 * - need-resched: the agent sees only PREEMPT_NEED_RESCHED of preempt_count. It is set together
 *   with TIF_NEED_RESCHED unless an IPI is still on its way, so it is shown as 'N'; the kernel's 'n'
 *   (TIF only) shows as '.', 'p' (preempt_count only) as 'N'.
 * - a task switch is one line, with what the agent knows of the event sched_switch.
 * - migrate-disable: the agent has one bit; any depth shows as '1'.
 * - in names, which the guest chose, a control character or a byte that is not UTF-8 shows as '?':
 *   the kernel prints them raw.
 */
#include "tracers/out_layout.h"

#include "base/utf8.h"
#include "guest-agent/agent_abi.h"
#include "tracers/fmt.h"
#include "tracers/out_values.h"

#define COMM_WIDTH 16
#define PID_WIDTH  7
#define SECS_WIDTH 5
#define CPU_WIDTH  3

void out_text_flags(u16 ctx, char flags_ret[5])
{
	bool irqs = ctx & AGENT_CTX_IRQS_OFF, bh = ctx & AGENT_CTX_BH_OFF;
	bool hard = ctx & AGENT_CTX_HARDIRQ, soft = ctx & AGENT_CTX_SOFTIRQ;
	unsigned int depth = ctx & AGENT_CTX_PREEMPT;

	if (irqs)
		flags_ret[0] = bh ? 'D' : 'd';
	else
		flags_ret[0] = bh ? 'b' : '.';
	flags_ret[1] = ctx & AGENT_CTX_RESCHED ? 'N' : '.';
	if (ctx & AGENT_CTX_NMI)
		flags_ret[2] = hard ? 'Z' : 'z';
	else if (hard)
		flags_ret[2] = soft ? 'H' : 'h';
	else
		flags_ret[2] = soft ? 's' : '.';
	flags_ret[3] = ".123456789abcdef"[depth];
	flags_ret[4] = ctx & AGENT_CTX_MIGRATE ? '1' : '.';
}

void out_text_head(struct buf *b, const struct output_meta *meta)
{
	/* entries still in the buffer, and all that were ever written to it: trace.c print_event_info() */
	u64 kept = meta->n_records, written = meta->n_records + meta->n_lost;

	buf_adds(b, "# tracer: ");
	out_printable(b, meta->tracer);
	buf_addf(b, "\n#\n# entries-in-buffer/entries-written: %llu/%llu   #P:%u\n#\n",
		 (unsigned long long)kept, (unsigned long long)written, meta->vcpus);
	buf_adds(b, "#                                _-----=> irqs-off/BH-disabled\n"
		    "#                               / _----=> need-resched\n"
		    "#                              | / _---=> hardirq/softirq\n"
		    "#                              || / _--=> preempt-depth\n"
		    "#                              ||| / _-=> migrate-disable\n"
		    "#                              |||| /     delay\n"
		    "#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n"
		    "#              | |         |   |||||     |         |\n");
}

char *fmt_printable(char *p, const char *s, size_t len)
{
	for (size_t i = 0, n; i < len; i += n) {
		const u8 *c = (const u8 *)s + i;

		n = 1;
		if (*c >= 0x20 && *c < 0x7f) {
			*p++ = (char)*c;
			continue;
		}
		n = *c < 0x80 ? 0 : utf8_len(c, len - i);
		if (n && !(c[0] == 0xc2 && c[1] < 0xa0)) { /* not C1 */
			p = fmt_bytes(p, c, n);
			continue;
		}
		*p++ = '?';
		n = n ? n : 1;
	}
	return p;
}

void out_printable(struct buf *b, const char *name)
{
	size_t len = strnlen(name, TEXT_NAME_MAX);
	char *p = buf_reserve(b, len);

	if (!p)
		return;
	p = fmt_printable(p, name, len);
	*p = 0;
	b->len = (size_t)(p - b->data);
}

static char *add_task(char *p, const struct trace_record *r)
{
	static const char idle[TRACE_COMM_LEN + 1] = "<idle>"; /* trace.c __trace_find_cmdline() */
	const char *comm = r->pid ? r->comm : idle;
	size_t len = strnlen(comm, TRACE_COMM_LEN), digits = fmt_digits(r->pid);

	p = fmt_pad(p, ' ', COMM_WIDTH - len);
	p = fmt_printable(p, comm, len);
	*p++ = '-';
	p = fmt_u64_n(p, r->pid, digits);
	return fmt_pad(p, ' ', digits < PID_WIDTH ? PID_WIDTH - digits : 0);
}

static char *add_cpu(char *p, unsigned int cpu)
{
	p = FMT_LIT(p, " [");
	p = fmt_u64_n(p, cpu, MAX(fmt_digits(cpu), (size_t)CPU_WIDTH));
	return FMT_LIT(p, "] ");
}

static char *add_time(char *p, u64 ts_ns)
{
	/* rounded to the nearest microsecond, as ns2usecs() does; no overflow at the top */
	u64 us = ts_ns / 1000 + (ts_ns % 1000 >= 500);
	u64 secs = us / 1000000;
	size_t digits = fmt_digits(secs);

	*p++ = ' ';
	p = fmt_pad(p, ' ', digits < SECS_WIDTH ? SECS_WIDTH - digits : 0);
	p = fmt_u64_n(p, secs, digits);
	*p++ = '.';
	p = fmt_u64_n(p, us % 1000000, 6);
	return FMT_LIT(p, ": ");
}

/* Where a function returns to that a kretprobe hijacked: trace_output.c kretprobed(). */
static bool is_kretprobe_trampoline(const char *name)
{
	return !strcmp(name, "arch_rethook_trampoline") ||
	       !strcmp(name, "__kretprobe_trampoline") || !strcmp(name, "kretprobe_trampoline");
}

/* The name alone: without sym-offset the kernel shows neither offset nor module. */
static char *add_sym(char *p, u64 addr, const struct output_names *names)
{
	struct kernel_sym sym;
	u64 off;

	if (!names->sym(names->arg, addr, &sym, &off))
		return fmt_hex(FMT_LIT(p, "0x"), addr, 8);
	if (!off && is_kretprobe_trampoline(sym.name))
		return FMT_LIT(p, "[unknown/kretprobe'd]");
	return fmt_printable(p, sym.name, strnlen(sym.name, TEXT_NAME_MAX));
}

char *fmt_switch(char *p, const struct trace_record *r)
{
	/* as the event sched_switch begins and ends: trace/events/sched.h */
	p = fmt_u64(FMT_LIT(p, "sched_switch: prev_pid="), r->prev_pid);
	p = FMT_LIT(p, " ==> next_comm=");
	p = fmt_printable(p, r->comm, strnlen(r->comm, TRACE_COMM_LEN));
	return fmt_u64(FMT_LIT(p, " next_pid="), r->pid);
}

static void add_caller(struct buf *b, u64 addr, u64 shown, const struct output_names *names)
{
	char *start = buf_reserve(b, TEXT_NAME_MAX + 32), *p = start;
	struct kernel_sym sym;
	u64 off;

	if (!p)
		return;
	p = FMT_LIT(p, "\n => ");
	if (names->sym(names->arg, addr, &sym, &off))
		p = fmt_printable(p, sym.name, strnlen(sym.name, TEXT_NAME_MAX));
	else
		p = fmt_hex(FMT_LIT(p, "0x"), shown, 8);
	*p = 0;
	b->len += (size_t)(p - start);
}

/* A return address may be the first of another function, behind a call that does not return. */
void out_stack(struct buf *b, u64 ip, const struct trace_stack *s, const struct output_names *names)
{
	buf_adds(b, "<stack trace>");
	add_caller(b, ip, ip, names);
	for (u32 i = 0; i < s->n; i++)
		add_caller(b, trace_stack_addr(s, i) - 1, trace_stack_addr(s, i), names);
}

/* An event of its own in the kernel, with the same context. */
static void add_stack(struct buf *b, const struct trace_record *r, const struct output_names *names)
{
	char *start = buf_reserve(b, 128), *p = start;

	if (!p)
		return;
	p = add_cpu(add_task(p, r), r->cpu);
	out_text_flags(r->ctx, p);
	p = add_time(p + 5, r->ts_ns);
	*p = 0;
	b->len += (size_t)(p - start);
	out_stack(b, r->ip, r->stack, names);
	buf_adds(b, "\n");
}

static void add_record(struct buf *b, const struct trace_record *r,
		       const struct output_names *names, bool args)
{
	char *start = buf_reserve(b, 2 * TEXT_NAME_MAX + ARGS_TEXT_MAX + 128), *p = start;

	if (!p)
		return;
	if (r->type == TRACE_MARKER) /* as what is written to trace_marker, but by no task */
		p = FMT_LIT(p, "          <host>-0      ");
	else
		p = add_task(p, r);
	p = add_cpu(p, r->cpu);
	out_text_flags(r->ctx, p);
	p = add_time(p + 5, r->ts_ns);
	if (r->type == TRACE_MARKER) {
		p = fmt_printable(FMT_LIT(p, "tracing_mark_write: "), r->text,
				  strnlen(r->text, TRACE_MARKER_MAX));
	} else if (r->type == TRACE_SWITCH) {
		p = fmt_switch(p, r);
	} else {
		p = add_sym(p, r->ip, names);
		if (args || r->n_args)
			p = fmt_args(p, r, names);
		p = add_sym(FMT_LIT(p, " <-"), r->parent, names);
	}
	*p++ = '\n';
	*p = 0;
	b->len += (size_t)(p - start);
	if (r->stack)
		add_stack(b, r, names);
}

void out_text_record(struct buf *b, const struct trace_record *r, const struct output_names *names)
{
	add_record(b, r, names, false);
}

void out_text_record_args(struct buf *b, const struct trace_record *r,
			  const struct output_names *names)
{
	add_record(b, r, names, true);
}
