// SPDX-License-Identifier: Apache-2.0
/* The verb doctor: what works on this host and with a guest, what does not, and why. Changes nothing. */
#include "api/cli.h"
#include "api/cli_domains.h"
#include "api/cli_vmm.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "machine/accel.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

enum health {
	GOOD,
	WARN,
	BAD
};
static const char *const healths[] = { "ok", "warn", "no" };

struct doctor {
	json_t *checks;
	bool refused; /* the guest that was named cannot be traced */
};

static void say(struct doctor *d, const char *name, enum health h, const char *fmt, ...)
	printf_like(4, 5);
static void say(struct doctor *d, const char *name, enum health h, const char *fmt, ...)
{
	char detail[600];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(detail, sizeof(detail), fmt, ap);
	va_end(ap);
	json_array_append_new(d->checks, json_pack("{s:s, s:s, s:s}", "name", name, "status",
						   healths[h], "detail", detail));
}

/* A small file's text without its newline; false when it cannot be read. */
static bool read_text(const char *path, char *buf, size_t cap)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, cap - 1);

	if (n < 0)
		return false;
	buf[n] = 0;
	buf[strcspn(buf, "\n")] = 0;
	return true;
}

/* Does /proc/cpuinfo's first CPU have one of the two? */
static const char *virtualisation(void)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/cpuinfo", "re");
	char line[8192];

	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, "flags", 5) != 0)
			continue;
		line[strcspn(line, "\n")] = ' ';
		if (strstr(line, " vmx "))
			return "Intel VT-x";
		return strstr(line, " svm ") ? "AMD-V" : NULL;
	}
	return NULL;
}

static void check_host(struct doctor *d)
{
	const char *virt = virtualisation();
	struct utsname u;

	uname(&u);
	if (strcmp(u.machine, "x86_64") != 0)
		say(d, "host", BAD, "%s %s: guests are traced on x86-64 hosts", u.sysname,
		    u.machine);
	else
		say(d, "host", GOOD, "%s %s, %s", u.sysname, u.release,
		    virt ? virt : "the CPU shows no virtualisation of its own");
}

static void check_kvm(struct doctor *d)
{
	struct accel_verdict v;
	u64 start = monotonic_ns();
	json_t *kvm;

	accel_probe(&v);
	say(d, "kvm", v.use_kvm ? GOOD : WARN, "%s", v.why);
	kvm = json_array_get(d->checks, json_array_size(d->checks) - 1);
	json_object_set_new(kvm, "insns_per_sec", json_real(v.insns_per_sec));
	json_object_set_new(kvm, "probe_ns", json_integer((json_int_t)(monotonic_ns() - start)));
}

static void check_vmm(struct doctor *d)
{
	char path[PATH_MAX];

	if (vmm_own_path(path, sizeof(path)))
		say(d, "hvftrace-vmm", GOOD, "%s", path);
	else
		say(d, "hvftrace-vmm", WARN,
		    "not beside hvftrace nor in $PATH (run.no_vmm): run --accel kvm needs it");
}

/* The first line of what "qemu-system-x86_64 --version" says; false when there is no such program. */
static bool qemu_version(char *line, size_t cap)
{
	char program[] = "qemu-system-x86_64", option[] = "--version";
	char *argv[] = { program, option, NULL };
	posix_spawn_file_actions_t files;
	int out[2], rc, status;
	ssize_t n;
	pid_t pid;

	if (pipe2(out, O_CLOEXEC) < 0)
		return false;
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, out[1], STDOUT_FILENO);
	posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	rc = posix_spawnp(&pid, argv[0], &files, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	close(out[1]);
	n = rc ? -1 : read(out[0], line, cap - 1);
	close(out[0]);
	if (!rc)
		waitpid(pid, &status, 0);
	line[MAX(n, 0)] = 0;
	line[strcspn(line, "\n")] = 0;
	return n > 0;
}

/*
 * Before 8.1 a page could be written while another vCPU translated it, and the old code lived on (QEMU commit
 * "accel/tcg: Always lock pages before translation").
 */
static void check_qemu(struct doctor *d)
{
	static const char prefix[] = "QEMU emulator version ";
	unsigned long major, minor = 0;
	char line[200], *version = line + strlen(prefix), *end;

	if (!qemu_version(line, sizeof(line)) || strncmp(line, prefix, strlen(prefix)) != 0) {
		say(d, "qemu", WARN, "no qemu-system-x86_64 in $PATH: run --accel tcg needs it");
		return;
	}
	major = strtoul(version, &end, 10);
	if (*end == '.')
		minor = strtoul(end + 1, NULL, 10);
	if (major > 8 || (major == 8 && minor >= 1))
		say(d, "qemu", GOOD, "%s", version);
	else
		say(d, "qemu", WARN,
		    "%s: under TCG with several vCPUs it may miss a change of code that another vCPU "
		    "translates just then (mended in 8.1); KVM guests are not concerned",
		    version);
}

