// SPDX-License-Identifier: Apache-2.0
/*
 * Find the running kernel in RAM, knowing nothing. Whatever is found is a candidate only: old
 * images of an earlier boot stay in RAM, and anyone in the guest can write bytes that look like a
 * kernel.
 */
#include "symbols/kernel.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "symbols/arch.h"
#include "symbols/image.h"
#include "symbols/mem.h"
#include "symbols/vmcoreinfo.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define CANDIDATES_MAX 16
#define SCAN_CHUNK     (1u << 20)
#define LIFE_POLL_NS   (12 * NSEC_PER_MSEC)
#define LIFE_POLLS     100 /* 1.2 s: an idle, tickless guest wakes up once a second */
#define LIFE_BYTES     64

enum want {
	WANT_TEXT,
	WANT_RODATA,
	WANT_ROOT,
	WANT_PHYS_BASE,
	WANT_BANNER,
	WANT_VMCOREINFO,
	WANT_JIFFIES,
	WANT_TIMEKEEPER,
	WANT_TIMEKEEPERS,
	WANT_MAX,
};

struct candidate {
	struct kernel_location loc;
	gpa_t life[2]; /* what changes while a kernel runs; 0 when not known */
	u8 seen[2][LIFE_BYTES];
};

struct locate {
	const struct sym_mem *mem;
	const struct sym_arch *arch;
	const struct kernel_search *how;
	struct candidate found[CANDIDATES_MAX]; /* consistent ones */
	size_t n_found;
	size_t n_rejected;
	bool confirmed; /* found[0] is the one */
	u64 steps; /* left, see image_read() */
	u64 scanned; /* bytes */
	bool cut; /* there is more, which was not scanned */
	bool other; /* nothing speaks for Linux: nothing was scanned */
	int fault; /* -ENOMEM, -E2BIG */
};

/* Physical = virtual + this, modulo 2^64: the image is one piece in both. */
static u64 image_delta(const struct sym_arch *arch, u64 phys_base)
{
	return phys_base - arch->image_base;
}

static bool in_image(const struct sym_arch *arch, u64 va)
{
	return va >= arch->image_base && va - arch->image_base < arch->image_max_bytes;
}

static bool mapped_to(const struct locate *l, const struct kernel_location *loc, u64 va, u64 pa)
{
	gpa_t got;

	return l->arch->translate(l->mem, loc->root, loc->levels, va, &got) && got.v == pa;
}

/* Which depth makes the root map the image to where it lies? The wrong one ends in other tables. */
static bool find_levels(const struct locate *l, struct kernel_location *loc, u64 rodata, u64 delta)
{
	for (int n = l->arch->levels_max; n >= l->arch->levels_min; n--) {
		loc->levels = n;
		if (mapped_to(l, loc, loc->text.v, loc->image.v) &&
		    mapped_to(l, loc, rodata, rodata + delta))
			return true;
	}
	return false;
}

/* @len bytes at @va through the candidate's own page table. */
static bool read_virtual(const struct locate *l, const struct kernel_location *loc, u64 va,
			 void *buf, size_t len)
{
	u8 *p = buf;

	while (len) {
		size_t n = MIN(len, (size_t)(PAGE_SIZE - va % PAGE_SIZE));
		gpa_t pa;

		if (!l->arch->translate(l->mem, loc->root, loc->levels, va, &pa) ||
		    mem_phys(l->mem, pa.v, p, n))
			return false;
		p += n;
		va += n;
		len -= n;
	}
	return true;
}

/*
 * vmcoreinfo, where the kernel has it, must agree with what kallsyms says.
 * crash_save_vmcoreinfo_init allocates the page; before it ran the pointer is NULL.
 */
static bool vmcoreinfo_agrees(const struct locate *l, const struct kallsyms_want *w, u64 delta,
			      struct kernel_location *loc)
{
	char text[VMCOREINFO_BYTES_MAX];
	struct vmcoreinfo v;
	u64 data;

	if (!w[WANT_VMCOREINFO].found)
		return true;
	if (mem_phys(l->mem, w[WANT_VMCOREINFO].addr + delta, &data, sizeof(data)))
		return false;
	if (!data)
		return true;
	if (!read_virtual(l, loc, data, text, sizeof(text)) ||
	    vmcoreinfo_parse(text, sizeof(text), &v))
		return false;
	if (v.swapper_pg_dir && v.swapper_pg_dir != w[WANT_ROOT].addr)
		return false;
	if (v.has_phys_base && v.phys_base != delta + l->arch->image_base)
		return false;
	if (v.l5_enabled >= 0 && v.l5_enabled != (loc->levels == 5))
		return false;
	if (v.has_kernel_offset)
		loc->kaslr_offset = v.kernel_offset;
	return strstr(loc->banner, v.release) != NULL;
}

