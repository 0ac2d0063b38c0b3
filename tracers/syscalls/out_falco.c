// SPDX-License-Identifier: Apache-2.0
/* Events in the shape of Falco's JSON output, so that what reads alerts of Falco's reads these. */
#include "tracers/syscalls/json_priv.h"

#include <time.h>

static void put_time(struct buf *b, u64 ns)
{
	time_t sec = (time_t)(ns / NSEC_PER_SEC);
	struct tm tm = { 0 };
	char text[40];

	if (!gmtime_r(&sec, &tm) || !strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm))
		memcpy(text, "1970-01-01T00:00:00", 20);
	buf_addf(b, "\"%s.%09uZ\"", text, (unsigned int)(ns % NSEC_PER_SEC));
}

static void put_fields(struct buf *b, const struct syscall_event *e, const struct decoded *d,
		       const struct out_sys_opts *o)
{
	_cleanup_buf_ struct buf args = { 0 };
	size_t n = 0;
	const u8 *path = sys_path(e, &n);

	sys_args_join(&args, e, d);
	b->failed |= args.failed;
	js_mem(b, "evt.args", args.data ? args.data : "", args.len);
	js_u64(b, "evt.cpu", e->cpu);
	js_str(b, "evt.dir", e->state == SYSCALL_UNFINISHED ? ">" : "<");
	js_bool(b, "evt.failed", syscall_failed(e));
	js_u64(b, "evt.latency", e->duration_ns);
	js_u64(b, "evt.num", e->seq);
	if (sys_has_ret(e))
		js_s64(b, "evt.rawres", e->ret);
	js_mem(b, "evt.res", d->text.data + d->ret_off, d->ret_len);
	js_u64(b, "evt.rawtime", o->boot_ns + e->ts_ns);
	js_str(b, "evt.type", e->entry->name);
	if (path)
		js_mem(b, "fd.name", path, n);
	js_comm(b, "proc.name", e->state == SYSCALL_EXECVE ? e->comm_after : e->comm);
	js_u64(b, "proc.pid", e->tgid ? e->tgid : e->pid);
	js_u64(b, "thread.tid", e->pid);
	if (e->cgroup)
		js_u64(b, "thread.cgroup.id", e->cgroup);
	if (e->uid != SYSCALL_NO_UID)
		js_u64(b, "user.uid", e->uid);
}

/* "cat(41) openat: dfd=AT_FDCWD ... = 3" */
static void put_sentence(struct buf *b, const struct syscall_event *e, const struct decoded *d)
{
	_cleanup_buf_ struct buf text = { 0 };

	buf_add(&text, e->comm, strnlen(e->comm, SYSCALL_COMM_LEN));
	buf_addf(&text, "(%u) %s: ", e->pid, e->entry->name);
	sys_args_join(&text, e, d);
	buf_adds(&text, " = ");
	buf_add(&text, d->text.data + d->ret_off, d->ret_len);
	b->failed |= text.failed;
	if (!text.failed)
		js_mem(b, "output", text.data, text.len);
}

void out_sys_falco(struct buf *b, const struct syscall_event *e, struct decoded *d,
		   const struct out_sys_opts *o)
{
	decode_event(d, e, &o->decode);
	if (buf_failed(&d->text)) {
		b->failed = true;
		return;
	}
	buf_adds(b, "{");
	js_str(b, "hostname", o->host ? o->host : "");
	put_sentence(b, e, d);
	js_open(b, "output_fields");
	put_fields(b, e, d, o);
	js_close(b);
	js_str(b, "priority", "Informational");
	js_str(b, "rule", "System call");
	js_str(b, "source", "syscall");
	js_key(b, "tags");
	buf_adds(b, "[]");
	js_key(b, "time");
	put_time(b, o->boot_ns + e->ts_ns);
	buf_adds(b, "}\n");
}