static void check_libvirt(struct doctor *d)
{
	_cleanup_free_ struct lv_domain *domain = NULL;
	struct err err = { 0 };
	size_t n = 0;

	if (!lv_daemon_listens())
		say(d, "libvirt", WARN,
		    "no libvirtd or virtqemud listens that this user may connect to");
	else if (lv_list(5 * NSEC_PER_SEC, &domain, &n, &err) < 0)
		say(d, "libvirt", BAD, "%s (%s)", err.msg, err_code_name(err.code));
	else
		say(d, "libvirt", GOOD, "qemu:///system has %zu domain%s", n, n == 1 ? "" : "s");
}

static bool may_ptrace(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };

	return syscall(SYS_capget, &head, data) == 0 &&
	       (data[CAP_TO_INDEX(CAP_SYS_PTRACE)].effective & CAP_TO_MASK(CAP_SYS_PTRACE));
}

/* Documentation/admin-guide/LSM/Yama.rst: with 2 the capability is needed, with 3 nothing helps. */
static void check_ptrace(struct doctor *d)
{
	char scope[16] = "";
	bool may = may_ptrace();

	if (!read_text("/proc/sys/kernel/yama/ptrace_scope", scope, sizeof(scope)))
		snprintf(scope, sizeof(scope), "absent");
	if (strcmp(scope, "3") == 0)
		say(d, "ptrace", BAD,
		    "kernel.yama.ptrace_scope is 3: nobody may stop a VMM's vCPUs until the host is "
		    "rebooted with another value; only QEMU under TCG can be traced");
	else if (may)
		say(d, "ptrace", GOOD, "CAP_SYS_PTRACE, kernel.yama.ptrace_scope %s", scope);
	else
		say(d, "ptrace", WARN,
		    "this user has no CAP_SYS_PTRACE (kernel.yama.ptrace_scope %s): a daemon of this "
		    "user reaches VMMs of the same user at most",
		    scope);
}

static void check_daemon(struct doctor *d, struct cli *c)
{
	struct cli_reply r = { 0 };
	bool was_quiet = c->quiet;
	const char *version;

	c->quiet = true;
	if (cli_call(c, "GET", "/version", NULL, &r) == CLI_OK && r.status == 200) {
		version = json_string_value(json_object_get(r.doc, "version"));
		say(d, "daemon", GOOD, "hvftraced %s at %s", version ? version : "?",
		    c->url ? c->url : c->socket);
	} else {
		say(d, "daemon", BAD, "no hvftraced answers at %s: start it, or name it with -s",
		    c->url ? c->url : c->socket);
	}
	c->quiet = was_quiet;
	cli_reply_deinit(&r);
}

/* Virtual machines of this host, as ls finds them. */
static void check_vms(struct doctor *d)
{
	struct scan_vm *vms = NULL;
	size_t n = scan_host("/proc", &vms);

	for (size_t i = 0; i < n; i++) {
		const char *name = vms[i].name[0] ? vms[i].name : vms[i].target;

		if (vms[i].reason[0])
			say(d, "vm", BAD, "%s, pid %d: %s", name, (int)vms[i].pid, vms[i].reason);
		else
			say(d, "vm", GOOD, "%s, pid %d, %s: attach %s", name, (int)vms[i].pid,
			    vms[i].accel, vms[i].target);
	}
	if (!n)
		say(d, "vm", WARN, "no virtual machine runs on this host that this user can see");
	free(vms);
}

static long long number(const json_t *doc, const char *key)
{
	return (long long)json_integer_value(json_object_get(doc, key));
}

static void guest_found(struct doctor *d, const json_t *info)
{
	const char *release = json_string_value(json_object_get(info, "release"));
	const char *state = json_string_value(json_object_get(info, "state"));

	say(d, "guest", GOOD, "%s: Linux %s, %lld vCPUs, %s",
	    json_string_value(json_object_get(info, "name")), release ? release : "?",
	    number(info, "vcpus"), state ? state : "?");
	say(d, "sites", number(info, "traceable") ? GOOD : BAD,
	    "%lld call sites recorded, %lld traceable, %lld in use by the guest itself, %lld modules",
	    number(info, "functions"), number(info, "traceable"), number(info, "in_use"),
	    number(info, "modules"));
}

static void guest_config(struct doctor *d, const json_t *facts)
{
	char set[400] = "", unset[400] = "";
	const char *key;
	json_t *value, *config = json_object_get(facts, "config");
	const char *lockdown = json_string_value(json_object_get(facts, "lockdown"));
	const char *memory = json_string_value(json_object_get(facts, "agent_memory"));

	json_object_foreach(config, key, value)
	{
		char *list = json_is_true(value) ? set : unset;
		size_t at = strlen(list);

		snprintf(list + at, sizeof(set) - at, " %s",
			 strncmp(key, "CONFIG_", 7) == 0 ? key + 7 : key);
	}
	say(d, "config", GOOD, "set:%s; not set:%s; preemption %s", *set ? set : " none",
	    *unset ? unset : " none", json_string_value(json_object_get(facts, "preemption")));
	say(d, "btf", number(facts, "btf_bytes") ? GOOD : BAD, "%lld KiB of types",
	    number(facts, "btf_bytes") / 1024);
	say(d, "lockdown", GOOD, "%s; tracing from outside does not mind",
	    lockdown ? lockdown : "none in this kernel");
	say(d, "agent", GOOD, "its memory comes from %s",
	    memory && strcmp(memory, "vmm") == 0 ? "the VMM, above the guest's RAM"
						 : "the guest's own module allocator");
}

