// SPDX-License-Identifier: Apache-2.0
/*
 * The formats, and what is the same for all of them. To add one: a line here, a file with its struct
 * export_ops, a paragraph in hvftrace-export(1) and a test that reads it with the real tool.
 */
#include "tracers/formats/priv.h"

#include "tracers/sys_parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct export_format formats[] = {
	{ "trace.dat", "application/vnd.trace-cmd.trace-dat", ".dat",
	  "trace-cmd's file, version 6: trace-cmd report, KernelShark", EXPORT_LATE,
	  &export_trace_dat },
	{ "trace.dat.v7", "application/vnd.trace-cmd.trace-dat", ".dat",
	  "the same, version 7, compressed with zstd", EXPORT_LATE, &export_trace_dat_v7 },
	{ "chrome", "application/json", ".json", "Trace Event JSON: Perfetto UI, speedscope", 0,
	  &export_chrome },
	{ "perfetto", "application/vnd.perfetto.trace", ".pftrace",
	  "Perfetto's protobuf: Perfetto UI, trace_processor", 0, &export_perfetto },
	{ "folded", "text/plain; charset=utf-8", ".folded",
	  "time by stack, a line each: flamegraph.pl, inferno, speedscope",
	  EXPORT_CALLS | EXPORT_LATE, &export_folded },
	{ "speedscope", "application/json", ".speedscope.json",
	  "speedscope's own: every call of every task", EXPORT_CALLS | EXPORT_LATE,
	  &export_speedscope },
	{ "ctf", "application/x-tar", ".ctf.tar",
	  "Common Trace Format 1.8, a directory: babeltrace2, Trace Compass",
	  EXPORT_LATE | EXPORT_TAR, &export_ctf },
};

const struct export_format *export_formats(size_t *n_ret)
{
	*n_ret = ARRAY_SIZE(formats);
	return formats;
}

const struct export_format *export_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
		if (strcmp(formats[i].name, name) == 0)
			return &formats[i];
	}
	return NULL;
}

void export_destroy(struct export *x)
{
	if (!x)
		return;
	x->format->ops->destroy(x);
	sys_reader_destroy(x->sys);
	syms_destroy(x->syms);
	tasks_destroy(x->tasks);
	free(x);
}

int export_create(const struct export_format *f, const struct output_meta *meta,
		  const struct export_opts *opts, struct export **ret, struct err *err)
{
	struct export *x;
	int r;

	if ((f->flags & EXPORT_CALLS) && strcmp(meta->tracer, "function") == 0)
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0,
			       "%s shows durations, and the tracer function has none: trace with "
			       "function_graph",
			       f->name);
	x = calloc(1, sizeof(*x));
	if (!x)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for an export");
	x->format = f;
	x->meta = *meta;
	if (opts)
		x->opts = *opts;
	x->syms = syms_create();
	x->tasks = tasks_create();
	x->sys = sys_reader_create();
	r = x->syms && x->tasks && x->sys
		    ? f->ops->create(x, err)
		    : err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for an export");
	if (r < 0) {
		export_destroy(x);
		return r;
	}
	*ret = x;
	return 0;
}

void export_head(struct export *x, struct buf *b)
{
	if (x->format->ops->head)
		x->format->ops->head(x, b);
}

static void saw_time(struct export *x, u64 ns)
{
	if (x->n_records == 1 || ns < x->first_ns)
		x->first_ns = ns;
	if (ns > x->last_ns)
		x->last_ns = ns;
}

void export_record(struct export *x, struct buf *b, const struct trace_record *r,
		   const struct output_names *names)
{
	const struct syscall_event *e;

	x->names = names;
	x->n_records++;
	saw_time(x, r->ts_ns);
	if (r->type == TRACE_SYSCALL) {
		e = sys_reader_add(x->sys, r, names);
		if (e)
			x->format->ops->syscall(x, b, e);
	} else {
		x->format->ops->record(x, b, r);
	}
	x->names = NULL;
}

void export_lost(struct export *x, struct buf *b, u64 count)
{
	x->n_lost += count;
	x->format->ops->lost(x, b, count);
}

void export_totals(struct export *x, const struct output_meta *meta)
{
	x->meta.n_records = meta->n_records;
	x->meta.n_lost = meta->n_lost;
	x->meta.n_functions = meta->n_functions;
	x->meta.n_restored = meta->n_restored;
	x->meta.restored = meta->restored;
	if (meta->boot_ns)
		x->meta.boot_ns = meta->boot_ns;
	if (meta->zero_mono_ns)
		x->meta.zero_mono_ns = meta->zero_mono_ns;
}

bool export_end(struct export *x, struct buf *b)
{
	return !x->failed && x->format->ops->end(x, b) && !x->failed;
}

int export_check(const struct export *x, struct err *err)
{
	if (x->failed == -ENOMEM)
		return err_set(err, x->failed, ERR_NO_MEMORY, 0, "no memory for an export");
	if (x->failed == -ENOSPC && x->opts.tmp.spare)
		return err_set(
			err, x->failed, ERR_IO, 0,
			"the export's temporary file: no space left, but for %llu MiB that are "
			"spared",
			(unsigned long long)x->opts.tmp.spare >> 20);
	if (x->failed)
		return err_set(err, x->failed, ERR_IO, 0, "the export's temporary file: %s",
			       strerrordesc_np(-x->failed));
	return 0;
}

struct task *export_task(struct export *x, const struct trace_record *r, unsigned *news_ret)
{
	struct task *t = tasks_get(x->tasks, r, news_ret);

	x->n_left_out += !t;
	return t;
}

const char *export_time(u64 ns, char buf[40])
{
	time_t sec = (time_t)(ns / NSEC_PER_SEC);
	struct tm tm;
	size_t n;

	if (!ns || !gmtime_r(&sec, &tm))
		return "unknown";
	n = strftime(buf, 40, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(buf + n, 40 - n, ".%09uZ", (unsigned)(ns % NSEC_PER_SEC));
	return buf;
}
