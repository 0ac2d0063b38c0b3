// SPDX-License-Identifier: Apache-2.0
/*
 * Records as NDJSON (one object a line). Always valid JSON and valid UTF-8, whatever bytes the guest
 * puts into a comm or its kernel's symbols. See output.h.
 */
#include "tracers/output.h"

#include "base/utf8.h"
#include "tracers/fmt.h"
#include "tracers/out_values.h"

#define JSON_NAME_MAX    1024 /* a longer name is cut: KSYM_NAME_LEN is 512 since v6.1 */
#define JSON_ESCAPED_MAX 6 /* \u00XX: output bytes for one input byte, at most */

/* What a byte needs: 0 itself, 'u' \u00XX, 'x' a UTF-8 sequence to check, else \ and that letter. */
/* clang-format off: a table */
static const char escapes[256] = {
	[0 ... 7] = 'u', ['\b'] = 'b',  ['\t'] = 't', ['\n'] = 'n',
	[11] = 'u',      ['\f'] = 'f',  ['\r'] = 'r', [14 ... 31] = 'u',
	['"'] = '"',     ['\\'] = '\\', [0x7f] = 'u', [0x80 ... 255] = 'x',
};
/* clang-format on */

/* One byte or sequence that is not plain; @used_ret: how much of @s it takes. */
static char *add_special(char *p, const u8 *s, size_t left, size_t *used_ret)
{
	char e = escapes[s[0]];

	*used_ret = 1;
	if (e == 'u')
		return fmt_hex(FMT_LIT(p, "\\u"), s[0], 4);
	if (e != 'x') {
		*p++ = '\\';
		*p++ = e;
		return p;
	}
	*used_ret = utf8_len(s, left);
	if (*used_ret)
		return fmt_bytes(p, s, *used_ret);
	*used_ret = 1;
	return FMT_LIT(p, "\xef\xbf\xbd"); /* U+FFFD */
}

/* Is there a byte among eight that is not plain? Says so of a few plain ones, too: a borrow crosses bytes. */
static bool any_special(u64 v)
{
	const u64 ones = 0x0101010101010101;
	u64 quote = (v ^ ones * '"') - ones, slash = (v ^ ones * '\\') - ones;
	u64 del = (v ^ ones * 0x7f) - ones, control = v - ones * ' ';

	return (quote | slash | del | control | v) & ones << 7;
}

char *fmt_json_escaped(char *p, const char *str, size_t len)
{
	const u8 *s = (const u8 *)str;
	size_t i = 0, used;
	u64 eight;

	while (i < len) {
		if (len - i >= sizeof(eight)) {
			memcpy(&eight, s + i, sizeof(eight));
			if (!any_special(eight)) {
				p = fmt_bytes(p, &eight, sizeof(eight));
				i += sizeof(eight);
				continue;
			}
		}
		if (!escapes[s[i]]) {
			*p++ = (char)s[i++];
			continue;
		}
		p = add_special(p, s + i, len - i, &used);
		i += used;
	}
	return p;
}

void out_json_string(struct buf *b, const char *s, size_t len)
{
	char *start, *p;

	if (len > (SIZE_MAX - 2) / JSON_ESCAPED_MAX) {
		b->failed = true;
		return;
	}
	start = buf_reserve(b, len * JSON_ESCAPED_MAX + 2);
	if (!start)
		return;
	p = start;
	*p++ = '"';
	p = fmt_json_escaped(p, s, len);
	*p++ = '"';
	*p = 0;
	b->len += (size_t)(p - start);
}

static char *add_name(char *p, const char *name)
{
	return fmt_json_escaped(p, name, strnlen(name, JSON_NAME_MAX));
}

static char *add_address(char *p, u64 addr)
{
	return fmt_hex(FMT_LIT(p, "0x"), addr, 16);
}

/* ,"function":...,"module":...,"ip":... */
static char *add_function(char *p, u64 ip, const struct output_names *names)
{
	struct kernel_sym sym;
	u64 off;

	p = FMT_LIT(p, ",\"function\":\"");
	if (names->sym(names->arg, ip, &sym, &off)) {
		p = add_name(p, sym.name);
	} else {
		p = add_address(p, ip);
		sym.module = NULL;
	}
	p = FMT_LIT(p, "\",\"module\":");
	if (sym.module) {
		*p++ = '"';
		p = add_name(p, sym.module);
		*p++ = '"';
	} else {
		p = FMT_LIT(p, "null");
	}
	p = FMT_LIT(p, ",\"ip\":\"");
	p = add_address(p, ip);
	*p++ = '"';
	return p;
}

/* Named by the byte that is @back before it: where the call was is in the caller for sure. */
static char *add_return_address(char *p, u64 parent, u64 back, const struct output_names *names)
{
	struct kernel_sym sym;
	u64 off;

	*p++ = '"';
	if (names->sym(names->arg, parent - back, &sym, &off)) {
		p = add_name(p, sym.name);
		p = fmt_hex(FMT_LIT(p, "+0x"), off + back, 1);
		if (sym.module) {
			p = FMT_LIT(p, " [");
			p = add_name(p, sym.module);
			*p++ = ']';
		}
	} else {
		p = add_address(p, parent);
	}
	*p++ = '"';
	return p;
}

static const char *const type_names[] = {
	[TRACE_FUNCTION] = "function",
	[TRACE_GRAPH_ENTRY] = "graph_entry",
	[TRACE_GRAPH_RETURN] = "graph_return",
	[TRACE_GRAPH_NEVER] = "graph_never",
	[TRACE_SWITCH] = "switch",
	[TRACE_TRACER] = "tracer",
	[TRACE_MARKER] = "marker",
};

