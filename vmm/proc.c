// SPDX-License-Identifier: Apache-2.0
/* /proc of a VMM. See proc.h. Formats: proc(5). */
#include "vmm/proc.h"

#include "base/cleanup.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/time.h>

#define MAX_MAPS    65536 /* vm.max_map_count is 65530 by default */
#define MAX_THREADS 65536

static inline void cleanup_closedirp(DIR **d)
{
	if (*d)
		closedir(*d);
}

#define _cleanup_closedir_ _cleanup_(cleanup_closedirp)

static int proc_errno(int e)
{
	if (e == ENOENT || e == ESRCH)
		return -ESRCH;
	return e == EPERM ? -EACCES : -e;
}

/* A small /proc file as a string; returns its length or a negative errno. */
static ssize_t read_text(const char *path, char *buf, size_t cap)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;

	if (fd < 0)
		return proc_errno(errno);
	while (len < cap - 1) {
		ssize_t n = read(fd, buf + len, cap - 1 - len);

		if (n < 0)
			return proc_errno(errno);
		if (n == 0)
			break;
		len += (size_t)n;
	}
	buf[len] = '\0';
	return (ssize_t)len;
}

/* A number at *@p, then one of the characters in @end, which is stepped over. */
static bool number(const char **p, int base, const char *end, u64 *ret)
{
	const char *s = *p;
	char *after;

	while (*s == ' ' || *s == '\t')
		s++;
	if (!isxdigit((unsigned char)*s))
		return false;
	errno = 0;
	*ret = strtoull(s, &after, base);
	if (errno || after == s || (*after && !strchr(end, *after)))
		return false;
	*p = *after ? after + 1 : after;
	return true;
}

/* 7f00-7f20 rw-s 00100000 00:01 2049     /memfd:ram (deleted) */
bool proc_map_parse(const char *line, struct proc_map *ret)
{
	struct proc_map m = { 0 };
	const char *p = line;
	const char *perms;
	u64 dev_major;
	u64 dev_minor;
	size_t len;

	if (!number(&p, 16, "-", &m.start) || !number(&p, 16, " ", &m.end) || m.start >= m.end)
		return false;
	perms = p;
	if (strcspn(perms, " ") != 4)
		return false;
	p += 4;
	if (!number(&p, 16, " ", &m.off) || !number(&p, 16, ":", &dev_major) ||
	    !number(&p, 16, " ", &dev_minor) || !number(&p, 10, " \n", &m.inode))
		return false;
	m.major = (u32)dev_major;
	m.minor = (u32)dev_minor;
	m.readable = perms[0] == 'r';
	m.writable = perms[1] == 'w';
	m.shared = perms[3] == 's';
	p += strspn(p, " ");
	len = strcspn(p, "\n");
	len = MIN(len, sizeof(m.path) - 1);
	memcpy(m.path, p, len);
	m.path[len] = '\0';
	*ret = m;
	return true;
}

bool proc_stat_parse(const char *text, char *state_ret, u64 *start_ret)
{
	/* the name in field 2 may hold spaces and parentheses: fields are counted from the last one */
	const char *p = strrchr(text, ')');
	char state;

	if (!p || p[1] != ' ' || !isalpha((unsigned char)p[2]))
		return false;
	state = p[2];
	for (int field = 2; field < 22; field++) {
		p = strchr(p + 1, ' ');
		if (!p)
			return false;
	}
	if (!number(&p, 10, " \n", start_ret))
		return false;
	*state_ret = state;
	return true;
}

int proc_maps_read(pid_t pid, struct proc_maps *ret)
{
	_cleanup_fclose_ FILE *f = NULL;
	_cleanup_free_ char *line = NULL;
	_cleanup_free_ struct proc_map *map = NULL;
	size_t line_cap = 0;
	size_t cap = 0;
	size_t n = 0;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return proc_errno(errno);
	while (getline(&line, &line_cap, f) > 0) {
		struct proc_map m;

		if (!proc_map_parse(line, &m))
			continue;
		if (n == MAX_MAPS)
			return -E2BIG;
		if (n == cap) {
			size_t want = cap ? cap * 2 : 128;
			void *p = reallocarray(map, want, sizeof(*map));

			if (!p)
				return -ENOMEM;
			map = p;
			cap = want;
		}
		map[n++] = m;
	}
	if (n == 0)
		return -ESRCH; /* a zombie's list is empty */
	ret->map = no_cleanup_ptr(map);
	ret->n = n;
	return 0;
}

