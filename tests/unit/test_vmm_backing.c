// SPDX-License-Identifier: Apache-2.0
/* RAM that is a file of its VMM's: what is held of it, until when, and what reading it never does. */
#include "vmm/vm_ops.h"

#include "base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define NAME  "ram-of-a-test"
#define RAM   (16ull << 20)
#define HUGE  (2ull << 20)
#define ROOT  0x1000ull /* and a table a page behind it */
#define PAGES 64u
#define GVA   0x200000ull /* page i of it is at DATA + 2 i */
#define DATA  0x100000ull
#define HOLE  0x800000ull /* the second half is given back by then */
#define ENTRY 0x63ull

struct guest {
	pid_t pid;
	int fd; /* ours, for a look at the file; -1 */
	u8 *at; /* in the child; not ours */
	struct vm *vm;
};

static u64 entry_of(u64 gpa)
{
	return gpa | ENTRY;
}

static void fill(u8 *ram)
{
	u64 *table = (u64 *)(void *)(ram + ROOT);

	table[0] = entry_of(ROOT + 0x1000);
	table[511] = entry_of(HOLE); /* a table that is not there */
	table[512] = entry_of(ROOT + 0x2000);
	table[1024 + GVA / HUGE] = entry_of(ROOT + 0x3000);
	for (u64 i = 0; i < PAGES; i++) {
		table[1536 + i] = entry_of(DATA + i * 2 * PAGE_SIZE);
		memset(ram + DATA + i * 2 * PAGE_SIZE, (int)i + 1, PAGE_SIZE);
	}
	table[1536 + PAGES] = entry_of(HOLE + 0x1000); /* a page that is not there */
}

/* A "VMM" whose guest's RAM is a memfd; this process has none of it. */
static void start(struct guest *g, unsigned int flags, int seals, bool keep_fd)
{
	int fd = memfd_create(NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
	pid_t test = getpid();
	char path[32];

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)RAM), 0);
	assert_true(seals == 0 || fcntl(fd, F_ADD_SEALS, seals) == 0);
	g->at = mmap(NULL, RAM, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	assert_true(g->at != MAP_FAILED);
	if (!(flags & MFD_HUGETLB))
		fill(g->at);
	fflush(NULL);
	g->pid = fork();
	if (g->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (getppid() == test)
			pause();
		_exit(1);
	}
	assert_true(g->pid > 0);
	munmap(g->at, RAM);
	g->fd = keep_fd ? fd : -1;
	if (!keep_fd)
		close(fd);
	g->vm = calloc(1, sizeof(*g->vm));
	assert_non_null(g->vm);
	g->vm->pid = g->pid;
	g->vm->pidfd = (int)syscall(SYS_pidfd_open, g->pid, 0);
	snprintf(path, sizeof(path), "/proc/%d/mem", (int)g->pid);
	g->vm->mem = open(path, O_RDWR | O_CLOEXEC);
	assert_true(g->vm->pidfd >= 0 && g->vm->mem >= 0);
	assert_int_equal(vm_mem_add(g->vm, gpa(0), RAM / 2, (u64)(uintptr_t)g->at, NULL), 0);
	assert_int_equal(
		vm_mem_add(g->vm, gpa(RAM / 2), RAM / 2, (u64)(uintptr_t)g->at + RAM / 2, NULL), 0);
	assert_int_equal(vm_mem_open(g->vm, NULL), 0);
	assert_non_null(g->vm->ram[0].backing);
	vm_set_root(g->vm, gpa(ROOT), 4);
}

static void end(struct guest *g)
{
	kill(g->pid, SIGKILL);
	waitpid(g->pid, NULL, 0);
	vm_mem_close(g->vm);
	vm_more_ram_close(g->vm);
	assert_null(g->vm->backings);
	close(g->vm->mem);
	close(g->vm->pidfd);
	if (g->fd >= 0)
		close(g->fd);
	free(g->vm);
}

/* How often this process has the test's memfd: as a descriptor, or mapped. */
static int held(void)
{
	DIR *d = opendir("/proc/self/fd");
	FILE *f = fopen("/proc/self/maps", "re");
	struct dirent *e;
	char text[512];
	int n = 0;

	assert_true(d && f);
	while ((e = readdir(d))) {
		ssize_t len = readlinkat(dirfd(d), e->d_name, text, sizeof(text) - 1);

		if (len < 0)
			continue;
		text[len] = '\0';
		n += strstr(text, NAME) != NULL;
	}
	while (fgets(text, sizeof(text), f))
		n += strstr(text, NAME) != NULL;
	closedir(d);
	fclose(f);
	return n;
}

