// SPDX-License-Identifier: Apache-2.0
/* What the agent has left in the rig's memory. See test_agent_lib.h. */
#include "tests/unit/test_agent_lib.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

bool rig_decode(const u64 w[3], u64 index, u32 slots, struct ring_record *ret)
{
	u64 low = w[2] & 0xfffffffff;
	u64 mixed = w[0] ^ (w[1] << 23 | w[1] >> 41) ^ low;

	if (w[0] >> 48 != ((index / slots + 1) & 0xffff))
		return false;
	if ((mixed * 0x9e3779b97f4a7c15ull) >> 36 != w[2] >> 36)
		return false;
	memset(ret, 0, sizeof(*ret));
	ret->tsc = w[0] << 16 >> 16;
	ret->ip = (u64)(s64)(s32)(w[1] & 0xffffffff);
	ret->parent = (u64)((s64)w[1] >> 32);
	ret->pid = low & 0x3fffff;
	ret->type = low >> 22 & 7;
	ret->ctx = (u16)(low >> 25);
	return true;
}

static void look_data(const struct rig_seen *seen, struct rig_record *to,
		      const struct ring_record *rec, u64 word)
{
	assert_true(seen->n > 0 && to->n_data < RIG_SEEN_MAX);
	if ((rec->ctx & AGENT_DATA_KIND) == AGENT_DATA_CAPTURE)
		to->sizes = rec->tsc;
	else
		assert_true(rec->tsc == to->rec.tsc);
	assert_true(rec->pid == to->rec.pid);
	to->kind[to->n_data] = rec->ctx;
	to->data[to->n_data++] = word;
}

void rig_look(struct rig *r, u32 cpu, struct rig_seen *ret)
{
	bool comm = true; /* the record before is a COMM, or there is none */

	ret->n = 0;
	for (u64 i = r->cpu[cpu].tail; i < r->cpu[cpu].head; i++) {
		const u64 *w = rig_ring(r, cpu, i % r->hdr->ring_slots);
		struct ring_record rec = { 0 };

		assert_true(rig_decode(w, i, r->hdr->ring_slots, &rec));
		if ((u32)rec.type == AGENT_REC_DATA) {
			assert_false(comm);
			look_data(ret, &ret->v[ret->n - 1], &rec, w[1]);
			continue;
		}
		comm = (u32)rec.type == AGENT_REC_COMM_A || (u32)rec.type == AGENT_REC_COMM_B;
		if (comm)
			continue;
		assert_true(ret->n < RIG_SEEN);
		ret->v[ret->n++] = (struct rig_record){ .rec = rec, .w1 = w[1] };
	}
}

u32 rig_words(const struct rig *r)
{
	const struct agent_task *t =
		(const struct agent_task *)(const void *)(r->data + r->hdr->tasks_off);
	u32 n = 0;

	for (u32 i = 0; i < r->hdr->task_slots; i++)
		n += t[i].word != 0;
	return n;
}

struct rig_books rig_books(struct rig *r, u32 site)
{
	static struct rig_seen seen;
	struct rig_books b = { 0 };

	for (u32 cpu = 0; cpu < RIG_CPUS; cpu++) {
		rig_look(r, cpu, &seen);
		for (u32 i = 0; i < seen.n; i++) {
			if (seen.v[i].rec.ip != rig_ip(r, site))
				continue;
			b.entries += seen.v[i].rec.type == AGENT_REC_GRAPH_ENTRY;
			b.returns += seen.v[i].rec.type == AGENT_REC_GRAPH_RETURN;
			b.functions += seen.v[i].rec.type == AGENT_REC_FUNCTION;
		}
	}
	return b;
}

u64 rig_sum(const struct rig *r, size_t off)
{
	u64 n = 0, v;

	for (u32 cpu = 0; cpu < RIG_CPUS; cpu++) {
		memcpy(&v, (const u8 *)&r->cpu[cpu] + off, sizeof(v));
		n += v;
	}
	return n;
}

int rig_depth(struct rig *r, u32 site)
{
	u64 head = r->cpu[0].head;
	int depth = -1;

	rig_call(r, site);
	for (u64 i = head; i < r->cpu[0].head; i++) {
		struct ring_record rec = { 0 };
		const u64 *w = rig_ring(r, 0, i % r->hdr->ring_slots);

		assert_true(rig_decode(w, i, r->hdr->ring_slots, &rec));
		if ((u32)rec.type == AGENT_REC_DATA && rec.ctx == AGENT_DATA_DEPTH)
			depth = (int)w[1];
	}
	return depth;
}

void rig_reclaim(struct rig *r, u32 task)
{
	u32 *ring = (u32 *)(void *)(r->data + r->hdr->reclaim_off);

	for (u32 f = 0; f < r->hdr->nr_frames; f++) {
		if (!r->frames[f].slot || r->frames[f].owner != (u64)(uintptr_t)&r->task[task])
			continue;
		r->frames[f].slot = 0;
		ring[r->hdr->reclaim_tail++ & (r->hdr->nr_frames - 1)] = f + 1;
	}
}

/* From DATA number @first of @r on. */
static void take_piece(const struct rig_record *r, u32 first, struct rig_piece *ret)
{
	assert_int_equal(r->kind[first], AGENT_DATA_CAPTURE | AGENT_CAPTURE_USER);
	ret->key = r->data[first];
	ret->sizes = r->sizes;
	ret->n_bytes = r->n_data - first - 1;
	for (u32 i = first + 1; i < r->n_data; i++) {
		assert_int_equal(r->kind[i], AGENT_DATA_BYTES | (i - first - 1));
		ret->bytes[i - first - 1] = r->data[i];
	}
}

u32 rig_pieces(const struct rig_seen *seen, bool counts_first, struct rig_piece *ret)
{
	const struct rig_record *entry = &seen->v[0], *last = &seen->v[seen->n - 1];
	u32 first = 0, n = 0;

	assert_int_equal(entry->rec.type, RING_GRAPH_ENTRY);
	while (first < entry->n_data &&
	       (entry->kind[first] & AGENT_DATA_KIND) != AGENT_DATA_CAPTURE)
		first++;
	if (first < entry->n_data)
		take_piece(entry, first, &ret[n++]);
	for (u32 i = 1; i + 1 < seen->n; i++) {
		const struct rig_record *r = &seen->v[i];

		assert_int_equal(r->rec.type, RING_FUNCTION);
		assert_true(r->rec.tsc > entry->rec.tsc);
		assert_true(r->rec.tsc < last->rec.tsc);
		/* what is read with the entry and nothing before it is the entry's */
		if (!(r->data[0] & AGENT_USER_EXIT))
			assert_true(first < entry->n_data || counts_first);
		take_piece(r, 0, &ret[n++]);
	}
	return n;
}
