/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rig that runs the agent's own object code in a user process: text is mapped RX, data RW, %gs
 * points to a fake per-CPU area, `current` to a fake task_struct. Sites are generated. One
 * instruction can be singled out and anything made to happen before it, as an interrupt would.
 */
#ifndef TEST_AGENT_LIB_H
#define TEST_AGENT_LIB_H

#include "base/types.h"
#include "guest-agent/agent_abi.h"
#include "tracers/ring.h"

#define RIG_CPUS         4
#define RIG_TASKS        12
#define RIG_SITES        256
#define RIG_PREEMPT_IDLE 0x80000000u /* __preempt_count: 0, no reschedule needed */

/* Offsets as odd as a real kernel's; only what the agent looks at. */
struct fake_task {
	u8 pad0[0x3f2];
	u16 migration_disabled;
	u8 pad1[0x4c8 - 0x3f4];
	u32 pid;
	u32 tgid;
	u8 pad2[0x6b4 - 0x4d0];
	char comm[16];
	u8 pad3[4];
	u64 start_time;
};

struct fake_percpu {
	u8 pad0[0x140];
	struct fake_task *current_task;
	u32 cpu_number;
	u32 preempt_count;
};

struct rig_opts {
	u32 nr_cpus; /* 0: RIG_CPUS */
	u32 slots;
	u32 frames; /* 0: 256 */
	u32 mode;
	s64 gs_bias; /* %gs points this far beyond the area: negative displacements */
	bool graph; /* function_graph, not function */
	bool full; /* the variant with options */
	u32 options, max_depth; /* of the header; with full */
	u64 threshold;
	u32 sites; /* site_slots */
	u32 tasks; /* task_slots */
	bool no_migrate; /* the kernel has no migration_disabled */
	bool thunk; /* return through a thunk */
	bool calls; /* the guest has functions for the agent to call: sites RIG_CALL_* */
};

/* Sites that stand for functions of the guest's which the agent calls; their bodies are the test's. */
enum {
	RIG_CALL_STACK = RIG_SITES - 3,
	RIG_CALL_COPY,
	RIG_CALL_STRNCPY
};

struct rig {
	struct rig_opts opts;
	u8 *map;
	size_t map_bytes, data_bytes, text_bytes;
	u8 *text, *sites, *data;
	const void **body; /* by site: where the function goes on after its call site */
	struct agent_header *hdr;
	struct agent_cpu *cpu;
	struct agent_frame *frames;
	struct fake_percpu percpu[RIG_CPUS];
	struct fake_task task[RIG_TASKS];
};

/* What a ring holds from tail to head: COMM records apart, each with its DATA. */
#define RIG_SEEN     16384
#define RIG_SEEN_MAX 48
struct rig_seen {
	u32 n;
	struct rig_record {
		struct ring_record rec;
		u64 w1;
		u32 n_data;
		u16 kind[RIG_SEEN_MAX];
		u64 data[RIG_SEEN_MAX];
		u64 sizes; /* of its CAPTURE, what is in place of the TSC */
	} v[RIG_SEEN];
};

/* All general registers but rsp, in the order of agent_tramp(), then flags. */
enum {
	R_RAX,
	R_RBX,
	R_RCX,
	R_RDX,
	R_RSI,
	R_RDI,
	R_RBP,
	R_R8,
	R_R9,
	R_R10,
	R_R11,
	R_R12,
	R_R13,
	R_R14,
	R_R15,
	R_FLAGS,
	R_RSP,
	R_COUNT
};

#define FLAG_TF 0x100
#define FLAG_IF 0x200
#define FLAG_DF 0x400

/** rig_open - map, link, make tasks (pid 100 + i, comm "task-i-of-rig"), enable; be CPU 0 */
void rig_open(struct rig *r, const struct rig_opts *opts);
void rig_close(struct rig *r);

/** rig_on - this thread is CPU @cpu from now on, running what was there */
void rig_on(struct rig *r, u32 cpu);

/** rig_run - @task runs on CPU @cpu */
void rig_run(struct rig *r, u32 cpu, u32 task);

/** rig_call - call the traced function @site; its parent is here */
void rig_call(struct rig *r, u32 site);

/** rig_function - the traced function itself, for loops */
void (*rig_function(const struct rig *r, u32 site))(void);

/** rig_body - the traced function @site goes on at @fn; NULL: it returns at once */
void rig_body(struct rig *r, u32 site, void (*fn)(void));
/** rig_tail - the traced function @site ends in a jump to the traced function @to */
void rig_tail(struct rig *r, u32 site, u32 to);

/**
 * rig_check_frames - every frame is in one list, once, or has its slot set; ends the test if not
 *
 * Return: how many have their slot set.
 */
