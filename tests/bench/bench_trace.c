// SPDX-License-Identifier: Apache-2.0
/*
 * A trace whose records come from a writer at a steady rate into the real store, behind the contract of
 * tracers/trace.h: what streams cost the daemon can be measured without a guest, which would take the cores.
 * A guest "fake-N" has N records a second. Goes with tests/api/fake_engine.c.
 */
#include "tracers/trace.h"

#include "base/clock.h"
#include "tests/api/fake_engine.h"
#include "tracers/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCH 256u

struct trace {
	struct guest *guest;
	struct store *store;
	pthread_mutex_t lock; /* all below */
	pthread_t thread;
	bool ending, joined;
	struct trace_info info;
	void (*notify)(void *arg);
	void *notify_arg;
	u64 rate;
	u64 n; /* the writer's */
};

static void fill(struct trace *t, struct trace_record *r)
{
	const struct kernel *k = &t->guest->kernel;
	u64 n = t->n++;

	*r = (struct trace_record){
		.ts_ns = 5 * NSEC_PER_SEC + n * 1000,
		.ip = k->sites[n * 7 % FAKE_FUNCTIONS].ip,
		.parent = k->sites[n * 13 % FAKE_FUNCTIONS].ip + 16,
		.pid = 100 + (u32)(n % 3),
		.tgid = 100,
		.cpu = (u16)(n % 2),
		.type = TRACE_FUNCTION,
		.comm = "writer",
	};
}

static void write_some(struct trace *t, u64 due)
{
	struct trace_record batch[BATCH];

	while (t->n < due) {
		size_t n = (size_t)MIN(due - t->n, (u64)BATCH);

		for (size_t i = 0; i < n; i++)
			fill(t, &batch[i]);
		store_append(t->store, batch, n);
	}
}

static void *writer(void *arg)
{
	struct trace *t = arg;
	u64 began = monotonic_ns();
	struct timespec step = { .tv_nsec = (long)NSEC_PER_MSEC };
	bool ending = false;

	while (!ending) {
		nanosleep(&step, NULL);
		write_some(t, (u64)((double)(monotonic_ns() - began) / 1e9 * (double)t->rate));
		pthread_mutex_lock(&t->lock);
		if (t->notify)
			t->notify(t->notify_arg);
		ending = t->ending;
		pthread_mutex_unlock(&t->lock);
	}
	return NULL;
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
	r = store_create(opts->buffer_records, 0, &t->store, err);
	if (r < 0) {
		free(t);
		return r;
	}
	if (pthread_create(&t->thread, NULL, writer, t)) {
		store_destroy(t->store);
		free(t);
		return err_set(err, -EAGAIN, ERR_NO_MEMORY, 0, "no thread");
	}
	*ret = t;
	return 0;
}

int trace_stop(struct trace *t, struct err *err)
{
	(void)err;
	pthread_mutex_lock(&t->lock);
	t->ending = true;
	pthread_mutex_unlock(&t->lock);
	if (!t->joined)
		pthread_join(t->thread, NULL);
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
	store_destroy(t->store);
	pthread_mutex_destroy(&t->lock);
	free(t);
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

bool trace_sym(struct trace *t, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	const struct kernel *k = &t->guest->kernel;
	u64 base = k->sites[0].ip - 4, i = (addr - base) / 64;

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

void trace_names_lock(struct trace *t)
{
	(void)t;
}

void trace_names_unlock(struct trace *t)
{
	(void)t;
}

bool trace_func(struct trace *t, u64 ip, struct kernel_func *ret)
{
	(void)t;
	(void)ip;
	(void)ret;
	return false;
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
