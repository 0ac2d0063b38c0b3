/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waking streams: one dispatcher between the drain threads, which must not wait, and the streams,
 * of which any number may read one trace. Also the clock of their heartbeats, and the eye on
 * clients that left while their stream had nothing to say.
 */
#ifndef API_HUB_H
#define API_HUB_H

#include "base/err.h"
#include "base/types.h"

struct MHD_Connection;
struct identity;
struct hub;

/* A stream's part of it. The owner embeds it; members belong to hub.c. */
struct hub_client {
	struct hub_client *next;
	const void *topic; /* what it listens to: a struct trace_entry */
	struct MHD_Connection *conn;
	int fd; /* the connection's socket */
	bool half_close_is_end; /* TCP: a client's FIN cannot be told from its end */
	bool wants_beat;
	bool wants_tick; /* once */
	/* what nobody tells of is looked for, some times a second: is there something new? Of the owner, after hub_client_init(); NULL */
	bool (*ready)(const struct hub_client *c);
	bool suspended, woken, gone, beat, denied;
	const struct identity *who; /* the owner's */
	u64 last_ns; /* CLOCK_MONOTONIC of its last output */
};

/**
 * hub_create - start the dispatcher
 * @heartbeat_ns: a stream with nothing to say is woken so often
 */
must_check int hub_create(u64 heartbeat_ns, struct hub **ret, struct err *err);
void hub_destroy(struct hub *h);

/**
 * hub_client_init - a stream on @conn that listens to @topic
 * @who: stays for as long as @c
 * @beats: it says something when it was quiet for a while
 */
void hub_client_init(struct hub_client *c, struct MHD_Connection *conn, const void *topic,
		     const struct identity *who, bool beats);
void hub_add(struct hub *h, struct hub_client *c);
void hub_remove(struct hub *h, struct hub_client *c);

/**
 * hub_wake - there is something new about @topic
 *
 * Context: any thread, drain threads too; takes a lock that is held for microseconds only.
 */
void hub_wake(struct hub *h, const void *topic);

/** hub_end - wake everybody for good: hub_wait() does not suspend any more */
void hub_end(struct hub *h);

/** hub_is_ending - was it called? For a stream that always has something, and does not come to wait */
bool hub_is_ending(struct hub *h);

/**
 * hub_review - streams of those that @still says no to are denied, and woken
 *
 * Context: any thread; @still is called with the hub's lock held.
 */
void hub_review(struct hub *h, bool (*still)(void *arg, const struct identity *who), void *arg);

/** hub_deny - the same for one, whoever added it: what it was let in by may have gone before hub_add() */
void hub_deny(struct hub *h, struct hub_client *c);

/** hub_denied - is it @c's end, whatever there is? */
bool hub_denied(struct hub *h, const struct hub_client *c);

enum hub_why {
	HUB_SUSPENDED,
	HUB_AGAIN,
	HUB_BEAT,
	HUB_CLIENT_GONE,
	HUB_ENDING
};

/**
 * hub_wait - the stream found nothing: suspend its connection, or say why not
 * @tick: there is a HUB_BEAT within half a second, whether it is time for a heartbeat or not
 *
 * Context: the connection's HTTP thread, in the content reader.
 */
enum hub_why hub_wait(struct hub *h, struct hub_client *c, bool tick);

/** hub_yield - the stream is to go on where it is, after the HTTP thread's other connections. Context: as hub_wait() */
void hub_yield(struct hub *h, struct hub_client *c);

/** hub_output - note that the stream has just said something */
void hub_output(struct hub *h, struct hub_client *c);

#endif
