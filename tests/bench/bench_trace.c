// SPDX-License-Identifier: Apache-2.0
/*
 * A trace without a guest, behind the contract of tracers/trace.h: a thread writes records into two of the
 * agent's rings as the agent would, at a steady rate, and the real drain takes them into the real store. So
 * what streams cost can be measured; a guest would take the cores. A guest "fake-N" has N records a second.
 * Goes with tests/api/fake_engine.c.
 */
#include "tracers/trace.h"

#include "base/clock.h"
#include "guest-agent/agent_abi.h"
#include "tests/api/fake_engine.h"
#include "tracers/drain.h"
#include "tracers/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCH    256u
#define CPUS     2u
#define SLOTS    65536u
#define RING_OFF (AGENT_CPU_OFF + CPUS * AGENT_CPU_BYTES)
#define BYTES    (RING_OFF + (u64)CPUS * SLOTS * AGENT_RECORD_BYTES)
#define LOW36    0xfffffffffull
#define PID      7u
#define SYMBOLS  200000u /* half of them before the functions that are traced */

struct trace {
	struct guest *guest;
	struct store *store;
	pthread_mutex_t lock; /* all below */
	pthread_t writer, drainer;
	bool ending, joined;
	u64 *data; /* the agent's */
	struct drain *drain;
	struct trace_record batch[BATCH]; /* the drainer's */
	size_t n_batch;
	struct trace_info info;
	void (*notify)(void *arg);
	void *notify_arg;
	u64 rate;
	u64 n; /* the writer's */
	pthread_mutex_t names_lock;
	u64 symbols[SYMBOLS];
};

static struct agent_cpu *cpu_of(struct trace *t, u32 cpu)
{
	return (struct agent_cpu *)&t->data[AGENT_CPU_OFF / 8] + cpu;
}

/* As the agent does it: what its words hold is tied together by a check, and by the ring's lap. */
static void write_record(struct trace *t, u32 cpu, u64 w0, u64 w1, u64 low)
{
	struct agent_cpu *c = cpu_of(t, cpu);
	u64 head = c->head, *w, check;

	if (head - __atomic_load_n(&c->tail, __ATOMIC_ACQUIRE) >= SLOTS) {
		c->lost++;
		return;
	}
	w = &t->data[RING_OFF / 8 + (cpu * SLOTS + head % SLOTS) * 3];
	w0 |= (head / SLOTS + 1) << 48;
	check = (w0 ^ (w1 << 23 | w1 >> 41) ^ low) * AGENT_CHECK_MUL;
	__atomic_store_n(&w[0], w0, __ATOMIC_RELAXED);
	__atomic_store_n(&w[1], w1, __ATOMIC_RELAXED);
	__atomic_store_n(&w[2], (check & ~LOW36) | low, __ATOMIC_RELAXED);
	__atomic_store_n(&c->head, head + 1, __ATOMIC_RELEASE);
}

static void write_call(struct trace *t)
{
	const struct kernel *k = &t->guest->kernel;
	u64 n = t->n++, ip = (u32)k->sites[n * 7 % FAKE_FUNCTIONS].ip;
	u64 parent = (u32)(k->sites[n * 13 % FAKE_FUNCTIONS].ip + 16);

	write_record(t, n % CPUS, 1000 + n, parent << 32 | ip,
		     (u64)AGENT_REC_FUNCTION << AGENT_TYPE_SHIFT | PID);
}

static void write_comm(struct trace *t, u32 cpu)
{
	static const char comm[16] = "writer";
	u64 half[2];

	memcpy(half, comm, sizeof(half));
	write_record(t, cpu, PID, half[0], (u64)AGENT_REC_COMM_A << AGENT_TYPE_SHIFT | PID);
	write_record(t, cpu, PID, half[1], (u64)AGENT_REC_COMM_B << AGENT_TYPE_SHIFT | PID);
}

static bool is_ending(struct trace *t)
{
	bool ending;

	pthread_mutex_lock(&t->lock);
	ending = t->ending;
	pthread_mutex_unlock(&t->lock);
	return ending;
}

static void *writer(void *arg)
{
	struct trace *t = arg;
	u64 began = monotonic_ns(), due;
	struct timespec step = { .tv_nsec = (long)NSEC_PER_MSEC };

	for (u32 cpu = 0; cpu < CPUS; cpu++)
		write_comm(t, cpu);
	while (!is_ending(t)) {
		nanosleep(&step, NULL);
		due = (u64)((double)(monotonic_ns() - began) / 1e9 * (double)t->rate);
		while (t->n < due)
			write_call(t);
	}
	return NULL;
}

