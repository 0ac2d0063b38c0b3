/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract between the agent in the guest and the host. The one header both sides include, the
 * assembler too. Change it, raise AGENT_ABI_VERSION.
 *
 *   text (RX)                          data (RW + NX)
 *   +--------------------------+       +--------------------------------------+ 0
 *   | ftrace_caller            |       | struct agent_header                  |
 *   |   ftrace_graph_call:     |       +--------------------------------------+ AGENT_CPU_OFF
 *   |   ftrace_call:       ----+--.    | struct agent_cpu [nr_cpus]           |
 *   | ftrace_stub              |  |    +--------------------------------------+ header.ring_off
 *   | function_trace_call   <--+--'    | ring of CPU 0: ring_slots * 24 bytes |
 *   | ftrace_graph_caller      |       | ring of CPU 1 ...                    |
 *   | return_to_handler        |       +--------------------------------------+ header.frames_off
 *   +--------------------------+       | struct agent_frame [nr_frames]       |
 *   | trampoline of frame 0    |       +--------------------------------------+ header.reclaim_off
 *   | trampoline of frame 1 ...|       | agent_u32 reclaim [nr_frames]        |
 *   +--------------------------+       +--------------------------------------+ header.sites_off
 *                                      | struct agent_site [site_slots]       |
 *                                      +--------------------------------------+ header.tasks_off
 *                                      | struct agent_task [task_slots]       |
 *                                      +--------------------------------------+ header.scratch_off
 *                                      | struct agent_scratch [nr_cpus]       |
 *                                      +--------------------------------------+ header.steps_off
 *                                      | struct agent_user_step [1024]        |
 *                                      +--------------------------------------+ header.followed_off
 *                                      | agent_u64 followed, a bit for each pid |
 *                                      +--------------------------------------+
 *
 * Text refers to data, to per-CPU variables and to task_struct members through fields which the
 * host fills in before it writes text into the guest: struct agent_fixup names each one,
 * agent_link() fills them.
 */
#ifndef GUEST_AGENT_AGENT_ABI_H
#define GUEST_AGENT_AGENT_ABI_H

#define AGENT_MAGIC       0x6563617274667668 /* "hvftrace" */
#define AGENT_ABI_VERSION 10

/*
 * Kinds of struct agent_fixup. The field is 4 bytes at text + off unless said otherwise. V: the
 * caller of agent_link() gives the value; the others follow from struct agent_header.
 */
#define AGENT_FIX_DATA         0 /* rel32: data + addend - (text + off + 4 + tail) */
#define AGENT_FIX_GS_CURRENT   1 /* V %gs displacement of `current` */
#define AGENT_FIX_GS_CPU       2 /* V %gs displacement of the CPU number */
#define AGENT_FIX_GS_PREEMPT   3 /* V %gs displacement of __preempt_count */
#define AGENT_FIX_TASK_PID     4 /* V offsetof(struct task_struct, pid) */
#define AGENT_FIX_TASK_TGID    5 /* V */
#define AGENT_FIX_TASK_COMM    6 /* V */
#define AGENT_FIX_TASK_MIGRATE 7 /* V of migration_disabled; negative where there is none */
#define AGENT_FIX_RETURN       8 /* V where guest functions jump to return; 0: plain ret */
#define AGENT_FIX_RING         9 /* rel32 to data + ring_off */
#define AGENT_FIX_RING_BYTES   10 /* ring_slots * AGENT_RECORD_BYTES */
#define AGENT_FIX_RING_MASK    11 /* ring_slots - 1 */
#define AGENT_FIX_RING_SLOTS   12 /* ring_slots + addend */
#define AGENT_FIX_RING_SHIFT   13 /* log2(ring_slots); the field is 1 byte */
#define AGENT_FIX_NR_CPUS      14
#define AGENT_FIX_TASK_START   15 /* V offsetof(struct task_struct, start_time) */
#define AGENT_FIX_FRAMES       16 /* rel32 to data + frames_off + addend */
#define AGENT_FIX_RECLAIM      17 /* rel32 to data + reclaim_off */
#define AGENT_FIX_FRAME_MASK   18 /* nr_frames - 1 */
#define AGENT_FIX_TRAMP_BYTES  19 /* nr_frames * AGENT_TRAMP_BYTES */
#define AGENT_FIX_CALL_STACK   20 /* V rel32 of a call of stack_trace_save_regs(); 0: none */
#define AGENT_FIX_CALL_COPY    21 /* V of copy_from_user_nofault(); 0: none */
#define AGENT_FIX_CALL_STRNCPY 22 /* V of strncpy_from_user_nofault(); 0: none */
#define AGENT_FIX_MAX          23

