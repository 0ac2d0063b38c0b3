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
#include <unistd.h>

#include <cmocka.h>

extern const u8 interlock_start[], interlock_return[];

#define AREA_BYTES (1u << 20)
#define USE_BITS   0x80ffffffu
#define DISABLED   0x02000000u
#define UNREADABLE 8u

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
	u8 code[INTERLOCK_FULL_BYTES];
	u8 stubs[7][16];
	u8 sites[16][8];
	struct page *first;
	struct page pages[2];
	struct record records[16];
	u64 count, closing;
	u8 ours[16], theirs[16];
	u8 hook[8];
	u64 mutex[2]; /* ftrace_lock, text_mutex */
	u8 bits[131072]; /* of 4 GiB: addresses here are in the lower half */
	u8 pages_of_sites[5 * PAGE_SIZE] __attribute__((aligned(PAGE_SIZE)));
	struct {
		u64 addr, value;
	} list[3];
};

static struct area *a;
static const u8 nop[MCOUNT_INSN_SIZE] = { 0x66, 0x66, 0x66, 0x66, 0x90 };
static struct {
	int locked, finished, n_poked;
	u64 poked[16];
	u64 unreadable;
	u64 mutex;
	bool again; /* it was called by us */
	u64 held[2];
	int n_same;
	u64 same[16];
	int slept;
	u64 ret;
} did;
static int go_on_after; /* so often it slept; -1: the host does not come */

static void fake_lock(u64 mutex, u32 subclass)
{
	if (did.again) {
		assert_int_equal(subclass, 0);
		assert_true(did.locked < 2);
		did.held[did.locked++] = mutex;
		return;
	}
	assert_int_equal(did.locked + did.n_poked + did.finished, 0);
	did.mutex = mutex;
	did.locked++;
}

static long fake_nofault(void *to, const void *from, size_t n)
{
	assert_true(n == 5 || n == 8);
	if ((u64)(uintptr_t)from == did.unreadable || (u64)(uintptr_t)from == UNREADABLE)
		return -14;
	memcpy(to, from, n);
	return 0;
}

static void fake_poke(void *addr, const void *opcode, size_t len, const void *emulate)
{
	assert_int_equal(len, sizeof(nop));
	assert_null(emulate);
	assert_false(did.again);
	assert_memory_equal(opcode, nop, sizeof(nop));
	assert_int_equal(did.finished, 0);
	did.poked[did.n_poked++] = (u64)(uintptr_t)addr;
}

static void fake_finish(void)
{
	did.finished++;
}

static void fake_unlock(u64 mutex)
{
	assert_true(did.again && did.locked > 0);
	assert_int_equal(mutex, did.held[--did.locked]);
}

static void *fake_same(void *addr, const void *opcode, size_t len)
{
	assert_int_equal(did.locked, 2);
	assert_ptr_equal(addr, opcode);
	assert_int_equal(len, 5);
	assert_true(did.n_same < (int)ARRAY_SIZE(did.same));
	did.same[did.n_same++] = (u64)(uintptr_t)addr;
	return addr;
}

