// SPDX-License-Identifier: Apache-2.0
/*
 * Guessing the RAM layout of a VMM. See layout.h.
 *
 *            0                  hole                 4 GiB
 *   gpa      |------ low -------|.....MMIO...........|------ high ------|
 *   one mapping   [ low | high ]            QEMU: contiguous in host memory
 *   two mappings  [ low ] [ high ]          Firecracker, cloud-hypervisor: one mapping a region
 *   a gap         [ low |---p| high ]       kvmtool: the hole is mapped without access
 *
 * RAM that ends below every hole is flat from 0 and needs no guess.
 */
#include "vmm/layout.h"

#include "base/cleanup.h"
#include "vmm/vm_ops.h"

#include <errno.h>
#include <string.h>

#define GIB       (1ull << 30)
#define FOUR_GIB  (4 * GIB)
#define LOW_SCAN  (1ull << 20) /* where boot loaders put boot_params */
#define FULL_SCAN (2 * GIB) /* the kernel keeps a copy in its image */
#define SCAN_STEP (1ull << 20)
#define MIN_RAM   (1ull << 20)
/* firmware takes its tables from the top of low RAM before the guest sees it */
#define TOP_SLACK (64ull << 20)

/* boot_params: Documentation/arch/x86/zero-page.rst */
#define BP_E820_ENTRIES  0x1e8
#define BP_BOOT_FLAG     0x1fe
#define BP_HEADER        0x202
#define BP_E820_TABLE    0x2d0
#define BP_E820_MAX      128
#define E820_ENTRY_BYTES 20
#define E820_RAM         1
/* struct hvm_start_info, and an entry of its map */
#define PVH_MAGIC          0x336ec578
#define PVH_VERSION        4
#define PVH_MEMMAP         40
#define PVH_MEMMAP_ENTRIES 48
#define PVH_INFO_BYTES     56
#define PVH_ENTRY_BYTES    24

/* Where low RAM ends: QEMU pc and cloud-hypervisor, q35, Firecracker and kvmtool, pc up to 3.5 GiB. */
static const u64 hole_starts[] = { 0xc0000000, 0x80000000, 0xd0000000, 0xe0000000, 0xb0000000 };

static bool may_be_ram(const struct proc_map *m)
{
	/* "[anon:guest memory]" is a name that a VMM gave (prctl(2), PR_SET_VMA) */
	bool special = m->path[0] == '[' && strncmp(m->path, "[anon", 5) != 0;

	return m->readable && m->writable && !special && !spare_is_map(m->path) &&
	       m->end - m->start >= MIN_RAM;
}

static void add(struct layout *ret, size_t *n, const struct layout *c)
{
	if (*n < LAYOUT_MAX_CANDIDATES)
		ret[(*n)++] = *c;
}

static struct layout flat(u64 hva, u64 len)
{
	struct layout c = { .n = 1 };

	c.piece[0].hva = hva;
	c.piece[0].len = len;
	return c;
}

static struct layout two(u64 low_hva, u64 low_len, u64 high_hva, u64 high_len)
{
	struct layout c = flat(low_hva, low_len);

	c.n = 2;
	c.piece[1].gpa = FOUR_GIB;
	c.piece[1].hva = high_hva;
	c.piece[1].len = high_len;
	return c;
}

static void split_candidates(const struct proc_map *m, bool q35, struct layout *ret, size_t *n)
{
	u64 len = m->end - m->start;
	/* QEMU keeps RAM in one piece up to here on every board (hw/i386/pc_q35.c, 7.2) */
	bool small = len <= 0x80000000;
	struct layout whole = flat(m->start, len);

	if (small || (len <= 0xe0000000 && !q35))
		add(ret, n, &whole);
	if (small)
		return;
	if (q35) {
		struct layout c = two(m->start, 2 * GIB, m->start + 2 * GIB, len - 2 * GIB);

		add(ret, n, &c);
	}
	for (size_t i = 0; i < ARRAY_SIZE(hole_starts); i++) {
		u64 h = hole_starts[i];

		if (h < len) {
			struct layout c = two(m->start, h, m->start + h, len - h);

			add(ret, n, &c);
		}
	}
	if (len <= FOUR_GIB)
		add(ret, n, &whole);
}

