// SPDX-License-Identifier: Apache-2.0
/* Which sites a trace of system calls arms. See sys_arm.h. */
#define LOG_PREFIX "syscalls"
#include "tracers/sys_arm.h"

#include "base/log.h"
#include "patcher/insn_x86.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NONE          AGENT_CAPTURE_NONE
#define WRAPPER_BYTES 256u /* at most, of a function that only hands on */
#define SITE_WITHIN   16u /* bytes of a function's start, where its call site is */

/* A member of a struct of the guest's. */
struct member {
	const char *type, *path;
};

/*
 * Linux v6.1 and v6.12. Of @group the first one that there is is enough; the others are all armed, as
 * which of them is called depends on what the compiler inlined. @type: for calls that have an
 * argument of this type; NULL: whatever it has.
 */
static const struct source {
	const char *function;
	const char *type; /* of program.call, if that says so */
	struct sys_program program;
	struct agent_capture capture;
	u32 group; /* 0: none */
	struct member ptr, len, key;
	const char *
		hands_on; /* where all that it returns is this one's, that one is enough; or a part of that */
} sources[] = {
	/* fs/namei.c: struct filename *; its name lies in the same allocation, or one of its own */
	{ .function = "getname_flags",
	  .hands_on = "getname_flags",
	  .type = "const char *",
	  .program = { NULL, NULL, -1, CAPTURE_STRING },
	  .capture = { .flags = AGENT_CAPTURE_RETURN | AGENT_CAPTURE_STRING,
		       .key = NONE,
		       .len = NONE },
	  .ptr = { "filename", "name" },
	  .key = { "filename", "uptr" } },
	{ .function = "getname",
	  .hands_on = "getname_flags",
	  .type = "const char *",
	  .program = { NULL, NULL, -1, CAPTURE_STRING },
	  .capture = { .flags = AGENT_CAPTURE_RETURN | AGENT_CAPTURE_STRING,
		       .key = NONE,
		       .len = NONE },
	  .ptr = { "filename", "name" },
	  .key = { "filename", "uptr" } },
	/*
	 * v7.2 fs/namei.c: what getname_flags() and its likes call, with the user's pointer first. struct
	 * filename does not keep that any more.
	 */
	{ .function = "do_getname",
	  .type = "const char *",
	  .program = { NULL, NULL, -1, CAPTURE_STRING, .low_key = true },
	  .capture = { .flags = AGENT_CAPTURE_RETURN | AGENT_CAPTURE_STRING,
		       .key = 0,
		       .len = NONE },
	  .ptr = { "filename", "name" } },
	/* security/security.c: (struct socket *, struct sockaddr *address, int addrlen) */
	{ .function = "security_socket_connect",
	  .type = "struct sockaddr *",
	  .program = { NULL, "connect", 1, CAPTURE_SOCKADDR },
	  .capture = { .base = 1, .len = 2, .key = NONE },
	  .group = 1 },
	/* net/socket.c: (struct file *, struct sockaddr_storage *, int addrlen, ...) */
	{ .function = "__sys_connect_file",
	  .type = "struct sockaddr *",
	  .program = { NULL, "connect", 1, CAPTURE_SOCKADDR },
	  .capture = { .base = 1, .len = 2, .key = NONE },
	  .group = 1 },
	{ .function = "security_socket_bind",
	  .type = "struct sockaddr *",
	  .program = { NULL, "bind", 1, CAPTURE_SOCKADDR },
	  .capture = { .base = 1, .len = 2, .key = NONE } },
	/* (struct socket *, struct msghdr *, int size): sendto's address, copied */
	{ .function = "security_socket_sendmsg",
	  .type = "struct sockaddr *",
	  .program = { NULL, "sendto", 4, CAPTURE_SOCKADDR },
	  .capture = { .base = 1, .len = NONE, .key = NONE },
	  .ptr = { "msghdr", "msg_name" },
	  .len = { "msghdr", "msg_namelen" } },
	/* net/socket.c: (struct sockaddr_storage *kaddr, int klen, void __user *uaddr, int *ulen) */
	{ .function = "move_addr_to_user",
	  .type = "struct sockaddr *",
	  .program = { NULL, NULL, -1, CAPTURE_SOCKADDR },
	  .capture = { .base = 0, .len = 1, .key = 2 } },
	/* kernel/sys.c: what prctl(PR_SET_NAME) copied: (struct task_struct *, const char *buf, bool) */
	{ .function = "__set_task_comm",
	  .program = { NULL, "prctl", 1, CAPTURE_STRING },
	  .capture = { .flags = AGENT_CAPTURE_STRING,
		       .max_bytes = 16,
		       .base = 1,
		       .len = NONE,
		       .key = NONE } },
	/* kernel/signal.c: (int sig, struct k_sigaction *act, struct k_sigaction *oact); laid out as user space's */
	{ .function = "do_sigaction",
	  .program = { NULL, "rt_sigaction", 1, CAPTURE_BYTES },
	  .capture = { .max_bytes = 32, .base = 1, .len = NONE, .key = NONE } },
	/* fs/namespace.c: (const char *dev_name, struct path *, const char *type_page, ...) */
	{ .function = "path_mount",
	  .program = { NULL, "mount", 0, CAPTURE_STRING },
	  .capture = { .flags = AGENT_CAPTURE_STRING, .base = 0, .len = NONE, .key = NONE } },
	/* (const char *dev_name, const struct path *, const char *type, ...) */
	{ .function = "security_sb_mount",
	  .program = { NULL, "mount", 2, CAPTURE_STRING },
	  .capture = { .flags = AGENT_CAPTURE_STRING, .base = 2, .len = NONE, .key = NONE } },
};

