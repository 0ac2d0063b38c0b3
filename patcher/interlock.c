// SPDX-License-Identifier: Apache-2.0
/* The interlock with the guest's own tracing. See interlock.h and interlock_x86.S. */
#define LOG_PREFIX "interlock"
#include "patcher/interlock.h"

#include "base/fault.h"
#include "base/log.h"
#include "patcher/text.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define PREPARE           "ftrace_arch_code_modify_prepare"
#define PREPARE_MAX_BYTES 256u
#define CALL_BYTES        5

extern const u8 interlock_start[], interlock_end[], interlock_return[], interlock_fix_lock[],
	interlock_fix_pages[], interlock_fix_records[], interlock_fix_index[], interlock_fix_use[],
	interlock_fix_nofault[], interlock_fix_ours[], interlock_fix_poke[], interlock_fix_count[],
	interlock_fix_rec_bytes[], interlock_fix_next[], interlock_fix_finish[],
	interlock_fix_nop[];
/* what is behind interlock_end */
extern const u8 interlock_again[], interlock_back[], interlock_cells[], interlock_full_end[],
	interlock_fix_lock2[], interlock_fix_nofault2[], interlock_fix_rewrite[],
	interlock_fix_unlock[], interlock_fix_records_lock[], interlock_fix_text_lock[],
	interlock_fix_state[], interlock_fix_sleep[];

static void put32(u8 *code, const u8 *field, u32 v)
{
	memcpy(code + (field - interlock_start), &v, sizeof(v));
}

/* rel32 of a call or jump whose field is @field. */
static int put_rel(u8 *code, u64 code_addr, const u8 *field, u64 target)
{
	s64 rel = (s64)(target - (code_addr + (u64)(field - interlock_start) + 4));

	if (rel < INT_MIN || rel > INT_MAX)
		return -ERANGE;
	put32(code, field, (u32)rel);
	return 0;
}

static int put_return(u8 *code, u64 code_addr, u64 thunk)
{
	u8 *at = code + (interlock_return - interlock_start);

	if (!thunk)
		return 0;
	return insn_make_jump(code_addr + (u64)(interlock_return - interlock_start), thunk, at);
}

/* As a sign-extended half. */
static int put_address(u8 *code, const u8 *field, u64 addr)
{
	if (addr != (u64)(s64)(s32)addr)
		return -ERANGE;
	put32(code, field, (u32)addr);
	return 0;
}

static int link_rest(const struct interlock_kernel *k, u64 code_addr, u64 state, u8 *code)
{
	int rc = put_rel(code, code_addr, interlock_fix_lock2, k->lock);

	if (!rc)
		rc = put_rel(code, code_addr, interlock_fix_sleep, k->sleep);
	if (!rc)
		rc = put_rel(code, code_addr, interlock_fix_nofault2, k->nofault);
	if (!rc)
		rc = put_rel(code, code_addr, interlock_fix_rewrite, k->rewrite);
	if (!rc)
		rc = put_rel(code, code_addr, interlock_fix_unlock, k->unlock);
	if (!rc)
		rc = put_address(code, interlock_fix_records_lock, k->records_lock);
	if (!rc)
		rc = put_address(code, interlock_fix_text_lock, k->text_lock);
	memcpy(code + (interlock_fix_state - interlock_start), &state, sizeof(state));
	return rc;
}

int interlock_link(const struct interlock_kernel *k, const struct interlock_place *p,
		   u8 code_ret[INTERLOCK_FULL_BYTES])
{
	const struct {
		const u8 *field;
		u64 target;
	} rel[] = {
		{ interlock_fix_lock, k->lock },
		{ interlock_fix_poke, k->poke },
		{ interlock_fix_finish, k->finish },
		{ interlock_fix_nofault, k->nofault },
	};
	size_t n = (size_t)(interlock_end - interlock_start);
	size_t full = (size_t)(interlock_full_end - interlock_start);

	if (n != INTERLOCK_BYTES || full > INTERLOCK_FULL_BYTES)
		return -ERANGE;
	memset(code_ret, 0xcc, INTERLOCK_FULL_BYTES);
	memcpy(code_ret, interlock_start, k->rewrite ? full : n);
	for (size_t i = 0; i < ARRAY_SIZE(rel); i++) {
		if (put_rel(code_ret, p->code, rel[i].field, rel[i].target))
			return -ERANGE;
	}
	if (put_address(code_ret, interlock_fix_pages, k->pages) ||
	    (k->rewrite && link_rest(k, p->code, p->count + sizeof(p->count), code_ret)))
		return -ERANGE;
	put32(code_ret, interlock_fix_records, k->records);
	put32(code_ret, interlock_fix_index, k->index);
	put32(code_ret, interlock_fix_next, k->next);
	put32(code_ret, interlock_fix_rec_bytes, k->rec_bytes);
	put32(code_ret, interlock_fix_use, k->use);
	put32(code_ret, interlock_fix_ours, (u32)p->ours - CALL_BYTES);
	memcpy(code_ret + (interlock_fix_count - interlock_start), &p->count, sizeof(p->count));
	memcpy(code_ret + (interlock_fix_nop - interlock_start), k->nop, sizeof(k->nop));
	return put_return(code_ret, p->code, k->return_thunk);
}

