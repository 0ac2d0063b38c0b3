// SPDX-License-Identifier: Apache-2.0
/* Kernels in a byte array. Layout of an image: text, .rodata, data, 2 MiB each. */
#include "test_symbols_fake.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB        (1ull << 20)
#define KALLSYMS   (FAKE_RODATA + 0x10000)
#define BTF_AT     (FAKE_RODATA + 0x100000)
#define NOTES_AT   (FAKE_RODATA + 0x8000)
#define VARS       (FAKE_DATA + 0x40000)
#define FILL_START 0x1000
#define FILL_BYTES 0x40
#define SYMS_CAP   600

enum var {
	V_PHYS_BASE,
	V_VMC_DATA,
	V_VMC_SIZE,
	V_JIFFIES,
	V_TK,
	V_MODULES = V_TK + 8,
	V_PAGES,
	V_CPU_IDS,
	V_PERCPU,
	V_MASK = V_PERCPU + 4
};

static const char banner[] =
	"Linux version 6.1.0-fake (builder@fake) (gcc 12) #1 SMP fake (2026-01-01)\n";

void fake_guest_init(struct fake_guest *g)
{
	*g = (struct fake_guest){ .ram = calloc(1, FAKE_RAM), .ram_bytes = FAKE_RAM };
	if (!g->ram)
		abort();
}

void fake_guest_deinit(struct fake_guest *g)
{
	free(g->ram);
}

/* Where @va lies by the layout, not by the page tables: those are under test. */
static bool va_to_pa(const struct fake_kernel *k, u64 va, u64 *pa)
{
	if (va >= k->o.virt && va - k->o.virt < FAKE_END)
		*pa = va - k->o.virt + k->o.image;
	else if (va >= FAKE_MODULES && va - FAKE_MODULES < 2 * MIB)
		*pa = va - FAKE_MODULES + k->o.heap + 2 * MIB;
	else if (va >= k->direct && va - k->direct < FAKE_RAM)
		*pa = va - k->direct;
	else
		return false;
	return true;
}

static int read_phys(void *arg, gpa_t addr, void *buf, size_t len)
{
	const struct fake_kernel *k = arg;
	const struct fake_guest *g = k->g;

	if (addr.v > g->ram_bytes || len > g->ram_bytes - addr.v)
		return -EFAULT;
	if (addr.v < g->hole_end && addr.v + len > g->hole_start)
		return -EFAULT;
	memcpy(buf, g->ram + addr.v, len);
	return 0;
}

static int read_virt(void *arg, gva_t addr, void *buf, size_t len)
{
	const struct fake_kernel *k = arg;
	u64 pa, last;

	if (!len || !va_to_pa(k, addr.v, &pa) || !va_to_pa(k, addr.v + len - 1, &last) ||
	    last != pa + len - 1)
		return -EFAULT;
	return read_phys(arg, gpa(pa), buf, len);
}

static bool next_frame(void *arg, gpa_t from, u64 step, gpa_t *ret)
{
	const struct fake_kernel *k = arg;

	*ret = gpa((from.v + step - 1) / step * step);
	return ret->v < k->g->ram_bytes;
}

static bool next_resident(void *arg, gpa_t from, gpa_t *start_ret, u64 *len_ret)
{
	const struct fake_kernel *k = arg;

	if (from.v >= k->g->ram_bytes)
		return false;
	*start_ret = from;
	*len_ret = k->g->ram_bytes - from.v;
	return true;
}

struct sym_mem fake_mem(struct fake_kernel *k)
{
	return (struct sym_mem){ read_virt, read_phys, next_frame, next_resident, k };
}

void *fake_at(struct fake_kernel *k, u64 va)
{
	u64 pa;

	if (!va_to_pa(k, va, &pa) || pa >= k->g->ram_bytes)
		abort();
	return k->g->ram + pa;
}

void fake_put64(struct fake_kernel *k, u64 va, u64 v)
{
	memcpy(fake_at(k, va), &v, sizeof(v));
}

void fake_put32(struct fake_kernel *k, u64 va, u32 v)
{
	memcpy(fake_at(k, va), &v, sizeof(v));
}

u64 fake_sym_addr(const struct fake_kernel *k, const char *name)
{
	for (size_t i = 0; i < k->n_syms; i++)
		if (!strcmp(k->syms[i].name, name))
			return k->syms[i].addr;
	abort();
}

static u64 var(const struct fake_kernel *k, enum var v)
{
	return k->o.virt + VARS + (u64)v * 64;
}

static u64 banner_at(const struct fake_kernel *k)
{
	return FAKE_RODATA + (k->o.no_banner_page ? 0x2000 : 0x1a0);
}

