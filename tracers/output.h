/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records as text, JSON and as a file. Streaming: constant memory, whatever the number of records.
 */
#ifndef TRACERS_OUTPUT_H
#define TRACERS_OUTPUT_H

#include "base/buf.h"
#include "base/err.h"
#include "tracers/trace.h"

#include <stdio.h>

/* Who knows names: a live trace, or the tables of a recording. false: unknown. */
struct output_names {
	bool (*sym)(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret);
	void *arg;
	/* prototype of the function with the call site @ip, for arguments and return values; may be NULL */
	bool (*func)(void *arg, u64 ip, struct kernel_func *ret);
	/* name of @val in the enum that @v, of a prototype that func gave, is of; NULL: it has none. May be NULL */
	const char *(*enumerator)(void *arg, const struct kernel_val *v, s64 val);
	/* counts: after a change an address may be another's, a module's that was loaded since; NULL: never */
	const u32 *when;
};

static inline u32 names_when(const struct output_names *names)
{
	return names->when ? *names->when : 0;
}

/* What the head and the end of an output say. */
struct output_meta {
	char tracer[32];
	char guest[64]; /* name or target */
	char release[80];
	u32 vcpus;
	bool stacks; /* trace_opts.stack: records may have callers; a recording of version 4 */
	bool args; /* trace_opts.args: the function tracer's text has "f()" where there are none */
	u64 started_ns; /* host CLOCK_REALTIME */
	u64 boot_ns; /* the same when the guest's trace clock was 0; 0: not known */
	s64 zero_mono_ns; /* trace_info's; 0: not known */
	u64 n_records, n_lost;
	u64 n_functions, n_restored;
	bool restored; /* everything put back and verified */
	bool missed_forks, missed_switches; /* trace_info's */
	u64 n_unnamed; /* times that something said OUTPUT_SHARED_NAME instead of an address */
};

/*
 * A recording or an export takes down at most so many addresses, some times what a kernel with all its modules has
 * of call sites. Whatever a guest makes up beyond that is one symbol, which is called what happened.
 */
#define OUTPUT_ADDRS_MAX   (1u << 19)
#define OUTPUT_NAMES_MAX   (128u << 20) /* bytes for them and their names, about */
#define OUTPUT_SHARED_NAME "too_many_addresses"
#define OUTPUT_SHARED_ADDR 0xffffffff00000000 /* where no kernel has anything */

/*
 * A cache in front of another output_names, for whoever formats many records: a record costs two
 * look-ups and perhaps a prototype, and a trace has few distinct addresses. Bounded; one thread. Kept
 * names must stay valid until below->when changes, which empties it.
 */
#define NAMES_CACHE_SLOTS 8192u
#define NAMES_CACHE_FUNCS 1024u
struct names_cache {
	struct output_names below;
	u32 n_slots, n_funcs; /* powers of two */
	u32 when;
	struct names_cache_slot {
		u64 addr; /* 0: empty */
		u64 off;
		struct kernel_sym sym; /* name NULL: known to be unknown */
	} * slots;
	struct names_cache_func {
		u64 ip; /* 0: empty */
		bool known;
		struct kernel_func func;
	} * funcs; /* made when the first is asked for */
};

/**
 * names_cache_init - @ret works like @below
 * @slots: a power of two, NAMES_CACHE_SLOTS for whoever is alone
 *
 * Return: 0; -ENOMEM. Undo: names_cache_deinit().
 */
must_check int names_cache_init(struct names_cache *c, const struct output_names *below, u32 slots,
				struct output_names *ret);
void names_cache_deinit(struct names_cache *c);

/**
 * out_text_head / out_text_record - the layout of the kernel's `function` tracer, byte for byte
 *
 * @meta->n_records and n_lost make the "entries-in-buffer/entries-written: kept/all" line, as far as
 * they are known (0/0 at the start of a live trace). Deviations: see out_text.c.
 * Source: Linux v6.1 kernel/trace/trace.c print_func_help_header_irq(), trace_output.c
 */
