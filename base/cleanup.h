/* SPDX-License-Identifier: Apache-2.0 */
/* Scope guards: declare with _cleanup_*_, hand over with no_cleanup_ptr(). */
#ifndef BASE_CLEANUP_H
#define BASE_CLEANUP_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_freep(void *p)
{
	free(*(void **)p);
}

static inline void cleanup_closep(const int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void cleanup_fclosep(FILE **f)
{
	if (*f)
		fclose(*f);
}

#define _cleanup_(fn)    __attribute__((cleanup(fn)))
#define _cleanup_free_   _cleanup_(cleanup_freep)
#define _cleanup_close_  _cleanup_(cleanup_closep)
#define _cleanup_fclose_ _cleanup_(cleanup_fclosep)

/* The value of @p; @p no longer owns it. */
#define no_cleanup_ptr(p)               \
	({                              \
		__auto_type ptr_ = (p); \
		(p) = NULL;             \
		ptr_;                   \
	})

/* The descriptor in @fd; @fd no longer owns it. */
#define no_cleanup_fd(fd)       \
	({                      \
		int fd_ = (fd); \
		(fd) = -1;      \
		fd_;            \
	})

#endif
