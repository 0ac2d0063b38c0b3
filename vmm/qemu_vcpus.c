// SPDX-License-Identifier: Apache-2.0
/*
 * The part of the backends that reach a QEMU (qemu.c, libvirt.c) which is about its vCPUs: their threads, whether they
 * run, stop windows, registers. Under KVM all but the last goes on while the monitor is away.
 */
#define LOG_PREFIX "qemu"
#include "vmm/qemu_impl.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "vmm/proc.h"
#include "vmm/ptrace_window.h"
#include "vmm/regs_x86.h"
#include "vmm/tcg_window.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#define SILENT_NS (100 * NSEC_PER_MSEC) /* for a monitor that has not answered before */

/*
 * A domain that has ended is not the VMM's end yet. A QEMU that ends closes its sockets a moment before its process is
 * gone.
 */
static int qmp_failed(struct vm *vm, int rc, struct err *err)
{
	struct pollfd p = { .fd = vm->pidfd, .events = POLLIN };

	if (rc == -ESRCH && poll(&p, 1, 500) == 0)
		return err_set(err, -EPROTO, ERR_VMM_PROTOCOL, 0,
			       "QEMU %d closed the monitor connection", (int)vm->pid);
	if (rc == -ESRCH || !vm_alive(vm))
		return vm_gone(vm, err);
	return rc;
}

/*
 * Is it only that the monitor is away, or busy with something long (a dump, a migration)? That is
 * no failure where the process can tell, and under KVM nothing else is needed of the monitor.
 */
static bool is_away(const struct vm *vm, int rc, struct err *err)
{
	bool away = rc == -ENOTCONN || (rc == -ETIMEDOUT && vm->accel == VM_ACCEL_KVM);

	if (away && err)
		*err = (struct err){ 0 };
	return away;
}

int qemu_threads(struct vm *vm, struct vm_threads *ret, struct err *err)
{
	struct qemu_priv *priv = vm->priv;
	json_t *list = NULL;
	size_t n;
	size_t i;
	json_t *c;
	int rc = qmp_command(priv->q, "query-cpus-fast", NULL, &list, QEMU_QMP_NS, err);

	if (rc < 0)
		return rc;
	n = json_array_size(list);
	if (n == 0 || n > VM_MAX_VCPUS) {
		json_decref(list);
		return err_set(err, -EPROTO, ERR_VMM_PROTOCOL, 0,
			       "QEMU says it has %zu vCPUs; 1 to %d are expected", n, VM_MAX_VCPUS);
	}
	ret->n = 0;
	ret->tid = calloc(n, sizeof(*ret->tid));
	json_array_foreach(list, i, c)
	{
		pid_t tid = (pid_t)json_integer_value(json_object_get(c, "thread-id"));
		bool dup = false;

		/* one thread may run all of them (-accel tcg,thread=single) */
		for (size_t k = 0; ret->tid && k < ret->n; k++)
			dup = dup || ret->tid[k] == tid;
		if (ret->tid && !dup && tid > 0)
			ret->tid[ret->n++] = tid;
	}
	json_decref(list);
	vm->n_vcpus = (u32)n;
	if (!ret->tid)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for threads");
	return 0;
}

/* From QEMU's own numbers to ours, where it lives in another pid namespace. */
static int translate_threads(struct vm *vm, struct vm_threads *t, struct err *err)
{
	for (size_t i = 0; i < t->n; i++) {
		char state;
		u64 start;
		pid_t ours;

		if (proc_stat(vm->pid, t->tid[i], &state, &start) == 0)
			continue;
		ours = proc_host_tid(vm->pid, t->tid[i]);
		if (!ours)
			return vm_alive(vm)
				       ? err_set(err, -EPROTO, ERR_VMM_PROTOCOL, 0,
						 "process %d has no thread %d, which QEMU names",
						 (int)vm->pid, (int)t->tid[i])
				       : vm_gone(vm, err);
		t->tid[i] = ours;
	}
	return 0;
}

static int vcpu_threads(struct vm *vm, struct vm_threads *ret, struct err *err)
{
	int rc = qemu_threads(vm, ret, err);

	return rc < 0 ? rc : translate_threads(vm, ret, err);
}

void qemu_note_threads(struct vm *vm)
{
	struct qemu_priv *priv = vm->priv;
	struct vm_threads t = { 0 };

	if (vcpu_threads(vm, &t, NULL) < 0) {
		proc_threads_deinit(&t);
		return;
	}
	proc_threads_deinit(&priv->vcpus);
	priv->vcpus = t;
}

/* The threads that the monitor named last are all vCPUs, if the process has as many: none was plugged in since. */
static bool are_known(const struct vm *vm)
{
	const struct qemu_priv *priv = vm->priv;

	return priv->vcpus.n &&
	       proc_count_fds(vm->pid, "anon_inode:kvm-vcpu:") == (int)priv->vcpus.n;
}

int qemu_host_threads(struct vm *vm, struct vm_threads *ret, struct err *err)
{
	const struct qemu_priv *priv = vm->priv;
	int rc = vcpu_threads(vm, ret, err);

	if (!is_away(vm, rc, err))
		return rc < 0 ? qmp_failed(vm, rc, err) : 0;
	if (!are_known(vm)) /* nor can they be told apart from QEMU's others */
		return proc_threads(vm->pid, ret) < 0 ? vm_gone(vm, err) : 0;
	ret->tid = calloc(priv->vcpus.n, sizeof(*ret->tid));
	if (!ret->tid)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for threads");
	memcpy(ret->tid, priv->vcpus.tid, priv->vcpus.n * sizeof(*ret->tid));
	ret->n = priv->vcpus.n;
	return 0;
}

