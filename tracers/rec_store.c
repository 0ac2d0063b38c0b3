// SPDX-License-Identifier: Apache-2.0
/* The writer of recordings on disk. See rec_store.h. */
#include "tracers/rec_store.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"
#include "tracers/rec_varint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

#define PAGE_BYTES 4096u /* of a file system, at most: a write within one is all or nothing */

/* A block of records in the file. */
struct live {
	u64 off, first_seq, time_ns;
	u64 lost; /* in the guest: not in its sequence numbers */
	u32 packed_len;
};

/* The last block that was dropped, which takes in what is dropped behind it. */
struct run {
	u64 off, end; /* end 0: none */
	u64 first_seq, gone;
};

struct rec_store {
	int fd;
	int failed;
	struct rec_store_opts opts;
	bool headed; /* the recording's own head was taken */
	struct buf in; /* not a whole chunk yet */
	struct buf keep, records; /* blocks being filled */
	u64 since_ns; /* when the first byte of them came; 0: none */
	u64 first_seq; /* of @records */
	u64 lost; /* of @records */
	u64 gap_count, gap_after; /* the loss before this: seen again in sequence numbers, or not */
	bool gap_flushed; /* it is in the last block of the file, which has it in its count */
	u64 off; /* of the file */
	u64 live_bytes;
	struct live *live;
	size_t n_live, live_cap, first_live;
	struct run run;
	struct buf index;
	u8 task_seen[REC_TASK_SLOTS / 8];
	char *packed;
	ZSTD_CCtx *zstd;
};

/* clang-format off */
_Static_assert(sizeof(struct store_block) == 48, "part of the file format");
/* clang-format on */

static int append(struct rec_store *s, const void *data, size_t len)
{
	int r = io_write(s->fd, data, len);

	if (!r)
		s->off += len;
	return r;
}

/* Can what is dropped be given back? Found out now: at the first time that it is wanted, a trace runs. */
static int check_limits(int fd, struct err *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return err_set(err, -EOPNOTSUPP, ERR_BAD_REQUEST, 0,
			       "only a file can be kept within limits");
	/* behind all that is there: of a file system that can, nothing happens */
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		      (st.st_size + PAGE_BYTES) / PAGE_BYTES * PAGE_BYTES, PAGE_BYTES) < 0)
		return err_set(
			err, -EOPNOTSUPP, ERR_BAD_REQUEST, 0,
			"a recording is kept within limits by holes in its file, which cannot "
			"be made there (%s): take another file system, or no limit",
			strerrordesc_np(errno));
	return 0;
}

int rec_store_create(int fd, const struct rec_store_opts *opts, struct rec_store **ret,
		     struct err *err)
{
	struct rec_store *s = calloc(1, sizeof(*s));
	u32 head[2] = { STORE_VERSION, 0 };
	int r;

	if (s) {
		s->packed = malloc(ZSTD_compressBound(STORE_BLOCK_MAX));
		s->zstd = ZSTD_createCCtx();
	}
	if (!s || !s->packed || !s->zstd) {
		rec_store_destroy(s);
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a recording");
	}
	s->fd = fd;
	s->opts = *opts;
	r = opts->max_bytes || opts->max_age_ns ? check_limits(fd, err) : 0;
	if (r < 0) {
		rec_store_destroy(s);
		return r;
	}
	r = append(s, STORE_MAGIC, 8);
	if (!r)
		r = append(s, head, sizeof(head));
	if (r < 0) {
		rec_store_destroy(s);
		return err_set(err, r, ERR_IO, 0, "cannot write the recording: %s",
			       strerrordesc_np(-r));
	}
	*ret = s;
	return 0;
}

void rec_store_destroy(struct rec_store *s)
{
	if (!s)
		return;
	buf_deinit(&s->in);
	buf_deinit(&s->keep);
	buf_deinit(&s->records);
	buf_deinit(&s->index);
	free(s->live);
	free(s->packed);
	ZSTD_freeCCtx(s->zstd);
	free(s);
}

