// SPDX-License-Identifier: Apache-2.0
/* See trace_ids.h. The file is one line, the number; a new one takes its place by rename(). */
#include "api/trace_ids.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#define LOG_PREFIX "registry"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME  "last-trace"
#define NEW_NAME   FILE_NAME ".new"
#define NUMBER_MAX (UINT64_MAX / 2)

struct trace_ids {
	pthread_mutex_t lock; /* held while the disk is waited for */
	char *dir;
	bool read;
	u64 last; /* that a trace has */
	u64 saved; /* what the file says: at least @last */
};

static int failed(struct err *err, const char *what, const char *dir)
{
	int r = errno ? -errno : -EIO;

	return err_set(err, r, ERR_JOURNAL, 0, "cannot %s %.100s/" FILE_NAME ": %s", what, dir,
		       strerrordesc_np(-r));
}

/* false: that is no number of ours */
static bool parse(const char *text, u64 *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	return *text >= '1' && *text <= '9' && !errno && *ret <= NUMBER_MAX &&
	       strcmp(end, "\n") == 0;
}

/* Of a file that tells nothing: seconds since 1970 are more than there were traces. */
static u64 above_all(const char *dir)
{
	u64 now = clock_ns(CLOCK_REALTIME) / NSEC_PER_SEC;

	log_warn("%s/" FILE_NAME " is damaged: numbers of traces go on from %llu", dir,
		 (unsigned long long)now);
	return now;
}

static int read_last(struct trace_ids *ids, int dir, struct err *err)
{
	_cleanup_close_ int fd =
		openat(dir, FILE_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	char text[32];
	ssize_t n;

	if (fd < 0 && errno == ENOENT) {
		ids->read = true;
		return 0;
	}
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (n < 0)
		return failed(err, "read", ids->dir);
	text[n] = 0;
	if (!parse(text, &ids->saved))
		ids->saved = above_all(ids->dir);
	ids->last = ids->saved;
	ids->read = true;
	return 0;
}

/* On the disk when it returns 0, the name, too. */
static int save(struct trace_ids *ids, int dir, u64 n, struct err *err)
{
	_cleanup_close_ int fd =
		openat(dir, NEW_NAME, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	char text[32];
	int len = snprintf(text, sizeof(text), "%llu\n", (unsigned long long)n);
	int r;

	if (fd < 0)
		return failed(err, "write", ids->dir);
	r = io_write(fd, text, (size_t)len);
	if (r < 0) {
		errno = -r;
		return failed(err, "write", ids->dir);
	}
	if (fsync(fd) < 0 || renameat(dir, NEW_NAME, dir, FILE_NAME) < 0 || fsync(dir) < 0)
		return failed(err, "write", ids->dir);
	ids->saved = n;
	return 0;
}

static int take(struct trace_ids *ids, u64 *ret, struct err *err)
{
	_cleanup_close_ int dir = -1;
	int r = 0;

	if (!ids->read || ids->last + 1 > ids->saved) {
		dir = open(ids->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (dir < 0)
			return failed(err, "open", ids->dir);
	}
	if (!ids->read)
		r = read_last(ids, dir, err);
	if (r == 0 && ids->last + 1 > ids->saved)
		r = save(ids, dir, ids->last + 1, err);
	if (r == 0)
		*ret = ++ids->last;
	return r;
}

int trace_ids_take(struct trace_ids *ids, u64 *ret, struct err *err)
{
	int r;

	pthread_mutex_lock(&ids->lock);
	r = take(ids, ret, err);
	pthread_mutex_unlock(&ids->lock);
	return r;
}

void trace_ids_give_back(struct trace_ids *ids, u64 n)
{
	pthread_mutex_lock(&ids->lock);
	if (ids->last == n)
		ids->last--;
	pthread_mutex_unlock(&ids->lock);
}

struct trace_ids *trace_ids_create(const char *state_dir)
{
	struct trace_ids *ids = calloc(1, sizeof(*ids));

	if (ids)
		ids->dir = strdup(state_dir);
	if (!ids || !ids->dir) {
		free(ids);
		return NULL;
	}
	pthread_mutex_init(&ids->lock, NULL);
	return ids;
}

void trace_ids_destroy(struct trace_ids *ids)
{
	if (!ids)
		return;
	pthread_mutex_destroy(&ids->lock);
	free(ids->dir);
	free(ids);
}
