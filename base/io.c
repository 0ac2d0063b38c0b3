// SPDX-License-Identifier: Apache-2.0
/* See io.h. */
#include "base/io.h"

#include <errno.h>
#include <unistd.h>

int io_read_at(int fd, u64 off, void *data, size_t len)
{
	char *p = data;

	while (len) {
		ssize_t n = pread(fd, p, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		p += n;
		off += (u64)n;
		len -= (size_t)n;
	}
	return 0;
}

static int write_all(int fd, u64 off, const void *data, size_t len, bool seek)
{
	const char *p = data;

	while (len) {
		ssize_t n = seek ? pwrite(fd, p, len, (off_t)off) : write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -ENOSPC;
		p += n;
		off += (u64)n;
		len -= (size_t)n;
	}
	return 0;
}

int io_write_at(int fd, u64 off, const void *data, size_t len)
{
	return write_all(fd, off, data, len, true);
}

int io_write(int fd, const void *data, size_t len)
{
	return write_all(fd, 0, data, len, false);
}
