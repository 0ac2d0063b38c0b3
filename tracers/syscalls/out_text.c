// SPDX-License-Identifier: Apache-2.0
/* Events as strace writes them into a file, and what the JSON forms share. See output.h. */
#include "tracers/out_layout.h"
#include "tracers/syscalls/json_priv.h"

#include <stdio.h>
#include <time.h>

#define RESULT_COLUMN 40 /* strace -a */

const char *sys_arg_name(const struct syscall_event *e, u8 a)
{
	return e->entry->described && a < e->entry->n_args ? e->entry->args[a].name : NULL;
}

const u8 *sys_path(const struct syscall_event *e, size_t *len_ret)
{
	for (u8 a = 0; a < SYSCALL_ARGS; a++) {
		const u8 *p;
		const struct syscall_capture *c = syscall_capture_find(e, a, CAPTURE_STRING, &p);

		if (c && c->len) {
			*len_ret = strnlen((const char *)p, c->len);
			return p;
		}
	}
	return NULL;
}

bool sys_has_ret(const struct syscall_event *e)
{
	return e->state == SYSCALL_RETURNED || e->state == SYSCALL_EXECVE;
}

static void put_time(struct buf *b, u64 ns)
{
	time_t sec = (time_t)(ns / NSEC_PER_SEC);
	struct tm tm = { 0 };

	(void)gmtime_r(&sec, &tm);
	buf_addf(b, "%02d:%02d:%02d.%06u ", tm.tm_hour, tm.tm_min, tm.tm_sec,
		 (unsigned int)(ns % NSEC_PER_SEC / 1000));
}

static void put_args(struct buf *b, const struct decoded *d)
{
	for (u32 i = 0; i < d->n; i++) {
		if (i)
			buf_adds(b, ", ");
		buf_add(b, d->text.data + d->args[i].off, d->args[i].len);
	}
}

void sys_args_join(struct buf *b, const struct syscall_event *e, const struct decoded *d)
{
	for (u32 i = 0; i < d->n; i++) {
		const char *name = sys_arg_name(e, d->args[i].arg);
		size_t label = d->args[i].label ? strlen(d->args[i].label) : 0;

		buf_adds(b, i ? " " : "");
		if (name)
			buf_addf(b, "%s=", name);
		else
			buf_addf(b, "arg%u=", d->args[i].arg);
		buf_add(b, d->text.data + d->args[i].off + label, d->args[i].len - label);
	}
}

void out_sys_text(struct buf *b, const struct syscall_event *e, struct decoded *d,
		  const struct out_sys_opts *o)
{
	size_t start = b->len, column;

	decode_event(d, e, &o->decode);
	if (buf_failed(&d->text)) {
		b->failed = true;
		return;
	}
	if (o->pid)
		buf_addf(b, "%-5u ", e->pid);
	if (o->cgroup)
		buf_addf(b, "%-5u ", e->cgroup);
	if (o->time_of_day)
		put_time(b, o->boot_ns + e->ts_ns);
	out_printable(b, e->entry->name);
	buf_adds(b, "(");
	put_args(b, d);
	if (e->state == SYSCALL_UNFINISHED) {
		buf_adds(b, d->cut && d->n ? ", <unfinished ...>\n" : " <unfinished ...>\n");
		return;
	}
	buf_adds(b, ")");
	column = b->len - start;
	buf_addf(b, "%*s= ", column < RESULT_COLUMN ? (int)(RESULT_COLUMN - column) : 1, "");
	buf_add(b, d->text.data + d->ret_off, d->ret_len);
	if (o->duration && e->state != SYSCALL_NEVER)
		buf_addf(b, " <%llu.%06llu>", (unsigned long long)(e->duration_ns / NSEC_PER_SEC),
			 (unsigned long long)(e->duration_ns % NSEC_PER_SEC / 1000));
	buf_adds(b, "\n");
}

void out_sys_text_lost(struct buf *b, u64 count)
{
	buf_addf(b, "--- LOST %llu EVENTS ---\n", (unsigned long long)count);
}