/* A second mapping belongs to RAM when the first is exactly as long as a known low region. */
static void pair_candidates(const struct proc_map *a, const struct proc_map *b, struct layout *ret,
			    size_t *n)
{
	static const u64 starts[] = { 0xc0000000, 0xd0000000 };

	for (size_t i = 0; i < ARRAY_SIZE(starts); i++) {
		u64 h = starts[i];
		struct layout c;

		if (a->end - a->start != h)
			continue;
		c = two(a->start, h, b->start, b->end - b->start);
		add(ret, n, &c);
	}
}

/* kvmtool (x86/kvm.c:kvm__arch_init) and a split mapping: low, gap or not, high in host order. */
static void gap_candidate(const struct proc_map *a, const struct proc_map *b, struct layout *ret,
			  size_t *n)
{
	struct layout c;

	if (b->start < a->end || b->start - a->start != FOUR_GIB)
		return;
	c = two(a->start, a->end - a->start, b->start, b->end - b->start);
	add(ret, n, &c);
}

size_t layout_candidates(const struct proc_maps *maps, bool q35, struct layout *ret)
{
	const struct proc_map *first = NULL;
	const struct proc_map *second = NULL;
	size_t n = 0;

	for (size_t i = 0; i < maps->n; i++) {
		const struct proc_map *m = &maps->map[i];

		if (!may_be_ram(m))
			continue;
		if (!first || m->end - m->start > first->end - first->start) {
			second = first;
			first = m;
		} else if (!second || m->end - m->start > second->end - second->start) {
			second = m;
		}
	}
	if (!first)
		return 0;
	if (second && second->end - second->start >= 16 * MIN_RAM) {
		gap_candidate(first, second, ret, &n);
		gap_candidate(second, first, ret, &n);
		pair_candidates(first, second, ret, &n);
		pair_candidates(second, first, ret, &n);
	}
	split_candidates(first, q35, ret, &n);
	return n;
}

static u64 get(const u8 *p, size_t bytes)
{
	u64 v = 0;

	memcpy(&v, p, bytes);
	return v;
}

/* Of @n entries of @step bytes, at @p: address, size, type. */
static size_t parse_map(const u8 *p, size_t n_entries, size_t step, struct e820_ram *ret)
{
	u64 last = 0;
	size_t n = 0;

	if (n_entries == 0 || n_entries > BP_E820_MAX)
		return 0;
	for (size_t i = 0; i < n_entries; i++) {
		const u8 *e = p + i * step;
		u64 start = get(e, 8);
		u64 size = get(e + 8, 8);
		u64 end;

		if (add_overflows(start, size, &end))
			return 0;
		if (get(e + 16, 4) != E820_RAM || size == 0)
			continue;
		if (start < last)
			return 0; /* loaders hand it over sorted */
		last = end;
		ret[n].start = start;
		ret[n].end = end;
		n++;
	}
	/* a map without memory above 1 MiB is the empty one inside a bzImage, or a fragment */
	return n && last > LOW_SCAN ? n : 0;
}

size_t layout_parse_e820(const u8 *page, struct e820_ram *ret)
{
	if (get(page + BP_BOOT_FLAG, 2) != 0xaa55 || memcmp(page + BP_HEADER, "HdrS", 4) != 0)
		return 0;
	return parse_map(page + BP_E820_TABLE, page[BP_E820_ENTRIES], E820_ENTRY_BYTES, ret);
}

size_t layout_parse_pvh(const u8 *low, u64 len, u64 at, struct e820_ram *ret)
{
	u64 map;
	u64 n;

	if (at > len || len - at < PVH_INFO_BYTES || get(low + at, 4) != PVH_MAGIC ||
	    get(low + at + PVH_VERSION, 4) == 0)
		return 0;
	map = get(low + at + PVH_MEMMAP, 8);
	n = get(low + at + PVH_MEMMAP_ENTRIES, 4);
	if (n > BP_E820_MAX || map > len || len - map < n * PVH_ENTRY_BYTES)
		return 0;
	return parse_map(low + map, n, PVH_ENTRY_BYTES, ret);
}

