// SPDX-License-Identifier: Apache-2.0
/* A located kernel's tables, read once, and what can be asked of them. */
#include "symbols/kernel_priv.h"

#include "base/cleanup.h"
#include "base/cursor.h"
#include "symbols/image.h"
#include "symbols/mem.h"

#include <elf.h>
#include <errno.h>

#define BTF_BYTES_MAX   (64u << 20)
#define NOTES_BYTES_MAX 4096u
#define CPUS_MAX        8192u /* CONFIG_NR_CPUS' upper end on x86-64 */

static u64 sym_or(const struct kernel *k, const char *name, u64 otherwise)
{
	u64 v;

	return kernel_sym(k, name, &v) ? otherwise : v;
}

static int load_symbols(struct kernel *k, struct err *err)
{
	struct image im;
	u64 text;
	int rc = image_of_kernel(&k->mem, k->loc.image, &im);

	if (!rc) {
		rc = kallsyms_place(im.data, &im.kallsyms,
				    im.base.v - k->loc.image.v + k->loc.text.v);
		if (!rc)
			rc = kallsyms_expand(im.data, &im.kallsyms, &k->syms);
		image_deinit(&im);
	}
	if (rc == -ENOMEM)
		return err_set(err, rc, ERR_NO_MEMORY, 0, "no memory for the guest's symbols");
	if (rc || kernel_sym(k, "_text", &text) || text != k->loc.text.v)
		return err_set(err, -EUCLEAN, ERR_GUEST_MEMORY, k->loc.image.v,
			       "the kernel's symbol table is damaged");
	k->image.start = sym_or(k, "_stext", text);
	k->image.end = sym_or(k, "_end", 0);
	k->text[0] = (struct addr_range){ k->image.start, sym_or(k, "_etext", 0) };
	k->text[1] =
		(struct addr_range){ sym_or(k, "__init_begin", 0), sym_or(k, "__init_end", 0) };
	/* <asm/ftrace.h> v6.1: FTRACE_MCOUNT_MAX_OFFSET is ENDBR_INSN_SIZE, which is 0 without IBT */
	if (!kernel_sym(k, sym_arch()->landing_pad_symbol, &text))
		k->site_offset_max = sym_arch()->landing_pad_bytes;
	return 0;
}

/* NT_GNU_BUILD_ID among the ELF notes that the image keeps, for kernels that do not print it. */
static void build_id_from_notes(struct kernel *k)
{
	u8 notes[NOTES_BYTES_MAX];
	u64 start = sym_or(k, "__start_notes", 0), end = sym_or(k, "__stop_notes", 0);
	struct cursor c;
	Elf64_Nhdr h;

	if (end <= start || end - start > sizeof(notes) ||
	    mem_read(&k->mem, start, notes, end - start))
		return;
	c = cursor_init(notes, end - start);
	while (cursor_bytes(&c, &h, sizeof(h))) {
		size_t name = c.pos, desc, next;

		desc = name + ((size_t)h.n_namesz + 3) / 4 * 4;
		next = desc + ((size_t)h.n_descsz + 3) / 4 * 4;
		if (!cursor_seek(&c, next))
			return;
		if (h.n_type != NT_GNU_BUILD_ID || h.n_namesz != 4 ||
		    memcmp(notes + name, "GNU", 4) != 0 || h.n_descsz >= sizeof(k->build_id) / 2)
			continue;
		for (size_t i = 0; i < h.n_descsz; i++)
			(void)snprintf(k->build_id + 2 * i, 3, "%02x", notes[desc + i]);
		return;
	}
}

/* "Linux version 6.1.0-57-cloud-amd64 (debian..." */
static void release_from_banner(struct kernel *k)
{
	const char *p = k->loc.banner + strlen("Linux version ");
	size_t n;

	if (strlen(k->loc.banner) < strlen("Linux version "))
		return;
	n = strcspn(p, " ");
	if (n < sizeof(k->release)) {
		memcpy(k->release, p, n);
		k->release[n] = '\0';
	}
}

