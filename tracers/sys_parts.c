// SPDX-License-Identifier: Apache-2.0
/* System calls as records, and back. See sys_parts.h. */
#include "tracers/sys_parts.h"

#include <stdlib.h>
#include <string.h>

#define PART_BYTES   (8u * TRACE_MAX_ARGS)
#define CACHE        1024u /* handlers that are known; more push out others */
#define RESULT_WORDS 3
#define BIT_CUT      (1u << 24)
#define BIT_FAILED   (1u << 25)
#define BIT_LEFT_OUT (1u << 16) /* of RESULT */

enum part {
	PART_HEAD = 1,
	PART_RESULT,
	PART_CAPTURE,
	PART_BYTES_OF,
};

/* Writing */

struct writer {
	void (*put)(void *arg, const struct trace_record *r);
	void *arg;
	struct trace_record r;
};

static void put(struct writer *w, enum part part, const u64 *words, u8 n)
{
	w->r.ctx = (u16)part;
	w->r.n_args = n;
	memset(w->r.args, 0, sizeof(w->r.args));
	memcpy(w->r.args, words, n * sizeof(*words));
	w->put(w->arg, &w->r);
	w->r.depth--;
}

static u32 chunks(u32 len)
{
	return (len + PART_BYTES - 1) / PART_BYTES;
}

static bool sound(const struct syscall_event *e, const struct syscall_capture *c)
{
	return c->off <= e->data_len && c->len <= e->data_len - c->off;
}

static void put_capture(struct writer *w, const struct syscall_event *e,
			const struct syscall_capture *c)
{
	u32 bits = (u32)c->arg | (u32)c->what << 8 | (u32)c->source << 16;
	u64 words[RESULT_WORDS] = { 0, (u64)c->full_len << 32 | c->count, c->len };

	bits |= (c->truncated ? BIT_CUT : 0) | (c->failed ? BIT_FAILED : 0);
	words[0] = bits;
	put(w, PART_CAPTURE, words, RESULT_WORDS);
	for (u32 at = 0; at < c->len; at += PART_BYTES) {
		u64 bytes[TRACE_MAX_ARGS] = { 0 };
		u32 n = MIN(PART_BYTES, c->len - at);

		memcpy(bytes, e->data + c->off + at, n);
		put(w, PART_BYTES_OF, bytes, (u8)((n + 7) / 8));
	}
}

void sys_parts_write(const struct syscall_event *e, u64 end_ns,
		     void (*put_fn)(void *arg, const struct trace_record *r), void *arg)
{
	u64 tail[RESULT_WORDS + 2] = { (u64)e->ret, e->duration_ns,
				       (u64)(u32)e->nr << 32 |
					       (e->captures_left_out ? BIT_LEFT_OUT : 0) |
					       (u32)e->abi << 8 | e->state,
				       (u64)e->cgroup << 32 | e->uid, e->string_max };
	struct writer w = { .put = put_fn, .arg = arg };
	u32 n = 2;

	for (u32 i = 0; i < e->n_captures; i++)
		n += sound(e, &e->captures[i]) ? 1 + chunks(e->captures[i].len) : 0;
	w.r = (struct trace_record){ .ts_ns = e->ts_ns,
				     .ip = e->entry->addr,
				     .pid = e->pid,
				     .tgid = e->tgid,
				     .cpu = e->cpu,
				     .type = TRACE_SYSCALL,
				     .depth = (u16)(n - 1) };
	memcpy(w.r.comm, e->comm, MIN(sizeof(w.r.comm), sizeof(e->comm)));
	put(&w, PART_HEAD, e->args, SYSCALL_ARGS);
	w.r.ts_ns = end_ns;
	if (e->state == SYSCALL_EXECVE)
		memcpy(w.r.comm, e->comm_after, MIN(sizeof(w.r.comm), sizeof(e->comm_after)));
	put(&w, PART_RESULT, tail, ARRAY_SIZE(tail));
	for (u32 i = 0; i < e->n_captures; i++) {
		if (sound(e, &e->captures[i]))
			put_capture(&w, e, &e->captures[i]);
	}
}

