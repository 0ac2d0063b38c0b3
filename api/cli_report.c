// SPDX-License-Identifier: Apache-2.0
/* The verb report: a recording as text or JSON, without a daemon. */
#include "api/cli_filter.h"
#include "api/cli_options.h"

#include "base/err.h"
#include "tracers/out_initcalls.h"
#include "tracers/output.h"
#include "tracers/profile.h"
#include "tracers/sys_out.h"

#include <getopt.h>
#include <string.h>

#define FLUSH_BYTES (64ul * 1024)

struct report {
	struct rec_reader *reader;
	struct out_layout *layout;
	struct sys_out *calls; /* of a recording of system calls */
	enum sys_format calls_format;
	u64 first_ns; /* time of the first record; 0: none yet */
	bool summary;
	bool json, folded;
	bool initcalls;
	struct out_initcalls *init; /* if so */
	struct out_layout_opts opts;
	struct profile *profile; /* of folded stacks */
	struct buf out;
	struct rec_filter filter;
	struct output_meta meta; /* with the totals, of a first pass */
	u64 n_records, n_lost;
	u64 last_seq;
	bool cut;
};

static int fail(const char *path, const struct err *err)
{
	return cli_fail("%s: %s (%s): %s", path, err->msg, err_code_name(err->code),
			err_code_hint(err->code));
}

/* Read it all once: the head of ftrace's layout shows totals, which a recording has at its end. */
static int count(struct report *r, const char *path)
{
	struct trace_record rec;
	struct err err = { 0 };
	enum rec_kind kind;

	if (rec_reader_open(path, &r->reader, &err) < 0)
		return fail(path, &err);
	do {
		if (rec_reader_next(r->reader, &kind, &rec, &err) < 0) {
			rec_reader_close(r->reader);
			r->reader = NULL;
			return fail(path, &err);
		}
		if (kind == REC_RECORD)
			r->n_records++;
		else if (kind == REC_LOST)
			r->n_lost += rec.seq;
	} while (kind != REC_END && kind != REC_CUT);
	r->meta = *rec_reader_meta(r->reader);
	r->cut = kind == REC_CUT;
	if (r->cut) {
		r->meta.n_records = r->n_records;
		r->meta.n_lost = r->n_lost;
	}
	rec_reader_close(r->reader);
	r->reader = NULL;
	return CLI_OK;
}

static bool flush(struct report *r, size_t least)
{
	if (r->out.len < least)
		return true;
	fwrite(r->out.data, 1, r->out.len, stdout);
	buf_reset(&r->out);
	return !ferror(stdout);
}

/* Nothing comes out before the end. */
static bool fold(struct report *r, enum rec_kind kind, const struct trace_record *rec,
		 const struct output_names *names)
{
	if (kind == REC_RECORD)
		return profile_add(r->profile, rec, names) == 0;
	if (kind != REC_LOST)
		profile_folded(r->profile, &r->out);
	return true;
}

/* Nothing was lost that we know of, or it is said. */
static void put_initcall(struct report *r, enum rec_kind kind, const struct trace_record *rec,
			 const struct output_names *names)
{
	if (kind == REC_RECORD)
		out_initcalls_record(r->init, &r->out, rec, names);
	else if (kind == REC_LOST)
		buf_addf(&r->out, "[LOST %llu EVENTS]\n", (unsigned long long)rec->seq);
}

static void put(struct report *r, enum rec_kind kind, const struct trace_record *rec,
		const struct output_names *names)
{
	if (kind == REC_RECORD) {
		r->last_seq = rec->seq;
		if (r->json)
			out_json_record(&r->out, rec, names);
		else
			out_layout_record(r->layout, &r->out, rec, names);
	} else if (kind == REC_LOST && r->json) {
		out_json_lost(&r->out, rec->seq, r->last_seq, r->last_seq);
	} else if (kind == REC_LOST) {
		out_layout_lost(r->layout, &r->out, rec->seq, names);
	} else if (r->json) {
		out_json_end(&r->out, &r->meta, kind == REC_CUT ? "cut" : "stopped");
	} else {
		out_layout_flush(r->layout, &r->out, names);
	}
}

