// SPDX-License-Identifier: Apache-2.0
/* Listening sockets. See listen.h. */
#include "api/listen.h"

#include "base/cleanup.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define BACKLOG 128

int make_dirs(const char *path, unsigned mode, struct err *err)
{
	char part[4096];
	size_t len = strlen(path);

	if (len >= sizeof(part))
		return err_set(err, -ENAMETOOLONG, ERR_IO, 0, "a path of %zu bytes is too long",
			       len);
	memcpy(part, path, len + 1);
	for (char *c = part + 1; len && c <= part + len; c++) {
		if (*c && *c != '/')
			continue;
		*c = 0;
		if (mkdir(part, mode) < 0 && errno != EEXIST)
			return err_set(err, -errno, ERR_IO, 0, "cannot make %.120s: %s", part,
				       strerrordesc_np(errno));
		if (c < part + len)
			*c = '/';
	}
	return 0;
}

/*
 * A POSIX record lock, not flock(2): it is not shared with children that outlive us, and it tells who
 * has it. The file stays empty.
 */
int state_dir_lock(const char *dir, int *fd_ret, struct err *err)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	_cleanup_close_ int fd = -1;
	char path[4096];
	int r;

	r = make_dirs(dir, 0700, err);
	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "%.4000s/lock", dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_set(err, -errno, ERR_IO, 0, "cannot open %.120s: %s", path,
			       strerrordesc_np(errno));
	if (fcntl(fd, F_SETLK, &lock) < 0) {
		if (errno != EACCES && errno != EAGAIN)
			return err_set(err, -errno, ERR_IO, 0, "cannot lock %.120s: %s", path,
				       strerrordesc_np(errno));
		lock.l_pid = 0;
		(void)!fcntl(fd, F_GETLK, &lock); /* only for the message */
		return err_set(err, -EBUSY, ERR_CONFLICT, 0,
			       "another hvftraced (pid %d) uses the state directory %.100s",
			       (int)lock.l_pid, dir);
	}
	*fd_ret = no_cleanup_fd(fd);
	return 0;
}

/* Is somebody serving the socket at @addr? */
static bool is_served(const struct sockaddr_un *addr)
{
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	return fd >= 0 &&
	       (connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0 || errno == EAGAIN);
}

static int open_unix(const char *path, struct listen_socket *ret, struct err *err)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = -1;
	char dir[sizeof(addr.sun_path)];
	struct stat st;
	mode_t mask;
	int r;

	if (!path[0] || strlen(path) >= sizeof(addr.sun_path))
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0,
			       "a socket's path has 1 to %zu bytes", sizeof(addr.sun_path) - 1);
	memcpy(addr.sun_path, path, strlen(path) + 1);
	memcpy(dir, addr.sun_path, sizeof(dir));
	if (strrchr(dir, '/') > dir) {
		*strrchr(dir, '/') = 0;
		r = make_dirs(dir, 0755, err);
		if (r < 0)
			return r;
	}
	if (lstat(path, &st) == 0) {
		if (!S_ISSOCK(st.st_mode))
			return err_set(err, -EEXIST, ERR_IO, 0, "%s is there and is no socket",
				       path);
		if (is_served(&addr))
			return err_set(err, -EADDRINUSE, ERR_CONFLICT, 0,
				       "another daemon serves %s", path);
		unlink(path); /* left by one that was killed; bind() tells if this failed */
	}
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_set(err, -errno, ERR_IO, 0, "socket: %s", strerrordesc_np(errno));
	/* never more open than it ends up, not for a moment; no other thread runs yet */
	mask = umask(0117);
	r = bind(fd, (const struct sockaddr *)&addr, sizeof(addr));
	umask(mask);
	if (r < 0 || listen(fd, BACKLOG) < 0)
		return err_set(err, -errno, ERR_IO, 0, "cannot listen on %s: %s", path,
			       strerrordesc_np(errno));
	snprintf(ret->path, sizeof(ret->path), "%s", path);
	snprintf(ret->name, sizeof(ret->name), "unix:%s", path);
	ret->fd = no_cleanup_fd(fd);
	return 0;
}

/* "ADDR:PORT", "[ADDR6]:PORT". Return: false on bad syntax. */
static bool parse_tcp(const char *text, struct sockaddr_storage *ret, socklen_t *len_ret)
{
	struct sockaddr_in *in = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ret;
	const char *colon = strrchr(text, ':');
	char host[64], *end;
	unsigned long port;

	if (!colon || colon == text || (size_t)(colon - text) >= sizeof(host) || colon[1] < '0' ||
	    colon[1] > '9')
		return false;
	port = strtoul(colon + 1, &end, 10);
	if (*end || port > 65535)
		return false;
	*ret = (struct sockaddr_storage){ 0 };
	snprintf(host, sizeof(host), "%.*s", (int)(colon - text), text);
	if (host[0] == '[' && host[strlen(host) - 1] == ']') {
		host[strlen(host) - 1] = 0;
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons((u16)port);
		*len_ret = sizeof(*in6);
		return inet_pton(AF_INET6, host + 1, &in6->sin6_addr) == 1;
	}
	in->sin_family = AF_INET;
	in->sin_port = htons((u16)port);
	*len_ret = sizeof(*in);
	return inet_pton(AF_INET, strcmp(host, "localhost") == 0 ? "127.0.0.1" : host,
			 &in->sin_addr) == 1;
}

