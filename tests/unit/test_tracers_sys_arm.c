// SPDX-License-Identifier: Apache-2.0
/* Which sites a trace of system calls arms, in a made-up kernel. */
#include "tracers/sys_arm.h"

#include "patcher/insn_x86.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FILES                                      \
	{                                          \
		{ "int", "dfd" },                  \
		{                                  \
			"const char *", "filename" \
		}                                  \
	}
#define SOCKETS                                                        \
	{                                                              \
		{ "int", "fd" }, { "struct sockaddr *", "uservaddr" }, \
		{                                                      \
			"int", "addrlen"                               \
		}                                                      \
	}

static const struct syscall_entry entries[] = {
	{ .name = "openat",
	  .addr = 0x1000,
	  .nr = 257,
	  .n_numbers = 1,
	  .described = true,
	  .n_args = 2,
	  .args = FILES },
	{ .name = "connect",
	  .addr = 0x1100,
	  .nr = 42,
	  .n_numbers = 1,
	  .described = true,
	  .n_args = 3,
	  .args = SOCKETS },
	{ .name = "getppid",
	  .addr = 0x1200,
	  .nr = 110,
	  .n_numbers = 1,
	  .described = true,
	  .shared = true },
	{ .name = "openat", .addr = 0x1300, .nr = -1, .abi = SYSCALL_ABI_32 },
	{ .name = "busy", .addr = 0x1400, .nr = 5, .n_numbers = 1, .described = true },
};

static struct ftrace_site sites[] = {
	{ .ip = 0x1004, .name = "__x64_sys_openat" },
	{ .ip = 0x1104, .name = "__x64_sys_connect" },
	{ .ip = 0x1204, .name = "__do_sys_getppid" }, /* one of its names */
	{ .ip = 0x1304, .name = "__ia32_compat_sys_openat" },
	{ .ip = 0x1404, .name = "__x64_sys_busy", .state = SITE_IN_USE },
	{ .ip = 0x1050, .name = "inside_openat" }, /* too far in to be its own site */
	{ .ip = 0x2000, .name = "getname" },
	{ .ip = 0x2100, .name = "getname_flags" },
	{ .ip = 0x2200, .name = "getname_flags.part.0" },
	{ .ip = 0x2300, .name = "getname_kernel" },
	{ .ip = 0x2400, .name = "security_socket_connect" },
	{ .ip = 0x2500, .name = "__sys_connect_file" }, /* the same address again */
	{ .ip = 0x2600, .name = "getname", .module = "evil" },
	{ .ip = 0x2700, .name = "security_socket_bind.isra.0" }, /* its arguments may be others */
	{ .ip = 0x2800, .name = "wake_up_new_task", .module = "evil" },
	{ .ip = 0x2900, .name = "wake_up_new_task" },
	{ .ip = 0x2a00, .name = "release_task" },
};
#define WAKE_UP_NEW_TASK (ARRAY_SIZE(sites) - 2)
#define RELEASE_TASK     (ARRAY_SIZE(sites) - 1)

static const char *wanted;
static bool has_uptr;
/* What getname() and getname_flags() are: see insn_leads_only() below. */
static enum {
	BY_THEMSELVES,
	WRAPPER,
	SPLIT,
	SPLIT_AND_MORE
} getnames;

#define REUSE   0x3000
#define STRANGE 0x3100

/* Each function begins four bytes before its call site. */
bool kernel_sym_at(const struct kernel *k, u64 addr, struct kernel_sym *ret)
{
	(void)k;
	*ret = (struct kernel_sym){ .addr = addr, .size_bytes = 32 };
	if (addr == REUSE || addr == STRANGE) {
		ret->name = addr == REUSE ? "__audit_reusename" : "strange";
		return true;
	}
	for (size_t i = 0; i < ARRAY_SIZE(sites); i++) {
		if (addr - (sites[i].ip - 4) >= ret->size_bytes)
			continue;
		ret->addr = sites[i].ip - 4;
		ret->name = sites[i].name;
		ret->module = sites[i].module;
		return true;
	}
	return false;
}

static int read_text(void *arg, gva_t addr, void *buf, size_t len)
{
	(void)arg;
	assert_true((addr.v == 0x1ffc || addr.v == 0x20fc) && len == 32);
	memset(buf, 0, len);
	return 0;
}

static const struct sym_mem mem = { .read = read_text };

size_t kernel_site_count(const struct kernel *k)
{
	(void)k;
	return ARRAY_SIZE(sites);
}

const struct ftrace_site *kernel_sites(const struct kernel *k)
{
	(void)k;
	return sites;
}

int kernel_btf_offset(const struct kernel *k, const char *type, const char *path, u32 *off_ret)
{
	(void)k;
	if (strcmp(type, "filename") != 0 || (!has_uptr && !strcmp(path, "uptr")))
		return -ENOENT;
	*off_ret = !strcmp(path, "name") ? 16 : 40;
	return 0;
}

const struct syscall_entry *syscall_table_at(const struct syscall_table *t, u64 addr)
{
	(void)t;
	for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
		if (addr - entries[i].addr < 0x100)
			return &entries[i];
	}
	return NULL;
}

