/* SPDX-License-Identifier: Apache-2.0 */
/* The domains of a libvirt connection, for `hvftrace ls`. Must not know how one is traced. */
#ifndef VMM_LIBVIRT_LIST_H
#define VMM_LIBVIRT_LIST_H

#include "base/err.h"
#include "base/types.h"

#define LV_MAX_DOMAINS 4096

struct lv_domain {
	char name[128];
	char uuid[37];
	const char *state; /* libvirt's words: "running", "paused", "shut off" and so on */
	bool active; /* there is a QEMU */
	bool running;
};

/**
 * lv_daemon_listens - does a libvirtd (or virtqemud) of the system listen? The library is not loaded
 *
 * Return: false also when nobody may connect to it but root.
 */
bool lv_daemon_listens(void);

/**
 * lv_list - all domains of @uri, by a connection that may only read
 * @ret: an array of @n_ret to be freed
 *
 * Context: any thread; after @timeout_ns a thread that waits for libvirt is left behind.
 * Return: 0; -ENOTSUP (target.no_libvirt); -ENOTCONN (libvirt.unreachable); -ETIMEDOUT; -ENOMEM.
 */
must_check int lv_list(const char *uri, u64 timeout_ns, struct lv_domain **ret, size_t *n_ret,
		       struct err *err);

#endif