static bool read_banner(const struct locate *l, u64 pa, struct kernel_location *loc)
{
	size_t n;

	if (mem_phys(l->mem, pa, loc->banner, sizeof(loc->banner)))
		return false;
	loc->banner[sizeof(loc->banner) - 1] = '\0';
	n = strcspn(loc->banner, "\n");
	loc->banner[n] = '\0';
	for (size_t i = 0; i < n; i++)
		if (loc->banner[i] < 0x20 || loc->banner[i] > 0x7e)
			return false;
	return !strncmp(loc->banner, "Linux version ", strlen("Linux version "));
}

static void remember(struct locate *l, const struct candidate *c)
{
	for (size_t i = 0; i < l->n_found; i++)
		if (l->found[i].loc.image.v == c->loc.image.v)
			return;
	if (l->how->confirm && l->how->confirm(l->how->arg, &c->loc)) {
		l->confirmed = true;
		l->found[0] = *c;
		l->n_found = 1;
	} else if (l->how->confirm) {
		l->n_rejected++;
	} else if (l->n_found < CANDIDATES_MAX) {
		l->found[l->n_found++] = *c;
	}
}

/*
 * Is this a whole kernel? Its symbols, the phys_base variable, its page table and vmcoreinfo must
 * say the same about where the image lies.
 */
static bool check(struct locate *l, struct kallsyms_want *w, u64 delta, struct candidate *c)
{
	const struct sym_arch *arch = l->arch;
	struct kernel_location *loc = &c->loc;
	u64 phys_base;

	for (enum want i = WANT_TEXT; i <= WANT_BANNER; i++)
		if (!w[i].found || !in_image(arch, w[i].addr))
			return false;
	if (w[WANT_TEXT].addr % arch->image_align_bytes || w[WANT_ROOT].addr % PAGE_SIZE ||
	    (w[WANT_TEXT].addr + delta) % arch->image_align_bytes)
		return false;
	loc->text = gva(w[WANT_TEXT].addr);
	loc->image = gpa(w[WANT_TEXT].addr + delta);
	loc->kaslr_offset = loc->text.v - arch->link_text;
	loc->root = gpa(w[WANT_ROOT].addr + delta);
	if (mem_phys(l->mem, w[WANT_PHYS_BASE].addr + delta, &phys_base, sizeof(phys_base)) ||
	    phys_base != delta + arch->image_base)
		return false;
	if (!read_banner(l, w[WANT_BANNER].addr + delta, loc) ||
	    !find_levels(l, loc, w[WANT_RODATA].addr, delta) ||
	    !vmcoreinfo_agrees(l, w, delta, loc))
		return false;
	c->life[0] = gpa(w[WANT_JIFFIES].found ? w[WANT_JIFFIES].addr + delta : 0);
	if (!w[WANT_TIMEKEEPER].found)
		w[WANT_TIMEKEEPER] = w[WANT_TIMEKEEPERS];
	c->life[1] = gpa(w[WANT_TIMEKEEPER].found ? w[WANT_TIMEKEEPER].addr + delta : 0);
	return true;
}

/*
 * Tables that do not know their addresses (see kallsyms_place()): phys_base, a variable as far from them in
 * memory as in the image, says how physical and virtual addresses go together. check() has the page table agree.
 */
static void place(const struct locate *l, const struct image *im, const u64 *delta,
		  struct kallsyms_want *w)
{
	u64 first, phys_base;

	if (delta)
		first = im->base.v - *delta;
	else if (w[WANT_PHYS_BASE].found && !mem_phys(l->mem, im->base.v + w[WANT_PHYS_BASE].addr,
						      &phys_base, sizeof(phys_base)))
		first = im->base.v - image_delta(l->arch, phys_base);
	else
		return;
	for (enum want i = 0; i < WANT_MAX; i++)
		w[i].addr += first;
}

