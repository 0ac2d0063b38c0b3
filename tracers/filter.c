// SPDX-License-Identifier: Apache-2.0
/*
 * Choosing call sites. See filter.h.
 *
 * What must not be traced, although the guest's ftrace has a record of it? The agent reads %gs-based
 * per-CPU variables, `current` and its task_struct, writes to memory in the module area and pushes
 * a few words on the stack. It takes no lock, calls nothing (but the unwinder, for functions chosen for
 * that), does not need RCU to watch, may run in any context and with any interrupt state. So nearly everything is fine:
 *
 * - Entry code, exception entry, the idle loop's inside, stack switching, int3 and NMI entry are
 *   noinstr since v5.8 (no record; before, asm or notrace): no record has a user GS, a user CR3 or
 *   the small entry stack.
 * - The patching machinery itself (text_poke_bp_batch() and what it calls, poke_int3_handler()):
 *   our sites are written while every vCPU is stopped, never by int3, and no guest function is
 *   called at that time. The guest's own patching runs through our sites as any other code does.
 *   __text_poke() switches to poking_mm, whose kernel half is that of every mm.
 * - A CPU that comes up: GS base is set by secondary_startup_64 before the first C function, and
 *   arch/x86/kernel/cpu/common.c, which sets it again, is built without -pg (v6.1
 *   arch/x86/kernel/cpu/Makefile CFLAGS_REMOVE_common.o); rings exist for every possible CPU.
 * - Boot code (__init) is gone, and so are its records (ftrace_free_init_mem()).
 * - EFI calls run on efi_mm, hibernation's restore_image() in assembler: kernel half mapped as ever.
 * - Xen PV functions (xen_*) are not called in a guest of ours.
 *
 * What is left runs with a GS base of 0, so that the agent's first per-CPU access would fault:
 * - Resume from S3 and from hibernation. The firmware's waking vector and restore_registers come
 *   back with no kernel GS; restore_processor_state() (notrace for this reason: v6.1
 *   arch/x86/power/cpu.c) sets CR4, CR3, CR2, CR0 and the IDT before MSR_GS_BASE.
 * - machine_kexec() (v6.1 arch/x86/kernel/machine_kexec_64.c): load_segments() loads %gs from the
 *   GDT, then IDT and GDT are emptied. The guest stops its own tracing there by
 *   __ftrace_enabled_save(), which we would not notice.
 * The callees of those two are inline or notrace in 5.10, 6.1, 6.12 and 7.2 as Debian builds them (none has
 * a record, seen), but nothing except the compiler's mood promises so: the table names them all.
 *
 * And where the task changes in between:
 * - __switch_to() (v6.1 arch/x86/kernel/process_64.c) runs on the next task's stack and sets `current`
 *   half way. A followed call would be entered by one task and return to another: its frame, and where
 *   the task is in its calls, would be the wrong one's. It is __notrace_funcgraph, which is notrace only
 *   in a guest built with CONFIG_FUNCTION_GRAPH_TRACER; with CONFIG_FUNCTION_TRACER alone it has a
 *   record. One list serves both tracers, as a running trace can be turned over to the other.
 *   __switch_to_asm() is assembler without a record; what __switch_to() calls is on one side.
 */
#include "tracers/filter.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define VERSION(major, minor) ((u32)(major) << 16 | (u32)(minor) << 8)
#define ANY_VERSION           UINT32_MAX

#define WHY_RESUME "runs at resume from suspend before the CPU's kernel GS base is back"
#define WHY_KEXEC  "runs in kexec after the CPU's kernel GS base is gone"
#define WHY_SWITCH "is entered by one task and returns to another"

static const struct deny {
	const char *glob;
	u32 from, below; /* kernel versions */
	const char *why;
} denied[] = {
	/* arch/x86/power/cpu.c __restore_processor_state(): __write_cr4, write_cr3, write_cr2, write_cr0 */
	{ "native_write_cr[0234]", 0, ANY_VERSION, WHY_RESUME },
	/* the same through pv_ops: arch/x86/kernel/paravirt.c v5.15 and later has them as pv_native_* */
	{ "pv_native_write_cr[0234]", VERSION(5, 15), ANY_VERSION, WHY_RESUME },
	/* arch/x86/include/asm/tlbflush.h __write_cr4(), paravirt.h write_cr*(): if not inlined */
	{ "__write_cr4", 0, ANY_VERSION, WHY_RESUME },
	{ "write_cr[0234]", 0, ANY_VERSION, WHY_RESUME },
	/* both paths: desc.h load_idt(), native_idt_invalidate(), native_gdt_invalidate() */
	{ "load_[ig]dt", 0, ANY_VERSION, WHY_RESUME },
	{ "native_load_[ig]dt", 0, ANY_VERSION, WHY_RESUME },
	/* the write of MSR_GS_BASE itself and those before it; notrace in v6.1 asm/msr.h */
	{ "native_write_msr", 0, ANY_VERSION, WHY_RESUME },
	{ "native_write_msr_safe", 0, ANY_VERSION, WHY_RESUME },
	/* machine_kexec_64.c: statics between load_segments() and relocate_kernel() */
	{ "load_segments", 0, ANY_VERSION, WHY_KEXEC },
	{ "native_[ig]dt_invalidate", VERSION(5, 14), ANY_VERSION, WHY_KEXEC },
	/* their names before v5.14 */
	{ "set_[ig]dt", 0, VERSION(5, 14), WHY_KEXEC },
	/* process_64.c: it writes current_task, in v6.2 and later pcpu_hot.current_task */
	{ "__switch_to", 0, ANY_VERSION, WHY_SWITCH },
};