static void guest_tracers(struct doctor *d, const json_t *facts)
{
	size_t i;
	json_t *t;

	json_array_foreach(json_object_get(facts, "tracers"), i, t)
	{
		const char *why_not = json_string_value(json_object_get(t, "why_not"));
		const char *name = json_string_value(json_object_get(t, "name"));

		say(d, "tracer", why_not ? BAD : GOOD, "%s%s%s", name ? name : "?",
		    why_not ? ": " : "", why_not ? why_not : "");
		d->refused |= why_not && name && strcmp(name, "function") == 0;
	}
}

/* What a problem document says, in one line. */
static void guest_refused(struct doctor *d, const char *what, const struct cli_reply *r)
{
	const char *detail = json_string_value(json_object_get(r->doc, "detail"));
	const char *hint = json_string_value(json_object_get(r->doc, "hint"));

	if (!detail)
		say(d, "guest", BAD, "%s: the daemon does not answer", what);
	else
		say(d, "guest", BAD, "%s: %s (%s)%s%s", what, detail, cli_reply_code(r),
		    hint ? ": " : "", hint ? hint : "");
	d->refused = true;
}

static bool get(struct cli *c, const char *guest, const char *rest, struct cli_reply *r)
{
	_cleanup_free_ char *path = cli_guest_path(guest, rest);

	return path && cli_call(c, "GET", path, NULL, r) == CLI_OK && r->status == 200;
}

static void check_guest(struct doctor *d, struct cli *c, const char *guest)
{
	struct cli_reply info = { 0 }, facts = { 0 };

	if (!get(c, guest, "", &info)) {
		guest_refused(d, guest, &info);
	} else {
		guest_found(d, info.doc);
		if (get(c, guest, "/facts", &facts)) {
			guest_config(d, facts.doc);
			guest_tracers(d, facts.doc);
		} else {
			guest_refused(d, guest, &facts);
		}
	}
	cli_reply_deinit(&info);
	cli_reply_deinit(&facts);
}

/* A target that is not attached: attached for the look, and given back. */
static void check_target(struct doctor *d, struct cli *c, const char *target)
{
	_cleanup_free_ char *name = NULL, *path = NULL;
	struct cli_reply r = { 0 };
	int status = cli_call(c, "POST", "/v1/guests", json_pack("{s:s}", "target", target), &r);

	if (status == CLI_OK && r.status == 201)
		name = strdup(json_string_value(json_object_get(r.doc, "name")) ?: "");
	if (!name)
		guest_refused(d, target, &r);
	cli_reply_deinit(&r);
	if (!name)
		return;
	check_guest(d, c, name);
	path = cli_guest_path(name, "");
	if (path && cli_call(c, "DELETE", path, NULL, &r) == CLI_OK)
		cli_reply_deinit(&r);
}

static const char *colour_of(const char *status)
{
	if (!status || strcmp(status, "no") == 0)
		return CLI_RED;
	return strcmp(status, "ok") == 0 ? CLI_GREEN : CLI_YELLOW;
}

static int print(const struct cli *c, const struct doctor *d)
{
	const char *name, *status, *detail;
	size_t i;
	json_t *v;

	if (c->json) {
		json_t *doc = json_pack("{s:O}", "checks", d->checks);

		json_dumpf(doc, stdout, JSON_INDENT(2));
		putchar('\n');
		json_decref(doc);
		return cli_flush(d->refused ? CLI_FAILED : CLI_OK);
	}
	json_array_foreach(d->checks, i, v)
	{
		name = json_string_value(json_object_get(v, "name"));
		status = json_string_value(json_object_get(v, "status"));
		detail = json_string_value(json_object_get(v, "detail"));
		printf("%s%-4s%s  %-12s  ", cli_colour(colour_of(status)), status ? status : "?",
		       cli_colour(CLI_PLAIN), name ? name : "?");
		cli_text(stdout, detail ? detail : "?");
		putchar('\n');
	}
	return cli_flush(d->refused ? CLI_FAILED : CLI_OK);
}

int cli_doctor(struct cli *c, int argc, char **argv)
{
	struct doctor d = { 0 };
	int status;

	if (!cli_no_options(c, argc, argv, &status))
		return status;
	if (argc - optind > 1)
		return cli_usage(argv[0], "only one guest");
	d.checks = json_array();
	check_host(&d);
	check_kvm(&d);
	check_vmm(&d);
	check_qemu(&d);
	check_libvirt(&d);
	check_ptrace(&d);
	check_daemon(&d, c);
	check_vms(&d);
	c->quiet = true;
	if (optind < argc && strchr(argv[optind], ':'))
		check_target(&d, c, argv[optind]);
	else if (optind < argc)
		check_guest(&d, c, argv[optind]);
	status = print(c, &d);
	json_decref(d.checks);
	return status;
}
