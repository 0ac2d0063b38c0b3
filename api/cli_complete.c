// SPDX-License-Identifier: Apache-2.0
/*
 * Completion: the shells' scripts, and the words they offer. The scripts ask us at each TAB, so that
 * the verbs' own table and help are the one place that says what there is.
 */
#include "api/cli.h"

#include "api/cli_domains.h"
#include "base/buf.h"
#include "base/cleanup.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAMES 200 /* functions offered: nobody reads more */

/* What the daemon is asked when we complete must not hang the prompt: see cli_http.c's own limits. */
struct completion {
	struct cli *c;
	const char *word; /* what is to be completed; "" at its beginning */
	size_t len;
	const char *guest; /* NULL: none named yet */
};

/* Words that an option takes, where they are few. "" ends a list. */
static const struct {
	const char *option;
	const char *words[12];
} values[] = {
	{ "-p", { "function", "function_graph", "syscalls" } },
	{ "-O",
	  { "latency-format", "funcgraph-abstime", "funcgraph-proc", "funcgraph-tail",
	    "funcgraph-retaddr", "cgroup" } },
	{ "--accel", { "auto", "kvm", "tcg" } },
	{ "--format", { "text", "json", "folded", "initcalls", "falco", "ocsf" } },
	{ "-f",
	  { "trace.dat", "trace.dat.v7", "chrome", "perfetto", "folded", "speedscope", "ctf" } },
	{ "--sort", { "total", "self", "hits", "avg", "min", "max", "stddev", "name" } },
};

static const char *const globs[] = { "-l", "-n", "-g", "--graph-notrace" };

/* Verbs whose first operand is an attached guest. */
static const char *const of_guests[] = { "info",     "functions", "modules", "trace",  "record",
					 "syscalls", "profile",   "top",     "detach", "console" };

static const char bash[] =
	"# bash completion of hvftrace: eval \"$(hvftrace completion bash)\"\n"
	"_hvftrace()\n"
	"{\n"
	"	local IFS=$'\\n' line=${COMP_LINE:0:COMP_POINT} words\n"
	"	IFS=$' \\t\\n' read -ra words <<<\"$line\"\n"
	"	[[ $line == *[[:space:]] ]] && words+=('')\n"
	"	local last=${words[-1]}\n"
	"	COMPREPLY=($(hvftrace completion words \"${words[@]:1}\" 2>/dev/null))\n"
	"	# bash takes what stands before the last ':' or '=' for a word of its own\n"
	"	local cut=${last%\"${last##*[:=]}\"}\n"
	"	COMPREPLY=(\"${COMPREPLY[@]#\"$cut\"}\")\n"
	"	[[ ${#COMPREPLY[@]} == 1 && -z ${COMPREPLY[0]} ]] && COMPREPLY=()\n"
	"	[[ ${#COMPREPLY[@]} -gt 0 ]]\n"
	"}\n"
	"complete -o bashdefault -o default -F _hvftrace hvftrace\n";

static const char zsh[] =
	"#compdef hvftrace\n"
	"# zsh completion of hvftrace: a file _hvftrace in $fpath, or eval \"$(hvftrace completion zsh)\"\n"
	"_hvftrace()\n"
	"{\n"
	"	local -a found\n"
	"	found=(${(f)\"$(hvftrace completion words \"${(@)words[2,CURRENT]}\" 2>/dev/null)\"})\n"
	"	if (( $#found )); then\n"
	"		compadd -Q -- $found\n"
	"	else\n"
	"		_files\n"
	"	fi\n"
	"}\n"
	"if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n"
	"	_hvftrace \"$@\"\n"
	"else\n"
	"	compdef _hvftrace hvftrace\n"
	"fi\n";

static const char fish[] =
	"# fish completion of hvftrace: hvftrace completion fish | source\n"
	"function __hvftrace_words\n"
	"	set -l words (commandline -opc) (commandline -ct)\n"
	"	set -l found (hvftrace completion words $words[2..-1] 2>/dev/null)\n"
	"	if set -q found[1]\n"
	"		printf '%s\\n' $found\n"
	"	else\n"
	"		__fish_complete_path (commandline -ct)\n"
	"	end\n"
	"end\n"
	"complete -c hvftrace -f -a '(__hvftrace_words)'\n";

/* A word of a guest or a VMM may hold anything: only what a shell can take unquoted is offered. */
static void offer(const struct completion *p, const char *word)
{
	if (strncmp(word, p->word, p->len) != 0)
		return;
	for (const char *s = word; *s; s++) {
		if (!isalnum((unsigned char)*s) && !strchr("_-./:+@%,=", *s))
			return;
	}
	puts(word);
}

/* What @option is followed by in @v's help: "" nothing, NULL when it has no such option. */
static const char *option_line(const struct cli_verb *v, const char *option)
{
	size_t len = strlen(option);

	for (const char *s = v->help; (s = strstr(s, option)); s += len) {
		if (s - v->help >= 2 && s[-1] == ' ' && s[-2] == ' ' && (s[len] == ' '))
			return s + len + 1;
	}
	return NULL;
}

/* Options stand in the help behind two spaces or more, and what they take is in capitals. */
static bool takes_value(const struct cli_verb *v, const char *option)
{
	const char *rest;

	if (strcmp(option, "-s") == 0 || strcmp(option, "--socket") == 0)
		return true;
	rest = v ? option_line(v, option) : NULL;
	return rest && isupper((unsigned char)*rest);
}