void proc_maps_deinit(struct proc_maps *maps)
{
	free(maps->map);
	*maps = (struct proc_maps){ 0 };
}

int proc_stat(pid_t pid, pid_t tid, char *state_ret, u64 *start_ret)
{
	char path[64];
	char text[1024];
	ssize_t n;

	if (tid)
		snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)pid, (int)tid);
	else
		snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	n = read_text(path, text, sizeof(text));
	if (n < 0)
		return (int)n;
	return proc_stat_parse(text, state_ret, start_ret) ? 0 : -ESRCH;
}

void proc_comm(pid_t pid, pid_t tid, char *buf, size_t cap)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/comm", (int)pid, (int)tid);
	if (read_text(path, buf, cap) < 0)
		buf[0] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	for (char *p = buf; *p; p++)
		*p = isprint((unsigned char)*p) ? *p : '?';
}

static int by_number(const void *a, const void *b)
{
	pid_t x = *(const pid_t *)a;
	pid_t y = *(const pid_t *)b;

	return (x > y) - (x < y);
}

int proc_threads(pid_t pid, struct vm_threads *ret)
{
	_cleanup_closedir_ DIR *d = NULL;
	_cleanup_free_ pid_t *tid = NULL;
	struct dirent *e;
	size_t cap = 0;
	size_t n = 0;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	d = opendir(path);
	if (!d)
		return proc_errno(errno);
	while ((e = readdir(d)) && n < MAX_THREADS) {
		long v = strtol(e->d_name, NULL, 10);

		if (v <= 0 || v > INT32_MAX)
			continue;
		if (n == cap) {
			size_t want = cap ? cap * 2 : 64;
			void *p = reallocarray(tid, want, sizeof(*tid));

			if (!p)
				return -ENOMEM;
			tid = p;
			cap = want;
		}
		tid[n++] = (pid_t)v;
	}
	if (n == 0)
		return -ESRCH;
	qsort(tid, n, sizeof(*tid), by_number);
	ret->tid = no_cleanup_ptr(tid);
	ret->n = n;
	return 0;
}

void proc_threads_deinit(struct vm_threads *t)
{
	free(t->tid);
	*t = (struct vm_threads){ 0 };
}

int proc_run_ns(pid_t pid, pid_t tid, u64 *ret)
{
	char path[64];
	char text[128];
	const char *p;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", (int)pid, (int)tid);
	n = read_text(path, text, sizeof(text));
	if (n < 0)
		return (int)n;
	/* without CONFIG_SCHED_INFO the file reads "0 0 0" (fs/proc/base.c, v6.12) */
	p = text;
	return number(&p, 10, " ", ret) ? 0 : -ENOTSUP;
}

/* Where descriptor after descriptor leads that begins with @prefix; 0 when there is no more. */
static int next_fd(DIR *d, const char *prefix, char *buf, size_t cap)
{
	struct dirent *e;

	while ((e = readdir(d))) {
		ssize_t len = readlinkat(dirfd(d), e->d_name, buf, cap - 1);

		if (len < 0)
			continue;
		buf[len] = '\0';
		if (strncmp(buf, prefix, strlen(prefix)) == 0)
			return 1;
	}
	return 0;
}

static DIR *open_fds(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	return opendir(path);
}

int proc_count_fds(pid_t pid, const char *prefix)
{
	_cleanup_closedir_ DIR *d = open_fds(pid);
	char link[64];
	int n = 0;

	if (!d)
		return proc_errno(errno);
	while (next_fd(d, prefix, link, sizeof(link)))
		n++;
	return n;
}

int proc_find_fd(pid_t pid, const char *prefix, char *buf, size_t cap)
{
	_cleanup_closedir_ DIR *d = open_fds(pid);

	if (!d)
		return proc_errno(errno);
	return next_fd(d, prefix, buf, cap) ? 0 : -ENOENT;
}

static bool same_file(const struct stat *st, const struct proc_map *map)
{
	return st->st_ino == map->inode && major(st->st_dev) == map->major &&
	       minor(st->st_dev) == map->minor;
}

