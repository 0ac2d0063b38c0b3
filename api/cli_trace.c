// SPDX-License-Identifier: Apache-2.0
/* The verbs trace, record and profile: start a trace, follow it, say how it went. */
#include "api/cli.h"
#include "api/cli_options.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static long long number(const json_t *doc, const char *key)
{
	return (long long)json_integer_value(json_object_get(doc, key));
}

/* Of function_graph: how its calls ended. */
static void calls(const json_t *graph)
{
	long long not_followed = number(graph, "lost_frames");

	if (!json_is_object(graph))
		return;
	fprintf(stderr, " (%lld calls: %lld returned, %lld never will, %lld inside",
		number(graph, "entries"), number(graph, "returns"), number(graph, "never_returned"),
		number(graph, "inside"));
	if (not_followed)
		fprintf(stderr, "; %lld more not followed", not_followed);
	putc(')', stderr);
}

/* Of --func-stack: what has none, and what it cost. */
static void stacks(const json_t *doc)
{
	if (!json_is_object(doc))
		return;
	if (number(doc, "lost"))
		fprintf(stderr, " (%lld without their callers)", number(doc, "lost"));
	if (number(doc, "skipped_calls"))
		fprintf(stderr, " (%lld calls by the guest's unwinder not recorded)",
			number(doc, "skipped_calls"));
}

/* What the guest's own tracing had for itself. */
static void say_missed(const json_t *doc)
{
	json_t *kind;
	size_t i;

	json_array_foreach(json_object_get(doc, "missed"), i, kind)
	{
		bool forks =
			!strcmp(json_string_value(kind) ? json_string_value(kind) : "", "forks");

		fputs(forks ? "some forks were missed, as the guest's own tracing had the functions "
			      "that tell them: what was started then is followed late or not at all\n"
			    : "some task switches were missed, as the guest's own tracing had "
			      "finish_task_switch(): sleeps of then are in durations\n",
		      stderr);
	}
}

/* What was asked for, but is not traced. */
static void say_skipped(const json_t *doc)
{
	long long n = number(doc, "skipped"), unheeded = number(doc, "unheeded");

	if (unheeded)
		fprintf(stderr,
			"%lld function%s of modules that came later %s traced without all that was asked "
			"(callers, arguments ...): there was no room\n",
			unheeded, unheeded == 1 ? "" : "s", unheeded == 1 ? "is" : "are");
	if (n)
		fprintf(stderr,
			"%lld matching function%s left alone: in use by the guest's own tracing, "
			"disabled by its kernel, or not safe to trace\n",
			n, n == 1 ? " is" : "s are");
}

/* The last line. Return: exit status. */
static int close_line(const json_t *doc)
{
	json_t *restore = json_object_get(doc, "restore");
	json_t *error = json_object_get(doc, "error"), *syscalls = json_object_get(doc, "syscalls");
	struct cli_reply problem = { .doc = error };
	long long changed = number(restore, "sites_changed");
	bool verified = json_is_true(json_object_get(restore, "verified"));

	say_skipped(doc);
	say_missed(doc);
	if (!json_is_object(syscalls))
		fprintf(stderr, "%lld records", number(doc, "records"));
	else if (!number(syscalls, "forgotten"))
		fprintf(stderr, "%lld system calls", number(syscalls, "calls"));
	else
		fprintf(stderr, "%lld system calls (%lld forgotten: too many at once)",
			number(syscalls, "calls"), number(syscalls, "forgotten"));
	calls(json_object_get(doc, "graph"));
	stacks(json_object_get(doc, "stacks"));
	fprintf(stderr, ", %lld lost, ", number(doc, "lost") + number(doc, "lost_readers"));
	if (number(doc, "lost_captures"))
		fprintf(stderr, "%lld pieces of arguments lost, ", number(doc, "lost_captures"));
	fprintf(stderr, "%lld functions patched, ", number(doc, "functions"));
	if (verified)
		fputs("restored", stderr);
	else
		fputs("NOT verified to be restored", stderr);
	if (changed)
		fprintf(stderr, " (%lld changed by the guest itself meanwhile)", changed);
	putc('\n', stderr);
	if (json_is_object(error))
		return cli_refused(&problem);
	return verified ? CLI_OK : CLI_FAILED;
}

