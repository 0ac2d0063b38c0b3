// SPDX-License-Identifier: Apache-2.0
/*
 * patcher/interlock: its code run here, against a kernel of our own with ftrace_pages and functions that
 * say what they were called with.
 */
#include "patcher/interlock.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

extern const u8 interlock_start[], interlock_return[];

#define AREA_BYTES 65536u
#define USE_BITS   0x80ffffffu
#define DISABLED   0x02000000u

struct record {
	u64 ip, flags;
};

struct page {
	struct page *next;
	struct record *records;
	int index;
};

/* Everything the code names by 32 bits is below 2 GiB. */
struct area {
	u8 code[256];
	u8 stubs[4][16];
	u8 sites[16][8];
	struct page *first;
	struct page pages[2];
	struct record records[16];
	u64 count;
	u8 ours[16], theirs[16];
};

static struct area *a;
static const u8 nop[MCOUNT_INSN_SIZE] = { 0x66, 0x66, 0x66, 0x66, 0x90 };
static struct {
	int locked, finished, n_poked;
	u64 poked[16];
	u64 unreadable;
	u64 mutex;
} did;

static void fake_lock(u64 mutex)
{
	assert_int_equal(did.locked + did.n_poked + did.finished, 0);
	did.mutex = mutex;
	did.locked++;
}

static long fake_nofault(void *to, const void *from, size_t n)
{
	assert_int_equal(n, 5);
	if ((u64)(uintptr_t)from == did.unreadable)
		return -14;
	memcpy(to, from, n);
	return 0;
}

static void fake_poke(void *addr, const void *opcode, size_t len, const void *emulate)
{
	assert_int_equal(len, sizeof(nop));
	assert_memory_equal(opcode, nop, sizeof(nop));
	assert_null(emulate);
	assert_int_equal(did.finished, 0);
	did.poked[did.n_poked++] = (u64)(uintptr_t)addr;
}

static void fake_finish(void)
{
	did.finished++;
}

/* movabs $target, %r11; jmp *%r11 */
static u64 stub(int i, u64 target)
{
	u8 *p = a->stubs[i];

	p[0] = 0x49;
	p[1] = 0xbb;
	memcpy(p + 2, &target, sizeof(target));
	memcpy(p + 10, "\x41\xff\xe3", 3);
	return (u64)(uintptr_t)p;
}

static u64 at(const void *p)
{
	return (u64)(uintptr_t)p;
}

static void put_call(int i, const void *target)
{
	assert_int_equal(insn_make_call(at(a->sites[i]), at(target), a->sites[i]), 0);
	a->records[i].ip = at(a->sites[i]);
}

static struct interlock_kernel kernel(void)
{
	return (struct interlock_kernel){
		.nop = { nop[0], nop[1], nop[2], nop[3], nop[4] },
		.lock = stub(0, at((void *)fake_lock)),
		.nofault = stub(1, at((void *)fake_nofault)),
		.poke = stub(2, at((void *)fake_poke)),
		.finish = stub(3, at((void *)fake_finish)),
		.pages = at(&a->first),
		.next = offsetof(struct page, next),
		.records = offsetof(struct page, records),
		.index = offsetof(struct page, index),
		.rec_bytes = sizeof(struct record),
		.use = USE_BITS,
	};
}

