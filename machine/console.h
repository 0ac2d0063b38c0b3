/* SPDX-License-Identifier: Apache-2.0 */
/* Who types at a guest's console: standard input, or the clients of a socket. */
#ifndef MACHINE_CONSOLE_H
#define MACHINE_CONSOLE_H

#include "base/err.h"
#include "base/types.h"

#include <pthread.h>

/* The device that takes what is typed: serial.h, virtio_devices.h. */
struct console_sink {
	void *dev;
	bool (*receive)(void *dev, const u8 *buf, size_t n);
	void (*close)(void *dev);
};

struct console {
	struct console_sink sink;
	int fd; /* read from, or accepted at; -1: none */
	int pipe[2]; /* what is written to the second, by whoever may look into this process, is received, too */
	int stop_fd; /* eventfd */
	bool listens;
	bool started;
	pthread_t thread;
};

/**
 * console_open - where input comes from
 * @input: NULL nowhere; "-" standard input; else the path of a unix socket, mode 0600, which is made
 *
 * From a pipe that output_offer_input() tells of it comes in any case. Return: 0; -EADDRINUSE something is at the
 * path; other system errors of socket(2), bind(2), pipe(2).
 */
must_check int console_open(struct console *c, const char *input, struct console_sink sink,
			    struct err *err);

/** console_start - a thread that passes it on, one client at a time; -EAGAIN */
must_check int console_start(struct console *c, struct err *err);

/** console_close - end the thread */
void console_close(struct console *c);

#endif
