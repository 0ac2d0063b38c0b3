// SPDX-License-Identifier: Apache-2.0
/*
 * Stop windows under TCG: the daemon's side. See tcg_window.h.
 *
 * The stub's socket lies in a directory of its own, 0700, in QEMU's /tmp as QEMU sees it:
 *
 *   /tmp/hvftrace-gdb-XXXXXX/gdb    QEMU listens here
 *   /tmp/hvftrace-gdb-XXXXXX/lock   locked while a daemon or its child uses the stub;
 *                                   'w' in it: a window is open
 *
 * A stub whose lock nobody holds was left by a daemon that died, and is taken down.
 */
#define LOG_PREFIX "tcg"
#include "vmm/tcg_window.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "vmm/proc.h"
#include "vmm/qmp.h"
#include "vmm/tcg_child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define DIR_PREFIX "/tmp/hvftrace-gdb-"
#define DIR_LEN    (sizeof(DIR_PREFIX) - 1 + 6)
#define QMP_NS     (5 * NSEC_PER_SEC)
#define WRITE_NS   (10 * NSEC_PER_SEC)
#define RESUME_NS  (10 * NSEC_PER_SEC)
#define GRACE_NS   (2 * NSEC_PER_SEC) /* the child answers by then, or is lost */
#define TRIES      2 /* the next command has a connection made again that was lost */
#define BUSY_NS    (3 * NSEC_PER_SEC) /* for the child of a daemon that has just died */

struct tcg_window {
	struct qmp *q;
	pid_t pid;
	char dir[DIR_LEN + 1]; /* as QEMU sees it; "" when there is none */
	int tmp; /* QEMU's /tmp, which holds it */
	int lock;
	int sock; /* to the child; -1 when there is none */
	bool stub_open;
};

/* @name in the stub's directory @dir, as we see it; @name "" for the directory itself. */
static void our_path(char *buf, size_t cap, pid_t pid, const char *dir, const char *name)
{
	snprintf(buf, cap, "/proc/%d/root%s%s%s", (int)pid, dir, *name ? "/" : "", name);
}

/* QEMU's /tmp: held open, as there is no way to it through /proc once QEMU has ended. */
static int open_tmp(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/root/tmp", (int)pid);
	return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static void remove_dir(int tmp, const char *dir)
{
	static const char *const files[] = { "gdb", "lock" };
	const char *base = dir + sizeof("/tmp/") - 1;
	char path[64];

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		snprintf(path, sizeof(path), "%s/%s", base, files[i]);
		unlinkat(tmp, path, 0);
	}
	if (unlinkat(tmp, base, AT_REMOVEDIR) < 0 && errno != ENOENT)
		log_warn("cannot remove %s: %s", dir, strerror(errno));
}

/*
 * The character device "gdb" of query-chardev: where it is and whether somebody is connected.
 * false when there is none. (softmmu/runstate.c and gdbstub.c, 7.2, give it that label.)
 */
static bool find_stub(json_t *chardevs, const char **path_ret, size_t *len_ret, bool *used_ret)
{
	size_t i;
	json_t *c;

	json_array_foreach(chardevs, i, c)
	{
		const char *label = json_string_value(json_object_get(c, "label"));
		const char *name = json_string_value(json_object_get(c, "filename"));
		static const char free_prefix[] = "disconnected:";

		if (!label || strcmp(label, "gdb") != 0)
			continue;
		name = name ? name : "";
		*used_ret = strncmp(name, free_prefix, sizeof(free_prefix) - 1) != 0;
		if (!*used_ret)
			name += sizeof(free_prefix) - 1;
		if (strncmp(name, "unix:", 5) == 0)
			name += 5;
		*path_ret = name;
		*len_ret = strcspn(name, ",");
		return true;
	}
	return false;
}

/* Exactly DIR_PREFIX, six characters of mkdtemp(3), "/gdb". */
static bool is_our_path(const char *path, size_t len)
{
	if (len != DIR_LEN + 4 || strncmp(path, DIR_PREFIX, sizeof(DIR_PREFIX) - 1) != 0 ||
	    memcmp(path + DIR_LEN, "/gdb", 4) != 0)
		return false;
	return !memchr(path + sizeof(DIR_PREFIX) - 1, '/', 6) &&
	       !memchr(path + sizeof(DIR_PREFIX) - 1, '.', 6);
}

/* query-status: 1 running, 0 not; *paused_ret when a "cont" is all it needs. */
static int guest_runs(struct qmp *q, bool *paused_ret, struct err *err)
{
	json_t *value = NULL;
	const char *status;
	int rc = qmp_command(q, "query-status", NULL, &value, QMP_NS, err);

	if (rc < 0)
		return rc;
	status = json_string_value(json_object_get(value, "status"));
	*paused_ret = status && strcmp(status, "paused") == 0;
	rc = status && strcmp(status, "running") == 0;
	json_decref(value);
	return rc;
}