/* Three numbers with dots; a missing one is 0. */
static u32 parse_version(const char *s)
{
	u32 part[3] = { 0 };

	for (u32 i = 0; i < 3; i++) {
		for (; *s >= '0' && *s <= '9'; s++)
			part[i] = MIN(part[i] * 10 + (u32)(*s - '0'), 255u);
		if (*s++ != '.')
			break;
	}
	return part[0] << 16 | part[1] << 8 | part[2];
}

void kernel_load_identity(struct kernel *k)
{
	char text[VMCOREINFO_BYTES_MAX];
	struct vmcoreinfo v;
	u64 at, data, bytes;

	release_from_banner(k);
	if (!kernel_sym(k, "vmcoreinfo_data", &at) && !mem_u64(&k->mem, at, &data) && data &&
	    !kernel_sym(k, "vmcoreinfo_size", &at) && !mem_u64(&k->mem, at, &bytes) &&
	    bytes <= sizeof(text) && !mem_read(&k->mem, data, text, sizeof(text)) &&
	    !vmcoreinfo_parse(text, bytes, &v)) {
		k->vmcoreinfo = gva(data);
		k->vmcoreinfo_bytes = bytes;
		memcpy(k->release, v.release, sizeof(k->release));
		memcpy(k->build_id, v.build_id, sizeof(k->build_id));
	}
	if (!k->build_id[0])
		build_id_from_notes(k);
	k->version = parse_version(k->release);
}

static int load_btf(struct kernel *k, struct err *err)
{
	u64 start = sym_or(k, "__start_BTF", 0), end = sym_or(k, "__stop_BTF", 0);
	u8 *blob;
	int rc;

	if (!start || end == start)
		return err_set(err, -ENOENT, ERR_GUEST_NO_BTF, 0, "the kernel has no BTF");
	if (end < start || end - start > BTF_BYTES_MAX)
		return err_set(err, -EUCLEAN, ERR_GUEST_MEMORY, start,
			       "BTF's bounds do not make sense");
	blob = malloc(end - start);
	if (!blob)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for the guest's types");
	rc = mem_read(&k->mem, start, blob, end - start);
	if (!rc)
		rc = btf_types_init(&k->btf, blob, end - start);
	if (!rc)
		return 0;
	free(blob);
	if (rc == -ENOMEM)
		return err_set(err, rc, ERR_NO_MEMORY, 0, "no memory for the guest's types");
	return err_set(err, -EUCLEAN, ERR_GUEST_MEMORY, start, "the kernel's BTF is damaged");
}

static int load_layouts(struct kernel *k, struct err *err)
{
	int rc;
	u64 at;

	if (kernel_sym(k, "ftrace_pages_start", &at))
		return err_set(err, -ENOENT, ERR_GUEST_NO_FTRACE, 0,
			       "the kernel has no ftrace_pages_start");
	k->pages_head = at;
	rc = ftrace_layout_init(&k->btf, &k->ftrace_layout);
	if (rc == -ENOENT)
		return err_set(err, rc, ERR_GUEST_NO_FTRACE, 0,
			       "the kernel's types have no struct ftrace_page as we know it");
	if (!rc && !kernel_sym(k, "modules", &at)) {
		k->modules_head = at;
		k->has_modules = true;
		rc = module_layout_init(&k->btf, &k->module_layout);
		module_btf_layout_init(&k->btf, sym_or(k, "btf_modules", 0), &k->module_btf_layout);
	}
	if (rc == -ENOENT)
		return err_set(err, -EUCLEAN, ERR_GUEST_UNSUPPORTED, 0,
			       "the kernel's types have no struct module as we know it");
	if (rc)
		return err_set(err, -EUCLEAN, ERR_GUEST_MEMORY, 0,
			       "sizes in the kernel's BTF do not make sense");
	return 0;
}

