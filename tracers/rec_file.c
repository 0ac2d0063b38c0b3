// SPDX-License-Identifier: Apache-2.0
/*
 * The recording writer. Memory: the set of addresses already defined, which the guest's text
 * bounds, and a fixed table of tasks. The chunk under way lies in the caller's buffer and is whole
 * after every call, so the caller may write out and empty the buffer at any time; a chunk goes on
 * for as long as the buffer is not emptied. See rec_format.h.
 */
#include "tracers/output.h"
#include "tracers/rec_format.h"
#include "tracers/rec_varint.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define SEEN_MIN  4096
#define TASK_WAYS 4

struct seen {
	u64 addr;
	u32 id_plus_1; /* 0: empty */
	bool proto; /* its prototype was looked for */
};

struct task {
	u32 pid, tgid;
	char comm[TRACE_COMM_LEN];
	bool used;
};

/* What a record is relative to, within one chunk. */
struct rec_state {
	u64 seq, ts_ns;
	u32 cpu, task, ctx;
};

struct rec_writer {
	struct output_meta meta;
	/* the chunk under way; it ends at @open_end of the caller's buffer */
	u8 open_type; /* 0: none */
	u32 open_crc;
	size_t open_start, open_end;
	struct rec_state prev;
	u64 last_seq;
	/* addresses defined */
	struct seen *seen;
	size_t n_seen, seen_slots;
	/* stacks defined, by address: each is kept once, for as long as the trace is */
	struct seen_stack {
		const struct trace_stack *stack; /* NULL: empty */
		u32 id;
	} * stacks;
	size_t n_stacks, stack_slots;
	/* tasks defined */
	struct task *tasks;
	u32 victim;
	u32 last_task; /* a guess */
};

static void put_u32(void *p, u32 v)
{
	memcpy(p, &v, sizeof(v));
}

int rec_writer_create(const struct output_meta *meta, struct rec_writer **ret, struct err *err)
{
	struct rec_writer *w = calloc(1, sizeof(*w));

	if (!w)
		goto fail;
	w->meta = *meta;
	w->seen_slots = SEEN_MIN;
	w->seen = calloc(w->seen_slots, sizeof(*w->seen));
	w->tasks = calloc(REC_TASK_SLOTS, sizeof(*w->tasks));
	if (!w->seen || !w->tasks)
		goto fail;
	*ret = w;
	return 0;
fail: /* one message for any of the three */
	rec_writer_destroy(w);
	return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a recording's tables");
}

void rec_writer_destroy(struct rec_writer *w)
{
	if (!w)
		return;
	free(w->seen);
	free(w->stacks);
	free(w->tasks);
	free(w);
}

/*
 * Room for @max more payload bytes in a chunk of @type: the chunk under way, if it is of that type,
 * still at the end of @out and not full; else a new, empty one. NULL: no memory (@out remembers).
 */
static u8 *chunk_open(struct rec_writer *w, struct buf *out, u8 type, size_t max, bool *new_ret)
{
	bool go_on = w->open_type == type && out->len == w->open_end && out->data &&
		     w->open_end - w->open_start < REC_CHUNK_FULL;
	u8 *p;

	*new_ret = !go_on;
	if (go_on) {
		p = (u8 *)buf_reserve(out, max);
		return p ? p - REC_CHUNK_TAIL : NULL; /* over the old crc */
	}
	w->open_type = 0;
	p = (u8 *)buf_reserve(out, REC_CHUNK_HEAD + max + REC_CHUNK_TAIL);
	if (!p)
		return NULL;
	w->open_type = type;
	w->open_start = out->len;
	w->open_end = out->len + REC_CHUNK_HEAD + REC_CHUNK_TAIL;
	w->open_crc = rec_crc32(0, &type, 1);
	*p = type;
	out->len = w->open_end;
	return p + REC_CHUNK_HEAD;
}

/* The payload now ends at @end; @added of it is new. Makes the chunk whole again. */
static void chunk_seal(struct rec_writer *w, struct buf *out, const u8 *added, u8 *end)
{
	u8 *start = (u8 *)out->data + w->open_start;

	w->open_crc = rec_crc32(w->open_crc, added, (size_t)(end - added));
	put_u32(start + 1, (u32)(end - start - REC_CHUNK_HEAD));
	put_u32(end, w->open_crc);
	end[REC_CHUNK_TAIL] = 0;
	w->open_end = (size_t)(end + REC_CHUNK_TAIL - (u8 *)out->data);
	out->len = w->open_end;
}

