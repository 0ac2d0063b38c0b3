// SPDX-License-Identifier: Apache-2.0
/* vmm/mtree.c on what QEMU 7.2 printed; vmm/layout.c and vmm/proc.c on texts made here. */
#include "vmm/layout.h"
#include "vmm/mtree.h"
#include "vmm/regs_x86.h"
#include "vmm/vm_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define GIB        (1ull << 30)
#define MAX_RANGES 64

static struct mtree_range range[MAX_RANGES];
static size_t n_ranges;

/* Tests run in tests/. */
static char *load(const char *name)
{
	static char text[65536];
	char path[128];
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "unit/data/%s", name);
	f = fopen(path, "re");
	assert_non_null(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = '\0';
	return text;
}

/* Guest RAM of a capture, one "start-end" a range. */
static const char *ram_of(const char *file, const char *backend)
{
	static char out[1024];
	size_t at = 0;

	out[0] = '\0';
	assert_int_equal(mtree_parse(load(file), range, MAX_RANGES, &n_ranges), 0);
	for (size_t i = 0; i < n_ranges; i++) {
		if (mtree_is_guest_ram(&range[i], &range[0], &backend, backend ? 1 : 0))
			at += (size_t)snprintf(out + at, sizeof(out) - at, "%s%llx-%llx",
					       at ? " " : "", (unsigned long long)range[i].start,
					       (unsigned long long)range[i].end);
	}
	return out;
}

static void mtree_captures(void **state)
{
	(void)state;
	assert_string_equal(ram_of("mtree/pc_512m.txt", NULL), "0-c0000 100000-20000000");
	assert_string_equal(ram_of("mtree/pc_8g.txt", NULL),
			    "0-c0000 100000-c0000000 100000000-240000000");
	assert_string_equal(ram_of("mtree/q35_512m.txt", NULL), "0-a0000 100000-20000000");
	assert_string_equal(ram_of("mtree/q35_8g.txt", NULL),
			    "0-c0000 100000-80000000 100000000-280000000");
	assert_string_equal(ram_of("mtree/q35_8g_memfd.txt", "ram"),
			    "0-c0000 100000-80000000 100000000-280000000");
	assert_string_equal(ram_of("mtree/pc_4g_memfd.txt", "ram"),
			    "0-a0000 100000-c0000000 100000000-140000000");
	/* firmware that the board maps as RAM is not guest RAM */
	assert_string_equal(ram_of("mtree/microvm_512m.txt", "microvm.ram"),
			    "0-f0000 100000-20000000");
	/* after the firmware has write-protected its shadow copies */
	assert_string_equal(ram_of("mtree/pc_512m_linux.txt", "pc.ram"),
			    "0-c3000 e8000-f0000 100000-20000000");
}

static void mtree_names_and_accelerators(void **state)
{
	static const char text[] =
		"FlatView #0\n AS \"memory\", root: system\n Root memory region: system\n"
		"  0000000000000000-000000000009ffff (prio 0, ram): my ram): x KVM\n"
		"  0000000000100000-00000000001fffff (prio 0, ram): my ram): x @0000000000100000 KVM\n"
		"  0000000000200000-00000000002fffff (prio 0, romd): flash KVM\n"
		"  0000000100000000-00000001ffffffff (prio 0, nv-ram): /objects/nv0 KVM\n"
		"\nFlatView #1\n AS \"other\", root: x\n"
		"  0000000000000000-00000000ffffffff (prio 0, ram): other\n";
	const char *const backends[] = { "nv0" };

	(void)state;
	assert_int_equal(mtree_parse(text, range, MAX_RANGES, &n_ranges), 0);
	assert_int_equal(n_ranges, 3);
	assert_string_equal(range[0].name, "my ram): x");
	assert_string_equal(range[1].name, "my ram): x");
	assert_string_equal(range[2].name, "/objects/nv0");
	assert_true(mtree_is_guest_ram(&range[1], &range[0], NULL, 0));
	assert_false(mtree_is_guest_ram(&range[2], &range[0], NULL, 0));
	assert_true(mtree_is_guest_ram(&range[2], &range[0], backends, 1));
	assert_int_equal(mtree_parse(text, range, 2, &n_ranges), -E2BIG);
}

