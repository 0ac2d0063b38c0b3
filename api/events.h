/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happened to the daemon, its guests and traces: the newest events in memory, for any number of
 * readers. Must not know HTTP.
 */
#ifndef API_EVENTS_H
#define API_EVENTS_H

#include "base/buf.h"
#include "base/err.h"
#include "base/types.h"

#include <jansson.h>

struct events;
struct hub;

#define EVENTS_KEPT 4096

/**
 * events_create - none yet
 * @first_seq: of the first event; grows from one run of the daemon to the next, so that who reads on with an
 *             earlier run's number is told so
 */
must_check int events_create(struct hub *hub, u64 first_seq, struct events **ret, struct err *err);
void events_destroy(struct events *e);

/**
 * events_add - something happened
 * @more: what the event has besides seq, type and time; its reference is taken; NULL without memory, which
 *        is logged
 *
 * Context: any thread; takes no lock but its own and the hub's.
 */
void events_add(struct events *e, const char *type, json_t *more);

/* What a read gives. */
struct events_page {
	u64 after; /* in: only later ones; 0 for the oldest kept. out: the last that was given */
	size_t max; /* in: so many at most */
	size_t n; /* out */
	u64 oldest_seq; /* out, also on -ESTALE; 0: there was none yet */
};

/**
 * events_read - lines of JSON
 * @put: called with each, without its end of line, in order; the lock is held
 *
 * Return: 0; -ESTALE the event after page->after is not kept any more (records.gone).
 */
must_check int events_read(struct events *e, struct events_page *page,
			   void (*put)(void *arg, u64 seq, const char *json, size_t len), void *arg,
			   struct err *err);

#endif
