// SPDX-License-Identifier: Apache-2.0
/* A trace of a guest with a life of its own: modules that come and go, tracing of its own. */
#define LOG_PREFIX "trace"
#include "base/cleanup.h"
#include "base/log.h"
#include "tracers/trace_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MARKS_MAX 4096u

/* One block: the pointers, then what they point to. */
static int copy_list(const char *const **list, size_t n)
{
	size_t bytes = n * sizeof(char *);
	char **copy, *at;

	for (size_t i = 0; i < n; i++)
		bytes += strlen((*list)[i]) + 1;
	copy = malloc(bytes + 1);
	if (!copy)
		return -ENOMEM;
	at = (char *)(copy + n);
	for (size_t i = 0; i < n; i++) {
		copy[i] = at;
		at = stpcpy(at, (*list)[i]) + 1;
	}
	*list = (const char *const *)copy;
	return 0;
}

static void free_list(const char *const *list)
{
	free((void *)(uintptr_t)list);
}

static int copy_opts(struct trace_opts *o)
{
	int rc = copy_list(&o->filter, o->n_filter);

	if (!rc)
		rc = copy_list(&o->notrace, o->n_notrace);
	if (!rc)
		rc = copy_list(&o->graph, o->n_graph);
	if (!rc)
		rc = copy_list(&o->graph_notrace, o->n_graph_notrace);
	return rc ? rc : copy_list(&o->stack, o->n_stack);
}

static void free_opts(struct trace_opts *o)
{
	free_list(o->filter);
	free_list(o->notrace);
	free_list(o->graph);
	free_list(o->graph_notrace);
	free_list(o->stack);
}

int trace_life_set_opts(struct trace *t, const struct trace_opts *opts, struct err *err)
{
	struct trace_opts copy = *opts;

	/* what is copied replaces what is not yet; the latter must not be freed */
	if (copy_opts(&copy)) {
		if (copy.filter != opts->filter)
			free_list(copy.filter);
		if (copy.notrace != opts->notrace)
			free_list(copy.notrace);
		if (copy.graph != opts->graph)
			free_list(copy.graph);
		if (copy.graph_notrace != opts->graph_notrace)
			free_list(copy.graph_notrace);
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a trace");
	}
	copy.tracer = t->info.tracer;
	copy.pids = NULL; /* the agent has them */
	copy.n_pids = 0;
	copy.comm = copy.path = NULL; /* the caller's; the tracer syscalls has its own */
	free_opts(&t->opts);
	t->opts = copy;
	return 0;
}

int trace_life_init(struct trace *t, const struct trace_opts *opts, struct err *err)
{
	t->marks = calloc(MARKS_MAX, sizeof(*t->marks));
	if (!t->marks)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a trace");
	return trace_life_set_opts(t, opts, err);
}

int trace_life_copy(struct trace *from, struct trace *t, struct err *err)
{
	t->marks = calloc(MARKS_MAX, sizeof(*t->marks));
	if (!t->marks)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a snapshot");
	t->k = kernel_ref(from->k);
	pthread_mutex_lock(&from->lock);
	t->n_marks = from->n_marks;
	memcpy(t->marks, from->marks, from->n_marks * sizeof(*t->marks));
	pthread_mutex_unlock(&from->lock);
	return 0;
}

void trace_life_deinit(struct trace *t)
{
	free_opts(&t->opts);
	free(t->marks);
	kernel_destroy(t->k);
}

void trace_life_mark(struct trace *t, u32 epoch)
{
	struct store_info s;

	trace_flush(t);
	store_info(t->store, &s);
	pthread_mutex_lock(&t->lock);
	if (t->n_marks == MARKS_MAX) { /* the older half is of records long gone */
		t->n_marks = MARKS_MAX / 2;
		memmove(t->marks, t->marks + t->n_marks, t->n_marks * sizeof(*t->marks));
	}
	t->marks[t->n_marks++] = (struct trace_mark){ s.newest_seq + 1, epoch };
	pthread_mutex_unlock(&t->lock);
}