/*
 * After a window that did not end as it should. What stands still for another reason than a pause (its memory has gone
 * to another host, a disk has failed) is not ours to let go on.
 */
static int ensure_running(struct qmp *q, struct err *err)
{
	int rc = -ENOTCONN;

	for (int i = 0; i < TRIES && rc == -ENOTCONN; i++) {
		bool paused = false;

		rc = guest_runs(q, &paused, err);
		if (rc > 0 || (rc == 0 && !paused))
			return 0;
		if (rc < 0)
			continue;
		log_warn("the guest was still paused after a window; letting it go on");
		rc = qmp_command(q, "cont", NULL, NULL, QMP_NS, err);
	}
	return rc;
}

static int close_stub(struct qmp *q, struct err *err)
{
	int rc = -ENOTCONN;

	for (int i = 0; i < TRIES && rc == -ENOTCONN; i++) {
		_cleanup_free_ char *text = NULL;

		rc = qmp_hmp(q, "gdbserver none", -1, &text, QMP_NS, err);
	}
	return rc;
}

/* The stub is on a path of ours: 0 it was abandoned and is gone now; -EAGAIN somebody has it. */
static int take_down(struct qmp *q, pid_t pid, const char *dir, bool used, struct err *err)
{
	_cleanup_close_ int tmp = open_tmp(pid);
	_cleanup_close_ int lock = -1;
	char path[108];
	char mark = '-';
	int rc;

	our_path(path, sizeof(path), pid, dir, "lock");
	lock = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (lock < 0 && used)
		return -EAGAIN;
	if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) < 0)
		return -EAGAIN;
	if (lock >= 0 && pread(lock, &mark, 1, 0) != 1)
		mark = '-';
	log_info("closing a gdbstub that an earlier daemon left in QEMU %d", (int)pid);
	rc = close_stub(q, err);
	if (rc == 0 && mark == 'w')
		rc = ensure_running(q, err);
	if (rc == 0)
		remove_dir(tmp, dir);
	return rc;
}

int tcg_window_check(struct qmp *q, pid_t pid, struct err *err)
{
	u64 deadline = monotonic_ns() + BUSY_NS;

	for (;;) {
		struct timespec pause = { 0, 50 * NSEC_PER_MSEC };
		char dir[DIR_LEN + 1] = "";
		const char *path = NULL;
		json_t *list = NULL;
		size_t len = 0;
		bool used = false;
		bool stub;
		int rc = qmp_command(q, "query-chardev", NULL, &list, QMP_NS, err);

		if (rc < 0)
			return rc;
		stub = find_stub(list, &path, &len, &used);
		if (stub && is_our_path(path, len))
			memcpy(dir, path, DIR_LEN);
		json_decref(list);
		if (!stub)
			return 0;
		rc = *dir ? take_down(q, pid, dir, used, err) : -EBUSY;
		if (rc != -EAGAIN && rc != -EBUSY)
			return rc;
		if (rc == -EBUSY || monotonic_ns() >= deadline)
			return err_set(err, -EBUSY, ERR_TARGET_GDB_BUSY, 0,
				       "QEMU %d has a gdbstub that is not ours", (int)pid);
		nanosleep(&pause, NULL);
	}
}

int tcg_window_create(struct qmp *q, pid_t pid, struct tcg_window **ret, struct err *err)
{
	struct tcg_window *w = calloc(1, sizeof(*w));

	if (!w)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a stop window");
	w->q = q;
	w->pid = pid;
	w->tmp = -1;
	w->lock = -1;
	w->sock = -1;
	*ret = w;
	return 0;
}

static int make_dir(struct tcg_window *w, struct err *err)
{
	char path[108];
	uid_t uid;
	gid_t gid;

	w->tmp = open_tmp(w->pid);
	our_path(path, sizeof(path), w->pid, DIR_PREFIX "XXXXXX", "");
	if (w->tmp < 0 || !mkdtemp(path))
		return err_set(err, -EIO, ERR_IO, 0, "cannot make a directory %s: %s", path,
			       strerror(errno));
	memcpy(w->dir, path + strlen(path) - DIR_LEN, DIR_LEN + 1);
	our_path(path, sizeof(path), w->pid, w->dir, "lock");
	w->lock = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (w->lock < 0 || flock(w->lock, LOCK_EX | LOCK_NB) < 0)
		return err_set(err, -EIO, ERR_IO, 0, "cannot lock %s: %s", path, strerror(errno));
	/* QEMU makes the socket, as whoever it is */
	our_path(path, sizeof(path), w->pid, w->dir, "");
	if (proc_euid(w->pid, &uid, &gid) == 0 && uid != geteuid() && chown(path, uid, gid) < 0)
		return err_set(err, -EACCES, ERR_TARGET_PERMISSION, 0,
			       "cannot give %s to user %u: %s", path, uid, strerror(errno));
	return 0;
}

