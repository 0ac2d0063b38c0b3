/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker threads for what may wait (attaching, arming, asking a VMM), so that the HTTP thread never
 * does. Threads come when all are busy and go after a while without work.
 */
#ifndef API_WORK_H
#define API_WORK_H

#include "base/err.h"
#include "base/types.h"

struct work;

/**
 * work_create - an empty pool
 * @max_threads: at most so many jobs run at a time; more wait in line
 */
must_check int work_create(unsigned max_threads, struct work **ret, struct err *err);

/** work_destroy - run what is queued, wait for all of it, free; NULL is fine */
void work_destroy(struct work *w);

#define WORK_FOREVER UINT64_MAX

/** work_drain - wait at most so long until no job is queued or running; false: one is. Context: not from a job. */
bool work_drain(struct work *w, u64 ns);

/**
 * work_submit - run @fn(@arg) on a worker
 *
 * Context: any thread; does not wait. Return: 0; -ENOMEM, @fn will not run.
 */
must_check int work_submit(struct work *w, void (*fn)(void *arg), void *arg);

#endif