static void chunk_whole(struct rec_writer *w, struct buf *out, u8 type, const void *data,
			size_t len)
{
	bool is_new;
	u8 *p;

	w->open_type = 0;
	p = chunk_open(w, out, type, len, &is_new);
	if (!p)
		return;
	memcpy(p, data, len);
	chunk_seal(w, out, p, p + len);
	w->open_type = 0;
}

static bool seen_grow(struct rec_writer *w)
{
	size_t slots = w->seen_slots * 2;
	struct seen *bigger = calloc(slots, sizeof(*bigger));

	if (!bigger)
		return false;
	for (size_t i = 0; i < w->seen_slots; i++) {
		size_t h;

		if (!w->seen[i].id_plus_1)
			continue;
		h = (w->seen[i].addr * 0x9e3779b97f4a7c15) >> 32 & (slots - 1);
		while (bigger[h].id_plus_1)
			h = (h + 1) & (slots - 1);
		bigger[h] = w->seen[i];
	}
	free(w->seen);
	w->seen = bigger;
	w->seen_slots = slots;
	return true;
}

static void define_sym(struct rec_writer *w, struct buf *out, u64 addr,
		       const struct output_names *names)
{
	struct kernel_sym sym = { .name = "", .type = 0 };
	u64 off = 0;
	u16 name_len, module_len;
	bool is_new;
	u8 *p, *start;

	if (!names->sym(names->arg, addr, &sym, &off))
		sym = (struct kernel_sym){ .name = "" };
	else if (!sym.type)
		sym.type = '?';
	name_len = (u16)strnlen(sym.name, REC_NAME_MAX);
	module_len = (u16)(sym.module ? strnlen(sym.module, REC_NAME_MAX) : 0);
	start = p = chunk_open(w, out, REC_CHUNK_SYM,
			       8 + 2 * REC_VARINT_MAX + 1 + 2 + name_len + 2 + module_len, &is_new);
	if (!p)
		return;
	memcpy(p, &addr, 8);
	p = put_varint(p + 8, off);
	p = put_varint(p, sym.size_bytes);
	*p++ = (u8)sym.type;
	memcpy(p, &name_len, 2);
	memcpy(p + 2, sym.name, name_len);
	p += 2 + name_len;
	memcpy(p, &module_len, 2);
	if (module_len)
		memcpy(p + 2, sym.module, module_len);
	chunk_seal(w, out, start, p + 2 + module_len);
}

/* The number of @addr, defined if need be. */
static u32 sym_id(struct rec_writer *w, struct buf *out, u64 addr, const struct output_names *names)
{
	size_t h = (addr * 0x9e3779b97f4a7c15) >> 32 & (w->seen_slots - 1);

	for (; w->seen[h].id_plus_1; h = (h + 1) & (w->seen_slots - 1)) {
		if (w->seen[h].addr == addr)
			return w->seen[h].id_plus_1 - 1;
	}
	if (w->n_seen >= w->seen_slots / 2) {
		if (!seen_grow(w)) {
			out->failed = true;
			return 0;
		}
		return sym_id(w, out, addr, names);
	}
	w->seen[h] = (struct seen){ addr, (u32)++w->n_seen, false };
	define_sym(w, out, addr, names);
	return w->seen[h].id_plus_1 - 1;
}

static bool same_task(const struct task *t, const struct trace_record *r)
{
	return t->pid == r->pid && t->tgid == r->tgid && t->used &&
	       !memcmp(t->comm, r->comm, TRACE_COMM_LEN);
}

static void define_task(struct rec_writer *w, struct buf *out, u32 slot)
{
	const struct task *t = &w->tasks[slot];
	u8 len = (u8)strnlen(t->comm, TRACE_COMM_LEN), *p, *start;
	bool is_new;

	start = p = chunk_open(w, out, REC_CHUNK_TASK, 3 * REC_VARINT_MAX + 1 + len, &is_new);
	if (!p)
		return;
	p = put_varint(p, slot);
	p = put_varint(p, t->pid);
	p = put_varint(p, t->tgid);
	*p++ = len;
	memcpy(p, t->comm, len);
	chunk_seal(w, out, start, p + len);
}

