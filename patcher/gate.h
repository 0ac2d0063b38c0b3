/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate: call functions of the guest's own kernel with no breakpoint and no register written.
 *
 * About 400 bytes of code in the padding at the end of kernel text, a mailbox in the zero tail of
 * the vmcoreinfo page, and call sites of functions that run in process context turned into calls.
 * Everything is journalled before it is changed and byte-equal to before after gate_close().
 */
#ifndef PATCHER_GATE_H
#define PATCHER_GATE_H

#include "patcher/guest_priv.h"

struct gate;

/**
 * gate_open - put the gate into the guest and turn call sites to it
 *
 * Precondition: no site calls the agent (g->n_armed is 0). Context: guest lock held, no window open.
 * Where the guest is to write what we write (g->rewrite) it is called once, for the gate's own code.
 * Return: 0; -ENOSPC no padding, or no vmcoreinfo tail (guest.no_room); what text_apply(), guest_check_stays() and
 * gate_call() return.
 * On failure nothing stays changed. Undo: gate_close().
 */
must_check int gate_open(struct guest *g, struct gate **ret, struct err *err);

/**
 * gate_call - have the guest run @fn(@args[0..2])
 * @fn:  guest virtual address of a kernel function that may sleep and needs process context
 * @ret: what it returned; may be NULL
 *
 * In the place of a fourth argument is where the agent's text is lent, for gate_came().
 * Waits up to 15 s for a task to come by, and as long as it takes (60 s) once it runs.
 * Return: 0; -ETIMEDOUT (guest.gate_timeout), the call was withdrawn, or may still run; -EBUSY (guest.gate_timeout)
 * an earlier one may, and nothing was changed; -ESRCH (vmm.gone).
 */
must_check int gate_call(struct gate *gate, u64 fn, const u64 args[4], u64 *ret, struct err *err);

/**
 * gate_again, gate_cells - code of the gate's for gate_call(), by which the guest writes what we have written: rewrite.h
 *
 * 0: there is none, as none is needed for this guest, or its kernel has no room.
 */
u64 gate_again(const struct gate *gate);
u64 gate_cells(const struct gate *gate);

/** gate_next_seq - the sequence number that the next gate_call() will have, for the journal */
u64 gate_next_seq(const struct gate *gate);

/**
 * gate_is_journalled - is the mailbox in the guest that of the gate that the journal has, and of its time?
 *
 * By the number of the last call, which no other gate has: the one noted last, or one of the few after it. false
 * also when there is no gate, or it has called nothing yet. Context: guest lock held.
 */
bool gate_is_journalled(struct guest *g);

/**
 * gate_close - sites back, wait until no task is inside, code and mailbox back; frees @gate
 *
 * Where the guest has written the gate's code, too, a task of it waits inside meanwhile, and writes what was put back.
 * A call that nobody has taken is withdrawn.
 * Return: 0; -EBUSY (guest.gate_timeout) the last call has not returned: nothing was put back; an error leaves what could not
 * be put back in the journal.
 */
int gate_close(struct gate *gate, struct err *err);

/**
 * gate_came - is there a gate that came with the guest's memory? Then enter it in the journal, for gate_recover()
 * @found_ret: the journal has now what is to be put back
 *
 * By its code, byte by byte. What its last call says is lent is entered, too: memory that was asked for, or an agent
 * whose text was about to be protected or given back, or that was being filled or let go by the gate's own code. The rest stays with the guest: text while data was
 * asked for, data once text was given back. Nothing in the guest is changed. Context: guest lock held, nothing outstanding in the
 * journal. Return: 0; what the journal returns.
 */
must_check int gate_came(struct guest *g, bool *found_ret, struct err *err);

/**
 * gate_recover - undo what a dead daemon's gate left, from the journal
 *
 * Where the journal has a mailbox, also what the guest has and no list names: the code, call sites that lead to
 * it, the call that leads through its interlock.
 * An allocation that was under way is finished and entered in the journal. Waits for a borrowed call that is still running. Context: as gate_open().
 * Where the guest has to write the gate's code (g->rewrite), and that is whole, what led there is put in once more, and
 * the gate is closed as by gate_close(): also where the dead daemon had put that back, and not told the guest.
 * Return: 0; -ETIMEDOUT (guest.gate_timeout) no task came by for that, and nobody says that nothing is being copied; -EBUSY
 * (guest.migrating) it is; as gate_close(). All stays in the journal then.
 */
must_check int gate_recover(struct guest *g, struct err *err);

#endif
