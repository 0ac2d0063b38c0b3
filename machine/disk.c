// SPDX-License-Identifier: Apache-2.0
/* What a guest's disk is made of. See disk.h. */
#include "machine/disk.h"
#include "machine/output.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* QEMU's bytes: a lock at PERM + n says "I do this", one at UNSHARED + n "nobody else may". */
#define LOCK_PERM     100
#define LOCK_UNSHARED 200
#define PERM_READ     0
#define PERM_WRITE    1

static int lock_byte(int fd, int cmd, short type, off_t byte, bool *taken_ret)
{
	struct flock l = { .l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1 };
	int rc = fcntl(fd, cmd, &l);

	if (taken_ret)
		*taken_ret = rc == 0 && l.l_type != F_UNLCK;
	return rc;
}

/* Take our own bytes first, then look whether somebody's speak against it: of two at once, one is refused. */
static int lock_file(int fd, const char *path, bool writes, struct err *err)
{
	const off_t own[] = { LOCK_PERM + PERM_READ, LOCK_UNSHARED + PERM_WRITE,
			      LOCK_PERM + PERM_WRITE };
	const off_t against[] = { LOCK_UNSHARED + PERM_READ, LOCK_PERM + PERM_WRITE,
				  LOCK_UNSHARED + PERM_WRITE };
	u32 n = writes ? 3 : 2;
	bool taken = false;

	for (u32 i = 0; i < n; i++) {
		if (lock_byte(fd, F_OFD_SETLK, F_RDLCK, own[i], NULL) == 0)
			continue;
		if (errno == EAGAIN || errno == EACCES)
			goto busy;
		return err_set(err, -errno, ERR_IO, 0, "--disk %s cannot be locked: %s", path,
			       strerrordesc_np(errno));
	}
	for (u32 i = 0; i < n && !taken; i++) {
		if (lock_byte(fd, F_OFD_GETLK, F_WRLCK, against[i], &taken) < 0)
			return err_set(err, -errno, ERR_IO, 0, "--disk %s: its locks: %s", path,
				       strerrordesc_np(errno));
	}
	if (!taken)
		return 0;
busy:
	return err_set(err, -EBUSY, ERR_IO, 0, "--disk %s: another guest has it", path);
}

