// SPDX-License-Identifier: Apache-2.0
/* The command line of hvftrace-vmm. See options.h. */
#include "machine/options.h"

#include "machine/mptable_x86.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
	"usage: hvftrace-vmm --kernel FILE [OPTION]...\n"
	"Runs a Linux guest on KVM until it ends. `hvftrace run --accel kvm` starts it.\n"
	"\n"
	"  --kernel FILE    a bzImage or an ELF vmlinux, x86-64\n"
	"  --initrd FILE\n"
	"  --append TEXT    the kernel's command line\n"
	"  --cpus N         1 when not given\n"
	"  --memory SIZE    512M when not given\n"
	"  --disk FILE      a raw disk; up to 8. --disk-readonly FILE: the guest may not write to it\n"
	"  --console FILE   what the guest's console sends, 64 MiB of it if this is a regular\n"
	"                   file; standard output when not given\n"
	"  --input -|PATH   what it receives: standard input, or from clients of a new unix socket\n"
	"  --pidfile FILE   holds our pid while the guest runs, then nothing\n"
	"  --daemonize      return once the guest runs\n"
	"  --wait           stop (SIGSTOP) before the guest's first instruction; SIGCONT starts it\n"
	"  --version, --help\n"
	"\n"
	"Exit status: 0 the guest ended, 1 it could not be started, 2 usage, 4 it failed;\n"
	"2 V + 1 when it wrote V to port 0xf4.\n";

static int usage(const char *fmt, ...) printf_like(1, 2);
static int usage(const char *fmt, ...)
{
	va_list ap;

	fputs("hvftrace-vmm: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputs(" (--help shows how)\n", stderr);
	return EXIT_USAGE;
}

/* Digits, then nothing, K, M, G or T. */
static bool parse_size(const char *text, u64 *ret)
{
	static const char units[] = "KMGT";
	const char *unit;
	char *end;
	u64 n;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno || end == text || text[0] < '0' || text[0] > '9')
		return false;
	if (*end) {
		unit = strchr(units, *end & ~0x20);
		if (!unit || end[1] ||
		    __builtin_mul_overflow(n, 1ull << (10 * (unit - units + 1)), &n))
			return false;
	}
	*ret = n;
	return true;
}

static int take_disk(struct options *o, bool read_only)
{
	if (o->n_disks == MACHINE_MAX_DISKS)
		return usage("at most %d disks", MACHINE_MAX_DISKS);
	o->disk[o->n_disks++] = (struct disk_source){ optarg, read_only };
	return -1;
}

static int take_option(int opt, struct options *o)
{
	u64 n;

	switch (opt) {
	case 'k':
		o->kernel = optarg;
		return -1;
	case 'i':
		o->initrd = optarg;
		return -1;
	case 'a':
		o->append = optarg;
		return -1;
	case 'c':
		if (!parse_size(optarg, &n) || n < 1 || n > MPTABLE_MAX_CPUS)
			return usage("--cpus takes 1 to %d, not \"%s\"", MPTABLE_MAX_CPUS, optarg);
		o->cpus = (u32)n;
		return -1;
	case 'm':
		if (!parse_size(optarg, &n) || n < MEM_MIN_BYTES || n > MEM_MAX_BYTES)
			return usage("--memory takes 16M to 4T, not \"%s\"", optarg);
		o->memory_bytes = (n + PAGE_SIZE - 1) & PAGE_MASK;
		return -1;
	case 'D':
	case 'R':
		return take_disk(o, opt == 'R');
	case 'C':
		o->console = optarg;
		return -1;
	case 'I':
		o->input = optarg;
		return -1;
	case 'p':
		o->pidfile = optarg;
		return -1;
	case 'd':
		o->daemonize = true;
		return -1;
	case 'w':
		o->wait = true;
		return -1;
	case 'V':
		puts("hvftrace-vmm " HVF_VERSION);
		return 0;
	case 'h':
		fputs(help, stdout);
		return 0;
	default:
		fputs("hvftrace-vmm: --help shows how\n", stderr);
		return EXIT_USAGE;
	}
}

int options_parse(int argc, char **argv, struct options *ret)
{
	static const struct option longs[] = {
		{ "kernel", required_argument, NULL, 'k' },
		{ "initrd", required_argument, NULL, 'i' },
		{ "append", required_argument, NULL, 'a' },
		{ "cpus", required_argument, NULL, 'c' },
		{ "memory", required_argument, NULL, 'm' },
		{ "disk", required_argument, NULL, 'D' },
		{ "disk-readonly", required_argument, NULL, 'R' },
		{ "console", required_argument, NULL, 'C' },
		{ "input", required_argument, NULL, 'I' },
		{ "pidfile", required_argument, NULL, 'p' },
		{ "daemonize", no_argument, NULL, 'd' },
		{ "wait", no_argument, NULL, 'w' },
		{ "version", no_argument, NULL, 'V' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int opt, r;

	*ret = (struct options){ .cpus = 1, .memory_bytes = 512ull << 20 };
	while ((opt = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		r = take_option(opt, ret);
		if (r != -1)
			return r;
	}
	if (optind < argc)
		return usage("what is \"%s\"?", argv[optind]);
	if (!ret->kernel)
		return usage("--kernel is needed");
	if (ret->daemonize && (!ret->console || (ret->input && strcmp(ret->input, "-") == 0)))
		return usage("--daemonize needs --console FILE, and no --input -");
	return -1;
}
