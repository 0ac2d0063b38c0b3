/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events in the forms that others read. Each writes one line an event, and works for any event.
 *
 * NDJSON (out_sys_json), the stable shape; members may be added, never changed. Values of 64 bits are
 * strings. Strings of the guest are valid UTF-8: other bytes become U+FFFD, "hex" then has them all.
 *
 *  {"seq":7,"type":"syscall","ts_ns":12345,"cpu":0,"pid":41,"tgid":41,"comm":"cat","abi":"x86_64",
 *   "nr":257,"syscall":"openat","state":"returned","duration_ns":5000,
 *   "args":[{"index":0,"name":"dfd","type":"int","value":"-100","text":"AT_FDCWD"},
 *           {"index":1,"name":"filename","type":"const char *","value":"0x7ffc0000",
 *            "text":"\"/etc/passwd\"","string":"/etc/passwd","source":"kernel","length":11}],
 *   "ret":"3","ret_text":"3","error":null}
 *
 * state: returned, never_returns, execve, sigreturn, restarted, unfinished. An argument whose memory
 * was captured has "source" (kernel, user_enter, user_exit); "truncated":true when there was more;
 * "unread":true when its memory could not be read. "name" and "type" are the guest's own; null when it
 * does not say. "restart" (always, sa_restart, no_handler, block) is there when state is restarted;
 * "comm_after" after execve; "ret" is null when there is none, or none that user space sees.
 */
#ifndef TRACERS_SYSCALLS_OUTPUT_H
#define TRACERS_SYSCALLS_OUTPUT_H

#include "base/buf.h"
#include "tracers/syscalls/decode.h"

struct out_sys_opts {
	struct decode_opts decode;
	bool pid; /* strace -f: the task first */
	bool cgroup; /* then the id of its cgroup; 0: not known */
	bool time_of_day; /* strace -tt */
	bool duration; /* strace -T */
	u64 boot_ns; /* CLOCK_REALTIME when the guest's trace clock was 0 */
	const char *host; /* the guest's name; NULL: "" */
	const char *version; /* ours, for OCSF's metadata; NULL: HVF_VERSION */
};

/**
 * out_sys_text - as strace 6.1 writes into its -o file
 *
 * Lines are whole, as calls come when they are over, in the order in which the caller hands them over: "<... resumed>" never occurs. What is not known prints as its address. Times are UTC.
 */
void out_sys_text(struct buf *b, const struct syscall_event *e, struct decoded *d,
		  const struct out_sys_opts *o);
/** out_sys_json - see above. @d is scratch space, as for all of them */
void out_sys_json(struct buf *b, const struct syscall_event *e, struct decoded *d,
		  const struct out_sys_opts *o);
/**
 * out_sys_falco - an alert as Falco's JSON output has it: time, rule, priority, source, output_fields
 *
 * Source: falco.org/docs, "Supported Fields for Conditions and Outputs" (evt.*, proc.*, fd.*).
 */
void out_sys_falco(struct buf *b, const struct syscall_event *e, struct decoded *d,
		   const struct out_sys_opts *o);
/**
 * out_sys_ocsf - an event of the Open Cybersecurity Schema Framework 1.3.0 (schema.ocsf.io/1.3.0)
 *
 * process_activity (1007): execve, execveat, exit, exit_group, fork, clone, kill and the like;
 * file_activity (1001): calls of the file class; network_activity (4001): of the network class;
 * kernel_activity (1003): all others.
 */
void out_sys_ocsf(struct buf *b, const struct syscall_event *e, struct decoded *d,
		  const struct out_sys_opts *o);

/* Losses are explicit, in every form that has a place for them. */
void out_sys_text_lost(struct buf *b, u64 count);
void out_sys_json_lost(struct buf *b, u64 count, u64 after_seq);

/* strace -c. Bounded: one row a call. */
struct sys_summary;
struct sys_summary *sys_summary_create(void); /* NULL: no memory */
void sys_summary_destroy(struct sys_summary *s);
/** sys_summary_add - only calls that returned have time. -ENOMEM: it is not counted */
must_check int sys_summary_add(struct sys_summary *s, const struct syscall_event *e);
/** sys_summary_print - sorted by time, as strace -c */
void sys_summary_print(struct sys_summary *s, struct buf *b);

#endif
