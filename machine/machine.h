/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest of ours: RAM, devices and vCPUs on the KVM API, in this process. Whoever traces it does so
 * from another process, as with any VMM; this folder knows nothing of tracing.
 */
#ifndef MACHINE_MACHINE_H
#define MACHINE_MACHINE_H

#include "machine/acpi_x86.h"
#include "machine/boot_x86.h"
#include "machine/bus.h"
#include "machine/console.h"
#include "machine/debug_x86.h"
#include "machine/legacy_x86.h"
#include "machine/mem.h"
#include "machine/serial.h"
#include "machine/spare.h"
#include "machine/virtio_devices.h"
#include "machine/virtio_net.h"
#include "machine/virtio_vsock.h"

#include <linux/kvm.h>
#include <pthread.h>

/* Process exit statuses of hvftrace-vmm; a guest's debug exit of value v is 2 v + 1, as QEMU's. */
#define EXIT_GUEST_ENDED  0 /* shut down, reset where it may not, or ended by a signal */
#define EXIT_CANNOT_START 1
#define EXIT_USAGE        2
#define EXIT_GUEST_FAILED 4 /* triple fault, or KVM gave up */

/* Devices are in the hole: virtio from here on, a page each. */
#define MACHINE_VIRTIO_BASE 0xd0000000u
#define MACHINE_MAX_DISKS   8
#define MACHINE_MAX_NETS    4
#define MACHINE_MAX_CARDS   8 /* disks, network cards and sockets together */
#define MACHINE_MAX_VIRTIO  (MACHINE_MAX_CARDS + 2)

struct machine_config {
	const char *kernel, *initrd, *cmdline; /* initrd may be NULL */
	enum boot_protocol protocol;
	u32 cpus;
	u64 memory_bytes;
	int out_fd; /* the consoles' output */
	struct disk_source disk[MACHINE_MAX_DISKS];
	u32 n_disks;
	struct net_source net[MACHINE_MAX_NETS];
	u32 n_nets;
	struct vsock_source vsock; /* path NULL: none */
	bool no_reboot; /* a reset is the guest's end */
	bool triple_fault_resets; /* as on a PC; else it is a failure */
	bool emulated; /* KVM here emulates kernel code */
	bool lend; /* the spare memory is lent from the start */
	/* optional; something happened that the host may want to know: one line. Context: any thread. */
	void (*tell)(void *arg, const char *line);
	void *tell_arg;
};

struct machine;

struct vcpu {
	struct machine *m;
	u32 id;
	int fd; /* -1: none */
	struct kvm_run *run; /* NULL: none */
	pthread_t thread;
	bool started;
	bool done; /* it has left for good in this life; go_lock, or its own thread */
	bool steps; /* it is in the guest for one instruction; its own thread, as the next two */
	bool finishes; /* that instruction, of which the host did a part */
	u64 from; /* where it was */
	bool shown; /* of a guest that is held: somebody was told that it is at @at; go_lock */
	u64 at;
};

struct machine {
	int kvm, vm; /* -1: none */
	size_t run_bytes;
	struct guest_mem mem;
	struct guest_spare spare; /* base: go_lock, once vCPUs may run */
	struct bus pio, mmio;
	struct legacy legacy;
	struct serial serial;
	struct virtio_dev rng;
	struct virtio_console hvc;
	bool has_hvc;
	struct virtio_blk disk[MACHINE_MAX_DISKS];
	u32 n_disks; /* initialised ones */
	struct virtio_net net[MACHINE_MAX_NETS];
	u32 n_nets;
	struct virtio_vsock vsock;
	bool has_vsock;
	struct virtio_place place[MACHINE_MAX_VIRTIO];
	struct virtio_dev *virtio[MACHINE_MAX_VIRTIO]; /* those above, each at its place */
	u32 n_virtio;
	struct vcpu *vcpu;
	u32 n_vcpus;
	bool emulated, no_reboot, triple_fault_resets;
	struct boot_start boot;
	struct mem_copy start; /* RAM before the first instruction, for the next life */
	void (*tell)(void *arg, const char *line);
	void *tell_arg;
	pthread_mutex_t go_lock; /* of all below, and of vCPUs' descriptors */
	pthread_cond_t go, all_out;
	bool going; /* vCPUs may enter the guest */
	bool stopping; /* they are to leave it for good */
	bool reset_wanted; /* they are to leave it, and come back to another life */
	u32 n_pauses; /* of those who have them leave it, and come back to the same */
	struct debug debug; /* .held, .dr7_used: likewise */
	bool leave; /* atomic: any of these */
	u32 n_out; /* vCPU threads that are outside */
	u32 life; /* 1 for the first */
	char reset_why[64];
	u32 panic_told[2]; /* atomic: the life in which each kind was told last */
	int end_fd; /* eventfd: the guest ended */
	pthread_mutex_t end_lock;
	bool ended; /* how is known; the first one to say so counts */
	int status; /* exit status */
	char why[256]; /* one line */
};

