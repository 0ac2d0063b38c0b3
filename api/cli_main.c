// SPDX-License-Identifier: Apache-2.0
/* hvftrace: the verbs, global options, help. To add a verb: a line here and a function in a cli_ file. */
#include "api/cli.h"

#include "tracers/profile_sort.h"

#include <curl/curl.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OPTIONS 64 /* of a verb; more are not suggested */
#define OPTION_TEXT 32

static int cli_help(struct cli *c, int argc, char **argv);

/* clang-format off: as they are shown */
#define TRACE_OPTIONS \
	"  -p TRACER       function (default) or function_graph: calls with their durations\n" FILTER_OPTIONS
#define FILTER_OPTIONS                                                                           \
	"  -l GLOB         trace only functions that match; may be repeated; :mod:NAME for a\n"  \
	"                  module's; @FILE for the globs in a file, one a line, @- on stdin\n"   \
	"  -n GLOB         but not these; the same\n"                                            \
	"  -P PID          only this task of the guest, by its own pid; may be repeated\n"       \
	"  --args          arguments of the calls, by the guest's BTF\n"                         \
	"  --switches      task switches, too\n"                                                 \
	"  --func-stack[=GLOB]     who called the functions that match, or those of -l: stack\n" \
	"                  traces; --stack-depth N of N callers\n"                               \
	"  --duration T    stop after 10, 10s, 500ms, 2m ...; without it: until Ctrl-C\n"
#define CHOOSE_OPTIONS                                                                              \
	"  -l GLOB         only functions that match, as of trace; may be repeated, as -n and -P\n" \
	"  -n GLOB         but not these\n"                                                         \
	"  -P PID          only this task\n"
#define LAYOUT_OPTION                                                                            \
	"  -O NAME         text of function_graph with more columns, by the kernel's names:\n"   \
	"                  latency-format, funcgraph-abstime, funcgraph-proc, funcgraph-tail,\n" \
	"                  funcgraph-retaddr; may be repeated. Of system calls: cgroup\n"
#define GRAPH_OPTIONS                                                                           \
	"\nand of function_graph:\n"                                                            \
	"  -g GLOB         only what is called inside functions that match, and these; as -l\n" \
	"  --graph-notrace GLOB    not these, nor what is called inside them; as -l\n"          \
	"  --max-graph-depth N     so many levels of calls; 0 for all\n"                        \
	"  --threshold T   only calls that take as long: 50us, 2ms, 1s\n"                       \
	"  --retval        what functions return\n"                                             \
	"  --no-irqs       not what hard interrupts call\n"                                     \
	"  --no-sleep-time durations without the time that the task did not run\n"
/* clang-format on */