bool layout_matches_e820(const struct layout *c, const struct e820_ram *ram, size_t n)
{
	u64 low_top = 0;
	u64 high_top = 0;

	for (size_t i = 0; i < n; i++) {
		bool inside = false;

		for (size_t k = 0; k < c->n; k++)
			inside = inside || (ram[i].start >= c->piece[k].gpa &&
					    ram[i].end <= c->piece[k].gpa + c->piece[k].len);
		if (!inside)
			return false;
		if (ram[i].end <= FOUR_GIB)
			low_top = MAX(low_top, ram[i].end);
		else
			high_top = MAX(high_top, ram[i].end);
	}
	if (low_top + TOP_SLACK < c->piece[0].len)
		return false;
	/* above 4 GiB nothing is taken off */
	return c->n == 1 ? high_top == 0 || high_top == c->piece[0].len
			 : high_top == FOUR_GIB + c->piece[1].len;
}

/* A search for the guest's own map of its RAM, by which one candidate is right. */
struct search {
	struct vm *vm;
	const struct layout *c;
	size_t n;
	u64 low; /* host address of the memory that is looked at as the guest's lowest */
	u64 top; /* end of RAM by the map found last; 0: none was */
	size_t pick; /* @n while none is right */
};

/* There may be older maps in memory, and others. */
static void take_map(struct search *s, const struct e820_ram *ram, size_t n_ram)
{
	if (!n_ram)
		return;
	s->top = ram[n_ram - 1].end;
	for (size_t i = 0; s->pick == s->n && i < s->n; i++) {
		if (s->c[i].piece[0].hva == s->low && layout_matches_e820(&s->c[i], ram, n_ram))
			s->pick = i;
	}
}

/* boot_params within @len bytes of guest RAM at physical @start. */
static void scan_run(struct search *s, u64 start, u64 len, u8 *buf)
{
	struct e820_ram ram[BP_E820_MAX];

	for (u64 off = 0; off < len && s->pick == s->n; off += SCAN_STEP) {
		/* a page more, so that none is missed over the edge */
		u64 n = MIN(len - off, SCAN_STEP + PAGE_SIZE);
		u64 at = 0;
		u8 *hit;

		if (vm_read_phys(s->vm, gpa(start + off), buf, n, NULL) < 0)
			return;
		while (s->pick == s->n && (hit = memmem(buf + at, n - at, "HdrS", 4))) {
			u64 pos = (u64)(hit - buf);

			at = pos + 4;
			if (pos >= BP_HEADER && pos - BP_HEADER + PAGE_SIZE <= n)
				take_map(s, ram, layout_parse_e820(buf + pos - BP_HEADER, ram));
		}
	}
}

/* A PVH kernel makes its boot_params itself, without their magic; what it was given lies in the lowest memory. */
static void scan_low_for_pvh(struct search *s, u8 *buf)
{
	static const u8 magic[] = { 0x78, 0xc5, 0x6e, 0x33 };
	struct e820_ram ram[BP_E820_MAX];
	u64 at = 0;
	u8 *hit;

	if (vm_read_phys(s->vm, gpa(0), buf, LOW_SCAN, NULL) < 0)
		return;
	while (s->pick == s->n && (hit = memmem(buf + at, LOW_SCAN - at, magic, sizeof(magic)))) {
		at = (u64)(hit - buf) + sizeof(magic);
		take_map(s, ram, layout_parse_pvh(buf, LOW_SCAN, (u64)(hit - buf), ram));
	}
}

/* Takes the low piece for RAM while it looks, so as to touch populated pages only. */
static void scan_low(struct search *s, u64 len)
{
	_cleanup_free_ u8 *buf = malloc(SCAN_STEP + PAGE_SIZE);
	gpa_t at = gpa(0);
	u64 run = 0;

	if (buf && vm_mem_add(s->vm, gpa(0), len, s->low, NULL) == 0 &&
	    vm_mem_open(s->vm, NULL) == 0) {
		while (s->pick == s->n && vm_next_resident(s->vm, at, &at, &run)) {
			scan_run(s, at.v, run, buf);
			at.v += run;
		}
		if (s->pick == s->n)
			scan_low_for_pvh(s, buf);
	}
	vm_mem_close(s->vm);
}

