// SPDX-License-Identifier: Apache-2.0
/* The gate's code for one kernel, and where it goes. See gate_priv.h and gate_x86.S. */
#define LOG_PREFIX "gate"
#include "patcher/gate_priv.h"

#include "base/log.h"
#include "patcher/interlock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX_BYTES (1ull << 30) /* KERNEL_IMAGE_SIZE */
#define LARGE_PAGE     (2ull << 20)
/* of the padding before the code: what precedes may be an instruction that ends in int3 bytes */
#define BEFORE_BYTES 16u

extern const u8 gate_start[], gate_end[], gate_fix_mailbox[], gate_fix_preempt[],
	gate_fix_current[], gate_fix_ti_flags[], gate_fix_task_flags[], gate_rcu_start[],
	gate_fix_rcu[], gate_rcu_end[];

static void put32(u8 *code, const u8 *field, u32 v)
{
	memcpy(code + (field - gate_start), &v, sizeof(v));
}

static int unsupported(struct err *err, const char *what)
{
	return err_set(err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0, "this kernel has no %s", what);
}

static int make_code(struct gate *gate, u8 *code, struct err *err)
{
	static const u8 nop9[] = { 0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0 };
	struct kernel *k = gate->g->k;
	size_t rcu_bytes = (size_t)(gate_rcu_end - gate_rcu_start);
	u32 ti_flags, task_flags, rcu;
	s32 preempt, current;

	memset(code, 0xcc, gate->code_bytes);
	memcpy(code, gate_start, (size_t)(gate_end - gate_start));
	if (guest_percpu_gs(gate->g, "__preempt_count", "preempt_count", &preempt))
		return unsupported(err, "__preempt_count");
	if (guest_percpu_gs(gate->g, "current_task", "current_task", &current))
		return unsupported(err, "current_task");
	if (kernel_btf_offset(k, "task_struct", "thread_info.flags", &ti_flags) ||
	    kernel_btf_offset(k, "task_struct", "flags", &task_flags))
		return unsupported(err, "task_struct.flags");
	memcpy(code + (gate_fix_mailbox - gate_start), &gate->mailbox, sizeof(gate->mailbox));
	put32(code, gate_fix_preempt, (u32)preempt);
	put32(code, gate_fix_current, (u32)current);
	put32(code, gate_fix_ti_flags, ti_flags);
	put32(code, gate_fix_task_flags, task_flags);
	if (!kernel_btf_offset(k, "task_struct", "rcu_read_lock_nesting", &rcu)) {
		put32(code, gate_fix_rcu, rcu);
	} else { /* without CONFIG_PREEMPT_RCU preempt_count says it all; one long nop and a short one */
		u8 *at = code + (gate_rcu_start - gate_start);

		if (rcu_bytes < sizeof(nop9))
			return unsupported(err, "room for a nop");
		memset(at, 0x90, rcu_bytes);
		memcpy(at, nop9, sizeof(nop9));
	}
	return 0;
}

/* Of the part before the interlock. */
static u32 first_bytes(void)
{
	u32 n = (u32)(gate_end - gate_start);

	return (n + JOURNAL_TEXT_MAX - 1) & ~(JOURNAL_TEXT_MAX - 1u);
}

void gate_size(struct gate *gate, bool whole)
{
	gate->whole = whole;
	gate->code_bytes = first_bytes() + (whole ? INTERLOCK_FULL_BYTES : INTERLOCK_BYTES);
}

u64 gate_interlock_addr(const struct gate *gate)
{
	return gate->cave + first_bytes();
}

static int make_interlock(struct gate *gate, u8 *code, struct err *err)
{
	const struct interlock_place p = { .code = gate_interlock_addr(gate),
					   .ours = gate->cave,
					   .count = gate->mailbox +
						    offsetof(struct mailbox, taken) };
	u8 whole[INTERLOCK_FULL_BYTES];
	int rc = interlock_code(gate->g, &p, whole, err);

	if (!rc)
		memcpy(code + first_bytes(), whole, gate->code_bytes - first_bytes());
	return rc;
}

int gate_make_code(struct gate *gate, u8 *code, struct err *err)
{
	int rc = make_code(gate, code, err);

	return rc ? rc : make_interlock(gate, code, err);
}

