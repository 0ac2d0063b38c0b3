/* SPDX-License-Identifier: Apache-2.0 */
/* The domains of a libvirt connection, for `hvftrace ls`. Must not know how one is traced. */
#ifndef VMM_LIBVIRT_LIST_H
#define VMM_LIBVIRT_LIST_H

#include "base/err.h"
#include "base/types.h"

#define LV_MAX_DOMAINS 4096
#define LV_SYSTEM_URI  "qemu:///system"

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
 * lv_list - all domains of the system's libvirtd, by a connection that may only read
 * @timeout_ns: since libvirt was asked, which may have been for somebody else: who wants the list while it
 *              is awaited gets the same one
 * @ret:        an array of @n_ret to be freed
 *
 * Context: any thread; a thread waits for libvirt as long as it takes, one at a time.
 * Return: 0; -ENOTSUP (target.no_libvirt); -ENOTCONN (libvirt.unreachable); -ETIMEDOUT (vmm.timeout), at
 * once when it is known not to answer; -ENOMEM.
 */
must_check int lv_list(u64 timeout_ns, struct lv_domain **ret, size_t *n_ret, struct err *err);

#endif
