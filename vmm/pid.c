// SPDX-License-Identifier: Apache-2.0
/*
 * Backend "pid:": any VMM on KVM, by its process alone. Knows no protocol: RAM is found in the memory
 * map (layout.c), vCPU threads are those that a stop takes out of ioctl(KVM_RUN).
 */
#define LOG_PREFIX "pid"
#include "vmm/vm_ops.h"

#include "base/cleanup.h"
#include "base/log.h"
#include "vmm/layout.h"
#include "vmm/proc.h"
#include "vmm/ptrace_window.h"

#include <errno.h>
#include <string.h>

struct pid_priv {
	struct ptrace_window *window;
	struct vm_threads
		vcpus; /* empty until all of them are known: then every thread is stopped */
};

static int check_vmm(struct vm *vm, struct err *err)
{
	int kvm = proc_count_fds(vm->pid, "anon_inode:kvm-vm");
	char exe[64];
	int vcpus;

	if (kvm == -EACCES)
		return err_set(err, -EACCES, ERR_TARGET_PERMISSION, 0,
			       "may not look into process %d", (int)vm->pid);
	if (kvm == -ESRCH)
		return vm_gone(vm, err);
	if (kvm <= 0) {
		proc_exe_name(vm->pid, exe, sizeof(exe));
		if (strncmp(exe, "qemu", 4) == 0)
			return err_set(err, -ENOTSUP, ERR_TARGET_TCG_PID, 0,
				       "process %d (%s) does not use KVM", (int)vm->pid, exe);
		return err_set(err, -ENODEV, ERR_TARGET_NOT_VMM, 0,
			       "process %d (%s) runs no virtual machine", (int)vm->pid, exe);
	}
	if (kvm > 1)
		return err_set(err, -ENODEV, ERR_TARGET_NOT_VMM, 0,
			       "process %d runs %d virtual machines; one is expected", (int)vm->pid,
			       kvm);
	vm->accel = VM_ACCEL_KVM;
	vcpus = proc_count_fds(vm->pid, "anon_inode:kvm-vcpu:");
	vm->n_vcpus = vcpus > 0 ? (u32)vcpus : 0;
	return vm_check_confidential(vm, err);
}

static int pid_attach(struct vm *vm, const char *arg, struct err *err)
{
	struct pid_priv *priv;
	char *end;
	long pid;
	int rc;

	errno = 0;
	pid = strtol(arg, &end, 10);
	if (errno || *end || pid <= 0 || pid > INT32_MAX || arg[0] < '0' || arg[0] > '9')
		return err_set(err, -EINVAL, ERR_TARGET_SYNTAX, 0, "\"%.60s\" is no process id",
			       arg);
	rc = vm_open_process(vm, (pid_t)pid, err);
	if (rc < 0)
		return rc;
	rc = check_vmm(vm, err);
	if (rc < 0)
		return rc;
	priv = calloc(1, sizeof(*priv));
	if (!priv)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a guest");
	vm->priv = priv;
	rc = layout_guess(vm, err);
	if (rc < 0)
		return rc;
	spare_find(vm);
	break_find(vm);
	rc = vm_mem_open(vm, err);
	if (rc < 0)
		return rc;
	return ptrace_window_create(vm->pid, &priv->window, err);
}

static void pid_detach(struct vm *vm)
{
	struct pid_priv *priv = vm->priv;

	if (!priv)
		return;
	ptrace_window_destroy(priv->window);
	proc_threads_deinit(&priv->vcpus);
	free(priv);
	vm->priv = NULL;
}

static enum vm_state process_state(const struct vm *vm)
{
	u64 start;
	char state;

	int rc = proc_stat(vm->pid, 0, &state, &start);

	if (rc == -ESRCH || rc == -ENOENT || (!rc && (start != vm->start_time || state == 'Z')))
		return VM_GONE;
	if (rc) /* it lives (vm_state() has looked), but cannot be looked at now */
		return VM_STOPPED;
	/* a group stop (SIGSTOP to the VMM) stops the guest too */
	return state == 'T' && !vm->window_open ? VM_STOPPED : VM_RUNNING;
}

