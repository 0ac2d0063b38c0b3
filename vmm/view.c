// SPDX-License-Identifier: Apache-2.0
/*
 * A range of guest virtual memory translated once. Any thread may read and write it at any time:
 * nothing in a view changes after it was created.
 */
#include "vmm/vm_ops.h"

#include "base/cleanup.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#define VIEW_MAX_BYTES (4ull << 30)
#define VIEW_IOV       256

/* A run that is contiguous in the VMM's address space and, where there is one, in our mapping. */
struct view_seg {
	u64 off; /* in the view */
	u64 len;
	u64 hva;
	u8 *map;
};

struct vm_view {
	const struct vm *vm;
	u64 len;
	size_t n_segs;
	struct view_seg *seg;
};

/* @map: of the region's start; NULL where it is not mapped here */
static int add_piece(struct vm_view *v, size_t *cap, const struct ram_region *r, u8 *map,
		     u64 gpa_at, u64 len)
{
	u64 off = gpa_at - r->ram.base.v;
	struct view_seg *last = v->n_segs ? &v->seg[v->n_segs - 1] : NULL;

	map = map ? map + off : NULL;
	if (last && last->hva + last->len == r->hva + off &&
	    (map ? last->map && last->map + last->len == map : !last->map)) {
		last->len += len;
		v->len += len;
		return 0;
	}
	if (v->n_segs == *cap) {
		size_t want = *cap ? *cap * 2 : 16;
		void *p = reallocarray(v->seg, want, sizeof(*v->seg));

		if (!p)
			return -ENOMEM;
		v->seg = p;
		*cap = want;
	}
	v->seg[v->n_segs++] =
		(struct view_seg){ .off = v->len, .len = len, .hva = r->hva + off, .map = map };
	v->len += len;
	return 0;
}

static int translate(struct vm *vm, struct vm_view *v, gva_t addr, u64 len, struct err *err)
{
	struct backing *b = NULL;
	u8 *map = NULL;
	size_t cap = 0;

	while (len) {
		struct vm_mapping m;
		const struct ram_region *r;
		u64 n;
		int rc = vm_walk(vm, addr, &m, err);

		if (rc < 0)
			return rc;
		r = vm_find_ram(vm, m.gpa.v);
		if (!r)
			return err_set(err, -EFAULT, ERR_GUEST_MEMORY, addr.v,
				       "0x%llx is mapped to physical 0x%llx, which is not RAM",
				       (unsigned long long)addr.v, (unsigned long long)m.gpa.v);
		n = MIN(len, m.page_bytes - (addr.v & (m.page_bytes - 1)));
		n = MIN(n, r->ram.len_bytes - (m.gpa.v - r->ram.base.v));
		if (r->backing != b) {
			b = r->backing;
			map = b ? backing_map(b) : NULL;
		}
		if (add_piece(v, &cap, r, map, m.gpa.v, n) < 0)
			return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a view");
		addr.v += n;
		len -= n;
	}
	return 0;
}

int vm_view_create(struct vm *vm, gva_t addr, u64 len_bytes, struct vm_view **ret, struct err *err)
{
	struct vm_view *v;
	u64 end;
	int rc;

	if (len_bytes == 0 || len_bytes > VIEW_MAX_BYTES || add_overflows(addr.v, len_bytes, &end))
		return err_set(err, -EFAULT, ERR_GUEST_MEMORY, addr.v,
			       "a view of %llu bytes makes no sense",
			       (unsigned long long)len_bytes);
	v = calloc(1, sizeof(*v));
	if (!v)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a view");
	v->vm = vm;
	rc = translate(vm, v, addr, len_bytes, err);
	if (rc < 0) {
		vm_view_destroy(v);
		return rc;
	}
	*ret = v;
	return 0;
}

void vm_view_destroy(struct vm_view *view)
{
	if (!view)
		return;
	free(view->seg);
	free(view);
}

static size_t seg_at(const struct vm_view *v, u64 off)
{
	size_t lo = 0;
	size_t hi = v->n_segs;

	while (hi - lo > 1) {
		size_t mid = (lo + hi) / 2;

		if (v->seg[mid].off <= off)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

/* One system call over as many unmapped segments as fit; returns the bytes it covers. */
static u64 gather(const struct vm_view *v, size_t i, u64 skip, u64 len, struct iovec *iov,
		  size_t *n_ret)
{
	u64 total = 0;
	size_t n = 0;

	for (; i < v->n_segs && n < VIEW_IOV && total < len && !v->seg[i].map; i++, skip = 0) {
		u64 piece = MIN(v->seg[i].len - skip, len - total);

		iov[n].iov_base = (void *)(uintptr_t)(v->seg[i].hva + skip);
		iov[n].iov_len = piece;
		total += piece;
		n++;
	}
	*n_ret = n;
	return total;
}

/* Where process_vm_readv() is not allowed although /proc/PID/mem is (seccomp, Yama). */
static int slow_read(const struct vm *vm, const struct iovec *iov, size_t n, u8 *p)
{
	for (size_t i = 0; i < n; i++) {
		int rc = vm_mem_read_hva(vm, (u64)(uintptr_t)iov[i].iov_base, p, iov[i].iov_len);

		if (rc < 0)
			return rc;
		p += iov[i].iov_len;
	}
	return 0;
}

/* What is mapped cannot be read: a page's memory failed, the RAM was plugged out, or its VMM has ended. */
static int no_memory(const struct vm_view *view)
{
	return vm_alive(view->vm) ? -EFAULT : -ESRCH;
}

int vm_view_read(struct vm_view *view, u64 off, void *buf, size_t len)
{
	u8 *p = buf;

	if (len > view->len || off > view->len - len)
		return -EFAULT;
	for (size_t i = seg_at(view, off); len;) {
		const struct view_seg *s = &view->seg[i];
		u64 skip = off - s->off;
		u64 n;

		if (s->map) {
			n = MIN(s->len - skip, len);
			if (backing_read(p, s->map + skip, n) < 0)
				return no_memory(view);
		} else {
			struct iovec remote[VIEW_IOV];
			struct iovec local;
			size_t n_iov;

			n = gather(view, i, skip, len, remote, &n_iov);
			local = (struct iovec){ p, n };
			if (process_vm_readv(view->vm->pid, &local, 1, remote, n_iov, 0) !=
			    (ssize_t)n) {
				int rc = slow_read(view->vm, remote, n_iov, p);

				if (rc < 0)
					return rc;
			}
		}
		p += n;
		off += n;
		len -= n;
		while (i + 1 < view->n_segs && view->seg[i + 1].off <= off)
			i++;
	}
	/* bytes of a VMM that has ended, or of another process with its pid, are not an answer */
	return vm_alive(view->vm) ? 0 : -ESRCH;
}

int vm_view_write(struct vm_view *view, u64 off, const void *buf, size_t len)
{
	const u8 *p = buf;

	if (len > view->len || off > view->len - len)
		return -EFAULT;
	if (!vm_alive(view->vm))
		return -ESRCH;
	for (size_t i = seg_at(view, off); len; i++) {
		const struct view_seg *s = &view->seg[i];
		u64 skip = off - s->off;
		u64 n = MIN(s->len - skip, len);

		if (s->map) {
			if (backing_write(s->map + skip, p, n) < 0)
				return no_memory(view);
		} else {
			int rc = vm_mem_write_hva(view->vm, s->hva + skip, p, n);

			if (rc < 0)
				return rc;
		}
		p += n;
		off += n;
		len -= n;
	}
	return 0;
}