/* Stop it if it still runs, forget it, and say how it went. */
static int finish(struct cli *c, const char *id, int status)
{
	struct cli_reply r = { 0 };
	char path[64];

	snprintf(path, sizeof(path), "/v1/traces/%s", id);
	if (status != CLI_OK) { /* one line of failure is out, and enough */
		c->quiet = true;
		(void)cli_call(c, "DELETE", path, NULL, &r);
		cli_reply_deinit(&r);
		return status;
	}
	status = cli_call(c, "DELETE", path, NULL, &r);
	if (status == CLI_OK && r.status != 200)
		status = cli_refused(&r);
	else if (status == CLI_OK)
		status = close_line(r.doc);
	cli_reply_deinit(&r);
	return status;
}

/* A recording in a file is one of blocks; what goes through a pipe is as it comes. */
static int open_store(const struct trace_args *a, int fd, struct rec_store **ret)
{
	bool limited = a->limits.max_bytes || a->limits.max_age_ns;
	struct err err = { 0 };
	struct stat st;

	if (!a->store || (!limited && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))))
		return CLI_OK;
	if (rec_store_create(fd, &a->limits, ret, &err) < 0)
		return cli_fail("%s: %s", a->output, err.msg);
	return CLI_OK;
}

/* What the guest is held for has begun. */
static int release(struct cli *c, const struct trace_args *a)
{
	_cleanup_free_ char *path = cli_guest_path(a->guest, "/release");
	json_t *doc = NULL;
	int status;

	if (!path)
		return cli_fail("out of memory");
	status = cli_request(c, "POST", path, NULL, &doc);
	json_decref(doc);
	return status;
}

/* The id of the trace that goes on with @id, which was cut off by what; NULL: it was not, or not yet. */
static char *successor(struct cli *c, const char *id, const char **cut_off_ret)
{
	struct cli_reply r = { 0 };
	char path[64], *next = NULL;
	const char *code;

	*cut_off_ret = NULL;
	snprintf(path, sizeof(path), "/v1/traces/%s", id);
	if (cli_call(c, "GET", path, NULL, &r) == CLI_OK && r.status == 200 && r.doc) {
		code = json_string_value(json_object_get(json_object_get(r.doc, "error"), "code"));
		code = code ? code : "";
		if (strcmp(code, "guest.rebooted") == 0)
			*cut_off_ret = "rebooted";
		else if (strcmp(code, "guest.restored") == 0)
			*cut_off_ret = "put back to a snapshot";
		if (json_is_string(json_object_get(r.doc, "continued_by")))
			next = strdup(json_string_value(json_object_get(r.doc, "continued_by")));
	}
	cli_reply_deinit(&r);
	return next;
}

/* A persistent trace whose guest was rebooted: wait for the one that goes on. NULL: there is none. */
static char *wait_successor(struct cli *c, const char *id)
{
	const struct timespec step = { .tv_nsec = 300 * 1000 * 1000 };
	struct cli_reply r = { 0 };
	const char *cut_off;
	char path[64], *next = successor(c, id, &cut_off);
	sigset_t set;

	cli_follow_signals(&set);
	if (cut_off)
		fprintf(stderr, "the guest was %s; going on when it is up\n", cut_off);
	while (!next && cut_off && sigtimedwait(&set, NULL, &step) < 0)
		next = successor(c, id, &cut_off);
	if (!next)
		return NULL;
	snprintf(path, sizeof(path), "/v1/traces/%s", id);
	(void)cli_call(c, "DELETE", path, NULL, &r);
	cli_reply_deinit(&r);
	return next;
}

static u64 less(u64 a, u64 b)
{
	return a > b ? a - b : 1;
}

/* Its stream, and after reboots those of what goes on. *@id becomes the last one's. */
static int follow_all(struct cli *c, const struct trace_args *a, struct cli_follow *f, char **id)
{
	bool persistent = json_is_true(json_object_get(a->body, "persistent"));
	u64 start = clock_ns(CLOCK_MONOTONIC);
	int status;

	for (;;) {
		char *next = NULL;

		f->trace = *id;
		status = cli_follow(c, f);
		if (status == CLI_OK && persistent)
			next = wait_successor(c, *id);
		if (!next)
			return status;
		free(*id);
		*id = next;
		if (a->duration_ns)
			f->duration_ns = less(a->duration_ns, clock_ns(CLOCK_MONOTONIC) - start);
	}
}

