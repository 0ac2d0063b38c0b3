// SPDX-License-Identifier: Apache-2.0
/* symbols/locate.c: one kernel, several, stale ones, damaged ones, none. */
#include "symbols/kernel.h"

#include "symbols/arch.h"
#include "symbols/image.h"
#include "test_symbols_fake.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static const struct fake_opts first = {
	.image = 4 << 20, .virt = 0xffffffff81000000ull, .heap = 1 << 20, .levels = 4
};
static const struct fake_opts second = { .image = 16 << 20,
					 .virt = 0xffffffff9a200000ull,
					 .heap = 24 << 20,
					 .levels = 5,
					 .new_order = true,
					 .seqs = true };

static int locate(struct fake_kernel *k, struct kernel_location *loc, struct err *err)
{
	struct sym_mem mem = fake_mem(k);

	return kernel_locate(&mem, NULL, NULL, loc, err);
}

static void check_loc(const struct kernel_location *loc, const struct fake_opts *o)
{
	assert_int_equal(loc->image.v, o->image);
	assert_int_equal(loc->text.v, o->virt);
	assert_int_equal(loc->kaslr_offset, o->virt - 0xffffffff81000000ull);
	assert_int_equal(loc->root.v, o->image + FAKE_DATA);
	assert_int_equal(loc->levels, o->levels);
	assert_string_equal(loc->banner, "Linux version 6.1.0-fake (builder@fake) (gcc 12) #1 SMP "
					 "fake (2026-01-01)");
}

static void one(const struct fake_opts *o)
{
	struct kernel_location loc;
	struct fake_guest g;
	struct fake_kernel k;
	struct err err = { 0 };

	fake_guest_init(&g);
	fake_kernel_build(&k, &g, o);
	assert_int_equal(locate(&k, &loc, &err), 0);
	check_loc(&loc, o);
	fake_kernel_deinit(&k);
	fake_guest_deinit(&g);
}

static void each_kind(void **state)
{
	struct fake_opts o = second;

	(void)state;
	one(&first);
	one(&second);
	o.all_relative = true;
	one(&o);
	o.no_vmcoreinfo = true;
	one(&o);
	o.place_relative = true;
	one(&o);
	o.no_vmcoreinfo = false;
	one(&o);
}

/* .rodata begins with something unknown: found by vmcoreinfo's addresses. */
static void by_vmcoreinfo(void **state)
{
	struct fake_opts o = second;

	(void)state;
	o.no_banner_page = true;
	one(&o);
	o.all_relative = true;
	o.place_relative = true;
	one(&o);
	o = first;
	o.no_banner_page = true;
	one(&o);
}

static void empty_memory(void **state)
{
	struct kernel_location loc;
	struct fake_guest g;
	struct fake_kernel k = { .g = &g };
	struct err err = { 0 };

	(void)state;
	fake_guest_init(&g);
	assert_int_equal(locate(&k, &loc, &err), -ENOENT);
	assert_int_equal(err.code, ERR_GUEST_NOT_LINUX);
	memcpy(g.ram + (6 << 20), "Linux version 9.9 of a document", 31);
	assert_int_equal(locate(&k, &loc, &err), -ENOENT);
	fake_guest_deinit(&g);
}

/* Each of these makes a kernel one that cannot be running. */
static void inconsistent_is_rejected(void **state)
{
	static const char *const what[] = { "phys_base", "init_top_pgt", "linux_banner",
					    "vmcoreinfo_data" };

	(void)state;
	for (size_t i = 0; i <= ARRAY_SIZE(what); i++) {
		struct kernel_location loc;
		struct fake_guest g;
		struct fake_kernel k;
		struct err err = { 0 };
		char *text;

		fake_guest_init(&g);
		fake_kernel_build(&k, &g, &second);
		text = fake_at(&k, k.vmcoreinfo);
		if (i == ARRAY_SIZE(what)) /* another boot's text */
			memcpy(strstr(text, "swapper_pg_dir)=") + 17, "e", 1);
		else if (i == 1)
			memset(fake_at(&k, fake_sym_addr(&k, what[i])), 0, 4096);
		else
			fake_put64(&k, fake_sym_addr(&k, what[i]), 0x123456789);
		assert_int_equal(locate(&k, &loc, &err), -EUCLEAN);
		assert_int_equal(err.code, ERR_GUEST_MEMORY);
		fake_kernel_deinit(&k);
		fake_guest_deinit(&g);
	}
}

struct pair {
	struct fake_guest g;
	struct fake_kernel a, b;
};

