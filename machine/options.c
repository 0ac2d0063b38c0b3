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
	"  --protocol auto|linux|pvh\n"
	"                   how it is entered: by Linux's 64-bit boot protocol where it can be, when not\n"
	"                   given; else by PVH, which the notes of an ELF file name the entry for\n"
	"  --initrd FILE\n"
	"  --append TEXT    the kernel's command line\n"
	"  --cpus N         1 when not given\n"
	"  --memory SIZE    512M when not given\n"
	"  --disk FILE[,readonly|,cow|,cow=PATH]\n"
	"                   a raw disk; up to 8. What the guest writes goes to the file, or is forgotten\n"
	"                   at its end (cow), or kept at PATH. --disk-readonly FILE: as FILE,readonly\n"
	"  --console FILE   what the guest's console sends, 64 MiB of it if this is a regular\n"
	"                   file; standard output when not given\n"
	"  --input -|PATH   what it receives: standard input, or from clients of a new unix socket\n"
	"  --net tap=NAME|fd=N[,mac=XX:XX:XX:XX:XX:XX]\n"
	"                   a network card at a tap of the host's; up to 4\n"
	"  --vsock PATH[,cid=N]\n"
	"                   sockets between guest and host, by a new unix socket\n"
	"  --control PATH   a new unix socket that takes commands: status, power, reset, end\n"
	"  --no-reboot      a reset is the guest's end\n"
	"  --triple-fault end|reset\n"
	"                   what one means; a failure (end) when not given\n"
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

/* Cut @suffix off the end of @text. */
static bool cut(char *text, const char *suffix)
{
	size_t len = strlen(text), n = strlen(suffix);

	if (len <= n || strcmp(text + len - n, suffix) != 0)
		return false;
	text[len - n] = 0;
	return true;
}

/* FILE, FILE,readonly, FILE,cow or FILE,cow=PATH; any other comma is part of a name. */
static int take_disk(struct options *o, bool read_only)
{
	struct disk_source *d = &o->disk[o->n_disks];
	char *at = NULL;

	if (o->n_disks == MACHINE_MAX_DISKS)
		return usage("at most %d disks", MACHINE_MAX_DISKS);
	for (char *c = strstr(optarg, ",cow="); c; c = strstr(c + 1, ",cow="))
		at = c;
	*d = (struct disk_source){ .path = optarg, .read_only = read_only };
	if (at) {
		*at = 0;
		d->overlay = at + strlen(",cow=");
		d->cow = true;
	} else if (cut(optarg, ",cow")) {
		d->cow = true;
	} else if (cut(optarg, ",readonly")) {
		d->read_only = true;
	}
	if (!*optarg || (d->overlay && !*d->overlay) || (d->cow && d->read_only))
		return usage("--disk takes FILE, FILE,readonly, FILE,cow or FILE,cow=PATH");
	o->n_disks++;
	return -1;
}

static bool parse_mac(const char *text, u8 *mac)
{
	static const char digits[] = "0123456789abcdefABCDEF";

	for (u32 i = 0; i < MAC_BYTES; i++) {
		size_t n = strspn(text, digits);

		if (n < 1 || n > 2 || text[n] != (i < MAC_BYTES - 1 ? ':' : 0))
			return false;
		mac[i] = (u8)strtoul(text, NULL, 16);
		text += n + 1;
	}
	return !(mac[0] & 1); /* a group's address is nobody's own */
}