static void mtree_malformed(void **state)
{
	(void)state;
	assert_int_equal(mtree_parse("", range, MAX_RANGES, &n_ranges), -ENOENT);
	assert_int_equal(
		mtree_parse("FlatView #0\n AS \"I/O\", root: io\n", range, MAX_RANGES, &n_ranges),
		-ENOENT);
	assert_int_equal(
		mtree_parse(
			" AS \"memory\"\n  0000000000002000-0000000000000fff (prio 0, ram): r\n",
			range, MAX_RANGES, &n_ranges),
		-EPROTO);
	assert_int_equal(
		mtree_parse(" AS \"memory\"\n  0000000000002000", range, MAX_RANGES, &n_ranges),
		-EPROTO);
}

static void hmp_registers(void **state)
{
	struct vm_regs r;
	char *text = load("regs_kernel.txt");

	(void)state;
	assert_true(regs_parse_hmp(text, &r));
	assert_int_equal(r.rip, 0xffffffffb1818710);
	assert_int_equal(r.rsp, 0xff54c23080083e10);
	assert_int_equal(r.cr3, 0x2778000);
	assert_int_equal(r.cr4, 0x751eb0);
	assert_int_equal(r.efer, 0xd01);
	assert_int_equal(r.idt_base, 0xfffffe0000000000);
	assert_int_equal(r.gs_base, 0xff1392c71f200000);
	assert_false(r.user_mode);
	assert_false(r.halted);
	memcpy(strstr(text, "CPL=0"), "CPL=3", 5);
	memcpy(strstr(text, "HLT=0"), "HLT=1", 5);
	assert_true(regs_parse_hmp(text, &r));
	assert_true(r.user_mode);
	assert_true(r.halted);
	/* without its GS there is no telling */
	memcpy(strstr(text, "GS ="), "XX ", 3);
	assert_false(regs_parse_hmp(text, &r));
	text = load("regs_reset.txt"); /* 32-bit names */
	assert_true(regs_parse_hmp(text, &r));
	assert_int_equal(r.rip, 0xfff0);
	assert_int_equal(r.cr4, 0);
	assert_false(regs_parse_hmp("", &r));
	assert_false(regs_parse_hmp("RIP=zz RSP=0", &r));
}

static void maps_line(void **state)
{
	struct proc_map m;

	(void)state;
	assert_true(proc_map_parse("7f7a9fe00000-7f7abfe00000 rw-p 00000000 00:00 0 \n", &m));
	assert_int_equal(m.start, 0x7f7a9fe00000);
	assert_int_equal(m.end, 0x7f7abfe00000);
	assert_true(m.readable && m.writable && !m.shared);
	assert_string_equal(m.path, "");
	assert_true(proc_map_parse(
		"7f0000000000-7f0020000000 rw-s 00100000 00:01 2049                       /memfd:memory-backend-memfd (deleted)\n",
		&m));
	assert_true(m.shared);
	assert_int_equal(m.off, 0x100000);
	assert_int_equal(m.minor, 1);
	assert_int_equal(m.inode, 2049);
	assert_string_equal(m.path, "/memfd:memory-backend-memfd (deleted)");
	assert_false(proc_map_parse("", &m));
	assert_false(proc_map_parse("2000-1000 rw-p 0 00:00 0", &m));
	assert_false(proc_map_parse("1000-2000 rw", &m));
}

static void stat_text(void **state)
{
	u64 start;
	char st;

	(void)state;
	assert_true(proc_stat_parse(
		"12 (a) b (c)) S 1 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 9 9", &st,
		&start));
	assert_int_equal(st, 'S');
	assert_int_equal(start, 987654);
	assert_false(proc_stat_parse("12 (a) S 1 2", &st, &start));
	assert_false(proc_stat_parse("12", &st, &start));
}

static struct proc_map mapping(u64 start, u64 len)
{
	return (struct proc_map){
		.start = start, .end = start + len, .readable = true, .writable = true
	};
}

