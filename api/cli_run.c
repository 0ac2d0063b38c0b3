// SPDX-License-Identifier: Apache-2.0
/* The verb run: start a guest, wait until its kernel is up, attach it. */
#include "api/accel.h"
#include "api/cli.h"
#include "api/cli_qemu.h"
#include "api/names.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_CPUS   512u
#define MIN_MEMORY (32ull << 20)
#define RETRY_MS   200

struct run_args {
	struct qemu_opts qemu;
	const char *accel;
	u64 timeout_ns;
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
		a->qemu.cpus = (u32)n;
		return -1;
	case 'm':
		if (!cli_size(optarg, &a->qemu.memory_bytes) || a->qemu.memory_bytes < MIN_MEMORY)
			return cli_usage(verb,
					 "--memory takes 512M, 2G ..., at least 32M, not \"%s\"",
					 optarg);
		return -1;
	default:
		if (!cli_duration(optarg, &a->timeout_ns))
			return cli_usage(verb, "--timeout takes 120, 30s, 2m ..., not \"%s\"",
					 optarg);
		return -1;
	}
}

static int take_option(struct cli *c, const char *verb, int opt, struct run_args *a)
{
	switch (opt) {
	case 'k':
		a->qemu.kernel = optarg;
		return -1;
	case 'i':
		a->qemu.initrd = optarg;
		return -1;
	case 'a':
		a->qemu.append = optarg;
		return -1;
	case 'd':
		if (a->qemu.n_disks == QEMU_MAX_DISKS)
			return cli_usage(verb, "at most %d disks", QEMU_MAX_DISKS);
		a->qemu.disks[a->qemu.n_disks++] = optarg;
		return -1;
	case 'A':
		a->accel = optarg;
		if (strcmp(optarg, "auto") != 0 && strcmp(optarg, "kvm") != 0 &&
		    strcmp(optarg, "tcg") != 0)
			return cli_usage(verb, "--accel takes auto, kvm or tcg, not \"%s\"",
					 optarg);
		return -1;
	case 'n':
		if (!name_valid(optarg))
			return cli_usage(verb,
					 "--name takes 1 to %d letters, digits, '.', '_', '-'",
					 NAME_MAX_BYTES);
		snprintf(a->name, sizeof(a->name), "%s", optarg);
		return -1;
	case 'c':
	case 'm':
	case 't':
		return take_number(verb, opt, a);
	default:
		return cli_common_option(c, verb, opt, optarg);
	}
}

/* QEMU would say it too, but less clearly. */
static int check_files(const struct run_args *a)
{
	const struct qemu_opts *q = &a->qemu;

	if (access(q->kernel, R_OK) < 0)
		return cli_fail("--kernel %s: %s", q->kernel, strerrordesc_np(errno));
	if (q->initrd && access(q->initrd, R_OK) < 0)
		return cli_fail("--initrd %s: %s", q->initrd, strerrordesc_np(errno));
	for (size_t i = 0; i < q->n_disks; i++) {
		if (access(q->disks[i], R_OK | W_OK) < 0)
			return cli_fail("--disk %s: %s", q->disks[i], strerrordesc_np(errno));
	}
	return CLI_OK;
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
		{ "accel", required_argument, NULL, 'A' },
		{ "name", required_argument, NULL, 'n' },
		{ "timeout", required_argument, NULL, 't' },
		CLI_COMMON_LONG,
		{ NULL, 0, NULL, 0 },
	};
	int opt, r;

	while ((opt = getopt_long(argc, argv, CLI_COMMON_SHORT, longs, NULL)) != -1) {
		r = take_option(c, argv[0], opt, a);
		if (r != -1)
			return r;
	}
	if (optind < argc)
		return cli_usage(argv[0], "what is \"%s\"?", argv[optind]);
	if (!a->qemu.kernel)
		return cli_usage(argv[0], "--kernel is needed");
	if (!a->name[0])
		snprintf(a->name, sizeof(a->name), "guest-%d", (int)getpid());
	a->qemu.name = a->name;
	r = check_files(a);
	return r == CLI_OK ? -1 : r;
}

static void choose_accel(struct run_args *a)
{
	struct accel_verdict v;

	if (strcmp(a->accel, "tcg") == 0)
		return;
	accel_probe(&v);
	a->qemu.kvm = strcmp(a->accel, "kvm") == 0 || v.use_kvm;
	if (strcmp(a->accel, "auto") == 0)
		fprintf(stderr, "%s\n", v.why);
	else if (!v.use_kvm)
		fprintf(stderr,
			"KVM as asked, though it is not fit here: expect a very slow guest\n");
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

static int attach(struct cli *c, const struct run_args *a, const struct qemu_vm *vm,
		  json_t **doc_ret)
{
	struct timespec step = { .tv_nsec = RETRY_MS * (long)NSEC_PER_MSEC };
	u64 end = monotonic_ns() + a->timeout_ns;
	struct cli_reply r = { 0 };
	char target[PATH_MAX + 8];
	int status;

	snprintf(target, sizeof(target), "qemu:%s", vm->qmp);
	for (;;) {
		status = cli_call(c, "POST", "/v1/guests",
				  json_pack("{s:s, s:s}", "target", target, "name", a->name), &r);
		if (status != CLI_OK)
			break;
		if (r.status == 201) {
			*doc_ret = json_incref(r.doc);
			break;
		}
		if (!qemu_is_alive(vm)) {
			status = cli_fail(
				"the guest ended while it booted (run.guest_ended): see %s",
				vm->console);
			break;
		}
		if (!is_early(cli_reply_code(&r)) || monotonic_ns() >= end) {
			status = cli_refused(&r);
			break;
		}
		cli_reply_deinit(&r);
		nanosleep(&step, NULL);
	}
	cli_reply_deinit(&r);
	return status;
}

static void print(const struct cli *c, const json_t *doc, const struct qemu_vm *vm)
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

int cli_run(struct cli *c, int argc, char **argv)
{
	struct run_args a = {
		.qemu = { .cpus = 1, .memory_bytes = 512ull << 20 },
		.accel = "auto",
		.timeout_ns = 120 * NSEC_PER_SEC,
	};
	json_t *doc = NULL;
	struct qemu_vm vm;
	int status;

	status = parse(c, argc, argv, &a);
	if (status != -1)
		return status == CLI_HELP_SHOWN ? CLI_OK : status;
	/* before anything is started: is there a daemon to attach it with? */
	status = cli_request(c, "GET", "/version", NULL, &doc);
	json_decref(doc);
	doc = NULL;
	if (status != CLI_OK)
		return status;
	choose_accel(&a);
	status = qemu_start(&a.qemu, &vm);
	if (status != CLI_OK)
		return status;
	status = attach(c, &a, &vm, &doc);
	if (status != CLI_OK) {
		qemu_stop(&vm); /* a guest that nobody knows of would only be in the way */
		return status;
	}
	print(c, doc, &vm);
	json_decref(doc);
	return cli_flush(CLI_OK);
}