static void leave_dir(struct tcg_window *w)
{
	w->dir[0] = '\0';
	if (w->tmp >= 0)
		close(w->tmp);
	w->tmp = -1;
	if (w->lock >= 0)
		close(w->lock);
	w->lock = -1;
}

static void drop_dir(struct tcg_window *w)
{
	if (w->dir[0])
		remove_dir(w->tmp, w->dir);
	leave_dir(w);
}

static int open_stub(struct tcg_window *w, struct err *err)
{
	_cleanup_free_ char *text = NULL;
	char line[128];
	int rc = tcg_window_check(w->q, w->pid, err);

	if (rc < 0)
		return rc;
	rc = make_dir(w, err);
	/* without the monitor neither the stub nor, should a window fail, the guest could be let go */
	qmp_keep(w->q, true);
	if (rc == 0) {
		snprintf(line, sizeof(line), "gdbserver unix:%s/gdb,server=on,wait=off", w->dir);
		rc = qmp_hmp(w->q, line, -1, &text, QMP_NS, err);
	}
	if (rc == 0 && strncmp(text, "Waiting for gdb", 15) != 0) {
		text[strcspn(text, "\r\n")] = '\0';
		rc = err_set(err, -EPROTO, ERR_VMM_PROTOCOL, 0, "QEMU opens no gdbstub: %s", text);
	}
	if (rc < 0)
		drop_dir(w);
	w->stub_open = rc == 0;
	qmp_keep(w->q, w->stub_open);
	return rc;
}

/* Forked twice, so that the child is nobody's to wait for; see tcg_child.h for what it may do. */
static int start_child(struct tcg_window *w, struct err *err)
{
	char path[108];
	int pair[2];
	pid_t pid;

	our_path(path, sizeof(path), w->pid, w->dir, "gdb");
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_set(err, -errno, ERR_IO, 0, "socketpair: %s", strerror(errno));
	pid = fork();
	if (pid == 0) {
		pid = _Fork();
		if (pid == 0)
			tcg_child_run(pair[1], w->lock, path);
		_exit(pid < 0);
	}
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		return err_set(err, -EAGAIN, ERR_NO_MEMORY, 0, "cannot fork: %s", strerror(errno));
	}
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	w->sock = pair[0];
	return 0;
}

