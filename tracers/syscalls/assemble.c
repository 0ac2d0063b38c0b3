// SPDX-License-Identifier: Apache-2.0
/* A hash of open calls by pid, and a list of them by age. */
#include "tracers/syscalls/assemble.h"

#include "base/buf.h"
#include "tracers/addr_hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CALLS_FIRST   1024u /* there is room for so many from the beginning */
#define CALLS_DEFAULT 65536u
#define CALLS_MAX     (1u << 20)
#define KEEP_BYTES \
	4096u /* a buffer that grew beyond is given back, and those of calls beyond the first */
#define BYTES_MAX (64u << 20) /* captures of all open calls */
#define NONE      UINT32_MAX
#define EXECS_MAX \
	64u /* of threads, looked at for one that returned: a guest may make up any number */

struct call {
	struct syscall_event e;
	struct buf data;
	/* of the last capture */
	u32 next_piece;
	bool closed; /* a piece of it is missing: no more belongs to it */
	bool cut; /* CAPTURE_STRINGS: one of its strings is */
	u32 next_hash; /* also links free ones */
	u32 older, newer;
	bool thread_exec; /* an execve of a thread that is not its group's leader */
	u32 older_exec,
		newer_exec; /* others of the same hash of tgid; the newest is in the table */
};

struct assemble {
	struct assemble_opts o;
	struct call *calls;
	u32 n; /* of calls; o.n_calls at most */
	size_t bytes; /* captures of open calls */
	u32 *hash, *execs; /* by pid; those with thread_exec, by tgid */
	u32 hash_mask; /* of both */
	u64 key;
	u32 free;
	u32 oldest, newest;
	struct assemble_counts counts;
};

static u32 *bucket(const struct assemble *a, u32 pid)
{
	return &a->hash[addr_hash(pid, a->key) & a->hash_mask];
}

static u32 *exec_bucket(const struct assemble *a, u32 tgid)
{
	return &a->execs[addr_hash(tgid, a->key) & a->hash_mask];
}

static void exec_add(struct assemble *a, u32 i)
{
	u32 *newest = exec_bucket(a, a->calls[i].e.tgid);

	a->calls[i].older_exec = *newest;
	a->calls[i].newer_exec = NONE;
	if (*newest != NONE)
		a->calls[*newest].newer_exec = i;
	*newest = i;
}

static void exec_remove(struct assemble *a, const struct call *c)
{
	if (c->newer_exec == NONE)
		*exec_bucket(a, c->e.tgid) = c->older_exec;
	else
		a->calls[c->newer_exec].older_exec = c->older_exec;
	if (c->older_exec != NONE)
		a->calls[c->older_exec].newer_exec = c->newer_exec;
}

static void hash_add(struct assemble *a, u32 i)
{
	u32 *head = bucket(a, a->calls[i].e.pid);

	a->calls[i].next_hash = *head;
	*head = i;
	if (a->calls[i].thread_exec)
		exec_add(a, i);
}

/* Room for @n calls, those that are open included. */
static int set_room(struct assemble *a, u32 n)
{
	struct call *calls = reallocarray(a->calls, n, sizeof(*calls));
	u32 size = 16, *hash;

	if (!calls)
		return -ENOMEM;
	a->calls = calls;
	while (size < n)
		size *= 2;
	hash = malloc(2 * size * sizeof(*hash));
	if (!hash)
		return -ENOMEM;
	memset(hash, 0xff, 2 * size * sizeof(*hash));
	free(a->hash);
	a->hash = hash;
	a->execs = hash + size;
	a->hash_mask = size - 1;
	for (u32 i = a->oldest; i != NONE; i = calls[i].newer)
		hash_add(a, i);
	memset(calls + a->n, 0, (n - a->n) * sizeof(*calls));
	for (u32 i = n; i-- > a->n;) {
		calls[i].next_hash = a->free;
		a->free = i;
	}
	a->n = n;
	return 0;
}

struct assemble *assemble_create(const struct assemble_opts *opts)
{
	struct assemble *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->o = *opts;
	a->o.n_calls = opts->n_calls ? MIN(opts->n_calls, CALLS_MAX) : CALLS_DEFAULT;
	if (!a->o.data_max || a->o.data_max > SYSCALL_DATA_MAX)
		a->o.data_max = SYSCALL_DATA_MAX;
	a->oldest = a->newest = a->free = NONE;
	a->key = addr_hash_key();
	if (set_room(a, MIN(a->o.n_calls, CALLS_FIRST))) {
		assemble_destroy(a);
		return NULL;
	}
	return a;
}

