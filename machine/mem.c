// SPDX-License-Identifier: Apache-2.0
/* RAM of a guest of ours. See mem.h. */
#include "machine/mem.h"

#include <errno.h>
#include <fcntl.h>
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
