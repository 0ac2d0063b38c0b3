// SPDX-License-Identifier: Apache-2.0
/* The two headers that decide how a file of the page is sent. See page.h. */
#include "api/page.h"

#include <string.h>
#include <strings.h>

#define BLANK " \t"

/* The next element of a list with commas between; its length without blanks around. NULL at the end. */
static const char *next_element(const char **list, size_t *len_ret)
{
	const char *start = *list + strspn(*list, BLANK ",");
	size_t len = strcspn(start, ",");

	*list = start + len;
	while (len && strchr(BLANK, start[len - 1]))
		len--;
	*len_ret = len;
	return len ? start : NULL;
}

/* Is "gzip;q=0" and the like what is written in @params, ";..." up to @len? */
static bool is_refused(const char *params, size_t len)
{
	const char *end = params + len, *q = params;

	while (q < end && *q != '=')
		q++;
	if (q == end)
		return false;
	for (q++; q < end; q++) {
		if (*q >= '1' && *q <= '9')
			return false;
	}
	return true;
}

bool page_takes_gzip(const char *header)
{
	const char *e;
	size_t len, name;

	while (header && (e = next_element(&header, &len))) {
		name = strcspn(e, ";" BLANK);
		name = MIN(name, len);
		if ((name == 4 && strncasecmp(e, "gzip", 4) == 0) || (name == 1 && *e == '*'))
			return !is_refused(e + name, len - name);
	}
	return false;
}

bool page_etag_matches(const char *header, const char *etag)
{
	size_t want = strlen(etag), len;
	const char *e;

	while (header && (e = next_element(&header, &len))) {
		if (len == 1 && *e == '*')
			return true;
		if (len > 2 && memcmp(e, "W/", 2) == 0) {
			e += 2;
			len -= 2;
		}
		if (len == want && memcmp(e, etag, want) == 0)
			return true;
	}
	return false;
}