static void fake_sleep(u32 ms)
{
	assert_int_equal(ms, 20);
	assert_int_equal(did.locked, 0);
	assert_int_equal(a->closing, 1);
	assert_int_equal(did.n_same, 0);
	if (did.slept++ == go_on_after)
		a->closing = 2;
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
		.rewrite = stub(4, at((void *)fake_same)),
		.unlock = stub(5, at((void *)fake_unlock)),
		.records_lock = at(&a->mutex[0]),
		.text_lock = at(&a->mutex[1]),
		.sleep = stub(6, at((void *)fake_sleep)),
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

/* Code of ours in the copy, with three arguments; callee-saved registers are checked. */
static void call_ours(u64 fn, u64 arg0, u64 arg1, u64 arg2)
{
	struct interlock_kernel k = kernel();
	struct interlock_place p = { at(a->code), at(a->ours), at(&a->count) };
	u64 saved[3] = { 0x1111, 0x2222, 0x3333 };
	u8 *off;

	assert_int_equal(interlock_link(&k, &p, a->code), 0);
	/* programs may not switch interrupts off */
	off = memmem(a->code, sizeof(a->code), "\x9c\xfa", 2);
	assert_non_null(off);
	off[1] = 0x90;
	memset(&did, 0, sizeof(did));
	did.again = true;
	__asm__ volatile("movq (%[s]), %%rbx; movq 8(%[s]), %%r12; movq 16(%[s]), %%r13\n\t"
			 "subq $128, %%rsp\n\t"
			 "pushq %[s]\n\t"
			 "call *%[fn]\n\t"
			 "popq %%rcx\n\t"
			 "addq $128, %%rsp\n\t"
			 "movq %%rax, %[ret]\n\t"
			 "movq %%rbx, (%%rcx); movq %%r12, 8(%%rcx); movq %%r13, 16(%%rcx)"
			 : [ret] "=m"(did.ret), "+D"(arg0), "+S"(arg1), "+d"(arg2)
			 : [fn] "r"(fn), [s] "r"(saved)
			 : "rax", "rbx", "rcx", "r8", "r9", "r10", "r11", "r12", "r13", "memory",
			   "cc");
	assert_int_equal(saved[0], 0x1111);
	assert_int_equal(saved[1], 0x2222);
	assert_int_equal(saved[2], 0x3333);
	assert_int_equal(did.locked, 0);
}

static void again(u64 what, const void *arg1, const void *arg2)
{
	call_ours(interlock_again_addr(at(a->code)), what, at(arg1), at(arg2));
	assert_int_equal(did.held[0], at(&a->mutex[0]));
	assert_int_equal(did.held[1], at(&a->mutex[1]));
}

static void records(int n_first, int n_second)
{
	a->pages[0] = (struct page){ &a->pages[1], a->records, n_first };
	a->pages[1] = (struct page){ NULL, a->records + n_first, n_second };
	a->first = &a->pages[0];
}

static void test_two_places_as_they_are(void **state)
{
	(void)state;
	put_call(0, a->ours);
	records(1, 0);
	again(REWRITE_TWO, a->ours, a->hook);
	assert_int_equal(did.n_same, 2);
	assert_true(did.same[0] == at(a->hook) && did.same[1] == at(a->ours));
	assert_int_equal(did.n_poked + did.finished, 0);
}

/* A list of what leads here; then it waits, and writes what the host has put back meanwhile. */
static void test_a_gate_is_closed(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++)
		put_call(i, a->ours);
	put_call(1, a->theirs);
	a->records[3].flags = 1;
	records(3, 1);
	go_on_after = 3;
	call_ours(interlock_back_addr(at(a->code)), at(a->hook), 0, 0);
	assert_int_equal(did.ret, 0);
	assert_int_equal(did.slept, 4);
	assert_int_equal(did.n_poked + (int)a->count, 0);
	assert_int_equal(did.n_same, 8);
	for (int i = 0; i < 8; i += 2)
		assert_int_equal(did.same[i], at(a->hook));
	assert_int_equal(did.same[1], at(a->hook));
	assert_int_equal(did.same[3], a->records[3].ip);
	assert_int_equal(did.same[5], a->records[2].ip);
	assert_int_equal(did.same[7], a->records[0].ip);
	/* no site led here any more, and the hook did */
	records(0, 0);
	call_ours(interlock_back_addr(at(a->code)), at(a->hook), 0, 0);
	assert_int_equal(did.n_same, 2);
	assert_int_equal(did.same[0], at(a->hook));
	records(3, 1);
	/* the host has died: nobody waits for ever */
	go_on_after = -1;
	call_ours(interlock_back_addr(at(a->code)), at(a->hook), 0, 0);
	assert_int_equal((s32)did.ret, -1);
	assert_int_equal(did.n_same, 0);
	assert_int_equal(did.slept, 3000); /* a minute, of 20 ms each */
}

static void set_page(const void *p, bool on)
{
	u64 page = at(p) / PAGE_SIZE;

	a->bits[page / 8] = (u8)(on ? 1u << page % 8 : 0);
}

static bool any_set(void)
{
	for (size_t i = 0; i < sizeof(a->bits); i++) {
		if (a->bits[i])
			return true;
	}
	return false;
}

/* Each page once, by its first site; a site on two pages for both. */
static void test_pages_as_they_are(void **state)
{
	u8 *text = a->pages_of_sites;
	const size_t at_off[] = { 16, 64, PAGE_SIZE + 8, 2 * PAGE_SIZE - 2, 3 * PAGE_SIZE + 8 };

	(void)state;
	for (int i = 0; i < 5; i++)
		a->records[i].ip = at(text + at_off[i]);
	records(3, 2);
	for (int i = 0; i < 5; i++)
		a->bits[at(text + (size_t)i * PAGE_SIZE) / PAGE_SIZE / 8] = 0;
	a->bits[at(text) / PAGE_SIZE / 8] |= (u8)(1u << at(text) / PAGE_SIZE % 8);
	again(at(a->bits + 65536), NULL, NULL);
	assert_int_equal(did.n_same, 1);
	assert_int_equal(did.same[0], a->records[0].ip);
	assert_false(any_set());
	/* the page in the middle, of which the one that lies on two has its end */
	set_page(text + 2 * PAGE_SIZE, true);
	again(at(a->bits + 65536), NULL, NULL);
	assert_int_equal(did.n_same, 1);
	assert_int_equal(did.same[0], a->records[3].ip);
	assert_false(any_set());
	/* all that there is: four pages have sites, and the last has none; the one on two comes for its second */
	memset(a->bits, 0xff, sizeof(a->bits));
	again(at(a->bits + 65536), NULL, NULL);
	assert_int_equal(did.n_same, 4);
	assert_int_equal(did.same[3], a->records[4].ip);
	assert_int_equal(did.n_poked, 0);
	/* and once more: nothing is left of those */
	again(at(a->bits + 65536), NULL, NULL);
	assert_int_equal(did.n_same, 0);
}

