/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's options, from its command line and from a file. */
#ifndef API_OPTIONS_H
#define API_OPTIONS_H

#include "api/auth.h"
#include "api/server.h"
#include "base/types.h"

struct daemon_options {
	char *listen[SERVER_MAX_LISTEN];
	size_t n_listen;
	char *state_dir, *audit_log;
	char *tls_cert, *tls_key, *tls_client_ca; /* NULL when not given */
	struct auth *auth;
	double heartbeat_sec;
};

/**
 * options_parse - read them; what is wrong has been said on stderr
 *
 * Return: -1 to go on, or the exit status. Undo in any case: options_deinit().
 */
int options_parse(int argc, char **argv, struct daemon_options *ret);
void options_deinit(struct daemon_options *o);

#endif