static void flush(struct trace *t)
{
	if (t->n_batch)
		store_append(t->store, t->batch, t->n_batch);
	t->n_batch = 0;
}

static void take(void *arg, const struct trace_record *r)
{
	struct trace *t = arg;

	t->batch[t->n_batch++] = *r;
	if (t->n_batch == BATCH)
		flush(t);
}

static void *drainer(void *arg)
{
	struct trace *t = arg;
	struct timespec step = { .tv_nsec = (long)NSEC_PER_MSEC / 2 };
	struct drain_losses lost;
	struct err err = { 0 };
	bool more = false;
	size_t n;

	while (!is_ending(t)) {
		if (!more)
			nanosleep(&step, NULL);
		if (drain_round(t->drain, monotonic_ns(), &n, &more, &err) < 0)
			break;
		flush(t);
		drain_losses(t->drain, &lost);
		pthread_mutex_lock(&t->lock);
		t->info.lost_ring = lost.refused + lost.overwritten;
		t->info.lost_torn = lost.torn;
		t->info.n_lost = t->info.lost_ring + t->info.lost_torn;
		if (n && t->notify)
			t->notify(t->notify_arg);
		pthread_mutex_unlock(&t->lock);
	}
	return NULL;
}

static int io_read(void *arg, u64 off, void *buf, size_t len)
{
	const u64 *from = (const u64 *)arg + off / 8;
	u64 *to = buf;

	/* word by word, as the view of a guest's memory does */
	for (size_t i = 0; i < len / 8; i++)
		to[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
	memcpy((u8 *)buf + len / 8 * 8, (const u8 *)arg + off + len / 8 * 8, len % 8);
	return 0;
}

static int io_write(void *arg, u64 off, const void *buf, size_t len)
{
	memcpy((u8 *)arg + off, buf, len);
	return 0;
}

static u64 to_clock(void *arg, u32 cpu, u64 tsc48)
{
	(void)arg;
	(void)cpu;
	return 5 * NSEC_PER_SEC + tsc48 * 1000;
}

static u64 to_ns(void *arg, u64 ticks)
{
	(void)arg;
	return ticks;
}

static int make_drain(struct trace *t, struct err *err)
{
	struct drain_opts o = {
		.io = { io_read, io_write, t->data },
		.header = { .nr_cpus = CPUS,
			    .ring_slots = SLOTS,
			    .ring_off = RING_OFF,
			    .mode = AGENT_MODE_DISCARD },
		.clock = to_clock,
		.duration = to_ns,
		.record = take,
		.record_arg = t,
	};

	return drain_create(&o, &t->drain, err);
}

static void release(struct trace *t)
{
	drain_destroy(t->drain);
	store_destroy(t->store);
	free(t->data);
	pthread_mutex_destroy(&t->lock);
	pthread_mutex_destroy(&t->names_lock);
	free(t);
}

int trace_start(struct guest *g, const struct trace_opts *opts, struct trace **ret, struct err *err)
{
	struct trace *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory");
	t->guest = g;
	t->rate = strtoull(strrchr(g->kind, '-') ? strrchr(g->kind, '-') + 1 : "0", NULL, 10);
	t->info.tracer = "function";
	t->info.n_functions = FAKE_FUNCTIONS;
	t->info.started_ns = clock_ns(CLOCK_REALTIME);
	pthread_mutex_init(&t->lock, NULL);
	pthread_mutex_init(&t->names_lock, NULL);
	for (u32 i = 0; i < SYMBOLS; i++)
		t->symbols[i] = g->kernel.sites[0].ip - 4 + i * 64ull - SYMBOLS / 2 * 64ull;
	t->data = aligned_alloc(4096, (BYTES + 4095) / 4096 * 4096);
	r = t->data ? store_create(opts->buffer_records, 0, false, &t->store, err) : -ENOMEM;
	if (r == 0) {
		memset(t->data, 0, BYTES);
		r = make_drain(t, err);
	}
	if (r < 0) {
		release(t);
		return r;
	}
	if (pthread_create(&t->writer, NULL, writer, t) ||
	    pthread_create(&t->drainer, NULL, drainer, t))
		abort();
	pthread_setname_np(t->writer, "writer"); /* which is the guest's part, not the daemon's */
	pthread_setname_np(t->drainer, "drain");
	*ret = t;
	return 0;
}

int trace_stop(struct trace *t, struct err *err)
{
	(void)err;
	pthread_mutex_lock(&t->lock);
	t->ending = true;
	pthread_mutex_unlock(&t->lock);
	if (!t->joined) {
		pthread_join(t->writer, NULL);
		pthread_join(t->drainer, NULL);
	}
	t->joined = true;
	pthread_mutex_lock(&t->lock);
	t->info.state = TRACE_STOPPED;
	t->info.restore.verified = true;
	pthread_mutex_unlock(&t->lock);
	return 0;
}

void trace_destroy(struct trace *t)
{
	(void)!trace_stop(t, NULL);
	release(t);
}

void trace_get_info(struct trace *t, struct trace_info *ret)
{
	struct store_info s;

	pthread_mutex_lock(&t->lock);
	*ret = t->info;
	pthread_mutex_unlock(&t->lock);
	store_info(t->store, &s);
	ret->n_records = s.newest_seq;
	ret->oldest_seq = s.oldest_seq;
}

int trace_read(struct trace *t, u64 after, struct trace_page *page, struct err *err)
{
	return store_read(t->store, after, page, err);
}

void trace_set_notify(struct trace *t, void (*fn)(void *arg), void *arg)
{
	pthread_mutex_lock(&t->lock);
	t->notify = fn;
	t->notify_arg = arg;
	pthread_mutex_unlock(&t->lock);
}

/* As long as a kernel's symbols take: under a lock, the last of SYMBOLS at or below @addr. */
static u64 search(struct trace *t, u64 addr)
{
	u64 low = 0, n = SYMBOLS;

	pthread_mutex_lock(&t->names_lock);
	while (n > 1) {
		u64 half = n / 2;

		if (t->symbols[low + half] <= addr)
			low += half;
		n -= half;
	}
	pthread_mutex_unlock(&t->names_lock);
	return low;
}

bool trace_sym(struct trace *t, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	const struct kernel *k = &t->guest->kernel;
	u64 base = k->sites[0].ip - 4, i = search(t, addr) - SYMBOLS / 2;

	if (addr < base || i >= FAKE_FUNCTIONS)
		return false;
	*ret = (struct kernel_sym){ .name = k->sites[i].name,
				    .module = k->sites[i].module,
				    .addr = k->sites[i].ip - 4 };
	*off_ret = addr - ret->addr;
	return true;
}

bool trace_sym_then(struct trace *t, u64 seq, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	(void)seq;
	return trace_sym(t, addr, ret, off_ret);
}

u64 trace_names_when(struct trace *t, u64 seq)
{
	(void)t;
	(void)seq;
	return 0;
}

void trace_names_lock(struct trace *t)
{
	(void)t;
}

void trace_names_unlock(struct trace *t)
{
	(void)t;
}

bool trace_func_then(struct trace *t, u64 seq, u64 ip, struct kernel_func *ret)
{
	(void)seq;
	return trace_func(t, ip, ret);
}

bool trace_func(struct trace *t, u64 ip, struct kernel_func *ret)
{
	(void)t;
	(void)ip;
	(void)ret;
	return false;
}

const char *trace_enumerator(struct trace *t, const struct kernel_val *v, s64 val)
{
	(void)t;
	(void)v;
	(void)val;
	return NULL;
}

struct guest *trace_guest(struct trace *t)
{
	return t->guest;
}

static int cannot(struct err *err)
{
	return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0, "not while it is measured");
}

int trace_set_graph(struct trace *t, bool on, struct err *err)
{
	(void)t;
	(void)on;
	return cannot(err);
}

int trace_set_recording(struct trace *t, bool on, struct err *err)
{
	(void)t;
	(void)on;
	return cannot(err);
}

int trace_set_filter(struct trace *t, const struct trace_opts *opts, struct err *err)
{
	(void)t;
	(void)opts;
	return cannot(err);
}

int trace_mark(struct trace *t, const char *text, u64 host_ns, struct err *err)
{
	(void)t;
	(void)text;
	(void)host_ns;
	return cannot(err);
}

int trace_snapshot(struct trace *t, struct trace **ret, struct err *err)
{
	(void)t;
	(void)ret;
	return cannot(err);
}
