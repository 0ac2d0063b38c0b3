// SPDX-License-Identifier: Apache-2.0
/* Roles and who has them. See auth.h; tokens are in auth_token.c. */
#include "api/auth.h"

#include "api/auth_impl.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const names[] = {
	[ROLE_UNSET] = "nobody",      [ROLE_ANYBODY] = "nobody", [ROLE_VIEWER] = "viewer",
	[ROLE_OPERATOR] = "operator", [ROLE_ADMIN] = "admin",
};

const char *role_name(enum role role)
{
	return names[role];
}

enum role role_parse(const char *text, size_t len)
{
	for (int r = ROLE_VIEWER; r <= ROLE_ADMIN; r++) {
		if (strlen(names[r]) == len && strncmp(text, names[r], len) == 0)
			return (enum role)r;
	}
	return ROLE_UNSET;
}

int auth_create(struct auth **ret, struct err *err)
{
	struct auth *a = calloc(1, sizeof(*a));

	if (!a)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for the rules of access");
	pthread_mutex_init(&a->lock, NULL);
	*ret = a;
	return 0;
}

void auth_destroy(struct auth *a)
{
	if (!a)
		return;
	pthread_mutex_destroy(&a->lock);
	free(a->token_path);
	free(a->tokens);
	free(a);
}

static bool parse_id(const char *text, u32 *ret)
{
	char *end;
	unsigned long n;

	errno = 0;
	n = strtoul(text, &end, 10);
	*ret = (u32)n;
	return *text >= '0' && *text <= '9' && !*end && !errno && n < UINT32_MAX;
}

static int no_such(const char *what, const char *name, struct err *err)
{
	return err_set(err, -ENOENT, ERR_BAD_REQUEST, 0, "this host has no %s %.64s", what, name);
}

/* NULL when @text does not begin with @prefix, or has nothing after it. */
static const char *after(const char *text, const char *prefix)
{
	size_t n = strlen(prefix);

	return strncmp(text, prefix, n) == 0 && text[n] ? text + n : NULL;
}

static int parse_who(const char *text, struct auth_rule *r, struct err *err)
{
	const char *name;

	if ((name = after(text, "user:"))) {
		const struct passwd *pw = getpwnam(name);

		r->kind = AUTH_UID;
		r->id = pw ? pw->pw_uid : 0;
		return pw ? 0 : no_such("user", name, err);
	}
	if ((name = after(text, "group:"))) {
		const struct group *gr = getgrnam(name);

		r->kind = AUTH_GID;
		r->id = gr ? gr->gr_gid : 0;
		return gr ? 0 : no_such("group", name, err);
	}
	if ((name = after(text, "cert:")) && strlen(name) <= AUTH_MAX_NAME) {
		r->kind = AUTH_CERT;
		snprintf(r->name, sizeof(r->name), "%s", name);
		return 0;
	}
	r->kind = AUTH_UID;
	if ((name = after(text, "uid:")) && parse_id(name, &r->id))
		return 0;
	r->kind = AUTH_GID;
	if ((name = after(text, "gid:")) && parse_id(name, &r->id))
		return 0;
	r->kind = strcmp(text, "local") == 0 ? AUTH_LOCAL : AUTH_LOOPBACK;
	if (r->kind == AUTH_LOCAL || strcmp(text, "loopback") == 0)
		return 0;
	return -EINVAL;
}

int auth_allow(struct auth *a, const char *spec, struct err *err)
{
	size_t len = strcspn(spec, "=");
	struct auth_rule *r = &a->rules[a->n_rules];
	int rc;

	if (a->n_rules == AUTH_MAX_RULES)
		return err_set(err, -E2BIG, ERR_BAD_REQUEST, 0, "at most %d rules of access",
			       AUTH_MAX_RULES);
	*r = (struct auth_rule){ .role = role_parse(spec, len) };
	rc = r->role && spec[len] ? parse_who(spec + len + 1, r, err) : -EINVAL;
	if (rc == -EINVAL)
		return err_set(
			err, -EINVAL, ERR_BAD_REQUEST, 0,
			"\"%.80s\" is no rule of access; say viewer=, operator= or admin=, then "
			"user:NAME, uid:N, group:NAME, gid:N, cert:NAME, local or loopback",
			spec);
	if (rc < 0)
		return rc;
	a->n_rules++;
	a->has_local |= r->kind == AUTH_UID || r->kind == AUTH_GID || r->kind == AUTH_LOCAL;
	return 0;
}

static void give(struct identity *ret, enum role role)
{
	if (role > ret->role)
		ret->role = role;
}

static bool in_group(const struct auth_peer *p, gid_t gid)
{
	if (p->gid == gid)
		return true;
	for (size_t i = 0; i < p->n_groups; i++) {
		if (p->groups[i] == gid)
			return true;
	}
	return false;
}

void auth_local(struct auth *a, const struct auth_peer *peer, struct identity *ret)
{
	*ret = (struct identity){ .role = ROLE_ANYBODY };
	snprintf(ret->name, sizeof(ret->name), "uid:%u", (unsigned)peer->uid);
	if (peer->uid == 0 || peer->uid == geteuid() || !a->has_local)
		give(ret, ROLE_ADMIN);
	for (size_t i = 0; i < a->n_rules; i++) {
		const struct auth_rule *r = &a->rules[i];

		if (r->kind == AUTH_LOCAL || (r->kind == AUTH_UID && r->id == peer->uid) ||
		    (r->kind == AUTH_GID && in_group(peer, r->id)))
			give(ret, r->role);
	}
}

void auth_loopback(struct auth *a, struct identity *ret)
{
	*ret = (struct identity){ .role = ROLE_ANYBODY, .name = "loopback" };
	for (size_t i = 0; i < a->n_rules; i++) {
		if (a->rules[i].kind == AUTH_LOOPBACK)
			give(ret, a->rules[i].role);
	}
}

void auth_cert(struct auth *a, const char *common_name, struct identity *ret)
{
	*ret = (struct identity){ .role = ROLE_ANYBODY };
	snprintf(ret->name, sizeof(ret->name), "cert:%.*s", AUTH_MAX_NAME, common_name);
	for (size_t i = 0; i < a->n_rules; i++) {
		if (a->rules[i].kind == AUTH_CERT && strcmp(a->rules[i].name, common_name) == 0)
			give(ret, a->rules[i].role);
	}
}

bool auth_opens_loopback(const struct auth *a)
{
	for (size_t i = 0; i < a->n_rules; i++) {
		if (a->rules[i].kind == AUTH_LOOPBACK)
			return true;
	}
	return a->token_path;
}
