// SPDX-License-Identifier: Apache-2.0
/*
 * Memory that a VMM keeps above guest RAM for whoever traces its guest, and guests that wait to be
 * started. See vm.h; hvftrace-vmm has both. Its process says it all: a file whose name holds the guest
 * physical address, mapped while it is lent, and a process that has stopped itself.
 */
#include "vmm/vm_ops.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "vmm/proc.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <time.h>
#include <unistd.h>

#define START_POLL_NS NSEC_PER_MSEC
#define LEND_POLL_NS  (100 * 1000)
#define LEND_NS       (5 * NSEC_PER_SEC)

/* "/memfd:hvftrace-spare@140000000 (deleted)" */
static bool parse_name(const char *path, u64 *gpa_ret)
{
	char *end;

	if (!spare_is_map(path))
		return false;
	errno = 0;
	*gpa_ret = strtoull(path + strlen(SPARE_MAP_PREFIX), &end, 16);
	return !errno && end > path + strlen(SPARE_MAP_PREFIX) && (*end == ' ' || !*end);
}

bool spare_is_map(const char *path)
{
	return strncmp(path, SPARE_MAP_PREFIX, strlen(SPARE_MAP_PREFIX)) == 0;
}

/* Where the VMM has it mapped. Return: 1; 0 it has not; -ESRCH and the like. */
static int find_mapping(const struct vm *vm, u64 *hva_ret, u64 *len_ret)
{
	_cleanup_maps_ struct proc_maps maps = { 0 };
	int rc = proc_maps_read(vm->pid, &maps);
	u64 at;

	for (size_t i = 0; !rc && i < maps.n; i++) {
		const struct proc_map *m = &maps.map[i];

		if (!m->shared || !m->writable || !parse_name(m->path, &at) || at != vm->spare_gpa)
			continue;
		*hva_ret = m->start;
		*len_ret = m->end - m->start;
		return 1;
	}
	return rc;
}

/* It is told apart from RAM by being the last region. */
static bool above_ram(const struct vm *vm, u64 at)
{
	const struct vm_ram *last = vm->n_ram ? &vm->ram[vm->n_ram - 1].ram : NULL;

	return last && at >= last->base.v + last->len_bytes;
}

static bool add(struct vm *vm)
{
	u64 hva, len;

	if (find_mapping(vm, &hva, &len) <= 0 || vm_mem_add(vm, gpa(vm->spare_gpa), len, hva, NULL))
		return false;
	vm->has_spare = true;
	return true;
}

void spare_find(struct vm *vm)
{
	char name[64];
	u64 at;

	if (proc_find_fd(vm->pid, SPARE_MAP_PREFIX, name, sizeof(name)) || !parse_name(name, &at) ||
	    !above_ram(vm, at))
		return;
	vm->spare_gpa = at;
	(void)add(vm);
}

bool vm_spare(const struct vm *vm, struct vm_ram *ret)
{
	if (!vm->has_spare)
		return false;
	*ret = vm->ram[vm->n_ram - 1].ram;
	return true;
}

bool vm_spare_offered(const struct vm *vm, gpa_t *ret)
{
	*ret = gpa(vm->spare_gpa);
	return vm->spare_gpa != 0;
}

/* A VMM that does not wait for the signal would die of it. */
int vm_order(const struct vm *vm, int sig, u64 value, struct err *err)
{
	siginfo_t info = { .si_signo = sig, .si_code = SI_QUEUE };

	info.si_pid = getpid();
	info.si_uid = getuid();
	info.si_value.sival_ptr = (void *)(uintptr_t)value;
	if (!proc_blocks_signal(vm->pid, sig))
		return vm_alive(vm) ? err_set(err, -ENOENT, ERR_VMM_PROTOCOL, value,
					      "process %d does not take such orders", (int)vm->pid)
				    : vm_gone(vm, err);
	if (pidfd_send_signal(vm->pidfd, sig, &info, 0) == 0)
		return 0;
	return errno == ESRCH ? vm_gone(vm, err)
			      : err_set(err, -EACCES, ERR_TARGET_PERMISSION, value,
					"may not give process %d orders: %s", (int)vm->pid,
					strerrordesc_np(errno));
}

/* Until it is mapped, or is not any more: by then the VM's slot is as wanted, too. */
static int wait_mapped(struct vm *vm, bool wanted, struct err *err)
{
	const struct timespec pause = { .tv_nsec = LEND_POLL_NS };
	u64 end = monotonic_ns() + LEND_NS, hva, len;

	for (;;) {
		int rc = find_mapping(vm, &hva, &len);

		if (rc == -ESRCH || !vm_alive(vm))
			return vm_gone(vm, err);
		if (rc == wanted)
			return 0;
		if (monotonic_ns() >= end)
			return err_set(err, -ETIMEDOUT, ERR_VMM_TIMEOUT, vm->spare_gpa,
				       "process %d did not %s its memory at 0x%llx in time",
				       (int)vm->pid, wanted ? "lend" : "take back",
				       (unsigned long long)vm->spare_gpa);
		nanosleep(&pause, NULL);
	}
}

int vm_spare_borrow(struct vm *vm, struct err *err)
{
	int rc;

	if (vm->has_spare)
		return 0;
	if (!vm->spare_gpa || vm_state(vm) == VM_STOPPED)
		return err_set(err, -ENOENT, ERR_GUEST_UNSUPPORTED, 0,
			       "the VMM of %s has no memory to lend", vm->target);
	rc = vm_order(vm, SPARE_SIGNAL, SPARE_LEND, err);
	if (!rc)
		rc = wait_mapped(vm, true, err);
	if (rc)
		return rc;
	if (!add(vm))
		return err_set(err, -EPROTO, ERR_VMM_PROTOCOL, vm->spare_gpa,
			       "the memory that process %d lends makes no sense", (int)vm->pid);
	return vm_mem_open_last(vm, err);
}

int vm_spare_return(struct vm *vm, struct err *err)
{
	int rc;

	if (!vm->has_spare)
		return 0;
	rc = vm_order(vm, SPARE_SIGNAL, SPARE_TAKE_BACK, err);
	if (!rc)
		rc = wait_mapped(vm, false, err);
	if (rc)
		return rc;
	vm->has_spare = false;
	vm_mem_drop_last(vm);
	return 0;
}

int vm_start(struct vm *vm, u64 timeout_ns, struct err *err)
{
	const struct timespec pause = { .tv_nsec = START_POLL_NS };
	u64 end = monotonic_ns() + timeout_ns;

	while (vm_state(vm) != VM_STOPPED) {
		if (!vm_alive(vm))
			return vm_gone(vm, err);
		if (monotonic_ns() >= end)
			return err_set(
				err, -EBUSY, ERR_CONFLICT, 0,
				"process %d does not wait to be started (hvftrace-vmm --wait)",
				(int)vm->pid);
		nanosleep(&pause, NULL);
	}
	if (pidfd_send_signal(vm->pidfd, SIGCONT, NULL, 0) < 0)
		return errno == ESRCH ? vm_gone(vm, err)
				      : err_set(err, -EACCES, ERR_TARGET_PERMISSION, 0,
						"may not start process %d: %s", (int)vm->pid,
						strerrordesc_np(errno));
	return 0;
}
