// SPDX-License-Identifier: Apache-2.0
/*
 * The recording reader. A recording is hostile input: every length, number and reference is checked,
 * and memory grows with what the file holds, never with what it claims. See rec_format.h.
 */
#include "tracers/addr_hash.h"
#include "tracers/rec_priv.h"
#include "tracers/rec_store.h"
#include "tracers/rec_varint.h"

#include "base/cleanup.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum {
	SRC_ALL,
	SRC_END,
	SRC_PARTIAL
};

static must_check int bad(const struct rec_reader *r, struct err *err, const char *what)
{
	return err_set(err, -EBADMSG, ERR_FILE_FORMAT, 0, "recording damaged at byte %llu: %s",
		       (unsigned long long)r->offset, what);
}

/* @len bytes; SRC_END: not one was left, SRC_PARTIAL: some. Negative errno: the read failed. */
static int source_read(struct rec_reader *r, void *buf, size_t len, struct err *err)
{
	ssize_t n;
	size_t got;

	if (r->blocks) {
		n = rec_blocks_read(r->blocks, buf, len, err);
		if (n < 0)
			return (int)n;
		return (size_t)n == len ? SRC_ALL : n ? SRC_PARTIAL : SRC_END;
	}
	if (!r->file) {
		if (cursor_bytes(&r->mem, buf, len))
			return SRC_ALL;
		return cursor_left(&r->mem) ? SRC_PARTIAL : SRC_END;
	}
	got = fread(buf, 1, len, r->file);
	if (got == len)
		return SRC_ALL;
	if (ferror(r->file))
		return err_set(err, -EIO, ERR_IO, 0, "cannot read the recording");
	return got ? SRC_PARTIAL : SRC_END;
}

/* Grows in steps, so that a cut file that claims a long chunk does not make us allocate it. */
static int read_payload(struct rec_reader *r, size_t len, struct err *err)
{
	size_t got = 0, step;
	int rc = SRC_ALL;
	u8 *p;

	while (got < len) {
		step = MIN(len - got, (size_t)REC_CHUNK_FULL);
		if (r->payload_cap < got + step) {
			p = realloc(r->payload, got + step);
			if (!p)
				return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0,
					       "no memory for a chunk");
			r->payload = p;
			r->payload_cap = got + step;
		}
		rc = source_read(r, r->payload + got, step, err);
		if (rc)
			return rc;
		got += step;
	}
	return rc;
}

/*
 * The next chunk, checked. Return: 0; SRC_END or SRC_PARTIAL: the file stops; negative errno.
 * A file that kill -9 or a full disk cut stops in the middle of a chunk: that is not damage.
 */
static int next_chunk(struct rec_reader *r, struct err *err)
{
	u8 head[REC_CHUNK_HEAD], tail[REC_CHUNK_TAIL];
	u32 len, crc;
	int rc;

	rc = source_read(r, head, sizeof(head), err);
	if (rc)
		return rc;
	memcpy(&len, head + 1, sizeof(len));
	if (len > REC_CHUNK_MAX)
		return bad(r, err, "a chunk longer than any may be");
	rc = read_payload(r, len, err);
	if (!rc)
		rc = source_read(r, tail, sizeof(tail), err);
	if (rc)
		return rc < 0 ? rc : SRC_PARTIAL;
	memcpy(&crc, tail, sizeof(crc));
	if (crc != rec_crc32(rec_crc32(0, head, 1), r->payload, len))
		return bad(r, err, "a chunk's checksum is wrong");
	r->type = head[0];
	r->cur = cursor_init(r->payload, len);
	r->offset += sizeof(head) + len + sizeof(tail);
	return 0;
}

static int read_all(struct rec_reader *r, int (*one)(struct rec_reader *r), struct err *err)
{
	int rc = 0;

	while (!rc && cursor_left(&r->cur)) {
		if (one != rec_read_task) /* which have their slots */
			r->kept += REC_KEPT_DEF;
		if (r->kept > REC_KEPT_MAX)
			return bad(r, err, "it defines more than a trace can have");
		rc = one(r);
	}
	if (rc == -ENOMEM)
		return err_set(err, rc, ERR_NO_MEMORY, 0, "no memory for the recording's names");
	return rc ? bad(r, err, "a definition does not make sense") : 0;
}

