// SPDX-License-Identifier: Apache-2.0
/* Guests' names. See names.h. */
#include "api/names.h"

#include <stdio.h>
#include <string.h>

bool name_valid(const char *name)
{
	size_t len = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				  "0123456789._-");

	return len && len <= NAME_MAX_BYTES && !name[len] && name[0] != '.' && name[0] != '-';
}

/* File names that say nothing about the guest: then its folder's name does. */
static bool name_is_generic(const char *name)
{
	static const char *const generic[] = { "qmp",      "monitor", "mon",    "sock",
					       "qmp-sock", "socket",  "control" };

	for (size_t i = 0; i < ARRAY_SIZE(generic); i++) {
		if (strcmp(name, generic[i]) == 0)
			return true;
	}
	return !*name;
}

/* The last component of @path, without ".qmp", ".sock" and the like; cuts @path before it. */
static void last_component(char *path, char ret[NAME_MAX_BYTES + 1])
{
	static const char *const endings[] = { ".qmp", ".sock", ".socket", ".monitor", ".mon" };
	char *base = strrchr(path, '/'), *dot;

	snprintf(ret, NAME_MAX_BYTES + 1, "%s", base ? base + 1 : path);
	*(base ? base : path) = 0;
	for (size_t i = 0; i < ARRAY_SIZE(endings); i++) {
		dot = strrchr(ret, '.');
		if (dot && dot != ret && strcmp(dot, endings[i]) == 0)
			*dot = 0;
	}
}

void name_derive(const char *target, char ret[NAME_MAX_BYTES + 1])
{
	char path[NAME_MAX_TARGET + 1], *colon;

	snprintf(path, sizeof(path), "%s", target);
	colon = strchr(path, ':');
	if (colon && strncmp(path, "pid:", 4) == 0) {
		snprintf(ret, NAME_MAX_BYTES + 1, "pid-%.32s", colon + 1);
	} else {
		if (strncmp(path, "libvirt:", 8) == 0)
			path[strcspn(path, "?")] = 0; /* behind the domain */
		memmove(path, colon ? colon + 1 : path, strlen(colon ? colon + 1 : path) + 1);
		last_component(path, ret);
		while (name_is_generic(ret) && path[0])
			last_component(path, ret);
	}
	for (char *c = ret; *c; c++) {
		if (!name_valid((char[]){ 'x', *c, 0 }))
			*c = '-';
	}
	if (ret[0] == '.' || ret[0] == '-')
		ret[0] = '_';
	if (!ret[0])
		snprintf(ret, NAME_MAX_BYTES + 1, "guest");
}
