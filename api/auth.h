/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may do what: roles, the rules that give them to local users, client certificates and whoever comes
 * over loopback, and bearer tokens, of which only hashes are on disk. Must not know HTTP.
 */
#ifndef API_AUTH_H
#define API_AUTH_H

#include "base/err.h"
#include "base/types.h"

#include <sys/types.h>

struct auth;

/* Each may do what those before it may. */
enum role {
	ROLE_UNSET, /* nobody said: may do nothing; of a route, that nobody thought of it: admins alone */
	ROLE_ANYBODY, /* who did not say who they are */
	ROLE_VIEWER, /* looks at guests, traces and records */
	ROLE_OPERATOR, /* starts, changes and stops traces, looks at consoles */
	ROLE_ADMIN, /* attaches and detaches guests, types at consoles */
};

#define AUTH_MAX_NAME    64
#define AUTH_TOKEN_BYTES 32 /* of randomness in a token */
#define AUTH_TOKEN_TEXT  (sizeof(AUTH_TOKEN_PREFIX) + 2ul * AUTH_TOKEN_BYTES) /* with the NUL */
#define AUTH_HASH_BYTES  32
#define AUTH_HASH_TEXT   65 /* SHA-256 as hex, with the NUL */
/* so that a token is known for one where it should not be */
#define AUTH_TOKEN_PREFIX "hvft_"

struct identity {
	enum role role;
	char name[AUTH_MAX_NAME +
		  16]; /* "uid:1000", "token:ci", "cert:web", "loopback"; for logs */
	bool by_token;
	u8 token_hash[AUTH_HASH_BYTES]; /* by_token */
};

/* Whom a unix socket's other end belongs to. */
struct auth_peer {
	uid_t uid;
	gid_t gid;
	const gid_t *groups; /* supplementary ones */
	size_t n_groups;
};

/** role_name - "viewer", "operator", "admin"; "nobody" for the others */
const char *role_name(enum role role);
/** role_parse - one of those three; ROLE_UNSET when @text is none */
enum role role_parse(const char *text, size_t len);

/** auth_create - no rules: root, the daemon's own user, and while there is none every local user, are admins */
must_check int auth_create(struct auth **ret, struct err *err);
void auth_destroy(struct auth *a);

/**
 * auth_allow - add a rule
 * @spec: "ROLE=WHO"; WHO is user:NAME, uid:N, group:NAME, gid:N, cert:COMMON-NAME, loopback or local
 *        (anybody that a unix socket lets in)
 *
 * Return: 0; -EINVAL it is no rule; -ENOENT no such user or group; -E2BIG too many.
 */
must_check int auth_allow(struct auth *a, const char *spec, struct err *err);

/**
 * auth_tokens - bearer tokens are those of the file @path
 *
 * It is read again whenever it was changed. Return: 0; -EPERM others than its owner may read it, or the
 * owner is neither root nor us; -EINVAL it makes no sense; or the system's.
 */
must_check int auth_tokens(struct auth *a, const char *path, struct err *err);

/** auth_opens_loopback - can anybody come in without TLS? By a rule for loopback, or with a token. */
bool auth_opens_loopback(const struct auth *a);

/* Who is it? Of several rules that fit the one that gives most counts. Context: any thread. */
void auth_local(struct auth *a, const struct auth_peer *peer, struct identity *ret);
void auth_loopback(struct auth *a, struct identity *ret);
void auth_cert(struct auth *a, const char *common_name, struct identity *ret);
/** auth_token - false: it is none that we know; takes as long whatever is wrong with it */
bool auth_token(struct auth *a, const char *token, struct identity *ret);

/** auth_changes - counts changes of the file of tokens, which it looks at; the same as before: none */
u64 auth_changes(struct auth *a);
/** auth_still - may @who still do what it might when it came in? false: its token is gone, or of another role */
bool auth_still(struct auth *a, const struct identity *who);

/** auth_new_token - make a token, for a line "NAME ROLE HASH" of a file */
must_check int auth_new_token(char token_ret[AUTH_TOKEN_TEXT], char hash_ret[AUTH_HASH_TEXT],
			      struct err *err);

/** auth_token_name_valid - as a guest's name: letters, digits, '.', '_', '-' */
bool auth_token_name_valid(const char *name);

#endif
