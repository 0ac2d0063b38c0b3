/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a guest is reached: its memory, its vCPUs' stop windows, its VMM. The folder's public header.
 * Must not know symbols or tracing. All functions are for one thread at a time per vm, except
 * vm_view_read() and vm_view_write(), which any thread may call at any time.
 */
#ifndef VMM_VM_H
#define VMM_VM_H

#include "base/err.h"
#include "base/types.h"

struct vm;
struct vm_console;
struct vm_view;

enum vm_accel {
	VM_ACCEL_UNKNOWN,
	VM_ACCEL_KVM,
	VM_ACCEL_TCG
};
enum vm_state {
	VM_RUNNING,
	VM_STOPPED,
	VM_GONE
};

/* What becomes of a guest's memory when its VMM has ended. */
enum vm_end {
	VM_END_GONE,
	VM_END_SAVED, /* the guest may run on from it, as it was in the end (virsh save, managedsave) */
	VM_END_REVERTED /* another VMM runs on from a snapshot, as it was at any time before */
};

/* A run of guest RAM, by guest physical address; sorted, not overlapping. */
struct vm_ram {
	gpa_t base;
	u64 len_bytes;
};

/* What a page walk found. */
struct vm_mapping {
	gpa_t gpa; /* of the address asked for, not of the page */
	gpa_t pte; /* where the leaf entry lies */
	u64 entry; /* the leaf entry */
	u64 page_bytes; /* 4 KiB, 2 MiB or 1 GiB */
	bool writable; /* at every level */
	bool executable; /* NX clear at every level */
	bool user;
};

/* Stop windows of this vm since it was attached, in ns. */
struct vm_windows {
	u64 count;
	u64 last_ns;
	u64 max_ns;
	u64 total_ns;
	/* of these, what was spent with writing text: vm_write_text() */
	u64 write_max_ns; /* in one window */
	u64 write_max_n; /* pieces, in one window */
	u64 write_total_ns;
};

/* One piece of text to write. */
struct vm_text {
	gva_t addr;
	u32 len; /* 1 .. sizeof(bytes) */
	u8 bytes[16];
};

/*
 * Registers of a vCPU that say where it is; a sample, taken without a stop window. While it runs a nested guest they
 * are that guest's.
 */
struct vm_regs {
	u64 rip, rsp, cr3, cr4, efer, idt_base, gs_base;
	bool user_mode; /* CPL 3 */
	bool halted;
};

/**
 * vm_attach - reach a running guest
 * @target: "libvirt:URI/DOMAIN", "qemu:QMP-SOCKET" or "pid:VMM-PID"
 *
 * Opens the VMM's memory and learns the RAM layout; changes nothing in the guest or the VMM.
 * Return: 0; -EINVAL syntax (target.syntax); -ENOENT (target.no_socket, target.no_process);
 * -EACCES (target.permission); -ENODEV (target.not_a_vmm); -ENOTSUP (target.tcg_needs_qmp);
 * -EBUSY (target.gdbstub_busy); -ETIMEDOUT (vmm.timeout); -EPROTO (vmm.protocol). libvirt: also
 * -ENOTSUP (target.no_libvirt); -ENOTCONN (libvirt.unreachable); -ENOENT (target.no_domain); -EBUSY
 * (target.not_running).
 */
must_check int vm_attach(const char *target, struct vm **vm_ret, struct err *err);

/**
 * vm_claim - be the one on this host who may change the guest: /proc/PID/mem is locked (flock(2))
 *
 * Undo: vm_detach(), or the caller's end. Return: 0; -EBUSY (guest.already_attached).
 */
must_check int vm_claim(struct vm *vm, struct err *err);

/** vm_detach - let go of the guest, which runs on; NULL is fine. Ends an open stop window first. */
void vm_detach(struct vm *vm);

const char *vm_target(const struct vm *vm);
pid_t vm_pid(const struct vm *vm); /* the VMM's process */
u64 vm_pid_start_time(const struct vm *vm); /* /proc/PID/stat field 22; with the pid, an identity */
enum vm_accel vm_accel(const struct vm *vm);

/** vm_console - the guest's console (console.h); NULL: its VMM offers none. Context: any thread, until vm_detach(). */
struct vm_console *vm_console(const struct vm *vm);

u32 vm_vcpu_count(const struct vm *vm); /* 0 when not known */

