// SPDX-License-Identifier: Apache-2.0
/*
 * /v1/traces/{t}/profile: what is kept of a trace, added up by function. On the worker's thread, a batch of
 * records at a time, so that nobody waits for it who stops or deletes the trace.
 */
#include "api/names_then.h"
#include "api/registry.h"
#include "api/resources.h"
#include "api/server.h"
#include "base/cleanup.h"
#include "tracers/profile_sort.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PROFILE_BATCH     256
#define PROFILE_LIMIT     1000
#define PROFILE_MAX_LIMIT 10000
#define PROFILES_MAX      4 /* at a time: each may add up millions of records */

static atomic_uint n_profiles;

struct job {
	struct trace_entry *t;
	struct profile *profile;
	const char *sort;
	u64 limit;
	u64 after, until; /* sequence numbers: the last one taken, the last one wanted */
	u64 lost; /* of those that are wanted, not kept any more */
	struct names_then names;
	struct trace_record recs[PROFILE_BATCH];
};

static void pass_by(struct job *j, u64 next_seq)
{
	if (next_seq <= j->after + 1)
		return;
	j->lost += next_seq - j->after - 1;
	j->after = next_seq - 1;
}

/* Return: 1 there are more, 0 that was all, negative with @err. Context: a user of the trace */
static int add_batch(struct job *j, struct err *err)
{
	struct trace_page page = { .buf = j->recs, .max = PROFILE_BATCH };
	int r = trace_read(j->t->trace, j->after, &page, err);

	if (r == -ESTALE) {
		pass_by(j, MIN(page.oldest_seq, j->until + 1));
		return j->after < j->until;
	}
	if (r < 0)
		return r;
	names_then_begin(&j->names, j->t, j->after);
	for (size_t i = 0; r == 0 && i < page.n && j->recs[i].seq <= j->until; i++) {
		pass_by(j, j->recs[i].seq);
		names_then_at(&j->names, j->recs[i].seq);
		r = profile_add(j->profile, &j->recs[i], &j->names.names);
		j->after = j->recs[i].seq;
	}
	names_then_end(&j->names);
	if (r < 0)
		return err_set(err, r, ERR_NO_MEMORY, 0, "no memory for a profile");
	return page.n && j->after < j->until;
}

/* Up to what is there now. Context: a reference to the trace, no user */
static int add_all(struct job *j, struct err *err)
{
	int r;

	do {
		if (!registry_trace_use(j->t))
			return err_set(err, -ENOENT, ERR_NOT_FOUND, 0, "trace %s was deleted",
				       j->t->id);
		r = add_batch(j, err);
		registry_trace_unuse(j->t);
	} while (r > 0);
	return r;
}

static int begin(struct job *j, bool graph_time, struct trace_info *info, struct err *err)
{
	trace_get_info(j->t->trace, info);
	if (strcmp(info->tracer, "syscalls") == 0)
		return err_set(
			err, -EINVAL, ERR_BAD_REQUEST, 0,
			"a profile is of function_graph, or hits alone of function; trace %s "
			"is of syscalls",
			j->t->id);
	j->until = info->n_records;
	names_then_init(&j->names);
	j->profile = profile_create(graph_time);
	return j->profile ? 0 : err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a profile");
}

static void answer(struct request *rq, struct job *j, const struct trace_info *info)
{
	_cleanup_buf_ struct buf b = { 0 };
	struct profile_excess over;
	struct profile_sorted s;
	u64 lost = info->n_lost + j->lost;

	if (profile_sort(j->profile, j->sort, &s)) {
		request_json(rq, 503, NULL);
		return;
	}
	profile_excess(j->profile, &over);
	buf_addf(&b,
		 "{\"records\":%llu,\"lost\":%llu,\"unnamed\":%llu,\"functions\":%zu,\"items\":[",
		 (unsigned long long)j->until, (unsigned long long)lost,
		 (unsigned long long)over.unnamed, s.n);
	for (size_t i = 0; i < MIN(s.n, (size_t)j->limit); i++) {
		buf_adds(&b, i ? ",\n" : "");
		profile_json_row(&b, &s.line[i]);
	}
	buf_adds(&b, "]}\n");
	profile_sorted_deinit(&s);
	if (buf_failed(&b))
		request_json(rq, 503, NULL);
	else
		request_text(rq, 200, "application/json", &b);
}

/* Context: a user of the trace, which it is no more afterwards */
static void profile(struct request *rq, struct job *j, bool graph_time)
{
	struct trace_info info = { 0 };
	struct err err = { 0 };
	struct trace_entry *t = j->t;
	int r = begin(j, graph_time, &info, &err);

	registry_trace_ref(t);
	registry_trace_put(t);
	if (r == 0)
		r = add_all(j, &err);
	if (r < 0)
		request_error(rq, &err);
	else
		answer(rq, j, &info);
	profile_destroy(j->profile);
	registry_trace_unref(t);
}

static int take_query(struct request *rq, struct job *j, bool *graph_time_ret)
{
	const char *sort = request_query(rq, "sort");

	*graph_time_ret = true;
	j->sort = sort ?: "total";
	if (!profile_is_key(j->sort)) {
		request_refuse(rq, "sort", "must be " PROFILE_KEYS);
		return -EINVAL;
	}
	if (request_query(rq, "graph_time") &&
	    request_query_bool(rq, "graph_time", graph_time_ret) < 0)
		return -EINVAL;
	if (request_query_u64(rq, "limit", PROFILE_LIMIT, PROFILE_MAX_LIMIT, &j->limit) < 0)
		return -EINVAL;
	if (j->limit)
		return 0;
	request_refuse(rq, "limit", "must be a number, 1 to %d", PROFILE_MAX_LIMIT);
	return -EINVAL;
}

void res_traces_profile(struct request *rq)
{
	_cleanup_free_ struct job *j = calloc(1, sizeof(*j));
	struct err err = { 0 };
	struct problem p;
	bool graph_time;

	if (!j) {
		request_json(rq, 503, NULL);
		return;
	}
	if (take_query(rq, j, &graph_time) < 0)
		return;
	if (registry_trace_get(server_registry(rq->srv), rq->params[0], &j->t, &err) < 0) {
		request_error(rq, &err);
		return;
	}
	if (atomic_fetch_add(&n_profiles, 1) >= PROFILES_MAX) {
		problem_from_code(&p, PROBLEM_STREAMS, "%d profiles are being made already",
				  PROFILES_MAX);
		request_problem(rq, &p);
		registry_trace_put(j->t);
	} else {
		profile(rq, j, graph_time);
	}
	atomic_fetch_sub(&n_profiles, 1);
}
