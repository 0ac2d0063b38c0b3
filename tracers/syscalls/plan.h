/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which memory is worth capturing, call by call: data for the tracer that arms sites. Derived from the
 * decoder's own tables, so that nothing is captured that nobody shows, and the other way round.
 */
#ifndef TRACERS_SYSCALLS_PLAN_H
#define TRACERS_SYSCALLS_PLAN_H

#include "tracers/syscalls/event.h"

#define PLAN_STEPS 24
#define PLAN_ANY   0xff /* if_arg: whatever the arguments */

/* uc_sigmask in struct ucontext, which rt_sigreturn finds at sp (Linux v6.1 arch/x86/kernel/signal.c) */
#define PLAN_SIGFRAME_MASK 296

/* How many bytes; the least of all that a step says. */
enum plan_len {
	PLAN_FIXED, /* max */
	PLAN_STRING, /* up to the NUL, at most max */
	PLAN_ARG, /* the value of argument len_arg, times each */
	PLAN_RET, /* the result, times each */
	PLAN_SIGFRAME, /* max bytes at the user's stack pointer + PLAN_SIGFRAME_MASK; not at arg */
	PLAN_PTR, /* the u32 that argument len_arg points to (addrlen), after the call */
};

struct plan_step {
	u8 arg;
	u8 what; /* enum capture_what */
	u8 len; /* enum plan_len */
	u8 len_arg;
	u16 each;
	bool at_exit; /* the kernel writes it: only when the call succeeded */
	bool env; /* with CAPTURE_STRINGS: envp, not argv */
	bool at_error; /* at exit, but only when it failed */
	bool wide; /* laid out as 64-bit programs have it: of no use in calls of others */
	u8 if_arg; /* only if this argument, masked, is if_value; PLAN_ANY */
	/* offsets from arg of a pointer to the bytes, and of how many there are (8 bytes, of each > 1); -1 */
	int16_t ptr_at, len_at;
	u32 if_mask, if_value;
	/*
	 * The function of the kernel that makes or holds its own copy of this memory, for
	 * CAPTURE_KERNEL: hook its return. NULL: there is none, and user memory is read.
	 */
	const char *kernel;
	u32 max;
};

struct plan {
	u8 n;
	struct plan_step steps[PLAN_STEPS];
};

struct plan_opts {
	u32 string_max; /* bytes of a buffer; strace -s. 0: 32 */
	bool fd_paths; /* what descriptors are of; strace -y */
	bool env; /* the strings of envp; strace -v. Else how many there are */
	bool raw; /* nothing at all, neither of the program's memory nor of the kernel's copies */
	u32 strings_max; /* bytes of argv together. 0: 4096 */
};

/**
 * plan_for - what to capture of calls named @name
 *
 * Return: false: nothing. Kernel functions: Linux v6.1 fs/namei.c getname_flags(), net/socket.c
 * move_addr_to_kernel(), fs/exec.c copy_strings(); the same in v6.12.
 */
bool plan_for(const char *name, const struct plan_opts *o, struct plan *ret);

/** plan_all - the same of a call as its ABI has it, and what each command adds, under its condition */
bool plan_all(const struct syscall_entry *e, const struct plan_opts *o, struct plan *ret);

/** plan_for_cmd - the same where a command decides: of ioctl, fcntl, prctl, futex */
bool plan_for_cmd(const char *name, u64 cmd, const struct plan_opts *o, struct plan *ret);

#endif