static void copy_string(json_t *obj, const char *key, char *ret, size_t size)
{
	const char *s = json_string_value(json_object_get(obj, key));

	if (s)
		strncat(ret, s, size - 1); /* @ret is empty */
}

static u64 get_u64(json_t *obj, const char *key)
{
	return (u64)json_integer_value(json_object_get(obj, key));
}

static int read_meta(struct rec_reader *r, struct err *err)
{
	json_t *obj = json_loadb((const char *)r->payload, r->cur.len, 0, NULL);
	struct output_meta *m = &r->meta;

	if (!json_is_object(obj)) {
		json_decref(obj);
		return bad(r, err, "its metadata is not a JSON object");
	}
	if (r->type == REC_CHUNK_META) {
		copy_string(obj, "tracer", m->tracer, sizeof(m->tracer));
		copy_string(obj, "guest", m->guest, sizeof(m->guest));
		copy_string(obj, "release", m->release, sizeof(m->release));
		m->vcpus = (u32)get_u64(obj, "vcpus");
		m->started_ns = get_u64(obj, "started_ns");
		m->args = json_is_true(json_object_get(obj, "args"));
		m->stacks = json_is_true(json_object_get(obj, "stacks"));
	} else {
		m->n_records = get_u64(obj, "records");
		m->n_lost = get_u64(obj, "lost");
		m->n_functions = get_u64(obj, "functions");
		m->n_restored = get_u64(obj, "functions_restored");
		m->restored = json_is_true(json_object_get(obj, "restored"));
		m->missed_forks = json_is_true(json_object_get(obj, "missed_forks"));
		m->missed_switches = json_is_true(json_object_get(obj, "missed_switches"));
		m->boot_ns = get_u64(obj, "boot_ns");
		m->zero_mono_ns = (s64)get_u64(obj, "zero_mono_ns");
		m->n_unnamed = get_u64(obj, "unnamed");
	}
	json_decref(obj);
	r->cur.pos = r->cur.len;
	return 0;
}

static int records_begin(struct rec_reader *r, struct err *err)
{
	u64 seq;

	r->prev = (struct trace_record){ 0 };
	r->prev_task = 0;
	if (!get_varint(&r->cur, &seq) || !cursor_u64(&r->cur, &r->prev.ts_ns))
		return bad(r, err, "a chunk of records without a beginning");
	r->prev.seq = seq - 1;
	return 0;
}

static bool read_changes(struct rec_reader *r, u8 flags)
{
	struct trace_record *p = &r->prev;
	u64 v = 1;

	if ((flags & REC_F_SEQ) && !get_varint(&r->cur, &v))
		return false;
	p->seq += v;
	if (flags & REC_F_CPU) {
		if (!get_varint_max(&r->cur, UINT16_MAX, &v))
			return false;
		p->cpu = (u16)v;
	}
	if (flags & REC_F_TASK) {
		if (!get_varint_max(&r->cur, REC_TASK_SLOTS - 1, &v))
			return false;
		r->prev_task = (u32)v;
	}
	if (flags & REC_F_CTX) {
		if (!get_varint_max(&r->cur, UINT16_MAX, &v))
			return false;
		p->ctx = (u16)v;
	}
	return true;
}

/* The address of a symbol by its number. */
static bool read_address(struct rec_reader *r, u64 *ret)
{
	u64 i;

	if (!get_varint_max(&r->cur, UINT32_MAX, &i) || i >= r->n_syms)
		return false;
	*ret = r->syms[i].addr;
	if (r->redefined)
		rec_use_sym(r, (u32)i);
	return true;
}

/* Versions 1 and 2, from the parent on: what is there depends on the type. */
static bool read_old_call(struct rec_reader *r)
{
	struct trace_record *p = &r->prev;
	bool is_return = r->version > REC_VERSION_1 && p->type == TRACE_GRAPH_RETURN;
	u64 depth = 0;

	if (!read_address(r, &p->ip))
		return false;
	if (r->version > REC_VERSION_1 && (!p->type || p->type > TRACE_GRAPH_NEVER))
		return false;
	if (!is_return && !read_address(r, &p->parent))
		return false;
	if (r->version > REC_VERSION_1 && !get_varint_max(&r->cur, UINT16_MAX, &depth))
		return false;
	p->depth = (u16)depth;
	return !is_return || get_varint(&r->cur, &p->duration_ns);
}

