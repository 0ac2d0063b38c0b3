// SPDX-License-Identifier: Apache-2.0
/*
 * Processes, memory, time, signals, ipc. Values are those of the x86-64 user space ABI (Linux v6.12 include/uapi), in
 * the order in which strace names them.
 */
#include "tracers/syscalls/xlat.h"

static const struct xlat x_prot[] = {
	{ 0x0, "PROT_NONE" },          { 0x1, "PROT_READ" }, { 0x2, "PROT_WRITE" },
	{ 0x4, "PROT_EXEC" },          { 0x8, "PROT_SEM" },  { 0x1000000, "PROT_GROWSDOWN" },
	{ 0x2000000, "PROT_GROWSUP" },
};
const struct xlat_table xlat_prot = XLAT(x_prot, "PROT_???");

static const struct xlat x_map_type[] = {
	{ 0x0, "MAP_FILE" },
	{ 0x1, "MAP_SHARED" },
	{ 0x2, "MAP_PRIVATE" },
	{ 0x3, "MAP_SHARED_VALIDATE" },
};
const struct xlat_table xlat_map_type = XLAT(x_map_type, "MAP_???");

static const struct xlat x_map[] = {
	{ 0x10, "MAP_FIXED" },        { 0x20, "MAP_ANONYMOUS" },
	{ 0x40, "MAP_32BIT" },        { 0x4000, "MAP_NORESERVE" },
	{ 0x8000, "MAP_POPULATE" },   { 0x10000, "MAP_NONBLOCK" },
	{ 0x100, "MAP_GROWSDOWN" },   { 0x800, "MAP_DENYWRITE" },
	{ 0x1000, "MAP_EXECUTABLE" }, { 0x2000, "MAP_LOCKED" },
	{ 0x20000, "MAP_STACK" },     { 0x40000, "MAP_HUGETLB" },
	{ 0x80000, "MAP_SYNC" },      { 0x100000, "MAP_FIXED_NOREPLACE" },
};
const struct xlat_table xlat_map = XLAT(x_map, "MAP_???");

static const struct xlat x_msync[] = {
	{ 0x4, "MS_SYNC" },
	{ 0x1, "MS_ASYNC" },
	{ 0x2, "MS_INVALIDATE" },
};
const struct xlat_table xlat_msync = XLAT(x_msync, "MS_???");

static const struct xlat x_mremap[] = {
	{ 0x1, "MREMAP_MAYMOVE" },
	{ 0x2, "MREMAP_FIXED" },
	{ 0x4, "MREMAP_DONTUNMAP" },
};
const struct xlat_table xlat_mremap = XLAT(x_mremap, "MREMAP_???");

static const struct xlat x_mlock2[] = {
	{ 0x1, "MLOCK_ONFAULT" },
};
const struct xlat_table xlat_mlock2 = XLAT(x_mlock2, "MLOCK_???");

static const struct xlat x_mlockall[] = {
	{ 0x1, "MCL_CURRENT" },
	{ 0x2, "MCL_FUTURE" },
	{ 0x4, "MCL_ONFAULT" },
};
const struct xlat_table xlat_mlockall = XLAT(x_mlockall, "MCL_???");

static const struct xlat x_madvise[] = {
	{ 0x0, "MADV_NORMAL" },          { 0x1, "MADV_RANDOM" },
	{ 0x2, "MADV_SEQUENTIAL" },      { 0x3, "MADV_WILLNEED" },
	{ 0x4, "MADV_DONTNEED" },        { 0x8, "MADV_FREE" },
	{ 0x9, "MADV_REMOVE" },          { 0xa, "MADV_DONTFORK" },
	{ 0xb, "MADV_DOFORK" },          { 0xc, "MADV_MERGEABLE" },
	{ 0xd, "MADV_UNMERGEABLE" },     { 0xe, "MADV_HUGEPAGE" },
	{ 0xf, "MADV_NOHUGEPAGE" },      { 0x10, "MADV_DONTDUMP" },
	{ 0x11, "MADV_DODUMP" },         { 0x12, "MADV_WIPEONFORK" },
	{ 0x13, "MADV_KEEPONFORK" },     { 0x14, "MADV_COLD" },
	{ 0x15, "MADV_PAGEOUT" },        { 0x16, "MADV_POPULATE_READ" },
	{ 0x17, "MADV_POPULATE_WRITE" }, { 0x18, "MADV_DONTNEED_LOCKED" },
	{ 0x19, "MADV_COLLAPSE" },       { 0x64, "MADV_HWPOISON" },
	{ 0x65, "MADV_SOFT_OFFLINE" },
};
const struct xlat_table xlat_madvise = XLAT(x_madvise, "MADV_???");

