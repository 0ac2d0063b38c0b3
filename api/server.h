/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP side of the daemon: listening sockets, connections, from request to reply. */
#ifndef API_SERVER_H
#define API_SERVER_H

#include "api/request.h"
#include "base/err.h"
#include "base/types.h"

struct hub;
struct registry;
struct server;
struct work;

#define SERVER_MAX_LISTEN 8

struct server_opts {
	const char *state_dir;
	u64 heartbeat_ns;
};

/** server_create - everything but listening */
must_check int server_create(const struct server_opts *opts, struct server **ret, struct err *err);

/**
 * server_listen - serve connections from @fd, a listening socket that is handed over
 * @is_tcp: check Host and Origin, since a browser may be made to speak to it
 */
must_check int server_listen(struct server *srv, int fd, bool is_tcp, struct err *err);

/**
 * server_destroy - take no more requests, finish those there are, end streams, stop traces, detach
 *
 * Return: how many guests could not be put back.
 */
unsigned server_destroy(struct server *srv);

struct registry *server_registry(struct server *srv);
struct hub *server_hub(struct server *srv);
struct work *server_work(struct server *srv);
u64 server_started_ns(const struct server *srv); /* CLOCK_REALTIME */
u64 server_requests(const struct server *srv); /* answered so far */
u64 server_connections(const struct server *srv); /* open now */

#endif
