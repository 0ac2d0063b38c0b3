/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of a trace's addresses as of the time of each record, for whoever formats many of them: a stream, a
 * page of records, an export. What was found is kept with the trace, as it has few distinct addresses, and all
 * that format its records ask for the same ones.
 */
#ifndef API_NAMES_THEN_H
#define API_NAMES_THEN_H

#include "tracers/output.h"

struct names_kept;
struct trace_entry;

struct names_then {
	struct output_names names; /* between begin and end */
	struct trace *trace; /* NULL: outside of them */
	struct names_kept
		*kept; /* ours for the time between; NULL: somebody else has it, or there is none */
	u64 seq; /* of the record that is being written */
	u64 when; /* trace_names_when() of what was told last */
	bool mixed; /* the records are not all of one time */
	u32 changes;
};

/** names_then_init - @n must not move after it */
void names_then_init(struct names_then *n);

/**
 * names_then_begin - @n->names are good for records of @t, from @first on
 *
 * Waits for nobody else's formatting. Context: a user of @t until names_then_end(), which it holds the names'
 * lock until.
 */
void names_then_begin(struct names_then *n, struct trace_entry *t, u64 first);
void names_then_end(struct names_then *n);

/** names_then_at - the next record is @seq; they come in order */
void names_then_at(struct names_then *n, u64 seq);

/** names_kept_destroy - with the trace; NULL is fine */
void names_kept_destroy(struct names_kept *k);

#endif
