/* SPDX-License-Identifier: Apache-2.0 */
/* Listening sockets and the state directory of the daemon. Must not know HTTP. */
#ifndef API_LISTEN_H
#define API_LISTEN_H

#include "base/err.h"
#include "base/types.h"

#define LISTEN_DEFAULT    "unix:/run/hvftrace/hvftraced.sock"
#define STATE_DIR_DEFAULT "/var/lib/hvftrace"

struct listen_socket {
	int fd;
	bool is_tcp;
	char path[108]; /* unix: removed by listen_close(); "" for TCP */
	char name[160]; /* what it really listens to, "tcp:127.0.0.1:8080" */
};

/**
 * listen_is_loopback - is @text, "HOST" or "HOST:PORT", this host by a name that nobody else can give?
 *
 * "localhost", any address of 127.0.0.0/8, or "[::1]" however it is written. An address cannot be made to
 * resolve to another, and localhost must not (RFC 6761 section 6.3).
 */
bool listen_is_loopback(const char *text);

/**
 * listen_open - make a listening socket
 * @spec: "unix:PATH" (folders are made, mode 0660, a socket that nobody serves is replaced) or
 *        "tcp:ADDR:PORT" with a loopback address; port 0 takes a free one
 *
 * Return: 0; -EINVAL syntax; -EACCES not loopback; -EADDRINUSE; or the system's.
 */
must_check int listen_open(const char *spec, struct listen_socket *ret, struct err *err);

/**
 * listen_adopt - a listening socket that somebody else has opened
 * @fd: it stays the caller's on failure
 *
 * Return: 0; -EINVAL neither unix nor TCP; -EACCES TCP, not on a loopback address.
 */
must_check int listen_adopt(int fd, struct listen_socket *ret, struct err *err);

/** listen_close - remove the socket's file; the descriptor belongs to the HTTP server by now */
void listen_close(struct listen_socket *s);

/**
 * state_dir_lock - make the state directory and take it for this daemon alone
 * @fd_ret: keeps it while it is open
 *
 * Return: 0; -EBUSY another daemon has it; or the system's.
 */
must_check int state_dir_lock(const char *dir, int *fd_ret, struct err *err);

/** make_dirs - mkdir -p; folders that are made get @mode */
must_check int make_dirs(const char *path, unsigned mode, struct err *err);

#endif
