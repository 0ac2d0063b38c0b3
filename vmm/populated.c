// SPDX-License-Identifier: Apache-2.0
/*
 * Which pages of guest RAM the host has allocated. Searching only these keeps a sparse guest's
 * memory sparse, and is quick: an untouched guest of 64 GiB has next to none.
 */
#include "vmm/vm_ops.h"

#include <errno.h>
#include <unistd.h>

/* Documentation/admin-guide/mm/pagemap.rst */
#define PM_PRESENT (1ull << 63)
#define PM_SWAP    (1ull << 62)
#define PM_BATCH   8192 /* entries: 64 KiB, 32 MiB of guest RAM */

/* lseek() moves an offset of our own description: see proc_open_backing(). */
static bool next_in_file(const struct ram_region *r, u64 off, u64 *start_ret, u64 *end_ret)
{
	const struct backing *b = r->backing;
	u64 limit = b->fd_off + r->ram.len_bytes;
	off_t data = lseek(b->fd, (off_t)(b->fd_off + off), SEEK_DATA);
	off_t hole;

	if (data < 0 || (u64)data >= limit)
		return false;
	hole = lseek(b->fd, data, SEEK_HOLE);
	*start_ret = MAX((u64)data, b->fd_off + off) - b->fd_off;
	*end_ret = (hole < 0 ? limit : MIN((u64)hole, limit)) - b->fd_off;
	return *end_ret > *start_ret;
}

static bool next_in_pagemap(const struct vm *vm, const struct ram_region *r, u64 off,
			    u64 *start_ret, u64 *end_ret)
{
	u64 entry[PM_BATCH];
	u64 page = off / PAGE_SIZE;
	u64 n_pages = r->ram.len_bytes / PAGE_SIZE;
	u64 first = r->hva / PAGE_SIZE;
	bool in_run = false;

	while (page < n_pages) {
		size_t want = MIN(n_pages - page, (u64)PM_BATCH) * sizeof(entry[0]);
		ssize_t got =
			pread(vm->pagemap, entry, want, (off_t)((first + page) * sizeof(entry[0])));

		if (got < (ssize_t)sizeof(entry[0]))
			break;
		for (size_t i = 0; i < (size_t)got / sizeof(entry[0]); i++) {
			bool populated = entry[i] & (PM_PRESENT | PM_SWAP);

			if (populated && !in_run) {
				in_run = true;
				*start_ret = MAX((page + i) * PAGE_SIZE, off);
			} else if (!populated && in_run) {
				*end_ret = (page + i) * PAGE_SIZE;
				return true;
			}
		}
		page += (size_t)got / sizeof(entry[0]);
	}
	if (in_run)
		*end_ret = MIN(page * PAGE_SIZE, r->ram.len_bytes);
	return in_run;
}

/* hugetlbfs has no SEEK_DATA (fs/hugetlbfs/inode.c, v6.12): its pages show in the page map */
static bool has_seek_data(const struct ram_region *r)
{
	const struct backing *b = r->backing;

	return b && (lseek(b->fd, (off_t)b->fd_off, SEEK_DATA) >= 0 || errno == ENXIO);
}

bool vm_next_populated(struct vm *vm, gpa_t from, gpa_t *start_ret, u64 *len_ret)
{
	if (!vm_alive(vm))
		return false;
	for (size_t i = 0; i < vm_ram_count(vm); i++) {
		const struct ram_region *r = &vm->ram[i];
		u64 off = from.v > r->ram.base.v ? from.v - r->ram.base.v : 0;
		u64 start = 0;
		u64 end = 0;
		bool found;

		if (off >= r->ram.len_bytes)
			continue;
		if (has_seek_data(r)) {
			found = next_in_file(r, off, &start, &end);
		} else if (vm->pagemap >= 0) {
			found = next_in_pagemap(vm, r, off, &start, &end);
		} else { /* nothing is known: all of it may be populated */
			start = off;
			end = r->ram.len_bytes;
			found = true;
		}
		if (found) {
			*start_ret = gpa(r->ram.base.v + start);
			*len_ret = end - start;
			return true;
		}
	}
	return false;
}