void assemble_destroy(struct assemble *a)
{
	if (!a)
		return;
	for (u32 i = 0; i < a->n; i++)
		buf_deinit(&a->calls[i].data);
	free(a->calls);
	free(a->hash);
	free(a);
}

static u32 find(const struct assemble *a, u32 pid)
{
	u32 i = *bucket(a, pid);

	while (i != NONE && a->calls[i].e.pid != pid)
		i = a->calls[i].next_hash;
	return i;
}

static void list_remove(struct assemble *a, struct call *c)
{
	if (c->older == NONE)
		a->oldest = c->newer;
	else
		a->calls[c->older].newer = c->newer;
	if (c->newer == NONE)
		a->newest = c->older;
	else
		a->calls[c->newer].older = c->older;
}

static void list_add(struct assemble *a, u32 i)
{
	struct call *c = &a->calls[i];

	c->older = a->newest;
	c->newer = NONE;
	if (a->newest == NONE)
		a->oldest = i;
	else
		a->calls[a->newest].newer = i;
	a->newest = i;
}

/* Hand on call @i in @state, and forget it. */
static void emit(struct assemble *a, u32 i, enum syscall_state state)
{
	struct call *c = &a->calls[i];
	u32 *link = bucket(a, c->e.pid);

	while (*link != i)
		link = &a->calls[*link].next_hash;
	*link = c->next_hash;
	if (c->thread_exec)
		exec_remove(a, c);
	list_remove(a, c);
	c->e.state = (u8)state;
	c->e.data = (const u8 *)c->data.data;
	c->e.data_len = (u32)c->data.len;
	a->counts.open--;
	a->counts.events++;
	a->counts.unfinished += state == SYSCALL_UNFINISHED;
	a->o.event(a->o.arg, &c->e);
	a->bytes -= c->data.len;
	if (c->data.cap > KEEP_BYTES || i >= CALLS_FIRST || c->data.failed)
		buf_deinit(&c->data);
	c->data = (struct buf){ .data = c->data.data, .cap = c->data.cap };
	c->next_hash = a->free;
	a->free = i;
}

static bool is_exec(const struct syscall_entry *entry)
{
	return !strcmp(entry->name, "execve") || !strcmp(entry->name, "execveat");
}

static void comm_set(char *dst, const char *comm)
{
	size_t n = comm ? strnlen(comm, SYSCALL_COMM_LEN) : 0;

	if (n)
		memcpy(dst, comm, n);
	dst[n] = 0;
}

/* For one more call. */
static void make_room(struct assemble *a)
{
	if (a->free != NONE)
		return;
	if (a->n < a->o.n_calls && !set_room(a, MIN(2 * a->n, a->o.n_calls)))
		return;
	a->counts.forgotten++;
	emit(a, a->oldest, SYSCALL_UNFINISHED);
}

static void enter(struct assemble *a, const struct syscall_input *in)
{
	const struct syscall_entry *entry = syscall_table_at(a->o.table, in->ip);
	u32 i = find(a, in->pid);
	struct syscall_event *e;

	if (!entry) {
		a->counts.unknown_sites++;
		return;
	}
	if (i != NONE)
		emit(a, i, SYSCALL_UNFINISHED);
	make_room(a);
	i = a->free;
	a->free = a->calls[i].next_hash;
	e = &a->calls[i].e;
	*e = (struct syscall_event){ .entry = entry,
				     .seq = in->seq,
				     .ts_ns = in->ts_ns,
				     .nr = in->nr >= 0 ? in->nr : entry->nr,
				     .pid = in->pid,
				     .tgid = in->tgid,
				     .cpu = in->cpu,
				     .abi = entry->shared ? in->abi : entry->abi,
				     .uid = in->uid,
				     .cgroup = in->cgroup,
				     .n_args = entry->described ? entry->n_args : SYSCALL_ARGS };
	if (in->args)
		memcpy(e->args, in->args, sizeof(e->args));
	comm_set(e->comm, in->comm);
	a->calls[i].thread_exec = in->tgid && in->tgid != in->pid && is_exec(entry);
	hash_add(a, i);
	list_add(a, i);
	a->counts.entries++;
	a->counts.open++;
}

/* The last capture, if @in is of the same and that is not whole yet. */
static struct syscall_capture *continued(struct call *call, const struct syscall_input *in)
{
	const struct syscall_capture *c = in->capture;
	struct syscall_capture *last;

