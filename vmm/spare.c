// SPDX-License-Identifier: Apache-2.0
/*
 * Memory that a VMM keeps above guest RAM for whoever traces its guest, and guests that wait to be
 * started. See vm.h; hvftrace-vmm has both. Its process says it all: a mapping of a file whose name holds
 * the guest physical address, and a process that has stopped itself.
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

#define START_POLL_NS NSEC_PER_MSEC

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

void spare_find(struct vm *vm)
{
	_cleanup_maps_ struct proc_maps maps = { 0 };
	const struct vm_ram *last;
	u64 at;

	if (!vm->n_ram || proc_maps_read(vm->pid, &maps))
		return;
	last = &vm->ram[vm->n_ram - 1].ram;
	for (size_t i = 0; i < maps.n; i++) {
		const struct proc_map *m = &maps.map[i];

		/* it is told apart from RAM by being the last region */
		if (!m->shared || !m->writable || !parse_name(m->path, &at) ||
		    at < last->base.v + last->len_bytes ||
		    vm_mem_add(vm, gpa(at), m->end - m->start, m->start, NULL))
			continue;
		vm->has_spare = true;
		return;
	}
}

bool vm_spare(const struct vm *vm, struct vm_ram *ret)
{
	if (!vm->has_spare)
		return false;
	*ret = vm->ram[vm->n_ram - 1].ram;
	return true;
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
