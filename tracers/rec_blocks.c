// SPDX-License-Identifier: Apache-2.0
/* Reading recordings on disk: blocks back into the bytes that were stored. Hostile input. See rec_store.h. */
#include "tracers/rec_store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

struct rec_blocks {
	FILE *file; /* the caller's */
	u64 off; /* of the block under way */
	bool ended;
	ZSTD_DCtx *zstd;
	u8 *packed, *plain;
	size_t packed_cap, plain_cap;
	size_t at, len; /* in @plain */
};

struct rec_blocks *rec_blocks_open(FILE *file)
{
	struct rec_blocks *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->file = file;
	b->off = STORE_HEAD_BYTES;
	b->zstd = ZSTD_createDCtx();
	if (b->zstd)
		return b;
	free(b);
	return NULL;
}

void rec_blocks_close(struct rec_blocks *b)
{
	if (!b)
		return;
	ZSTD_freeDCtx(b->zstd);
	free(b->packed);
	free(b->plain);
	free(b);
}

static must_check int bad(const struct rec_blocks *b, struct err *err, const char *what)
{
	return err_set(err, -EBADMSG, ERR_FILE_FORMAT, 0, "recording damaged at byte %llu: %s",
		       (unsigned long long)b->off, what);
}

static bool room(u8 **p, size_t *cap, size_t len)
{
	u8 *more;

	if (len <= *cap)
		return true;
	more = realloc(*p, len);
	if (!more)
		return false;
	*p = more;
	*cap = len;
	return true;
}

/* Return: 1 all of it; 0 the file ends; -EIO */
static int get(struct rec_blocks *b, void *buf, size_t len, struct err *err)
{
	if (fread(buf, 1, len, b->file) == len)
		return 1;
	if (ferror(b->file))
		return err_set(err, -EIO, ERR_IO, 0, "cannot read the recording");
	return 0;
}

/* A chunk of lost records in place of a block that was dropped. */
static int put_lost(struct rec_blocks *b, const struct store_block *h, struct err *err)
{
	u64 payload[2] = { h->gone, h->first_seq ? h->first_seq - 1 : 0 };
	u8 type = REC_CHUNK_LOST;
	u32 len = sizeof(payload), crc = rec_crc32(rec_crc32(0, &type, 1), payload, len);
	u8 *p;

	if (!room(&b->plain, &b->plain_cap, REC_CHUNK_HEAD + len + REC_CHUNK_TAIL))
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a block");
	p = b->plain;
	p[0] = type;
	memcpy(p + 1, &len, sizeof(len));
	memcpy(p + REC_CHUNK_HEAD, payload, len);
	memcpy(p + REC_CHUNK_HEAD + len, &crc, sizeof(crc));
	b->at = 0;
	b->len = h->gone ? REC_CHUNK_HEAD + len + REC_CHUNK_TAIL : 0;
	return 1;
}

/* Its bytes, or a hole where they were: not read, as @len is only claimed. */
static int skip(struct rec_blocks *b, size_t len, struct err *err)
{
	u8 buf[4096];

	while (len) {
		size_t n = MIN(len, sizeof(buf));
		int r = get(b, buf, n, err);

		if (r <= 0)
			return r;
		len -= n;
	}
	return 1;
}

static int unpack(struct rec_blocks *b, const struct store_block *h, u32 crc, struct err *err)
{
	size_t n;
	int r;

	if (!room(&b->packed, &b->packed_cap, h->packed_len) ||
	    !room(&b->plain, &b->plain_cap, h->plain_len))
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a block");
	r = get(b, b->packed, h->packed_len, err);
	if (r <= 0)
		return r;
	if (rec_crc32(crc, b->packed, h->packed_len) != h->crc)
		return bad(b, err, "a block's checksum is wrong");
	n = ZSTD_decompressDCtx(b->zstd, b->plain, h->plain_len, b->packed, h->packed_len);
	if (ZSTD_isError(n) || n != h->plain_len)
		return bad(b, err, "a block does not decompress");
	b->at = 0;
	b->len = n;
	return 1;
}

