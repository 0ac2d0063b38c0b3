/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording on disk: the bytes of a recording (rec_format.h) in blocks, each compressed with zstd and
 * with a checksum, and at the end an index. Described for users in hvftrace-recording(5).
 *
 *   file   = "HVFTRECZ" version:u32 zero:u32 block... [index block, trailer]
 *   block  = struct store_block, packed_len bytes: one zstd frame
 *   index  = a block of struct store_index_entry, one a block, dropped ones too
 *            (those side by side are one, with the definitions between them moved before it)
 *   trailer= offset of the index block:u64 "HVFTIDX\n"
 *
 * Definitions, metadata and the end lie in blocks of kind KEEP; records and losses in blocks of kind
 * RECORDS, behind the definitions that they need. Blocks are only ever appended; with a limit the oldest
 * RECORDS become DROPPED: their space is given back to the file system, their head says how many records are
 * gone. What is dropped side by side becomes one block, and definitions between move to its front, so that
 * whole pages go also of a trace that writes little. A file that was cut is good up to the last whole block.
 */
#ifndef TRACERS_REC_STORE_H
#define TRACERS_REC_STORE_H

#include "base/err.h"
#include "base/types.h"
#include "tracers/rec_format.h"

#include <stdio.h>

#define STORE_MAGIC       "HVFTRECZ"
#define STORE_VERSION     1
#define STORE_HEAD_BYTES  16
#define STORE_TRAILER     "HVFTIDX\n"
#define STORE_BLOCK_MAGIC 0x0a4b4c42u /* "BLK\n" */
#define STORE_BLOCK_FULL  (256u << 10) /* plain bytes; a writer begins a new block */
#define STORE_BLOCK_MAX   (STORE_BLOCK_FULL + REC_CHUNK_MAX + 64) /* a reader refuses longer ones */
#define STORE_FLUSH_NS    NSEC_PER_SEC /* what comes in is in the file after this time at the latest */

enum store_kind {
	STORE_KEEP = 'K',
	STORE_RECORDS = 'R',
	STORE_DROPPED = 'D',
	STORE_INDEX = 'I',
};

struct store_block {
	u32 magic;
	u8 kind;
	u8 zero[3];
	u32 packed_len, plain_len;
	u64 first_seq; /* RECORDS: of its first record, or that would follow its first loss */
	u64 time_ns; /* CLOCK_REALTIME, when it was written */
	u64 gone; /* DROPPED: records and losses that it held */
	u32 crc; /* CRC-32 of this, with crc 0, and, but for DROPPED, the packed bytes */
	u32 zero2;
};

struct store_index_entry {
	u64 off, first_seq, time_ns;
};

struct rec_store;

struct rec_store_opts {
	u64 max_bytes; /* of records in the file; 0: any number */
	u64 max_age_ns; /* of records in the file, host time; 0: any */
};

/**
 * rec_store_create - write to @fd, which stays the caller's
 *
 * Limits need a regular file on a file system with holes. Return: 0; -ENOMEM; -EOPNOTSUPP (bad_request);
 * -errno (io). Undo: rec_store_destroy().
 */
must_check int rec_store_create(int fd, const struct rec_store_opts *opts, struct rec_store **ret,
				struct err *err);
void rec_store_destroy(struct rec_store *s);

/** rec_store_add - the next bytes of the recording. Return: 0; -EBADMSG it is none; -errno; sticky */
must_check int rec_store_add(struct rec_store *s, const void *data, size_t len);
/** rec_store_tick - write what has waited for STORE_FLUSH_NS, drop what is too old; every second or so */
must_check int rec_store_tick(struct rec_store *s);
/** rec_store_finish - write the rest, and the index. What is not a whole chunk is left out. */
must_check int rec_store_finish(struct rec_store *s);

/* Reading: a source of the bytes that were stored. Hostile input. */
struct rec_blocks;

/** rec_blocks_open - @file behind its head. Return: NULL: no memory. Undo: rec_blocks_close() */
struct rec_blocks *rec_blocks_open(FILE *file);
void rec_blocks_close(struct rec_blocks *b);
/**
 * rec_blocks_read - @len more bytes
 *
 * Instead of a dropped block comes a chunk that says how many records are lost. Return: how many there are,
 * fewer at the end (also where the file was cut); -EBADMSG (file.format); -EIO; -ENOMEM.
 */
must_check ssize_t rec_blocks_read(struct rec_blocks *b, void *buf, size_t len, struct err *err);

/**
 * rec_blocks_to_last - go on with the last block, by the index
 *
 * Return: 1; 0 there is no index that makes sense, and one is where one was; -EIO; -ENOMEM
 */
must_check int rec_blocks_to_last(struct rec_blocks *b, struct err *err);

#endif
