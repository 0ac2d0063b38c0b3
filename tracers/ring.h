/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading one CPU's ring out of the agent's data. Knows the record format of
 * guest-agent/agent_abi.h and nothing of how memory is reached or what becomes of the records. The
 * guest is hostile: all it can do here is have its own records counted as lost, or the reader say
 * -EUCLEAN.
 *
 * Every index below head ends up in exactly one counter of struct ring_stats:
 *
 *   head - start = functions + entries + returns + switches + comms + data + torn + overwritten
 *                  + (head - pos), the last still to be read
 *   events       = functions + entries + returns + switches + refused + torn and overwritten ones
 *                  that were not COMM or DATA slots: calls, under function_graph their returns
 *
 * A record and its DATA are one event: what is lost of it counts once. A DATA slot without its record
 * counts as data alone (its record counts as torn, overwritten or refused). What cannot be told apart
 * is what was overwritten before it was read, or not written at all: each slot of it counts, DATA too.
 */
#ifndef TRACERS_RING_H
#define TRACERS_RING_H

#include "base/types.h"
#include "guest-agent/agent_abi.h"

/* How long a slot that was reserved may stay unwritten before overwrite mode gives it up. */
#define RING_STALL_NS (200 * NSEC_PER_MSEC)
/* Slots read at once: 24 KiB, which stay in L1 while they are decoded. */
#define RING_CHUNK    1024
#define RING_COMM_LEN 16

/* The agent's data region by offset. vm_view_read() and vm_view_write() do; others for tests. */
struct ring_io {
	int (*read)(void *arg, u64 off, void *buf,
		    size_t len); /* 0 or -errno; 8-byte words whole */
	int (*write)(void *arg, u64 off, const void *buf, size_t len);
	void *arg;
};

enum ring_type {
	RING_FUNCTION = AGENT_REC_FUNCTION,
	RING_COMM = AGENT_REC_COMM_A, /* both halves of a pair: from here on pid is comm, tgid */
	RING_GRAPH_ENTRY = AGENT_REC_GRAPH_ENTRY,
	RING_GRAPH_RETURN = AGENT_REC_GRAPH_RETURN,
	RING_SWITCH = AGENT_REC_SWITCH,
};

/* What one capture copied (struct agent_capture). */
struct ring_capture {
	struct ring_capture *next; /* of those that are free */
	u8 program;
	bool stack; /* not a capture: the words of AGENT_DATA_STACK */
	bool cut; /* the guest said that there are more bytes here */
	u8 n_words;
	u32 there; /* bytes in the guest; AGENT_CAPTURE_UNKNOWN */
	u32 n; /* bytes here */
	u64 key;
	union {
		u64 words[AGENT_CAPTURE_WORDS];
		u8 bytes[AGENT_CAPTURE_MAX];
	};
};

struct ring_record {
	u64 tsc; /* guest TSC, low 48 bits; RING_COMM: 0 */
	u64 ip; /* call site; RING_COMM, RING_SWITCH: 0 */
	u64 parent; /* return address into the caller; RING_FUNCTION, RING_GRAPH_ENTRY; else 0 */
	u64 ticks; /* RING_GRAPH_RETURN: how long the call took, TSC ticks, rounded down */
	u32 pid;
	union {
		u32 tgid; /* RING_COMM only */
		u32 prev_pid; /* RING_SWITCH only; else 0 */
		u32 nr1; /* RING_FUNCTION, RING_GRAPH_ENTRY: orig_ax + 1; 0: not a system call's, or lost */
	};
	u16 ctx; /* AGENT_CTX_* */
	u8 type; /* enum ring_type */
	/* of its AGENT_REC_DATA, under RING_DATA; else 0 */
	u8 n_args;
	bool has_retval, has_depth, has_who;
	bool nr32; /* nr1 is of the 32-bit ABI */
	u16 depth;
	union {
		char comm[RING_COMM_LEN]; /* RING_COMM; as the guest has it, maybe without a NUL */
		u64 args[AGENT_MAX_ARGS]; /* n_args of them; RING_FUNCTION, RING_GRAPH_ENTRY */
		u64 retval; /* if has_retval; RING_GRAPH_RETURN */
	};
	u64 who; /* if has_who: 63..32 cgroup, 31..0 uid; RING_FUNCTION, RING_GRAPH_ENTRY */
	/* RING_FUNCTION, a system call's RING_GRAPH_ENTRY, or a stack: the reader's, given back by ring_give_back(); mostly NULL */
	struct ring_capture *capture;
};

