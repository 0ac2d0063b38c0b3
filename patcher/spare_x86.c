// SPDX-License-Identifier: Apache-2.0
/*
 * Memory of the VMM's in the kernel image's page table. See spare.h.
 *
 *   0xffffffff80000000   _text .. _end            room                0xffffffffa0000000   modules
 *   level2_kernel_pgt[0]                [255 - n] [text][data ...][255]
 *
 * The image's window is 512 MiB, or 1 GiB with CONFIG_RANDOMIZE_BASE, and modules come behind it (v6.1
 * arch/x86/include/asm/page_64_types.h KERNEL_IMAGE_SIZE): its first 512 MiB are the image's in either case.
 * Entries are of 2 MiB (Intel SDM vol. 3A, table 4-18).
 */
#define LOG_PREFIX "spare"
#include "patcher/spare.h"

#include "base/fault.h"
#include "base/log.h"
#include "patcher/agent.h"
#include "patcher/gate.h"
#include "patcher/graph.h"

#include <errno.h>
#include <string.h>

#define IMAGE_WINDOW 0xffffffff80000000ull
#define WINDOW_SLOTS 256u
#define LARGE        (2ull << 20)
#define PMD_SHIFT    21

#define PTE_PRESENT  (1ull << 0)
#define PTE_WRITE    (1ull << 1)
#define PTE_ACCESSED (1ull << 5)
#define PTE_DIRTY    (1ull << 6)
#define PTE_LARGE    (1ull << 7)
#define PTE_NX       (1ull << 63)
#define PTE_ADDR     0x000ffffffffff000ull

/* set beforehand, so that no CPU writes them */
#define TEXT_BITS (PTE_PRESENT | PTE_ACCESSED | PTE_LARGE)
#define DATA_BITS (PTE_PRESENT | PTE_WRITE | PTE_ACCESSED | PTE_DIRTY | PTE_LARGE | PTE_NX)

bool spare_owns(u64 addr)
{
	return addr >= IMAGE_WINDOW && addr < IMAGE_WINDOW + WINDOW_SLOTS * LARGE;
}

static u64 slots_of(u64 bytes)
{
	return (bytes + LARGE - 1) / LARGE;
}

/* The table whose entries map 2 MiB each of the image's window. */
static int find_table(struct guest *g, u64 *ret, struct err *err)
{
	const struct kernel_location *loc = kernel_location(g->k);
	u64 table = loc->root.v;

	for (int level = loc->levels; level > 2; level--) {
		u64 index = IMAGE_WINDOW >> (12 + 9 * (level - 1)) & 511, entry;
		int rc = vm_read_phys(g->vm, gpa(table + index * sizeof(entry)), &entry,
				      sizeof(entry), err);

		if (rc)
			return rc;
		if (!(entry & PTE_PRESENT) || (entry & PTE_LARGE))
			return err_set(err, -EUCLEAN, ERR_GUEST_MEMORY, table,
				       "the page table of the kernel's image makes no sense");
		table = entry & PTE_ADDR;
	}
	*ret = table;
	return 0;
}

/* The highest run of @n entries that are not present, with one more on either side. */
static int find_run(struct guest *g, u64 table, u64 n, u64 *first_ret)
{
	u64 entry[WINDOW_SLOTS], run = 0;

	if (vm_read_phys(g->vm, gpa(table), entry, sizeof(entry), NULL))
		return -ENOENT;
	for (u64 i = WINDOW_SLOTS - 1; i > 0; i--) {
		run = entry[i] ? 0 : run + 1;
		if (run == n + 2) {
			*first_ret = i + 1;
			return 0;
		}
	}
	return -ENOENT;
}

/* Without NX in the CPU its bit would be a reserved one. */
static bool has_nx(struct guest *g)
{
	u64 addr, mask;

	return !kernel_sym(g->k, "__supported_pte_mask", &addr) &&
	       !guest_read(g, addr, &mask, sizeof(mask), NULL) && (mask & PTE_NX);
}

/* The same memory for an entry each time: nobody flushes what CPUs keep of an earlier agent's entries. */
static u64 place(const struct vm_ram *spare, u64 entry)
{
	return spare->base.v + entry % (spare->len_bytes / LARGE) * LARGE;
}

static u64 entry_for(const struct vm_ram *spare, u64 entry, bool text)
{
	return place(spare, entry) | (text ? TEXT_BITS : DATA_BITS);
}