/**
 * machine_create - a guest that is ready to start
 *
 * Context: before other threads are started. Return: 0; -ENOENT no /dev/kvm, -EACCES no permission for
 * it; errors of mem_init(), boot_load(), bus_add(); a system error of KVM. Nothing is left on failure.
 */
must_check int machine_create(const struct machine_config *c, struct machine **ret,
			      struct err *err);

/** machine_destroy - end all vCPU threads and free everything; NULL is fine */
void machine_destroy(struct machine *m);

/** machine_stop - end all threads of vCPUs and devices; the rest stays to be looked at */
void machine_stop(struct machine *m);

/** machine_start - a thread for each device and vCPU, the latter wait. -EAGAIN: the host has no more. */
must_check int machine_start(struct machine *m, struct err *err);

/** machine_console - the device that takes what is typed: the one that the command line names last */
struct console_sink machine_console(struct machine *m);

/** machine_go - the guest runs; after machine_start() */
void machine_go(struct machine *m);

/**
 * machine_end - the guest is at its end; the first call counts
 * @status: exit status of this process
 * @fmt:    why, one line
 *
 * Context: any thread, a vCPU's too; only notes it and wakes who waits for m->end_fd.
 */
void machine_end(struct machine *m, int status, const char *fmt, ...) printf_like(3, 4);

/**
 * machine_reset - the guest is reset: it comes back in this process, memory and devices as at its start
 * @why: of the line that is said, "the guest ..."
 *
 * Where it may not, that is its end. Context: any thread, no lock held; a vCPU's leaves the guest then.
 */
void machine_reset(struct machine *m, const char *why);

/** machine_add_vcpus - all of them, as before their first instruction; those that there are were closed */
must_check int machine_add_vcpus(struct machine *m, struct err *err);

/** machine_lend - lend the spare memory, or take it back; what fails is told. Context: any thread, no lock held. */
void machine_lend(struct machine *m, enum spare_order order);

/** machine_slots - the VM's memory slots, "GPA+BYTES" in hex each, by guest physical address. Context: as above. */
void machine_slots(struct machine *m, char *buf, size_t cap);

/** machine_life - which life it is in, from 1 on */
u32 machine_life(struct machine *m);

/** machine_tell - one line to whoever wants to know, and on standard error. Context: any thread. */
void machine_tell(struct machine *m, const char *fmt, ...) printf_like(2, 3);

/* life.c */

/**
 * life_wait - a vCPU's thread is outside of the guest: wait until it may enter it
 *
 * When a reset is wanted, and all are outside, the first vCPU's thread brings the guest back: it is one that
 * stop windows stop, so nobody finds memory half cleared. Return: false when it is to end.
 */
must_check bool life_wait(struct vcpu *v);

/**
 * life_pause - all vCPUs are told to leave the guest, and none enters it any more
 *
 * Not waited for: life_look() does that. Context: any thread but a vCPU's, no lock held; may be nested. Undo:
 * life_unpause().
 */
void life_pause(struct machine *m);
void life_unpause(struct machine *m);

/** life_get_out - those that are in the guest are told to leave it. With go_lock; who lets them in again is known. */
void life_get_out(struct machine *m);

/** life_let_go - vCPUs go on, unless there is another reason for them to be out. With go_lock. */
void life_let_go(struct machine *m);

