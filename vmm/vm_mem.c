// SPDX-License-Identifier: Apache-2.0
/*
 * Guest RAM through the VMM's process. Three ways, each where it is right:
 *
 *   pread() on a shared backend       all reads but those of views: a hole reads as zeros and stays a hole
 *   our mapping of a shared backend   views, whose memory the agent has: rings
 *   /proc/PID/mem, process_vm_*v()    anonymous and private RAM; all writes but those of views
 *
 * Where to look the guest says. So what is looked at is never mapped for it: that would allocate what the VMM has
 * given back or not got yet (a balloon, memory not plugged in, a migration that comes in), and not by the VMM's own
 * mapping, which knows of it. See backing.h. /proc/PID/mem belongs to the address space and not to the pid, so that writes can
 * never reach another process that got the same pid.
 */
#include "vmm/vm_ops.h"

#include "base/cleanup.h"
#include "vmm/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>

/* From here on one process_vm_readv() is cheaper than /proc/PID/mem, which copies twice. */
#define READV_MIN 4096
/* Text that is written at once. */
#define TEXT_RUNS  128
#define TEXT_BYTES (256u << 10)

void vm_mem_copy(void *dst, const void *src, size_t len)
{
	u8 *d = dst;
	const u8 *s = src;

	if ((((uintptr_t)d ^ (uintptr_t)s) & 7) == 0) {
		while (len && ((uintptr_t)s & 7)) {
			*d++ = *s++;
			len--;
		}
		for (; len >= 8; len -= 8, d += 8, s += 8) {
			u64 *to = __builtin_assume_aligned(d, 8);
			const u64 *from = __builtin_assume_aligned(s, 8);

			__atomic_store_n(to, __atomic_load_n(from, __ATOMIC_RELAXED),
					 __ATOMIC_RELAXED);
		}
	}
	memcpy(d, s, len);
}

const struct ram_region *vm_mem_find(const struct vm *vm, u64 addr)
{
	size_t lo = 0;
	size_t hi = vm->n_ram;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		const struct ram_region *r = &vm->ram[mid];

		if (addr < r->ram.base.v)
			hi = mid;
		else if (addr - r->ram.base.v >= r->ram.len_bytes)
			lo = mid + 1;
		else
			return r;
	}
	return NULL;
}

int vm_mem_add(struct vm *vm, gpa_t base, u64 len, u64 hva, struct err *err)
{
	size_t i = vm->n_ram;
	u64 end;
	u64 hva_end;

	if (vm->n_ram == VM_MAX_RAM)
		return err_set(err, -E2BIG, ERR_VMM_PROTOCOL, base.v,
			       "more than %d regions of guest RAM", VM_MAX_RAM);
	if (len == 0 || add_overflows(base.v, len, &end) || add_overflows(hva, len, &hva_end) ||
	    ((base.v | len | hva) & ~PAGE_MASK))
		return err_set(err, -EINVAL, ERR_VMM_PROTOCOL, base.v,
			       "a region of guest RAM makes no sense: 0x%llx, 0x%llx bytes",
			       (unsigned long long)base.v, (unsigned long long)len);
	while (i > 0 && vm->ram[i - 1].ram.base.v > base.v)
		i--;
	if ((i > 0 && vm->ram[i - 1].ram.base.v + vm->ram[i - 1].ram.len_bytes > base.v) ||
	    (i < vm->n_ram && vm->ram[i].ram.base.v < end))
		return err_set(err, -EINVAL, ERR_VMM_PROTOCOL, base.v,
			       "regions of guest RAM overlap at 0x%llx",
			       (unsigned long long)base.v);
	memmove(&vm->ram[i + 1], &vm->ram[i], (vm->n_ram - i) * sizeof(vm->ram[0]));
	vm->ram[i] = (struct ram_region){
		.ram = { .base = base, .len_bytes = len },
		.hva = hva,
	};
	vm->n_ram++;
	return 0;
}

