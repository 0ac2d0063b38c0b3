// SPDX-License-Identifier: Apache-2.0
/* Frames of hijacked return addresses. See frames.h. */
#include "patcher/frames_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define READ_FRAMES 1024u

void frames_snapshot_deinit(struct frames_snapshot *s)
{
	free(s->v);
	free(s->at);
}

int frames_init(struct frames *f, const struct agent_header *h)
{
	f->text = h->text;
	f->nr = h->nr_frames;
	f->frames_off = h->frames_off;
	f->reclaim_off = h->reclaim_off;
	f->restored = calloc(f->nr, sizeof(*f->restored));
	f->chain = calloc(FRAMES_CHAIN_MAX, sizeof(*f->chain));
	if (f->restored && f->chain)
		return 0;
	frames_deinit(f);
	return -ENOMEM;
}

void frames_deinit(struct frames *f)
{
	free(f->restored);
	free(f->chain);
	free(f->cells);
	f->restored = f->chain = NULL;
	f->cells = NULL;
	f->n_cells = f->max_cells = 0;
}

bool frames_header_ok(const struct agent_header *h, u64 text, u64 text_bytes, u64 data,
		      u64 data_bytes)
{
	struct agent_header want = *h;

	if (h->magic != AGENT_MAGIC || h->abi_version != AGENT_ABI_VERSION || h->text != text ||
	    h->data != data || agent_layout(&want))
		return false;
	return want.ring_off == h->ring_off && want.frames_off == h->frames_off &&
	       want.reclaim_off == h->reclaim_off && want.sites_off == h->sites_off &&
	       want.tasks_off == h->tasks_off && want.scratch_off == h->scratch_off &&
	       agent_text_bytes(&want) == text_bytes && agent_data_bytes(&want) == data_bytes;
}

u64 frames_trampoline(const struct frames *f, u32 n)
{
	return f->text + AGENT_TEXT_BYTES + (u64)n * AGENT_TRAMP_BYTES;
}

bool frames_is_trampoline(const struct frames *f, u64 addr, u32 *n_ret)
{
	u64 off = addr - f->text - AGENT_TEXT_BYTES;

	if (off >= (u64)f->nr * AGENT_TRAMP_BYTES || off % AGENT_TRAMP_BYTES)
		return false;
	*n_ret = (u32)(off / AGENT_TRAMP_BYTES);
	return true;
}

static bool in_agent(const struct frames *f, u64 addr)
{
	return addr - f->text < AGENT_TEXT_BYTES + (u64)f->nr * AGENT_TRAMP_BYTES;
}

bool frames_is_foreign(const struct frames *f, u64 addr)
{
	for (u32 i = 0; i < FRAMES_FOREIGN; i++) {
		if (f->foreign[i] && f->foreign[i] == addr)
			return true;
	}
	return false;
}

/* A frame that some call may return through, on a cell that can be one. */
bool frames_has_cell(const struct agent_frame *fr)
{
	return (fr->slot & KERNEL_HALF) && fr->slot % 8 == 0;
}

bool frames_same_life(const struct agent_frame *a, const struct agent_frame *b)
{
	return a->slot == b->slot && a->ret == b->ret && a->owner == b->owner &&
	       a->start_time == b->start_time && a->tsc == b->tsc;
}

u64 frames_off_of(const struct frames *f, u32 n)
{
	return f->frames_off + (u64)n * AGENT_FRAME_BYTES;
}

int frames_read(const struct frames *f, u32 n, struct agent_frame *ret)
{
	return f->io.data_read(f->io.arg, frames_off_of(f, n), ret, sizeof(*ret));
}

int frames_read_u64(const struct frames *f, u64 addr, u64 *ret)
{
	return f->io.read(f->io.arg, addr, ret, sizeof(*ret));
}

static int add_copy(struct frames_snapshot *s, u32 n, const struct agent_frame *fr)
{
	if (s->n == s->cap) {
		u32 cap = s->cap ? s->cap * 2 : 256;
		struct frames_copy *v = realloc(s->v, cap * sizeof(*v));

		if (!v)
			return -ENOMEM;
		s->v = v;
		s->cap = cap;
	}
	s->v[s->n] = (struct frames_copy){ .n = n, .f = *fr };
	s->at[n] = ++s->n;
	return 0;
}

int frames_take_snapshot(struct frames *f, struct frames_snapshot *s)
{
	_cleanup_free_ struct agent_frame *buf = malloc(READ_FRAMES * sizeof(*buf));
	int rc = 0;

	s->at = calloc(f->nr, sizeof(*s->at));
	if (!s->at || !buf)
		return -ENOMEM;
	for (u32 first = 0; !rc && first < f->nr; first += READ_FRAMES) {
		u32 n = MIN(READ_FRAMES, f->nr - first);

		rc = f->io.data_read(f->io.arg, frames_off_of(f, first), buf, n * sizeof(*buf));
		for (u32 i = 0; !rc && i < n; i++) {
			if (buf[i].slot)
				rc = add_copy(s, first + i, &buf[i]);
		}
	}
	return rc;
}

struct frames_copy *frames_find(const struct frames_snapshot *s, u32 n)
{
	return s->at[n] ? &s->v[s->at[n] - 1] : NULL;
}

/* @s NULL: as it is now, else as it was in @s. -ENOENT: not part of a chain on @slot. */
static int link_at(const struct frames *f, const struct frames_snapshot *s, u32 n, u64 slot,
		   struct agent_frame *ret)
{
	const struct frames_copy *c;
	int rc = 0;

	if (s) {
		c = frames_find(s, n);
		if (!c)
			return -ENOENT;
		*ret = c->f;
	} else {
		rc = frames_read(f, n, ret);
	}
	return rc ? rc : ret->slot == slot ? 0 : -ENOENT;
}

/*
 * Brent's way of finding cycles: a guest may have made many, and each must cost no more than its
 * length.
 */
int frames_walk_chain(struct frames *f, const struct frames_snapshot *s,
		      const struct agent_frame *from, u64 *final_ret)
{
	struct agent_frame fr = *from;
	u32 n, turtle = f->nr;
	int rc;

	f->n_chain = 0;
	while (frames_is_trampoline(f, fr.ret, &n)) {
		if (n == turtle || f->n_chain == FRAMES_CHAIN_MAX)
			return -ENOENT;
		if (!(f->n_chain & (f->n_chain + 1)))
			turtle = n;
		rc = link_at(f, s, n, from->slot, &fr);
		if (rc)
			return rc;
		f->chain[f->n_chain++] = (struct frames_life){ n, fr.slot, fr.tsc, 0 };
	}
	*final_ret = fr.ret;
	return in_agent(f, fr.ret) ? -ENOENT : 0;
}

bool frames_was_restored(const struct frames *f, u32 n, const struct agent_frame *fr)
{
	return f->restored[n].slot && f->restored[n].slot == fr->slot &&
	       f->restored[n].tsc == fr->tsc;
}

int frames_count(struct frames *f, struct frames_count *ret)
{
	_cleanup_snapshot_ struct frames_snapshot s = { 0 };
	int rc = frames_take_snapshot(f, &s);

	*ret = (struct frames_count){ 0 };
	for (u32 i = 0; !rc && i < s.n; i++) {
		ret->in_use += s.v[i].f.slot > AGENT_ORPHAN;
		ret->restored += frames_was_restored(f, s.v[i].n, &s.v[i].f);
	}
	return rc;
}