static void pair_init(struct pair *p)
{
	fake_guest_init(&p->g);
	fake_kernel_build(&p->a, &p->g, &first);
	fake_kernel_build(&p->b, &p->g, &second);
}

static void pair_deinit(struct pair *p)
{
	fake_kernel_deinit(&p->a);
	fake_kernel_deinit(&p->b);
	fake_guest_deinit(&p->g);
}

static bool confirm_image(void *arg, const struct kernel_location *loc)
{
	return loc->image.v == *(u64 *)arg;
}

static void confirm_decides(void **state)
{
	struct kernel_location loc;
	struct err err = { 0 };
	struct sym_mem mem;
	struct pair p;
	u64 want;

	(void)state;
	pair_init(&p);
	mem = fake_mem(&p.b);
	want = first.image;
	assert_int_equal(kernel_locate(&mem, confirm_image, &want, &loc, &err), 0);
	check_loc(&loc, &first);
	want = second.image;
	assert_int_equal(kernel_locate(&mem, confirm_image, &want, &loc, &err), 0);
	check_loc(&loc, &second);
	want = 1;
	assert_int_equal(kernel_locate(&mem, confirm_image, &want, &loc, &err), -EUCLEAN);
	assert_non_null(strstr(err.msg, "none of them the running one"));
	pair_deinit(&p);
}

static void nobody_alive(void **state)
{
	struct kernel_location loc;
	struct err err = { 0 };
	struct pair p;

	(void)state;
	pair_init(&p);
	assert_int_equal(locate(&p.a, &loc, &err), -EUCLEAN);
	assert_non_null(strstr(err.msg, "cannot tell which one runs"));
	pair_deinit(&p);
}

/* jiffies_64 of the one that runs moves whenever memory is read. */
struct ticking {
	struct sym_mem inner;
	u8 *jiffies;
};

static int tick_read_phys(void *arg, gpa_t addr, void *buf, size_t len)
{
	struct ticking *t = arg;

	++*t->jiffies;
	return t->inner.read_phys(t->inner.arg, addr, buf, len);
}

static bool tick_frame(void *arg, gpa_t from, u64 step, gpa_t *ret)
{
	struct ticking *t = arg;

	return t->inner.next_frame(t->inner.arg, from, step, ret);
}

static bool tick_resident(void *arg, gpa_t from, gpa_t *start_ret, u64 *len_ret)
{
	struct ticking *t = arg;

	return t->inner.next_resident(t->inner.arg, from, start_ret, len_ret);
}

static void life_decides(void **state)
{
	struct pair p;

	(void)state;
	pair_init(&p);
	for (int alive = 0; alive < 2; alive++) {
		struct fake_kernel *k = alive ? &p.b : &p.a;
		struct ticking t = { fake_mem(k), fake_at(k, fake_sym_addr(k, "jiffies_64")) };
		struct sym_mem mem = { NULL, tick_read_phys, tick_frame, tick_resident, &t };
		struct kernel_location loc;
		struct err err = { 0 };

		assert_int_equal(kernel_locate(&mem, NULL, NULL, &loc, &err), 0);
		check_loc(&loc, alive ? &second : &first);
	}
	pair_deinit(&p);
}

/* The image's end is not readable: no answer from half a table, and no crash. */
static void holes(void **state)
{
	struct kernel_location loc;
	struct fake_guest g;
	struct fake_kernel k;
	struct err err = { 0 };

	(void)state;
	fake_guest_init(&g);
	fake_kernel_build(&k, &g, &second);
	g.hole_start = second.image + FAKE_RODATA + 0x11000;
	g.hole_end = g.hole_start + 0x1000;
	assert_int_equal(locate(&k, &loc, &err), -ENOENT);
	g.hole_start = second.image + FAKE_DATA;
	g.hole_end = g.hole_start + 0x1000;
	assert_int_equal(locate(&k, &loc, &err), -EUCLEAN);
	g.hole_start = second.image + FAKE_END;
	g.hole_end = FAKE_RAM;
	assert_int_equal(locate(&k, &loc, &err), -EUCLEAN); /* vmcoreinfo's page is gone */
	fake_kernel_deinit(&k);
	fake_guest_deinit(&g);
}

