// SPDX-License-Identifier: Apache-2.0
/* What QEMU is started with. See cli_vmm.h. */
#include "api/cli_vmm.h"

#include <limits.h>
#include <string.h>

#define QEMU "qemu-system-x86_64"

/* A text among QEMU's comma separated options, where a comma is written as two. */
static const char *escape(const char *text, char buf[2 * PATH_MAX])
{
	size_t n = 0;

	for (const char *c = text; *c && n + 2 < 2 * PATH_MAX; c++) {
		if (*c == ',')
			buf[n++] = ',';
		buf[n++] = *c;
	}
	buf[n] = 0;
	return buf;
}

static void add_drive(struct vmm_args *a, const struct guest_disk *d)
{
	char escaped[2 * PATH_MAX];

	vmm_arg(a, "-drive");
	vmm_arg(a, "file=%s,format=%s,if=virtio%s%s", escape(d->path, escaped),
		disk_is_qcow2(d->path) ? "qcow2" : "raw", d->read_only ? ",readonly=on" : "",
		d->cow ? ",snapshot=on" : "");
}

/* tap=NAME, fd=N or user, then perhaps ,mac=... */
static void add_net(struct vmm_args *a, const char *net, size_t i)
{
	const char *mac = strstr(net, ",mac=");
	int len = mac ? (int)(mac - net) : (int)strlen(net);

	vmm_arg(a, "-netdev");
	if (strncmp(net, "tap=", 4) == 0)
		vmm_arg(a, "tap,id=net%zu,ifname=%.*s,script=no,downscript=no", i, len - 4,
			net + 4);
	else if (strncmp(net, "fd=", 3) == 0)
		vmm_arg(a, "tap,id=net%zu,%.*s", i, len, net);
	else
		vmm_arg(a, "user,id=net%zu", i);
	vmm_arg(a, "-device");
	vmm_arg(a, "virtio-net-pci,netdev=net%zu%s", i, mac ? mac : "");
}

static void add_machine(struct vmm_args *a, const struct run_opts *o)
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

static void qemu_args(struct vmm_args *a, const struct run_opts *o, const struct guest_vmm *vm)
{
	char socket[2 * PATH_MAX];

	vmm_arg(a, QEMU);
	add_machine(a, o);
	vmm_arg(a, "-nodefaults");
	vmm_arg(a, "-no-user-config");
	vmm_arg(a, "-display");
	vmm_arg(a, "none");
	vmm_boot_args(a, "-", o);
	for (size_t i = 0; i < o->n_disks; i++)
		add_drive(a, &o->disks[i]);
	for (size_t i = 0; i < o->n_nets; i++)
		add_net(a, o->nets[i], i);
	if (o->no_reboot)
		vmm_arg(a, "-no-reboot");
	vmm_arg(a, "-add-fd");
	vmm_arg(a, "fd=%d,set=1,opaque=console", vm->console_fd);
	vmm_arg(a, "-chardev");
	vmm_arg(a, "file,id=console,path=/dev/fdset/1,append=on"); /* a pipe is not truncated */
	vmm_arg(a, "-serial");
	vmm_arg(a, "chardev:console");
	vmm_arg(a, "-qmp");
	vmm_arg(a, "unix:%s,server=on,wait=off", escape(vm->socket, socket));
	vmm_arg(a, "-pidfile");
	vmm_arg(a, "%s", vm->pidfile);
	vmm_arg(a, "-daemonize");
}

const struct vmm_kind vmm_qemu = {
	.name = "QEMU",
	.args = qemu_args,
	.socket = "qmp",
	.needs_drain = true,
	.missing = "run.no_qemu",
	.remedy = "install qemu-system-x86",
	.failed = "run.qemu_failed",
};
