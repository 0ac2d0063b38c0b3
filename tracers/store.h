/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The newest records of a trace in memory, for readers: a ring of fixed size, the oldest give way.
 * One thread appends, any number read. Must not know where records come from.
 */
#ifndef TRACERS_STORE_H
#define TRACERS_STORE_H

#include "base/err.h"
#include "base/types.h"
#include "tracers/trace.h"

#define STORE_DEFAULT_RECORDS (256u << 10) /* 8 MiB */
#define STORE_MAX_RECORDS     (64u << 20) /* 2 GiB */

struct store;

struct store_info {
	u64 newest_seq; /* 0: none yet */
	u64 oldest_seq; /* newest_seq + 1: none */
	u64 commless; /* records shown as "<...>" since too many names were in use at a time */
};

/**
 * store_create - room for @records records, rounded up to a power of two; 0 for the default
 * @words: arguments or return value that are kept with each record, 0 .. TRACE_MAX_ARGS; 8 bytes each
 * @stacks: their callers, too: 8 bytes
 * Return: 0; -EINVAL more than STORE_MAX_RECORDS (bad_request); -ENOMEM (no_memory).
 */
must_check int store_create(u32 records, u32 words, bool stacks, struct store **ret,
			    struct err *err);
void store_destroy(struct store *s);
/**
 * store_copy - another one with the records that there are now
 *
 * Whoever appends goes on meanwhile; of records that it overwrites before they were copied the copy has none.
 * Context: any thread. Return: 0; -ENOMEM.
 */
must_check int store_copy(struct store *s, struct store **ret, struct err *err);

/**
 * store_append - add @n records
 * @r: their seq is set here: 1, 2, 3 ... Addresses must lie in the top 4 GiB, as those of records do
 *
 * Context: one thread at a time; holds the readers off for some microseconds at a time.
 */
void store_append(struct store *s, struct trace_record *r, size_t n);

/** store_read - trace_read()'s contract. Context: any thread. */
must_check int store_read(struct store *s, u64 after, struct trace_page *page, struct err *err);

void store_info(struct store *s, struct store_info *ret);

#endif