#define AGENT_RECORD_BYTES  24
#define AGENT_CPU_BYTES     256
#define AGENT_CPU_OFF       4096
#define AGENT_TEXT_BYTES    24576 /* of code; trampolines follow */
#define AGENT_MAX_PIDS      64
#define AGENT_MAX_CPUS      8192 /* the most that NR_CPUS can be on x86-64 */
#define AGENT_MIN_SLOTS     64
#define AGENT_MAX_SLOTS     0x4000000 /* its bytes are a 32-bit immediate */
#define AGENT_RESERVE_TRIES 8 /* collisions that one reservation survives */
#define AGENT_FRAME_BYTES   64
#define AGENT_TRAMP_BYTES   8
#define AGENT_ORPHAN        1 /* slot of a frame that is free but in no list: for the host to reclaim */
#define AGENT_MIN_FRAMES    64
#define AGENT_MAX_FRAMES    0x100000
#define AGENT_COMM_PERIOD   4096 /* records after which a CPU's task is named again */
#define AGENT_MIN_SITES     64
#define AGENT_MAX_SITES     0x1000000
#define AGENT_TASK_BUCKET   8
#define AGENT_MAX_TASKS     AGENT_MAX_FRAMES

/* header.mode */
#define AGENT_MODE_DISCARD   0 /* a full ring refuses new records, counted */
#define AGENT_MODE_OVERWRITE 1 /* the newest records win; the reader sees laps and counts them */

/*
 * A record: three little-endian words, each written whole, w2 last.
 *
 *   w0  63..48 lap (index / ring_slots + 1, modulo 65536)   47..0 TSC
 *   w1  63..32 low half of the parent ip   31..0 low half of the ip
 *       (all kernel and module text lies in the top 2 GiB: sign-extend)
 *   w2  63..36 check   35..25 context   24..22 type   21..0 pid
 *
 *   check: bits 63..36 of ((w0 ^ rotl(w1, 23) ^ low36(w2)) * AGENT_CHECK_MUL). Ties the words and
 *   the lap together: a writer that was preempted for whole laps cannot damage a newer record
 *   unseen. An empty slot (all zero) is never valid, as laps start at 1.
 *
 * COMM records come in pairs, reserved together so that B's index is A's + 1 (their slots may lie
 * at the ring's two ends). A pair comes before the first record of another task, or of the same
 * task under a new comm, on that CPU, and again every AGENT_COMM_PERIOD records, so that a ring in
 * overwrite mode still names a task which has not been switched for laps. A record whose pair did
 * not fit is written all the same, the pair is tried again with the next one.
 *   AGENT_REC_COMM_A: w0 47..0 tgid, w1 comm[0..7]
 *   AGENT_REC_COMM_B: w0 47..0 tgid, w1 comm[8..15]
 *
 * The TSC is read before the slot is reserved. Hence an interrupt in between puts its own, later
 * records into earlier slots: within one ring times are nearly, not strictly, in order.
 */
/*
 * function_graph writes two records a call. AGENT_REC_GRAPH_ENTRY is laid out as
 * AGENT_REC_FUNCTION. AGENT_REC_GRAPH_RETURN has w1 63..32 duration, 31..0 low half of the ip; its
 * TSC is that of the return. A duration is TSC ticks: below 2^27 as it is, else e << 27 | ticks >> e
 * with the e that makes ticks >> e at least 2^26 and less than 2^27 (agent_duration()). Rounding
 * down keeps the order: a callee's is never longer than its caller's.
 */
#define AGENT_DURATION_BITS 27

/*
 * AGENT_REC_DATA: one more word of the record before it in the ring, reserved together with that:
 * record i has its n DATA at i + 1 .. i + n. w0 47..0 is that record's TSC (but of CAPTURE), pid its pid, w1
 * the word, context AGENT_DATA_* | number. Where not all would fit nothing is written: one lost record.
 *
 * AGENT_REC_SWITCH: a task switch of this CPU, written by the task that runs now, just after it. w1
 * 31..0 pid of the task that ran before; pid is that of the task that runs now.
 */
#define AGENT_DATA_ARG \
	0x000 /* argument word 0..5 as the calling convention passes it; entry, FUNCTION */
#define AGENT_DATA_RETVAL 0x100 /* rax; GRAPH_RETURN */
#define AGENT_DATA_DEPTH \
	0x200 /* calls followed around this one in its task; GRAPH_RETURN under a threshold */
