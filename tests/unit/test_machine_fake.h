/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine whose KVM is the test's own: the linker has ioctl() called here instead, and what makes a VM. Each of its
 * vCPUs goes round a few addresses, an instruction each.
 */
#ifndef TESTS_MACHINE_FAKE_H
#define TESTS_MACHINE_FAKE_H

#include "machine/debug_impl_x86.h"
#include "machine/machine.h"

#define VCPUS   2
#define ROUND   16u /* addresses of a vCPU: from 100 * (id + 1) on */
#define BASE(i) (100u * ((i) + 1))
#define IO_AT   6u /* the host does a part of this instruction, and nothing traps at its end */
#define HALT_AT 9u /* when it halts: here */
#define FD(i)   (50 + (int)(i))
#define KVM_FD  40

/* What KVM knows of each. */
struct fake_cpu {
	_Atomic u64 rip;
	struct kvm_guest_debug debug;
	_Atomic u64 dr7;
	_Atomic bool halts, traps, inside;
	_Atomic bool stuck; /* it does not leave the guest, whoever wants it to */
	_Atomic bool slow_io; /* the host's part takes until it is to leave */
	bool io_done;
	u64 dr6_given; /* by KVM_SET_DEBUGREGS */
	_Atomic int injected; /* exceptions given back */
	_Atomic u64 insns;
};

struct fake_did {
	bool no_debug; /* KVM has no KVM_SET_GUEST_DEBUG */
	int refuse; /* it fails for this vCPU, + 1 */
	_Atomic int ended, told;
	char text[256]; /* told last */
	_Atomic int lives;
	u32 shown; /* what the page said when KVM was told of breakpoints: a bit for each state */
};

extern struct machine m;
extern struct fake_cpu cpu[VCPUS];
extern struct fake_did did;

/* For cmocka: a guest that runs; it has ended. */
int fake_begin(void **state);
int fake_end(void **state);

#endif
