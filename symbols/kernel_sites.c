// SPDX-License-Identifier: Apache-2.0
/* Modules and call sites as they are now, with the names that available_filter_functions shows. */
#include "symbols/kernel_priv.h"

#include "base/buf.h"
#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

/* The guest may load or unload a module while we read: what was torn is read again. */
#define READ_TRIES 5
#define TRY_NS     (2 * NSEC_PER_MSEC)

/* One reading; becomes the kernel's when it is whole. */
struct snapshot {
	struct module_set mods;
	struct site_list sites;
	u32 *by_ip;
	char *names;
};

struct invalid {
	u32 site;
	u32 name; /* offset */
};

/* Names that no symbol has: written one after the other, pointed to when all are there. */
struct naming {
	const struct kernel *k;
	struct snapshot *s;
	struct buf names;
	struct buf invalid;
	u32 hint;
};

static void naming_deinit(struct naming *n)
{
	buf_deinit(&n->names);
	buf_deinit(&n->invalid);
}

static void snapshot_deinit(struct snapshot *s)
{
	module_set_deinit(&s->mods);
	free(s->sites.sites);
	free(s->by_ip);
	free(s->names);
}

static bool in_kernel_text(const struct kernel *k, u64 ip)
{
	for (size_t i = 0; i < ARRAY_SIZE(k->text); i++)
		if (ip >= k->text[i].start && ip < k->text[i].end)
			return true;
	return false;
}

/*
 * print_rec() (kernel/trace/ftrace.c v6.1): a record too far behind its symbol belongs to a weak
 * function that was overridden; its symbol is gone, so the lookup gives the one before.
 */
static void name_invalid(struct naming *n, u32 i, u64 offset)
{
	struct invalid inv = { .site = i, .name = (u32)n->names.len };

	buf_addf(&n->names, "__ftrace_invalid_address___%lld", (long long)offset);
	buf_add(&n->names, "", 1);
	buf_add(&n->invalid, &inv, sizeof(inv));
	n->s->sites.sites[i].state = SITE_DISABLED;
}

/* -EUCLEAN: the address is in nobody's text. */
static int name_site(struct naming *n, u32 i)
{
	struct ftrace_site *site = &n->s->sites.sites[i];
	const struct module_set *mods = &n->s->mods;
	const struct module_range *r;
	const struct module_sym *m;
	u64 addr;
	u32 sym;

	if (in_kernel_text(n->k, site->ip)) {
		if (!sym_table_at(&n->k->syms, site->ip, &n->hint, &sym))
			return -EUCLEAN;
		site->name = sym_table_name(&n->k->syms, sym);
		addr = n->k->syms.addr[sym];
	} else {
		r = module_range_at(mods, site->ip);
		if (!r || site->ip >= r->text_end)
			return -EUCLEAN;
		mods->mods[r->module].n_sites++;
		site->module = mods->mods[r->module].name;
		m = module_sym_at(mods, site->ip, NULL);
		site->name = m ? module_sym_name(mods, m) : NULL;
		addr = m ? m->addr : site->ip;
	}
	if (!site->name || site->ip - addr > n->k->site_offset_max)
		name_invalid(n, i, site->ip - addr);
	return 0;
}

static int name_sites(const struct kernel *k, struct snapshot *s)
{
	_cleanup_(naming_deinit) struct naming n = { .k = k, .s = s };
	const struct invalid *inv;

	for (u32 i = 0; i < s->sites.n; i++) {
		int rc = name_site(&n, i);

		if (rc)
			return rc;
	}
	if (buf_failed(&n.names) || buf_failed(&n.invalid))
		return -ENOMEM;
	inv = (const void *)n.invalid.data;
	s->names = no_cleanup_ptr(n.names.data);
	for (size_t i = 0; i < n.invalid.len / sizeof(*inv); i++)
		s->sites.sites[inv[i].site].name = s->names + inv[i].name;
	return 0;
}

static int by_ip(const void *a, const void *b, void *arg)
{
	const struct ftrace_site *sites = arg;
	u64 x = sites[*(const u32 *)a].ip, y = sites[*(const u32 *)b].ip;

	return x < y ? -1 : x > y;
}

/* The guest sorts each page group; only modules may be out of order. */
static int sort_sites(struct snapshot *s)
{
	bool sorted = true;

	for (u32 i = 1; i < s->sites.n && sorted; i++)
		sorted = s->sites.sites[i - 1].ip < s->sites.sites[i].ip;
	if (sorted)
		return 0;
	s->by_ip = malloc(s->sites.n * sizeof(*s->by_ip));
	if (!s->by_ip)
		return -ENOMEM;
	for (u32 i = 0; i < s->sites.n; i++)
		s->by_ip[i] = i;
	qsort_r(s->by_ip, s->sites.n, sizeof(*s->by_ip), by_ip, s->sites.sites);
	for (u32 i = 1; i < s->sites.n; i++)
		if (s->sites.sites[s->by_ip[i]].ip == s->sites.sites[s->by_ip[i - 1]].ip)
			return -EUCLEAN;
	return 0;
}

static int snapshot_read(const struct kernel *k, struct snapshot *s)
{
	int rc = 0;
	u64 first;

	if (k->has_modules)
		rc = modules_read(&k->mem, k->modules_head, &k->module_layout, &s->mods);
	if (!rc)
		rc = module_btfs_read(&k->mem, &k->module_btf_layout, &k->btf, &k->mods, &s->mods);
	if (!rc)
		rc = k->mem.read(k->mem.arg, gva(k->pages_head), &first, sizeof(first));
	if (!rc)
		rc = ftrace_pages_read(&k->mem, first, &k->ftrace_layout, &s->sites);
	if (!rc)
		rc = name_sites(k, s);
	return rc ? rc : sort_sites(s);
}

int kernel_refresh(struct kernel *k, struct err *err)
{
	const struct timespec pause = { .tv_nsec = TRY_NS };
	int rc = 0;

	for (int try = 0; try < READ_TRIES; try++) {
		struct snapshot s = { 0 };
		u64 sign = modules_sign(k); /* before: what changes meanwhile shows later */

		rc = snapshot_read(k, &s);
		if (!rc)
			rc = modules_replace(k, &s.mods);
		if (!rc) {
			struct snapshot old = { { 0 }, k->sites, k->by_ip, k->site_names };

			k->sites = s.sites;
			k->by_ip = s.by_ip;
			k->site_names = s.names;
			k->modules_sign = sign;
			snapshot_deinit(&old);
			/* an initcall makes it (v6.1 kernel/crash_core.c): later than the first read may be */
			if (!k->vmcoreinfo.v)
				kernel_load_identity(k);
			return 0;
		}
		snapshot_deinit(&s);
		if (rc == -ENOMEM)
			return err_set(err, rc, ERR_NO_MEMORY, 0,
				       "no memory for the guest's call sites");
		nanosleep(&pause, NULL);
	}
	return err_set(err, -EUCLEAN, ERR_GUEST_MEMORY, k->pages_head,
		       "the kernel's lists of modules and call sites do not make sense");
}

u64 kernel_site_use_mask(const struct kernel *k)
{
	return k->ftrace_layout.in_use;
}

const struct ftrace_site *kernel_site_at(const struct kernel *k, u64 ip)
{
	u32 low = 0, high = k->sites.n;

	while (low < high) {
		u32 mid = low + (high - low) / 2;
		const struct ftrace_site *s = &k->sites.sites[k->by_ip ? k->by_ip[mid] : mid];

		if (s->ip == ip)
			return s;
		if (s->ip < ip)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}