/* clang-format off: a table */
static const struct cli_verb verbs[] = {
	{ "ls", "", "what can be traced on this host",
	  "Guests that are attached, and libvirt's domains and other QEMU processes with whether they\n"
	  "can be, and why not.\n"
	  "\n  hvftrace ls\n"
	  "  hvftrace --json ls | jq -r '.items[].name'\n",
	  cli_ls },
	{ "doctor", "[G|TARGET]", "what works on this host, and on a guest, and why not",
	  "Looks at KVM, QEMU, libvirt, permissions and the daemon, and with a guest, attached or not, at its\n"
	  "kernel: options, call sites, types, tracers. Changes nothing in it. Exit status 1: the guest\n"
	  "cannot be traced.\n"
	  "\n  hvftrace doctor\n"
	  "  hvftrace doctor libvirt:qemu:///system/web1\n",
	  cli_doctor },
	{ "run", "--kernel K [OPTION]...", "start a guest, and attach it",
	  "  --kernel FILE   bzImage of the guest, or vmlinux for KVM\n"
	  "  --initrd FILE   --append TEXT   (console=ttyS0 is added unless there is a console=)\n"
	  "  --cpus N        default 1       --memory SIZE   default 512M\n"
	  "  --disk FILE     raw, or NAME.qcow2; may be repeated. FILE,readonly; FILE,cow: what the guest\n"
	  "                  writes is forgotten, FILE,cow=PATH: kept there (KVM)\n"
	  "  --net tap=NAME  a network card at a tap; also ,mac=...; user (QEMU)\n"
	  "  --vsock PATH    sockets between guest and host, by a new unix socket (KVM)\n"
	  "  --no-reboot     a reset is the guest's end\n"
	  "  --accel WHAT    kvm (our own VMM), tcg (QEMU), or auto: KVM if it runs kernel code at speed\n"
	  "  --name G        how to call it\n"
	  "  --timeout T     how long the kernel may take to come up; default 120s\n"
	  "  --window-limit T    as of attach\n"
	  "  --keep          leave the guest running when this is interrupted before it is attached\n"
	  "  --trace-from-boot   hold the guest before its first initcall, trace it from there on; with the\n"
	  "                  options of trace, or with -o FILE of record; KVM only\n"
	  "\n  hvftrace run --kernel vmlinux --accel kvm --trace-from-boot -p function_graph "
	  "-l do_one_initcall --args --retval -o boot.hvft\n"
	  "  hvftrace report boot.hvft --format initcalls\n",
	  cli_run },
	{ "console", "G [--attached]",
	  "what a guest that was started by run says, and what is typed to it",
	  "  --attached      by way of the daemon, also a guest that this user has started; one with a URL\n"
	  "                  (-s), and whoever has run none called G, does so anyhow\n"
	  "\nCtrl-] leaves. What is no terminal is sent to its end; then the guest's words are followed.\n"
	  "\n  hvftrace console web1\n"
	  "  HVFTRACE_TOKEN=... hvftrace -s https://host:8443 console web1\n",
	  cli_console },
	{ "attach", "TARGET [OPTION]...", "attach a running guest",
	  "  TARGET          libvirt:URI/DOMAIN, qemu:QMP-SOCKET or pid:VMM-PID; DOMAIN is a name or\n"
	  "                  a UUID\n"
	  "  --name G        how to call it; otherwise a name is derived from TARGET\n"
	  "  --window-limit T    for how long all vCPUs should be stopped at a time; default 10ms\n"
	  "\n  hvftrace attach libvirt:qemu:///system/web1"
	  "\n  hvftrace attach qemu:/run/vm/web1.qmp --name web1\n",
	  cli_attach },
	{ "info", "G", "what is known about a guest",
	  "  hvftrace info web1\n"
	  "  hvftrace --json info web1 | jq .windows\n",
	  cli_info },
	{ "functions", "G|FILE [GLOB]...",
	  "functions that can be traced, of a guest or of a kernel file",
	  "  GLOB            only what it matches, as -l of trace: also :mod:NAME\n"
	  "  FILE            a vmlinux, a module or an object; needs no daemon\n"
	  "\n  hvftrace functions web1 'vfs_*' 'tcp_*' :mod:virtio_net\n",
	  cli_functions },
	{ "modules", "G", "modules loaded in a guest", "  hvftrace modules web1\n", cli_modules },
	{ "trace", "G [-p TRACER] [-l GLOB]... [-n GLOB]... [-g GLOB]... [-P PID]... [OPTION]...",
	  "show function calls as they happen",
	  TRACE_OPTIONS
	  "  --persistent    go on in the kernel that comes after a reboot\n"
	  "  --format WHAT   text (ftrace's layout, default) or json (a line each)\n" LAYOUT_OPTION
		  GRAPH_OPTIONS "\n  hvftrace trace web1 -l 'vfs_*' --duration 5s\n"
	  "  hvftrace trace web1 -p function_graph -g vfs_read --max-graph-depth 3 --retval\n"
	  "  hvftrace functions web1 'ext4_*' >names; hvftrace trace web1 -l @names\n",
	  cli_trace },
	{ "record",
	  "G [-p TRACER] [-l GLOB]... [-n GLOB]... [-g GLOB]... [-P PID]... [OPTION]... -o FILE",
	  "record function calls into a file",
	  TRACE_OPTIONS
	  "  -o FILE         where to\n"
	  "  --max-size SIZE --max-age T     keep only the newest: so many bytes of records (64M, 2G), not\n"
	  "                  older than that (10m, 24h)\n" GRAPH_OPTIONS
	  "\n  hvftrace record web1 -l 'tcp_*' --duration 1m -o web1.hvft\n"
	  "  hvftrace record web1 -p function_graph --threshold 1ms --duration 1m -o slow.hvft\n",
	  cli_record },
	{ "syscalls",
	  "G [-l CALL]... [-P PID [-f]]... [OPTION]... [--duration T] [--format WHAT] [-c|-o FILE]",
	  "show system calls with their arguments and results, as strace does",
	  "  -l CALL         only calls of this name: a glob, %CLASS (file, desc, process, network,\n"
	  "                  memory, signal, ipc, creds) or ! before either\n"
	  "  -P PID          only this task of the guest; up to 64 times\n"
	  "  -f              with -P: all its threads, too, and what it forks\n"
	  "  --comm GLOB     only tasks of this name; --uid N, --cgroup ID: of this user, in this cgroup\n"
	  "  --path PREFIX   only calls with a path that begins so\n"
	  "  --failed        only calls that returned an error\n"
	  "  -y              what descriptors are of, as strace -y\n"
	  "  --strings N     bytes of buffers and strings that are shown, 8 to 4096; 32 otherwise\n"
	  "  --env           environments of programs that are started, as strace -v\n"
	  "  --raw           numbers alone, nothing that arguments point to: cheapest\n"
	  "  --duration T    stop after 10, 10s, 500ms, 2m or 1h; otherwise at Ctrl-C\n"
	  "  --format WHAT   text (as strace -f -tt -T), json (a line each), falco or ocsf\n"
	  "  -O cgroup       text with the cgroup's id behind the task's\n"
	  "  -c              count calls, errors and time at the end, as strace -c\n"
	  "  -o FILE         where to; standard output otherwise\n"
	  "\n  hvftrace syscalls web1 -l %file --failed\n"
	  "  hvftrace syscalls web1 -l execve --format ocsf --duration 1h -o execs.json\n"
	  "  hvftrace record web1 -p syscalls -l %network --duration 1m -o net.hvft\n",
	  cli_syscalls },
	{ "report",
	  "FILE [-l GLOB]... [-n GLOB]... [-P PID]... [--format text|json|folded|initcalls|falco|ocsf] "
	  "[-O NAME]...",
	  "show a recording; needs no daemon",
	  "  --format WHAT   text (ftrace's layout, strace's of system calls; default), json (a line\n"
	  "                  each), folded: time by stack, for flame graphs; initcalls: of a guest traced\n"
	  "                  from boot, as the kernel's initcall_debug; falco, ocsf: of system calls\n" CHOOSE_OPTIONS
		  LAYOUT_OPTION "\n  hvftrace report web1.hvft -O funcgraph-proc\n"
	  "  hvftrace report web1.hvft -l 'vfs_*' -P 1\n"
	  "  hvftrace report web1.hvft --format folded | flamegraph.pl >web1.svg\n",
	  cli_report },
	{ "export", "FILE|TRACE -f FORMAT [-o OUT] [-l GLOB]... [-n GLOB]... [-P PID]...",
	  "a recording or a trace in another tool's format",
	  "  FILE            what record wrote; needs no daemon\n"
	  "  TRACE           a trace's id, of what the daemon still has of it\n"
	  "  -f FORMAT       trace.dat, trace.dat.v7 (trace-cmd, KernelShark), chrome, perfetto, folded,\n"
	  "                  speedscope or ctf (babeltrace2, Trace Compass)\n"
	  "  -o OUT          where to; standard output otherwise. Of ctf a directory, or NAME.tar\n"
	  "  --host-trace F  of trace.dat: to be merged with F, which trace-cmd record -C mono made on this\n"
	  "                  host meanwhile: trace-cmd report -i F -i OUT\n" CHOOSE_OPTIONS
	  "\n  hvftrace export web1.hvft -f trace.dat -o web1.dat; trace-cmd report web1.dat\n"
	  "  hvftrace export web1.hvft -f folded | flamegraph.pl >web1.svg\n",
	  cli_export },
	{ "profile",
	  "G|FILE [-l GLOB]... [-n GLOB]... [-g GLOB]... [-P PID]... [OPTION]... [--sort KEY]",
	  "calls and times by function, of a guest now or of a recording",
	  "  FILE            what record -p function_graph wrote; -l, -n and -P choose what is shown of it\n"
	  "  --sort KEY      " PROFILE_KEYS "\n"
	  "  --no-graph-time every time without that of callees which are traced\n"
	  "\nof a guest, as trace:\n" FILTER_OPTIONS GRAPH_OPTIONS
	  "\n  hvftrace profile web1 -l 'vfs_*' --duration 5s\n"
	  "  hvftrace profile web1 -g vfs_read --no-sleep-time --no-irqs --sort self\n",
	  cli_profile },
	{ "top",
	  "G [-p TRACER] [-l GLOB]... [-n GLOB]... [-g GLOB]... [-P PID]... [OPTION]... [--sort KEY]",
	  "a guest's functions while they are called, the costliest first",
	  "  --sort KEY      " CLI_TOP_KEYS "; on a terminal the keys t, s, h, a and n change it\n"
	  "  --interval TIME how often, 1s if not given\n"
	  "  --iterations N  show so many and end; 0 for no end. Without a terminal 1 if not given\n"
	  "  --lines N       so many functions; as fit on the terminal if not given\n"
	  "  --no-graph-time every time without that of callees which are traced\n"
	  "\nas trace:\n" FILTER_OPTIONS GRAPH_OPTIONS "\n  hvftrace top web1 -l 'vfs_*'\n"
	  "  hvftrace --json top web1 -l 'tcp_*' --interval 10s --iterations 0 --sort hits >tcp.json\n",
	  cli_top },
	{ "detach", "G [--force]", "put everything back and let go of a guest, which runs on",
	  "  --force         also while somebody traces it\n"
	  "\n  hvftrace detach web1\n",
	  cli_detach },
	{ "events", "[-f]", "what happened to the daemon, its guests and traces",
	  "  -f, --follow    and what happens, until Ctrl-C or the daemon stops\n"
	  "\n  hvftrace --json events -f | jq -c 'select(.type == \"records_lost\")'\n",
	  cli_events },
	{ "mark", "TRACE TEXT", "put a text between the records of a running trace",
	  "  TRACE           its id, as GET /v1/traces and hvftrace events show it\n"
	  "\n  hvftrace mark t1 'load test begins'\n",
	  cli_mark },
	{ "token", "add NAME --role ROLE | list | remove NAME [--file FILE]",
	  "bearer tokens of a daemon that serves TCP",
	  "  --role ROLE     viewer, operator or admin\n"
	  "  --file FILE     what hvftraced --tokens reads; default " CLI_DEFAULT_TOKENS "\n"
	  "\nadd prints the token, once; the file has only its hash.\n"
	  "\n  hvftrace token add ci --role operator\n"
	  "  HVFTRACE_TOKEN=... HVFTRACE_CA=ca.pem hvftrace -s https://host:8443 ls\n",
	  cli_token },
	{ "completion", "bash|zsh|fish",
	  "a script for your shell: commands, options, guests, functions",
	  "  eval \"$(hvftrace completion bash)\"\n"
	  "\n  hvftrace completion fish >~/.config/fish/completions/hvftrace.fish\n",
	  cli_completion },
	{ "help", "[COMMAND]", "this, or more about a command", "", cli_help },
};
/* clang-format on */

