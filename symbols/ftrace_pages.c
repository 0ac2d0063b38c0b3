// SPDX-License-Identifier: Apache-2.0
/* struct ftrace_page and struct dyn_ftrace (kernel/trace/ftrace.c, include/linux/ftrace.h). */
#include "symbols/ftrace_pages.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "symbols/mem.h"

#include <errno.h>

#define PAGES_MAX     65536u
#define ORDER_MAX     12u /* MAX_ORDER is 10 or 11 */
#define PAGE_BYTES    256u /* struct ftrace_page is 32 bytes */
#define REC_BYTES_MAX 64u

/* The lowest flag bit in the enum: below it is the reference count. */
static void lowest_flag(void *arg, const char *name, s64 val)
{
	u64 *lowest = arg;
	u64 bits = (u64)val & UINT32_MAX;

	if (!strncmp(name, "FTRACE_FL_", strlen("FTRACE_FL_")) && bits)
		*lowest = MIN(*lowest, bits & -bits);
}

static u64 flag(const struct btf_types *b, const char *name)
{
	s64 val;

	/* FTRACE_FL_DIRECT came with v5.5: what does not exist is never set. */
	return btf_types_enum(b, name, &val) ? 0 : (u64)val & UINT32_MAX;
}

/*
 * The count's width differs: 23 bits on v6.1 (FTRACE_REF_MAX_SHIFT), 19 on v6.12. TOUCHED, REGS,
 * TRAMP and the like may stay set on a site that nobody uses any more.
 */
static int flags_init(const struct btf_types *b, struct ftrace_layout *l)
{
	u64 lowest = UINT32_MAX;

	if (btf_types_enum_each(b, "FTRACE_FL_ENABLED", lowest_flag, &lowest))
		return -ENOENT;
	if (lowest == UINT32_MAX)
		return -EUCLEAN;
	l->disabled = flag(b, "FTRACE_FL_DISABLED");
	l->in_use = (lowest - 1) | flag(b, "FTRACE_FL_ENABLED") | flag(b, "FTRACE_FL_IPMODIFY") |
		    flag(b, "FTRACE_FL_DIRECT");
	return 0;
}

int ftrace_layout_init(const struct btf_types *b, struct ftrace_layout *ret)
{
	struct ftrace_layout l = { 0 };
	u32 page;

	if (btf_types_size(b, "ftrace_page", &page) ||
	    btf_types_member(b, "ftrace_page", "next", &l.next, NULL) ||
	    btf_types_member(b, "ftrace_page", "records", &l.records, NULL) ||
	    btf_types_member(b, "ftrace_page", "index", &l.index, NULL) ||
	    btf_types_size(b, "dyn_ftrace", &l.rec_bytes) ||
	    btf_types_member(b, "dyn_ftrace", "ip", &l.ip, NULL) ||
	    btf_types_member(b, "dyn_ftrace", "flags", &l.flags, NULL))
		return -ENOENT;
	/* "size", a count of records, became "order" about v5.13 (commit db42523b4f3e). */
	l.capacity_is_order = !btf_types_member(b, "ftrace_page", "order", &l.capacity, NULL);
	if (!l.capacity_is_order && btf_types_member(b, "ftrace_page", "size", &l.capacity, NULL))
		return -ENOENT;
	if (page > PAGE_BYTES || MAX(l.next, l.records) + 8ull > page ||
	    MAX(l.index, l.capacity) + 4ull > page || l.rec_bytes > REC_BYTES_MAX ||
	    MAX(l.ip, l.flags) + 8ull > l.rec_bytes)
		return -EUCLEAN;
	*ret = l;
	return flags_init(b, ret);
}

enum site_state ftrace_state(const struct ftrace_layout *l, u64 flags)
{
	if (flags & l->disabled)
		return SITE_DISABLED;
	return flags & l->in_use ? SITE_IN_USE : SITE_OK;
}

struct page {
	u64 next, records;
	u32 index, capacity;
};

static int read_page(const struct sym_mem *mem, u64 addr, const struct ftrace_layout *l,
		     struct page *p)
{
	if (mem_u64(mem, addr + l->next, &p->next) ||
	    mem_u64(mem, addr + l->records, &p->records) ||
	    mem_u32(mem, addr + l->index, &p->index) ||
	    mem_u32(mem, addr + l->capacity, &p->capacity))
		return -EFAULT;
	if (l->capacity_is_order) {
		if (p->capacity > ORDER_MAX)
			return -EUCLEAN;
		p->capacity = (u32)((PAGE_SIZE << p->capacity) / l->rec_bytes);
	}
	return p->index > p->capacity || p->index > FTRACE_SITES_MAX ? -EUCLEAN : 0;
}

static int read_records(const struct sym_mem *mem, const struct page *p,
			const struct ftrace_layout *l, struct buf *sites)
{
	_cleanup_free_ u8 *raw = NULL;
	struct ftrace_site *out;

	if (!p->index)
		return 0;
	if (p->index > FTRACE_SITES_MAX - sites->len / sizeof(*out))
		return -EUCLEAN;
	raw = malloc((size_t)p->index * l->rec_bytes);
	out = (void *)buf_reserve(sites, p->index * sizeof(*out));
	if (!raw || !out)
		return -ENOMEM;
	if (mem_read(mem, p->records, raw, (size_t)p->index * l->rec_bytes))
		return -EFAULT;
	for (u32 i = 0; i < p->index; i++) {
		u64 off = (u64)i * l->rec_bytes;
		struct ftrace_site s = { .ip = load_u64(raw + off + l->ip),
					 .rec = p->records + off,
					 .flags = load_u64(raw + off + l->flags) };

		s.state = ftrace_state(l, s.flags);
		buf_add(sites, &s, sizeof(s));
	}
	return 0;
}

int ftrace_pages_read(const struct sym_mem *mem, u64 head, const struct ftrace_layout *l,
		      struct site_list *ret)
{
	_cleanup_buf_ struct buf sites = { 0 };
	u64 addr = head;

	for (u32 i = 0; addr; i++) {
		struct page p;
		int rc;

		if (i == PAGES_MAX)
			return -EUCLEAN;
		rc = read_page(mem, addr, l, &p);
		if (!rc)
			rc = read_records(mem, &p, l, &sites);
		if (rc)
			return rc;
		addr = p.next;
	}
	if (buf_failed(&sites))
		return -ENOMEM;
	if (sites.len) {
		char *fit = realloc(sites.data, sites.len);

		sites.data = fit ? fit : sites.data;
	}
	ret->n = (u32)(sites.len / sizeof(*ret->sites));
	ret->sites = (void *)no_cleanup_ptr(sites.data);
	return 0;
}