_Static_assert(ARRAY_SIZE(sources) <= AGENT_MAX_CAPTURES, "sources");

void sys_arm_deinit(struct sys_arm *a)
{
	choice_deinit(&a->choice);
	*a = (struct sys_arm){ 0 };
}

/* A site is armed once: a function's name is one source's alone. */
static void add_site(struct sys_arm *a, u32 site, u32 what)
{
	a->choice.site[a->choice.n++] = site;
	a->choice.what[a->choice.n_what++] = (struct tracing_site){ site, what };
}

static u32 handler_what(const struct syscall_entry *e)
{
	u32 n = e->described ? MIN(e->n_args, SYSCALL_ARGS) : SYSCALL_ARGS;
	u32 what = AGENT_SITE_SYSCALL | AGENT_SITE_RETVAL | n << AGENT_SITE_ARGS_SHIFT;

	if (e->abi == SYSCALL_ABI_32)
		what |= AGENT_SITE_SYSCALL32;
	/* the table knows it of the others */
	if (e->nr < 0 || e->n_numbers > 1 || e->shared)
		what |= AGENT_SITE_NR;
	return what;
}

static void choose_handlers(const struct kernel *k, const struct syscall_table *t,
			    const struct syscall_filter *wanted, struct sys_arm *a)
{
	const struct ftrace_site *sites = kernel_sites(k);
	size_t n = kernel_site_count(k);

	for (size_t i = 0; i < n; i++) {
		const struct syscall_entry *e = NULL;

		/* by address: a handler without arguments has several names */
		if (!sites[i].module)
			e = syscall_table_at(t, sites[i].ip);
		if (!e || sites[i].ip - e->addr >= SITE_WITHIN ||
		    !syscall_filter_name(wanted, e->name))
			continue;
		if (sites[i].state == SITE_OK)
			add_site(a, (u32)i, handler_what(e));
		else
			a->choice.n_skipped++;
	}
	a->n_calls = a->choice.n;
}

/* Has any of the calls that are armed an argument that @s is about? */
static bool is_needed(const struct kernel *k, const struct syscall_table *t,
		      const struct sys_arm *a, const struct source *s)
{
	for (size_t i = 0; i < a->n_calls; i++) {
		const struct syscall_entry *e =
			syscall_table_at(t, kernel_sites(k)[a->choice.site[i]].ip);

		if (!e || (s->program.call && strcmp(s->program.call, e->name) != 0))
			continue;
		if (!e->described || !s->type)
			return true;
		for (u32 j = 0; j < e->n_args; j++) {
			if (!strcmp(e->args[j].type, s->type))
				return true;
		}
	}
	return false;
}

static int member(const struct kernel *k, const struct member *m, s32 *ret)
{
	u32 off;
	int rc;

	*ret = -1;
	if (!m->type)
		return 0;
	rc = kernel_btf_offset(k, m->type, m->path, &off);
	if (!rc)
		*ret = (s32)off;
	return rc;
}

/*
 * Is it the function @name, or a part of it that the compiler made one of its own? The latter returns the
 * same; its arguments may be others.
 */