const struct cli_verb *cli_verb_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
		if (strcmp(verbs[i].name, name) == 0)
			return &verbs[i];
	}
	return NULL;
}

const struct cli_verb *cli_verb_at(size_t i)
{
	return i < ARRAY_SIZE(verbs) ? &verbs[i] : NULL;
}

static void verb_help(const struct cli_verb *v)
{
	printf("usage: hvftrace %s%s%s\n\n%s\n", v->name, *v->args ? " " : "", v->args, v->summary);
	if (*v->help)
		printf("\n%s", v->help);
}

static void print_help(void)
{
	puts("usage: hvftrace [-s SOCKET|URL] [--json] COMMAND\n"
	     "\n"
	     "Traces Linux guests from the host, by way of the daemon hvftraced. Nothing is installed in a\n"
	     "guest, and nothing is left behind.\n");
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		printf("  %-11s %s\n", verbs[i].name, verbs[i].summary);
	puts("\n"
	     "  -s SOCKET|URL  where the daemon is; default $HVFTRACE_SOCKET or\n"
	     "                 " CLI_DEFAULT_SOCKET "\n"
	     "  --json         the API's own documents instead of text\n"
	     "  --version\n"
	     "\n"
	     "Exit status: 0 done, 1 failed (one line on stderr says why), 2 wrong usage.");
}

