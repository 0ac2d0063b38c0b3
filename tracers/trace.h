/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace: chosen functions of one guest, armed, drained and kept in memory for readers. The
 * folder's public header. Must not know HTTP.
 */
#ifndef TRACERS_TRACE_H
#define TRACERS_TRACE_H

#include "base/err.h"
#include "base/types.h"
#include "patcher/guest.h"

#include <string.h>

struct ring_capture;
struct trace;

#define TRACE_COMM_LEN 16

enum trace_type {
	TRACE_FUNCTION = 1, /* under function_graph: a call that could not be followed */
	TRACE_GRAPH_ENTRY,
	TRACE_GRAPH_RETURN,
	TRACE_GRAPH_NEVER, /* an entry's function will never return: its task ended inside */
	TRACE_SWITCH, /* opts.switches: @cpu turned from task @prev_pid to @pid; no function */
	TRACE_TRACER, /* trace_set_graph(): those after it are function_graph's if @depth, else function's */
	TRACE_SYSCALL, /* syscalls: a part of a call; see tracers/sys_parts.h */
	TRACE_MARKER, /* trace_mark(): a text from the host, of no task */
};

#define TRACE_MAX_ARGS 6

/* Who called. The kernel's and its modules' text lies in the top 2 GiB. */
struct trace_stack {
	u32 n;
	u32 low[]; /* lower halves of return addresses, the nearest first */
};

static inline u64 trace_stack_addr(const struct trace_stack *s, u32 i)
{
	return (u64)(s64)(s32)s->low[i];
}

/* A decoded record. Times are the guest's trace clock, ns since its boot. */
struct trace_record {
	u64 seq; /* 1, 2, 3 ... over the whole trace, all vCPUs */
	u64 ts_ns;
	u64 ip; /* the function's call site */
	u64 parent; /* return address into the caller; 0 in TRACE_GRAPH_RETURN */
	u64 duration_ns; /* TRACE_GRAPH_RETURN */
	u32 pid;
	u32 tgid; /* 0 when not known */
	u16 cpu;
	u16 ctx; /* AGENT_CTX_* */
	u16 depth; /* graph: 0 for the outermost traced call of its task */
	u8 type; /* enum trace_type */
	u8 n_args; /* words in args */
	bool has_retval;
	u32 prev_pid; /* TRACE_SWITCH; TRACE_MARKER: which, before it has its text */
	const char *text; /* TRACE_MARKER; as good as the trace or reader it came from */
	s32 nr; /* TRACE_GRAPH_ENTRY of a system call: orig_ax; -1: not known */
	u64 args[TRACE_MAX_ARGS]; /* as passed in registers; entry and function records */
	u64 retval; /* rax, as much of it as the type has is meaningful */
	/* the record's callers, if its function is of those of opts.stack; else NULL. Lives as long as the trace */
	const struct trace_stack *stack;
	/* nr, nr32, who and capture: between drain and trace alone */
	bool nr32; /* nr is of the 32-bit ABI */
	u64 who; /* 63..32 low half of the cgroup's id or 0, 31..0 uid or UINT32_MAX */
	const struct ring_capture
		*capture; /* TRACE_FUNCTION, GRAPH_ENTRY; valid during the callback; or NULL */
	char comm[TRACE_COMM_LEN + 1]; /* "<...>" when not known */
};

/**
 * trace_record_clear - all 0
 *
 * Each record is made twice on its way. A compiler that knows how long one is takes "rep stos", whose beginning
 * alone takes longer than the C library's memset().
 */
static inline void trace_record_clear(struct trace_record *r)
{
	size_t len = sizeof(*r);

	__asm__("" : "+r"(len));
	memset(r, 0, len);
}

#define TRACE_MAX_STACK_SITES 1000 /* functions of opts.stack */

enum trace_state {
	TRACE_RUNNING,
	TRACE_STOPPED,
	TRACE_FAILED
};

