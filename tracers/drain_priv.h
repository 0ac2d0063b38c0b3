/* SPDX-License-Identifier: Apache-2.0 */
/* drain.c's queues, one a CPU, which of them comes first, and records' stacks. For drain.c alone. */
#ifndef TRACERS_DRAIN_PRIV_H
#define TRACERS_DRAIN_PRIV_H

#include "tracers/ring.h"
#include "tracers/stacks.h"
#include "tracers/trace.h"

#define TSC_BITS 48

/* One CPU's records that are not handed on yet, and the task it named last. */
struct queue {
	struct ring_reader reader;
	struct ring_record *rec;
	struct ring_capture *captures; /* all that reader has */
	size_t first, n;
	u64 newest; /* latest TSC taken, if @any was */
	bool any;
	bool more; /* the ring had more than there was room for */
	u64 doubt; /* what lies below this index may be older than a loss */
	u32 comm_pid, comm_tgid;
	char comm[TRACE_COMM_LEN + 1];
};

/* CPUs with records, the earliest first. */
struct heap {
	u32 *cpu;
	u32 n;
};

/* TSC values wrap at 48 bits: compare by distance. */
static inline s64 tsc_distance(u64 a, u64 b)
{
	return (s64)((a - b) << (64 - TSC_BITS)) >> (64 - TSC_BITS);
}

static inline u64 queue_head(const struct queue *q)
{
	return q->rec[q->first].tsc;
}

static inline bool queue_earlier(const struct queue *a, const struct queue *b)
{
	return tsc_distance(queue_head(a), queue_head(b)) < 0;
}

static inline void heap_sift_down(struct heap *h, const struct queue *queue, u32 at)
{
	for (;;) {
		u32 least = at, left = 2 * at + 1, right = 2 * at + 2, cpu;

		if (left < h->n && queue_earlier(&queue[h->cpu[left]], &queue[h->cpu[least]]))
			least = left;
		if (right < h->n && queue_earlier(&queue[h->cpu[right]], &queue[h->cpu[least]]))
			least = right;
		if (least == at)
			return;
		cpu = h->cpu[at];
		h->cpu[at] = h->cpu[least];
		h->cpu[least] = cpu;
		at = least;
	}
}

/* NULL: it has none. */
static inline const struct trace_stack *captured_stack(struct stacks *stacks,
						       const struct ring_capture *c)
{
	u32 low[2 * AGENT_CAPTURE_WORDS], n = 0;

	for (u32 i = 0; i < c->n_words; i++) {
		low[n++] = (u32)c->words[i];
		low[n++] = (u32)(c->words[i] >> 32);
	}
	while (n && !low[n - 1])
		n--;
	return n ? stacks_get(stacks, low, n) : NULL;
}

#endif
