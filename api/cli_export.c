// SPDX-License-Identifier: Apache-2.0
/*
 * The verb export: a recording, or what the daemon has of a trace, in another tool's format. A recording
 * needs no daemon.
 */
#include "api/cli_export.h"
#include "api/cli_filter.h"
#include "api/cli_options.h"

#include "base/cleanup.h"
#include "tracers/formats/dat_peer.h"
#include "tracers/formats/export.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FLUSH_BYTES (64ul * 1024)

struct job {
	struct cli *c;
	const char *source, *out;
	const struct export_format *format;
	struct export_opts opts;
	struct cli_export_out sink;
	struct rec_filter filter;
	u64 n_records, n_lost;
	bool cut;
};

static int fail(const char *path, const struct err *err)
{
	if (err->code == ERR_BAD_REQUEST) /* its hint is for users of the API */
		return cli_fail("%s: %s", path, err->msg);
	return cli_fail("%s: %s (%s): %s", path, err->msg, err_code_name(err->code),
			err_code_hint(err->code));
}

/* All of it, as it has no index: it was cut, or came through a pipe. */
static int count(struct job *j, struct rec_reader *r, u64 *first_ns_ret)
{
	struct trace_record rec;
	struct err err = { 0 };
	enum rec_kind kind;

	do {
		if (rec_reader_next(r, &kind, &rec, &err) < 0)
			return fail(j->source, &err);
		if (kind == REC_RECORD && !*first_ns_ret)
			*first_ns_ret = rec.ts_ns;
	} while (kind != REC_END && kind != REC_CUT);
	return CLI_OK;
}

/* A first pass: what a format has at its head is at the end of a recording. */
static int find_totals(struct job *j, struct output_meta *meta_ret)
{
	struct rec_reader *r;
	struct err err = { 0 };
	u64 first_ns = 0;
	int status = CLI_OK, n;

	if (rec_reader_open(j->source, &r, &err) < 0)
		return fail(j->source, &err);
	n = rec_reader_totals(r, &err);
	if (n < 0)
		status = fail(j->source, &err);
	else if (!n)
		status = count(j, r, &first_ns);
	*meta_ret = *rec_reader_meta(r);
	/* the first record is about as old as the trace */
	if (!meta_ret->boot_ns && first_ns && first_ns < meta_ret->started_ns)
		meta_ret->boot_ns = meta_ret->started_ns - first_ns;
	rec_reader_close(r);
	return status;
}

static bool flush(struct job *j, struct buf *b, size_t least)
{
	bool ok = b->len < least || cli_export_put(&j->sink, b->data, b->len);

	if (b->len >= least)
		buf_reset(b);
	return ok && !buf_failed(b);
}

static int check(struct job *j, struct export *x, const struct buf *b)
{
	struct err err = { 0 };

	if (j->sink.failed)
		return CLI_FAILED; /* it has been said */
	if (buf_failed(b))
		return cli_fail("out of memory");
	return export_check(x, &err) < 0 ? fail(j->source, &err) : CLI_OK;
}

/* The second pass. */
static int write_records(struct job *j, struct rec_reader *r, struct export *x)
{
	struct output_names names = rec_reader_names(r);
	_cleanup_buf_ struct buf b = { 0 };
	struct trace_record rec;
	struct err err = { 0 };
	enum rec_kind kind;

	export_head(x, &b);
	for (;;) {
		if (rec_reader_next(r, &kind, &rec, &err) < 0)
			return fail(j->source, &err);
		if (kind == REC_RECORD && !rec_filter_takes(&j->filter, &rec, &names))
			continue;
		if (kind == REC_RECORD)
			export_record(x, &b, &rec, &names);
		else if (kind == REC_LOST)
			export_lost(x, &b, rec.seq);
		else
			break;
		j->n_records += kind == REC_RECORD;
		j->n_lost += kind == REC_LOST ? rec.seq : 0;
		if (!flush(j, &b, FLUSH_BYTES))
			return check(j, x, &b);
	}
	j->cut = kind == REC_CUT;
	export_totals(x, rec_reader_meta(r));
	while (export_end(x, &b)) {
		if (!flush(j, &b, FLUSH_BYTES))
			return check(j, x, &b);
	}
	flush(j, &b, 1);
	return check(j, x, &b);
}