static bool is_function(const char *site, const char *name, bool parts)
{
	static const char *const suffixes[] = { ".part.", ".isra.", ".constprop." };
	size_t n = strlen(name);

	if (strncmp(site, name, n) != 0)
		return false;
	for (size_t i = 0; parts && i < ARRAY_SIZE(suffixes); i++) {
		if (!strncmp(site + n, suffixes[i], strlen(suffixes[i])))
			return true;
	}
	return !site[n];
}

struct told_by {
	const struct kernel *k;
	const struct source *s;
	bool found;
};

static bool is_traceable(const struct kernel *k, u64 addr)
{
	const struct ftrace_site *sites = kernel_sites(k);
	size_t n = kernel_site_count(k);

	for (size_t i = 0; i < n; i++) {
		if (sites[i].ip - addr < SITE_WITHIN)
			return sites[i].state == SITE_OK;
	}
	return false;
}

/*
 * Where a function that only hands on may lead. What __audit_reusename() finds is what the other one has
 * returned before, in the same call, for the same pointer.
 */
static bool may_hand_on(void *arg, u64 target)
{
	struct told_by *t = arg;
	struct kernel_sym sym;

	if (!kernel_sym_at(t->k, target, &sym) || sym.addr != target || sym.module || !sym.name)
		return false;
	if (is_function(sym.name, t->s->hands_on, true) && is_traceable(t->k, target)) {
		t->found = true;
		return true;
	}
	return !strcmp(sym.name, "__audit_reusename") || !strcmp(sym.name, "__x86_return_thunk");
}

/*
 * Does the function at @ip only hand on what a source that is armed returns? Linux v6.1 and v6.12 fs/namei.c
 * getname(), be it a jump to getname_flags(), or that but for what the compiler made a part of its own.
 */
static bool is_told_by(const struct kernel *k, const struct sym_mem *mem, const struct source *s,
		       u64 ip)
{
	struct told_by t = { k, s, false };
	struct kernel_sym sym;
	u8 code[WRAPPER_BYTES];

	return s->hands_on && kernel_sym_at(k, ip, &sym) && sym.name &&
	       !strcmp(sym.name, s->function) && sym.size_bytes <= sizeof(code) &&
	       !mem->read(mem->arg, gva(sym.addr), code, sym.size_bytes) &&
	       insn_leads_only(sym.addr, code, sym.size_bytes, may_hand_on, &t) && t.found;
}

/* Those that hand on are as good as armed. */
static size_t arm_function(const struct kernel *k, const struct sym_mem *mem, struct sys_arm *a,
			   const struct source *s)
{
	u32 number = (u32)(s - sources);
	const struct ftrace_site *sites = kernel_sites(k);
	size_t n = kernel_site_count(k), armed = 0;

	for (u32 i = 0; i < n; i++) {
		if (sites[i].module || !sites[i].name || sites[i].state != SITE_OK ||
		    !is_function(sites[i].name, s->function,
				 s->capture.flags & AGENT_CAPTURE_RETURN))
			continue;
		if (!is_told_by(k, mem, s, sites[i].ip))
			add_site(a, i, (number + 1) << AGENT_SITE_CAPTURE_SHIFT);
		armed++;
	}
	return armed;
}

/*
 * All programs, whether this trace needs them or not: a number must mean the same in every trace of a
 * guest, as a task may be preempted in the agent from one trace into the next. Where this kernel has not what
 * the program reads it reads nothing.
 */
static void number_sources(const struct kernel *k, struct sys_arm *a)
{
	for (size_t i = 0; i < ARRAY_SIZE(sources); i++) {
		const struct source *s = &sources[i];
		struct agent_capture c = s->capture;

		bool there = !member(k, &s->ptr, &c.ptr_at) && !member(k, &s->len, &c.len_at) &&
			     !member(k, &s->key, &c.key_at);

		a->there |= (u32)there << i;
		if (!c.max_bytes)
			c.max_bytes = c.flags & AGENT_CAPTURE_STRING ? AGENT_STRING_MAX
								     : AGENT_CAPTURE_MAX;
		if (!there)
			c = (struct agent_capture){
				.len = NONE, .key = NONE, .ptr_at = -1, .len_at = -1, .key_at = -1
			};
		a->captures[i] = c;
		a->programs[i] = s->program;
		a->programs[i].function = s->function;
	}
	a->n_programs = ARRAY_SIZE(sources);
}