/* A page of a file, private: it is the file's until it is written. */
static u64 *cell_on_a_page(int fd)
{
	u64 *p = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	assert_int_equal(*p, 0x1000);
	return p;
}

/* A cell that holds what was put back is written as it is; one that another has by now, or nobody, is not. */
static void test_cells(void **state)
{
	const u64 before = 0x1000, after = 0x2000;
	int fd = memfd_create("cells", MFD_CLOEXEC);
	u64 *cell[3];

	(void)state;
	assert_int_equal(ftruncate(fd, PAGE_SIZE), 0);
	assert_int_equal(pwrite(fd, &before, sizeof(before), 0), sizeof(before));
	for (u32 i = 0; i < 3; i++) {
		cell[i] = cell_on_a_page(fd);
		a->list[i].addr = at(cell[i]);
		a->list[i].value = before + (i == 1);
	}
	call_ours(interlock_cells_addr(at(a->code)), at(a->list), 0, 0);
	assert_int_equal(pwrite(fd, &after, sizeof(after), 0), sizeof(after));
	for (u32 i = 0; i < 3; i++)
		assert_int_equal(*cell[i], after); /* of an empty list: nothing */
	a->list[0].value = a->list[2].value = after;
	call_ours(interlock_cells_addr(at(a->code)), at(a->list), 3, 0);
	assert_int_equal(pwrite(fd, &before, sizeof(before), 0), sizeof(before));
	assert_int_equal(*cell[0], after);
	assert_int_equal(*cell[1], before); /* still the file's */
	assert_int_equal(*cell[2], after);
	a->list[0].addr = UNREADABLE;
	call_ours(interlock_cells_addr(at(a->code)), at(a->list), 1, 0);
	for (u32 i = 0; i < 3; i++)
		munmap(cell[i], PAGE_SIZE);
	close(fd);
}

/* A kernel without what that calls has the interlock all the same. */
static void test_without_the_rest(void **state)
{
	struct interlock_place p = { at(a->code), at(a->ours), at(&a->count) };
	struct interlock_kernel k = kernel();
	u8 whole[INTERLOCK_FULL_BYTES];

	(void)state;
	assert_int_equal(interlock_link(&k, &p, whole), 0);
	k.rewrite = 0;
	assert_int_equal(interlock_link(&k, &p, a->code), 0);
	assert_memory_equal(a->code, whole, INTERLOCK_BYTES);
	for (size_t i = INTERLOCK_BYTES; i < INTERLOCK_FULL_BYTES; i++)
		assert_int_equal(a->code[i], 0xcc);
}

static void test_out_of_reach(void **state)
{
	struct interlock_place p = { at(a->code), at(a->ours), at(&a->count) };
	struct interlock_kernel k = kernel();
	u8 code[INTERLOCK_FULL_BYTES];

	(void)state;
	assert_int_equal(interlock_link(&k, &p, code), 0);
	k.pages = 1ull << 31;
	assert_int_equal(interlock_link(&k, &p, code), -ERANGE);
	k.pages = 0xffffffff80000000ull;
	assert_int_equal(interlock_link(&k, &p, code), 0);
	k.text_lock = 1ull << 31;
	assert_int_equal(interlock_link(&k, &p, code), -ERANGE);
	k = kernel();
	k.unlock = at(a->code) + (1ull << 33);
	assert_int_equal(interlock_link(&k, &p, code), -ERANGE);
	k = kernel();
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
		cmocka_unit_test_setup_teardown(test_two_places_as_they_are, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_gate_is_closed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_pages_as_they_are, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cells, setup, teardown),
		cmocka_unit_test_setup_teardown(test_without_the_rest, setup, teardown),
		cmocka_unit_test_setup_teardown(test_out_of_reach, setup, teardown),
		cmocka_unit_test(test_find_call),
		cmocka_unit_test(test_nop_of_a_kernel),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
