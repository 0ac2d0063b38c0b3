// SPDX-License-Identifier: Apache-2.0
/* A disk. See virtio_devices.h. */
#include "machine/virtio_devices.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_ids.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECTOR  512
#define SEG_MAX (VIRTQ_MAX_IOV - 2) /* header and status take one each */

/* All of the pieces at @off of the file. A short read or write goes on where it ended. */
static bool transfer(const struct virtio_blk *b, struct iovec *v, u32 n, u64 off, bool is_write)
{
	while (n) {
		ssize_t did = is_write ? pwritev(b->fd, v, (int)n, (off_t)off)
				       : preadv(b->fd, v, (int)n, (off_t)off);

		if (did < 0 && errno == EINTR)
			continue;
		if (did <= 0)
			return false;
		off += (u64)did;
		while (n && (size_t)did >= v->iov_len) {
			did -= (ssize_t)v->iov_len;
			v++;
			n--;
		}
		if (n) {
			v->iov_base = (u8 *)v->iov_base + did;
			v->iov_len -= (size_t)did;
		}
	}
	return true;
}

static u8 read_write(const struct virtio_blk *b, const struct virtq_chain *c, u64 sector,
		     bool is_write, u32 *written)
{
	struct iovec v[VIRTQ_MAX_IOV];
	u64 head = is_write ? sizeof(struct virtio_blk_outhdr) : 0;
	u64 len = is_write ? c->out_bytes - head : c->in_bytes - 1;
	u64 off, end;
	u32 n;

	if (!len || len % SECTOR || __builtin_mul_overflow(sector, SECTOR, &off) ||
	    add_overflows(off, len, &end) || end > b->bytes || (is_write && b->read_only))
		return VIRTIO_BLK_S_IOERR;
	n = virtq_slice(c, !is_write, head, len, v);
	if (!n || !transfer(b, v, n, off, is_write))
		return VIRTIO_BLK_S_IOERR;
	if (!is_write)
		*written = (u32)len;
	return VIRTIO_BLK_S_OK;
}

static u8 get_id(const struct virtio_blk *b, const struct virtq_chain *c, u32 *written)
{
	u64 len = MIN(c->in_bytes - 1, sizeof(b->serial));

	if (!virtq_write(c, 0, b->serial, len))
		return VIRTIO_BLK_S_IOERR;
	*written = (u32)len;
	return VIRTIO_BLK_S_OK;
}

/* A header to read, data either way, and a status byte as the last to write. */
static u32 handle(struct virtio_dev *d, u32 queue, const struct virtq_chain *c)
{
	const struct virtio_blk *b = d->priv;
	struct virtio_blk_outhdr h;
	u32 written = 0;
	u8 status;

	(void)queue;
	if (!c->in_bytes)
		return 0; /* not even room for a status */
	if (!virtq_read(c, 0, &h, sizeof(h))) {
		status = VIRTIO_BLK_S_IOERR;
	} else {
		switch (h.type) {
		case VIRTIO_BLK_T_IN:
			status = read_write(b, c, h.sector, false, &written);
			break;
		case VIRTIO_BLK_T_OUT:
			status = read_write(b, c, h.sector, true, &written);
			break;
		case VIRTIO_BLK_T_FLUSH:
			status = fdatasync(b->fd) < 0 ? VIRTIO_BLK_S_IOERR : VIRTIO_BLK_S_OK;
			break;
		case VIRTIO_BLK_T_GET_ID:
			status = get_id(b, c, &written);
			break;
		default:
			status = VIRTIO_BLK_S_UNSUPP;
			break;
		}
	}
	return virtq_write(c, c->in_bytes - 1, &status, 1) ? written + 1 : 0;
}

static const struct virtio_ops blk_ops = {
	.name = "disk",
	.id = VIRTIO_ID_BLOCK,
	.n_queues = 1,
	.handle = handle,
};

int virtio_blk_init(struct virtio_blk *b, const struct disk_source *source, u32 index,
		    const struct guest_mem *mem, struct irq_line irq, struct err *err)
{
	const char *path = source->path;
	bool read_only = source->read_only;
	struct virtio_blk_config config = { .seg_max = SEG_MAX };
	off_t bytes;

	*b = (struct virtio_blk){ .fd = -1, .read_only = read_only };
	virtio_init(&b->dev, &blk_ops, b, mem, irq);
	b->fd = open(path, (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
	if (b->fd < 0)
		return err_set(err, -errno, ERR_IO, 0, "--disk %s: %s", path,
			       strerrordesc_np(errno));
	if (flock(b->fd, (read_only ? LOCK_SH : LOCK_EX) | LOCK_NB) < 0)
		return err_set(err, -EBUSY, ERR_IO, 0, "--disk %s: another guest has it", path);
	bytes = lseek(b->fd, 0, SEEK_END);
	if (bytes < SECTOR)
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0, "--disk %s: no disk: %s", path,
			       bytes < 0 ? strerrordesc_np(errno) : "it is empty");
	b->bytes = (u64)bytes / SECTOR * SECTOR;
	config.capacity = b->bytes / SECTOR;
	snprintf(b->serial, sizeof(b->serial), "hvftrace-%u", index);
	b->dev.features = 1ull << VIRTIO_BLK_F_SEG_MAX | 1ull << VIRTIO_BLK_F_FLUSH |
			  (u64)read_only << VIRTIO_BLK_F_RO;
	_Static_assert(sizeof(config) <= VIRTIO_MAX_CONFIG, "it is copied");
	memcpy(b->dev.config, &config, sizeof(config));
	b->dev.config_bytes = sizeof(config);
	return 0;
}

void virtio_blk_deinit(struct virtio_blk *b)
{
	virtio_deinit(&b->dev);
	if (b->fd >= 0)
		close(b->fd);
	b->fd = -1;
}
