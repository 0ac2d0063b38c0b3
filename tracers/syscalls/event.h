/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A system call as a whole: what entered, which memory was seen, what came back. Must not know how
 * sites are armed, nor how an event is shown. All bytes are a guest's: any values, any lengths.
 */
#ifndef TRACERS_SYSCALLS_EVENT_H
#define TRACERS_SYSCALLS_EVENT_H

#include "base/types.h"
#include "symbols/syscalls.h"

#define SYSCALL_CAPTURES    16 /* of one call; more are counted and left out */
#define SYSCALL_DATA_MAX    (64u << 10) /* bytes of all of them */
#define SYSCALL_COMM_LEN    16
#define CAPTURE_RETURN      SYSCALL_ARGS /* capture.arg: not an argument's */
#define CAPTURE_LEN_UNKNOWN UINT32_MAX
#define SYSCALL_NO_UID      UINT32_MAX

enum capture_what {
	CAPTURE_STRING, /* without its NUL */
	CAPTURE_BYTES, /* as they lie at the argument's address: a struct, an array, a buffer */
	CAPTURE_STRINGS, /* argv: strings, each with its NUL, one after the other; see count */
	CAPTURE_COUNT, /* no bytes: how many there are (envp) */
	CAPTURE_SOCKADDR, /* of the length that the kernel took or gave */
	CAPTURE_IOVEC, /* struct iovec[], for readv and the like, or of a struct msghdr */
	CAPTURE_DATA, /* what iovecs point to, one after the other */
	CAPTURE_FD, /* what a descriptor is of: 8 bytes of inode number, 8 of file system, path; count 1: deleted */
};

#define CAPTURE_FD_PATH 16 /* where in its bytes the path begins */

enum capture_source {
	CAPTURE_KERNEL, /* the kernel's own copy: what it acted upon */
	CAPTURE_USER_ENTER, /* user memory at entry: another thread may have changed it since */
	CAPTURE_USER_EXIT, /* user memory at return: what the kernel put there, if nobody changed it */
};

struct syscall_capture {
	u8 arg; /* 0 .. 5, or CAPTURE_RETURN */
	u8 what; /* enum capture_what */
	u8 source; /* enum capture_source */
	bool truncated; /* there was more than is here */
	bool failed; /* it could not be read (not mapped, not faulted in); no bytes */
	/* CAPTURE_STRINGS, _COUNT: elements in the guest; here may be fewer. _DATA: bytes of each, at most; 0: all */
	u32 count;
	u32 full_len; /* bytes in the guest; CAPTURE_LEN_UNKNOWN */
	u32 off, len; /* in syscall_event.data */
};

enum syscall_state {
	SYSCALL_RETURNED,
	SYSCALL_NEVER, /* exit, exit_group: does not return; or its task was killed inside */
	SYSCALL_EXECVE, /* execve succeeded: the return is the new program's */
	SYSCALL_SIGRETURN, /* ret is the interrupted code's register, not a result */
	SYSCALL_RESTARTED, /* ret is -ERESTART*: see syscall_restart() */
	SYSCALL_UNFINISHED, /* still inside, or its return was lost */
	SYSCALL_STATES,
};

struct syscall_event {
	const struct syscall_entry *entry; /* never NULL; valid as long as its table */
	u64 seq; /* of its entry, in the input */
	u64 ts_ns; /* at entry, the guest's trace clock */
	u64 duration_ns; /* 0 when it did not return */
	u64 args[SYSCALL_ARGS];
	s64 ret;
	s32 nr; /* orig_ax; -1: not known */
	u32 pid, tgid; /* tgid 0: not known */
	u32 uid; /* in the guest's first user namespace; SYSCALL_NO_UID: not known */
	u32 cgroup; /* low half of the id of its cgroup v2; 0: not known */
	u32 string_max; /* bytes of strings that were asked for; 0: the decoder's default */
	u16 cpu;
	u8 abi; /* enum syscall_abi */
	u8 n_args; /* as the guest's table says; else 6 */
	u8 state; /* enum syscall_state */
	u8 n_captures;
	bool captures_left_out; /* more than fit */
	char comm[SYSCALL_COMM_LEN + 1]; /* at entry */
	char comm_after[SYSCALL_COMM_LEN + 1]; /* SYSCALL_EXECVE: the new program's */
	struct syscall_capture captures[SYSCALL_CAPTURES];
	const u8 *data; /* bytes of the captures, valid during the callback */
	u32 data_len;
};

/* What becomes of a call that a signal interrupted, by its ret. */
enum syscall_restart {
	RESTART_NOT,
	RESTART_ALWAYS, /* ERESTARTNOINTR: user space sees nothing of it */
	RESTART_SA_RESTART, /* ERESTARTSYS: EINTR if a handler ran that lacks SA_RESTART */
	RESTART_NO_HANDLER, /* ERESTARTNOHAND: EINTR if a handler ran */
	RESTART_BLOCK, /* ERESTART_RESTARTBLOCK: by restart_syscall, EINTR if a handler ran */
};

/** syscall_restart - Source: Linux v6.1 arch/x86/kernel/signal.c handle_signal() */
enum syscall_restart syscall_restart(s64 ret);

/** syscall_failed - did it return an error (-1 .. -4095, and not a pointer or a restart)? */
bool syscall_failed(const struct syscall_event *e);

/**
 * syscall_capture_find - the capture of @arg that is a @what and was read; the kernel's own if there is one
 * @data_ret: its bytes; never NULL on success
 */
const struct syscall_capture *syscall_capture_find(const struct syscall_event *e, u8 arg, u8 what,
						   const u8 **data_ret);

#endif
