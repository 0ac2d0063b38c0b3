// SPDX-License-Identifier: Apache-2.0
/* patcher/follow.c: tasks that are forked, and that end, while the agent does not see it. */
#include "patcher/follow.h"

#include "patcher/agent.h"
#include "patcher/tasks.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define TASKS   0xffff888000000000ull
#define N_TASKS 600u
#define SET_OFF 4096u
#define DEAD    0x10u

/* The linker has these called instead: see CMakeLists.txt. */
int __wrap_guest_read(struct guest *g, u64 addr, void *buf, size_t len, struct err *err);
int __wrap_kernel_btf_offset(const struct kernel *k, const char *type, const char *path, u32 *ret);
int __wrap_tasks_for_each(struct guest *g, bool (*fn)(void *arg, u64 task), void *arg,
			  struct err *err);
int __wrap_guest_pause(struct guest *g, struct err *err);
int __wrap_vm_resume(struct vm *v, struct err *err);
int __wrap_vm_view_read(struct vm_view *view, u64 off, void *buf, size_t len);
int __wrap_vm_view_write(struct vm_view *view, u64 off, const void *buf, size_t len);
int __wrap_agent_write_header(struct guest *g, size_t off, const void *v, size_t n,
			      struct err *err);

struct fake_task {
	u64 parent;
	u32 pid, tgid, exit_state;
	bool listed;
};

static struct {
	struct guest g;
	struct fake_task task[N_TASKS];
	u64 set[AGENT_FOLLOWED_WORDS];
	bool paused;
	void (*at_pause)(void); /* this happens before the next window, once */
	void (*after_walk)(void); /* and this at the end of the next walk */
	u32 n_windows;
} vm;

static void once(void (**what)(void))
{
	void (*fn)(void) = *what;

	*what = NULL;
	if (fn)
		fn();
}

int __wrap_guest_read(struct guest *g, u64 addr, void *buf, size_t len, struct err *err)
{
	(void)g;
	(void)err;
	if (addr < TASKS || addr - TASKS > sizeof(vm.task) - len)
		return -EFAULT;
	memcpy(buf, (const u8 *)vm.task + (addr - TASKS), len);
	return 0;
}

int __wrap_kernel_btf_offset(const struct kernel *k, const char *type, const char *path, u32 *ret)
{
	static const struct {
		const char *path;
		size_t off;
	} known[] = {
		{ "pid", offsetof(struct fake_task, pid) },
		{ "tgid", offsetof(struct fake_task, tgid) },
		{ "exit_state", offsetof(struct fake_task, exit_state) },
		{ "real_parent", offsetof(struct fake_task, parent) },
	};

	(void)k;
	assert_string_equal(type, "task_struct");
	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		*ret = (u32)known[i].off;
		if (!strcmp(path, known[i].path))
			return 0;
	}
	return -ENOENT;
}

int __wrap_tasks_for_each(struct guest *g, bool (*fn)(void *arg, u64 task), void *arg,
			  struct err *err)
{
	(void)g;
	(void)err;
	for (u32 i = 0; i < N_TASKS; i++) {
		if (vm.task[i].listed && !fn(arg, TASKS + i * sizeof(vm.task[0])))
			break;
	}
	once(&vm.after_walk);
	return 0;
}

int __wrap_guest_pause(struct guest *g, struct err *err)
{
	(void)g;
	(void)err;
	once(&vm.at_pause);
	vm.paused = true;
	vm.n_windows++;
	return 0;
}

int __wrap_vm_resume(struct vm *v, struct err *err)
{
	(void)v;
	(void)err;
	vm.paused = false;
	return 0;
}

int __wrap_vm_view_read(struct vm_view *view, u64 off, void *buf, size_t len)
{
	(void)view;
	memcpy(buf, (const u8 *)vm.set + (off - SET_OFF), len);
	return 0;
}

int __wrap_vm_view_write(struct vm_view *view, u64 off, const void *buf, size_t len)
{
	(void)view;
	assert_true(vm.paused);
	memcpy((u8 *)vm.set + (off - SET_OFF), buf, len);
	return 0;
}

int __wrap_agent_write_header(struct guest *g, size_t off, const void *v, size_t n, struct err *err)
{
	(void)g;
	(void)err;
	assert_int_equal(off, SET_OFF);
	memcpy(vm.set, v, n);
	return 0;
}

/* Task @i, pid 1000 + i; with @leader == @i a process of its own. */
static void begin(u32 i, u32 leader, u32 parent)
{
	vm.task[i] = (struct fake_task){ .parent = TASKS + parent * sizeof(vm.task[0]),
					 .pid = 1000 + i,
					 .tgid = 1000 + leader,
					 .listed = true };
}

/* Its release_task(); the agent's part of that is the test's. */
static void end(u32 i)
{
	vm.task[i].exit_state = DEAD;
	vm.task[i].listed = false;
}

