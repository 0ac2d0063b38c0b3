/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An attached guest: vm + kernel + call-site records + agent + journal under one lock. What the
 * tracers and the API work with. Undo of everything here is guest_detach().
 */
#ifndef PATCHER_GUEST_H
#define PATCHER_GUEST_H

#include "base/err.h"
#include "base/types.h"
#include "symbols/kernel.h"
#include "vmm/vm.h"

struct guest;
struct vm_console;

struct guest_opts {
	const char *state_dir; /* where the journal lives */
	u64 window_limit_ns; /* longest stop window wanted; 0 for 10 ms */
	u32 ring_bytes; /* per vCPU; 0 for 4 MiB; rounded down to a power of two of records */
	/*
	 * Not 0: the guest has not begun (hvftrace-vmm --wait). Start it, and hold it before its first
	 * initcall; so long that may take. guest_release() lets it go.
	 */
	u64 boot_ns;
};

/* How an attach or a detach went; times in ns. */
struct guest_info {
	char target[128];
	char release[80];
	char banner[256];
	char build_id[48];
	const char *accel; /* "kvm" or "tcg" */
	const char *
		state; /* "running", "stopped", "held", "gone"; "unknown": the VMM does not answer */
	const char
		*console; /* "none", "read": is only shown, or "write": takes what is typed, too */
	pid_t vmm_pid;
	u32 vcpus;
	u64 ram_bytes;
	u64 kaslr_offset;
	int paging_levels;
	size_t n_symbols, n_functions, n_traceable, n_in_use, n_modules;
	size_t n_armed; /* sites that call the agent now */
	u64 find_ns; /* symbols, types and sites */
	u64 lend_ns; /* borrowing memory from the guest, 0 before the first trace */
	bool agent_loaded;
	u64 agent_text, agent_data, agent_bytes;
	struct vm_windows windows;
	u64 window_limit_ns;
};

struct guest_restore {
	u64 sites_restored; /* armed sites put back by the last disarm or detach */
	u64 sites_changed; /* not put back since the guest itself changed them meanwhile */
	u64 returns_restored; /* hijacked return addresses put back on the guest's stacks */
	u64 returns_left; /* not yet: passive, the agent's memory stays for them */
	bool memory_freed; /* the agent's memory was given back to the guest */
	bool verified; /* every recorded site, the gate and the mailbox read back as before */
};

/**
 * guest_attach - reach a guest and find everything out; changes nothing in it
 *
 * With @opts->boot_ns it starts the guest and holds it, errors of boot_hold().
 * A journal that an earlier daemon left for this guest is replayed first (everything given back).
 * Return: 0 or what vm_attach(), kernel_locate(), kernel_load() and guest_check_stays() return; -EBUSY
 * (guest.already_attached, also when another daemon holds the journal).
 */
must_check int guest_attach(const char *target, const struct guest_opts *opts, struct guest **ret,
			    struct err *err);

/**
 * guest_detach - disarm, give memory back, close; the guest runs on
 *
 * Always frees @g. Return: 0; an error when something could not be put back, which stays in the
 * journal for the next start.
 */
int guest_detach(struct guest *g, struct guest_restore *ret, struct err *err);

/** guest_release - let a guest go that guest_attach() holds, or do nothing. Context: any thread. */
must_check int guest_release(struct guest *g, struct err *err);

/**
 * guest_is_gone - has its VMM ended? guest_is_held - does guest_attach() hold it? guest_is_silent - did its VMM's
 * monitor not answer in time when it was asked last?
 *
 * For looking at many guests now and then: none asks the VMM, nor waits for who has the guest lock; a guest
 * whose lock is taken counts as not held. Context: any thread.
 */
bool guest_is_gone(const struct guest *g);
bool guest_is_held(struct guest *g);
bool guest_is_silent(const struct guest *g);