bool syscall_filter_name(const struct syscall_filter *f, const char *name)
{
	(void)f;
	return !wanted || !strcmp(wanted, name);
}

/* The program's memory: each call that is not left to the kernel's copy has two steps of its own. */
u32 sys_user_add(struct sys_user *u, const struct syscall_entry *e, const struct plan_opts *o,
		 bool (*leave_out)(void *arg, const struct syscall_entry *e,
				   const struct plan_step *s),
		 void *arg)
{
	const struct plan_step path = {
		.arg = 1, .what = CAPTURE_STRING, .if_arg = PLAN_ANY, .kernel = "getname_flags"
	};
	const struct plan_step address = { .arg = 1, .what = CAPTURE_SOCKADDR, .if_arg = PLAN_ANY };

	(void)o;
	if (leave_out(arg, e,
		      e->abi == SYSCALL_ABI_64 && !strcmp(e->name, "connect") ? &address : &path))
		return 0;
	u->n += 2;
	return u->n - 1;
}

void choice_deinit(struct choice *c)
{
	free(c->site);
	free(c->what);
}

bool insn_leads_only(u64 ip, const u8 *code, size_t len, bool (*may)(void *arg, u64 target),
		     void *arg)
{
	assert_true(code && len == 32);
	switch (getnames) {
	case WRAPPER: /* getname() is a jump; the other one does all */
		return ip == 0x1ffc ? may(arg, 0x20fc) : may(arg, STRANGE);
	case SPLIT:
		return may(arg, REUSE) && may(arg, 0x21fc);
	case SPLIT_AND_MORE:
		return may(arg, REUSE) && may(arg, 0x21fc) && may(arg, STRANGE);
	default: /* nothing of ours: as one whose all is what was found before */
		return may(arg, REUSE);
	}
}

static struct sys_arm arm;

static u32 what_of(const char *name)
{
	for (size_t i = 0; i < arm.choice.n; i++) {
		assert_int_equal(arm.choice.what[i].site, arm.choice.site[i]);
		if (!strcmp(sites[arm.choice.site[i]].name, name) &&
		    !sites[arm.choice.site[i]].module)
			return arm.choice.what[i].what;
	}
	return 0;
}

static void choose(const char *name)
{
	wanted = name;
	assert_int_equal(sys_arm_choose(NULL, NULL, NULL, &arm, NULL), 0);
	sys_arm_copies(&arm, NULL, &mem, NULL);
}

static const char *program_of(const char *site)
{
	u32 number = what_of(site) >> AGENT_SITE_CAPTURE_SHIFT & AGENT_SITE_CAPTURE_MASK;

	return number ? arm.programs[number - 1].function : "";
}

/* A program's number says the same in every trace, whatever is asked for. */
static void numbers(void **state)
{
	struct agent_capture first[AGENT_MAX_CAPTURES];
	const char *names[AGENT_MAX_CAPTURES];
	size_t n;

	(void)state;
	has_uptr = true;
	choose(NULL);
	n = arm.n_programs;
	assert_true(n > 3 && n <= AGENT_MAX_CAPTURES);
	memcpy(first, arm.captures, sizeof(first));
	for (size_t i = 0; i < n; i++)
		names[i] = arm.programs[i].function;
	sys_arm_deinit(&arm);
	choose("connect");
	assert_int_equal(arm.n_programs, n);
	assert_memory_equal(arm.captures, first, n * sizeof(*first));
	for (size_t i = 0; i < n; i++)
		assert_string_equal(arm.programs[i].function, names[i]);
	sys_arm_deinit(&arm);
}

static void all(void **state)
{
	const u32 call = AGENT_SITE_SYSCALL | AGENT_SITE_RETVAL;

	(void)state;
	has_uptr = true;
	choose(NULL);
	assert_int_equal(arm.n_calls, 4);
	assert_int_equal(arm.choice.n_skipped, 1);
	assert_int_equal(what_of("__x64_sys_openat"), call | 2 << AGENT_SITE_ARGS_SHIFT);
	assert_int_equal(what_of("__x64_sys_connect"), call | 3 << AGENT_SITE_ARGS_SHIFT);
	assert_int_equal(what_of("__do_sys_getppid"), call | AGENT_SITE_NR);
	assert_int_equal(what_of("__ia32_compat_sys_openat"),
			 call | AGENT_SITE_NR | AGENT_SITE_SYSCALL32 | 6 << AGENT_SITE_ARGS_SHIFT);
	assert_string_equal(program_of("getname"), "getname");
	assert_string_equal(program_of("getname_flags"), "getname_flags");
	assert_string_equal(program_of("getname_flags.part.0"), "getname_flags");
	assert_string_equal(program_of("security_socket_connect"), "security_socket_connect");
	assert_int_equal(what_of("__sys_connect_file") | what_of("getname_kernel") |
				 what_of("security_socket_bind.isra.0") | what_of("inside_openat"),
			 0);
	assert_int_equal(arm.choice.n, 8);
	assert_true(arm.captures[0].flags == (AGENT_CAPTURE_RETURN | AGENT_CAPTURE_STRING));
	assert_true(arm.captures[0].ptr_at == 16 && arm.captures[0].key_at == 40 &&
		    arm.captures[0].len_at < 0);
	sys_arm_deinit(&arm);
}