static int unsupported(struct err *err, const char *what)
{
	return err_set(err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0,
		       "this kernel has no %s: its own tracing could not be kept apart from ours",
		       what);
}

/* The first of two names that the kernel has: what a function is called, and was or will be. */
static int find_function(struct guest *g, const char *name, const char *other, u64 *ret,
			 struct err *err)
{
	if (kernel_sym(g->k, name, ret) && (!other || kernel_sym(g->k, other, ret)))
		return unsupported(err, name);
	return 0;
}

/* Where the guest takes text_mutex before it changes call sites, and how. */
static int find_hook(struct guest *g, u64 *site_ret, u8 bytes_ret[CALL_BYTES], struct err *err)
{
	u8 code[PREPARE_MAX_BYTES];
	struct kernel_sym sym;
	u64 addr, mutex;
	size_t n, off;

	if (kernel_sym(g->k, PREPARE, &addr) || !kernel_sym_at(g->k, addr, &sym))
		return unsupported(err, PREPARE);
	if (kernel_sym(g->k, "text_mutex", &mutex))
		return unsupported(err, "text_mutex");
	n = (size_t)MIN(sym.size_bytes, (u64)sizeof(code));
	if (guest_read(g, addr, code, n, err))
		return -EFAULT;
	if (!insn_find_call(code, n, mutex, &off))
		return unsupported(err, "call in " PREPARE "() that takes text_mutex");
	*site_ret = addr + off;
	memcpy(bytes_ret, code + off, CALL_BYTES);
	return 0;
}

static int find_layout(struct guest *g, struct interlock_kernel *ret, struct err *err)
{
	u32 ip, flags;
	u64 use = kernel_site_use_mask(g->k);

	if (kernel_btf_offset(g->k, "ftrace_page", "next", &ret->next) ||
	    kernel_btf_offset(g->k, "ftrace_page", "records", &ret->records) ||
	    kernel_btf_offset(g->k, "ftrace_page", "index", &ret->index) ||
	    kernel_btf_size(g->k, "dyn_ftrace", &ret->rec_bytes) ||
	    kernel_btf_offset(g->k, "dyn_ftrace", "ip", &ip) ||
	    kernel_btf_offset(g->k, "dyn_ftrace", "flags", &flags))
		return unsupported(err, "struct ftrace_page as we know it");
	if (ip != 0 || flags != 8 || use > UINT32_MAX || !use)
		return unsupported(err, "struct dyn_ftrace as we know it");
	ret->use = (u32)use;
	return 0;
}

/*
 * Until v5.13 (commit a89dfde3dc3c "x86: Remove dynamic NOP selection") a kernel chooses at boot by its CPU:
 * v5.10 arch/x86/kernel/alternative.c arch_init_ideal_nops(). NOP_ATOMIC5: arch/x86/include/asm/nops.h.
 */
#define NOP_ATOMIC5 9u

void guest_site_nop(struct guest *g, u8 nop_ret[MCOUNT_INSN_SIZE])
{
	u64 var, table, nop;

	if (kernel_sym(g->k, "ideal_nops", &var) ||
	    guest_read(g, var, &table, sizeof(table), NULL) ||
	    guest_read(g, table + NOP_ATOMIC5 * sizeof(nop), &nop, sizeof(nop), NULL) ||
	    guest_read(g, nop, nop_ret, MCOUNT_INSN_SIZE, NULL) || !insn_is_site_nop(nop_ret))
		memcpy(nop_ret, insn_nop, MCOUNT_INSN_SIZE);
}

u64 guest_return_thunk(struct guest *g)
{
	u64 var, plain, thunk;

	/* what functions jump to in order to return, where mitigations (retbleed, SRSO, ITS) want
	 * something else than a plain ret (v6.1 arch/x86/kernel/cpu/bugs.c) */
	if (kernel_sym(g->k, "x86_return_thunk", &var) ||
	    kernel_sym(g->k, "__x86_return_thunk", &plain) ||
	    guest_read(g, var, &thunk, sizeof(thunk), NULL) || thunk == plain)
		return 0;
	return thunk;
}

static bool find_rest(struct guest *g, struct interlock_kernel *k)
{
	return !kernel_sym(g->k, "text_poke", &k->rewrite) &&
	       !kernel_sym(g->k, "mutex_unlock", &k->unlock) &&
	       !kernel_sym(g->k, "msleep", &k->sleep) &&
	       !kernel_sym(g->k, "ftrace_lock", &k->records_lock) &&
	       !kernel_sym(g->k, "text_mutex", &k->text_lock);
}

bool interlock_rewrites(struct guest *g)
{
	struct interlock_kernel k;

	return find_rest(g, &k);
}

u64 interlock_again_addr(u64 code)
{
	return code + (u64)(interlock_again - interlock_start);
}

u64 interlock_back_addr(u64 code)
{
	return code + (u64)(interlock_back - interlock_start);
}

u64 interlock_cells_addr(u64 code)
{
	return code + (u64)(interlock_cells - interlock_start);
}

