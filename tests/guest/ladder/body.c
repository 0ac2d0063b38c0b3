// SPDX-License-Identifier: Apache-2.0
/* Functions that call each other for ever: local, weak and global ones. Built in each way that kernels are. */
#include "tests/guest/ladder/percpu.h"

volatile unsigned long rounds; /* that are over */

static struct ladder_task task = { .pid = 7, .tgid = 7, .comm = "ladder", .start_time = 1 };
struct ladder_percpu percpu = { .current = &task };

volatile unsigned long frompc, selfpc; /* of the last call that the guest's own tracer saw */

/* As ftrace_trace_function would be set while the guest itself traces. */
void __attribute__((no_instrument_function)) guest_tracer(unsigned long from, unsigned long self);
void __attribute__((no_instrument_function)) guest_tracer(unsigned long from, unsigned long self)
{
	frompc = from;
	selfpc = self;
}

static int __attribute__((noinline, noclone)) local_leaf(int a)
{
	return a * 3 + (int)rounds;
}

/* another file has a strong one: this one's site stays, without a name */
int __attribute__((weak, noinline)) soft(int a)
{
	return local_leaf(a) + 1;
}

int __attribute__((noinline)) outer(int a)
{
	return local_leaf(a) + soft(a);
}

void __attribute__((no_instrument_function, noreturn)) run(void)
{
	for (int a = 0;; a++) {
		a += outer(a) & 1;
		rounds = rounds + 1;
	}
}
