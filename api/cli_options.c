// SPDX-License-Identifier: Apache-2.0
/* Options of trace, record and profile. See cli_options.h. */
#include "api/cli_options.h"

#include "api/cli_names.h"
#include "base/cleanup.h"
#include "tracers/output.h"
#include "tracers/profile_sort.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Members of the request that -p function has no use for, and the options that set them. */
static const struct request_option {
	const char *key, *option;
} graph_options[] = {
	{ "graph", "-g" },
	{ "graph_notrace", "--graph-notrace" },
	{ "max_graph_depth", "--max-graph-depth" },
	{ "threshold_ns", "--threshold" },
	{ "irqs", "--no-irqs" },
	{ "sleep_time", "--no-sleep-time" },
	{ "retval", "--retval" },
};

/* Members that the tracer syscalls alone has a use for. */
static const struct request_option calls_options[] = {
	{ "failed", "--failed" },
	{ "follow_forks", "-f" },
	{ "comm", "--comm" },
	{ "uid", "--uid" },
	{ "cgroup", "--cgroup" },
	{ "path", "--path" },
	{ "string_max", "--strings" },
	{ "fd_paths", "-y" },
	{ "env", "--env" },
	{ "raw", "--raw" },
};

void trace_args_init(struct trace_args *a, const char *tracer)
{
	*a = (struct trace_args){ .format = "text",
				  .sort = "total",
				  .body = json_pack("{s:s}", "tracer", tracer),
				  .origins = json_object() };
}

void trace_args_deinit(struct trace_args *a)
{
	json_decref(a->body);
	json_decref(a->origins);
	buf_deinit(&a->layout);
	*a = (struct trace_args){ 0 };
}

/* The list @key of the request; made when it is not there. */
static json_t *list_of(json_t *body, const char *key)
{
	if (!json_object_get(body, key))
		json_object_set_new(body, key, json_array());
	return json_object_get(body, key);
}

/* A glob, or with @FILE those in it. */
static int add_globs(const char *verb, struct trace_args *a, const char *key, const char *arg)
{
	json_t *list = list_of(a->body, key);
	int status;

	if (*arg == '@' && !arg[1])
		return cli_usage(verb, "@ is followed by the name of a file, or by - for standard "
				       "input");
	if (*arg == '@') {
		status = cli_names_file(arg + 1, list, a->origins);
		return status == CLI_OK ? -1 : status;
	}
	return json_array_append_new(list, json_string(arg))
		       ? cli_usage(verb, "\"%s\" is not UTF-8", arg)
		       : -1;
}

static bool whole_number(const char *text, long *ret)
{
	char *end;

	errno = 0;
	*ret = strtol(text, &end, 10);
	return *text >= '0' && *text <= '9' && !*end && !errno;
}

static int add_pid(const char *verb, json_t *body, const char *text)
{
	long pid;

	if (!whole_number(text, &pid) || pid < 1)
		return cli_usage(verb, "-P takes a pid of the guest, not \"%s\"", text);
	json_array_append_new(list_of(body, "pids"), json_integer(pid));
	return -1;
}

static int set_tracer(const char *verb, json_t *body, const char *tracer)
{
	if (strcmp(tracer, "function") != 0 && strcmp(tracer, "function_graph") != 0 &&
	    strcmp(tracer, "syscalls") != 0)
		return cli_usage(verb, "-p takes function, function_graph or syscalls, not \"%s\"",
				 tracer);
	json_object_set_new(body, "tracer", json_string(tracer));
	return -1;
}

static int set_depth(const char *verb, json_t *body, const char *text)
{
	long depth;

	if (!whole_number(text, &depth))
		return cli_usage(
			verb, "--max-graph-depth takes a number of levels, 0 for all, not \"%s\"",
			text);
	json_object_set_new(body, "max_graph_depth", json_integer(depth));
	return -1;
}

static int set_stack_depth(const char *verb, json_t *body, const char *text)
{
	long depth;

	if (!whole_number(text, &depth) || depth < 1)
		return cli_usage(verb, "--stack-depth takes a number of callers, not \"%s\"", text);
	json_object_set_new(body, "stack_depth", json_integer(depth));
	return -1;
}

/* Without a unit it would be seconds here and microseconds in tracing_thresh: so there must be one. */
static int set_threshold(const char *verb, json_t *body, const char *text)
{
	u64 ns;

	if (!cli_duration(text, &ns) || ns > INT64_MAX || !text[strspn(text, "0123456789")])
		return cli_usage(
			verb,
			"--threshold takes a time with its unit, as 50us, 2ms or 1s, not \"%s\"",
			text);
	json_object_set_new(body, "threshold_ns", json_integer((json_int_t)ns));
	return -1;
}