static void offer_options(const struct completion *p, const struct cli_verb *v)
{
	static const char *const common[] = { "--help", "--json", "--socket" };
	char word[40];
	size_t n;

	for (size_t i = 0; i < ARRAY_SIZE(common); i++)
		offer(p, common[i]);
	for (const char *s = v ? strstr(v->help, "  -") : NULL; s; s = strstr(s + 1, "  -")) {
		n = strspn(s + 2, "-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
		if (n > 1 && n < sizeof(word)) {
			snprintf(word, sizeof(word), "%.*s", (int)n, s + 2);
			offer(p, word);
		}
	}
}

static void offer_verbs(const struct completion *p)
{
	const struct cli_verb *v;

	for (size_t i = 0; (v = cli_verb_at(i)); i++)
		offer(p, v->name);
}

static void offer_guests(const struct completion *p)
{
	json_t *doc = NULL, *g;
	size_t i;

	if (cli_request(p->c, "GET", "/v1/guests", NULL, &doc) != CLI_OK)
		return;
	json_array_foreach(json_object_get(doc, "items"), i, g)
		offer(p, json_string_value(json_object_get(g, "name")) ?: "");
	json_decref(doc);
}

static void offer_targets(const struct completion *p)
{
	struct scan_vm *vms = NULL;
	char note[320];
	size_t n = domains_add(&vms, scan_host("/proc", &vms), note, sizeof(note));

	for (size_t i = 0; i < n; i++) {
		if (!vms[i].reason[0])
			offer(p, vms[i].target);
	}
	free(vms);
}

static void offer_functions(const struct completion *p)
{
	_cleanup_buf_ struct buf query = { 0 };
	json_t *doc = NULL, *f;
	char rest[64], *path;
	size_t i;

	if (!p->guest || !p->len || strchr(p->word, '*') || *p->word == '@')
		return;
	snprintf(rest, sizeof(rest), "/functions?limit=%d&glob=", MAX_NAMES);
	path = cli_guest_path(p->guest, rest);
	buf_adds(&query, path ? path : "");
	query.failed |= !path;
	free(path);
	path = cli_escape(p->word);
	buf_addf(&query, "%s*", path ? path : "");
	query.failed |= !path;
	free(path);
	if (buf_failed(&query) || cli_request(p->c, "GET", query.data, NULL, &doc) != CLI_OK)
		return;
	json_array_foreach(json_object_get(doc, "items"), i, f)
		offer(p, json_string_value(json_object_get(f, "name")) ?: "");
	json_decref(doc);
}

static bool one_of(const char *word, const char *const *words, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (strcmp(word, words[i]) == 0)
			return true;
	}
	return false;
}

static void offer_values(const struct completion *p, const char *verb, const char *option)
{
	static const char *const classes[] = { "%creds",  "%desc",    "%file",    "%ipc",
					       "%memory", "%network", "%process", "%signal" };

	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		for (const char *const *w = values[i].words;
		     strcmp(option, values[i].option) == 0 && *w; w++)
			offer(p, *w);
	}
	if (!one_of(option, globs, ARRAY_SIZE(globs)))
		return;
	if (strcmp(verb, "syscalls") != 0) {
		offer_functions(p);
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(classes); i++)
		offer(p, classes[i]);
}

static void offer_operand(const struct completion *p, const char *verb, size_t n)
{
	if (n == 0 && one_of(verb, of_guests, ARRAY_SIZE(of_guests)))
		offer_guests(p);
	else if (n == 0 && strcmp(verb, "attach") == 0)
		offer_targets(p);
	else if (n == 0 && strcmp(verb, "help") == 0)
		offer_verbs(p);
	else if (strcmp(verb, "functions") == 0)
		offer_functions(p);
}

/* argv[0 .. argc): the words behind `hvftrace`; the last is to be completed. */
static void offer_words(struct cli *c, int argc, char **argv)
{
	struct completion p = { .c = c, .word = argv[argc - 1], .len = strlen(argv[argc - 1]) };
	const struct cli_verb *v = NULL;
	const char *option = NULL; /* that the next word belongs to */
	size_t n_operands = 0;

	for (int i = 0; i < argc - 1; i++) {
		const char *word = argv[i];

		if (option) {
			if (strcmp(option, "-s") == 0 || strcmp(option, "--socket") == 0)
				cli_common_option(c, "", 's', word);
			option = NULL;
		} else if (*word == '-') {
			option = takes_value(v, word) ? word : NULL;
		} else if (!v) {
			v = cli_verb_find(word);
			if (!v)
				return;
		} else if (n_operands++ == 0) {
			p.guest = word;
		}
	}
	if (option)
		offer_values(&p, v ? v->name : "", option);
	else if (*p.word == '-')
		offer_options(&p, v);
	else if (!v)
		offer_verbs(&p);
	else
		offer_operand(&p, v->name, n_operands);
}

int cli_completion(struct cli *c, int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (strcmp(what, "words") == 0) {
		c->quiet = true;
		if (argc > 2)
			offer_words(c, argc - 2, argv + 2);
		return cli_flush(CLI_OK);
	}
	if (strcmp(what, "-h") == 0 || strcmp(what, "--help") == 0)
		return cli_common_option(c, argv[0], 'h', NULL) == CLI_HELP_SHOWN
			       ? cli_flush(CLI_OK)
			       : CLI_USAGE;
	if (argc != 2)
		return cli_usage(argv[0], "which shell?");
	if (strcmp(what, "bash") == 0)
		fputs(bash, stdout);
	else if (strcmp(what, "zsh") == 0)
		fputs(zsh, stdout);
	else if (strcmp(what, "fish") == 0)
		fputs(fish, stdout);
	else
		return cli_usage(argv[0], "\"%s\" is none of bash, zsh and fish", what);
	return cli_flush(CLI_OK);
}