static struct layout chosen(struct proc_map *map, size_t n, bool q35, const struct e820_ram *ram,
			    size_t n_ram)
{
	struct proc_maps maps = { map, n };
	struct layout c[LAYOUT_MAX_CANDIDATES];
	size_t k = layout_candidates(&maps, q35, c);

	assert_in_range(k, 1, LAYOUT_MAX_CANDIDATES);
	for (size_t i = 0; i < k; i++) {
		if (layout_matches_e820(&c[i], ram, n_ram))
			return c[i];
	}
	return c[0];
}

static void assert_piece(const struct layout *c, size_t i, u64 at, u64 hva, u64 len)
{
	assert_true(i < c->n);
	assert_int_equal(c->piece[i].gpa, at);
	assert_int_equal(c->piece[i].hva, hva);
	assert_int_equal(c->piece[i].len, len);
}

static void layout_flat(void **state)
{
	struct proc_map map[] = { mapping(0x1000000, 2 * GIB), mapping(0x9000000000, 64 << 20) };
	struct proc_maps maps = { map, 2 };
	struct layout c[LAYOUT_MAX_CANDIDATES];

	(void)state;
	/* up to 2 GiB there is nothing to choose, whatever else is mapped */
	assert_int_equal(layout_candidates(&maps, true, c), 1);
	assert_piece(&c[0], 0, 0, 0x1000000, 2 * GIB);
	map[0].writable = false;
	assert_int_equal(layout_candidates(&maps, true, c), 1);
	assert_piece(&c[0], 0, 0, 0x9000000000, 64 << 20);
	strcpy(map[1].path, "[heap]");
	assert_int_equal(layout_candidates(&maps, true, c), 0);
}

static void layout_split_by_e820(void **state)
{
	const u64 low_holes[] = { 0xc0000000, 0x80000000, 0xd0000000, 0xe0000000 };
	struct proc_map map[] = { mapping(0x7f0000000000, 8 * GIB) };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(low_holes); i++) {
		u64 h = low_holes[i];
		struct e820_ram ram[] = { { 0, 0x9fc00 },
					  { 0x100000, h - 0x20000 },
					  { 4 * GIB, 4 * GIB + 8 * GIB - h } };
		struct layout c = chosen(map, 1, i & 1, ram, 3);

		assert_int_equal(c.n, 2);
		assert_piece(&c, 0, 0, 0x7f0000000000, h);
		assert_piece(&c, 1, 4 * GIB, 0x7f0000000000 + h, 8 * GIB - h);
	}
}

static void layout_of_other_vmms(void **state)
{
	/* Firecracker: two mappings, the high one at a lower host address */
	struct proc_map fc[] = { mapping(0x7e0000000000, 2 * GIB),
				 mapping(0x7f0000000000, 0xd0000000) };
	struct e820_ram fc_ram[] = { { 0, 0x9fc00 },
				     { 0x100000, 0xd0000000 },
				     { 4 * GIB, 6 * GIB } };
	/* kvmtool: low, hole without access, high */
	struct proc_map kt[] = { mapping(0x7f0000000000, 0xd0000000),
				 mapping(0x7f0100000000, 1 * GIB) };
	struct e820_ram kt_ram[] = { { 0, 0x9fc00 },
				     { 0x100000, 0xd0000000 },
				     { 4 * GIB, 5 * GIB } };
	struct layout c;

	(void)state;
	c = chosen(fc, 2, false, fc_ram, 3);
	assert_piece(&c, 0, 0, 0x7f0000000000, 0xd0000000);
	assert_piece(&c, 1, 4 * GIB, 0x7e0000000000, 2 * GIB);
	c = chosen(kt, 2, false, kt_ram, 3);
	assert_piece(&c, 0, 0, 0x7f0000000000, 0xd0000000);
	assert_piece(&c, 1, 4 * GIB, 0x7f0100000000, 1 * GIB);
}

static void put(u8 *p, u64 v, size_t n)
{
	memcpy(p, &v, n);
}

