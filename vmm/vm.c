// SPDX-License-Identifier: Apache-2.0
/*
 * The wrappers of vm.h over the backends: argument checks, translation, accounting of stop windows.
 * Optional hooks are tested here and nowhere else.
 */
#define LOG_PREFIX "vmm"
#include "vmm/vm_ops.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "vmm/console.h"
#include "vmm/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>

#define TEXT_BATCH 4096 /* pieces of text that are handed to a backend at once */

static const struct vm_ops *const backends[] = { &vm_ops_libvirt, &vm_ops_qemu, &vm_ops_pid };

bool vm_alive(const struct vm *vm)
{
	/* a pidfd becomes readable when the process has ended (pidfd_open(2)) */
	struct pollfd p = { .fd = vm->pidfd, .events = POLLIN };

	int r;

	if (vm->pidfd < 0)
		return false;
	do
		r = poll(&p, 1, 0);
	while (r < 0 && errno == EINTR);
	if (r <= 0) /* "cannot look" is not "has ended" */
		return true;
	backing_drop_all(vm);
	return false;
}

int vm_gone(const struct vm *vm, struct err *err)
{
	return err_set(err, -ESRCH, ERR_VMM_GONE, 0, "the VMM's process %d has ended",
		       (int)vm->pid);
}

int vm_open_process(struct vm *vm, pid_t pid, struct err *err)
{
	char path[64];
	char state;

	vm->pid = pid;
	vm->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (vm->pidfd < 0 || proc_stat(pid, 0, &state, &vm->start_time) < 0 || state == 'Z')
		return err_set(err, -ENOENT, ERR_TARGET_NO_PROCESS, 0, "there is no process %d",
			       (int)pid);
	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	vm->mem = open(path, O_RDWR | O_CLOEXEC);
	if (vm->mem < 0)
		return err_set(err, -EACCES, ERR_TARGET_PERMISSION, 0,
			       "may not reach into process %d: %s", (int)pid, strerror(errno));
	snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)pid);
	vm->pagemap = open(path, O_RDONLY | O_CLOEXEC);
	if (vm->pagemap < 0)
		log_warn("%s: %s; searching its memory may allocate it", path, strerror(errno));
	return vm_alive(vm) ? 0 : vm_gone(vm, err);
}

