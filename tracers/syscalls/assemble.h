/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls out of a stream of entries, captures and returns, task by task. Anything may be missing from
 * the stream. One thread; bounded memory. Must not know rings, nor what calls mean.
 *
 * A task is inside of at most one call. An entry while one is open therefore says that a return was
 * lost: the open one is handed on as unfinished. Everything that comes in is handed on or counted:
 *
 *   entries = calls handed on + open
 *   returns = calls handed on as returned, execve, sigreturn, restarted + orphan_returns
 *
 * A capture that a piece is missing of ends before it, and is truncated; without its first one it failed.
 */
#ifndef TRACERS_SYSCALLS_ASSEMBLE_H
#define TRACERS_SYSCALLS_ASSEMBLE_H

#include "tracers/syscalls/event.h"

enum syscall_input_type {
	SYSCALL_IN_ENTER,
	SYSCALL_IN_CAPTURE,
	SYSCALL_IN_EXIT,
	SYSCALL_IN_NEVER,
	SYSCALL_IN_LOST,
};

#define CAPTURE_GOES_ON UINT32_MAX

/* One record, of any type; members that a type does not name are ignored. */
struct syscall_input {
	u8 type; /* enum syscall_input_type */
	u8 abi; /* ENTER: enum syscall_abi */
	u16 cpu; /* ENTER */
	u32 pid; /* all but LOST */
	u32 tgid; /* ENTER: 0 when not known */
	s32 nr; /* ENTER: orig_ax; -1: not known, the table's is taken */
	u32 uid, cgroup; /* ENTER: as in struct syscall_event */
	u64 seq; /* ENTER */
	u64 ts_ns; /* ENTER */
	u64 ip; /* ENTER, EXIT, NEVER: the handler's call site; 0 in the latter two: any */
	const u64 *args; /* ENTER: six, from struct pt_regs */
	const char *comm; /* ENTER, EXIT; NULL: not known */
	s64 ret; /* EXIT */
	u64 duration_ns; /* EXIT */
	const struct syscall_capture *capture; /* CAPTURE: its off is ignored */
	const u8 *bytes; /* CAPTURE: capture->len of them */
	/* CAPTURE: which of its pieces, or of its strings, it is; CAPTURE_GOES_ON: the next of the last one's */
	u32 number;
	bool open; /* CAPTURE: unless more comes it is not whole */
	bool cut; /* CAPTURE: what would follow of it is not known */
	u64 count; /* LOST: records */
};

struct assemble_counts {
	u64 entries, returns;
	u64 events; /* handed on */
	u64 unfinished; /* of these, as their return was lost, or forgotten for want of room */
	u64 forgotten; /* of unfinished: for want of room; their returns will be orphans */
	u64 unknown_sites; /* entries of a site that is no handler's; not in entries */
	u64 orphan_returns, orphan_captures; /* no call was open */
	u64 captures_left_out;
	u64 lost; /* sum of the losses told */
	u32 open;
};

struct assemble_opts {
	const struct syscall_table *table;
	/* Open at once, at most; 0: 65536. One more makes the oldest unfinished. Memory is taken as it is needed. */
	u32 n_calls;
	u32 data_max; /* bytes of captures a call; 0: SYSCALL_DATA_MAX */
	void (*event)(void *arg, const struct syscall_event *e);
	/* records are missing here; calls open now may be told as unfinished; may be NULL */
	void (*lost)(void *arg, u64 count);
	void *arg;
};

struct assemble;

/** assemble_create - Return: NULL: no memory. Undo: assemble_destroy() */
struct assemble *assemble_create(const struct assemble_opts *opts);
void assemble_destroy(struct assemble *a);

/** assemble_add - the next record; calls event() at most twice. -ENOMEM: its bytes were left out */
must_check int assemble_add(struct assemble *a, const struct syscall_input *in);

/** assemble_open - the call that task @pid is inside of, until the next record; NULL: none known */
const struct syscall_event *assemble_open(struct assemble *a, u32 pid);

/** assemble_finish - hand on what is open as unfinished, oldest first */
void assemble_finish(struct assemble *a);

void assemble_get_counts(const struct assemble *a, struct assemble_counts *ret);

#endif
