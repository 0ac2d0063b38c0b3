// SPDX-License-Identifier: Apache-2.0
/*
 * External merge sort. See sorter.h. Runs of the same level are merged into one of the next when there are
 * FAN of them, so that a merge never reads more than FAN * LEVELS runs, a block of each in memory.
 */
#include "tracers/formats/sorter.h"

#include "tracers/formats/spool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FAN    48u
#define LEVELS 4u /* 32768 * 48^4: 1.7e11 */
#define BLOCK  16384u

struct run {
	struct spool_stream stream;
	struct spool_place place;
	struct sys_step head;
};

struct sorter {
	struct spool *spool;
	u64 order;
	struct sys_step *steps; /* the run being collected */
	u32 n, run_steps;
	struct run run[LEVELS][FAN];
	u32 n_runs[LEVELS];
	struct run *heap[LEVELS * FAN]; /* of a merge, by head */
	u32 n_heap;
	bool merging; /* the last merge has begun */
};

struct sys_step sys_step_switch(const struct trace_record *r)
{
	struct sys_step s = { .ts_ns = r->ts_ns,
			      .kind = STEP_SWITCH,
			      .pid = r->pid,
			      .tgid = r->tgid,
			      .nr = (s32)r->prev_pid,
			      .cpu = r->cpu,
			      .ctx = r->ctx };

	memcpy(s.comm, r->comm, sizeof(s.comm));
	return s;
}

int sorter_create(const struct spool_dir *dir, u32 run, struct sorter **ret, struct err *err)
{
	struct sorter *s = calloc(1, sizeof(*s));
	int r;

	if (s)
		s->steps = calloc(run, sizeof(*s->steps));
	if (!s || !s->steps) {
		free(s);
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for an export");
	}
	s->run_steps = run;
	r = spool_create(dir, BLOCK, &s->spool, err);
	if (r < 0) {
		sorter_destroy(s);
		return r;
	}
	*ret = s;
	return 0;
}

static void run_deinit(struct run *r)
{
	spool_place_deinit(&r->place);
	spool_stream_deinit(&r->stream);
}

void sorter_destroy(struct sorter *s)
{
	if (!s)
		return;
	for (u32 l = 0; l < LEVELS; l++) {
		for (u32 i = 0; i < FAN; i++)
			run_deinit(&s->run[l][i]);
	}
	spool_destroy(s->spool);
	free(s->steps);
	free(s);
}

static int compare(const struct sys_step *a, const struct sys_step *b)
{
	if (a->ts_ns != b->ts_ns)
		return a->ts_ns < b->ts_ns ? -1 : 1;
	return a->order < b->order ? -1 : 1;
}

static int compare_steps(const void *a, const void *b)
{
	return compare(a, b);
}

static void sift_down(struct sorter *s, u32 i)
{
	for (;;) {
		u32 least = i, child = 2 * i + 1;
		struct run *tmp;

		for (u32 k = child; k < child + 2 && k < s->n_heap; k++) {
			if (compare(&s->heap[k]->head, &s->heap[least]->head) < 0)
				least = k;
		}
		if (least == i)
			return;
		tmp = s->heap[i];
		s->heap[i] = s->heap[least];
		s->heap[least] = tmp;
		i = least;
	}
}

/* The next of @r into its head. Return: 1; 0 it is empty; -errno */
static int refill(struct sorter *s, struct run *r)
{
	u8 *p = (u8 *)&r->head;
	size_t got = 0;

	while (got < sizeof(r->head)) {
		ssize_t n =
			spool_read(s->spool, &r->stream, &r->place, p + got, sizeof(r->head) - got);

		if (n <= 0)
			return (int)n;
		got += (size_t)n;
	}
	return 1;
}

static int heap_add(struct sorter *s, struct run *r)
{
	int n = refill(s, r);

	if (n > 0)
		s->heap[s->n_heap++] = r;
	return n;
}

static int heap_next(struct sorter *s, struct sys_step *ret)
{
	struct run *r;
	int n;

	if (!s->n_heap)
		return 0;
	r = s->heap[0];
	*ret = r->head;
	n = refill(s, r);
	if (n < 0)
		return n;
	if (!n)
		s->heap[0] = s->heap[--s->n_heap];
	sift_down(s, 0);
	return 1;
}

static void heap_make(struct sorter *s)
{
	for (u32 i = s->n_heap / 2; i-- > 0;)
		sift_down(s, i);
}

/* Level @l is full: its runs become one of the next. */
static int merge_level(struct sorter *s, u32 l)
{
	struct run *to = &s->run[l + 1][s->n_runs[l + 1]];
	struct sys_step step;
	int r;

	s->n_heap = 0;
	for (u32 i = 0; i < FAN; i++) {
		r = heap_add(s, &s->run[l][i]);
		if (r < 0)
			return r;
	}
	heap_make(s);
	while ((r = heap_next(s, &step)) > 0) {
		r = spool_add(s->spool, &to->stream, &step, sizeof(step));
		if (r < 0)
			return r;
	}
	for (u32 i = 0; i < FAN; i++)
		run_deinit(&s->run[l][i]);
	s->n_runs[l] = 0;
	s->n_runs[l + 1]++;
	return r;
}

static int flush_run(struct sorter *s)
{
	struct run *to;
	int r = 0;

	for (u32 l = 0; l + 1 < LEVELS && s->n_runs[l] == FAN && !r; l++)
		r = merge_level(s, l);
	if (r < 0)
		return r;
	if (s->n_runs[0] == FAN)
		return -EFBIG;
	qsort(s->steps, s->n, sizeof(*s->steps), compare_steps);
	to = &s->run[0][s->n_runs[0]++];
	r = spool_add(s->spool, &to->stream, s->steps, s->n * sizeof(*s->steps));
	s->n = 0;
	return r;
}

int sorter_add(struct sorter *s, struct sys_step *step)
{
	step->order = s->order++;
	s->steps[s->n++] = *step;
	return s->n == s->run_steps ? flush_run(s) : 0;
}

int sorter_next(struct sorter *s, struct sys_step *ret)
{
	int r;

	if (!s->merging) {
		r = s->n ? flush_run(s) : 0;
		if (r < 0)
			return r;
		s->n_heap = 0;
		for (u32 l = 0; l < LEVELS; l++) {
			for (u32 i = 0; i < s->n_runs[l]; i++) {
				r = heap_add(s, &s->run[l][i]);
				if (r < 0)
					return r;
			}
		}
		heap_make(s);
		s->merging = true;
	}
	return heap_next(s, ret);
}