/**
 * vm_alive - does the VMM's process still exist? If not, memory of its guest that we hold is let go of
 *
 * Context: any thread, at any time; nobody is asked. To free a large guest may take the first to find out seconds.
 */
bool vm_alive(const struct vm *vm);

/** vm_state - what the guest does now; asks the VMM, or /proc for pid: targets */
enum vm_state vm_state(struct vm *vm);

enum vm_leaving {
	VM_STAYS,
	VM_LEAVES,
	VM_LEAVING_UNKNOWN, /* the VMM did not answer in time; what keeps its monitor may be just that */
};

/**
 * vm_leaves - is the guest's memory being copied away (a migration, a snapshot of the running guest)?
 *
 * What we write then may miss the copy. Asks the VMM; VM_STAYS where it cannot be asked: a pid: target, a domain
 * whose libvirtd is away, without which it is not migrated either, or a QEMU whose monitor is no more: nobody, or
 * somebody else, listens where it did. Context: no window open.
 */
enum vm_leaving vm_leaves(struct vm *vm);

/** vm_tells_leaving - was that the VMM's own answer, the last time? Context: after vm_leaves(), by the same thread. */
bool vm_tells_leaving(const struct vm *vm);

/**
 * vm_silent - did the VMM's monitor not answer in time when it was asked last, nor has since? Or is there none any more?
 *
 * A guest under KVM may still be traced and let go then. Nothing is asked, but what it owes is looked for, and a
 * monitor that was lost. Context: any thread; takes milliseconds at most.
 */
bool vm_silent(const struct vm *vm);

/** vm_end - of a VMM that has ended: does the guest run on elsewhere? Waits a moment for whoever knows. */
enum vm_end vm_end(struct vm *vm);

/**
 * vm_more_ram - ask the VMM again which RAM there is; by itself this is done for an address outside of what is known
 *
 * At most once a second. Views go on. Context: no window open. Return: true: it is other RAM than before.
 */
bool vm_more_ram(struct vm *vm);

/**
 * vm_check_ram - is the RAM that we know still memory of the VMM? If not, as vm_more_ram()
 *
 * The host address of what was plugged out may be anything of the VMM's by now, and must not be taken for the guest's.
 * Looks at /proc/PID/maps, at most once a second. Context: no window open.
 */
void vm_check_ram(struct vm *vm);

/** vm_ram_guessed - was it worked out where RAM lies, since the VMM cannot be asked (pid:)? */
bool vm_ram_guessed(const struct vm *vm);

/** vm_ram_count - runs of RAM, with holes between them */
size_t vm_ram_count(const struct vm *vm);
/** vm_ram - run @i, below vm_ram_count() */
const struct vm_ram *vm_ram(const struct vm *vm, size_t i);

/**
 * vm_spare - memory above RAM that the VMM has lent us; the guest's firmware tables do not name it
 *
 * By guest physical address; vm_read_phys() and the rest reach it. Return: false while none is lent.
 */
bool vm_spare(const struct vm *vm, struct vm_ram *ret);

/** vm_spare_offered - does the VMM have such memory, lent or not? Where it would be is in @ret. */
bool vm_spare_offered(const struct vm *vm, gpa_t *ret);

/**
 * vm_spare_borrow - have it lent: the guest sees it from now on, all zeros
 *
 * Whoever lent it before us and died may have left something there. Context: no window open. Return: 0, also
 * when it is lent already; -ENOENT the VMM has none, or is stopped; -ETIMEDOUT (vmm.timeout); -EACCES; -ESRCH.
 * Undo: vm_spare_return().
 */
must_check int vm_spare_borrow(struct vm *vm, struct err *err);

/**
 * vm_spare_return - the guest sees it no more, and its bytes are gone
 *
 * Context: no window open; no entry of the guest's page tables, and no view, leads there. What its CPUs may have
 * kept of such an entry goes with the VM's slot. Return: 0, also when it is not lent; -ETIMEDOUT (vmm.timeout),
 * it may still be lent; -EACCES; -ESRCH.
 */
must_check int vm_spare_return(struct vm *vm, struct err *err);

/**
 * vm_next_frame - the first multiple of @step_bytes at or after @from where the host has allocated a page
 *
 * Swapped out or not. One small look a frame, and over holes of a shared backend one at all. Return: false when there
 * is no more.
 */
bool vm_next_frame(struct vm *vm, gpa_t from, u64 step_bytes, gpa_t *ret);