	if (!in->number || !call->e.n_captures)
		return NULL;
	last = &call->e.captures[call->e.n_captures - 1];
	if (last->arg != c->arg || last->what != c->what || last->source != c->source)
		return NULL;
	return call->closed || last->full_len == CAPTURE_LEN_UNKNOWN || last->full_len > last->len
		       ? last
		       : NULL;
}

/* Nothing more belongs to the last capture; @last: it is told, as far as it goes. */
static void close_capture(struct call *call, struct syscall_capture *last)
{
	call->closed = true;
	if (last)
		last->truncated = true;
}

/* No room. Bytes behind those that are left out would be taken for them. */
static void leave_out(struct assemble *a, struct call *call, struct syscall_capture *last)
{
	close_capture(call, last);
	call->e.captures_left_out = true;
	a->counts.captures_left_out++;
}

/* Strings are told one by one, and then that these were all. */
static bool strings_truncated(struct call *call, const struct syscall_capture *c, bool open)
{
	call->cut |= c->failed || c->truncated;
	return call->cut || open;
}

/* What a piece says of the whole, which has its bytes. */
static void join(struct call *call, struct syscall_capture *last,
		 const struct syscall_capture *piece, bool open)
{
	last->len += piece->len;
	if (last->what != CAPTURE_DATA)
		last->count += piece->count;
	last->full_len = piece->full_len;
	if (piece->full_len != CAPTURE_LEN_UNKNOWN)
		last->truncated = last->full_len > last->len;
	else if (last->what == CAPTURE_STRINGS)
		last->truncated = strings_truncated(call, piece, open);
	else
		last->truncated = piece->failed || piece->truncated;
}

/*
 * False: a piece before this one is missing. Pieces that the kernel's functions told of have no numbers, but the
 * last one of a string says where it ends: if that is not here, nobody knows which of its bytes are.
 */
static bool is_next(struct call *call, struct syscall_capture *last, const struct syscall_input *in)
{
	const struct syscall_capture *c = in->capture;

	if (call->closed)
		return false;
	if (in->number != CAPTURE_GOES_ON)
		return in->number == call->next_piece;
	if (c->what != CAPTURE_STRING || c->full_len == CAPTURE_LEN_UNKNOWN ||
	    c->full_len == last->len + c->len)
		return true;
	last->failed = true;
	last->len = 0;
	return false;
}

/* Bytes of @c, as many as there is room for. */
static bool add_bytes(struct assemble *a, struct call *call, const struct syscall_input *in,
		      struct syscall_capture *c)
{
	u32 room = a->o.data_max - (u32)call->data.len;

	if (c->failed || !in->bytes)
		c->len = 0;
	if (c->len > room) {
		c->len = room;
		c->truncated = true;
	}
	c->off = (u32)call->data.len;
	if (c->len)
		buf_add(&call->data, in->bytes, c->len);
	if (call->data.failed) {
		call->data.failed = false;
		return false;
	}
	a->bytes += c->len;
	return true;
}

static void begin_capture(struct call *call, const struct syscall_input *in,
			  const struct syscall_capture *c)
{
	struct syscall_capture *new = &call->e.captures[call->e.n_captures++];

	*new = *c;
	call->cut = false;
	if (c->what == CAPTURE_STRINGS && c->full_len == CAPTURE_LEN_UNKNOWN)
		new->truncated = strings_truncated(call, c, in->open);
}

static int capture(struct assemble *a, const struct syscall_input *in)
{
	u32 i = find(a, in->pid);
	struct syscall_capture c = *in->capture, *last;
	struct call *call;

	if (i == NONE) {
		a->counts.orphan_captures++;
		return 0;
	}
	call = &a->calls[i];
	last = continued(call, in);
	if (last && !is_next(call, last, in)) {
		close_capture(call, last);
		return 0;
	}
	c.failed |= !last && in->number;
	if ((!last && call->e.n_captures == SYSCALL_CAPTURES) || c.arg > CAPTURE_RETURN ||
	    a->bytes >= BYTES_MAX) {
		leave_out(a, call, last);
		return 0;
	}
	if (!add_bytes(a, call, in, &c)) {
		leave_out(a, call, last);
		return -ENOMEM;
	}
	if (last)
		join(call, last, &c, in->open);
	else
		begin_capture(call, in, &c);
	call->next_piece = last ? call->next_piece + 1 : 1;
	call->closed = c.failed;
	if (c.failed ? last != NULL : in->cut || c.len < in->capture->len)
		close_capture(call, &call->e.captures[call->e.n_captures - 1]);
	return 0;
}

