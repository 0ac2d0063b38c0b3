/* SPDX-License-Identifier: Apache-2.0 */
/* Unix sockets that programs of the host come by. */
#ifndef MACHINE_LISTEN_H
#define MACHINE_LISTEN_H

#include "base/err.h"
#include "base/types.h"

/**
 * listen_at - a unix socket, mode 0600, in place of one that nobody listens at any more
 * @option: that names it, for what is said
 *
 * Return: 0; -EADDRINUSE something is at the path; -ENAMETOOLONG; other errors of socket(2), bind(2).
 */
must_check int listen_at(const char *path, const char *option, int *ret, struct err *err);

#endif