static void e820_from_boot_params(void **state)
{
	u8 page[4096] = { 0 };
	struct e820_ram ram[128];

	(void)state;
	put(page + 0x1fe, 0xaa55, 2);
	memcpy(page + 0x202, "HdrS", 4);
	assert_int_equal(layout_parse_e820(page, ram), 0); /* a bzImage: no entries yet */
	page[0x1e8] = 3;
	put(page + 0x2d0, 0, 8);
	put(page + 0x2d8, 0x9fc00, 8);
	put(page + 0x2e0, 1, 4);
	put(page + 0x2e4, 0x9fc00, 8);
	put(page + 0x2ec, 0x400, 8);
	put(page + 0x2f4, 2, 4); /* reserved */
	put(page + 0x2f8, 0x100000, 8);
	put(page + 0x300, 0x1ff00000, 8);
	put(page + 0x308, 1, 4);
	assert_int_equal(layout_parse_e820(page, ram), 2);
	assert_int_equal(ram[1].start, 0x100000);
	assert_int_equal(ram[1].end, 0x20000000);
	put(page + 0x300, UINT64_MAX, 8); /* wraps */
	assert_int_equal(layout_parse_e820(page, ram), 0);
	page[0x1e8] = 129; /* more than the table holds */
	assert_int_equal(layout_parse_e820(page, ram), 0);
}

static void e820_from_pvh(void **state)
{
	u8 low[8192] = { 0 };
	struct e820_ram ram[128];

	(void)state;
	put(low + 256, 0x336ec578, 4);
	put(low + 256 + 40, 4096, 8);
	put(low + 256 + 48, 2, 4);
	put(low + 4096 + 8, 0x9fc00, 8);
	put(low + 4096 + 16, 1, 4);
	put(low + 4096 + 24, 0x100000, 8);
	put(low + 4096 + 32, GIB, 8);
	put(low + 4096 + 40, 1, 4);
	assert_int_equal(layout_parse_pvh(low, sizeof(low), 256, ram),
			 0); /* version 0 has no map */
	put(low + 256 + 4, 1, 4);
	assert_int_equal(layout_parse_pvh(low, sizeof(low), 256, ram), 2);
	assert_int_equal(ram[1].end, GIB + 0x100000);
	assert_int_equal(layout_parse_pvh(low, sizeof(low), 255, ram), 0);
	assert_int_equal(layout_parse_pvh(low, sizeof(low), sizeof(low) - 55, ram), 0);
	put(low + 256 + 40, 8192 - 47, 8); /* its end is cut */
	assert_int_equal(layout_parse_pvh(low, sizeof(low), 256, ram), 0);
	put(low + 256 + 40, UINT64_MAX, 8);
	assert_int_equal(layout_parse_pvh(low, sizeof(low), 256, ram), 0);
	put(low + 256 + 40, 4096, 8);
	put(low + 256 + 48, UINT32_MAX, 4);
	assert_int_equal(layout_parse_pvh(low, sizeof(low), 256, ram), 0);
}

/* "VMMs": children with so much memory, of which next to nothing is touched. */

struct vmm {
	size_t n; /* mappings of @len bytes each */
	u64 len;
	u64 low_end; /* what the guest's map says, in boot_params; 0: there are none */
	u64 high_end;
	u64 params_at;
	u64 stale_at; /* an older map, which says nothing sensible; 0: none */
};

static void put_params(u8 *page, u64 low_end, u64 high_end)
{
	put(page + 0x1fe, 0xaa55, 2);
	memcpy(page + 0x202, "HdrS", 4);
	page[0x1e8] = high_end ? 2 : 1;
	put(page + 0x2d0, 0x100000, 8);
	put(page + 0x2d8, low_end - 0x100000, 8);
	put(page + 0x2e0, 1, 4);
	put(page + 0x2e4, 4 * GIB, 8);
	put(page + 0x2ec, high_end - 4 * GIB, 8);
	put(page + 0x2f4, 1, 4);
}

