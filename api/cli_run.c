// SPDX-License-Identifier: Apache-2.0
/* The verb run: start a guest, wait until its kernel is up, attach it. */
#include "api/cli.h"
#include "api/cli_options.h"
#include "api/cli_vmm.h"
#include "api/names.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "machine/accel.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_CPUS   512u
#define MIN_MEMORY (32ull << 20)
#define RETRY_MS   200

enum {
	OPT_FROM_BOOT = 512, /* above those of cli_options.h */
	OPT_NAME,
	OPT_WINDOW_LIMIT,
};

/* Set by signals; the second one does not wait for anything. */
static volatile sig_atomic_t interrupted;
static volatile sig_atomic_t guest_pid; /* 0: nothing to end, or it is to be kept */
static volatile sig_atomic_t never; /* in place of interrupted, for one that is to be kept */

static void on_signal(int sig)
{
	static const char line[] = "hvftrace: not waited for the guest's end\n";

	(void)sig;
	if (!interrupted) {
		interrupted = 1;
		return;
	}
	if (guest_pid)
		kill(guest_pid, SIGTERM);
	(void)!write(STDERR_FILENO, line, sizeof(line) - 1);
	_exit(CLI_FAILED);
}

/* From before the guest is started until it is attached; what is ignored (nohup) stays so. */
static void catch_signals(void)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction now = { .sa_handler = on_signal }, before;

	for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
		if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
			sigaction(signals[i], &now, NULL);
	}
}

struct run_args {
	struct run_opts guest;
	const struct vmm_kind *vmm;
	const char *accel;
	u64 timeout_ns;
	u64 window_limit_ns; /* 0: the daemon's */
	bool keep;
	bool from_boot; /* --trace-from-boot */
	bool traces; /* options of a trace were given */
	bool shown; /* and such as say how it is shown */
	struct trace_args trace;
	char name[NAME_MAX_BYTES + 1];
};

/* The options that have to make sense. Return: -1 to go on, or the exit status. */
static int take_number(const char *verb, int opt, struct run_args *a)
{
	u64 n;

	switch (opt) {
	case 'c':
		if (!cli_size(optarg, &n) || n > MAX_CPUS)
			return cli_usage(verb, "--cpus takes 1 to %u, not \"%s\"", MAX_CPUS,
					 optarg);
		a->guest.cpus = (u32)n;
		return -1;
	case 'm':
		if (!cli_size(optarg, &a->guest.memory_bytes) || a->guest.memory_bytes < MIN_MEMORY)
			return cli_usage(verb,
					 "--memory takes 512M, 2G ..., at least 32M, not \"%s\"",
					 optarg);
		return -1;
	case OPT_WINDOW_LIMIT:
		return cli_window_limit(verb, optarg, &a->window_limit_ns);
	default:
		if (!cli_duration(optarg, &a->timeout_ns))
			return cli_usage(verb, "--timeout takes 120, 30s, 2m ..., not \"%s\"",
					 optarg);
		return -1;
	}
}

static int take_device(const char *verb, int opt, struct run_opts *o)
{
	switch (opt) {
	case 'd':
		if (o->n_disks == GUEST_MAX_DISKS)
			return cli_usage(verb, "at most %d disks", GUEST_MAX_DISKS);
		if (!disk_parse(optarg, &o->disks[o->n_disks++]))
			return cli_usage(verb, "--disk takes FILE, FILE,readonly, FILE,cow or "
					       "FILE,cow=PATH");
		return -1;
	case 'N':
		if (o->n_nets == GUEST_MAX_NETS)
			return cli_usage(verb, "at most %d network cards", GUEST_MAX_NETS);
		if (strncmp(optarg, "tap=", 4) != 0 && strncmp(optarg, "fd=", 3) != 0 &&
		    strcmp(optarg, "user") != 0 && strncmp(optarg, "user,", 5) != 0)
			return cli_usage(verb, "--net takes tap=NAME, fd=N or user, not \"%s\"",
					 optarg);
		o->nets[o->n_nets++] = optarg;
		return -1;
	case 'S':
		o->vsock = optarg;
		return -1;
	default:
		o->no_reboot = true;
		return -1;
	}
}

