// SPDX-License-Identifier: Apache-2.0
/*
 * Bearer tokens. A file of lines "NAME ROLE SHA256", "#" begins a comment. A token is 256 random bits, so
 * that a plain hash of it tells nobody anything.
 */
#include "api/auth_impl.h"

#include "api/names.h"
#include "base/cleanup.h"
#define LOG_PREFIX "tokens"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FILE 1048576

bool auth_token_name_valid(const char *name)
{
	return name_valid(name);
}

static void to_hex(const u8 *data, size_t n, char *ret)
{
	for (size_t i = 0; i < n; i++)
		snprintf(ret + 2 * i, 3, "%02x", data[i]);
}

static u8 nibble(char c)
{
	return (u8)(c <= '9' ? c - '0' : c - 'a' + 10);
}

static bool from_hex(const char *text, u8 ret[AUTH_HASH_BYTES])
{
	if (strlen(text) != 2ul * AUTH_HASH_BYTES ||
	    strspn(text, "0123456789abcdef") != 2ul * AUTH_HASH_BYTES)
		return false;
	for (size_t i = 0; i < AUTH_HASH_BYTES; i++)
		ret[i] = (u8)(nibble(text[2 * i]) << 4 | nibble(text[2 * i + 1]));
	return true;
}

static int hash(const char *token, u8 ret[AUTH_HASH_BYTES])
{
	return gnutls_hash_fast(GNUTLS_DIG_SHA256, token, strlen(token), ret) < 0 ? -EIO : 0;
}

int auth_new_token(char token_ret[AUTH_TOKEN_TEXT], char hash_ret[AUTH_HASH_TEXT], struct err *err)
{
	u8 secret[AUTH_TOKEN_BYTES], digest[AUTH_HASH_BYTES];

	if (getrandom(secret, sizeof(secret), 0) != (ssize_t)sizeof(secret))
		return err_set(err, -EIO, ERR_IO, 0, "the system gives no random bytes");
	memcpy(token_ret, AUTH_TOKEN_PREFIX, sizeof(AUTH_TOKEN_PREFIX));
	to_hex(secret, sizeof(secret), token_ret + strlen(AUTH_TOKEN_PREFIX));
	if (hash(token_ret, digest) < 0)
		return err_set(err, -EIO, ERR_IO, 0, "a token cannot be hashed");
	to_hex(digest, sizeof(digest), hash_ret);
	return 0;
}

/* Return: 1 a token, 0 nothing on this line, -EINVAL. */
static int parse_line(char *line, struct auth_token *ret)
{
	char *save, *name, *role, *digest;

	line[strcspn(line, "#\n")] = 0;
	name = strtok_r(line, " \t", &save);
	if (!name)
		return 0;
	role = strtok_r(NULL, " \t", &save);
	digest = strtok_r(NULL, " \t", &save);
	*ret = (struct auth_token){ .role = role ? role_parse(role, strlen(role)) : ROLE_UNSET };
	if (!ret->role || !digest || strtok_r(NULL, " \t", &save) || !auth_token_name_valid(name) ||
	    !from_hex(digest, ret->hash))
		return -EINVAL;
	snprintf(ret->name, sizeof(ret->name), "%s", name);
	return 1;
}

static int parse_all(FILE *f, const char *path, struct auth_token **ret, size_t *n_ret,
		     struct err *err)
{
	_cleanup_free_ struct auth_token *all = calloc(AUTH_MAX_TOKENS, sizeof(*all));
	_cleanup_free_ char *line = NULL;
	size_t cap = 0, n = 0;
	unsigned at = 0;
	int r;

	if (!all)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for the tokens");
	while (getline(&line, &cap, f) >= 0) {
		at++;
		if (n == AUTH_MAX_TOKENS)
			return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0,
				       "%.100s has more than %d tokens", path, AUTH_MAX_TOKENS);
		r = parse_line(line, &all[n]);
		if (r < 0)
			return err_set(
				err, -EINVAL, ERR_BAD_REQUEST, 0,
				"%.100s, line %u: not \"NAME ROLE SHA256\"; hvftrace token add "
				"writes such lines",
				path, at);
		n += (size_t)r;
	}
	*ret = no_cleanup_ptr(all);
	*n_ret = n;
	return 0;
}

