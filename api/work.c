// SPDX-License-Identifier: Apache-2.0
/* Worker threads. See work.h. */
#include "api/work.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define WORK_IDLE_SEC    10
#define WORK_STACK_BYTES (1024ul * 1024)

struct work_job {
	struct work_job *next;
	void (*fn)(void *arg);
	void *arg;
};

struct work {
	pthread_mutex_t lock; /* everything below */
	pthread_cond_t more; /* a job was queued, or the pool ends */
	pthread_cond_t less; /* a job or a thread ended */
	struct work_job *first, **last;
	unsigned n_queued, n_idle, n_threads, max_threads;
	bool ending;
};

int work_create(unsigned max_threads, struct work **ret, struct err *err)
{
	struct work *w = calloc(1, sizeof(*w));
	pthread_condattr_t attr;

	if (!w)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for the worker threads");
	pthread_mutex_init(&w->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&w->more, &attr);
	pthread_cond_init(&w->less, &attr);
	pthread_condattr_destroy(&attr);
	w->last = &w->first;
	w->max_threads = max_threads;
	*ret = w;
	return 0;
}

/* The next job, or NULL when the thread is to end. Called and returns with the lock held. */
static struct work_job *next_job(struct work *w)
{
	struct work_job *job;
	struct timespec until;
	int r = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += WORK_IDLE_SEC;
	w->n_idle++;
	pthread_cond_broadcast(&w->less); /* work_drain() counts idle threads */
	while (!w->first && !w->ending && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&w->more, &w->lock, &until);
	w->n_idle--;
	job = w->first;
	if (!job)
		return NULL;
	w->first = job->next;
	if (!w->first)
		w->last = &w->first;
	w->n_queued--;
	return job;
}

static void *run(void *arg)
{
	struct work *w = arg;
	struct work_job *job;

	pthread_mutex_lock(&w->lock);
	while ((job = next_job(w))) {
		pthread_mutex_unlock(&w->lock);
		job->fn(job->arg);
		free(job);
		pthread_mutex_lock(&w->lock);
	}
	w->n_threads--;
	pthread_cond_broadcast(&w->less);
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

static int add_thread(struct work *w)
{
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, WORK_STACK_BYTES);
	r = pthread_create(&thread, &attr, run, w);
	pthread_attr_destroy(&attr);
	if (r == 0)
		w->n_threads++;
	return -r;
}

int work_submit(struct work *w, void (*fn)(void *arg), void *arg)
{
	struct work_job *job = malloc(sizeof(*job));
	int r = 0;

	if (!job)
		return -ENOMEM;
	*job = (struct work_job){ .fn = fn, .arg = arg };
	pthread_mutex_lock(&w->lock);
	/* an idle thread may already be on its way to an earlier job: count those as taken */
	if (w->n_idle <= w->n_queued && w->n_threads < w->max_threads)
		r = add_thread(w);
	if (r < 0 && !w->n_threads) { /* nobody would ever run it */
		pthread_mutex_unlock(&w->lock);
		free(job);
		return -ENOMEM;
	}
	*w->last = job;
	w->last = &job->next;
	w->n_queued++;
	pthread_cond_signal(&w->more);
	pthread_mutex_unlock(&w->lock);
	return 0;
}

bool work_drain(struct work *w, u64 ns)
{
	struct timespec until;
	bool idle;
	int r = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (time_t)(ns / NSEC_PER_SEC);
	until.tv_nsec += (long)(ns % NSEC_PER_SEC);
	if (until.tv_nsec >= (long)NSEC_PER_SEC) {
		until.tv_nsec -= (long)NSEC_PER_SEC;
		until.tv_sec++;
	}
	pthread_mutex_lock(&w->lock);
	while ((w->n_queued || w->n_idle != w->n_threads) && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&w->less, &w->lock, &until);
	idle = !w->n_queued && w->n_idle == w->n_threads;
	pthread_mutex_unlock(&w->lock);
	return idle;
}

void work_destroy(struct work *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->ending = true;
	pthread_cond_broadcast(&w->more);
	while (w->n_threads)
		pthread_cond_wait(&w->less, &w->lock);
	pthread_mutex_unlock(&w->lock);
	pthread_cond_destroy(&w->more);
	pthread_cond_destroy(&w->less);
	pthread_mutex_destroy(&w->lock);
	free(w);
}
