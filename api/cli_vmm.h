/* SPDX-License-Identifier: Apache-2.0 */
/* Starting a VMM for `hvftrace run`, QEMU or our own: its command line, its folder, its life. */
#ifndef API_CLI_VMM_H
#define API_CLI_VMM_H

#include "base/types.h"

#include <limits.h>
#include <signal.h>

#define GUEST_MAX_DISKS 8
#define GUEST_MAX_NETS  4
#define VMM_MAX_ARGS    96

/* A disk as it was asked for: FILE, FILE,readonly, FILE,cow or FILE,cow=PATH. */
struct guest_disk {
	const char *path;
	bool read_only;
	bool cow; /* what the guest writes is forgotten, or kept at @overlay */
	const char *overlay; /* NULL: none */
};

struct run_opts {
	const char *kernel, *initrd, *append; /* the latter two may be NULL */
	struct guest_disk disks[GUEST_MAX_DISKS];
	size_t n_disks;
	const char *nets[GUEST_MAX_NETS]; /* tap=NAME, fd=N or user; then ,mac=... */
	size_t n_nets;
	const char *vsock; /* PATH or PATH,cid=N; NULL: none */
	bool no_reboot;
	u32 cpus;
	u64 memory_bytes;
	const char *name;
	bool kvm; /* QEMU only: KVM instead of TCG */
	bool wait; /* ours only: not to begin until told so */
};

/* A VMM that was started. Paths are absolute. */
struct guest_vmm {
	const struct vmm_kind *kind;
	char dir[PATH_MAX - 64]; /* ours, mode 0700 */
	char socket
		[PATH_MAX]; /* QEMU's QMP; of ours: what is written to it the guest's console receives */
	char console[PATH_MAX], pidfile[PATH_MAX], log[PATH_MAX], control[PATH_MAX];
	int console_fd; /* the VMM's end of a pipe that fills the console's file; -1: it does that itself */
	char target[PATH_MAX + 8]; /* what to attach */
	pid_t pid;
};

/* A command line while it is made; NULL-terminated, as it begins all NULL. */
struct vmm_args {
	char *list[VMM_MAX_ARGS + 1];
	size_t n;
	bool failed; /* no memory, or too many */
};

/* vmm_arg - one word more */
void vmm_arg(struct vmm_args *a, const char *fmt, ...) printf_like(2, 3);

/* vmm_boot_args - kernel, initrd and command line; @dash is what options begin with */
void vmm_boot_args(struct vmm_args *a, const char *dash, const struct run_opts *o);

/* A program that runs guests. It must take itself into the background once the guest runs. */
struct vmm_kind {
	const char *name;
	/* required; its command line, the program's name or path first */
	void (*args)(struct vmm_args *a, const struct run_opts *o, const struct guest_vmm *vm);
	const char *socket; /* its name in the folder */
	bool by_pid; /* the target is pid:PID, else qemu:SOCKET */
	bool needs_drain; /* its console goes to console_fd, as it would write without end */
	const char *missing; /* the code when there is no such program */
	const char *remedy; /* what to do then */
	const char *failed; /* the code when it ends before the guest runs */
};

extern const struct vmm_kind vmm_qemu; /* cli_qemu.c */
extern const struct vmm_kind vmm_own; /* cli_own.c */

/** vmm_own_path - our own VMM's program: $HVFTRACE_VMM, beside this one, in $PATH; false: there is none */
bool vmm_own_path(char *path, size_t cap);

/* cli_disk.c */

/** disk_parse - what follows --disk; @text is cut, and kept. False: it makes no sense. */
must_check bool disk_parse(char *text, struct guest_disk *ret);

/**
 * disk_is_qcow2 - by its name, which ends in .qcow2
 *
 * Never by its bytes: a guest that writes its raw disk chooses those, and a qcow2 image may name any file
 * of the host as its backing file.
 */
bool disk_is_qcow2(const char *path);

/** disk_is_ambiguous - begins as a qcow2 image does, under another name */
bool disk_is_ambiguous(const char *path);

/* cli_console.c */

/**
 * console_drain - a process that fills @path from the pipe whose other end is returned, until that is closed
 * @offered_ret: memory in which others find the last of it (console_ring.h), for the VMM's process to have open
 *
 * Of one run as much as our own VMM writes, 64 MiB; the rest is read and dropped, as the guest could fill the
 * host's memory with it. Return: exit status; a failure is reported.
 */
must_check int console_drain(const char *path, int *fd_ret, int *offered_ret);

/**
 * vmm_start - make the guest's folder and start a VMM there, in the background
 * @interrupted: told while it starts that it should not; then it is ended, and nothing is reported
 *
 * Return: exit status; a failure is reported.
 */
int vmm_start(const struct vmm_kind *kind, const struct run_opts *o,
	      const volatile sig_atomic_t *interrupted, struct guest_vmm *ret);

/**
 * vmm_find - a guest of this name that this user has started
 *
 * Its pid is 0 when it does not run (any more); its kind is not known: that of ours, whose socket is missing if
 * it is QEMU's. Return: exit status; a failure is reported.
 */
int vmm_find(const char *name, struct guest_vmm *ret);

/** vmm_is_own - is there the folder of a guest of this name that this user has started? */
bool vmm_is_own(const char *name);

/** vmm_is_alive - does its process still run? */
bool vmm_is_alive(const struct guest_vmm *vm);

/** vmm_last_words - the last line that it wrote to its log */
void vmm_last_words(const struct guest_vmm *vm, char *buf, size_t cap);

/** vmm_stop - end one that is of no use and wait for it; its folder stays, with what it said */
void vmm_stop(const struct guest_vmm *vm);

#endif