static int from_file(struct job *j)
{
	struct output_meta meta = { 0 };
	struct rec_reader *r = NULL;
	struct export *x = NULL;
	struct err err = { 0 };
	int status = find_totals(j, &meta);

	if (status != CLI_OK)
		return status;
	if (rec_filter_names(&j->filter) &&
	    (strcmp(j->format->name, "folded") == 0 || strcmp(meta.tracer, "syscalls") == 0))
		return cli_fail("%s: of %s only tasks can be chosen (-P), not functions", j->source,
				strcmp(meta.tracer, "syscalls") == 0 ? "system calls" : "stacks");
	if (export_create(j->format, &meta, &j->opts, &x, &err) < 0)
		return fail(j->source, &err);
	if (j->opts.host_trace_id && !meta.zero_mono_ns) {
		export_destroy(x);
		return cli_fail("%s does not say when its clock began: it was made by an earlier "
				"version, or cut",
				j->source);
	}
	status = cli_export_open(&j->sink, j->out, j->format->flags & EXPORT_TAR);
	if (status == CLI_OK && rec_reader_open(j->source, &r, &err) < 0)
		status = fail(j->source, &err);
	if (status == CLI_OK)
		status = write_records(j, r, x);
	rec_reader_close(r);
	export_destroy(x);
	status = cli_export_close(&j->sink, status);
	if (status == CLI_OK && j->cut)
		return cli_fail("%s was cut after %llu records (file.cut): the recorder was killed "
				"or its disk was full; those are exported",
				j->source, (unsigned long long)j->n_records);
	if (status == CLI_OK)
		fprintf(stderr, "%llu records, %llu lost\n", (unsigned long long)j->n_records,
			(unsigned long long)j->n_lost);
	return status;
}

static int usage_formats(const char *verb, const char *what)
{
	_cleanup_buf_ struct buf b = { 0 };
	const struct export_format *f;
	size_t n;

	f = export_formats(&n);
	for (size_t i = 0; i < n; i++)
		buf_addf(&b, "%s%s", !i ? "" : i + 1 == n ? " or " : ", ", f[i].name);
	return cli_usage(verb, "%s: -f takes %s", what, b.data);
}

static int set_format(const char *verb, const char *name, const struct export_format **ret)
{
	char what[64];

	*ret = export_find(name);
	snprintf(what, sizeof(what), "there is no format \"%.32s\"", name);
	return *ret ? CLI_OK : usage_formats(verb, what);
}

/* Is it a file? A trace's id has no '/' nor '.'. */
static bool is_file(const char *source)
{
	return strpbrk(source, "/.") || access(source, F_OK) == 0;
}

/* The host's trace, that ours is to be merged with. */
static int take_host(const char *path, u64 *id_ret)
{
	_cleanup_fclose_ FILE *f = fopen(path, "rbe");
	struct dat_peer peer;
	struct err err = { 0 };

	if (!f)
		return cli_fail("cannot open %s: %s", path, strerrordesc_np(errno));
	if (dat_peer_read(f, &peer, &err) < 0)
		return fail(path, &err);
	if (strcmp(peer.clock, "mono") != 0)
		return cli_fail("%s has the clock \"%s\"; record it with trace-cmd record -C mono",
				path, peer.clock);
	if (!peer.trace_id)
		return cli_fail("%s has no trace id: trace-cmd before 2.9 made it", path);
	*id_ret = peer.trace_id;
	return CLI_OK;
}

/* Return: as trace_args_parse() */
static int take_option(struct job *j, const char *verb, int opt, const char **host_ret,
		       struct trace_args *a)
{
	int status;

	switch (opt) {
	case 'f':
		status = set_format(verb, optarg, &j->format);
		return status == CLI_OK ? -1 : status;
	case 'o':
		j->out = optarg;
		return -1;
	case 'H':
		*host_ret = optarg;
		return -1;
	default:
		return trace_args_take(j->c, verb, opt, a);
	}
}

/* Options are taken; @host: a trace.dat to be merged with, or NULL */
static int run(struct job *j, const char *verb, const char *host)
{
	int status;

	if (!j->format)
		return usage_formats(verb, "which format?");
	if (host && strncmp(j->format->name, "trace.dat", 9) != 0)
		return cli_usage(verb, "--host-trace is for trace.dat");
	if (host && (status = take_host(host, &j->opts.host_trace_id)) != CLI_OK)
		return status;
	if (is_file(j->source))
		return from_file(j);
	if (rec_filter_on(&j->filter))
		return cli_usage(verb, "-l, -n and -P are for a recording; %s is none", j->source);
	return cli_export_trace(j->c, j->source, j->format, &j->opts, j->out);
}

int cli_export(struct cli *c, int argc, char **argv)
{
	static const struct option longs[] = { { "format", required_argument, NULL, 'f' },
					       { "output", required_argument, NULL, 'o' },
					       { "host-trace", required_argument, NULL, 'H' },
					       CLI_COMMON_LONG,
					       { NULL, 0, NULL, 0 } };
	struct job j = { .c = c, .out = "-" };
	const char *host = NULL;
	struct trace_args a;
	int opt, status = -1;

	trace_args_init(&a, "function");
	while (status == -1 &&
	       (opt = getopt_long(argc, argv, "f:o:" REC_FILTER_SHORT CLI_COMMON_SHORT, longs,
				  NULL)) != -1)
		status = take_option(&j, argv[0], opt, &host, &a);
	if (status == -1 && argc - optind != 1)
		status = cli_usage(argv[0], argc == optind ? "which recording or trace?"
							   : "only one recording or trace");
	if (status == -1) {
		j.source = argv[optind];
		rec_filter_init(&j.filter, a.body);
		status = run(&j, argv[0], host);
	}
	trace_args_deinit(&a);
	return status == CLI_HELP_SHOWN ? CLI_OK : status;
}
