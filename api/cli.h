/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command `hvftrace`: what its verbs share. It speaks to the daemon only, and to no guest.
 * stdout is for data, stderr for messages; a failure is one line.
 */
#ifndef API_CLI_H
#define API_CLI_H

#include "base/types.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>

#define CLI_DEFAULT_SOCKET "/run/hvftrace/hvftraced.sock"
#define CLI_DEFAULT_TOKENS "/etc/hvftrace/tokens"

/* Exit statuses. */
enum cli_status {
	CLI_OK = 0,
	CLI_FAILED = 1,
	CLI_USAGE = 2
};

struct cli {
	const char *socket; /* path of the daemon's unix socket; NULL with @url */
	const char *url; /* "http://127.0.0.1:PORT" */
	bool json;
	bool quiet; /* say nothing about a daemon that does not answer */
	const volatile sig_atomic_t
		*interrupted; /* set, it breaks off what is asked; NULL: signals end the command */
	void *curl; /* CURL *, for one request after the other */
};

struct cli_verb {
	const char *name;
	const char *args; /* as in the usage line */
	const char *summary;
	const char *help; /* options and examples; "" for none */
	int (*run)(struct cli *c, int argc, char **argv); /* argv[0] is the verb */
};

/* cli_main.c: the verbs' own table, for `help` and usage messages. */
const struct cli_verb *cli_verb_find(const char *name);
const struct cli_verb *cli_verb_at(size_t i); /* NULL behind the last */

/** cli_common_option - -s, --json and --help of every verb; -1 when @opt is none of them */
int cli_common_option(struct cli *c, const char *verb, int opt, const char *arg);
#define CLI_COMMON_SHORT "s:h"
#define CLI_COMMON_LONG                                       \
	{ "socket", 1, NULL, 's' }, { "json", 0, NULL, 'J' }, \
	{                                                     \
		"help", 0, NULL, 'h'                          \
	}
#define CLI_HELP_SHOWN 256 /* from cli_common_option(): stop, exit status 0 */

/** cli_no_options - for verbs without options of their own; *ret is the exit status on false */
bool cli_no_options(struct cli *c, int argc, char **argv, int *ret);

/* cli_text.c */
#define CLI_RED    "\033[31m"
#define CLI_GREEN  "\033[32m"
#define CLI_YELLOW "\033[33m"
#define CLI_PLAIN  "\033[0m"
/** cli_colour - @code, one of these, for a terminal that has colours; else, or if NO_COLOR is set, "" */
const char *cli_colour(const char *code);

/** cli_fail - one line on stderr, "hvftrace: ..."; Return: CLI_FAILED */
int cli_fail(const char *fmt, ...) printf_like(1, 2);
/** cli_usage - what is wrong, and how @verb is used; Return: CLI_USAGE */
int cli_usage(const char *verb, const char *fmt, ...) printf_like(2, 3);
#ifdef __clang_analyzer__ /* as err_set() */
#define cli_usage(...) ((void)cli_usage(__VA_ARGS__), CLI_USAGE)
#endif
/** cli_text - print @s, which a guest may have chosen: control characters become '?' */
void cli_text(FILE *f, const char *s);
/** cli_closest - the one of @words that was probably meant; NULL when none is near */
const char *cli_closest(const char *word, const char *const *words, size_t n);
/** cli_duration - "5", "5s", "500ms", "20us", "100ns", "2m", "1h"; false when it is none of that */
bool cli_duration(const char *text, u64 *ns_ret);
/** cli_window_limit - of @verb's option --window-limit. Return: -1 to go on, or the exit status. */
int cli_window_limit(const char *verb, const char *text, u64 *ns_ret);
/** cli_size - "512M", "2G", "524288K", bytes without a letter */
bool cli_size(const char *text, u64 *bytes_ret);
/** cli_flush - write out stdout; a failure (a full disk) is reported. Return: exit status. */
int cli_flush(int status);

/* A table on stdout: columns as wide as they need to be. */
struct cli_table {
	char ***rows;
	size_t n_rows, n_cols;
};
void cli_table_add(struct cli_table *t, size_t n_cols, const char *const *cells);
void cli_table_print(struct cli_table *t); /* and free */

