// SPDX-License-Identifier: Apache-2.0
/* RAM of a guest of ours. See mem.h. */
#include "machine/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int mem_init(struct guest_mem *m, u64 len, struct err *err)
{
	int no;

	*m = (struct guest_mem){ .fd = -1 };
	if (len < MEM_MIN_BYTES || len > MEM_MAX_BYTES || len % PAGE_SIZE)
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0,
			       "a guest has 16 MiB to 4 TiB of memory, in pages, not %llu bytes",
			       (unsigned long long)len);
	m->fd = memfd_create("guest-ram", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (m->fd >= 0 && ftruncate(m->fd, (off_t)len) == 0 &&
	    fcntl(m->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
		void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, m->fd,
			       0);

		if (p != MAP_FAILED) {
			m->base = p;
			m->len = len;
			/* a core dump of the VMM is not to hold the guest; larger pages where there are */
			(void)madvise(p, len, MADV_DONTDUMP);
			(void)madvise(p, len, MADV_HUGEPAGE);
			return 0;
		}
	}
	no = errno;
	mem_deinit(m);
	return err_set(err, -no, ERR_NO_MEMORY, 0, "cannot make %llu MiB of guest memory: %s",
		       (unsigned long long)(len >> 20), strerrordesc_np(no));
}

void mem_deinit(struct guest_mem *m)
{
	if (m->base)
		munmap(m->base, m->len);
	if (m->fd >= 0)
		close(m->fd);
	*m = (struct guest_mem){ .fd = -1 };
}

u64 mem_low_bytes(const struct guest_mem *m)
{
	return MIN(m->len, MEM_HOLE_START);
}

u64 mem_high_bytes(const struct guest_mem *m)
{
	return m->len - mem_low_bytes(m);
}

static bool is_zero(const u8 *page)
{
	return page[0] == 0 && memcmp(page, page + 1, PAGE_SIZE - 1) == 0;
}

/* Runs of pages with content within [@off, @end), which are allocated; @c->run is NULL: only count. */
static void find_runs(const struct guest_mem *m, u64 off, u64 end, struct mem_copy *c)
{
	u64 last = UINT64_MAX; /* the end of the run before */

	for (; off < end; off += PAGE_SIZE) {
		if (is_zero(m->base + off))
			continue;
		if (off != last) {
			if (c->run)
				c->run[c->n_runs] = (struct mem_run){ off, 0 };
			c->n_runs++;
		}
		last = off + PAGE_SIZE;
		c->len += PAGE_SIZE;
		if (c->run)
			c->run[c->n_runs - 1].len += PAGE_SIZE;
	}
}

/* Only what the host has pages for is looked at. */
static void find_all_runs(const struct guest_mem *m, struct mem_copy *c)
{
	off_t at = 0, end;

	c->n_runs = 0;
	c->len = 0;
	while ((at = lseek(m->fd, at, SEEK_DATA)) >= 0) {
		end = lseek(m->fd, at, SEEK_HOLE);
		if (end < 0)
			end = (off_t)m->len;
		find_runs(m, (u64)at & PAGE_MASK, MIN((u64)end, m->len), c);
		at = end;
	}
}

int mem_save(const struct guest_mem *m, struct mem_copy *ret, struct err *err)
{
	u8 *at;

	*ret = (struct mem_copy){ .n_runs = 0 };
	find_all_runs(m, ret);
	ret->run = calloc(MAX(ret->n_runs, 1u), sizeof(*ret->run));
	at = mmap(NULL, MAX(ret->len, PAGE_SIZE), PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!ret->run || at == MAP_FAILED)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0,
			       "no memory for a copy of the guest's start, %llu MiB: --no-reboot "
			       "does without",
			       (unsigned long long)(ret->len >> 20));
	ret->bytes = at;
	find_all_runs(m, ret);
	for (u32 i = 0; i < ret->n_runs; i++) {
		memcpy(at, m->base + ret->run[i].off, ret->run[i].len);
		at += ret->run[i].len;
	}
	return 0;
}

void mem_copy_deinit(struct mem_copy *c)
{
	if (c->bytes)
		munmap(c->bytes, MAX(c->len, PAGE_SIZE));
	free(c->run);
	*c = (struct mem_copy){ .n_runs = 0 };
}

int mem_restore(const struct guest_mem *m, const struct mem_copy *c, struct err *err)
{
	const u8 *at = c->bytes;

	if (madvise(m->base, m->len, MADV_REMOVE) < 0)
		return err_set(err, -errno, ERR_IO, 0, "clearing the guest's memory: %s",
			       strerrordesc_np(errno));
	for (u32 i = 0; i < c->n_runs; i++) {
		memcpy(m->base + c->run[i].off, at, c->run[i].len);
		at += c->run[i].len;
	}
	return 0;
}

void *mem_at(const struct guest_mem *m, gpa_t addr, u64 len)
{
	u64 low = mem_low_bytes(m);
	u64 end;

	if (!len || add_overflows(addr.v, len, &end))
		return NULL;
	if (end <= low)
		return m->base + addr.v;
	if (addr.v >= MEM_HOLE_END && end - MEM_HOLE_END <= mem_high_bytes(m))
		return m->base + low + (addr.v - MEM_HOLE_END);
	return NULL;
}

bool mem_read(const struct guest_mem *m, gpa_t addr, void *buf, u64 len)
{
	const void *p = mem_at(m, addr, len);

	if (!p)
		return false;
	memcpy(buf, p, len);
	return true;
}

bool mem_write(const struct guest_mem *m, gpa_t addr, const void *buf, u64 len)
{
	void *p = mem_at(m, addr, len);

	if (!p)
		return false;
	memcpy(p, buf, len);
	return true;
}