struct trace_opts {
	const char *tracer; /* "function", "function_graph", "syscalls" */
	/* syscalls: names of calls as strace's -e trace= has them: globs, "%file", "!" before any */
	/*
	 * Of each list of globs 256 may have wildcards; the others are names, or NAME:mod:GLOB, as many as one
	 * likes: each wildcard is compared with every function while the guest is locked.
	 */
	const char *const *filter; /* globs; ":mod:NAME" for a module's; none means everything */
	size_t n_filter;
	const char *const *notrace;
	size_t n_notrace;
	const u32 *pids;
	size_t n_pids;
	/* function_graph */
	const char *const *graph; /* -g: globs; only these and what they call */
	size_t n_graph;
	const char *const *graph_notrace; /* globs; not these, nor what they call */
	size_t n_graph_notrace;
	u32 max_depth; /* levels; 0: all */
	u64 threshold_ns; /* tracing_thresh: only calls that took as long, told when they return */
	bool no_irqs; /* funcgraph-irqs off */
	/* sleep-time off: durations without the time that the task was switched out. Where a task switch
	 * was lost, the sleep it began or ended is not left out. */
	bool no_sleep_time;
	/*
	 * func_stack_trace: globs; records of these functions have their callers. At most TRACE_MAX_STACK_SITES
	 * functions: it takes microseconds a call. Under a threshold their returns have them.
	 */
	const char *const *stack;
	size_t n_stack;
	u32 stack_depth; /* callers; 0: as many as there can be */
	bool retval; /* funcgraph-retval */
	bool args; /* func-args, funcgraph-args; the function tracer too */
	bool switches; /* task switches are told, too: TRACE_SWITCH of all CPUs, whatever the pids */
	/* syscalls: only calls that returned an error, of tasks so called (glob), with such a path's beginning */
	bool failed_only;
	const char *comm, *path; /* NULL: any */
	bool by_uid, by_cgroup;
	u32 uid;
	u64 cgroup; /* id of a cgroup v2 */
	bool follow_forks; /* of pids all threads, and what they fork */
	bool fd_paths; /* what descriptors are of */
	bool env; /* the environment that programs are started with, not only how many there are */
	bool raw; /* numbers alone: nothing that arguments point to */
	u32 string_max; /* bytes of buffers and strings; 0: 32. Paths are as long as they are */
	bool overwrite; /* flight recorder: the newest records win */
	u32 buffer_records; /* kept for readers; 0 for the default */
};

struct trace_info {
	enum trace_state state;
	const char *tracer;
	size_t n_functions; /* armed */
	size_t n_skipped; /* matched but left alone: in use by the guest, disabled, denied */
	/* traced without all that options ask of them (callers, roots ...): their modules came when there was no room */
	size_t n_unheeded;
	u64 n_taken; /* sites that the guest's own tracing took over meanwhile, added up */
	/*
	 * The guest's own tracing has had, for a while, what tells forks and ends of followed tasks, or task
	 * switches: children may be followed late or not at all; sleeps are not left out of durations, switches not told
	 */
	bool missed_forks, missed_switches;
	u64 n_records; /* so far; the newest seq */
	u64 oldest_seq; /* the oldest that a reader can still have */
	bool paused; /* trace_set_recording(): sites are armed, nothing is recorded */
	u64 n_lost; /* all kinds together */
	u64 lost_ring; /* ring full in the guest, or overwritten there before they were read */
	u64 lost_torn; /* records whose check failed */
	/* not in n_lost: of syscalls, pieces of what arguments point to that there was no room for on the host */
	u64 lost_captures;
	/* under a threshold n_returns alone counts: those that took as long; the others stay 0 */
	u64 n_entries, n_returns,
		n_never; /* function_graph: entries = returns + never + lost_returns +
					      those still inside (n_inside) */
	u64 n_inside; /* calls that have not returned yet, or had not when it was stopped */
	u64 lost_returns; /* in lost_ring */
	u64 lost_frames; /* calls not followed; their records are TRACE_FUNCTION */
	u64 frame_errors; /* returns from another stack address than the entry's */
	/* of opts.stack: records that were to have callers and have none; calls that the unwinder itself made,
	 * and that interrupted it by NMI, which are not traced */
	u64 lost_stacks, n_skipped_calls;
	/* syscalls; calls are over: kept = n_calls, entries = n_calls + n_filtered + those still inside */
	u64 n_calls, n_filtered;
	u64 n_unfinished; /* of both: their return was lost, or nothing followed it */
	u64 n_forgotten; /* of n_unfinished: more were open at once than the host keeps */
	u64 n_orphans; /* captures and returns without a call: its entry was lost, or the kernel's own doing */
	/* host CLOCK_REALTIME when the guest's trace clock was 0, to some ms; 0 before the first record */
	u64 boot_ns;
	/*
	 * Host CLOCK_MONOTONIC when the guest's trace clock was 0: the earliest that a record's time and that of
	 * its reading allow, so too late by the shortest of those delays, some 1 ms; 0 before the first record
	 */
	s64 zero_mono_ns;
	u64 started_ns, stopped_ns; /* host CLOCK_REALTIME; stopped_ns 0 while running */
	struct guest_restore restore; /* once stopped */
	struct err error; /* TRACE_FAILED: why */
};

/**
 * trace_start - choose the functions, load the agent if need be, arm the sites, start draining
 *
 * Return: 0; -ENOENT a glob matches nothing (filter.no_match); -ESRCH a pid does not exist in the
 * guest (filter.no_such_pid); -EBUSY the guest has a trace (trace.limit); -EINVAL options that do not go
 * together, too many wildcards (bad_request); or what the patcher returns. On failure nothing stays armed.
 */
must_check int trace_start(struct guest *g, const struct trace_opts *opts, struct trace **ret,
			   struct err *err);

/**
 * trace_set_graph - turn a running trace over to function_graph, or back to function
 *
 * The sites stay armed, nothing is lost. In the stream a TRACE_TRACER stands between the records of one
 * and of the other. Calls that are open when returns are given up get no TRACE_GRAPH_RETURN any more
 * (nor NEVER, as they do return): they stay in trace_info.n_inside; depths begin anew with the next
 * turn. What the patcher could not put back yet may still return, and is told.
 *
 * Context: any thread; waits until what was recorded before is in the store. Return: 0, also when it is
 * so already; -EINVAL an option of the trace needs function_graph (bad_request); -EBUSY it was stopped, or has failed
 * (conflict); -ETIMEDOUT it is done, but not all of the earlier records are read yet; what
 * tracing_collect() and tracing_set_graph() return.
 */