static void page_walk(void **state)
{
	struct sym_mem mem;
	struct fake_guest g;
	struct fake_kernel k;
	gpa_t root, pa;
	u64 *top;

	(void)state;
	fake_guest_init(&g);
	fake_kernel_build(&k, &g, &first);
	mem = fake_mem(&k);
	root = gpa(first.image + FAKE_DATA);
	top = fake_at(&k, first.virt + FAKE_DATA);
	assert_true(sym_arch()->translate(&mem, root, 4, first.virt + 0x212345, &pa));
	assert_int_equal(pa.v, first.image + 0x212345);
	assert_true(sym_arch()->translate(&mem, root, 4, 0xffff888000123456ull, &pa));
	assert_int_equal(pa.v, 0x123456);
	assert_false(sym_arch()->translate(&mem, root, 4, 0x1000, &pa));
	assert_false(sym_arch()->translate(&mem, root, 5, first.virt, &pa));
	top[511] = root.v | 0x63; /* a table that is its own: the walk still ends */
	assert_true(sym_arch()->translate(&mem, root, 4, ~0ull << 12, &pa));
	assert_int_equal(pa.v, root.v);
	top[511] |= 0x80; /* no huge pages up there */
	assert_false(sym_arch()->translate(&mem, root, 4, first.virt, &pa));
	top[511] = 0x0000fffffffff063ull; /* outside RAM */
	assert_false(sym_arch()->translate(&mem, root, 4, first.virt, &pa));
	fake_kernel_deinit(&k);
	fake_guest_deinit(&g);
}

/* All that is read of the guest is counted. */
struct counting {
	struct sym_mem inner;
	u64 bytes;
};

static int count_read_phys(void *arg, gpa_t addr, void *buf, size_t len)
{
	struct counting *c = arg;

	c->bytes += len;
	return c->inner.read_phys(c->inner.arg, addr, buf, len);
}

static bool count_frame(void *arg, gpa_t from, u64 step, gpa_t *ret)
{
	struct counting *c = arg;

	return c->inner.next_frame(c->inner.arg, from, step, ret);
}

static bool count_resident(void *arg, gpa_t from, gpa_t *start_ret, u64 *len_ret)
{
	struct counting *c = arg;

	return c->inner.next_resident(c->inner.arg, from, start_ret, len_ret);
}

/* Empty token tables up to @end, one frame in so many @frames with what .rodata begins with. */
static void fill_hostile(struct fake_guest *g, u64 end, u64 frames)
{
	struct buf b = { 0 };

	while (b.len < end)
		fake_tokens_empty(&b);
	memcpy(g->ram, b.data, end);
	for (u64 at = 0; at < end; at += frames << 21)
		memcpy(g->ram + at, "Linux version 6", 16);
	buf_deinit(&b);
}

/* Memory made to be searched for days costs as much as the search may, and there is an error that says so. */
static void hostile_memory_ends(void **state)
{
	const struct kernel_search how = { .steps = 1u << 20,
					   .scan_bytes = SCAN_BYTES,
					   .scan_ns = SCAN_NS };
	struct kernel_location loc;
	struct fake_guest g;
	struct fake_kernel k = { .g = &g };
	struct err err = { 0 };
	struct counting c = { fake_mem(&k), 0 };
	struct sym_mem mem = { NULL, count_read_phys, count_frame, count_resident, &c };

	(void)state;
	fake_guest_init(&g);
	fill_hostile(&g, FAKE_RAM, 1);
	assert_int_equal(kernel_locate_as(&mem, &how, &loc, &err), -EUCLEAN);
	assert_int_equal(err.code, ERR_GUEST_MEMORY);
	assert_non_null(strstr(err.msg, "given up"));
	assert_true(c.bytes < 4 << 20);
	fake_guest_deinit(&g);
}

/* So does a page that leads to a window of its own, 8,000 of them. */
static void hostile_vmcoreinfo_ends(void **state)
{
	const struct kernel_search how = { .steps = 1u << 24,
					   .scan_bytes = SCAN_BYTES,
					   .scan_ns = SCAN_NS };
	static const char text[] =
		"OSRELEASE=6.1\nSYMBOL(_stext)=ffffffff81000000\nNUMBER(phys_base)=0\n";
	struct kernel_location loc;
	struct fake_guest g;
	struct fake_kernel k = { .g = &g };
	struct err err = { 0 };
	struct counting c = { fake_mem(&k), 0 };
	struct sym_mem mem = { NULL, count_read_phys, count_frame, count_resident, &c };

	(void)state;
	fake_guest_init(&g);
	for (u64 at = 0; at < FAKE_RAM; at += PAGE_SIZE)
		memcpy(g.ram + at, text, sizeof(text));
	assert_int_equal(kernel_locate_as(&mem, &how, &loc, &err), -EUCLEAN);
	assert_non_null(strstr(err.msg, "given up"));
	assert_true(c.bytes < 8ull * ((1u << 24) + FAKE_RAM));
	fake_guest_deinit(&g);
}