/**
 * life_wait_out - until all vCPUs are out, or it is @end_ns. With go_lock, which it lets go of meanwhile. Return: 0;
 * -ETIMEDOUT; -ESHUTDOWN the guest is at its end.
 */
must_check int life_wait_out(struct machine *m, u64 end_ns, struct err *err);

/**
 * life_look - all vCPUs leave the guest, @look is called, and they go on
 * @limit_ns:  so long they may take to leave; one that a tracer holds does not
 * @window_ns: how long the guest stood
 *
 * Context: any thread but a vCPU's, no lock held; @look is called with go_lock. Return: 0;
 * -ETIMEDOUT, -ESHUTDOWN the guest is at its end: @look was not called.
 */
must_check int life_look(struct machine *m, u64 limit_ns, void (*look)(void *arg), void *arg,
			 u64 *window_ns, struct err *err);

/** life_stop - all vCPUs leave for good; returns once their threads have ended */
void life_stop(struct machine *m);

/* devices.c */

/** devices_add - all of them, on their buses; devices_deinit() frees them, after a failure, too */
must_check int devices_add(struct machine *m, const struct machine_config *c, struct err *err);
void devices_deinit(struct machine *m);

/** devices_start / devices_stop - their threads */
must_check int devices_start(struct machine *m, struct err *err);
void devices_stop(struct machine *m);

/** devices_reset - as after power on; none touches memory or lines after. Context: all vCPUs are out. */
void devices_reset(struct machine *m);

/* kvm.c */

/** kvm_failed - fail with errno: KVM did not give @what */
int kvm_failed(struct err *err, const char *what);

/** kvm_open - /dev/kvm with what we need of it; -ENOENT, -EACCES, -ENOTSUP */
must_check int kvm_open(int *fd_ret, struct err *err);

/** kvm_create_vm - VM, RAM slots, interrupt controllers and timer */
must_check int kvm_create_vm(struct machine *m, struct err *err);

/**
 * kvm_lend_spare / kvm_take_spare_back - give the spare memory a slot of the VM's, and take it away again
 *
 * While vCPUs run: one that reaches for memory without a slot finds no device there. Context: go_lock, or
 * before vCPUs are started. Return: 0, also when it is so already; a system error, nothing was changed.
 */
must_check int kvm_lend_spare(struct machine *m, struct err *err);
must_check int kvm_take_spare_back(struct machine *m, struct err *err);

/** kvm_set_irq - an irq_line's set(); @arg is the machine */
void kvm_set_irq(void *arg, u32 gsi, bool level);

/* vcpu_x86.c */

/** vcpu_create - vCPU @v->id with its CPUID; the first one is set to start as @start says */
must_check int vcpu_create(struct vcpu *v, const struct boot_start *start, struct err *err);

/* regs_x86.c */

/**
 * machine_registers - one line: the registers of vCPU @id, with all vCPUs out of the guest, or why not
 *
 * "ok" and pairs of a name and a value, the latter in hex; or "error". Context: as life_look().
 */
void machine_registers(struct machine *m, u32 id, char *buf, size_t cap);

/* vcpu.c */

/** vcpu_thread - a pthread's function; @arg is the struct vcpu; runs it until the guest ends */
void *vcpu_thread(void *arg);

/** vcpu_close - its descriptor and page; fine when there are none */
void vcpu_close(struct vcpu *v);

/** vcpu_kick - make it leave KVM_RUN; m->leave is set. Context: any thread, go_lock held. */
void vcpu_kick(struct vcpu *v);

/** vcpu_nudge - make it leave KVM_RUN for a moment, if it is there. Context: as above, but m->leave need not be set. */
void vcpu_nudge(struct vcpu *v);

/** vcpu_catch_kicks - once a process, before vCPUs are started */
void vcpu_catch_kicks(void);

/* fault_x86.c */

/**
 * vcpu_emulation_failed - KVM met an instruction that it cannot execute
 *
 * Does it for KVM where that is possible (int3); else reports it, with bytes, address and registers,
 * and ends the guest. Context: the vCPU's thread, out of KVM_RUN. Return: true to go on.
 */
must_check bool vcpu_emulation_failed(struct vcpu *v);

/** vcpu_dump - registers to stderr. Context: as above. */
void vcpu_dump(const struct vcpu *v);

#endif