static bool read_words(struct rec_reader *r)
{
	struct trace_record *p = &r->prev;
	u8 n;

	if (!cursor_u8(&r->cur, &n) || !n || n > TRACE_MAX_ARGS)
		return false;
	if (p->type == TRACE_GRAPH_RETURN) {
		p->has_retval = true;
		return n == 1 && get_varint(&r->cur, &p->retval);
	}
	for (p->n_args = 0; p->n_args < n; p->n_args++) {
		if (!get_varint(&r->cur, &p->args[p->n_args]))
			return false;
	}
	return true;
}

static bool read_stack(struct rec_reader *r)
{
	u64 i;

	if (!get_varint_max(&r->cur, UINT32_MAX, &i) || i >= r->n_stacks)
		return false;
	r->prev.stack = r->stacks[i];
	return true;
}

static bool read_new_call(struct rec_reader *r, u8 flags)
{
	const u32 known =
		REC_M_WORDS | REC_M_DEPTH | (r->version > REC_VERSION_3 ? REC_M_STACK : 0u);
	struct trace_record *p = &r->prev;
	u64 depth = 0;
	u8 more = 0;

	if ((flags & REC_F_MORE) && (!cursor_u8(&r->cur, &more) || !more || (more & ~known)))
		return false;
	if (!read_address(r, &p->ip) ||
	    (p->type != TRACE_GRAPH_RETURN && !read_address(r, &p->parent)))
		return false;
	if ((more & REC_M_DEPTH) && p->type != TRACE_FUNCTION)
		return false;
	if ((p->type != TRACE_FUNCTION || (more & REC_M_DEPTH)) &&
	    !get_varint_max(&r->cur, UINT16_MAX, &depth))
		return false;
	p->depth = (u16)depth;
	if (p->type == TRACE_GRAPH_RETURN && !get_varint(&r->cur, &p->duration_ns))
		return false;
	if ((more & REC_M_WORDS) && !read_words(r))
		return false;
	return !(more & REC_M_STACK) || read_stack(r);
}

/* It stays until the reader is closed: who looks ahead has several. */
static bool read_text(struct rec_reader *r)
{
	struct rec_text *t;
	u8 len;

	if (!cursor_u8(&r->cur, &len) || !len || cursor_left(&r->cur) < len)
		return false;
	r->kept += REC_KEPT_DEF + len;
	if (r->kept > REC_KEPT_MAX)
		return false;
	t = calloc(1, sizeof(*t) + len + 1);
	if (!t)
		return false;
	t->next = r->texts;
	r->texts = t;
	r->prev.text = t->text;
	return cursor_bytes(&r->cur, t->text, len);
}

/* What follows the time. */
static bool read_body(struct rec_reader *r, u8 flags)
{
	struct trace_record *p = &r->prev;
	u64 v;

	if (r->version < REC_VERSION_3)
		return !(flags & REC_F_MORE) && read_old_call(r);
	switch (p->type) {
	case TRACE_FUNCTION:
	case TRACE_GRAPH_ENTRY:
	case TRACE_GRAPH_RETURN:
	case TRACE_GRAPH_NEVER:
	case TRACE_SYSCALL:
		return read_new_call(r, flags);
	case TRACE_SWITCH:
		if ((flags & REC_F_MORE) || !get_varint_max(&r->cur, UINT32_MAX, &v))
			return false;
		p->prev_pid = (u32)v;
		return true;
	case TRACE_TRACER:
		if ((flags & REC_F_MORE) || !get_varint_max(&r->cur, 1, &v))
			return false;
		p->depth = (u16)v;
		return true;
	case TRACE_MARKER:
		return !(flags & REC_F_MORE) && read_text(r);
	default:
		return false;
	}
}

