// SPDX-License-Identifier: Apache-2.0
/*
 * Whose is the socket that a libvirt: target names? Who answers there names a process whose memory the daemon opens,
 * and gets commands for it. See libvirt_link.h.
 */
#include "vmm/libvirt_link.h"

#include "base/cleanup.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static bool trusted(uid_t uid)
{
	return uid == 0 || uid == geteuid();
}

static int refuse(const char *path, const char *why, uid_t uid, struct err *err)
{
	return err_set(err, -EACCES, ERR_TARGET_SOCKET, 0,
		       "%.100s: %s user %u, who is neither root nor the daemon's", path, why,
		       (unsigned)uid);
}

/* Nobody else may put another socket there, once it was looked at: in no directory on the way to it. */
static int check_path(const char *path, struct err *err)
{
	char at[PATH_MAX];
	struct stat st;

	snprintf(at, sizeof(at), "%s", path);
	if (lstat(at, &st) < 0)
		return err_set(err, -ENOTCONN, ERR_LIBVIRT, 0, "%.100s: %s", path, strerror(errno));
	if (!trusted(st.st_uid))
		return refuse(path, "the socket belongs to", st.st_uid, err);
	for (char *slash = strrchr(at, '/'); slash; slash = strrchr(at, '/')) {
		slash[slash == at] = '\0';
		if (lstat(at, &st) < 0)
			return err_set(err, -ENOTCONN, ERR_LIBVIRT, 0, "%.100s: %s", at,
				       strerror(errno));
		if (!trusted(st.st_uid))
			return refuse(at, "the directory belongs to", st.st_uid, err);
		if (st.st_mode & (S_IWGRP | S_IWOTH) && !(st.st_mode & S_ISVTX))
			return err_set(err, -EACCES, ERR_TARGET_SOCKET, 0,
				       "%.100s: others may change this directory, and what is at "
				       "the socket's place",
				       at);
		if (slash == at)
			break;
	}
	return 0;
}

/* Who listens; waits for nobody. */
static int check_peer(const char *path, struct err *err)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (strlen(path) >= sizeof(addr.sun_path))
		return err_set(err, -EINVAL, ERR_TARGET_SYNTAX, 0,
			       "a socket's path has at most %zu bytes", sizeof(addr.sun_path) - 1);
	memcpy(addr.sun_path, path, strlen(path));
	if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return err_set(err, -ENOTCONN, ERR_LIBVIRT, 0, "cannot connect to %.100s: %s", path,
			       strerror(errno));
	return trusted(cred.uid) ? 0 : refuse(path, "who listens is", cred.uid, err);
}

int lv_target_uri(const struct lv_target *t, char uri_ret[LV_URI_BYTES], struct err *err)
{
	static const char socket[] = "?socket=";
	const char *query = strstr(t->uri, socket);
	char path[PATH_MAX];
	int rc, n;

	snprintf(uri_ret, LV_URI_BYTES, "%s", t->uri);
	if (!query)
		return 0;
	/* what is looked at is what is connected to: no link may lead elsewhere then */
	if (!realpath(query + sizeof(socket) - 1, path))
		return err_set(err, -ENOTCONN, ERR_LIBVIRT, 0, "%.100s: %s",
			       query + sizeof(socket) - 1, strerror(errno));
	rc = check_path(path, err);
	if (!rc)
		rc = check_peer(path, err);
	if (rc)
		return rc;
	n = snprintf(uri_ret, LV_URI_BYTES, "%.*s%s%s", (int)(query - t->uri), t->uri, socket,
		     path);
	if (n >= LV_URI_BYTES || strpbrk(path, "&;#% "))
		return err_set(err, -EINVAL, ERR_TARGET_SYNTAX, 0,
			       "%.100s: too long, or has a sign that a URI cannot have", path);
	return 0;
}
