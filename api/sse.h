/* SPDX-License-Identifier: Apache-2.0 */
/* Server-sent events: the framing, as a browser's EventSource reads it (HTML, section 9.2). */
#ifndef API_SSE_H
#define API_SSE_H

#include "base/buf.h"
#include "base/types.h"

/** sse_head - how long a browser waits before it comes back */
void sse_head(struct buf *b);

/**
 * sse_frame - make an event of the line that begins at @from, if there is one
 * @id: what a client that comes back gives in Last-Event-ID; "" for none
 */
void sse_frame(struct buf *b, size_t from, const char *id);
void sse_frame_seq(struct buf *b, size_t from, u64 seq);

#endif
