/* SPDX-License-Identifier: Apache-2.0 */
/* Which events are shown: names, classes, results, tasks, paths. Must not know how they come about. */
#ifndef TRACERS_SYSCALLS_FILTER_H
#define TRACERS_SYSCALLS_FILTER_H

#include "base/err.h"
#include "tracers/syscalls/event.h"

struct syscall_filter;

struct syscall_filter_opts {
	/* as strace's -e trace=: "openat", globs "*at", classes "%file", and "!" before any of them;
	 * none means all; with "!" alone: all but those */
	const char *const *calls;
	size_t n_calls;
	bool failed_only;
	const u32 *pids; /* pid or tgid; none means all */
	size_t n_pids;
	const char *comm; /* glob; NULL: any */
	const char *path; /* prefix of any captured path; NULL: any */
	bool by_uid, by_cgroup;
	/* as in struct syscall_event; a cgroup that is not known does not match, a uid does: by_uid is the agent's, too */
	u32 uid, cgroup;
};

/**
 * syscall_filter_create - strings are copied
 * Return: 0; -EINVAL a class that does not exist (bad_request); -ENOMEM. Undo: _destroy()
 */
must_check int syscall_filter_create(const struct syscall_filter_opts *o,
				     struct syscall_filter **ret, struct err *err);
void syscall_filter_destroy(struct syscall_filter *f);

/** syscall_filter_name - are calls of this name wanted? Also says which sites to arm. */
bool syscall_filter_name(const struct syscall_filter *f, const char *name);

/** syscall_filter_match - is this event? */
bool syscall_filter_match(const struct syscall_filter *f, const struct syscall_event *e);

#endif
