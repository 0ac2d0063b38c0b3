/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest of ours: RAM, devices and vCPUs on the KVM API, in this process. Whoever traces it does so
 * from another process, as with any VMM; this folder knows nothing of tracing.
 */
#ifndef MACHINE_MACHINE_H
#define MACHINE_MACHINE_H

#include "machine/acpi_x86.h"
#include "machine/bus.h"
#include "machine/console.h"
#include "machine/legacy_x86.h"
#include "machine/mem.h"
#include "machine/serial.h"
#include "machine/spare.h"
#include "machine/virtio_devices.h"

#include <linux/kvm.h>
#include <pthread.h>

/* Process exit statuses of hvftrace-vmm; a guest's debug exit of value v is 2 v + 1, as QEMU's. */
#define EXIT_GUEST_ENDED  0 /* shut down, reset, or ended by a signal */
#define EXIT_CANNOT_START 1
#define EXIT_USAGE        2
#define EXIT_GUEST_FAILED 4 /* triple fault, or KVM gave up */

/* Devices are in the hole: virtio from here on, a page each. */
#define MACHINE_VIRTIO_BASE 0xd0000000u
#define MACHINE_MAX_DISKS   8
#define MACHINE_MAX_VIRTIO  (MACHINE_MAX_DISKS + 2)

struct machine_config {
	const char *kernel, *initrd, *cmdline; /* initrd may be NULL */
	u32 cpus;
	u64 memory_bytes;
	int out_fd; /* the consoles' output */
	struct disk_source disk[MACHINE_MAX_DISKS];
	u32 n_disks;
	bool emulated; /* KVM here emulates kernel code */
};

struct machine;

struct vcpu {
	struct machine *m;
	u32 id;
	int fd; /* -1: none */
	struct kvm_run *run; /* NULL: none */
	pthread_t thread;
	bool started;
};

struct machine {
	int kvm, vm; /* -1: none */
	size_t run_bytes;
	struct guest_mem mem;
	struct guest_spare spare;
	struct bus pio, mmio;
	struct legacy legacy;
	struct serial serial;
	struct virtio_dev rng;
	struct virtio_console hvc;
	bool has_hvc;
	struct virtio_blk disk[MACHINE_MAX_DISKS];
	u32 n_disks; /* initialised ones */
	struct virtio_place place[MACHINE_MAX_VIRTIO]; /* the rng's, the disks', the console's */
	u32 n_virtio;
	struct vcpu *vcpu;
	u32 n_vcpus;
	bool emulated;
	pthread_mutex_t go_lock;
	pthread_cond_t go;
	bool going; /* vCPUs may enter the guest */
	bool stopping; /* atomic: they are to leave it for good */
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

/* kvm.c */

/** kvm_failed - fail with errno: KVM did not give @what */
int kvm_failed(struct err *err, const char *what);

/** kvm_open - /dev/kvm with what we need of it; -ENOENT, -EACCES, -ENOTSUP */
must_check int kvm_open(int *fd_ret, struct err *err);

/** kvm_create_vm - VM, RAM slots, interrupt controllers and timer */
must_check int kvm_create_vm(struct machine *m, struct err *err);

/** kvm_set_irq - an irq_line's set(); @arg is the machine */
void kvm_set_irq(void *arg, u32 gsi, bool level);

/* vcpu_x86.c */

/** vcpu_create - vCPU @v->id with its CPUID; the first one is set to start at @entry */
must_check int vcpu_create(struct vcpu *v, u64 entry, struct err *err);

/* vcpu.c */

/** vcpu_thread - a pthread's function; @arg is the struct vcpu; runs it until the guest ends */
void *vcpu_thread(void *arg);

/** vcpu_kick - make it leave KVM_RUN; m->stopping is set. Context: any thread. */
void vcpu_kick(struct vcpu *v);

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