/* No inode: the other end is gone, or whoever listens has not accepted the connection yet. */
static int without_inode(int fd)
{
	struct pollfd p = { .fd = fd, .events = 0 };

	return poll(&p, 1, 0) > 0 && (p.revents & POLLHUP) ? -ENOTCONN : -EAGAIN;
}

/* Inode number of the socket that @fd is connected to. */
static int peer_inode(int fd, u32 *ret)
{
	struct {
		struct nlmsghdr head;
		struct unix_diag_req req;
	} ask = { .head = { .nlmsg_len = sizeof(ask),
			    .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			    .nlmsg_flags = NLM_F_REQUEST },
		  .req = { .sdiag_family = AF_UNIX,
			   .udiag_states = ~0u,
			   .udiag_show = UDIAG_SHOW_PEER,
			   .udiag_cookie = { ~0u, ~0u } } };
	union {
		struct nlmsghdr head;
		char bytes[1024];
	} said;
	struct timeval limit = { 1, 0 };
	_cleanup_close_ int nl = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	const struct rtattr *a;
	struct stat st;
	int left;
	ssize_t n;

	if (nl < 0) /* EPROTONOSUPPORT: a kernel without sock_diag */
		return errno == EPROTONOSUPPORT ? -ENOENT : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	ask.req.udiag_ino = (u32)st.st_ino;
	setsockopt(nl, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (send(nl, &ask, sizeof(ask), 0) < 0)
		return -errno;
	n = recv(nl, &said, sizeof(said), 0);
	if (n < 0)
		return -errno;
	/* -ENOENT: a kernel without unix_diag; the socket itself is there, as we have it open */
	if (NLMSG_OK(&said.head, (size_t)n) && said.head.nlmsg_type == NLMSG_ERROR &&
	    said.head.nlmsg_len >= NLMSG_LENGTH(sizeof(struct nlmsgerr))) {
		n = ((const struct nlmsgerr *)NLMSG_DATA(&said.head))->error;
		return n < 0 ? (int)n : -EPROTO;
	}
	if (!NLMSG_OK(&said.head, (size_t)n) || said.head.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
	    said.head.nlmsg_len < NLMSG_LENGTH(sizeof(struct unix_diag_msg)))
		return -EPROTO;
	left = (int)(said.head.nlmsg_len - NLMSG_LENGTH(sizeof(struct unix_diag_msg)));
	a = (const struct rtattr *)((const char *)NLMSG_DATA(&said.head) +
				    NLMSG_ALIGN(sizeof(struct unix_diag_msg)));
	for (; RTA_OK(a, left); a = RTA_NEXT(a, left)) {
		if (a->rta_type == UNIX_DIAG_PEER && RTA_PAYLOAD(a) >= sizeof(*ret)) {
			memcpy(ret, RTA_DATA(a), sizeof(*ret));
			return *ret ? 0 : without_inode(fd);
		}
	}
	return -ENOTCONN;
}

int proc_holds_peer(pid_t pid, int fd)
{
	char link[32];
	u32 inode = 0;
	int rc = peer_inode(fd, &inode);

	if (rc)
		return rc;
	snprintf(link, sizeof(link), "socket:[%u]", inode);
	rc = proc_count_fds(pid, link);
	return rc > 0 ? 1 : rc;
}

int proc_open_backing(pid_t pid, const struct proc_map *map)
{
	_cleanup_closedir_ DIR *d = NULL;
	struct dirent *e;
	struct stat st;
	char path[96];
	int fd;

	if (map->inode == 0)
		return -ENOENT;
	/* needs no more than access to the process; QEMU keeps the descriptor of a backend open */
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		if (fstatat(dirfd(d), e->d_name, &st, 0) < 0 || !S_ISREG(st.st_mode) ||
		    !same_file(&st, map))
			continue;
		fd = openat(dirfd(d), e->d_name, O_RDWR | O_CLOEXEC | O_NONBLOCK);
		if (fd >= 0)
			return fd;
	}
	/* a VMM that closed it: needs CAP_CHECKPOINT_RESTORE (proc(5), map_files) */
	snprintf(path, sizeof(path), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, (int)pid,
		 map->start, map->end);
	fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -ENOENT;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || !same_file(&st, map)) {
		close(fd);
		return -ENOENT;
	}
	return fd;
}

