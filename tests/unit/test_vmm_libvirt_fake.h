/* SPDX-License-Identifier: Apache-2.0 */
/* A libvirt of our own with one domain, "vm", for vmm/libvirt_link.c. */
#ifndef TEST_VMM_LIBVIRT_FAKE_H
#define TEST_VMM_LIBVIRT_FAKE_H

#include "vmm/libvirt_lib.h"

#include <pthread.h>

#define FAKE_UUID "ab3d89b0-4c0e-49e1-a883-7322a1346cbe"

/* The domain, the connection and what they do; @lock is held while the link may be at it. */
struct fake_libvirt {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool refuse; /* new connections */
	bool alive; /* the connection */
	bool hang; /* monitor commands wait while this is set */
	bool hang_open; /* whoever connects waits while this is set */
	bool gone; /* the domain is not known any more */
	unsigned id;
	const char *type;
	const char *answer; /* of a monitor command; NULL: an error */
	int error;
	unsigned n_tries, n_open, n_closed, n_commands, n_dom;
	char command[512]; /* the last one */
	lv_lifecycle_cb lifecycle;
	void *arg; /* the link's that connected last */
	unsigned n_events; /* callbacks that are registered */
	lv_close_cb on_close;
};
extern struct fake_libvirt fake;
extern const struct lv_lib fake_lib;

void fake_lock(void);
void fake_unlock(void);

#endif