/* All that is not taken over from the record before. */
static void clear_body(struct trace_record *p)
{
	p->ip = p->parent = p->duration_ns = p->retval = 0;
	p->prev_pid = 0;
	p->text = NULL;
	p->depth = 0;
	p->has_retval = false;
	p->n_args = 0;
	p->stack = NULL;
	memset(p->args, 0, sizeof(p->args));
}

static int read_record(struct rec_reader *r, struct trace_record *rec, struct err *err)
{
	const struct rec_task *t;
	u8 flags = 0;
	u64 ts;
	bool ok;

	clear_body(&r->prev);
	ok = cursor_u8(&r->cur, &flags) && read_changes(r, flags) && get_varint(&r->cur, &ts);
	r->prev.type = flags >> REC_TYPE_SHIFT;
	if (r->version >= REC_VERSION_3 && r->prev.type == REC_TYPE_MARKER)
		r->prev.type = TRACE_MARKER;
	if (!ok || !read_body(r, flags))
		return bad(r, err, "a record does not make sense");
	t = &r->tasks[r->prev_task];
	r->prev.ts_ns += (ts >> 1) ^ (0 - (ts & 1));
	r->prev.pid = t->pid;
	r->prev.tgid = t->tgid;
	memcpy(r->prev.comm, t->comm, sizeof(t->comm));
	*rec = r->prev;
	return 0;
}

static int read_lost(struct rec_reader *r, struct trace_record *rec, struct err *err)
{
	u64 count, after;

	if (!cursor_u64(&r->cur, &count) || !cursor_u64(&r->cur, &after) || cursor_left(&r->cur))
		return bad(r, err, "a count of lost records does not make sense");
	*rec = (struct trace_record){ .seq = count };
	return 0;
}

/* What a new chunk means; true in @item_ret: *kind_ret (and @rec) is the next item. */
static int begin_chunk(struct rec_reader *r, enum rec_kind *kind_ret, struct trace_record *rec,
		       bool *item_ret, struct err *err)
{
	int rc;

	switch (r->type) {
	case REC_CHUNK_SYM:
		return read_all(r, rec_read_sym, err);
	case REC_CHUNK_TASK:
		return read_all(r, rec_read_task, err);
	case REC_CHUNK_PROTO:
		return read_all(r, rec_read_proto, err);
	case REC_CHUNK_ENUM:
		return read_all(r, rec_read_enum, err);
	case REC_CHUNK_STACK:
		return read_all(r, rec_read_stack, err);
	case REC_CHUNK_RECORDS:
		return records_begin(r, err);
	case REC_CHUNK_LOST:
		*kind_ret = REC_LOST;
		*item_ret = true;
		return read_lost(r, rec, err);
	case REC_CHUNK_END:
		rc = read_meta(r, err);
		r->ended = !rc;
		return rc;
	case REC_CHUNK_META:
		return bad(r, err, "a second chunk of metadata");
	default: /* of a later minor format: its checksum was right, go on */
		r->cur.pos = r->cur.len;
		return 0;
	}
}

static int next_item(struct rec_reader *r, enum rec_kind *kind_ret, struct trace_record *rec,
		     struct err *err)
{
	bool item = false;
	int rc;

	while (!r->ended) {
		if (r->type == REC_CHUNK_RECORDS && cursor_left(&r->cur)) {
			*kind_ret = REC_RECORD;
			return read_record(r, rec, err);
		}
		r->type = 0;
		rc = next_chunk(r, err);
		if (rc > 0) {
			*kind_ret = REC_CUT;
			return 0;
		}
		if (!rc)
			rc = begin_chunk(r, kind_ret, rec, &item, err);
		if (rc || item)
			return rc;
	}
	*kind_ret = REC_END;
	return 0;
}

int rec_reader_next(struct rec_reader *r, enum rec_kind *kind_ret, struct trace_record *rec,
		    struct err *err)
{
	int rc;

	if (r->damaged)
		return bad(r, err, "it was found damaged before");
	rc = next_item(r, kind_ret, rec, err);
	r->damaged = rc < 0;
	return rc;
}

int rec_reader_totals(struct rec_reader *r, struct err *err)
{
	struct trace_record rec;
	enum rec_kind kind;
	int rc = r->blocks ? rec_blocks_to_last(r->blocks, err) : 0;

	if (rc <= 0)
		return rc;
	rc = rec_reader_next(r, &kind, &rec, err);
	return rc ? rc : kind == REC_END;
}

