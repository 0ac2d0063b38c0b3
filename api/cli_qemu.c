// SPDX-License-Identifier: Apache-2.0
/* What QEMU is started with. See cli_vmm.h. */
#include "api/cli_vmm.h"

#include "base/cleanup.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>

#define QEMU "qemu-system-x86_64"

/* A file's name among QEMU's comma separated options, where a comma is written as two. */
static void add_drive(struct vmm_args *a, const char *path, const char *format)
{
	char escaped[2 * PATH_MAX];
	size_t n = 0;

	for (const char *c = path; *c && n + 2 < sizeof(escaped); c++) {
		if (*c == ',')
			escaped[n++] = ',';
		escaped[n++] = *c;
	}
	escaped[n] = 0;
	vmm_arg(a, "-drive");
	vmm_arg(a, "file=%s,format=%s,if=virtio", escaped, format);
}

bool disk_is_qcow2(const char *path)
{
	static const char suffix[] = ".qcow2";
	size_t len = strlen(path);

	return len >= sizeof(suffix) && strcmp(path + len - (sizeof(suffix) - 1), suffix) == 0;
}

bool disk_is_ambiguous(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	char magic[4] = { 0 };

	return !disk_is_qcow2(path) && fd >= 0 &&
	       read(fd, magic, sizeof(magic)) == (ssize_t)sizeof(magic) &&
	       memcmp(magic, "QFI\xfb", sizeof(magic)) == 0;
}

static void add_machine(struct vmm_args *a, const struct guest_opts *o)
{
	unsigned long long mib = (o->memory_bytes + (1 << 20) - 1) >> 20;

	vmm_arg(a, "-name");
	vmm_arg(a, "guest=%s", o->name);
	vmm_arg(a, "-accel");
	vmm_arg(a, o->kvm ? "kvm" : "tcg,thread=multi");
	vmm_arg(a, "-cpu");
	vmm_arg(a, o->kvm ? "host" : "max");
	vmm_arg(a, "-smp");
	vmm_arg(a, "%u", o->cpus);
	vmm_arg(a, "-m");
	vmm_arg(a, "%lluM", mib);
	/* shared, so that the daemon can map the guest's RAM */
	vmm_arg(a, "-object");
	vmm_arg(a, "memory-backend-memfd,id=ram,size=%lluM,share=on", mib);
	vmm_arg(a, "-machine");
	vmm_arg(a, "q35,memory-backend=ram");
}

static void qemu_args(struct vmm_args *a, const struct guest_opts *o, const struct guest_vmm *vm)
{
	vmm_arg(a, QEMU);
	add_machine(a, o);
	vmm_arg(a, "-nodefaults");
	vmm_arg(a, "-no-user-config");
	vmm_arg(a, "-display");
	vmm_arg(a, "none");
	vmm_boot_args(a, "-", o);
	for (size_t i = 0; i < o->n_disks; i++)
		add_drive(a, o->disks[i], disk_is_qcow2(o->disks[i]) ? "qcow2" : "raw");
	vmm_arg(a, "-chardev");
	vmm_arg(a, "file,id=console,path=%s", vm->console);
	vmm_arg(a, "-serial");
	vmm_arg(a, "chardev:console");
	vmm_arg(a, "-qmp");
	vmm_arg(a, "unix:%s,server=on,wait=off", vm->socket);
	vmm_arg(a, "-pidfile");
	vmm_arg(a, "%s", vm->pidfile);
	vmm_arg(a, "-daemonize");
}

const struct vmm_kind vmm_qemu = {
	.name = "QEMU",
	.args = qemu_args,
	.socket = "qmp",
	.missing = "run.no_qemu",
	.remedy = "install qemu-system-x86",
	.failed = "run.qemu_failed",
};
