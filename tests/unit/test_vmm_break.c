// SPDX-License-Identifier: Apache-2.0
/* vmm/break.c with a VMM of the test's own: a page in this process, and the linker has orders come to us. */
#include "base/clock.h"
#include "base/debug_page.h"
#include "vmm/proc.h"
#include "vmm/vm_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#define ADDR 0xffffffff81234567ull

static struct debug_page *page;
static struct vm vm;

static struct {
	bool silent; /* it takes no order */
	int order_fails;
	enum debug_state then; /* what an order leads to once the guest is let go */
	enum debug_reason reason;
	enum debug_state when_paused; /* what a stop window finds, if not 0 */
	u64 last; /* order's value */
	int orders, windows;
	int pause_fails;
} vmm;

static void show(enum debug_state state, enum debug_reason reason)
{
	page->seq++;
	page->state = state;
	page->reason = reason;
	page->seq++;
}

/* It takes an order when it comes to it. */
static pthread_t taker;
static bool takes;

static void *take(void *arg)
{
	usleep(3000);
	page->orders++;
	page->addr = vmm.last;
	show(DEBUG_TAKEN, 0);
	return arg;
}

static void taken(void)
{
	if (takes)
		pthread_join(taker, NULL);
	takes = false;
}

int __wrap_vm_order(const struct vm *v, int sig, u64 value, struct err *err);
int __wrap_vm_order(const struct vm *v, int sig, u64 value, struct err *err)
{
	assert_ptr_equal(v, &vm);
	assert_int_equal(sig, DEBUG_SIGNAL);
	if (vmm.order_fails)
		return err_set(err, vmm.order_fails, ERR_VMM_PROTOCOL, 0, "no orders here");
	vmm.last = value;
	vmm.orders++;
	taken();
	if (vmm.silent)
		return 0;
	if (value) {
		takes = pthread_create(&taker, NULL, take, NULL) == 0;
		assert_true(takes);
		return 0;
	}
	page->orders++;
	page->addr = 0;
	show(DEBUG_OVER, DEBUG_WAS_TOLD);
	return 0;
}

static int pause_vm(struct vm *v, u64 timeout_ns, struct err *err)
{
	(void)v;
	(void)timeout_ns;
	if (vmm.pause_fails)
		return err_set(err, vmm.pause_fails, ERR_PAUSE_TIMEOUT, 0, "they do not stop");
	vmm.windows++;
	if (vmm.when_paused)
		show(vmm.when_paused, vmm.reason);
	return 0;
}

/* Before it has taken the order the guest must not run. */
static int resume_vm(struct vm *v, struct err *err)
{
	(void)v;
	(void)err;
	assert_true(page->state == DEBUG_TAKEN || vmm.silent || vmm.order_fails ||
		    vmm.when_paused || page->version != DEBUG_PAGE_VERSION);
	taken();
	vmm.windows--;
	if (page->state == DEBUG_TAKEN)
		show(vmm.then, vmm.reason);
	return 0;
}

static enum vm_state state_of(struct vm *v)
{
	(void)v;
	return VM_RUNNING;
}

static pid_t vcpu;
static int wakes[2];

static void *sleep_as_vcpu(void *arg)
{
	char c;

	vcpu = gettid();
	(void)!write(wakes[1], "x", 1);
	(void)!read(((int *)arg)[0], &c, 1);
	return NULL;
}

static int threads_of(struct vm *v, struct vm_threads *ret, struct err *err)
{
	(void)v;
	(void)err;
	ret->tid = malloc(sizeof(vcpu));
	assert_non_null(ret->tid);
	ret->tid[0] = vcpu;
	ret->n = 1;
	return 0;
}

static const struct vm_ops ops = {
	.name = "fake",
	.pause = pause_vm,
	.resume = resume_vm,
	.state = state_of,
	.threads = threads_of,
};

static int begin(void **state)
{
	struct err err = { 0 };

	(void)state;
	memset(&vmm, 0, sizeof(vmm));
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(page != MAP_FAILED);
	page->version = DEBUG_PAGE_VERSION;
	page->orders = 7;
	vm = (struct vm){ .ops = &ops, .pid = getpid(), .debug_hva = (u64)(uintptr_t)page };
	vm.pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	vm.mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	assert_true(vm.pidfd >= 0 && vm.mem >= 0);
	vmm.then = DEBUG_ARMED;
	assert_int_equal(vm_hold(&vm, NSEC_PER_SEC, &err), 0);
	return 0;
}

static int end(void **state)
{
	(void)state;
	close(vm.pidfd);
	close(vm.mem);
	munmap(page, 4096);
	return 0;
}

