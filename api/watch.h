/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks after guests and traces from time to time, and tells as events what nobody asked for: losses, traces
 * that failed, guests that went away or were started anew.
 */
#ifndef API_WATCH_H
#define API_WATCH_H

#include "base/err.h"

struct events;
struct registry;
struct watch;

must_check int watch_create(struct registry *reg, struct events *ev, struct watch **ret,
			    struct err *err);
/** watch_destroy - NULL is fine */
void watch_destroy(struct watch *w);

#endif
