/* SPDX-License-Identifier: Apache-2.0 */
/* What the process of a guest may still ask of the host once the guest runs. */
#ifndef MACHINE_SANDBOX_H
#define MACHINE_SANDBOX_H

#include "base/err.h"
#include "base/types.h"

/* What this guest has that needs more than every guest does. */
struct sandbox {
	int vm; /* its descriptor: its slots of memory change when the spare memory is lent */
	bool reboot; /* the VM is made anew, by another descriptor */
	bool net, vsock;
};

/** sandbox_prepare - so that the C library asks for nothing that is not allowed. Context: before any thread. */
void sandbox_prepare(void);

/**
 * sandbox_enter - from here on the process may do what a running guest needs, and nothing else
 *
 * For all threads, for good: no file is opened, no program started, nothing mapped executable, no signal
 * sent to another process. A system call that is not allowed kills the process, and with it the guest.
 * Context: after all files are open and all threads started. Whoever traces the guest by ptrace and
 * /proc/PID/mem is not affected. Return: 0; -ENOTSUP the kernel has no seccomp filters; -ENOMEM.
 */
must_check int sandbox_enter(const struct sandbox *s, struct err *err);

#endif