static bool is_loopback(const struct sockaddr_storage *addr)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)addr;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)addr;

	if (addr->ss_family == AF_INET)
		return ntohl(in->sin_addr.s_addr) >> 24 == 127;
	return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

bool listen_is_loopback(const char *text)
{
	size_t len = *text == '[' ? strcspn(text, "]") + 1 : strcspn(text, ":");
	struct sockaddr_storage addr;
	char host[64], place[72];
	socklen_t addr_len;

	if (len > strlen(text) || len >= sizeof(host))
		return false;
	if (text[len] && (text[len] != ':' || text[len + 1 + strspn(text + len + 1, "0123456789")]))
		return false;
	memcpy(host, text, len);
	host[len] = 0;
	if (strcasecmp(host, "localhost") == 0)
		return true;
	snprintf(place, sizeof(place), "%s:0", host);
	return parse_tcp(place, &addr, &addr_len) && is_loopback(&addr);
}

static void name_tcp(int fd, const char *scheme, char *ret, size_t size)
{
	struct sockaddr_storage addr = { 0 };
	socklen_t len = sizeof(addr);
	char host[INET6_ADDRSTRLEN], port[8];

	if (getsockname(fd, (struct sockaddr *)&addr, &len) ||
	    getnameinfo((struct sockaddr *)&addr, len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		snprintf(ret, size, "%s", scheme);
	else
		snprintf(ret, size, addr.ss_family == AF_INET6 ? "%s:[%s]:%s" : "%s:%s:%s", scheme,
			 host, port);
}

/* Those that are accepted have it, too: a stream with nothing to say is kept by a NAT, and ends with its client. */
static void keep_alive(int fd)
{
	int one = 1, idle = 60, interval = 15;

	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
}

static int open_tcp(const char *text, bool tls, struct listen_socket *ret, struct err *err)
{
	const char *scheme = tls ? "tls" : "tcp";
	struct sockaddr_storage addr;
	_cleanup_close_ int fd = -1;
	socklen_t len;
	int one = 1;

	if (!parse_tcp(text, &addr, &len))
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0,
			       "%s:%.80s is no address and port; say %s:127.0.0.1:PORT", scheme,
			       text, scheme);
	if (!tls && !is_loopback(&addr))
		return err_set(
			err, -EACCES, ERR_BAD_REQUEST, 0,
			"tcp:%.80s is refused: without TLS only loopback addresses are served "
			"(127.0.0.1, [::1]); say tls:ADDR:PORT",
			text);
	fd = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_set(err, -errno, ERR_IO, 0, "socket: %s", strerrordesc_np(errno));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	keep_alive(fd);
	if (bind(fd, (const struct sockaddr *)&addr, len) < 0 || listen(fd, BACKLOG) < 0)
		return err_set(err, -errno, ERR_IO, 0, "cannot listen on %s:%.80s: %s", scheme,
			       text, strerrordesc_np(errno));
	name_tcp(fd, scheme, ret->name, sizeof(ret->name));
	ret->is_tcp = true;
	ret->is_tls = tls;
	ret->fd = no_cleanup_fd(fd);
	return 0;
}

int listen_open(const char *spec, struct listen_socket *ret, struct err *err)
{
	*ret = (struct listen_socket){ .fd = -1 };
	if (strncmp(spec, "unix:", 5) == 0)
		return open_unix(spec + 5, ret, err);
	if (strncmp(spec, "tcp:", 4) == 0)
		return open_tcp(spec + 4, false, ret, err);
	if (strncmp(spec, "tls:", 4) == 0)
		return open_tcp(spec + 4, true, ret, err);
	return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0,
		       "%.100s is no place to listen on; say unix:PATH, tls:ADDR:PORT or "
		       "tcp:127.0.0.1:PORT",
		       spec);
}

int listen_adopt(int fd, struct listen_socket *ret, struct err *err)
{
	struct sockaddr_storage addr = { 0 };
	const struct sockaddr_un *local = (const struct sockaddr_un *)&addr;
	socklen_t len = sizeof(addr);

	*ret = (struct listen_socket){ .fd = -1 };
	if (getsockname(fd, (struct sockaddr *)&addr, &len) < 0)
		return err_set(err, -errno, ERR_IO, 0, "descriptor %d: %s", fd,
			       strerrordesc_np(errno));
	if (addr.ss_family == AF_UNIX) {
		snprintf(ret->name, sizeof(ret->name), "unix:%.*s",
			 (int)(len - offsetof(struct sockaddr_un, sun_path)), local->sun_path);
	} else if (addr.ss_family == AF_INET || addr.ss_family == AF_INET6) {
		name_tcp(fd, "tcp", ret->name, sizeof(ret->name));
		ret->is_tcp = true;
		if (!is_loopback(&addr))
			return err_set(err, -EACCES, ERR_BAD_REQUEST, 0,
				       "%s is refused: without TLS only loopback addresses are "
				       "served (127.0.0.1, [::1])",
				       ret->name);
		keep_alive(fd);
	} else {
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0,
			       "descriptor %d is a socket of neither unix nor TCP", fd);
	}
	ret->fd = fd;
	return 0;
}

void listen_close(struct listen_socket *s)
{
	if (s->path[0])
		unlink(s->path);
	s->path[0] = 0;
}
