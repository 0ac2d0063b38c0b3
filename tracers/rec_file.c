// SPDX-License-Identifier: Apache-2.0
/*
 * The recording writer. Memory: the set of addresses already defined, at most OUTPUT_ADDRS_MAX, and a fixed table of tasks. The chunk under way lies in the caller's buffer, without a length
 * and a checksum until it ends: a sum over a few bytes at a time takes longer than all else. See rec_format.h.
 */
#include "tracers/addr_hash.h"
#include "tracers/rec_varint.h"
#include "tracers/rec_writer_priv.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

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
	w->key = addr_hash_key();
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
	free(w->enums);
	free(w->tasks);
	free(w);
}

/* The chunk under way, if there is one, gets its length and its checksum, and ends. */
void rec_writer_whole(struct rec_writer *w, struct buf *out)
{
	bool open = w->open_type && out->data && out->len == w->open_end;
	u8 *start, *end;

	w->open_type = 0;
	if (!open || !buf_reserve(out, REC_CHUNK_TAIL))
		return;
	start = (u8 *)out->data + w->open_start;
	end = (u8 *)out->data + w->open_end;
	put_u32(start + 1, (u32)(end - start - REC_CHUNK_HEAD));
	put_u32(end, rec_crc32(rec_crc32(0, start, 1), start + REC_CHUNK_HEAD,
			       (size_t)(end - start - REC_CHUNK_HEAD)));
	end[REC_CHUNK_TAIL] = 0;
	out->len += REC_CHUNK_TAIL;
}

/*
 * Room for @max more payload bytes in a chunk of @type: the chunk under way, if it is of that type,
 * still at the end of @out and not full; else a new, empty one. NULL: no memory (@out remembers).
 */
u8 *rec_chunk_open(struct rec_writer *w, struct buf *out, u8 type, size_t max, bool *new_ret)
{
	bool go_on = w->open_type == type && out->len == w->open_end && out->data &&
		     w->open_end - w->open_start < REC_CHUNK_FULL;
	u8 *p;

	*new_ret = !go_on;
	if (go_on)
		return (u8 *)buf_reserve(out, max + REC_CHUNK_TAIL);
	rec_writer_whole(w, out);
	p = (u8 *)buf_reserve(out, REC_CHUNK_HEAD + max + REC_CHUNK_TAIL);
	if (!p)
		return NULL;
	*p = type;
	w->open_type = type;
	w->open_start = out->len;
	rec_chunk_grow(w, out, p + REC_CHUNK_HEAD);
	return p + REC_CHUNK_HEAD;
}

void rec_chunk_grow(struct rec_writer *w, struct buf *out, u8 *end)
{
	*end = 0;
	w->open_end = out->len = (size_t)(end - (u8 *)out->data);
}

static void chunk_whole(struct rec_writer *w, struct buf *out, u8 type, const void *data,
			size_t len)
{
	bool is_new;
	u8 *p;

	rec_writer_whole(w, out);
	p = rec_chunk_open(w, out, type, len, &is_new);
	if (!p)
		return;
	memcpy(p, data, len);
	rec_chunk_grow(w, out, p + len);
	rec_writer_whole(w, out);
}

/* What a record needs of the definitions. */
struct rec_refs {
	u32 task, ip, parent, stack;
};

static u8 *put_changes(u8 *p, struct rec_state *s, const struct trace_record *r, u32 task, u8 more)
{
	u8 *flags = p++,
	   f = (u8)(r->type == TRACE_MARKER ? REC_TYPE_MARKER : r->type << REC_TYPE_SHIFT);

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
	return r->type != TRACE_SWITCH && r->type != TRACE_TRACER && r->type != TRACE_MARKER;
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

static u8 *put_text(u8 *p, const char *text)
{
	u8 len = (u8)strnlen(text, TRACE_MARKER_MAX);

	*p++ = len;
	memcpy(p, text, len);
	return p + len;
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
	if (r->type == TRACE_MARKER)
		return put_text(p, r->text);
	return put_call(p, r, refs, more);
}

/* Arguments that are functions, an initcall for one: whoever reads the recording can name them. */
static void define_functions(struct rec_writer *w, struct buf *out, const struct trace_record *r,
			     const struct output_names *names)
{
	for (u32 i = 0; i < r->n_args; i++) {
		struct kernel_sym sym;
		u64 off;

		/* the kernel's image and modules alone: few words get as far as a look-up */
		if (r->args[i] >> 31 == ~0ull >> 31 &&
		    names->sym(names->arg, r->args[i], &sym, &off) && !off &&
		    (sym.type | 0x20) == 't')
			rec_sym_id(w, out, r->args[i], names);
	}
}

void rec_writer_add(struct rec_writer *w, struct buf *out, const struct trace_record *r,
		    const struct output_names *names)
{
	struct rec_refs refs = { .task = rec_task_slot(w, out, r) };
	bool stack = w->meta.stacks && r->stack && has_function(r);
	bool is_new;
	u8 *p;

	if (has_function(r))
		refs.ip = rec_sym_id(w, out, r->ip, names);
	if (has_function(r) && r->type != TRACE_GRAPH_RETURN)
		refs.parent = rec_sym_id(w, out, r->parent, names);
	if (n_words(r))
		rec_define_proto(w, out, refs.ip, r->ip, names);
	if (n_words(r))
		rec_define_enums(w, out, refs.ip, r, names);
	define_functions(w, out, r, names);
	if (stack)
		refs.stack = rec_stack_id(w, out, r->stack, names);
	p = rec_chunk_open(w, out, REC_CHUNK_RECORDS, 18 + REC_RECORD_MAX, &is_new);
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
	rec_chunk_grow(w, out, p);
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
		       json_pack("{s:I, s:I, s:I, s:I, s:b, s:b, s:b, s:I, s:I, s:I}", "records",
				 (json_int_t)meta->n_records, "lost", (json_int_t)meta->n_lost,
				 "functions", (json_int_t)meta->n_functions, "functions_restored",
				 (json_int_t)meta->n_restored, "restored", (int)meta->restored,
				 "missed_forks", (int)meta->missed_forks, "missed_switches",
				 (int)meta->missed_switches, "boot_ns", (json_int_t)meta->boot_ns,
				 "zero_mono_ns", (json_int_t)meta->zero_mono_ns, "unnamed",
				 (json_int_t)w->n_shared));
}