/* Page-aligned memory of the kernel's; returns its address in the direct map. */
static u64 heap_pages(struct fake_kernel *k, u64 bytes)
{
	u64 at = k->heap_next;

	k->heap_next += (bytes + PAGE_SIZE - 1) & PAGE_MASK;
	if (k->heap_next > k->o.heap + MIB)
		abort();
	return k->direct + at;
}

static void sym(struct fake_kernel *k, u64 addr, char type, const char *name)
{
	struct fake_sym *s = &k->syms[k->n_syms++];

	if (k->n_syms > SYMS_CAP)
		abort();
	s->addr = addr;
	s->order = (u32)k->n_syms;
	s->type = type;
	snprintf(s->name, sizeof(s->name), "%s", name);
}

static int by_addr(const void *a, const void *b)
{
	const struct fake_sym *x = a, *y = b;

	if (x->addr == y->addr)
		return x->order < y->order ? -1 : 1;
	return x->addr < y->addr ? -1 : 1;
}

static void add_text(struct fake_kernel *k)
{
	char name[300];

	sym(k, k->o.virt, 'T', "_text");
	sym(k, k->o.virt, 'T', "_stext");
	for (u64 i = 0; i < FAKE_FILL; i++) {
		snprintf(name, sizeof(name), "vfs_fill_%03llu", (unsigned long long)i);
		sym(k, k->o.virt + FILL_START + i * FILL_BYTES, i % 2 ? 't' : 'T', name);
	}
	/* Two names at one address, one name at two, one that needs two bytes of length. */
	sym(k, k->o.virt + 0x80000, 't', "first_alias");
	sym(k, k->o.virt + 0x80000, 'T', "second_alias");
	sym(k, k->o.virt + 0x80100, 't', "twice");
	sym(k, k->o.virt + 0x80200, 't', "twice");
	memset(name, 'x', 290);
	name[290] = '\0';
	sym(k, k->o.virt + 0x80300, 't', name);
	sym(k, k->o.virt + 0x100000, 'T', "_etext");
}

static void add_data(struct fake_kernel *k)
{
	u64 v = k->o.virt;
	u64 percpu = k->o.all_relative ? v + FAKE_DATA + 0x100000 : 0;

	sym(k, percpu, k->o.all_relative ? 'D' : 'A', "__per_cpu_start");
	sym(k, percpu + 0x1fb80, k->o.all_relative ? 'D' : 'A', "current_task");
	sym(k, v + FAKE_RODATA, 'D', "__start_rodata");
	sym(k, v + banner_at(k), 'D', "linux_banner");
	sym(k, v + NOTES_AT, 'R', "__start_notes");
	sym(k, v + NOTES_AT + 0x24, 'R', "__stop_notes");
	if (!k->o.no_btf) {
		sym(k, v + BTF_AT, 'R', "__start_BTF");
		sym(k, v + BTF_AT + k->btf_bytes, 'R', "__stop_BTF");
	}
	if (k->o.landing_pads)
		sym(k, v + FAKE_RODATA + 0x1f0000, 'R', "__ibt_endbr_seal");
	sym(k, v + FAKE_DATA, 'D', "init_top_pgt");
	sym(k, var(k, V_PHYS_BASE), 'D', "phys_base");
	if (!k->o.no_vmcoreinfo) {
		sym(k, var(k, V_VMC_DATA), 'B', "vmcoreinfo_data");
		sym(k, var(k, V_VMC_SIZE), 'B', "vmcoreinfo_size");
	}
	sym(k, var(k, V_JIFFIES), 'D', "jiffies_64");
	sym(k, var(k, V_TK), 'b', "tk_core");
	sym(k, var(k, V_MODULES), 'D', "modules");
	sym(k, var(k, V_PAGES), 'b', "ftrace_pages_start");
	sym(k, var(k, V_CPU_IDS), 'D', "nr_cpu_ids");
	sym(k, var(k, V_PERCPU), 'D', "__per_cpu_offset");
	sym(k, var(k, V_MASK), 'D', "__cpu_possible_mask");
	sym(k, v + FAKE_END, 'B', "_end");
}

/* 2 MiB at @va, with tables where there are none yet. */
static void map(struct fake_kernel *k, u64 va, u64 pa)
{
	u64 table = k->o.image + FAKE_DATA;

	for (int level = k->o.levels; level > 2; level--) {
		u64 *e = (u64 *)(void *)(k->g->ram + table) + (va >> (12 + 9 * (level - 1)) & 511);

		if (!*e) {
			*e = k->table_next | 0x63;
			k->table_next += PAGE_SIZE;
		}
		table = *e & ~0xfffull;
	}
	((u64 *)(void *)(k->g->ram + table))[va >> 21 & 511] = pa | 0x80000000000000e3ull;
}