/* cli_http.c */
struct cli_reply {
	long status;
	json_t *doc; /* NULL when the answer is no JSON */
};
/**
 * cli_call - one request
 * @body: NULL for none; its reference is taken
 *
 * With @c->interrupted an answer is waited for some seconds only. Return: 0, whatever the status; CLI_FAILED when there is
 * no answer, reported unless it was interrupted.
 */
int cli_call(struct cli *c, const char *method, const char *path, json_t *body,
	     struct cli_reply *ret);
/** cli_send_bytes - as cli_call(), a POST of @n bytes */
int cli_send_bytes(struct cli *c, const char *path, const void *data, size_t n,
		   struct cli_reply *ret);
void cli_reply_deinit(struct cli_reply *r);
/** cli_refused - report a problem document; Return: CLI_FAILED */
int cli_refused(const struct cli_reply *r);
const char *cli_reply_code(const struct cli_reply *r); /* of a problem; "" for none */
/** cli_request - cli_call(), where anything but 2xx is reported as a failure */
int cli_request(struct cli *c, const char *method, const char *path, json_t *body,
		json_t **doc_ret);
/** cli_escape - @s as part of a path or a query; to be freed */
char *cli_escape(const char *s);
/** cli_guest_path - "/v1/guests/G@rest"; to be freed */
char *cli_guest_path(const char *guest, const char *rest);

struct rec_store;

struct cli_follow {
	const char *trace; /* id */
	const char *accept;
	const char *layout; /* names of text options with commas between; NULL: none */
	int out_fd;
	u64 duration_ns; /* 0: until SIGINT, SIGTERM or its own end */
	struct rec_store *store; /* on @out_fd: what comes goes through it; NULL: as it is */
};
/** cli_follow_signals - those that end a trace; to be blocked before it starts */
void cli_follow_signals(sigset_t *ret);
/** cli_follow - copy a trace's stream until it ends; stops the trace on signals and when time is up */
int cli_follow(struct cli *c, struct cli_follow *f);

/* cli_profile.c */
#define CLI_TOP_KEYS "total, self, hits, avg or name"
struct trace_args;
struct profile;
/** cli_profile_excess - say what @p has no room for, if there was something; @stacks: also of these */
void cli_profile_excess(const struct profile *p, bool stacks);

/** cli_profile_file - show a recording function by function, the largest @a->sort first */
int cli_profile_file(struct cli *c, const char *path, const struct trace_args *a);

/** cli_file_functions - call sites of a vmlinux, a .ko or an object. Return: exit status. */
int cli_file_functions(struct cli *c, const char *path, char *const *globs);

/** cli_syscalls_summary - a recording of system calls as strace -c */
int cli_syscalls_summary(struct cli *c, const char *path);

/* The verbs. */
int cli_ls(struct cli *c, int argc, char **argv);
int cli_attach(struct cli *c, int argc, char **argv);
int cli_console(struct cli *c, int argc, char **argv);
int cli_info(struct cli *c, int argc, char **argv);
int cli_functions(struct cli *c, int argc, char **argv);
int cli_modules(struct cli *c, int argc, char **argv);
int cli_detach(struct cli *c, int argc, char **argv);
int cli_trace(struct cli *c, int argc, char **argv);
int cli_record(struct cli *c, int argc, char **argv);
int cli_report(struct cli *c, int argc, char **argv);
int cli_export(struct cli *c, int argc, char **argv);
int cli_profile(struct cli *c, int argc, char **argv);
int cli_top(struct cli *c, int argc, char **argv);
int cli_syscalls(struct cli *c, int argc, char **argv);
int cli_run(struct cli *c, int argc, char **argv);
int cli_completion(struct cli *c, int argc, char **argv);
int cli_events(struct cli *c, int argc, char **argv);
int cli_mark(struct cli *c, int argc, char **argv);
int cli_token(struct cli *c, int argc, char **argv);
int cli_doctor(struct cli *c, int argc, char **argv);

#endif