u32 rig_check_frames(const struct rig *r);

/** rig_ip - what a record of a call of @site says */
u64 rig_ip(const struct rig *r, u32 site);

/** rig_ring - slot @slot of the ring of CPU @cpu, three words */
u64 *rig_ring(struct rig *r, u32 cpu, u64 slot);

/** rig_io - the rig's data for a ring_reader */
struct ring_io rig_io(struct rig *r);

/** rig_call_regs - rig_call() with every register set from @in, read back into @out */
void rig_call_regs(struct rig *r, u32 site, const u64 in[R_COUNT], u64 out[R_COUNT]);
/**
 * rig_call_irqs - the same, with interrupts as they would be
 *
 * What the agent pushes with pushfq has IF clear where the caller has interrupts off, @irqs_off, and where the agent
 * has them off itself, by cli.
 */
void rig_call_irqs(struct rig *r, u32 site, const u64 in[R_COUNT], u64 out[R_COUNT], bool irqs_off);
/** rig_regs_parent - the parent in records of rig_call_regs() and rig_step() */
u64 rig_regs_parent(void);

/**
 * rig_step - call @site one instruction at a time
 * @at:       before the agent's instruction number @at, counted from 0, @inject is called; from
 *            there on the agent runs freely
 *            (trampolines and the way back included, under function_graph). RIG_EVERY(n, i):
 *            before instruction i, i + n, i + 2 * n ... instead
 * @irqs_off: what the agent pushes with pushfq has IF clear
 *
 * Return: how many instructions of the agent were stepped over: @at + 1 when @inject was called,
 * the length of the whole path when it was not.
 */
#define RIG_EVERY(n, i) (1u << 31 | (n) << 16 | (i))
unsigned int rig_step(struct rig *r, u32 site, unsigned int at,
		      void (*inject)(struct rig *r, void *arg), void *arg, bool irqs_off);

/** rig_irqs_off - does the agent have interrupts off, by cli? Nobody but an NMI may come then */
bool rig_irqs_off(void);

/** rig_site - the agent's site table says @what of @site from now on */
void rig_site(struct rig *r, u32 site, u32 what);

/** rig_tsc - 0: the real one; else what rdtsc reads under rig_step(), the next one @tick more */
void rig_tsc(u64 tsc, u64 tick);

/** rig_stack - bytes of stack that the last rig_step() had the agent use, call's and ret's included */
u32 rig_stack(void);

/** rig_look - take a ring apart; ends the test when a record is not whole or DATA is nobody's */
void rig_look(struct rig *r, u32 cpu, struct rig_seen *ret);

struct rig_piece {
	u64 key, sizes;
	u32 n_bytes;
	u64 bytes[AGENT_CAPTURE_WORDS];
};

/**
 * rig_pieces - what one call has read of a program's memory, of its entry's record and of records of their own
 * @seen:         the call's records and no others, entry first and return last
 * @counts_first: a step may read much, for which the entry does not wait
 * @ret:          room for as many as @seen has records
 *
 * Return: how many. Ends the test when one is not as the agent writes them.
 */
u32 rig_pieces(const struct rig_seen *seen, bool counts_first, struct rig_piece *ret);

/** rig_words - entries of the agent's task table that are taken */
u32 rig_words(const struct rig *r);

/** rig_books - all CPUs' records of @site, from tail to head */
struct rig_books {
	u32 entries, returns, functions;
};
struct rig_books rig_books(struct rig *r, u32 site);

/** RIG_COUNTER - a u64 of struct agent_cpu, over all CPUs */
u64 rig_sum(const struct rig *r, size_t off);
#define RIG_COUNTER(r, member) rig_sum(r, offsetof(struct agent_cpu, member))

/**
 * rig_depth - call @site under a threshold of 1: how many calls were around it, says its return
 *
 * Return: -1 when it was not recorded.
 */
int rig_depth(struct rig *r, u32 site);

/** rig_reclaim - give @task's frames back, as the host does once it knows that they will not return */
void rig_reclaim(struct rig *r, u32 task);

/**
 * rig_path - the instructions of the agent that a call of @site executes, each once, as offsets in text
 * rig_break - call @site at full speed, with @inject before the first time that instruction @off is executed
 *
 * What rig_step() does for any instruction, for one signal a run.
 */
#define RIG_PATH_MAX 2048
u32 rig_path(struct rig *r, u32 site, u32 off[RIG_PATH_MAX]);
void rig_break(struct rig *r, u32 site, u32 off, void (*inject)(struct rig *r, void *arg),
	       void *arg);

/** rig_decode - check and take apart one slot, written independently of tracers/ring.c */
bool rig_decode(const u64 w[3], u64 index, u32 slots, struct ring_record *ret);

#endif