static void runs_up_to_it(void **state)
{
	struct err err = { 0 };
	u64 start;

	(void)state;
	assert_int_equal(vm_break_wait(&vm, 0, &err), -EINVAL);
	assert_int_equal(vm_break(&vm, gva(ADDR), &err), 0);
	assert_false(vm_held(&vm));
	assert_int_equal(vmm.last, ADDR);
	start = monotonic_ns();
	assert_int_equal(vm_break_wait(&vm, 20 * NSEC_PER_MSEC, &err), -ETIMEDOUT);
	assert_true(monotonic_ns() - start >= 20 * NSEC_PER_MSEC);
	show(DEBUG_HIT, 0);
	/* one that cannot be stopped yet is asked again */
	vmm.pause_fails = -ETIMEDOUT;
	assert_int_equal(vm_break_wait(&vm, 0, &err), -ETIMEDOUT);
	assert_int_equal(vmm.last, ADDR);
	vmm.pause_fails = 0;
	assert_int_equal(vm_break_wait(&vm, 0, &err), 0);
	assert_true(vm_held(&vm));
	assert_int_equal(vmm.windows, 1);
	/* the VMM's own hold is over: ours is not */
	assert_int_equal(vmm.last, 0);
	assert_int_equal(vmm.orders, 2);
	assert_int_equal(vm_break_wait(&vm, 0, &err), -EINVAL);
	vm_unbreak(&vm);
	assert_int_equal(vmm.orders, 2);
	vmm.when_paused = DEBUG_OVER;
	assert_int_equal(vm_release(&vm, &err), 0);
	assert_int_equal(vm_break(&vm, gva(ADDR), &err), -EINVAL);
}

static void not_wanted_any_more(void **state)
{
	struct err err = { 0 };

	(void)state;
	assert_int_equal(vm_break(&vm, gva(ADDR), &err), 0);
	vm_unbreak(&vm);
	assert_int_equal(vmm.last, 0);
	assert_int_equal(page->state, DEBUG_OVER);
	assert_int_equal(vm_break_wait(&vm, 0, &err), -EINVAL);
}

/* In any case the guest runs, and the VMM was told that nothing is wanted. */
static void is_refused(void **state)
{
	static const struct {
		enum debug_reason reason;
		int no;
		const char *words;
	} all[] = {
		{ DEBUG_NO_KVM, -ENOTSUP, "KVM here has none" },
		{ DEBUG_DR7, -EBUSY, "the guest uses the debug registers itself" },
		{ DEBUG_FULL, -EBUSY, "the debug registers are all in use" },
		{ DEBUG_STUCK, -ETIMEDOUT, "a vCPU did not leave the guest in time" },
		{ DEBUG_FAILED, -ENOTSUP, "KVM refused" },
		{ DEBUG_RESET, -EBUSY, "the guest was reset" },
	};
	struct err err = { 0 };

	(void)state;
	vmm.then = DEBUG_OVER;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		vmm.reason = all[i].reason;
		assert_int_equal(vm_break(&vm, gva(ADDR), &err), all[i].no);
		assert_non_null(strstr(err.msg, all[i].words));
		assert_false(vm_held(&vm));
		assert_int_equal(vmm.windows, 0);
		assert_int_equal(vmm.last, 0);
		assert_int_equal(vm_hold(&vm, NSEC_PER_SEC, &err), 0);
	}
}

static void a_vmm_that_cannot(void **state)
{
	struct err err = { 0 };

	(void)state;
	vmm.silent = true;
	assert_int_equal(vm_break(&vm, gva(ADDR), &err), -ETIMEDOUT);
	assert_int_equal(err.code, ERR_VMM_TIMEOUT);
	assert_false(vm_held(&vm));
	assert_int_equal(vmm.last, 0);
	assert_int_equal(vm_hold(&vm, NSEC_PER_SEC, &err), 0);
	vmm.silent = false;
	vmm.order_fails = -ENOENT; /* it would die of the signal */
	assert_int_equal(vm_break(&vm, gva(ADDR), &err), -ENOENT);
	assert_false(vm_held(&vm));
	assert_int_equal(vm_hold(&vm, NSEC_PER_SEC, &err), 0);
	vm.debug_hva = 0;
	assert_int_equal(vm_break(&vm, gva(ADDR), &err), -ENOTSUP);
	assert_false(vm_held(&vm));
}

