// SPDX-License-Identifier: Apache-2.0
/* Shared backends of guest RAM. See backing.h. */
#include "vmm/backing.h"

#include "base/cleanup.h"
#include "vmm/vm_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/vfs.h>

/* A copy that may fault, on the stack of the thread that makes it. */
struct guard {
	sigjmp_buf env;
	uintptr_t at, len;
};

/* Of all guests: held for a change of a list, or of what is behind a number or an address, and no longer. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* An empty file that cannot grow: reading gives no byte, a mapping faults. */
static int nothing = -1;
static struct sigaction before;
static _Thread_local struct guard *volatile guarded;

/* Whatever is not a copy of ours goes where it went before us: by default the process ends. */
static void on_sigbus(int sig, siginfo_t *info, void *context)
{
	struct guard *g = guarded;

	(void)context;
	if (g && info->si_code > 0 && (uintptr_t)info->si_addr - g->at < g->len)
		siglongjmp(g->env, 1);
	sigaction(sig, &before, NULL);
	if (info->si_code <= 0) /* sent by somebody; a fault comes again by itself */
		raise(sig);
}

/* Under the lock, as is handle_sigbus(). */
static bool have_nothing(void)
{
	if (nothing >= 0)
		return true;
	nothing = memfd_create("hvftrace-nothing", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (nothing < 0 || fcntl(nothing, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SEAL) == 0)
		return nothing >= 0;
	close(nothing);
	nothing = -1;
	return false;
}

/* Again whenever somebody has put another in its place. */
static bool handle_sigbus(void)
{
	const struct sigaction ours = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO };
	struct sigaction now;

	if (sigaction(SIGBUS, NULL, &now) < 0)
		return false;
	if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_sigbus)
		return true;
	before = now;
	return sigaction(SIGBUS, &ours, NULL) == 0;
}

struct backing *backing_create(struct vm *vm, int fd, u64 fd_off, u64 len)
{
	struct backing *b = calloc(1, sizeof(*b));
	struct statfs fs;
	int seals = fcntl(fd, F_GET_SEALS);
	bool ok;

	pthread_mutex_lock(&lock);
	ok = b && have_nothing();
	if (ok) {
		b->fd = fd;
		b->fd_off = fd_off;
		b->len = len;
		/* hugetlbfs has seals, too */
		b->may_map = seals > 0 && (seals & F_SEAL_SHRINK) && fstatfs(fd, &fs) == 0 &&
			     fs.f_type == TMPFS_MAGIC;
		b->next = vm->backings;
		vm->backings = b;
	}
	pthread_mutex_unlock(&lock);
	if (ok)
		return b;
	close(fd);
	free(b);
	return NULL;
}

void backing_destroy(struct vm *vm, struct backing *b)
{
	struct backing **at = &vm->backings;

	if (!b)
		return;
	pthread_mutex_lock(&lock);
	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	pthread_mutex_unlock(&lock);
	if (b->map)
		munmap(b->map, b->len);
	close(b->fd);
	free(b);
}

u8 *backing_map(struct backing *b)
{
	void *p;

	if (!b->may_map)
		return NULL;
	pthread_mutex_lock(&lock);
	if (handle_sigbus() && !b->map) {
		p = mmap(NULL, b->len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, b->fd,
			 (off_t)b->fd_off);
		if (p != MAP_FAILED) {
			/* a child of ours has no business in a guest's RAM */
			madvise(p, b->len, MADV_DONTFORK);
			madvise(p, b->len, MADV_DONTDUMP);
			b->map = p;
		}
	}
	pthread_mutex_unlock(&lock);
	return b->map;
}

/*
 * Both system calls put the new in the old's place in one step, to whoever uses it at the same time. Not anonymous
 * memory: what is read there would be zeros, and taken for the guest's; and it is accounted for where the host
 * does not overcommit, as large as the guest is. If one fails the memory is held until backing_destroy(). Return: a
 * descriptor to close without the lock, as freeing a large backend takes seconds; -1 when there is none.
 */
static int drop(struct backing *b)
{
	int last = fcntl(b->fd, F_DUPFD_CLOEXEC, 0);

	b->dropped = true;
	(void)dup3(nothing, b->fd, O_CLOEXEC);
	if (b->map)
		(void)mmap(b->map, b->len, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_FIXED | MAP_NORESERVE, nothing, 0);
	return last;
}

void backing_drop(struct backing *b)
{
	int last = -1;

	pthread_mutex_lock(&lock);
	if (!b->dropped)
		last = drop(b);
	pthread_mutex_unlock(&lock);
	if (last >= 0)
		close(last);
}

void backing_drop_all(const struct vm *vm)
{
	struct backing *b;

	do {
		int last = -1;

		pthread_mutex_lock(&lock);
		for (b = vm->backings; b && b->dropped;)
			b = b->next;
		if (b)
			last = drop(b);
		pthread_mutex_unlock(&lock);
		if (last >= 0)
			close(last);
	} while (b);
}

/* @map is the side that may fault. An uncorrectable error is told by its page's address. */
static int copy(void *dst, const void *src, const u8 *map, size_t len)
{
	struct guard g = { .at = (uintptr_t)map & PAGE_MASK };
	sigset_t bus;

	g.len = (uintptr_t)map + len - g.at;
	if (sigsetjmp(g.env, 0)) { /* to keep the mask would be a system call for each copy */
		sigemptyset(&bus);
		sigaddset(&bus, SIGBUS);
		pthread_sigmask(SIG_UNBLOCK, &bus, NULL);
		guarded = NULL;
		return -EFAULT;
	}
	guarded = &g;
	atomic_signal_fence(memory_order_seq_cst);
	vm_mem_copy(dst, src, len);
	atomic_signal_fence(memory_order_seq_cst);
	guarded = NULL;
	return 0;
}

int backing_read(void *dst, const u8 *map, size_t len)
{
	return copy(dst, map, map, len);
}

int backing_write(u8 *map, const void *src, size_t len)
{
	return copy(map, src, map, len);
}