static int take_option(struct cli *c, const char *verb, int opt, struct run_args *a)
{
	switch (opt) {
	case 'k':
		a->guest.kernel = optarg;
		return -1;
	case 'i':
		a->guest.initrd = optarg;
		return -1;
	case 'a':
		a->guest.append = optarg;
		return -1;
	case 'd':
	case 'N':
	case 'S':
	case 'B':
		return take_device(verb, opt, &a->guest);
	case 'A':
		a->accel = optarg;
		if (strcmp(optarg, "auto") != 0 && strcmp(optarg, "kvm") != 0 &&
		    strcmp(optarg, "tcg") != 0)
			return cli_usage(verb, "--accel takes auto, kvm or tcg, not \"%s\"",
					 optarg);
		return -1;
	case OPT_FROM_BOOT:
		a->from_boot = true;
		return -1;
	case OPT_NAME:
		if (!name_valid(optarg))
			return cli_usage(verb,
					 "--name takes 1 to %d letters, digits, '.', '_', '-'",
					 NAME_MAX_BYTES);
		snprintf(a->name, sizeof(a->name), "%s", optarg);
		return -1;
	case 'K':
		a->keep = true;
		return -1;
	case 'c':
	case 'm':
	case 't':
	case OPT_WINDOW_LIMIT:
		return take_number(verb, opt, a);
	default: /* of trace and record, or common to all */
		a->traces = a->traces || (opt != 's' && opt != 'J' && opt != 'h' && opt != '?');
		a->shown = a->shown || opt == 'O' || opt == OPT_FORMAT;
		return trace_args_take(c, verb, opt, &a->trace);
	}
}

/* QEMU would say it too, but less clearly. */
static int check_files(const struct run_args *a)
{
	const struct run_opts *q = &a->guest;

	if (access(q->kernel, R_OK) < 0)
		return cli_fail("--kernel %s: %s", q->kernel, strerrordesc_np(errno));
	if (q->initrd && access(q->initrd, R_OK) < 0)
		return cli_fail("--initrd %s: %s", q->initrd, strerrordesc_np(errno));
	for (size_t i = 0; i < q->n_disks; i++) {
		const struct guest_disk *d = &q->disks[i];

		if (access(d->path, d->read_only || d->cow ? R_OK : R_OK | W_OK) < 0)
			return cli_fail("--disk %s: %s", d->path, strerrordesc_np(errno));
	}
	return CLI_OK;
}

/* Of --trace-from-boot: as trace, or with a file as record. Return: -1 to go on, or the exit status. */
static int check_trace(const char *verb, struct run_args *a)
{
	struct trace_args *t = &a->trace;

	if (a->traces && !a->from_boot)
		return cli_usage(verb, "options of a trace go with --trace-from-boot");
	if (a->from_boot && strcmp(a->accel, "tcg") == 0)
		return cli_usage(verb, "--trace-from-boot needs --accel kvm: our own VMM");
	if (t->output && json_is_true(json_object_get(t->body, "persistent")))
		return cli_usage(verb, "a recording is of one kernel: no --persistent with -o");
	if (t->output && a->shown)
		return cli_usage(verb, "--format and -O are of what is shown, and -o FILE is a "
				       "recording: give them to report");
	t->store = t->output;
	return trace_args_check(verb, t);
}

