// SPDX-License-Identifier: Apache-2.0
/* The undo journal on disk. See journal.h. Must not know guests: only bytes and addresses. */
#include "patcher/journal.h"

#include "base/cleanup.h"
#include "base/cursor.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static const char magic[8] = "HVFJRNL4";

#define MAX_RECORD 4096u

enum record_type {
	RECORD_IDENT = 1,
	RECORD_TEXT,
	RECORD_UNDONE, /* u32 kind */
	RECORD_PENDING,
	RECORD_ALLOC,
	RECORD_FREED,
	RECORD_MAILBOX,
	RECORD_PENDING_FREE,
};

struct record_head {
	u32 len;
	u32 type;
	u32 crc;
};

struct record_alloc {
	u32 what;
	u32 pad;
	u64 addr; /* PENDING: the call's sequence number */
	u64 bytes;
};

struct journal {
	int fd;
	char path[512];
	struct journal_state state;
	size_t cap_text;
	u64 ident_end; /* file length when nothing is outstanding */
	u64 len;
	u8 *buf; /* records added and not yet written */
	size_t n_buf, cap_buf;
};

static u32 record_crc(u32 type, const void *payload, size_t len)
{
	uLong crc = crc32(0, (const Bytef *)&type, sizeof(type));

	return (u32)crc32(crc, payload, (uInt)len);
}

static int state_add_text(struct journal_state *s, size_t *cap, const struct journal_text *t)
{
	struct journal_text *text;

	if (s->n_text == *cap) {
		size_t want = *cap ? *cap * 2 : 64;

		text = realloc(s->text, want * sizeof(*text));
		if (!text)
			return -ENOMEM;
		s->text = text;
		*cap = want;
	}
	s->text[s->n_text++] = *t;
	return 0;
}

static void state_drop(struct journal_state *s, u32 kind)
{
	size_t kept = 0;

	for (size_t i = 0; i < s->n_text; i++) {
		if (s->text[i].kind != kind)
			s->text[kept++] = s->text[i];
	}
	s->n_text = kept;
}

static bool valid_what(u32 what)
{
	return what >= JOURNAL_AGENT_TEXT && what < JOURNAL_WHATS;
}

/* One record's effect on the state; false when the record makes no sense. */
static bool state_apply(struct journal_state *s, size_t *cap, u32 type, const void *payload,
			size_t len)
{
	struct cursor c = cursor_init(payload, len);
	struct journal_text t;
	struct record_alloc a;
	u32 kind;

	switch (type) {
	case RECORD_IDENT:
		if (!cursor_bytes(&c, &s->ident, sizeof(s->ident)))
			return false;
		s->ident.target[sizeof(s->ident.target) - 1] = 0;
		s->ident.build_id[sizeof(s->ident.build_id) - 1] = 0;
		return true;
	case RECORD_TEXT:
		return cursor_bytes(&c, &t, sizeof(t)) && t.len && t.len <= JOURNAL_TEXT_MAX &&
		       t.kind >= JOURNAL_SITE && t.kind <= JOURNAL_INTERLOCK &&
		       !state_add_text(s, cap, &t);
	case RECORD_UNDONE:
		if (!cursor_u32(&c, &kind) || !kind)
			return false;
		state_drop(s, kind);
		return true;
	case RECORD_PENDING:
	case RECORD_PENDING_FREE:
		if (!cursor_bytes(&c, &a, sizeof(a)) || !valid_what(a.what))
			return false;
		s->pending = a.what;
		s->pending_free = type == RECORD_PENDING_FREE;
		s->pending_seq = a.addr;
		s->pending_bytes = a.bytes;
		return true;
	case RECORD_ALLOC:
		if (!cursor_bytes(&c, &a, sizeof(a)) || !valid_what(a.what))
			return false;
		s->alloc[a.what] = a.addr;
		s->alloc_bytes[a.what] = a.bytes;
		s->pending = 0;
		return true;
	case RECORD_FREED:
		if (!cursor_bytes(&c, &a, sizeof(a)) || !valid_what(a.what))
			return false;
		s->alloc[a.what] = 0;
		s->alloc_bytes[a.what] = 0;
		s->pending = 0;
		return true;
	case RECORD_MAILBOX:
		return cursor_u64(&c, &s->mailbox);
	default:
		return false;
	}
}