/* Lines of system calls. Their clock began when the guest did: what is known is when the trace did. */
static void put_call(struct report *r, enum rec_kind kind, const struct trace_record *rec,
		     const struct output_names *names)
{
	if (kind == REC_RECORD) {
		if (!r->first_ns && rec->ts_ns <= r->meta.started_ns) {
			r->first_ns = rec->ts_ns;
			sys_out_boot(r->calls, r->meta.started_ns - rec->ts_ns);
		}
		r->last_seq = rec->seq;
		sys_out_record(r->calls, &r->out, rec, names);
	} else if (kind == REC_LOST) {
		sys_out_lost(r->calls, &r->out, rec->seq, r->last_seq);
	} else {
		sys_out_end(r->calls, &r->out);
		if (r->json)
			out_json_end(&r->out, &r->meta, kind == REC_CUT ? "cut" : "stopped");
	}
}

static int make_layout(struct report *r, const char *path)
{
	struct err err = { 0 };

	if (rec_filter_names(&r->filter) && (r->folded || strcmp(r->meta.tracer, "syscalls") == 0))
		return cli_fail("%s: of %s only tasks can be chosen (-P), not functions", path,
				r->folded ? "stacks" : "system calls");
	if (strcmp(r->meta.tracer, "syscalls") == 0) {
		if (r->folded)
			return cli_fail("%s has no stacks: it is of system calls", path);
		r->calls =
			sys_out_create(r->summary ? SYS_SUMMARY : r->calls_format, r->meta.guest);
		if (r->calls)
			sys_out_layout(r->calls, &r->opts);
		return r->calls ? CLI_OK : cli_fail("out of memory");
	}
	if (r->summary || r->calls_format > SYS_JSON)
		return cli_fail("%s is no recording of system calls", path);
	if (out_layout_create(&r->meta, &r->layout, &err) < 0)
		return fail(path, &err);
	if (r->initcalls && strcmp(r->meta.tracer, "function_graph") != 0)
		return cli_fail("%s has no durations: it was not recorded with -p function_graph",
				path);
	if (r->initcalls) {
		r->init = out_initcalls_create();
		return r->init ? CLI_OK : cli_fail("out of memory");
	}
	if (r->folded && strcmp(r->meta.tracer, "function_graph") != 0 && !r->meta.stacks)
		return cli_fail("%s has no stacks: it was recorded neither with -p function_graph "
				"nor with --func-stack",
				path);
	out_layout_set(r->layout, &r->opts);
	if (!r->json && !r->folded)
		out_layout_head(r->layout, &r->out, &r->meta);
	return CLI_OK;
}

static int print(struct report *r, const char *path)
{
	struct output_names names;
	struct trace_record rec;
	struct err err = { 0 };
	enum rec_kind kind;
	int status;

	if (rec_reader_open(path, &r->reader, &err) < 0)
		return fail(path, &err);
	names = rec_reader_names(r->reader);
	status = make_layout(r, path);
	if (status != CLI_OK)
		return status;
	do {
		if (rec_reader_next(r->reader, &kind, &rec, &err) < 0)
			return fail(path, &err);
		if (kind == REC_RECORD && !rec_filter_takes(&r->filter, &rec, &names))
			continue;
		if (r->calls)
			put_call(r, kind, &rec, &names);
		else if (r->init)
			put_initcall(r, kind, &rec, &names);
		else if (!r->folded)
			put(r, kind, &rec, &names);
		else if (!fold(r, kind, &rec, &names))
			return cli_fail("out of memory");
		if (buf_failed(&r->out))
			return cli_fail("out of memory");
	} while (kind != REC_END && kind != REC_CUT && flush(r, FLUSH_BYTES));
	flush(r, 1);
	if (r->init && !out_initcalls_count(r->init))
		return cli_fail("%s has no initcalls: record them with --trace-from-boot -p "
				"function_graph -l do_one_initcall --args --retval",
				path);
	return cli_flush(CLI_OK);
}

static bool set_format(struct report *r, const char *name)
{
	static const char *const formats[] = { "text", "json", "falco", "ocsf" };

	r->json = strcmp(name, "json") == 0;
	r->folded = strcmp(name, "folded") == 0;
	r->calls_format = SYS_TEXT;
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
		if (strcmp(name, formats[i]) == 0) {
			r->calls_format = (enum sys_format)(SYS_TEXT + i);
			return true;
		}
	}
	r->initcalls = strcmp(name, "initcalls") == 0;
	return r->folded || r->initcalls;
}