/* The slot of @r's task, defined if need be: four candidates by hash, the victim goes round. */
static u32 task_slot(struct rec_writer *w, struct buf *out, const struct trace_record *r)
{
	struct trace_record key = { .pid = r->pid, .tgid = r->tgid };
	u64 word[2];
	u32 base, slot;

	/* strncpy's padding with zeros is wanted: names compare by all their bytes */
	memcpy(key.comm, r->comm, strnlen(r->comm, TRACE_COMM_LEN));
	if (same_task(&w->tasks[w->last_task], &key))
		return w->last_task;
	memcpy(word, key.comm, sizeof(word));
	base = (u32)(((word[0] ^ word[1] ^ key.pid) * 0x9e3779b97f4a7c15) >> 40) %
	       (REC_TASK_SLOTS / TASK_WAYS) * TASK_WAYS;
	for (slot = base; slot < base + TASK_WAYS; slot++) {
		if (same_task(&w->tasks[slot], &key))
			return w->last_task = slot;
	}
	for (slot = base; slot < base + TASK_WAYS && w->tasks[slot].used; slot++)
		;
	if (slot == base + TASK_WAYS)
		slot = base + w->victim++ % TASK_WAYS;
	w->tasks[slot] = (struct task){ .pid = key.pid, .tgid = key.tgid, .used = true };
	memcpy(w->tasks[slot].comm, key.comm, TRACE_COMM_LEN);
	define_task(w, out, slot);
	return w->last_task = slot;
}

static u8 *put_name(u8 *p, const char *name)
{
	u16 len = (u16)strnlen(name, REC_VAL_NAME);

	memcpy(p, &len, 2);
	memcpy(p + 2, name, len);
	return p + 2 + len;
}

static u8 *put_val(u8 *p, const struct kernel_val *v)
{
	*p++ = (u8)v->kind;
	*p++ = v->size;
	*p++ = v->reg;
	return put_name(put_name(p, v->name), v->type);
}

#define VAL_MAX (3 + 2 * (2 + REC_VAL_NAME))

/* The prototype of the function that is symbol @id, if there is one and it is not defined yet. */
static void define_proto(struct rec_writer *w, struct buf *out, u32 id, u64 ip,
			 const struct output_names *names)
{
	size_t h = (ip * 0x9e3779b97f4a7c15) >> 32 & (w->seen_slots - 1);
	struct kernel_func f;
	u8 *p, *start;
	bool is_new;

	while (w->seen[h].id_plus_1 && w->seen[h].addr != ip)
		h = (h + 1) & (w->seen_slots - 1);
	if (w->seen[h].proto || !names->func)
		return;
	w->seen[h].proto = true;
	if (!names->func(names->arg, ip, &f))
		return;
	start = p = chunk_open(w, out, REC_CHUNK_PROTO,
			       REC_VARINT_MAX + 2 + (1 + (size_t)f.n_params) * VAL_MAX, &is_new);
	if (!p)
		return;
	f.ret.name = "";
	p = put_varint(p, id);
	*p++ = f.n_regs;
	*p++ = f.n_params;
	p = put_val(p, &f.ret);
	for (u32 i = 0; i < f.n_params; i++)
		p = put_val(p, &f.params[i]);
	chunk_seal(w, out, start, p);
}

static bool stacks_grow(struct rec_writer *w)
{
	size_t slots = w->stack_slots ? w->stack_slots * 2 : SEEN_MIN;
	struct seen_stack *bigger = calloc(slots, sizeof(*bigger));

	if (!bigger)
		return false;
	for (size_t i = 0; i < w->stack_slots; i++) {
		size_t h = ((uintptr_t)w->stacks[i].stack * 0x9e3779b97f4a7c15) >> 32;

		if (!w->stacks[i].stack)
			continue;
		while (bigger[h & (slots - 1)].stack)
			h++;
		bigger[h & (slots - 1)] = w->stacks[i];
	}
	free(w->stacks);
	w->stacks = bigger;
	w->stack_slots = slots;
	return true;
}

