// SPDX-License-Identifier: Apache-2.0
/* Text of a guest whose RAM is anonymous memory of its VMM: another process's, by vmm/vm_mem.c. */
#include "vmm/vm_ops.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define RAM   (16ull << 20)
#define BASE  0x100000ull
#define SITES 35609u /* those of a stock kernel */

static u8 *ram; /* ours; the VMM's is at the same address */
static pid_t vmm;
static int orders[2], answers[2];

static u8 pattern(u64 off)
{
	return (u8)(off * 7 + off / 4096);
}

/* What the VMM does when it is told to. */
static void obey(char order)
{
	int fd;

	if (order == 'f') {
		fd = memfd_create("other", MFD_CLOEXEC);
		if (fd < 0 || ftruncate(fd, RAM / 2) ||
		    mmap(ram + RAM / 2, RAM / 2, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
			 0) == MAP_FAILED)
			_exit(1);
	} else if (munmap(ram + RAM / 4, RAM / 4)) {
		_exit(1);
	}
	(void)!write(answers[1], "1", 1);
}

/* A "VMM": a child whose copy of @ram is another than ours from its first write on. */
static void start_vmm(void)
{
	char byte = 0;

	assert_int_equal(pipe2(orders, O_CLOEXEC) | pipe2(answers, O_CLOEXEC), 0);
	ram = mmap(NULL, RAM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(ram != MAP_FAILED);
	for (u64 i = 0; i < RAM; i++)
		ram[i] = pattern(i);
	vmm = fork();
	if (vmm == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (u64 i = 0; i < RAM; i += 4096)
			((volatile u8 *)ram)[i] = pattern(i);
		(void)!write(answers[1], "1", 1);
		while (read(orders[0], &byte, 1) == 1)
			obey(byte);
		_exit(0);
	}
	assert_int_equal(read(answers[0], &byte, 1), 1);
}

static struct vm *attached(void)
{
	struct vm *vm = calloc(1, sizeof(*vm));
	char path[32];

	assert_non_null(vm);
	vm->pid = vmm;
	vm->pidfd = (int)syscall(SYS_pidfd_open, vmm, 0);
	snprintf(path, sizeof(path), "/proc/%d/mem", (int)vmm);
	vm->mem = open(path, O_RDWR | O_CLOEXEC);
	assert_true(vm->pidfd >= 0 && vm->mem >= 0);
	assert_int_equal(vm_mem_add(vm, gpa(BASE), RAM, (u64)(uintptr_t)ram, NULL), 0);
	return vm;
}

static void detach(struct vm *vm)
{
	close(vm->mem);
	close(vm->pidfd);
	free(vm);
}

/* Writes @t, and compares all of RAM with what it should be then. */
static void check(struct vm *vm, const struct vm_phys_text *t, size_t n)
{
	u8 *now = malloc(RAM);

	assert_non_null(now);
	assert_int_equal(vm_mem_write_text(vm, t, n, NULL), 0);
	for (size_t i = 0; i < n; i++)
		memcpy(ram + (t[i].gpa - BASE), t[i].bytes, t[i].len);
	assert_int_equal(vm_read_phys(vm, gpa(BASE), now, RAM, NULL), 0);
	assert_memory_equal(now, ram, RAM);
	free(now);
}

static struct vm_phys_text piece(u64 off, u32 len, u8 with)
{
	struct vm_phys_text t = { .gpa = BASE + off, .len = len };

	memset(t.bytes, with, sizeof(t.bytes));
	return t;
}

static void every_byte_between_is_left(void **state)
{
	static struct vm_phys_text t[8192];
	struct vm *vm = attached();
	u64 seed = 1;
	size_t n;

	(void)state;
	/* one alone, at the ends of RAM; neighbours without a gap; the ends of a page */
	t[0] = piece(0, 1, 1);
	t[1] = piece(RAM - 16, 16, 2);
	check(vm, t, 2);
	t[0] = piece(4096, 5, 3);
	t[1] = piece(4101, 5, 4);
	t[2] = piece(8191, 1, 5);
	t[3] = piece(8192, 4, 6);
	check(vm, t, 4);
	/* not in order, and one over the other: the later one counts */
	t[0] = piece(20000, 8, 7);
	t[1] = piece(19996, 8, 8);
	t[2] = piece(20002, 8, 9);
	check(vm, t, 3);
	/* any, on more pages than go at once */
	for (n = 0; n < ARRAY_SIZE(t); n++) {
		u64 off;

		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		off = (seed >> 20) % (RAM - 16);
		t[n] = piece(off, 1 + (u32)(seed >> 60), (u8)n);
		t[n].len = (u32)MIN(t[n].len, 4096 - off % 4096);
	}
	check(vm, t, n);
	assert_int_equal(vm_mem_write_text(vm,
					   &(struct vm_phys_text){ .gpa = BASE + RAM, .len = 1 }, 1,
					   NULL),
			 -EFAULT);
	detach(vm);
}

static void everything_at_once(void **state)
{
	static struct vm_phys_text t[SITES];
	struct vm *vm = attached();
	u64 start;

	(void)state;
	for (u32 i = 0; i < SITES; i++)
		t[i] = piece((u64)i * 464 + i % 7,
			     (u32)MIN(5ull, 4096 - ((u64)i * 464 + i % 7) % 4096), (u8)i);
	start = monotonic_ns();
	assert_int_equal(vm_mem_write_text(vm, t, SITES, NULL), 0);
	print_message("%u pieces on %u pages in %.2f ms\n", SITES, SITES * 464 / 4096,
		      (double)(monotonic_ns() - start) / 1e6);
	check(vm, t, SITES);
	detach(vm);
}

static u32 n_listed;

/* What the VMM says once the second half of its RAM has been unplugged. */
static int first_half(struct vm *vm, struct err *err)
{
	n_listed++;
	return vm_mem_add(vm, gpa(BASE), RAM / 2, (u64)(uintptr_t)ram, err);
}

static int read_at(struct vm *vm, u64 off)
{
	u8 byte;

	return vm_read_phys(vm, gpa(BASE + off), &byte, 1, NULL);
}

/* The VMM uses the addresses of RAM that was unplugged for something else: none of it is taken for the guest's. */
static void what_was_unplugged_is_not_read(void **state)
{
	static const struct vm_ops ops = { .list_ram = first_half };
	u8 *half = ram + RAM / 2;
	struct vm *vm = attached();

	(void)state;
	vm->n_ram = 0;
	vm->ops = &ops;
	assert_int_equal(vm_mem_add(vm, gpa(BASE), RAM / 2, (u64)(uintptr_t)ram, NULL), 0);
	assert_int_equal(vm_mem_add(vm, gpa(BASE + RAM / 2), RAM / 2, (u64)(uintptr_t)half, NULL),
			 0);
	assert_int_equal(vm_mem_open(vm, NULL), 0);
	vm_check_ram(vm);
	assert_int_equal(n_listed, 0);
	assert_int_equal(read_at(vm, RAM / 2), 0);

	assert_int_equal(write(orders[1], "f", 1), 1); /* a file of the VMM's is there instead */
	assert_int_equal(read(answers[0], &(char){ 0 }, 1), 1);
	assert_int_equal(read_at(vm, RAM / 2), 0); /* nobody has looked yet */
	vm_check_ram(vm); /* nor now: it was looked at just before */
	assert_int_equal(n_listed, 0);
	vm->ram_checked_ns = 0;
	vm_check_ram(vm);
	assert_int_equal(n_listed, 1);
	assert_int_equal(vm_ram_count(vm), 1);
	assert_int_equal(read_at(vm, RAM / 2), -EFAULT);
	assert_int_equal(read_at(vm, RAM / 2 - 1), 0);
	vm->ram_checked_ns = vm->ram_listed_ns = 0;
	vm_check_ram(vm);
	assert_int_equal(n_listed, 1); /* all of it is there */

	assert_int_equal(write(orders[1], "u", 1),
			 1); /* and nothing, from the middle of the rest on */
	assert_int_equal(read(answers[0], &(char){ 0 }, 1), 1);
	assert_false(vm_mem_is_there(vm));
	detach(vm);
}

/* RAM as the VMM says it is now: one region, a page further each time, and some that stays. */
static u64 plugged_at;

static int list_plugged(struct vm *vm, struct err *err)
{
	int rc = vm_mem_add(vm, gpa(BASE), 4096, (u64)(uintptr_t)ram, err);

	return rc ? rc
		  : vm_mem_add(vm, gpa(BASE + plugged_at), 4096, (u64)(uintptr_t)ram + plugged_at,
			       err);
}

static bool look(struct vm *vm)
{
	vm->ram_listed_ns = 0; /* as if it were long ago */
	return vm_more_ram(vm);
}

static void be_mapped(struct vm *vm, struct ram_region *r)
{
	int fd = memfd_create("a page", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	r->backing = backing_create(vm, fd, 0, 4096);
	assert_non_null(r->backing);
	assert_non_null(backing_map(r->backing));
}

/* Where what went was mapped here nothing else comes until the end, as somebody may look there: of so many, and no more. */
static void ram_that_comes_and_goes(void **state)
{
	static const struct vm_ops ops = { .name = "test", .list_ram = list_plugged };
	struct vm *vm = attached();
	struct backing *b;
	u8 byte;

	(void)state;
	vm->ops = &ops;
	vm->n_ram = 0;
	plugged_at = 4096;
	assert_true(look(vm));
	assert_int_equal(vm->n_ram, 2);
	for (u64 i = 0; i < VM_MAX_RAM; i++) {
		be_mapped(vm, &vm->ram[1]);
		plugged_at += 8192;
		assert_true(look(vm));
		assert_int_equal(vm->n_gone_ram, i + 1);
		assert_false(look(vm)); /* nothing has changed since */
	}
	/* one more has no place: the RAM that is known stays, with its mapping, and so it is each time */
	be_mapped(vm, &vm->ram[1]);
	b = vm->ram[1].backing;
	plugged_at += 8192;
	for (int i = 0; i < 3; i++) {
		assert_false(look(vm));
		assert_int_equal(vm->n_gone_ram, VM_MAX_RAM);
		assert_int_equal(vm->n_ram, 2);
		assert_int_equal(vm->ram[1].ram.base.v, BASE + plugged_at - 8192);
		assert_ptr_equal(vm->ram[1].backing, b);
		assert_int_equal(backing_read(&byte, b->map, 1), 0); /* still mapped */
	}
	/* one that was never mapped needs none */
	backing_destroy(vm, b);
	vm->ram[1].backing = NULL;
	assert_true(look(vm));
	assert_int_equal(vm->ram[1].ram.base.v, BASE + plugged_at);
	vm_more_ram_close(vm);
	assert_int_equal(vm->n_gone_ram, 0);
	vm_mem_close(vm);
	detach(vm);
}

static void of_a_process_that_ended(void **state)
{
	struct vm_phys_text t[2] = { piece(100, 5, 1), piece(200, 5, 2) };
	struct vm *vm = attached();

	(void)state;
	kill(vmm, SIGKILL);
	assert_int_equal(waitpid(vmm, NULL, 0), vmm);
	assert_int_equal(vm_mem_write_text(vm, t, 2, NULL), -ESRCH);
	detach(vm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_byte_between_is_left),
		cmocka_unit_test(everything_at_once),
		cmocka_unit_test(what_was_unplugged_is_not_read),
		cmocka_unit_test(ram_that_comes_and_goes),
		cmocka_unit_test(of_a_process_that_ended),
	};

	start_vmm();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