static int unknown_verb(const char *word)
{
	const char *words[ARRAY_SIZE(verbs)], *near;

	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		words[i] = verbs[i].name;
	near = cli_closest(word, words, ARRAY_SIZE(verbs));
	if (near)
		return cli_usage(NULL, "there is no command \"%s\"; did you mean \"%s\"?", word,
				 near);
	return cli_usage(NULL, "there is no command \"%s\"", word);
}

static int cli_help(struct cli *c, int argc, char **argv)
{
	const struct cli_verb *v;

	(void)c;
	if (argc < 2) {
		print_help();
		return cli_flush(CLI_OK);
	}
	v = cli_verb_find(argv[1]);
	if (!v)
		return unknown_verb(argv[1]);
	verb_help(v);
	return cli_flush(CLI_OK);
}

static void set_place(struct cli *c, const char *place)
{
	bool is_url = strncmp(place, "http://", 7) == 0 || strncmp(place, "https://", 8) == 0;

	c->url = is_url ? place : NULL;
	c->socket = is_url ? NULL : place + (strncmp(place, "unix:", 5) == 0 ? 5 : 0);
}

static char *const *verb_words; /* the verb and what follows it, as getopt_long() sees it */

/* The long options that @v's help names, without their dashes. */
static size_t options_of(const struct cli_verb *v, char (*ret)[OPTION_TEXT], size_t max)
{
	static const char *const common[] = { "help", "json", "socket" };
	size_t n = 0, len;

	for (size_t i = 0; i < ARRAY_SIZE(common); i++)
		snprintf(ret[n++], OPTION_TEXT, "%s", common[i]);
	for (const char *s = strstr(v->help, "--"); s && n < max; s = strstr(s, "--")) {
		s += 2;
		len = strspn(s, "abcdefghijklmnopqrstuvwxyz-");
		if (len && len < OPTION_TEXT)
			snprintf(ret[n++], OPTION_TEXT, "%.*s", (int)len, s);
	}
	return n;
}

