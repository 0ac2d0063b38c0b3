// SPDX-License-Identifier: Apache-2.0
/*
 * /v1/traces/{t}/export: what is kept of a trace, in another tool's format. The records are those up to now,
 * also of a trace that runs on. A format that writes all of it at the end takes them at once, on the
 * worker's thread, into its temporary file; the others take them as the client does.
 */
#include "api/auth.h"
#include "api/names_then.h"
#include "api/registry.h"
#include "api/resources.h"
#include "api/server.h"
#include "api/stream.h"
#include "base/buf.h"
#include "tracers/formats/export.h"
#define LOG_PREFIX "export"
#include "base/log.h"

#include <errno.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT_BATCH 256
#define EXPORT_BLOCK (64ul * 1024)
#define EXPORTS_MAX \
	8 /* each may have a file of its trace's size beside the journals, and a worker */
#define EXPORTS_EACH 4 /* of one client: one that does not read leaves some for others */
/* What journals get, whatever exports take: without room for them nothing can be armed or put back. */
#define EXPORT_SPARE (128ul << 20)

enum stage {
	STAGE_RECORDS,
	STAGE_END,
	STAGE_DONE
};

struct export_job {
	struct export_job *next; /* of those that are open */
	struct auth *auth;
	struct identity who; /* whom it is for */
	struct trace_entry *trace; /* a reference */
	const struct export_format *format;
	struct export *export;
	enum stage stage;
	u64 after, until; /* sequence numbers: the last one taken, the last one wanted */
	struct names_then names;
	struct buf out;
	size_t off; /* what of @out was sent */
	struct trace_record recs[EXPORT_BATCH];
};

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct export_job *open_jobs;

static bool job_enter(struct export_job *j)
{
	unsigned n = 0, same = 0;
	bool ok;

	pthread_mutex_lock(&open_lock);
	for (const struct export_job *o = open_jobs; o; o = o->next) {
		n++;
		same += strcmp(o->who.name, j->who.name) == 0;
	}
	ok = n < EXPORTS_MAX && same < EXPORTS_EACH;
	if (ok) {
		j->next = open_jobs;
		open_jobs = j;
	}
	pthread_mutex_unlock(&open_lock);
	return ok;
}

static void job_free(struct export_job *j)
{
	struct export_job **at;

	pthread_mutex_lock(&open_lock);
	for (at = &open_jobs; *at != j; at = &(*at)->next)
		;
	*at = j->next;
	pthread_mutex_unlock(&open_lock);
	export_destroy(j->export);
	buf_deinit(&j->out);
	free(j);
}

static void put_gap(struct export_job *j, u64 next_seq)
{
	if (next_seq <= j->after + 1)
		return;
	export_lost(j->export, &j->out, next_seq - j->after - 1);
	j->after = next_seq - 1;
}

/* The next records of those that are wanted. false: there are no more. Context: a user of the trace */
static bool take_batch(struct export_job *j, struct trace *t)
{
	struct trace_page page = { .buf = j->recs, .max = EXPORT_BATCH };
	struct err err = { 0 };
	int r = trace_read(t, j->after, &page, &err);

	if (r == -ESTALE) {
		put_gap(j, MIN(page.oldest_seq, j->until + 1));
		return j->after < j->until;
	}
	names_then_begin(&j->names, j->trace, j->after);
	for (size_t i = 0; i < page.n && j->recs[i].seq <= j->until; i++) {
		put_gap(j, j->recs[i].seq);
		names_then_at(&j->names, j->recs[i].seq);
		export_record(j->export, &j->out, &j->recs[i], &j->names.names);
		j->after = j->recs[i].seq;
	}
	names_then_end(&j->names);
	return r == 0 && page.n && j->after < j->until;
}

/* What is only known now. */
static void put_totals(struct export_job *j, const struct trace_info *i)
{
	struct output_meta m = { .n_records = i->n_records,
				 .n_lost = i->n_lost,
				 .n_functions = i->n_functions,
				 .n_restored = i->restore.sites_restored,
				 .restored = i->state != TRACE_RUNNING && i->restore.verified,
				 .boot_ns = i->boot_ns,
				 .zero_mono_ns = i->zero_mono_ns };

	export_totals(j->export, &m);
}