/* Padding: @n equal bytes of 0x00 or 0xcc, executable. */
static bool is_padding(struct guest *g, u64 addr, size_t n)
{
	u8 bytes[GATE_MAX_BYTES];
	struct vm_mapping first, last;

	if (vm_read(g->vm, gva(addr), bytes, n, NULL) || (bytes[0] != 0 && bytes[0] != 0xcc))
		return false;
	if (memcmp(bytes, bytes + 1, n - 1))
		return false;
	return !vm_walk(g->vm, gva(addr), &first, NULL) && first.executable &&
	       !vm_walk(g->vm, gva(addr + n - 1), &last, NULL) && last.executable;
}

/*
 * Where the code goes: after _etext in its page, or in the int3 run before it; or before a 2 MiB boundary, to
 * which entry text and its end are aligned (v6.1 arch/x86/kernel/vmlinux.lds.S ALIGN_ENTRY_TEXT_BEGIN). The
 * first that @fits: it is told how many bytes of the padding in front stay.
 */
static int find_place(struct gate *gate, bool (*fits)(struct gate *gate, u64 before),
		      struct err *err)
{
	u64 text = kernel_location(gate->g->k)->text.v, etext, end;

	if (kernel_sym(gate->g->k, "_etext", &etext) || etext < text ||
	    etext - text > TEXT_MAX_BYTES)
		return unsupported(err, "_etext");
	gate->cave = (etext + 15) & ~15ull;
	if (gate->cave + gate->code_bytes <= ((etext + PAGE_SIZE - 1) & PAGE_MASK) && fits(gate, 0))
		return 0;
	for (end = etext; end > text; end = (end - 1) & ~(LARGE_PAGE - 1)) {
		gate->cave = (end & ~15ull) - gate->code_bytes;
		if (fits(gate, BEFORE_BYTES))
			return 0;
	}
	return err_set(err, -ENOSPC, ERR_GUEST_NO_ROOM, etext,
		       "no %u bytes of padding in kernel text (_etext 0x%llx)", gate->code_bytes,
		       (unsigned long long)etext);
}

/*
 * text_poke() takes what is not from _stext to _etext for a module's: v6.1 arch/x86/kernel/alternative.c __text_poke(),
 * core_kernel_text(). For code behind _etext other bytes of its page are told, from before.
 */
static bool poke_at(struct gate *gate, u64 addr, u64 *ret)
{
	u64 stext, etext;

	if (kernel_sym(gate->g->k, "_stext", &stext) || kernel_sym(gate->g->k, "_etext", &etext))
		return false;
	*ret = addr;
	if (addr >= etext) {
		*ret = addr & PAGE_MASK;
		if (etext > *ret + MCOUNT_INSN_SIZE)
			*ret = etext - MCOUNT_INSN_SIZE;
	}
	return *ret >= stext && *ret < etext;
}

bool gate_poke_at(struct gate *gate, u64 ret[2])
{
	return poke_at(gate, gate->cave, &ret[0]) &&
	       poke_at(gate, gate->cave + gate->code_bytes - MCOUNT_INSN_SIZE, &ret[1]);
}

static bool is_free(struct gate *gate, u64 before)
{
	u64 at[2];

	return is_padding(gate->g, gate->cave - before, gate->code_bytes + before) &&
	       (!gate->whole || gate_poke_at(gate, at));
}

static int find_cave(struct gate *gate, struct err *err)
{
	return find_place(gate, is_free, err);
}

int gate_choose_cave(struct gate *gate, struct err *err)
{
	int rc;

	gate_size(gate, gate->g->rewrite && interlock_rewrites(gate->g));
	rc = find_cave(gate, err);
	if (!rc || !gate->whole)
		return rc;
	log_info(
		"%s: no room for a gate by which the guest would write what we write: a copy of its memory that is "
		"being made meanwhile may have only a part of that",
		gate->g->target);
	gate_size(gate, false);
	return find_cave(gate, err);
}

u64 gate_again(const struct gate *gate)
{
	return gate->written ? interlock_again_addr(gate_interlock_addr(gate)) : 0;
}

u64 gate_cells(const struct gate *gate)
{
	return gate->written ? interlock_cells_addr(gate_interlock_addr(gate)) : 0;
}

bool gate_mailbox_place(struct gate *gate)
{
	gva_t data;
	u64 size;

	if (!kernel_vmcoreinfo(gate->g->k, &data, &size) ||
	    size > PAGE_SIZE - sizeof(struct mailbox) - 256)
		return false;
	gate->mailbox = data.v + PAGE_SIZE - sizeof(struct mailbox);
	return true;
}

