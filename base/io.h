/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing a file until all is done. */
#ifndef BASE_IO_H
#define BASE_IO_H

#include "base/types.h"

/** io_read_at - @len bytes from @off on. Return: 0; -errno; -EIO the file ends before */
must_check int io_read_at(int fd, u64 off, void *data, size_t len);
/** io_write_at - as io_read_at(); -ENOSPC nothing could be written and no reason was told */
must_check int io_write_at(int fd, u64 off, const void *data, size_t len);
/** io_write - the same where the file stands */
must_check int io_write(int fd, const void *data, size_t len);

#endif