/* Moves all of @len through the socket by @deadline. 0; -ETIMEDOUT; -EPIPE the child is gone. */
static int transfer(int fd, bool out, void *buf, size_t len, u64 deadline)
{
	u8 *p = buf;

	while (len) {
		struct pollfd pfd = { .fd = fd, .events = out ? POLLOUT : POLLIN };
		u64 now = monotonic_ns();
		ssize_t n;

		if (now >= deadline)
			return -ETIMEDOUT;
		if (poll(&pfd, 1, (int)MIN((deadline - now) / NSEC_PER_MSEC + 1, 60000ull)) <= 0)
			continue;
		n = out ? send(fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT)
			: recv(fd, p, len, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (n <= 0)
			return -EPIPE;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

/* Without its child a window is over: closing the socket makes it let go, if it still can. */
static int lose_child(struct tcg_window *w, int rc, struct err *err)
{
	close(w->sock);
	w->sock = -1;
	if (ensure_running(w->q, NULL) < 0)
		log_warn("cannot tell whether the guest of QEMU %d runs", (int)w->pid);
	return err_set(err, rc == -ETIMEDOUT ? rc : -EIO,
		       rc == -ETIMEDOUT ? ERR_VMM_TIMEOUT : ERR_IO, 0,
		       "the process that holds QEMU's gdbstub %s",
		       rc == -ETIMEDOUT ? "does not answer" : "has ended");
}

static int order(struct tcg_window *w, const struct tcg_order *o, const struct vm_phys_text *text,
		 struct tcg_answer *a, struct err *err)
{
	u64 deadline = monotonic_ns() + o->timeout_ns + GRACE_NS;
	struct tcg_order copy = *o;
	int rc;

	if (w->sock < 0)
		return err_set(err, -EIO, ERR_IO, 0,
			       "the process that holds QEMU's gdbstub has ended");
	rc = transfer(w->sock, true, &copy, sizeof(copy), deadline);
	if (rc == 0 && text) /* only read from */
		rc = transfer(w->sock, true, (void *)(uintptr_t)text, o->n * sizeof(*text),
			      deadline);
	if (rc == 0)
		rc = transfer(w->sock, false, a, sizeof(*a), deadline);
	return rc < 0 ? lose_child(w, rc, err) : 0;
}

static int pause_failed(struct tcg_window *w, int rc, struct err *err)
{
	if (rc == -ETIMEDOUT)
		return err_set(err, rc, ERR_PAUSE_TIMEOUT, 0,
			       "QEMU %d did not stop its guest in time", (int)w->pid);
	if (rc == -ESRCH)
		return err_set(err, rc, ERR_VMM_GONE, 0, "QEMU %d closed its gdbstub", (int)w->pid);
	return err_set(err, -EPROTO, ERR_VMM_PROTOCOL, 0, "QEMU %d's gdbstub: %s", (int)w->pid,
		       strerror(-rc));
}

int tcg_window_pause(struct tcg_window *w, u64 timeout_ns, u64 *started_ns_ret, struct err *err)
{
	struct tcg_order o = { .op = TCG_PAUSE, .timeout_ns = timeout_ns };
	struct tcg_answer a = { 0 };
	bool paused;
	int rc = guest_runs(w->q, &paused, err);

	if (rc < 0)
		return rc;
	if (rc == 0)
		return err_set(err, -EBUSY, ERR_GUEST_STOPPED, 0, "the guest is not running");
	for (int attempt = 0; attempt < 2; attempt++) {
		rc = w->stub_open ? 0 : open_stub(w, err);
		if (rc == 0 && w->sock < 0)
			rc = start_child(w, err);
		if (rc == 0)
			rc = order(w, &o, NULL, &a, err);
		if (rc < 0)
			return rc;
		if (a.rc != -ECONNREFUSED && a.rc != -ENOENT)
			break;
		/* somebody closed the stub: open it again, once; where that fails the monitor is not ours to keep */
		w->stub_open = false;
		qmp_keep(w->q, false);
		close(w->sock);
		w->sock = -1;
		drop_dir(w);
	}
	*started_ns_ret = a.started_ns;
	return a.rc < 0 ? pause_failed(w, a.rc, err) : 0;
}

int tcg_window_resume(struct tcg_window *w, struct err *err)
{
	struct tcg_order o = { .op = TCG_RESUME, .timeout_ns = RESUME_NS };
	struct tcg_answer a = { 0 };
	bool silent;
	int rc = order(w, &o, NULL, &a, err);
	int rc2;

	/* confirmed: QEMU has let it go; who stops it from here on has a reason of his own */
	if (!rc && !a.rc)
		return 0;
	if (!rc && a.rc == -ESRCH)
		rc = err_set(err, -ESRCH, ERR_VMM_GONE, 0, "QEMU %d closed its gdbstub",
			     (int)w->pid);
	silent = !rc;
	if (silent)
		log_warn("QEMU %d's gdbstub did not confirm the detach: %s", (int)w->pid,
			 strerror(-a.rc));
	rc2 = ensure_running(w->q, silent ? err : NULL);
	return silent ? rc2 : rc;
}

int tcg_window_write(struct tcg_window *w, const struct vm_phys_text *text, size_t n,
		     struct err *err)
{
	for (size_t i = 0; i < n; i += TCG_WRITE_MAX) {
		struct tcg_order o = { .op = TCG_WRITE,
				       .n = (u32)MIN(n - i, (size_t)TCG_WRITE_MAX),
				       .timeout_ns = WRITE_NS };
		struct tcg_answer a = { 0 };
		int rc = order(w, &o, text + i, &a, err);

		if (rc < 0)
			return rc;
		if (a.rc == -ESRCH)
			return err_set(err, -ESRCH, ERR_VMM_GONE, 0, "QEMU %d closed its gdbstub",
				       (int)w->pid);
		if (a.rc < 0)
			return err_set(err, -EPERM, ERR_VMM_PROTOCOL, text[i + a.index].gpa,
				       "QEMU did not write guest text at physical 0x%llx",
				       (unsigned long long)text[i + a.index].gpa);
	}
	return 0;
}

void tcg_window_destroy(struct tcg_window *w)
{
	struct err err = { 0 };
	int rc;

	if (!w)
		return;
	if (w->sock >= 0)
		close(w->sock);
	rc = w->stub_open ? close_stub(w->q, &err) : 0;
	if (rc == 0 || rc == -ESRCH) {
		drop_dir(w);
	} else {
		/* with its lock, which says to the next tcg_window_check() whose it was */
		log_warn("cannot close the gdbstub of QEMU %d, which stays in %s until the guest "
			 "is attached again: %s",
			 (int)w->pid, w->dir, err.msg);
		leave_dir(w);
	}
	free(w);
}