/* Reading */

struct known {
	u64 ip; /* 0: none */
	bool handler;
	struct syscall_entry entry;
};

struct sys_reader {
	struct syscall_event e;
	struct syscall_entry named; /* its entry under another name */
	struct known *at; /* its handler */
	bool inside;
	u16 left; /* parts still to come */
	u64 next_seq; /* of the next one: with a gap before it, a part may be another call's */
	u32 missing; /* bytes of the last capture still to come */
	u8 data[SYS_DATA_MAX + PART_BYTES];
	struct known cache[CACHE];
};

struct sys_reader *sys_reader_create(void)
{
	return calloc(1, sizeof(struct sys_reader));
}

void sys_reader_destroy(struct sys_reader *s)
{
	free(s);
}

bool sys_reader_inside(const struct sys_reader *s)
{
	return s->inside;
}

/* A handler without arguments is the same function as what others call. */
static const char *handler_name(const char *symbol, enum syscall_abi *abi_ret)
{
	static const char inner[] = "__do_sys_";

	if (!strncmp(symbol, inner, sizeof(inner) - 1))
		return symbol + sizeof(inner) - 1;
	return syscall_handler_name(symbol, abi_ret);
}

static void learn(struct known *k, u64 ip, const struct output_names *names)
{
	struct syscall_entry *e = &k->entry;
	enum syscall_abi abi = SYSCALL_ABI_64;
	struct kernel_func f;
	struct kernel_sym sym;
	u64 off;

	*k = (struct known){ .ip = ip, .entry = { .addr = ip, .nr = -1 } };
	if (!names->sym(names->arg, ip, &sym, &off) || !sym.name)
		return;
	e->kernel_name = handler_name(sym.name, &abi);
	if (!e->kernel_name)
		return;
	k->handler = true;
	e->name = syscall_user_name(e->kernel_name);
	e->abi = (u8)abi;
	if (!names->func || !names->func(names->arg, ip, &f))
		return;
	e->described = true;
	e->n_args = (u8)MIN(f.n_params, SYSCALL_ARGS);
	for (u32 i = 0; i < e->n_args; i++)
		e->args[i] = (struct syscall_arg){ f.params[i].type, f.params[i].name };
}

static struct known *known_at(struct sys_reader *s, u64 ip, const struct output_names *names)
{
	struct known *k = &s->cache[(ip * 0x9e3779b97f4a7c15) >> 32 & (CACHE - 1)];

	if (k->ip != ip || !ip)
		learn(k, ip, names);
	return k;
}

static void take_comm(char *dst, const struct trace_record *r)
{
	memcpy(dst, r->comm, SYSCALL_COMM_LEN);
	dst[SYSCALL_COMM_LEN] = 0;
}

static bool begin(struct sys_reader *s, const struct trace_record *r,
		  const struct output_names *names)
{
	struct known *k;

	s->inside = false;
	if (r->ctx != PART_HEAD || r->n_args != SYSCALL_ARGS || !r->depth)
		return false;
	k = known_at(s, r->ip, names);
	if (!k->handler)
		return false;
	s->e = (struct syscall_event){ .entry = &k->entry,
				       .ts_ns = r->ts_ns,
				       .nr = -1,
				       .uid = SYSCALL_NO_UID,
				       .pid = r->pid,
				       .tgid = r->tgid,
				       .cpu = r->cpu,
				       .abi = k->entry.abi,
				       .n_args =
					       k->entry.described ? k->entry.n_args : SYSCALL_ARGS,
				       .data = s->data };
	memcpy(s->e.args, r->args, sizeof(s->e.args));
	take_comm(s->e.comm, r);
	s->missing = 0;
	s->left = r->depth;
	s->next_seq = r->seq + 1;
	s->inside = true;
	return true;
}