static int start_and_follow(struct cli *c, const struct trace_args *a, struct cli_follow *f)
{
	_cleanup_free_ char *path = cli_guest_path(a->guest, "/traces");
	_cleanup_free_ char *id = NULL;
	struct cli_reply r;
	int status;

	if (!path)
		return cli_fail("out of memory");
	status = cli_call(c, "POST", path, json_incref(a->body), &r);
	if (status == CLI_OK && (r.status != 201 || !r.doc)) {
		trace_args_blame(a, &r);
		status = cli_refused(&r);
	}
	if (status == CLI_OK)
		id = strdup(json_string_value(json_object_get(r.doc, "id")) ?: "");
	cli_reply_deinit(&r);
	if (status != CLI_OK)
		return status;
	if (!id)
		return cli_fail("out of memory");
	status = a->release ? release(c, a) : CLI_OK;
	if (status == CLI_OK)
		status = follow_all(c, a, f, &id);
	return finish(c, id, status);
}

static int follow(struct cli *c, const struct trace_args *a, int fd, const char *accept)
{
	struct cli_follow f = { .accept = accept,
				.layout = a->layout.data,
				.out_fd = fd,
				.duration_ns = a->duration_ns };
	/* first: a place that cannot take it costs the guest nothing */
	int status = open_store(a, fd, &f.store);

	if (status == CLI_OK)
		status = start_and_follow(c, a, &f);
	rec_store_destroy(f.store);
	return status;
}

