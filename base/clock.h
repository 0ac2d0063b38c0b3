/* SPDX-License-Identifier: Apache-2.0 */
/* Time of the host. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include "base/types.h"

#include <errno.h>
#include <time.h>

static inline u64 clock_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (u64)ts.tv_sec * NSEC_PER_SEC + (u64)ts.tv_nsec;
}

/* For deadlines and durations: CLOCK_MONOTONIC in ns. */
static inline u64 monotonic_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static inline struct timespec timespec_of(u64 ns)
{
	return (struct timespec){ (time_t)(ns / NSEC_PER_SEC), (long)(ns % NSEC_PER_SEC) };
}

/* All of @ns, signals or not. */
static inline void sleep_ns(u64 ns)
{
	struct timespec ts = timespec_of(ns);

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

#endif
