// SPDX-License-Identifier: Apache-2.0
/* Socket activation and readiness. See systemd.h. */
#include "api/systemd.h"

#include "base/cleanup.h"
#define LOG_PREFIX "hvftraced"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FIRST_FD 3 /* SD_LISTEN_FDS_START, sd_listen_fds(3) */

static bool variable(const char *name, long *ret)
{
	const char *text = getenv(name);
	char *end;

	if (!text || *text < '0' || *text > '9')
		return false;
	errno = 0;
	*ret = strtol(text, &end, 10);
	return !*end && !errno;
}

static int option(int fd, int what)
{
	socklen_t len = sizeof(int);
	int value = -1;

	return getsockopt(fd, SOL_SOCKET, what, &value, &len) ? -1 : value;
}

static int take(int fd, struct listen_socket *ret, struct err *err)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || option(fd, SO_TYPE) != SOCK_STREAM || option(fd, SO_ACCEPTCONN) != 1)
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0,
			       "descriptor %d of the service manager is no listening stream socket",
			       fd);
	if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return err_set(err, -errno, ERR_IO, 0, "descriptor %d: %s", fd,
			       strerrordesc_np(errno));
	return listen_adopt(fd, ret, err);
}

int systemd_sockets(struct listen_socket *ret, size_t max, size_t *n_ret, struct err *err)
{
	long pid, n;
	bool ours = variable("LISTEN_PID", &pid) && variable("LISTEN_FDS", &n) &&
		    pid == (long)getpid() && n > 0;
	int r = 0;

	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
	*n_ret = 0;
	if (!ours)
		return 0;
	if ((unsigned long)n > max)
		return err_set(err, -E2BIG, ERR_BAD_REQUEST, 0,
			       "the service manager hands over %ld sockets; %zu are served at most",
			       n, max);
	for (long i = 0; r == 0 && i < n; i++)
		r = take(FIRST_FD + (int)i, &ret[i], err);
	*n_ret = r == 0 ? (size_t)n : 0;
	return r;
}

void systemd_notify(const char *state)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	const char *place = getenv("NOTIFY_SOCKET");
	_cleanup_close_ int fd = -1;
	size_t len = place ? strlen(place) : 0;

	if (len < 2 || len >= sizeof(addr.sun_path) || (*place != '/' && *place != '@'))
		return;
	memcpy(addr.sun_path, place, len);
	if (*place == '@') /* an abstract one, unix(7) */
		addr.sun_path[0] = 0;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&addr,
			     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0)
		log_warn("cannot tell the service manager %s: %s", state, strerror(errno));
}
