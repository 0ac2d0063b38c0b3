// SPDX-License-Identifier: Apache-2.0
/* Which pages of RAM there are: all that are found, nothing that is not, and at what cost. */
#include "vmm/vm_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#define HVA     0x10000000ull
#define BASE    0x100000000ull
#define GIB     (1ull << 30)
#define FRAME   (2ull << 20)
#define RAM     (8 * GIB)
#define PRESENT (1ull << 63)
#define SWAPPED (1ull << 62)

static struct vm vm;
static u64 *map; /* of RAM's pages, as /proc/PID/pagemap has it */

static int start(void **state)
{
	(void)state;
	memset(&vm, 0, sizeof(vm));
	vm.pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	vm.pagemap = memfd_create("pagemap", MFD_CLOEXEC);
	assert_true(vm.pidfd >= 0 && vm.pagemap >= 0);
	assert_int_equal(ftruncate(vm.pagemap, (off_t)((HVA + RAM) / PAGE_SIZE * 8)), 0);
	map = mmap(NULL, (HVA + RAM) / PAGE_SIZE * 8, PROT_READ | PROT_WRITE, MAP_SHARED,
		   vm.pagemap, 0);
	assert_true(map != MAP_FAILED);
	map += HVA / PAGE_SIZE;
	assert_int_equal(vm_mem_add(&vm, gpa(BASE), RAM, HVA, NULL), 0);
	return 0;
}

static int end(void **state)
{
	(void)state;
	vm_mem_close(&vm);
	munmap(map - HVA / PAGE_SIZE, (HVA + RAM) / PAGE_SIZE * 8);
	close(vm.pagemap);
	close(vm.pidfd);
	return 0;
}

/* What this process has read by system calls. */
static u64 bytes_read(void)
{
	unsigned long long n = 0;
	FILE *f = fopen("/proc/self/io", "re");

	if (!f || fscanf(f, "rchar: %llu", &n) != 1)
		n = 0;
	if (f)
		fclose(f);
	return n;
}

static void fill(u64 from, u64 len, u64 with)
{
	for (u64 at = from; at < from + len; at += PAGE_SIZE)
		map[at / PAGE_SIZE] = with;
}

/* Of large RAM that is all there a part is told at once, and the rest when it is asked for. */
static void a_run_is_told_before_its_end(void **state)
{
	u64 before, len, total = 0, runs = 0;
	gpa_t at = gpa(0);

	(void)state;
	fill(0, RAM, PRESENT);
	fill(5 * GIB, PAGE_SIZE, 0);
	before = bytes_read();
	if (!before)
		skip();
	assert_true(vm_next_resident(&vm, gpa(0), &at, &len));
	assert_int_equal(at.v, BASE);
	assert_in_range(len, GIB, GIB + (64 << 20));
	assert_in_range(bytes_read() - before, 1, 3 << 20);
	while (vm_next_resident(&vm, at, &at, &len)) {
		total += len;
		runs++;
		at.v += len;
	}
	assert_int_equal(total, RAM - PAGE_SIZE);
	assert_in_range(runs, 8, 10);
	/* and of no more than a frame each where one begins */
	before = bytes_read();
	total = 0;
	for (at = gpa(0); vm_next_frame(&vm, at, FRAME, &at); at.v += FRAME)
		total++;
	assert_int_equal(total, RAM / FRAME - 1); /* the hole is where one begins */
	assert_in_range(bytes_read() - before, 1, 256 << 10);
}

/* What was swapped out is not read in for a search of all; for a look at one page it is. */
static void swapped_is_not_resident(void **state)
{
	gpa_t at;
	u64 len;

	(void)state;
	fill(0, RAM, 0);
	assert_false(vm_next_resident(&vm, gpa(0), &at, &len));
	assert_false(vm_next_frame(&vm, gpa(0), FRAME, &at));
	fill(GIB, FRAME, SWAPPED);
	fill(2 * GIB + PAGE_SIZE, 2 * PAGE_SIZE, PRESENT);
	assert_true(vm_next_resident(&vm, gpa(BASE + 5), &at, &len));
	assert_int_equal(at.v, BASE + 2 * GIB + PAGE_SIZE);
	assert_int_equal(len, 2 * PAGE_SIZE);
	assert_true(vm_next_frame(&vm, gpa(BASE + 5), FRAME, &at));
	assert_int_equal(at.v, BASE + GIB);
	assert_false(vm_next_frame(&vm, gpa(BASE + GIB + 1), FRAME, &at));
}

/* A backend says itself what it has. */
static void of_a_file(void **state)
{
	int fd = memfd_create("ram", MFD_CLOEXEC);
	gpa_t at;
	u64 len;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)(RAM + GIB)), 0);
	assert_int_equal(pwrite(fd, "x", 1, 5), 1); /* before the region */
	assert_int_equal(pwrite(fd, "x", 1, (off_t)(GIB + 7 * FRAME)), 1);
	assert_int_equal(pwrite(fd, "x", 1, (off_t)(GIB + 8 * FRAME)), 1);
	assert_int_equal(pwrite(fd, "x", 1, (off_t)(GIB + 9 * FRAME + PAGE_SIZE)), 1);
	vm.ram[0].backing = backing_create(&vm, fd, GIB, RAM);
	assert_non_null(vm.ram[0].backing);
	assert_true(vm_next_resident(&vm, gpa(0), &at, &len));
	assert_int_equal(at.v, BASE + 7 * FRAME);
	assert_int_equal(len, 2 * FRAME);
	at.v += len;
	assert_true(vm_next_resident(&vm, at, &at, &len));
	assert_int_equal(at.v, BASE + 9 * FRAME + PAGE_SIZE);
	assert_int_equal(len, FRAME - PAGE_SIZE);
	at.v += len;
	assert_false(vm_next_resident(&vm, at, &at, &len));
	assert_true(vm_next_resident(&vm, gpa(BASE + 7 * FRAME + 123), &at, &len));
	assert_in_range(at.v, BASE + 7 * FRAME + 123,
			BASE + 8 * FRAME); /* never before what was asked */
	assert_true(vm_next_frame(&vm, gpa(0), FRAME, &at));
	assert_int_equal(at.v, BASE + 7 * FRAME);
	assert_true(vm_next_frame(&vm, gpa(at.v + 1), FRAME, &at));
	assert_int_equal(at.v, BASE + 8 * FRAME);
	assert_false(vm_next_frame(&vm, gpa(at.v + 1), FRAME, &at));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_run_is_told_before_its_end, start, end),
		cmocka_unit_test_setup_teardown(swapped_is_not_resident, start, end),
		cmocka_unit_test_setup_teardown(of_a_file, start, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
