// SPDX-License-Identifier: Apache-2.0
/* QMP client. See qmp.h. */
#define LOG_PREFIX "qmp"
#include "vmm/qmp_impl.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define READ_BYTES 65536
#define DYING_MS   500
#define LOOK_NS    (5 * NSEC_PER_MSEC) /* for what has come, and is to be read */

/* 0 when @events came; -ETIMEDOUT. */
static int wait_fd(int fd, short events, u64 deadline)
{
	for (;;) {
		struct pollfd p = { .fd = fd, .events = events };
		u64 now = monotonic_ns();
		u64 left = deadline > now ? (deadline - now) / NSEC_PER_MSEC + 1 : 0;
		int n = poll(&p, 1, (int)MIN(left, (u64)INT32_MAX));

		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (monotonic_ns() >= deadline)
			return -ETIMEDOUT;
	}
}

static int closed(struct qmp *q, struct err *err)
{
	q->dead = true;
	return err_set(err, -ESRCH, ERR_VMM_GONE, 0, "QEMU closed its monitor");
}

static int timed_out(struct err *err)
{
	return err_set(
		err, -ETIMEDOUT, ERR_VMM_TIMEOUT, 0,
		"QEMU's monitor did not answer in time (is another client connected to it?)");
}

static int nonsense(struct qmp *q, struct err *err, const char *what)
{
	q->dead = true; /* where the next message begins is not known any more */
	return err_set(err, -EPROTO, ERR_VMM_PROTOCOL, 0, "QEMU's monitor: %s", what);
}

/* One more read into @q->in. */
static int fill(struct qmp *q, u64 deadline, struct err *err)
{
	char *p;
	ssize_t n;
	int rc;

	if (q->in.len >= QMP_MAX_MESSAGE)
		return nonsense(q, err, "a message is too long");
	p = buf_reserve(&q->in, READ_BYTES);
	if (!p)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for an answer of QEMU");
	rc = wait_fd(q->fd, POLLIN, deadline);
	if (rc == -ETIMEDOUT)
		return timed_out(err);
	if (rc < 0)
		return closed(q, err);
	n = recv(q->fd, p, READ_BYTES, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0)
		return closed(q, err);
	q->in.len += (size_t)n;
	return 0;
}

int qmp_next_message(struct qmp *q, u64 deadline, json_t **ret, struct err *err)
{
	for (;;) {
		ssize_t len = qmp_scan_object(&q->scan, q->in.data, q->in.len);
		json_t *msg;
		int rc;

		if (len < 0)
			return nonsense(q, err, "not a JSON object");
		if (len == 0) {
			rc = fill(q, deadline, err);
			if (rc < 0)
				return rc;
			continue;
		}
		msg = json_loadb(q->in.data, (size_t)len, 0, NULL);
		memmove(q->in.data, q->in.data + len, q->in.len - (size_t)len);
		q->in.len -= (size_t)len;
		q->scan = (struct qmp_scan){ 0 };
		if (!msg)
			return nonsense(q, err, "malformed JSON");
		*ret = msg;
		return 0;
	}
}

