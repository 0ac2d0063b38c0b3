// SPDX-License-Identifier: Apache-2.0
/* What an event says about itself. */
#include "tracers/syscalls/event.h"

#include <errno.h>

/* Linux v6.1 include/linux/errno.h: never seen by user space */
#define ERESTARTSYS_NO           512
#define ERESTARTNOINTR_NO        513
#define ERESTARTNOHAND_NO        514
#define ERESTART_RESTARTBLOCK_NO 516

#define MAX_ERRNO 4095

enum syscall_restart syscall_restart(s64 ret)
{
	switch (ret) {
	case -ERESTARTSYS_NO:
		return RESTART_SA_RESTART;
	case -ERESTARTNOINTR_NO:
		return RESTART_ALWAYS;
	case -ERESTARTNOHAND_NO:
		return RESTART_NO_HANDLER;
	case -ERESTART_RESTARTBLOCK_NO:
		return RESTART_BLOCK;
	default:
		return RESTART_NOT;
	}
}

bool syscall_failed(const struct syscall_event *e)
{
	return (e->state == SYSCALL_RETURNED || e->state == SYSCALL_RESTARTED) && e->ret < 0 &&
	       e->ret >= -MAX_ERRNO;
}

const struct syscall_capture *syscall_capture_find(const struct syscall_event *e, u8 arg, u8 what,
						   const u8 **data_ret)
{
	const struct syscall_capture *best = NULL;

	for (u32 i = 0; i < MIN(e->n_captures, SYSCALL_CAPTURES); i++) {
		const struct syscall_capture *c = &e->captures[i];

		if (c->arg != arg || c->what != what || c->failed || c->off > e->data_len ||
		    c->len > e->data_len - c->off)
			continue;
		if (!best || (best->source != CAPTURE_KERNEL && c->source == CAPTURE_KERNEL))
			best = c;
	}
	if (best)
		*data_ret = best->len ? e->data + best->off : (const u8 *)"";
	return best;
}