/* What the code lies in the middle of: all of it one byte, or it is not known. */
static bool padding_around(struct gate *gate, u64 before)
{
	u64 from = before ? gate->cave - before : gate->cave + gate->code_bytes;
	size_t n = (size_t)(before ? before : -from & ~PAGE_MASK);
	u8 bytes[PAGE_SIZE];

	if (!n || guest_read(gate->g, from, bytes, n, NULL) ||
	    (bytes[0] != 0 && bytes[0] != 0xcc) || memcmp(bytes, bytes + 1, n - 1))
		return false;
	gate->padding = bytes[0];
	return true;
}

/* The code that would be made for this place; the guest's call may lead through the interlock already. */
static int make_for_comparison(struct gate *gate, u8 *code)
{
	struct text_change hook = { .len = MCOUNT_INSN_SIZE };
	struct guest *g = gate->g;
	bool lent = !g->hook && interlock_was(g, gate_interlock_addr(gate), &hook);
	int rc;

	if (lent)
		g->hook = &hook;
	rc = gate_make_code(gate, code, NULL);
	if (lent)
		g->hook = NULL;
	return rc;
}

static bool is_as_made(struct gate *gate)
{
	u8 found[GATE_MAX_BYTES], code[GATE_MAX_BYTES];

	/* its first instruction, to begin with */
	return !guest_read(gate->g, gate->cave, found, gate->code_bytes, NULL) &&
	       found[0] == gate_start[0] && !make_for_comparison(gate, code) &&
	       !memcmp(found, code, gate->code_bytes);
}

static bool has_code(struct gate *gate, u64 before)
{
	return is_as_made(gate) && padding_around(gate, before);
}

bool gate_is_as_made(struct gate *gate)
{
	u32 bytes = gate->code_bytes;
	u64 at[2];

	gate_size(gate, true);
	if (gate->code_bytes == bytes && interlock_rewrites(gate->g) && is_as_made(gate) &&
	    gate_poke_at(gate, at))
		return true;
	gate->whole = false;
	gate->code_bytes = bytes;
	return false;
}

bool gate_find_code(struct gate *gate)
{
	gate_size(gate, true);
	if (interlock_rewrites(gate->g) && !find_place(gate, has_code, NULL))
		return true;
	gate_size(gate, false);
	return !find_place(gate, has_code, NULL);
}

/*
 * Functions that run in process context with no lock held at their first instruction: system calls,
 * and the one worker that even an idle guest runs (each second; deferrable, so sometimes later).
 * Left out: calls that do not come back through their caller, or give birth.
 */
static bool is_gate_site(const struct ftrace_site *s)
{
	static const char *const not [] = { "rt_sigreturn", "exit",     "exit_group",
					    "execve",       "execveat", "fork",
					    "vfork",        "clone",    "clone3" };
	static const char prefix[] = "__x64_sys_";

	if (s->state != SITE_OK || s->module)
		return false;
	if (!strcmp(s->name, "vmstat_shepherd"))
		return true;
	if (strncmp(s->name, prefix, sizeof(prefix) - 1))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(not ); i++) {
		if (!strcmp(s->name + sizeof(prefix) - 1, not [i]))
			return false;
	}
	return true;
}

int gate_collect_sites(struct gate *gate, struct err *err)
{
	const struct ftrace_site *sites = kernel_sites(gate->g->k);
	size_t n = kernel_site_count(gate->g->k);

	free(gate->sites);
	gate->n_sites = 0;
	gate->sites = calloc(n, sizeof(*gate->sites));
	if (!gate->sites)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for the gate");
	for (size_t i = 0; i < n && gate->n_sites < REWRITE_SITES; i++) {
		struct text_change *c = &gate->sites[gate->n_sites];

		if (!is_gate_site(&sites[i]))
			continue;
		*c = (struct text_change){ .addr = sites[i].ip,
					   .rec = sites[i].rec,
					   .len = MCOUNT_INSN_SIZE };
		if (guest_read(gate->g, c->addr, c->old, MCOUNT_INSN_SIZE, NULL) ||
		    !insn_is_site_nop(c->old) || insn_make_call(c->addr, gate->cave, c->new))
			continue;
		gate->n_sites++;
	}
	if (!gate->n_sites)
		return err_set(err, -ENOENT, ERR_GUEST_UNSUPPORTED, 0,
			       "none of the call sites that the gate could use is free");
	text_sort(gate->sites, gate->n_sites);
	return 0;
}