#define AGENT_DATA_NR   0x300 /* orig_ax; entry, FUNCTION of a site with SYSCALL and NR */
#define AGENT_DATA_NR32 0x301 /* the same, of a call of the 32-bit ABI */
#define AGENT_DATA_WHO \
	0x302 /* 63..32 low half of its cgroup's id, 31..0 uid; entry, FUNCTION of a site with SYSCALL */
#define AGENT_DATA_CAPTURE 0x400 /* | program; see struct agent_capture */
#define AGENT_DATA_BYTES   0x600 /* | 0, 1 ... */
#define AGENT_DATA_STACK   0x700 /* | 0, 1 ... ; two callers a word, see AGENT_SITE_STACK */
#define AGENT_DATA_KIND    0x700
#define AGENT_DATA_NUMBER  0x0ff

/* header.options. What AGENT_OPT_TASKS keeps costs an entry a look-up: none of it while no option needs it. */
#define AGENT_OPT_FULL \
	0x1 /* entries go through graph_full_caller: any of these, a threshold, a site word */
#define AGENT_OPT_TASKS \
	0x2 /* keep struct agent_task: for roots, notrace, max_depth, threshold's depth */
#define AGENT_OPT_ROOTS   0x4 /* follow only functions with AGENT_SITE_ROOT and what they call */
#define AGENT_OPT_NO_IRQS 0x8 /* do not follow what hard interrupts call */
#define AGENT_OPT_SWITCHES \
	0x10 /* some site has AGENT_SITE_SWITCH: sites are looked up before pids are */
#define AGENT_OPT_STACKS 0x20 /* some site has AGENT_SITE_STACK; with graph and TASKS */
#define AGENT_OPT_FOLLOW 0x40 /* tasks by header.followed_off, and what they fork; not by pids */
#define AGENT_OPT_WHO    0x80 /* entries of system calls have a DATA_WHO */
#define AGENT_OPT_UIDS   0x100 /* only tasks with header.uid */

/* agent_site.what */
#define AGENT_SITE_ROOT    0x001 /* -g: with AGENT_OPT_ROOTS, it and what it calls is followed */
#define AGENT_SITE_NOTRACE 0x002 /* graph-notrace: neither it nor what it calls is recorded */
#define AGENT_SITE_SWITCH  0x004 /* finish_task_switch: writes AGENT_REC_SWITCH */
#define AGENT_SITE_HIDDEN  0x008 /* armed for SWITCH alone: not recorded as a call */
#define AGENT_SITE_RETVAL  0x010 /* its GRAPH_RETURN has a DATA_RETVAL */
#define AGENT_SITE_SYSCALL \
	0x020 /* its argument is struct pt_regs *: DATA_ARG are the call's arguments */
#define AGENT_SITE_SYSCALL32 0x040 /* with SYSCALL: the registers of a 32-bit call */
#define AGENT_SITE_NR        0x080 /* with SYSCALL: DATA_NR behind the arguments */
#define AGENT_SITE_ARGS_SHIFT \
	8 /* argument words that its entry is followed by, 0 .. AGENT_MAX_ARGS */
#define AGENT_SITE_ARGS_MASK 7
#define AGENT_MAX_ARGS       6
/*
 * Its record is followed by its callers, as the guest's own unwinder finds them: entry, FUNCTION, under a
 * threshold GRAPH_RETURN. Low halves of return addresses as DATA_STACK, the nearest first: 31..0, then 63..32,
 * which may be 0 in the last word. Where an address is met that leads nowhere, as of a return that the guest
 * itself keeps elsewhere, they end.
 */
#define AGENT_SITE_STACK 0x800
#define AGENT_MAX_STACK  64 /* callers */
#define AGENT_SITE_CAPTURE_SHIFT \
	16 /* number + 1 of its program in header.captures; 0: none. It is recorded by that alone */
#define AGENT_SITE_CAPTURE_MASK 0x1f
#define AGENT_SITE_FORK         0x4000 /* wake_up_new_task(): with FOLLOW, its task is followed as well */
#define AGENT_SITE_EXIT         0x8000 /* release_task(): is followed no more */
#define AGENT_SITE_USER_SHIFT \
	21 /* number + 1 of its first step, see agent_user.h; 0: none. With SYSCALL */
#define AGENT_SITE_USER_MASK 0x7ff
#define AGENT_SITE_PROBES    32 /* slots looked at from agent_site_slot() on, circular */