/* Is all of [hva, hva + len) mapped readable and writable? Fails on the first gap. */
static const struct proc_map *covering(const struct proc_maps *maps, u64 hva, u64 len,
				       bool *one_ret)
{
	const struct proc_map *first = NULL;
	u64 at = hva;

	for (size_t i = 0; i < maps->n && at < hva + len; i++) {
		const struct proc_map *m = &maps->map[i];

		if (m->end <= at)
			continue;
		if (m->start > at || !m->readable || !m->writable)
			return NULL;
		if (!first)
			first = m;
		at = m->end;
		*one_ret = m == first;
	}
	return at >= hva + len ? first : NULL;
}

static int open_region(struct vm *vm, struct ram_region *r, const struct proc_maps *maps,
		       struct err *err)
{
	bool one = false;
	const struct proc_map *m = covering(maps, r->hva, r->ram.len_bytes, &one);

	if (!m)
		return err_set(err, -EPROTO, ERR_VMM_PROTOCOL, r->ram.base.v,
			       "guest RAM at 0x%llx is not writable memory of process %d",
			       (unsigned long long)r->ram.base.v, (int)vm->pid);
	r->inode = m->inode;
	/* a private mapping of a file holds pages that the file does not */
	if (one && m->shared) {
		int fd = proc_open_backing(vm->pid, m);

		if (fd >= 0)
			r->backing = backing_create(vm, fd, m->off + (r->hva - m->start),
						    r->ram.len_bytes);
	}
	return 0;
}

bool vm_mem_is_there(const struct vm *vm)
{
	_cleanup_maps_ struct proc_maps maps = { 0 };

	if (proc_maps_read(vm->pid, &maps))
		return true;
	for (size_t i = 0; i < vm->n_ram; i++) {
		const struct ram_region *r = &vm->ram[i];
		bool one;
		const struct proc_map *m = covering(&maps, r->hva, r->ram.len_bytes, &one);

		if (!m || m->inode != r->inode)
			return false;
	}
	return true;
}

static int open_from(struct vm *vm, size_t first, struct err *err)
{
	_cleanup_maps_ struct proc_maps maps = { 0 };
	int rc = proc_maps_read(vm->pid, &maps);

	if (rc == -ESRCH)
		return vm_gone(vm, err);
	if (rc < 0)
		return err_set(err, rc, ERR_TARGET_PERMISSION, 0,
			       "cannot read the memory map of process %d: %s", (int)vm->pid,
			       strerror(-rc));
	if (vm->n_ram == 0)
		return err_set(err, -EPROTO, ERR_VMM_PROTOCOL, 0, "process %d has no guest RAM",
			       (int)vm->pid);
	for (size_t i = first; !rc && i < vm->n_ram; i++)
		rc = open_region(vm, &vm->ram[i], &maps, err);
	return rc;
}

int vm_mem_open(struct vm *vm, struct err *err)
{
	return open_from(vm, 0, err);
}

int vm_mem_open_last(struct vm *vm, struct err *err)
{
	return open_from(vm, vm->n_ram - 1, err);
}

void vm_mem_drop_last(struct vm *vm)
{
	backing_destroy(vm, vm->ram[--vm->n_ram].backing);
	/* translations are looked at again when they are used; the region, where they lead, is not */
	memset(vm->tlb, 0, sizeof(vm->tlb));
}

void vm_mem_close(struct vm *vm)
{
	while (vm->n_ram)
		vm_mem_drop_last(vm);
}

/* pread()/pwrite() until done. @n 0 at once: the address space is gone. */
static int mem_errno(ssize_t n)
{
	if (n == 0 || (n < 0 && errno == ESRCH))
		return -ESRCH;
	return -EFAULT;
}

int vm_mem_read_hva(const struct vm *vm, u64 hva, void *buf, size_t len)
{
	u8 *p = buf;

	if (len >= READV_MIN) {
		struct iovec local = { buf, len };
		struct iovec remote = { (void *)(uintptr_t)hva, len };
		ssize_t n = process_vm_readv(vm->pid, &local, 1, &remote, 1, 0);

		/* only if the process still is the one we know are these its bytes */
		if (n == (ssize_t)len && vm_alive(vm))
			return 0;
	}
	while (len) {
		ssize_t n = pread(vm->mem, p, len, (off_t)hva);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return mem_errno(n);
		p += n;
		hva += (size_t)n;
		len -= (size_t)n;
	}
	return 0;
}

