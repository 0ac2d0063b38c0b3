/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest for tests of a trace: one CPU's ring, and all that tracers/trace*.c ask of patcher/, of the kernel's tables
 * and of the guest's clock.
 */
#ifndef TESTS_TRACERS_TRACE_FAKE_H
#define TESTS_TRACERS_TRACE_FAKE_H

#include "tracers/trace_priv.h"

#define SLOTS 256u
#define TEXT  0xffffffff81000000ull
#define NEW   (TEXT + 0x1000) /* a function of a module that comes with epoch 1 */
#define PATIENCE \
	(20 * NSEC_PER_SEC) /* of a busy host; a thread that waits for ours waits for ever */

struct fake_vm {
	pthread_mutex_t lock;
	atomic_uint n_locking; /* wait for it, or have it */
	atomic_bool monitor_hangs, in_monitor;
	atomic_uint epoch, next_epoch;
	atomic_uint n_never; /* to be found by the next looks */
	atomic_uint n_armed_more;
	atomic_ulong taken; /* sites, by the guest's own tracing */
	atomic_uint
		missed; /* what tracing_refresh() says; then task 9 is switched in, and returns after 500 ticks */
	atomic_uint kept; /* so, and for as long as it is set */
	atomic_uint looks; /* since frames were collected last; tracing_refresh() was among them */
	atomic_bool refreshed;
	atomic_uint looks_at_once; /* when it was, that many */
	atomic_uint n_followed; /* tracing_follow() with no pids */
	atomic_bool ring_hangs, in_ring; /* who drains */
	atomic_uint n_changed; /* what is armed, or recorded, or whether returns are */
	atomic_bool collect_fails, leaves; /* the VMM ended, or the guest is leaving it */
	atomic_bool disarm_fails;
	atomic_bool disarm_waits; /* until another waits for the lock */
	atomic_bool disarmed, late; /* late: frames were collected after that */
	atomic_bool off;
	atomic_uint before_off; /* records that the guest writes before it is */
	atomic_bool unsettled; /* tracing_unsettled() */
	atomic_uint ns_per_tick;
};
extern struct fake_vm vm;

/** fake_setup - no trace; an empty ring */
void fake_setup(void);

/** fake_put - a record, its TSC 1000 and how many there are already; false: the ring is full, and stays so */
bool fake_put(u32 type, u64 ip, u32 pid);
/** fake_put_word - with this w1, instead of a function and its caller */
bool fake_put_word(u32 type, u64 word, u32 pid);

/** fake_reserve - a record that nobody writes */
void fake_reserve(void);

/** fake_nap - for those who wait */
void fake_nap(void);

#endif