static const struct xlat x_clone[] = {
	{ 0x100, "CLONE_VM" },
	{ 0x200, "CLONE_FS" },
	{ 0x400, "CLONE_FILES" },
	{ 0x800, "CLONE_SIGHAND" },
	{ 0x1000, "CLONE_PIDFD" },
	{ 0x2000, "CLONE_PTRACE" },
	{ 0x4000, "CLONE_VFORK" },
	{ 0x8000, "CLONE_PARENT" },
	{ 0x10000, "CLONE_THREAD" },
	{ 0x20000, "CLONE_NEWNS" },
	{ 0x40000, "CLONE_SYSVSEM" },
	{ 0x80000, "CLONE_SETTLS" },
	{ 0x100000, "CLONE_PARENT_SETTID" },
	{ 0x200000, "CLONE_CHILD_CLEARTID" },
	{ 0x800000, "CLONE_UNTRACED" },
	{ 0x1000000, "CLONE_CHILD_SETTID" },
	{ 0x2000000, "CLONE_NEWCGROUP" },
	{ 0x4000000, "CLONE_NEWUTS" },
	{ 0x8000000, "CLONE_NEWIPC" },
	{ 0x10000000, "CLONE_NEWUSER" },
	{ 0x20000000, "CLONE_NEWPID" },
	{ 0x40000000, "CLONE_NEWNET" },
	{ 0x80000000, "CLONE_IO" },
	{ 0x100000000, "CLONE_CLEAR_SIGHAND" },
	{ 0x200000000, "CLONE_INTO_CGROUP" },
};
const struct xlat_table xlat_clone = XLAT(x_clone, "CLONE_???");

static const struct xlat x_unshare[] = {
	{ 0x80, "CLONE_NEWTIME" },
	{ 0x100, "CLONE_VM" },
	{ 0x200, "CLONE_FS" },
	{ 0x400, "CLONE_FILES" },
	{ 0x800, "CLONE_SIGHAND" },
	{ 0x10000, "CLONE_THREAD" },
	{ 0x20000, "CLONE_NEWNS" },
	{ 0x40000, "CLONE_SYSVSEM" },
	{ 0x2000000, "CLONE_NEWCGROUP" },
	{ 0x4000000, "CLONE_NEWUTS" },
	{ 0x8000000, "CLONE_NEWIPC" },
	{ 0x10000000, "CLONE_NEWUSER" },
	{ 0x20000000, "CLONE_NEWPID" },
	{ 0x40000000, "CLONE_NEWNET" },
};
const struct xlat_table xlat_unshare = XLAT(x_unshare, "CLONE_???");

static const struct xlat x_wait[] = {
	{ 0x1, "WNOHANG" },       { 0x2, "WSTOPPED" },           { 0x4, "WEXITED" },
	{ 0x8, "WCONTINUED" },    { 0x1000000, "WNOWAIT" },      { 0x80000000, "__WCLONE" },
	{ 0x40000000, "__WALL" }, { 0x20000000, "__WNOTHREAD" },
};
const struct xlat_table xlat_wait = XLAT(x_wait, "W???");

static const struct xlat x_waitid[] = {
	{ 0x1, "WNOHANG" },       { 0x4, "WEXITED" },
	{ 0x2, "WSTOPPED" },      { 0x8, "WCONTINUED" },
	{ 0x1000000, "WNOWAIT" }, { 0x80000000, "__WCLONE" },
	{ 0x40000000, "__WALL" }, { 0x20000000, "__WNOTHREAD" },
};
const struct xlat_table xlat_waitid = XLAT(x_waitid, "W???");

