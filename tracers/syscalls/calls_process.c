// SPDX-License-Identifier: Apache-2.0
/* Processes: life, credentials, scheduling, signals. A line a call, sorted by name. */
#include "tracers/syscalls/calls.h"

/* clang-format off: a table */
static const struct variant v_prctl[] = {
	{ 1, R_D, { SIG } }, /* PR_SET_PDEATHSIG */
	{ 2, R_D, { OUT(INT) } }, /* PR_GET_PDEATHSIG */
	{ 3, R_D, { { .kind = K_NONE } } }, /* PR_GET_DUMPABLE */
	{ 4, R_D, { LU } }, /* PR_SET_DUMPABLE */
	{ 7, R_D, { { .kind = K_NONE } } }, /* PR_GET_KEEPCAPS */
	{ 8, R_D, { LU } }, /* PR_SET_KEEPCAPS */
	{ 15, R_D, { STR } }, /* PR_SET_NAME */
	{ 16, R_D, { OUT(STR) } }, /* PR_GET_NAME */
	{ 21, R_D, { { .kind = K_NONE } } }, /* PR_GET_SECCOMP */
	{ 22, R_D, { ENUM(seccomp_mode), ADDR } }, /* PR_SET_SECCOMP */
	{ 23, R_D, { LU } }, /* PR_CAPBSET_READ */
	{ 24, R_D, { LU } }, /* PR_CAPBSET_DROP */
	{ 29, R_D, { LU } }, /* PR_SET_TIMERSLACK */
	{ 30, R_D, { { .kind = K_NONE } } }, /* PR_GET_TIMERSLACK */
	{ 36, R_D, { LU } }, /* PR_SET_CHILD_SUBREAPER */
	{ 37, R_D, { OUT(INT) } }, /* PR_GET_CHILD_SUBREAPER */
	{ 38, R_D, { LU, LU, LU, LU } }, /* PR_SET_NO_NEW_PRIVS */
	{ 39, R_D, { LU, LU, LU, LU } }, /* PR_GET_NO_NEW_PRIVS */
};

static const struct variant v_futex[] = {
	{ 0, R_D, { U, IN(timespec) } }, /* FUTEX_WAIT */
	{ 1, R_D, { U } }, /* FUTEX_WAKE */
	{ 3, R_D, { U, U, ADDR } }, /* FUTEX_REQUEUE */
	{ 4, R_D, { U, U, ADDR, U } }, /* FUTEX_CMP_REQUEUE */
	{ 6, R_D, { AS(3, NULL, ADDR) } }, /* FUTEX_LOCK_PI */
	{ 7, R_D, { { .kind = K_NONE } } }, /* FUTEX_UNLOCK_PI */
	{ 8, R_D, { { .kind = K_NONE } } }, /* FUTEX_TRYLOCK_PI */
	{ 9, R_D, { U, IN(timespec), AS(5, NULL, BITSET) } }, /* FUTEX_WAIT_BITSET */
	{ 10, R_D, { U, AS(5, NULL, BITSET) } }, /* FUTEX_WAKE_BITSET */
	{ 11, R_D, { U, IN(timespec), ADDR } }, /* FUTEX_WAIT_REQUEUE_PI */
	{ 13, R_D, { AS(3, NULL, ADDR) } }, /* FUTEX_LOCK_PI2 */
};