/**
 * vm_next_resident - the next run of RAM at or after @from that the host has allocated and not swapped out
 * @start_ret, @len_ret: the run, within one region of RAM; about 1 GiB at most, what follows may be one, too
 *
 * Searching RAM with this and vm_read_phys() does not allocate a sparse guest's memory (SEEK_DATA on
 * shared backends, of which nothing says what is swapped out, and a run may have holes below 2 MiB, which are read
 * as zeros; /proc/PID/pagemap on the others). Return: false when there is no more.
 */
bool vm_next_resident(struct vm *vm, gpa_t from, gpa_t *start_ret, u64 *len_ret);

/**
 * vm_read_phys / vm_write_phys - guest RAM by guest physical address
 *
 * Context: vCPUs may run. vm_write_phys() is for data, never for instructions.
 * Return: 0; -EFAULT outside RAM (guest.bad_memory); -ESRCH the VMM is gone (vmm.gone).
 */
must_check int vm_read_phys(struct vm *vm, gpa_t addr, void *buf, size_t len, struct err *err);
must_check int vm_write_phys(struct vm *vm, gpa_t addr, const void *buf, size_t len,
			     struct err *err);

/**
 * vm_set_root - the page table by which vm_walk(), vm_read() and the rest see the guest
 * @root:   guest physical address of the kernel's own top-level table (swapper_pg_dir)
 * @levels: 4 or 5
 */
void vm_set_root(struct vm *vm, gpa_t root, int levels);

/** vm_walk - translate; -EFAULT not mapped or the tables point outside RAM. vCPUs may run. */
must_check int vm_walk(struct vm *vm, gva_t addr, struct vm_mapping *ret, struct err *err);

/** vm_read - by guest virtual address through the root set; -EFAULT as vm_walk() */
must_check int vm_read(struct vm *vm, gva_t addr, void *buf, size_t len, struct err *err);

/** vm_write_data - as vm_read(), for data only, ignores the guest's write protection */
must_check int vm_write_data(struct vm *vm, gva_t addr, const void *buf, size_t len,
			     struct err *err);

/**
 * vm_set_window_limit - for how long windows should be at most, by whoever asks for them; 10 ms when never called
 *
 * So a try to stop vCPUs is given up after twice that, at least 20 ms. Context: no window open.
 */
void vm_set_window_limit(struct vm *vm, u64 limit_ns);

/**
 * vm_pause - stop every vCPU (our stop_machine); vm_resume - let them go on
 * @patience_ns: for how long it is tried
 *
 * KVM: ptrace-interrupts the vCPU threads; if we die the kernel lets them go. While one of them is in state D none is
 * held. Where one does not stop, all go on after a short try, for ten times as long as they were held, before the
 * next; tries after one that was used up are longer, up to 0.3 s. TCG: QEMU's gdbstub, held by a child that lets the
 * guest go on if we die. The calling thread goes first on its CPU until vm_resume(), where it may (RLIMIT_NICE).
 * Return: 0, all vCPUs are out; -ETIMEDOUT (vmm.pause_timeout), none left stopped; -ESRCH (vmm.gone); -EBUSY
 * (guest.stopped): the guest was not running, it stays as it was.
 */
must_check int vm_pause(struct vm *vm, u64 patience_ns, struct err *err);
must_check int vm_resume(struct vm *vm, struct err *err);

/**
 * vm_hold - as vm_pause(), in one try, and vm_pause() and vm_resume() leave it at that until vm_release()
 * @timeout_ns: of that try, for which some vCPUs may be held in vain
 *
 * For what takes more than one window while nothing in the guest may go on: tracing from boot. If we die,
 * the guest runs on. Not counted as a stop window. Return: as vm_pause(); vm_release(): as vm_resume().
 */
must_check int vm_hold(struct vm *vm, u64 timeout_ns, struct err *err);
int vm_release(struct vm *vm, struct err *err);
bool vm_held(const struct vm *vm);

/**
 * vm_start - let a VMM go that waits, stopped, before its guest's first instruction
 *
 * Waits up to @timeout_ns for it to be there. Return: 0; -EBUSY it does not wait (conflict); -EACCES; -ESRCH.
 */
must_check int vm_start(struct vm *vm, u64 timeout_ns, struct err *err);