static enum vm_state pid_state(struct vm *vm)
{
	enum vm_state state = process_state(vm);

	return state == VM_RUNNING && !vm->window_open && break_held(vm) ? VM_STOPPED : state;
}

/* Once a window showed as many threads in KVM_RUN as there are vCPUs, later ones stop only these. */
static void learn_vcpus(struct vm *vm, struct pid_priv *priv)
{
	struct vm_threads t = { 0 };

	if (priv->vcpus.n || ptrace_window_vcpus(priv->window, &t) < 0)
		return;
	if (t.n == 0 || t.n != vm->n_vcpus) {
		proc_threads_deinit(&t);
		return;
	}
	priv->vcpus = t;
}

/*
 * Our own VMM names its vCPUs' threads, so that the first window stops no other thread either: what it is to do
 * meanwhile (break.c) it could not. Not believed unless there are as many as vCPUs.
 */
static void find_vcpus(const struct vm *vm, struct pid_priv *priv)
{
	struct vm_threads t = { 0 };
	char name[32];
	size_t n = 0;

	if (!vm->debug_hva || priv->vcpus.n || proc_threads(vm->pid, &t) < 0)
		return;
	for (size_t i = 0; i < t.n; i++) {
		proc_thread_name(vm->pid, t.tid[i], name, sizeof(name));
		if (strncmp(name, "vcpu ", 5) == 0)
			t.tid[n++] = t.tid[i];
	}
	t.n = n;
	if (n && n == vm->n_vcpus)
		priv->vcpus = t;
	else
		proc_threads_deinit(&t);
}

static int pid_pause(struct vm *vm, u64 timeout_ns, struct err *err)
{
	struct pid_priv *priv = vm->priv;
	int vcpus = proc_count_fds(vm->pid, "anon_inode:kvm-vcpu:");
	int rc;

	/* one that a breakpoint of ours holds is taken over so */
	if (process_state(vm) == VM_STOPPED)
		return err_set(err, -EBUSY, ERR_GUEST_STOPPED, 0, "process %d is stopped",
			       (int)vm->pid);
	if (vcpus > 0 && (u32)vcpus != vm->n_vcpus) { /* hotplug */
		vm->n_vcpus = (u32)vcpus;
		proc_threads_deinit(&priv->vcpus);
	}
	find_vcpus(vm, priv);
	rc = ptrace_window_pause(priv->window, &priv->vcpus, timeout_ns, &vm->window_start_ns, err);
	if (rc == -ESRCH && priv->vcpus.n && vm_alive(vm)) {
		/* a vCPU thread went away and its descriptor did not: begin again with all threads */
		proc_threads_deinit(&priv->vcpus);
		rc = ptrace_window_pause(priv->window, NULL, timeout_ns, &vm->window_start_ns, err);
	}
	if (rc == 0)
		learn_vcpus(vm, priv);
	return rc;
}

static int pid_resume(struct vm *vm, struct err *err)
{
	struct pid_priv *priv = vm->priv;

	return ptrace_window_resume(priv->window, err);
}

static int pid_threads(struct vm *vm, struct vm_threads *ret, struct err *err)
{
	struct pid_priv *priv = vm->priv;
	int rc;

	if (priv->vcpus.n) {
		ret->tid = calloc(priv->vcpus.n, sizeof(*ret->tid));
		if (!ret->tid)
			return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for threads");
		memcpy(ret->tid, priv->vcpus.tid, priv->vcpus.n * sizeof(*ret->tid));
		ret->n = priv->vcpus.n;
		return 0;
	}
	rc = proc_threads(vm->pid, ret);
	return rc < 0 ? vm_gone(vm, err) : 0;
}

const struct vm_ops vm_ops_pid = {
	.name = "pid",
	.attach = pid_attach,
	.detach = pid_detach,
	.state = pid_state,
	.pause = pid_pause,
	.resume = pid_resume,
	.write_text = vm_mem_write_text,
	.threads = pid_threads,
};