static void take_records(struct export_job *j)
{
	struct trace_info info = { 0 };
	bool more;

	if (!registry_trace_use(j->trace)) { /* deleted under us, and with it what was left */
		put_gap(j, j->until + 1);
		put_totals(j, &j->trace->last);
		j->stage = STAGE_END;
		return;
	}
	more = j->after < j->until && take_batch(j, j->trace->trace);
	trace_get_info(j->trace->trace, &info);
	registry_trace_unuse(j->trace);
	if (more)
		return;
	put_totals(j, &info);
	j->stage = STAGE_END;
}

static ssize_t read_export(void *cls, uint64_t pos, char *buf, size_t max)
{
	struct export_job *j = cls;
	struct err err = { 0 };
	size_t n;

	(void)pos;
	if (!auth_still(j->auth, &j->who)) {
		log_info("trace %s: an export is cut: %s may not have it any more", j->trace->id,
			 j->who.name);
		return MHD_CONTENT_READER_END_WITH_ERROR;
	}
	while (j->off == j->out.len) {
		buf_reset(&j->out);
		j->off = 0;
		if (j->stage == STAGE_DONE)
			return MHD_CONTENT_READER_END_OF_STREAM;
		if (j->stage == STAGE_RECORDS)
			take_records(j);
		else if (!export_end(j->export, &j->out))
			j->stage = STAGE_DONE;
		if (export_check(j->export, &err) < 0 || buf_failed(&j->out)) {
			log_error("trace %s: an export is cut: %s", j->trace->id,
				  err.code ? err.msg : "no memory");
			return MHD_CONTENT_READER_END_WITH_ERROR;
		}
	}
	n = MIN(max, j->out.len - j->off);
	memcpy(buf, j->out.data + j->off, n);
	j->off += n;
	return (ssize_t)n;
}

static void on_response_freed(void *cls)
{
	struct export_job *j = cls;

	registry_stream_end(j->trace);
	job_free(j);
}

/* "GUEST-TRACE.dat"; a guest's name is of letters, digits and a few more */
static bool add_disposition(struct MHD_Response *resp, const struct trace_entry *t,
			    const struct export_format *f)
{
	char text[192], name[64];
	size_t n = 0;

	for (const char *s = t->guest->name; *s && n < sizeof(name) - 1; s++)
		name[n++] = *s == '"' || *s == '\\' || *s < ' ' || *s == 0x7f ? '_' : *s;
	name[n] = 0;
	snprintf(text, sizeof(text), "attachment; filename=\"%s-%s%s\"", name, t->id, f->suffix);
	return MHD_add_response_header(resp, MHD_HTTP_HEADER_CONTENT_DISPOSITION, text) == MHD_YES;
}

/* Context: a user of @t */
static int job_start(struct export_job *j, struct trace_entry *t, const struct export_opts *opts,
		     struct err *err)
{
	struct output_meta meta = { 0 };
	struct trace_info info = { 0 };
	int r;

	trace_get_info(t->trace, &info);
	if (opts->host_trace_id && !info.zero_mono_ns)
		return err_set(err, -EAGAIN, ERR_CONFLICT, 0,
			       "no record has come yet, so where the guest's clock stands to the "
			       "host's is not known");
	stream_fill_meta(&meta, t, 0);
	meta.boot_ns = info.boot_ns;
	j->trace = t;
	j->until = info.n_records;
	meta.zero_mono_ns = info.zero_mono_ns;
	r = export_create(j->format, &meta, opts, &j->export, err);
	if (r < 0)
		return r;
	export_head(j->export, &j->out);
	if (info.n_lost) /* where they were is not kept */
		export_lost(j->export, &j->out, info.n_lost);
	return 0;
}

/* Sorting, too, which comes before the first byte: the HTTP thread is not to do that. No user of the trace */
static int job_build(struct export_job *j, struct err *err)
{
	int r = 0;

	while (r == 0 && j->stage != STAGE_DONE && !j->out.len) {
		if (j->stage == STAGE_RECORDS)
			take_records(j);
		else if (!export_end(j->export, &j->out))
			j->stage = STAGE_DONE;
		r = export_check(j->export, err);
	}
	return r;
}

