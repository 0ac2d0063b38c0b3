// SPDX-License-Identifier: Apache-2.0
/* vmm/pgtable_x86.c: walks over tables built in a byte array. */
#include "vmm/pgtable.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define RAM_BYTES 0x10000
#define P         1ull
#define W         2ull
#define U         4ull
#define PS        0x80ull
#define NX        (1ull << 63)

static u8 ram[RAM_BYTES];
static int n_reads;

static int read_entry(void *arg, u64 addr, u64 *ret)
{
	(void)arg;
	n_reads++;
	if (addr > RAM_BYTES - 8)
		return -EFAULT;
	memcpy(ret, ram + addr, 8);
	return 0;
}

static void set(u64 table, unsigned int i, u64 entry)
{
	memcpy(ram + table + i * 8ull, &entry, 8);
}

static int clear(void **state)
{
	(void)state;
	memset(ram, 0, sizeof(ram));
	n_reads = 0;
	return 0;
}

static int walk(int levels, u64 addr, struct vm_mapping *m, struct err *err)
{
	struct pgtable pt = { read_entry, NULL, gpa(0x1000), levels };

	memset(m, 0xee, sizeof(*m));
	return pgtable_walk(&pt, gva(addr), m, err);
}

/* 0xffffffff81234567: PML4 511, PDPT 510, PD 9, PT 0x34 */
#define ADDR 0xffffffff81234567ull

static void four_levels_4k(void **state)
{
	struct vm_mapping m;

	(void)state;
	set(0x1000, 511, 0x2000 | P | W);
	set(0x2000, 510, 0x3000 | P | W);
	set(0x3000, 9, 0x4000 | P | W);
	set(0x4000, 0x34, 0x0000123456789000 | P | W | PS); /* PS in a page entry is PAT */
	assert_int_equal(walk(4, ADDR, &m, NULL), 0);
	assert_int_equal(m.gpa.v, 0x123456789567);
	assert_int_equal(m.pte.v, 0x4000 + 0x34 * 8);
	assert_int_equal(m.entry, 0x123456789000 | P | W | PS);
	assert_int_equal(m.page_bytes, 4096);
	assert_true(m.writable);
	assert_true(m.executable);
	assert_false(m.user);
	assert_int_equal(n_reads, 4);
}

static void five_levels_4k(void **state)
{
	struct vm_mapping m;
	struct err e = { 0 };

	(void)state;
	set(0x1000, 0x110, 0x5000 | P | W | U); /* bits 56..48 of 0xff11... */
	set(0x5000, 0x100, 0x2000 | P | U);
	set(0x2000, 0, 0x3000 | P | W | U);
	set(0x3000, 0, 0x4000 | P | W | U | NX);
	set(0x4000, 0, 0x7000 | P | W | U);
	assert_int_equal(walk(5, 0xff10800000000123, &m, NULL), 0);
	assert_int_equal(m.gpa.v, 0x7123);
	assert_false(m.writable); /* cleared at one level */
	assert_false(m.executable); /* NX at one level */
	assert_true(m.user);
	assert_int_equal(n_reads, 5);
	/* the same address is not canonical with 4 levels */
	assert_int_equal(walk(4, 0xff10800000000123, &m, &e), -EFAULT);
	assert_int_equal(e.code, ERR_GUEST_MEMORY);
}

static void large_pages(void **state)
{
	struct vm_mapping m;

	(void)state;
	set(0x1000, 511, 0x2000 | P | W);
	set(0x2000, 510, 0x3000 | P | W);
	set(0x3000, 9, 0x40001000 | P | W | PS); /* bit 12 is PAT in a large page */
	assert_int_equal(walk(4, ADDR, &m, NULL), 0);
	assert_int_equal(m.page_bytes, 2 << 20);
	assert_int_equal(m.gpa.v, 0x40000000 + (ADDR & 0x1fffff));
	set(0x2000, 510, 0x80000000 | P | W | PS | NX);
	assert_int_equal(walk(4, ADDR, &m, NULL), 0);
	assert_int_equal(m.page_bytes, 1 << 30);
	assert_int_equal(m.gpa.v, 0x80000000 + (ADDR & 0x3fffffff));
	assert_false(m.executable);
	/* PS is reserved in the top levels: not a page, and the walk goes on */
	set(0x1000, 511, 0x2000 | P | W | PS);
	assert_int_equal(walk(4, ADDR, &m, NULL), 0);
	assert_int_equal(m.page_bytes, 1 << 30);
}

static void tables_that_lie(void **state)
{
	struct vm_mapping m;
	struct err e = { 0 };

	(void)state;
	assert_int_equal(walk(4, ADDR, &m, &e), -EFAULT); /* nothing present */
	assert_int_equal(e.addr, ADDR);
	set(0x1000, 511, 0x000ffffffffff000 | P); /* outside RAM */
	assert_int_equal(walk(4, ADDR, &m, &e), -EFAULT);
	assert_int_equal(e.code, ERR_GUEST_MEMORY);
	/* a table that contains itself at every level ends after as many reads as levels */
	for (unsigned int i = 0; i < 512; i++)
		set(0x1000, i, 0x1000 | P | W);
	n_reads = 0;
	assert_int_equal(walk(5, 0x1234, &m, &e), 0);
	assert_int_equal(n_reads, 5);
	assert_int_equal(m.gpa.v, 0x1234);
}

static void canonical_addresses(void **state)
{
	struct vm_mapping m;

	(void)state;
	for (unsigned int i = 0; i < 512; i++)
		set(0x1000, i, 0x1000 | P);
	assert_int_equal(walk(4, 0x00007fffffffffff, &m, NULL), 0);
	assert_int_equal(walk(4, 0x0000800000000000, &m, NULL), -EFAULT);
	assert_int_equal(walk(4, 0xffff7fffffffffff, &m, NULL), -EFAULT);
	assert_int_equal(walk(4, 0xffff800000000000, &m, NULL), 0);
	assert_int_equal(walk(5, 0x00ffffffffffffff, &m, NULL), 0);
	assert_int_equal(walk(5, 0x0100000000000000, &m, NULL), -EFAULT);
	assert_int_equal(walk(5, 0xff00000000000000, &m, NULL), 0);
	assert_int_equal(walk(0, 0, &m, NULL), -EINVAL);
	assert_int_equal(walk(6, 0, &m, NULL), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(four_levels_4k, clear),
		cmocka_unit_test_setup(five_levels_4k, clear),
		cmocka_unit_test_setup(large_pages, clear),
		cmocka_unit_test_setup(tables_that_lie, clear),
		cmocka_unit_test_setup(canonical_addresses, clear),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
