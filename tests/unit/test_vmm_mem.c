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

static u8 pattern(u64 off)
{
	return (u8)(off * 7 + off / 4096);
}

/* A "VMM": a child whose copy of @ram is another than ours from its first write on. */
static void start_vmm(void)
{
	int ready[2];
	char byte = 0;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	ram = mmap(NULL, RAM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(ram != MAP_FAILED);
	for (u64 i = 0; i < RAM; i++)
		ram[i] = pattern(i);
	vmm = fork();
	if (vmm == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (u64 i = 0; i < RAM; i += 4096)
			((volatile u8 *)ram)[i] = pattern(i);
		(void)!write(ready[1], "1", 1);
		for (;;)
			pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
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
		cmocka_unit_test(of_a_process_that_ended),
	};

	start_vmm();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