static char *add_type(char *p, u8 type)
{
	const char *name = type < ARRAY_SIZE(type_names) ? type_names[type] : NULL;

	if (!name)
		name = type_names[TRACE_FUNCTION];

	p = fmt_bytes(FMT_LIT(p, ",\"type\":\""), name, strlen(name));
	*p++ = '"';
	return p;
}

static char *add_task(char *p, const struct trace_record *r)
{
	p = fmt_u64(FMT_LIT(p, ",\"cpu\":"), r->cpu);
	p = fmt_u64(FMT_LIT(p, ",\"pid\":"), r->pid);
	p = FMT_LIT(p, ",\"tgid\":");
	if (r->tgid || !r->pid)
		p = fmt_u64(p, r->tgid);
	else
		p = FMT_LIT(p, "null");
	p = FMT_LIT(p, ",\"comm\":\"");
	p = fmt_json_escaped(p, r->comm, strnlen(r->comm, TRACE_COMM_LEN));
	return FMT_LIT(p, "\"");
}

static char *add_context(char *p, u16 ctx)
{
	p = FMT_LIT(p, ",\"context\":\"");
	out_text_flags(ctx, p);
	return FMT_LIT(p + 5, "\"");
}

static void add_stack(struct buf *b, const struct trace_stack *s, const struct output_names *names)
{
	buf_adds(b, ",\"stack\":[");
	for (u32 i = 0; i < s->n; i++) {
		char *start = buf_reserve(b, 2 * JSON_NAME_MAX * JSON_ESCAPED_MAX + 64);
		char *p = start;

		if (!p)
			return;
		if (i)
			*p++ = ',';
		p = add_return_address(p, trace_stack_addr(s, i), 1, names);
		*p = 0;
		b->len += (size_t)(p - start);
	}
	buf_adds(b, "]");
}

static char *add_call(char *p, const struct trace_record *r, const struct output_names *names)
{
	p = add_function(p, r->ip, names);
	p = FMT_LIT(p, ",\"parent\":");
	if (r->type == TRACE_GRAPH_RETURN)
		p = FMT_LIT(p, "null");
	else
		p = add_return_address(p, r->parent, 0, names);
	p = add_context(p, r->ctx);
	if (r->type > TRACE_FUNCTION)
		p = fmt_u64(FMT_LIT(p, ",\"depth\":"), r->depth);
	if (r->type == TRACE_GRAPH_RETURN)
		p = fmt_u64(FMT_LIT(p, ",\"duration_ns\":"), r->duration_ns);
	return fmt_values_json(p, r, names);
}

void out_json_record(struct buf *b, const struct trace_record *r, const struct output_names *names)
{
	/* four names at most, the comm, eight numbers, the keys */
	char *start = buf_reserve(b, (4 * JSON_NAME_MAX + TRACE_COMM_LEN) * JSON_ESCAPED_MAX + 512 +
					     VALUES_JSON_MAX);
	char *p = start;

	if (!p)
		return;
	p = fmt_u64(FMT_LIT(p, "{\"seq\":"), r->seq);
	p = add_type(p, r->type);
	p = fmt_u64(FMT_LIT(p, ",\"ts_ns\":"), r->ts_ns);
	if (r->type == TRACE_TRACER) {
		p = FMT_LIT(p, ",\"tracer\":\"function");
		p = FMT_LIT(r->depth ? FMT_LIT(p, "_graph") : p, "\"");
	} else if (r->type == TRACE_MARKER) {
		p = fmt_json_escaped(FMT_LIT(p, ",\"text\":\""), r->text,
				     strnlen(r->text, TRACE_MARKER_MAX));
		*p++ = '"';
	} else if (r->type == TRACE_SWITCH) {
		p = fmt_u64(FMT_LIT(add_task(p, r), ",\"prev_pid\":"), r->prev_pid);
		p = add_context(p, r->ctx);
	} else {
		p = add_call(add_task(p, r), r, names);
	}
	if (r->stack) {
		*p = 0;
		b->len += (size_t)(p - start);
		add_stack(b, r->stack, names);
		buf_adds(b, "}\n");
		return;
	}
	p = FMT_LIT(p, "}\n");
	*p = 0;
	b->len += (size_t)(p - start);
}

void out_json_lost(struct buf *b, u64 count, u64 after_seq, u64 seq)
{
	buf_addf(b, "{\"type\":\"lost\",\"seq\":%llu,\"count\":%llu,\"after\":%llu}\n",
		 (unsigned long long)seq, (unsigned long long)count, (unsigned long long)after_seq);
}

void out_json_end(struct buf *b, const struct output_meta *meta, const char *reason)
{
	buf_addf(b,
		 "{\"type\":\"end\",\"seq\":%llu,\"reason\":", (unsigned long long)meta->n_records);
	out_json_string(b, reason, strlen(reason));
	buf_addf(b,
		 ",\"records\":%llu,\"lost\":%llu,\"functions\":%llu,\"restored\":%llu,"
		 "\"verified\":%s,\"missed\":[%s%s%s]}\n",
		 (unsigned long long)meta->n_records, (unsigned long long)meta->n_lost,
		 (unsigned long long)meta->n_functions, (unsigned long long)meta->n_restored,
		 meta->restored ? "true" : "false", meta->missed_forks ? "\"forks\"" : "",
		 meta->missed_forks && meta->missed_switches ? "," : "",
		 meta->missed_switches ? "\"switches\"" : "");
}