/* After what getopt_long() had to say: an option much like the one that there is not. */
static void suggest_option(const struct cli_verb *v)
{
	const char *word = verb_words[optind - 1], *words[MAX_OPTIONS], *near;
	char text[MAX_OPTIONS][OPTION_TEXT], bad[OPTION_TEXT];
	size_t n;

	if (strncmp(word, "--", 2) != 0)
		return;
	snprintf(bad, sizeof(bad), "%.*s", (int)strcspn(word + 2, "="), word + 2);
	n = options_of(v, text, MAX_OPTIONS);
	for (size_t i = 0; i < n; i++)
		words[i] = text[i];
	near = cli_closest(bad, words, n);
	if (near && strcmp(near, bad) != 0) /* else it is its value that is missing */
		fprintf(stderr, "hvftrace: did you mean \"--%s\"?\n", near);
}

int cli_common_option(struct cli *c, const char *verb, int opt, const char *arg)
{
	const struct cli_verb *v = cli_verb_find(verb);

	switch (opt) {
	case 's':
		set_place(c, arg);
		return -1;
	case 'J':
		c->json = true;
		return -1;
	case 'h':
		if (v)
			verb_help(v);
		return CLI_HELP_SHOWN;
	default: /* getopt has said what is wrong */
		if (!v)
			return CLI_USAGE;
		suggest_option(v);
		fprintf(stderr, "usage: hvftrace %s%s%s\n", v->name, *v->args ? " " : "", v->args);
		return CLI_USAGE;
	}
}

bool cli_no_options(struct cli *c, int argc, char **argv, int *ret)
{
	static const struct option longs[] = { CLI_COMMON_LONG, { NULL, 0, NULL, 0 } };
	int opt;

	while ((opt = getopt_long(argc, argv, CLI_COMMON_SHORT, longs, NULL)) != -1) {
		*ret = cli_common_option(c, argv[0], opt, optarg);
		if (*ret == CLI_HELP_SHOWN)
			*ret = CLI_OK;
		else if (*ret == -1)
			continue;
		return false;
	}
	return true;
}

/* Options before the verb. Return: -1 to go on, or the exit status. */
static int global_options(struct cli *c, int argc, char **argv)
{
	static const struct option longs[] = { CLI_COMMON_LONG,
					       { "version", no_argument, NULL, 'V' },
					       { NULL, 0, NULL, 0 } };
	int opt;

	while ((opt = getopt_long(argc, argv, "+" CLI_COMMON_SHORT, longs, NULL)) != -1) {
		switch (opt) {
		case 'V':
			puts("hvftrace " HVF_VERSION);
			return cli_flush(CLI_OK);
		case 'h':
			print_help();
			return cli_flush(CLI_OK);
		default:
			if (cli_common_option(c, "", opt, optarg) != -1)
				return cli_usage(NULL, "that is no global option");
		}
	}
	return -1;
}

int main(int argc, char **argv)
{
	struct cli c = { 0 };
	const struct cli_verb *v;
	const char *place = getenv("HVFTRACE_SOCKET");
	int status;

	set_place(&c, place && *place ? place : CLI_DEFAULT_SOCKET);
	status = global_options(&c, argc, argv);
	if (status != -1)
		return status;
	argc -= optind;
	argv += optind;
	if (!argc)
		return cli_usage(NULL, "which command?");
	v = cli_verb_find(argv[0]);
	if (!v)
		return unknown_verb(argv[0]);
	verb_words = argv;
	optind = 0; /* begin anew, with the verb's own options (getopt(3)) */
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return cli_fail("libcurl does not start");
	status = v->run(&c, argc, argv);
	curl_easy_cleanup(c.curl);
	curl_global_cleanup();
	return status;
}
