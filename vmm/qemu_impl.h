/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the backends that reach a QEMU: qemu.c (by its own socket) and libvirt.c (by a manager's).
 * The hooks are those of struct vm_ops and keep its contract; vm->priv begins with a qemu_priv.
 *
 * A monitor that a manager carries may be away for a while (-ENOTCONN) although QEMU is well. Then
 * the state is told by the process, windows under KVM stop the threads that it named last, or every thread of it where
 * those cannot be all vCPUs any more, and windows under TCG fail with the transport's error.
 */
#ifndef VMM_QEMU_IMPL_H
#define VMM_QEMU_IMPL_H

#include "vmm/proc.h"
#include "vmm/qmp.h"
#include "vmm/vm_ops.h"

/* for one command */
#define QEMU_QMP_NS (5 * NSEC_PER_SEC)

struct qemu_priv {
	struct qmp *q;
	struct ptrace_window *ptrace; /* KVM */
	struct tcg_window *tcg;
	bool running; /* as the monitor last said */
	struct vm_threads vcpus; /* KVM: likewise, by our numbers; none: not known */
};

/**
 * qemu_threads - QEMU's own numbers of the threads of its vCPUs, in the order of their indices
 *
 * Also sets vm->n_vcpus. Return: 0; -EPROTO; -ENOMEM; as qmp_command().
 */
must_check int qemu_threads(struct vm *vm, struct vm_threads *ret, struct err *err);

/** qemu_note_threads - ask for priv->vcpus, so that they are known when the monitor is away later */
void qemu_note_threads(struct vm *vm);

/**
 * qemu_adopt - with a monitor in priv->q and the process open: accelerator, RAM, stop windows
 *
 * Return: as ops->attach; on failure qemu_detach() is called.
 */
must_check int qemu_adopt(struct vm *vm, struct err *err);

void qemu_detach(struct vm *vm); /* frees vm->priv */
enum vm_state qemu_state(struct vm *vm);
enum vm_leaving qemu_leaves(struct vm *vm);
bool qemu_silent(const struct vm *vm);
must_check int qemu_list_ram(struct vm *vm, struct err *err);
must_check int qemu_pause(struct vm *vm, u64 timeout_ns, struct err *err);
must_check int qemu_resume(struct vm *vm, struct err *err);
must_check int qemu_write_text(struct vm *vm, const struct vm_phys_text *text, size_t n,
			       struct err *err);
must_check int qemu_host_threads(struct vm *vm, struct vm_threads *ret, struct err *err);
must_check int qemu_vcpu_regs(struct vm *vm, u32 vcpu, struct vm_regs *ret, struct err *err);

#endif