/* Entries @from .. @to of the run that begins at the agent's text. */
static int map(struct guest *g, u64 table, u64 from, u64 to, bool text, struct err *err)
{
	u64 first = (g->agent.text - IMAGE_WINDOW) >> PMD_SHIFT;
	struct vm_ram spare;
	int rc = 0;

	vm_spare(g->vm, &spare);
	for (u64 i = from; !rc && i < to; i++) {
		u64 entry = entry_for(&spare, first + i, text);

		rc = vm_write_phys(g->vm, gpa(table + (first + i) * sizeof(entry)), &entry,
				   sizeof(entry), err);
	}
	return rc;
}

/* The VMM's memory, from it if need be. -ENOENT: it has none for us, and says why in the log. */
static int borrow(struct guest *g, struct vm_ram *ret, struct err *err)
{
	struct err why = { 0 };
	gpa_t at;
	int rc;

	if (!vm_spare_offered(g->vm, &at))
		return -ENOENT;
	rc = journal_alloc(g->journal, JOURNAL_LENT, at.v, PAGE_SIZE, err);
	fault_point("spare.lent_journalled");
	if (rc)
		return rc;
	rc = vm_spare_borrow(g->vm, &why);
	if (rc && why.code != ERR_VMM_GONE) {
		log_warn("%s: %s; the guest is asked for memory", g->target, why.msg);
		rc = journal_freed(g->journal, JOURNAL_LENT, err);
		return rc ? rc : -ENOENT;
	}
	fault_point("spare.lent");
	if (rc)
		return err_set(err, rc, why.code, why.addr, "%s", why.msg);
	return vm_spare(g->vm, ret) ? 0 : -ENOENT;
}

int spare_return(struct guest *g, struct err *err)
{
	bool noted = journal_state(g->journal)->alloc[JOURNAL_LENT];
	struct vm_ram spare;
	int rc = 0;

	if (vm_spare(g->vm, &spare) && (noted || vm_state(g->vm) != VM_STOPPED))
		rc = vm_spare_return(g->vm, err);
	fault_point("spare.returned");
	return rc || !noted ? rc : journal_freed(g->journal, JOURNAL_LENT, err);
}

int spare_take(struct guest *g, struct err *err)
{
	struct guest_agent *a = &g->agent;
	u64 table, first, n_text = slots_of(a->text_bytes), n = n_text + slots_of(a->data_bytes);
	struct vm_ram spare;
	int rc;

	if (n_text != 1 || !has_nx(g)) /* text is written in one piece */
		return -ENOENT;
	if (find_table(g, &table, err) || find_run(g, table, n, &first))
		return -ENOENT;
	rc = borrow(g, &spare, err);
	if (rc)
		return rc;
	if (spare.base.v % LARGE || spare.len_bytes < n * LARGE)
		return -ENOENT;
	a->text = IMAGE_WINDOW + first * LARGE;
	a->data = a->text + n_text * LARGE;
	rc = journal_alloc(g->journal, JOURNAL_AGENT_TEXT, a->text, a->text_bytes, err);
	if (!rc)
		rc = journal_alloc(g->journal, JOURNAL_AGENT_DATA, a->data, a->data_bytes, err);
	fault_point("spare.journalled");
	if (!rc)
		rc = map(g, table, n_text, n, false, err);
	fault_point("spare.mapped");
	return rc;
}

int spare_put_text(struct guest *g, const u8 *text, struct err *err)
{
	struct guest_agent *a = &g->agent;
	struct vm_ram spare;
	u64 table;
	int rc = find_table(g, &table, err);

	if (rc || !vm_spare(g->vm, &spare))
		return rc ? rc : -EINVAL;
	rc = vm_write_phys(g->vm, gpa(place(&spare, (a->text - IMAGE_WINDOW) >> PMD_SHIFT)), text,
			   a->text_bytes, err);
	return rc ? rc : map(g, table, 0, slots_of(a->text_bytes), true, err);
}

int spare_give_back(struct guest *g, u64 addr, u64 bytes, struct err *err)
{
	static const u64 none;
	u64 table, first = (addr - IMAGE_WINDOW) >> PMD_SHIFT, n = slots_of(bytes);
	u64 entry[WINDOW_SLOTS];
	struct vm_ram spare;
	int rc;

	if (!vm_spare(g->vm, &spare) || addr % LARGE || first + n > WINDOW_SLOTS)
		return err_set(err, -EINVAL, ERR_GUEST_CHANGED, addr,
			       "0x%llx is none of the agent's memory", (unsigned long long)addr);
	rc = find_table(g, &table, err);
	if (!rc)
		rc = vm_read_phys(g->vm, gpa(table), entry, sizeof(entry), err);
	if (rc)
		return rc;
	for (u64 i = first; i < first + n; i++) {
		u64 at = entry[i] & PTE_ADDR;

		/* a daemon that died may have mapped a part of it */
		if (entry[i] && (at < spare.base.v || at - spare.base.v >= spare.len_bytes))
			return err_set(err, -EINVAL, ERR_GUEST_CHANGED, addr,
				       "the guest has something else mapped at 0x%llx",
				       (unsigned long long)(IMAGE_WINDOW + i * LARGE));
	}
	for (u64 i = first; !rc && i < first + n; i++)
		rc = vm_write_phys(g->vm, gpa(table + i * sizeof(none)), &none, sizeof(none), err);
	return rc;
}