static const struct call_desc all[] = {
	{ "arch_prctl", 0, R_D, { ENUM(arch_prctl), LX }, 0, 0, 0, NULL },
	{ "capget", TC, R_D, { ADDR, ADDR }, 0, 0, 0, NULL },
	{ "capset", TC, R_D, { ADDR, ADDR }, 0, 0, 0, NULL },
	{ "clone",
	  TP,
	  R_D,
	  { AS(1, "child_stack=", ADDR), AS(0, "flags=", CLONE),
	    ASIF(2, "parent_tid=", ADDR, 0, 0x00101000), ASIF(4, "tls=", ADDR, 0, 0x00080000),
	    ASIF(3, "child_tidptr=", ADDR, 0, 0x01200000) },
	  0,
	  0,
	  0,
	  NULL },
	{ "clone3", TP, R_D, { IN(clone3), LU }, 0, 0, 0, NULL },
	{ "exit", TP, R_NONE, { D }, 0, 0, 0, NULL },
	{ "exit_group", TP, R_NONE, { D }, 0, 0, 0, NULL },
	{ "fork", TP, R_D, { { .kind = K_NONE } }, 0, 0, 0, NULL },
	{ "futex", 0, R_D, { ADDR, ARG(FUTEXOP), U }, 1, ARRAY_SIZE(v_futex), 0x7f, v_futex },
	{ "futex_waitv", 0, R_D, { ADDR, U, X, IN(timespec), ENUM(clock) }, 0, 0, 0, NULL },
	{ "get_robust_list", 0, R_D, { D, ADDR, ADDR }, 0, 0, 0, NULL },
	{ "getegid", TC, R_D, { { .kind = K_NONE } }, 0, 0, 0, NULL },
	{ "geteuid", TC, R_D, { { .kind = K_NONE } }, 0, 0, 0, NULL },
	{ "getgid", TC, R_D, { { .kind = K_NONE } }, 0, 0, 0, NULL },
	{ "getgroups", TC, R_D, { D, OUT(INTS) }, 0, 0, 0, NULL },
	{ "getpgid", 0, R_D, { D }, 0, 0, 0, NULL },
	{ "getpgrp", 0, R_D, { { .kind = K_NONE } }, 0, 0, 0, NULL },
	{ "getpid", 0, R_D, { { .kind = K_NONE } }, 0, 0, 0, NULL },
	{ "getppid", 0, R_D, { { .kind = K_NONE } }, 0, 0, 0, NULL },
	{ "getpriority", 0, R_D, { ENUM(prio_which), D }, 0, 0, 0, NULL },
	{ "getresgid", TC, R_D, { OUT(INT), OUT(INT), OUT(INT) }, 0, 0, 0, NULL },
	{ "getresuid", TC, R_D, { OUT(INT), OUT(INT), OUT(INT) }, 0, 0, 0, NULL },
	{ "getrlimit", 0, R_D, { ENUM(rlimit), OUTS(rlimit) }, 0, 0, 0, NULL },
	{ "getrusage", 0, R_D, { ENUM(rusage), OUTS(rusage) }, 0, 0, 0, NULL },
	{ "getsid", 0, R_D, { D }, 0, 0, 0, NULL },
	{ "gettid", 0, R_D, { { .kind = K_NONE } }, 0, 0, 0, NULL },
	{ "getuid", TC, R_D, { { .kind = K_NONE } }, 0, 0, 0, NULL },
	{ "ioprio_get", 0, R_D, { X, D }, 0, 0, 0, NULL },
	{ "ioprio_set", 0, R_D, { X, D, X }, 0, 0, 0, NULL },
	{ "kcmp", 0, R_D, { D, D, U, LU, LU }, 0, 0, 0, NULL },
	{ "kill", TS | TP, R_D, { D, SIG }, 0, 0, 0, NULL },
	{ "membarrier", 0, R_D, { ENUM(membarrier), X }, 0, 0, 0, NULL },
	{ "pause", TS, R_D, { { .kind = K_NONE } }, 0, 0, 0, NULL },
	{ "personality", 0, R_D, { FLAGS(personality) }, 0, 0, 0, NULL },
	{ "pidfd_send_signal", TD | TS | TP, R_D, { FD, SIG, ADDR, X }, 0, 0, 0, NULL },
	{ "prctl", TC, R_D, { ENUM(prctl), LX, LX, LX, LX }, 0, ARRAY_SIZE(v_prctl), 0, v_prctl },
	{ "prlimit64", 0, R_D, { D, ENUM(rlimit), IN(rlimit), OUTS(rlimit) }, 0, 0, 0, NULL },
	{ "process_madvise", TD, R_D, { FD, ADDR, LU, ENUM(madvise), X }, 0, 0, 0, NULL },
	{ "process_mrelease", TD, R_D, { FD, X }, 0, 0, 0, NULL },
	{ "process_vm_readv", 0, R_D, { D, ADDR, LU, ADDR, LU, LU }, 0, 0, 0, NULL },
	{ "process_vm_writev", 0, R_D, { D, ADDR, LU, ADDR, LU, LU }, 0, 0, 0, NULL },
	{ "ptrace", 0, R_D, { ENUM(ptrace), D, ADDR, ADDR }, 0, 0, 0, NULL },
	{ "reboot", 0, R_D, { X, X, X, ADDR }, 0, 0, 0, NULL },
	{ "restart_syscall", 0, R_D, { { .kind = K_NONE } }, 0, 0, 0, NULL },
	{ "rseq", 0, R_D, { ADDR, AS(1, NULL, X), FLAGS(rseq), AS(3, NULL, X) }, 0, 0, 0, NULL },
	{ "rt_sigaction", TS, R_D, { SIG, IN(sigaction), OUTS(sigaction), LU }, 0, 0, 0, NULL },
	{ "rt_sigpending", TS, R_D, { OUT(SIGSET), LU }, 0, 0, 0, NULL },
	{ "rt_sigprocmask", TS, R_D, { ENUM(sig_how), SIGSET, OUT(SIGSET), LU }, 0, 0, 0, NULL },
	{ "rt_sigqueueinfo", TS | TP, R_D, { D, SIG, ADDR }, 0, 0, 0, NULL },
	{ "rt_sigreturn", TS, R_D, { ARG(SIGFRAME) }, 0, 0, 0, NULL },
	{ "rt_sigsuspend", TS, R_D, { SIGSET, LU }, 0, 0, 0, NULL },
	{ "rt_sigtimedwait", TS, R_D, { SIGSET, ADDR, IN(timespec), LU }, 0, 0, 0, NULL },
	{ "rt_tgsigqueueinfo", TS | TP, R_D, { D, D, SIG, ADDR }, 0, 0, 0, NULL },
	{ "sched_get_priority_max", 0, R_D, { ENUM(sched) }, 0, 0, 0, NULL },
	{ "sched_get_priority_min", 0, R_D, { ENUM(sched) }, 0, 0, 0, NULL },
	{ "sched_getaffinity", 0, R_D, { D, LU, OUT(FDSETBITS) }, 0, 0, 0, NULL },
	{ "sched_getparam", 0, R_D, { D, OUTS(sched) }, 0, 0, 0, NULL },
	{ "sched_getscheduler", 0, R_D, { D }, 0, 0, 0, NULL },
	{ "sched_rr_get_interval", 0, R_D, { D, OUTS(timespec) }, 0, 0, 0, NULL },
	{ "sched_setaffinity", 0, R_D, { D, LU, ADDR }, 0, 0, 0, NULL },
	{ "sched_setparam", 0, R_D, { D, IN(sched) }, 0, 0, 0, NULL },
	{ "sched_setscheduler", 0, R_D, { D, ENUM(sched), IN(sched) }, 0, 0, 0, NULL },
	{ "sched_yield", 0, R_D, { { .kind = K_NONE } }, 0, 0, 0, NULL },
	{ "seccomp", 0, R_D, { ENUM(seccomp_op), FLAGS(seccomp_flags), ADDR }, 0, 0, 0, NULL },
	{ "set_robust_list", 0, R_D, { ADDR, LU }, 0, 0, 0, NULL },
	{ "set_tid_address", 0, R_D, { ADDR }, 0, 0, 0, NULL },
	{ "setfsgid", TC, R_D, { UID }, 0, 0, 0, NULL },
	{ "setfsuid", TC, R_D, { UID }, 0, 0, 0, NULL },
	{ "setgid", TC, R_D, { UID }, 0, 0, 0, NULL },
	{ "setgroups", TC, R_D, { D, ARG(INTS) }, 0, 0, 0, NULL },
	{ "setns", TD, R_D, { FD, FLAGS(unshare) }, 0, 0, 0, NULL },
	{ "setpgid", 0, R_D, { D, D }, 0, 0, 0, NULL },
	{ "setpriority", 0, R_D, { ENUM(prio_which), D, D }, 0, 0, 0, NULL },
	{ "setregid", TC, R_D, { UID, UID }, 0, 0, 0, NULL },
	{ "setresgid", TC, R_D, { UID, UID, UID }, 0, 0, 0, NULL },
	{ "setresuid", TC, R_D, { UID, UID, UID }, 0, 0, 0, NULL },
	{ "setreuid", TC, R_D, { UID, UID }, 0, 0, 0, NULL },
	{ "setrlimit", 0, R_D, { ENUM(rlimit), IN(rlimit) }, 0, 0, 0, NULL },
	{ "setsid", 0, R_D, { { .kind = K_NONE } }, 0, 0, 0, NULL },
	{ "setuid", TC, R_D, { UID }, 0, 0, 0, NULL },
	{ "sigaltstack", TS, R_D, { IN(stack), OUTS(stack) }, 0, 0, 0, NULL },
	{ "tgkill", TS | TP, R_D, { D, D, SIG }, 0, 0, 0, NULL },
	{ "times", 0, R_D, { OUTS(tms) }, 0, 0, 0, NULL },
	{ "tkill", TS | TP, R_D, { D, SIG }, 0, 0, 0, NULL },
	{ "umask", 0, R_O, { O }, 0, 0, 0, NULL },
	{ "unshare", 0, R_D, { FLAGS(unshare) }, 0, 0, 0, NULL },
	{ "vfork", TP, R_D, { { .kind = K_NONE } }, 0, 0, 0, NULL },
	{ "wait4", TP, R_D, { D, OUT(WSTATUS), FLAGS(wait), OUTS(rusage) }, 0, 0, 0, NULL },
	{ "waitid",
	  TP,
	  R_D,
	  { ENUM(waitid_type), D, ADDR, FLAGS(waitid), OUTS(rusage) },
	  0,
	  0,
	  0,
	  NULL },
	{ "waitpid", TP, R_D, { D, OUT(WSTATUS), FLAGS(wait) }, 0, 0, 0, NULL },
};
CALLS(calls_process, all);
/* clang-format on */