static int set_number(const char *verb, json_t *body, const char *key, const char *option,
		      const char *text)
{
	long n;

	if (!whole_number(text, &n))
		return cli_usage(verb, "%s takes a number, not \"%s\"", option, text);
	return json_object_set_new(body, key, json_integer(n)) ? cli_fail("out of memory") : -1;
}

static int set_string(const char *verb, json_t *body, const char *key, const char *text)
{
	return json_object_set_new(body, key, json_string(text))
		       ? cli_usage(verb, "\"%s\" is not UTF-8", text)
		       : -1;
}

static int set_bool(json_t *body, const char *key, bool value)
{
	return json_object_set_new(body, key, json_boolean(value)) ? cli_fail("out of memory") : -1;
}

/* Of system calls. Return: as take_request_option(). */
static int take_calls_option(const char *verb, int opt, json_t *body)
{
	switch (opt) {
	case OPT_FAILED:
		return set_bool(body, "failed", true);
	case 'f':
		return set_bool(body, "follow_forks", true);
	case 'y':
		return set_bool(body, "fd_paths", true);
	case OPT_ENV:
		return set_bool(body, "env", true);
	case OPT_RAW:
		return set_bool(body, "raw", true);
	case OPT_COMM:
		return set_string(verb, body, "comm", optarg);
	case OPT_PATH:
		return set_string(verb, body, "path", optarg);
	case OPT_UID:
		return set_number(verb, body, "uid", "--uid", optarg);
	case OPT_CGROUP:
		return set_number(verb, body, "cgroup", "--cgroup", optarg);
	case OPT_STRINGS:
		return set_number(verb, body, "string_max", "--strings", optarg);
	default:
		return -2;
	}
}

/* What the request has a member for. Return: as trace_args_parse(); -2 when @opt is none of it. */
static int take_request_option(const char *verb, int opt, struct trace_args *a)
{
	switch (opt) {
	case 'p':
		return set_tracer(verb, a->body, optarg);
	case 'l':
		return add_globs(verb, a, "filter", optarg);
	case 'n':
		return add_globs(verb, a, "notrace", optarg);
	case 'g':
		return add_globs(verb, a, "graph", optarg);
	case OPT_GRAPH_NOTRACE:
		return add_globs(verb, a, "graph_notrace", optarg);
	case 'P':
		return add_pid(verb, a->body, optarg);
	case OPT_MAX_DEPTH:
		return set_depth(verb, a->body, optarg);
	case OPT_THRESHOLD:
		return set_threshold(verb, a->body, optarg);
	case OPT_NO_IRQS:
		return set_bool(a->body, "irqs", false);
	case OPT_NO_SLEEP_TIME:
		return set_bool(a->body, "sleep_time", false);
	case OPT_RETVAL:
		return set_bool(a->body, "retval", true);
	case OPT_ARGS:
		return set_bool(a->body, "args", true);
	case OPT_SWITCHES:
		return set_bool(a->body, "switches", true);
	case OPT_PERSISTENT:
		return set_bool(a->body, "persistent", true);
	case OPT_FUNC_STACK:
		a->stack_of_all |= !optarg;
		return optarg ? add_globs(verb, a, "stack", optarg) : -1;
	case OPT_STACK_DEPTH:
		return set_stack_depth(verb, a->body, optarg);
	default:
		return take_calls_option(verb, opt, a->body);
	}
}

static int set_count(const char *verb, const char *option, u32 *ret)
{
	long n;

	if (!whole_number(optarg, &n) || n > INT32_MAX)
		return cli_usage(verb, "%s takes a number, not \"%s\"", option, optarg);
	*ret = (u32)n;
	return -1;
}