static int send_all(struct qmp *q, const char *data, size_t len, u64 deadline, struct err *err)
{
	size_t whole = len;

	while (len) {
		ssize_t n = send(q->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
		int rc;

		if (n > 0) {
			data += n;
			len -= (size_t)n;
			continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n == 0 || errno != EAGAIN)
			return closed(q, err);
		rc = wait_fd(q->fd, POLLOUT, deadline);
		if (rc == -ETIMEDOUT) {
			q->dead = len < whole; /* half a command is out */
			return timed_out(err);
		}
		if (rc < 0)
			return closed(q, err);
	}
	return 0;
}

/* A command as text, to be freed; @id 0: without one. */
static char *command_text(const char *command, json_t *args, u64 id)
{
	json_t *msg = json_pack("{s:s}", "execute", command);
	char *text = NULL;
	bool ok = msg;

	ok = ok && (!id || json_object_set_new(msg, "id", json_integer((json_int_t)id)) == 0);
	ok = ok && (!args || json_object_set(msg, "arguments", args) == 0);
	if (ok)
		text = json_dumps(msg, JSON_COMPACT);
	json_decref(msg);
	return text;
}

static int send_command(struct qmp *q, const char *command, json_t *args, u64 deadline,
			struct err *err)
{
	_cleanup_free_ char *text = command_text(command, args, ++q->id);
	int rc;

	if (!text)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a command to QEMU");
	rc = send_all(q, text, strlen(text), deadline, err);
	q->owed = rc == 0;
	return rc;
}

static int refused(json_t *error, const char *command, struct err *err)
{
	const char *desc = json_string_value(json_object_get(error, "desc"));

	return err_set(err, -EPROTO, ERR_VMM_PROTOCOL, 0, "QEMU refused %s: %s", command,
		       desc ? desc : "no reason given");
}

/* Is @msg the answer to the last command? Then 0 or an error; 1 when it is something else. */
static int take_answer(struct qmp *q, json_t *msg, const char *command, json_t **ret,
		       struct err *err)
{
	json_t *id = json_object_get(msg, "id");
	json_t *value = json_object_get(msg, "return");
	json_t *error = json_object_get(msg, "error");

	if (json_object_get(msg, "event"))
		return 1;
	/* an error about the message as a whole has no id (qmp-spec.txt, 2.4.2) */
	if (id && (u64)json_integer_value(id) != q->id)
		return 1;
	q->owed = false;
	if (value && id) {
		if (ret)
			*ret = json_incref(value);
		return 0;
	}
	if (!error)
		return nonsense(q, err, "an answer without return or error");
	return refused(error, command, err);
}

/*
 * By a transport. The id is its own affair: libvirt puts one of its own into the command, and its
 * answer is this command's (src/qemu/qemu_monitor_json.c, qemuMonitorJSONArbitraryCommand(), 9.0).
 */
static int command_via(struct qmp *q, const char *command, json_t *args, json_t **ret,
		       u64 timeout_ns, struct err *err)
{
	_cleanup_free_ char *text = command_text(command, args, 0);
	_cleanup_free_ char *answer = NULL;
	json_t *msg, *value, *error;
	int rc;

	if (!text)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a command to QEMU");
	rc = q->via->command(q->via_arg, text, timeout_ns, &answer, err);
	if (rc < 0)
		return rc;
	if (!answer || strnlen(answer, QMP_MAX_MESSAGE) == QMP_MAX_MESSAGE)
		return err_set(err, -EPROTO, ERR_VMM_PROTOCOL, 0,
			       "QEMU's monitor: an answer is missing or too long");
	msg = json_loads(answer, 0, NULL);
	value = json_object_get(msg, "return");
	error = json_object_get(msg, "error");
	if (value && ret)
		*ret = json_incref(value);
	else if (error && !value)
		rc = refused(error, command, err);
	else if (!value)
		rc = err_set(err, -EPROTO, ERR_VMM_PROTOCOL, 0,
			     "QEMU's monitor: not an answer to %s", command);
	json_decref(msg);
	return rc;
}

/* The answer to the last command, whoever waits for it by now. */
static int await_answer(struct qmp *q, const char *command, json_t **ret, u64 deadline,
			struct err *err)
{
	int rc;

	do {
		json_t *msg = NULL;

		rc = qmp_next_message(q, deadline, &msg, err);
		if (rc < 0)
			return rc;
		rc = take_answer(q, msg, command, ret, err);
		json_decref(msg);
		/* a peer that only ever sends events must not keep us */
		if (rc == 1 && monotonic_ns() >= deadline)
			return timed_out(err);
	} while (rc == 1);
	return rc;
}

static int await_greeting(struct qmp *q, u64 deadline, struct err *err)
{
	json_t *msg = NULL;
	int rc;

	while (q->phase == PHASE_GREETING) {
		rc = qmp_next_message(q, deadline, &msg, err);
		if (rc < 0)
			return rc;
		/* an event may come first when the guest has just changed its state */
		if (json_object_get(msg, "QMP"))
			q->phase = PHASE_GREETED;
		else if (!json_object_get(msg, "event"))
			rc = nonsense(q, err, "no greeting; is this a QMP socket?");
		json_decref(msg);
		if (rc < 0)
			return rc;
		if (q->phase == PHASE_GREETING && monotonic_ns() >= deadline)
			return timed_out(err);
	}
	return 0;
}

void qmp_drop_fd(struct qmp *q)
{
	if (q->fd >= 0)
		close(q->fd);
	q->fd = -1;
}

static int connect_path(const char *path, int *ret, struct err *err)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = -1;
	int rc;

	if (strlen(path) >= sizeof(addr.sun_path))
		return err_set(err, -EINVAL, ERR_TARGET_SYNTAX, 0,
			       "a socket's path has at most %zu bytes", sizeof(addr.sun_path) - 1);
	memcpy(addr.sun_path, path, strlen(path));
	/* non-blocking: a full backlog must not hold us */
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_set(err, -errno, ERR_IO, 0, "cannot make a socket: %s", strerror(errno));
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
		rc = errno;
		if (rc == EACCES || rc == EPERM)
			return err_set(err, -EACCES, ERR_TARGET_PERMISSION, 0,
				       "may not connect to %s", path);
		if (rc == EAGAIN)
			return timed_out(err);
		return err_set(err, -ENOENT, ERR_TARGET_NO_SOCKET, 0, "cannot connect to %s: %s",
			       path, strerror(rc));
	}
	*ret = no_cleanup_fd(fd);
	return 0;
}

