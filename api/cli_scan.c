// SPDX-License-Identifier: Apache-2.0
/* QEMU and other processes with a KVM guest on this host. See cli_scan.h. */
#include "api/cli_scan.h"

#include "base/cleanup.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_CMDLINE (256ul * 1024)
#define MAX_ARGS    4096
#define MAX_FDS     4096

/* The value of "key=" among comma separated options (",," stands for a comma); false: none. */
static bool option_value(const char *opts, const char *key, char *ret, size_t size)
{
	size_t klen = strlen(key), n = 0;

	while (*opts) {
		if (strncmp(opts, key, klen) == 0 && opts[klen] == '=') {
			for (opts += klen + 1; *opts; opts++) {
				if (opts[0] == ',' && opts[1] != ',')
					break;
				if (n + 1 < size)
					ret[n++] = *opts;
				opts += opts[0] == ',';
			}
			ret[n] = 0;
			return n;
		}
		while (*opts && !(opts[0] == ',' && opts[1] != ','))
			opts += opts[0] == ',' ? 2 : 1;
		opts += *opts == ',';
	}
	return false;
}

static bool is_qemu(const char *argv0)
{
	const char *base = strrchr(argv0, '/');

	base = base ? base + 1 : argv0;
	return strncmp(base, "qemu-system-", 12) == 0 || strcmp(base, "qemu-kvm") == 0 ||
	       strcmp(base, "kvm") == 0;
}

/* "-qmp unix:PATH,..." */
static void take_qmp(const char *value, struct scan_vm *vm)
{
	size_t n;

	if (vm->qmp[0] || strncmp(value, "unix:", 5) != 0)
		return;
	value += 5;
	n = strcspn(value, ",");
	if (n && n < sizeof(vm->qmp))
		snprintf(vm->qmp, sizeof(vm->qmp), "%.*s", (int)n, value);
}

/* "-mon chardev=ID,mode=control" and its "-chardev socket,id=ID,path=PATH" */
static void take_monitor(char *const *args, size_t n_args, const char *mon, struct scan_vm *vm)
{
	char id[64], other[64], mode[16], path[sizeof(vm->qmp)];

	if (vm->qmp[0] || !option_value(mon, "mode", mode, sizeof(mode)) ||
	    strcmp(mode, "control") != 0)
		return;
	if (!option_value(mon, "chardev", id, sizeof(id)))
		snprintf(id, sizeof(id), "%.*s", (int)MIN(strcspn(mon, ","), sizeof(id) - 1), mon);
	for (size_t i = 0; i + 1 < n_args; i++) {
		if (strcmp(args[i], "-chardev") != 0 && strcmp(args[i], "--chardev") != 0)
			continue;
		if (option_value(args[i + 1], "id", other, sizeof(other)) &&
		    strcmp(id, other) == 0 && option_value(args[i + 1], "path", path, sizeof(path)))
			memcpy(vm->qmp, path, sizeof(path));
	}
}

/* "kvm", "kvm:tcg", "accel=kvm,...": the first one counts, as far as a command line tells. */
static void take_accel(const char *value, struct scan_vm *vm)
{
	if (strncmp(value, "kvm", 3) == 0)
		vm->accel = "kvm";
	else if (strncmp(value, "tcg", 3) == 0)
		vm->accel = "tcg";
}

static void take_option(char *const *args, size_t n_args, size_t i, struct scan_vm *vm)
{
	const char *opt = args[i] + (args[i][0] == '-' && args[i][1] == '-' ? 2 : 1);
	const char *value = i + 1 < n_args ? args[i + 1] : "";
	char part[64];

	if (args[i][0] != '-')
		return;
	if (strcmp(opt, "enable-kvm") == 0) {
		vm->accel = "kvm";
	} else if (strcmp(opt, "accel") == 0) {
		take_accel(value, vm);
	} else if (strcmp(opt, "machine") == 0 || strcmp(opt, "M") == 0) {
		if (option_value(value, "accel", part, sizeof(part)))
			take_accel(part, vm);
	} else if (strcmp(opt, "smp") == 0) {
		if (!option_value(value, "cpus", part, sizeof(part)))
			snprintf(part, sizeof(part), "%.20s", value);
		vm->vcpus = (u32)MIN(strtoul(part, NULL, 10), 4096ul);
	} else if (strcmp(opt, "name") == 0) {
		if (!option_value(value, "guest", vm->name, sizeof(vm->name)))
			snprintf(vm->name, sizeof(vm->name), "%.*s",
				 (int)MIN(strcspn(value, ","), sizeof(vm->name) - 1), value);
	} else if (strcmp(opt, "uuid") == 0) {
		snprintf(vm->uuid, sizeof(vm->uuid), "%.36s", value);
	} else if (strcmp(opt, "qmp") == 0 || strcmp(opt, "qmp-pretty") == 0) {
		take_qmp(value, vm);
	} else if (strcmp(opt, "mon") == 0) {
		take_monitor(args, n_args, value, vm);
	}
}

