/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the arguments of calls are, as data: calls_*.c has a line a call, structs.c one a member.
 * Private to tracers/syscalls/.
 */
#ifndef TRACERS_SYSCALLS_DESC_H
#define TRACERS_SYSCALLS_DESC_H

#include "tracers/syscalls/event.h"
#include "tracers/syscalls/xlat.h"

enum kind {
	K_NONE, /* ends a list */
	/* values */
	K_D, /* int */
	K_U, /* unsigned int */
	K_LD, /* long */
	K_LU, /* unsigned long, size_t */
	K_X, /* hex, 32 bits */
	K_LX, /* hex, 64 bits */
	K_X8, /* eight hex digits without 0x */
	K_LXZ, /* an offset: 0, or hex */
	K_O, /* mode_t: octal */
	K_ADDR, /* an address that is not followed, or NULL */
	K_FD,
	K_DIRFD, /* AT_FDCWD too */
	K_UID, /* -1 for "leave it" */
	K_SIG, /* a signal */
	K_TYPEMODE, /* st_mode */
	K_DEV,
	K_ENUM, /* tab: one of */
	K_FLAGS, /* tab: a set of; 0 when empty */
	K_OPEN, /* open's flags */
	K_MAP, /* mmap's */
	K_SOCKTYPE,
	K_CLONE, /* flags and a signal in the low byte */
	K_FUTEXOP,
	K_RLIM, /* a limit: 8192*1024, RLIM64_INFINITY */
	K_IPCMODE, /* tab: flags, and an octal mode */
	K_IOCTL, /* a request */
	K_HANDLER, /* SIG_DFL, SIG_IGN, address */
	K_EPOLL_DATA,
	K_STATSIZE, /* of struct stat from st_mode on: size, or device */
	K_FSID,
	K_POLLEVENTS, /* of the fd before it */
	K_FLAGS_RWF,
	K_STATX, /* statx's flags */
	K_BITSET, /* of a futex */
	K_SIGFRAME, /* rt_sigreturn's mask, which is on the user's stack and not an argument */
	K_PROTO, /* by the family in the first argument */
	K_SOCKOPT, /* by the level in the second argument */
	/* memory */
	K_PATH, /* a string, never shortened */
	K_STR,
	K_BUF, /* bytes; as many as the next argument says, or the result when out */
	K_HEXBUF, /* the same in \x */
	K_STRV,
	K_ENVP,
	K_SOCKADDR,
	K_SOCKLEN, /* [16], [128 => 16] */
	K_IOVEC, /* with data; as many as the next argument says */
	K_MSGHDR,
	K_STRUCT, /* tab: struct struct_desc */
	K_STRUCTS, /* the same, an array */
	K_INT, /* one int: [1] */
	K_INTS, /* [3, 4] */
	K_LONG, /* longs: [0] */
	K_OFFSET, /* a long before and after: [0] => [5] */
	K_SIGSET,
	K_WSTATUS,
	K_FDSET,
	K_FDSETBITS, /* of CPUs: as many bytes as came back */
	K_DENTS, /* address and a count of entries */
	K_KINDS,
};

struct arg_desc {
	u8 kind;
	bool out; /* the kernel writes it: shown after success only */
	u8 if_arg; /* shown if args[if_arg - 1] has one of if_mask's bits */
	u8 from; /* which argument it is, + 1; 0: the one of its place */
	u32 if_mask;
	const void *tab;
	const char *label; /* "flags=" */
	bool when_interrupted; /* with out: written only then */
};

struct field_desc {
	const char *name; /* "": shown without a name */
	u16 off;
	u8 size;
	u8 kind;
	const void *tab;
	u16 if_off; /* shown if the u32 there has one of if_mask's bits; if_mask 0: always */
	u32 if_mask;
};

/* What 32-bit programs have instead of a struct. */
enum layout32 {
	L32_NONE, /* not known */
	L32_SAME,
	L32_OTHER,
	L32_TIME, /* the other one where the handler's name ends in "32", else the same: Y2038 */
	L32_UNLESS_64, /* the other one but in calls whose handler's name ends in "64" */
	L32_IF_64, /* the other one in those, in others it is not known */
};

struct struct_desc {
	u16 size; /* this much must have been captured */
	bool more; /* members are left out: ", ..." */
	u8 n;
	const struct field_desc *fields;
	u8 how32; /* enum layout32 */
	const struct struct_desc *other32;
};

enum ret_kind {
	R_D, /* a number: also what is left out in a table */
	R_FD,
	R_X, /* an address */
	R_O, /* a mode */
	R_GETFD,
	R_GETFL,
	R_TIMEOUT, /* 0 is a timeout */
	R_POLL, /* ... and pollfds say what happened */
	R_NONE, /* does not return */
};

/* Another meaning of the arguments behind a command. */
struct variant {
	u64 cmd;
	u8 ret;
	struct arg_desc args[4]; /* from the argument behind the command on */
};

/* strace's -e trace=%class (strace 6.1) */
#define SC_FILE    0x01u
#define SC_DESC    0x02u
#define SC_PROCESS 0x04u
#define SC_NETWORK 0x08u
#define SC_MEMORY  0x10u
#define SC_SIGNAL  0x20u
#define SC_IPC     0x40u
#define SC_CREDS   0x80u

struct call_desc {
	const char *name;
	u32 classes; /* SC_* */
	u8 ret; /* enum ret_kind */
	struct arg_desc args[SYSCALL_ARGS];
	u8 cmd_arg; /* variants: by this argument */
	u8 n_variants;
	u32 cmd_mask; /* 0: all bits */
	const struct variant *variants;
};

struct call_list {
	const struct call_desc *calls; /* sorted by name */
	size_t n;
};

extern const struct call_list calls_file, calls_desc, calls_process, calls_memory, calls_network,
	calls_misc;

/* structs.c */
extern const struct struct_desc sd_timespec, sd_timeval, sd_itimerval, sd_itimerspec, sd_rlimit,
	sd_rusage, sd_stat, sd_statfs, sd_utsname, sd_sysinfo, sd_flock, sd_pollfd, sd_epoll,
	sd_sigaction, sd_stack, sd_winsize, sd_clone3, sd_timezone, sd_tms, sd_open_how, sd_statx,
	sd_sched, sd_linger, sd_ucred;

/** struct_layout - @s as programs of @abi have it in calls of @e; NULL: not known */
const struct struct_desc *struct_layout(const struct struct_desc *s, const struct syscall_entry *e,
					u8 abi);

/** call_desc_of - the same as call_desc_find(), of calls of the 32-bit ABI by the call that has their arguments */
const struct call_desc *call_desc_of(const char *name, u8 abi);

/** call_desc_find - NULL: a call that nobody described */
const struct call_desc *call_desc_find(const char *name);

#endif
