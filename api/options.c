// SPDX-License-Identifier: Apache-2.0
/* The daemon's options. See options.h. */
#include "api/options.h"

#include "base/cleanup.h"
#define LOG_PREFIX "hvftraced"
#include "base/log.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEARTBEAT_SEC 15.0
#define TAKEN         (-1)

static const char usage[] =
	"usage: hvftraced [--listen unix:PATH|tls:ADDR:PORT|tcp:127.0.0.1:PORT]... [--allow ROLE=WHO]...\n"
	"                 [--tokens FILE] [--tls-cert FILE --tls-key FILE [--tls-client-ca FILE]]\n"
	"                 [--state-dir DIR] [--audit-log FILE] [--heartbeat SECONDS] [--config FILE]\n"
	"                 [-v|--verbose] [--version] [-h|--help]\n"
	"\n"
	"Traces Linux guests from the host; `hvftrace` is the command that speaks to it.\n"
	"\n"
	"  --listen PLACE       serve the API there, may be given more than once;\n"
	"                       default " LISTEN_DEFAULT " (mode 0660)\n"
	"  --allow ROLE=WHO     viewer: look; operator: trace, too; admin: attach and detach guests, too.\n"
	"                       WHO is user:NAME, uid:N, group:NAME, gid:N or local (unix sockets),\n"
	"                       cert:NAME (common name, TLS) or loopback (tcp:). May be repeated.\n"
	"                       Without a rule for local users, whom the socket lets in is an admin\n"
	"  --tokens FILE        bearer tokens that are taken on TCP; hvftrace token add makes them\n"
	"  --tls-cert FILE      PEM; --tls-key FILE its key; --tls-client-ca FILE who signs clients'\n"
	"  --state-dir DIR      what was changed in guests is noted there, to be put back whatever\n"
	"                       happens; default " STATE_DIR_DEFAULT "\n"
	"  --audit-log FILE     who changed what; default audit.jsonl in the state directory\n"
	"  --heartbeat SECONDS  a quiet stream of JSON says so this often; default 15\n"
	"  --config FILE        these options, without the dashes, one a line: listen = unix:/run/x\n"
	"\n"
	"SIGTERM, SIGINT or SIGHUP (unless nohup) stop it. Exit status: 0 every guest is as before, 1 failed, 2 usage.\n";