/* @b as a block at the end of the file. */
static int put_block(struct rec_store *s, enum store_kind kind, struct buf *b, u64 first_seq,
		     struct store_block *head_ret)
{
	struct store_block h = { .magic = STORE_BLOCK_MAGIC,
				 .kind = (u8)kind,
				 .plain_len = (u32)b->len,
				 .first_seq = first_seq,
				 .time_ns = clock_ns(CLOCK_REALTIME) };
	struct store_index_entry entry = { s->off, first_seq, h.time_ns };
	size_t n = ZSTD_compressCCtx(s->zstd, s->packed, ZSTD_compressBound(STORE_BLOCK_MAX),
				     b->data, b->len, 1);
	int r;

	if (ZSTD_isError(n))
		return -ENOMEM;
	h.packed_len = (u32)n;
	h.crc = rec_crc32(rec_crc32(0, &h, sizeof(h)), s->packed, n);
	if (kind != STORE_INDEX)
		buf_add(&s->index, &entry, sizeof(entry));
	/* one write where it can be: a reader of a growing file sees whole blocks mostly */
	r = append(s, &h, sizeof(h));
	if (!r)
		r = append(s, s->packed, n);
	*head_ret = h;
	buf_reset(b);
	return r;
}

static struct store_block dropped_head(const struct run *run, u64 time_ns)
{
	struct store_block h = { .magic = STORE_BLOCK_MAGIC,
				 .kind = STORE_DROPPED,
				 .packed_len = (u32)(run->end - run->off - sizeof(h)),
				 .first_seq = run->first_seq,
				 .time_ns = time_ns,
				 .gone = run->gone };

	h.crc = rec_crc32(0, &h, sizeof(h));
	return h;
}

/* Where in the index the block at @off is. */
static size_t index_at(const struct store_index_entry *e, size_t n, u64 off)
{
	size_t low = 0;

	while (n > 1) {
		size_t half = n / 2;

		if (e[low + half].off <= off)
			low += half;
		n -= half;
	}
	return low;
}

/* The blocks between @was and @l went to where @was began, and the rest is one, @now. */
static void index_join(struct rec_store *s, const struct run *was, const struct live *l,
		       const struct run *now)
{
	struct store_index_entry *e = (struct store_index_entry *)s->index.data;
	size_t n = s->index.len / sizeof(*e), first, last;

	if (buf_failed(&s->index))
		return;
	first = index_at(e, n, was->off);
	last = index_at(e, n, l->off);
	for (size_t i = first; i + 1 < last; i++) {
		e[i] = e[i + 1];
		e[i].off -= was->end - was->off;
	}
	e[last - 1] = (struct store_index_entry){ now->off, now->first_seq, l->time_ns };
	memmove(&e[last], &e[last + 1], (n - last - 1) * sizeof(*e));
	s->index.len -= sizeof(*e);
}

/*
 * @l becomes part of the dropped block before it; else the pieces of pages that small blocks end in are never
 * given back. Definitions between the two, @keep bytes, go to where the dropped one begins, whose bytes are
 * dead; until the last write, of one head, all of the file is as it was. Return: 1; 0 they do not fit; -errno
 */
static int join(struct rec_store *s, const struct live *l, u64 gone)
{
	const struct run was = s->run;
	u64 keep = l->off - was.end;
	struct run now = { was.off + keep, l->off + sizeof(struct store_block) + l->packed_len,
			   was.first_seq, was.gone + gone };
	struct store_block h = dropped_head(&now, l->time_ns);
	int r;

	if (!was.end || was.off % PAGE_BYTES > PAGE_BYTES - sizeof(h) ||
	    now.end - now.off - sizeof(h) > ZSTD_compressBound(STORE_BLOCK_MAX) ||
	    now.off + sizeof(h) > was.end)
		return 0;
	if (keep && io_read_at(s->fd, was.end, s->packed, keep) < 0)
		return 0; /* not open for reading */
	r = keep ? io_write_at(s->fd, was.off + sizeof(h), s->packed + sizeof(h), keep - sizeof(h))
		 : 0;
	if (!r)
		r = io_write_at(s->fd, now.off, &h, sizeof(h));
	if (!r && keep)
		r = io_write_at(s->fd, was.off, s->packed, sizeof(h));
	if (r)
		return r;
	index_join(s, &was, l, &now);
	s->run = now;
	return 1;
}