void trace_life_begin(struct trace *t)
{
	if (!tracing_taken(t->g, &t->taken))
		t->taken = 0;
	t->taken_told = t->taken;
	t->k = kernel_ref(guest_kernel(t->g));
	t->epoch = kernel_epoch(t->k);
	trace_life_mark(t, t->epoch);
}

static void note_unheeded(struct trace *t, size_t n)
{
	if (n > t->info.n_unheeded)
		log_warn(
			"%zu functions of modules are traced without all that options ask of them: "
			"at most %d can have callers, or the agent's table has no room",
			n, TRACE_MAX_STACK_SITES);
	pthread_mutex_lock(&t->lock);
	t->info.n_unheeded = n;
	pthread_mutex_unlock(&t->lock);
}

/* Functions that the trace's globs mean and that were not there before. */
static int arm_new(struct trace *t, size_t *n_ret, struct err *err)
{
	_cleanup_(choice_deinit) struct choice c = { 0 };
	struct tracing_opts to = { .max_stacks = TRACE_MAX_STACK_SITES };
	struct tracing_more more = { 0 };
	int rc;

	*n_ret = 0;
	if (t->sys) /* the kernel's own calls are all there from the beginning */
		return 0;
	rc = trace_choose(t, &t->opts, true, &c, err);
	if (rc)
		return rc;
	to.sites = c.what;
	to.n_sites = c.n_what;
	rc = tracing_arm_more(t->g, c.site, c.n, &to, &more, err);
	*n_ret = more.n_armed;
	if (!rc)
		note_unheeded(t, more.n_unheeded);
	return rc;
}

static bool needs_switches(const struct trace *t)
{
	return t->opts.switches || t->opts.no_sleep_time;
}

/* What tells the agent of tasks was the guest's own for a while, or is. */
static int note_missed(struct trace *t, u32 missed, struct err *err)
{
	bool forks = missed & (TRACING_FORKS | TRACING_EXITS), switches = missed & TRACING_SWITCHES;
	int rc = 0;

	pthread_mutex_lock(&t->lock);
	t->info.missed_forks |= forks;
	t->info.missed_switches |= switches;
	pthread_mutex_unlock(&t->lock);
	if (switches)
		trace_post_switches_lost(t);
	t->strayed |= forks;
	/* while it is the guest's, too: better late than never */
	if (t->strayed)
		rc = tracing_follow(t->g, NULL, err);
	t->strayed &= rc != 0;
	return rc;
}

static int look(struct trace *t, bool *again_ret, struct err *err)
{
	struct tracing_counts counts = { 0 };
	bool told = trace_post_is_taken(t); /* all of earlier looks; this one may post more */
	u64 taken = t->taken;
	size_t n_new = 0;
	int rc, rc_missed;

	/* what the guest's own tracing took shows in its records, and nowhere else when it lets go */
	if (!tracing_taken(t->g, &taken) ||
	    (taken == t->taken && !t->left && !t->unarmed && !t->strayed &&
	     t->epoch == kernel_epoch(t->k) && !kernel_stale(t->k)))
		return 0;
	/* a task that is back unseen is to be known for that before switches are told again */
	if (taken != t->taken && t->taken_told == t->taken && needs_switches(t)) {
		t->taken_told = taken;
		trace_post_switches_lost(t);
		*again_ret = true;
		return 0;
	}
	rc = tracing_refresh(t->g, taken != t->taken, &counts, err);
	if (rc)
		return rc;
	rc_missed = note_missed(t, counts.missed, err);
	if (t->epoch != kernel_epoch(t->k)) {
		t->epoch = kernel_epoch(t->k);
		trace_post_epoch(t, t->epoch);
		t->unarmed = true;
		told = false;
	}
	/* not before what they record is named by the tables that have them */
	*again_ret = t->unarmed && !told;
	if (t->unarmed && told) {
		rc = arm_new(t, &n_new, err);
		t->unarmed = rc != 0;
	}
	t->left = counts.n_skipped > 0;
	pthread_mutex_lock(&t->lock);
	t->info.n_functions = counts.n_armed + n_new;
	t->info.n_taken += taken > t->taken ? taken - t->taken : 0;
	pthread_mutex_unlock(&t->lock);
	if (taken != t->taken)
		log_info("the guest's own tracing took over %llu call sites of ours",
			 (unsigned long long)(taken - t->taken));
	t->taken = t->taken_told = taken;
	return rc ? rc : rc_missed;
}

