// SPDX-License-Identifier: Apache-2.0
/* Options of a trace as the agent has them. See options.h. */
#define LOG_PREFIX "tracing"
#include "patcher/options.h"

#include "base/cleanup.h"
#include "base/log.h"
#include "patcher/agent.h"
#include "patcher/follow.h"
#include "patcher/helpers.h"
#include "patcher/text.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define HEADER(member) offsetof(struct agent_header, member)
#define ARGS_MASK      ((u32)AGENT_SITE_ARGS_MASK << AGENT_SITE_ARGS_SHIFT)
#define CAPTURE_MASK   ((u32)AGENT_SITE_CAPTURE_MASK << AGENT_SITE_CAPTURE_SHIFT)
#define USER_MASK      ((u32)AGENT_SITE_USER_MASK << AGENT_SITE_USER_SHIFT)
#define CALL_SITE \
	(AGENT_SITE_SYSCALL | AGENT_SITE_SYSCALL32 | AGENT_SITE_NR | CAPTURE_MASK | USER_MASK)
#define GRAPH_SITE                                                                    \
	(AGENT_SITE_ROOT | AGENT_SITE_NOTRACE | AGENT_SITE_RETVAL | AGENT_SITE_FORK | \
	 AGENT_SITE_EXIT | CALL_SITE)
/* Five levels of page tables leave the kernel this much, four less of it. */
#define KERNEL_HALF 0xff00000000000000
#define NO_SITE     SIZE_MAX

/* What of a site's word means anything to the tracer that is on. */
static u32 site_mask(const struct tracing_opts *opts)
{
	return ARGS_MASK | AGENT_SITE_STACK | (opts->graph ? GRAPH_SITE : 0);
}

void options_header(const struct tracing_opts *opts, struct agent_header *h)
{
	u32 any = 0, options = 0;

	for (size_t i = 0; i < opts->n_sites; i++)
		any |= opts->sites[i].what & site_mask(opts);
	h->max_depth = opts->graph ? opts->max_depth : 0;
	h->threshold = opts->graph ? opts->threshold : 0;
	if (opts->graph && opts->roots)
		options |= AGENT_OPT_ROOTS;
	if (any & AGENT_SITE_STACK)
		options |= AGENT_OPT_STACKS;
	/* STACKS: unwound with the true returns of all calls around; a trace may be turned over to graph later */
	if (options || h->max_depth || h->threshold || any & AGENT_SITE_NOTRACE)
		options |= AGENT_OPT_TASKS;
	if (opts->graph && opts->no_irqs)
		options |= AGENT_OPT_NO_IRQS;
	if (opts->switches)
		options |= AGENT_OPT_SWITCHES;
	if (opts->graph && opts->who)
		options |= AGENT_OPT_WHO;
	if (opts->graph && opts->follow)
		options |= AGENT_OPT_FOLLOW;
	if (opts->graph && opts->by_uid)
		options |= AGENT_OPT_UIDS;
	h->uid = opts->uid;
	if (options || any & (ARGS_MASK | AGENT_SITE_RETVAL | CALL_SITE))
		options |= AGENT_OPT_FULL;
	h->options = options;
}

static bool makes_sense(const struct tracing_opts *opts, u32 what)
{
	return !(what & ~(GRAPH_SITE | ARGS_MASK | AGENT_SITE_STACK)) &&
	       (what & ARGS_MASK) >> AGENT_SITE_ARGS_SHIFT <= AGENT_MAX_ARGS &&
	       (what & CAPTURE_MASK) >> AGENT_SITE_CAPTURE_SHIFT <= opts->n_captures &&
	       (what & USER_MASK) >> AGENT_SITE_USER_SHIFT <= opts->n_steps &&
	       (!(what & AGENT_SITE_SYSCALL) || opts->syscalls);
}

int options_sites(const struct tracing_opts *opts, const struct agent_header *h,
		  const struct site_ips *sites, size_t switch_site, struct agent_site *table)
{
	int rc = 0;

	memset(table, 0, h->site_slots * sizeof(*table));
	for (size_t i = 0; !rc && i < opts->n_sites; i++) {
		u32 what = opts->sites[i].what;

		if (opts->sites[i].site >= sites->n || !makes_sense(opts, what))
			return -EINVAL;
		what &= site_mask(opts);
		if (what)
			rc = agent_put_site(h, table,
					    (u32)sites->ip(sites->arg, opts->sites[i].site), what);
	}
	if (!rc && switch_site != NO_SITE)
		rc = agent_put_site(h, table, (u32)sites->ip(sites->arg, switch_site),
				    AGENT_SITE_SWITCH | AGENT_SITE_HIDDEN);
	return rc;
}