/* agent_capture.flags */
#define AGENT_CAPTURE_RETURN 0x1 /* base is what the function returns */
#define AGENT_CAPTURE_STRING 0x2 /* ends before its first NUL */
#define AGENT_CAPTURE_NONE   0xff /* base, len or key: there is none */
#define AGENT_CAPTURE_MAX    256 /* bytes */
#define AGENT_STRING_MAX     4096 /* of a string, in pieces of AGENT_CAPTURE_MAX */
#define AGENT_CAPTURE_WORDS  (AGENT_CAPTURE_MAX / 8)
#define AGENT_MAX_CAPTURES   16
/* DATA of a system call's entry: arguments, NR, WHO, and a piece of its memory. No record has more that matter */
#define AGENT_MAX_CALL_DATA       (AGENT_MAX_ARGS + 3 + AGENT_CAPTURE_WORDS)
#define AGENT_CAPTURE_UNKNOWN     0xffffffff
#define AGENT_CAPTURE_THERE_SHIFT 16

#define AGENT_LAP_SHIFT    48
#define AGENT_TSC_MASK     0x0000ffffffffffff
#define AGENT_PID_MASK     0x3fffff
#define AGENT_TYPE_SHIFT   22
#define AGENT_TYPE_MASK    7
#define AGENT_CTX_SHIFT    25
#define AGENT_CTX_MASK     0x7ff
#define AGENT_CHECK_SHIFT  36
#define AGENT_CHECK_ROTATE 23
#define AGENT_CHECK_MUL    0x9e3779b97f4a7c15

/* type */
#define AGENT_REC_FUNCTION     1
#define AGENT_REC_COMM_A       2
#define AGENT_REC_COMM_B       3
#define AGENT_REC_GRAPH_ENTRY  4
#define AGENT_REC_GRAPH_RETURN 5
#define AGENT_REC_DATA         6
#define AGENT_REC_SWITCH       7

/* context, for ftrace's latency columns (kernel/trace/trace_output.c:trace_print_lat_fmt, v6.1) */
#define AGENT_CTX_PREEMPT  0x00f /* preempt depth, 15 means 15 or more */
#define AGENT_CTX_SOFTIRQ  0x010 /* serving a softirq */
#define AGENT_CTX_HARDIRQ  0x020
#define AGENT_CTX_NMI      0x040
#define AGENT_CTX_IRQS_OFF 0x080
#define AGENT_CTX_RESCHED  0x100 /* preempt_need_resched() */
#define AGENT_CTX_BH_OFF   0x200 /* softirq_count() >> (SOFTIRQ_SHIFT + 1) is not 0 */
#define AGENT_CTX_MIGRATE  0x400 /* migration disabled */

#ifndef __ASSEMBLER__
typedef unsigned char agent_u8;
typedef unsigned short agent_u16;
typedef short agent_s16;
typedef unsigned int agent_u32;
typedef int agent_s32;
typedef unsigned long long agent_u64;
typedef long long agent_s64;

#include "guest-agent/agent_user.h"

struct agent_fixup {
	agent_u32 off; /* of the field, from the start of text */
	agent_u32 kind; /* AGENT_FIX_* */
	agent_u32 addend; /* added to the value; AGENT_FIX_DATA: offset into data */
	agent_u32 tail; /* bytes of immediate between the field and the next instruction */
};

/*
 * What is copied at a site with AGENT_SITE_CAPTURE, out of the kernel's own memory: an object that the
 * function was just given or is about to return, hence mapped and nobody else's. Where the pointer is
 * not one into the kernel's half, as an error or NULL is not, nothing is recorded. A guest whose
 * kernel passes anything else there faults, as it would a moment later by itself.
 *
 * The record is a FUNCTION without a parent and a context, written when the function returns under RETURN, with
 * these DATA:
 *   CAPTURE | program   what tells which of a call's arguments it is; 0 without that. In w0, in place of the
 *                       TSC: 47..16 bytes there are, or AGENT_CAPTURE_UNKNOWN; 15..0 bytes that follow
 *   BYTES | 0, 1 ...    8 bytes each, the last filled up with 0
 *
 * A string that is longer than AGENT_CAPTURE_MAX is several records, one behind the other: all but the last
 * have so many bytes, and UNKNOWN of what there is.
 */