bool scan_cmdline(const char *data, size_t len, struct scan_vm *ret)
{
	_cleanup_free_ char *copy = malloc(len + 1);
	_cleanup_free_ char **args = calloc(MAX_ARGS, sizeof(*args));
	size_t n = 0;

	if (!copy || !args || !len)
		return false;
	memcpy(copy, data, len);
	copy[len] = 0;
	for (char *at = copy; at < copy + len && n < MAX_ARGS; at += strlen(at) + 1)
		args[n++] = at;
	if (!is_qemu(args[0]))
		return false;
	*ret = (struct scan_vm){ .accel = "tcg",
				 .vcpus = 1,
				 .state = "running" }; /* QEMU's defaults */
	for (size_t i = 1; i < n; i++)
		take_option(args, n, i, ret);
	return true;
}

static size_t read_file(const char *path, char *buf, size_t size)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	ssize_t n;

	while (fd >= 0 && len < size && (n = read(fd, buf + len, size - len)) > 0)
		len += (size_t)n;
	return len;
}

/* What is open tells for sure: a process with a KVM VM runs it on KVM. *vcpus_ret: what it has of them. */
static bool has_kvm_guest(const char *proc, pid_t pid, u32 *vcpus_ret)
{
	static const char vcpu[] = "anon_inode:kvm-vcpu:";
	char path[PATH_MAX], link[64];
	const struct dirent *e;
	unsigned n_seen = 0;
	bool found = false;
	ssize_t n;
	DIR *dir;

	*vcpus_ret = 0;
	snprintf(path, sizeof(path), "%.64s/%d/fd", proc, (int)pid);
	dir = opendir(path);
	if (!dir)
		return false;
	while ((e = readdir(dir)) && n_seen++ < MAX_FDS) {
		n = readlinkat(dirfd(dir), e->d_name, link, sizeof(link) - 1);
		if (n <= 0)
			continue;
		link[n] = 0;
		found |= strcmp(link, "anon_inode:kvm-vm") == 0;
		*vcpus_ret += strncmp(link, vcpu, sizeof(vcpu) - 1) == 0;
	}
	closedir(dir);
	return found;
}

/* QEMU by its command line, which ends in NUL; any other VMM by the guest that it has on KVM. */
static bool is_vm(const char *proc, pid_t pid, const char *cmdline, size_t len, struct scan_vm *ret)
{
	const char *base;
	u32 vcpus;
	bool kvm;

	if (scan_cmdline(cmdline, len, ret)) {
		if (has_kvm_guest(proc, pid, &vcpus))
			ret->accel = "kvm";
		return true;
	}
	kvm = has_kvm_guest(proc, pid, &vcpus);
	base = strrchr(cmdline, '/');
	*ret = (struct scan_vm){ .accel = "kvm", .state = "running", .vcpus = vcpus };
	snprintf(ret->name, sizeof(ret->name), "%s", base ? base + 1 : cmdline);
	return kvm;
}

/* Make the socket's path absolute: it was relative to where QEMU was started. */
static void resolve_qmp(const char *proc, const struct scan_vm *vm, char *ret, size_t size)
{
	char link[PATH_MAX], cwd[PATH_MAX];
	ssize_t n;

	snprintf(ret, size, "%s", vm->qmp);
	if (vm->qmp[0] == '/')
		return;
	snprintf(link, sizeof(link), "%.64s/%d/cwd", proc, (int)vm->pid);
	n = readlink(link, cwd, sizeof(cwd) - 1);
	if (n <= 0)
		return;
	cwd[n] = 0;
	if ((size_t)n + 1 + strlen(vm->qmp) < size)
		snprintf(ret, size, "%.*s/%s", (int)(size - strlen(vm->qmp) - 2), cwd, vm->qmp);
}

static void judge(const char *proc, struct scan_vm *vm)
{
	char path[sizeof(vm->target) - 5];
	struct stat st;

	if (vm->qmp[0]) {
		resolve_qmp(proc, vm, path, sizeof(path));
		if (stat(path, &st) == 0 && S_ISSOCK(st.st_mode)) {
			snprintf(vm->target, sizeof(vm->target), "qemu:%s", path);
			if (access(path, W_OK) < 0)
				snprintf(vm->reason, sizeof(vm->reason),
					 "no permission on its QMP socket");
			return;
		}
	}
	snprintf(vm->target, sizeof(vm->target), "pid:%d", (int)vm->pid);
	if (strcmp(vm->accel, "tcg") == 0)
		snprintf(vm->reason, sizeof(vm->reason), "%s",
			 vm->qmp[0] ? "its QMP socket is gone"
				    : "TCG needs -qmp unix:PATH,server=on,wait=off");
}

size_t scan_host(const char *proc, struct scan_vm **ret)
{
	_cleanup_free_ char *data = malloc(MAX_CMDLINE);
	struct scan_vm vm, *all = NULL, *grown;
	char path[PATH_MAX];
	const struct dirent *e;
	size_t n = 0, len;
	pid_t pid;
	DIR *dir = opendir(proc);

	while (data && dir && (e = readdir(dir))) {
		if (e->d_name[strspn(e->d_name, "0123456789")])
			continue;
		snprintf(path, sizeof(path), "%.64s/%.32s/cmdline", proc, e->d_name);
		len = read_file(path, data, MAX_CMDLINE - 1);
		data[len] = 0;
		pid = (pid_t)strtol(e->d_name, NULL, 10);
		if (!is_vm(proc, pid, data, len, &vm))
			continue;
		vm.pid = pid;
		judge(proc, &vm);
		grown = realloc(all, (n + 1) * sizeof(*all));
		if (!grown)
			break;
		all = grown;
		all[n++] = vm;
	}
	if (dir)
		closedir(dir);
	*ret = all;
	return n;
}