/* nr_cpu_ids is a variable unless CONFIG_FORCE_NR_CPUS (v6.1); else one behind the last bit. */
static void load_cpus(struct kernel *k)
{
	u8 mask[CPUS_MAX / 8];
	u32 n = 0, bytes;
	u64 at;

	k->percpu_offsets = sym_or(k, "__per_cpu_offset", 0);
	if (!kernel_sym(k, "nr_cpu_ids", &at) && !mem_u32(&k->mem, at, &n) && n && n <= CPUS_MAX) {
		k->nr_cpu_ids = n;
		return;
	}
	k->nr_cpu_ids = 1;
	if (kernel_sym(k, "__cpu_possible_mask", &at) ||
	    btf_types_size(&k->btf, "cpumask", &bytes) || bytes > sizeof(mask) ||
	    mem_read(&k->mem, at, mask, bytes))
		return;
	for (u32 i = 0; i < bytes * 8; i++)
		if (mask[i / 8] >> i % 8 & 1)
			k->nr_cpu_ids = i + 1;
}

int kernel_load(const struct sym_mem *mem, const struct kernel_location *loc, struct kernel **ret,
		struct err *err)
{
	_cleanup_(kernel_destroyp) struct kernel *k = calloc(1, sizeof(*k));
	int rc;

	if (!k)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a kernel");
	atomic_init(&k->refs, 1);
	k->mem = *mem;
	k->loc = *loc;
	k->names = malloc(sizeof(*k->names));
	if (!k->names)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a kernel");
	pthread_rwlock_init(k->names, NULL);
	rc = load_symbols(k, err);
	if (rc)
		return rc;
	kernel_load_identity(k);
	rc = load_btf(k, err);
	if (!rc)
		rc = load_layouts(k, err);
	if (rc)
		return rc;
	load_cpus(k);
	rc = kernel_refresh(k, err);
	if (rc)
		return rc;
	*ret = no_cleanup_ptr(k);
	return 0;
}

struct kernel *kernel_ref(struct kernel *k)
{
	atomic_fetch_add(&k->refs, 1);
	return k;
}

void kernel_destroy(struct kernel *k)
{
	if (!k || atomic_fetch_sub(&k->refs, 1) > 1)
		return;
	sym_table_deinit(&k->syms);
	btf_types_deinit(&k->btf);
	modules_deinit(k);
	free(k->sites.sites);
	free(k->by_ip);
	free(k->site_names);
	free(k);
}

void kernel_destroyp(struct kernel **k)
{
	kernel_destroy(*k);
}

const struct kernel_location *kernel_location(const struct kernel *k)
{
	return &k->loc;
}

const char *kernel_release(const struct kernel *k)
{
	return k->release;
}

const char *kernel_build_id(const struct kernel *k)
{
	return k->build_id;
}

u32 kernel_version(const struct kernel *k)
{
	return k->version;
}

bool kernel_vmcoreinfo(const struct kernel *k, gva_t *data_ret, u64 *size_ret)
{
	if (!k->vmcoreinfo.v)
		return false;
	*data_ret = k->vmcoreinfo;
	*size_ret = k->vmcoreinfo_bytes;
	return true;
}

int kernel_sym(const struct kernel *k, const char *name, u64 *addr_ret)
{
	u32 i;

	if (!sym_table_find(&k->syms, name, &i))
		return -ENOENT;
	*addr_ret = k->syms.addr[i];
	return 0;
}

static void kernel_own(const struct kernel *k, u32 i, struct kernel_sym *ret)
{
	u64 next = sym_table_next(&k->syms, i, MAX(k->image.end, k->syms.addr[i]));

	*ret = (struct kernel_sym){ .name = sym_table_name(&k->syms, i),
				    .addr = k->syms.addr[i],
				    .size_bytes = next - k->syms.addr[i],
				    .type = sym_table_type(&k->syms, i) };
}

