/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of a program's own memory the agent reads, call by call: the decoder's plans as the agent's steps
 * (guest-agent/agent_user.h), and what comes of them as captures. Must not know sites, nor rings.
 */
#ifndef TRACERS_SYS_USER_H
#define TRACERS_SYS_USER_H

#include "guest-agent/agent_abi.h"
#include "tracers/syscalls/event.h"
#include "tracers/syscalls/plan.h"

struct sys_user {
	struct agent_user_step steps[AGENT_USER_STEPS];
	u32 n;
	u32 n_left_out; /* calls whose steps found no room */
};

/**
 * sys_user_add - the steps of one call
 * @leave_out: what the kernel's own copy tells; may be NULL
 *
 * Calls that need the same share it. Return: the number of its first step + 1; 0: it needs none.
 */
u32 sys_user_add(struct sys_user *u, const struct syscall_entry *e, const struct plan_opts *o,
		 bool (*leave_out)(void *arg, const struct syscall_entry *e,
				   const struct plan_step *s),
		 void *arg);

/* One record of a step's. */
struct sys_user_piece {
	struct syscall_capture capture; /* full_len, count, truncated: of this piece */
	u32 number; /* of what ends strings: how many came before it */
	u32 each; /* of DATA: bytes of one element, at most */
	bool mm; /* the kernel's copy of argv */
	bool ends; /* of STRINGS: there are no more */
};

/** sys_user_piece - from KEY and the capture's word; false: no step of ours has such a tag */
bool sys_user_piece(u64 key, u32 there, u32 n, struct sys_user_piece *ret);

#endif