static int take_net(struct options *o)
{
	struct net_source *n = &o->net[o->n_nets];
	char *mac = strstr(optarg, ",mac=");
	char *end;

	if (o->n_nets == MACHINE_MAX_NETS)
		return usage("at most %d network cards", MACHINE_MAX_NETS);
	*n = (struct net_source){ .fd = -1 };
	if (mac && !parse_mac(mac + strlen(",mac="), n->mac))
		return usage("\"%s\" is no MAC address of one card, as 02:00:00:12:34:56 is",
			     mac + strlen(",mac="));
	if (mac)
		*mac = 0;
	if (strncmp(optarg, "tap=", 4) == 0 && optarg[4] && !strchr(optarg, ',')) {
		n->tap = optarg + 4;
	} else if (strncmp(optarg, "fd=", 3) == 0 && optarg[3] >= '0' && optarg[3] <= '9') {
		n->fd = (int)strtol(optarg + 3, &end, 10);
		if (*end)
			return usage("--net fd= takes a number, not \"%s\"", optarg + 3);
	} else if (strncmp(optarg, "user", 4) == 0) {
		return usage(
			"--net user: there is no network without a tap here: ip tuntap add dev "
			"NAME mode tap user $USER, then --net tap=NAME");
	} else {
		return usage("--net takes tap=NAME or fd=N, and mac=..., not \"%s\"", optarg);
	}
	o->n_nets++;
	return -1;
}

static int take_vsock(struct options *o)
{
	char *cid = strstr(optarg, ",cid=");
	u64 n = VSOCK_CID_DEFAULT;

	if (cid &&
	    (!parse_size(cid + strlen(",cid="), &n) || n < VSOCK_CID_DEFAULT || n >= UINT32_MAX))
		return usage("--vsock takes a cid of 3 to 4294967294, not \"%s\"",
			     cid + strlen(",cid="));
	if (cid)
		*cid = 0;
	if (!*optarg || o->vsock.path)
		return usage("--vsock takes PATH or PATH,cid=N, once");
	o->vsock = (struct vsock_source){ .path = optarg, .cid = n };
	return -1;
}

static int take_protocol(struct options *o)
{
	static const char *const names[] = {
		[BOOT_AUTO] = "auto", [BOOT_LINUX] = "linux", [BOOT_PVH] = "pvh"
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (strcmp(optarg, names[i]) == 0) {
			o->protocol = (enum boot_protocol)i;
			return -1;
		}
	}
	return usage("--protocol takes auto, linux or pvh, not \"%s\"", optarg);
}

static int take_triple_fault(struct options *o)
{
	o->triple_fault_resets = strcmp(optarg, "reset") == 0;
	if (!o->triple_fault_resets && strcmp(optarg, "end") != 0)
		return usage("--triple-fault takes end or reset, not \"%s\"", optarg);
	return -1;
}

/* What the guest has, and what becomes of it. */
static int take_device(int opt, struct options *o)
{
	switch (opt) {
	case 'D':
	case 'R':
		return take_disk(o, opt == 'R');
	case 'N':
		return take_net(o);
	case 'S':
		return take_vsock(o);
	case 'T':
		return take_triple_fault(o);
	case 'P':
		return take_protocol(o);
	case 'B':
		o->no_reboot = true;
		return -1;
	case 'O':
		o->control = optarg;
		return -1;
	default:
		fputs("hvftrace-vmm: --help shows how\n", stderr);
		return EXIT_USAGE;
	}
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
		return take_device(opt, o);
	}
}

int options_parse(int argc, char **argv, struct options *ret)
{
	static const struct option longs[] = {
		{ "kernel", required_argument, NULL, 'k' },
		{ "protocol", required_argument, NULL, 'P' },
		{ "initrd", required_argument, NULL, 'i' },
		{ "append", required_argument, NULL, 'a' },
		{ "cpus", required_argument, NULL, 'c' },
		{ "memory", required_argument, NULL, 'm' },
		{ "disk", required_argument, NULL, 'D' },
		{ "disk-readonly", required_argument, NULL, 'R' },
		{ "console", required_argument, NULL, 'C' },
		{ "input", required_argument, NULL, 'I' },
		{ "pidfile", required_argument, NULL, 'p' },
		{ "net", required_argument, NULL, 'N' },
		{ "vsock", required_argument, NULL, 'S' },
		{ "control", required_argument, NULL, 'O' },
		{ "no-reboot", no_argument, NULL, 'B' },
		{ "triple-fault", required_argument, NULL, 'T' },
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
