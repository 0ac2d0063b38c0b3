/* SPDX-License-Identifier: Apache-2.0 */
/* Is any task or vCPU of the guest still inside code that nothing leads to any more? */
#ifndef PATCHER_QUIESCE_H
#define PATCHER_QUIESCE_H

#include "patcher/guest_priv.h"

/**
 * quiesce_range - wait until nobody executes or will return into [@lo, @hi)
 * @timeout_ns: how long to wait
 *
 * Precondition: no call site leads into the range any more. Two proofs together: every vCPU thread
 * has run for a while on a host CPU or slept since (so one that was inside has left, or took an
 * interrupt), and no task that is awake but was preempted holds an address in the range on its stack,
 * or has since slept, switched or run for long. Of tasks on the guest's lists: see quiesce.c. Reads only. Context: guest lock held, vCPUs run.
 * Return: 0; -EBUSY still in use; what vm_read() returns.
 */
must_check int quiesce_range(struct guest *g, u64 lo, u64 hi, u64 timeout_ns, struct err *err);

#endif
