/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Execution breakpoints in the CPU's debug registers, and single steps, by KVM_SET_GUEST_DEBUG. No byte of the guest
 * is changed, and it cannot see them; but while they are set its own breakpoints would not work. So they are refused while
 * a vCPU has one in DR7, and given up when one gets one. That is looked at whenever a vCPU leaves the guest, which
 * each is made to do ten times a second; what a guest had and took away in between is not noticed.
 *
 * A vCPU that comes to one *holds* the guest: it does not execute the instruction, all others leave the guest, and none
 * enters it again until it is told so. Two kinds:
 *
 *   kept       by the control socket; stays, also in the guest's next life, until it is taken away or the client
 *              leaves; the hold lasts until then, too
 *   by order   one, of whoever sent DEBUG_SIGNAL (base/debug_page.h); gone once it is hit, or with the guest's life; it
 *              is armed for DEBUG_ARMED_NS at most, and holds for DEBUG_HOLD_NS, as who asked for it may be dead
 *
 * One that stays is got over by a single step of its vCPU without it, while all others are out: not by RF, which KVM's
 * emulator does not look at (Linux v6.12 arch/x86/kvm/x86.c kvm_vcpu_check_code_breakpoint()). A step is the CPU's
 * trap flag: a pushf that is stepped stores it, as with whoever steps through KVM.
 */
#ifndef MACHINE_DEBUG_X86_H
#define MACHINE_DEBUG_X86_H

#include "base/debug_page.h"
#include "base/err.h"

#define DEBUG_POINTS   4
#define DEBUG_HOLD_NS  (5 * NSEC_PER_SEC)
#define DEBUG_ARMED_NS (600 * NSEC_PER_SEC)

struct machine;
struct vcpu;

enum debug_kind {
	DEBUG_FREE,
	DEBUG_KEPT,
	DEBUG_BY_ORDER
};

struct debug {
	bool can; /* KVM has it */
	bool can_block_irqs; /* while it steps */
	int fd; /* of the page; -1: none */
	struct debug_page *page; /* NULL: none */
	/* go_lock protects the rest */
	struct debug_point {
		enum debug_kind kind;
		u64 addr;
	} point[DEBUG_POINTS];
	bool armed; /* any of them; atomic: looked at without the lock */
	bool dr7_used; /* seen by a vCPU's thread: all leave the guest, and breakpoints are given up */
	bool held; /* no vCPU enters the guest, but @stepper */
	bool told; /* of the hold */
	struct debug_point hit; /* that holds it, or 0 */
	u32 hit_vcpu;
	struct vcpu *stepper; /* NULL: none, or it is done */
	int step_rc; /* how it began */
	u64 until_ns; /* an order's: armed or held so long */
	u64 not_ours; /* debug exceptions that the guest was given back */
};

/** debug_init - what KVM can, and the page. Return: 0; a system error of memfd_create(2) or mmap(2). */
must_check int debug_init(struct machine *m, struct err *err);
void debug_deinit(struct machine *m);

/**
 * debug_break - set a breakpoint that is kept
 * @addr: guest virtual; in whatever address space
 *
 * Context: the control socket's thread, no lock held; all vCPUs leave the guest for a moment. Return: 0, also when
 * it is set already; nothing was changed: -ENOTSUP KVM cannot; -EBUSY the guest's DR7; -ENOSPC; -ETIMEDOUT and
 * -ESHUTDOWN as life_look(); an error of KVM's. Undo: debug_unbreak().
 */
must_check int debug_break(struct machine *m, u64 addr, struct err *err);

/** debug_unbreak - take one away. Context: as above. Return: 0; -ENOENT there is none; as life_look(). */
must_check int debug_unbreak(struct machine *m, u64 addr, struct err *err);

/**
 * debug_step - one instruction of a vCPU of a guest that is held
 * @rip_ret: where it is then
 *
 * Its interrupts wait, where KVM can have them wait. Context: as above. Return: 0; -EINVAL not held; -ENOENT no such
 * vCPU; -ETIMEDOUT it executes nothing (it halts, or waits to be started); -ESHUTDOWN; -ECANCELED it was reset.
 */
must_check int debug_step(struct machine *m, u32 vcpu, u64 *rip_ret, struct err *err);

/** debug_go - a guest that is held runs on, over the breakpoints that its vCPUs are at. Return: 0; -EINVAL not held. */
must_check int debug_go(struct machine *m, struct err *err);

/** debug_status - of a guest that is held, and of exceptions given back: " NAME VALUE" each, or "". Context: as above. */
void debug_status(struct machine *m, char *buf, size_t cap);

/**
 * debug_drop - who kept breakpoints has left: they go, and a guest that one holds runs on
 *
 * Context: as above. Return: 0; -ETIMEDOUT they stay, to be tried again; -ESHUTDOWN.
 */
must_check int debug_drop(struct machine *m, struct err *err);

/** debug_order - do what DEBUG_SIGNAL asked for; the page tells how it went. Context: main, no lock held. */
void debug_order(struct machine *m, u64 addr);

/**
 * debug_tick - have vCPUs look at DR7, and end what has lasted too long; often, by any thread, no lock held
 *
 * Return: ms after which it is to be called again, or -1 when nothing is armed.
 */
int debug_tick(struct machine *m);

/* For vcpu.c and life.c. */

/**
 * debug_enter / debug_leave - a vCPU is about to enter the guest; it has left it
 *
 * Sets v->steps, and what KVM is to do for it. Context: the vCPU's thread, with go_lock.
 */
void debug_enter(struct vcpu *v);
void debug_leave(struct vcpu *v);

/** debug_exit - KVM_EXIT_DEBUG. Context: the vCPU's thread, no lock held. Return: true to go on. */
must_check bool debug_exit(struct vcpu *v);

/**
 * debug_handled / debug_finished - of a vCPU that steps: an exit was handled; KVM_RUN has ended by EINTR after that
 *
 * An instruction of which the host did a part (in, out, mmio) may end without a trap (Linux v6.12
 * arch/x86/kvm/x86.c x86_emulate_instruction()). So KVM is made to finish it and to return at once, and whether it
 * is over is told by where the vCPU is. That is how a step begins, too. Context: as above.
 */
void debug_handled(struct vcpu *v);
void debug_finished(struct vcpu *v);

/** debug_look - after KVM_RUN: does the guest use DR7? Context: as above. */
void debug_look(struct vcpu *v);

/** debug_all_out - no vCPU is in the guest: what was to be done then. With go_lock. */
void debug_all_out(struct machine *m);

/** debug_new_life - the guest has new vCPUs: what is kept is set in them, the rest is over. With go_lock. */
void debug_new_life(struct machine *m);

#endif