bool options_is_switch(const char *name)
{
	static const char plain[] = "finish_task_switch";
	const char *rest = name + sizeof(plain) - 1;

	if (strncmp(name, plain, sizeof(plain) - 1) != 0)
		return false;
	return !*rest || strncmp(rest, ".isra.", 6) == 0 || strncmp(rest, ".constprop.", 11) == 0;
}

static u64 site_ip(void *arg, size_t i)
{
	return kernel_sites(arg)[i].ip;
}

static int sites_failed(int rc, struct err *err)
{
	if (rc == -ENOSPC)
		return err_set(err, rc, ERR_GUEST_UNSUPPORTED, 0,
			       "the agent's table has no room for so many call sites");
	return err_set(err, rc, ERR_BAD_REQUEST, 0, "a site's options make no sense");
}

/* Where its entry came to lie; what it says is settled when sites are armed. */
static void note_switch(struct guest *g, const struct agent_site *table)
{
	struct guest_agent *a = &g->agent;

	for (u32 i = 0; i < a->header.site_slots; i++) {
		if (!(table[i].what & AGENT_SITE_SWITCH))
			continue;
		a->switch_what = table[i].what;
		a->switch_off = a->header.sites_off + i * sizeof(*table) +
				offsetof(struct agent_site, what);
	}
}

static int write_sites(struct guest *g, const struct tracing_opts *opts, struct err *err)
{
	struct agent_header *h = &g->agent.header;
	_cleanup_free_ struct agent_site *table = calloc(h->site_slots, sizeof(*table));
	const struct site_ips sites = { site_ip, g->k, kernel_site_count(g->k) };
	size_t switch_site = NO_SITE;
	int rc;

	if (!table)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for call sites");
	if (opts->switches) {
		rc = helpers_find_switch(g, &switch_site, err);
		if (rc)
			return rc;
	}
	rc = options_sites(opts, h, &sites, switch_site, table);
	if (rc)
		return sites_failed(rc, err);
	helpers_note(g, opts, opts->switches ? kernel_sites(g->k)[switch_site].ip : 0);
	g->agent.switches = opts->switches;
	g->agent.switch_site = (u32)switch_site;
	note_switch(g, table);
	return agent_write_header(g, h->sites_off, table, h->site_slots * sizeof(*table), err);
}

/* Linux v6.1 arch/x86/include/asm/syscall_wrapper.h SC_X86_64_REGS_TO_ARGS, SC_IA32_REGS_TO_ARGS */
static int find_registers(struct guest *g, struct err *err)
{
	static const char *const names[2][AGENT_SYSCALL_REGS] = {
		{ "di", "si", "dx", "r10", "r8", "r9", "orig_ax" },
		{ "bx", "cx", "dx", "si", "di", "bp", "orig_ax" },
	};
	struct agent_header *h = &g->agent.header;
	u32 off;

	for (size_t is32 = 0; is32 < 2; is32++) {
		for (size_t i = 0; i < AGENT_SYSCALL_REGS; i++) {
			if (kernel_btf_offset(g->k, "pt_regs", names[is32][i], &off) ||
			    off > PAGE_SIZE)
				return err_set(err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0,
					       "this kernel's struct pt_regs has no %s",
					       names[is32][i]);
			h->syscall_regs[is32][i] = (u16)off;
		}
	}
	return 0;
}

/*
 * Where a task's credentials, its cgroup and argv are. A kernel without one of them has nothing told of it.
 * Linux v5.10 to v7.2.
 */
