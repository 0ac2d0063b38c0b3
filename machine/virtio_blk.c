// SPDX-License-Identifier: Apache-2.0
/* A disk. See virtio_devices.h. */
#include "machine/virtio_devices.h"

#include <linux/virtio_blk.h>
#include <linux/virtio_ids.h>
#include <stdio.h>
#include <string.h>

#define SEG_MAX (VIRTQ_MAX_IOV - 2) /* header and status take one each */

static u8 read_write(struct virtio_blk *b, const struct virtq_chain *c, u64 sector, bool is_write,
		     u32 *written)
{
	struct iovec v[VIRTQ_MAX_IOV];
	u64 head = is_write ? sizeof(struct virtio_blk_outhdr) : 0;
	u64 len = is_write ? c->out_bytes - head : c->in_bytes - 1;
	u64 off;
	u32 n;

	if (!len || len % DISK_SECTOR || __builtin_mul_overflow(sector, DISK_SECTOR, &off))
		return VIRTIO_BLK_S_IOERR;
	n = virtq_slice(c, !is_write, head, len, v);
	if (!n || !disk_transfer(&b->disk, v, n, off, is_write))
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
	struct virtio_blk *b = d->priv;
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
			status = disk_flush(&b->disk) ? VIRTIO_BLK_S_OK : VIRTIO_BLK_S_IOERR;
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
	struct virtio_blk_config config = { .seg_max = SEG_MAX };
	int rc;

	*b = (struct virtio_blk){ .disk = { .fd = -1, .overlay = -1 } };
	virtio_init(&b->dev, &blk_ops, b, mem, irq);
	rc = disk_open(&b->disk, source, err);
	if (rc)
		return rc;
	config.capacity = b->disk.bytes / DISK_SECTOR;
	snprintf(b->serial, sizeof(b->serial), "hvftrace-%u", index);
	b->dev.features = 1ull << VIRTIO_BLK_F_SEG_MAX | 1ull << VIRTIO_BLK_F_FLUSH |
			  (u64)source->read_only << VIRTIO_BLK_F_RO;
	_Static_assert(sizeof(config) <= VIRTIO_MAX_CONFIG, "it is copied");
	memcpy(b->dev.config, &config, sizeof(config));
	b->dev.config_bytes = sizeof(config);
	return 0;
}

void virtio_blk_deinit(struct virtio_blk *b)
{
	virtio_deinit(&b->dev);
	disk_close(&b->disk);
}
