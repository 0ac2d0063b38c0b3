// SPDX-License-Identifier: Apache-2.0
/* A guest's console for others to read. See console_ring.h. */
#include "base/console_ring.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MAGIC 0x31676e69726e6f63ull /* "conring1" */

#define LINE_MAX 4096u /* so far a line's end is looked for */
#define SEALS    (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* What is in the memfd. @begun is ahead of @done while bytes are written: those from @begun - size on are then lost. */
struct console_shared {
	u64 magic;
	u64 begun, done; /* bytes so far */
	s32 input; /* -1: none */
	u8 pad[4096 - 3 * sizeof(u64) - sizeof(s32)];
	u8 data[CONSOLE_RING_BYTES];
};

static int map(struct console_ring *r, int fd, int prot)
{
	void *p = mmap(NULL, sizeof(*r->shared), prot, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return -errno;
	(void)madvise(p, sizeof(*r->shared), MADV_DONTDUMP);
	r->shared = p;
	return 0;
}

int console_ring_create(struct console_ring *r, int *fd_ret, struct err *err)
{
	_cleanup_close_ int fd = memfd_create(CONSOLE_RING_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int rc;

	*r = (struct console_ring){ .shared = NULL };
	rc = fd < 0 || ftruncate(fd, (off_t)sizeof(*r->shared)) < 0 ||
			     fcntl(fd, F_ADD_SEALS, SEALS) < 0
		     ? -errno
		     : map(r, fd, PROT_READ | PROT_WRITE);
	if (rc)
		return err_set(err, rc, ERR_NO_MEMORY, 0, "cannot make memory for the console: %s",
			       strerrordesc_np(-rc));
	r->shared->input = -1;
	__atomic_store_n(&r->shared->magic, MAGIC, __ATOMIC_RELEASE);
	*fd_ret = no_cleanup_fd(fd);
	return 0;
}

void console_ring_offer_input(struct console_ring *r, int fd)
{
	__atomic_store_n(&r->shared->input, fd, __ATOMIC_RELEASE);
}

/* To or from the ring, where it ends and begins again. */
static void copy_in(u8 *data, u64 at, const u8 *p, size_t n)
{
	size_t off = at % CONSOLE_RING_BYTES, first = MIN(n, CONSOLE_RING_BYTES - off);

	memcpy(data + off, p, first);
	memcpy(data, p + first, n - first);
}

static void copy_out(u8 *buf, const u8 *data, u64 at, size_t n)
{
	size_t off = at % CONSOLE_RING_BYTES, first = MIN(n, CONSOLE_RING_BYTES - off);

	memcpy(buf, data + off, first);
	memcpy(buf + first, data, n - first);
}

void console_ring_put(struct console_ring *r, const void *p, size_t n)
{
	struct console_shared *s = r->shared;
	const u8 *at = p;
	u64 done;

	if (!s)
		return;
	done = s->done;
	while (n) {
		size_t piece = MIN(n, CONSOLE_RING_BYTES / 2);

		/* who reads meanwhile is to see first what is overwritten, then the new bytes, then that they are there */
		__atomic_store_n(&s->begun, done + piece, __ATOMIC_RELAXED);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		copy_in(s->data, done, at, piece);
		done += piece;
		__atomic_store_n(&s->done, done, __ATOMIC_RELEASE);
		at += piece;
		n -= piece;
	}
}

int console_ring_open(struct console_ring *r, int fd)
{
	int seals =
		fcntl(fd, F_GET_SEALS); /* of memory alone: no file system of another's is asked */
	struct stat st;
	int rc;

	*r = (struct console_ring){ .shared = NULL };
	if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
	    st.st_size != (off_t)sizeof(*r->shared))
		return -EINVAL;
	rc = map(r, fd, PROT_READ);
	if (rc)
		return rc;
	if (__atomic_load_n(&r->shared->magic, __ATOMIC_ACQUIRE) == MAGIC)
		return 0;
	console_ring_deinit(r);
	return -EINVAL;
}

void console_ring_deinit(struct console_ring *r)
{
	if (r->shared)
		munmap(r->shared, sizeof(*r->shared));
	r->shared = NULL;
}

u64 console_ring_end(const struct console_ring *r)
{
	return __atomic_load_n(&r->shared->done, __ATOMIC_ACQUIRE);
}

/* The oldest that is not being overwritten, of what was said up to @end; whatever a writer that lies says. */
static u64 oldest(const struct console_ring *r, u64 end)
{
	u64 begun = MAX(__atomic_load_n(&r->shared->begun, __ATOMIC_ACQUIRE), end);

	return begun > CONSOLE_RING_BYTES ? MIN(begun - CONSOLE_RING_BYTES, end) : 0;
}

u64 console_ring_tail(const struct console_ring *r, u64 bytes)
{
	u64 end = console_ring_end(r), at = end - MIN(end, bytes), look, lost;
	u8 line[LINE_MAX];
	const u8 *lf;
	size_t n;

	at = MAX(at, oldest(r, end));
	if (!at || at == end)
		return at;
	/* with the byte before it, if that is kept: it may be the beginning of a line itself */
	look = at - 1;
	n = console_ring_read(r, &look, line, MIN((u64)LINE_MAX, end - look), &lost);
	if (!n)
		n = console_ring_read(r, &look, line, MIN((u64)LINE_MAX, end - look), &lost);
	lf = n ? memchr(line, '\n', n) : NULL;
	return lf ? look - n + (u64)(lf - line) + 1 : at;
}

size_t console_ring_read(const struct console_ring *r, u64 *at_ret, void *buf, size_t n,
			 u64 *lost_ret)
{
	u64 end = console_ring_end(r), from = oldest(r, end), at = MIN(*at_ret, end);

	*lost_ret = 0;
	if (at >= from) {
		n = (size_t)MIN((u64)n, end - at);
		copy_out(buf, r->shared->data, at, n);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		from = oldest(r, end);
	}
	if (at >= from) {
		*at_ret = at + n;
		return n;
	}
	*lost_ret = from - at;
	*at_ret = from;
	return 0;
}

int console_ring_input(const struct console_ring *r)
{
	return __atomic_load_n(&r->shared->input, __ATOMIC_ACQUIRE);
}
