/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a trace of system calls arms: the handlers of the calls that are asked for, and the functions of
 * the kernel that hold its own copy of what their arguments point to. Must not know how it is done, nor what
 * becomes of it.
 *
 * Of a path the kernel's copy is struct filename, and of a socket's address what it hands to its security
 * hook: each is what the kernel acts upon, whatever the program does to its own memory meanwhile, and lies
 * in memory that is always mapped. So it is with mount's strings, a task's new name and a signal's action.
 * What is not here (buffers, which it copies piecemeal; what it writes for the program) is read from the
 * program's memory: see sys_user.h.
 */
#ifndef TRACERS_SYS_ARM_H
#define TRACERS_SYS_ARM_H

#include "patcher/tracing.h"
#include "tracers/choose.h"
#include "tracers/sys_user.h"
#include "tracers/syscalls/event.h"
#include "tracers/syscalls/filter.h"

/* What a capture is: by number of its program. */
struct sys_program {
	const char *function; /* of the kernel, for the log */
	const char *call; /* only in calls of this name; NULL: any */
	s32 arg; /* which argument; -1: the one whose value is the key */
	u8 what; /* enum capture_what */
	bool low_key; /* only the low half of the key is known */
};

struct sys_arm {
	struct choice choice;
	size_t n_calls; /* handlers in choice.site */
	struct agent_capture captures[AGENT_MAX_CAPTURES];
	struct sys_program programs[AGENT_MAX_CAPTURES];
	size_t n_programs;
	u32 there; /* a bit for each of programs: this kernel has what it reads */
	u32 armed; /* a bit for each of programs: this trace has its captures */
};

/**
 * sys_arm_choose - which handlers, and what of each
 * @wanted: by name
 *
 * Sites that a kernel does not have, or that may not be armed, are left out and count as skipped. Context: the caller holds what protects @k.
 * Return: 0; -ENOENT no call is left (filter.no_match); -ENOMEM. Undo: sys_arm_deinit().
 */
must_check int sys_arm_choose(const struct kernel *k, const struct syscall_table *t,
			      const struct syscall_filter *wanted, struct sys_arm *ret,
			      struct err *err);
void sys_arm_deinit(struct sys_arm *a);

/**
 * sys_arm_copies - also where the kernel copies what the arguments of those point to
 * @mem: the guest's, for its text
 *
 * What a kernel has not, or may not be armed, the log tells. Context: as sys_arm_choose()
 */
void sys_arm_copies(struct sys_arm *a, const struct kernel *k, const struct sym_mem *mem,
		    const struct syscall_table *t);

/**
 * sys_arm_follow - also where tasks are forked and end
 *
 * Return: 0; -ENOENT (filter.no_match) one cannot be traced; -EBUSY (conflict) the guest's own tracing has it.
 */
must_check int sys_arm_follow(struct sys_arm *a, const struct kernel *k, struct err *err);

/** sys_arm_user - after sys_arm_choose(): what of the program's memory is read besides; @ret is filled */
void sys_arm_user(struct sys_arm *a, const struct kernel *k, const struct syscall_table *t,
		  const struct plan_opts *o, struct sys_user *ret);

#endif