static int parse(struct cli *c, int argc, char **argv, struct run_args *a)
{
	static const struct option longs[] = {
		{ "kernel", required_argument, NULL, 'k' },
		{ "initrd", required_argument, NULL, 'i' },
		{ "append", required_argument, NULL, 'a' },
		{ "cpus", required_argument, NULL, 'c' },
		{ "memory", required_argument, NULL, 'm' },
		{ "disk", required_argument, NULL, 'd' },
		{ "net", required_argument, NULL, 'N' },
		{ "vsock", required_argument, NULL, 'S' },
		{ "no-reboot", no_argument, NULL, 'B' },
		{ "accel", required_argument, NULL, 'A' },
		{ "name", required_argument, NULL, OPT_NAME },
		{ "trace-from-boot", no_argument, NULL, OPT_FROM_BOOT },
		{ "timeout", required_argument, NULL, 't' },
		{ "window-limit", required_argument, NULL, OPT_WINDOW_LIMIT },
		{ "keep", no_argument, NULL, 'K' },
		{ "format", required_argument, NULL, OPT_FORMAT },
		{ "output", required_argument, NULL, 'o' },
		TRACE_LONG,
		{ NULL, 0, NULL, 0 },
	};
	int opt, r;

	while ((opt = getopt_long(argc, argv, "p:o:O:" TRACE_SHORT, longs, NULL)) != -1) {
		r = take_option(c, argv[0], opt, a);
		if (r != -1)
			return r;
	}
	if (optind < argc)
		return cli_usage(argv[0], "what is \"%s\"?", argv[optind]);
	if (!a->guest.kernel)
		return cli_usage(argv[0], "--kernel is needed");
	r = check_trace(argv[0], a);
	if (r != -1)
		return r;
	if (!a->name[0])
		snprintf(a->name, sizeof(a->name), "guest-%d", (int)getpid());
	a->guest.name = a->name;
	r = check_files(a);
	return r == CLI_OK ? -1 : r;
}

static int check_disks(const struct run_opts *o)
{
	for (size_t i = 0; i < o->n_disks; i++) {
		if (disk_is_ambiguous(o->disks[i].path))
			return cli_fail("--disk %s begins as a qcow2 image does, which a guest may "
					"have written into a raw one (run.disk_format): if it is "
					"one, its name must end in .qcow2",
					o->disks[i].path);
	}
	return CLI_OK;
}

/* What only QEMU has: "--disk X", "--net user"; NULL: nothing of this guest. And what only ours has. */
static const char *only_qemu(const struct run_opts *o)
{
	for (size_t i = 0; i < o->n_nets; i++) {
		if (strncmp(o->nets[i], "user", 4) == 0)
			return "--net user";
	}
	return NULL;
}

static const char *only_own(const struct run_opts *o)
{
	for (size_t i = 0; i < o->n_disks; i++) {
		if (o->disks[i].overlay)
			return "--disk FILE,cow=PATH";
	}
	return o->vsock ? "--vsock" : NULL;
}

static const char *qcow2_of(const struct run_opts *o)
{
	for (size_t i = 0; i < o->n_disks; i++) {
		if (disk_is_qcow2(o->disks[i].path))
			return o->disks[i].path;
	}
	return NULL;
}

static int take_qemu(struct run_args *a, bool kvm)
{
	const char *what = only_own(&a->guest);

	if (what)
		return cli_fail("%s is for --accel kvm alone, which this guest does not get "
				"(run.not_here)",
				what);
	a->vmm = &vmm_qemu;
	a->guest.kvm = kvm;
	return CLI_OK;
}

/* KVM is our own VMM's, which has raw disks only; QEMU takes what it does not. */
static int choose_vmm(struct run_args *a)
{
	const char *qcow2 = qcow2_of(&a->guest), *what = only_qemu(&a->guest);
	struct accel_verdict v;
	int status = check_disks(&a->guest);

	if (status != CLI_OK)
		return status;
	if (strcmp(a->accel, "tcg") == 0)
		return take_qemu(a, false);
	accel_probe(&v);
	if (strcmp(a->accel, "auto") == 0) {
		bool qemu = qcow2 || what;

		fprintf(stderr, "%s%s%s\n", v.why, v.use_kvm && qemu ? ", with QEMU: " : "",
			!v.use_kvm || !qemu ? ""
			: qcow2             ? "a disk is qcow2"
					    : what);
		if (!v.use_kvm || qemu)
			return take_qemu(a, v.use_kvm);
		a->vmm = &vmm_own;
		return CLI_OK;
	}
	if (qcow2)
		return cli_fail("--disk %s: with --accel kvm a disk is raw (run.disk_format): "
				"qemu-img convert -O raw",
				qcow2);
	if (what)
		return cli_fail("%s: with --accel kvm a network card needs a tap (run.not_here): "
				"ip tuntap add dev NAME mode tap user $USER, then --net tap=NAME",
				what);
	a->vmm = &vmm_own;
	if (v.insns_per_sec > 0 && !v.use_kvm)
		fprintf(stderr,
			"KVM as asked, though it emulates kernel code here (%.1f M instructions/s): "
			"expect a very slow guest\n",
			v.insns_per_sec / 1e6);
	return CLI_OK;
}