static void it_is_gone(void **state)
{
	struct err err = { 0 };

	(void)state;
	/* before it was reached */
	assert_int_equal(vm_break(&vm, gva(ADDR), &err), 0);
	show(DEBUG_OVER, DEBUG_RESET);
	assert_int_equal(vm_break_wait(&vm, 0, &err), -ECANCELED);
	assert_non_null(strstr(err.msg, "the guest was reset"));
	/* when it was reached, but we came too late */
	assert_int_equal(vm_hold(&vm, NSEC_PER_SEC, &err), 0);
	assert_int_equal(vm_break(&vm, gva(ADDR), &err), 0);
	show(DEBUG_HIT, 0);
	vmm.when_paused = DEBUG_OVER;
	vmm.reason = DEBUG_EXPIRED;
	assert_int_equal(vm_break_wait(&vm, 0, &err), -ECANCELED);
	assert_non_null(strstr(err.msg, "nobody came in time"));
	assert_false(vm_held(&vm));
	/* somebody else has given an order */
	vmm.when_paused = 0;
	assert_int_equal(vm_hold(&vm, NSEC_PER_SEC, &err), 0);
	assert_int_equal(vm_break(&vm, gva(ADDR), &err), 0);
	page->orders++;
	show(DEBUG_HIT, 0);
	assert_int_equal(vm_break_wait(&vm, 0, &err), -ECANCELED);
	assert_false(vm_held(&vm));
}

/* A page that says what cannot be, whoever wrote it. */
static void a_page_that_lies(void **state)
{
	const struct debug_page good = *page;
	struct err err = { 0 };

	(void)state;
	for (int i = 0; i < 4; i++) {
		*page = good;
		if (i == 0)
			page->version = DEBUG_PAGE_VERSION + 1;
		else if (i == 1)
			page->seq = 1;
		else if (i == 2)
			page->state = DEBUG_N_STATES;
		else
			page->reason = DEBUG_N_REASONS;
		vmm.when_paused = (enum debug_state)page->state; /* as it is */
		vmm.order_fails = -EIO; /* there is none */
		assert_int_equal(vm_break(&vm, gva(ADDR), &err), -EPROTO);
		assert_int_equal(err.code, ERR_VMM_PROTOCOL);
		assert_int_equal(vmm.orders, 0);
		vmm.when_paused = 0;
		assert_int_equal(vm_hold(&vm, NSEC_PER_SEC, &err), 0);
	}
}

static bool slept(struct vm_progress *p)
{
	usleep(30000);
	return vm_progressed(&vm, p, NSEC_PER_SEC);
}

/* A vCPU that sleeps has halted, unless the VMM keeps it out of the guest: then it may be at any instruction. */
static void a_vcpu_that_is_kept_out(void **state)
{
	struct vm_progress p;
	pthread_t thread;
	int ends[2];
	char c;

	(void)state;
	assert_int_equal(pipe(ends) | pipe(wakes), 0);
	assert_int_equal(pthread_create(&thread, NULL, sleep_as_vcpu, ends), 0);
	assert_int_equal(read(wakes[0], &c, 1), 1);
	assert_int_equal(vm_progress(&vm, &p, NULL), 0);
	assert_true(slept(&p));
	page->pauses = 1;
	assert_false(slept(&p));
	assert_false(slept(&p));
	/* what was seen until it may enter again proves nothing */
	page->pauses = 2;
	assert_false(slept(&p));
	assert_true(slept(&p));
	/* also when that came and went between two looks */
	page->pauses = 4;
	assert_false(slept(&p));
	assert_true(slept(&p));
	page->version++;
	assert_false(slept(&p));
	page->version--;
	vm_progress_deinit(&p);
	/* nor does what is noted meanwhile */
	page->pauses = 5;
	assert_int_equal(vm_progress(&vm, &p, NULL), 0);
	page->pauses = 6;
	assert_false(slept(&p));
	assert_true(slept(&p));
	vm_progress_deinit(&p);
	(void)!write(ends[1], "x", 1);
	pthread_join(thread, NULL);
	for (int i = 0; i < 2; i++) {
		close(ends[i]);
		close(wakes[i]);
	}
}

/* Whoever holds it: it is one that stands still, but for those whose stop window is open. */
static void a_guest_that_is_held(void **state)
{
	char c;

	(void)state;
	assert_int_equal(proc_stat(vm.pid, 0, &c, &vm.start_time), 0);
	vm.window_open = false;
	assert_int_equal(vm_ops_pid.state(&vm), VM_RUNNING);
	page->held = 1;
	assert_int_equal(vm_ops_pid.state(&vm), VM_STOPPED);
	vm.window_open = true;
	assert_int_equal(vm_ops_pid.state(&vm), VM_RUNNING);
	vm.window_open = false;
	page->version++;
	assert_int_equal(vm_ops_pid.state(&vm), VM_RUNNING);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(runs_up_to_it, begin, end),
		cmocka_unit_test_setup_teardown(not_wanted_any_more, begin, end),
		cmocka_unit_test_setup_teardown(is_refused, begin, end),
		cmocka_unit_test_setup_teardown(a_vmm_that_cannot, begin, end),
		cmocka_unit_test_setup_teardown(it_is_gone, begin, end),
		cmocka_unit_test_setup_teardown(a_page_that_lies, begin, end),
		cmocka_unit_test_setup_teardown(a_vcpu_that_is_kept_out, begin, end),
		cmocka_unit_test_setup_teardown(a_guest_that_is_held, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
