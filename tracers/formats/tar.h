/* SPDX-License-Identifier: Apache-2.0 */
/* Archives as POSIX.1-1988 has them (ustar), as far as a directory of plain files needs it. */
#ifndef TRACERS_FORMATS_TAR_H
#define TRACERS_FORMATS_TAR_H

#include "base/buf.h"

#include <sys/types.h>

#define TAR_BLOCK    512u
#define TAR_NAME_MAX 99u
#define TAR_SIZE_MAX \
	077777777777ull /* 8 GiB - 1; beyond that the number is binary, as GNU's and BSD's */

/** tar_head - a file named @name, at most TAR_NAME_MAX bytes, of @size bytes that come next */
void tar_head(struct buf *b, const char *name, u64 size, u64 mtime);
/** tar_pad - what follows a file of @size bytes */
void tar_pad(struct buf *b, u64 size);
/** tar_end - what follows the last file */
void tar_end(struct buf *b);

/*
 * Taking an archive apart as it comes in. Hostile input: only plain files, whose names are letters, digits,
 * '_', '-' and '.', none of them first.
 */
struct tar_reader {
	u8 head[TAR_BLOCK];
	u32 have; /* of @head */
	u64 left; /* of the file under way */
	u32 pad; /* behind it */
	bool ended;
};

struct tar_sink {
	/* a file begins, or (NULL) ends; false: stop */
	bool (*file)(void *arg, const char *name);
	bool (*data)(void *arg, const void *data, size_t len);
	void *arg;
};

/** tar_read - the next @len bytes. Return: 0; -EBADMSG no archive of ours; -EIO the sink said stop */
must_check int tar_read(struct tar_reader *t, const struct tar_sink *sink, const void *data,
			size_t len);
/** tar_complete - did it end where an archive ends? */
static inline bool tar_complete(const struct tar_reader *t)
{
	return t->ended;
}

#endif