struct reader {
	struct vm_view *view;
	atomic_uint rounds;
	atomic_int rc;
};

static void *read_on(void *arg)
{
	struct reader *r = arg;
	u8 buf[3 * PAGE_SIZE], was;
	u64 at = 0;

	while (!r->rc) {
		r->rc = vm_view_read(r->view, at, buf, sizeof(buf));
		/* what is told to be the guest's is the guest's */
		was = (u8)(at / PAGE_SIZE + 1);
		if (!r->rc && (buf[0] != was || buf[sizeof(buf) - 1] != was + 2))
			r->rc = -EILSEQ;
		if (!r->rc)
			r->rc = vm_view_write(r->view, at, buf, sizeof(buf));
		at = (at + PAGE_SIZE) % ((PAGES - 3) * PAGE_SIZE);
		r->rounds++;
	}
	return NULL;
}

static void wait_rounds(struct reader *r, unsigned int more)
{
	unsigned int until = r->rounds + more;

	while (r->rounds < until && !r->rc)
		usleep(100);
	assert_int_equal(r->rc, 0);
}

/* Of a guest that has ended nothing is held, although nobody has let go of it, and a view is being read. */
static void a_guest_that_ended(void **state)
{
	struct reader r = { .view = NULL };
	struct guest g;
	pthread_t thread;
	u8 byte;

	(void)state;
	start(&g, 0, F_SEAL_SHRINK | F_SEAL_GROW, false);
	assert_int_equal(held(), 2);
	assert_int_equal(vm_view_create(g.vm, gva(GVA), PAGES * PAGE_SIZE, &r.view, NULL), 0);
	assert_int_equal(held(), 3); /* it is mapped for a view, and only what the view needs */
	assert_null(g.vm->ram[1].backing->map);
	assert_int_equal(pthread_create(&thread, NULL, read_on, &r), 0);
	wait_rounds(&r, 1000);
	kill(g.pid, SIGKILL);
	assert_int_equal(waitpid(g.pid, NULL, 0), g.pid);
	assert_false(vm_alive(g.vm));
	assert_int_equal(held(), 0);
	pthread_join(thread, NULL);
	assert_int_equal(r.rc, -ESRCH);
	assert_int_equal(vm_view_read(r.view, 0, &byte, 1), -ESRCH);
	assert_int_equal(vm_view_write(r.view, 0, &byte, 1), -ESRCH);
	assert_int_equal(vm_read_phys(g.vm, gpa(DATA), &byte, 1, NULL), -ESRCH);
	assert_int_equal(vm_read(g.vm, gva(GVA), &byte, 1, NULL), -ESRCH);
	vm_view_destroy(r.view);
	end(&g);
}

static u64 listed;

static int list_some(struct vm *vm, struct err *err)
{
	return vm_mem_add(vm, gpa(RAM / 2), RAM / 2, listed, err);
}

/* The half in which the view is is plugged out: dropped, and what was in it is not there to be read. */
static void ram_that_went(void **state)
{
	static const struct vm_ops ops = { .name = "test", .list_ram = list_some };
	struct reader r = { .view = NULL };
	struct guest g;
	pthread_t thread;

	(void)state;
	start(&g, 0, F_SEAL_SHRINK, false);
	listed = g.vm->ram[1].hva;
	g.vm->ops = &ops;
	assert_int_equal(vm_view_create(g.vm, gva(GVA), PAGES * PAGE_SIZE, &r.view, NULL), 0);
	assert_int_equal(pthread_create(&thread, NULL, read_on, &r), 0);
	wait_rounds(&r, 1000);
	assert_int_equal(held(), 3);
	assert_true(vm_more_ram(g.vm));
	assert_int_equal(held(), 1); /* the descriptor of the half that is there */
	pthread_join(thread, NULL);
	assert_int_equal(r.rc, -EFAULT);
	vm_view_destroy(r.view);
	end(&g);
}

static u64 blocks(const struct guest *g)
{
	struct stat st;

	assert_int_equal(fstat(g->fd, &st), 0);
	return (u64)st.st_blocks;
}