static bool named(const struct syscall_event *e, const char *name)
{
	return !strcmp(e->entry->name, name);
}

static enum syscall_state exit_state(const struct syscall_event *e)
{
	/* what the interrupted code had in its register is no result */
	if (named(e, "rt_sigreturn") || named(e, "sigreturn"))
		return SYSCALL_SIGRETURN;
	if (syscall_restart(e->ret) != RESTART_NOT)
		return SYSCALL_RESTARTED;
	if (!e->ret && is_exec(e->entry))
		return SYSCALL_EXECVE;
	return SYSCALL_RETURNED;
}

/*
 * An execve that returns in a task which did not call it: a thread that is not its group's leader takes over
 * the leader's pid (v6.1 fs/exec.c de_thread()). The leader is gone with what it was in.
 */
static u32 of_thread(struct assemble *a, const struct syscall_input *in,
		     const struct syscall_entry *entry)
{
	u32 i = find(a, in->pid), found = NONE, n = 0;

	if (!entry || !is_exec(entry) || (i != NONE && a->calls[i].e.entry == entry))
		return NONE;
	/* of several the oldest: v6.1 fs/exec.c prepare_bprm_creds() has the others wait */
	for (u32 j = *exec_bucket(a, in->pid); j != NONE && n < EXECS_MAX;
	     j = a->calls[j].older_exec, n++) {
		const struct syscall_event *e = &a->calls[j].e;

		if (e->entry == entry && e->tgid == in->pid)
			found = j;
	}
	if (found != NONE && i != NONE)
		emit(a, i, SYSCALL_NEVER);
	return found;
}

/* The open call that a return speaks of; one of another function means a lost entry. */
static u32 returned(struct assemble *a, const struct syscall_input *in)
{
	const struct syscall_entry *entry = in->ip ? syscall_table_at(a->o.table, in->ip) : NULL;
	u32 i = of_thread(a, in, entry);

	if (i != NONE)
		return i;
	i = find(a, in->pid);
	if (i == NONE || !in->ip || entry == a->calls[i].e.entry)
		return i;
	emit(a, i, SYSCALL_UNFINISHED);
	return NONE;
}

/* That a call never returns is told late: its pid may be another task's by then, in another call. */
static void never(struct assemble *a, const struct syscall_input *in)
{
	u32 i = find(a, in->pid);

	if (i != NONE && (!in->ip || syscall_table_at(a->o.table, in->ip) == a->calls[i].e.entry))
		emit(a, i, SYSCALL_NEVER);
}

static void leave(struct assemble *a, const struct syscall_input *in)
{
	u32 i = returned(a, in);
	struct syscall_event *e;
	enum syscall_state state;

	a->counts.returns++;
	if (i == NONE) {
		a->counts.orphan_returns++;
		return;
	}
	e = &a->calls[i].e;
	e->ret = in->ret;
	e->duration_ns = in->duration_ns;
	state = exit_state(e);
	if (state == SYSCALL_EXECVE)
		comm_set(e->comm_after, in->comm);
	emit(a, i, state);
}

int assemble_add(struct assemble *a, const struct syscall_input *in)
{
	switch (in->type) {
	case SYSCALL_IN_ENTER:
		enter(a, in);
		return 0;
	case SYSCALL_IN_CAPTURE:
		return in->capture ? capture(a, in) : -EINVAL;
	case SYSCALL_IN_EXIT:
		leave(a, in);
		return 0;
	case SYSCALL_IN_NEVER:
		never(a, in);
		return 0;
	case SYSCALL_IN_LOST:
		a->counts.lost += in->count;
		if (a->o.lost)
			a->o.lost(a->o.arg, in->count);
		return 0;
	default:
		return -EINVAL;
	}
}

/* Its captures point into a buffer that grows. */
const struct syscall_event *assemble_open(struct assemble *a, u32 pid)
{
	u32 i = find(a, pid);

	if (i == NONE)
		return NULL;
	a->calls[i].e.data = (const u8 *)a->calls[i].data.data;
	a->calls[i].e.data_len = (u32)a->calls[i].data.len;
	return &a->calls[i].e;
}

void assemble_finish(struct assemble *a)
{
	while (a->oldest != NONE)
		emit(a, a->oldest, SYSCALL_UNFINISHED);
}

void assemble_get_counts(const struct assemble *a, struct assemble_counts *ret)
{
	*ret = a->counts;
}