/* Is it a failure that goes away while a guest boots? */
static bool is_early(const char *code)
{
	static const char *const early[] = { "guest.not_booted", "guest.not_linux",
					     "guest.bad_memory", "guest.no_btf",
					     "guest.no_ftrace",  "target.no_socket",
					     "vmm.timeout" };

	for (size_t i = 0; i < ARRAY_SIZE(early); i++) {
		if (strcmp(code, early[i]) == 0)
			return true;
	}
	return false;
}

static int guest_ended(const struct guest_vmm *vm)
{
	char why[400];

	vmm_last_words(vm, why, sizeof(why));
	return cli_fail("the guest ended while it booted: %s (run.guest_ended): see %s", why,
			vm->console);
}

static int attach(struct cli *c, const struct run_args *a, const struct guest_vmm *vm,
		  json_t **doc_ret)
{
	struct timespec step = { .tv_nsec = RETRY_MS * (long)NSEC_PER_MSEC };
	u64 end = monotonic_ns() + a->timeout_ns;
	struct cli_reply r = { 0 };
	int status;

	for (;;) {
		json_t *body = json_pack("{s:s, s:s}", "target", vm->target, "name", a->name);

		if (a->from_boot)
			json_object_set_new(body, "boot_timeout_ns",
					    json_integer((json_int_t)a->timeout_ns));
		if (a->window_limit_ns)
			json_object_set_new(body, "window_limit_ns",
					    json_integer((json_int_t)a->window_limit_ns));
		status = cli_call(c, "POST", "/v1/guests", body, &r);
		if (status != CLI_OK)
			break;
		if (r.status == 201) {
			*doc_ret = json_incref(r.doc);
			break;
		}
		if (interrupted) {
			status = CLI_FAILED;
			break;
		}
		if (!vmm_is_alive(vm)) {
			status = guest_ended(vm);
			break;
		}
		if (a->from_boot || !is_early(cli_reply_code(&r)) || monotonic_ns() >= end) {
			status = cli_refused(&r);
			break;
		}
		cli_reply_deinit(&r);
		nanosleep(&step, NULL);
	}
	cli_reply_deinit(&r);
	return status;
}

static void print(const struct cli *c, const json_t *doc, const struct guest_vmm *vm)
{
	const char *release = json_string_value(json_object_get(doc, "release"));

	if (c->json) {
		json_dumpf(doc, stdout, JSON_INDENT(2));
		putchar('\n');
		return;
	}
	printf("%s: Linux ", json_string_value(json_object_get(doc, "name")));
	cli_text(stdout, release ? release : "?");
	printf(", %lld functions, pid %d, console %s\n",
	       (long long)json_integer_value(json_object_get(doc, "traceable")), (int)vm->pid,
	       vm->console);
}