static void find_where(struct guest *g)
{
	struct agent_where *w = &g->agent.header.where;
	const struct {
		u32 *at;
		const char *type, *path;
		bool pointer; /* of a chain: without it, what comes behind it is of no use */
	} members[] = {
		{ &w->task_mm, "task_struct", "mm", false },
		{ &w->mm_arg_start, "mm_struct", "arg_start", false },
		{ &w->mm_arg_end, "mm_struct", "arg_end", false },
		{ &w->mm_env_start, "mm_struct", "env_start", false },
		{ &w->mm_env_end, "mm_struct", "env_end", false },
		{ &w->task_status, "task_struct", "thread_info.status", false },
		{ &w->task_cred, "task_struct", "cred", false },
		{ &w->cred_uid, "cred", "uid", false },
		{ &w->task_cgroups, "task_struct", "cgroups", false },
		{ &w->css_set_cgroup, "css_set", "dfl_cgrp", true },
		{ &w->cgroup_node, "cgroup", "kn", true },
		{ &w->node_id, "kernfs_node", "id", true },
		{ &w->regs_sp, "pt_regs", "sp", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
		if (!kernel_btf_offset(g->k, members[i].type, members[i].path, members[i].at))
			continue;
		*members[i].at = 0;
		if (members[i].pointer)
			w->task_cgroups = 0;
		if (members[i].at == &w->cred_uid)
			w->task_cred = 0;
	}
}

/* What leads from a descriptor to a path: all of it, or nothing. */
static void find_paths(struct guest *g)
{
	struct agent_where *w = &g->agent.header.where;
	const struct {
		u32 *at;
		const char *type, *path;
	} members[] = {
		{ &w->files_fdt, "files_struct", "fdt" },
		{ &w->fdt_max, "fdtable", "max_fds" },
		{ &w->fdt_fd, "fdtable", "fd" },
		{ &w->file_dentry, "file", "f_path.dentry" },
		{ &w->file_mnt, "file", "f_path.mnt" },
		{ &w->task_fs, "task_struct", "fs" },
		{ &w->fs_pwd_dentry, "fs_struct", "pwd.dentry" },
		{ &w->fs_pwd_mnt, "fs_struct", "pwd.mnt" },
		{ &w->dentry_parent, "dentry", "d_parent" },
		{ &w->dentry_name, "dentry", "d_name.name" },
		{ &w->dentry_len, "dentry", "d_name.len" },
		{ &w->dentry_pprev, "dentry", "d_hash.pprev" },
		{ &w->dentry_sb, "dentry", "d_sb" },
		{ &w->dentry_inode, "dentry", "d_inode" },
		{ &w->sb_magic, "super_block", "s_magic" },
		{ &w->inode_ino, "inode", "i_ino" },
		{ &w->mount_mnt, "mount", "mnt" },
		{ &w->mount_parent, "mount", "mnt_parent" },
		{ &w->mount_point, "mount", "mnt_mountpoint" },
		{ &w->mnt_root, "vfsmount", "mnt_root" },
		{ &w->files_count, "files_struct", "count" },
		{ &w->file_inode, "file", "f_inode" },
		{ &w->inode_sb, "inode", "i_sb" },
		{ &w->sb_flags, "super_block", "s_flags" },
	};
	u32 files;

	w->task_files = 0;
	for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
		if (kernel_btf_offset(g->k, members[i].type, members[i].path, members[i].at))
			return;
	}
	if (!kernel_btf_offset(g->k, "task_struct", "files", &files))
		w->task_files = files;
}

static int write_steps(struct guest *g, const struct tracing_opts *opts, struct err *err)
{
	if (opts->n_steps > AGENT_USER_STEPS)
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0, "at most %d steps",
			       AGENT_USER_STEPS);
	if (!opts->n_steps)
		return 0;
	return agent_write_header(g, g->agent.header.steps_off, opts->steps,
				  opts->n_steps * sizeof(*opts->steps), err);
}

static int write_syscalls(struct guest *g, const struct tracing_opts *opts, struct err *err)
{
	struct agent_header *h = &g->agent.header;
	int rc;

	if (opts->n_captures > AGENT_MAX_CAPTURES)
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0, "at most %d captures",
			       AGENT_MAX_CAPTURES);
	rc = find_registers(g, err);
	if (rc)
		return rc;
	find_where(g);
	find_paths(g);
	rc = write_steps(g, opts, err);
	if (rc)
		return rc;
	h->kernel_half = KERNEL_HALF;
	/* without any, those of an earlier trace stay: a task may be on its way to one of them */
	if (opts->n_captures)
		memcpy(h->captures, opts->captures, opts->n_captures * sizeof(*h->captures));
	return agent_write_header(g, HEADER(syscall_regs), h->syscall_regs,
				  sizeof(*h) - HEADER(syscall_regs), err);
}

