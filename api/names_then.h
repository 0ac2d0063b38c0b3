/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of a trace's addresses as of the time of each record, for whoever formats many of them: a stream, a
 * page of records, an export. Keeps what it was told, as a trace has few distinct addresses.
 */
#ifndef API_NAMES_THEN_H
#define API_NAMES_THEN_H

#include "tracers/output.h"

#define NAMES_THEN_SLOTS 2048u

struct names_then {
	struct output_names names; /* between begin and end */
	struct trace *trace; /* NULL: outside of them, where nothing has a name */
	u64 seq; /* of the record that is being written */
	u64 when; /* trace_names_when() of what is kept */
	bool mixed; /* the records are not all of one time */
	u32 changes;
	struct names_cache cache;
};

/** names_then_init - @n must not move after it. Return: 0; -ENOMEM. Undo: names_then_deinit(). */
must_check int names_then_init(struct names_then *n);
void names_then_deinit(struct names_then *n);

/**
 * names_then_begin - @n->names are good for records of @t, from @first on
 *
 * Context: a user of @t until names_then_end(), which it holds the names' lock until.
 */
void names_then_begin(struct names_then *n, struct trace *t, u64 first);
void names_then_end(struct names_then *n);

/** names_then_at - the next record is @seq; they come in order */
void names_then_at(struct names_then *n, u64 seq);

#endif