static const struct option longs[] = {
	{ "listen", required_argument, NULL, 'l' },
	{ "state-dir", required_argument, NULL, 's' },
	{ "audit-log", required_argument, NULL, 'A' },
	{ "heartbeat", required_argument, NULL, 'b' },
	{ "allow", required_argument, NULL, 'a' },
	{ "tokens", required_argument, NULL, 't' },
	{ "tls-cert", required_argument, NULL, 'c' },
	{ "tls-key", required_argument, NULL, 'k' },
	{ "tls-client-ca", required_argument, NULL, 'C' },
	/* from here on not in a file */
	{ "config", required_argument, NULL, 'f' },
	{ "verbose", no_argument, NULL, 'v' },
	{ "version", no_argument, NULL, 'V' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static int refused(const char *fmt, ...) printf_like(1, 2);
static int refused(const char *fmt, ...)
{
	va_list ap;

	fputs("hvftraced: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return 2;
}

static int set(char **where, const char *value)
{
	char *copy = strdup(value);

	if (!copy)
		return refused("no memory for %s", value);
	free(*where);
	*where = copy;
	return TAKEN;
}

static int set_heartbeat(struct daemon_options *o, const char *value)
{
	char *end;

	o->heartbeat_sec = strtod(value, &end);
	if (*end || !(o->heartbeat_sec >= 0.01 && o->heartbeat_sec <= 3600))
		return refused("--heartbeat takes 0.01 to 3600 seconds");
	return TAKEN;
}

/* One option that may be in a file, too. */
static int take(struct daemon_options *o, int opt, const char *value)
{
	struct err err = { 0 };

	switch (opt) {
	case 'l':
		if (o->n_listen == SERVER_MAX_LISTEN)
			return refused("--listen at most %d times", SERVER_MAX_LISTEN);
		return set(&o->listen[o->n_listen++], value);
	case 's':
		return set(&o->state_dir, value);
	case 'A':
		return set(&o->audit_log, value);
	case 'b':
		return set_heartbeat(o, value);
	case 'a':
		return auth_allow(o->auth, value, &err) < 0 ? refused("%s", err.msg) : TAKEN;
	case 't':
		return auth_tokens(o->auth, value, &err) < 0 ? refused("%s", err.msg) : TAKEN;
	case 'c':
		return set(&o->tls_cert, value);
	case 'k':
		return set(&o->tls_key, value);
	case 'C':
		return set(&o->tls_client_ca, value);
	default:
		return 2;
	}
}

static char *trim(char *text)
{
	size_t len;

	text += strspn(text, " \t\r\n");
	for (len = strlen(text); len && strchr(" \t\r\n", text[len - 1]); len--)
		;
	text[len] = 0;
	return text;
}

/* "name = value" */
static int take_line(struct daemon_options *o, char *line)
{
	char *value = strchr(line, '='), *name;

	if (!value)
		return refused("\"%s\" is no \"option = value\"", line);
	*value++ = 0;
	name = trim(line);
	for (const struct option *l = longs; l->val != 'f'; l++) {
		if (strcmp(l->name, name) == 0)
			return take(o, l->val, trim(value));
	}
	return refused("there is no option %s in a file", name);
}

static int take_file(struct daemon_options *o, const char *path)
{
	_cleanup_fclose_ FILE *f = fopen(path, "re");
	_cleanup_free_ char *text = NULL;
	size_t cap = 0;
	int r = TAKEN;

	if (!f)
		return refused("cannot read %s: %s", path, strerror(errno));
	for (unsigned at = 1; r == TAKEN && getline(&text, &cap, f) >= 0; at++) {
		char *line = trim(text);

		/* a section's name says nothing here */
		if (!*line || *line == '#' || *line == ';' || *line == '[')
			continue;
		r = take_line(o, line);
		if (r != TAKEN)
			(void)refused("that is line %u of %s", at, path);
	}
	return r;
}

static int take_arg(struct daemon_options *o, int opt, const char *value)
{
	switch (opt) {
	case 'f':
		return take_file(o, value);
	case 'v':
		log_set_level(LOG_LEVEL_DEBUG);
		return TAKEN;
	case 'V':
		printf("hvftraced %s\n", HVF_VERSION);
		return 0;
	case 'h':
		fputs(usage, stdout);
		return 0;
	case '?':
		fputs("try hvftraced --help\n", stderr);
		return 2;
	default:
		return take(o, opt, value);
	}
}

/* What was not said, and what does not go together. */
static int complete(struct daemon_options *o)
{
	int r = TAKEN;
	char *path;

	if (!o->state_dir)
		r = set(&o->state_dir, STATE_DIR_DEFAULT);
	if (r == TAKEN && !o->audit_log) {
		if (asprintf(&path, "%s/audit.jsonl", o->state_dir) < 0)
			return refused("no memory for %s", o->state_dir);
		o->audit_log = path;
	}
	if (r == TAKEN && !o->tls_cert != !o->tls_key)
		r = refused("--tls-cert and --tls-key go together");
	for (size_t i = 0; r == TAKEN && i < o->n_listen; i++) {
		if (strncmp(o->listen[i], "tls:", 4) == 0 && !o->tls_cert)
			r = refused("%s needs --tls-cert and --tls-key", o->listen[i]);
		if (strncmp(o->listen[i], "tcp:", 4) == 0 && !auth_opens_loopback(o->auth))
			r = refused(
				"%s asks nobody who they are: say what every user of this host may "
				"with --allow ROLE=loopback, or give --tokens",
				o->listen[i]);
	}
	return r;
}

int options_parse(int argc, char **argv, struct daemon_options *ret)
{
	struct err err = { 0 };
	int c, r;

	*ret = (struct daemon_options){ .heartbeat_sec = HEARTBEAT_SEC };
	if (auth_create(&ret->auth, &err) < 0)
		return refused("%s", err.msg);
	while ((c = getopt_long(argc, argv, "vh", longs, NULL)) != -1) {
		r = take_arg(ret, c, optarg);
		if (r != TAKEN)
			return r;
	}
	if (optind < argc) {
		fprintf(stderr, "hvftraced: what is \"%s\"?\ntry hvftraced --help\n", argv[optind]);
		return 2;
	}
	return complete(ret);
}

void options_deinit(struct daemon_options *o)
{
	for (size_t i = 0; i < o->n_listen; i++)
		free(o->listen[i]);
	free(o->state_dir);
	free(o->audit_log);
	free(o->tls_cert);
	free(o->tls_key);
	free(o->tls_client_ca);
	auth_destroy(o->auth);
	*o = (struct daemon_options){ 0 };
}