must_check int trace_set_graph(struct trace *t, bool on, struct err *err);

/**
 * trace_set_recording - record from now on, or no more; sites stay armed, as with tracing_on
 *
 * Calls that are open when it is turned off still return through the agent, and are told.
 * Return: 0, also when it is so already; -EBUSY it was stopped, or has failed (conflict); what
 * tracing_set_enabled() returns.
 */
must_check int trace_set_recording(struct trace *t, bool on, struct err *err);

/**
 * trace_set_filter - go on with other functions and tasks
 * @opts: all of the trace's options, with another filter, notrace or pids
 *
 * Between, for as long as two rounds of patching take, nothing is recorded. Chosen first: when that fails
 * nothing has changed. When arming fails nothing is armed any more, and the trace goes on without functions.
 * Return: 0; -EBUSY it was stopped, or has failed (conflict); -EINVAL it is one of system calls (bad_request); what
 * trace_start() returns.
 */
must_check int trace_set_filter(struct trace *t, const struct trace_opts *opts, struct err *err);

#define TRACE_MARKER_MAX  255 /* bytes of a marker */
#define TRACE_MAX_MARKERS 4096 /* of a trace */

/**
 * trace_mark - put a text into the trace, between its records
 * @host_ns: CLOCK_REALTIME of it, not in the future; how it fits the guest's clock is known to some ms
 *
 * It comes to readers within the drain's next rounds; before the first record, with that.
 * Return: 0; -EBUSY it was stopped (conflict); -ENOSPC it has too many (trace.markers); -ENOMEM.
 */
must_check int trace_mark(struct trace *t, const char *text, u64 host_ns, struct err *err);

/**
 * trace_snapshot - what is kept of a trace now, as a trace of its own that is stopped
 *
 * Return: 0; -ENOMEM. Undo: trace_destroy(), before the guest is detached.
 */
must_check int trace_snapshot(struct trace *t, struct trace **ret, struct err *err);

/** trace_stop - disarm, drain what is left; records stay readable. Stopping twice is fine. */
must_check int trace_stop(struct trace *t, struct err *err);

/** trace_destroy - stop if need be and free; the guest stays attached */
void trace_destroy(struct trace *t);

/** trace_get_info - a snapshot. Context: any thread. */
void trace_get_info(struct trace *t, struct trace_info *ret);

/* What a read gives. */
struct trace_page {
	struct trace_record *buf; /* in: room for @max records */
	size_t max;
	size_t n; /* out: read into @buf */
	u64 oldest_seq; /* out: the oldest kept, also on -ESTALE */
};

/**
 * trace_read - records after a sequence number
 * @after: 0 for the oldest kept
 * @page:  n 0 with return 0 means "none yet", or the end when the trace is stopped
 *
 * Context: any thread; does not block. Return: 0; -ESTALE the record after @after was overwritten
 * (records.gone): oldest_seq says where to go on.
 */
must_check int trace_read(struct trace *t, u64 after, struct trace_page *page, struct err *err);

/**
 * trace_set_notify - call @fn from the drain thread when there are new records or the state changed
 * @fn: NULL for none; must not block; one at a time
 */
void trace_set_notify(struct trace *t, void (*fn)(void *arg), void *arg);

/** trace_sym - name of @addr for output: function, module (NULL) and offset; false when unknown. Context: as
 * trace_sym_then() */
bool trace_sym(struct trace *t, u64 addr, struct kernel_sym *ret, u64 *off_ret);

/**
 * trace_sym_then - the same for record number @seq: a module may have been unloaded or replaced since
 *
 * Context: between trace_names_lock() and trace_names_unlock(), which strings in *ret are valid until.
 */
bool trace_sym_then(struct trace *t, u64 seq, u64 addr, struct kernel_sym *ret, u64 *off_ret);
/**
 * trace_names_when - what trace_sym_then() says for @seq it says for all records for which this is the same
 *
 * It never goes back with growing @seq. Strings of names stay valid until it changes. Context: as trace_sym_then()
 */
u64 trace_names_when(struct trace *t, u64 seq);
void trace_names_lock(struct trace *t);
void trace_names_unlock(struct trace *t);

/** trace_func - prototype of the function with the call site @ip, for output; false when unknown. Context: as
 * trace_sym_then() */
bool trace_func(struct trace *t, u64 ip, struct kernel_func *ret);
/** trace_func_then - the same for record number @seq */
bool trace_func_then(struct trace *t, u64 seq, u64 ip, struct kernel_func *ret);

/** trace_enumerator - name of @val in the enum that @v of trace_func() is of; NULL: it has none */
const char *trace_enumerator(struct trace *t, const struct kernel_val *v, s64 val);

/** trace_guest - the guest that @t traces */
struct guest *trace_guest(struct trace *t);

#endif
