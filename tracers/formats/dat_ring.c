// SPDX-License-Identifier: Apache-2.0
/*
 * Pages of the kernel's ring buffer. A page: its time, the length of its data with two flags, data. An
 * event: a word of 5 bits length (in words) and 27 bits time since the last event, data. See dat.h.
 *
 * Times of a CPU never go back in a ring. A record that comes late (behind a preempted writer, see
 * tracers/drain.h) has the time of the one before it; the times that a funcgraph_exit holds are its own.
 */
#include "tracers/formats/dat.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DATA_BYTES    (DAT_PAGE - DAT_PAGE_HEAD)
#define MISSED_EVENTS (1ull << 31) /* RB_MISSED_EVENTS */
#define MISSED_STORED (1ull << 30) /* RB_MISSED_STORED: the count is behind the data */
#define TYPE_EXTEND   30u /* RINGBUF_TYPE_TIME_EXTEND */
#define DELTA_BITS    27
#define DELTA_MAX     ((1ull << DELTA_BITS) - 1)
#define EXTEND_BYTES  8u
#define MISSED_BYTES  8u

static bool grow(struct export *x, u32 cpu)
{
	struct dat *d = x->priv;
	struct dat_cpu **more;

	if (cpu < d->n_cpus)
		return true;
	more = reallocarray(d->cpu, cpu + 1, sizeof(struct dat_cpu *));
	if (!more)
		return false;
	memset(more + d->n_cpus, 0, (cpu + 1 - d->n_cpus) * sizeof(struct dat_cpu *));
	d->cpu = more;
	d->n_cpus = cpu + 1;
	return true;
}

struct dat_cpu *dat_ring_cpu(struct export *x, u32 cpu)
{
	struct dat *d = x->priv;
	struct dat_cpu *c;

	if (cpu < d->n_cpus && d->cpu[cpu])
		return d->cpu[cpu];
	if (!grow(x, cpu)) {
		export_fail(x, -ENOMEM);
		return NULL;
	}
	c = calloc(1, sizeof(*c));
	if (c && d->v7)
		c->chunk = malloc(DAT_CHUNK);
	if (!c || (d->v7 && !c->chunk)) {
		free(c);
		export_fail(x, -ENOMEM);
		return NULL;
	}
	return d->cpu[cpu] = c;
}

static void put(struct export *x, struct spool_stream *st, const void *data, size_t len)
{
	struct dat *d = x->priv;
	int r = spool_add(d->spool, st, data, len);

	if (r < 0)
		export_fail(x, r);
}

/* Compressed and uncompressed size, data. */
static void flush_chunk(struct export *x, struct dat_cpu *c)
{
	struct dat *d = x->priv;
	u32 sizes[2];
	size_t n;

	if (!c->chunk_len)
		return;
	n = ZSTD_compressCCtx(d->zstd, d->packed, ZSTD_compressBound(DAT_CHUNK), c->chunk,
			      c->chunk_len, ZSTD_CLEVEL_DEFAULT);
	if (ZSTD_isError(n)) {
		export_fail(x, -ENOMEM);
		return;
	}
	sizes[0] = (u32)n;
	sizes[1] = c->chunk_len;
	put(x, &c->stream, sizes, sizeof(sizes));
	put(x, &c->stream, d->packed, n);
	c->n_chunks++;
	c->chunk_len = 0;
}

static void flush_page(struct export *x, struct dat_cpu *c)
{
	struct dat *d = x->priv;
	u64 commit = c->used;
	u8 *data = c->page + DAT_PAGE_HEAD;

	if (!c->open)
		return;
	memset(data + c->used, 0, DATA_BYTES - c->used);
	if (c->missed) {
		commit |= MISSED_EVENTS | MISSED_STORED;
		memcpy(data + c->used, &c->missed, sizeof(c->missed));
	}
	memcpy(c->page + 8, &commit, sizeof(commit));
	c->open = false;
	c->n_missed += c->missed;
	c->missed = 0;
	if (!d->v7) {
		put(x, &c->stream, c->page, DAT_PAGE);
		return;
	}
	memcpy(c->chunk + c->chunk_len, c->page, DAT_PAGE);
	c->chunk_len += DAT_PAGE;
	if (c->chunk_len == DAT_CHUNK)
		flush_chunk(x, c);
}

void dat_ring_flush(struct export *x)
{
	struct dat *d = x->priv;

	for (u32 i = 0; i < d->n_cpus; i++) {
		if (!d->cpu[i])
			continue;
		flush_page(x, d->cpu[i]);
		flush_chunk(x, d->cpu[i]);
	}
}

static void put_word(struct dat_cpu *c, u32 word)
{
	memcpy(c->page + DAT_PAGE_HEAD + c->used, &word, sizeof(word));
	c->used += (u32)sizeof(word);
}

void dat_ring_add(struct export *x, u32 cpu, u64 ts_ns, const void *event, u32 len)
{
	struct dat_cpu *c = dat_ring_cpu(x, cpu);
	struct dat *d = x->priv;
	u32 words = (len + 3) / 4;
	u64 delta;

	if (!c)
		return;
	ts_ns = MAX(ts_ns, c->last_ns);
	delta = ts_ns - c->last_ns;
	d->last_cpu = cpu;
	if (c->open &&
	    (d->missed || c->used + EXTEND_BYTES + 4 + 4 * words + MISSED_BYTES > DATA_BYTES))
		flush_page(x, c);
	if (!c->open) {
		memcpy(c->page, &ts_ns, sizeof(ts_ns));
		c->open = true;
		c->used = 0;
		c->missed = d->missed;
		d->missed = 0;
		delta = 0;
	}
	if (delta > DELTA_MAX) {
		put_word(c, TYPE_EXTEND | (u32)(delta & DELTA_MAX) << 5);
		put_word(c, (u32)(delta >> DELTA_BITS));
		delta = 0;
	}
	put_word(c, words | (u32)delta << 5);
	memcpy(c->page + DAT_PAGE_HEAD + c->used, event, len);
	memset(c->page + DAT_PAGE_HEAD + c->used + len, 0, 4 * words - len);
	c->used += 4 * words;
	c->last_ns = ts_ns;
	c->n_events++;
}