struct agent_capture {
	agent_u16 flags; /* AGENT_CAPTURE_* */
	agent_u16 max_bytes; /* at most AGENT_CAPTURE_MAX; of a string AGENT_STRING_MAX */
	agent_u8 base; /* argument word; not used under RETURN */
	agent_u8 len; /* argument word that has the length, its low half; or NONE */
	agent_u8 key; /* argument word that is the key; or NONE. Under RETURN its low half alone */
	agent_u8 pad;
	/* offsets from base; negative: none */
	agent_s32 ptr_at; /* of the pointer to the bytes; else they are at base itself */
	agent_s32 len_at; /* of a 32-bit length */
	agent_s32 key_at; /* of the key, 8 bytes */
};

/*
 * The gate to the guest's own functions: header.calls says which can be called, full_call.h does it.
 *
 * A called function may itself be traced, and so may what interrupts it. Hence: interrupts are off from
 * before agent_cpu.busy names the task until after it is 0 again, so that neither is preempted or migrates;
 * any entry that finds its own task there does nothing at all, which is counted (skipped); and NMIs,
 * which may come at any time, do not call. Nobody but the call's own task can be misled: a word that a
 * task left which died inside is another's, and the next call on that CPU replaces it.
 *
 * For the host a task in the gate is one inside of the agent: its way back leads through the agent's
 * text. As it may be on a stack that the host does not look at, nothing is free before busy was seen 0
 * on each CPU, or its task off it.
 *
 * Calls are direct, in the text: the target's endbr64 may have been sealed (v6.1
 * arch/x86/kernel/alternative.c apply_ibt_endbr()).
 */
#define AGENT_CALL_STACK    0x1
#define AGENT_CALL_COPY     0x2
#define AGENT_CALL_STRNCPY  0x4
#define AGENT_SCRATCH_REGS  512
#define AGENT_SCRATCH_WORDS 128
#define AGENT_STACK_REGS    4

/* Registers in struct pt_regs that agent_header.syscall_regs tells of, AGENT_MAX_ARGS and orig_ax. */
#define AGENT_SYSCALL_REGS 7

/* The host fills it before the first site is armed; members marked H may change later. */
struct agent_header {
	agent_u64 magic;
	agent_u32 abi_version;
	agent_u32 nr_cpus; /* struct agent_cpu and rings there are */
	agent_u32 ring_slots; /* a power of two */
	agent_u32 ring_off; /* of CPU 0's ring, from the start of data */
	agent_u64 text; /* guest virtual; with data, how a later daemon knows its own */
	agent_u64 data;
	agent_u64 session; /* random; the same in the journal */
	agent_u32 enabled; /* H: 0 makes every tracer return at once */
	agent_u32 mode; /* AGENT_MODE_*; change only while not enabled */
	agent_u32 n_pids; /* H: 0 traces every task; else only pids[0..n_pids) */
	agent_u32
		epoch; /* H: another after each change of the armed sites; a snapshot has an older one */
	agent_u32 pids[AGENT_MAX_PIDS];
	agent_u64 lost_nocpu; /* records of CPUs with no ring; agent counts */
	agent_u32 nr_frames; /* a power of two */
	agent_u32 pad1;
	agent_u64 frames_off; /* of struct agent_frame [nr_frames], from the start of data */
	agent_u64 reclaim_off; /* of agent_u32 [nr_frames]: frame numbers + 1 */
	agent_u64 reclaim_head; /* agent: next index to take; never wraps */
	agent_u64 taken; /* sites that the interlock gave to the guest's own tracing; it counts */
	agent_u64 pad2[6];
	agent_u64 reclaim_tail; /* H: next index to fill; head + nr_frames at most */
	/* H, change only while not enabled */
	agent_u32 options; /* AGENT_OPT_* */
	agent_u32
		max_depth; /* graph: calls with this many around them are not followed; 0: all are */
	agent_u64
		threshold; /* graph, TSC ticks: entries are not recorded, returns of calls that took
				as long; 0: all */
	agent_u32 site_slots; /* a power of two, at least AGENT_MIN_SITES; or 0: no table */
	agent_u32 task_slots; /* a power of two, at least AGENT_TASK_BUCKET; or 0: no table */
	agent_u64 sites_off; /* of struct agent_site [site_slots], from the start of data */
	agent_u64 tasks_off; /* of struct agent_task [task_slots] */
	agent_u16 syscall_regs
		[2][AGENT_SYSCALL_REGS]; /* offsets; [1]: of 32-bit calls. With captures: */
	agent_u32 pad3; /* H, change only while not enabled */
	agent_u64 kernel_half; /* lowest address that a capture may be of */
	struct agent_capture captures[AGENT_MAX_CAPTURES];
	agent_u64 scratch_off; /* of struct agent_scratch [nr_cpus], from the start of data */
	agent_u32 calls; /* AGENT_CALL_*: what the guest's kernel has to be called */
	agent_u32
		stack_max; /* H, change only while not enabled: callers that STACK tells, 1 .. AGENT_MAX_STACK */
	agent_u16 stack_regs[AGENT_STACK_REGS]; /* offsets in struct pt_regs: ip, sp, bp, cs */
	agent_u64 steps_off; /* of struct agent_user_step [AGENT_USER_STEPS] */
	agent_u64 followed_off; /* of agent_u64 [AGENT_FOLLOWED_WORDS] */
	struct agent_where where; /* H, change only while not enabled */
	agent_u32 uid; /* H */
	agent_u32 pad4;
};

