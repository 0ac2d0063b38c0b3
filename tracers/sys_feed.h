/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From what the agent records of system calls to calls as a whole: entries, returns and captures in, runs
 * of TRACE_SYSCALL out. One thread. Must not know rings, nor who reads.
 */
#ifndef TRACERS_SYS_FEED_H
#define TRACERS_SYS_FEED_H

#include "tracers/sys_arm.h"
#include "tracers/trace.h"

struct sys_feed;

struct sys_feed_opts {
	const struct syscall_table *table; /* must live as long as the feed */
	const struct syscall_filter *filter; /* the same */
	const struct sys_program *programs; /* copied */
	size_t n_programs;
	u32 string_max; /* for the reader; 0: the decoder's default */
	void (*put)(void *arg, const struct trace_record *r); /* TRACE_SYSCALL */
	void *arg;
};

struct sys_feed_counts {
	u64 calls; /* handed on */
	u64 filtered; /* over, but not asked for */
	u64 unfinished; /* of both: their return was lost */
	u64 forgotten; /* of unfinished: more were open than there is room for */
	u64 captures_left_out; /* pieces that their call had no room for */
	u64 orphans; /* captures and returns without a call: its entry was lost, or the kernel's own doing */
};

/** sys_feed_create - Return: 0; -ENOMEM. Undo: sys_feed_destroy() */
must_check int sys_feed_create(const struct sys_feed_opts *o, struct sys_feed **ret,
			       struct err *err);
void sys_feed_destroy(struct sys_feed *f);

/** sys_feed_add - the next record of drain's */
void sys_feed_add(struct sys_feed *f, const struct trace_record *r);

/** sys_feed_finish - calls that are still open go out as unfinished */
void sys_feed_finish(struct sys_feed *f);

void sys_feed_get_counts(const struct sys_feed *f, struct sys_feed_counts *ret);

#endif
