// SPDX-License-Identifier: Apache-2.0
/* Disks of a guest that `hvftrace run` starts. See cli_vmm.h. */
#include "api/cli_vmm.h"

#include "base/cleanup.h"

#include <fcntl.h>
#include <string.h>

bool disk_is_qcow2(const char *path)
{
	static const char suffix[] = ".qcow2";
	size_t len = strlen(path);

	return len >= sizeof(suffix) && strcmp(path + len - (sizeof(suffix) - 1), suffix) == 0;
}

bool disk_is_ambiguous(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	char magic[4] = { 0 };

	return !disk_is_qcow2(path) && fd >= 0 &&
	       read(fd, magic, sizeof(magic)) == (ssize_t)sizeof(magic) &&
	       memcmp(magic, "QFI\xfb", sizeof(magic)) == 0;
}

/* Cut @suffix off the end of @text. */
static bool cut(char *text, const char *suffix)
{
	size_t len = strlen(text), n = strlen(suffix);

	if (len <= n || strcmp(text + len - n, suffix) != 0)
		return false;
	text[len - n] = 0;
	return true;
}

/* Any other comma is part of a name. */
bool disk_parse(char *text, struct guest_disk *ret)
{
	static const char with_path[] = ",cow=";
	char *at = NULL;

	*ret = (struct guest_disk){ .path = text };
	for (char *c = strstr(text, with_path); c; c = strstr(c + 1, with_path))
		at = c;
	if (at) {
		*at = 0;
		ret->cow = true;
		ret->overlay = at + strlen(with_path);
	} else if (cut(text, ",cow")) {
		ret->cow = true;
	} else if (cut(text, ",readonly")) {
		ret->read_only = true;
	}
	return *text && (!ret->overlay || *ret->overlay);
}
