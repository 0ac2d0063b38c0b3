// SPDX-License-Identifier: Apache-2.0
/*
 * Recordings. The input is (1) a file as it is, (2) chunks whose checksums are put right first, so that
 * what lies behind them is reached, and (3) records to write: what is written must come back.
 */
#include "tests/unit/test_tracers_file.h"

#include "base/cursor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(cond)                                                                 \
	do {                                                                       \
		if (!(cond)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
			abort();                                                   \
		}                                                                  \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_everything(const void *data, size_t len)
{
	static const struct output_meta graph = { .tracer = "function_graph", .vcpus = 2 };
	static const struct out_layout_opts opts = { true, true, true, true, true };
	struct out_layout *layout;
	struct output_names names;
	struct trace_record rec;
	struct rec_reader *r;
	struct buf b = { 0 };
	enum rec_kind kind;
	size_t n = 0;

	if (rec_reader_open_mem(data, len, &r, NULL))
		return;
	MUST(!out_layout_create(&graph, &layout, NULL));
	if (len % 2)
		out_layout_set(layout, &opts);
	names = rec_reader_names(r);
	while (!rec_reader_next(r, &kind, &rec, NULL) && (kind == REC_RECORD || kind == REC_LOST)) {
		MUST(n++ <= len); /* an item takes a byte at least */
		if (kind == REC_LOST)
			continue;
		MUST(rec.n_args <= TRACE_MAX_ARGS);
		MUST(strnlen(rec.comm, sizeof(rec.comm)) <= TRACE_COMM_LEN);
		buf_reset(&b);
		out_text_record(&b, &rec, &names);
		out_json_record(&b, &rec, &names);
		out_layout_record(layout, &b, &rec, &names);
		MUST(!buf_failed(&b));
	}
	out_layout_flush(layout, &b, &names);
	out_layout_destroy(layout);
	buf_deinit(&b);
	rec_reader_close(r);
}

static void read_forged(const u8 *data, size_t size)
{
	static const char types[] = "MSTRLEPx";
	static const char versions[] = "\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0"
				       "\x03\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0";
	struct cursor c = cursor_init(data, size);
	struct buf b = { 0 };
	u8 type, len;

	buf_add(&b, REC_MAGIC, REC_MAGIC_BYTES);
	buf_add(&b, &versions[8 * (size % 4)], 8);
	add_chunk(&b, REC_CHUNK_META, "{\"vcpus\":2}", 11);
	while (cursor_u8(&c, &type) && cursor_u8(&c, &len)) {
		size_t n = MIN((size_t)len, cursor_left(&c));

		add_chunk(&b, (u8)types[type % (sizeof(types) - 1)], c.data + c.pos, (u32)n);
		(void)cursor_skip(&c, n);
	}
	read_everything(b.data, b.len);
	buf_deinit(&b);
}

static bool one_sym(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	(void)arg;
	if (addr % 3 == 0)
		return false;
	*ret = (struct kernel_sym){ .name = "f", .module = addr % 5 ? NULL : "m", .type = 't' };
	*off_ret = addr;
	return true;
}

static bool one_func(void *arg, u64 ip, struct kernel_func *ret)
{
	(void)arg;
	*ret = (struct kernel_func){ .n_params = ip % 17, .n_regs = ip % 7 };
	ret->ret = (struct kernel_val){ .name = "", .type = "t", .reg = 0xff };
	for (u32 i = 0; i < ret->n_params; i++)
		ret->params[i] =
			(struct kernel_val){ .name = "p", .type = "", .size = (u8)(ip >> i) };
	return ip % 4;
}

/* A record of arbitrary bytes; false at the end of the input. */
static bool next_record(struct cursor *c, struct trace_record *r)
{
	memset(r, 0, sizeof(*r));
	if (!cursor_bytes(c, r, offsetof(struct trace_record, type)) ||
	    !cursor_bytes(c, r->comm, 4))
		return false;
	r->type = (u8)(TRACE_FUNCTION + r->seq % 6);
	if (r->type == TRACE_SWITCH || r->type == TRACE_TRACER) {
		r->prev_pid = r->type == TRACE_SWITCH ? (u32)r->ip : 0;
		r->depth = r->type == TRACE_TRACER && r->depth % 2;
		r->ip = r->parent = r->duration_ns = 0;
	} else if (r->type == TRACE_GRAPH_RETURN) {
		r->parent = 0;
		r->has_retval = r->seq & 8;
		r->retval = r->has_retval ? r->ip * 3 : 0;
	} else {
		r->duration_ns = 0;
		r->n_args = (u8)(r->seq % (TRACE_MAX_ARGS + 1));
		for (u32 i = 0; i < r->n_args; i++)
			r->args[i] = r->ip >> 8 * i;
	}
	return true;
}

static void same_func(const struct output_names *names, u64 ip)
{
	struct kernel_func got, want;

	if (!one_func(NULL, ip, &want)) {
		MUST(!names->func(names->arg, ip, &got));
		return;
	}
	MUST(names->func(names->arg, ip, &got));
	MUST(got.n_params == want.n_params && got.n_regs == want.n_regs);
	for (u32 i = 0; i < want.n_params; i++)
		MUST(got.params[i].size == want.params[i].size);
}

static void same_record(const struct trace_record *got, const struct trace_record *want)
{
	MUST(got->seq == want->seq && got->ts_ns == want->ts_ns && got->ip == want->ip);
	MUST(got->parent == want->parent && got->pid == want->pid && got->tgid == want->tgid);
	MUST(got->cpu == want->cpu && got->ctx == want->ctx && got->type == want->type);
	MUST(got->depth == want->depth && got->duration_ns == want->duration_ns);
	MUST(got->n_args == want->n_args && got->has_retval == want->has_retval);
	MUST(!memcmp(got->args, want->args, sizeof(want->args)));
	MUST(got->retval == want->retval && got->prev_pid == want->prev_pid);
	MUST(!strcmp(got->comm, want->comm));
}

static void round_trip(const u8 *data, size_t size)
{
	const struct output_names names = { .sym = one_sym, .func = one_func };
	static const struct output_meta meta = { .tracer = "function_graph", .args = true };
	struct cursor c = cursor_init(data, size), again = c;
	struct trace_record want, got;
	struct output_names read_names;
	struct rec_writer *w;
	struct rec_reader *r;
	struct buf b = { 0 };
	enum rec_kind kind;

	MUST(!rec_writer_create(&meta, &w, NULL));
	rec_writer_head(w, &b);
	while (next_record(&c, &want))
		rec_writer_add(w, &b, &want, &names);
	rec_writer_end(w, &b, &meta);
	MUST(!buf_failed(&b));
	MUST(!rec_reader_open_mem(b.data, b.len, &r, NULL));
	read_names = rec_reader_names(r);
	while (next_record(&again, &want)) {
		MUST(!rec_reader_next(r, &kind, &got, NULL) && kind == REC_RECORD);
		same_record(&got, &want);
		if (want.n_args || want.has_retval)
			same_func(&read_names, want.ip);
	}
	MUST(!rec_reader_next(r, &kind, &got, NULL) && kind == REC_END);
	rec_reader_close(r);
	rec_writer_destroy(w);
	buf_deinit(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	switch (data[0] % 3) {
	case 0:
		read_everything(data + 1, size - 1);
		break;
	case 1:
		read_forged(data + 1, size - 1);
		break;
	default:
		round_trip(data + 1, size - 1);
		break;
	}
	return 0;
}