int vm_mem_write_hva(const struct vm *vm, u64 hva, const void *buf, size_t len)
{
	const u8 *p = buf;

	while (len) {
		ssize_t n = pwrite(vm->mem, p, len, (off_t)hva);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return mem_errno(n);
		p += n;
		hva += (size_t)n;
		len -= (size_t)n;
	}
	return 0;
}

static int read_shared(const struct backing *b, u64 off, void *buf, size_t len)
{
	u8 *p = buf;

	while (len) {
		ssize_t n = pread(b->fd, p, len, (off_t)(b->fd_off + off));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -EFAULT;
		p += n;
		off += (size_t)n;
		len -= (size_t)n;
	}
	return 0;
}

int vm_mem_read_region(const struct vm *vm, const struct ram_region *r, u64 off, void *buf,
		       size_t len)
{
	if (r->backing && read_shared(r->backing, off, buf, len) == 0)
		return 0;
	return vm_mem_read_hva(vm, r->hva + off, buf, len);
}

static int fail(const struct vm *vm, int rc, u64 addr, bool writing, struct err *err)
{
	if (rc == -ESRCH)
		return vm_gone(vm, err);
	return err_set(err, rc, ERR_GUEST_MEMORY, addr, "cannot %s guest memory at physical 0x%llx",
		       writing ? "write" : "read", (unsigned long long)addr);
}

static int outside(u64 addr, size_t len, struct err *err)
{
	return err_set(err, -EFAULT, ERR_GUEST_MEMORY, addr,
		       "physical 0x%llx, %zu bytes, is not all guest RAM", (unsigned long long)addr,
		       len);
}

int vm_read_phys(struct vm *vm, gpa_t addr, void *buf, size_t len, struct err *err)
{
	u8 *p = buf;
	u64 at = addr.v;
	bool shared = false;

	while (len) {
		const struct ram_region *r = vm_mem_find(vm, at);
		u64 off;
		size_t n;
		int rc;

		if (!r)
			return outside(at, len, err);
		off = at - r->ram.base.v;
		n = MIN(len, r->ram.len_bytes - off);
		rc = vm_mem_read_region(vm, r, off, p, n);
		if (rc < 0)
			return fail(vm, rc, at, false, err);
		shared |= r->backing != NULL;
		p += n;
		at += n;
		len -= n;
	}
	return shared && !vm_alive(vm) ? vm_gone(vm, err) : 0;
}

int vm_write_phys(struct vm *vm, gpa_t addr, const void *buf, size_t len, struct err *err)
{
	const u8 *p = buf;
	u64 at = addr.v;

	while (len) {
		const struct ram_region *r = vm_mem_find(vm, at);
		u64 off;
		size_t n;
		int rc;

		if (!r)
			return outside(at, len, err);
		off = at - r->ram.base.v;
		n = MIN(len, r->ram.len_bytes - off);
		rc = vm_mem_write_hva(vm, r->hva + off, p, n);
		if (rc < 0)
			return fail(vm, rc, at, true, err);
		p += n;
		at += n;
		len -= n;
	}
	return 0;
}

/*
 * Many pieces with two system calls. Those of pages side by side are one run: it costs less than its pieces would, of
 * which there are a dozen on each page when everything is armed. What lies between them is read first and written
 * back as it was: code, which nobody changes while the window is open. The pid cannot be another process's by
 * now: the window holds threads of this one under ptrace, and what a tracer has not waited for is not recycled.
 */
struct text_batch {
	u8 *bytes; /* TEXT_BYTES */
	struct iovec local[TEXT_RUNS], remote[TEXT_RUNS];
	size_t end[TEXT_RUNS]; /* behind a run's last piece */
	size_t n;
	size_t len; /* of all runs */
	bool gaps; /* there is something between pieces */
};

