// SPDX-License-Identifier: Apache-2.0
/* See listen.h. */
#include "machine/listen.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* A socket that nobody listens at any more: who made it could not remove it. */
static void remove_stale(const struct sockaddr_un *addr)
{
	struct stat st;
	int fd;

	/* who connects to a plain file is refused, too */
	if (lstat(addr->sun_path, &st) < 0 || !S_ISSOCK(st.st_mode))
		return;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return;
	if (connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) < 0 && errno == ECONNREFUSED)
		unlink(addr->sun_path);
	close(fd);
}

int listen_at(const char *path, const char *option, int *ret, struct err *err)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	mode_t before;
	int fd, rc;

	if (strlen(path) >= sizeof(addr.sun_path))
		return err_set(err, -ENAMETOOLONG, ERR_BAD_REQUEST, 0,
			       "%.100s... is too long for a socket's path", path);
	memcpy(addr.sun_path, path, strlen(path) + 1);
	remove_stale(&addr);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	before = umask(0177);
	rc = fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(fd, 4) < 0
		     ? -errno
		     : 0;
	umask(before);
	if (rc == 0) {
		*ret = fd;
		return 0;
	}
	if (fd >= 0)
		close(fd);
	return err_set(err, rc, ERR_IO, 0, "%s %s: %s", option, path, strerrordesc_np(-rc));
}
