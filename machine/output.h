/* SPDX-License-Identifier: Apache-2.0 */
/* What a guest's consoles send, on its way into a file, a pipe or a terminal. */
#ifndef MACHINE_OUTPUT_H
#define MACHINE_OUTPUT_H

#include "base/types.h"

#define OUTPUT_FILE_MAX (64ull << 20) /* of one run, into a regular file */

/**
 * output_limit - let no more than @bytes of all consoles out from now on; the rest is lost
 *
 * For a regular file, which the guest could fill the host's disk or memory with. Context: before vCPUs run.
 */
void output_limit(u64 bytes);

/**
 * output_write - send @n bytes at @p to @fd; -1: nowhere
 *
 * Who does not read is waited for. What cannot be written is lost, as on a wire without anybody at its end.
 * Context: any thread.
 */
void output_write(int fd, const void *p, size_t n);

#endif
