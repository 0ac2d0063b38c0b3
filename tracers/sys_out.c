// SPDX-License-Identifier: Apache-2.0
/* System calls as lines. See sys_out.h. */
#include "tracers/sys_out.h"

#include "tracers/sys_parts.h"

#include <stdio.h>
#include <stdlib.h>

struct sys_out {
	enum sys_format format;
	struct sys_reader *reader;
	struct decoded decoded; /* scratch space */
	struct sys_summary *summary; /* SYS_SUMMARY */
	struct out_sys_opts opts;
	char host[64];
	u64 not_counted; /* of the summary, for want of memory */
};

struct sys_out *sys_out_create(enum sys_format format, const char *host)
{
	struct sys_out *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->format = format;
	o->reader = sys_reader_create();
	if (format == SYS_SUMMARY)
		o->summary = sys_summary_create();
	if (!o->reader || (format == SYS_SUMMARY && !o->summary)) {
		sys_out_destroy(o);
		return NULL;
	}
	snprintf(o->host, sizeof(o->host), "%s", host);
	o->opts = (struct out_sys_opts){
		.pid = true, .time_of_day = true, .duration = true, .host = o->host
	};
	return o;
}

void sys_out_destroy(struct sys_out *o)
{
	if (!o)
		return;
	sys_reader_destroy(o->reader);
	if (o->summary)
		sys_summary_destroy(o->summary);
	decoded_deinit(&o->decoded);
	free(o);
}

void sys_out_layout(struct sys_out *o, const struct out_layout_opts *opts)
{
	o->opts.cgroup = opts->cgroup;
}

void sys_out_boot(struct sys_out *o, u64 boot_ns)
{
	o->opts.boot_ns = boot_ns;
}

void sys_out_record(struct sys_out *o, struct buf *b, const struct trace_record *r,
		    const struct output_names *names)
{
	const struct syscall_event *e;

	if (r->type == TRACE_MARKER) {
		if (o->format == SYS_JSON)
			out_json_record(b, r, names);
		else if (o->format == SYS_TEXT)
			out_text_record(b, r, names);
		return;
	}
	e = sys_reader_add(o->reader, r, names);
	if (!e)
		return;
	switch (o->format) {
	case SYS_TEXT:
		out_sys_text(b, e, &o->decoded, &o->opts);
		break;
	case SYS_JSON:
		out_sys_json(b, e, &o->decoded, &o->opts);
		break;
	case SYS_FALCO:
		out_sys_falco(b, e, &o->decoded, &o->opts);
		break;
	case SYS_OCSF:
		out_sys_ocsf(b, e, &o->decoded, &o->opts);
		break;
	case SYS_SUMMARY:
		o->not_counted += sys_summary_add(o->summary, e) != 0;
		break;
	}
}

bool sys_out_inside(const struct sys_out *o)
{
	return sys_reader_inside(o->reader);
}

void sys_out_lost(struct sys_out *o, struct buf *b, u64 count, u64 after_seq)
{
	if (o->format == SYS_TEXT)
		out_sys_text_lost(b, count);
	else if (o->format != SYS_SUMMARY)
		out_sys_json_lost(b, count, after_seq);
}

void sys_out_end(struct sys_out *o, struct buf *b)
{
	if (o->format != SYS_SUMMARY)
		return;
	sys_summary_print(o->summary, b);
	if (o->not_counted)
		buf_addf(b, "%llu calls are not counted: no memory\n",
			 (unsigned long long)o->not_counted);
}
