// SPDX-License-Identifier: Apache-2.0
/* How far vCPU threads have run, from their host scheduling statistics. See vm_progress() in vm.h. */
#include "vmm/vm_ops.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "vmm/proc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int vm_progress(struct vm *vm, struct vm_progress *ret, struct err *err)
{
	_cleanup_threads_ struct vm_threads t = { 0 };
	int rc;

	*ret = (struct vm_progress){ .at_ns = monotonic_ns(), .pauses = break_pauses(vm) };
	if (!vm_alive(vm))
		return vm_gone(vm, err);
	rc = vm->ops->threads(vm, &t, err);
	if (rc < 0)
		return rc;
	ret->vcpu = calloc(t.n + 1, sizeof(*ret->vcpu));
	if (!ret->vcpu)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory to watch %zu threads",
			       t.n);
	ret->vcpus_per_thread = t.n && vm->n_vcpus > t.n ? (u32)((vm->n_vcpus + t.n - 1) / t.n) : 1;
	for (size_t i = 0; i < t.n; i++) {
		u64 ns;

		rc = proc_run_ns(vm->pid, t.tid[i], &ns);
		if (rc == -ESRCH)
			continue; /* a thread that ended has left where it was */
		if (rc < 0) {
			vm_progress_deinit(ret);
			return err_set(err, rc, ERR_IO, 0, "cannot read schedstat of thread %d: %s",
				       (int)t.tid[i], strerror(-rc));
		}
		ret->vcpu[ret->n].tid = t.tid[i];
		ret->vcpu[ret->n].run_ns = ns;
		ret->n++;
	}
	return 0;
}

void vm_progress_deinit(struct vm_progress *p)
{
	free(p->vcpu);
	p->vcpu = NULL;
	p->n = 0;
}

/*
 * Asleep in the host: not in the guest, and nothing to go on with before it is woken. But not at once: a
 * thread that was just stopped sleeps on a lock of its VMM, with the guest wherever it was.
 */
#define ASLEEP_NS (20 * NSEC_PER_MSEC)
#define TURN_NS   (100 * NSEC_PER_MSEC) /* QEMU 7.2 accel/tcg TCG_KICK_PERIOD: a vCPU's turn */

static bool thread_progressed(const struct vm *vm, pid_t tid, u64 since_ns, u64 ns, bool may_sleep)
{
	char state;
	u64 start;
	u64 now;
	int rc;

	rc = proc_run_ns(vm->pid, tid, &now);
	if (rc < 0) /* ended; what cannot be looked at has proven nothing */
		return rc == -ESRCH || rc == -ENOENT;
	if (now - since_ns >= ns)
		return true;
	rc = proc_stat(vm->pid, tid, &state, &start);
	return rc == -ESRCH || rc == -ENOENT || (!rc && state == 'S' && may_sleep);
}

/* Return: false, as nothing has been proven. */
static bool begin_anew(struct vm *vm, struct vm_progress *since)
{
	struct vm_progress now;

	if (vm_progress(vm, &now, NULL) == 0) {
		vm_progress_deinit(since);
		*since = now;
	}
	return false;
}

bool vm_progressed(struct vm *vm, struct vm_progress *since, u64 ns)
{
	u32 pauses;
	bool may_sleep = monotonic_ns() - since->at_ns >= ASLEEP_NS;

	if (!vm_alive(vm))
		return true;
	if (since->vcpus_per_thread > 1)
		ns = (ns + TURN_NS) * since->vcpus_per_thread;
	for (u32 i = 0; i < since->n; i++) {
		if (!thread_progressed(vm, since->vcpu[i].tid, since->vcpu[i].run_ns, ns,
				       may_sleep))
			return false;
	}
	/* after what was seen of the threads: who slept did so while it was the guest's own doing */
	pauses = break_pauses(vm);
	if (pauses & 1)
		return false;
	return pauses == since->pauses || begin_anew(vm, since);
}