static void define_stack(struct rec_writer *w, struct buf *out, const struct trace_stack *s,
			 const struct output_names *names)
{
	u8 n = (u8)MIN(s->n, (u32)UINT8_MAX), *p, *start;
	u32 sym[UINT8_MAX];
	bool is_new;

	for (u32 i = 0; i < n; i++)
		sym[i] = sym_id(w, out, trace_stack_addr(s, i) - 1, names);
	start = p = chunk_open(w, out, REC_CHUNK_STACK, 1 + (size_t)n * REC_VARINT_MAX, &is_new);
	if (!p)
		return;
	*p++ = n;
	for (u32 i = 0; i < n; i++)
		p = put_varint(p, sym[i]);
	chunk_seal(w, out, start, p);
}

/* The number of @s, defined if need be. */
static u32 stack_id(struct rec_writer *w, struct buf *out, const struct trace_stack *s,
		    const struct output_names *names)
{
	size_t h = ((uintptr_t)s * 0x9e3779b97f4a7c15) >> 32, mask;

	if (w->n_stacks >= w->stack_slots / 2 && !stacks_grow(w)) {
		out->failed = true;
		return 0;
	}
	mask = w->stack_slots - 1;
	while (w->stacks[h & mask].stack && w->stacks[h & mask].stack != s)
		h++;
	if (!w->stacks[h & mask].stack) {
		w->stacks[h & mask] = (struct seen_stack){ s, (u32)w->n_stacks++ };
		define_stack(w, out, s, names);
	}
	return w->stacks[h & mask].id;
}

/* What a record needs of the definitions. */
struct rec_refs {
	u32 task, ip, parent, stack;
};

static u8 *put_changes(u8 *p, struct rec_state *s, const struct trace_record *r, u32 task, u8 more)
{
	u8 *flags = p++, f = (u8)(r->type << REC_TYPE_SHIFT);

	if (r->seq != s->seq + 1) {
		f |= REC_F_SEQ;
		p = put_varint(p, r->seq - s->seq);
	}
	if (r->cpu != s->cpu) {
		f |= REC_F_CPU;
		p = put_varint(p, r->cpu);
	}
	if (task != s->task) {
		f |= REC_F_TASK;
		p = put_varint(p, task);
	}
	if (r->ctx != s->ctx) {
		f |= REC_F_CTX;
		p = put_varint(p, r->ctx);
	}
	if (more)
		f |= REC_F_MORE;
	*flags = f;
	p = put_varint(p, zigzag((s64)(r->ts_ns - s->ts_ns)));
	*s = (struct rec_state){ r->seq, r->ts_ns, r->cpu, task, r->ctx };
	return p;
}

static bool has_function(const struct trace_record *r)
{
	return r->type != TRACE_SWITCH && r->type != TRACE_TRACER;
}

static u8 n_words(const struct trace_record *r)
{
	if (!has_function(r))
		return 0;
	return r->type == TRACE_GRAPH_RETURN ? r->has_retval : (u8)MIN(r->n_args, TRACE_MAX_ARGS);
}

static u8 *put_call(u8 *p, const struct trace_record *r, const struct rec_refs *refs, u8 more)
{
	const u64 *word = r->type == TRACE_GRAPH_RETURN ? &r->retval : r->args;

	if (more)
		*p++ = more;
	p = put_varint(p, refs->ip);
	if (r->type != TRACE_GRAPH_RETURN)
		p = put_varint(p, refs->parent);
	if (r->type != TRACE_FUNCTION || (more & REC_M_DEPTH))
		p = put_varint(p, r->depth);
	if (r->type == TRACE_GRAPH_RETURN)
		p = put_varint(p, r->duration_ns);
	if (more & REC_M_WORDS) {
		*p++ = n_words(r);
		for (u32 i = 0; i < n_words(r); i++)
			p = put_varint(p, word[i]);
	}
	return more & REC_M_STACK ? put_varint(p, refs->stack) : p;
}

