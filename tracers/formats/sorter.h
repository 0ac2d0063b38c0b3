/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Beginnings and ends of system calls by time: a recording has a call when it is over. Any number of them
 * in constant memory: sorted runs in a spool, merged in the end. Private to tracers/formats/.
 */
#ifndef TRACERS_FORMATS_SORTER_H
#define TRACERS_FORMATS_SORTER_H

#include "base/err.h"
#include "symbols/syscalls.h"
#include "tracers/trace.h"

struct spool_dir;

enum step_kind {
	STEP_ENTER,
	STEP_EXIT,
	STEP_SWITCH, /* nr: prev_pid */
	STEP_LOST, /* ret: how many */
};

struct sys_step {
	u64 ts_ns;
	u64 order; /* of what has the same time; the sorter's */
	u64 args[SYSCALL_ARGS];
	s64 ret;
	u32 pid, tgid;
	u32 sym;
	s32 nr;
	u16 cpu, ctx;
	u8 kind; /* enum step_kind */
	u8 n_args;
	char comm[TRACE_COMM_LEN];
};

/** sys_step_switch - @r, of type TRACE_SWITCH, as a step */
struct sys_step sys_step_switch(const struct trace_record *r);

struct sorter;

#define SORTER_RUN 32768u /* steps sorted in memory at a time; of a test fewer */

/** sorter_create - @dir: of its spool, see spool_create(). Return: 0; -ENOMEM. Undo: sorter_destroy() */
must_check int sorter_create(const struct spool_dir *dir, u32 run, struct sorter **ret,
			     struct err *err);
void sorter_destroy(struct sorter *s);
/** sorter_add - Return: 0; -errno */
must_check int sorter_add(struct sorter *s, struct sys_step *step);
/** sorter_next - the earliest that is left; nothing is added any more. Return: 1; 0 none; -errno */
must_check int sorter_next(struct sorter *s, struct sys_step *ret);

#endif