/**
 * vm_break - let a guest that is held run on, up to an instruction
 * @addr: kernel text; no vCPU has executed it when vm_break_wait() returns 0
 *
 * By a breakpoint of the VMM's own, which hvftrace-vmm alone has: no byte of the guest is changed. Not one instruction
 * is executed between the hold and the breakpoint's being set. It goes when it is hit, and by itself after minutes.
 *
 * Context: vm_hold(), which ends, also on failure: the guest runs then. Return: 0; -ENOTSUP the VMM cannot;
 * -EBUSY the guest, or somebody else, uses the debug registers; -ETIMEDOUT (vmm.timeout); -ESRCH; -EACCES.
 * Undo: vm_unbreak().
 */
must_check int vm_break(struct vm *vm, gva_t addr, struct err *err);

/**
 * vm_break_wait - until a vCPU is there: then the guest is held, as by vm_hold()
 *
 * If we die in between, the VMM lets the guest run on after seconds. Context: after vm_break(). Return: 0, the
 * breakpoint is gone; -ETIMEDOUT not yet, call it again; -ECANCELED it is not set any more (the guest began to use the
 * debug registers, or was reset, or we were too slow); -ESRCH; what vm_hold() returns, the breakpoint is gone.
 */
must_check int vm_break_wait(struct vm *vm, u64 timeout_ns, struct err *err);

/** vm_unbreak - it is not wanted any more; fine when there is none. Context: no window open. */
void vm_unbreak(struct vm *vm);

/**
 * vm_write_text - change instructions so that the guest executes the new ones
 * @text, @n: the pieces, written in order
 *
 * Context: between vm_pause() and vm_resume() only. Under TCG it goes through the gdbstub by
 * physical address, which drops the translated code. Does not look at what was there before.
 * Return: 0; -EINVAL no window is open; -EFAULT not mapped; -EPERM the write failed.
 */
must_check int vm_write_text(struct vm *vm, const struct vm_text *text, size_t n, struct err *err);

/** vm_windows - how many stop windows there were and how long. Context: as the other functions. */
void vm_windows(const struct vm *vm, struct vm_windows *ret);

/**
 * vm_vcpu_regs - a sample of one vCPU's registers
 *
 * Context: no window open. Return: 0; -ENOTSUP this VMM has no way (pid: targets); -ENOENT no such
 * vCPU; -EPROTO.
 */
must_check int vm_vcpu_regs(struct vm *vm, u32 vcpu, struct vm_regs *ret, struct err *err);

/**
 * vm_progress - an opaque note of how far every vCPU thread has run
 * vm_progressed - have all run at least @ns on a host CPU since, or slept (halted) in between?
 *
 * With it a caller proves that no vCPU still sits where it was. From /proc/PID/task/TID/schedstat. A VMM of ours tells
 * when it keeps its vCPUs out of the guest itself: asleep then they have not halted, and @since begins anew after that.
 */
struct vm_progress {
	u32 n;
	u32 vcpus_per_thread; /* QEMU may run all vCPUs in one, taking turns */
	u64 at_ns; /* CLOCK_MONOTONIC */
	u32 pauses; /* of the VMM's own; as struct debug_page has them */
	struct vm_run {
		pid_t tid;
		u64 run_ns;
	} * vcpu; /* or any thread of a VMM whose vCPUs cannot be told apart, of which there may be thousands */
};
must_check int vm_progress(struct vm *vm, struct vm_progress *ret, struct err *err);
bool vm_progressed(struct vm *vm, struct vm_progress *since, u64 ns);
void vm_progress_deinit(struct vm_progress *p); /* also of one that is all zeros */

/**
 * vm_view_create - a range of guest virtual memory translated once, for reading rings quickly
 *
 * For memory whose translation does not change (the agent's own). Uses a mapping of the RAM backend
 * where it is shared, process_vm_readv(2) else. Return: 0; -EFAULT; -ENOMEM.
 */
must_check int vm_view_create(struct vm *vm, gva_t addr, u64 len_bytes, struct vm_view **ret,
			      struct err *err);
void vm_view_destroy(struct vm_view *view);
/* -EFAULT: not in the view, or no memory is there any more; -ESRCH the VMM is gone. 8-byte aligned words are read whole. */
must_check int vm_view_read(struct vm_view *view, u64 off, void *buf, size_t len);
must_check int vm_view_write(struct vm_view *view, u64 off, const void *buf, size_t len);

#endif
