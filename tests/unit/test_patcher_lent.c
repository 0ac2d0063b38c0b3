// SPDX-License-Identifier: Apache-2.0
/* patcher/lent.c: nothing is written to lent memory that is not where it was taken to be. */
#include "patcher/gate.h"
#include "patcher/lent.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define LENT   0xffffffffc0400000ull
#define MEMSET 0xffffffff81c02340ull
#define BYTES  (40ull * PAGE_SIZE) /* more than is read at once, and not a multiple of that */

/* The linker has these called instead: see CMakeLists.txt. */
int __wrap_gate_call(struct gate *gate, u64 fn, const u64 args[4], u64 *ret, struct err *err);
int __wrap_guest_read(struct guest *g, u64 addr, void *buf, size_t len, struct err *err);
int __wrap_kernel_sym(const struct kernel *k, const char *name, u64 *addr_ret);
bool __wrap_vm_ram_guessed(const struct vm *vm);

static u8 memory[BYTES], other[PAGE_SIZE];
static u64 astray; /* this page of it is read from another place */
static bool guessed;
static u32 n_calls, n_reads;

bool __wrap_vm_ram_guessed(const struct vm *vm)
{
	(void)vm;
	return guessed;
}

int __wrap_kernel_sym(const struct kernel *k, const char *name, u64 *addr_ret)
{
	(void)k;
	assert_string_equal(name, "memset");
	*addr_ret = MEMSET;
	return 0;
}

/* The guest does what it is told, where it has its memory. */
int __wrap_gate_call(struct gate *gate, u64 fn, const u64 args[4], u64 *ret, struct err *err)
{
	(void)gate;
	(void)err;
	assert_int_equal(fn, MEMSET);
	assert_int_equal(args[0], LENT);
	assert_in_range(args[1], 1, 255);
	assert_int_equal(args[2], BYTES);
	memset(memory, (int)args[1], sizeof(memory));
	if (ret)
		*ret = LENT;
	n_calls++;
	return 0;
}

int __wrap_guest_read(struct guest *g, u64 addr, void *buf, size_t len, struct err *err)
{
	(void)g;
	(void)err;
	assert_true(addr >= LENT && len <= BYTES && addr - LENT <= BYTES - len);
	for (size_t off = 0; off < len; off += PAGE_SIZE) {
		u64 page = (addr - LENT + off) / PAGE_SIZE;

		memcpy((u8 *)buf + off, page == astray ? other : memory + page * PAGE_SIZE,
		       PAGE_SIZE);
	}
	n_reads++;
	return 0;
}

static int prove(struct err *err)
{
	struct guest g = { .target = "test" };

	memset(memory, 0, sizeof(memory));
	n_calls = n_reads = 0;
	*err = (struct err){ 0 };
	return lent_prove(NULL, &g, LENT, BYTES, err);
}

static void each_page_is_looked_at(void **state)
{
	struct err err;

	(void)state;
	guessed = true;
	astray = UINT64_MAX;
	assert_int_equal(prove(&err), 0);
	assert_int_equal(n_calls, 1);
	for (astray = 0; astray < BYTES / PAGE_SIZE; astray++) {
		memset(other, 0, sizeof(other));
		assert_int_equal(prove(&err), -EFAULT);
		assert_int_equal(err.code, ERR_GUEST_MEMORY);
		memset(other, 0xff, 1); /* another page's bytes */
		assert_int_equal(prove(&err), -EFAULT);
	}
}

/* Where the VMM has said where RAM is there is nothing to prove. */
static void not_where_it_is_known(void **state)
{
	struct err err;

	(void)state;
	guessed = false;
	astray = 3;
	assert_int_equal(prove(&err), 0);
	assert_int_equal(n_calls + n_reads, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_page_is_looked_at),
		cmocka_unit_test(not_where_it_is_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