static const struct xlat x_waitid_type[] = {
	{ 0x0, "P_ALL" },
	{ 0x1, "P_PID" },
	{ 0x2, "P_PGID" },
	{ 0x3, "P_PIDFD" },
};
const struct xlat_table xlat_waitid_type = XLAT(x_waitid_type, "P_???");

static const struct xlat x_futex_op[] = {
	{ 0x0, "FUTEX_WAIT" },
	{ 0x1, "FUTEX_WAKE" },
	{ 0x2, "FUTEX_FD" },
	{ 0x3, "FUTEX_REQUEUE" },
	{ 0x4, "FUTEX_CMP_REQUEUE" },
	{ 0x5, "FUTEX_WAKE_OP" },
	{ 0x6, "FUTEX_LOCK_PI" },
	{ 0x7, "FUTEX_UNLOCK_PI" },
	{ 0x8, "FUTEX_TRYLOCK_PI" },
	{ 0x9, "FUTEX_WAIT_BITSET" },
	{ 0xa, "FUTEX_WAKE_BITSET" },
	{ 0xb, "FUTEX_WAIT_REQUEUE_PI" },
	{ 0xc, "FUTEX_CMP_REQUEUE_PI" },
	{ 0xd, "FUTEX_LOCK_PI2" },
};
const struct xlat_table xlat_futex_op = XLAT(x_futex_op, "FUTEX_???");

static const struct xlat x_prctl[] = {
	{ 0x1, "PR_SET_PDEATHSIG" },
	{ 0x2, "PR_GET_PDEATHSIG" },
	{ 0x3, "PR_GET_DUMPABLE" },
	{ 0x4, "PR_SET_DUMPABLE" },
	{ 0x5, "PR_GET_UNALIGN" },
	{ 0x6, "PR_SET_UNALIGN" },
	{ 0x7, "PR_GET_KEEPCAPS" },
	{ 0x8, "PR_SET_KEEPCAPS" },
	{ 0xd, "PR_GET_TIMING" },
	{ 0xe, "PR_SET_TIMING" },
	{ 0xf, "PR_SET_NAME" },
	{ 0x10, "PR_GET_NAME" },
	{ 0x15, "PR_GET_SECCOMP" },
	{ 0x16, "PR_SET_SECCOMP" },
	{ 0x17, "PR_CAPBSET_READ" },
	{ 0x18, "PR_CAPBSET_DROP" },
	{ 0x19, "PR_GET_TSC" },
	{ 0x1a, "PR_SET_TSC" },
	{ 0x1b, "PR_GET_SECUREBITS" },
	{ 0x1c, "PR_SET_SECUREBITS" },
	{ 0x1d, "PR_SET_TIMERSLACK" },
	{ 0x1e, "PR_GET_TIMERSLACK" },
	{ 0x1f, "PR_TASK_PERF_EVENTS_DISABLE" },
	{ 0x20, "PR_TASK_PERF_EVENTS_ENABLE" },
	{ 0x21, "PR_MCE_KILL" },
	{ 0x22, "PR_MCE_KILL_GET" },
	{ 0x23, "PR_SET_MM" },
	{ 0x24, "PR_SET_CHILD_SUBREAPER" },
	{ 0x25, "PR_GET_CHILD_SUBREAPER" },
	{ 0x26, "PR_SET_NO_NEW_PRIVS" },
	{ 0x27, "PR_GET_NO_NEW_PRIVS" },
	{ 0x28, "PR_GET_TID_ADDRESS" },
	{ 0x29, "PR_SET_THP_DISABLE" },
	{ 0x2a, "PR_GET_THP_DISABLE" },
	{ 0x2f, "PR_CAP_AMBIENT" },
	{ 0x34, "PR_GET_SPECULATION_CTRL" },
	{ 0x35, "PR_SET_SPECULATION_CTRL" },
	{ 0x39, "PR_SET_IO_FLUSHER" },
	{ 0x3a, "PR_GET_IO_FLUSHER" },
	{ 0x3b, "PR_SET_SYSCALL_USER_DISPATCH" },
	{ 0x3e, "PR_SCHED_CORE" },
	{ 0x41, "PR_SET_MDWE" },
	{ 0x42, "PR_GET_MDWE" },
	{ 0x53564d41, "PR_SET_VMA" },
	{ 0x59616d61, "PR_SET_PTRACER" },
};
const struct xlat_table xlat_prctl = XLAT(x_prctl, "PR_???");