/** ring_rounding - how much longer than @ticks of a record the call may have been: see agent_duration() */
static inline u64 ring_rounding(u64 ticks)
{
	return ticks >> AGENT_DURATION_BITS
		       ? (1ull << (64 - __builtin_clzll(ticks) - AGENT_DURATION_BITS)) - 1
		       : 0;
}

struct ring_stats {
	u64 functions; /* RING_FUNCTION records delivered */
	u64 entries, returns; /* RING_GRAPH_ENTRY and RING_GRAPH_RETURN records delivered */
	u64 switches; /* RING_SWITCH records delivered */
	u64 comms; /* slots taken up by COMM records, two a pair */
	u64 data; /* slots taken up by DATA, also what was dropped as its record is not there */
	u64 torn; /* slots that never became a valid record */
	u64 overwritten; /* slots that the guest used again before they were read */
	u64 refused; /* records the agent did not write, by its own count (lost) */
	u64 stalled_ns; /* how long the oldest slot has been reserved but not written; 0 mostly */
};

struct ring_reader {
	struct ring_io io;
	u64 cpu_off, ring_off; /* in data */
	u32 slots, shift;
	bool overwrite;
	int broken; /* what the first failure was; sticky */
	u64 start, pos; /* next index to read */
	u64 tail; /* as we wrote it last */
	u64 lost_start; /* agent_cpu.lost at init */
	u64 stall_head, stall_since_ns;
	bool stalled;
	bool held; /* inside ring_drain(): the last record read may have more DATA */
	u64 comm_next; /* index at which the other half of comm is due */
	struct ring_record comm;
	/*
	 * To take from, given back ones first: the caller fills these in. Without one left, or any, a capture's
	 * DATA are dropped.
	 */
	struct ring_capture *captures, *fresh;
	size_t n_fresh;
	u64 captures_dropped;
	struct ring_stats stats;
};

/**
 * ring_reader_init - begin where the last reader of this ring stopped (at 0 in a fresh one)
 * @io:  copied
 * @hdr: the host's own copy of the header, never read back from the guest: nr_cpus, ring_slots,
 *       ring_off and mode are believed
 * @cpu: below @hdr->nr_cpus
 *
 * Context: one thread a reader; the guest may run and the agent be enabled.
 * Return: 0; -EINVAL @hdr or @cpu; -EUCLEAN the guest's head and tail cannot be; what @io->read
 * gives.
 */
must_check int ring_reader_init(struct ring_reader *r, const struct ring_io *io,
				const struct agent_header *hdr, u32 cpu);

/*
 * Nobody is in the agent any more: a slot not written now never will be. Without it discard mode
 * waits for ever, as the writer is only preempted: a task cannot die inside the agent, and its slot
 * must not be given to anybody else. stats.stalled_ns says how long.
 */
#define RING_FINAL 1
/*
 * Records may be followed by AGENT_REC_DATA, which go with them; without it DATA are dropped. The agent
 * writes DATA before their record, so that none ever waits for them, nor for a slot of another's.
 */
#define RING_DATA 2

/**
 * ring_drain - take what is there
 * @out, @max: at most @max records, in the order of reservation
 * @now_ns:    CLOCK_MONOTONIC, for the time a slot has stayed unwritten
 * @flags:     RING_*
 * @n_ret:     how many were delivered; valid on failure too
 *
 * Takes at most one ring's worth of slots; when @n_ret is @max there may be more. A COMM pair takes
 * two slots and gives one record, DATA give none of their own. Writes agent_cpu.tail, in overwrite mode only for the next
 * reader.
 *
 * Context: one thread a reader; the guest may run. Does not block or allocate; 24 KiB of stack.
 * Return: 0; -EUCLEAN head or lost went back or further than the mode allows; what @io gives. After
 * a failure every further call returns the same.
 */
must_check int ring_drain(struct ring_reader *r, struct ring_record *out, size_t max, u64 now_ns,
			  unsigned int flags, size_t *n_ret);

/** ring_give_back - what @rec took of the reader's captures is free again */
static inline void ring_give_back(struct ring_reader *r, struct ring_record *rec)
{
	if (!rec->capture)
		return;
	rec->capture->next = r->captures;
	r->captures = rec->capture;
	rec->capture = NULL;
}

/** ring_pending - slots reserved but not taken, as of a look now; for choosing when to drain */
must_check int ring_pending(struct ring_reader *r, u64 *n_ret);

#endif
