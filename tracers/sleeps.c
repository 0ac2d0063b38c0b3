// SPDX-License-Identifier: Apache-2.0
/*
 * Sleeps by task. See sleeps.h.
 *
 * Of each task some sleeps are remembered with what the total was before them. When there are too many
 * of them, every second of the older ones is forgotten: what is asked for in the gap is answered with
 * the total before the next one that is known, which is too much.
 */
#include "tracers/sleeps.h"

#include <stdlib.h>
#include <string.h>

#define SETS     2048u /* of tasks; a power of two */
#define WAYS     4u
#define PAST     32u
#define IDLE     0x80000000u /* key of CPU 0's idle task; a pid has 22 bits */
#define TSC_BITS 48

struct sleep {
	u64 end; /* TSC */
	u64 before; /* total before it */
};

struct task {
	u32 key;
	bool used, out;
	u64 since; /* @out: TSC */
	u64 total;
	u32 n_past;
	struct sleep past[PAST]; /* the oldest first */
};

struct sleeps {
	bool lost;
	u64 lost_tsc;
	bool any;
	u64 newest; /* of any switch */
	u8 next[SETS]; /* the way to replace */
	struct task task[SETS][WAYS];
};

static s64 tsc_distance(u64 a, u64 b)
{
	return (s64)((a - b) << (64 - TSC_BITS)) >> (64 - TSC_BITS);
}

struct sleeps *sleeps_create(void)
{
	return calloc(1, sizeof(struct sleeps)); /* pages come as they are used */
}

void sleeps_destroy(struct sleeps *s)
{
	free(s);
}

static u32 key_of(u32 cpu, u32 pid)
{
	return pid ? pid : IDLE | cpu;
}

static u32 set_of(u32 key)
{
	return (key * 0x9e3779b1u) >> 7 & (SETS - 1);
}

static const struct task *find(const struct sleeps *s, u32 key)
{
	const struct task *set = s->task[set_of(key)];

	for (u32 w = 0; w < WAYS; w++) {
		if (set[w].used && set[w].key == key)
			return &set[w];
	}
	return NULL;
}

static struct task *find_or_make(struct sleeps *s, u32 key)
{
	u32 set = set_of(key);
	struct task *t = (struct task *)(uintptr_t)find(s, key);

	if (t)
		return t;
	t = &s->task[set][s->next[set]];
	s->next[set] = (u8)((s->next[set] + 1) % WAYS);
	memset(t, 0, sizeof(*t));
	t->key = key;
	t->used = true;
	return t;
}

static void thin_out(struct task *t)
{
	u32 n = 0;

	for (u32 i = 0; i < t->n_past; i++) {
		if (i >= PAST / 2 || i % 2)
			t->past[n++] = t->past[i];
	}
	t->n_past = n;
}

static void wake(const struct sleeps *s, struct task *t, u64 tsc)
{
	s64 ticks = tsc_distance(tsc, t->since);

	if (!t->out)
		return;
	t->out = false;
	if (ticks <= 0 || (s->lost && tsc_distance(t->since, s->lost_tsc) <= 0))
		return;
	if (t->n_past == PAST)
		thin_out(t);
	t->past[t->n_past++] = (struct sleep){ tsc, t->total };
	t->total += (u64)ticks;
}

void sleeps_switch(struct sleeps *s, u32 cpu, u32 prev, u32 next, u64 tsc)
{
	bool late = s->any && tsc_distance(tsc, s->newest) < 0;
	struct task *t;

	if (!late)
		s->newest = tsc;
	s->any = true;
	/*
	 * One that is out already came back unseen: what it slept before is not known. One whose leaving comes
	 * late may be back already.
	 */
	t = find_or_make(s, key_of(cpu, prev));
	t->out = !late;
	t->since = tsc;
	t = (struct task *)(uintptr_t)find(s, key_of(cpu, next));
	if (t)
		wake(s, t, tsc);
}

void sleeps_lost(struct sleeps *s, u64 tsc)
{
	s->lost = true;
	s->lost_tsc = tsc;
}

u64 sleeps_total(const struct sleeps *s, struct sleeper who)
{
	const struct task *t = find(s, key_of(who.cpu, who.pid));

	return t ? t->total : 0;
}

u64 sleeps_at(const struct sleeps *s, struct sleeper who, u64 tsc)
{
	const struct task *t = find(s, key_of(who.cpu, who.pid));

	if (!t)
		return 0;
	for (u32 i = 0; i < t->n_past; i++) {
		if (tsc_distance(t->past[i].end, tsc) > 0)
			return t->past[i].before;
	}
	return t->total;
}
