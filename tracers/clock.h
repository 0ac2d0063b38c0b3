/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the guest's TSC to the guest's own trace clock, trace_clock_local() = sched_clock(), in ns.
 * Must not know records or rings. Everything read from the guest is hostile: wrong clocks come of
 * wrong tables, nothing worse.
 */
#ifndef TRACERS_CLOCK_H
#define TRACERS_CLOCK_H

#include "base/err.h"
#include "base/types.h"
#include "symbols/kernel.h"

enum trace_clock_kind {
	TRACE_CLOCK_TSC, /* native_sched_clock(): per-CPU cyc2ns */
	TRACE_CLOCK_KVM, /* kvm_sched_clock_read(): per-CPU pvclock page */
};

/* ns = base_ns + (((tsc - base_tsc) scaled by shift) * mul >> 32) for both kinds, see clock.c */
struct trace_clock_cpu {
	u64 base_tsc;
	u64 base_ns; /* modulo 2^64 */
	u32 mul;
	u32 down; /* shift right of the product, 0..63 */
	s32 up; /* shift of the difference before it: left when positive */
};

struct trace_clock {
	enum trace_clock_kind kind;
	bool exact; /* false: the guest's sched_clock() is another's (Xen, Hyper-V); cyc2ns instead */
	u64 near_tsc; /* a full TSC not many hours away from the records to come */
	u32 n_cpus;
	struct trace_clock_cpu *cpus;
};

/**
 * trace_clock_init - learn how the guest computes sched_clock(), and about what its TSC is now
 * @mem: the reader that @k was loaded with
 *
 * The guest may change its scale (once some seconds after boot, when tsc_refine_calibration_work()
 * is done; at resume from suspend; under kvm-clock as the host corrects its own clock): call
 * trace_clock_refresh() now and then, every few seconds costs nothing.
 *
 * Context: vCPUs may run; any thread; the caller holds what protects @k. Return: 0; -ENOTSUP the
 * guest's sched_clock() does not use the TSC (guest.unsupported); -EUCLEAN tables that make no sense
 * (guest.bad_memory); -ENOMEM.
 * Source: Linux v6.1 arch/x86/kernel/{tsc,kvmclock,paravirt,pvclock}.c, the same in v6.12.
 * Undo: trace_clock_deinit().
 */
must_check int trace_clock_init(const struct kernel *k, const struct sym_mem *mem,
				struct trace_clock *ret, struct err *err);

/** trace_clock_refresh - as trace_clock_init() for a clock in use; on failure @c stays as it was */
must_check int trace_clock_refresh(const struct kernel *k, const struct sym_mem *mem,
				   struct trace_clock *c, struct err *err);

/** trace_clock_copy - @from into @to, which is replaced; -ENOMEM, and it stays as it was */
must_check int trace_clock_copy(const struct trace_clock *from, struct trace_clock *to);

void trace_clock_deinit(struct trace_clock *c);

/** trace_clock_ns - sched_clock() of CPU @cpu at the full TSC @tsc; an unknown CPU counts as CPU 0 */
u64 trace_clock_ns(const struct trace_clock *c, u32 cpu, u64 tsc);

/** trace_clock_tsc - the inverse: the TSC at which CPU @cpu's sched_clock() was @ns */
u64 trace_clock_tsc(const struct trace_clock *c, u32 cpu, u64 ns);

/**
 * trace_clock_duration_ns - how long @ticks of the TSC are, rounded down
 *
 * All CPUs' scales are meant to be the same, and CPU 0's is used for all: so of two durations, by
 * whatever CPU, the one of fewer ticks never comes out longer.
 */
u64 trace_clock_duration_ns(const struct trace_clock *c, u64 ticks);

/**
 * trace_clock_ticks - the fewest ticks whose trace_clock_duration_ns() is @ns or more
 *
 * Beyond what the TSC counts in its life: UINT64_MAX.
 */
u64 trace_clock_ticks(const struct trace_clock *c, u64 ns);

/** trace_clock_extend - the full TSC nearest to @near whose lower 48 bits are @tsc48 */
u64 trace_clock_extend(u64 tsc48, u64 near);

/**
 * trace_clock_record_ns - the time of a record, from the 48 bits of TSC that it carries
 *
 * Moves @c->near_tsc along, so that it works for as long as a record or a refresh comes at least
 * every 2^47 cycles (13 hours at 3 GHz). Context: one thread.
 */
u64 trace_clock_record_ns(struct trace_clock *c, u32 cpu, u64 tsc48);

#endif
