// SPDX-License-Identifier: Apache-2.0
/* Server-sent events. See sse.h. */
#include "api/sse.h"

#include <stdio.h>
#include <string.h>

#define RETRY_MS 1000

void sse_head(struct buf *b)
{
	buf_addf(b, "retry: %d\n\n", RETRY_MS);
}

void sse_frame(struct buf *b, size_t from, const char *id)
{
	char head[64];
	size_t n, len = b->len - from;

	if (!len || buf_failed(b))
		return;
	n = (size_t)snprintf(head, sizeof(head), "%s%s%sdata: ", *id ? "id: " : "", id,
			     *id ? "\n" : "");
	if (!buf_reserve(b, n + 1))
		return;
	memmove(b->data + from + n, b->data + from, len);
	memcpy(b->data + from, head, n);
	b->len += n;
	buf_adds(b, "\n");
}

void sse_frame_seq(struct buf *b, size_t from, u64 seq)
{
	char id[24];

	snprintf(id, sizeof(id), "%llu", (unsigned long long)seq);
	sse_frame(b, from, id);
}
