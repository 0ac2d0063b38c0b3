// SPDX-License-Identifier: Apache-2.0
/* Options into call sites and words. See choose.h. */
#include "tracers/choose.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int check_syscalls(const struct trace_opts *opts, struct err *err)
{
	if (opts->n_notrace || opts->n_graph || opts->n_graph_notrace || opts->max_depth ||
	    opts->threshold_ns || opts->no_irqs || opts->no_sleep_time || opts->retval ||
	    opts->args || opts->switches || opts->n_stack || opts->stack_depth)
		return err_set(
			err, -EINVAL, ERR_BAD_REQUEST, 0,
			"the tracer syscalls takes names of calls, pids, failed, "
			"follow_forks, comm, uid, cgroup, path, string_max, fd_paths, env and raw alone");
	if (opts->raw && (opts->path || opts->string_max || opts->fd_paths || opts->env))
		return err_set(
			err, -EINVAL, ERR_BAD_REQUEST, 0,
			"raw has nothing that arguments point to: path, string_max, fd_paths and env "
			"ask for it");
	if (opts->follow_forks && !opts->n_pids)
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0,
			       "forks are followed of pids: without any, all tasks are traced");
	return 0;
}

int choose_check(const struct trace_opts *opts, struct err *err)
{
	const struct {
		bool given;
		const char *what;
	} graph_only[] = {
		{ opts->n_graph, "graph functions are" },
		{ opts->n_graph_notrace, "graph-notrace functions are" },
		{ opts->max_depth, "a maximum depth is" },
		{ opts->threshold_ns, "a threshold is" },
		{ opts->no_irqs, "leaving out interrupts is" },
		{ opts->no_sleep_time, "leaving out sleep is" },
		{ opts->retval, "return values are" },
	};

	if (!strcmp(opts->tracer, "syscalls"))
		return check_syscalls(opts, err);
	if (opts->stack_depth > AGENT_MAX_STACK)
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0, "at most %d callers of a call",
			       AGENT_MAX_STACK);
	if (opts->stack_depth && !opts->n_stack)
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0,
			       "how many callers, but of no function");
	if (opts->failed_only || opts->follow_forks || opts->comm || opts->path || opts->by_uid ||
	    opts->by_cgroup || opts->string_max || opts->fd_paths || opts->env || opts->raw)
		return err_set(
			err, -EINVAL, ERR_BAD_REQUEST, 0,
			"failed, follow_forks, comm, uid, cgroup, path, string_max, fd_paths, env and raw are for the "
			"tracer syscalls, not %.40s",
			opts->tracer);
	if (!strcmp(opts->tracer, "function_graph"))
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(graph_only); i++) {
		if (graph_only[i].given)
			return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0,
				       "%s for the tracer function_graph, not %.40s",
				       graph_only[i].what, opts->tracer);
	}
	return 0;
}

/* Sites marked by options of their own. */
struct marks {
	u64 *on, *root, *notrace, *stack;
};

static void marks_deinit(struct marks *m)
{
	free(m->on);
	free(m->root);
	free(m->notrace);
	free(m->stack);
}

/*
 * Stack traces of everything would have a guest do little else. Functions that are not armed do not count.
 */
static int mark_stack(const struct filter_input *in, const struct trace_opts *opts, struct marks *m,
		      struct err *err)
{
	size_t n = 0;
	int rc = filter_mark(in, "stack function", opts->stack, opts->n_stack, m->stack, err);

	if (rc || !opts->n_stack)
		return rc;
	for (size_t i = 0; i < FILTER_BITMAP_WORDS(in->n); i++)
		n += (size_t)__builtin_popcountll(m->on[i] & m->stack[i]);
	if (in->later) /* those that were there before have theirs; tracing_arm_more() knows which */
		return 0;
	if (n > TRACE_MAX_STACK_SITES)
		return err_set(err, -EINVAL, ERR_STACK_FILTER, 0,
			       "stack traces of %zu functions: at most %d can have them", n,
			       TRACE_MAX_STACK_SITES);
	if (!n)
		return err_set(err, -ENOENT, ERR_FILTER_EMPTY, 0,
			       "none of the stack functions is among those that are traced");
	return 0;
}

static int mark(const struct filter_input *in, const struct trace_opts *opts, struct marks *m,
		struct filter_counts *counts, struct err *err)
{
	size_t words = FILTER_BITMAP_WORDS(in->n);
	bool any = !opts->n_graph || in->later;
	int rc;

	m->on = calloc(words + 1, sizeof(u64));
	m->root = calloc(words + 1, sizeof(u64));
	m->notrace = calloc(words + 1, sizeof(u64));
	m->stack = calloc(words + 1, sizeof(u64));
	if (!m->on || !m->root || !m->notrace || !m->stack)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for %zu functions",
			       in->n);
	rc = filter_select(in, opts, m->on, m->root, counts, err);
	if (!rc)
		rc = filter_mark(in, "graph-notrace function", opts->graph_notrace,
				 opts->n_graph_notrace, m->notrace, err);
	if (!rc)
		rc = mark_stack(in, opts, m, err);
	for (size_t i = 0; i < words; i++)
		any |= m->on[i] & m->root[i];
	if (!rc && !any)
		return err_set(err, -ENOENT, ERR_FILTER_EMPTY, 0,
			       "none of the graph functions can be traced: they are in use by the "
			       "guest, disabled, not safe, or filtered out");
	return rc;
}

static u32 values_of(const struct choose_input *in, const struct trace_opts *opts,
		     const struct ftrace_site *site)
{
	struct kernel_func f;
	u32 what = 0;

	if (!opts->args && !opts->retval)
		return 0;
	if (in->func(in->arg, site, &f))
		return opts->retval ? AGENT_SITE_RETVAL : 0;
	if (opts->retval && f.ret.kind != KERNEL_VAL_VOID)
		what |= AGENT_SITE_RETVAL;
	if (opts->args)
		what |= (u32)f.n_regs << AGENT_SITE_ARGS_SHIFT;
	return what;
}

int choose_sites(const struct choose_input *in, const struct trace_opts *opts, struct choice *ret,
		 struct err *err)
{
	const struct filter_input *sites = &in->sites;
	_cleanup_(marks_deinit) struct marks m = { 0 };
	struct filter_counts counts = { 0 };
	int rc = mark(sites, opts, &m, &counts, err);

	*ret = (struct choice){ .n_skipped =
					counts.n_in_use + counts.n_disabled + counts.n_denied };
	if (rc)
		return rc;
	ret->site = calloc(counts.n_selected + 1, sizeof(*ret->site));
	ret->what = calloc(counts.n_selected + 1, sizeof(*ret->what));
	if (!ret->site || !ret->what) {
		choice_deinit(ret);
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for %zu functions",
			       counts.n_selected);
	}
	for (u32 i = 0; i < sites->n; i++) {
		u32 what;

		if (!filter_bit(m.on, i))
			continue;
		ret->site[ret->n++] = i;
		what = values_of(in, opts, &sites->sites[i]);
		what |= filter_bit(m.root, i) ? AGENT_SITE_ROOT : 0;
		what |= filter_bit(m.notrace, i) ? AGENT_SITE_NOTRACE : 0;
		what |= filter_bit(m.stack, i) ? AGENT_SITE_STACK : 0;
		if (what)
			ret->what[ret->n_what++] = (struct tracing_site){ i, what };
	}
	return 0;
}

void choice_deinit(struct choice *c)
{
	free(c->site);
	free(c->what);
	*c = (struct choice){ 0 };
}
