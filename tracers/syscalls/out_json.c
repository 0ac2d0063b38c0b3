// SPDX-License-Identifier: Apache-2.0
/* Events as NDJSON; the shape is documented in output.h. */
#include "tracers/syscalls/json_priv.h"

static const char *const abi_names[] = { "x86_64", "i386", "x32" };
static const char *const state_names[] = {
	[SYSCALL_RETURNED] = "returned",   [SYSCALL_NEVER] = "never_returns",
	[SYSCALL_EXECVE] = "execve",       [SYSCALL_SIGRETURN] = "sigreturn",
	[SYSCALL_RESTARTED] = "restarted", [SYSCALL_UNFINISHED] = "unfinished",
};
static const char *const restart_names[] = {
	[RESTART_NOT] = "",
	[RESTART_ALWAYS] = "always",
	[RESTART_SA_RESTART] = "sa_restart",
	[RESTART_NO_HANDLER] = "no_handler",
	[RESTART_BLOCK] = "block",
};
static const char *const source_names[] = { "kernel", "user_enter", "user_exit" };

static const char *word(const char *const *names, size_t n, u8 i)
{
	return i < n ? names[i] : "unknown";
}

static bool is_plain(const u8 *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] < 0x20 || p[i] > 0x7e)
			return false;
	return true;
}

static void put_hex(struct buf *b, const u8 *p, size_t n)
{
	js_key(b, "hex");
	buf_adds(b, "\"");
	for (size_t i = 0; i < n; i++)
		buf_addf(b, "%02x", p[i]);
	buf_adds(b, "\"");
}

/* argv as an array, without strings that were cut in two */
static void put_strings(struct buf *b, const u8 *p, size_t n)
{
	const u8 *end = p + n, *nul;

	js_key(b, "strings");
	buf_adds(b, "[");
	for (bool first = true; p < end; first = false, p = nul + 1) {
		nul = memchr(p, 0, (size_t)(end - p));
		if (!nul)
			nul = end;
		buf_adds(b, first ? "" : ",");
		out_json_string(b, (const char *)p, (size_t)(nul - p));
	}
	buf_adds(b, "]");
}

static void put_capture(struct buf *b, const struct syscall_event *e,
			const struct syscall_capture *c)
{
	const u8 *p = c->len ? e->data + c->off : (const u8 *)"";

	if (c->what == CAPTURE_STRING) {
		js_mem(b, "string", p, strnlen((const char *)p, c->len));
		if (!is_plain(p, c->len))
			put_hex(b, p, c->len);
	} else if (c->what == CAPTURE_STRINGS) {
		put_strings(b, p, c->len);
	} else if (c->what == CAPTURE_BYTES || c->what == CAPTURE_SOCKADDR) {
		put_hex(b, p, c->len);
	}
	js_str(b, "source", word(source_names, ARRAY_SIZE(source_names), c->source));
	if (c->full_len != CAPTURE_LEN_UNKNOWN)
		js_u64(b, "length", c->full_len);
	if (c->truncated)
		js_bool(b, "truncated", true);
}

static void put_arg(struct buf *b, const struct syscall_event *e, const struct decoded *d,
		    const struct decoded_arg *a)
{
	const char *name = sys_arg_name(e, a->arg);
	size_t label = a->label ? strlen(a->label) : 0;
	u64 v = e->args[a->arg];

	js_u64(b, "index", a->arg);
	if (name) {
		js_str(b, "name", name);
		js_str(b, "type", e->entry->args[a->arg].type);
	} else {
		js_null(b, "name");
		js_null(b, "type");
	}
	js_key(b, "value");
	if (a->pointer)
		buf_addf(b, "\"0x%llx\"", (unsigned long long)v);
	else
		buf_addf(b, "\"%lld\"", (long long)v);
	js_mem(b, "text", d->text.data + a->off + label, a->len - label);
	if (a->capture >= 0)
		put_capture(b, e, &e->captures[a->capture]);
	if (a->unread)
		js_bool(b, "unread", true);
}

static void put_result(struct buf *b, const struct syscall_event *e, const struct decoded *d)
{
	const char *error = syscall_failed(e) ? decode_errno((int)-e->ret) : NULL;

	js_key(b, "ret");
	if (sys_has_ret(e))
		buf_addf(b, "\"%lld\"", (long long)e->ret);
	else
		buf_adds(b, "null");
	js_mem(b, "ret_text", d->text.data + d->ret_off, d->ret_len);
	if (error)
		js_str(b, "error", error);
	else
		js_null(b, "error");
	if (e->state == SYSCALL_RESTARTED)
		js_str(b, "restart", restart_names[syscall_restart(e->ret)]);
	if (e->state == SYSCALL_EXECVE)
		js_comm(b, "comm_after", e->comm_after);
	if (e->captures_left_out)
		js_bool(b, "captures_left_out", true);
}

static void put_head(struct buf *b, const struct syscall_event *e)
{
	js_u64(b, "seq", e->seq);
	js_str(b, "type", "syscall");
	js_u64(b, "ts_ns", e->ts_ns);
	js_u64(b, "cpu", e->cpu);
	js_u64(b, "pid", e->pid);
	if (e->tgid || !e->pid)
		js_u64(b, "tgid", e->tgid);
	else
		js_null(b, "tgid");
	js_comm(b, "comm", e->comm);
	js_str(b, "abi", word(abi_names, ARRAY_SIZE(abi_names), e->abi));
	if (e->nr >= 0)
		js_u64(b, "nr", (u32)e->nr);
	else
		js_null(b, "nr");
	js_str(b, "syscall", e->entry->name);
	js_str(b, "state", word(state_names, ARRAY_SIZE(state_names), e->state));
	js_u64(b, "duration_ns", e->duration_ns);
}

void out_sys_json(struct buf *b, const struct syscall_event *e, struct decoded *d,
		  const struct out_sys_opts *o)
{
	decode_event(d, e, &o->decode);
	if (buf_failed(&d->text)) {
		b->failed = true;
		return;
	}
	buf_adds(b, "{");
	put_head(b, e);
	js_key(b, "args");
	buf_adds(b, "[");
	for (u32 i = 0; i < d->n; i++) {
		buf_adds(b, i ? ",{" : "{");
		put_arg(b, e, d, &d->args[i]);
		js_close(b);
	}
	buf_adds(b, "]");
	put_result(b, e, d);
	buf_adds(b, "}\n");
}

void out_sys_json_lost(struct buf *b, u64 count, u64 after_seq)
{
	out_json_lost(b, count, after_seq, after_seq);
}
