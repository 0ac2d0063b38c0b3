/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP side of the daemon: listening sockets, connections, from request to reply. */
#ifndef API_SERVER_H
#define API_SERVER_H

#include "api/listen.h"
#include "api/request.h"
#include "base/err.h"
#include "base/types.h"

struct audit;
struct auth;
struct events;
struct hub;
struct registry;
struct server;
struct tls_files;
struct work;

#define SERVER_MAX_LISTEN 8

struct server_opts {
	const char *state_dir;
	const char *audit_log; /* file */
	u64 heartbeat_ns;
	struct auth *auth; /* the caller's, until server_destroy(), as @tls */
	const struct tls_files *tls; /* NULL: no listening socket is TLS */
};

/** server_create - everything but listening */
must_check int server_create(const struct server_opts *opts, struct server **ret, struct err *err);

/** server_listen - serve connections from @s, whose descriptor is handed over */
must_check int server_listen(struct server *srv, const struct listen_socket *s, struct err *err);

/**
 * server_destroy - take no more requests, finish those there are, end streams, stop traces, detach
 *
 * Return: how many guests could not be put back; one whose attach did not end is counted, too.
 * @unended_ret: there is one, whose thread still uses @srv and what that was given: the process is to end
 */
unsigned server_destroy(struct server *srv, bool *unended_ret);

struct registry *server_registry(struct server *srv);
struct hub *server_hub(struct server *srv);
struct work *server_work(struct server *srv);
u64 server_started_ns(const struct server *srv); /* CLOCK_REALTIME */
u64 server_requests(const struct server *srv); /* answered so far */
u64 server_connections(const struct server *srv); /* open now */
u64 server_streams(const struct server *srv); /* open now */
struct audit *server_audit(struct server *srv);
struct auth *server_auth(struct server *srv);
struct events *server_events(struct server *srv);

#endif
