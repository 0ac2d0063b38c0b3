// SPDX-License-Identifier: Apache-2.0
/* See test_patcher_task.h. */
#include "test_patcher_task.h"

#include "patcher/interlock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* The linker has these called instead: see CMakeLists.txt. */
int __wrap_guest_check_stays(struct guest *g, struct err *err);
void __wrap_guest_sleep_ns(u64 ns);
bool __wrap_vm_tells_leaving(const struct vm *vm);
int __real_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts);

struct task_state task;

void task_setup(void)
{
	task = (struct task_state){ .cave = KERNEL + 0x3ac0 };
}

struct box *task_box(void)
{
	return (struct box *)(void *)fake_at(BOX, sizeof(struct box));
}

int __wrap_guest_check_stays(struct guest *g, struct err *err)
{
	(void)g;
	return task.leaves ? err_set(err, task.leaves, ERR_GUEST_LEAVES, 0, "it leaves") : 0;
}

bool __wrap_vm_tells_leaving(const struct vm *vm)
{
	(void)vm;
	return task.tells;
}

int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
	int rc = __real_clock_gettime(id, ts);

	ts->tv_sec += task.passed_s;
	return rc;
}

u64 task_again(void)
{
	return interlock_again_addr(task.cave + 192);
}

u64 task_back(void)
{
	return interlock_back_addr(task.cave + 192);
}

bool task_any_leads_here(void)
{
	u64 target;

	for (size_t i = 0; i < N_SITES; i++) {
		if (insn_call_target(fake_site(i), fake_at(fake_site(i), 5), &target) &&
		    target == task.cave)
			return true;
	}
	return false;
}

/* A task comes and runs what is armed. */
void __wrap_guest_sleep_ns(u64 ns)
{
	struct box *box = task_box();

	(void)ns;
	if (task.idle) {
		task.passed_s++;
		return;
	}
	if (box->state == 2 && box->closing == 2) {
		/* as it writes them, nothing leads to the code, and that is still there */
		assert_false(task_any_leads_here());
		assert_true(fake_calls(HOOK, LOCK) && *fake_at(task.cave, 1));
		task.written_back++;
		box->state = 3;
	}
	if (box->state != 1)
		return;
	assert_true(task.n_calls < MAX_CALLS);
	task.call[task.n_calls].fn = box->fn;
	task.call[task.n_calls].armed = task_any_leads_here();
	memcpy(task.call[task.n_calls++].args, box->args, sizeof(box->args));
	if (box->fn == KERNEL + 0x1800)
		fake_pieces[2].executable = false;
	box->ret = 0;
	box->state = 3;
	if (box->fn == task_back()) {
		assert_true(task_any_leads_here());
		assert_int_equal(box->args[0], HOOK);
		box->closing = 1;
		box->state = 2;
	}
}