bool kernel_sym_at(const struct kernel *k, u64 addr, struct kernel_sym *ret)
{
	const struct module_sym *s;
	u32 hint = 0, i;
	u64 next;

	/* is_ksym_addr(), CONFIG_KALLSYMS_ALL: what is outside is no symbol's though one is lower. */
	if (addr >= k->image.start && addr < k->image.end) {
		if (!sym_table_at(&k->syms, addr, &hint, &i))
			return false;
		kernel_own(k, i, ret);
		return true;
	}
	s = module_sym_at(&k->mods, addr, &next);
	if (!s)
		return false;
	module_sym_own(&k->mods, s, next, ret);
	return true;
}

size_t kernel_sym_count(const struct kernel *k)
{
	return (size_t)k->syms.n + k->mods.n_syms;
}

/* The module area lies behind the kernel image (MODULES_VADDR), so two sorted runs are one. */
void kernel_sym_get(const struct kernel *k, size_t i, struct kernel_sym *ret)
{
	const struct module_range *r;
	const struct module_sym *s;

	if (i < k->syms.n) {
		kernel_own(k, (u32)i, ret);
		return;
	}
	s = &k->mods.syms[i - k->syms.n];
	r = module_range_at(&k->mods, s->addr);
	module_sym_own(&k->mods, s,
		       module_sym_next(&k->mods, (u32)(i - k->syms.n), r ? r->end : s->addr), ret);
}

int kernel_btf_offset(const struct kernel *k, const char *type, const char *path, u32 *off_ret)
{
	return btf_types_member(&k->btf, type, path, off_ret, NULL);
}

int kernel_btf_member_size(const struct kernel *k, const char *type, const char *path,
			   u32 *size_ret)
{
	return btf_types_member(&k->btf, type, path, NULL, size_ret);
}

int kernel_btf_size(const struct kernel *k, const char *type, u32 *size_ret)
{
	return btf_types_size(&k->btf, type, size_ret);
}

int kernel_btf_enum(const struct kernel *k, const char *enumerator, s64 *val_ret)
{
	return btf_types_enum(&k->btf, enumerator, val_ret);
}

int kernel_func_then(const struct kernel *k, u64 ip, u32 epoch, struct kernel_func *ret)
{
	const struct btf_types *b = &k->btf;
	struct kernel_sym sym;

	if (!kernel_sym_then(k, ip, epoch, &sym))
		return -ENOENT;
	if (sym.module)
		b = modules_btf_then(k, ip, epoch);
	return b ? btf_types_func(b, sym.name, ret) : -ENOENT;
}

const char *kernel_val_enumerator(const struct kernel_val *v, s64 val)
{
	return v->btf ? btf_types_enum_name(v->btf, v->btf_id, val) : NULL;
}

/*
 * __per_cpu_offset[cpu] + symbol: per-CPU symbols are offsets from 0 up to v6.14, and addresses in
 * the image since (commit 9d7de2aa8b41 "x86/percpu/64: Use relative percpu offsets"), where the
 * offset has __per_cpu_start taken off. The sum is the same.
 */
int kernel_percpu(const struct kernel *k, const char *name, u32 cpu, u64 *addr_ret)
{
	u64 sym, off = 0;

	if (cpu >= k->nr_cpu_ids)
		return -EINVAL;
	if (kernel_sym(k, name, &sym))
		return -ENOENT;
	if (k->percpu_offsets && mem_u64(&k->mem, k->percpu_offsets + 8ull * cpu, &off))
		return -EFAULT;
	*addr_ret = sym + off;
	return 0;
}

u32 kernel_nr_cpu_ids(const struct kernel *k)
{
	return k->nr_cpu_ids;
}

size_t kernel_site_count(const struct kernel *k)
{
	return k->sites.n;
}

const struct ftrace_site *kernel_sites(const struct kernel *k)
{
	return k->sites.sites;
}

size_t kernel_module_count(const struct kernel *k)
{
	return k->mods.n_mods;
}

const struct kernel_module *kernel_modules(const struct kernel *k)
{
	return k->mods.mods;
}
