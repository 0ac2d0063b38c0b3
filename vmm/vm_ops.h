/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of vmm/: what a vm is made of, and the contract of a backend. Nobody outside the folder
 * includes this. Backends are listed in one visible array in vm.c.
 */
#ifndef VMM_VM_OPS_H
#define VMM_VM_OPS_H

#include "vmm/backing.h"
#include "vmm/pgtable.h"
#include "vmm/vm.h"

#include <limits.h>

struct vm_threads;

/* Limits that keep a lying VMM or guest from costing us without end. */
#define VM_MAX_RAM   64 /* regions of RAM */
#define VM_MAX_VCPUS 4096 /* the most that CONFIG_KVM_MAX_NR_VCPUS can be on x86-64 */
#define VM_TLB_SLOTS 256

/* Of threads that work while a stop window is open; where we may (RLIMIT_NICE). */
#define VM_WINDOW_NICE (-15)

/* A region of guest RAM and where the VMM has it. */
struct ram_region {
	struct vm_ram ram;
	u64 hva; /* in the VMM's address space */
	u64 inode; /* of what the VMM has mapped there; 0 for anonymous memory */
	struct backing *backing; /* of a shared backend; NULL when anonymous or private */
};

/* One piece of text by guest physical address; never crosses a page. */
struct vm_phys_text {
	u64 gpa;
	u32 len;
	u8 bytes[16];
	u32 pad;
};

/* A translation that was walked; trusted only while its leaf entry reads the same. */
struct vm_tlb {
	u64 page; /* gva / 4 KiB + 1; 0 when empty */
	struct vm_mapping map; /* of the page's first byte */
};

struct vm {
	const struct vm_ops *ops;
	char target[128];
	pid_t pid;
	u64 start_time;
	int pidfd;
	int mem; /* /proc/PID/mem: bound to the address space, so safe against pid reuse */
	int pagemap; /* /proc/PID/pagemap; -1 when it cannot be had */
	enum vm_accel accel;
	u32 n_vcpus;
	struct ram_region ram[VM_MAX_RAM]; /* sorted by guest physical address */
	size_t n_ram;
	struct backing *backings; /* all that there are, see backing.c */
	struct backing *
		gone_ram[VM_MAX_RAM]; /* plugged out, dropped; views may lead there until the end */
	size_t n_gone_ram;
	u64 ram_listed_ns; /* by vm_more_ram() */
	u64 ram_checked_ns; /* by vm_check_ram() */
	gpa_t root;
	int levels; /* 0 before vm_set_root() */
	struct vm_tlb tlb[VM_TLB_SLOTS];
	struct vm_windows windows;
	/* set by the pause hook just before the first vCPU is asked to stop, also when it fails; 0: none was */
	u64 window_start_ns;
	u64 window_limit_ns; /* see vm_set_window_limit() */
	u64 window_write_ns, window_write_n; /* of the window that is open: for writing text */
	u64 window_end_ns; /* may be set by the resume hook; else its return counts */
	bool window_open;
	bool held; /* it stays open until vm_release() */
	bool ram_guessed; /* see vm_ram_guessed() */
	bool leaving_told; /* by the leaves hook: the VMM has answered it */
	pid_t raised; /* the thread that opened the window, if it goes first meanwhile; 0: it does not */
	int nice_before;
	bool has_spare; /* the last of ram[] is no RAM, but vm_spare() */
	u64 spare_gpa; /* where it is, or would be; 0: the VMM has none */
	struct vm_console *console; /* NULL: none is offered */
	u64 debug_hva; /* of the VMM's struct debug_page; 0: it has none */
	u64 debug_order, debug_addr; /* vm_break()'s, by the page's count; 0: none */
	void *priv; /* the backend's */
};

/* How a VMM is reached. At most 12 hooks. */
struct vm_ops {
	const char *name; /* what stands before the colon in a target */

	/* required; fills pid, start_time, accel, n_vcpus, ram; on failure detach() is called */
	int (*attach)(struct vm *vm, const char *arg, struct err *err);
	/* required; no window is open; must cope with a half-attached vm; the guest runs on */
	void (*detach)(struct vm *vm);
	/* required; never VM_GONE by mistake: the wrapper has seen the process alive */
	enum vm_state (*state)(struct vm *vm);
	/*
	 * required; one try: all vCPUs are out on 0, none is left stopped on failure. -ETIMEDOUT: after having held
	 * some for @timeout_ns, or not having begun in that time
	 */
	int (*pause)(struct vm *vm, u64 timeout_ns, struct err *err);
	/* required; a window is open; it is closed afterwards also on failure */
	int (*resume)(struct vm *vm, struct err *err);
	/* required; a window is open */
	int (*write_text)(struct vm *vm, const struct vm_phys_text *text, size_t n,
			  struct err *err);
	/* required; host thread ids of the vCPUs, or of every thread when they cannot be told apart */
	int (*threads)(struct vm *vm, struct vm_threads *ret, struct err *err);
	/* optional; no window is open */
	int (*vcpu_regs)(struct vm *vm, u32 vcpu, struct vm_regs *ret, struct err *err);
	/* optional; no window is open */
	enum vm_leaving (*leaves)(struct vm *vm);
	/* optional; nobody is asked; any thread */
	bool (*silent)(const struct vm *vm);
	/* optional; the process has ended, or is about to */
	enum vm_end (*end)(struct vm *vm);
	/* optional; no window is open; vm_mem_add() for each region of RAM that there is now */
	int (*list_ram)(struct vm *vm, struct err *err);
};