static int no_other(const struct qmp *q, struct err *err, const struct err *why)
{
	return err_set(err, why->no == -ETIMEDOUT ? why->no : -ENOTCONN, why->code, 0,
		       "%s, and there is no other connection: %s",
		       q->rests ? "QEMU's monitor was left to others" : "QEMU closed its monitor",
		       why->msg);
}

/* The connection was closed, by the monitor or by us. Its process may be about to end; if not, another connection is made. */
static int connect_again(struct qmp *q, struct err *err)
{
	struct err why = { 0 };
	int fd = -1;

	if (!q->peer || !q->peer->lives(q->peer_arg, 0))
		return closed(q, err);
	if (connect_path(q->path, &fd, &why) < 0)
		return no_other(q, err, &why);
	qmp_drop_fd(q);
	q->fd = fd;
	q->phase = PHASE_GREETING;
	q->in.len = 0;
	q->scan = (struct qmp_scan){ 0 };
	q->owed = q->dead = false;
	qmp_watch_again(q);
	return 0;
}

/*
 * Whoever greets has accepted the connection, and not before that the kernel can tell who holds the other end. What is
 * somebody else's is told nothing, nor waited for.
 */
static int greet_again(struct qmp *q, u64 deadline, struct err *err)
{
	struct err why = { 0 };
	int rc = await_greeting(q, deadline, err);
	int whose = rc == -ESRCH ? 0 : q->peer->check(q->peer_arg, q->fd, &why);

	if (whose == -ENODEV || (whose < 0 && rc == 0)) {
		q->dead = true;
		shutdown(q->fd, SHUT_RDWR);
		return no_other(q, err, &why);
	}
	if (rc == 0 && !q->rests)
		log_info("connected to %s again", q->path);
	return rc;
}

int qmp_make_ready(struct qmp *q, u64 deadline, struct err *err)
{
	struct err refusal = { 0 };
	int rc = 0;

	if (q->owed && !q->dead)
		rc = await_answer(q, "a command", NULL, deadline, &refusal);
	if (q->owed && !q->dead) {
		if (err)
			*err = refusal;
		return rc;
	}
	rc = q->dead ? connect_again(q, err) : 0;
	if (rc < 0 || q->phase == PHASE_READY)
		return rc;
	/* a peer is known after the first greeting */
	rc = q->peer ? greet_again(q, deadline, err) : await_greeting(q, deadline, err);
	if (rc < 0)
		return rc;
	rc = send_command(q, "qmp_capabilities", NULL, deadline, err);
	if (rc < 0)
		return rc;
	q->phase = PHASE_READY;
	return await_answer(q, "qmp_capabilities", NULL, deadline, err);
}

static int command_locked(struct qmp *q, const char *command, json_t *args, json_t **ret,
			  u64 timeout_ns, struct err *err)
{
	u64 deadline = monotonic_ns() + timeout_ns;
	int rc;

	if (q->via)
		return command_via(q, command, args, ret, timeout_ns, err);
	rc = qmp_make_ready(q, deadline, err);
	if (rc == 0)
		rc = send_command(q, command, args, deadline, err);
	return rc < 0 ? rc : await_answer(q, command, ret, deadline, err);
}

/*
 * A QEMU that ends closes its sockets a moment before its process is gone. One that lives is away from us, no more:
 * the next command may reach it. @known: it was closed before.
 */
static int tell_end_from_loss(struct qmp *q, int rc, bool known, struct err *err)
{
	if (!q->peer || (rc != -ESRCH && rc != -ENOTCONN))
		return rc;
	if (!q->peer->lives(q->peer_arg, known ? 0 : DYING_MS))
		return closed(q, err);
	if (rc == -ENOTCONN)
		return rc;
	return err_set(err, -ENOTCONN, ERR_VMM_PROTOCOL, 0, "QEMU closed its monitor connection");
}

