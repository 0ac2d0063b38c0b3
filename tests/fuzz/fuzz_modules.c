// SPDX-License-Identifier: Apache-2.0
/*
 * The module list with damage in struct module, symbol and string tables, and the types: names end
 * inside the arena, ranges are sorted and apart, lookups stay inside their module.
 */
#include "symbols/modules.h"

#include "tests/unit/test_symbols_fake.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_name(const struct module_set *s, const char *name)
{
	if (name < s->arena || name >= s->arena + s->arena_bytes || !*name ||
	    !memchr(name, '\0', s->arena_bytes - (size_t)(name - s->arena)))
		abort();
	for (; *name; name++)
		if (*name < 0x21 || *name > 0x7e)
			abort();
}

static void check_lookup(const struct module_set *s, u64 addr)
{
	u64 next = 0;
	const struct module_sym *m = module_sym_at(s, addr, &next);
	const struct module_range *r = module_range_at(s, addr);

	if (!m)
		return;
	if (!r || m->module != r->module || m->addr > addr || m->addr < r->start || m->mapping ||
	    next <= addr || next > r->end)
		abort();
}

static void check(const struct module_set *s)
{
	for (u32 i = 0; i < s->n_mods; i++)
		check_name(s, s->mods[i].name);
	for (u32 i = 0; i < s->n_ranges; i++) {
		const struct module_range *r = &s->ranges[i];

		if (r->module >= s->n_mods || r->start >= r->end || r->text_end < r->start ||
		    r->text_end > r->end || (i && s->ranges[i - 1].end > r->start))
			abort();
		check_lookup(s, r->start);
		check_lookup(s, r->start + (r->end - r->start) / 2);
		check_lookup(s, r->end - 1);
	}
	for (u32 i = 0; i < s->n_syms; i++) {
		if (s->syms[i].module >= s->n_mods)
			abort();
		check_name(s, module_sym_name(s, &s->syms[i]));
		check_lookup(s, s->syms[i].addr);
	}
}

static void run(struct fake_kernel *k, struct btf_types *btf)
{
	struct sym_mem mem = fake_mem(k);
	struct module_set s = { 0 };
	struct module_layout l;

	if (module_layout_init(btf, &l) || modules_read(&mem, fake_sym_addr(k, "modules"), &l, &s))
		return;
	check(&s);
	module_set_deinit(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct fake_guest g[2];
	static struct fake_kernel k[2];
	struct fake_patches list, types = { 0 };
	struct btf_types btf;
	u32 len, shape;
	u8 *blob;

	if (!size)
		return 0;
	shape = data[0] & 1;
	if (!g[shape].ram) {
		const struct fake_opts o = { .image = 4 << 20,
					     .virt = 0xffffffff81000000ull,
					     .heap = 16 << 20,
					     .levels = 4,
					     .n_modules = 3,
					     .mem_array = shape };

		fake_guest_init(&g[shape]);
		fake_kernel_build(&k[shape], &g[shape], &o);
	}
	blob = fake_btf(shape, &len);
	if (data[0] % 8 < 2)
		fake_patch(&types, blob, len, data + 1, MIN(size - 1, (size_t)12));
	fake_patch(&list, g[shape].ram + (16 << 20), k[shape].heap_next - (16 << 20), data + 1,
		   size - 1);
	if (btf_types_init(&btf, blob, len)) {
		free(blob);
	} else {
		run(&k[shape], &btf);
		btf_types_deinit(&btf);
	}
	fake_unpatch(&list);
	return 0;
}