/* NULL: the problem is the reply. Context: a user of @t */
static struct export_job *job_create(struct request *rq, struct trace_entry *t,
				     const struct export_format *f, const struct export_opts *opts)
{
	struct export_job *j;
	struct err err = { 0 };
	struct problem p;

	j = calloc(1, sizeof(*j));
	if (!j) {
		request_json(rq, 503, NULL);
		return NULL;
	}
	j->auth = server_auth(rq->srv);
	j->who = rq->who;
	if (!job_enter(j)) {
		free(j);
		problem_from_code(&p, PROBLEM_STREAMS,
				  "%d exports are open already, or %d of this client", EXPORTS_MAX,
				  EXPORTS_EACH);
		request_problem(rq, &p);
		return NULL;
	}
	j->format = f;
	names_then_init(&j->names);
	if (job_start(j, t, opts, &err) == 0)
		return j;
	job_free(j);
	request_error(rq, &err);
	return NULL;
}

/* From here on nobody waits for us: the records of a trace that is deleted meanwhile are said to be lost. */
static void answer(struct request *rq, struct export_job *j)
{
	bool late = (j->format->flags & EXPORT_LATE) && strcmp(rq->method, "HEAD") != 0;
	struct trace_entry *t = j->trace;
	struct MHD_Response *resp;
	struct err err = { 0 };

	if (late && job_build(j, &err) < 0) {
		on_response_freed(j);
		request_error(rq, &err);
		return;
	}
	resp = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, EXPORT_BLOCK, read_export, j,
						 on_response_freed);
	if (!resp) {
		on_response_freed(j);
		request_json(rq, 503, NULL);
		return;
	}
	if (!add_disposition(resp, t, j->format)) {
		MHD_destroy_response(resp);
		request_json(rq, 503, NULL);
		return;
	}
	rq->reply.status = 200;
	rq->reply.type = j->format->media_type;
	rq->reply.response = resp;
}

/* format=NAME; NULL: the problem is the reply */
static const struct export_format *take_format(struct request *rq)
{
	const char *name = request_query(rq, "format");
	const struct export_format *f = name ? export_find(name) : NULL, *all;
	struct buf names = { 0 };
	size_t n;

	if (f)
		return f;
	all = export_formats(&n);
	for (size_t i = 0; i < n; i++)
		buf_addf(&names, "%s%s", !i ? "" : i + 1 == n ? " or " : ", ", all[i].name);
	request_refuse(rq, "format", "must be %s", names.data ? names.data : "given");
	buf_deinit(&names);
	return NULL;
}

/* host_trace_id=16 hex digits, of trace.dat alone */
static int take_host_trace(struct request *rq, const struct export_format *f, u64 *ret)
{
	const char *text = request_query(rq, "host_trace_id");

	if (!text)
		return 0;
	if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16) {
		request_refuse(rq, "host_trace_id", "must be 16 digits, 0 to 9 or a to f");
		return -EINVAL;
	}
	if (strncmp(f->name, "trace.dat", 9) != 0) {
		request_refuse(rq, "host_trace_id",
			       "is for the formats trace.dat and trace.dat.v7");
		return -EINVAL;
	}
	*ret = strtoull(text, NULL, 16);
	return 0;
}

void res_traces_export(struct request *rq)
{
	const struct export_format *f = take_format(rq);
	struct export_opts opts = {
		.tmp = { registry_state_dir(server_registry(rq->srv)), EXPORT_SPARE },
	};
	struct export_job *j;
	struct trace_entry *t;
	struct err err = { 0 };

	if (!f || take_host_trace(rq, f, &opts.host_trace_id) < 0)
		return;
	if (registry_trace_get(server_registry(rq->srv), rq->params[0], &t, &err) < 0) {
		request_error(rq, &err);
		return;
	}
	j = job_create(rq, t, f, &opts);
	if (j)
		registry_stream_begin(t); /* which is a reference, too */
	registry_trace_put(t);
	if (j)
		answer(rq, j);
}
