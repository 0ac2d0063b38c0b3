// SPDX-License-Identifier: Apache-2.0
/* Streams in a temporary file. See spool.h. A block ends with the number of the stream's next one. */
#include "tracers/formats/spool.h"

#include "base/cleanup.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#define LINK sizeof(u64)
#define LOOK (1u << 20) /* bytes between looks at the room that is left */

struct spool {
	int fd; /* -1: not made yet */
	int failed;
	u32 block;
	u64 n_blocks;
	u64 look_at; /* block */
	u64 spare;
	char *dir;
};

int spool_create(const struct spool_dir *dir, u32 block, struct spool **ret, struct err *err)
{
	struct spool *s = calloc(1, sizeof(*s));
	const char *tmp = getenv("TMPDIR"), *path = dir ? dir->path : NULL;

	if (!path)
		path = tmp && *tmp ? tmp : "/var/tmp";
	if (s)
		s->dir = strdup(path);
	if (!s || !s->dir) {
		free(s);
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for an export");
	}
	s->fd = -1;
	s->block = block;
	s->spare = dir ? dir->spare : 0;
	*ret = s;
	return 0;
}

void spool_destroy(struct spool *s)
{
	if (!s)
		return;
	if (s->fd >= 0)
		close(s->fd);
	free(s->dir);
	free(s);
}

void spool_stream_deinit(struct spool_stream *st)
{
	free(st->block);
	*st = (struct spool_stream){ 0 };
}

static int open_file(struct spool *s)
{
	_cleanup_free_ char *path = NULL;

	s->fd = open(s->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (s->fd >= 0)
		return 0;
	if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)
		return -errno;
	/* a file system that has no O_TMPFILE */
	if (asprintf(&path, "%s/hvftrace-XXXXXX", s->dir) < 0)
		return -ENOMEM;
	s->fd = mkostemp(path, O_CLOEXEC);
	if (s->fd < 0)
		return -errno;
	return unlink(path) ? -errno : 0;
}

/* Others have to write there, too. */
static int check_room(struct spool *s)
{
	struct statvfs fs;

	if (!s->spare || s->n_blocks < s->look_at)
		return 0;
	s->look_at = s->n_blocks + LOOK / s->block;
	if (fstatvfs(s->fd, &fs) < 0)
		return -errno;
	return fs.f_bavail < s->spare / fs.f_frsize ? -ENOSPC : 0;
}

/* The full block of @st goes to its place in the file, and a next one gets its own. */
static int flush_block(struct spool *s, struct spool_stream *st)
{
	u64 next;
	int r = 0;

	if (s->fd < 0)
		r = open_file(s);
	if (r == 0)
		r = check_room(s);
	if (r < 0)
		return r;
	if (!st->first)
		st->first = st->last = ++s->n_blocks;
	next = ++s->n_blocks;
	memcpy(st->block + s->block - LINK, &next, LINK);
	r = io_write_at(s->fd, (st->last - 1) * s->block, st->block, s->block);
	st->last = next;
	st->used = 0;
	return r;
}

int spool_add(struct spool *s, struct spool_stream *st, const void *data, size_t len)
{
	const u8 *p = data;

	while (len && !s->failed) {
		size_t n = MIN(len, s->block - LINK - st->used);

		if (!st->block)
			st->block = malloc(s->block);
		if (!st->block) {
			s->failed = -ENOMEM;
			break;
		}
		memcpy(st->block + st->used, p, n);
		st->used += (u32)n;
		st->bytes += n;
		p += n;
		len -= n;
		if (st->used == s->block - LINK)
			s->failed = flush_block(s, st);
	}
	return s->failed;
}

/* The block after the one that @p is through with. */
static int next_block(struct spool *s, const struct spool_stream *st, struct spool_place *p)
{
	u32 room = (u32)(s->block - LINK);
	int r;

	if (!p->block)
		p->block = malloc(s->block);
	if (!p->block)
		return -ENOMEM;
	p->off = 0;
	p->len = (u32)MIN(p->left, (u64)room);
	if (p->next == st->last || !st->first) { /* still in memory */
		if (p->len)
			memcpy(p->block, st->block, p->len);
		return 0;
	}
	r = io_read_at(s->fd, (p->next - 1) * s->block, p->block, s->block);
	memcpy(&p->next, p->block + room, LINK);
	return r;
}

ssize_t spool_read(struct spool *s, const struct spool_stream *st, struct spool_place *p, void *buf,
		   size_t max)
{
	size_t n;
	int r;

	if (s->failed)
		return s->failed;
	if (!p->begun) {
		p->begun = true;
		p->next = st->first;
		p->left = st->bytes;
	}
	if (!p->left)
		return 0;
	if (p->off == p->len) {
		r = next_block(s, st, p);
		if (r < 0)
			return r;
	}
	n = MIN(max, (size_t)(p->len - p->off));
	memcpy(buf, p->block + p->off, n);
	p->off += (u32)n;
	p->left -= n;
	return (ssize_t)n;
}

void spool_place_deinit(struct spool_place *p)
{
	free(p->block);
	*p = (struct spool_place){ 0 };
}
