/* SPDX-License-Identifier: Apache-2.0 */
/* Guest RAM out of QEMU's HMP "info mtree -f". A parser of text, nothing else. */
#ifndef VMM_MTREE_H
#define VMM_MTREE_H

#include "base/types.h"

/* A range of the flat view of the address space "memory" that is RAM. */
struct mtree_range {
	u64 start;
	u64 end; /* first byte after it */
	char name[64]; /* of the RAM block */
};

/**
 * mtree_parse - ranges of type "ram" in the flat view that vCPUs see, in the text's order
 * @text: the whole answer, NUL-terminated
 *
 * ROM, ROM devices, I/O, and RAM that the chipset shows read-only are left out. Video memory and
 * firmware that a board maps as RAM are not: see mtree_is_guest_ram().
 * Return: 0; -ENOENT no such flat view or no RAM in it; -E2BIG more than @max; -EPROTO malformed.
 */
must_check int mtree_parse(const char *text, struct mtree_range *ret, size_t max, size_t *n_ret);

/** mtree_is_guest_ram - is @r main memory: the block at address 0, or one of the memory backends? */
bool mtree_is_guest_ram(const struct mtree_range *r, const struct mtree_range *first,
			const char *const *backends, size_t n_backends);

#endif
