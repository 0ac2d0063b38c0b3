// SPDX-License-Identifier: Apache-2.0
/*
 * Page walks over arbitrary bytes. Properties: at most as many reads as levels, only aligned ones,
 * and a translation that agrees with the leaf entry it names.
 */
#include "vmm/pgtable.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct input {
	const u8 *data;
	size_t len;
	int n_reads;
};

static int read_entry(void *arg, u64 addr, u64 *ret)
{
	struct input *in = arg;

	in->n_reads++;
	if (addr & 7)
		abort();
	if (addr > in->len || in->len - addr < 8)
		return -EFAULT;
	memcpy(ret, in->data + addr, 8);
	return 0;
}

static void check(const struct pgtable *pt, u64 addr)
{
	struct input *in = pt->arg;
	struct vm_mapping m = { 0 };
	struct err err = { 0 };
	int rc;

	in->n_reads = 0;
	rc = pgtable_walk(pt, gva(addr), &m, &err);
	if (in->n_reads > pt->levels)
		abort();
	if (rc < 0) {
		if (rc != -EFAULT || err.no != rc)
			abort();
		return;
	}
	if (!(m.entry & 1) ||
	    (m.page_bytes != 1 << 12 && m.page_bytes != 1 << 21 && m.page_bytes != 1 << 30))
		abort();
	if ((m.gpa.v & (m.page_bytes - 1)) != (addr & (m.page_bytes - 1)))
		abort();
	if ((m.gpa.v ^ m.entry) & 0x000ffffffffff000 & ~(m.page_bytes - 1))
		abort();
	if (m.writable && !(m.entry & 2))
		abort();
	if (m.executable && m.entry >> 63)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { 0 };
	struct pgtable pt = { .read_entry = read_entry, .arg = &in };
	u64 addr;

	if (size < 17)
		return 0;
	memcpy(&addr, data, 8);
	memcpy(&pt.root.v, data + 8, 8);
	pt.levels = data[16] & 1 ? 5 : 4;
	in.data = data + 17;
	in.len = size - 17;
	pt.root.v &= 0x3000; /* somewhere the input can reach */
	check(&pt, addr);
	check(&pt, (u64)((s64)(addr << 16) >> 16)); /* canonical for 4 levels */
	return 0;
}
