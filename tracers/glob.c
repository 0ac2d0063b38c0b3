// SPDX-License-Identifier: Apache-2.0
/* ftrace's globs. See filter.h. */
#include "tracers/filter.h"

#include <string.h>

/*
 * Does @c match the class after the '[' at @p? *end_ret: behind the class; NULL when it never ends.
 * A ']' that comes first is a member.
 */
static bool match_class(const char *p, char c, const char **end_ret, u64 *cost)
{
	bool negated = *p == '!', found = false;
	const char *first, *begin = p;

	*end_ret = NULL;
	p += negated;
	for (first = p; *p && (*p != ']' || p == first); p++) {
		u8 lo = (u8)p[0], hi = lo;

		if (p[1] == '-' && p[2] && p[2] != ']') {
			hi = (u8)p[2];
			p += 2;
		}
		found |= lo <= (u8)c && (u8)c <= hi;
	}
	*cost += (u64)(p - begin);
	if (*p != ']')
		return false;
	*end_ret = p + 1;
	return found != negated;
}

/* Does @c match the one-character pattern at @p (not a star)? *end_ret: the pattern behind it. */
static bool match_one(const char *p, char c, const char **end_ret, u64 *cost)
{
	bool match;

	switch (*p) {
	case '?':
		*end_ret = p + 1;
		return true;
	case '[':
		match = match_class(p + 1, c, end_ret, cost);
		if (*end_ret)
			return match;
		break; /* a plain '[' */
	case '\\':
		if (p[1])
			p++;
		break;
	default:
		break;
	}
	*end_ret = p + 1;
	return *p == c;
}

static bool match(const char *glob, const char *name, u64 *cost)
{
	const char *star = NULL, *again = NULL, *next;

	/* only the last star ever needs to take more: no recursion */
	while (*name) {
		++*cost;
		if (*glob == '*') {
			star = ++glob;
			again = name;
			if (!*glob)
				return true;
		} else if (*glob && match_one(glob, *name, &next, cost)) {
			glob = next;
			name++;
		} else if (star) {
			glob = star;
			name = ++again;
		} else {
			return false;
		}
	}
	while (*glob == '*')
		glob++;
	return !*glob;
}

bool glob_match(const char *glob, const char *name)
{
	u64 cost = 0;

	return match(glob, name, &cost);
}

bool filter_match_cost(const char *filter, const char *name, const char *module, u64 *cost)
{
	const char *mod = strstr(filter, ":mod:");
	char glob[256];
	size_t len;

	*cost += 1 + strlen(filter) / 4;
	if (!mod)
		return match(filter, name, cost);
	if (!module || !match(mod + strlen(":mod:"), module, cost))
		return false;
	len = (size_t)(mod - filter);
	if (!len)
		return true;
	if (len >=
	    sizeof(glob)) /* no function has such a name: MAX_PARAM_PREFIX_LEN and KSYM_NAME_LEN */
		return false;
	memcpy(glob, filter, len);
	glob[len] = 0;
	return match(glob, name, cost);
}

bool filter_match(const char *filter, const char *name, const char *module)
{
	u64 cost = 0;

	return filter_match_cost(filter, name, module, &cost);
}