/* A window that takes all it may does not hide the kernel behind it. */
static void found_behind_hostile(void **state)
{
	struct kernel_location loc;
	struct fake_guest g;
	struct fake_kernel k;
	struct err err = { 0 };

	(void)state;
	fake_guest_init(&g);
	fill_hostile(&g, second.image, 8);
	fake_kernel_build(&k, &g, &second);
	assert_int_equal(locate(&k, &loc, &err), 0);
	check_loc(&loc, &second);
	fake_kernel_deinit(&k);
	fake_guest_deinit(&g);
}

#define TIB (1ull << 40)

/* 1 TiB in use, in which nothing is Linux's. */
struct windows {
	u64 frames, scanned; /* bytes read */
	u64 ns_each; /* how long each read of a chunk takes */
	bool scanning;
};

static int windows_read(void *arg, gpa_t addr, void *buf, size_t len)
{
	struct windows *w = arg;

	(void)addr;
	memset(buf, 0, len);
	if (!w->scanning) {
		w->frames += len;
		return 0;
	}
	w->scanned += len;
	if (w->ns_each)
		nanosleep(&(struct timespec){ .tv_nsec = (long)w->ns_each }, NULL);
	return 0;
}

static bool windows_frame(void *arg, gpa_t from, u64 step, gpa_t *ret)
{
	(void)arg;
	*ret = gpa((from.v + step - 1) / step * step);
	return ret->v < TIB;
}

static bool windows_resident(void *arg, gpa_t from, gpa_t *start_ret, u64 *len_ret)
{
	struct windows *w = arg;

	w->scanning = true;
	*start_ret = from;
	*len_ret = MIN(TIB - from.v, 1ull << 30);
	return from.v < TIB;
}

static bool no_linux(void *arg)
{
	(void)arg;
	return false;
}

/* A large guest that is no Linux is looked at within bounds, and what was not is said; not at all if its CPUs say so. */
static void no_linux_is_told_soon(void **state)
{
	struct windows w = { 0 };
	struct sym_mem mem = { NULL, windows_read, windows_frame, windows_resident, &w };
	struct kernel_search how = { .steps = IMAGE_STEPS,
				     .scan_bytes = (8ull << 30) - 1,
				     .scan_ns = 3600 * NSEC_PER_SEC };
	struct kernel_location loc;
	struct err err = { 0 };

	(void)state;
	assert_int_equal(kernel_locate_as(&mem, &how, &loc, &err), -ENOENT);
	assert_int_equal(err.code, ERR_GUEST_NOT_LINUX);
	assert_non_null(strstr(err.msg, "first 8191 MiB in use; the rest was not searched"));
	assert_in_range(w.scanned, 1, how.scan_bytes);
	assert_int_equal(w.frames, TIB / (2 << 20) * IMAGE_PEEK_BYTES);

	w = (struct windows){ .ns_each = 10 * NSEC_PER_MSEC };
	how.scan_ns = 50 * NSEC_PER_MSEC;
	assert_int_equal(kernel_locate_as(&mem, &how, &loc, &err), -ENOENT);
	assert_non_null(strstr(err.msg, "the rest was not searched"));
	assert_in_range(w.scanned, 1, 16 << 20);

	w = (struct windows){ 0 };
	how.may_be_linux = no_linux;
	assert_int_equal(kernel_locate_as(&mem, &how, &loc, &err), -ENOENT);
	assert_int_equal(err.code, ERR_GUEST_NOT_LINUX);
	assert_non_null(strstr(err.msg, "nor do the CPUs look like Linux's"));
	assert_int_equal(w.scanned, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_kind),
		cmocka_unit_test(by_vmcoreinfo),
		cmocka_unit_test(empty_memory),
		cmocka_unit_test(inconsistent_is_rejected),
		cmocka_unit_test(confirm_decides),
		cmocka_unit_test(nobody_alive),
		cmocka_unit_test(life_decides),
		cmocka_unit_test(holes),
		cmocka_unit_test(page_walk),
		cmocka_unit_test(hostile_memory_ends),
		cmocka_unit_test(hostile_vmcoreinfo_ends),
		cmocka_unit_test(found_behind_hostile),
		cmocka_unit_test(no_linux_is_told_soon),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