extern const struct vm_ops vm_ops_qemu; /* qemu.c */
extern const struct vm_ops vm_ops_libvirt; /* libvirt.c */
extern const struct vm_ops vm_ops_pid; /* pid.c */

/** vm_gone - fail with -ESRCH, vmm.gone */
int vm_gone(const struct vm *vm, struct err *err);

/**
 * vm_open_process - take hold of the VMM's process: pidfd, memory, page map, start time
 *
 * Return: 0; -ENOENT (target.no_process); -EACCES (target.permission).
 */
int vm_open_process(struct vm *vm, pid_t pid, struct err *err);

/* stop.c */

/**
 * vm_try_stop - one try to stop the vCPUs, for at most @timeout_ns; *held_ns_ret: how long some were held in vain
 * vm_stop - tries, with rests in between, until one succeeds or @patience_ns is over
 *
 * Context: alive, no window open. Return: as vm_pause().
 */
must_check int vm_try_stop(struct vm *vm, u64 timeout_ns, u64 *held_ns_ret, struct err *err);
must_check int vm_stop(struct vm *vm, u64 patience_ns, struct err *err);

/** vm_raise / vm_lower - the calling thread goes first on its CPU while a window is open, where it may */
void vm_raise(struct vm *vm);
void vm_lower(struct vm *vm);

/* spare.c */

#define SPARE_MAP_PREFIX "/memfd:hvftrace-spare@"
#define SPARE_SIGNAL     SIGRTMIN /* as machine/spare.h has it, and its value: */
#define SPARE_TAKE_BACK  0
#define SPARE_LEND       1

/** vm_order - send the VMM a signal with a value, if it waits for it. Return: 0; -ENOENT, -EACCES, -ESRCH */
must_check int vm_order(const struct vm *vm, int sig, u64 value, struct err *err);

/** spare_is_map - is a mapping with this path memory for us, and not guest RAM? */
bool spare_is_map(const char *path);

/** spare_find - after the layout of RAM is known, before vm_mem_open(): is there memory for us, is it lent? */
void spare_find(struct vm *vm);

/* break.c */

/** break_find - has the VMM a page that tells of breakpoints? Context: while it is attached. */
void break_find(struct vm *vm);

/** break_pauses - the page's @pauses; 0 without a page, odd where it cannot be read */
u32 break_pauses(const struct vm *vm);

/** break_held - does a breakpoint hold the guest, ours or anybody's? false where that cannot be told */
bool break_held(const struct vm *vm);

/* confidential.c */

/**
 * vm_check_confidential - does the VMM's process hold what only that of a confidential guest does?
 *
 * Return: 0; -EACCES (target.confidential).
 */
must_check int vm_check_confidential(const struct vm *vm, struct err *err);
/** vm_refuse_confidential - fail so: @what it is */
int vm_refuse_confidential(const struct vm *vm, const char *what, struct err *err);

/* more_ram.c */

/** vm_find_ram - as vm_mem_find(); where there is none, RAM that was plugged in is looked for */
const struct ram_region *vm_find_ram(struct vm *vm, u64 addr);
void vm_more_ram_close(struct vm *vm);

/* vm_mem.c */

/** vm_mem_find - the region that holds @addr; NULL when none does */
const struct ram_region *vm_mem_find(const struct vm *vm, u64 addr);

/** vm_mem_add - a region of RAM at host address @hva; sorts; -EINVAL on overlap, -E2BIG */
int vm_mem_add(struct vm *vm, gpa_t base, u64 len, u64 hva, struct err *err);

/** vm_mem_is_there - is each region still mapped as when it was opened? true, too, where that cannot be looked at */
bool vm_mem_is_there(const struct vm *vm);

/**
 * vm_mem_open - after all vm_mem_add(): check against /proc/PID/maps, open shared backends
 *
 * Return: 0; -EPROTO a region is not backed by writable memory of the VMM.
 */
int vm_mem_open(struct vm *vm, struct err *err);
void vm_mem_close(struct vm *vm);

/** vm_mem_open_last / vm_mem_drop_last - as vm_mem_open() for the last region alone; it goes away again */
must_check int vm_mem_open_last(struct vm *vm, struct err *err);
void vm_mem_drop_last(struct vm *vm);

/**
 * vm_mem_read_region - @len bytes at @off within @r
 *
 * A hole of a shared backend reads as zeros and stays one. A backend may be there for a moment longer than its VMM:
 * what was read is the guest's if vm_alive() says so afterwards. Return: 0; -ESRCH; -EFAULT.
 */
int vm_mem_read_region(const struct vm *vm, const struct ram_region *r, u64 off, void *buf,
		       size_t len);

/** vm_mem_write_text - vm_phys_text by host address, in large batches; for ops->write_text */
int vm_mem_write_text(struct vm *vm, const struct vm_phys_text *text, size_t n, struct err *err);

/**
 * vm_mem_read_hva / vm_mem_write_hva - the VMM's memory by its own addresses
 *
 * Return: 0; -ESRCH; -EFAULT.
 */
int vm_mem_read_hva(const struct vm *vm, u64 hva, void *buf, size_t len);
int vm_mem_write_hva(const struct vm *vm, u64 hva, const void *buf, size_t len);

/** vm_mem_copy - memcpy() that never splits an 8-byte aligned word that both sides align */
void vm_mem_copy(void *dst, const void *src, size_t len);

#endif
