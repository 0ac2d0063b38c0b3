/* SPDX-License-Identifier: Apache-2.0 */
/* Names of values: one line a fact, in flags_*.c. Private to tracers/syscalls/. */
#ifndef TRACERS_SYSCALLS_XLAT_H
#define TRACERS_SYSCALLS_XLAT_H

#include "base/types.h"

struct xlat {
	u64 val;
	const char *name;
};

struct xlat_table {
	const struct xlat *x;
	size_t n;
	const char *unknown; /* what a value without a name is called: "O_???" */
};

#define XLAT(table, unknown_name)                      \
	{                                              \
		table, ARRAY_SIZE(table), unknown_name \
	}

extern const struct xlat_table xlat_accmode;
extern const struct xlat_table xlat_open;
extern const struct xlat_table xlat_pipe;
extern const struct xlat_table xlat_access;
extern const struct xlat_table xlat_at;
extern const struct xlat_table xlat_at_access;
extern const struct xlat_table xlat_at_statx;
extern const struct xlat_table xlat_statx_mask;
extern const struct xlat_table xlat_file_type;
extern const struct xlat_table xlat_whence;
extern const struct xlat_table xlat_fcntl_cmd;
extern const struct xlat_table xlat_fd_flags;
extern const struct xlat_table xlat_seals;
extern const struct xlat_table xlat_lock_type;
extern const struct xlat_table xlat_flock;
extern const struct xlat_table xlat_dnotify;
extern const struct xlat_table xlat_falloc;
extern const struct xlat_table xlat_splice;
extern const struct xlat_table xlat_sync_range;
extern const struct xlat_table xlat_rwf;
extern const struct xlat_table xlat_fadvise;
extern const struct xlat_table xlat_xattr;
extern const struct xlat_table xlat_rename;
extern const struct xlat_table xlat_mount;
extern const struct xlat_table xlat_umount;
extern const struct xlat_table xlat_open_tree;
extern const struct xlat_table xlat_move_mount;
extern const struct xlat_table xlat_fsopen;
extern const struct xlat_table xlat_fsmount;
extern const struct xlat_table xlat_inotify;
extern const struct xlat_table xlat_inotify_init;
extern const struct xlat_table xlat_close_range;
extern const struct xlat_table xlat_memfd;
extern const struct xlat_table xlat_epoll_create;
extern const struct xlat_table xlat_epoll_op;
extern const struct xlat_table xlat_epoll_events;
extern const struct xlat_table xlat_poll_events;
extern const struct xlat_table xlat_eventfd;
extern const struct xlat_table xlat_signalfd;
extern const struct xlat_table xlat_timerfd;
extern const struct xlat_table xlat_uring_enter;
extern const struct xlat_table xlat_fs_magic;
extern const struct xlat_table xlat_st_flags;
extern const struct xlat_table xlat_prot;
extern const struct xlat_table xlat_map_type;
extern const struct xlat_table xlat_map;
extern const struct xlat_table xlat_msync;
extern const struct xlat_table xlat_mremap;
extern const struct xlat_table xlat_mlock2;
extern const struct xlat_table xlat_mlockall;
extern const struct xlat_table xlat_madvise;
extern const struct xlat_table xlat_clone;
extern const struct xlat_table xlat_unshare;
extern const struct xlat_table xlat_wait;
extern const struct xlat_table xlat_waitid;
extern const struct xlat_table xlat_waitid_type;
extern const struct xlat_table xlat_futex_op;
extern const struct xlat_table xlat_prctl;
extern const struct xlat_table xlat_arch_prctl;
extern const struct xlat_table xlat_rlimit;
extern const struct xlat_table xlat_rusage;
extern const struct xlat_table xlat_prio_which;
extern const struct xlat_table xlat_clock;
extern const struct xlat_table xlat_timer_flags;
extern const struct xlat_table xlat_itimer;
extern const struct xlat_table xlat_sched;
extern const struct xlat_table xlat_sig_how;
extern const struct xlat_table xlat_sa_flags;
extern const struct xlat_table xlat_ss_flags;
extern const struct xlat_table xlat_seccomp_op;
extern const struct xlat_table xlat_seccomp_flags;
extern const struct xlat_table xlat_seccomp_mode;
extern const struct xlat_table xlat_bpf_cmd;
extern const struct xlat_table xlat_perf_flags;
extern const struct xlat_table xlat_ptrace;
extern const struct xlat_table xlat_random;
extern const struct xlat_table xlat_rseq;
extern const struct xlat_table xlat_module_init;
extern const struct xlat_table xlat_delete_module;
extern const struct xlat_table xlat_membarrier;
extern const struct xlat_table xlat_pidfd;
extern const struct xlat_table xlat_ipc_get;
extern const struct xlat_table xlat_ipc_key;
extern const struct xlat_table xlat_shm_get;
extern const struct xlat_table xlat_ipc_cmd;
extern const struct xlat_table xlat_shm_at;
extern const struct xlat_table xlat_msg_flags;
extern const struct xlat_table xlat_keyctl;
extern const struct xlat_table xlat_personality;
extern const struct xlat_table xlat_uffd;
extern const struct xlat_table xlat_af;
extern const struct xlat_table xlat_sock_type;
extern const struct xlat_table xlat_sock_flags;
extern const struct xlat_table xlat_ipproto;
extern const struct xlat_table xlat_netlink;
extern const struct xlat_table xlat_msg;
extern const struct xlat_table xlat_shutdown;
extern const struct xlat_table xlat_sol;
extern const struct xlat_table xlat_so;
extern const struct xlat_table xlat_tcp;
extern const struct xlat_table xlat_ip;
extern const struct xlat_table xlat_ipv6;
extern const struct xlat_table xlat_nl_opt;
extern const struct xlat_table xlat_ioctl;

/** xlat_name - the name of @val; NULL: none */
const char *xlat_name(const struct xlat_table *t, u64 val);

#endif
