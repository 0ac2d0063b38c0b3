/* SPDX-License-Identifier: Apache-2.0 */
/* A task of the guest of test_patcher_fake.h, which comes by the gate and does what it is told; and the host's time. */
#ifndef TESTS_PATCHER_TASK_H
#define TESTS_PATCHER_TASK_H

#include "test_patcher_fake.h"

#define MAX_CALLS 32u

/* The mailbox. */
struct box {
	u32 state, inside;
	u64 fn, args[4], ret, seq, taken, closing;
};

struct task_state {
	u64 cave;
	struct {
		u64 fn, args[4];
		bool armed; /* call sites led to the gate */
	} call[MAX_CALLS];
	size_t n_calls;
	int leaves, written_back;
	bool tells, idle; /* nobody comes by */
	long passed_s;
};
extern struct task_state task;

/* Nothing was called yet. */
void task_setup(void);
struct box *task_box(void);
/* Where in the gate interlock_again and interlock_back are */
u64 task_again(void);
u64 task_back(void);
bool task_any_leads_here(void);

#endif
