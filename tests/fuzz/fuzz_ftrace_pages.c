// SPDX-License-Identifier: Apache-2.0
/*
 * ftrace_pages with damage in the list, the records and the types: each site that comes out is what
 * memory has at its record, and there are never more than the limit.
 */
#include "symbols/ftrace_pages.h"

#include "symbols/mem.h"
#include "tests/unit/test_symbols_fake.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct sym_mem *mem, const struct ftrace_layout *l,
		  const struct site_list *s)
{
	if (s->n > FTRACE_SITES_MAX)
		abort();
	for (u32 i = 0; i < s->n; i++) {
		const struct ftrace_site *site = &s->sites[i];
		u64 ip, flags;

		if (mem_u64(mem, site->rec + l->ip, &ip) || ip != site->ip ||
		    mem_u64(mem, site->rec + l->flags, &flags) || flags != site->flags)
			abort();
		if (site->name || site->module || site->state != ftrace_state(l, flags))
			abort();
	}
}

static void run(struct fake_kernel *k, struct btf_types *btf)
{
	struct sym_mem mem = fake_mem(k);
	struct site_list s = { 0 };
	struct ftrace_layout l;

	if (ftrace_layout_init(btf, &l))
		return;
	if (ftrace_pages_read(&mem, k->pages[0], &l, &s))
		return;
	check(&mem, &l, &s);
	free(s.sites);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct fake_opts o = { .image = 4 << 20,
					    .virt = 0xffffffff81000000ull,
					    .heap = 16 << 20,
					    .levels = 4,
					    .n_modules = 2 };
	static struct fake_guest g;
	static struct fake_kernel k;
	struct fake_patches list, types = { 0 };
	struct btf_types btf;
	u32 len;
	u8 *blob;

	if (!g.ram) {
		fake_guest_init(&g);
		fake_kernel_build(&k, &g, &o);
	}
	if (!size)
		return 0;
	blob = fake_btf(false, &len);
	if (data[0] % 4 == 0)
		fake_patch(&types, blob, len, data + 1, MIN(size - 1, (size_t)12));
	/* the heap holds both pages and their records */
	fake_patch(&list, g.ram + o.heap, k.heap_next - o.heap, data + 1, size - 1);
	if (btf_types_init(&btf, blob, len)) {
		free(blob);
	} else {
		run(&k, &btf);
		btf_types_deinit(&btf);
	}
	fake_unpatch(&list);
	return 0;
}