/*
 * Where arguments and results of guest functions lie: see AGENT_CALL_STACK. Whoever has the gate of a
 * CPU has its scratch.
 */
struct agent_scratch {
	agent_u8 regs
		[AGENT_SCRATCH_REGS]; /* struct pt_regs for the unwinder; what nobody fills in is 0 */
	agent_u64 word[AGENT_SCRATCH_WORDS];
	agent_u32 shown[AGENT_MAX_STACK]; /* frames with AGENT_FRAME_TRUE */
};
#define AGENT_FOLLOWED_WORDS ((AGENT_PID_MASK + 1) / 64)

/*
 * What is asked of one call site: a hash table that the host fills while the agent is off. A site
 * that is not in it has nothing asked of it (AGENT_SITE_* all 0).
 */
struct agent_site {
	agent_u32 ip; /* low half of the call site; 0: empty, ends a search */
	agent_u32 what; /* AGENT_SITE_* */
};

/* The search begins at (low 32 bits of ip * AGENT_SITE_MUL) * site_slots >> 32. */
#define AGENT_SITE_MUL 0x9e3779b1u

/*
 * Where a task is in its calls, while AGENT_OPT_TASKS is on. A bucket of AGENT_TASK_BUCKET entries,
 * one cache line, is chosen by the task_struct's address: AGENT_TASK_MUL as above, of address >> 6, over
 * task_slots / AGENT_TASK_BUCKET buckets.
 *
 * word  63..21 address bits 48..6 of the task_struct (its other bits are the same for every task)
 *       20..0  number + 1 of the frame of the innermost call that it is in; 0 in all: free
 *
 * Everything on one task nests strictly, its interrupts included: an entry turns the word from the
 * outer call's into its own, the return turns it back, the outermost frees the word. So between two
 * instructions nobody else changes it for long, and each change is one cmpxchg. The frame is in use
 * (slot is not 0) before the word names it and as long as it does. Hence a word whose frame is free, or
 * another task's, is stale: the host gave back what its task left behind. It counts for nothing to its
 * own task, should that live, and another one may take it.
 */
struct agent_task {
	agent_u64 word;
};
#define AGENT_TASK_MUL        0x9e3779b1u
#define AGENT_TASK_FRAME_BITS 21

/*
 * A hijacked return address. Who returns is told by where it returns to: each frame has a
 * trampoline of its own, at text + AGENT_TEXT_BYTES + n * AGENT_TRAMP_BYTES, and the guest's stack
 * holds that address in place of the true one. So nothing has to be looked up by task, stack or
 * depth; nesting, stack switches, recycled tasks and tail calls cannot confuse it.
 *
 * Life: free (slot 0, in a list) -> taken by an entry, which fills it, slot last, then writes the
 * trampoline's address into the stack -> used up by the trampoline, which turns slot from its own cell
 * into 0 in one step, and if that worked puts the frame into a list. A frame whose function never returns is
 * given back by the host through the reclaim ring.
 *
 * A tail call finds a trampoline of ours in the cell: ret is then another frame's trampoline, and
 * parent is taken from that frame.
 */
struct agent_frame {
	agent_u64 slot; /* guest virtual address of the stack cell; 0: free */
	agent_u64 ret; /* what stood in the cell */
	agent_u64 owner; /* current at entry */
	agent_u64 start_time; /* owner->start_time: tells one life of a task_struct from the next */
	agent_u64 tsc; /* at entry, all 64 bits */
	agent_u32 ip; /* low half of the call site */
	agent_u32 parent; /* low half of the true return address; AGENT_FRAME_CAPTURE: of the key */
	agent_u32 pid; /* at entry; state is written with it */
	agent_u32 state; /* AGENT_FRAME_*; not 0: it returns through full_graph_return() */
	union {
		agent_u32 next; /* free: frame number + 1 in a free list; 0 ends it */
		agent_u32
			prev; /* AGENT_FRAME_TASK: frame number + 1 of the call around it; 0: none */
	};
	agent_u32
		put_back; /* H: low half of the tsc of the life whose cell got its true address back */
};