static int parse(const void *data, size_t len, struct journal_state *s, size_t *cap, size_t *used)
{
	struct cursor c = cursor_init(data, len);
	char m[sizeof(magic)];
	struct record_head h;

	memset(s, 0, sizeof(*s));
	if (!cursor_bytes(&c, m, sizeof(m)) || memcmp(m, magic, sizeof(m)))
		return -EBADMSG;
	for (;;) {
		*used = c.pos;
		if (!cursor_bytes(&c, &h, sizeof(h)) || h.len > MAX_RECORD ||
		    cursor_left(&c) < h.len)
			return 0;
		if (record_crc(h.type, c.data + c.pos, h.len) != h.crc ||
		    !state_apply(s, cap, h.type, c.data + c.pos, h.len))
			return 0;
		if (!cursor_skip(&c, h.len))
			return 0;
	}
}

int journal_parse(const void *data, size_t len, struct journal_state *ret, size_t *used_ret,
		  struct err *err)
{
	size_t cap = 0;
	int rc = parse(data, len, ret, &cap, used_ret);

	if (rc)
		return err_set(err, rc, ERR_JOURNAL, 0, "not a journal of hvftrace");
	return 0;
}

void journal_state_deinit(struct journal_state *s)
{
	free(s->text);
	memset(s, 0, sizeof(*s));
}

static int io_error(const struct journal *j, struct err *err, const char *what)
{
	int no = errno ? errno : EIO;

	return err_set(err, -no, ERR_JOURNAL, 0, "cannot %s the journal %s: %s", what, j->path,
		       strerror(no));
}

static int load(struct journal *j, struct err *err)
{
	_cleanup_free_ u8 *data = NULL;
	struct stat st;
	size_t used = 0;
	ssize_t n;

	if (fstat(j->fd, &st))
		return io_error(j, err, "read");
	if (st.st_size == 0) {
		if (pwrite(j->fd, magic, sizeof(magic), 0) != (ssize_t)sizeof(magic))
			return io_error(j, err, "write");
		j->len = j->ident_end = sizeof(magic);
		return 0;
	}
	data = malloc((size_t)st.st_size);
	if (!data)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for the journal %s",
			       j->path);
	n = pread(j->fd, data, (size_t)st.st_size, 0);
	if (n != st.st_size)
		return io_error(j, err, "read");
	if (parse(data, (size_t)n, &j->state, &j->cap_text, &used))
		return err_set(err, -EBADMSG, ERR_JOURNAL, 0, "%s is not a journal of hvftrace",
			       j->path);
	/* the tail was never flushed, so nothing was done for it */
	if (ftruncate(j->fd, (off_t)used))
		return io_error(j, err, "write");
	j->len = used;
	j->ident_end = sizeof(magic) + sizeof(struct record_head) + sizeof(struct journal_ident);
	return 0;
}

/*
 * Open and lock. The one who had it before may have removed the file between our two steps: then what
 * we hold is no longer in the directory and nobody would find it, so open again. -EWOULDBLOCK: locked.
 */