/* The oldest block of records gives its space back; its head stays and says how many they were. */
static int drop_oldest(struct rec_store *s)
{
	const struct live *l = &s->live[s->first_live], *next = l + 1;
	u64 gone = l->lost, hole = l->off + sizeof(struct store_block);
	struct store_block h;
	int r;

	if (next->first_seq > l->first_seq)
		gone += next->first_seq - l->first_seq;
	if (s->run.end)
		hole = s->run.end / PAGE_BYTES * PAGE_BYTES;
	r = join(s, l, gone);
	if (!r) {
		hole = l->off + sizeof(h);
		s->run = (struct run){ l->off, hole + l->packed_len, l->first_seq, gone };
		h = dropped_head(&s->run, l->time_ns);
		/* the head first: a block without its bytes must not look damaged */
		r = io_write_at(s->fd, l->off, &h, sizeof(h));
	}
	hole = MAX(hole, s->run.off + sizeof(h));
	if (r >= 0 && fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)hole,
				(off_t)(s->run.end - hole)) < 0)
		r = -errno;
	s->live_bytes -= l->packed_len;
	s->first_live++;
	return MIN(r, 0);
}

/* The newest block stays in any case. */
static int keep_limits(struct rec_store *s)
{
	u64 now = clock_ns(CLOCK_REALTIME);
	int r = 0;

	while (!r && s->n_live - s->first_live > 1) {
		const struct live *l = &s->live[s->first_live];
		bool big = s->opts.max_bytes && s->live_bytes > s->opts.max_bytes;
		bool old = s->opts.max_age_ns && l->time_ns + s->opts.max_age_ns < now;

		if (!big && !old)
			break;
		r = drop_oldest(s);
	}
	return r;
}

static int add_live(struct rec_store *s, const struct live *l)
{
	struct live *more;

	if (s->n_live == s->live_cap && s->first_live > s->n_live / 2) {
		s->n_live -= s->first_live;
		memmove(s->live, s->live + s->first_live, s->n_live * sizeof(*s->live));
		s->first_live = 0;
	}
	if (s->n_live == s->live_cap) {
		size_t cap = s->live_cap ? s->live_cap * 2 : 64;

		more = reallocarray(s->live, cap, sizeof(*more));
		if (!more)
			return -ENOMEM;
		s->live = more;
		s->live_cap = cap;
	}
	s->live[s->n_live++] = *l;
	s->live_bytes += l->packed_len;
	return 0;
}

static int flush_blocks(struct rec_store *s)
{
	bool limited = s->opts.max_bytes || s->opts.max_age_ns;
	struct store_block h = { 0 };
	struct live l;
	int r = 0;

	s->since_ns = 0;
	if (s->keep.len)
		r = put_block(s, STORE_KEEP, &s->keep, 0, &h);
	if (r || !s->records.len)
		return r;
	l = (struct live){ .off = s->off,
			   .first_seq = s->first_seq,
			   .lost = s->lost + s->gap_count };
	s->gap_flushed = s->gap_count > 0;
	r = put_block(s, STORE_RECORDS, &s->records, s->first_seq, &h);
	s->first_seq = s->lost = 0;
	l.time_ns = h.time_ns;
	l.packed_len = h.packed_len;
	if (!r && limited)
		r = add_live(s, &l);
	return r || !limited ? r : keep_limits(s);
}

/* Would the definition of a task give its slot another meaning, to records that were before it? */
static bool redefines(struct rec_store *s, const u8 *payload, u32 len)
{
	struct cursor c = cursor_init(payload, len);
	bool again = false;
	u64 slot, skip;
	u8 n;

	while (get_varint_max(&c, REC_TASK_SLOTS - 1, &slot) && get_varint(&c, &skip) &&
	       get_varint(&c, &skip) && cursor_u8(&c, &n) && cursor_skip(&c, n)) {
		again |= s->task_seen[slot / 8] >> slot % 8 & 1;
		s->task_seen[slot / 8] |= (u8)(1 << slot % 8);
	}
	return again;
}

/* The loss before this: one that sequence numbers show as well does not count twice. */
static void settle_gap(struct rec_store *s, u64 next_seq)
{
	bool seen = next_seq == s->gap_after + s->gap_count + 1;

	if (s->gap_count && !seen && !s->gap_flushed)
		s->lost += s->gap_count;
	else if (s->gap_count && seen && s->gap_flushed && s->n_live > s->first_live)
		s->live[s->n_live - 1].lost -= s->gap_count;
	s->gap_count = 0;
	s->gap_flushed = false;
}

