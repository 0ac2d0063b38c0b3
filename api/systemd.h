/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a service manager and its service tell each other: sockets that are handed over, and that we are
 * ready. Both are protocols of environment variables, sd_listen_fds(3) and sd_notify(3), which systemd
 * keeps stable; without them nothing happens. No library is needed for that.
 */
#ifndef API_SYSTEMD_H
#define API_SYSTEMD_H

#include "api/listen.h"

/**
 * systemd_sockets - listening sockets that the service manager has opened for us
 * @ret:   the sockets; they belong to the caller. Their files are the manager's: path is ""
 * @max:   how many there is room for
 * @n_ret: how many there are; 0 when nobody handed any over
 *
 * To be called once, at the start, by the main thread: the variables are taken away, so that no child
 * takes them for its own. Return: 0; -EINVAL one is no listening stream socket of unix, or TCP not on a
 * loopback address; -E2BIG more than @max.
 */
must_check int systemd_sockets(struct listen_socket *ret, size_t max, size_t *n_ret,
			       struct err *err);

/** systemd_notify - tell the service manager @state, as sd_notify(3) has it; nothing without one. Context: any thread */
void systemd_notify(const char *state);

#endif