static void report_deinit(struct report *r)
{
	rec_reader_close(r->reader);
	out_layout_destroy(r->layout);
	sys_out_destroy(r->calls);
	profile_destroy(r->profile);
	out_initcalls_destroy(r->init);
	buf_deinit(&r->out);
}

int cli_syscalls_summary(struct cli *c, const char *path)
{
	struct report r = { .summary = true };
	int status = count(&r, path);

	(void)c;
	if (status == CLI_OK)
		status = print(&r, path);
	report_deinit(&r);
	return status;
}

static void close_line(const struct report *r)
{
	if (rec_filter_on(&r->filter))
		fprintf(stderr, "%llu of ", (unsigned long long)r->filter.n_taken);
	fprintf(stderr, "%llu records, %llu lost, %llu functions patched, %s\n",
		(unsigned long long)r->meta.n_records, (unsigned long long)r->meta.n_lost,
		(unsigned long long)r->meta.n_functions,
		r->meta.restored ? "restored" : "NOT verified to be restored");
	if (r->meta.missed_forks || r->meta.missed_switches)
		fprintf(stderr,
			"some %s%s%s were missed, as the guest's own tracing had the functions that "
			"tell them\n",
			r->meta.missed_forks ? "forks" : "",
			r->meta.missed_forks && r->meta.missed_switches ? " and " : "",
			r->meta.missed_switches ? "task switches" : "");
}

/* Options are taken. */
static int show(struct report *r, const char *path)
{
	int status;

	r->profile = profile_create(true);
	if (!r->profile)
		return cli_fail("out of memory");
	status = count(r, path);
	if (status == CLI_OK)
		status = print(r, path);
	if (status == CLI_OK && r->cut)
		status = cli_fail(
			"%s was cut after %llu records (file.cut): the recorder was killed or "
			"its disk was full",
			path, (unsigned long long)r->n_records);
	else if (status == CLI_OK)
		close_line(r);
	if (status == CLI_OK && r->meta.n_unnamed)
		fprintf(stderr,
			"%llu times an address was one too many to be taken down: it is shown as %s\n",
			(unsigned long long)r->meta.n_unnamed, OUTPUT_SHARED_NAME);
	if (status == CLI_OK && r->folded)
		cli_profile_excess(r->profile, true);
	return status;
}

/* Return: as trace_args_parse() */
static int take_option(struct cli *c, const char *verb, int opt, struct report *r,
		       struct trace_args *a)
{
	if (opt == 'F' && !set_format(r, optarg))
		return cli_usage(verb,
				 "--format takes text, json, folded, initcalls, falco or ocsf, not "
				 "\"%s\"",
				 optarg);
	if (opt == 'O')
		return cli_layout_option(verb, optarg, &r->opts, NULL);
	return opt == 'F' ? -1 : trace_args_take(c, verb, opt, a);
}

int cli_report(struct cli *c, int argc, char **argv)
{
	static const struct option longs[] = { { "format", required_argument, NULL, 'F' },
					       CLI_COMMON_LONG,
					       { NULL, 0, NULL, 0 } };
	struct report r = { 0 };
	struct trace_args a;
	int opt, status = -1;

	trace_args_init(&a, "function");
	while (status == -1 &&
	       (opt = getopt_long(argc, argv, "O:" REC_FILTER_SHORT CLI_COMMON_SHORT, longs,
				  NULL)) != -1)
		status = take_option(c, argv[0], opt, &r, &a);
	if (status == -1 && argc - optind != 1)
		status = cli_usage(argv[0], argc == optind ? "which file?" : "only one file");
	if (status == -1) {
		if (c->json && !r.folded && !r.initcalls && r.calls_format == SYS_TEXT)
			set_format(&r, "json");
		rec_filter_init(&r.filter, a.body);
		status = show(&r, argv[optind]);
	}
	report_deinit(&r);
	trace_args_deinit(&a);
	return status == CLI_HELP_SHOWN ? CLI_OK : status;
}