void proc_exe_name(pid_t pid, char *buf, size_t cap)
{
	char path[64];
	char link[512];
	const char *base;
	ssize_t n;

	buf[0] = '\0';
	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	n = readlink(path, link, sizeof(link) - 1);
	if (n <= 0)
		return;
	link[n] = '\0';
	base = strrchr(link, '/');
	snprintf(buf, cap, "%s", base ? base + 1 : link);
}

/* Does the command line have these bytes, the NUL behind every word included? */
static bool cmdline_has(pid_t pid, const char *bytes, size_t len)
{
	char path[64];
	char text[32768];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	n = read_text(path, text, sizeof(text));
	return n > 0 && memmem(text, (size_t)n, bytes, len);
}

bool proc_arg_contains(pid_t pid, const char *needle)
{
	return cmdline_has(pid, needle, strlen(needle));
}

bool proc_has_option(pid_t pid, const char *option, const char *value)
{
	char words[256];
	int len;

	len = snprintf(words, sizeof(words), "%c%s%c%s", 0, option, 0, value);
	/* with the NUL before the first and the one behind the last */
	return len > 0 && (size_t)len < sizeof(words) && cmdline_has(pid, words, (size_t)len + 1);
}

/* The text after "Name:" in a status file; NULL when there is none. */
static const char *status_field(const char *text, const char *name)
{
	const char *p = strstr(text, name);

	return p ? p + strlen(name) : NULL;
}

int proc_euid(pid_t pid, uid_t *uid_ret, gid_t *gid_ret)
{
	char path[64];
	char text[4096];
	const char *u;
	const char *g;
	u64 real;
	u64 uid;
	u64 gid;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	n = read_text(path, text, sizeof(text));
	if (n < 0)
		return (int)n;
	u = status_field(text, "\nUid:");
	g = status_field(text, "\nGid:");
	/* real, effective, saved, file system */
	if (!u || !g || !number(&u, 10, "\t", &real) || !number(&u, 10, "\t", &uid) ||
	    !number(&g, 10, "\t", &real) || !number(&g, 10, "\t", &gid))
		return -ESRCH;
	*uid_ret = (uid_t)uid;
	*gid_ret = (gid_t)gid;
	return 0;
}

void proc_thread_name(pid_t pid, pid_t tid, char *buf, size_t cap)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/comm", (int)pid, (int)tid);
	if (read_text(path, buf, cap) < 0)
		buf[0] = '\0';
	for (char *p = buf; *p; p++) {
		if (!isprint((unsigned char)*p)) {
			*p = '\0';
			return;
		}
	}
}

bool proc_blocks_signal(pid_t pid, int sig)
{
	char path[64];
	char text[4096];
	const char *p;
	u64 mask;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	if (sig < 1 || sig > 64 || read_text(path, text, sizeof(text)) < 0)
		return false;
	p = status_field(text, "\nSigBlk:");
	return p && number(&p, 16, "\n", &mask) && (mask >> (sig - 1) & 1);
}

pid_t proc_host_tid(pid_t pid, pid_t inner)
{
	_cleanup_threads_ struct vm_threads t = { 0 };

	if (proc_threads(pid, &t) < 0)
		return 0;
	for (size_t i = 0; i < t.n; i++) {
		char path[64];
		char text[4096];
		const char *p;
		char *end;
		long last = 0;

		snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)pid, (int)t.tid[i]);
		if (read_text(path, text, sizeof(text)) < 0)
			continue;
		/* one number per nested pid namespace, outermost first */
		p = status_field(text, "\nNSpid:");
		while (p) {
			long v = strtol(p, &end, 10);

			if (end == p || v <= 0)
				break;
			last = v;
			if (*end != '\t' && *end != ' ')
				break;
			p = end;
		}
		if (last == inner)
			return t.tid[i];
	}
	return 0;
}

pid_t proc_thread_group(pid_t tid)
{
	char path[64];
	char text[4096];
	const char *p;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
	if (read_text(path, text, sizeof(text)) < 0)
		return 0;
	p = status_field(text, "\nTgid:");
	return p ? (pid_t)strtol(p, NULL, 10) : 0;
}
