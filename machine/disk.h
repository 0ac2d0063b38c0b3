/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a guest's disk is made of: a raw file or block device, alone or below an overlay that takes what
 * the guest writes. Knows nothing of virtio.
 *
 * An overlay is a sparse file: a page of header (struct overlay_header), a bitmap of the clusters that it
 * has, a bit each, whole pages, then the clusters, each at its place. What it does not have is the base's.
 */
#ifndef MACHINE_DISK_H
#define MACHINE_DISK_H

#include "base/err.h"
#include "base/types.h"

#include <sys/uio.h>

#define DISK_SECTOR       512u
#define DISK_CLUSTER      (64u << 10)
#define DISK_MAX_BYTES    (64ull << 40)
#define OVERLAY_MAGIC     0x31776f6366766831ull /* "1hvfcow1" */
#define OVERLAY_HEADER    4096u
#define OVERLAY_DATA_STEP (1ull << 20) /* the clusters begin at a multiple of it */

/* What a disk is made of. */
struct disk_source {
	const char *path; /* a raw file or block device; with an overlay it is only read */
	bool read_only; /* for the guest */
	bool cow; /* writes go to an overlay */
	const char *overlay; /* file that keeps them; NULL: they are forgotten */
};

/* All little endian; the bitmap that follows is written at each flush, after the clusters. */
struct overlay_header {
	u64 magic, base_bytes, base_mtime_ns, cluster_bytes;
};

struct disk {
	int fd; /* -1: none */
	u64 bytes; /* whole sectors */
	bool read_only;
	int overlay; /* -1: none */
	u64 data_at; /* in the overlay */
	u8 *have; /* bitmap: clusters in the overlay */
	u64 have_bytes;
	bool failed; /* something was not written */
	bool keep, dirty; /* the bitmap is to be written, and was not since it changed */
	u8 *bounce; /* a cluster */
};

/**
 * disk_open - open and lock all files of a disk
 *
 * Locks are those of QEMU: OFD read locks on single bytes, so that neither of the two writes to what the
 * other has. Readers, overlays' bases among them, may share a file with readers only.
 * Source of the bytes: QEMU docs/system/images.rst (image locking), block/file-posix.c.
 *
 * Return: 0; -EBUSY another process has the file; -EINVAL no sector of data, or the overlay is not one;
 * -ESTALE the base was changed since the overlay was made; -EFBIG; errors of open(2). disk_close() is fine
 * after a failure.
 */
must_check int disk_open(struct disk *d, const struct disk_source *source, struct err *err);

/** disk_close - write what an overlay that is kept still needs, and close all */
void disk_close(struct disk *d);

/**
 * disk_transfer - read or write @n pieces at @off; @v is used up
 *
 * Context: one thread at a time. Return: false on an error of the host's, or outside of the disk.
 */
must_check bool disk_transfer(struct disk *d, struct iovec *v, u32 n, u64 off, bool is_write);

/** disk_flush - what was written so far is there after a crash of the host */
must_check bool disk_flush(struct disk *d);

#endif
