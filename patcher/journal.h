/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The undo journal of one guest: what was changed in it and is not yet put back. On disk, appended
 * and flushed before each change, so that a daemon that died leaves enough to undo everything.
 *
 * File: 8 bytes of magic, then records: u32 payload length, u32 type, u32 CRC-32 of type and
 * payload, payload. A tail that is cut or damaged was not flushed, so nothing was done for it.
 */
#ifndef PATCHER_JOURNAL_H
#define PATCHER_JOURNAL_H

#include "base/err.h"
#include "base/types.h"

#define JOURNAL_TEXT_MAX 16

struct journal;

/* Whose guest it is. */
struct journal_ident {
	char target[128];
	char build_id[48];
	u64 kaslr_offset;
	u64 root;
	u64 boot_id; /* random at each boot of the guest; 0 when it has none */
	u32 levels;
	u32 pad;
};

enum journal_kind {
	JOURNAL_SITE = 1, /* a call site that calls the agent */
	JOURNAL_GATE_SITE, /* a call site that calls the gate */
	JOURNAL_CAVE, /* the gate's code */
	JOURNAL_INTERLOCK, /* the guest's call that leads through the interlock */
};

/* Text that may have been changed: either old or new is there, or the guest wrote something else. */
struct journal_text {
	u64 addr;
	u64 rec; /* guest virtual address of its struct dyn_ftrace; 0 when it has none */
	u32 kind; /* enum journal_kind */
	u32 len;
	u8 old[JOURNAL_TEXT_MAX];
	u8 new[JOURNAL_TEXT_MAX];
};

/* behind the name of a file that is to take the place of the one without */
#define JOURNAL_NEW ".new"

enum journal_what {
	JOURNAL_AGENT_TEXT = 1,
	JOURNAL_AGENT_DATA = 2,
	JOURNAL_LENT = 3, /* by the VMM, above the guest's RAM: by guest physical address */
	JOURNAL_WHATS
};

/* What is outstanding. */
struct journal_state {
	struct journal_ident ident;
	struct journal_text *text; /* oldest first; undone ones are dropped */
	size_t n_text;
	u64 alloc[JOURNAL_WHATS]; /* by enum journal_what; 0 when not allocated */
	u64 alloc_bytes[JOURNAL_WHATS];
	u32 pending; /* enum journal_what of a borrowed call whose result is not journalled yet */
	bool pending_free; /* it gives memory back; else it asks for some */
	u64 pending_bytes;
	u64 pending_seq; /* the mailbox's sequence number of that call */
	u64 mailbox; /* guest virtual address in use as mailbox, or 0 */
};

/**
 * journal_open - open or create the journal of a VMM's process
 * @state_dir:  made if it does not exist (0700)
 * @pid, @start_time: the VMM's process
 *
 * Reads what an earlier daemon left. Return: 0; -EBUSY another daemon has it (guest.already_attached);
 * -EIO and the like (journal.failed).
 */
must_check int journal_open(const char *state_dir, pid_t pid, u64 start_time, struct journal **ret,
			    struct err *err);

/** journal_close - close; the file is removed when nothing is outstanding */
void journal_close(struct journal *j);

/** journal_discard - as journal_close(), whatever is outstanding: the guest is gone */
void journal_discard(struct journal *j);

/** journal_state - what is outstanding; valid until the next call on @j */
const struct journal_state *journal_state(const struct journal *j);

/** journal_outstanding - is there anything to put back? */
bool journal_outstanding(const struct journal *j);

/** journal_forget - drop everything outstanding: the kernel it was about no longer runs */
must_check int journal_forget(struct journal *j, struct err *err);

/** journal_set_ident - whose guest it is; only while nothing is outstanding */
must_check int journal_set_ident(struct journal *j, const struct journal_ident *id,
				 struct err *err);

/** journal_add_text - note text about to change; not flushed yet, call journal_flush() before */
must_check int journal_add_text(struct journal *j, const struct journal_text *t, struct err *err);

/** journal_flush - everything added is on disk when this returns 0 */
must_check int journal_flush(struct journal *j, struct err *err);

/** journal_undone - everything of @kind was put back; flushed */
must_check int journal_undone(struct journal *j, enum journal_kind kind, struct err *err);

/**
 * journal_keep - of @kind only @t is outstanding any more; the file is written anew, as short as it can be
 * @t: @n of those that are noted
 *
 * For what was changed and then went away with its memory, again and again. Old or new: whichever file is there
 * after a crash is whole. Return: 0; -errno (journal.failed), the old one stays.
 */
must_check int journal_keep(struct journal *j, enum journal_kind kind, const struct journal_text *t,
			    size_t n, struct err *err);

/** journal_pending - the guest is about to be asked for memory (call number @seq); flushed */
must_check int journal_pending(struct journal *j, enum journal_what what, u64 bytes, u64 seq,
			       struct err *err);

/** journal_pending_free - the guest is about to be given @what back (call number @seq); flushed */
must_check int journal_pending_free(struct journal *j, enum journal_what what, u64 seq,
				    struct err *err);

/** journal_alloc - the guest gave memory (0: it did not), and no call is pending; flushed */
must_check int journal_alloc(struct journal *j, enum journal_what what, u64 addr, u64 bytes,
			     struct err *err);

/**
 * journal_agent_came - memory of an agent that nobody here asked for, and that is in use: both or, if we die, neither
 *
 * After what leads to it: memory alone would be given back under its call sites. Flushed.
 */
must_check int journal_agent_came(struct journal *j, u64 text, u64 text_bytes, u64 data,
				  u64 data_bytes, struct err *err);

/** journal_freed - the guest has its memory back; flushed */
must_check int journal_freed(struct journal *j, enum journal_what what, struct err *err);

/** journal_mailbox - the mailbox at @addr is in use (0: zeroed again); flushed */
must_check int journal_mailbox(struct journal *j, u64 addr, struct err *err);

/**
 * journal_parse - what a journal's bytes say is outstanding
 * @used_ret: bytes that are whole records; the rest is a tail that was never flushed
 *
 * Return: 0; -EBADMSG not a journal; -ENOMEM. Free with journal_state_deinit().
 */
must_check int journal_parse(const void *data, size_t len, struct journal_state *ret,
			     size_t *used_ret, struct err *err);
void journal_state_deinit(struct journal_state *s);

/** journal_list - call @fn for every journal file in @state_dir with the process it belongs to */
must_check int journal_list(const char *state_dir,
			    void (*fn)(void *arg, pid_t pid, u64 start_time, const char *path),
			    void *arg, struct err *err);

#endif