/* Text that is not mapped was never called: a daemon died before it had put it there. */
static bool may_be_entered(struct guest *g)
{
	u64 text = journal_state(g->journal)->alloc[JOURNAL_AGENT_TEXT];
	struct vm_mapping m;

	return text && !vm_walk(g->vm, gva(text), &m, NULL);
}

/* false: @name is not known, or not to be read */
static bool read_int(struct guest *g, const char *name, s32 *ret)
{
	u64 addr;

	return !kernel_sym(g->k, name, &addr) && !guest_read(g, addr, ret, sizeof(*ret), NULL);
}

/*
 * May a task be preempted inside the agent? Only a kernel that preempts itself has RCU tasks (v6.1 kernel/trace/Kconfig),
 * and one with PREEMPT_DYNAMIC says whether it does (kernel/sched/core.c preempt_dynamic_none, _voluntary).
 */
static bool preempts_itself(struct guest *g)
{
	s32 mode;
	u64 fn;

	if (kernel_sym(g->k, "synchronize_rcu_tasks", &fn))
		return false;
	return !read_int(g, "preempt_dynamic_mode", &mode) || (mode != 0 && mode != 1);
}

/*
 * What lies in memory of the VMM's needs none of the guest's functions to be given back, but for this: a task that has
 * come to its release_task() is on no list that quiesce_range() could find it by, and yet it may be preempted inside.
 * synchronize_rcu_tasks() waits for those, too (v6.1 kernel/exit.c exit_tasks_rcu_start()). Until the guest runs user
 * programs nobody may come by who could call it. After a panic (kernel/panic.c panic_cpu) nobody is scheduled any more.
 * Return: 1, 0; -EBUSY (guest.text_busy)
 */
static int needs_gate(struct guest *g, struct err *err)
{
	s32 panic_cpu, state;
	s64 running;

	if (!preempts_itself(g) || (read_int(g, "panic_cpu", &panic_cpu) && panic_cpu != -1))
		return 0;
	if (!kernel_btf_enum(g->k, "SYSTEM_RUNNING", &running) &&
	    read_int(g, "system_state", &state) && state < running)
		return err_set(
			err, -EBUSY, ERR_GUEST_BUSY,
			journal_state(g->journal)->alloc[JOURNAL_AGENT_TEXT],
			"%s is still booting, and a task that ended may be inside the agent: "
			"try again when it runs",
			g->target);
	return 1;
}

static int unload(struct gate *gate, bool entered, struct guest *g, struct err *err)
{
	static const enum journal_what both[] = { JOURNAL_AGENT_TEXT, JOURNAL_AGENT_DATA };
	const struct journal_state *s = journal_state(g->journal);
	int rc = entered ? agent_wait_quiet(gate, g, err) : 0;

	if (!rc && entered)
		rc = graph_unload(g, err);
	if (!rc && entered && g->agent.graph_used)
		rc = agent_wait_quiet(gate, g, err);
	for (size_t i = 0; !rc && i < ARRAY_SIZE(both); i++) {
		u64 addr = s->alloc[both[i]];

		if (addr)
			rc = spare_give_back(g, addr, s->alloc_bytes[both[i]], err);
		if (!rc && addr)
			rc = journal_freed(g->journal, both[i], err);
		fault_point("agent.freed");
	}
	return rc;
}

int spare_unload(struct guest *g, struct err *err)
{
	struct err close_err = { 0 };
	struct gate *gate = NULL;
	bool entered = may_be_entered(g);
	int rc = entered ? needs_gate(g, err) : 0, rc2;

	if (rc > 0)
		rc = gate_open(g, &gate, err);
	if (!rc)
		rc = unload(gate, entered, g, err);
	rc2 = gate ? gate_close(gate, &close_err) : 0;
	if (!rc && rc2)
		rc = err_set(err, rc2, close_err.code, close_err.addr, "%s", close_err.msg);
	return rc;
}
