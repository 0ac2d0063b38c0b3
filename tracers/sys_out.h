/* SPDX-License-Identifier: Apache-2.0 */
/* TRACE_SYSCALL records into the forms of tracers/syscalls/output.h: one line a call. One thread. */
#ifndef TRACERS_SYS_OUT_H
#define TRACERS_SYS_OUT_H

#include "tracers/output.h"
#include "tracers/syscalls/output.h"

enum sys_format {
	SYS_TEXT, /* as strace -f -tt -T -o FILE */
	SYS_JSON,
	SYS_FALCO,
	SYS_OCSF,
	SYS_SUMMARY, /* nothing before sys_out_end(): as strace -c */
};

struct sys_out;

/** sys_out_create - @host: the guest's name, copied. Return: NULL: no memory. Undo: sys_out_destroy() */
struct sys_out *sys_out_create(enum sys_format format, const char *host);
void sys_out_destroy(struct sys_out *o);

/** sys_out_layout - before the first record; of the text */
void sys_out_layout(struct sys_out *o, const struct out_layout_opts *opts);
/** sys_out_boot - CLOCK_REALTIME when the guest's trace clock was 0 */
void sys_out_boot(struct sys_out *o, u64 boot_ns);

/** sys_out_record - the line of the call that @r completes, if it does; records of other types are left out */
void sys_out_record(struct sys_out *o, struct buf *b, const struct trace_record *r,
		    const struct output_names *names);
/** sys_out_inside - has a part of a call come, and not all? Who goes on after it would miss the call */
bool sys_out_inside(const struct sys_out *o);
/** sys_out_lost - in the forms that have a place for it */
void sys_out_lost(struct sys_out *o, struct buf *b, u64 count, u64 after_seq);
/** sys_out_end - what only the end tells */
void sys_out_end(struct sys_out *o, struct buf *b);

#endif