/* SIGINT and the like are to end the trace, from before it starts until it is over. */
static void hold_signals(void)
{
	sigset_t set;

	cli_follow_signals(&set);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static const char *accept_of(const struct cli *c, const struct trace_args *a)
{
	static const struct {
		const char *format, *type;
	} types[] = {
		{ "json", "application/x-ndjson" },
		{ "falco", "application/vnd.hvftrace.falco" },
		{ "ocsf", "application/vnd.hvftrace.ocsf" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		if (strcmp(a->format, types[i].format) == 0)
			return types[i].type;
	}
	return c->json ? types[0].type : "text/plain";
}

int cli_trace(struct cli *c, int argc, char **argv)
{
	static const struct option longs[] = { { "format", required_argument, NULL, OPT_FORMAT },
					       TRACE_LONG,
					       { NULL, 0, NULL, 0 } };
	struct trace_args a;
	int status;

	trace_args_init(&a, "function");
	status = trace_args_parse(c, argc, argv, "p:O:" TRACE_SHORT, longs, &a);
	if (status == -1) {
		hold_signals();
		status = follow(c, &a, STDOUT_FILENO, accept_of(c, &a));
	}
	trace_args_deinit(&a);
	return status == CLI_HELP_SHOWN ? CLI_OK : status;
}

/* What a kernel does is nobody else's business: for the owner only. */
static int to_file(struct cli *c, const struct trace_args *a, const char *accept)
{
	/* definitions between what is dropped are read again */
	int how = a->limits.max_bytes || a->limits.max_age_ns ? O_RDWR : O_WRONLY;
	_cleanup_close_ int fd = open(a->output, how | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	int status;

	if (fd < 0)
		return cli_fail("cannot write %s: %s", a->output, strerrordesc_np(errno));
	hold_signals();
	status = follow(c, a, fd, accept);
	if (status == CLI_OK && close(no_cleanup_fd(fd)) < 0)
		status = cli_fail("cannot write %s: %s", a->output, strerrordesc_np(errno));
	return status;
}

int cli_record(struct cli *c, int argc, char **argv)
{
	static const struct option longs[] = { { "output", required_argument, NULL, 'o' },
					       { "max-size", required_argument, NULL,
						 OPT_MAX_SIZE },
					       { "max-age", required_argument, NULL, OPT_MAX_AGE },
					       TRACE_LONG,
					       { NULL, 0, NULL, 0 } };
	struct trace_args a;
	int status;

	trace_args_init(&a, "function");
	status = trace_args_parse(c, argc, argv, "p:o:" TRACE_SHORT, longs, &a);
	if (status == -1 && !a.output)
		status = cli_usage(argv[0], "-o FILE is needed");
	if (status == -1 && json_is_true(json_object_get(a.body, "persistent")))
		status = cli_usage(argv[0], "a recording is of one kernel: no --persistent");
	a.store = true;
	if (status == -1)
		status = to_file(c, &a, "application/vnd.hvftrace.recording");
	trace_args_deinit(&a);
	return status == CLI_HELP_SHOWN ? CLI_OK : status;
}

int cli_trace_args(struct cli *c, const struct trace_args *a)
{
	if (a->output)
		return to_file(c, a, "application/vnd.hvftrace.recording");
	hold_signals();
	return follow(c, a, STDOUT_FILENO, accept_of(c, a));
}

int cli_trace_into(struct cli *c, const struct trace_args *a, int fd)
{
	hold_signals();
	return follow(c, a, fd, "application/vnd.hvftrace.recording");
}

/* Trace @a->guest into a file without a name, and show that by @show. */
static int through_file(struct cli *c, const struct trace_args *a,
			int (*show)(struct cli *c, const char *path, const struct trace_args *a))
{
	_cleanup_fclose_ FILE *file = tmpfile();
	char path[64];
	int status;

	if (!file)
		return cli_fail("cannot write a temporary file: %s", strerrordesc_np(errno));
	hold_signals();
	status = follow(c, a, fileno(file), "application/vnd.hvftrace.recording");
	if (status != CLI_OK)
		return status;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fileno(file));
	return show(c, path, a);
}

static int show_summary(struct cli *c, const char *path, const struct trace_args *a)
{
	(void)a;
	return cli_syscalls_summary(c, path);
}

int cli_syscalls(struct cli *c, int argc, char **argv)
{
	static const struct option longs[] = { { "format", required_argument, NULL, OPT_FORMAT },
					       { "output", required_argument, NULL, 'o' },
					       { "summary", no_argument, NULL, 'c' },
					       { "duration", required_argument, NULL,
						 OPT_DURATION },
					       CALLS_LONG,
					       CLI_COMMON_LONG,
					       { NULL, 0, NULL, 0 } };
	struct trace_args a;
	int status;

	trace_args_init(&a, "syscalls");
	status = trace_args_parse(c, argc, argv, "cfyl:o:O:P:" CLI_COMMON_SHORT, longs, &a);
	if (status == -1 && a.summary && a.output)
		status = cli_usage(argv[0], "-c goes to standard output, without -o");
	if (status == -1 && a.summary) {
		status = through_file(c, &a, show_summary);
	} else if (status == -1 && a.output) {
		status = to_file(c, &a, accept_of(c, &a));
	} else if (status == -1) {
		hold_signals();
		status = follow(c, &a, STDOUT_FILENO, accept_of(c, &a));
	}
	trace_args_deinit(&a);
	return status == CLI_HELP_SHOWN ? CLI_OK : status;
}

/* A recording, of which functions and tasks can be chosen: rather than count what was not asked for, refuse. */
static int profile_file(struct cli *c, const char *verb, const struct trace_args *a)
{
	static const char *const known[] = { "tracer", "filter", "notrace", "pids" };
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		n += json_object_get(a->body, known[i]) != NULL;
	if (json_object_size(a->body) > n || a->duration_ns)
		return cli_usage(verb,
				 "%s is a recording: of the trace options it takes -l, -n and -P "
				 "alone",
				 a->guest);
	return cli_profile_file(c, a->guest, a);
}

int cli_profile(struct cli *c, int argc, char **argv)
{
	static const struct option longs[] = { { "sort", required_argument, NULL, OPT_SORT },
					       { "no-graph-time", no_argument, NULL,
						 OPT_NO_GRAPH_TIME },
					       TRACE_LONG,
					       { NULL, 0, NULL, 0 } };
	struct trace_args a;
	int status;

	trace_args_init(&a, "function_graph");
	status = trace_args_parse(c, argc, argv, TRACE_SHORT, longs, &a);
	if (status == -1 && json_is_true(json_object_get(a.body, "persistent")))
		status = cli_usage(argv[0], "a profile is of one kernel: no --persistent");
	/* a guest's name has no slash, and a file beside us is meant when there is one */
	if (status == -1 && (strchr(a.guest, '/') || access(a.guest, F_OK) == 0))
		status = profile_file(c, argv[0], &a);
	else if (status == -1)
		status = through_file(c, &a, cli_profile_file);
	trace_args_deinit(&a);
	return status == CLI_HELP_SHOWN ? CLI_OK : status;
}
