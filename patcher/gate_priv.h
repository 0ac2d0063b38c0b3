/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the gate, shared by gate.c, gate_came.c and gate_code.c only. */
#ifndef PATCHER_GATE_PRIV_H
#define PATCHER_GATE_PRIV_H

#include "patcher/gate.h"
#include "patcher/text.h"

#define GATE_MAX_BYTES 864u

/* Lives in the guest; offsets as in gate_x86.S. */
struct mailbox {
	u32 state;
	u32 inside; /* tasks between the gate's first and last instructions */
	u64 fn;
	u64 args[4];
	u64 ret;
	u64 seq;
	u64 taken; /* gate sites that the interlock gave to the guest's own tracing */
	u64 closing; /* GATE_*, with interlock_back */
	u64 pad[6];
};
_Static_assert(sizeof(struct mailbox) == 128, "mailbox");
_Static_assert(offsetof(struct mailbox, ret) == 48, "mailbox");

enum mailbox_state {
	MAILBOX_IDLE,
	MAILBOX_ARMED,
	MAILBOX_RUNNING,
	MAILBOX_DONE
};

enum { /* as in interlock_x86.S */
	GATE_WAITS = 1, /* a task has come for the last call, and waits inside */
	GATE_GO_ON = 2 /* nothing leads here any more */
};

struct gate {
	struct guest *g;
	u64 cave;
	u32 code_bytes; /* a multiple of JOURNAL_TEXT_MAX; the interlock comes last, whole or INTERLOCK_BYTES of it */
	bool whole;
	bool written; /* by the guest, too: see rewrite.h; what leads here is to be taken back by it */
	bool closing; /* nothing is armed again */
	u64 mailbox;
	u64 seq;
	u8 padding; /* what was where the code is: gate_find_code() */
	struct text_change *code;
	size_t n_code;
	struct text_change *sites;
	size_t n_sites;
};

/** gate_size - set @gate->whole and code_bytes: of the code with its interlock, all of that or what a guest needs */
void gate_size(struct gate *gate, bool whole);

/** gate_interlock_addr - where in the code at @gate->cave the interlock is */
u64 gate_interlock_addr(const struct gate *gate);

/**
 * gate_make_code - the code for @gate->cave and @gate->mailbox, its interlock at the end
 * @code: @gate->code_bytes
 *
 * Return: 0; -ENOTSUP (guest.unsupported).
 */
must_check int gate_make_code(struct gate *gate, u8 *code, struct err *err);

/**
 * gate_choose_cave - padding that the code goes into, as @gate->cave; code_bytes and whole are set
 *
 * The whole code where the guest is to write what we write, if there is room for it.
 * Return: 0; -ENOSPC (guest.no_room); -ENOTSUP.
 */
must_check int gate_choose_cave(struct gate *gate, struct err *err);

/**
 * gate_poke_at - where the guest's text_poke() writes 5 bytes as they are, so that it writes the pages of the code
 * @ret: in the page of its first byte and of its last
 *
 * Return: false: it cannot, in this place.
 */
bool gate_poke_at(struct gate *gate, u64 ret[2]);

/**
 * gate_collect_sites - call sites that the gate could use, as @gate->sites; nothing is changed
 *
 * Return: 0; -ENOMEM; -ENOENT (guest.unsupported) none is free.
 */
must_check int gate_collect_sites(struct gate *gate, struct err *err);

/** gate_is_as_made - is what lies at @gate->cave the whole code, byte by byte as it would be made, and for that place? */
bool gate_is_as_made(struct gate *gate);

/**
 * gate_find_code - code of a gate in the guest's text, byte by byte as it would be made, as @gate->cave
 *
 * For @gate->mailbox; @gate->code_bytes and @gate->padding are set as well. false: there is none, or the guest has
 * something other than padding around it.
 */
bool gate_find_code(struct gate *gate);

/** gate_mailbox_place - where in this kernel the mailbox is, as @gate->mailbox; false: there is no room */
bool gate_mailbox_place(struct gate *gate);

/** gate_plan_code - the change from @old to @code, as @gate->code, journalled. Return: 0; -ENOMEM; as text_journal() */
must_check int gate_plan_code(struct gate *gate, const u8 *old, const u8 *code, struct err *err);

/**
 * gate_adopt - add to what the journal has of @gate what is in the guest, and journal it
 *
 * Memory may be of another time than the journal: code, where that has none, call sites that lead to it, the
 * call that leads through its interlock. Return: 0; as callers_find(), callers_find_hook() and text_journal().
 */
must_check int gate_adopt(struct gate *gate, struct err *err);

must_check int gate_box_read(struct gate *gate, struct mailbox *box, struct err *err);

#endif