/* Return: 1 there are bytes, or none of this block; 0 that was all; -errno */
static int next_block(struct rec_blocks *b, struct err *err)
{
	struct store_block h, clear;
	u32 crc;
	int r = get(b, &h, sizeof(h), err);

	if (r <= 0)
		return r;
	if (h.magic != STORE_BLOCK_MAGIC || h.plain_len > STORE_BLOCK_MAX ||
	    h.packed_len > ZSTD_compressBound(STORE_BLOCK_MAX))
		return bad(b, err, "no block begins here");
	clear = h;
	clear.crc = 0;
	crc = rec_crc32(0, &clear, sizeof(clear));
	if (h.kind == STORE_KEEP || h.kind == STORE_RECORDS) {
		r = unpack(b, &h, crc, err);
	} else if (h.kind == STORE_DROPPED && crc == h.crc) {
		r = skip(b, h.packed_len, err);
		if (r > 0)
			r = put_lost(b, &h, err);
	} else if (h.kind == STORE_INDEX) {
		return 0;
	} else {
		return bad(b, err, "a block of no known kind");
	}
	b->off += sizeof(h) + h.packed_len;
	return r;
}

ssize_t rec_blocks_read(struct rec_blocks *b, void *buf, size_t len, struct err *err)
{
	u8 *p = buf;
	size_t got = 0;
	int r;

	while (got < len && !b->ended) {
		size_t n = MIN(len - got, b->len - b->at);

		if (n)
			memcpy(p + got, b->plain + b->at, n);
		b->at += n;
		got += n;
		if (n || got == len)
			continue;
		r = next_block(b, err);
		if (r < 0)
			return r;
		b->ended = !r;
	}
	return (ssize_t)got;
}

/* The index block at @off; its last entry says where the last block is. */
static int last_of_index(struct rec_blocks *b, u64 off, u64 *last_ret, struct err *err)
{
	struct store_index_entry last;
	struct store_block h, clear;
	int r;

	if (off > INT64_MAX || fseeko(b->file, (off_t)off, SEEK_SET))
		return 0;
	r = get(b, &h, sizeof(h), err);
	if (r <= 0)
		return r;
	if (h.magic != STORE_BLOCK_MAGIC || h.kind != STORE_INDEX || !h.plain_len ||
	    h.plain_len > STORE_BLOCK_MAX || h.plain_len % sizeof(last) ||
	    h.packed_len > ZSTD_compressBound(STORE_BLOCK_MAX))
		return 0;
	clear = h;
	clear.crc = 0;
	r = unpack(b, &h, rec_crc32(0, &clear, sizeof(clear)), err);
	if (r <= 0)
		return r == -EBADMSG ? 0 : r;
	memcpy(&last, b->plain + b->len - sizeof(last), sizeof(last));
	*last_ret = last.off;
	return last.off <= INT64_MAX && last.off < off;
}

int rec_blocks_to_last(struct rec_blocks *b, struct err *err)
{
	struct rec_blocks *index =
		rec_blocks_open(b->file); /* so that @b stays as it is if there is none */
	off_t was = ftello(b->file);
	u64 trailer[2], last = 0;
	int r = 0;

	if (!index)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a block");
	if (was >= 0 && !fseeko(b->file, -(off_t)sizeof(trailer), SEEK_END))
		r = get(b, trailer, sizeof(trailer), err);
	if (r > 0)
		r = memcmp(&trailer[1], STORE_TRAILER, 8)
			    ? 0
			    : last_of_index(index, trailer[0], &last, err);
	rec_blocks_close(index);
	if (r >= 0 && was >= 0 && fseeko(b->file, r ? (off_t)last : was, SEEK_SET))
		r = err_set(err, -EIO, ERR_IO, 0, "cannot read the recording");
	if (r <= 0)
		return r;
	b->at = b->len = 0;
	b->off = last;
	return 1;
}