/* Each mapping that some candidate begins with, once. */
static void search_up_to(struct search *s, u64 limit)
{
	for (size_t i = 0; i < s->n && s->pick == s->n; i++) {
		u64 len = 0;
		bool again = false;

		for (size_t k = 0; k < s->n; k++) {
			if (s->c[k].piece[0].hva != s->c[i].piece[0].hva)
				continue;
			again |= k < i;
			len = MAX(len, s->c[k].piece[0].len);
		}
		s->low = s->c[i].piece[0].hva;
		if (!again)
			scan_low(s, MIN(len, limit));
	}
}

static int use(struct vm *vm, const struct layout *c, struct err *err)
{
	vm->ram_guessed = true;
	for (size_t i = 0; i < c->n; i++) {
		int rc =
			vm_mem_add(vm, gpa(c->piece[i].gpa), c->piece[i].len, c->piece[i].hva, err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Other memory of the VMM's that may be RAM just as well: another NUMA node's, of which none says which is which. */
static bool has_twin(const struct proc_maps *maps, const struct layout *c)
{
	size_t n = 0;
	u64 len = 0;

	for (size_t i = 0; i < c->n; i++)
		len += c->piece[i].len;
	for (size_t i = 0; i < maps->n; i++)
		n += may_be_ram(&maps->map[i]) && maps->map[i].end - maps->map[i].start == len;
	return len >= 16 * MIN_RAM && n > 1;
}

static int refuse(const struct search *s, bool twin, struct err *err)
{
	const char *how = "attach by the VMM's monitor: qemu:SOCKET or libvirt:URI/DOMAIN";
	int pid = (int)s->vm->pid;

	if (twin)
		return err_set(
			err, -ENODEV, ERR_TARGET_NOT_VMM, 0,
			"process %d has RAM in equal pieces (NUMA nodes?), in an order that cannot "
			"be told; %s",
			pid, how);
	if (!s->top)
		return err_set(
			err, -ENODEV, ERR_TARGET_NOT_VMM, 0,
			"the guest of process %d does not tell where its RAM is: no Linux, or not "
			"booted yet; try later, or %s",
			pid, how);
	return err_set(
		err, -ENODEV, ERR_TARGET_NOT_VMM, 0,
		"the guest's map of RAM, up to 0x%llx, fits memory of process %d in no known way; "
		"%s",
		(unsigned long long)s->top, pid, how);
}

int layout_guess(struct vm *vm, struct err *err)
{
	_cleanup_free_ struct layout *c = calloc(LAYOUT_MAX_CANDIDATES, sizeof(*c));
	_cleanup_free_ struct search *s = calloc(1, sizeof(*s));
	_cleanup_maps_ struct proc_maps maps = { 0 };
	bool twin;
	int rc;

	if (!c || !s)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a guest");
	rc = proc_maps_read(vm->pid, &maps);
	if (rc == -ESRCH)
		return vm_gone(vm, err);
	if (rc < 0)
		return err_set(err, rc, ERR_TARGET_PERMISSION, 0,
			       "cannot read the memory map of process %d: %s", (int)vm->pid,
			       strerror(-rc));
	s->vm = vm;
	s->c = c;
	s->n = s->pick = layout_candidates(&maps, proc_arg_contains(vm->pid, "q35"), c);
	if (s->n == 0)
		return err_set(err, -ENODEV, ERR_TARGET_NOT_VMM, 0,
			       "process %d has no memory that could be guest RAM", (int)vm->pid);
	twin = has_twin(&maps, &c[0]);
	if (s->n == 1 && !twin)
		return use(vm, &c[0], err);
	search_up_to(s, LOW_SCAN);
	if (s->pick == s->n)
		search_up_to(s, FULL_SCAN);
	return s->pick < s->n ? use(vm, &c[s->pick], err) : refuse(s, twin, err);
}
