// SPDX-License-Identifier: Apache-2.0
/*
 * Backend "libvirt:": a running domain, whatever its definition. The monitor is libvirt's
 * (virDomainQemuMonitorCommand), all else is as with "qemu:". When libvirtd is away, memory, ptrace
 * windows and the state by the process go on.
 */
#define LOG_PREFIX "libvirt"
#include "vmm/qemu_impl.h"

#include "vmm/libvirt_link.h"
#include "vmm/proc.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>

#define OPEN_NS  (15 * NSEC_PER_SEC)
#define DYING_MS 500 /* libvirt tells of a domain's end about when its process ends */

struct libvirt_priv {
	struct qemu_priv qemu; /* first: see qemu_impl.h */
	struct lv_link *link; /* owned by qemu.q */
	u32 serial; /* of the last event that qemu.running knows of */
};

/* The process that a vCPU thread belongs to. */
static int ask_process(struct vm *vm, pid_t *pid_ret, struct err *err)
{
	_cleanup_threads_ struct vm_threads t = { 0 };
	int rc = qemu_threads(vm, &t, err);

	if (rc < 0)
		return rc;
	*pid_ret = t.n ? proc_thread_group(t.tid[0]) : 0;
	if (*pid_ret > 0)
		return 0;
	return err_set(err, -ENOENT, ERR_TARGET_NO_PROCESS, 0,
		       "cannot tell which process QEMU is; does it run in a container of its own?");
}

/*
 * QEMU names its own threads, and may lie: its command line must bear the domain's UUID, which libvirt
 * puts there, so that no other domain's process is taken for it. Asked twice: a pid that was used
 * again between the first answer and our holding the process gives another answer then.
 */
static int find_process(struct vm *vm, struct err *err)
{
	const struct libvirt_priv *priv = vm->priv;
	const char *uuid = lv_link_uuid(priv->link);
	pid_t pid = 0, again = 0;
	u64 start;
	char state;
	int rc = ask_process(vm, &pid, err);

	if (rc == 0)
		rc = vm_open_process(vm, pid, err);
	if (rc == 0)
		rc = ask_process(vm, &again, err);
	if (rc < 0)
		return rc;
	if (again != pid || !proc_has_option(pid, "-uuid", uuid) ||
	    proc_stat(pid, 0, &state, &start) < 0 || start != vm->start_time)
		return err_set(err, -ENODEV, ERR_TARGET_NOT_VMM, 0,
			       "process %d is not the QEMU of domain %s", (int)pid, uuid);
	return 0;
}

static int libvirt_attach(struct vm *vm, const char *arg, struct err *err)
{
	struct libvirt_priv *priv;
	struct lv_target target;
	int rc = lv_target_parse(arg, &target, err);

	if (rc < 0)
		return rc;
	priv = calloc(1, sizeof(*priv));
	if (!priv)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a guest");
	vm->priv = priv;
	rc = lv_link_open(&target, OPEN_NS, &priv->link, err);
	if (rc == 0)
		rc = qmp_open_transport(&lv_link_transport, priv->link, &priv->qemu.q, err);
	if (rc == 0)
		rc = find_process(vm, err);
	return rc < 0 ? rc : qemu_adopt(vm, err);
}

/* Under KVM an event is as good as QEMU's answer, and may be all there is once libvirtd is away. */
static void note_events(struct vm *vm)
{
	struct libvirt_priv *priv = vm->priv;
	u32 serial = lv_link_serial(priv->link);

	if (vm->accel != VM_ACCEL_KVM || serial == priv->serial)
		return;
	priv->serial = serial;
	priv->qemu.running = lv_link_was_running(priv->link);
}

static int libvirt_pause(struct vm *vm, u64 timeout_ns, struct err *err)
{
	note_events(vm);
	return qemu_pause(vm, timeout_ns, err);
}

/*
 * Under KVM its events say it, and no command is needed. Under TCG each of our windows is a "suspended"
 * and a "resumed", which may come after the window: QEMU itself is asked.
 */
static enum vm_state libvirt_state(struct vm *vm)
{
	const struct libvirt_priv *priv = vm->priv;
	struct pollfd p = { .fd = vm->pidfd, .events = POLLIN };
	u32 serial = lv_link_serial(priv->link);
	enum lv_run run = lv_link_run(priv->link);
	enum vm_state state;

	note_events(vm);
	if (run == LV_RUN_ENDED)
		return poll(&p, 1, DYING_MS) > 0 ? VM_GONE : VM_STOPPED;
	/* a monitor that did not answer is asked again: else nobody might learn that it does */
	if (vm->accel == VM_ACCEL_KVM && run != LV_RUN_UNKNOWN && !qmp_silent(priv->qemu.q))
		return run == LV_RUN_RUNNING ? VM_RUNNING : VM_STOPPED;
	state = qemu_state(vm);
	if (vm->accel == VM_ACCEL_KVM && state != VM_GONE)
		lv_link_note_run(priv->link, state == VM_RUNNING, serial);
	return state;
}

/* The event comes about when the process ends. */
static enum vm_end libvirt_end(struct vm *vm)
{
	const struct libvirt_priv *priv = vm->priv;
	const struct timespec step = { .tv_nsec = 20 * 1000 * 1000 };
	int detail = -1;

	for (int i = 0; i < DYING_MS / 20 && !lv_link_stopped(priv->link, &detail); i++)
		nanosleep(&step, NULL);
	if (detail == LV_STOPPED_SAVED)
		return VM_END_SAVED;
	return detail == LV_STOPPED_FROM_SNAPSHOT ? VM_END_REVERTED : VM_END_GONE;
}

const struct vm_ops vm_ops_libvirt = {
	.name = "libvirt",
	.attach = libvirt_attach,
	.detach = qemu_detach,
	.state = libvirt_state,
	.pause = libvirt_pause,
	.resume = qemu_resume,
	.write_text = qemu_write_text,
	.threads = qemu_host_threads,
	.vcpu_regs = qemu_vcpu_regs,
	.leaves = qemu_leaves,
	.silent = qemu_silent,
	.end = libvirt_end,
	.list_ram = qemu_list_ram,
};
