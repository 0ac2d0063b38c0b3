// SPDX-License-Identifier: Apache-2.0
/* A growing byte buffer. See buf.h. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_deinit(struct buf *b)
{
	free(b->data);
	*b = (struct buf){ 0 };
}

char *buf_reserve(struct buf *b, size_t n)
{
	size_t want, cap = b->cap ? b->cap : 256;
	char *data;

	if (__builtin_add_overflow(b->len, n, &want) || __builtin_add_overflow(want, 1, &want))
		goto fail;
	while (cap < want) {
		if (__builtin_mul_overflow(cap, 2, &cap))
			goto fail;
	}
	if (cap != b->cap) {
		data = realloc(b->data, cap);
		if (!data)
			goto fail;
		b->data = data;
		b->cap = cap;
	}
	return b->data + b->len;
fail: /* remembered, so that a writer tests once at its end */
	b->failed = true;
	return NULL;
}

void buf_add(struct buf *b, const void *data, size_t n)
{
	char *p = buf_reserve(b, n);

	if (!p)
		return;
	if (n)
		memcpy(p, data, n);
	b->len += n;
	b->data[b->len] = 0;
}

void buf_adds(struct buf *b, const char *s)
{
	buf_add(b, s, strlen(s));
}

void buf_addf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	char *p;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0) {
		b->failed = true;
		return;
	}
	p = buf_reserve(b, (size_t)n);
	if (!p)
		return;
	va_start(ap, fmt);
	vsnprintf(p, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->len += (size_t)n;
}
