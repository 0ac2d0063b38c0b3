// SPDX-License-Identifier: Apache-2.0
/* Memory above a guest's RAM. See spare.h. */
#include "machine/spare.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int spare_init(struct guest_spare *s, u64 ram_end, struct err *err)
{
	char name[48];
	int no;

	*s = (struct guest_spare){ .fd = -1,
				   .gpa = (ram_end + SPARE_ALIGN - 1) & ~(SPARE_ALIGN - 1) };
	snprintf(name, sizeof(name), "hvftrace-spare@%llx", (unsigned long long)s->gpa);
	s->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (s->fd >= 0 && ftruncate(s->fd, (off_t)SPARE_BYTES) == 0 &&
	    fcntl(s->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
		return 0;
	no = errno;
	spare_deinit(s);
	return err_set(err, -no, ERR_NO_MEMORY, 0, "cannot make memory above the guest's: %s",
		       strerrordesc_np(no));
}

int spare_map(struct guest_spare *s, struct err *err)
{
	void *p;

	p = mmap(NULL, SPARE_BYTES, PROT_READ, MAP_SHARED | MAP_NORESERVE, s->fd, 0);
	if (p == MAP_FAILED)
		return err_set(err, -errno, ERR_NO_MEMORY, s->gpa,
			       "cannot map memory above the guest's: %s", strerrordesc_np(errno));
	s->base = p;
	(void)madvise(p, SPARE_BYTES, MADV_DONTDUMP);
	return 0;
}

int spare_show(struct guest_spare *s, struct err *err)
{
	if (mprotect(s->base, SPARE_BYTES, PROT_READ | PROT_WRITE) < 0)
		return err_set(err, -errno, ERR_NO_MEMORY, s->gpa,
			       "cannot lend memory above the guest's: %s", strerrordesc_np(errno));
	return 0;
}

void spare_unmap(struct guest_spare *s)
{
	if (!s->base)
		return;
	(void)madvise(s->base, SPARE_BYTES, MADV_REMOVE);
	munmap(s->base, SPARE_BYTES);
	s->base = NULL;
}

int spare_clear(struct guest_spare *s, struct err *err)
{
	if (s->base && madvise(s->base, SPARE_BYTES, MADV_REMOVE) < 0)
		return err_set(err, -errno, ERR_IO, s->gpa, "cannot clear the spare memory: %s",
			       strerror(errno));
	return 0;
}

void spare_deinit(struct guest_spare *s)
{
	if (s->base)
		munmap(s->base, SPARE_BYTES);
	if (s->fd >= 0)
		close(s->fd);
	*s = (struct guest_spare){ .fd = -1 };
}
