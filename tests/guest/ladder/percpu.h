/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent finds by %gs and by task, in the guest and in the test. */
#ifndef TESTS_LADDER_PERCPU_H
#define TESTS_LADDER_PERCPU_H

struct ladder_task {
	unsigned int pid, tgid;
	char comm[16];
	unsigned long start_time;
};

struct ladder_percpu {
	struct ladder_task *current;
	unsigned int cpu, preempt_count;
};

#endif
