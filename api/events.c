// SPDX-License-Identifier: Apache-2.0
/* Events of the daemon. See events.h. */
#include "api/events.h"

#include "api/hub.h"
#include "api/problem.h"
#include "base/clock.h"
#define LOG_PREFIX "events"
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct events {
	pthread_mutex_t lock; /* all below */
	struct hub *hub;
	u64 next; /* seq of the next; event s lies in text[s % EVENTS_KEPT] */
	u64 first; /* of all */
	char *text[EVENTS_KEPT];
};

int events_create(struct hub *hub, u64 first_seq, struct events **ret, struct err *err)
{
	struct events *e = calloc(1, sizeof(*e));

	if (!e)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for events");
	pthread_mutex_init(&e->lock, NULL);
	e->hub = hub;
	e->next = e->first = first_seq;
	*ret = e;
	return 0;
}

void events_destroy(struct events *e)
{
	if (!e)
		return;
	for (size_t i = 0; i < EVENTS_KEPT; i++)
		free(e->text[i]);
	pthread_mutex_destroy(&e->lock);
	free(e);
}

void events_add(struct events *e, const char *type, json_t *more)
{
	json_t *doc = NULL;
	char *text = NULL;
	size_t slot;

	pthread_mutex_lock(&e->lock);
	if (more)
		doc = json_pack("{s:I, s:s, s:o}", "seq", (json_int_t)e->next, "type", type, "time",
				json_time(clock_ns(CLOCK_REALTIME)));
	if (doc && json_object_update(doc, more) == 0)
		text = json_dumps(doc, JSON_COMPACT);
	if (text) {
		slot = e->next++ % EVENTS_KEPT;
		free(e->text[slot]);
		e->text[slot] = text;
	} else {
		log_error("no memory for the event %s", type);
	}
	pthread_mutex_unlock(&e->lock);
	json_decref(doc);
	json_decref(more);
	hub_wake(e->hub, e);
}

static u64 oldest_of(const struct events *e)
{
	return e->next - e->first > EVENTS_KEPT ? e->next - EVENTS_KEPT : e->first;
}

int events_read(struct events *e, struct events_page *page,
		void (*put)(void *arg, u64 seq, const char *json, size_t len), void *arg,
		struct err *err)
{
	u64 oldest, seq, wanted = page->after + 1;
	int r = 0;

	pthread_mutex_lock(&e->lock);
	oldest = oldest_of(e);
	page->n = 0;
	page->oldest_seq = e->next == e->first ? 0 : oldest;
	if (page->after && (wanted < oldest || wanted > e->next))
		r = err_set(err, -ESTALE, ERR_CURSOR_GONE, 0,
			    "event %llu is not kept; the oldest is %llu",
			    (unsigned long long)wanted, (unsigned long long)oldest);
	for (seq = page->after ? wanted : oldest; r == 0 && seq < e->next && page->n < page->max;
	     seq++, page->n++) {
		const char *text = e->text[seq % EVENTS_KEPT];

		put(arg, seq, text, strlen(text));
		page->after = seq;
	}
	pthread_mutex_unlock(&e->lock);
	return r;
}