const char *filter_denied(const char *name, u32 version)
{
	for (size_t i = 0; i < ARRAY_SIZE(denied); i++) {
		if (version >= denied[i].from && version < denied[i].below &&
		    glob_match(denied[i].glob, name))
			return denied[i].why;
	}
	return NULL;
}

#define SUGGEST_NAME_MAX 64

/* Levenshtein distance of two short names; SIZE_MAX for long ones. */
static size_t distance(const char *a, const char *b)
{
	size_t la = strlen(a), lb = strlen(b), row[SUGGEST_NAME_MAX + 1];

	if (la > SUGGEST_NAME_MAX || lb > SUGGEST_NAME_MAX)
		return SIZE_MAX;
	for (size_t j = 0; j <= lb; j++)
		row[j] = j;
	for (size_t i = 1; i <= la; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= lb; j++) {
			size_t best = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			best = MIN(best, row[j] + 1);
			row[j] = MIN(best, row[j - 1] + 1);
		}
	}
	return row[lb];
}

/* A recorded name (or module) that is much like @word, which has no wildcard; NULL if none is. */
static const char *suggest(const struct filter_input *in, const char *word, bool module)
{
	size_t len = strlen(word), best = len / 4 + 2, d;
	const char *found = NULL;

	if (!len || strpbrk(word, "*?[\\"))
		return NULL;
	for (size_t i = 0; i < in->n; i++) {
		const char *name = module ? in->sites[i].module : in->sites[i].name;

		if (!name || in->sites[i].state == SITE_DISABLED)
			continue;
		if (strlen(name) > len + best || strlen(name) + best < len)
			continue;
		d = distance(word, name);
		if (d < best) {
			best = d;
			found = name;
		}
	}
	return found;
}

static int no_match(const struct filter_input *in, const char *what, const char *glob,
		    struct err *err)
{
	const char *mod = strstr(glob, ":mod:");
	const char *like =
		mod ? suggest(in, mod + strlen(":mod:"), true) : suggest(in, glob, false);

	if (like && mod && strcmp(like, mod + strlen(":mod:")) != 0)
		return err_set(err, -ENOENT, ERR_FILTER_EMPTY, 0,
			       "%s \"%s\" matches no function; did you mean module \"%s\"?", what,
			       glob, like);
	if (like && !mod)
		return err_set(err, -ENOENT, ERR_FILTER_EMPTY, 0,
			       "%s \"%s\" matches no function; did you mean \"%s\"?", what, glob,
			       like);
	return err_set(err, -ENOENT, ERR_FILTER_EMPTY, 0, "%s \"%s\" matches no function", what,
		       glob);
}

/* Sites by the hash of their name, for globs that are a name; made when there are many of those. */
struct index {
	u32 *head, *next; /* 1 + a site; 0: none */
	u32 mask;
};

#define INDEX_WORTH 16 /* globs */

static void index_deinit(struct index *x)
{
	free(x->head);
	free(x->next);
}

static u32 hash(const char *name, size_t len)
{
	u32 h = 0x811c9dc5;

	for (size_t i = 0; i < len; i++)
		h = (h ^ (u8)name[i]) * 0x01000193;
	return h;
}

static int index_init(struct index *x, const struct filter_input *in)
{
	u32 slots = 64;

	while (slots < in->n)
		slots *= 2;
	x->mask = slots - 1;
	x->head = calloc(slots, sizeof(*x->head));
	x->next = calloc(in->n + 1, sizeof(*x->next));
	if (!x->head || !x->next)
		return -ENOMEM;
	for (size_t i = in->n; i-- > 0;) {
		u32 *head = &x->head[hash(in->sites[i].name, strlen(in->sites[i].name)) & x->mask];

		x->next[i] = *head;
		*head = (u32)i + 1;
	}
	return 0;
}

/* Bytes of the name that @glob begins with, if it is one: alone or before ":mod:"; 0: it is not. */
static size_t plain_name(const char *glob)
{
	const char *mod = strstr(glob, ":mod:");
	size_t len = mod ? (size_t)(mod - glob) : strlen(glob);

	return strcspn(glob, "*?[\\") >= len ? len : 0;
}

static bool mark_if(const struct filter_input *in, const char *glob, size_t i, u64 *bitmap,
		    u64 *cost)
{
	if (!filter_match_cost(glob, in->sites[i].name, in->sites[i].module, cost))
		return false;
	bitmap[i / 64] |= 1ull << (i % 64);
	return true;
}

