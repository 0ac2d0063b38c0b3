/* SPDX-License-Identifier: Apache-2.0 */
/* Starting QEMU for `hvftrace run`: its command line, its folder, its life. */
#ifndef API_CLI_QEMU_H
#define API_CLI_QEMU_H

#include "base/types.h"

#include <limits.h>
#include <signal.h>

#define QEMU_MAX_DISKS 8

struct qemu_opts {
	const char *kernel, *initrd, *append; /* the latter two may be NULL */
	const char *disks[QEMU_MAX_DISKS];
	size_t n_disks;
	u32 cpus;
	u64 memory_bytes;
	const char *name;
	bool kvm;
};

/* A QEMU that was started. Paths are absolute. */
struct qemu_vm {
	char dir[PATH_MAX - 64]; /* ours, mode 0700 */
	char qmp[PATH_MAX], console[PATH_MAX], pidfile[PATH_MAX], log[PATH_MAX];
	pid_t pid;
};

/** qemu_args - the command line, NULL-terminated; to be freed with qemu_args_free() */
char **qemu_args(const struct qemu_opts *o, const struct qemu_vm *vm);
void qemu_args_free(char **args);

/**
 * qemu_start - make the guest's folder and start QEMU there, as a daemon
 * @interrupted: told while it starts that it should not; then QEMU is ended, and nothing is reported
 *
 * Return: exit status; a failure is reported.
 */
int qemu_start(const struct qemu_opts *o, const volatile sig_atomic_t *interrupted,
	       struct qemu_vm *ret);

/** qemu_is_alive - does its process still run? */
bool qemu_is_alive(const struct qemu_vm *vm);

/** qemu_stop - end a QEMU that is of no use and wait for it; its folder stays, with what it said */
void qemu_stop(const struct qemu_vm *vm);

#endif