void out_text_head(struct buf *b, const struct output_meta *meta);
void out_text_record(struct buf *b, const struct trace_record *r, const struct output_names *names);
/** out_text_record_args - out_text_record(), with "()" behind functions without arguments */
void out_text_record_args(struct buf *b, const struct trace_record *r,
			  const struct output_names *names);
/** out_text_flags - the five latency columns of a record's context (AGENT_CTX_*), no NUL */
void out_text_flags(u16 ctx, char flags_ret[5]);

/*
 * The text layout of a whole stream, by meta->tracer: `function` as above, or the kernel's
 * `function_graph`, which shows a call without callees as one line and so looks ahead. Deviations:
 * see out_graph.c. One thread; memory is bounded.
 *
 * Context: @names must be good for all records that are not flushed. out_layout_flush() writes what
 * is held back: at the end, and when the reader should not wait for the next record.
 */
struct out_layout;
must_check int out_layout_create(const struct output_meta *meta, struct out_layout **ret,
				 struct err *err);
void out_layout_destroy(struct out_layout *l);

/* The kernel's options of the same names; all off is the kernel's default. function_graph's text, and syscalls' */
struct out_layout_opts {
	bool latency; /* latency-format: irqs-off, need-resched, context, preempt depth and so on */
	bool abstime; /* funcgraph-abstime */
	bool proc; /* funcgraph-proc */
	bool tail; /* funcgraph-tail: the function's name behind every "}" */
	bool retaddr; /* funcgraph-retaddr (v6.13): where a call was made */
	bool cgroup; /* of system calls: the id of the task's cgroup behind its own; the kernel has no such option */
};

/* The names of these options, for messages. */
#define OUT_LAYOUT_OPTIONS \
	"latency-format, funcgraph-abstime, funcgraph-proc, funcgraph-tail, funcgraph-retaddr or cgroup"

/** out_layout_option - turn on the option with the kernel's name @name, @len bytes; false: none has it */
bool out_layout_option(struct out_layout_opts *opts, const char *name, size_t len);

/** out_layout_set - before the head */
void out_layout_set(struct out_layout *l, const struct out_layout_opts *opts);
void out_layout_head(const struct out_layout *l, struct buf *b, const struct output_meta *meta);
void out_layout_record(struct out_layout *l, struct buf *b, const struct trace_record *r,
		       const struct output_names *names);
void out_layout_flush(struct out_layout *l, struct buf *b, const struct output_names *names);
/** out_layout_forget - what is held back must not point into its trace any more, which is gone */
void out_layout_forget(struct out_layout *l);
/** out_layout_holds - is anything held back? */
bool out_layout_holds(const struct out_layout *l);
/** out_layout_lost - "[LOST n EVENTS]", after what is held back */
void out_layout_lost(struct out_layout *l, struct buf *b, u64 count,
		     const struct output_names *names);

