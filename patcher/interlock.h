/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interlock with the guest's own tracing: when the guest is about to trace, probe or patch a
 * function whose call site is ours, the site is its nop again before the guest looks at it. Done by
 * the guest, from code that lies in it (interlock_x86.S), so it works while no daemon lives.
 */
#ifndef PATCHER_INTERLOCK_H
#define PATCHER_INTERLOCK_H

#include "patcher/guest_priv.h"

struct text_change;

#define INTERLOCK_BYTES      224u /* a multiple of JOURNAL_TEXT_MAX */
#define INTERLOCK_FULL_BYTES 640u /* with what rewrite.h needs behind it; the same */

/* What interlock_again is told to do; any other value is the address of a bit for each page of the top 2 GiB. */
#define REWRITE_TWO   0u
#define REWRITE_SITES 480u /* as many lead to a gate at most: interlock_back */

/* One copy of the code in the guest. */
struct interlock_place {
	u64 code; /* where it is to lie, executable; within rel32 of kernel text */
	u64 ours; /* sites that call this are ours */
	u64 count; /* guest address of a u64 that it counts sites in which it took away */
};

/* What it needs to know of a kernel. */
struct interlock_kernel {
	u64 lock, poke, finish, nofault; /* functions of the guest */
	u64 pages; /* &ftrace_pages_start */
	u64 return_thunk; /* 0: a plain ret */
	u8 nop[MCOUNT_INSN_SIZE]; /* see guest_site_nop() */
	u32 next, records, index; /* members of struct ftrace_page */
	u32 rec_bytes;
	u32 use; /* bits of dyn_ftrace.flags that say "in use by the guest" */
	/* for what is behind INTERLOCK_BYTES; rewrite 0: that is left out */
	u64 rewrite, unlock, sleep; /* functions of the guest */
	u64 records_lock, text_lock; /* its mutexes */
};

/**
 * interlock_link - the code for @p; bytes behind it are int3
 *
 * Return: 0; -ERANGE a function, the list, or a mutex, is out of reach.
 */
must_check int interlock_link(const struct interlock_kernel *k, const struct interlock_place *p,
			      u8 code_ret[INTERLOCK_FULL_BYTES]);

/**
 * interlock_code - interlock_link() for the kernel of @g
 *
 * Return: 0; -ENOTSUP (guest.unsupported) this kernel cannot be kept apart from its own tracing.
 */
must_check int interlock_code(struct guest *g, const struct interlock_place *p,
			      u8 code_ret[INTERLOCK_FULL_BYTES], struct err *err);

/** interlock_rewrites - has this kernel what the code behind INTERLOCK_BYTES calls? */
bool interlock_rewrites(struct guest *g);

/** interlock_again, _back, _cells - of a whole copy of the code at @code: where that is, see interlock_x86.S */
u64 interlock_again_addr(u64 code);
u64 interlock_back_addr(u64 code);
u64 interlock_cells_addr(u64 code);

/**
 * interlock_in - lead the guest's own changes of call sites through the code at @code
 *
 * Before: a 5-byte call in ftrace_arch_code_modify_prepare(). After: a call of @code. In a stop window in
 * which neither ftrace_lock nor text_mutex is held, journalled first. To be done before the first site
 * is armed. Context: guest lock held. Return: 0, also when it was in already; -EINVAL the bytes are not those
 * expected (guest.text_changed); what text_apply() returns. On failure nothing stays changed. Undo:
 * interlock_out().
 */
must_check int interlock_in(struct guest *g, u64 code, struct err *err);

/**
 * interlock_out - and back
 *
 * To be done when no site is armed any more. Whoever is in the code holds ftrace_lock, so when this
 * returns 0 nobody is. Nothing to be done: returns 0.
 */
must_check int interlock_out(struct guest *g, struct err *err);

/** interlock_adopt - what the journal says of it is ours to take out. Return: 0; -ENOMEM. */
must_check int interlock_adopt(struct guest *g, struct err *err);

/** interlock_look - the guest's call that leads through the interlock, when that is in. Return: 0; as interlock_code() */
must_check int interlock_look(struct guest *g, u64 *site_ret, u8 call_ret[5], struct err *err);

/**
 * interlock_was - what a copy of the code at @code, which another daemon put there, was put in the place of
 * @c: filled in: old is what was there before, by the call that the copy itself makes
 *
 * Return: false: the guest's call does not lead to @code, or the copy makes no sense.
 */
bool interlock_was(struct guest *g, u64 code, struct text_change *c);

/** interlock_forget - it is no more in the guest */
void interlock_forget(struct guest *g);

/**
 * guest_site_nop - the nop that the guest's own ftrace puts at call sites, and insists on finding there
 *
 * The same at all sites of a kernel: of the kinds that insn_is_site_nop() knows.
 */
void guest_site_nop(struct guest *g, u8 nop_ret[MCOUNT_INSN_SIZE]);

/** guest_return_thunk - how functions of this guest return: 0 by a plain ret */
u64 guest_return_thunk(struct guest *g);

#endif