static int check_file(const struct stat *st, const char *path, struct err *err)
{
	if (!S_ISREG(st->st_mode) || st->st_size > MAX_FILE)
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0, "%.100s is no file of tokens",
			       path);
	if (st->st_mode & 077)
		return err_set(err, -EPERM, ERR_BAD_REQUEST, 0,
			       "%.100s can be read by others than its owner: chmod 600 it", path);
	if (st->st_uid && st->st_uid != geteuid())
		return err_set(err, -EPERM, ERR_BAD_REQUEST, 0,
			       "%.100s belongs to user %u, who is neither root nor the daemon's",
			       path, (unsigned)st->st_uid);
	return 0;
}

static bool is_read(const struct auth *a, const struct stat *st)
{
	return a->tokens && a->read_inode == st->st_ino && a->read_bytes == (u64)st->st_size &&
	       a->read_mtime.tv_sec == st->st_mtim.tv_sec &&
	       a->read_mtime.tv_nsec == st->st_mtim.tv_nsec;
}

/* Read the file if it is not the one that was read last. The lock is held. */
static int refresh(struct auth *a, struct err *err)
{
	int fd = open(a->token_path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	_cleanup_fclose_ FILE *f = fd < 0 ? NULL : fdopen(fd, "re");
	struct auth_token *tokens = NULL;
	struct stat st;
	size_t n = 0;
	int r;

	if (!f || fstat(fd, &st) < 0) {
		r = -errno;
		if (fd >= 0 && !f)
			close(fd);
		return err_set(err, r, ERR_IO, 0, "cannot read %.100s: %s", a->token_path,
			       strerrordesc_np(-r));
	}
	r = check_file(&st, a->token_path, err);
	if (r < 0 || is_read(a, &st))
		return r;
	r = parse_all(f, a->token_path, &tokens, &n, err);
	if (r < 0)
		return r;
	free(a->tokens);
	a->tokens = tokens;
	a->n_tokens = n;
	a->changes++;
	a->unreadable = false;
	a->read_mtime = st.st_mtim;
	a->read_inode = st.st_ino;
	a->read_bytes = (u64)st.st_size;
	return 0;
}

int auth_tokens(struct auth *a, const char *path, struct err *err)
{
	int r;

	free(a->token_path);
	a->token_path = strdup(path);
	if (!a->token_path)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for the tokens");
	pthread_mutex_lock(&a->lock);
	r = refresh(a, err);
	pthread_mutex_unlock(&a->lock);
	return r;
}

/* A file that went away or is readable by all says nothing good about its tokens. The lock is held. */
static void refresh_or_none(struct auth *a)
{
	struct err err = { 0 };

	if (refresh(a, &err) == 0)
		return;
	if (!a->unreadable || a->tokens)
		log_error("%s; no token is taken", err.msg);
	a->unreadable = true;
	a->changes += a->tokens != NULL;
	free(a->tokens);
	a->tokens = NULL;
	a->n_tokens = 0;
}

u64 auth_changes(struct auth *a)
{
	u64 n;

	if (!a->token_path)
		return 0;
	pthread_mutex_lock(&a->lock);
	refresh_or_none(a);
	n = a->changes;
	pthread_mutex_unlock(&a->lock);
	return n;
}

bool auth_still(struct auth *a, const struct identity *who)
{
	bool still = !who->by_token;

	pthread_mutex_lock(&a->lock);
	for (size_t i = 0; i < a->n_tokens && !still; i++)
		still = a->tokens[i].role == who->role &&
			memcmp(who->token_hash, a->tokens[i].hash, AUTH_HASH_BYTES) == 0;
	pthread_mutex_unlock(&a->lock);
	return still;
}

bool auth_token(struct auth *a, const char *token, struct identity *ret)
{
	u8 digest[AUTH_HASH_BYTES];
	bool found = false;

	*ret = (struct identity){ .role = ROLE_ANYBODY };
	if (!a->token_path || strlen(token) >= AUTH_TOKEN_TEXT || hash(token, digest) < 0)
		return false;
	pthread_mutex_lock(&a->lock);
	refresh_or_none(a);
	/* all of them, whichever it is */
	for (size_t i = 0; i < a->n_tokens; i++) {
		if (gnutls_memcmp(digest, a->tokens[i].hash, sizeof(digest)) == 0) {
			found = true;
			ret->by_token = true;
			memcpy(ret->token_hash, digest, sizeof(digest));
			ret->role = a->tokens[i].role;
			snprintf(ret->name, sizeof(ret->name), "token:%s", a->tokens[i].name);
		}
	}
	pthread_mutex_unlock(&a->lock);
	return found;
}