static bool take_result(struct sys_reader *s, const struct trace_record *r)
{
	struct syscall_event *e = &s->e;

	if (r->n_args < RESULT_WORDS || (r->args[2] & 0xff) >= SYSCALL_STATES ||
	    (r->args[2] >> 8 & 0xff) >= SYSCALL_ABIS)
		return false;
	e->ret = (s64)r->args[0];
	e->duration_ns = r->args[1];
	e->state = r->args[2] & 0xff;
	e->abi = r->args[2] >> 8 & 0xff;
	e->captures_left_out = r->args[2] & BIT_LEFT_OUT;
	e->nr = (s32)(r->args[2] >> 32);
	if (r->n_args > RESULT_WORDS) {
		e->uid = (u32)r->args[3];
		e->cgroup = (u32)(r->args[3] >> 32);
	}
	if (r->n_args > RESULT_WORDS + 1)
		e->string_max = (u32)MIN(r->args[4], (u64)SYS_DATA_MAX);
	if (e->state == SYSCALL_EXECVE)
		take_comm(e->comm_after, r);
	return true;
}

static bool take_capture(struct sys_reader *s, const struct trace_record *r)
{
	struct syscall_event *e = &s->e;
	struct syscall_capture c = { 0 };

	if (r->n_args != RESULT_WORDS || e->n_captures == SYSCALL_CAPTURES || s->missing ||
	    r->args[2] > SYS_DATA_MAX - e->data_len || (r->args[0] & 0xff) > CAPTURE_RETURN ||
	    (r->args[0] >> 8 & 0xff) > CAPTURE_FD || (r->args[0] >> 16 & 0xff) > CAPTURE_USER_EXIT)
		return false;
	c.arg = r->args[0] & 0xff;
	c.what = r->args[0] >> 8 & 0xff;
	c.source = r->args[0] >> 16 & 0xff;
	c.truncated = r->args[0] & BIT_CUT;
	c.failed = r->args[0] & BIT_FAILED;
	c.count = (u32)r->args[1];
	c.full_len = (u32)(r->args[1] >> 32);
	c.off = e->data_len;
	c.len = s->missing = (u32)r->args[2];
	e->captures[e->n_captures++] = c;
	return true;
}

static bool take_bytes(struct sys_reader *s, const struct trace_record *r)
{
	u32 n = MIN(s->missing, PART_BYTES);

	if (!n || r->n_args != (n + 7) / 8)
		return false;
	memcpy(s->data + s->e.data_len, r->args, n);
	s->e.data_len += n;
	s->missing -= n;
	return true;
}

static bool go_on(struct sys_reader *s, const struct trace_record *r)
{
	if (r->seq != s->next_seq || r->depth != s->left - 1 || r->ip != s->e.entry->addr ||
	    r->pid != s->e.pid)
		return false;
	s->left--;
	s->next_seq++;
	switch (r->ctx) {
	case PART_RESULT:
		return take_result(s, r);
	case PART_CAPTURE:
		return take_capture(s, r);
	case PART_BYTES_OF:
		return take_bytes(s, r);
	default:
		return false;
	}
}

/* Its number tells what a call of the 32-bit ABI is called; the handler may be called otherwise. */
static void name_call32(struct sys_reader *s)
{
	const char *name = s->e.abi == SYSCALL_ABI_32 ? syscall_name32(s->e.nr) : NULL;

	if (!name)
		return;
	s->named = *s->e.entry;
	s->named.name = name;
	s->e.entry = &s->named;
}

const struct syscall_event *sys_reader_add(struct sys_reader *s, const struct trace_record *r,
					   const struct output_names *names)
{
	if (r->type != TRACE_SYSCALL)
		return NULL;
	if (!s->inside || !s->left || !go_on(s, r)) {
		(void)begin(s, r, names);
		return NULL;
	}
	if (s->left)
		return NULL;
	s->inside = false;
	if (s->missing)
		return NULL;
	s->e.seq = r->seq;
	name_call32(s);
	return &s->e;
}