static void count(struct rec_store *s, u8 type, const u8 *payload, u32 len)
{
	struct cursor c = cursor_init(payload, len);
	u64 seq;

	if (type == REC_CHUNK_LOST) {
		settle_gap(s, 0);
		if (!cursor_u64(&c, &s->gap_count) || !cursor_u64(&c, &s->gap_after))
			s->gap_count = 0;
		if (!s->first_seq)
			s->first_seq = s->gap_after + 1;
		return;
	}
	if (!get_varint(&c, &seq))
		return;
	settle_gap(s, seq);
	if (!s->first_seq)
		s->first_seq = seq;
}

static int take_chunk(struct rec_store *s, const u8 *chunk, u32 len)
{
	u8 type = chunk[0];
	u32 whole = REC_CHUNK_HEAD + len + REC_CHUNK_TAIL;
	bool records = type == REC_CHUNK_RECORDS || type == REC_CHUNK_LOST;
	struct buf *to = records ? &s->records : &s->keep;
	int r = 0;

	/* what comes after the records in memory must come after them in the file, too */
	if (s->records.len &&
	    (type == REC_CHUNK_END ||
	     (type == REC_CHUNK_TASK && redefines(s, chunk + REC_CHUNK_HEAD, len))))
		r = flush_blocks(s);
	else if (type == REC_CHUNK_TASK)
		(void)redefines(s, chunk + REC_CHUNK_HEAD, len);
	if (r)
		return r;
	if (records)
		count(s, type, chunk + REC_CHUNK_HEAD, len);
	buf_add(to, chunk, whole);
	if (!s->since_ns)
		s->since_ns = clock_ns(CLOCK_MONOTONIC);
	if (s->keep.len >= STORE_BLOCK_FULL || s->records.len >= STORE_BLOCK_FULL)
		r = flush_blocks(s);
	return buf_failed(to) ? -ENOMEM : r;
}

/* Whole chunks out of @p. Return: how many bytes they are; -errno */
static ssize_t take_chunks(struct rec_store *s, const u8 *p, size_t len)
{
	size_t at = 0;
	u32 n;
	int r;

	if (!s->headed && len >= REC_HEAD_BYTES) {
		if (memcmp(p, REC_MAGIC, REC_MAGIC_BYTES) != 0)
			return -EBADMSG;
		buf_add(&s->keep, p, REC_HEAD_BYTES);
		s->headed = true;
		at = REC_HEAD_BYTES;
	}
	while (s->headed && len - at >= REC_CHUNK_HEAD) {
		memcpy(&n, p + at + 1, sizeof(n));
		if (n > REC_CHUNK_MAX)
			return -EBADMSG;
		if (len - at < REC_CHUNK_HEAD + (size_t)n + REC_CHUNK_TAIL)
			break;
		r = take_chunk(s, p + at, n);
		if (r)
			return r;
		at += REC_CHUNK_HEAD + n + REC_CHUNK_TAIL;
	}
	return (ssize_t)at;
}

int rec_store_add(struct rec_store *s, const void *data, size_t len)
{
	ssize_t n;

	if (s->failed)
		return s->failed;
	buf_add(&s->in, data, len);
	n = buf_failed(&s->in) ? -ENOMEM : take_chunks(s, (u8 *)s->in.data, s->in.len);
	if (n < 0)
		return s->failed = (int)n;
	s->in.len -= (size_t)n;
	memmove(s->in.data, s->in.data + n, s->in.len);
	return 0;
}

int rec_store_tick(struct rec_store *s)
{
	if (s->failed)
		return s->failed;
	if (s->since_ns && clock_ns(CLOCK_MONOTONIC) - s->since_ns >= STORE_FLUSH_NS)
		s->failed = flush_blocks(s);
	if (!s->failed && s->opts.max_age_ns)
		s->failed = keep_limits(s);
	return s->failed;
}

int rec_store_finish(struct rec_store *s)
{
	struct store_block h;
	u64 at;

	if (!s->failed)
		s->failed = flush_blocks(s);
	if (s->failed || buf_failed(&s->index) || s->index.len > STORE_BLOCK_MAX)
		return s->failed; /* a file without an index is read just as well */
	at = s->off;
	s->failed = put_block(s, STORE_INDEX, &s->index, 0, &h);
	if (!s->failed)
		s->failed = append(s, &at, sizeof(at));
	if (!s->failed)
		s->failed = append(s, STORE_TRAILER, 8);
	return s->failed;
}