/* agent_frame.state. What is said to be inherited goes over to the calls inside. */
#define AGENT_FRAME_TASK      0x001 /* a word of struct agent_task may name it */
#define AGENT_FRAME_QUIET     0x002 /* its return is not recorded */
#define AGENT_FRAME_NOTRACE   0x004 /* inherited: inside a function with AGENT_SITE_NOTRACE */
#define AGENT_FRAME_ROOT      0x008 /* inherited: inside one with AGENT_SITE_ROOT */
#define AGENT_FRAME_IRQ       0x010 /* inherited: which a hard interrupt called */
#define AGENT_FRAME_RETVAL    0x020 /* its GRAPH_RETURN has a DATA_RETVAL */
#define AGENT_FRAME_THRESHOLD 0x040 /* its entry was not recorded, its return may be */
#define AGENT_FRAME_CAPTURE   0x080 /* its return records a capture; the program instead of a depth */
#define AGENT_FRAME_TRUE \
	0x100 /* for the moment its cell has the true address: not for the host to judge */
#define AGENT_FRAME_USER \
	0x200 /* steps are left for its return; where its registers are instead of a depth */
#define AGENT_FRAME_RETRY \
	0x400 /* first of six bits, for steps from the first on: it failed at the entry */
#define AGENT_FRAME_DEPTH_SHIFT 16 /* calls followed around it, 65535 at most */
#define AGENT_FRAME_MAX_DEPTH   0xffffu

struct agent_cpu {
	/* written by the guest's CPU (and by tasks that have just migrated away) */
	agent_u64 head; /* next index to reserve; never wraps */
	agent_u64 lost; /* records refused: ring full, or too many collisions */
	agent_u64 last_comm; /* whose COMM was written last here: comm[0..7] + 2 * comm[8..15] */
	agent_u32 last_pid; /* its pid; ~0 to have it written again */
	agent_u32 pad;
	agent_u64 free_frames; /* 63..32 changes at each use, 31..0 first free frame + 1; 0: none */
	agent_u64 lost_frames; /* calls not followed: no frame, or no agent_task, free. What would
				  have had an entry record has a FUNCTION */
	agent_u64 lost_returns; /* of lost: GRAPH_RETURN records */
	agent_u64 frame_errors; /* returns from another stack address than the entry's (FP_TEST) */
	agent_u64 orphans; /* frames that could not be put into a list: slot is AGENT_ORPHAN */
	agent_u64
		busy; /* task that is in a function of the guest's which the agent called; 0: none */
	agent_u64 skipped; /* calls met meanwhile, which were not even looked at */
	agent_u64
		no_stack; /* records that were to have callers and have none: NMI, or a CPU without a ring */
	agent_u64 pad0[4];
	/* written by the host */
	agent_u64 tail; /* discard mode: every record below was taken */
	agent_u64 pad1[15];
};

_Static_assert(sizeof(struct agent_cpu) == AGENT_CPU_BYTES, "agent_cpu");
_Static_assert(sizeof(struct agent_frame) == AGENT_FRAME_BYTES, "agent_frame");
_Static_assert(AGENT_MAX_FRAMES < 1 << AGENT_TASK_FRAME_BITS, "agent_task");
_Static_assert(AGENT_TASK_BUCKET * sizeof(struct agent_task) == 64, "agent_task");
_Static_assert(sizeof(struct agent_header) <= AGENT_CPU_OFF, "agent_header");
_Static_assert(sizeof(struct agent_capture) == 20, "agent_capture");
_Static_assert(sizeof(struct agent_scratch) % 64 == 0, "agent_scratch");
_Static_assert(AGENT_MAX_STACK <= AGENT_SCRATCH_WORDS, "agent_scratch");
_Static_assert(1 + AGENT_MAX_ARGS + AGENT_MAX_STACK / 2 <= AGENT_MIN_SLOTS,
	       "a stack fits into every ring");
_Static_assert(AGENT_MAX_CAPTURES <= AGENT_SITE_CAPTURE_MASK, "AGENT_SITE_CAPTURE_SHIFT");
_Static_assert(AGENT_MAX_CALL_DATA + 1 <= AGENT_MIN_SLOTS,
	       "a call and a capture fit into every ring");