/* Pieces from @i on, each behind the one before, on its page or the next, within @len bytes. */
static size_t run_of(const struct vm_phys_text *text, size_t n, size_t i, u64 len)
{
	size_t k = i + 1;

	for (; k < n; k++) {
		u64 before = text[k - 1].gpa + text[k - 1].len;

		if (text[k].gpa < before ||
		    (text[k].gpa & PAGE_MASK) > ((before - 1) & PAGE_MASK) + PAGE_SIZE ||
		    text[k].gpa + text[k].len - text[i].gpa > len)
			break;
	}
	return k;
}

static int plan_batch(const struct vm *vm, const struct vm_phys_text *text, size_t n,
		      struct text_batch *b)
{
	size_t i = 0;

	b->n = b->len = 0;
	b->gaps = false;
	while (i < n && b->n < TEXT_RUNS && TEXT_BYTES - b->len >= PAGE_SIZE) {
		const struct ram_region *r = vm_mem_find(vm, text[i].gpa);
		u64 off = r ? text[i].gpa - r->ram.base.v : 0, len;
		size_t end;

		if (!r)
			return -EFAULT;
		end = run_of(text, n, i, MIN(TEXT_BYTES - b->len, r->ram.len_bytes - off));
		len = text[end - 1].gpa + text[end - 1].len - text[i].gpa;
		b->remote[b->n] = (struct iovec){ (void *)(uintptr_t)(r->hva + off), len };
		b->local[b->n] = (struct iovec){ b->bytes + b->len, len };
		b->len += len;
		b->gaps |= end > i + 1;
		b->end[b->n++] = i = end;
	}
	return 0;
}

/* @done_ret: how many of the pieces were written */
static int write_batch(const struct vm *vm, const struct vm_phys_text *text, size_t n,
		       struct text_batch *b, size_t *done_ret)
{
	int rc = plan_batch(vm, text, n, b);
	size_t i = 0;

	*done_ret = b->n ? b->end[b->n - 1] : 0;
	if (rc)
		return rc;
	if (!b->gaps ||
	    process_vm_readv(vm->pid, b->local, b->n, b->remote, b->n, 0) == (ssize_t)b->len) {
		for (size_t k = 0; k < b->n; k++) {
			u64 first = text[i].gpa;

			for (; i < b->end[k]; i++)
				memcpy((u8 *)b->local[k].iov_base + (text[i].gpa - first),
				       text[i].bytes, text[i].len);
		}
		if (process_vm_writev(vm->pid, b->local, b->n, b->remote, b->n, 0) ==
		    (ssize_t)b->len)
			return 0;
	}
	for (i = 0; !rc && i < *done_ret; i++) {
		const struct ram_region *r = vm_mem_find(vm, text[i].gpa);

		rc = r ? vm_mem_write_hva(vm, r->hva + (text[i].gpa - r->ram.base.v), text[i].bytes,
					  text[i].len)
		       : -EFAULT;
	}
	return rc;
}

static inline void cleanup_batchp(struct text_batch **b)
{
	if (*b)
		free((*b)->bytes);
	free(*b);
}

static struct text_batch *new_batch(void)
{
	struct text_batch *b = malloc(sizeof(*b));

	if (b)
		b->bytes = malloc(TEXT_BYTES);
	if (b && !b->bytes) {
		free(b);
		return NULL;
	}
	return b;
}

int vm_mem_write_text(struct vm *vm, const struct vm_phys_text *text, size_t n, struct err *err)
{
	_cleanup_(cleanup_batchp) struct text_batch *b = NULL;
	size_t i = 0;

	while (i < n) {
		size_t done = 0;
		int rc;

		if (!vm_mem_find(vm, text[i].gpa))
			return outside(text[i].gpa, text[i].len, err);
		b = b ? b : new_batch();
		if (!b)
			return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory to write text");
		rc = write_batch(vm, text + i, n - i, b, &done);
		if (rc == -ESRCH)
			return vm_gone(vm, err);
		if (rc < 0)
			return err_set(err, -EPERM, ERR_GUEST_MEMORY, text[i].gpa,
				       "cannot write guest text at physical 0x%llx",
				       (unsigned long long)text[i].gpa);
		i += done;
	}
	return 0;
}