/* One NDJSON line a record, e.g.
 * {"seq":1,"type":"function","ts_ns":12345,"cpu":0,"pid":1,"tgid":1,"comm":"init",
 *  "function":"vfs_read","module":null,"ip":"0xffff...","parent":"ksys_read+0x5f","context":"...1."}
 * ts_ns is a number: ns since the guest's boot stay below 2^53 for 104 days; addresses are strings.
 * The types graph_entry, graph_return and graph_never have "depth" as well, graph_return has
 * "duration_ns", and null for its parent.
 *
 * "args", where they were recorded (function, graph_entry), is an array in the prototype's order:
 *   {"name":"count","type":"size_t","value":"0x1000","text":"0x1000"}
 * value is the parameter's own bits in hex, two words as "0x1:0x2", null when it was not passed in a
 * register; text as the text layout has it: a signed number or an enum as decimal, "..." for null. An
 * enumerator's name is behind its number, which the text layout has alone: "1 (PIDTYPE_TGID)". A pointer's type is "file *". Without a prototype name and type are null.
 * "retval", where it was recorded (graph_return): {"type":"int","value":"0xfffffffe","text":"-2 (ENOENT)"}
 * text: an error's number and name; else a signed number as decimal, anything else as value.
 *
 * "stack", where it was recorded (trace_opts.stack), is an array of the callers, the nearest first, each as
 * "parent" is: ["ksys_read+0x6f","do_syscall_64+0x5b"]
 *
 * A task switch (trace_opts.switches; pid, tgid and comm are those of the task that runs now):
 * {"seq":2,"type":"switch","ts_ns":12345,"cpu":0,"pid":7,"tgid":7,"comm":"sh","prev_pid":0,"context":"d..2."}
 * trace_set_graph(): {"seq":3,"type":"tracer","ts_ns":12345,"tracer":"function_graph"}
 *
 * tgid is null when not known. A name that is not known is its address; "parent" of a module's
 * function ends in " [module]", as in a backtrace. */
void out_json_record(struct buf *b, const struct trace_record *r, const struct output_names *names);
/* @after_seq: the record before; @seq: where one goes on, past those lost if they have numbers */
void out_json_lost(struct buf *b, u64 count, u64 after_seq, u64 seq);
void out_json_end(struct buf *b, const struct output_meta *meta, const char *reason);
void out_json_string(struct buf *b, const char *s,
		     size_t len); /* quoted, escaped, invalid UTF-8 replaced */

/* Recordings. Chunks: metadata first, names before their first use, an end with the totals. A file
 * that was cut (kill -9) is readable up to the cut and says so. */
struct rec_writer;
must_check int rec_writer_create(const struct output_meta *meta, struct rec_writer **ret,
				 struct err *err);
void rec_writer_destroy(struct rec_writer *w);
/*
 * Append to @out what @r needs (names, comm) and the record itself. @out is the writer's alone; before it is
 * sent comes rec_writer_whole(), and then it is emptied as a whole (buf_reset()): never send a part of it and
 * then add. Batches make small files. After _head, _lost and _end it is whole without.
 */
void rec_writer_add(struct rec_writer *w, struct buf *out, const struct trace_record *r,
		    const struct output_names *names);
void rec_writer_whole(struct rec_writer *w, struct buf *out);
void rec_writer_head(struct rec_writer *w, struct buf *out);
void rec_writer_lost(struct rec_writer *w, struct buf *out, u64 count);
void rec_writer_end(struct rec_writer *w, struct buf *out, const struct output_meta *meta);

struct rec_reader;
must_check int rec_reader_open(const char *path, struct rec_reader **ret, struct err *err);
/** rec_reader_open_file - the same of what is open, a pipe for example; @file is the reader's, also on failure */
must_check int rec_reader_open_file(FILE *file, struct rec_reader **ret, struct err *err);
must_check int rec_reader_open_mem(const void *data, size_t len, struct rec_reader **ret,
				   struct err *err);
void rec_reader_close(struct rec_reader *r);
/**
 * rec_reader_totals - have rec_reader_meta() with the totals, without reading all of it, where it has an index
 *
 * Right after rec_reader_open(); the reader is of no use then but for rec_reader_meta(). Return: 1; 0 it
 * must be read; negative as rec_reader_next().
 */
must_check int rec_reader_totals(struct rec_reader *r, struct err *err);
const struct output_meta *rec_reader_meta(const struct rec_reader *r); /* totals once at the end */
struct output_names rec_reader_names(struct rec_reader *r);
enum rec_kind {
	REC_RECORD,
	REC_LOST,
	REC_END,
	REC_CUT
};
/* Next item; REC_LOST puts its count into @rec->seq. -EBADMSG (file.format) on damage. */
must_check int rec_reader_next(struct rec_reader *r, enum rec_kind *kind_ret,
			       struct trace_record *rec, struct err *err);

#endif