static int open_file(const char *path, bool writes, int *ret, struct err *err)
{
	*ret = open(path, (writes ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	if (*ret < 0)
		return err_set(err, -errno, ERR_IO, 0, "--disk %s: %s", path,
			       strerrordesc_np(errno));
	return lock_file(*ret, path, writes, err);
}

/* One without a name, on a disk rather than in memory. */
static int open_unnamed(int *ret, struct err *err)
{
	const char *given = getenv("TMPDIR");
	const char *dir = given && *given == '/' ? given : "/var/tmp";

	*ret = open(dir, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
	if (*ret < 0)
		return err_set(err, -errno, ERR_IO, 0,
			       "no file in %s for what the guest writes to its disk: %s "
			       "(TMPDIR says where)",
			       dir, strerrordesc_np(errno));
	return 0;
}

static bool write_all(int fd, const void *p, u64 len, u64 off)
{
	const u8 *at = p;

	while (len) {
		struct iovec v = { (void *)(uintptr_t)at, len };
		ssize_t n = pwritev(fd, &v, 1, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		at += n;
		off += (u64)n;
		len -= (u64)n;
	}
	return true;
}

static bool read_all(int fd, void *p, u64 len, u64 off)
{
	u8 *at = p;

	while (len) {
		struct iovec v = { at, len };
		ssize_t n = preadv(fd, &v, 1, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		at += n;
		off += (u64)n;
		len -= (u64)n;
	}
	return true;
}

static int describe_base(const struct disk *d, const char *path, struct overlay_header *ret,
			 struct err *err)
{
	struct stat st;

	if (fstat(d->fd, &st) < 0)
		return err_set(err, -errno, ERR_IO, 0, "--disk %s: %s", path,
			       strerrordesc_np(errno));
	*ret = (struct overlay_header){
		.magic = OVERLAY_MAGIC,
		.base_bytes = d->bytes,
		/* a device node's says nothing of its content */
		.base_mtime_ns = S_ISREG(st.st_mode) ? (u64)st.st_mtim.tv_sec * 1000000000u +
							       (u64)st.st_mtim.tv_nsec
						     : 0,
		.cluster_bytes = DISK_CLUSTER,
	};
	return 0;
}

/* An overlay that is there already must be this base's, and whole. */
static int adopt(struct disk *d, const char *path, const struct overlay_header *want,
		 struct err *err)
{
	struct overlay_header h = { 0 };

	if (!read_all(d->overlay, &h, sizeof(h), 0) || h.magic != OVERLAY_MAGIC ||
	    h.cluster_bytes != DISK_CLUSTER)
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0,
			       "cow=%s is not a file of this program's: choose a new one", path);
	if (h.base_bytes != want->base_bytes || h.base_mtime_ns != want->base_mtime_ns)
		return err_set(err, -ESTALE, ERR_BAD_REQUEST, 0,
			       "cow=%s belongs to another disk, or the disk was changed since: "
			       "choose a new file",
			       path);
	if (!read_all(d->overlay, d->have, d->have_bytes, OVERLAY_HEADER))
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0, "cow=%s is cut short", path);
	return 0;
}

static int write_header(struct disk *d, const struct overlay_header *h, struct err *err)
{
	/* as long as it will ever be, so that it is whole from the start */
	if (ftruncate(d->overlay, (off_t)(d->data_at + d->bytes)) < 0 ||
	    !write_all(d->overlay, h, sizeof(*h), 0))
		return err_set(err, -errno, ERR_IO, 0, "what the guest writes to its disk: %s",
			       strerrordesc_np(errno));
	return 0;
}

/* The name of a new file is to last as what is flushed into it. */
static int sync_name(const char *path, struct err *err)
{
	const char *slash = strrchr(path, '/');
	_cleanup_free_ char *dir =
		slash ? strndup(path, MAX((size_t)(slash - path), (size_t)1)) : strdup(".");
	_cleanup_close_ int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	if (fd < 0 || fsync(fd) < 0)
		return err_set(err, -errno, ERR_IO, 0, "cow=%s: %s", path, strerrordesc_np(errno));
	return 0;
}

static int new_overlay(struct disk *d, const char *path, const struct overlay_header *h,
		       struct err *err)
{
	int rc = write_header(d, h, err);

	return rc ? rc : sync_name(path, err);
}

static int open_overlay(struct disk *d, const struct disk_source *s, struct err *err)
{
	u64 clusters = (d->bytes + DISK_CLUSTER - 1) / DISK_CLUSTER;
	struct overlay_header h = { 0 };
	off_t len = 0;
	int rc;

	rc = describe_base(d, s->path, &h, err);
	if (rc)
		return rc;
	d->have_bytes = ((clusters + 7) / 8 + PAGE_SIZE - 1) & PAGE_MASK;
	d->data_at = (OVERLAY_HEADER + d->have_bytes + OVERLAY_DATA_STEP - 1) / OVERLAY_DATA_STEP *
		     OVERLAY_DATA_STEP;
	d->have = calloc(1, d->have_bytes);
	d->bounce = malloc(DISK_CLUSTER);
	if (!d->have || !d->bounce)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a disk's overlay");
	d->keep = s->overlay != NULL;
	if (!d->keep) {
		rc = open_unnamed(&d->overlay, err);
		return rc ? rc : write_header(d, &h, err);
	}
	d->overlay = open(s->overlay, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (d->overlay < 0)
		return err_set(err, -errno, ERR_IO, 0, "cow=%s: %s", s->overlay,
			       strerrordesc_np(errno));
	rc = lock_file(d->overlay, s->overlay, true, err);
	if (!rc)
		len = lseek(d->overlay, 0, SEEK_END);
	if (rc)
		return rc;
	return len > 0 ? adopt(d, s->overlay, &h, err) : new_overlay(d, s->overlay, &h, err);
}

int disk_open(struct disk *d, const struct disk_source *s, struct err *err)
{
	off_t bytes;
	int rc;

	*d = (struct disk){ .fd = -1, .overlay = -1, .read_only = s->read_only };
	rc = open_file(s->path, !s->read_only && !s->cow, &d->fd, err);
	if (rc)
		return rc;
	bytes = lseek(d->fd, 0, SEEK_END);
	if (bytes < (off_t)DISK_SECTOR)
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0, "--disk %s: no disk: %s", s->path,
			       bytes < 0 ? strerrordesc_np(errno) : "it is empty");
	if ((u64)bytes > DISK_MAX_BYTES)
		return err_set(err, -EFBIG, ERR_BAD_REQUEST, 0, "--disk %s: larger than 64 TiB",
			       s->path);
	d->bytes = (u64)bytes / DISK_SECTOR * DISK_SECTOR;
	return s->cow ? open_overlay(d, s, err) : 0;
}

static bool flush_overlay(struct disk *d)
{
	if (!d->keep)
		return true;
	/* what one did not write is gone, and the next would not say so again */
	if (d->failed || fdatasync(d->overlay) < 0) {
		d->failed = true;
		return false;
	}
	if (!d->dirty)
		return true;
	/* a cluster is there before the bitmap says so */
	if (!write_all(d->overlay, d->have, d->have_bytes, OVERLAY_HEADER) ||
	    fdatasync(d->overlay) < 0) {
		d->failed = true;
		return false;
	}
	d->dirty = false;
	return true;
}

bool disk_flush(struct disk *d)
{
	return d->overlay >= 0 ? flush_overlay(d) : fdatasync(d->fd) == 0;
}

void disk_close(struct disk *d)
{
	if (d->overlay >= 0) {
		if (d->have)
			if (!flush_overlay(d))
				output_say(
					"a disk's cow file is not whole: what the guest wrote last is lost");
		close(d->overlay);
	}
	if (d->fd >= 0)
		close(d->fd);
	free(d->have);
	free(d->bounce);
	*d = (struct disk){ .fd = -1, .overlay = -1 };
}

/* Take @did bytes off the front. Return: pieces that are left. */
static u32 advance(struct iovec **v, u32 n, u64 did)
{
	while (n && did >= (*v)->iov_len) {
		did -= (*v)->iov_len;
		(*v)++;
		n--;
	}
	if (n) {
		(*v)->iov_base = (u8 *)(*v)->iov_base + did;
		(*v)->iov_len -= did;
	}
	return n;
}

/* Exactly the first @len bytes of the pieces. A short read or write goes on where it ended. */
static bool move(int fd, struct iovec **v, u32 *n, u64 len, u64 off, bool is_write)
{
	while (len) {
		u64 sum = 0, cut = 0;
		u32 k = 0;
		ssize_t did;

		while (k < *n && sum < len)
			sum += (*v)[k++].iov_len;
		if (sum > len) {
			cut = sum - len;
			(*v)[k - 1].iov_len -= cut;
		}
		did = is_write ? pwritev(fd, *v, (int)k, (off_t)off)
			       : preadv(fd, *v, (int)k, (off_t)off);
		if (k)
			(*v)[k - 1].iov_len += cut;
		if (did < 0 && errno == EINTR)
			continue;
		if (did <= 0)
			return false;
		off += (u64)did;
		len -= (u64)did;
		*n = advance(v, *n, (u64)did);
	}
	return true;
}

static bool has_cluster(const struct disk *d, u64 i)
{
	return d->have[i / 8] & 1u << i % 8;
}

/* The base's cluster into the overlay. The last one may be shorter. */
static bool copy_up(struct disk *d, u64 i)
{
	u64 at = i * DISK_CLUSTER, len = MIN((u64)DISK_CLUSTER, d->bytes - at);

	return read_all(d->fd, d->bounce, len, at) &&
	       write_all(d->overlay, d->bounce, len, d->data_at + at);
}

static bool write_cow(struct disk *d, struct iovec *v, u32 n, u64 off, u64 len)
{
	while (len) {
		u64 i = off / DISK_CLUSTER, at = i * DISK_CLUSTER;
		u64 end = MIN(at + DISK_CLUSTER, d->bytes), part = MIN(len, end - off);
		bool had = has_cluster(d, i), whole = off == at && part == end - at;

		if (!had && !whole && !copy_up(d, i))
			return false;
		if (!move(d->overlay, &v, &n, part, d->data_at + off, true))
			return false;
		if (!had) {
			d->have[i / 8] |= (u8)(1u << i % 8);
			d->dirty = true;
		}
		off += part;
		len -= part;
	}
	return true;
}

/* Neighbours of the same file are read at once. */
static bool read_cow(struct disk *d, struct iovec *v, u32 n, u64 off, u64 len)
{
	while (len) {
		u64 i = off / DISK_CLUSTER, part;
		bool have = has_cluster(d, i);

		part = MIN(len, (i + 1) * DISK_CLUSTER - off);
		while (part < len && has_cluster(d, ++i) == have)
			part = MIN(len, part + DISK_CLUSTER);
		if (!move(have ? d->overlay : d->fd, &v, &n, part, have ? d->data_at + off : off,
			  false))
			return false;
		off += part;
		len -= part;
	}
	return true;
}

bool disk_transfer(struct disk *d, struct iovec *v, u32 n, u64 off, bool is_write)
{
	u64 len = 0, end;

	for (u32 i = 0; i < n; i++) {
		if (add_overflows(len, v[i].iov_len, &len))
			return false;
	}
	if (!len || add_overflows(off, len, &end) || end > d->bytes || (is_write && d->read_only))
		return false;
	if (d->overlay < 0)
		return move(d->fd, &v, &n, len, off, is_write);
	return is_write ? write_cow(d, v, n, off, len) : read_cow(d, v, n, off, len);
}
