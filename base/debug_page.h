/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hvftrace-vmm shows of a breakpoint that it was told to set by signal, for whoever traces its guest: a page of a
 * memfd, found by the process's memory map. machine/ writes it, vmm/ reads it from outside and believes nothing of it.
 *
 * Asked for by DEBUG_SIGNAL with a value (sigqueue(3)): a guest virtual address, or 0 for none any more. Each order is
 * counted in @orders as soon as no vCPU enters the guest until it is done; so who has stopped the vCPUs, and waits
 * for that before it lets them go, loses no instruction.
 */
#ifndef BASE_DEBUG_PAGE_H
#define BASE_DEBUG_PAGE_H

#include "base/types.h"

#include <signal.h>

#define DEBUG_SIGNAL       (SIGRTMIN + 1)
#define DEBUG_PAGE_NAME    "hvftrace-debug"
#define DEBUG_PAGE_VERSION 1

enum debug_state {
	DEBUG_NONE, /* no order yet */
	DEBUG_TAKEN, /* an order is being done */
	DEBUG_ARMED, /* all vCPUs have the breakpoint, and run */
	DEBUG_HIT, /* @vcpu is at it: no vCPU runs before the next order, or before @until_ns */
	DEBUG_OVER, /* nothing is armed, nobody held; @reason says why */
	DEBUG_N_STATES
};

enum debug_reason {
	DEBUG_WAS_TOLD, /* the order 0 */
	DEBUG_NO_KVM, /* KVM here cannot */
	DEBUG_DR7, /* the guest uses the debug registers itself */
	DEBUG_FULL, /* all of them have breakpoints of ours */
	DEBUG_STUCK, /* a vCPU did not leave the guest in time */
	DEBUG_FAILED, /* KVM refused */
	DEBUG_RESET, /* the guest was reset */
	DEBUG_EXPIRED, /* nobody asked for more in time */
	DEBUG_N_REASONS
};

struct debug_page {
	u32 version;
	u32 seq; /* odd while it is being written */
	u64 orders;
	u32 state; /* enum debug_state */
	u32 reason; /* enum debug_reason */
	u64 addr; /* of the order that @orders counted last */
	u64 until_ns; /* CLOCK_MONOTONIC */
	u32 vcpu;
	u32 pauses; /* odd while vCPUs leave the guest, and none enters it: by an order or for whatever else */
	u32 held; /* 1: by a breakpoint, whoever has set it */
	u32 pad;
};

#endif
