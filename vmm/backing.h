/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What we hold of a shared backend of guest RAM: a descriptor, and a mapping for views. Inside of vmm/.
 *
 * Both keep the backend's memory allocated when its VMM has ended, or has unplugged it. So they are let go of
 * then, by backing_drop(), while other threads may be using them: the descriptor becomes one of an empty file,
 * the mapping one of nothing. Neither number nor address is free for anything else before backing_destroy().
 *
 * Every access to a mapping is a fault that may fail: an uncorrectable memory error, no memory left in the VMM's
 * control group, RAM that was dropped. The kernel says so by SIGBUS. Hence mappings are read and written by
 * backing_read() and backing_write() alone, to which it is an error.
 */
#ifndef VMM_BACKING_H
#define VMM_BACKING_H

#include "base/types.h"

#include <stddef.h>

struct vm;

struct backing {
	struct backing *next; /* of the vm's */
	int fd;
	u64 fd_off; /* of the region's start */
	u64 len;
	u8 *map; /* NULL before backing_map() */
	bool may_map;
	bool dropped;
};

/**
 * backing_create - take over @fd, which is closed if this fails
 *
 * Return: NULL without memory, or without an empty file. Undo: backing_destroy().
 */
struct backing *backing_create(struct vm *vm, int fd, u64 fd_off, u64 len);
/** backing_destroy - NULL is fine. Context: nobody uses it any more; the same thread as backing_create() */
void backing_destroy(struct vm *vm, struct backing *b);

/**
 * backing_map - where the region is mapped here; made at the first call
 *
 * Only of a memfd that is sealed against shrinking. Never of huge pages: a fault there takes one of the host's
 * few. Return: NULL: it must be read in another way. Context: as backing_create().
 */
u8 *backing_map(struct backing *b);

/** backing_drop - the backend's memory is not held any more; any thread */
void backing_drop(struct backing *b);
/** backing_drop_all - as backing_drop(), of all that @vm has; any thread */
void backing_drop_all(const struct vm *vm);

/**
 * backing_read / backing_write - copy from or to a mapping of backing_map(), as vm_mem_copy()
 *
 * Return: 0; -EFAULT there is no memory there. Context: any thread that does not block SIGBUS.
 */
must_check int backing_read(void *dst, const u8 *map, size_t len);
must_check int backing_write(u8 *map, const void *src, size_t len);

#endif