int interlock_code(struct guest *g, const struct interlock_place *p,
		   u8 code_ret[INTERLOCK_FULL_BYTES], struct err *err)
{
	struct interlock_kernel k = { .return_thunk = guest_return_thunk(g) };
	u8 call[CALL_BYTES];
	u64 site;
	int rc;

	guest_site_nop(g, k.nop);
	rc = find_hook(g, &site, call, err);
	if (!rc)
		rc = find_layout(g, &k, err);
	if (rc)
		return rc;
	/* our own call, where one is there yet, is not what is to be called */
	if (g->hook && g->hook->addr == site)
		memcpy(call, g->hook->old, sizeof(call));
	if (!insn_call_target(site, call, &k.lock) ||
	    kernel_sym(g->k, "ftrace_pages_start", &k.pages))
		return unsupported(err, "ftrace_pages_start");
	/* renamed in 2025; before v5.6 there was no queue. copy_from_kernel_nofault(): v5.8 */
	rc = find_function(g, "text_poke_queue", "smp_text_poke_batch_add", &k.poke, err);
	if (!rc)
		rc = find_function(g, "text_poke_finish", "smp_text_poke_batch_finish", &k.finish,
				   err);
	if (!rc)
		rc = find_function(g, "copy_from_kernel_nofault", "probe_kernel_read", &k.nofault,
				   err);
	if (rc)
		return rc;
	if (!find_rest(g, &k))
		k.rewrite = 0;
	if (interlock_link(&k, p, code_ret))
		return err_set(err, -ERANGE, ERR_GUEST_UNSUPPORTED, p->code,
			       "kernel text is out of reach of 0x%llx",
			       (unsigned long long)p->code);
	return 0;
}

static int changed(const struct text_change *c, struct err *err)
{
	return err_set(err, -EINVAL, ERR_GUEST_CHANGED, c->addr,
		       PREPARE "() at 0x%llx does not hold the call expected",
		       (unsigned long long)c->addr);
}

int interlock_in(struct guest *g, u64 code, struct err *err)
{
	struct text_change *c;
	struct err undo = { 0 };
	int rc;

	if (g->hook) /* an earlier one could not be taken out */
		rc = interlock_out(g, err);
	else
		rc = 0;
	if (rc)
		return rc;
	c = calloc(1, sizeof(*c));
	if (!c)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for the interlock");
	c->len = CALL_BYTES;
	rc = find_hook(g, &c->addr, c->old, err);
	if (!rc && insn_make_call(c->addr, code, c->new))
		rc = err_set(err, -ERANGE, ERR_GUEST_UNSUPPORTED, c->addr,
			     PREPARE "() does not reach 0x%llx", (unsigned long long)code);
	if (!rc)
		rc = text_journal(g, c, 1, JOURNAL_INTERLOCK, err);
	if (rc) {
		free(c);
		return rc;
	}
	g->hook = c;
	fault_point("interlock.journalled");
	rc = text_apply(g, c, 1, err);
	if (!rc && c->result != TEXT_DONE && c->result != TEXT_ALREADY)
		rc = changed(c, err);
	fault_point("interlock.in");
	if (rc && interlock_out(g, &undo))
		err_wrap(err, "could not be undone now, the journal keeps it (%.60s)", undo.msg);
	return rc;
}

int interlock_out(struct guest *g, struct err *err)
{
	struct text_change *c = g->hook;
	int rc;

	if (!c)
		return 0;
	text_swap(c, 1);
	rc = text_apply(g, c, 1, err);
	fault_point("interlock.out");
	if (!rc && c->result == TEXT_DIFFERS)
		log_warn("%s: " PREPARE "() was changed by the guest; left as it is", g->target);
	if (!rc)
		rc = journal_undone(g->journal, JOURNAL_INTERLOCK, err);
	if (rc) {
		text_swap(c, 1);
		return rc;
	}
	interlock_forget(g);
	return 0;
}

int interlock_look(struct guest *g, u64 *site_ret, u8 call_ret[5], struct err *err)
{
	return find_hook(g, site_ret, call_ret, err);
}

bool interlock_was(struct guest *g, u64 code, struct text_change *c)
{
	u64 field = code + (u64)(interlock_fix_lock - interlock_start), target;
	struct kernel_sym sym;
	s32 rel;

	if (find_hook(g, &c->addr, c->new, NULL) || !insn_call_target(c->addr, c->new, &target) ||
	    target != code || guest_read(g, field, &rel, sizeof(rel), NULL))
		return false;
	target = field + 4 + (u64)(s64)rel;
	return kernel_sym_at(g->k, target, &sym) && sym.addr == target && !sym.module &&
	       !insn_make_call(c->addr, target, c->old);
}

int interlock_adopt(struct guest *g, struct err *err)
{
	size_t n;
	int rc;

	if (g->hook)
		return 0;
	rc = text_from_journal(g, JOURNAL_INTERLOCK, &g->hook, &n, err);
	if (rc || n)
		return rc;
	interlock_forget(g);
	return 0;
}

void interlock_forget(struct guest *g)
{
	free(g->hook);
	g->hook = NULL;
}
