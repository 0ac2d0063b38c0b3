/* SPDX-License-Identifier: Apache-2.0 */
/* Between auth.c and auth_token.c only. */
#ifndef API_AUTH_IMPL_H
#define API_AUTH_IMPL_H

#include "api/auth.h"

#include <pthread.h>
#include <time.h>

#define AUTH_MAX_RULES  64
#define AUTH_MAX_TOKENS 1024

enum auth_kind {
	AUTH_UID,
	AUTH_GID,
	AUTH_CERT,
	AUTH_LOOPBACK,
	AUTH_LOCAL
};

struct auth_rule {
	enum role role;
	enum auth_kind kind;
	u32 id;
	char name[AUTH_MAX_NAME + 1];
};

struct auth_token {
	enum role role;
	char name[AUTH_MAX_NAME + 1];
	u8 hash[AUTH_HASH_BYTES];
};

struct auth {
	struct auth_rule rules[AUTH_MAX_RULES]; /* not changed any more once there are threads */
	size_t n_rules;
	bool has_local; /* a rule says what local users may */
	char *token_path; /* NULL: none */
	pthread_mutex_t lock; /* all below */
	struct auth_token *tokens;
	size_t n_tokens;
	struct timespec read_mtime;
	u64 read_inode, read_bytes;
	u64 changes; /* how often the tokens became others */
	bool unreadable; /* and it was said */
};

#endif
