/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the guest has lent: is it where we think that it is? */
#ifndef PATCHER_LENT_H
#define PATCHER_LENT_H

#include "patcher/guest_priv.h"

struct gate;

/**
 * lent_prove - let the guest write to memory that it lent, and look whether that is where we would write
 * @addr, @bytes: whole pages, writable, used by nobody yet, and in the journal
 *
 * Only where it was worked out where RAM lies (vm_ram_guessed()): by a wrong guess we would write to other pages of
 * the guest. Each page is compared. Context: the gate is open. Return: 0; -EFAULT they are elsewhere
 * (guest.bad_memory); what gate_call() and guest_read() return. Undo: none is needed, nothing is in there.
 */
must_check int lent_prove(struct gate *gate, struct guest *g, u64 addr, u64 bytes, struct err *err);

#endif
