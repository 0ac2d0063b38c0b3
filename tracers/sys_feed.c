// SPDX-License-Identifier: Apache-2.0
/* Records into system calls. See sys_feed.h. */
#include "tracers/sys_feed.h"

#include "tracers/ring.h"
#include "tracers/sys_parts.h"
#include "tracers/sys_user.h"
#include "tracers/syscalls/assemble.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct sys_feed {
	struct sys_feed_opts o;
	struct sys_program programs[AGENT_MAX_CAPTURES];
	struct assemble *assemble;
	u64 now_ns; /* of the record that is being taken */
	struct sys_feed_counts counts;
};

static void take_event(void *arg, const struct syscall_event *e)
{
	struct sys_feed *f = arg;
	struct syscall_event told;

	if (!syscall_filter_match(f->o.filter, e)) {
		f->counts.filtered++;
		return;
	}
	f->counts.calls++;
	told = *e;
	told.string_max = f->o.string_max;
	sys_parts_write(&told, f->now_ns, f->o.put, f->o.arg);
}

int sys_feed_create(const struct sys_feed_opts *o, struct sys_feed **ret, struct err *err)
{
	struct sys_feed *f = calloc(1, sizeof(*f));
	struct assemble_opts a = {
		.table = o->table, .data_max = SYS_DATA_MAX, .event = take_event, .arg = f
	};

	if (f)
		f->assemble = assemble_create(&a);
	if (!f || !f->assemble) {
		free(f);
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory to follow system calls");
	}
	f->o = *o;
	f->o.n_programs = MIN(o->n_programs, ARRAY_SIZE(f->programs));
	memcpy(f->programs, o->programs, f->o.n_programs * sizeof(*f->programs));
	*ret = f;
	return 0;
}

void sys_feed_destroy(struct sys_feed *f)
{
	if (!f)
		return;
	assemble_destroy(f->assemble);
	free(f);
}

/* -ENOMEM is counted with the event: captures_left_out. */
static void add(struct sys_feed *f, const struct syscall_input *in)
{
	(void)!assemble_add(f->assemble, in);
}

static void enter(struct sys_feed *f, const struct trace_record *r)
{
	u64 args[SYSCALL_ARGS] = { 0 };
	bool x32 = r->nr >= 0 && (u32)r->nr & SYSCALL_X32_BIT;
	struct syscall_input in = { .type = SYSCALL_IN_ENTER,
				    .abi = r->nr32 ? SYSCALL_ABI_32
					   : x32   ? SYSCALL_ABI_X32
						   : SYSCALL_ABI_64,
				    .uid = (u32)r->who,
				    .cgroup = (u32)(r->who >> 32),
				    .cpu = r->cpu,
				    .pid = r->pid,
				    .tgid = r->tgid,
				    .nr = r->nr,
				    .ts_ns = r->ts_ns,
				    .ip = r->ip,
				    .args = args,
				    .comm = r->comm };

	memcpy(args, r->args, MIN(r->n_args, SYSCALL_ARGS) * sizeof(*args));
	add(f, &in);
}

static void leave(struct sys_feed *f, const struct trace_record *r)
{
	struct syscall_input in = { .type = SYSCALL_IN_EXIT,
				    .pid = r->pid,
				    .ip = r->ip,
				    .ret = (s64)r->retval,
				    .duration_ns = r->duration_ns,
				    .comm = r->comm };

	/* its word was lost: better an unfinished call than a wrong result */
	if (r->has_retval)
		add(f, &in);
}

static bool has(const struct syscall_event *e, u8 arg, u8 what)
{
	const u8 *data;

	return syscall_capture_find(e, arg, what, &data) != NULL;
}

static bool is_key(const struct sys_program *p, const struct syscall_event *e, u8 arg, u64 key)
{
	bool low = p->low_key || e->abi == SYSCALL_ABI_32;

	return key == (low ? (u32)e->args[arg] : e->args[arg]);
}

/*
 * Which argument of the open call it is of; -1: none, or it is known. A path may be told twice, by getname()
 * and by what that calls.
 */
static int arg_of(const struct sys_program *p, const struct syscall_event *e, u64 key)
{
	if (p->call && strcmp(p->call, e->entry->name) != 0)
		return -1;
	if (p->arg >= 0)
		return has(e, (u8)p->arg, p->what) ? -1 : p->arg;
	for (u8 i = 0; key && i < e->n_args; i++) {
		if (is_key(p, e, i, key) && !has(e, i, p->what))
			return i;
	}
	return -1;
}

/* argv as the new program has it: strings, each with its NUL. */
static u32 strings_in(const u8 *bytes, u32 n)
{
	u32 count = 0;

	for (u32 i = 0; i < n; i++)
		count += !bytes[i];
	return count;
}