int vm_claim(struct vm *vm, struct err *err)
{
	/* whoever may open that file may: of all daemons of this host, whatever their state directories, one */
	if (flock(vm->mem, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
		return err_set(err, -EBUSY, ERR_GUEST_ATTACHED, 0,
			       "process %d is attached already, here or by another daemon",
			       (int)vm->pid);
	return 0;
}

static void vm_free(struct vm *vm)
{
	if (vm->console)
		vm_console_close(vm->console);
	vm_console_unref(vm->console);
	vm->ops->detach(vm);
	vm_mem_close(vm);
	vm_more_ram_close(vm);
	if (vm->mem >= 0)
		close(vm->mem);
	if (vm->pagemap >= 0)
		close(vm->pagemap);
	if (vm->pidfd >= 0)
		close(vm->pidfd);
	free(vm);
}

int vm_attach(const char *target, struct vm **vm_ret, struct err *err)
{
	const struct vm_ops *ops = NULL;
	const char *colon = strchr(target, ':');
	struct vm *vm;
	int rc;

	for (size_t i = 0; colon && i < ARRAY_SIZE(backends); i++) {
		const char *name = backends[i]->name;

		if (strlen(name) == (size_t)(colon - target) &&
		    strncmp(name, target, strlen(name)) == 0)
			ops = backends[i];
	}
	if (!ops || colon[1] == '\0' || strlen(target) >= sizeof(vm->target))
		return err_set(err, -EINVAL, ERR_TARGET_SYNTAX, 0,
			       "\"%.100s\" names no guest: want libvirt:URI/DOMAIN, "
			       "qemu:QMP-SOCKET or pid:VMM-PID",
			       target);
	vm = calloc(1, sizeof(*vm));
	if (!vm)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a guest");
	vm->ops = ops;
	vm->pidfd = -1;
	vm->mem = -1;
	vm->pagemap = -1;
	snprintf(vm->target, sizeof(vm->target), "%s", target);
	rc = ops->attach(vm, colon + 1, err);
	if (rc < 0) {
		vm_free(vm);
		return rc;
	}
	/* one without a console is as good for tracing */
	rc = vm_console_find(vm->pid, vm->pidfd, &vm->console);
	if (rc < 0 && rc != -ENOENT)
		log_warn("%s: its console cannot be had: %s", vm->target, strerrordesc_np(-rc));
	*vm_ret = vm;
	return 0;
}

void vm_detach(struct vm *vm)
{
	struct err err = { 0 };

	if (!vm)
		return;
	if (vm->held)
		(void)vm_release(vm, &err);
	if (vm->window_open && vm_resume(vm, &err) < 0 && err.no != -ESRCH)
		log_error("%s: the guest may still be stopped: %s", vm->target, err.msg);
	vm_unbreak(vm);
	vm_free(vm);
}

const char *vm_target(const struct vm *vm)
{
	return vm->target;
}

pid_t vm_pid(const struct vm *vm)
{
	return vm->pid;
}

struct vm_console *vm_console(const struct vm *vm)
{
	return vm->console;
}

u64 vm_pid_start_time(const struct vm *vm)
{
	return vm->start_time;
}

enum vm_accel vm_accel(const struct vm *vm)
{
	return vm->accel;
}

u32 vm_vcpu_count(const struct vm *vm)
{
	return vm->n_vcpus;
}

enum vm_leaving vm_leaves(struct vm *vm)
{
	vm->leaving_told = false;
	return vm->ops->leaves && vm_alive(vm) ? vm->ops->leaves(vm) : VM_STAYS;
}

bool vm_tells_leaving(const struct vm *vm)
{
	return vm->leaving_told;
}

bool vm_silent(const struct vm *vm)
{
	return vm->ops->silent && vm->ops->silent(vm);
}

enum vm_end vm_end(struct vm *vm)
{
	return vm->ops->end ? vm->ops->end(vm) : VM_END_GONE;
}

enum vm_state vm_state(struct vm *vm)
{
	return vm_alive(vm) ? vm->ops->state(vm) : VM_GONE;
}

bool vm_ram_guessed(const struct vm *vm)
{
	return vm->ram_guessed;
}

size_t vm_ram_count(const struct vm *vm)
{
	return vm->n_ram - vm->has_spare;
}

const struct vm_ram *vm_ram(const struct vm *vm, size_t i)
{
	return &vm->ram[i].ram;
}

void vm_set_root(struct vm *vm, gpa_t root, int levels)
{
	vm->root = root;
	vm->levels = levels;
	memset(vm->tlb, 0, sizeof(vm->tlb));
}

static int read_entry(void *arg, u64 addr, u64 *entry_ret)
{
	struct vm *vm = arg;
	const struct ram_region *r = vm_find_ram(vm, addr);

	if (!r || (addr & 7))
		return -EFAULT;
	return vm_mem_read_region(vm, r, addr - r->ram.base.v, entry_ret, sizeof(*entry_ret));
}

int vm_walk(struct vm *vm, gva_t addr, struct vm_mapping *ret, struct err *err)
{
	struct pgtable pt = {
		.read_entry = read_entry, .arg = vm, .root = vm->root, .levels = vm->levels
	};

	if (!vm_alive(vm))
		return vm_gone(vm, err);
	return pgtable_walk(&pt, addr, ret, err);
}

/*
 * A walk of five reads, or of one: a translation found before holds while its leaf entry reads the
 * same. Kernels do not move page-table pages under a leaf that stays; a guest that plays tricks gets
 * its own RAM shown, nothing else, as every address is checked again when it is used.
 */
static int walk_cached(struct vm *vm, gva_t addr, struct vm_mapping *ret, struct err *err)
{
	u64 page = addr.v / PAGE_SIZE + 1;
	struct vm_tlb *t = &vm->tlb[page % VM_TLB_SLOTS];
	u64 entry;
	int rc;

	if (t->page == page && read_entry(vm, t->map.pte.v, &entry) == 0 && entry == t->map.entry) {
		*ret = t->map;
		ret->gpa.v += addr.v & ~PAGE_MASK;
		return 0;
	}
	rc = vm_walk(vm, addr, ret, err);
	if (rc < 0)
		return rc;
	t->page = page;
	t->map = *ret;
	t->map.gpa.v &= PAGE_MASK;
	return 0;
}

/* Both in one system call. */
static bool read_two(const struct vm *vm, u64 entry_at, u64 *entry, u64 at, void *buf, size_t len)
{
	const struct iovec local[2] = { { entry, sizeof(*entry) }, { buf, len } };
	const struct iovec remote[2] = { { (void *)(uintptr_t)entry_at, sizeof(*entry) },
					 { (void *)(uintptr_t)at, len } };

	return process_vm_readv(vm->pid, local, 2, remote, 2, 0) == (ssize_t)(sizeof(*entry) + len);
}

/*
 * The common case in few system calls: a few bytes of a page whose translation is known, read together
 * with the leaf entry that proves it. false: nothing is known, go the long way.
 */
static bool read_small(struct vm *vm, gva_t addr, void *buf, size_t len)
{
	u64 page = addr.v / PAGE_SIZE + 1;
	const struct vm_tlb *t = &vm->tlb[page % VM_TLB_SLOTS];
	const struct ram_region *pte;
	const struct ram_region *r;
	u64 entry = 0;
	u64 pte_off;
	u64 off;

	if (t->page != page || len == 0 || len > PAGE_SIZE - (addr.v & ~PAGE_MASK))
		return false;
	off = t->map.gpa.v + (addr.v & ~PAGE_MASK);
	r = vm_mem_find(vm, off);
	pte = vm_mem_find(vm, t->map.pte.v);
	if (!r || !pte)
		return false;
	off -= r->ram.base.v;
	pte_off = t->map.pte.v - pte->ram.base.v;
	if (r->backing || pte->backing) {
		if (vm_mem_read_region(vm, r, off, buf, len) < 0 ||
		    vm_mem_read_region(vm, pte, pte_off, &entry, sizeof(entry)) < 0)
			return false;
	} else if (!read_two(vm, pte->hva + pte_off, &entry, r->hva + off, buf, len)) {
		return false;
	}
	return entry == t->map.entry && vm_alive(vm);
}

int vm_read(struct vm *vm, gva_t addr, void *buf, size_t len, struct err *err)
{
	u8 *p = buf;

	if (read_small(vm, addr, buf, len))
		return 0;
	if (!vm_alive(vm))
		return vm_gone(vm, err);
	while (len) {
		struct vm_mapping m;
		size_t n;
		int rc = walk_cached(vm, addr, &m, err);

		if (rc < 0)
			return rc;
		n = MIN(len, m.page_bytes - (addr.v & (m.page_bytes - 1)));
		vm_find_ram(vm, m.gpa.v);
		rc = vm_read_phys(vm, m.gpa, p, n, err);
		if (rc < 0)
			return rc;
		p += n;
		addr.v += n;
		len -= n;
	}
	return 0;
}

int vm_write_data(struct vm *vm, gva_t addr, const void *buf, size_t len, struct err *err)
{
	const u8 *p = buf;

	while (len) {
		struct vm_mapping m;
		size_t n;
		int rc = vm_walk(vm, addr, &m, err);

		if (rc < 0)
			return rc;
		n = MIN(len, m.page_bytes - (addr.v & (m.page_bytes - 1)));
		vm_find_ram(vm, m.gpa.v);
		rc = vm_write_phys(vm, m.gpa, p, n, err);
		if (rc < 0)
			return rc;
		p += n;
		addr.v += n;
		len -= n;
	}
	return 0;
}

/* 1: it is held already. */
static int may_stop(const struct vm *vm, struct err *err)
{
	if (vm->held)
		return vm_alive(vm) ? 1 : vm_gone(vm, err);
	if (vm->window_open)
		return err_set(err, -EALREADY, ERR_CONFLICT, 0, "a stop window is open already");
	return vm_alive(vm) ? 0 : vm_gone(vm, err);
}

int vm_pause(struct vm *vm, u64 patience_ns, struct err *err)
{
	int rc = may_stop(vm, err);

	if (rc)
		return rc < 0 ? rc : 0;
	vm->window_write_ns = vm->window_write_n = 0;
	rc = vm_stop(vm, patience_ns, err);
	vm->window_open = rc == 0;
	if (rc == 0)
		vm_raise(vm);
	return rc;
}

int vm_resume(struct vm *vm, struct err *err)
{
	u64 ns;
	int rc;

	if (vm->held)
		return 0;
	if (!vm->window_open)
		return err_set(err, -EINVAL, ERR_CONFLICT, 0, "no stop window is open");
	vm->window_end_ns = 0;
	rc = vm->ops->resume(vm, err);
	vm_lower(vm);
	ns = (vm->window_end_ns ? vm->window_end_ns : monotonic_ns()) - vm->window_start_ns;
	vm->window_open = false;
	vm->windows.count++;
	vm->windows.last_ns = ns;
	vm->windows.total_ns += ns;
	vm->windows.max_ns = MAX(vm->windows.max_ns, ns);
	vm->windows.write_total_ns += vm->window_write_ns;
	vm->windows.write_max_ns = MAX(vm->windows.write_max_ns, vm->window_write_ns);
	vm->windows.write_max_n = MAX(vm->windows.write_max_n, vm->window_write_n);
	return rc;
}

int vm_hold(struct vm *vm, u64 timeout_ns, struct err *err)
{
	u64 held_ns;
	int rc = may_stop(vm, err);

	if (rc == 0)
		rc = vm_try_stop(vm, timeout_ns, &held_ns, err);
	if (rc < 0)
		return rc;
	vm->window_open = vm->held = true;
	return 0;
}

int vm_release(struct vm *vm, struct err *err)
{
	if (!vm->held)
		return err_set(err, -EINVAL, ERR_CONFLICT, 0, "the guest is not held");
	vm->held = false;
	vm->window_open = false;
	return vm->ops->resume(vm, err);
}

bool vm_held(const struct vm *vm)
{
	return vm->held;
}

/* Turns pieces of text into ones that lie in one page each. The window is open, so what was walked stays true. */
struct translation {
	struct vm_mapping m;
	u64 page; /* first byte that @m is of; m.page_bytes 0: of none */
};

static int translate(struct vm *vm, struct translation *t, u64 at, u64 *gpa_ret, struct err *err)
{
	int rc = 0;

	if (t->m.page_bytes == 0 || at - t->page >= t->m.page_bytes) {
		rc = vm_walk(vm, gva(at), &t->m, err);
		if (rc < 0)
			return rc;
		t->page = at & ~(t->m.page_bytes - 1);
		t->m.gpa.v -= at - t->page;
	}
	*gpa_ret = t->m.gpa.v + (at - t->page);
	if (!vm_mem_find(vm, *gpa_ret))
		return err_set(err, -EFAULT, ERR_GUEST_MEMORY, at, "0x%llx is not in RAM",
			       (unsigned long long)at);
	return 0;
}

/* At most two pieces of each, as one is at most 16 bytes. */
static int to_physical(struct vm *vm, struct translation *t, const struct vm_text *text,
		       struct vm_phys_text *out, size_t *n_ret, struct err *err)
{
	u32 done = 0;
	int rc;

	if (text->len == 0 || text->len > sizeof(text->bytes))
		return err_set(err, -EINVAL, ERR_NONE, text->addr.v, "a piece of text of %u bytes",
			       text->len);
	while (done < text->len) {
		u64 at = text->addr.v + done;
		u32 left = (u32)(PAGE_SIZE - (at & ~PAGE_MASK));
		struct vm_phys_text *p = &out[*n_ret];

		rc = translate(vm, t, at, &p->gpa, err);
		if (rc < 0)
			return rc;
		p->len = MIN(text->len - done, left);
		memcpy(p->bytes, text->bytes + done, p->len);
		done += p->len;
		(*n_ret)++;
	}
	return 0;
}

/* All is looked at before anything is written, but for what comes after TEXT_BATCH pieces. */
static int write_text(struct vm *vm, const struct vm_text *text, size_t n, struct err *err)
{
	_cleanup_free_ struct vm_phys_text *phys =
		malloc(MIN(n, (size_t)TEXT_BATCH) * 2 * sizeof(*phys));
	struct translation t = { .page = 0 };
	size_t k = 0;
	int rc = 0;

	if (!phys)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for %zu pieces of text",
			       n);
	for (size_t i = 0; !rc && i < n; i++) {
		rc = to_physical(vm, &t, &text[i], phys, &k, err);
		if (!rc && ((i + 1) % TEXT_BATCH == 0 || i + 1 == n)) {
			rc = vm->ops->write_text(vm, phys, k, err);
			k = 0;
		}
	}
	return rc;
}

int vm_write_text(struct vm *vm, const struct vm_text *text, size_t n, struct err *err)
{
	u64 start = monotonic_ns();
	int rc;

	if (!vm->window_open)
		return err_set(err, -EINVAL, ERR_CONFLICT, 0, "no stop window is open");
	if (n == 0)
		return 0;
	rc = write_text(vm, text, n, err);
	vm->window_write_ns += monotonic_ns() - start;
	vm->window_write_n += n;
	return rc;
}

void vm_windows(const struct vm *vm, struct vm_windows *ret)
{
	*ret = vm->windows;
}

int vm_vcpu_regs(struct vm *vm, u32 vcpu, struct vm_regs *ret, struct err *err)
{
	if (!vm->ops->vcpu_regs)
		return err_set(err, -ENOTSUP, ERR_NONE, 0, "%s has no way to read registers",
			       vm->target);
	if (!vm_alive(vm))
		return vm_gone(vm, err);
	return vm->ops->vcpu_regs(vm, vcpu, ret, err);
}
