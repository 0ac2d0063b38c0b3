/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stop windows by ptrace: interrupts threads of a VMM and lets them go. Must not know guests.
 *
 * ptrace(2) binds a tracee to the thread that seized it, so a thread of ours does all of it: windows
 * may be opened and closed from any thread. When that thread or the whole process ends, however it
 * ends, the kernel detaches and the VMM's threads run on (kernel/ptrace.c:exit_ptrace, v6.12).
 */
#ifndef VMM_PTRACE_WINDOW_H
#define VMM_PTRACE_WINDOW_H

#include "vmm/proc.h"

struct ptrace_window;

must_check int ptrace_window_create(pid_t pid, struct ptrace_window **ret, struct err *err);
/* NULL is fine; ends an open window. */
void ptrace_window_destroy(struct ptrace_window *w);

/**
 * ptrace_window_pause - stop threads
 * @only:         the threads wanted; NULL or empty for all of the process, new ones too
 * @timeout_ns:   for how long those that stopped may stand for others; as long again they are waited for while all run,
 *                where one is in state D and could not stop. Who gets into D later is not waited for.
 * @started_ns_ret: when the first one was asked to stop; 0: none was
 *
 * Return: 0; -ETIMEDOUT, none left stopped, all let go; -ESRCH the process or, with @only, one of the threads is
 * gone; -EACCES another tracer (a debugger) has it, or no permission.
 */
must_check int ptrace_window_pause(struct ptrace_window *w, const struct vm_threads *only,
				   u64 timeout_ns, u64 *started_ns_ret, struct err *err);

/** ptrace_window_resume - let all go on, with the signals they were about to take; 0 or -ESRCH */
must_check int ptrace_window_resume(struct ptrace_window *w, struct err *err);

/**
 * ptrace_window_vcpus - those of the stopped threads that the stop took out of ioctl(KVM_RUN)
 *
 * Context: a window of all threads is open; of one of chosen threads none is known. Return: 0; -ENOMEM.
 */
must_check int ptrace_window_vcpus(const struct ptrace_window *w, struct vm_threads *ret);

#endif
