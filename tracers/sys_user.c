// SPDX-License-Identifier: Apache-2.0
/* Plans into steps, and their records into captures. See sys_user.h. */
#include "tracers/sys_user.h"

#include <string.h>

#define STRING_EACH 256u /* bytes of one of argv's strings */
#define ARGS_MAX    4096u

/* agent_user_step.tag */
#define TAG_WHAT_SHIFT 8
#define TAG_EACH_SHIFT 16

static const u8 ops[] = {
	[CAPTURE_STRING] = AGENT_USER_STRING,   [CAPTURE_BYTES] = AGENT_USER_BYTES,
	[CAPTURE_STRINGS] = AGENT_USER_STRINGS, [CAPTURE_COUNT] = AGENT_USER_COUNT,
	[CAPTURE_SOCKADDR] = AGENT_USER_BYTES,  [CAPTURE_IOVEC] = AGENT_USER_BYTES,
	[CAPTURE_DATA] = AGENT_USER_IOVEC,      [CAPTURE_FD] = AGENT_USER_FD,
};

static struct agent_user_step step_of(const struct plan_step *s)
{
	/* of one element the agent reads no more than one record has */
	u16 each = s->what == CAPTURE_DATA ? MIN(s->each, (u16)AGENT_CAPTURE_MAX) : s->each;
	bool counted = s->what == CAPTURE_DATA || s->len == PLAN_ARG || s->len == PLAN_PTR;
	struct agent_user_step r = {
		.op = ops[s->what],
		.base = s->arg == CAPTURE_RETURN ? AGENT_USER_RESULT : s->arg,
		.len = counted && s->len_at < 0 ? s->len_arg : AGENT_USER_NONE,
		.if_arg = s->if_arg,
		.flags = s->at_exit ? AGENT_USER_AT_EXIT : 0,
		.each = s->len == PLAN_FIXED && s->what != CAPTURE_DATA && s->len_at < 0 ? 0 : each,
		.ptr_at = s->ptr_at,
		.len_at = s->len_at,
		.max = MIN(s->max, (u32)AGENT_USER_MAX),
		.tag = (u32)s->arg | (u32)s->what << TAG_WHAT_SHIFT,
		.if_mask = s->if_mask,
		.if_value = s->if_value,
	};

	if (s->at_error)
		r.flags |= AGENT_USER_ERROR;
	if (s->len == PLAN_RET)
		r.flags |= AGENT_USER_RET;
	if (s->len == PLAN_PTR)
		r.flags |= AGENT_USER_LEN_PTR;
	if (s->len == PLAN_SIGFRAME) {
		r.flags |= AGENT_USER_SP;
		r.ptr_at = PLAN_SIGFRAME_MASK;
	}
	if (s->what == CAPTURE_STRINGS)
		r.each = STRING_EACH;
	if (s->what == CAPTURE_DATA)
		r.tag |= (u32)each << TAG_EACH_SHIFT;
	return r;
}

/* The kernel's copy of argv or envp, once the new program has it. */
static struct agent_user_step args_of(const struct plan_step *s, bool env)
{
	return (struct agent_user_step){ .op = AGENT_USER_ARGS,
					 .base = s->arg,
					 .len = AGENT_USER_NONE,
					 .if_arg = AGENT_USER_NONE,
					 .flags = (agent_u16)(AGENT_USER_AT_EXIT |
							      (env ? AGENT_USER_ENV : 0)),
					 .ptr_at = -1,
					 .len_at = -1,
					 .max = MIN(s->max, ARGS_MAX),
					 .tag = (u32)s->arg | CAPTURE_STRINGS << TAG_WHAT_SHIFT };
}

static u32 add_run(struct sys_user *u, const struct agent_user_step *run, u32 n)
{
	for (u32 i = 0; i + n <= u->n; i++) {
		if (!memcmp(&u->steps[i], run, n * sizeof(*run)))
			return i + 1;
	}
	if (n > AGENT_USER_STEPS - u->n) {
		u->n_left_out++;
		return 0;
	}
	memcpy(&u->steps[u->n], run, n * sizeof(*run));
	u->n += n;
	return u->n - n + 1;
}

/* Laid out as only 64-bit programs have it; of x32 its lists of pointers, too, which the agent takes for long ones. */
static bool is_otherwise(u8 abi, const struct plan_step *s)
{
	if (abi == SYSCALL_ABI_X32 &&
	    (s->what == CAPTURE_STRINGS || s->what == CAPTURE_COUNT || s->what == CAPTURE_DATA))
		return true;
	return abi != SYSCALL_ABI_64 && s->wide;
}

u32 sys_user_add(struct sys_user *u, const struct syscall_entry *e, const struct plan_opts *o,
		 bool (*leave_out)(void *arg, const struct syscall_entry *e,
				   const struct plan_step *s),
		 void *arg)
{
	struct agent_user_step run[AGENT_USER_RUN];
	struct plan p;
	u32 n = 0;

	if (!plan_all(e, o, &p))
		return 0;
	for (u8 i = 0; i < p.n && n < ARRAY_SIZE(run); i++) {
		const struct plan_step *s = &p.steps[i];

		if (is_otherwise(e->abi, s) || (leave_out && leave_out(arg, e, s)))
			continue;
		run[n++] = step_of(s);
		if (s->what == CAPTURE_STRINGS && n < ARRAY_SIZE(run))
			run[n++] = args_of(s, s->env);
	}
	if (!n)
		return 0;
	run[n - 1].flags |= AGENT_USER_LAST;
	return add_run(u, run, n);
}

bool sys_user_piece(u64 key, u32 there, u32 n, struct sys_user_piece *ret)
{
	u32 tag = (u32)key;
	bool at_exit = key & AGENT_USER_EXIT, mm = key & AGENT_USER_MM;
	struct syscall_capture c = {
		.arg = tag & 0xff,
		.what = tag >> TAG_WHAT_SHIFT & 0xff,
		.source = mm        ? CAPTURE_KERNEL
			  : at_exit ? CAPTURE_USER_EXIT
				    : CAPTURE_USER_ENTER,
		.failed = key & AGENT_USER_FAILED,
		.count = (u32)(key >> AGENT_USER_COUNT_SHIFT),
		.full_len = there == AGENT_CAPTURE_UNKNOWN ? CAPTURE_LEN_UNKNOWN : there,
		.len = n,
	};

	if (c.what == CAPTURE_FD)
		c.source = CAPTURE_KERNEL;
	if (c.arg > CAPTURE_RETURN || c.what > CAPTURE_FD)
		return false;
	*ret = (struct sys_user_piece){ .capture = c,
					.number = key >> AGENT_USER_NUMBER_SHIFT & 0xffff,
					.each = tag >> TAG_EACH_SHIFT,
					.mm = mm };
	ret->ends = c.what == CAPTURE_STRINGS && !mm && ret->number == 0xffff;
	if (ret->ends)
		ret->number = c.count;
	if (c.what == CAPTURE_DATA) { /* a length would be an element's */
		ret->capture.count = ret->each;
		ret->capture.full_len = CAPTURE_LEN_UNKNOWN;
	}
	return true;
}
