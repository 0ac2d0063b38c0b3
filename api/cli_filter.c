// SPDX-License-Identifier: Apache-2.0
/* See cli_filter.h. A call and its return have the same function and task, so both are taken or neither. */
#include "api/cli_filter.h"

#include "tracers/filter.h"

static bool any_match(const json_t *globs, const char *name, const char *module)
{
	const json_t *glob;
	size_t i;

	json_array_foreach(globs, i, glob)
	{
		if (filter_match(json_string_value(glob), name, module))
			return true;
	}
	return false;
}

void rec_filter_init(struct rec_filter *f, const json_t *body)
{
	*f = (struct rec_filter){ .filter = json_object_get(body, "filter"),
				  .notrace = json_object_get(body, "notrace"),
				  .pids = json_object_get(body, "pids") };
}

bool rec_filter_names(const struct rec_filter *f)
{
	return f->filter || f->notrace;
}

bool rec_filter_on(const struct rec_filter *f)
{
	return rec_filter_names(f) || f->pids;
}

bool rec_filter_chooses(const struct rec_filter *f, const char *name, const char *module)
{
	return (!f->filter || any_match(f->filter, name, module)) &&
	       !any_match(f->notrace, name, module);
}

static bool takes_function(struct rec_filter *f, u64 ip, const struct output_names *names)
{
	u32 when = names_when(names),
	    h = (u32)(ip * 0x9e3779b97f4a7c15 >> 40) & (REC_FILTER_CACHE - 1);
	struct kernel_sym sym;
	u64 off;

	if (f->cache[h].ip != ip || f->cache[h].when != when) {
		f->cache[h].ip = ip;
		f->cache[h].when = when;
		f->cache[h].takes = names->sym(names->arg, ip, &sym, &off) && sym.name
					    ? rec_filter_chooses(f, sym.name, sym.module)
					    : !f->filter;
	}
	return f->cache[h].takes;
}

static bool takes_task(const struct rec_filter *f, u32 task)
{
	const json_t *pid;
	size_t i;

	json_array_foreach(f->pids, i, pid)
	{
		if (json_integer_value(pid) == (json_int_t)task)
			return true;
	}
	return !f->pids;
}

bool rec_filter_takes(struct rec_filter *f, const struct trace_record *rec,
		      const struct output_names *names)
{
	bool call =
		rec->type != TRACE_SWITCH && rec->type != TRACE_MARKER && rec->type != TRACE_TRACER;

	if (call && (!takes_task(f, rec->pid) ||
		     (rec_filter_names(f) && !takes_function(f, rec->ip, names))))
		return false;
	f->n_taken++;
	return true;
}
