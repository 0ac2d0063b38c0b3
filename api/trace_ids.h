/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers of traces, which no later run of the daemon gives to another: an id, and a place in a stream, that a
 * client kept never lead into a trace that it does not mean. The last one is in a file of the state directory,
 * on the disk before a trace has it. Any thread.
 */
#ifndef API_TRACE_IDS_H
#define API_TRACE_IDS_H

#include "base/err.h"
#include "base/types.h"

struct trace_ids;

/** trace_ids_create - of @state_dir, which is first looked at when a number is asked for; NULL without memory */
struct trace_ids *trace_ids_create(const char *state_dir);
void trace_ids_destroy(struct trace_ids *ids); /* NULL is fine */

/** trace_ids_take - a number that no trace has had; -errno (journal.failed) when it could not be written down */
must_check int trace_ids_take(struct trace_ids *ids, u64 *ret, struct err *err);

/** trace_ids_give_back - @n, which trace_ids_take() gave, became no trace; the next may have it */
void trace_ids_give_back(struct trace_ids *ids, u64 n);

#endif
