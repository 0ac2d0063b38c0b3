// SPDX-License-Identifier: Apache-2.0
/* What our own VMM is started with. See cli_vmm.h. */
#include "api/cli_vmm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROGRAM "hvftrace-vmm"

/* Where $PATH leads; false: nowhere. */
static bool in_path(char *path, size_t cap)
{
	const char *list = getenv("PATH");

	while (list && *list) {
		size_t n = strcspn(list, ":");

		snprintf(path, cap, "%.*s/" PROGRAM, (int)n, list);
		if (n && access(path, X_OK) == 0)
			return true;
		list += n + (list[n] == ':');
	}
	return false;
}

bool vmm_own_path(char *path, size_t cap)
{
	const char *given = getenv("HVFTRACE_VMM");
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (given && *given) {
		snprintf(path, cap, "%s", given);
		return access(path, X_OK) == 0;
	}
	self[MAX(n, 0)] = 0;
	slash = strrchr(self, '/');
	if (slash) {
		slash[1] = 0;
		snprintf(path, cap, "%s" PROGRAM, self);
		if (access(path, X_OK) == 0)
			return true;
	}
	return in_path(path, cap);
}

static void add_program(struct vmm_args *a)
{
	const char *given = getenv("HVFTRACE_VMM");
	char path[PATH_MAX + sizeof(PROGRAM)];

	/* one that was given is started whatever it is, and a failure is told */
	if (vmm_own_path(path, sizeof(path)) || (given && *given))
		vmm_arg(a, "%s", path);
	else
		vmm_arg(a, PROGRAM);
}

static void own_args(struct vmm_args *a, const struct run_opts *o, const struct guest_vmm *vm)
{
	add_program(a);
	vmm_boot_args(a, "--", o);
	vmm_arg(a, "--cpus");
	vmm_arg(a, "%u", o->cpus);
	vmm_arg(a, "--memory");
	vmm_arg(a, "%llu", (unsigned long long)o->memory_bytes);
	for (size_t i = 0; i < o->n_disks; i++) {
		const struct guest_disk *d = &o->disks[i];

		vmm_arg(a, "--disk");
		vmm_arg(a, "%s%s%s%s", d->path, d->read_only ? ",readonly" : "",
			d->overlay ? ",cow="
			: d->cow   ? ",cow"
				   : "",
			d->overlay ? d->overlay : "");
	}
	for (size_t i = 0; i < o->n_nets; i++) {
		vmm_arg(a, "--net");
		vmm_arg(a, "%s", o->nets[i]);
	}
	if (o->vsock) {
		vmm_arg(a, "--vsock");
		vmm_arg(a, "%s", o->vsock);
	}
	if (o->no_reboot)
		vmm_arg(a, "--no-reboot");
	vmm_arg(a, "--console");
	vmm_arg(a, "%s", vm->console);
	vmm_arg(a, "--input");
	vmm_arg(a, "%s", vm->socket);
	vmm_arg(a, "--control");
	vmm_arg(a, "%s", vm->control);
	vmm_arg(a, "--pidfile");
	vmm_arg(a, "%s", vm->pidfile);
	vmm_arg(a, "--daemonize");
	if (o->wait)
		vmm_arg(a, "--wait");
}

const struct vmm_kind vmm_own = {
	.name = PROGRAM,
	.args = own_args,
	.socket = "input",
	.by_pid = true,
	.missing = "run.no_vmm",
	.remedy = "it belongs beside hvftrace",
	.failed = "run.vmm_failed",
};
