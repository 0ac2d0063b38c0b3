// SPDX-License-Identifier: Apache-2.0
/*
 * A QMP connection between commands. QEMU's monitor has one client at a time, and no other is answered as long as we are
 * connected; on many hosts it is the manager's own. So whoever does not use it leaves it, and what QEMU tells unasked is
 * read and dropped meanwhile, as it would pile up in QEMU.
 */
#include "vmm/qmp_impl.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_NS   (5 * NSEC_PER_MSEC)
#define DROP_MOST 1000 /* messages at a time: commands want the lock, too */

/* One that was not accepted yet keeps nobody away, and what is owed would be lost. */
static bool may_rest(const struct qmp *q)
{
	return !q->kept && !q->owed && q->phase != PHASE_GREETING;
}

/* Something has come, and no command waits for it; or QEMU has closed its end. */
static void take(struct qmp *q)
{
	int rc = 0;

	if (q->owed || q->phase != PHASE_READY) {
		if (qmp_make_ready(q, monotonic_ns() + LOOK_NS, NULL) == 0)
			q->silent = false;
	} else {
		for (int i = 0; i < DROP_MOST && rc == 0; i++) {
			json_t *msg = NULL;

			rc = qmp_next_message(q, 0, &msg, NULL);
			json_decref(msg);
		}
	}
	q->rests = q->dead;
}

/* Is there a socket to come back by? The path of one that serves its connections on may be removed. */
static bool leads_back(const struct qmp *q)
{
	struct stat st;

	return stat(q->path, &st) == 0 && S_ISSOCK(st.st_mode);
}

/* Until when the connection may stay: ms for poll(2), -1 for ever; 0 it was left. */
static int leave_or_wait(struct qmp *q)
{
	u64 now = monotonic_ns(), due = q->used_ns + q->idle_ns;

	if (q->dead || !may_rest(q))
		return -1;
	if (due > now)
		return (int)MIN((due - now) / NSEC_PER_MSEC + 1, (u64)INT32_MAX);
	if (!leads_back(q))
		return (int)MIN(q->idle_ns / NSEC_PER_MSEC + 1, (u64)INT32_MAX);
	qmp_drop_fd(q);
	q->dead = q->rests = true;
	return 0;
}

static void *watch(void *arg)
{
	struct qmp *q = arg;

	prctl(PR_SET_NAME, "hvf-qmp");
	pthread_mutex_lock(&q->lock);
	while (!q->quits) {
		int wait = leave_or_wait(q);
		struct pollfd p[] = { { .fd = q->wake, .events = POLLIN },
				      { .fd = q->dead ? -1 : q->fd, .events = POLLIN } };
		u64 n;

		if (wait == 0)
			continue;
		pthread_mutex_unlock(&q->lock);
		if (poll(p, ARRAY_SIZE(p), wait) < 0)
			p[0].revents = p[1].revents = 0;
		pthread_mutex_lock(&q->lock);
		if (p[0].revents)
			(void)!read(q->wake, &n, sizeof(n));
		/* of another connection by now nothing is there to be read, perhaps */
		if (p[1].revents && !q->dead)
			take(q);
	}
	pthread_mutex_unlock(&q->lock);
	return NULL;
}

int qmp_share(struct qmp *q, u64 idle_ns, struct err *err)
{
	sigset_t all, old;
	int rc;

	if (!q->peer)
		return 0;
	q->idle_ns = idle_ns;
	q->used_ns = monotonic_ns();
	q->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (q->wake < 0)
		return err_set(err, -errno, ERR_IO, 0, "eventfd: %s", strerror(errno));
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&q->thread, NULL, watch, q);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc == 0)
		return 0;
	close(q->wake);
	q->wake = -1;
	return err_set(err, -rc, ERR_NO_MEMORY, 0, "cannot start a thread: %s", strerror(rc));
}

void qmp_watch_again(struct qmp *q)
{
	u64 one = 1;

	if (q->wake >= 0)
		(void)!write(q->wake, &one, sizeof(one));
}

void qmp_keep(struct qmp *q, bool keep)
{
	pthread_mutex_lock(&q->lock);
	q->kept = keep;
	qmp_watch_again(q);
	pthread_mutex_unlock(&q->lock);
}

void qmp_unshare(struct qmp *q)
{
	if (q->wake < 0)
		return;
	pthread_mutex_lock(&q->lock);
	q->quits = true;
	qmp_watch_again(q);
	pthread_mutex_unlock(&q->lock);
	pthread_join(q->thread, NULL);
	close(q->wake);
	q->wake = -1;
}