int qmp_command(struct qmp *q, const char *command, json_t *args, json_t **ret, u64 timeout_ns,
		struct err *err)
{
	bool known;
	int rc;

	pthread_mutex_lock(&q->lock);
	known = q->dead && !q->rests;
	rc = command_locked(q, command, args, ret, timeout_ns, err);
	rc = tell_end_from_loss(q, rc, known, err);
	q->rests = false;
	q->used_ns = monotonic_ns();
	q->silent = rc == -ETIMEDOUT || (rc == -ENOTCONN && !q->via);
	pthread_mutex_unlock(&q->lock);
	json_decref(args);
	return rc;
}

int qmp_hmp(struct qmp *q, const char *line, int cpu, char **text_ret, u64 timeout_ns,
	    struct err *err)
{
	json_t *args = json_pack("{s:s}", "command-line", line);
	json_t *value = NULL;
	const char *text;
	int rc;

	if (args && cpu >= 0 && json_object_set_new(args, "cpu-index", json_integer(cpu)) < 0) {
		json_decref(args);
		args = NULL;
	}
	if (!args)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a command to QEMU");
	rc = qmp_command(q, "human-monitor-command", args, &value, timeout_ns, err);
	if (rc < 0)
		return rc;
	text = json_string_value(value);
	*text_ret = text ? strdup(text) : NULL;
	if (!text)
		rc = err_set(err, -EPROTO, ERR_VMM_PROTOCOL, 0, "QEMU answered %s without text",
			     line);
	else if (!*text_ret)
		rc = err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for an answer of QEMU");
	json_decref(value);
	return rc;
}

int qmp_open_fd(int fd, u64 timeout_ns, struct qmp **ret, struct err *err)
{
	struct qmp *q = calloc(1, sizeof(*q));
	int rc;

	if (!q) {
		close(fd);
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a connection");
	}
	q->fd = fd;
	q->wake = -1;
	pthread_mutex_init(&q->lock, NULL);
	rc = qmp_make_ready(q, monotonic_ns() + timeout_ns, err);
	if (rc < 0) {
		qmp_close(q);
		return rc;
	}
	*ret = q;
	return 0;
}

int qmp_open_transport(const struct qmp_transport *t, void *arg, struct qmp **ret, struct err *err)
{
	struct qmp *q = calloc(1, sizeof(*q));

	if (!q) {
		t->close(arg);
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a connection");
	}
	q->via = t;
	q->via_arg = arg;
	q->fd = q->wake = -1;
	pthread_mutex_init(&q->lock, NULL);
	*ret = q;
	return 0;
}

int qmp_open(const char *path, u64 timeout_ns, struct qmp **ret, struct err *err)
{
	int fd = -1;
	int rc = connect_path(path, &fd, err);

	if (rc == 0)
		rc = qmp_open_fd(fd, timeout_ns, ret, err);
	if (rc == 0)
		snprintf((*ret)->path, sizeof((*ret)->path), "%s", path);
	return rc;
}

void qmp_set_peer(struct qmp *q, const struct qmp_peer *peer, void *arg)
{
	pthread_mutex_lock(&q->lock);
	q->peer = q->path[0] ? peer : NULL;
	q->peer_arg = arg;
	pthread_mutex_unlock(&q->lock);
}

void qmp_close(struct qmp *q)
{
	if (!q)
		return;
	qmp_unshare(q);
	if (q->via)
		q->via->close(q->via_arg);
	qmp_drop_fd(q);
	buf_deinit(&q->in);
	pthread_mutex_destroy(&q->lock);
	free(q);
}

/* What was owed has come by now, or it has not. */
static bool has_come(struct qmp *q)
{
	if (q->via)
		return !q->via->owes(q->via_arg);
	return qmp_make_ready(q, monotonic_ns() + LOOK_NS, NULL) == 0;
}

bool qmp_silent(struct qmp *q)
{
	if (!q->silent || pthread_mutex_trylock(&q->lock))
		return q->silent;
	if (q->silent && has_come(q))
		q->silent = false;
	pthread_mutex_unlock(&q->lock);
	return q->silent;
}

int qmp_fd(const struct qmp *q)
{
	return q->fd;
}

bool qmp_is_carried(const struct qmp *q)
{
	return q->via;
}
