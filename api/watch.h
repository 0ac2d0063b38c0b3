/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks after guests and traces from time to time, and tells as events what nobody asked for: losses, traces
 * that failed, guests that went away or were started anew. Streams of whoever's token was removed it ends.
 */
#ifndef API_WATCH_H
#define API_WATCH_H

#include "base/err.h"

struct auth;
struct events;
struct hub;
struct registry;
struct watch;

/* What it looks after, and whom it tells. */
struct watch_opts {
	struct registry *reg;
	struct events *events;
	struct auth *auth;
	struct hub *hub;
};

must_check int watch_create(const struct watch_opts *opts, struct watch **ret, struct err *err);
/** watch_destroy - NULL is fine */
void watch_destroy(struct watch *w);

#endif