/* What the guest's unwinder is given (v6.1 arch/x86/include/asm/ptrace.h struct pt_regs). */
static int write_stacks(struct guest *g, const struct tracing_opts *opts, struct err *err)
{
	static const char *const names[AGENT_STACK_REGS] = { "ip", "sp", "bp", "cs" };
	struct agent_header *h = &g->agent.header;
	u32 off, bytes;

	if (!(h->calls & AGENT_CALL_STACK))
		return err_set(err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0,
			       "stack traces: this kernel has no stack_trace_save_regs(), which "
			       "CONFIG_STACKTRACE brings");
	if (kernel_btf_size(g->k, "pt_regs", &bytes) || bytes > AGENT_SCRATCH_REGS)
		return err_set(err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0,
			       "stack traces: this kernel's struct pt_regs is not as expected");
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (kernel_btf_offset(g->k, "pt_regs", names[i], &off) || off > bytes - 8)
			return err_set(err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0,
				       "stack traces: this kernel's struct pt_regs has no %s",
				       names[i]);
		h->stack_regs[i] = (u16)off;
	}
	h->stack_max = opts->stack_depth ? opts->stack_depth : AGENT_MAX_STACK;
	return agent_write_header(g, HEADER(stack_max), &h->stack_max,
				  sizeof(*h) - HEADER(stack_max), err);
}

static int clear_tasks(struct guest *g, struct err *err)
{
	static const struct agent_task none[512];
	const struct agent_header *h = &g->agent.header;
	int rc = 0;

	for (u32 first = 0; !rc && first < h->task_slots; first += ARRAY_SIZE(none)) {
		u32 n = MIN((u32)ARRAY_SIZE(none), h->task_slots - first);

		rc = agent_write_header(g, h->tasks_off + first * sizeof(*none), none,
					n * sizeof(*none), err);
	}
	return rc;
}

int options_write(struct guest *g, const struct tracing_opts *opts, struct err *err)
{
	struct agent_header *h = &g->agent.header;
	int rc = write_sites(g, opts, err);

	options_header(opts, h);
	if (!rc && opts->syscalls)
		rc = write_syscalls(g, opts, err);
	if (!rc && h->options & AGENT_OPT_FOLLOW)
		rc = follow_begin(g, opts, err);
	if (rc)
		return rc;
	if (h->options & AGENT_OPT_STACKS)
		rc = write_stacks(g, opts, err);
	if (rc)
		return rc;
	rc = agent_write_header(g, HEADER(options), &h->options, sizeof(h->options), err);
	if (!rc)
		rc = agent_write_header(g, HEADER(max_depth), &h->max_depth, sizeof(h->max_depth),
					err);
	if (!rc)
		rc = agent_write_header(g, HEADER(threshold), &h->threshold, sizeof(h->threshold),
					err);
	return rc ? rc : clear_tasks(g, err);
}

int options_put_late(const struct agent_header *h, struct agent_site *table, struct agent_site site,
		     bool (*is_dead)(void *arg, u32 ip), void *arg, u32 *slot_ret)
{
	u32 mask = h->site_slots - 1, place = h->site_slots, i;

	*slot_ret = h->site_slots;
	if (!h->site_slots)
		return site.what ? -ENOSPC : 0;
	i = agent_site_slot(h, site.ip);
	for (u32 n = 0; n < AGENT_SITE_PROBES; n++, i = (i + 1) & mask) {
		bool here = table[i].ip == site.ip;

		if (place == h->site_slots && (here || !table[i].ip || is_dead(arg, table[i].ip)))
			place = i;
		if (here) /* the one that the agent finds */
			place = i;
		if (here || !table[i].ip)
			break;
	}
	if (!site.what && (place == h->site_slots || table[place].ip != site.ip))
		return 0;
	if (place == h->site_slots)
		return -ENOSPC;
	if (table[place].ip == site.ip && table[place].what == site.what)
		return 0;
	table[place] = site;
	*slot_ret = place;
	return 0;
}

static int by_low_ip(const void *a, const void *b)
{
	u32 x = (u32)((const struct text_change *)a)->addr,
	    y = (u32)((const struct text_change *)b)->addr;

	return x < y ? -1 : x > y;
}

/* Kernel and modules lie in the top 2 GiB: in the order of addresses, lower halves are in order, too. */
static bool is_not_armed(void *arg, u32 ip)
{
	const struct guest *g = arg;
	const struct text_change key = { .addr = ip };

	return !g->n_armed || !bsearch(&key, g->armed, g->n_armed, sizeof(key), by_low_ip);
}

