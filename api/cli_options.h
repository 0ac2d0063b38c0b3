/* SPDX-License-Identifier: Apache-2.0 */
/* The options of trace, record and profile, and the request that they make. */
#ifndef API_CLI_OPTIONS_H
#define API_CLI_OPTIONS_H

#include "api/cli.h"
#include "base/buf.h"
#include "tracers/output.h"
#include "tracers/rec_store.h"

#include <getopt.h>

struct out_layout_opts;

struct trace_args {
	const char *guest;
	const char *format; /* "text", "json"; with the tracer syscalls "falco" or "ocsf", too */
	bool stack_of_all; /* --func-stack without a glob */
	bool summary; /* of syscalls: -c */
	const char *output; /* FILE, or NULL */
	const char *sort; /* of profile */
	bool no_graph_time; /* the same */
	u64 interval_ns; /* of top, as the next */
	bool iterations_given;
	u32 iterations, lines; /* 0: no end; as many as there is room for */
	u64 duration_ns;
	bool release; /* the guest is held: let it go once the trace runs */
	struct buf layout; /* -O: names with commas between */
	bool store; /* of record, and run with a file: it is one of blocks */
	struct rec_store_opts limits;
	json_t *body; /* of the request that starts the trace */
	json_t *origins; /* globs that files gave: "FILE:LINE" of each */
};

enum {
	OPT_DURATION = 256 + 1, /* above every letter */
	OPT_FORMAT,
	OPT_SORT,
	OPT_GRAPH_NOTRACE,
	OPT_MAX_DEPTH,
	OPT_THRESHOLD,
	OPT_NO_IRQS,
	OPT_NO_SLEEP_TIME,
	OPT_RETVAL,
	OPT_ARGS,
	OPT_SWITCHES,
	OPT_FAILED,
	OPT_COMM,
	OPT_UID,
	OPT_CGROUP,
	OPT_PATH,
	OPT_STRINGS,
	OPT_ENV,
	OPT_RAW,
	OPT_MAX_SIZE,
	OPT_MAX_AGE,
	OPT_PERSISTENT,
	OPT_FUNC_STACK,
	OPT_STACK_DEPTH,
	OPT_NO_GRAPH_TIME,
	OPT_INTERVAL,
	OPT_ITERATIONS,
	OPT_LINES,
};

/* Which system calls: of syscalls and of record -p syscalls. */
/* clang-format off: a table */
#define CALLS_LONG                                                                               \
	{ "failed", no_argument, NULL, OPT_FAILED }, { "follow-forks", no_argument, NULL, 'f' }, \
		{ "comm", required_argument, NULL, OPT_COMM },                                   \
		{ "uid", required_argument, NULL, OPT_UID },                                     \
		{ "cgroup", required_argument, NULL, OPT_CGROUP },                               \
		{ "path", required_argument, NULL, OPT_PATH },                                   \
		{ "decode-fds", no_argument, NULL, 'y' }, { "env", no_argument, NULL, OPT_ENV }, \
		{ "raw", no_argument, NULL, OPT_RAW },                                           \
	{                                                                                        \
		"strings", required_argument, NULL, OPT_STRINGS                                  \
	}
/* clang-format on */

/* For getopt_long(): what the three verbs have in common. */
#define TRACE_SHORT "fyl:n:P:g:" CLI_COMMON_SHORT
/* clang-format off: a table */
#define TRACE_LONG                                                               \
	{ "duration", required_argument, NULL, OPT_DURATION },                   \
		{ "graph-notrace", required_argument, NULL, OPT_GRAPH_NOTRACE }, \
		{ "max-graph-depth", required_argument, NULL, OPT_MAX_DEPTH },   \
		{ "threshold", required_argument, NULL, OPT_THRESHOLD },         \
		{ "no-irqs", no_argument, NULL, OPT_NO_IRQS },                   \
		{ "no-sleep-time", no_argument, NULL, OPT_NO_SLEEP_TIME },       \
		{ "retval", no_argument, NULL, OPT_RETVAL },                     \
		{ "args", no_argument, NULL, OPT_ARGS }, CALLS_LONG,             \
		{ "persistent", no_argument, NULL, OPT_PERSISTENT },             \
		{ "func-stack", optional_argument, NULL, OPT_FUNC_STACK },       \
		{ "stack-depth", required_argument, NULL, OPT_STACK_DEPTH },     \
		{ "switches", no_argument, NULL, OPT_SWITCHES }, CLI_COMMON_LONG
/* clang-format on */

/** trace_args_init - for a verb whose tracer is @tracer unless -p says otherwise */
void trace_args_init(struct trace_args *a, const char *tracer);
void trace_args_deinit(struct trace_args *a);

/** trace_args_parse - Return: -1 to go on, or the exit status (or CLI_HELP_SHOWN) */
int trace_args_parse(struct cli *c, int argc, char **argv, const char *shorts,
		     const struct option *longs, struct trace_args *a);

/** trace_args_take - one option that getopt_long() found. Return: as trace_args_parse(). */
int trace_args_take(struct cli *c, const char *verb, int opt, struct trace_args *a);

/** trace_args_check - once they are all there: do the options go together? Return: as trace_args_parse(). */
int trace_args_check(const char *verb, struct trace_args *a);

/**
 * cli_layout_option - -O NAME of a text layout
 * @opts: the option is turned on here
 * @names: NAME is appended; may be NULL
 *
 * Return: as trace_args_parse().
 */
int cli_layout_option(const char *verb, const char *name, struct out_layout_opts *opts,
		      struct buf *names);

/** cli_trace_args - as the verbs trace and, with @a->output, record. Return: exit status. */
int cli_trace_args(struct cli *c, const struct trace_args *a);

/** cli_trace_into - trace @a->guest, as a recording into @fd. Return: exit status. */
int cli_trace_into(struct cli *c, const struct trace_args *a, int fd);

/** trace_args_blame - say in a refusal where the glob that matches nothing came from */
void trace_args_blame(const struct trace_args *a, const struct cli_reply *refusal);

#endif
