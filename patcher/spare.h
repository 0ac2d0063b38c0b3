/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent in memory that the VMM keeps above guest RAM (vm_spare()): the guest's allocator is not asked,
 * nothing of the guest runs for us, and its accounting does not know of it. So it works before the guest
 * has an allocator, and from its first initcall on.
 */
#ifndef PATCHER_SPARE_H
#define PATCHER_SPARE_H

#include "patcher/guest_priv.h"

/**
 * spare_take - choose a place for the agent of @g->agent.text_bytes and data_bytes, and map its data
 *
 * Into entries of the kernel image's page table that are not present and far from the image: from not
 * present to present alone, which needs no flush on any CPU. Data comes writable and not executable. Safe while
 * the guest runs: Linux maps nothing there after setup_arch() (v6.1 arch/x86/mm/init_64.c cleanup_highmap()). In
 * the journal first, as memory borrowed would be; so is that the VMM lends it.
 *
 * Sets @g->agent.text and data. Return: 0; -ENOENT there is no such memory, or no room for it, and nothing
 * was changed in the guest: borrow from it; errors of the journal and of vm_write_phys(). Undo: spare_give_back(),
 * then spare_return().
 */
must_check int spare_take(struct guest *g, struct err *err);

/**
 * spare_put_text - write the agent's text where the guest cannot see it, then map it, read-only and executable
 * @text: g->agent.text_bytes bytes
 *
 * So text is there only when data is whole, which a later daemon relies on. Undo: spare_give_back().
 */
must_check int spare_put_text(struct guest *g, const u8 *text, struct err *err);

/** spare_owns - was the agent's memory at @addr mapped by spare_take()? */
bool spare_owns(u64 addr);

/**
 * spare_give_back - take the entries that map [@addr, @addr + @bytes) away
 *
 * Precondition: nobody is inside, nor will come. Each is verified first. Return: 0; -EINVAL one holds
 * something else (guest.text_changed).
 */
must_check int spare_give_back(struct guest *g, u64 addr, u64 bytes, struct err *err);

/**
 * spare_return - let the VMM take its memory back, once the agent is out of it
 *
 * Also what a daemon that died had lent. A VMM that is stopped keeps what we did not ask it for. Return: 0, also
 * when there is none; errors of vm_spare_return() and of the journal.
 */
must_check int spare_return(struct guest *g, struct err *err);

/**
 * spare_unload - all of the agent, once nobody is in it
 *
 * A guest whose kernel preempts itself is asked for its grace periods, through the gate. Return: 0; -EBUSY
 * (guest.text_busy) also while such a one is booting; what gate_open(), agent_wait_quiet(), spare_give_back() return.
 */
must_check int spare_unload(struct guest *g, struct err *err);

#endif
