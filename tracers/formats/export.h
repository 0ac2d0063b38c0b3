/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records in the formats of other tools. Streaming: memory grows with the functions and tasks that
 * occur, up to limits, never with the records. What a format wants in another order than that of the
 * records (a CPU or a task after the other) waits in a file without a name. The folder's public header.
 *
 * Every format says whose trace it is, its kernel, clock and times, and each loss in the way it has for
 * that; where it has none, in a comment or a name.
 */
#ifndef TRACERS_FORMATS_EXPORT_H
#define TRACERS_FORMATS_EXPORT_H

#include "tracers/formats/spool.h"
#include "tracers/output.h"

struct export;
struct export_ops;

enum export_flags {
	EXPORT_CALLS = 1, /* shows durations alone: not for recordings of the tracer function */
	EXPORT_LATE = 2, /* nothing comes out before export_end() */
	EXPORT_TAR = 4, /* a directory, as one tar archive */
};

struct export_format {
	const char *name; /* as -f and format= have it */
	const char *media_type;
	const char *suffix; /* of a file's name, ".trace.dat" */
	const char *summary;
	unsigned flags; /* enum export_flags */
	const struct export_ops *ops;
};

struct export_opts {
	struct spool_dir tmp; /* where the file without a name goes */
	/*
	 * Of trace.dat alone: the id of the trace.dat of the host that it is to be merged with, whose clock is
	 * CLOCK_MONOTONIC; 0: none
	 */
	u64 host_trace_id;
};

/** export_formats - the table; *@n_ret entries */
const struct export_format *export_formats(size_t *n_ret);
/** export_find - by name; NULL: there is none */
const struct export_format *export_find(const char *name);

/**
 * export_create - a writer of one file
 * @meta: copied; its totals, as far as they are known, are in the head of formats that have one
 *
 * Return: 0; -EINVAL the format has no place for what @meta->tracer records (bad_request); -ENOMEM;
 * -errno the temporary file cannot be made (io). Undo: export_destroy().
 */
must_check int export_create(const struct export_format *f, const struct output_meta *meta,
			     const struct export_opts *opts, struct export **ret, struct err *err);
void export_destroy(struct export *x);

/*
 * In this order: head, records and losses, end until it says false. Each appends to @b, which the
 * caller empties whenever it likes. @names need not outlive the call.
 */
void export_head(struct export *x, struct buf *b);
void export_record(struct export *x, struct buf *b, const struct trace_record *r,
		   const struct output_names *names);
void export_lost(struct export *x, struct buf *b, u64 count);
/** export_totals - what is only known at the end; before export_end(), or not at all */
void export_totals(struct export *x, const struct output_meta *meta);
/** export_end - the next part of what comes last, about 64 KiB; false: that was all */
bool export_end(struct export *x, struct buf *b);

/**
 * export_check - did all of it work so far?
 *
 * Return: 0; -ENOMEM (no_memory); -errno of the temporary file (io), -ENOSPC when it would take what is to be
 * spared: what was written is of no use.
 */
must_check int export_check(const struct export *x, struct err *err);

#endif