/** guest_info - a snapshot. Context: any thread; takes the guest lock, asks the VMM for the state. */
void guest_info(struct guest *g, struct guest_info *ret);
/**
 * guest_glance - a snapshot, of one among many: as guest_info(), but waits for nobody who has the guest lock
 *
 * Then it is as it was seen last. A VMM that is known to be silent is not asked, and the state is "unknown"; one
 * that has just begun to hang is waited for once. Context: any thread.
 */
void guest_glance(struct guest *g, struct guest_info *ret);
/**
 * guest_console - the guest's console (vmm/console.h), which knows when the guest was let go
 *
 * Context: any thread; waits for nobody. Return: 0, a reference; -ENOENT (console.not_offered).
 */
must_check int guest_console(const struct guest *g, struct vm_console **ret, struct err *err);

pid_t guest_vmm_pid(const struct guest *g); /* never another one. Context: any thread */

/**
 * guest_recover - at daemon start: give back what a daemon that died had changed
 * @state_dir: every journal in it whose VMM still runs is replayed, several at a time; others are removed
 * @n_ret:     guests put back
 */
must_check int guest_recover(const char *state_dir, u32 *n_ret, struct err *err);

/** guest_any_saved - is there a guest that was saved while it was traced, which guest_recover() looks for? */
bool guest_any_saved(const char *state_dir);

/**
 * guest_check_alive - does the kernel that we attached to still run?
 *
 * And is its memory what we made of it? When not, all that we had in it is forgotten: agent, armed sites,
 * journal; nothing of that exists any more, or it is of an earlier time (remains.h).
 * Context: guest lock held. Return: 0; -ESTALE (guest.rebooted, guest.restored); -ESRCH (vmm.gone).
 */
must_check int guest_check_alive(struct guest *g, struct err *err);

/** guest_note_restored - a proof was found that the guest's memory was put back to an earlier time. Context:
 * guest lock held. */
void guest_note_restored(struct guest *g);

/**
 * guest_renew - after a reboot: find the kernel that runs now
 *
 * Everything is found out anew, as at attach; what a restored guest's memory brought of an agent is put back.
 * Whoever took a kernel_ref() keeps the old tables. Context: guest lock held. Return: 0, also when it still is the same kernel; -EAGAIN it boots
 * (guest.in_firmware); -EBUSY a trace has not ended (conflict); what kernel_locate() and kernel_load() return.
 */
must_check int guest_renew(struct guest *g, struct err *err);

/**
 * guest_refresh - modules and call sites as they are now
 * @fresh: also when no module came or went: what the guest itself uses may have changed
 *
 * Indexes of kernel_sites() are others afterwards. Context: guest lock held. Return: 0; what kernel_refresh()
 * returns; -ENOMEM; -ESRCH (vmm.gone).
 */
must_check int guest_refresh(struct guest *g, bool fresh, struct err *err);

/* The parts of an attached guest; valid until guest_detach(). */
struct vm *guest_vm(struct guest *g);
/** guest_kernel - its tables; the guest lock protects them */
struct kernel *guest_kernel(struct guest *g);

/**
 * guest_check_stays - may the guest be changed, or is its memory being copied away, or still to come?
 *
 * Context: guest lock held. Return: 0; -EBUSY (guest.migrating); -ETIMEDOUT the VMM does not say (vmm.timeout).
 */
must_check int guest_check_stays(struct guest *g, struct err *err);

/** guest_mem - the guest's memory as parsers of symbols/ read it; valid until guest_detach() */
void guest_mem(struct guest *g, struct sym_mem *ret);

/**
 * guest_find_task - is there a task with this pid in the guest now?
 * @comm_ret: its name, 17 bytes; @tgid_ret: its process
 *
 * Context: guest lock held. Return: 0; -ESRCH no such task (filter.no_such_pid); -EUCLEAN.
 */
must_check int guest_find_task(struct guest *g, u32 pid, char *comm_ret, u32 *tgid_ret,
			       struct err *err);

/* The lock over kernel tables, records and patching; recursive use is a fault. */
void guest_lock(struct guest *g);
void guest_unlock(struct guest *g);

#endif
