// SPDX-License-Identifier: Apache-2.0
/* The audit log. See audit.h. */
#include "api/audit.h"

#include "api/problem.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#define LOG_PREFIX "audit"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

struct audit {
	pthread_mutex_t lock; /* fd, torn */
	int fd;
	bool torn; /* the file ends within a line: the next one is to begin a new one */
	char *path;
	atomic_ullong failures;
};

static int open_log(const char *path)
{
	return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/* Did the disk fill up, or the host go down, within a line of another time? */
static bool ends_within_line(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;
	char last;

	return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 &&
	       pread(fd, &last, 1, st.st_size - 1) == 1 && last != '\n';
}

int audit_create(const char *path, struct audit **ret, struct err *err)
{
	struct audit *a = calloc(1, sizeof(*a));

	if (a)
		a->path = strdup(path);
	if (!a || !a->path) {
		free(a);
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for the audit log");
	}
	a->fd = open_log(path);
	if (a->fd < 0) {
		int r = -errno;

		free(a->path);
		free(a);
		return err_set(err, r, ERR_IO, 0, "cannot open the audit log %.120s: %s", path,
			       strerrordesc_np(-r));
	}
	a->torn = ends_within_line(path);
	pthread_mutex_init(&a->lock, NULL);
	*ret = a;
	return 0;
}

void audit_destroy(struct audit *a)
{
	if (!a)
		return;
	close(a->fd);
	pthread_mutex_destroy(&a->lock);
	free(a->path);
	free(a);
}

u64 audit_failures(const struct audit *a)
{
	return atomic_load(&a->failures);
}

/* A body as it is, if it is JSON and short; else how long it was. */
static json_t *body_doc(const char *data, size_t len)
{
	json_t *doc = NULL;

	if (!len)
		return json_null();
	if (data && len <= AUDIT_MAX_BODY)
		doc = json_loadb(data, len, JSON_DECODE_ANY, NULL);
	return doc ? doc : json_pack("{s:I}", "bytes", (json_int_t)len);
}

/* Of an answer what tells it from others: a problem's code, or which resource it was about. */
static void add_result(json_t *line, const struct audit_entry *e)
{
	static const char *const keys[] = { "code", "detail", "id", "name", "guest" };
	json_t *doc = e->result_len ? json_loadb(e->result, e->result_len, 0, NULL) : NULL;

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		json_t *v = json_object_get(doc, keys[i]);

		if (json_is_string(v))
			json_object_set(line, keys[i], v);
	}
	json_decref(doc);
}

static json_t *line_doc(const struct audit_entry *e)
{
	json_t *line = json_pack("{s:o, s:o, s:s}", "time", json_time(clock_ns(CLOCK_REALTIME)),
				 "who", json_text(e->who), "role", e->role);

	if (!line)
		return NULL;
	if (e->pid)
		json_object_set_new(line, "pid", json_integer(e->pid));
	if (e->request_id)
		json_object_set_new(line, "request_id", json_text(e->request_id));
	json_object_set_new(line, "operation", json_text(e->operation));
	if (e->path)
		json_object_set_new(line, "path", json_text(e->path));
	json_object_set_new(line, "body", body_doc(e->body, e->body_len));
	json_object_set_new(line, "status", json_integer(e->status));
	json_object_set_new(line, "result",
			    json_string(e->status < 400 ? "done" : "refused or failed"));
	add_result(line, e);
	json_object_set_new(line, "duration_ns", json_integer((json_int_t)e->duration_ns));
	return line;
}

/* Somebody may have moved the file away. */
static void reopen(struct audit *a)
{
	struct stat here, there;
	int fd;

	if (fstat(a->fd, &here) == 0 && stat(a->path, &there) == 0 && here.st_ino == there.st_ino &&
	    here.st_dev == there.st_dev)
		return;
	fd = open_log(a->path);
	if (fd < 0)
		return; /* better there than nowhere */
	close(a->fd);
	a->fd = fd;
	a->torn = ends_within_line(a->path);
}

/* Lock held. */
static bool write_line(struct audit *a, const char *text, size_t len)
{
	struct iovec v[2] = { { (void *)(uintptr_t) "\n", a->torn },
			      { (void *)(uintptr_t)text, len } };
	size_t before = v[0].iov_len;
	ssize_t n = writev(a->fd, v, 2);

	if (n > 0)
		a->torn = (size_t)n > before && (size_t)n < before + len;
	return n >= 0 && (size_t)n == before + len;
}

void audit_add(struct audit *a, const struct audit_entry *e)
{
	json_t *doc = line_doc(e);
	_cleanup_free_ char *text = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
	_cleanup_buf_ struct buf line = { 0 };
	bool written = false;

	json_decref(doc);
	if (text) {
		buf_adds(&line, text);
		buf_adds(&line, "\n");
	}
	if (text && !buf_failed(&line)) {
		pthread_mutex_lock(&a->lock);
		reopen(a);
		written = write_line(a, line.data, line.len);
		pthread_mutex_unlock(&a->lock);
	}
	if (written)
		return;
	atomic_fetch_add(&a->failures, 1);
	log_error("a line of the audit log could not be written: %s by %s, status %d", e->operation,
		  e->who, e->status);
}