static bool is_followed(u32 i)
{
	return vm.set[(1000 + i) / 64] >> ((1000 + i) % 64) & 1;
}

static void agent_follows(u32 i, bool on)
{
	u64 bit = 1ull << ((1000 + i) % 64);

	vm.set[(1000 + i) / 64] = (vm.set[(1000 + i) / 64] & ~bit) | (on ? bit : 0);
}

/* init, and a shell (1) with a thread (2), a child (3) and a stranger (4). */
static int setup(void **state)
{
	static const u32 pid = 1001;
	const struct tracing_opts opts = { .pids = &pid, .n_pids = 1 };
	struct err err = { 0 };

	(void)state;
	memset(&vm, 0, sizeof(vm));
	vm.g.agent.header.followed_off = SET_OFF;
	begin(0, 0, 0);
	begin(1, 1, 0);
	begin(2, 1, 0);
	begin(4, 4, 0);
	assert_int_equal(follow_begin(&vm.g, &opts, &err), 0);
	assert_true(is_followed(1) && is_followed(2) && !is_followed(4));
	begin(3, 3, 1);
	return 0;
}

static void look_again(void)
{
	static const u32 pid = 1001;
	const struct tracing_opts opts = { .pids = &pid, .n_pids = 1 };
	struct err err = { 0 };

	assert_int_equal(follow_again(&vm.g, &opts, &err), 0);
}

static void forked_meanwhile(void **state)
{
	(void)state;
	look_again();
	assert_true(is_followed(1) && is_followed(2) && is_followed(3) && !is_followed(4));
	assert_int_equal(vm.n_windows, 1);
}

static void ended_meanwhile(void **state)
{
	(void)state;
	end(2);
	look_again();
	assert_true(is_followed(1) && is_followed(3));
	assert_false(is_followed(2));
	begin(2, 2, 0); /* another's by now */
	look_again();
	assert_false(is_followed(2));
}

static void three_ends(void)
{
	end(3);
}

static void ended_before_it_was_added(void **state)
{
	(void)state;
	vm.at_pause = three_ends;
	look_again();
	assert_true(is_followed(1) && is_followed(2));
	assert_false(is_followed(3));
}

static void three_is_another(void)
{
	begin(3, 3, 0);
	vm.task[3].pid = 1003 + 64;
}

static void another_task_in_its_place(void **state)
{
	(void)state;
	vm.at_pause = three_is_another;
	look_again();
	assert_false(is_followed(3) || is_followed(3 + 64));
}

/* Forked by 3, seen by the agent, after the walk has passed. */
static void five_begins(void)
{
	begin(5, 5, 3);
	agent_follows(5, true);
}

static void what_the_agent_adds_meanwhile_stays(void **state)
{
	(void)state;
	end(2);
	vm.after_walk = five_begins;
	look_again();
	assert_true(is_followed(5));
	assert_false(is_followed(2));
}

/* 2 has ended, and 3 forks another that gets its pid, which the agent sees, before we drop it. */
static void two_is_a_child(void)
{
	begin(2, 2, 3);
	agent_follows(2, true);
}

static void a_pid_that_is_followed_again_stays(void **state)
{
	(void)state;
	end(2);
	vm.at_pause = two_is_a_child;
	look_again();
	assert_true(is_followed(2));
}

/* Later, when only the set says who is followed. */
static void threads_and_children_by_the_set_alone(void **state)
{
	const struct tracing_opts opts = { 0 };
	struct err err = { 0 };

	(void)state;
	look_again();
	end(2);
	begin(6, 3, 0); /* a thread of the child; its parent is the child's */
	vm.task[6].parent = vm.task[4].parent;
	begin(7, 7, 4);
	assert_int_equal(follow_again(&vm.g, &opts, &err), 0);
	assert_true(is_followed(1) && is_followed(3) && is_followed(6));
	assert_false(is_followed(2) || is_followed(4) || is_followed(7));
}

static void more_than_one_window_takes(void **state)
{
	(void)state;
	for (u32 i = 10; i < N_TASKS; i++)
		begin(i, i, 1);
	look_again();
	for (u32 i = 10; i < N_TASKS; i++)
		assert_true(is_followed(i));
	for (u32 i = 10; i < N_TASKS; i++)
		end(i);
	look_again();
	for (u32 i = 10; i < N_TASKS; i++)
		assert_false(is_followed(i));
	assert_true(is_followed(1) && is_followed(3));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(forked_meanwhile, setup),
		cmocka_unit_test_setup(ended_meanwhile, setup),
		cmocka_unit_test_setup(ended_before_it_was_added, setup),
		cmocka_unit_test_setup(another_task_in_its_place, setup),
		cmocka_unit_test_setup(what_the_agent_adds_meanwhile_stays, setup),
		cmocka_unit_test_setup(a_pid_that_is_followed_again_stays, setup),
		cmocka_unit_test_setup(threads_and_children_by_the_set_alone, setup),
		cmocka_unit_test_setup(more_than_one_window_takes, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
