/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What /proc says about a VMM's process. The parsers take text, so that they are tested without a
 * process. Must not know guests.
 */
#ifndef VMM_PROC_H
#define VMM_PROC_H

#include "base/err.h"
#include "base/types.h"

/* A line of /proc/PID/maps. */
struct proc_map {
	u64 start, end;
	u64 off; /* in the file */
	u64 inode;
	u32 major, minor; /* of the file's device */
	bool readable, writable, shared;
	char path[64]; /* cut when longer */
};

struct proc_maps {
	struct proc_map *map;
	size_t n;
};

/* Threads of a process, or a subset of them. */
struct vm_threads {
	pid_t *tid;
	size_t n;
};

/** proc_map_parse - one line of /proc/PID/maps; false when it is none */
bool proc_map_parse(const char *line, struct proc_map *ret);

/** proc_stat_parse - state letter and start time (field 22) from the text of a stat file */
bool proc_stat_parse(const char *text, char *state_ret, u64 *start_ret);

/** proc_maps_read - /proc/@pid/maps. Return: 0; -ESRCH; -EACCES; -ENOMEM; -E2BIG. */
must_check int proc_maps_read(pid_t pid, struct proc_maps *ret);
void proc_maps_deinit(struct proc_maps *maps);

/** proc_stat - state and start time of a process (@tid 0) or of one of its threads; -ESRCH */
must_check int proc_stat(pid_t pid, pid_t tid, char *state_ret, u64 *start_ret);

/** proc_comm - name of a thread, printable; "" when it cannot be read */
void proc_comm(pid_t pid, pid_t tid, char *buf, size_t cap);

/** proc_threads - all threads, ascending. Return: 0; -ESRCH; -ENOMEM. */
must_check int proc_threads(pid_t pid, struct vm_threads *ret);
void proc_threads_deinit(struct vm_threads *t);

/** proc_thread_name - what a thread calls itself, up to what is not printable; "" when it cannot be read */
void proc_thread_name(pid_t pid, pid_t tid, char *buf, size_t cap);

/** proc_run_ns - time a thread has spent on a CPU (schedstat, first field); -ESRCH, -ENOTSUP */
must_check int proc_run_ns(pid_t pid, pid_t tid, u64 *ret);

/** proc_count_fds - descriptors of @pid whose link begins with @prefix; -EACCES, -ESRCH */
must_check int proc_count_fds(pid_t pid, const char *prefix);

/** proc_find_fd - what the first such descriptor links to. Return: 0; -ENOENT there is none; -EACCES, -ESRCH. */
must_check int proc_find_fd(pid_t pid, const char *prefix, char *buf, size_t cap);

/** proc_blocks_signal - does the process keep signal @sig for when it asks for it? false when it cannot be seen */
bool proc_blocks_signal(pid_t pid, int sig);

/**
 * proc_holds_peer - does @pid hold the other end of our connected unix socket @fd?
 *
 * By what the kernel says of the socket (sock_diag(7), UDIAG_SHOW_PEER), not by what the peer says.
 * Return: 1, 0; -ENOENT this kernel has no way to tell; -EACCES its descriptors cannot be seen; -ESRCH it has ended;
 * -ENOTCONN nobody holds it any more; -EAGAIN nobody has accepted it yet; another errno when the kernel did not tell,
 * as where AF_NETLINK may not be used.
 */
must_check int proc_holds_peer(pid_t pid, int fd);

/** proc_open_backing - a new description of the file behind @map, by fd or map_files; -ENOENT */
must_check int proc_open_backing(pid_t pid, const struct proc_map *map);

/** proc_exe_name - base name of the executable; "" when it cannot be read */
void proc_exe_name(pid_t pid, char *buf, size_t cap);

/** proc_arg_contains - does a word of the command line contain @needle? */
bool proc_arg_contains(pid_t pid, const char *needle);

/** proc_has_option - does the command line have the words @option and @value, one after the other? */
bool proc_has_option(pid_t pid, const char *option, const char *value);

/** proc_euid - effective user and group of @pid; -ESRCH */
must_check int proc_euid(pid_t pid, uid_t *uid_ret, gid_t *gid_ret);

/** proc_host_tid - our number of the thread that calls itself @inner in its own pid namespace; 0 */
pid_t proc_host_tid(pid_t pid, pid_t inner);

/** proc_thread_group - process that thread @tid belongs to; 0 when there is none */
pid_t proc_thread_group(pid_t tid);

#define _cleanup_maps_    __attribute__((cleanup(proc_maps_deinit)))
#define _cleanup_threads_ __attribute__((cleanup(proc_threads_deinit)))

#endif