static u8 *put_record(u8 *p, struct rec_state *s, const struct trace_record *r,
		      const struct rec_refs *refs, bool stack)
{
	u8 more = (n_words(r) ? REC_M_WORDS : 0) | (stack ? REC_M_STACK : 0);

	if (r->type == TRACE_FUNCTION && r->depth)
		more |= REC_M_DEPTH;
	p = put_changes(p, s, r, refs->task, more);
	if (r->type == TRACE_SWITCH)
		return put_varint(p, r->prev_pid);
	if (r->type == TRACE_TRACER)
		return put_varint(p, r->depth);
	return put_call(p, r, refs, more);
}

void rec_writer_add(struct rec_writer *w, struct buf *out, const struct trace_record *r,
		    const struct output_names *names)
{
	struct rec_refs refs = { .task = task_slot(w, out, r) };
	bool stack = w->meta.stacks && r->stack && has_function(r);
	u8 *start, *p;
	bool is_new;

	if (has_function(r))
		refs.ip = sym_id(w, out, r->ip, names);
	if (has_function(r) && r->type != TRACE_GRAPH_RETURN)
		refs.parent = sym_id(w, out, r->parent, names);
	if (n_words(r))
		define_proto(w, out, refs.ip, r->ip, names);
	if (stack)
		refs.stack = stack_id(w, out, r->stack, names);
	start = p = chunk_open(w, out, REC_CHUNK_RECORDS, 18 + REC_RECORD_MAX, &is_new);
	if (!p)
		return;
	if (is_new) {
		w->prev = (struct rec_state){ .seq = r->seq - 1, .ts_ns = r->ts_ns };
		p = put_varint(p, r->seq);
		memcpy(p, &r->ts_ns, 8);
		p += 8;
	}
	p = put_record(p, &w->prev, r, &refs, stack);
	w->last_seq = r->seq;
	chunk_seal(w, out, start, p);
}

static void add_json_chunk(struct rec_writer *w, struct buf *out, u8 type, json_t *obj)
{
	char *text = obj ? json_dumps(obj, JSON_COMPACT) : NULL;

	if (text)
		chunk_whole(w, out, type, text, strlen(text));
	else
		out->failed = true;
	free(text);
	json_decref(obj);
}

/* The guest's release and target as UTF-8, whatever they hold: jansson refuses anything else. */
static json_t *clean_string(const char *s, size_t max)
{
	struct buf b = { 0 };
	json_t *ret = NULL;

	out_json_string(&b, s, strnlen(s, max));
	if (!buf_failed(&b))
		ret = json_loads(b.data, JSON_DECODE_ANY, NULL);
	buf_deinit(&b);
	return ret;
}

void rec_writer_head(struct rec_writer *w, struct buf *out)
{
	const struct output_meta *m = &w->meta;
	u32 head[2] = { m->stacks ? REC_VERSION : REC_VERSION_3, 0 };

	buf_add(out, REC_MAGIC, REC_MAGIC_BYTES);
	buf_add(out, head, sizeof(head));
	add_json_chunk(w, out, REC_CHUNK_META,
		       json_pack("{s:s, s:o, s:o, s:o, s:I, s:I, s:b, s:b}", "writer",
				 "hvftrace " HVF_VERSION, "tracer",
				 clean_string(m->tracer, sizeof(m->tracer)), "guest",
				 clean_string(m->guest, sizeof(m->guest)), "release",
				 clean_string(m->release, sizeof(m->release)), "vcpus",
				 (json_int_t)m->vcpus, "started_ns", (json_int_t)m->started_ns,
				 "args", (int)m->args, "stacks", (int)m->stacks));
}

void rec_writer_lost(struct rec_writer *w, struct buf *out, u64 count)
{
	u64 payload[2] = { count, w->last_seq };

	chunk_whole(w, out, REC_CHUNK_LOST, payload, sizeof(payload));
}

void rec_writer_end(struct rec_writer *w, struct buf *out, const struct output_meta *meta)
{
	add_json_chunk(w, out, REC_CHUNK_END,
		       json_pack("{s:I, s:I, s:I, s:I, s:b}", "records",
				 (json_int_t)meta->n_records, "lost", (json_int_t)meta->n_lost,
				 "functions", (json_int_t)meta->n_functions, "functions_restored",
				 (json_int_t)meta->n_restored, "restored", (int)meta->restored));
}