static const struct xlat x_arch_prctl[] = {
	{ 0x1001, "ARCH_SET_GS" },         { 0x1002, "ARCH_SET_FS" },
	{ 0x1003, "ARCH_GET_FS" },         { 0x1004, "ARCH_GET_GS" },
	{ 0x1011, "ARCH_GET_CPUID" },      { 0x1012, "ARCH_SET_CPUID" },
	{ 0x1021, "ARCH_GET_XCOMP_SUPP" }, { 0x1022, "ARCH_GET_XCOMP_PERM" },
	{ 0x1023, "ARCH_REQ_XCOMP_PERM" }, { 0x2001, "ARCH_MAP_VDSO_X32" },
	{ 0x2002, "ARCH_MAP_VDSO_32" },    { 0x2003, "ARCH_MAP_VDSO_64" },
	{ 0x5001, "ARCH_SHSTK_ENABLE" },   { 0x5002, "ARCH_SHSTK_DISABLE" },
	{ 0x5003, "ARCH_SHSTK_LOCK" },     { 0x5005, "ARCH_SHSTK_STATUS" },
	{ 0x3001, "ARCH_CET_STATUS" },
};
const struct xlat_table xlat_arch_prctl = XLAT(x_arch_prctl, "ARCH_???");

static const struct xlat x_rlimit[] = {
	{ 0x0, "RLIMIT_CPU" },      { 0x1, "RLIMIT_FSIZE" },  { 0x2, "RLIMIT_DATA" },
	{ 0x3, "RLIMIT_STACK" },    { 0x4, "RLIMIT_CORE" },   { 0x5, "RLIMIT_RSS" },
	{ 0x6, "RLIMIT_NPROC" },    { 0x7, "RLIMIT_NOFILE" }, { 0x8, "RLIMIT_MEMLOCK" },
	{ 0x9, "RLIMIT_AS" },       { 0xa, "RLIMIT_LOCKS" },  { 0xb, "RLIMIT_SIGPENDING" },
	{ 0xc, "RLIMIT_MSGQUEUE" }, { 0xd, "RLIMIT_NICE" },   { 0xe, "RLIMIT_RTPRIO" },
	{ 0xf, "RLIMIT_RTTIME" },
};
const struct xlat_table xlat_rlimit = XLAT(x_rlimit, "RLIMIT_???");

static const struct xlat x_rusage[] = {
	{ 0x0, "RUSAGE_SELF" },
	{ 0xffffffff, "RUSAGE_CHILDREN" },
	{ 0xfffffffe, "RUSAGE_BOTH" },
	{ 0x1, "RUSAGE_THREAD" },
};
const struct xlat_table xlat_rusage = XLAT(x_rusage, "RUSAGE_???");

static const struct xlat x_prio_which[] = {
	{ 0x0, "PRIO_PROCESS" },
	{ 0x1, "PRIO_PGRP" },
	{ 0x2, "PRIO_USER" },
};
const struct xlat_table xlat_prio_which = XLAT(x_prio_which, "PRIO_???");

static const struct xlat x_clock[] = {
	{ 0x0, "CLOCK_REALTIME" },
	{ 0x1, "CLOCK_MONOTONIC" },
	{ 0x2, "CLOCK_PROCESS_CPUTIME_ID" },
	{ 0x3, "CLOCK_THREAD_CPUTIME_ID" },
	{ 0x4, "CLOCK_MONOTONIC_RAW" },
	{ 0x5, "CLOCK_REALTIME_COARSE" },
	{ 0x6, "CLOCK_MONOTONIC_COARSE" },
	{ 0x7, "CLOCK_BOOTTIME" },
	{ 0x8, "CLOCK_REALTIME_ALARM" },
	{ 0x9, "CLOCK_BOOTTIME_ALARM" },
	{ 0xb, "CLOCK_TAI" },
};
const struct xlat_table xlat_clock = XLAT(x_clock, "CLOCK_???");

