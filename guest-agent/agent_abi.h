/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract between the agent in the guest and the host. The one header both sides include, the
 * assembler too. Change it, raise AGENT_ABI_VERSION.
 *
 *   text (RX)                          data (RW + NX)
 *   +--------------------------+       +--------------------------------------+ 0
 *   | ftrace_caller            |       | struct agent_header                  |
 *   |   ftrace_call:       ----+--.    +--------------------------------------+ AGENT_CPU_OFF
 *   |   ftrace_graph_call:     |  |    | struct agent_cpu [nr_cpus]           |
 *   | ftrace_stub              |  |    +--------------------------------------+ header.ring_off
 *   | function_trace_call   <--+--'    | ring of CPU 0: ring_slots * 24 bytes |
 *   +--------------------------+       | ring of CPU 1 ...                    |
 *                                      +--------------------------------------+
 *
 * Text refers to data, to per-CPU variables and to task_struct members through 32-bit fields which
 * the host fills in at injection: struct agent_fixup names each one.
 */
#ifndef GUEST_AGENT_AGENT_ABI_H
#define GUEST_AGENT_AGENT_ABI_H

#define AGENT_MAGIC 0x6563617274667668 /* "hvftrace" */
#define AGENT_ABI_VERSION 1

/* Kinds of struct agent_fixup. The field is 4 bytes at text + off. */
#define AGENT_FIX_DATA 0 /* rel32 to data + addend: data + addend - (text + off + 4 + tail) */
#define AGENT_FIX_GS_CURRENT 1 /* %gs displacement of `current` */
#define AGENT_FIX_GS_CPU 2 /* %gs displacement of the CPU number */
#define AGENT_FIX_GS_PREEMPT 3 /* %gs displacement of __preempt_count */
#define AGENT_FIX_TASK_PID 4 /* offsetof(struct task_struct, pid) */
#define AGENT_FIX_TASK_TGID 5
#define AGENT_FIX_TASK_COMM 6
#define AGENT_FIX_TASK_MIGRATE 7 /* migration_disabled; the host writes an offset of a zero when absent */
#define AGENT_FIX_MAX 8

#define AGENT_RECORD_BYTES 24
#define AGENT_CPU_BYTES 256
#define AGENT_CPU_OFF 4096
#define AGENT_MAX_PIDS 64

/* header.mode */
#define AGENT_MODE_DISCARD 0 /* a full ring refuses new records (counted); what is kept is whole */
#define AGENT_MODE_OVERWRITE 1 /* the newest records win; the reader sees laps and counts them */

/*
 * A record: three little-endian words, each written whole, w2 last.
 *
 *   w0  63..48 lap (index / ring_slots + 1, modulo 65536)   47..0 TSC
 *   w1  63     0    62..32 parent ip bits 30..0    31 0    30..0 ip bits 30..0
 *       (both lie in the top 2 GiB; bit 31 and up are ones)
 *   w2  63..36 check   35..25 context   24..22 type   21..0 pid
 *
 *   check: bits 63..36 of ((w0 ^ rotl(w1, 23) ^ low36(w2)) * AGENT_CHECK_MUL). Ties the words and
 *   the lap together: a writer that was preempted for whole laps cannot damage a newer record unseen.
 *   An empty slot (all zero) is never valid, as laps start at 1.
 *
 * COMM records come in pairs, before the first record of another task (or of the same task under a
 * new comm) on that CPU:
 *   AGENT_REC_COMM_A: w0 47..0 tgid, w1 comm[0..7];  AGENT_REC_COMM_B: w0 47..0 tgid, w1 comm[8..15]
 * An interrupt may put its own records between the two.
 */
#define AGENT_LAP_SHIFT 48
#define AGENT_TSC_MASK 0x0000ffffffffffff
#define AGENT_PID_MASK 0x3fffff
#define AGENT_TYPE_SHIFT 22
#define AGENT_TYPE_MASK 7
#define AGENT_CTX_SHIFT 25
#define AGENT_CTX_MASK 0x7ff
#define AGENT_CHECK_SHIFT 36
#define AGENT_CHECK_ROTATE 23
#define AGENT_CHECK_MUL 0x9e3779b97f4a7c15