int trace_args_take(struct cli *c, const char *verb, int opt, struct trace_args *a)
{
	int r = take_request_option(verb, opt, a);

	if (r != -2)
		return r;
	switch (opt) {
	case OPT_DURATION:
		if (!cli_duration(optarg, &a->duration_ns))
			return cli_usage(verb,
					 "--duration takes 10, 10s, 500ms, 2m or 1h, not \"%s\"",
					 optarg);
		return -1;
	case OPT_FORMAT:
		a->format = optarg;
		if (strcmp(optarg, "text") != 0 && strcmp(optarg, "json") != 0 &&
		    strcmp(optarg, "falco") != 0 && strcmp(optarg, "ocsf") != 0)
			return cli_usage(verb,
					 "--format takes text, json, falco or ocsf, not \"%s\"",
					 optarg);
		return -1;
	case 'c':
		a->summary = true;
		return -1;
	case 'O':
		return cli_layout_option(verb, optarg, &(struct out_layout_opts){ 0 }, &a->layout);
	case 'o':
		a->output = optarg;
		return -1;
	case OPT_MAX_SIZE:
		return cli_size(optarg, &a->limits.max_bytes) && a->limits.max_bytes
			       ? -1
			       : cli_usage(verb, "--max-size takes 512M or 2G, not \"%s\"", optarg);
	case OPT_MAX_AGE:
		return cli_duration(optarg, &a->limits.max_age_ns) && a->limits.max_age_ns
			       ? -1
			       : cli_usage(verb, "--max-age takes 30s, 10m or 24h, not \"%s\"",
					   optarg);
	case OPT_INTERVAL:
		return cli_duration(optarg, &a->interval_ns) && a->interval_ns >= 10 * NSEC_PER_MSEC
			       ? -1
			       : cli_usage(
					 verb,
					 "--interval takes 1s or 200ms, 10ms at least, not \"%s\"",
					 optarg);
	case OPT_ITERATIONS:
		a->iterations_given = true;
		return set_count(verb, "--iterations", &a->iterations);
	case OPT_LINES:
		return set_count(verb, "--lines", &a->lines);
	case OPT_NO_GRAPH_TIME:
		a->no_graph_time = true;
		return -1;
	case OPT_SORT:
		a->sort = optarg;
		return profile_is_key(optarg)
			       ? -1
			       : cli_usage(verb, "--sort takes " PROFILE_KEYS ", not \"%s\"",
					   optarg);
	default:
		return cli_common_option(c, verb, opt, optarg);
	}
}

/* --func-stack alone: of those of -l. Of everything it would have the guest do little else. */
static int check_stack(const char *verb, struct trace_args *a)
{
	json_t *filter = json_object_get(a->body, "filter");

	if (a->stack_of_all && !filter)
		return cli_usage(verb, "--func-stack needs functions: -l GLOB, or "
				       "--func-stack=GLOB");
	if (a->stack_of_all && json_array_extend(list_of(a->body, "stack"), filter))
		return cli_fail("out of memory");
	if (json_object_get(a->body, "stack_depth") && !json_object_get(a->body, "stack"))
		return cli_usage(verb, "--stack-depth needs --func-stack");
	return -1;
}

int trace_args_check(const char *verb, struct trace_args *a)
{
	const char *tracer = json_string_value(json_object_get(a->body, "tracer"));
	int r = check_stack(verb, a);

	if (r != -1)
		return r;
	if (tracer && strcmp(tracer, "syscalls") != 0) {
		for (size_t i = 0; i < ARRAY_SIZE(calls_options); i++) {
			if (json_object_get(a->body, calls_options[i].key))
				return cli_usage(verb, "%s needs -p syscalls",
						 calls_options[i].option);
		}
		if (!strcmp(a->format, "falco") || !strcmp(a->format, "ocsf"))
			return cli_usage(verb, "--format %s needs -p syscalls", a->format);
	}
	if (!tracer || strcmp(tracer, "function") != 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(graph_options); i++) {
		if (json_object_get(a->body, graph_options[i].key))
			return cli_usage(verb, "%s needs -p function_graph",
					 graph_options[i].option);
	}
	return -1;
}

int trace_args_parse(struct cli *c, int argc, char **argv, const char *shorts,
		     const struct option *longs, struct trace_args *a)
{
	int opt, r;

	while ((opt = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
		r = trace_args_take(c, argv[0], opt, a);
		if (r != -1)
			return r;
	}
	if (optind == argc)
		return cli_usage(argv[0], "which guest?");
	if (argc - optind > 1)
		return cli_usage(argv[0], "what is \"%s\"? Functions are given with -l",
				 argv[optind + 1]);
	a->guest = argv[optind];
	return trace_args_check(argv[0], a);
}

int cli_layout_option(const char *verb, const char *name, struct out_layout_opts *opts,
		      struct buf *names)
{
	if (!out_layout_option(opts, name, strlen(name)))
		return cli_usage(verb, "-O takes " OUT_LAYOUT_OPTIONS ", not \"%s\"", name);
	if (names)
		buf_addf(names, "%s%s", names->len ? "," : "", name);
	return -1;
}

void trace_args_blame(const struct trace_args *a, const struct cli_reply *refusal)
{
	const char *detail = json_string_value(json_object_get(refusal->doc, "detail"));
	const char *glob;
	char quoted[600];
	json_t *origin;

	if (!detail || strcmp(cli_reply_code(refusal), "filter.no_match") != 0)
		return;
	json_object_foreach(a->origins, glob, origin)
	{
		snprintf(quoted, sizeof(quoted), "\"%s\"", glob);
		if (!strstr(detail, quoted))
			continue;
		json_object_set_new(refusal->doc, "detail",
				    json_sprintf("%s: %s", json_string_value(origin), detail));
		return;
	}
}