_Static_assert(AGENT_CAPTURE_MAX < 1 << AGENT_CAPTURE_THERE_SHIFT, "AGENT_DATA_CAPTURE");

/* The blob, embedded in the host's library and linked into the harness. */
struct agent_blob {
	const agent_u8 *text;
	agent_u32 text_bytes; /* AGENT_TEXT_BYTES, without trampolines */
	const struct agent_fixup *fixups;
	agent_u32 n_fixups;
	/* offsets of symbols in text */
	agent_u32 ftrace_caller; /* what call sites call */
	agent_u32 ftrace_call; /* 5-byte jmp inside it, patched by ftrace_update_ftrace_func() */
	agent_u32 ftrace_graph_call; /* 5-byte nop inside it */
	agent_u32 ftrace_stub; /* where ftrace_call jumps when no tracer is active */
	agent_u32 function_trace_call; /* the function tracer */
	agent_u32 ftrace_graph_caller; /* what ftrace_graph_call jumps to for function_graph */
	agent_u32 return_to_handler; /* what every trampoline calls */
	agent_u32 graph_full_caller; /* ftrace_graph_caller for AGENT_OPT_FULL */
	agent_u32 function_full_call; /* function_trace_call for AGENT_OPT_FULL */
	agent_u32 mcount_caller; /* where the body of a static mcount leads */
	agent_u32 mcount_call; /* 5-byte jmp there, to ftrace_stub or mcount_trace_call */
	agent_u32 mcount_trace_call; /* function_trace_call behind a prologue */
	agent_u32 zero;
};

/** agent_blob_get - the agent as built; static storage */
const struct agent_blob *agent_blob_get(void);

/**
 * agent_layout - fill in what follows from the number of CPUs, the size of a ring and the frames
 * @hdr: nr_cpus, ring_slots, nr_frames, site_slots and task_slots are set; magic, abi_version and
 *       the offsets are filled
 *
 * Context: any thread. Return: 0; -EINVAL one of them is out of bounds, or not a power of two.
 */
int agent_layout(struct agent_header *hdr);

/** agent_data_bytes - size of data for a header that agent_layout() accepted; a multiple of 4096 */
agent_u64 agent_data_bytes(const struct agent_header *hdr);

/** agent_text_bytes - size of text with the trampolines; a multiple of 4096 */
agent_u64 agent_text_bytes(const struct agent_header *hdr);

/**
 * agent_init_frames - what @n frames from @first on hold at the start: all free, in one list a CPU
 * @frames: filled
 *
 * Return: nothing; agent_cpu.free_frames of CPU c starts as agent_first_frame(@hdr, c).
 */
void agent_init_frames(const struct agent_header *hdr, agent_u32 first, agent_u32 n,
		       struct agent_frame *frames);
agent_u64 agent_first_frame(const struct agent_header *hdr, agent_u32 cpu);

/** agent_site_slot - where the search for a call site begins, below hdr->site_slots */
agent_u32 agent_site_slot(const struct agent_header *hdr, agent_u32 ip);

/**
 * agent_put_site - add a call site to a table being filled, or OR @what into the site's own entry
 * @table: hdr->site_slots entries, all 0 at first
 *
 * Entries move, so that none is far from its own slot. Return: 0; -EINVAL @ip is 0; -ENOSPC the table
 * is too full for each to be found within AGENT_SITE_PROBES; it is of no use then.
 */
int agent_put_site(const struct agent_header *hdr, struct agent_site *table, agent_u32 ip,
		   agent_u32 what);

/** agent_duration - TSC ticks of the duration in a GRAPH_RETURN record */
agent_u64 agent_duration(agent_u32 coded);

/**
 * agent_link - fill in the fixups of a copy of the agent's text
 * @blob:   what agent_blob_get() gave
 * @hdr:    after agent_layout(), with the guest virtual addresses text and data
 * @values: by AGENT_FIX_*; only the kinds marked V are looked at
 * @text:   agent_text_bytes() bytes that begin with a fresh copy of blob->text; changed. The
 *          trampolines and the rest of the last page are written here.
 *
 * Context: any thread; @text is not in the guest yet.
 * Return: 0; -ERANGE data or the return thunk is out of rel32's reach of text, or a displacement
 * does not fit; -EINVAL the header, a task_struct offset or @text is not what it should be. On
 * failure
 * @text is of no use.
 */
int agent_link(const struct agent_blob *blob, const struct agent_header *hdr,
	       const agent_s64 values[AGENT_FIX_MAX], agent_u8 *text);
#endif

#endif