static const struct xlat x_timer_flags[] = {
	{ 0x1, "TIMER_ABSTIME" },
};
const struct xlat_table xlat_timer_flags = XLAT(x_timer_flags, "TIMER_???");

static const struct xlat x_itimer[] = {
	{ 0x0, "ITIMER_REAL" },
	{ 0x1, "ITIMER_VIRTUAL" },
	{ 0x2, "ITIMER_PROF" },
};
const struct xlat_table xlat_itimer = XLAT(x_itimer, "ITIMER_???");

static const struct xlat x_sched[] = {
	{ 0x0, "SCHED_OTHER" }, { 0x1, "SCHED_FIFO" }, { 0x2, "SCHED_RR" },
	{ 0x3, "SCHED_BATCH" }, { 0x5, "SCHED_IDLE" }, { 0x6, "SCHED_DEADLINE" },
};
const struct xlat_table xlat_sched = XLAT(x_sched, "SCHED_???");

static const struct xlat x_sig_how[] = {
	{ 0x0, "SIG_BLOCK" },
	{ 0x1, "SIG_UNBLOCK" },
	{ 0x2, "SIG_SETMASK" },
};
const struct xlat_table xlat_sig_how = XLAT(x_sig_how, "SIG_???");

static const struct xlat x_sa_flags[] = {
	{ 0x4000000, "SA_RESTORER" }, { 0x8000000, "SA_ONSTACK" },
	{ 0x10000000, "SA_RESTART" }, { 0x20000000, "SA_INTERRUPT" },
	{ 0x40000000, "SA_NODEFER" }, { 0x80000000, "SA_RESETHAND" },
	{ 0x4, "SA_SIGINFO" },        { 0x1, "SA_NOCLDSTOP" },
	{ 0x2, "SA_NOCLDWAIT" },
};
const struct xlat_table xlat_sa_flags = XLAT(x_sa_flags, "SA_???");

static const struct xlat x_ss_flags[] = {
	{ 0x1, "SS_ONSTACK" },
	{ 0x2, "SS_DISABLE" },
	{ 0x80000000, "SS_AUTODISARM" },
};
const struct xlat_table xlat_ss_flags = XLAT(x_ss_flags, "SS_???");

static const struct xlat x_seccomp_op[] = {
	{ 0x0, "SECCOMP_SET_MODE_STRICT" },
	{ 0x1, "SECCOMP_SET_MODE_FILTER" },
	{ 0x2, "SECCOMP_GET_ACTION_AVAIL" },
	{ 0x3, "SECCOMP_GET_NOTIF_SIZES" },
};
const struct xlat_table xlat_seccomp_op = XLAT(x_seccomp_op, "SECCOMP_???");

static const struct xlat x_seccomp_flags[] = {
	{ 0x1, "SECCOMP_FILTER_FLAG_TSYNC" },
	{ 0x2, "SECCOMP_FILTER_FLAG_LOG" },
	{ 0x4, "SECCOMP_FILTER_FLAG_SPEC_ALLOW" },
	{ 0x8, "SECCOMP_FILTER_FLAG_NEW_LISTENER" },
	{ 0x10, "SECCOMP_FILTER_FLAG_TSYNC_ESRCH" },
	{ 0x20, "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV" },
};
const struct xlat_table xlat_seccomp_flags = XLAT(x_seccomp_flags, "SECCOMP_FILTER_FLAG_???");

static const struct xlat x_seccomp_mode[] = {
	{ 0x0, "SECCOMP_MODE_DISABLED" },
	{ 0x1, "SECCOMP_MODE_STRICT" },
	{ 0x2, "SECCOMP_MODE_FILTER" },
};
const struct xlat_table xlat_seccomp_mode = XLAT(x_seccomp_mode, "SECCOMP_MODE_???");

