// SPDX-License-Identifier: Apache-2.0
/* Calls of the fake engine: of functions, and openat() of a path, of FAKE_CALL_PARTS records each. */
#include "fake_trace.h"

#include "tracers/sys_parts.h"

#include <stdio.h>

#define HANDLER 0xffffffff81800000ull

void fake_graph_part(const struct trace *t, u64 nth, struct trace_record *r)
{
	static const struct {
		u8 type, function, depth;
	} group[] = {
		{ TRACE_GRAPH_ENTRY, 0, 0 },  { TRACE_GRAPH_ENTRY, 1, 1 },
		{ TRACE_GRAPH_RETURN, 1, 1 }, { TRACE_GRAPH_RETURN, 0, 0 },
		{ TRACE_GRAPH_ENTRY, 2, 0 },  { TRACE_GRAPH_NEVER, 2, 0 },
	};
	u64 n = nth / ARRAY_SIZE(group), i = nth % ARRAY_SIZE(group);
	const struct kernel *k = &t->guest->kernel;

	if (!nth && fake_is(t->guest, "fake-frames"))
		return; /* it is as one of function */
	r->type = group[i].type;
	r->depth = group[i].depth;
	r->ip = k->sites[t->armed[group[i].function % t->info.n_functions]].ip;
	r->cpu = (u16)(n % 2);
	r->pid = 100 + (u32)(n % 3);
	snprintf(r->comm, sizeof(r->comm), "sh");
	if (r->type != TRACE_GRAPH_RETURN)
		return;
	r->has_retval = t->retval;
	r->retval = t->retval ? -2ull : 0;
	r->parent = 0;
	r->duration_ns = r->depth ? 1000 : 3000;
}

struct picked {
	u64 n; /* of parts that come before it */
	struct trace_record *r;
};

static void pick(void *arg, const struct trace_record *r)
{
	struct picked *p = arg;

	if (p->n-- == 0)
		*p->r = *r;
}

void fake_call_part(u64 nth, struct trace_record *r)
{
	static const char path[] = "/etc/passwd";
	static const struct syscall_entry entry = {
		.name = "openat", .kernel_name = "openat", .addr = HANDLER, .nr = 257, .n_args = 4
	};
	u64 seq = r->seq, call = nth / FAKE_CALL_PARTS;
	struct syscall_event e = { .entry = &entry,
				   .ts_ns = r->ts_ns,
				   .duration_ns = 1000,
				   .args = { (u64)-100, 0x7f0000001000, call, 0 },
				   .ret = (s64)call,
				   .nr = 257,
				   .pid = 100,
				   .tgid = 100,
				   .comm = "sh",
				   .n_captures = 1,
				   .captures = { { .arg = 1,
						   .what = CAPTURE_STRING,
						   .len = sizeof(path) - 1,
						   .full_len = sizeof(path) - 1 } },
				   .data = (const u8 *)path,
				   .data_len = sizeof(path) - 1 };
	struct picked p = { nth % FAKE_CALL_PARTS, r };

	sys_parts_write(&e, e.ts_ns + 500, pick, &p);
	r->seq = seq;
}

bool fake_call_sym(u64 addr, struct kernel_sym *ret)
{
	if (addr != HANDLER)
		return false;
	*ret = (struct kernel_sym){
		.name = "__x64_sys_openat", .addr = HANDLER, .size_bytes = 64, .type = 't'
	};
	return true;
}
