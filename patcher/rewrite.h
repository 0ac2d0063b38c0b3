/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy of the guest's memory that is being made while we change it: a migration, a snapshot of what has changed.
 * KVM's log of dirty pages, by which it is made, does not see what a process writes. So a page that was copied with
 * our changes in it is not copied again when we put it back. What the guest itself writes is seen: before it gets
 * memory back that anything in a copy may lead to, it writes once more, as it is, each page in which that was
 * put back; and what we have put into memory that it has lent, before anything leads there. All through the gate,
 * by code that lies there (interlock_x86.S).
 *
 * Not with TCG, where text is written through QEMU and QEMU can be asked; nor with our own VMM, which copies nothing.
 * What was put back before a VMM that can be asked said that nothing is being copied needs nothing.
 */
#ifndef PATCHER_REWRITE_H
#define PATCHER_REWRITE_H

#include "patcher/gate.h"

/** rewrite_note - a call site at @addr was put back. Context: guest lock held. */
void rewrite_note(struct guest *g, u64 addr);

/** rewrite_note_any - sites were, by a daemon before us: which ones is not known */
void rewrite_note_any(struct guest *g);

/** rewrite_settled - nothing is being copied now: what was put back so far is what any copy will have */
void rewrite_settled(struct guest *g);

/** rewrite_forget - as rewrite_settled(): the kernel is another one, or the guest is let go */
void rewrite_forget(struct guest *g);

/**
 * rewrite_lent - have the guest write the agent's memory as we have filled it
 *
 * Before anything leads there. Text is still writable for it. Nothing is done where its VMM says that nothing is being
 * copied. Context: guest lock held. Return: 0; -EBUSY it is (guest.migrating); what gate_call() returns.
 */
must_check int rewrite_lent(struct gate *gate, struct guest *g, struct err *err);

/**
 * rewrite_put_back - have the guest write the pages whose call sites were put back, and cells of stacks
 *
 * What is to be written is told in the agent's data. Context: guest lock held; nothing leads to the agent any more and
 * nobody is inside. Return: 0, also when there is nothing to be done; what gate_call() returns: then the agent's
 * memory must stay.
 */
must_check int rewrite_put_back(struct gate *gate, struct guest *g, struct err *err);

/**
 * rewrite_returns - cells alone, before their frames are used again
 *
 * Opens a gate, if there is anything to be done. Context: guest lock held, agent loaded, off, and no site armed. Return: 0; what
 * gate_open(), gate_call(), gate_close() return.
 */
must_check int rewrite_returns(struct guest *g, struct err *err);

#endif
