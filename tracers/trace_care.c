// SPDX-License-Identifier: Apache-2.0
/*
 * A trace's two threads. The one that drains must not wait: a ring is full in a fraction of a second. So what needs
 * the guest's lock, which others have for seconds, and what asks the VMM, which may not answer, is done by a second
 * one, of this file. What it finds it posts (struct trace_post), and the first one takes that between two rounds: of
 * the records, their names and their clock there is one owner.
 */
#define LOG_PREFIX "trace"
#include "base/clock.h"
#include "base/log.h"
#include "tracers/trace_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define COLLECT_NS    (100 * NSEC_PER_MSEC)
#define LOOK_AGAIN_NS (2 * NSEC_PER_SEC)
#define LOOKS_MAX \
	2 /* more, at a time: where switches were lost, and then where new functions are armed */

/* t->lock held. */
static bool is_over(const struct trace *t)
{
	return t->care_stop || t->thread_ended;
}

/* Until the next time to collect. false: it is time to end. */
static bool pause_care(struct trace *t)
{
	struct timespec until = timespec_of(monotonic_ns() + COLLECT_NS);
	int rc = 0;
	bool over;

	pthread_mutex_lock(&t->lock);
	while (!is_over(t) && !rc)
		rc = pthread_cond_timedwait(&t->care_wake, &t->lock, &until);
	over = is_over(t);
	pthread_mutex_unlock(&t->lock);
	return !over;
}

void trace_post_epoch(struct trace *t, u32 epoch)
{
	pthread_mutex_lock(&t->lock);
	t->post.new_epoch = true;
	t->post.epoch = epoch;
	t->post.asked++;
	pthread_mutex_unlock(&t->lock);
}

void trace_post_switches_lost(struct trace *t)
{
	pthread_mutex_lock(&t->lock);
	t->post.switches_lost = true;
	t->post.asked++;
	pthread_mutex_unlock(&t->lock);
}

bool trace_post_is_taken(struct trace *t)
{
	bool taken;

	pthread_mutex_lock(&t->lock);
	taken = t->post.taken == t->post.asked;
	pthread_mutex_unlock(&t->lock);
	return taken;
}

/* The draining thread takes it before its next round. false: there is none any more. */
static bool wait_until_taken(struct trace *t)
{
	bool taken;

	pthread_mutex_lock(&t->lock);
	while (t->post.taken != t->post.asked && !is_over(t))
		pthread_cond_wait(&t->care_wake, &t->lock);
	taken = t->post.taken == t->post.asked;
	pthread_mutex_unlock(&t->lock);
	return taken;
}

static void post_failed(struct trace *t, const struct err *err)
{
	pthread_mutex_lock(&t->lock);
	t->post.failed = true;
	t->post.why = *err;
	pthread_mutex_unlock(&t->lock);
}

static void post_clock(struct trace *t)
{
	int rc;

	pthread_mutex_lock(&t->lock);
	rc = trace_clock_copy(&t->clock, &t->post.clock);
	pthread_mutex_unlock(&t->lock);
	if (rc)
		log_warn("no memory for the guest's clock as it is now");
}

/* Behind what is posted already. */
static void post_never(struct trace *t, struct unreturned *u)
{
	struct unreturned *posted = &t->post.never;

	pthread_mutex_lock(&t->lock);
	for (size_t i = 0; i < u->n; i++)
		trace_note_unreturned(posted, &u->call[i]);
	pthread_mutex_unlock(&t->lock);
	free(u->call);
}

int trace_take_post(struct trace *t, struct err *err)
{
	struct trace_post post;

	pthread_mutex_lock(&t->lock);
	post = t->post;
	t->post = (struct trace_post){ .asked = post.asked, .taken = post.taken };
	pthread_mutex_unlock(&t->lock);
	if (post.new_epoch)
		trace_life_mark(t, post.epoch);
	if (post.switches_lost)
		drain_switches_lost(t->drain);
	if (post.clock.cpus) {
		trace_clock_deinit(&t->drain_clock);
		t->drain_clock = post.clock;
	}
	trace_pass_unreturned(t, &post.never);
	if (post.asked != post.taken) {
		pthread_mutex_lock(&t->lock);
		t->post.taken = post.asked;
		pthread_cond_signal(&t->care_wake);
		pthread_mutex_unlock(&t->lock);
	}
	if (post.failed)
		*err = post.why;
	return post.failed ? -ECANCELED : 0;
}

/* Frames of calls that will never return go back to the guest, and the calls into the stream. */
static int collect(struct trace *t, struct err *err)
{
	struct unreturned u = { 0 };
	int rc = 0;

	if (!t->graph)
		return 0;
	guest_lock(t->g);
	if (t->graph && t->tended) /* still */
		rc = tracing_collect(t->g, trace_note_unreturned, &u, err);
	post_never(t, &u); /* before others turn the tracer over: these are of before that */
	guest_unlock(t->g);
	return rc;
}

/* Is it still the kernel that we know, and does its clock still run as we think? */
static int look(struct trace *t, bool *again_ret, struct err *err)
{
	struct err clock_err = { 0 };
	int rc = 0;

	*again_ret = false;
	guest_lock(t->g);
	if (t->tended) {
		rc = guest_check_alive(t->g, err);
		if (!rc && trace_clock_refresh(guest_kernel(t->g), &t->mem, &t->clock, &clock_err))
			log_warn("the guest's clock could not be read again: %s", clock_err.msg);
		else if (!rc)
			post_clock(t);
		if (!rc)
			rc = trace_life_look(t, again_ret, err);
	}
	guest_unlock(t->g);
	return rc;
}

static int look_again(struct trace *t, u64 *last, struct err *err)
{
	u64 now = clock_ns(CLOCK_MONOTONIC);
	bool again;
	int rc;

	if (now - *last < LOOK_AGAIN_NS)
		return 0;
	*last = now;
	rc = look(t, &again, err);
	/* what had to be known before is: as soon as that can be */
	for (int i = 0; !rc && i < LOOKS_MAX && again && wait_until_taken(t); i++)
		rc = look(t, &again, err);
	return rc;
}

static void *care(void *arg)
{
	struct trace *t = arg;
	u64 looked = clock_ns(CLOCK_MONOTONIC);
	struct err err = { 0 };

	while (pause_care(t)) {
		if (!collect(t, &err) && !look_again(t, &looked, &err))
			continue;
		trace_give_up(t, &err);
		post_failed(t, &err);
		break;
	}
	return NULL;
}

int trace_start_threads(struct trace *t, struct err *err)
{
	t->thread_runs = !pthread_create(&t->thread, NULL, trace_thread, t);
	t->care_runs = t->thread_runs && !pthread_create(&t->care_thread, NULL, care, t);
	return t->care_runs ? 0
			    : err_set(err, -EAGAIN, ERR_NO_MEMORY, 0,
				      "cannot start the threads of a trace");
}

/* What is read until the other one has ended is not lost. */
void trace_end_threads(struct trace *t)
{
	pthread_mutex_lock(&t->lock);
	t->care_stop = true;
	pthread_cond_signal(&t->care_wake);
	pthread_mutex_unlock(&t->lock);
	if (t->care_runs)
		pthread_join(t->care_thread, NULL);
	pthread_mutex_lock(&t->lock);
	t->stop = true;
	pthread_cond_signal(&t->wake);
	pthread_mutex_unlock(&t->lock);
	if (t->thread_runs)
		pthread_join(t->thread, NULL);
	t->thread_runs = t->care_runs = false;
}