/* A piece of the program's own memory. Strings get their NULs here. */
static void take_piece(struct sys_feed *f, const struct trace_record *r)
{
	const struct ring_capture *c = r->capture;
	u8 bytes[AGENT_CAPTURE_MAX + 1] = { 0 };
	struct sys_user_piece p;
	struct syscall_input in = {
		.type = SYSCALL_IN_CAPTURE, .pid = r->pid, .capture = &p.capture, .bytes = bytes
	};

	if (!sys_user_piece(c->key, c->there, c->n, &p))
		return;
	memcpy(bytes, c->bytes, MIN(c->n, (u32)AGENT_CAPTURE_MAX));
	in.number = p.number;
	in.cut = c->cut;
	p.capture.truncated = p.capture.full_len == CAPTURE_LEN_UNKNOWN
				      ? p.capture.what != CAPTURE_DATA && !p.capture.failed
				      : p.capture.full_len > c->n;
	if (p.capture.what == CAPTURE_STRINGS && p.mm) {
		p.capture.count = strings_in(bytes, c->n);
	} else if (p.capture.what == CAPTURE_STRINGS) {
		p.capture.full_len = CAPTURE_LEN_UNKNOWN;
		p.capture.count = !p.ends && !p.capture.failed;
		p.capture.len += p.capture.count; /* its NUL */
		in.open = !p.ends;
	}
	add(f, &in);
}

/* Which argument's string the last piece was of, if that was not all; -1: it is another's. */
static int goes_on(const struct sys_program *p, const struct syscall_event *e, u64 key)
{
	const struct syscall_capture *last = e->n_captures ? &e->captures[e->n_captures - 1] : NULL;

	if (!last || last->arg >= SYSCALL_ARGS || p->what != CAPTURE_STRING ||
	    last->what != p->what || last->source != CAPTURE_KERNEL ||
	    last->full_len != CAPTURE_LEN_UNKNOWN || last->len % AGENT_CAPTURE_MAX || !last->len)
		return -1;
	if (p->arg >= 0 ? p->arg != last->arg : !is_key(p, e, last->arg, key))
		return -1;
	return last->arg;
}

static void take_capture(struct sys_feed *f, const struct trace_record *r)
{
	const struct ring_capture *c = r->capture;
	const struct syscall_event *e = assemble_open(f->assemble, r->pid);
	struct syscall_capture capture = { .source = CAPTURE_KERNEL };
	struct syscall_input in = {
		.type = SYSCALL_IN_CAPTURE, .pid = r->pid, .capture = &capture, .bytes = c->bytes
	};
	const struct sys_program *p;
	int arg;

	if (!e) {
		f->counts.orphans++;
		return;
	}
	if (c->program == AGENT_CAPTURE_USER)
		take_piece(f, r);
	if (c->program >= f->o.n_programs)
		return;
	p = &f->programs[c->program];
	arg = goes_on(p, e, c->key);
	in.number = arg >= 0 ? CAPTURE_GOES_ON : 0;
	in.cut = c->cut;
	if (arg < 0)
		arg = arg_of(p, e, c->key);
	if (arg < 0)
		return;
	capture.arg = (u8)arg;
	capture.what = p->what;
	capture.len = c->n;
	capture.full_len = c->there == AGENT_CAPTURE_UNKNOWN ? CAPTURE_LEN_UNKNOWN : c->there;
	if (p->what == CAPTURE_BYTES && capture.full_len == CAPTURE_LEN_UNKNOWN)
		capture.full_len = c->n; /* as many as it always has */
	capture.truncated = capture.full_len > c->n;
	add(f, &in);
}

void sys_feed_add(struct sys_feed *f, const struct trace_record *r)
{
	bool handler = syscall_table_at(f->o.table, r->ip) != NULL;
	struct syscall_input never = { .type = SYSCALL_IN_NEVER, .pid = r->pid, .ip = r->ip };

	f->now_ns = r->ts_ns;
	switch (r->type) {
	case TRACE_FUNCTION: /* without a capture: a call whose return nobody will tell of */
		if (r->capture)
			take_capture(f, r);
		else if (handler)
			enter(f, r);
		return;
	case TRACE_GRAPH_ENTRY:
		enter(f, r);
		if (r->capture)
			take_capture(f, r);
		return;
	case TRACE_GRAPH_RETURN:
		leave(f, r);
		return;
	case TRACE_GRAPH_NEVER:
		if (handler)
			add(f, &never);
		return;
	default:
		return;
	}
}

void sys_feed_finish(struct sys_feed *f)
{
	assemble_finish(f->assemble);
}

void sys_feed_get_counts(const struct sys_feed *f, struct sys_feed_counts *ret)
{
	struct assemble_counts c;

	assemble_get_counts(f->assemble, &c);
	*ret = f->counts;
	ret->unfinished = c.unfinished;
	ret->forgotten = c.forgotten;
	ret->captures_left_out = c.captures_left_out;
	ret->orphans += c.orphan_returns;
}