static void add_tables(struct fake_kernel *k)
{
	k->table_next = k->o.image + FAKE_DATA + PAGE_SIZE;
	for (u64 at = 0; at < FAKE_END; at += 2 * MIB)
		map(k, k->o.virt + at, k->o.image + at);
	for (u64 at = 0; at < FAKE_RAM; at += 2 * MIB)
		map(k, k->direct + at, at);
	map(k, FAKE_MODULES, k->o.heap + 2 * MIB);
}

static void add_vmcoreinfo(struct fake_kernel *k)
{
	u64 phys_base = k->o.image - (k->o.virt - 0xffffffff80000000ull);
	char *p;
	int n;

	k->vmcoreinfo = heap_pages(k, PAGE_SIZE);
	p = fake_at(k, k->vmcoreinfo);
	n = snprintf(p, PAGE_SIZE,
		     "OSRELEASE=6.1.0-fake\nBUILD-ID=0123456789abcdef\nPAGESIZE=4096\n"
		     "SYMBOL(swapper_pg_dir)=%llx\nSYMBOL(_stext)=%llx\n"
		     "NUMBER(phys_base)=%lld\nNUMBER(pgtable_l5_enabled)=%d\nKERNELOFFSET=%llx\n",
		     (unsigned long long)(k->o.virt + FAKE_DATA), (unsigned long long)k->o.virt,
		     (long long)phys_base, k->o.levels == 5,
		     (unsigned long long)(k->o.virt - 0xffffffff81000000ull));
	fake_put64(k, var(k, V_VMC_DATA), k->vmcoreinfo);
	fake_put64(k, var(k, V_VMC_SIZE), (u64)n);
}

static void add_image(struct fake_kernel *k)
{
	struct fake_kallsyms ks = { .new_order = k->o.new_order,
				    .seqs = k->o.seqs,
				    .all_relative = k->o.all_relative,
				    .place_relative = k->o.place_relative,
				    .first = k->o.virt + KALLSYMS,
				    .relative_base = k->o.virt };
	static const Elf64_Nhdr note = { 4, 20, NT_GNU_BUILD_ID };
	_cleanup_buf_ struct buf tables = { 0 };
	u8 *image = k->g->ram + k->o.image;

	memcpy(image + banner_at(k), banner, sizeof(banner));
	memcpy(image + NOTES_AT, &note, sizeof(note));
	memcpy(image + NOTES_AT + 12, "GNU", 4);
	memset(image + NOTES_AT + 16, 0xab, 20);
	fake_tokens_default(&ks);
	fake_kallsyms_write(&ks, k->syms, k->n_syms, &tables);
	memcpy(image + KALLSYMS, tables.data, tables.len);
	fake_put64(k, var(k, V_PHYS_BASE), k->o.image - (k->o.virt - 0xffffffff80000000ull));
	fake_put32(k, var(k, V_CPU_IDS), 2);
	fake_put64(k, var(k, V_PERCPU), 0x10000);
	fake_put64(k, var(k, V_PERCPU) + 8, 0x20000);
	fake_put64(k, var(k, V_MASK), 3);
}

/* One page of records: @n sites @step apart, the last one of a weak function (0x20 behind). */
static void add_page(struct fake_kernel *k, int page, u64 first, u32 n, u64 step)
{
	u64 pad = k->o.landing_pads ? 4 : 0;
	u64 s = heap_pages(k, PAGE_SIZE), rec = heap_pages(k, 2 * PAGE_SIZE);

	for (u32 i = 0; i < n; i++) {
		u64 off = i + 1 == n ? 0x20 : pad;

		fake_put64(k, rec + 16ull * i, first + step * i + off);
		fake_put64(k, rec + 16ull * i + 8, 1ull << 20);
	}
	fake_put64(k, s + 8, rec);
	fake_put32(k, s + 16, n);
	fake_put32(k, s + 20, 1);
	fake_put64(k, page ? k->pages[0] : var(k, V_PAGES), s);
	k->pages[page] = s;
	k->records[page] = rec;
	k->n_records[page] = n;
}