/* One list of globs, and what it has cost so far. */
struct marking {
	const struct filter_input *in;
	const struct index *x;
	u64 *bitmap;
	u64 cost, max_cost;
};

/* The bits of all sites that one glob matches, whatever their state. -E2BIG: too costly */
static int mark_glob(struct marking *m, const char *glob, bool *any_ret)
{
	size_t len = m->x->head ? plain_name(glob) : 0;
	bool any = false;

	if (len) {
		for (u32 i = m->x->head[hash(glob, len) & m->x->mask]; i; i = m->x->next[i - 1])
			any |= mark_if(m->in, glob, i - 1, m->bitmap, &m->cost);
	}
	for (size_t i = 0; i < m->in->n && !len && m->cost <= m->max_cost; i++)
		any |= mark_if(m->in, glob, i, m->bitmap, &m->cost);
	*any_ret = any;
	return m->cost > m->max_cost ? -E2BIG : 0;
}

static int check_wildcards(const char *what, const char *const *globs, size_t n_globs,
			   struct err *err)
{
	size_t n = 0;

	for (size_t i = 0; i < n_globs && n_globs > FILTER_MAX_WILDCARDS; i++)
		n += !plain_name(globs[i]);
	if (n > FILTER_MAX_WILDCARDS)
		return err_set(
			err, -EINVAL, ERR_BAD_REQUEST, 0,
			"%s: %zu globs have wildcards, at most %d may: write them as fewer globs, or as "
			"plain names",
			what, n, FILTER_MAX_WILDCARDS);
	return 0;
}

int filter_mark(const struct filter_input *in, const char *what, const char *const *globs,
		size_t n_globs, u64 *bitmap, struct err *err)
{
	_cleanup_(index_deinit) struct index x = { 0 };
	/* later: what was within it must stay so, whatever modules come */
	struct marking m = { in, &x, bitmap, 0, FILTER_MAX_COST << in->later };
	int rc = check_wildcards(what, globs, n_globs, err);
	bool any;

	if (rc)
		return rc;
	if (n_globs >= INDEX_WORTH && index_init(&x, in))
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for %zu functions",
			       in->n);
	for (size_t i = 0; i < n_globs; i++) {
		if (!*globs[i])
			return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0, "empty %s", what);
		rc = mark_glob(&m, globs[i], &any);
		if (rc)
			return err_set(
				err, rc, ERR_FILTER_COST, 0,
				"%s: the globs up to \"%.60s\" take too long to compare with "
				"%zu functions",
				what, globs[i], in->n);
		if (!any && !in->later)
			return no_match(in, what, globs[i], err);
	}
	return 0;
}

void filter_sift(const struct filter_input *in, u64 *bitmap, struct filter_counts *ret)
{
	for (size_t i = 0; i < in->n; i++) {
		const struct ftrace_site *s = &in->sites[i];
		size_t *count = &ret->n_selected;

		if (!filter_bit(bitmap, i))
			continue;
		if (s->state == SITE_IN_USE)
			count = &ret->n_in_use;
		else if (s->state != SITE_OK)
			count = &ret->n_disabled;
		else if (filter_denied(s->name, in->version))
			count = &ret->n_denied;
		if (count != &ret->n_selected)
			bitmap[i / 64] &= ~(1ull << (i % 64));
		++*count;
	}
}

int filter_select(const struct filter_input *in, const struct trace_opts *opts, u64 *bitmap,
		  u64 *graph, struct filter_counts *ret, struct err *err)
{
	size_t words = FILTER_BITMAP_WORDS(in->n);
	_cleanup_free_ u64 *off = calloc(words + 1, sizeof(*off));
	int rc;

	*ret = (struct filter_counts){ 0 };
	if (!off)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for %zu functions",
			       in->n);
	memset(bitmap, 0, words * sizeof(*bitmap));
	memset(graph, 0, words * sizeof(*graph));
	for (size_t i = 0; i < in->n && !opts->n_filter; i++)
		bitmap[i / 64] |= 1ull << (i % 64);
	rc = filter_mark(in, "filter", opts->filter, opts->n_filter, bitmap, err);
	if (!rc)
		rc = filter_mark(in, "graph function", opts->graph, opts->n_graph, graph, err);
	if (!rc)
		rc = filter_mark(in, "notrace filter", opts->notrace, opts->n_notrace, off, err);
	if (rc)
		return rc;
	for (size_t i = 0; i < words; i++)
		bitmap[i] = (bitmap[i] | graph[i]) & ~off[i];
	filter_sift(in, bitmap, ret);
	if (!ret->n_selected && !in->later)
		return err_set(err, -ENOENT, ERR_FILTER_EMPTY, 0,
			       "the filters leave no function to trace (%zu in use by the guest, "
			       "%zu disabled, %zu not safe)",
			       ret->n_in_use, ret->n_disabled, ret->n_denied);
	return 0;
}