static void be_vmm(const struct vmm *v, int ready)
{
	for (size_t i = 0; i < v->n; i++) {
		/* a page more without access, so that neighbours are two mappings */
		u8 *p = mmap(NULL, v->len + 4096, PROT_NONE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (p == MAP_FAILED || mprotect(p, v->len, PROT_READ | PROT_WRITE))
			_exit(1);
		if (v->stale_at)
			put_params(p + v->stale_at, 2 * GIB, 0);
		if (v->low_end)
			put_params(p + v->params_at, v->low_end, v->high_end);
	}
	(void)!write(ready, "1", 1);
	for (;;)
		pause();
}

static int guess(const struct vmm *v, struct vm *vm, struct err *err)
{
	char byte, path[32];
	int ready[2];
	int rc;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	memset(vm, 0, sizeof(*vm));
	memset(err, 0, sizeof(*err));
	vm->pid = fork();
	if (vm->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ready[0]);
		be_vmm(v, ready[1]);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	vm->pidfd = (int)syscall(SYS_pidfd_open, vm->pid, 0);
	snprintf(path, sizeof(path), "/proc/%d/mem", (int)vm->pid);
	vm->mem = open(path, O_RDWR | O_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)vm->pid);
	vm->pagemap = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(vm->pidfd >= 0 && vm->mem >= 0 && vm->pagemap >= 0);
	rc = layout_guess(vm, err);
	kill(vm->pid, SIGKILL);
	waitpid(vm->pid, NULL, 0);
	close(vm->pidfd);
	close(vm->mem);
	close(vm->pagemap);
	return rc;
}

static void refused(const struct vmm *v, const char *why)
{
	struct vm vm;
	struct err err;

	assert_int_equal(guess(v, &vm, &err), -ENODEV);
	assert_int_equal(err.code, ERR_TARGET_NOT_VMM);
	assert_non_null(strstr(err.msg, why));
	assert_non_null(strstr(err.msg, "libvirt:URI/DOMAIN"));
	assert_int_equal(vm.n_ram, 0);
}

/* What nobody confirms is not used: by a wrong layout other pages of the guest would be written to. */
static void only_what_the_guest_confirms(void **state)
{
	struct vmm v = { .n = 1, .len = 6 * GIB, .params_at = 0x7000 };
	struct vm vm;
	struct err err;

	(void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	skip(); /* their shadow memory is larger than RAM */
#endif
	refused(&v, "does not tell");
	v.low_end = 0xa0000000; /* a hole that begins where no VMM known has one */
	v.high_end = 4 * GIB + 6 * GIB - v.low_end;
	refused(&v, "0x1e0000000, fits");
	v.low_end = 0xd0000000;
	v.high_end = 4 * GIB + 6 * GIB - v.low_end;
	assert_int_equal(guess(&v, &vm, &err), 0);
	assert_int_equal(vm.n_ram, 2);
	assert_true(vm_ram_guessed(&vm)); /* who writes there asks for a proof */
	assert_int_equal(vm.ram[0].ram.len_bytes, 0xd0000000);
	assert_int_equal(vm.ram[1].hva, vm.ram[0].hva + 0xd0000000);
	/* a boot loader's, that of the kernel before */
	v.stale_at = 0x3000;
	assert_int_equal(guess(&v, &vm, &err), 0);
	assert_int_equal(vm.ram[0].ram.len_bytes, 0xd0000000);
	v.params_at = 0x10001000; /* it has only its own copy left */
	assert_int_equal(guess(&v, &vm, &err), 0);
	assert_int_equal(vm.ram[0].ram.len_bytes, 0xd0000000);
	/* two nodes: which is the first? */
	v = (struct vmm){ .n = 2, .len = GIB, .params_at = 0x7000, .low_end = 2 * GIB };
	refused(&v, "NUMA");
	v.n = 1; /* one that is too small for a hole needs nobody's word */
	v.low_end = 0;
	assert_int_equal(guess(&v, &vm, &err), 0);
	assert_int_equal(vm.n_ram, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mtree_captures),
		cmocka_unit_test(mtree_names_and_accelerators),
		cmocka_unit_test(mtree_malformed),
		cmocka_unit_test(hmp_registers),
		cmocka_unit_test(maps_line),
		cmocka_unit_test(stat_text),
		cmocka_unit_test(layout_flat),
		cmocka_unit_test(layout_split_by_e820),
		cmocka_unit_test(layout_of_other_vmms),
		cmocka_unit_test(e820_from_boot_params),
		cmocka_unit_test(e820_from_pvh),
		cmocka_unit_test(only_what_the_guest_confirms),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