/* What the agent heeds of @what: see options_header() for what brought it there. */
static u32 heeded(const struct guest *g, u32 what)
{
	const struct tracing_opts as = { .graph = g->agent.graph };
	u32 options = g->agent.header.options;

	what &= site_mask(&as) & ~(u32)CALL_SITE;
	if (!(options & AGENT_OPT_FULL))
		return 0;
	if (!(options & AGENT_OPT_STACKS))
		what &= ~(u32)AGENT_SITE_STACK;
	return options & AGENT_OPT_TASKS ? what : what & ~(u32)AGENT_SITE_NOTRACE;
}

static u32 told(const struct agent_header *h, const struct agent_site *table, u32 ip)
{
	u32 i = h->site_slots ? agent_site_slot(h, ip) : 0;

	for (u32 n = 0; h->site_slots && n < AGENT_SITE_PROBES; n++) {
		if (table[i].ip == ip)
			return table[i].what;
		if (!table[i].ip)
			break;
		i = (i + 1) & (h->site_slots - 1);
	}
	return 0;
}

void options_late_init(struct options_late *l)
{
	l->stacks = l->n_unheeded = 0;
	for (u32 i = 0; i < l->h->site_slots; i++)
		l->stacks +=
			l->table[i].what & AGENT_SITE_STACK && !l->is_dead(l->arg, l->table[i].ip);
}

u32 options_late_site(struct options_late *l, u32 ip, u32 asked, u32 heeded)
{
	struct agent_site s = { .ip = ip, .what = heeded };
	u32 slot;

	if (!l->is_dead(l->arg, ip)) {
		l->n_unheeded += (asked & ~told(l->h, l->table, ip)) != 0;
		return l->h->site_slots;
	}
	if (l->stacks >= l->max_stacks)
		s.what &= ~(u32)AGENT_SITE_STACK;
	if (options_put_late(l->h, l->table, s, l->is_dead, l->arg, &slot))
		s.what = 0;
	l->stacks += (s.what & AGENT_SITE_STACK) != 0;
	l->n_unheeded += (asked & ~s.what) != 0;
	return slot;
}

int options_more_sites(struct guest *g, const u32 *site, size_t n, const struct tracing_opts *opts,
		       size_t *n_unheeded_ret, struct err *err)
{
	const struct agent_header *h = &g->agent.header;
	const struct tracing_opts as = { .graph = g->agent.graph };
	size_t bytes = h->site_slots * sizeof(struct agent_site), at = 0;
	_cleanup_free_ struct agent_site *table = malloc(bytes + 1);
	struct options_late l = { .h = h,
				  .table = table,
				  .is_dead = is_not_armed,
				  .arg = g,
				  .max_stacks = opts ? opts->max_stacks : 0 };
	int rc = 0;

	if (!table)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for call sites");
	if (vm_view_read(g->agent.view, h->sites_off, table, bytes))
		return err_set(err, -ESRCH, ERR_VMM_GONE, 0, "cannot read the agent's memory");
	options_late_init(&l);
	for (size_t i = 0; !rc && i < n; i++) {
		u32 asked = 0, slot;

		/* both lists are in the order of sites */
		while (opts && at < opts->n_sites && opts->sites[at].site < site[i])
			at++;
		if (opts && at < opts->n_sites && opts->sites[at].site == site[i])
			asked = opts->sites[at].what & site_mask(&as) & ~(u32)CALL_SITE;
		slot = options_late_site(&l, (u32)kernel_sites(g->k)[site[i]].ip, asked,
					 heeded(g, asked));
		if (slot != h->site_slots)
			rc = agent_write_header(g, h->sites_off + slot * sizeof(*table),
						&table[slot], sizeof(*table), err);
	}
	*n_unheeded_ret = l.n_unheeded;
	return rc;
}

int options_arm_list(struct guest *g, const u32 *site, size_t n, u32 **ret, size_t *n_ret,
		     struct err *err)
{
	struct guest_agent *a = &g->agent;
	_cleanup_free_ u32 *v = malloc((n + 1) * sizeof(*v));
	u32 what = a->switch_what & ~(u32)AGENT_SITE_HIDDEN;
	int rc = 0;

	if (!v)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for %zu call sites", n);
	if (n)
		memcpy(v, site, n * sizeof(*v));
	if (a->switches) {
		a->switch_hidden = true;
		for (size_t i = 0; i < n; i++)
			a->switch_hidden &= site[i] != a->switch_site;
		if (a->switch_hidden) {
			v[n++] = a->switch_site;
			what |= AGENT_SITE_HIDDEN;
		}
		rc = agent_write_header(g, a->switch_off, &what, sizeof(what), err);
	}
	*ret = no_cleanup_ptr(v);
	*n_ret = n;
	return rc;
}