static const struct xlat x_bpf_cmd[] = {
	{ 0x0, "BPF_MAP_CREATE" },
	{ 0x1, "BPF_MAP_LOOKUP_ELEM" },
	{ 0x2, "BPF_MAP_UPDATE_ELEM" },
	{ 0x3, "BPF_MAP_DELETE_ELEM" },
	{ 0x4, "BPF_MAP_GET_NEXT_KEY" },
	{ 0x5, "BPF_PROG_LOAD" },
	{ 0x6, "BPF_OBJ_PIN" },
	{ 0x7, "BPF_OBJ_GET" },
	{ 0x8, "BPF_PROG_ATTACH" },
	{ 0x9, "BPF_PROG_DETACH" },
	{ 0xa, "BPF_PROG_TEST_RUN" },
	{ 0xb, "BPF_PROG_GET_NEXT_ID" },
	{ 0xc, "BPF_MAP_GET_NEXT_ID" },
	{ 0xd, "BPF_PROG_GET_FD_BY_ID" },
	{ 0xe, "BPF_MAP_GET_FD_BY_ID" },
	{ 0xf, "BPF_OBJ_GET_INFO_BY_FD" },
	{ 0x10, "BPF_PROG_QUERY" },
	{ 0x11, "BPF_RAW_TRACEPOINT_OPEN" },
	{ 0x12, "BPF_BTF_LOAD" },
	{ 0x13, "BPF_BTF_GET_FD_BY_ID" },
	{ 0x14, "BPF_TASK_FD_QUERY" },
	{ 0x15, "BPF_MAP_LOOKUP_AND_DELETE_ELEM" },
	{ 0x16, "BPF_MAP_FREEZE" },
	{ 0x17, "BPF_BTF_GET_NEXT_ID" },
	{ 0x18, "BPF_MAP_LOOKUP_BATCH" },
	{ 0x19, "BPF_MAP_LOOKUP_AND_DELETE_BATCH" },
	{ 0x1a, "BPF_MAP_UPDATE_BATCH" },
	{ 0x1b, "BPF_MAP_DELETE_BATCH" },
	{ 0x1c, "BPF_LINK_CREATE" },
	{ 0x1d, "BPF_LINK_UPDATE" },
	{ 0x1e, "BPF_LINK_GET_FD_BY_ID" },
	{ 0x1f, "BPF_LINK_GET_NEXT_ID" },
	{ 0x20, "BPF_ENABLE_STATS" },
	{ 0x21, "BPF_ITER_CREATE" },
	{ 0x22, "BPF_LINK_DETACH" },
	{ 0x23, "BPF_PROG_BIND_MAP" },
};
const struct xlat_table xlat_bpf_cmd = XLAT(x_bpf_cmd, "BPF_???");

static const struct xlat x_perf_flags[] = {
	{ 0x1, "PERF_FLAG_FD_NO_GROUP" },
	{ 0x2, "PERF_FLAG_FD_OUTPUT" },
	{ 0x4, "PERF_FLAG_PID_CGROUP" },
	{ 0x8, "PERF_FLAG_FD_CLOEXEC" },
};
const struct xlat_table xlat_perf_flags = XLAT(x_perf_flags, "PERF_FLAG_???");

static const struct xlat x_ptrace[] = {
	{ 0x0, "PTRACE_TRACEME" },        { 0x1, "PTRACE_PEEKTEXT" },
	{ 0x2, "PTRACE_PEEKDATA" },       { 0x3, "PTRACE_PEEKUSER" },
	{ 0x4, "PTRACE_POKETEXT" },       { 0x5, "PTRACE_POKEDATA" },
	{ 0x6, "PTRACE_POKEUSER" },       { 0x7, "PTRACE_CONT" },
	{ 0x8, "PTRACE_KILL" },           { 0x9, "PTRACE_SINGLESTEP" },
	{ 0xc, "PTRACE_GETREGS" },        { 0xd, "PTRACE_SETREGS" },
	{ 0xe, "PTRACE_GETFPREGS" },      { 0xf, "PTRACE_SETFPREGS" },
	{ 0x10, "PTRACE_ATTACH" },        { 0x11, "PTRACE_DETACH" },
	{ 0x18, "PTRACE_SYSCALL" },       { 0x4200, "PTRACE_SETOPTIONS" },
	{ 0x4201, "PTRACE_GETEVENTMSG" }, { 0x4202, "PTRACE_GETSIGINFO" },
	{ 0x4203, "PTRACE_SETSIGINFO" },  { 0x4204, "PTRACE_GETREGSET" },
	{ 0x4205, "PTRACE_SETREGSET" },   { 0x4206, "PTRACE_SEIZE" },
	{ 0x4207, "PTRACE_INTERRUPT" },   { 0x4208, "PTRACE_LISTEN" },
	{ 0x4209, "PTRACE_PEEKSIGINFO" }, { 0x420a, "PTRACE_GETSIGMASK" },
	{ 0x420b, "PTRACE_SETSIGMASK" },  { 0x420e, "PTRACE_GET_SYSCALL_INFO" },
};
const struct xlat_table xlat_ptrace = XLAT(x_ptrace, "PTRACE_???");