/* Whether it runs; an error of QMP is told apart. */
static int query_running(struct vm *vm, bool *running_ret, u64 timeout_ns, struct err *err)
{
	struct qemu_priv *priv = vm->priv;
	json_t *value = NULL;
	int rc = qmp_command(priv->q, "query-status", NULL, &value, timeout_ns, err);

	if (rc < 0)
		return qmp_failed(vm, rc, err);
	*running_ret = json_is_true(json_object_get(value, "running"));
	priv->running = *running_ret;
	json_decref(value);
	return 0;
}

/* What can be told without a monitor: as it was when one last spoke, unless the process is stopped. */
static bool runs_by_process(struct vm *vm)
{
	const struct qemu_priv *priv = vm->priv;
	char state;
	u64 start;

	return priv->running && proc_stat(vm->pid, 0, &state, &start) == 0 && state != 'T';
}

enum vm_state qemu_state(struct vm *vm)
{
	struct err err = { 0 };
	bool running = false;

	int rc = query_running(vm, &running, QEMU_QMP_NS, &err);

	if (rc < 0 && !vm_alive(vm))
		return VM_GONE;
	if (is_away(vm, rc, &err))
		running = runs_by_process(vm);
	else if (rc < 0)
		log_warn("%s: %s", vm->target, err.msg);
	return running ? VM_RUNNING : VM_STOPPED;
}

/* With the monitor away. */
static int pause_known(struct vm *vm, u64 timeout_ns, struct err *err)
{
	struct qemu_priv *priv = vm->priv;
	int rc;

	if (!are_known(vm))
		proc_threads_deinit(&priv->vcpus);
	rc = ptrace_window_pause(priv->ptrace, &priv->vcpus, timeout_ns, &vm->window_start_ns, err);
	if (rc != -ESRCH || !priv->vcpus.n || !vm_alive(vm))
		return rc;
	proc_threads_deinit(
		&priv->vcpus); /* one has ended: it was plugged out, and perhaps in again */
	return ptrace_window_pause(priv->ptrace, NULL, timeout_ns, &vm->window_start_ns, err);
}

static int pause_kvm(struct vm *vm, u64 timeout_ns, struct err *err)
{
	struct qemu_priv *priv = vm->priv;
	struct vm_threads t = { 0 };
	bool running = false;
	int rc = query_running(vm, &running, qmp_silent(priv->q) ? SILENT_NS : QEMU_QMP_NS, err);
	bool away = is_away(vm, rc, err);

	if (away)
		running = runs_by_process(vm);
	else if (rc < 0)
		return rc;
	if (!running)
		return err_set(err, -EBUSY, ERR_GUEST_STOPPED, 0, "the guest is not running");
	rc = away ? -ENOTCONN : vcpu_threads(vm, &t, err); /* asked each time: vCPUs come and go */
	if (away || is_away(vm, rc, err)) {
		proc_threads_deinit(&t);
		return pause_known(vm, timeout_ns, err);
	}
	proc_threads_deinit(rc < 0 ? &t : &priv->vcpus);
	if (rc < 0)
		return qmp_failed(vm, rc, err);
	priv->vcpus = t;
	return ptrace_window_pause(priv->ptrace, &t, timeout_ns, &vm->window_start_ns, err);
}

int qemu_pause(struct vm *vm, u64 timeout_ns, struct err *err)
{
	struct qemu_priv *priv = vm->priv;
	int rc;

	if (priv->ptrace)
		return pause_kvm(vm, timeout_ns, err);
	rc = tcg_window_pause(priv->tcg, timeout_ns, &vm->window_start_ns, err);
	return rc < 0 ? qmp_failed(vm, rc, err) : 0;
}

int qemu_resume(struct vm *vm, struct err *err)
{
	struct qemu_priv *priv = vm->priv;
	int rc;

	if (priv->ptrace)
		return ptrace_window_resume(priv->ptrace, err);
	rc = tcg_window_resume(priv->tcg, err);
	vm->window_end_ns = monotonic_ns();
	/* a manager that is away says nothing of the guest; our own connection was made again, or QEMU is in trouble */
	if (qmp_is_carried(priv->q) && is_away(vm, rc, err)) {
		log_warn("%s: whether it runs after a window cannot be asked", vm->target);
		return 0;
	}
	return rc < 0 ? qmp_failed(vm, rc, err) : 0;
}

int qemu_write_text(struct vm *vm, const struct vm_phys_text *text, size_t n, struct err *err)
{
	struct qemu_priv *priv = vm->priv;
	int rc;

	if (priv->ptrace)
		return vm_mem_write_text(vm, text, n, err);
	rc = tcg_window_write(priv->tcg, text, n, err);
	return rc < 0 ? qmp_failed(vm, rc, err) : 0;
}

int qemu_vcpu_regs(struct vm *vm, u32 vcpu, struct vm_regs *ret, struct err *err)
{
	struct qemu_priv *priv = vm->priv;
	_cleanup_free_ char *text = NULL;
	int rc;

	if (vcpu >= vm->n_vcpus)
		return err_set(err, -ENOENT, ERR_NOT_FOUND, 0, "there is no vCPU %u", vcpu);
	rc = qmp_hmp(priv->q, "info registers", (int)vcpu, &text, QEMU_QMP_NS, err);
	if (rc < 0)
		return qmp_failed(vm, rc, err);
	if (!regs_parse_hmp(text, ret))
		return err_set(err, -EPROTO, ERR_VMM_PROTOCOL, 0,
			       "cannot read QEMU's registers of vCPU %u", vcpu);
	return 0;
}
