// SPDX-License-Identifier: Apache-2.0
/* patcher/tasks.c on made-up lists of tasks that change under the walk. */
#include "patcher/tasks.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define BASE    0xffff888000000000ull
#define N_TASKS 8u
#define ALL     0xffu

/* The linker has these called instead: see CMakeLists.txt. */
int __wrap_guest_read(struct guest *g, u64 addr, void *buf, size_t len, struct err *err);
int __wrap_kernel_sym(const struct kernel *k, const char *name, u64 *addr_ret);
int __wrap_kernel_btf_offset(const struct kernel *k, const char *type, const char *path,
			     u32 *off_ret);

struct node {
	u64 next, prev;
};

struct fake_task {
	u64 signal;
	struct node tasks, thread_node;
};

struct fake_signal {
	struct node thread_head;
};

/* task[0] is init_task; a signal_struct for each task, of which threads use that of their leader. */
static struct fake {
	struct fake_task task[N_TASKS];
	struct fake_signal signal[N_TASKS];
	u64 trap; /* at the read of this address */
	void (*meanwhile)(void); /* this happens, once */
} k;

static struct guest guest;
static u32 seen, n_seen;

static u64 addr_of(const void *p)
{
	return BASE + (u64)((const u8 *)p - (const u8 *)&k);
}

static struct node *node_at(u64 addr)
{
	assert_true(addr >= BASE && addr - BASE <= sizeof(k) - sizeof(struct node));
	return (struct node *)(void *)((u8 *)&k + (addr - BASE));
}

int __wrap_guest_read(struct guest *g, u64 addr, void *buf, size_t len, struct err *err)
{
	void (*meanwhile)(void) = k.meanwhile;

	(void)g;
	(void)err;
	if (addr < BASE || addr - BASE > sizeof(k) - len)
		return -EFAULT;
	if (meanwhile && addr == k.trap) {
		k.meanwhile = NULL;
		meanwhile();
	}
	memcpy(buf, (const u8 *)&k + (addr - BASE), len);
	return 0;
}

int __wrap_kernel_sym(const struct kernel *kernel, const char *name, u64 *addr_ret)
{
	(void)kernel;
	assert_string_equal(name, "init_task");
	*addr_ret = addr_of(&k.task[0]);
	return 0;
}

int __wrap_kernel_btf_offset(const struct kernel *kernel, const char *type, const char *path,
			     u32 *off_ret)
{
	static const struct {
		const char *path;
		size_t off;
	} known[] = {
		{ "tasks", offsetof(struct fake_task, tasks) },
		{ "thread_node", offsetof(struct fake_task, thread_node) },
		{ "signal", offsetof(struct fake_task, signal) },
		{ "thread_head", offsetof(struct fake_signal, thread_head) },
		{ "next", offsetof(struct node, next) },
		{ "prev", offsetof(struct node, prev) },
	};

	(void)kernel;
	(void)type;
	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (!strcmp(path, known[i].path)) {
			*off_ret = (u32)known[i].off;
			return 0;
		}
	}
	return -ENOENT;
}

static void add_tail(struct node *n, struct node *head)
{
	n->next = addr_of(head);
	n->prev = head->prev;
	node_at(n->prev)->next = addr_of(n);
	head->prev = addr_of(n);
}

/* As list_del_rcu(): it leads on. */
static void unlink_node(struct node *n)
{
	node_at(n->next)->prev = n->prev;
	node_at(n->prev)->next = n->next;
	n->prev = 0xdead000000000122ull;
}

/* @i as a process of its own, at the end. */
static void begin_process(u32 i)
{
	struct node *head = &k.signal[i].thread_head;

	head->next = head->prev = addr_of(head);
	k.task[i].signal = addr_of(&k.signal[i]);
	add_tail(&k.task[i].thread_node, head);
	if (i)
		add_tail(&k.task[i].tasks, &k.task[0].tasks);
}

static void begin_thread(u32 i, u32 leader)
{
	k.task[i].signal = addr_of(&k.signal[leader]);
	add_tail(&k.task[i].thread_node, &k.signal[leader].thread_head);
}

/* init and six processes, the last of them with a second thread. */
static int setup(void **state)
{
	(void)state;
	memset(&k, 0, sizeof(k));
	k.task[0].tasks.next = k.task[0].tasks.prev = addr_of(&k.task[0].tasks);
	for (u32 i = 0; i < N_TASKS - 1; i++)
		begin_process(i);
	begin_thread(7, 6);
	seen = n_seen = 0;
	return 0;
}

static bool see(void *arg, u64 task)
{
	u64 i = (task - addr_of(&k.task[0])) / sizeof(k.task[0]);

	assert_true(i < N_TASKS);
	seen |= 1u << i;
	n_seen++;
	return !arg || i != *(u32 *)arg;
}

static void each_once(void **state)
{
	u32 stop = 3;

	(void)state;
	assert_int_equal(tasks_for_each(&guest, see, NULL, NULL), 0);
	assert_int_equal(seen, ALL);
	assert_int_equal(n_seen, N_TASKS);
	seen = n_seen = 0;
	assert_int_equal(tasks_for_each(&guest, see, &stop, NULL), 0);
	assert_int_equal(seen, 0xf);
}

static void end_and_begin(void)
{
	unlink_node(&k.task[2].tasks);
	begin_process(2);
}

/* The one that the walk is at ends, and is a new one at the list's end: those behind it are seen all the same. */
static void a_task_that_is_another_by_now(void **state)
{
	(void)state;
	k.meanwhile = end_and_begin;
	k.trap = addr_of(&k.task[2].signal);
	assert_int_equal(tasks_for_each(&guest, see, NULL, NULL), 0);
	assert_int_equal(seen, ALL);
	setup(state);
	k.meanwhile = end_and_begin;
	k.trap = addr_of(&k.task[2].tasks.next);
	assert_int_equal(tasks_for_each(&guest, see, NULL, NULL), 0);
	assert_int_equal(seen, ALL);
	setup(state);
	k.meanwhile = end_and_begin;
	k.trap = addr_of(&k.task[2].tasks.prev);
	assert_int_equal(tasks_for_each(&guest, see, NULL, NULL), 0);
	assert_int_equal(seen, ALL);
}

/* A thread of process 6 ends and is one of process 1, whose list has another head. */
static void move_thread(void)
{
	unlink_node(&k.task[6].thread_node);
	begin_thread(6, 1);
	unlink_node(&k.task[6].tasks);
	add_tail(&k.task[7].tasks, &k.task[0].tasks);
}

static void a_thread_that_is_in_another_process(void **state)
{
	(void)state;
	k.meanwhile = move_thread;
	k.trap = addr_of(&k.task[6].thread_node.next);
	assert_int_equal(tasks_for_each(&guest, see, NULL, NULL), 0);
	assert_int_equal(seen, ALL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(each_once, setup),
		cmocka_unit_test_setup(a_task_that_is_another_by_now, setup),
		cmocka_unit_test_setup(a_thread_that_is_in_another_process, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
