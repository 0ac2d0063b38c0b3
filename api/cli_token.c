// SPDX-License-Identifier: Apache-2.0
/* hvftrace token: the daemon's file of bearer tokens. The daemon reads it again when it was changed. */
#include "api/auth.h"
#include "api/cli.h"

#include "base/buf.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct token_args {
	const char *what, *name, *file, *role;
};

static int fail_file(const char *what, const char *path)
{
	return cli_fail("cannot %s %s: %s", what, path, strerrordesc_np(errno));
}

/* The name at the beginning of @line; "" for comments and empty lines. */
static void name_of(const char *line, char ret[AUTH_MAX_NAME + 1])
{
	size_t n;

	line += strspn(line, " \t");
	n = strcspn(line, " \t\r\n#");
	snprintf(ret, AUTH_MAX_NAME + 1, "%.*s", (int)MIN(n, (size_t)AUTH_MAX_NAME), line);
}

/* The lines of the file but those of @but, which were @n_ret. A file that is not there is empty. */
static int read_lines(const char *path, const char *but, struct buf *ret, unsigned *n_ret)
{
	_cleanup_fclose_ FILE *f = fopen(path, "re");
	_cleanup_free_ char *line = NULL;
	char name[AUTH_MAX_NAME + 1];
	size_t cap = 0;

	*n_ret = 0;
	if (!f)
		return errno == ENOENT ? CLI_OK : fail_file("read", path);
	while (getline(&line, &cap, f) >= 0) {
		name_of(line, name);
		if (strcmp(name, but) == 0) {
			(*n_ret)++;
			continue;
		}
		buf_adds(ret, line);
		if (ret->len && ret->data[ret->len - 1] != '\n')
			buf_adds(ret, "\n");
	}
	return buf_failed(ret) ? cli_fail("out of memory") : CLI_OK;
}

/* As a whole or not at all: the daemon may read it at any time. */
static int write_lines(const char *path, const struct buf *text)
{
	_cleanup_free_ char *tmp = NULL;
	_cleanup_close_ int fd = -1;

	if (asprintf(&tmp, "%s.new", path) < 0)
		return cli_fail("out of memory");
	fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return fail_file("write", tmp);
	if (fchmod(fd, 0600) < 0 ||
	    (text->len && write(fd, text->data, text->len) != (ssize_t)text->len) ||
	    fsync(fd) < 0 || rename(tmp, path) < 0)
		return fail_file("write", path);
	return CLI_OK;
}

static int add(struct cli *c, const struct token_args *a)
{
	char token[AUTH_TOKEN_TEXT], hash[AUTH_HASH_TEXT];
	_cleanup_buf_ struct buf text = { 0 };
	struct err err = { 0 };
	unsigned n;
	int status;

	if (!a->role || !role_parse(a->role, strlen(a->role)))
		return cli_usage("token", "--role must be viewer, operator or admin");
	if (!auth_token_name_valid(a->name))
		return cli_usage("token", "a token's name has letters, digits, '.', '_' and '-'");
	status = read_lines(a->file, a->name, &text, &n);
	if (status == CLI_OK && n)
		status = cli_fail("%s has a token %s already: remove it first", a->file, a->name);
	if (status == CLI_OK && auth_new_token(token, hash, &err) < 0)
		status = cli_fail("%s", err.msg);
	if (status != CLI_OK)
		return status;
	if (!text.len)
		buf_adds(&text, "# tokens of hvftraced: NAME ROLE SHA256\n");
	buf_addf(&text, "%s %s %s\n", a->name, a->role, hash);
	status = buf_failed(&text) ? cli_fail("out of memory") : write_lines(a->file, &text);
	if (status != CLI_OK)
		return status;
	if (c->json)
		printf("{\"name\":\"%s\",\"role\":\"%s\",\"token\":\"%s\"}\n", a->name, a->role,
		       token);
	else
		puts(token);
	return cli_flush(CLI_OK);
}

static int remove_token(const struct token_args *a)
{
	_cleanup_buf_ struct buf text = { 0 };
	unsigned n;
	int status = read_lines(a->file, a->name, &text, &n);

	if (status == CLI_OK && !n)
		status = cli_fail("%s has no token %s", a->file, a->name);
	return status == CLI_OK ? write_lines(a->file, &text) : status;
}

static int list(struct cli *c, const struct token_args *a)
{
	_cleanup_fclose_ FILE *f = fopen(a->file, "re");
	struct cli_table t = { 0 };
	_cleanup_free_ char *line = NULL;
	char name[AUTH_MAX_NAME + 1], role[16];
	size_t cap = 0;

	if (!f)
		return fail_file("read", a->file);
	if (!c->json)
		cli_table_add(&t, 2, (const char *const[]){ "NAME", "ROLE" });
	while (getline(&line, &cap, f) >= 0) {
		name_of(line, name);
		if (!*name || sscanf(line, " %*s %15s", role) != 1)
			continue;
		if (c->json)
			printf("{\"name\":\"%s\",\"role\":\"%s\"}\n", name, role);
		else
			cli_table_add(&t, 2, (const char *const[]){ name, role });
	}
	if (!c->json)
		cli_table_print(&t);
	return cli_flush(CLI_OK);
}

static int run(struct cli *c, const struct token_args *a, int n_args)
{
	int want = strcmp(a->what, "list") == 0 ? 1 : 2;

	if (strcmp(a->what, "list") != 0 && strcmp(a->what, "add") != 0 &&
	    strcmp(a->what, "remove") != 0)
		return cli_usage("token", "there is no token %s", a->what);
	if (n_args != want)
		return cli_usage("token", n_args < want ? "whose token?" : "one token at a time");
	if (want == 1)
		return list(c, a);
	return strcmp(a->what, "add") == 0 ? add(c, a) : remove_token(a);
}

int cli_token(struct cli *c, int argc, char **argv)
{
	static const struct option longs[] = { CLI_COMMON_LONG,
					       { "role", required_argument, NULL, 'r' },
					       { "file", required_argument, NULL, 'f' },
					       { NULL, 0, NULL, 0 } };
	struct token_args a = { .file = CLI_DEFAULT_TOKENS };
	int opt, r;

	while ((opt = getopt_long(argc, argv, CLI_COMMON_SHORT, longs, NULL)) != -1) {
		if (opt == 'r') {
			a.role = optarg;
			continue;
		}
		if (opt == 'f') {
			a.file = optarg;
			continue;
		}
		r = cli_common_option(c, argv[0], opt, optarg);
		if (r != -1)
			return r == CLI_HELP_SHOWN ? CLI_OK : r;
	}
	if (optind == argc)
		return cli_usage("token", "add, list or remove?");
	a.what = argv[optind];
	a.name = argc > optind + 1 ? argv[optind + 1] : "";
	return run(c, &a, argc - optind);
}