void sys_arm_copies(struct sys_arm *a, const struct kernel *k, const struct sym_mem *mem,
		    const struct syscall_table *t)
{
	u32 groups = 0;

	for (size_t i = 0; i < ARRAY_SIZE(sources); i++) {
		const struct source *s = &sources[i];

		if ((s->group && groups & 1u << s->group) || !is_needed(k, t, a, s))
			continue;
		if (a->there >> i & 1 && arm_function(k, mem, a, s)) {
			groups |= s->group ? 1u << s->group : 0;
			a->armed |= 1u << i;
		} else {
			log_info("%s: not captured, this kernel has it not, or not traceable",
				 s->function);
		}
	}
}

int sys_arm_choose(const struct kernel *k, const struct syscall_table *t,
		   const struct syscall_filter *wanted, struct sys_arm *ret, struct err *err)
{
	size_t n = 2 * kernel_site_count(k); /* handlers, and captures */

	*ret = (struct sys_arm){ 0 };
	ret->choice.site = calloc(n, sizeof(*ret->choice.site));
	ret->choice.what = calloc(n, sizeof(*ret->choice.what));
	if (!ret->choice.site || !ret->choice.what) {
		sys_arm_deinit(ret);
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for %zu calls", n);
	}
	choose_handlers(k, t, wanted, ret);
	if (!ret->n_calls) {
		sys_arm_deinit(ret);
		return err_set(err, -ENOENT, ERR_FILTER_EMPTY, 0,
			       "no system call of this guest is asked for, or none can be traced");
	}
	number_sources(k, ret);
	return 0;
}

/* -EBUSY: the guest traces it itself */
static int find_kernel_site(const struct kernel *k, const char *name, u32 *ret, struct err *err)
{
	const struct ftrace_site *sites = kernel_sites(k);
	size_t n = kernel_site_count(k);
	u32 i = 0;

	while (i < n && (sites[i].module || sites[i].state == SITE_DISABLED || !sites[i].name ||
			 strcmp(sites[i].name, name) != 0))
		i++;
	*ret = i;
	if (i == n)
		return err_set(err, -ENOENT, ERR_FILTER_EMPTY, 0,
			       "forks cannot be followed: this kernel's %s() cannot be traced",
			       name);
	if (sites[i].state == SITE_IN_USE)
		return err_set(
			err, -EBUSY, ERR_CONFLICT, sites[i].ip,
			"forks cannot be followed: %s() is in use by the guest's own tracing",
			name);
	return 0;
}

int sys_arm_follow(struct sys_arm *a, const struct kernel *k, struct err *err)
{
	static const struct {
		const char *function;
		u32 what;
	} wanted[] = { { "wake_up_new_task", AGENT_SITE_FORK },
		       { "release_task", AGENT_SITE_EXIT } };

	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		u32 site;
		int rc = find_kernel_site(k, wanted[i].function, &site, err);

		if (rc)
			return rc;
		add_site(a, site, wanted[i].what);
	}
	return 0;
}

/* Is what the kernel's copy tells of this argument all that can be told? An address may be refused before. */
static bool is_copied(void *arg, const struct syscall_entry *e, const struct plan_step *s)
{
	const struct sys_arm *a = arg;

	if (s->at_exit || s->what == CAPTURE_SOCKADDR || s->if_arg != PLAN_ANY)
		return false;
	for (size_t i = 0; i < a->n_programs; i++) {
		const struct sys_program *p = &a->programs[i];

		if (!(a->armed >> i & 1) || p->what != s->what)
			continue;
		if (p->call ? !strcmp(p->call, e->name) && p->arg == s->arg : s->kernel != NULL)
			return true;
	}
	return false;
}

void sys_arm_user(struct sys_arm *a, const struct kernel *k, const struct syscall_table *t,
		  const struct plan_opts *o, struct sys_user *ret)
{
	ret->n = ret->n_left_out = 0;
	for (size_t i = 0; i < a->n_calls; i++) {
		const struct syscall_entry *e =
			syscall_table_at(t, kernel_sites(k)[a->choice.site[i]].ip);
		u32 first = e ? sys_user_add(ret, e, o, is_copied, a) : 0;

		a->choice.what[i].what |= first << AGENT_SITE_USER_SHIFT;
	}
	if (ret->n_left_out)
		log_warn("%u calls have no room for what they point to", ret->n_left_out);
}
