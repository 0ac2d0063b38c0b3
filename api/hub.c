// SPDX-License-Identifier: Apache-2.0
/* Waking streams. See hub.h. */
#include "api/hub.h"

#include "base/clock.h"

#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#define HUB_TICK_NS (500 * NSEC_PER_MSEC)
#define HUB_LOOK_NS \
	(40 * NSEC_PER_MSEC) /* while there is one that is to be looked at: hub_client.ready */

struct hub {
	pthread_mutex_t lock; /* the list and every client's flags; innermost of all locks */
	pthread_cond_t end; /* or there is another to be looked at */
	pthread_t ticker;
	struct hub_client *first;
	u64 heartbeat_ns;
	bool ready_wanted; /* somebody who has hub_client.ready is suspended */
	bool ending;
};

/* Called with the lock held; resuming only queues the connection for its HTTP thread. */
static void wake(struct hub_client *c)
{
	c->woken = true;
	if (!c->suspended)
		return;
	c->suspended = false;
	MHD_resume_connection(c->conn);
}

/* Nobody watches the socket of a suspended connection, so look here. */
static bool client_left(const struct hub_client *c)
{
	struct pollfd p = { .fd = c->fd, .events = POLLRDHUP };
	short end = POLLHUP | POLLERR | POLLNVAL;

	if (c->half_close_is_end)
		end |= POLLRDHUP;
	return poll(&p, 1, 0) == 1 && (p.revents & end);
}

static void look(struct hub *h, u64 now)
{
	for (struct hub_client *c = h->first; c; c = c->next) {
		if (!c->suspended)
			continue;
		if (client_left(c)) {
			c->gone = true;
			wake(c);
		} else if (c->wants_tick ||
			   (c->wants_beat && now - c->last_ns >= h->heartbeat_ns)) {
			c->wants_tick = false;
			c->beat = true;
			wake(c);
		}
	}
}

/* Wake those that have something. Return: are there others to be looked at? */
static bool look_ready(struct hub *h)
{
	bool others = false;

	for (struct hub_client *c = h->first; c; c = c->next) {
		if (!c->suspended || !c->ready)
			continue;
		if (c->ready(c))
			wake(c);
		else
			others = true;
	}
	return others;
}

static void *tick(void *arg)
{
	struct hub *h = arg;
	u64 step = MIN(HUB_TICK_NS, h->heartbeat_ns), now = monotonic_ns(), next = now + step;
	u64 next_ready = now; /* no sooner: one who talks all the time would keep the lock */
	struct timespec until;

	pthread_mutex_lock(&h->lock);
	while (!h->ending) {
		until = timespec_of(h->ready_wanted ? MIN(next, next_ready) : next);
		pthread_cond_timedwait(&h->end, &h->lock, &until);
		now = monotonic_ns();
		if (h->ready_wanted && now >= next_ready) {
			h->ready_wanted = look_ready(h);
			next_ready = now + HUB_LOOK_NS;
		}
		if (now < next)
			continue;
		look(h, now);
		next = now + step;
	}
	pthread_mutex_unlock(&h->lock);
	return NULL;
}

int hub_create(u64 heartbeat_ns, struct hub **ret, struct err *err)
{
	struct hub *h = calloc(1, sizeof(*h));
	pthread_condattr_t attr;
	int r;

	if (!h)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0,
			       "no memory for the stream dispatcher");
	h->heartbeat_ns = heartbeat_ns;
	pthread_mutex_init(&h->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&h->end, &attr);
	pthread_condattr_destroy(&attr);
	r = pthread_create(&h->ticker, NULL, tick, h);
	if (r) {
		free(h);
		return err_set(err, -r, ERR_NO_MEMORY, 0, "cannot start the stream dispatcher");
	}
	*ret = h;
	return 0;
}

void hub_destroy(struct hub *h)
{
	if (!h)
		return;
	hub_end(h);
	pthread_join(h->ticker, NULL);
	pthread_cond_destroy(&h->end);
	pthread_mutex_destroy(&h->lock);
	free(h);
}

