/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A unix socket by which a guest is asked about and told what to do. Lines of text, each answered by one that
 * begins with "ok" or "error"; in between, lines that begin with "event" say what happens to the guest:
 *
 *   status        life, console bytes lost, packets of each network card
 *   slots         the guest's memory: where, and how many bytes, in hex
 *   registers N   those of a vCPU, while all stand still for a moment
 *   break ADDR    hold the guest where a vCPU comes to this (virtual, in hex); unbreak ADDR takes it away
 *   step N        one instruction of a vCPU of a guest that is held
 *   go            a guest that is held runs on
 *   power         press the power button
 *   reset         as the guest's own reset
 *   end           end the guest at once
 *
 * Breakpoints are of the client who set the first one, and go when it does: nobody else could tell what holds the guest.
 */
#ifndef MACHINE_CONTROL_H
#define MACHINE_CONTROL_H

#include "base/err.h"
#include "base/types.h"

#include <pthread.h>

#define CONTROL_CLIENTS 8
#define CONTROL_LINE    64

struct machine;

struct control {
	struct machine *m;
	int fd, wake_fd; /* -1: none */
	pthread_t thread;
	bool started;
	struct control_client *debugger; /* has set breakpoints; NULL: nobody. The thread's own */
	bool debugger_left; /* and its breakpoints stay until now */
	u64 drop_again_ns; /* when they are tried to be taken away again; 0: were not tried yet */
	pthread_mutex_t lock; /* of all below; taken within any other, and none within it */
	bool stopping;
	struct control_client {
		int fd; /* -1: none; closed by the thread alone, which waits for it */
		bool dead; /* it did not read */
		u32 n;
		char line[CONTROL_LINE];
	} client[CONTROL_CLIENTS];
};

/** control_open - listen at @path; NULL: nobody can ask. Errors of listen_at(). */
must_check int control_open(struct control *c, const char *path, struct err *err);

/** control_start - a thread that answers for @m; -EAGAIN */
must_check int control_start(struct control *c, struct machine *m, struct err *err);

/** control_tell - an event for all clients; one that does not read is let go. @arg is the struct control. */
void control_tell(void *arg, const char *line);

/** control_close - end the thread, and let go of clients; fine when nothing was opened */
void control_close(struct control *c);

#endif