static const struct xlat x_random[] = {
	{ 0x1, "GRND_NONBLOCK" },
	{ 0x2, "GRND_RANDOM" },
	{ 0x4, "GRND_INSECURE" },
};
const struct xlat_table xlat_random = XLAT(x_random, "GRND_???");

static const struct xlat x_rseq[] = {
	{ 0x1, "RSEQ_FLAG_UNREGISTER" },
};
const struct xlat_table xlat_rseq = XLAT(x_rseq, "RSEQ_FLAG_???");

static const struct xlat x_module_init[] = {
	{ 0x1, "MODULE_INIT_IGNORE_MODVERSIONS" },
	{ 0x2, "MODULE_INIT_IGNORE_VERMAGIC" },
	{ 0x4, "MODULE_INIT_COMPRESSED_FILE" },
};
const struct xlat_table xlat_module_init = XLAT(x_module_init, "MODULE_INIT_???");

static const struct xlat x_delete_module[] = {
	{ 0x800, "O_NONBLOCK" },
	{ 0x200, "O_TRUNC" },
};
const struct xlat_table xlat_delete_module = XLAT(x_delete_module, "O_???");

static const struct xlat x_membarrier[] = {
	{ 0x0, "MEMBARRIER_CMD_QUERY" },
	{ 0x1, "MEMBARRIER_CMD_GLOBAL" },
	{ 0x2, "MEMBARRIER_CMD_GLOBAL_EXPEDITED" },
	{ 0x4, "MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED" },
	{ 0x8, "MEMBARRIER_CMD_PRIVATE_EXPEDITED" },
	{ 0x10, "MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED" },
	{ 0x20, "MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE" },
	{ 0x40, "MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE" },
};
const struct xlat_table xlat_membarrier = XLAT(x_membarrier, "MEMBARRIER_CMD_???");

static const struct xlat x_pidfd[] = {
	{ 0x800, "PIDFD_NONBLOCK" },
};
const struct xlat_table xlat_pidfd = XLAT(x_pidfd, "PIDFD_???");

static const struct xlat x_ipc_get[] = {
	{ 0x200, "IPC_CREAT" },
	{ 0x400, "IPC_EXCL" },
	{ 0x800, "IPC_NOWAIT" },
};
const struct xlat_table xlat_ipc_get = XLAT(x_ipc_get, "IPC_???");

static const struct xlat x_ipc_key[] = {
	{ 0x0, "IPC_PRIVATE" },
};
const struct xlat_table xlat_ipc_key = XLAT(x_ipc_key, "");

static const struct xlat x_shm_get[] = {
	{ 0x200, "IPC_CREAT" },
	{ 0x400, "IPC_EXCL" },
	{ 0x800, "SHM_HUGETLB" },
	{ 0x1000, "SHM_NORESERVE" },
};
const struct xlat_table xlat_shm_get = XLAT(x_shm_get, "SHM_???");

static const struct xlat x_ipc_cmd[] = {
	{ 0x0, "IPC_RMID" },
	{ 0x1, "IPC_SET" },
	{ 0x2, "IPC_STAT" },
	{ 0x3, "IPC_INFO" },
};
const struct xlat_table xlat_ipc_cmd = XLAT(x_ipc_cmd, "IPC_???");