static int setup(void **state)
{
	(void)state;
	a = mmap(NULL, AREA_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	if (a == MAP_FAILED)
		return -1;
	memset(&did, 0, sizeof(did));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return munmap(a, AREA_BYTES);
}

/* Through a call, as the guest's; callee-saved registers are checked. */
static void run(u64 thunk)
{
	struct interlock_kernel k = kernel();
	struct interlock_place p = { at(a->code), at(a->ours), at(&a->count) };
	u64 rbx = 0x1111, rbp_r12 = 0x2222;

	k.return_thunk = thunk;
	assert_int_equal(interlock_link(&k, &p, a->code), 0);
	__asm__ volatile("movq %[b], %%rbx; movq %[r], %%r12\n\t"
			 "subq $128, %%rsp\n\t"
			 "call *%[fn]\n\t"
			 "addq $128, %%rsp\n\t"
			 "movq %%rbx, %[b]; movq %%r12, %[r]"
			 : [b] "+m"(rbx), [r] "+m"(rbp_r12)
			 : [fn] "r"(a->code), "D"(0xabcdull)
			 : "rax", "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "r12",
			   "memory", "cc");
	assert_int_equal(rbx, 0x1111);
	assert_int_equal(rbp_r12, 0x2222);
	assert_int_equal(did.locked, 1);
	assert_int_equal(did.mutex, 0xabcd);
	assert_int_equal(did.finished, 1);
}

static void test_takes_what_the_guest_wants(void **state)
{
	(void)state;
	for (int i = 0; i < 8; i++)
		put_call(i, a->ours);
	put_call(1, a->theirs); /* the guest's own call already */
	memset(a->sites[2], 0x90, 5); /* no call at all */
	a->records[0].flags = 1;
	a->records[1].flags = 1;
	a->records[2].flags = 2;
	a->records[3].flags = 0; /* ours, and the guest does not want it */
	a->records[4].flags = DISABLED;
	a->records[5].flags = 0x80000003; /* on the second page */
	a->records[6].flags = 1; /* its text went away */
	did.unreadable = a->records[6].ip;
	a->records[7].flags = 0xffffffff00000000; /* above the word that counts */
	a->pages[0] = (struct page){ &a->pages[1], a->records, 5 };
	a->pages[1] = (struct page){ NULL, a->records + 5, 3 };
	a->first = &a->pages[0];
	run(0);
	assert_int_equal(did.n_poked, 2);
	assert_int_equal(did.poked[0], a->records[0].ip);
	assert_int_equal(did.poked[1], a->records[5].ip);
	assert_int_equal(a->count, 2);
}

static void test_nothing_recorded(void **state)
{
	(void)state;
	run(0);
	a->pages[0] = (struct page){ NULL, NULL, 0 };
	a->first = &a->pages[0];
	memset(&did, 0, sizeof(did));
	run(0);
	a->pages[0].index = -1;
	memset(&did, 0, sizeof(did));
	run(0);
	assert_int_equal(did.n_poked, 0);
	assert_int_equal(a->count, 0);
}

static void test_returns_through_the_thunk(void **state)
{
	(void)state;
	a->theirs[0] = 0xc3;
	run(at(a->theirs));
	assert_int_equal(a->code[interlock_return - interlock_start], 0xe9); /* jmp */
}

static void test_out_of_reach(void **state)
{
	struct interlock_place p = { at(a->code), at(a->ours), at(&a->count) };
	struct interlock_kernel k = kernel();
	u8 code[INTERLOCK_BYTES];

	(void)state;
	assert_int_equal(interlock_link(&k, &p, code), 0);
	k.pages = 1ull << 31;
	assert_int_equal(interlock_link(&k, &p, code), -ERANGE);
	k.pages = 0xffffffff80000000ull;
	assert_int_equal(interlock_link(&k, &p, code), 0);
	k.poke = at(a->code) + (1ull << 33);
	assert_int_equal(interlock_link(&k, &p, code), -ERANGE);
	k = kernel();
	k.return_thunk = 1ull << 40;
	assert_int_equal(interlock_link(&k, &p, code), -ERANGE);
}

static void test_find_call(void **state)
{
	/* endbr64; mov $0xffffffff82345678, %rdi; xor %esi, %esi; call; movl $1, 0(%rip); jmp */
	static const u8 good[] = { 0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0xc7, 0xc7, 0x78, 0x56, 0x34,
				   0x82, 0x31, 0xf6, 0xe8, 0x01, 0x02, 0x03, 0x04, 0xc7, 0x05,
				   0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0xc3 };
	const u64 mutex = 0xffffffff82345678;
	u8 code[sizeof(good)];
	size_t off;

	(void)state;
	assert_true(insn_find_call(good, sizeof(good), mutex, &off));
	assert_int_equal(off, 13);
	assert_false(insn_find_call(good, sizeof(good), mutex + 8, &off));
	assert_false(insn_find_call(good, 17, mutex, &off)); /* cut in the call */
	memcpy(code, good, sizeof(code));
	code[11] = 0xeb; /* a jump before it */
	assert_false(insn_find_call(code, sizeof(code), mutex, &off));
	memcpy(code, good, sizeof(code));
	code[13] = 0xe9; /* a tail call */
	assert_false(insn_find_call(code, sizeof(code), mutex, &off));
	memcpy(code, good, sizeof(code));
	code[4] = 0x06; /* no instruction */
	assert_false(insn_find_call(code, sizeof(code), mutex, &off));
}

/* A kernel before v5.13: a pointer to a table of pointers, the tenth of which leads to the nop. */
static struct {
	u64 var, table[10];
	u8 nop[MCOUNT_INSN_SIZE];
} old;
static bool is_old;

int __wrap_kernel_sym(const struct kernel *k, const char *name, u64 *addr_ret);
int __wrap_guest_read(struct guest *g, u64 addr, void *buf, size_t len, struct err *err);

int __wrap_kernel_sym(const struct kernel *k, const char *name, u64 *addr_ret)
{
	(void)k;
	*addr_ret = at(&old.var);
	return is_old && !strcmp(name, "ideal_nops") ? 0 : -ENOENT;
}

int __wrap_guest_read(struct guest *g, u64 addr, void *buf, size_t len, struct err *err)
{
	(void)g;
	(void)err;
	if (addr < at(&old) || addr + len > at(&old + 1))
		return -EFAULT;
	memcpy(buf, (void *)(uintptr_t)addr, len);
	return 0;
}

static void test_nop_of_a_kernel(void **state)
{
	static const u8 today[MCOUNT_INSN_SIZE] = { 0x0f, 0x1f, 0x44, 0x00, 0x00 };
	u8 got[MCOUNT_INSN_SIZE];
	struct guest g = { 0 };

	(void)state;
	guest_site_nop(&g, got);
	assert_memory_equal(got, today, sizeof(today));
	is_old = true;
	old.var = at(old.table);
	old.table[9] = at(old.nop);
	memcpy(old.nop, nop, sizeof(nop));
	guest_site_nop(&g, got);
	assert_memory_equal(got, nop, sizeof(nop));
	old.nop[4] = 0xc3; /* no nop at all */
	guest_site_nop(&g, got);
	assert_memory_equal(got, today, sizeof(today));
	old.table[9] = 0x1000; /* not mapped */
	guest_site_nop(&g, got);
	assert_memory_equal(got, today, sizeof(today));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_takes_what_the_guest_wants, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nothing_recorded, setup, teardown),
		cmocka_unit_test_setup_teardown(test_returns_through_the_thunk, setup, teardown),
		cmocka_unit_test_setup_teardown(test_out_of_reach, setup, teardown),
		cmocka_unit_test(test_find_call),
		cmocka_unit_test(test_nop_of_a_kernel),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
