// SPDX-License-Identifier: Apache-2.0
/* Initcalls as initcall_debug prints them. See out_initcalls.h. */
#include "tracers/out_initcalls.h"

#include "tracers/out_layout.h"

#include <stdlib.h>
#include <string.h>

/* An initcall may load a module, whose own runs in the loader's task; async ones run in their own. */
#define MAX_OPEN 64u

struct open_call {
	u32 pid;
	u64 fn;
};

struct out_initcalls {
	struct open_call open[MAX_OPEN]; /* innermost last */
	u32 n_open;
	u64 n;
};

struct out_initcalls *out_initcalls_create(void)
{
	return calloc(1, sizeof(struct out_initcalls));
}

void out_initcalls_destroy(struct out_initcalls *o)
{
	free(o);
}

u64 out_initcalls_count(const struct out_initcalls *o)
{
	return o->n;
}

static void add_time(struct buf *b, u64 ns)
{
	buf_addf(b, "[%5llu.%06llu] ", (unsigned long long)(ns / NSEC_PER_SEC),
		 (unsigned long long)(ns % NSEC_PER_SEC / 1000));
}

/* printk's %pS */
static void add_symbol(struct buf *b, u64 addr, const struct output_names *names)
{
	struct kernel_sym sym;
	u64 off;

	if (!names->sym(names->arg, addr, &sym, &off)) {
		buf_addf(b, "0x%llx", (unsigned long long)addr);
		return;
	}
	out_printable(b, sym.name);
	buf_addf(b, "+0x%llx/0x%llx", (unsigned long long)off, (unsigned long long)sym.size_bytes);
	if (!sym.module)
		return;
	buf_adds(b, " [");
	out_printable(b, sym.module);
	buf_adds(b, "]");
}

static bool is_initcall(const struct trace_record *r, const struct output_names *names)
{
	struct kernel_sym sym;
	u64 off;

	return (r->type == TRACE_GRAPH_ENTRY || r->type == TRACE_GRAPH_RETURN ||
		r->type == TRACE_GRAPH_NEVER) &&
	       names->sym(names->arg, r->ip, &sym, &off) &&
	       strcmp(sym.name, "do_one_initcall") == 0;
}

static void begin(struct out_initcalls *o, struct buf *b, const struct trace_record *r,
		  const struct output_names *names)
{
	if (!r->n_args)
		return;
	o->n++;
	add_time(b, r->ts_ns);
	buf_addf(b, "calling  ");
	add_symbol(b, r->args[0], names);
	buf_addf(b, " @ %u\n", r->pid);
	if (o->n_open == MAX_OPEN) { /* their returns were lost */
		memmove(o->open, o->open + 1, sizeof(o->open) - sizeof(o->open[0]));
		o->n_open--;
	}
	o->open[o->n_open++] = (struct open_call){ r->pid, r->args[0] };
}

/* The innermost of the task; false when its beginning was lost. */
static bool take(struct out_initcalls *o, u32 pid, u64 *fn_ret)
{
	u32 i = o->n_open;

	while (i > 0 && o->open[i - 1].pid != pid)
		i--;
	if (!i)
		return false;
	*fn_ret = o->open[i - 1].fn;
	memmove(o->open + i - 1, o->open + i, (o->n_open - i) * sizeof(o->open[0]));
	o->n_open--;
	return true;
}

void out_initcalls_record(struct out_initcalls *o, struct buf *b, const struct trace_record *r,
			  const struct output_names *names)
{
	u64 fn;

	if (!is_initcall(r, names))
		return;
	if (r->type == TRACE_GRAPH_ENTRY) {
		begin(o, b, r, names);
		return;
	}
	if (!take(o, r->pid, &fn) || r->type == TRACE_GRAPH_NEVER)
		return;
	add_time(b, r->ts_ns);
	buf_addf(b, "initcall ");
	add_symbol(b, fn, names);
	if (r->has_retval)
		buf_addf(b, " returned %d", (int)r->retval);
	buf_addf(b, " after %llu usecs\n", (unsigned long long)(r->duration_ns / 1000));
}