/* A path is recorded once where one function only hands on what the other returns. */
static void once(void **state)
{
	(void)state;
	has_uptr = true;
	getnames = WRAPPER;
	choose("openat");
	assert_string_equal(program_of("getname_flags"), "getname_flags");
	assert_int_equal(what_of("getname"), 0);
	sys_arm_deinit(&arm);
	getnames = SPLIT;
	choose("openat");
	assert_string_equal(program_of("getname_flags.part.0"), "getname_flags");
	assert_int_equal(what_of("getname") | what_of("getname_flags"), 0);
	assert_int_equal(arm.armed & 3, 3);
	sys_arm_deinit(&arm);
	getnames = SPLIT_AND_MORE;
	choose("openat");
	assert_string_equal(program_of("getname"), "getname");
	assert_string_equal(program_of("getname_flags"), "getname_flags");
	sys_arm_deinit(&arm);
	/* what it hands on cannot be traced */
	getnames = SPLIT;
	sites[8].state = SITE_IN_USE;
	choose("openat");
	assert_string_equal(program_of("getname"), "getname");
	assert_string_equal(program_of("getname_flags"), "getname_flags");
	sites[8].state = SITE_OK;
	getnames = BY_THEMSELVES;
	sys_arm_deinit(&arm);
}

/* Nothing is armed for calls that nobody asked for. */
static void few(void **state)
{
	struct err err = { 0 };

	(void)state;
	has_uptr = true;
	choose("getppid");
	assert_int_equal(arm.choice.n, 1);
	sys_arm_deinit(&arm);
	choose("connect");
	assert_int_equal(arm.choice.n, 2);
	sys_arm_deinit(&arm);
	wanted = "busy";
	assert_int_equal(sys_arm_choose(NULL, NULL, NULL, &arm, &err), -ENOENT);
	assert_int_equal(err.code, ERR_FILTER_EMPTY);
}

/* A kernel whose struct is another one: calls, without their paths. */
static void no_member(void **state)
{
	(void)state;
	has_uptr = false;
	choose(NULL);
	assert_int_equal(arm.n_calls, 4);
	assert_int_equal(what_of("getname"), 0);
	assert_int_equal(arm.captures[0].max_bytes, 0);
	assert_true(arm.captures[0].ptr_at < 0 && arm.captures[0].key_at < 0);
	sys_arm_deinit(&arm);
}

/* Of a path the kernel's copy is enough; of an address it is not, as it may be refused before. */
static void program_memory(void **state)
{
	static struct sys_user user;

	(void)state;
	has_uptr = true;
	choose(NULL);
	sys_arm_user(&arm, NULL, NULL, &(struct plan_opts){ 0 }, &user);
	assert_int_equal(what_of("__x64_sys_openat") >> AGENT_SITE_USER_SHIFT, 0);
	assert_int_equal(what_of("__x64_sys_connect") >> AGENT_SITE_USER_SHIFT, 1);
	assert_int_equal(user.n, 2);
	sys_arm_deinit(&arm);
	has_uptr = false; /* there is no copy: the program's own memory */
	choose("openat");
	sys_arm_user(&arm, NULL, NULL, &(struct plan_opts){ 0 }, &user);
	assert_int_equal(what_of("__x64_sys_openat") >> AGENT_SITE_USER_SHIFT, 1);
	assert_int_equal(user.n, 4);
	sys_arm_deinit(&arm);
}

static void followed(void **state)
{
	struct ftrace_site *exits = &sites[RELEASE_TASK];
	struct err err = { 0 };
	size_t n;

	(void)state;
	choose("openat");
	n = arm.choice.n_what;
	assert_int_equal(sys_arm_follow(&arm, NULL, &err), 0);
	assert_int_equal(arm.choice.n_what, n + 2);
	assert_int_equal(arm.choice.what[n].site, WAKE_UP_NEW_TASK);
	assert_int_equal(arm.choice.what[n].what, AGENT_SITE_FORK);
	assert_int_equal(arm.choice.what[n + 1].site, RELEASE_TASK);
	assert_int_equal(arm.choice.what[n + 1].what, AGENT_SITE_EXIT);
	exits->state = SITE_IN_USE;
	assert_int_equal(sys_arm_follow(&arm, NULL, &err), -EBUSY);
	assert_int_equal(err.code, ERR_CONFLICT);
	assert_non_null(strstr(err.msg, "release_task() is in use by the guest's own tracing"));
	exits->state = SITE_DISABLED;
	assert_int_equal(sys_arm_follow(&arm, NULL, &err), -ENOENT);
	assert_int_equal(err.code, ERR_FILTER_EMPTY);
	exits->state = SITE_OK;
	sys_arm_deinit(&arm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers),   cmocka_unit_test(all),
		cmocka_unit_test(few),       cmocka_unit_test(once),
		cmocka_unit_test(no_member), cmocka_unit_test(program_memory),
		cmocka_unit_test(followed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
