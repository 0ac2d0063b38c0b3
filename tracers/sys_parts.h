/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A system call as records: what a store keeps, a recording holds and a stream resumes from. A call that
 * is over becomes a run of TRACE_SYSCALL records with nothing between them:
 *
 *   HEAD     ip the handler's call site, time of entry, task and CPU then; its six arguments
 *   RESULT   time of the end, and the task's comm then; words: ret, duration in ns, a word of
 *            63..32 number, 15..8 abi, 7..0 state; flags; a word of 63..32 cgroup, 31..0 uid; string_max
 *   then for each capture
 *   CAPTURE  words: 7..0 argument, 15..8 what, 23..16 source, 24 truncated, 25 failed;
 *            63..32 full_len, 31..0 count; bytes that follow
 *   BYTES    48 of them each, the last one as many as there are, filled up with 0
 *
 * ctx says which, depth how many of the run are still to come. So the last one's seq is the call's:
 * who goes on after it misses nothing, and who begins inside of a run drops the rest of it.
 */
#ifndef TRACERS_SYS_PARTS_H
#define TRACERS_SYS_PARTS_H

#include "tracers/output.h"
#include "tracers/syscalls/event.h"
#include "tracers/trace.h"

#define SYS_DATA_MAX 8192u /* bytes of the captures of one call */
/* records of one call, at most */
#define SYS_PARTS_MAX (2 + 2 * SYSCALL_CAPTURES + SYS_DATA_MAX / (8 * TRACE_MAX_ARGS))

/** sys_parts_write - @e as records, through @put; their seq is not set */
void sys_parts_write(const struct syscall_event *e, u64 end_ns,
		     void (*put)(void *arg, const struct trace_record *r), void *arg);

/* Back from records. One thread. */
struct sys_reader;

/** sys_reader_create - Return: NULL: no memory. Undo: sys_reader_destroy() */
struct sys_reader *sys_reader_create(void);
void sys_reader_destroy(struct sys_reader *s);

/**
 * sys_reader_add - the next record, of any type
 * @names: the handler's name, and its arguments as its prototype; what it gives must live as long as @s
 *
 * Records may be missing, which their seq shows, or made up by a file. Return: the call that @r completes,
 * valid until the next call; NULL: none.
 */
const struct syscall_event *sys_reader_add(struct sys_reader *s, const struct trace_record *r,
					   const struct output_names *names);

/** sys_reader_inside - is a call's run not over yet? */
bool sys_reader_inside(const struct sys_reader *s);

#endif
