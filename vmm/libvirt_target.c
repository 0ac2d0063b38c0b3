// SPDX-License-Identifier: Apache-2.0
/* Targets of libvirt. See libvirt_link.h. */
#include "vmm/libvirt_link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A URI is passed on to libvirt as a whole: no more of it than is known to stay on this host. */
static bool uri_allowed(const char *base, const char *query)
{
	static const char socket[] = "?socket=/";

	if (!*query)
		return strcmp(base, "qemu:///system") == 0 || strcmp(base, "qemu:///session") == 0;
	return (strcmp(base, "qemu+unix:///system") == 0 ||
		strcmp(base, "qemu+unix:///session") == 0) &&
	       strncmp(query, socket, sizeof(socket) - 1) == 0 && !strpbrk(query, "&;#% ");
}

bool lv_is_uuid(const char *s)
{
	return strlen(s) == LV_UUID_BYTES - 1 &&
	       strspn(s, "0123456789abcdefABCDEF-") == LV_UUID_BYTES - 1;
}

int lv_target_parse(const char *arg, struct lv_target *ret, struct err *err)
{
	size_t len = strcspn(arg, "?");
	const char *query = arg + len;
	const char *slash = memrchr(arg, '/', len);
	size_t n_uri = slash ? (size_t)(slash - arg) : 0;
	size_t n_name = slash ? (size_t)(query - slash) - 1 : 0;
	char base[sizeof(ret->uri)];

	if (n_uri == 0 || n_name == 0 || n_name >= sizeof(ret->domain) ||
	    n_uri + strlen(query) >= sizeof(ret->uri))
		return err_set(err, -EINVAL, ERR_TARGET_SYNTAX, 0,
			       "\"%.80s\" names no domain: want qemu:///system/DOMAIN", arg);
	memcpy(base, arg, n_uri);
	base[n_uri] = '\0';
	if (!uri_allowed(base, query))
		return err_set(err, -EINVAL, ERR_TARGET_SYNTAX, 0,
			       "\"%.80s\" is none of qemu:///system, qemu:///session and "
			       "qemu+unix:///system?socket=PATH, on this host",
			       arg);
	snprintf(ret->uri, sizeof(ret->uri), "%s%s", base, query);
	memcpy(ret->domain, slash + 1, n_name);
	ret->domain[n_name] = '\0';
	return 0;
}