/* type */
#define AGENT_REC_FUNCTION 1
#define AGENT_REC_COMM_A 2
#define AGENT_REC_COMM_B 3

/* context, for ftrace's latency columns (kernel/trace/trace_output.c:trace_print_lat_fmt, v6.1) */
#define AGENT_CTX_PREEMPT 0x00f /* preempt depth, 15 means 15 or more */
#define AGENT_CTX_SOFTIRQ 0x010 /* serving a softirq */
#define AGENT_CTX_HARDIRQ 0x020
#define AGENT_CTX_NMI 0x040
#define AGENT_CTX_IRQS_OFF 0x080
#define AGENT_CTX_RESCHED 0x100 /* preempt_need_resched() */
#define AGENT_CTX_BH_OFF 0x200 /* bottom halves disabled, not serving one */
#define AGENT_CTX_MIGRATE 0x400 /* migration disabled */

#ifndef __ASSEMBLER__
typedef unsigned char agent_u8;
typedef unsigned int agent_u32;
typedef unsigned long long agent_u64;

struct agent_fixup {
	agent_u32 off; /* of the 4-byte field, from the start of text */
	agent_u32 kind; /* AGENT_FIX_* */
	agent_u32 addend; /* AGENT_FIX_DATA: offset into data */
	agent_u32 tail; /* AGENT_FIX_DATA: bytes of immediate between the field and the next instruction */
};

/* The host fills it before the first site is armed; members marked H may change later. */
struct agent_header {
	agent_u64 magic;
	agent_u32 abi_version;
	agent_u32 nr_cpus; /* struct agent_cpu and rings there are */
	agent_u32 ring_slots; /* a power of two */
	agent_u32 ring_off; /* of CPU 0's ring, from the start of data */
	agent_u64 text; /* guest virtual address of text; with data, how a later daemon knows its own */
	agent_u64 data;
	agent_u64 session; /* random; the same in the journal */
	agent_u32 enabled; /* H: 0 makes every tracer return at once */
	agent_u32 mode; /* AGENT_MODE_*; change only while not enabled */
	agent_u32 n_pids; /* H: 0 traces every task; else only pids[0..n_pids) */
	agent_u32 pad;
	agent_u32 pids[AGENT_MAX_PIDS];
	agent_u64 lost_nocpu; /* records of CPUs with no ring; agent counts */
};

struct agent_cpu {
	/* written by the guest's CPU (and by tasks that have just migrated away) */
	agent_u64 head; /* next index to reserve; never wraps */
	agent_u64 lost; /* records refused: ring full, or too many collisions */
	agent_u64 last_task; /* whose COMM was written last here */
	agent_u64 last_comm; /* its comm[0..7] */
	agent_u64 pad0[12];
	/* written by the host */
	agent_u64 tail; /* discard mode: every record below was taken */
	agent_u64 pad1[15];
};

_Static_assert(sizeof(struct agent_cpu) == AGENT_CPU_BYTES, "agent_cpu");
_Static_assert(sizeof(struct agent_header) <= AGENT_CPU_OFF, "agent_header");

/* The blob, embedded in the host's library and linked into the harness. */
struct agent_blob {
	const agent_u8 *text;
	agent_u32 text_bytes;
	const struct agent_fixup *fixups;
	agent_u32 n_fixups;
	/* offsets of symbols in text */
	agent_u32 ftrace_caller; /* what call sites call */
	agent_u32 ftrace_call; /* 5-byte call inside it, patched by ftrace_update_ftrace_func() */
	agent_u32 ftrace_graph_call; /* 5-byte nop inside it */
	agent_u32 ftrace_stub; /* what ftrace_call calls when no tracer is active */
	agent_u32 function_trace_call; /* the function tracer */
};

/** agent_blob_get - the agent as built; static storage */
const struct agent_blob *agent_blob_get(void);
#endif

#endif
