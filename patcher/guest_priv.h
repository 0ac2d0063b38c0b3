/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of struct guest, shared by the files of patcher/ only. */
#ifndef PATCHER_GUEST_PRIV_H
#define PATCHER_GUEST_PRIV_H

#include "guest-agent/agent_abi.h"
#include "patcher/guest.h"
#include "patcher/insn_x86.h"
#include "patcher/journal.h"

#include <pthread.h>

struct graph;
struct text_change;

#define GUEST_WINDOW_LIMIT_NS (10 * NSEC_PER_MSEC)
#define GUEST_RING_BYTES      (4u << 20)
#define GUEST_HOLD_NS         NSEC_PER_SEC /* one try, of a guest that boots */
#define GUEST_PAUSE_NS        (10 * NSEC_PER_SEC)

/* The agent as it lies in the guest. */
struct guest_agent {
	bool loaded;
	u64 text, text_bytes;
	u64 data, data_bytes;
	struct agent_header header; /* as we wrote it: the guest's copy is not believed */
	u64 interlock; /* offset in text of the code of interlock.h */
	u32 tracer; /* where ftrace_call jumps now: offset in text */
	struct vm_view *view; /* of data */
	bool graph; /* ftrace_graph_call jumps */
	u32 graph_tracer; /* where: offset in text */
	bool unsettled; /* see tracing_unsettled() */
	bool graph_used; /* it may have, once: returns may lead through the agent */
	struct graph *returns; /* see graph.h */
	bool switches; /* task switches are told: see options.h */
	u64 helper_ip[3]; /* sites of those in helpers.c; 0: not needed */
	u32 helpers_missed; /* see helpers.h */
	bool switch_hidden; /* its site is armed for that alone */
	u32 switch_site;
	u32 switch_what; /* its entry in the site table, and where in data that is */
	u64 switch_off;
};

struct guest {
	pthread_mutex_t lock;
	char target[128];
	char state_dir[256];
	bool noted; /* see left.h */
	u64 window_limit_ns;
	u32 ring_bytes;
	struct vm *vm;
	struct kernel *k;
	struct journal *journal;
	u8 *baseline; /* MCOUNT_INSN_SIZE bytes a site, in the order of kernel_sites() */
	size_t n_baseline;
	u64 *baseline_ip;
	u8 *vmcoreinfo; /* as it was at attach: is it still the same kernel? */
	u64 vmcoreinfo_bytes;
	u64 boot_id;
	struct text_change *hook; /* see interlock.h; NULL: not in */
	struct text_change *armed; /* sites that call the agent now; sorted */
	size_t n_armed;
	double site_ns; /* cost of a site in a window, as measured; sizes the batches */
	double window_ns; /* and of the window itself: of stopping and letting go */
	struct guest_agent agent;
	bool claimed; /* a trace uses the agent */
	bool rewrite; /* what we write is to be written by the guest, too: see rewrite.h */
	u8 *put_back; /* a bit for each page in which a call site was put back since; NULL: none was */
	bool any_put_back; /* it is not known in which */
	bool rebooted; /* it runs another kernel than @k; until guest_renew() */
	bool restored; /* its memory was put back to an earlier time: see remains.h; until guest_renew() */
	u64 find_ns, lend_ns;
	u64 returns_restored; /* by the last agent_unload() */
	pthread_mutex_t seen_lock; /* innermost */
	struct guest_info seen; /* for guest_glance() */
};

void guest_sleep_ns(u64 ns);

/**
 * guest_pause - vm_pause() for as long as a busy host may need: GUEST_PAUSE_NS
 *
 * What is to be given back must not stay in the guest because its VMM had no CPU for a second.
 * Context: guest lock held, no window open; some 11 s at most, as far as the VMM answers. Return: as vm_pause(). Undo: vm_resume().
 */
must_check int guest_pause(struct guest *g, struct err *err);

/**
 * guest_find_kernel - the kernel that runs, into g->k; the page table that its memory is read through is set
 *
 * On failure g->k stays, and the page table is perhaps another's. Return: 0; what kernel_locate() and
 * kernel_load() return; -EAGAIN (guest.firmware) there is none yet.
 */
must_check int guest_find_kernel(struct guest *g, struct err *err);

/**
 * guest_kernel_is_live - does a vCPU run on the page tables of g->k? Looks for up to 200 ms.
 *
 * Return: false when none does and there is proof; true also while all are in nested guests, of which nothing is seen.
 */
bool guest_kernel_is_live(struct guest *g);

/** guest_read - vm_read() under a short name: @addr is a guest virtual address */
must_check int guest_read(struct guest *g, u64 addr, void *buf, size_t len, struct err *err);

/* An unsigned member of a struct of the guest's, as wide as this kernel has it. */
struct guest_member {
	u32 off, bytes;
};

/** guest_member - Return: 0; -ENOENT no such type or member, or wider than 8 bytes */
must_check int guest_member(const struct kernel *k, const char *type, const char *path,
			    struct guest_member *ret);

/** guest_read_member - of the object at @object; what guest_read() returns */
must_check int guest_read_member(struct guest *g, u64 object, const struct guest_member *m,
				 u64 *ret, struct err *err);

/**
 * guest_same_kernel - is the kernel that we attached to still the one that runs?
 *
 * By proof, not by an event: its vmcoreinfo (KASLR offset, build id) and a value that is random at
 * each boot read back unchanged through the page table that we hold.
 */
bool guest_same_kernel(struct guest *g);

/**
 * guest_percpu_gs - %gs displacement of a per-CPU variable
 * @alone:      its name where it is a variable of its own
 * @hot_member: its name in struct pcpu_hot, where it lives on 6.2 to 6.14 (v6.2 commit e57ef2ed97c1)
 */
must_check int guest_percpu_gs(struct guest *g, const char *alone, const char *hot_member,
			       s32 *ret);

#endif