/* @delta NULL: the image's first byte is __start_rodata. */
static void try_image(struct locate *l, const struct image *im, const u64 *delta)
{
	struct kallsyms_want w[WANT_MAX] = {
		[WANT_TEXT] = { .name = "_text" },
		[WANT_RODATA] = { .name = "__start_rodata" },
		[WANT_ROOT] = { .name = l->arch->root_symbol },
		[WANT_PHYS_BASE] = { .name = "phys_base" },
		[WANT_BANNER] = { .name = "linux_banner" },
		[WANT_VMCOREINFO] = { .name = "vmcoreinfo_data" },
		[WANT_JIFFIES] = { .name = "jiffies_64" },
		[WANT_TIMEKEEPER] = { .name = "tk_core" },
		[WANT_TIMEKEEPERS] = { .name = "timekeeper_data" }, /* since v6.17, the first is it */
	};
	struct candidate c = { 0 };

	kallsyms_lookup(im->data, &im->kallsyms, w, WANT_MAX);
	if (im->kallsyms.place_relative)
		place(l, im, delta, w);
	if (check(l, w, delta ? *delta : im->base.v - w[WANT_RODATA].addr, &c))
		remember(l, &c);
	else
		l->n_rejected++;
}

static void try_at(struct locate *l, u64 base, size_t limit, const u64 *delta)
{
	struct image im;
	int rc = image_read(l->mem, gpa(base), limit, &l->steps, &im);

	if (rc == -ENOMEM || rc == -E2BIG)
		l->fault = rc;
	if (rc)
		return;
	try_image(l, &im, delta);
	image_deinit(&im);
}

static bool done(const struct locate *l)
{
	return l->confirmed || l->fault;
}

/* One small read for each aligned frame that has memory: 32,768 for 64 GiB. */
static void scan_frames(struct locate *l)
{
	u64 step = l->arch->image_align_bytes, from = 0;
	u8 page[IMAGE_PEEK_BYTES];
	gpa_t at;

	while (!done(l) && l->mem->next_frame(l->mem->arg, gpa(from), step, &at)) {
		if (at.v < from || at.v % step || add_overflows(at.v, step, &from))
			return;
		if (!mem_phys(l->mem, at.v, page, sizeof(page)) &&
		    image_is_rodata(page, sizeof(page)))
			try_at(l, at.v, IMAGE_RODATA_SEARCH, NULL);
	}
}

/* A page that begins as vmcoreinfo does: its addresses lead to the image. */
static void try_vmcoreinfo(struct locate *l, const u8 *page)
{
	struct vmcoreinfo v;
	u64 first, delta;

	if (memcmp(page, "OSRELEASE=", 10) != 0 || vmcoreinfo_parse(page, PAGE_SIZE, &v) ||
	    !v.has_phys_base)
		return;
	delta = image_delta(l->arch, v.phys_base);
	first = v.stext;
	/* Since v6.0 it names the tables themselves; which comes first changed in v6.4. */
	if (v.kallsyms_names && v.kallsyms_offsets)
		first = MIN(v.kallsyms_names, v.kallsyms_offsets) - PAGE_SIZE;
	if (!in_image(l->arch, first))
		return;
	try_at(l, (first & PAGE_MASK) + delta, IMAGE_SEARCH, &delta);
}

/* Whole pages within [start, end). */
static void scan_pages(struct locate *l, u64 start, u64 end, u64 deadline, u8 *chunk)
{
	for (u64 at = (start + PAGE_SIZE - 1) & PAGE_MASK; at >= start && at < end && !done(l);
	     at += SCAN_CHUNK) {
		size_t n = (size_t)MIN(end - at, (u64)SCAN_CHUNK) & PAGE_MASK;

		l->cut = n && (l->scanned + n > l->how->scan_bytes || monotonic_ns() > deadline);
		if (l->cut)
			return;
		l->scanned += n;
		if (!n || mem_phys(l->mem, at, chunk, n))
			continue;
		for (size_t p = 0; p < n && !done(l); p += PAGE_SIZE)
			try_vmcoreinfo(l, chunk + p);
	}
}

/*
 * RAM page by page: for kernels whose .rodata does not begin as we know it. Not what the host has swapped out,
 * and no more than may be: of a large guest that is no Linux it would be minutes of reading.
 */
static void scan_vmcoreinfo(struct locate *l)
{
	_cleanup_free_ u8 *chunk = malloc(SCAN_CHUNK);
	u64 from = 0, len, deadline = monotonic_ns() + l->how->scan_ns;
	gpa_t start;

	if (!chunk) {
		l->fault = -ENOMEM;
		return;
	}
	while (!done(l) && !l->cut && l->mem->next_resident(l->mem->arg, gpa(from), &start, &len)) {
		u64 end;

		if (start.v < from || !len || add_overflows(start.v, len, &end))
			return;
		scan_pages(l, start.v, end, deadline, chunk);
		from = end;
	}
}