void hub_client_init(struct hub_client *c, struct MHD_Connection *conn, const void *topic,
		     const struct identity *who, bool beats)
{
	const union MHD_ConnectionInfo *info;
	int domain = AF_UNIX;
	socklen_t len = sizeof(domain);

	info = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
	*c = (struct hub_client){ .conn = conn,
				  .fd = info ? info->connect_fd : -1,
				  .topic = topic,
				  .who = who,
				  .wants_beat = beats };
	getsockopt(c->fd, SOL_SOCKET, SO_DOMAIN, &domain, &len);
	c->half_close_is_end = domain != AF_UNIX;
}

void hub_add(struct hub *h, struct hub_client *c)
{
	pthread_mutex_lock(&h->lock);
	c->last_ns = monotonic_ns();
	c->next = h->first;
	h->first = c;
	pthread_mutex_unlock(&h->lock);
}

void hub_remove(struct hub *h, struct hub_client *c)
{
	struct hub_client **at;

	pthread_mutex_lock(&h->lock);
	for (at = &h->first; *at && *at != c; at = &(*at)->next)
		;
	if (*at)
		*at = c->next;
	pthread_mutex_unlock(&h->lock);
}

void hub_wake(struct hub *h, const void *topic)
{
	pthread_mutex_lock(&h->lock);
	for (struct hub_client *c = h->first; c; c = c->next) {
		if (c->topic == topic)
			wake(c);
	}
	pthread_mutex_unlock(&h->lock);
}

void hub_end(struct hub *h)
{
	pthread_mutex_lock(&h->lock);
	h->ending = true;
	pthread_cond_signal(&h->end);
	for (struct hub_client *c = h->first; c; c = c->next)
		wake(c);
	pthread_mutex_unlock(&h->lock);
}

bool hub_is_ending(struct hub *h)
{
	bool ending;

	pthread_mutex_lock(&h->lock);
	ending = h->ending;
	pthread_mutex_unlock(&h->lock);
	return ending;
}

void hub_review(struct hub *h, bool (*still)(void *arg, const struct identity *who), void *arg)
{
	pthread_mutex_lock(&h->lock);
	for (struct hub_client *c = h->first; c; c = c->next) {
		if (c->denied || still(arg, c->who))
			continue;
		c->denied = true;
		wake(c);
	}
	pthread_mutex_unlock(&h->lock);
}

void hub_deny(struct hub *h, struct hub_client *c)
{
	pthread_mutex_lock(&h->lock);
	c->denied = true;
	wake(c);
	pthread_mutex_unlock(&h->lock);
}

bool hub_denied(struct hub *h, const struct hub_client *c)
{
	bool denied;

	pthread_mutex_lock(&h->lock);
	denied = c->denied;
	pthread_mutex_unlock(&h->lock);
	return denied;
}

enum hub_why hub_wait(struct hub *h, struct hub_client *c, bool tick)
{
	enum hub_why why = HUB_SUSPENDED;

	pthread_mutex_lock(&h->lock);
	if (c->gone) {
		why = HUB_CLIENT_GONE;
	} else if (h->ending) {
		why = HUB_ENDING;
	} else if (c->beat) {
		c->beat = false;
		why = HUB_BEAT;
	} else if (c->woken) {
		/* something came between the look and now: suspending would lose the wake-up */
		c->woken = false;
		why = HUB_AGAIN;
	} else {
		c->suspended = true;
		c->wants_tick = tick;
		MHD_suspend_connection(c->conn);
		if (c->ready && !h->ready_wanted) {
			h->ready_wanted = true;
			pthread_cond_signal(&h->end);
		}
	}
	pthread_mutex_unlock(&h->lock);
	return why;
}

void hub_yield(struct hub *h, struct hub_client *c)
{
	pthread_mutex_lock(&h->lock);
	c->suspended = true;
	MHD_suspend_connection(c->conn);
	wake(c);
	pthread_mutex_unlock(&h->lock);
}

void hub_output(struct hub *h, struct hub_client *c)
{
	pthread_mutex_lock(&h->lock);
	c->last_ns = monotonic_ns();
	pthread_mutex_unlock(&h->lock);
}
