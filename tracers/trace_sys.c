// SPDX-License-Identifier: Apache-2.0
/* A trace of system calls: what it needs beyond others. */
#include "tracers/trace_priv.h"

#include "tracers/sys_arm.h"
#include "tracers/sys_feed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct trace_sys {
	struct syscall_filter *filter;
	struct syscall_table *table;
	struct sys_arm arm;
	struct sys_user user;
	struct plan_opts plan;
	bool follow, by_uid;
	u32 uid;
	struct sys_feed *feed; /* NULL before sites are chosen */
};

int trace_sys_create(struct trace *t, const struct trace_opts *opts, struct err *err)
{
	/* pids: the agent looks at those */
	struct syscall_filter_opts f = { .calls = opts->filter,
					 .n_calls = opts->n_filter,
					 .failed_only = opts->failed_only,
					 .comm = opts->comm,
					 .path = opts->path,
					 .by_uid = opts->by_uid,
					 .uid = opts->uid,
					 .by_cgroup = opts->by_cgroup,
					 .cgroup = (u32)opts->cgroup };
	int rc;

	t->sys = calloc(1, sizeof(*t->sys));
	if (!t->sys)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a trace");
	t->sys->plan.string_max = opts->string_max;
	t->sys->plan.fd_paths = opts->fd_paths;
	t->sys->plan.env = opts->env;
	t->sys->plan.raw = opts->raw;
	t->sys->follow = opts->follow_forks;
	t->sys->by_uid = opts->by_uid;
	t->sys->uid = opts->uid;
	rc = syscall_filter_create(&f, &t->sys->filter, err);
	if (rc)
		t->sys->filter = NULL;
	return rc;
}

void trace_sys_destroy(struct trace_sys *s)
{
	if (!s)
		return;
	sys_feed_destroy(s->feed);
	sys_arm_deinit(&s->arm);
	syscall_table_destroy(s->table);
	syscall_filter_destroy(s->filter);
	free(s);
}

int trace_sys_choose(struct trace *t, struct choice *ret, struct tracing_opts *to, struct err *err)
{
	struct trace_sys *s = t->sys;
	struct kernel *k = guest_kernel(t->g);
	struct sys_feed_opts f = { .filter = s->filter, .put = trace_keep_record, .arg = t };
	int rc;

	rc = syscall_table_load(k, &t->mem, &s->table, err);
	if (!rc)
		rc = sys_arm_choose(k, s->table, s->filter, &s->arm, err);
	if (!rc && !s->plan.raw)
		sys_arm_copies(&s->arm, k, &t->mem, s->table);
	if (!rc && s->follow)
		rc = sys_arm_follow(&s->arm, k, err);
	if (rc)
		return rc;
	if (!s->plan.raw)
		sys_arm_user(&s->arm, k, s->table, &s->plan, &s->user);
	f.table = s->table;
	f.string_max = s->plan.string_max;
	f.programs = s->arm.programs;
	f.n_programs = s->arm.n_programs;
	rc = sys_feed_create(&f, &s->feed, err);
	if (rc)
		return rc;
	to->syscalls = true;
	to->captures = s->arm.captures;
	to->n_captures = s->arm.n_programs;
	to->steps = s->user.steps;
	to->n_steps = s->user.n;
	to->who = true;
	to->follow = s->follow;
	to->by_uid = s->by_uid;
	to->uid = s->uid;
	*ret = s->arm.choice;
	s->arm.choice = (struct choice){ 0 };
	return 0;
}

/* The table of the kernel that was traced: the guest may run another one by now. */
int trace_sys_copy(const struct trace *from, struct trace *to, struct err *err)
{
	to->sys = calloc(1, sizeof(*to->sys));
	if (!to->sys)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a snapshot");
	to->sys->table = syscall_table_ref(from->sys->table);
	return 0;
}

void trace_sys_take(struct trace *t, const struct trace_record *r)
{
	sys_feed_add(t->sys->feed, r);
}

void trace_sys_finish(struct trace *t)
{
	if (t->sys && t->sys->feed)
		sys_feed_finish(t->sys->feed);
}

void trace_sys_counts(struct trace *t)
{
	struct sys_feed_counts c;
	struct drain_losses l;

	if (!t->sys || !t->sys->feed)
		return;
	sys_feed_get_counts(t->sys->feed, &c);
	drain_losses(t->drain, &l);
	t->info.lost_captures = l.captures + c.captures_left_out;
	t->info.n_calls = c.calls;
	t->info.n_filtered = c.filtered;
	t->info.n_unfinished = c.unfinished;
	t->info.n_forgotten = c.forgotten;
	t->info.n_orphans = c.orphans;
}

bool trace_sys_func(struct trace *t, u64 ip, struct kernel_func *ret)
{
	const struct syscall_entry *e = syscall_table_at(t->sys->table, ip);

	if (!e || !e->described)
		return false;
	*ret = (struct kernel_func){ .n_params = MIN(e->n_args, SYSCALL_ARGS),
				     .n_regs = SYSCALL_ARGS };
	ret->ret = (struct kernel_val){
		.name = "", .type = "long", .size = 8, .kind = KERNEL_VAL_SIGNED
	};
	for (u8 i = 0; i < ret->n_params; i++)
		ret->params[i] = (struct kernel_val){ .name = e->args[i].name,
						      .type = e->args[i].type,
						      .size = 8,
						      .reg = i,
						      .kind = KERNEL_VAL_OTHER };
	return true;
}