/* A guest's tables may lead to what it has given back: that is looked at, and stays given back. */
static void a_hole_stays_a_hole(void **state)
{
	static const int seals[] = { F_SEAL_SHRINK, 0 };
	u8 page[PAGE_SIZE], byte = 1;
	struct vm_mapping m;
	struct guest g;
	u64 before;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(seals); i++) {
		start(&g, 0, seals[i], true);
		assert_int_equal(fallocate(g.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					   (off_t)HOLE, (off_t)(RAM - HOLE)),
				 0);
		before = blocks(&g);
		assert_int_equal(vm_walk(g.vm, gva(511ull << 39 | 0xffffull << 48), &m, NULL),
				 -EFAULT);
		for (int k = 0; k < 2; k++) { /* walked, and known by then */
			assert_int_equal(
				vm_read(g.vm, gva(GVA + PAGES * PAGE_SIZE), &byte, 1, NULL), 0);
			assert_int_equal(byte, 0);
		}
		assert_int_equal(
			vm_read(g.vm, gva(GVA + PAGES * PAGE_SIZE), page, sizeof(page), NULL), 0);
		assert_int_equal(vm_read_phys(g.vm, gpa(HOLE), &byte, 1, NULL), 0);
		assert_int_equal(blocks(&g), before);
		assert_int_equal(vm_read(g.vm, gva(GVA), &byte, 1, NULL), 0);
		assert_int_equal(byte, 1);
		end(&g);
	}
}

/* Huge pages of which the host has none left: not mapped, and an error. */
static void no_huge_page_is_left(void **state)
{
	int fd = memfd_create("huge", MFD_HUGETLB | MFD_CLOEXEC);
	struct vm_view *view = NULL;
	struct backing *b;
	struct guest g;
	void *p;
	u8 byte;

	(void)state;
	if (fd < 0)
		skip();
	assert_int_equal(ftruncate(fd, (off_t)HUGE), 0);
	p = mmap(NULL, HUGE, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (p != MAP_FAILED) { /* there is one */
		munmap(p, HUGE);
		skip();
	}
	start(&g, MFD_HUGETLB, F_SEAL_SHRINK, false);
	b = g.vm->ram[0].backing;
	assert_null(backing_map(b));
	assert_int_equal(vm_read_phys(g.vm, gpa(0), &byte, 1, NULL), 0);
	assert_int_equal(byte, 0);
	assert_int_equal(vm_view_create(g.vm, gva(GVA), 1, &view, NULL), -EFAULT);
	assert_int_equal(vm_mem_read_hva(g.vm, g.vm->ram[0].hva, &byte, 1), -EFAULT);
	end(&g);
}

/* In a child of the test's: what a fault that is no copy's, or a signal that was sent, does to its process. */
static void other_bus_error(struct guest *g, bool sent)
{
	int fd = memfd_create("short", MFD_CLOEXEC);
	volatile u8 *p = mmap(NULL, PAGE_SIZE, PROT_READ, MAP_SHARED, fd, 0);

	signal(SIGBUS, SIG_DFL); /* not cmocka's */
	(void)backing_map(g->vm->ram[0].backing);
	if (sent)
		raise(SIGBUS);
	else
		(void)*p;
	_exit(0);
}

/* Memory that fails under a copy is an error of that copy, and any other SIGBUS what it was before. */
static void memory_that_fails(void **state)
{
	struct vm_view *view = NULL;
	struct guest g;
	u8 buf[2 * PAGE_SIZE];
	int status;

	(void)state;
	start(&g, 0, 0, true);
	g.vm->ram[0].backing->may_map = true; /* as if it could not be cut */
	assert_int_equal(vm_view_create(g.vm, gva(GVA), PAGES * PAGE_SIZE, &view, NULL), 0);
	assert_int_equal(vm_view_read(view, 0, buf, sizeof(buf)), 0);
	assert_int_equal(buf[PAGE_SIZE], 2);
	assert_int_equal(ftruncate(g.fd, (off_t)(DATA + 2 * PAGE_SIZE)), 0);
	for (int i = 0; i < 3; i++) { /* the signal is not blocked afterwards */
		assert_int_equal(vm_view_read(view, 100, buf, sizeof(buf)), -EFAULT);
		assert_int_equal(vm_view_write(view, 100, buf, sizeof(buf)), -EFAULT);
		assert_int_equal(vm_view_read(view, 0, buf, PAGE_SIZE), 0);
	}
	for (int sent = 0; sent < 2; sent++) {
		pid_t child = fork();

		if (child == 0)
			other_bus_error(&g, sent);
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
	}
	vm_view_destroy(view);
	end(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_guest_that_ended),  cmocka_unit_test(ram_that_went),
		cmocka_unit_test(a_hole_stays_a_hole), cmocka_unit_test(no_huge_page_is_left),
		cmocka_unit_test(memory_that_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
