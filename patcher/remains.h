/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that was put back to an earlier time: a snapshot that is loaded, a domain that was saved, a guest
 * that has arrived by migration. What this daemon knows of its agent is wrong then, and an agent may be there
 * that no journal tells of. Both are found by proof, never taken from an event.
 */
#ifndef PATCHER_REMAINS_H
#define PATCHER_REMAINS_H

#include "patcher/guest_priv.h"

/**
 * remains_agent_stays - is the agent that we know where it was, and what was armed last?
 *
 * By the header's session and by its count of arming and disarming, read through the page tables as they are
 * now. Context: guest lock held. true also when there is none.
 */
bool remains_agent_stays(struct guest *g);

/**
 * remains_journalled_stays - is what an earlier daemon's journal tells of as lent still there?
 *
 * Only by proof: the header in its data, or, where a load or unload was cut short, the gate's mailbox. false: the
 * memory was put back to another time, and what lies there now is somebody else's; or a load had failed and
 * left it without a header, then it stays with the guest. True also when nothing is lent. Context: guest lock held,
 * sites put back, no agent loaded.
 */
bool remains_journalled_stays(struct guest *g);

/**
 * remains_hooked - does the guest's own tracing go through an interlock, though we have none in it?
 *
 * Five bytes are read. Context: guest lock held, no agent loaded.
 */
bool remains_hooked(struct guest *g);

/**
 * remains_find - is there an agent that came with the memory? Then enter it in the journal
 * @found_ret: the journal has now what is to be put back
 *
 * A call site leads to it. Behind that lies the agent's text, byte by byte but for what is linked in, and the
 * header of its data names both. An agent of another version is not known, and stays; so does one that
 * nothing called any more. Nothing in the guest is changed. Context: guest lock held, baseline_take() done,
 * nothing outstanding in the journal. Return: 0; -ENOMEM; what the journal returns.
 */
must_check int remains_find(struct guest *g, bool *found_ret, struct err *err);

/**
 * remains_note - is there an agent whose text begins at @text? Then enter its memory in the journal
 *
 * As remains_find(), for one that is just being loaded or unloaded: no call site leads to it. Return: 0; what the
 * journal returns.
 */
must_check int remains_note(struct guest *g, u64 text, struct err *err);

/** remains_is_agent - are @n bytes at @text the agent's text, with what is linked in left out? Pure. */
bool remains_is_agent(const u8 *text, size_t n);

#endif