/* A signal came before it was all done. Return: exit status. */
static int give_up(struct cli *c, const struct run_args *a, const struct guest_vmm *vm,
		   const json_t *attached)
{
	_cleanup_free_ char *path = cli_guest_path(a->name, "?force=true");
	struct cli_reply r = { 0 };

	if (!vmm_is_alive(vm))
		return cli_fail("interrupted: no guest runs (run.interrupted)");
	if (a->keep)
		return cli_fail(
			"interrupted: the guest runs on, pid %d (run.interrupted): hvftrace "
			"attach %s --name %s",
			(int)vm->pid, vm->target, a->name);
	if (attached && path) {
		c->quiet = true;
		(void)cli_call(c, "DELETE", path, NULL, &r);
		cli_reply_deinit(&r);
	}
	vmm_stop(vm);
	return cli_fail("interrupted: the guest was ended, pid %d (run.interrupted)", (int)vm->pid);
}

/* End a guest whose trace did not start: it is still held. */
static void end_held(struct cli *c, const struct run_args *a, const struct guest_vmm *vm)
{
	_cleanup_free_ char *path = cli_guest_path(a->name, ""), *force = NULL;
	struct cli_reply r = { 0 };
	const char *state = NULL;

	c->quiet = true;
	if (path && cli_call(c, "GET", path, NULL, &r) == CLI_OK)
		state = json_string_value(json_object_get(r.doc, "state"));
	if (state && strcmp(state, "held") == 0) {
		cli_reply_deinit(&r);
		force = cli_guest_path(a->name, "?force=true");
		if (force)
			(void)cli_call(c, "DELETE", force, NULL, &r);
		vmm_stop(vm);
	}
	cli_reply_deinit(&r);
}

/* It is held, and goes on once the trace runs. Without one it is of no use. */
static int trace_boot(struct cli *c, struct run_args *a, const struct guest_vmm *vm)
{
	int status;

	fprintf(stderr, "%s: held before its first initcall, pid %d, console %s\n", a->name,
		(int)vm->pid, vm->console);
	a->trace.guest = a->name;
	a->trace.release = true;
	status = cli_trace_args(c, &a->trace);
	if (status != CLI_OK && !a->keep)
		end_held(c, a, vm);
	return status;
}

static int run(struct cli *c, int argc, char **argv, struct run_args *a)
{
	json_t *doc = NULL;
	struct guest_vmm vm;
	int status;

	status = parse(c, argc, argv, a);
	if (status != -1)
		return status == CLI_HELP_SHOWN ? CLI_OK : status;
	/* before anything is started: is there a daemon to attach it with? */
	status = cli_request(c, "GET", "/version", NULL, &doc);
	json_decref(doc);
	doc = NULL;
	if (status != CLI_OK)
		return status;
	status = choose_vmm(a);
	if (status != CLI_OK)
		return status;
	if (a->from_boot && a->vmm != &vmm_own)
		return cli_fail(
			"--trace-from-boot needs our own VMM (run.from_boot): --accel kvm, and raw "
			"disks");
	a->guest.wait = a->from_boot;
	catch_signals();
	/* one that is to be kept is let start, whatever comes meanwhile */
	status = vmm_start(a->vmm, &a->guest, a->keep ? &never : &interrupted, &vm);
	if (status == CLI_OK) {
		guest_pid = a->keep ? 0 : vm.pid;
		status = attach(c, a, &vm, &doc);
		if (status != CLI_OK && !interrupted)
			vmm_stop(&vm); /* a guest that nobody knows of would only be in the way */
	}
	if (interrupted && !(doc && a->keep)) {
		status = give_up(c, a, &vm, doc);
	} else if (status == CLI_OK && a->from_boot) {
		status = trace_boot(c, a, &vm);
	} else if (status == CLI_OK) {
		print(c, doc, &vm);
		status = cli_flush(CLI_OK);
	}
	json_decref(doc);
	return status;
}

int cli_run(struct cli *c, int argc, char **argv)
{
	struct run_args a = {
		.guest = { .cpus = 1, .memory_bytes = 512ull << 20 },
		.accel = "auto",
		.timeout_ns = 120 * NSEC_PER_SEC,
	};
	int status;

	trace_args_init(&a.trace, "function");
	status = run(c, argc, argv, &a);
	trace_args_deinit(&a.trace);
	return status;
}
