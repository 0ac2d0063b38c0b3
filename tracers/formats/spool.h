/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many streams of bytes in one file without a name: each is appended to in turn and read back as a
 * whole. Of each stream one block lies in memory, the others in the file, chained.
 */
#ifndef TRACERS_FORMATS_SPOOL_H
#define TRACERS_FORMATS_SPOOL_H

#include "base/err.h"
#include "base/types.h"

#include <sys/types.h>

struct spool;

/* Where its file lies. */
struct spool_dir {
	const char *path; /* NULL: $TMPDIR or /var/tmp */
	u64 spare; /* bytes of its file system that are left to others; about: it is looked at each MiB */
};

/* A stream; all zeros is an empty one. Belongs to one spool. */
struct spool_stream {
	u64 bytes;
	u64 first, last; /* blocks in the file, 1 + their number; 0: none */
	u8 *block; /* the last one, being filled; NULL: none */
	u32 used; /* of @block */
};

/* Where one is in a stream. All zeros: its beginning. */
struct spool_place {
	u64 next; /* block to read next, 1 + its number */
	u64 left; /* bytes, once begun */
	u8 *block;
	u32 off, len;
	bool begun;
};

/**
 * spool_create - @dir: copied; NULL for $TMPDIR or /var/tmp. @block: bytes, a power of two
 *
 * The file is made when the first block is full. Return: 0; -ENOMEM. Undo: spool_destroy().
 */
must_check int spool_create(const struct spool_dir *dir, u32 block, struct spool **ret,
			    struct err *err);
void spool_destroy(struct spool *s);
/** spool_stream_deinit - free what @st has in memory */
void spool_stream_deinit(struct spool_stream *st);

/** spool_add - append; 0 or -errno, which sticks to @s: -ENOSPC also when no more than @spare is left */
must_check int spool_add(struct spool *s, struct spool_stream *st, const void *data, size_t len);

/**
 * spool_read - the next at most @max bytes of @st
 *
 * Return: how many, 0 at its end; -errno. Undo: spool_place_deinit(), also at the end.
 */
must_check ssize_t spool_read(struct spool *s, const struct spool_stream *st, struct spool_place *p,
			      void *buf, size_t max);
void spool_place_deinit(struct spool_place *p);

#endif
