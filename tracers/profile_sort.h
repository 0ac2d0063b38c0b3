/* SPDX-License-Identifier: Apache-2.0 */
/* A profile in an order, and as JSON: what the command and the daemon show of it. */
#ifndef TRACERS_PROFILE_SORT_H
#define TRACERS_PROFILE_SORT_H

#include "tracers/profile.h"

#define PROFILE_KEYS      "total, self, hits, avg, min, max, stddev or name"
#define PROFILE_NAME_TEXT 24

/* A function with what it is called. */
struct profile_line {
	const struct profile_row *row;
	const char *name;
	double key;
};

struct profile_sorted {
	struct profile_line *line;
	size_t n;
	char (*unnamed)[PROFILE_NAME_TEXT]; /* addresses as names */
};

/** profile_is_key - is @key of PROFILE_KEYS? */
bool profile_is_key(const char *key);

/**
 * profile_sort - the rows of @p, the largest @key first; by name for "name" and among equals
 *
 * Return: 0, good until the next profile_add(); -ENOMEM. Undo: profile_sorted_deinit().
 */
must_check int profile_sort(struct profile *p, const char *key, struct profile_sorted *ret);
void profile_sorted_deinit(struct profile_sorted *s);

/** profile_json_row - {"function":"vfs_read","module":null, ...}, no line end */
void profile_json_row(struct buf *b, const struct profile_line *l);

#endif