/* Before the guest goes, or as soon as it is seen to go: no site of ours is to arrive with it. */
static int give_way(struct trace *t, struct err *err)
{
	struct guest_restore restore = { 0 };
	struct err why = { 0 };
	int rc = guest_check_stays(t->g, err);

	if (rc == -ETIMEDOUT && err)
		*err = why; /* who looks after guests tells it; sites go back once it is known that the guest goes */
	if (!rc || rc == -ETIMEDOUT)
		return 0;
	if (tracing_disarm(t->g, &restore, &why))
		log_error("%s", why.msg);
	return rc;
}

int trace_life_look(struct trace *t, bool *again_ret, struct err *err)
{
	struct err why = { 0 };
	int rc = give_way(t, err);

	*again_ret = false;
	if (rc)
		return rc;
	rc = look(t, again_ret, &why);

	if (rc && why.code == ERR_VMM_GONE)
		return err_set(err, rc, why.code, why.addr, "%s", why.msg);
	if (rc)
		log_debug("looked in vain: %s", why.msg);
	return 0;
}

static u32 epoch_of(struct trace *t, u64 seq)
{
	u32 epoch = 0;

	pthread_mutex_lock(&t->lock);
	for (size_t i = t->n_marks; i; i--) {
		epoch = t->marks[i - 1].epoch;
		if (t->marks[i - 1].seq <= seq)
			break;
	}
	pthread_mutex_unlock(&t->lock);
	return epoch;
}

bool trace_sym_then(struct trace *t, u64 seq, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	if (!kernel_sym_then(t->k, addr, epoch_of(t, seq), ret))
		return false;
	*off_ret = addr - ret->addr;
	return true;
}

u64 trace_names_when(struct trace *t, u64 seq)
{
	return (u64)kernel_generation(t->k) << 32 | epoch_of(t, seq);
}

/* In what the kernel was before: newest first. */
static bool was_there(struct trace *t, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	for (u32 epoch = kernel_epoch(t->k); epoch-- > 0;) {
		if (!kernel_sym_then(t->k, addr, epoch, ret))
			continue;
		*off_ret = addr - ret->addr;
		return true;
	}
	return false;
}

bool trace_sym(struct trace *t, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	/* now, or when it was there last */
	return trace_sym_then(t, ~0ull, addr, ret, off_ret) || was_there(t, addr, ret, off_ret);
}

bool trace_func_then(struct trace *t, u64 seq, u64 ip, struct kernel_func *ret)
{
	if (t->sys)
		return trace_sys_func(t, ip, ret);
	return !kernel_func_then(t->k, ip, epoch_of(t, seq), ret);
}

bool trace_func(struct trace *t, u64 ip, struct kernel_func *ret)
{
	if (trace_func_then(t, ~0ull, ip, ret))
		return true;
	for (u32 epoch = t->sys ? 0 : kernel_epoch(t->k); epoch-- > 0;) {
		if (!kernel_func_then(t->k, ip, epoch, ret))
			return true;
	}
	return false;
}

void trace_names_lock(struct trace *t)
{
	kernel_names_lock(t->k);
}

void trace_names_unlock(struct trace *t)
{
	kernel_names_unlock(t->k);
}