static int open_locked(struct journal *j)
{
	struct stat held, named;

	for (int tries = 0; tries < 100; tries++) {
		j->fd = open(j->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (j->fd < 0)
			return -errno;
		if (flock(j->fd, LOCK_EX | LOCK_NB))
			return -errno;
		if (!fstat(j->fd, &held) && !stat(j->path, &named) && held.st_ino == named.st_ino &&
		    held.st_dev == named.st_dev)
			return 0;
		close(j->fd);
	}
	j->fd = -1;
	return -EBUSY;
}

int journal_open(const char *state_dir, pid_t pid, u64 start_time, struct journal **ret,
		 struct err *err)
{
	struct journal *j = calloc(1, sizeof(*j));
	int rc;

	if (!j)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a journal");
	snprintf(j->path, sizeof(j->path), "%s/guest-%d-%llu.journal", state_dir, (int)pid,
		 (unsigned long long)start_time);
	if (mkdir(state_dir, 0700) && errno != EEXIST) {
		rc = io_error(j, err, "make the directory of");
		goto fail;
	}
	rc = open_locked(j);
	if (rc && rc != -EWOULDBLOCK) {
		errno = -rc;
		rc = io_error(j, err, "open");
		goto fail;
	}
	if (rc) {
		rc = err_set(err, -EBUSY, ERR_GUEST_ATTACHED, 0,
			     "process %d is attached by another daemon (%s is locked)", (int)pid,
			     j->path);
		goto fail_close;
	}
	rc = load(j, err);
	if (rc)
		goto fail_close;
	*ret = j;
	return 0;
fail_close: /* not ours, or not usable: leave the file as it is */
	close(j->fd);
fail:
	journal_state_deinit(&j->state);
	free(j);
	return rc;
}

static void release(struct journal *j)
{
	close(j->fd);
	journal_state_deinit(&j->state);
	free(j->buf);
	free(j);
}

void journal_discard(struct journal *j)
{
	if (!j)
		return;
	unlink(j->path);
	release(j);
}

void journal_close(struct journal *j)
{
	if (j && journal_outstanding(j)) {
		release(j);
	} else {
		journal_discard(j);
	}
}

const struct journal_state *journal_state(const struct journal *j)
{
	return &j->state;
}

static bool state_outstanding(const struct journal_state *s)
{
	return s->n_text || s->pending || s->mailbox || s->alloc[JOURNAL_AGENT_TEXT] ||
	       s->alloc[JOURNAL_AGENT_DATA] || s->alloc[JOURNAL_LENT];
}

bool journal_outstanding(const struct journal *j)
{
	return state_outstanding(&j->state);
}

static int add(struct journal *j, u32 type, const void *payload, size_t len, struct err *err)
{
	struct record_head h = { (u32)len, type, record_crc(type, payload, len) };
	size_t want = j->n_buf + sizeof(h) + len;

	if (want > j->cap_buf) {
		size_t cap = MAX(want, j->cap_buf * 2);
		u8 *buf = realloc(j->buf, cap);

		if (!buf)
			return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for the journal");
		j->buf = buf;
		j->cap_buf = cap;
	}
	memcpy(j->buf + j->n_buf, &h, sizeof(h));
	memcpy(j->buf + j->n_buf + sizeof(h), payload, len);
	if (!state_apply(&j->state, &j->cap_text, type, payload, len))
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for the journal");
	j->n_buf = want;
	return 0;
}

int journal_flush(struct journal *j, struct err *err)
{
	size_t done = 0;

	while (done < j->n_buf) {
		ssize_t n = pwrite(j->fd, j->buf + done, j->n_buf - done, (off_t)(j->len + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return io_error(j, err, "write");
		done += (size_t)n;
	}
	j->len += done;
	j->n_buf = 0;
	if (fdatasync(j->fd))
		return io_error(j, err, "flush");
	return 0;
}

static int add_flush(struct journal *j, u32 type, const void *payload, size_t len, struct err *err)
{
	int rc = add(j, type, payload, len, err);

	if (!rc)
		rc = journal_flush(j, err);
	/* nothing outstanding: start over, so that the file does not grow with each trace */
	if (!rc && type != RECORD_IDENT && !state_outstanding(&j->state)) {
		if (ftruncate(j->fd, (off_t)j->ident_end))
			return io_error(j, err, "truncate");
		j->len = j->ident_end;
	}
	return rc;
}

int journal_forget(struct journal *j, struct err *err)
{
	journal_state_deinit(&j->state);
	j->cap_text = 0;
	j->n_buf = 0;
	j->len = sizeof(magic);
	if (ftruncate(j->fd, (off_t)j->len))
		return io_error(j, err, "truncate");
	return 0;
}

int journal_set_ident(struct journal *j, const struct journal_ident *id, struct err *err)
{
	int rc;

	if (journal_outstanding(j))
		return err_set(err, -EBUSY, ERR_JOURNAL, 0,
			       "the journal %s still has changes to put back", j->path);
	j->len = sizeof(magic);
	if (ftruncate(j->fd, (off_t)j->len))
		return io_error(j, err, "truncate");
	rc = add_flush(j, RECORD_IDENT, id, sizeof(*id), err);
	j->ident_end = j->len;
	return rc;
}

int journal_add_text(struct journal *j, const struct journal_text *t, struct err *err)
{
	return add(j, RECORD_TEXT, t, sizeof(*t), err);
}

/* A journal in memory, to be written as a whole. */
static int image_of(struct journal *j, struct journal *image, u32 kind,
		    const struct journal_text *t, size_t n, struct err *err)
{
	const struct journal_state *s = &j->state;
	int rc = add(image, RECORD_IDENT, &s->ident, sizeof(s->ident), err);

	for (u32 what = JOURNAL_AGENT_TEXT; !rc && what < JOURNAL_WHATS; what++) {
		struct record_alloc a = { what, 0, s->alloc[what], s->alloc_bytes[what] };

		if (a.addr)
			rc = add(image, RECORD_ALLOC, &a, sizeof(a), err);
	}
	if (!rc && s->pending) {
		struct record_alloc a = { s->pending, 0, s->pending_seq, s->pending_bytes };

		rc = add(image, s->pending_free ? RECORD_PENDING_FREE : RECORD_PENDING, &a,
			 sizeof(a), err);
	}
	if (!rc && s->mailbox)
		rc = add(image, RECORD_MAILBOX, &s->mailbox, sizeof(s->mailbox), err);
	for (size_t i = 0; !rc && i < s->n_text; i++) {
		if (s->text[i].kind != kind)
			rc = journal_add_text(image, &s->text[i], err);
	}
	for (size_t i = 0; !rc && i < n; i++)
		rc = journal_add_text(image, &t[i], err);
	return rc;
}

/* Into a file beside, locked, which then takes the old one's place. */
static int put_in_place(struct journal *image, const char *path, struct err *err)
{
	image->fd = open(image->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (image->fd < 0)
		return io_error(image, err, "open");
	if (flock(image->fd, LOCK_EX | LOCK_NB))
		return io_error(image, err, "lock");
	if (pwrite(image->fd, magic, sizeof(magic), 0) != (ssize_t)sizeof(magic))
		return io_error(image, err, "write");
	image->len = sizeof(magic);
	if (journal_flush(image, err))
		return -EIO;
	return rename(image->path, path) ? io_error(image, err, "rename") : 0;
}

int journal_keep(struct journal *j, enum journal_kind kind, const struct journal_text *t, size_t n,
		 struct err *err)
{
	struct journal image = { .fd = -1 };
	int rc;

	if (j->n_buf)
		return err_set(err, -EBUSY, ERR_JOURNAL, 0, "the journal is being written");
	if ((size_t)snprintf(image.path, sizeof(image.path), "%s" JOURNAL_NEW, j->path) >=
	    sizeof(image.path))
		return err_set(err, -ENAMETOOLONG, ERR_JOURNAL, 0, "too long a name");
	rc = image_of(j, &image, kind, t, n, err);
	if (!rc)
		rc = put_in_place(&image, j->path, err);
	if (rc) {
		if (image.fd >= 0) {
			unlink(image.path);
			close(image.fd);
		}
		journal_state_deinit(&image.state);
		free(image.buf);
		return rc;
	}
	close(j->fd);
	journal_state_deinit(&j->state);
	free(j->buf);
	memcpy(image.path, j->path, sizeof(image.path));
	image.ident_end = j->ident_end;
	*j = image;
	return 0;
}

int journal_undone(struct journal *j, enum journal_kind kind, struct err *err)
{
	u32 k = kind;

	return add_flush(j, RECORD_UNDONE, &k, sizeof(k), err);
}

int journal_pending(struct journal *j, enum journal_what what, u64 bytes, u64 seq, struct err *err)
{
	struct record_alloc a = { .what = what, .addr = seq, .bytes = bytes };

	return add_flush(j, RECORD_PENDING, &a, sizeof(a), err);
}

int journal_pending_free(struct journal *j, enum journal_what what, u64 seq, struct err *err)
{
	struct record_alloc a = { .what = what, .addr = seq };

	return add_flush(j, RECORD_PENDING_FREE, &a, sizeof(a), err);
}

int journal_alloc(struct journal *j, enum journal_what what, u64 addr, u64 bytes, struct err *err)
{
	struct record_alloc a = { .what = what, .addr = addr, .bytes = bytes };

	return add_flush(j, RECORD_ALLOC, &a, sizeof(a), err);
}

int journal_agent_came(struct journal *j, u64 text, u64 text_bytes, u64 data, u64 data_bytes,
		       struct err *err)
{
	const struct record_alloc a = { .what = JOURNAL_AGENT_TEXT,
					.addr = text,
					.bytes = text_bytes };
	const struct record_alloc b = { .what = JOURNAL_AGENT_DATA,
					.addr = data,
					.bytes = data_bytes };
	int rc = add(j, RECORD_ALLOC, &a, sizeof(a), err);

	return rc ? rc : add_flush(j, RECORD_ALLOC, &b, sizeof(b), err);
}

int journal_freed(struct journal *j, enum journal_what what, struct err *err)
{
	struct record_alloc a = { .what = what };

	return add_flush(j, RECORD_FREED, &a, sizeof(a), err);
}

int journal_mailbox(struct journal *j, u64 addr, struct err *err)
{
	return add_flush(j, RECORD_MAILBOX, &addr, sizeof(addr), err);
}
