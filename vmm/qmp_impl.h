/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of struct qmp, between qmp.c (commands and answers) and qmp_share.c (when there are none). */
#ifndef VMM_QMP_IMPL_H
#define VMM_QMP_IMPL_H

#include "base/buf.h"
#include "vmm/qmp.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/un.h>

enum qmp_phase {
	PHASE_GREETING, /* connected */
	PHASE_GREETED,
	PHASE_READY /* the mode for commands was asked for */
};

struct qmp {
	const struct qmp_transport *via; /* NULL: the socket @fd */
	void *via_arg;
	const struct qmp_peer *peer; /* NULL: a connection that was lost is not made again */
	void *peer_arg;
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	pthread_mutex_t lock; /* all below: a command and its answer */
	int fd; /* -1: none */
	enum qmp_phase phase;
	struct buf in; /* bytes not yet taken as messages */
	struct qmp_scan scan; /* of the message that @in begins with */
	u64 id; /* of the last command; answers to others are dropped */
	bool owed; /* the answer to it; until that comes no other command is sent */
	bool dead;
	atomic_bool
		silent; /* the last command got no answer in time, or there is no connection for one */

	/* qmp_share.c */
	bool rests; /* @dead since there was no command, which no command has found out yet */
	bool kept;
	bool quits;
	u64 used_ns;
	u64 idle_ns;
	int wake; /* eventfd of the thread; -1: there is none */
	pthread_t thread;
};

/*
 * qmp_make_ready - until a command can be sent; the lock is held
 *
 * What did not come in time is gone on with the next time, and nothing more is sent before it has: a QEMU that hangs for
 * long would find all of that, or have our socket full.
 */
must_check int qmp_make_ready(struct qmp *q, u64 deadline, struct err *err);

/* qmp_next_message - event or answer; to be json_decref()ed. -ETIMEDOUT: none by @deadline. The lock is held. */
must_check int qmp_next_message(struct qmp *q, u64 deadline, json_t **ret, struct err *err);

void qmp_drop_fd(struct qmp *q);

/* qmp_watch_again - there is another connection: the thread, if there is one, is to look at that; the lock is held */
void qmp_watch_again(struct qmp *q);

/* qmp_unshare - end the thread, if there is one */
void qmp_unshare(struct qmp *q);

#endif
