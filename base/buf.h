/* SPDX-License-Identifier: Apache-2.0 */
/* A growing byte buffer. An allocation that fails is remembered; test buf_failed() once at the end. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include "base/types.h"

struct buf {
	char *data; /* always NUL-terminated when not NULL */
	size_t len;
	size_t cap;
	bool failed;
};

/** buf_deinit - free the storage; @b may be used again */
void buf_deinit(struct buf *b);

/** buf_reserve - room for @n more bytes; returns where they go, or NULL (and remembers) */
char *buf_reserve(struct buf *b, size_t n);

void buf_add(struct buf *b, const void *data, size_t n);
void buf_adds(struct buf *b, const char *s);
void buf_addf(struct buf *b, const char *fmt, ...) printf_like(2, 3);

static inline void buf_reset(struct buf *b)
{
	b->len = 0;
}

static inline bool buf_failed(const struct buf *b)
{
	return b->failed;
}

#define _cleanup_buf_ __attribute__((cleanup(buf_deinit)))

#endif