const struct output_meta *rec_reader_meta(const struct rec_reader *r)
{
	return &r->meta;
}

static void reader_closep(struct rec_reader **r)
{
	rec_reader_close(*r);
}

/* A recording in blocks: from here on it is read through them. */
static int open_blocks(struct rec_reader *r, const u8 *head, struct err *err)
{
	u32 version;

	memcpy(&version, head + 8, sizeof(version));
	if (version != STORE_VERSION)
		return err_set(err, -EBADMSG, ERR_FILE_FORMAT, 0,
			       "recording in blocks of version %u; this program reads version %u",
			       version, STORE_VERSION);
	r->blocks = rec_blocks_open(r->file);
	return r->blocks ? 0 : err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a recording");
}

static int read_head(struct rec_reader *r, struct err *err)
{
	u8 head[REC_HEAD_BYTES];
	int rc;

	rc = source_read(r, head, sizeof(head), err);
	if (!rc && r->file && !memcmp(head, STORE_MAGIC, 8)) {
		rc = open_blocks(r, head, err);
		if (!rc)
			rc = source_read(r, head, sizeof(head), err);
	}
	if (rc < 0)
		return rc;
	if (rc || memcmp(head, REC_MAGIC, REC_MAGIC_BYTES) != 0)
		return err_set(err, -EBADMSG, ERR_FILE_FORMAT, 0, "not a recording of hvftrace");
	memcpy(&r->version, head + REC_MAGIC_BYTES, sizeof(r->version));
	if (r->version < REC_VERSION_1 || r->version > REC_VERSION)
		return err_set(err, -EBADMSG, ERR_FILE_FORMAT, 0,
			       "recording of format version %u; this program reads versions %u "
			       "to %u",
			       r->version, REC_VERSION_1, REC_VERSION);
	r->offset = sizeof(head);
	rc = next_chunk(r, err);
	if (rc < 0)
		return rc;
	if (rc)
		return err_set(err, -EBADMSG, ERR_FILE_FORMAT, 0,
			       "the recording was cut before its metadata");
	if (r->type != REC_CHUNK_META)
		return bad(r, err, "it does not begin with its metadata");
	return read_meta(r, err);
}

/* Takes over @file, also when it fails. */
static int reader_open(FILE *file, struct cursor mem, struct rec_reader **ret, struct err *err)
{
	_cleanup_fclose_ FILE *owned = file;
	_cleanup_(reader_closep) struct rec_reader *r = calloc(1, sizeof(*r));
	int rc;

	if (r)
		r->tasks = calloc(REC_TASK_SLOTS, sizeof(*r->tasks));
	if (!r || !r->tasks)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a recording");
	r->key = addr_hash_key();
	r->file = no_cleanup_ptr(owned);
	r->mem = mem;
	rc = read_head(r, err);
	if (rc)
		return rc;
	*ret = no_cleanup_ptr(r);
	return 0;
}

int rec_reader_open(const char *path, struct rec_reader **ret, struct err *err)
{
	FILE *file = fopen(path, "rbe");
	int no = errno;

	if (!file)
		return err_set(err, -no, no == ENOENT ? ERR_NOT_FOUND : ERR_IO, 0,
			       "cannot open %s: %s", path, strerrordesc_np(no));
	return reader_open(file, cursor_init(NULL, 0), ret, err);
}

int rec_reader_open_file(FILE *file, struct rec_reader **ret, struct err *err)
{
	return reader_open(file, cursor_init(NULL, 0), ret, err);
}

int rec_reader_open_mem(const void *data, size_t len, struct rec_reader **ret, struct err *err)
{
	return reader_open(NULL, cursor_init(data, len), ret, err);
}

void rec_reader_close(struct rec_reader *r)
{
	if (!r)
		return;
	rec_blocks_close(r->blocks);
	if (r->file)
		(void)fclose(r->file);
	while (r->texts) {
		struct rec_text *next = r->texts->next;

		free(r->texts);
		r->texts = next;
	}
	rec_defs_deinit(r);
	free(r->payload);
	free(r);
}