/* Module @i: text of a page with functions mod_<i>_a and _b, symbols, one of them exported. */
static void add_module(struct fake_kernel *k, u32 i, u64 prev)
{
	u64 base = FAKE_MODULES + (u64)i * 0x4000, data = heap_pages(k, 3 * PAGE_SIZE);
	u64 ks = data + 0x400, symtab = data + 0x800, str = data + 0x1000, type = data + 0x2000;
	u64 exports = base + 0x1800, mem = data + 104;
	Elf64_Sym *s = fake_at(k, symtab);
	char *names = fake_at(k, str);
	u32 len = 1;

	for (u32 n = 1; n <= 3; n++) {
		char c = (char)('a' + n - 1);

		s[n] = (Elf64_Sym){ .st_name = len,
				    .st_shndx = 1,
				    .st_value = base + (n == 3 ? 0x8 : (n - 1) * 0x100) };
		len += n == 3 ? (u32)sprintf(names + len, ".LC%u", i) + 1
			      : (u32)sprintf(names + len, "mod_%u_%c", i, c) + 1;
		memcpy(fake_at(k, type + n), "t", 1);
	}
	fake_put64(k, ks, symtab);
	fake_put32(k, ks + 8, 4);
	fake_put64(k, ks + 16, str);
	fake_put64(k, ks + 24, type);
	snprintf(fake_at(k, data + 24), 56, "mod%u", i);
	fake_put32(k, exports, (u32)(base + 0x100 - exports));
	fake_put64(k, data + 80, exports);
	fake_put32(k, data + 88, k->o.mem_array ? 0 : 1);
	fake_put64(k, data + 96, ks);
	fake_put64(k, mem, base);
	fake_put32(k, mem + 8, k->o.mem_array ? 0x1000 : 0x2000);
	fake_put32(k, mem + 12, 0x1000);
	fake_put64(k, prev, data + 8);
	fake_put64(k, data + 8, var(k, V_MODULES));
	k->mods[i] = data;
	k->mod_kallsyms[i] = ks;
}

void fake_kernel_build(struct fake_kernel *k, struct fake_guest *g, const struct fake_opts *o)
{
	u32 btf_bytes;
	u8 *btf = fake_btf(o->mem_array, &btf_bytes);

	*k = (struct fake_kernel){ .g = g, .o = *o, .heap_next = o->heap };
	k->direct = o->levels == 5 ? 0xff11000000000000ull : 0xffff888000000000ull;
	k->syms = calloc(SYMS_CAP, sizeof(*k->syms));
	if (!k->syms || o->n_modules > ARRAY_SIZE(k->mods))
		abort();
	k->btf = o->virt + BTF_AT;
	k->btf_bytes = btf_bytes;
	memcpy(fake_at(k, k->btf), btf, btf_bytes);
	free(btf);
	add_text(k);
	add_data(k);
	qsort(k->syms, k->n_syms, sizeof(*k->syms), by_addr);
	add_image(k);
	add_tables(k);
	if (!o->no_vmcoreinfo)
		add_vmcoreinfo(k);
	fake_put64(k, var(k, V_MODULES), var(k, V_MODULES));
	for (u32 i = 0; i < o->n_modules; i++)
		add_module(k, i, i ? k->mods[i - 1] + 8 : var(k, V_MODULES));
	add_page(k, 0, o->virt + FILL_START, FAKE_FILL / 2, 2 * FILL_BYTES);
	if (o->n_modules)
		add_page(k, 1, FAKE_MODULES, 2 * o->n_modules, 0x100);
	for (u32 i = 0; i < 2 * o->n_modules; i++)
		fake_put64(k, k->records[1] + 16ull * i,
			   FAKE_MODULES + i / 2 * 0x4000ull + i % 2 * 0x100 +
				   (o->landing_pads ? 4 : 0));
}

void fake_kernel_deinit(struct fake_kernel *k)
{
	free(k->syms);
}

char *fake_file(const char *name, size_t *bytes_ret)
{
	char path[256];
	char *data = calloc(1, 65536);
	FILE *f;

	snprintf(path, sizeof(path), "unit/data/symbols/%s", name);
	f = fopen(path, "re");
	if (!f || !data)
		abort();
	*bytes_ret = fread(data, 1, 65535, f);
	fclose(f);
	return data;
}

static u64 patch_value(u8 what)
{
	static const u64 odd[] = { 0,
				   ~0ull,
				   0x7fffffff,
				   0x80000000,
				   0xffffffff80000000ull,
				   0xffff888000000000ull,
				   1ull << 63,
				   4096 };

	return what < 0xf8 ? what : odd[what - 0xf8];
}

void fake_patch(struct fake_patches *p, u8 *bytes, size_t len, const u8 *data, size_t size)
{
	*p = (struct fake_patches){ .bytes = bytes, .len = len };
	for (; size >= 6 && p->n < FAKE_PATCHES && len >= 8; data += 6, size -= 6) {
		u64 v = patch_value(data[5]);
		u32 at;

		memcpy(&at, data, 4);
		at = (u32)(at % (len - 7));
		p->undo[p->n].at = at;
		memcpy(p->undo[p->n].before, bytes + at, 8);
		p->n++;
		memcpy(bytes + at, &v, (size_t)1 << data[4] % 4);
	}
}

void fake_unpatch(struct fake_patches *p)
{
	while (p->n--)
		memcpy(p->bytes + p->undo[p->n].at, p->undo[p->n].before, 8);
}
