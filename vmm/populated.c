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
#define FRAME      (2ull << 20)
#define RUN_BYTES \
	(1ull     \
	 << 30) /* the map of a preallocated TiB is 2 GiB: it is not read to see where it ends */

static u64 round_up(u64 v, u64 step)
{
	return (v + step - 1) / step * step;
}

/* lseek() moves an offset of our own description: see proc_open_backing(). Where data begins, within @r; -1: nowhere. */
static s64 seek_data(const struct ram_region *r, u64 off)
{
	off_t data = lseek(r->backing->fd, (off_t)(r->backing->fd_off + off), SEEK_DATA);

	return data < 0 || (u64)data >= r->backing->fd_off + r->ram.len_bytes
		       ? -1
		       : (s64)((u64)data - r->backing->fd_off);
}

/* SEEK_HOLE would look at each page up to there: 10 ms a GiB. So it is not asked whether a frame has holes. */
static bool next_in_file(const struct ram_region *r, u64 off, u64 *start_ret, u64 *end_ret)
{
	s64 data = seek_data(r, off);
	u64 end;

	if (data < 0)
		return false;
	end = round_up((u64)data + 1, FRAME);
	while (end < r->ram.len_bytes && end - (u64)data < RUN_BYTES &&
	       seek_data(r, end) == (s64)end)
		end += FRAME;
	*start_ret = MAX((u64)data, off);
	*end_ret = MIN(end, r->ram.len_bytes);
	return true;
}

static bool next_in_pagemap(const struct vm *vm, const struct ram_region *r, u64 off,
			    u64 *start_ret, u64 *end_ret)
{
	u64 entry[PM_BATCH];
	u64 page = off / PAGE_SIZE;
	u64 n_pages = r->ram.len_bytes / PAGE_SIZE;
	u64 first = r->hva / PAGE_SIZE;
	bool in_run = false;

	while (page < n_pages && !(in_run && page * PAGE_SIZE - *start_ret >= RUN_BYTES)) {
		size_t want = MIN(n_pages - page, (u64)PM_BATCH) * sizeof(entry[0]);
		ssize_t got =
			pread(vm->pagemap, entry, want, (off_t)((first + page) * sizeof(entry[0])));

		if (got < (ssize_t)sizeof(entry[0]))
			break;
		for (size_t i = 0; i < (size_t)got / sizeof(entry[0]); i++) {
			bool resident = entry[i] & PM_PRESENT;

			if (resident && !in_run) {
				in_run = true;
				*start_ret = MAX((page + i) * PAGE_SIZE, off);
			} else if (!resident && in_run) {
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

bool vm_next_resident(struct vm *vm, gpa_t from, gpa_t *start_ret, u64 *len_ret)
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
		} else { /* nothing is known: all of it may be there */
			start = off;
			end = r->ram.len_bytes;
			found = true;
		}
		if (found) {
			*start_ret = gpa(r->ram.base.v + start);
			*len_ret = MIN(end - start, RUN_BYTES);
			return true;
		}
	}
	return false;
}

/* Is there a page at @off? If not, *@off goes on to where one may be. */
static bool page_at(const struct vm *vm, const struct ram_region *r, bool seek, u64 *off)
{
	u64 entry = 0;

	if (seek) {
		s64 data = seek_data(r, *off);

		if (data >= 0 && (u64)data < *off + PAGE_SIZE)
			return true;
		*off = data < 0 ? r->ram.len_bytes : (u64)data;
		return false;
	}
	if (vm->pagemap < 0)
		return true;
	if (pread(vm->pagemap, &entry, sizeof(entry),
		  (off_t)((r->hva + *off) / PAGE_SIZE * sizeof(entry))) == sizeof(entry) &&
	    (entry & (PM_PRESENT | PM_SWAP)))
		return true;
	*off += PAGE_SIZE;
	return false;
}

bool vm_next_frame(struct vm *vm, gpa_t from, u64 step_bytes, gpa_t *ret)
{
	if (!vm_alive(vm))
		return false;
	for (size_t i = 0; i < vm_ram_count(vm); i++) {
		const struct ram_region *r = &vm->ram[i];
		u64 base = r->ram.base.v;
		u64 at = round_up(MAX(from.v, base), step_bytes);
		bool seek;

		if (at < base || at - base >= r->ram.len_bytes)
			continue;
		seek = has_seek_data(r);
		while (at >= base && at - base < r->ram.len_bytes) {
			u64 off = at - base;

			if (page_at(vm, r, seek, &off)) {
				*ret = gpa(at);
				return true;
			}
			at = round_up(base + off, step_bytes);
		}
	}
	return false;
}
