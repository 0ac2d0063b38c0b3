/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transactions over guest text: verify -> (journalled by the caller) -> write -> verify, in stop
 * windows no longer than the user's limit. Must not know what the bytes mean.
 */
#ifndef PATCHER_TEXT_H
#define PATCHER_TEXT_H

#include "patcher/guest_priv.h"

enum text_result {
	TEXT_TODO,
	TEXT_DONE, /* the new bytes are there, read back */
	TEXT_ALREADY, /* they were there before */
	TEXT_DIFFERS, /* neither old nor new bytes were found; nothing written */
	TEXT_IN_USE, /* the guest's record says that it uses the site; nothing written */
	TEXT_UNMAPPED, /* cannot be read: a module that went away */
};

struct text_change {
	u64 addr;
	u64 rec; /* guest's struct dyn_ftrace to look at before writing, 0 for none */
	u32 len; /* the same for all changes of one call */
	bool undo; /* ours goes away: the record is not looked at, the bytes are the proof */
	u8 old[JOURNAL_TEXT_MAX];
	u8 new[JOURNAL_TEXT_MAX];
	enum text_result result;
};

/**
 * text_check - which of @c can be changed, without changing anything
 *
 * Sets every result to TEXT_TODO, TEXT_ALREADY, TEXT_DIFFERS, TEXT_IN_USE or TEXT_UNMAPPED.
 * Context: guest lock held; vCPUs run, so a result may be stale by the time of a window.
 * Return: 0; -ESRCH (vmm.gone).
 */
must_check int text_check(struct guest *g, struct text_change *c, size_t n, struct err *err);

/**
 * text_apply - turn old bytes into new ones
 * @c: sorted by address, journalled and flushed; results are written
 *
 * In each stop window: text_mutex and ftrace_lock must be unowned (else let go and try again), every
 * site's record and bytes are read again, the good ones written and read back. Sites that are not
 * as expected are left alone and say so in their result: the caller decides whether that is a failure.
 * Context: guest lock held, no window open. Return: 0; -EBUSY the guest kept its own locks for 2 s
 * (guest.text_busy); -EPERM a write did not take; what vm_pause() returns. After a failure results
 * say what was written; undo with old and new swapped.
 */
must_check int text_apply(struct guest *g, struct text_change *c, size_t n, struct err *err);

/**
 * text_guest_busy - is the guest changing its own text, or its ftrace records, right now?
 *
 * Context: a stop window is open. Return: 1, 0; -ENOTSUP, what vm_read() returns.
 */
must_check int text_guest_busy(struct guest *g, struct err *err);

/** text_journal - note that @c is about to be done; flushed when this returns 0 */
must_check int text_journal(struct guest *g, const struct text_change *c, size_t n,
			    enum journal_kind kind, struct err *err);

/** text_keep_in_journal - of @kind only @c is outstanding any more: see journal_keep() */
must_check int text_keep_in_journal(struct guest *g, const struct text_change *c, size_t n,
				    enum journal_kind kind, struct err *err);

/** text_from_journal - what is noted of one kind, sorted; free() it. Return: 0; -ENOMEM. */
must_check int text_from_journal(struct guest *g, enum journal_kind kind, struct text_change **ret,
				 size_t *n_ret, struct err *err);

/** text_swap - exchange old and new of each, and turn doing into undoing */
void text_swap(struct text_change *c, size_t n);

/** text_sort - by address */
void text_sort(struct text_change *c, size_t n);

/* Bytes at many addresses. */
struct text_sites {
	const u64 *addr; /* sorted */
	size_t n;
	u32 len; /* bytes each */
	u8 *out; /* n * len bytes */
	bool *ok; /* one each: false where it is not mapped */
};

/** text_read_sites - fill out and ok with few reads. Return: 0; -ENOMEM; -ESRCH (vmm.gone). */
must_check int text_read_sites(struct guest *g, const struct text_sites *s, struct err *err);

#endif
