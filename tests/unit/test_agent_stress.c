// SPDX-License-Identifier: Apache-2.0
/*
 * Real threads in the agent at full speed while a reader drains: each on a CPU of its own, and,
 * worse than any guest, two that share one CPU's ring.
 */
#include "tests/unit/test_agent_lib.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define WRITERS     2
#define CALLS       1000000u
#define SLOTS_SMALL 1024 /* full, or lapped, most of the time */
#define SLOTS_LARGE 262144 /* has room most of the time */
#define OUT_MAX     SLOTS_LARGE

static struct rig rig;
static atomic_int running, done;
static struct ring_record out[OUT_MAX];
static u64 last_tsc[WRITERS], delivered[WRITERS];

static void *writer(void *arg)
{
	u32 cpu = *(const u32 *)arg;

	rig_on(&rig, cpu);
	atomic_fetch_add(&running, 1);
	while (atomic_load(&running) < WRITERS) /* begin together */
		;
	for (u32 i = 0; i < CALLS; i++)
		rig_call(&rig, i % RIG_SITES);
	atomic_fetch_add(&done, 1);
	return NULL;
}

static u64 now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * NSEC_PER_SEC + (u64)ts.tv_nsec;
}

static void check(const struct ring_record *rec)
{
	u32 task = rec->pid - 100;

	assert_true(task < WRITERS);
	if (rec->type == RING_COMM) {
		assert_int_equal(rec->tgid, 50 + task);
		assert_memory_equal(rec->comm, rig.task[task].comm, 16);
		return;
	}
	assert_int_equal(rec->type, RING_FUNCTION);
	assert_in_range(rec->ip, rig_ip(&rig, 0), rig_ip(&rig, RIG_SITES - 1));
	assert_int_equal(rec->ctx, 0);
	/* One task's records lie in the order in which it made them. */
	assert_true(rec->tsc > last_tsc[task]);
	last_tsc[task] = rec->tsc;
	delivered[task]++;
}

static void drain(struct ring_reader *r, unsigned int flags)
{
	size_t n;

	assert_int_equal(ring_drain(r, out, OUT_MAX, now_ns(), flags, &n), 0);
	for (size_t i = 0; i < n; i++)
		check(&out[i]);
}

static void books(struct ring_reader *r, u32 mode, u64 calls)
{
	const struct ring_stats *s = &r->stats;
	u64 head = rig.cpu[r->cpu_off == AGENT_CPU_OFF ? 0 : 1].head;
	u64 lost = s->torn + s->overwritten;

	assert_int_equal(r->pos, head);
	assert_int_equal(s->functions + s->comms + lost, head);
	if (mode == AGENT_MODE_DISCARD) {
		assert_int_equal(lost, 0);
		assert_int_equal(s->functions + s->refused, calls);
	} else {
		assert_int_equal(s->refused, 0);
		assert_true(s->functions <= calls && s->functions + lost >= calls);
	}
	assert_true(s->functions > 0);
}

static void stress(u32 mode, u32 slots, bool shared)
{
	static u32 cpus[WRITERS] = { 0, 1 };
	struct rig_opts o = { .slots = slots, .mode = mode };
	struct ring_reader r[WRITERS];
	pthread_t thread[WRITERS];
	struct ring_io io;
	u32 n_rings = shared ? 1 : WRITERS;

	rig_open(&rig, &o);
	memset(last_tsc, 0, sizeof(last_tsc));
	memset(delivered, 0, sizeof(delivered));
	io = rig_io(&rig);
	if (shared)
		rig.percpu[1].cpu_number = 0;
	for (u32 i = 0; i < n_rings; i++)
		assert_int_equal(ring_reader_init(&r[i], &io, rig.hdr, i), 0);
	atomic_store(&running, 0);
	atomic_store(&done, 0);
	for (u32 i = 0; i < WRITERS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, writer, &cpus[i]), 0);
	while (atomic_load(&done) < WRITERS) {
		for (u32 i = 0; i < n_rings; i++)
			drain(&r[i], 0);
		usleep(100); /* leave the processors to the writers: it is them who shall collide */
	}
	for (u32 i = 0; i < WRITERS; i++)
		assert_int_equal(pthread_join(thread[i], NULL), 0);
	for (u32 i = 0; i < n_rings; i++) {
		drain(&r[i], RING_FINAL);
		books(&r[i], mode, shared ? WRITERS * CALLS : CALLS);
	}
	rig_close(&rig);
}

static void own_rings_discard(void **state)
{
	(void)state;
	stress(AGENT_MODE_DISCARD, SLOTS_SMALL, false);
	stress(AGENT_MODE_DISCARD, SLOTS_LARGE, false);
}

static void own_rings_overwrite(void **state)
{
	(void)state;
	stress(AGENT_MODE_OVERWRITE, SLOTS_SMALL, false);
	stress(AGENT_MODE_OVERWRITE, SLOTS_LARGE, false);
}

static void shared_ring_discard(void **state)
{
	(void)state;
	stress(AGENT_MODE_DISCARD, SLOTS_SMALL, true);
	stress(AGENT_MODE_DISCARD, SLOTS_LARGE, true);
}

static void shared_ring_overwrite(void **state)
{
	(void)state;
	stress(AGENT_MODE_OVERWRITE, SLOTS_SMALL, true);
	stress(AGENT_MODE_OVERWRITE, SLOTS_LARGE, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(own_rings_discard),
		cmocka_unit_test(own_rings_overwrite),
		cmocka_unit_test(shared_ring_discard),
		cmocka_unit_test(shared_ring_overwrite),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