static bool read_life(const struct locate *l, const struct candidate *c, u8 ret[2][LIFE_BYTES])
{
	bool any = false;

	for (int i = 0; i < 2; i++) {
		/* Only the first 8 bytes of jiffies_64 are its own. */
		size_t n = i == 0 ? 8 : LIFE_BYTES;

		memset(ret[i], 0, LIFE_BYTES);
		any |= c->life[i].v && !mem_phys(l->mem, c->life[i].v, ret[i], n);
	}
	return any;
}

/* Several whole kernels and nobody to ask: the one whose clock moves. -1 when none or more do. */
static int pick_alive(struct locate *l)
{
	const struct timespec pause = { .tv_nsec = LIFE_POLL_NS };
	u8 now[2][LIFE_BYTES];

	for (size_t i = 0; i < l->n_found; i++)
		read_life(l, &l->found[i], l->found[i].seen);
	for (int poll = 0; poll < LIFE_POLLS; poll++) {
		int alive = -1, n_alive = 0;

		nanosleep(&pause, NULL);
		for (size_t i = 0; i < l->n_found; i++) {
			if (!read_life(l, &l->found[i], now) ||
			    !memcmp(now, l->found[i].seen, sizeof(now)))
				continue;
			alive = (int)i;
			n_alive++;
		}
		if (n_alive)
			return n_alive == 1 ? alive : -1;
	}
	return -1;
}

static int not_found(const struct locate *l, struct err *err)
{
	if (l->other)
		return err_set(
			err, -ENOENT, ERR_GUEST_NOT_LINUX, 0,
			"no Linux kernel with kallsyms in memory where one begins, nor do the CPUs "
			"look like Linux's: the rest was not searched");
	if (l->cut)
		return err_set(
			err, -ENOENT, ERR_GUEST_NOT_LINUX, 0,
			"no Linux kernel with kallsyms in memory where one begins, nor in the first "
			"%llu MiB in use; the rest was not searched",
			(unsigned long long)(l->scanned >> 20));
	return err_set(err, -ENOENT, ERR_GUEST_NOT_LINUX, 0,
		       "no Linux kernel with kallsyms in memory");
}

static int decide(struct locate *l, struct kernel_location *ret, struct err *err)
{
	int pick = 0;

	if (l->fault == -E2BIG)
		return err_set(
			err, -EUCLEAN, ERR_GUEST_MEMORY, 0,
			"memory is full of what looks like kernel images: the search for the running one "
			"was given up");
	if (l->fault)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for the kernel's tables");
	if (!l->n_found && l->n_rejected)
		return err_set(err, -EUCLEAN, ERR_GUEST_MEMORY, 0,
			       "%zu kernel images in memory, none of them the running one",
			       l->n_rejected);
	if (!l->n_found)
		return not_found(l, err);
	if (l->n_found > 1) {
		pick = pick_alive(l);
		if (pick < 0)
			return err_set(err, -EUCLEAN, ERR_GUEST_MEMORY, l->found[0].loc.image.v,
				       "%zu kernel images in memory, cannot tell which one runs",
				       l->n_found);
	}
	*ret = l->found[pick].loc;
	return 0;
}

int kernel_locate_as(const struct sym_mem *mem, const struct kernel_search *how,
		     struct kernel_location *ret, struct err *err)
{
	_cleanup_free_ struct locate *l = calloc(1, sizeof(*l));

	if (!l)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory to look for a kernel");
	l->mem = mem;
	l->arch = sym_arch();
	l->how = how;
	l->steps = how->steps;
	scan_frames(l);
	if (!l->n_found && !done(l)) {
		l->other = how->may_be_linux && !how->may_be_linux(how->arg);
		if (!l->other)
			scan_vmcoreinfo(l);
	}
	return decide(l, ret, err);
}

int kernel_locate(const struct sym_mem *mem,
		  bool (*confirm)(void *arg, const struct kernel_location *loc), void *arg,
		  struct kernel_location *ret, struct err *err)
{
	const struct kernel_search how = { .confirm = confirm,
					   .arg = arg,
					   .steps = IMAGE_STEPS,
					   .scan_bytes = SCAN_BYTES,
					   .scan_ns = SCAN_NS };

	return kernel_locate_as(mem, &how, ret, err);
}
