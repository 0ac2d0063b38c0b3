// SPDX-License-Identifier: Apache-2.0
/* machine/debug_x86.c, debug_vcpu_x86.c with vcpu.c and life.c: breakpoints and steps, with a KVM of the test's own. */
#include "tests/unit/test_machine_fake.h"

#include "base/clock.h"
#include "machine/control.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_UNTIL(cond)                          \
	do {                                      \
		for (int n_ = 0; !(cond); n_++) { \
			assert_true(n_ < 20000);  \
			usleep(500);              \
		}                                 \
	} while (0)

static bool all_out(void)
{
	bool out;

	pthread_mutex_lock(&m.go_lock);
	out = m.debug.told && m.n_out == VCPUS;
	pthread_mutex_unlock(&m.go_lock);
	return out;
}

/* What the page says, as who reads it from outside sees it. */
static u32 page_state(void)
{
	u32 state;

	pthread_mutex_lock(&m.go_lock);
	state = m.debug.page->state;
	pthread_mutex_unlock(&m.go_lock);
	return state;
}

static bool runs(u32 i)
{
	u64 before = cpu[i].insns;

	for (int n = 0; n < 4000 && cpu[i].insns < before + 2 * ROUND; n++)
		usleep(500);
	return cpu[i].insns >= before + 2 * ROUND;
}

/* No vCPU executes anything; a nudge and a look change nothing of that. */
static void assert_stands(void)
{
	u64 before[VCPUS] = { cpu[0].insns, cpu[1].insns };

	(void)debug_tick(&m);
	usleep(20000);
	assert_int_equal(cpu[0].insns, before[0]);
	assert_int_equal(cpu[1].insns, before[1]);
}

static void nothing_is_set(void)
{
	for (u32 i = 0; i < VCPUS; i++)
		assert_int_equal(cpu[i].debug.control, 0);
	assert_false(m.debug.armed);
}

static void a_breakpoint_holds_all(void **state)
{
	struct err err = { 0 };
	u64 rip, before = 0;

	(void)state;
	assert_int_equal(debug_go(&m, &err), -EINVAL);
	assert_int_equal(debug_step(&m, 0, &rip, &err), -EINVAL);
	assert_int_equal(debug_tick(&m), -1);
	assert_int_equal(m.debug.page->pauses, 0);
	assert_int_equal(debug_break(&m, BASE(0) + ROUND, &err), 0); /* never reached */
	assert_int_equal(m.debug.page->pauses, 2);
	assert_int_equal(debug_unbreak(&m, BASE(0) + ROUND, &err), 0);
	assert_int_equal(m.debug.page->pauses, 4);
	assert_int_equal(debug_break(&m, BASE(1) + 3, &err), 0);
	assert_int_equal(debug_break(&m, BASE(1) + 3, &err), 0);
	assert_true(debug_tick(&m) > 0);
	for (int times = 0; times < 50; times++) {
		WAIT_UNTIL(all_out());
		assert_int_equal(m.debug.page->pauses & 1, 1);
		assert_true(m.debug.page->held);
		assert_int_equal(m.debug.hit_vcpu, 1);
		if (times)
			assert_int_equal(cpu[1].insns, before + ROUND);
		before = cpu[1].insns;
		assert_int_equal(cpu[1].rip, BASE(1) + 3);
		assert_int_equal(did.told, times + 1);
		if (times == 0) {
			assert_string_equal(did.text,
					    "vCPU 1 is at the breakpoint 0xcb: the guest is held");
			assert_stands();
		}
		/* over it, a round, and at it again */
		assert_int_equal(debug_go(&m, &err), 0);
	}
	WAIT_UNTIL(all_out());
	assert_int_equal(debug_unbreak(&m, BASE(1) + 4, &err), -ENOENT);
	assert_int_equal(debug_unbreak(&m, BASE(1) + 3, &err), 0);
	nothing_is_set();
	assert_stands();
	assert_int_equal(m.debug.page->pauses & 1, 1);
	assert_int_equal(debug_go(&m, &err), 0);
	assert_int_equal(m.debug.page->pauses & 1, 0);
	assert_false(m.debug.page->held);
	assert_true(runs(0) && runs(1));
	assert_int_equal(did.ended, 0);
}

static void each_step_is_one(void **state)
{
	struct err err = { 0 };
	u64 rip, other;

	(void)state;
	cpu[0].halts = cpu[1].slow_io = true;
	WAIT_UNTIL(cpu[0].rip == BASE(0) + HALT_AT && cpu[1].rip == BASE(1) + IO_AT);
	other = cpu[1].insns;
	assert_int_equal(debug_break(&m, BASE(0) + 2, &err), 0);
	WAIT_UNTIL(cpu[1].insns ==
		   other + ROUND); /* a round further, and in the middle of it again */
	cpu[0].halts = false;
	WAIT_UNTIL(all_out());
	cpu[0].halts = true;
	cpu[1].slow_io = false;
	other = cpu[1].insns;
	/* over the breakpoint it is at, over what the host does a part of, to the one that halts */
	for (u64 at = BASE(0) + 3; at <= BASE(0) + HALT_AT; at++) {
		assert_int_equal(debug_step(&m, 0, &rip, &err), 0);
		assert_int_equal(rip, at);
		assert_int_equal(cpu[0].rip, at);
	}
	assert_int_equal(debug_step(&m, 0, &rip, &err), -ETIMEDOUT);
	assert_non_null(strstr(err.msg, "vCPU 0 executed nothing"));
	assert_int_equal(cpu[1].insns, other);
	/* what the other one was in the middle of is done to its end, and no more than that */
	assert_int_equal(cpu[1].rip, BASE(1) + IO_AT);
	for (u64 at = BASE(1) + IO_AT + 1; at < BASE(1) + ROUND; at++) {
		assert_int_equal(debug_step(&m, 1, &rip, &err), 0);
		assert_int_equal(rip, at);
	}
	assert_int_equal(debug_step(&m, VCPUS, &rip, &err), -ENOENT);
	/* none goes on stepping */
	assert_int_equal(debug_unbreak(&m, BASE(0) + 2, &err), 0);
	nothing_is_set();
	cpu[0].halts = false;
	assert_int_equal(debug_go(&m, &err), 0);
	assert_true(runs(0) && runs(1));
	assert_int_equal(did.ended, 0);
}

static void a_guest_that_has_its_own(void **state)
{
	struct err err = { 0 };

	(void)state;
	for (u64 dr7 = 1; dr7 <= 0x2000; dr7 <<= 1) {
		bool uses = dr7 < 0x100 || dr7 == 0x2000;

		cpu[1].dr7 = 0x400 | dr7;
		assert_int_equal(debug_break(&m, BASE(0) + 2, &err), uses ? -EBUSY : 0);
		if (uses) {
			assert_non_null(strstr(err.msg, "debug registers of vCPU 1"));
			nothing_is_set();
		} else {
			assert_int_equal(debug_unbreak(&m, BASE(0) + 2, &err), 0);
		}
	}
	/* one that takes them later: at its next exit, which it is made to have where it has none of its own */
	cpu[1].dr7 = 0x400;
	debug_order(&m, BASE(0) + ROUND); /* never reached */
	assert_int_equal(m.debug.page->state, DEBUG_ARMED);
	assert_int_equal(debug_break(&m, BASE(0) + ROUND + 1, &err), 0);
	assert_true(runs(0) && runs(1));
	assert_int_equal(did.told, 0);
	cpu[1].halts = true;
	WAIT_UNTIL(cpu[1].rip == BASE(1) + HALT_AT);
	usleep(1000);
	cpu[1].dr7 = 0x402;
	WAIT_UNTIL(debug_tick(&m) < 0);
	cpu[1].halts = false;
	assert_int_equal(did.told, 1);
	assert_non_null(strstr(did.text, "breakpoints are given up"));
	assert_int_equal(m.debug.page->state, DEBUG_OVER);
	assert_int_equal(m.debug.page->reason, DEBUG_DR7);
	nothing_is_set();
	assert_true(runs(0) && runs(1));
}

static void what_kvm_does_not_do(void **state)
{
	struct err err = { 0 };

	(void)state;
	did.refuse = 2;
	assert_int_equal(debug_break(&m, BASE(0) + 2, &err), -EINVAL);
	nothing_is_set();
	did.refuse = 0;
	for (u32 i = 0; i < 4; i++)
		assert_int_equal(debug_break(&m, BASE(0) + ROUND + i, &err), 0);
	assert_int_equal(debug_break(&m, BASE(0) + ROUND + 4, &err), -ENOSPC);
	debug_order(&m, BASE(0));
	assert_int_equal(m.debug.page->state, DEBUG_OVER);
	assert_int_equal(m.debug.page->reason, DEBUG_FULL);
	m.debug.can = false;
	assert_int_equal(debug_break(&m, BASE(0) + 2, &err), -ENOTSUP);
	debug_order(&m, BASE(0));
	assert_int_equal(m.debug.page->reason, DEBUG_NO_KVM);
	assert_true(runs(0) && runs(1));
}

/* What came to us as our breakpoints are armed, and is the guest's own. */
static void an_exception_of_the_guests(void **state)
{
	struct err err = { 0 };

	(void)state;
	assert_int_equal(debug_break(&m, BASE(0) + ROUND, &err), 0);
	cpu[0].traps = true;
	WAIT_UNTIL(cpu[0].injected == 1);
	assert_int_equal(cpu[0].dr6_given, 1 << 14);
	assert_true(runs(0) && runs(1));
	assert_int_equal(m.debug.not_ours, 1);
	assert_int_equal(did.told + did.ended, 0);
}

static void an_order(void **state)
{
	const struct debug_page *p = m.debug.page;

	(void)state;
	assert_int_equal(p->version, DEBUG_PAGE_VERSION);
	assert_int_equal(p->state, DEBUG_NONE);
	debug_order(&m, BASE(0) + 5);
	assert_int_equal(p->orders, 1);
	assert_int_equal(p->addr, BASE(0) + 5);
	WAIT_UNTIL(all_out());
	assert_int_equal(p->state, DEBUG_HIT);
	assert_int_equal(p->vcpu, 0);
	assert_int_equal(cpu[0].rip, BASE(0) + 5);
	assert_int_equal(p->seq & 1, 0);
	nothing_is_set(); /* once is enough */
	assert_stands();
	/* the next one lets it go on: by itself, or to the next place */
	debug_order(&m, BASE(1) + 7);
	WAIT_UNTIL(page_state() == DEBUG_HIT);
	assert_int_equal(p->vcpu, 1);
	assert_int_equal(p->orders, 2);
	debug_order(&m, 0);
	assert_int_equal(p->state, DEBUG_OVER);
	assert_int_equal(p->reason, DEBUG_WAS_TOLD);
	assert_true(runs(0) && runs(1));
	nothing_is_set();
}

/* Who waits for it sees nothing else from when it is taken until it is done, also where it follows another one. */
static void an_order_that_is_being_done(void **state)
{
	(void)state;
	for (u64 i = 0; i < 3; i++) {
		did.shown = 0;
		debug_order(&m, BASE(0) + ROUND + i); /* never reached */
		assert_int_equal(did.shown, 1 << DEBUG_TAKEN);
		assert_int_equal(m.debug.page->state, DEBUG_ARMED);
	}
	did.refuse = 1;
	did.shown = 0;
	debug_order(&m, BASE(0) + ROUND);
	assert_int_equal(did.shown, 1 << DEBUG_TAKEN);
	assert_int_equal(m.debug.page->state, DEBUG_OVER);
	assert_int_equal(m.debug.page->reason, DEBUG_FAILED);
	nothing_is_set();
}

/* Whoever asked for it may be dead: neither a hold nor a breakpoint that is not reached is for ever. */
static void an_order_that_nobody_follows_up(void **state)
{
	const struct debug_page *p = m.debug.page;
	u64 now = monotonic_ns();

	(void)state;
	debug_order(&m, BASE(0) + ROUND);
	assert_in_range(m.debug.until_ns, now + DEBUG_ARMED_NS, monotonic_ns() + DEBUG_ARMED_NS);
	assert_true(debug_tick(&m) > 0);
	assert_int_equal(p->state, DEBUG_ARMED);
	m.debug.until_ns = 1;
	(void)debug_tick(&m);
	assert_int_equal(p->state, DEBUG_OVER);
	assert_int_equal(p->reason, DEBUG_EXPIRED);
	nothing_is_set();
	assert_int_equal(debug_tick(&m), -1);

	now = monotonic_ns();
	debug_order(&m, BASE(0) + 5);
	WAIT_UNTIL(all_out());
	assert_in_range(p->until_ns, now + DEBUG_HOLD_NS, monotonic_ns() + DEBUG_HOLD_NS);
	assert_true(debug_tick(&m) > 0);
	assert_stands();
	m.debug.until_ns = 1;
	(void)debug_tick(&m);
	assert_int_equal(p->reason, DEBUG_EXPIRED);
	assert_true(runs(0) && runs(1));
	assert_int_equal(debug_tick(&m), -1);
}

static void who_kept_them_leaves(void **state)
{
	struct err err = { 0 };

	(void)state;
	assert_int_equal(debug_break(&m, BASE(1) + 1, &err), 0);
	assert_int_equal(debug_break(&m, BASE(1) + 2, &err), 0);
	WAIT_UNTIL(all_out());
	assert_int_equal(debug_drop(&m, &err), 0);
	nothing_is_set();
	assert_true(runs(0) && runs(1));
	assert_int_equal(debug_drop(&m, &err), 0);
	assert_int_equal(did.told, 1);
}

static int client(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	return fd;
}

static const char *answer_to(int fd, const char *order)
{
	static char answer[200];

	memset(answer, 0, sizeof(answer));
	assert_int_equal(write(fd, order, strlen(order)), strlen(order));
	assert_true(read(fd, answer, sizeof(answer) - 1) > 0);
	return answer;
}

static bool any_set(void)
{
	bool armed;

	pthread_mutex_lock(&m.go_lock);
	armed = m.debug.armed;
	pthread_mutex_unlock(&m.go_lock);
	return armed;
}

/* It cannot be done at once, as a vCPU does not leave the guest; when it does it is. */
static void who_kept_them_leaves_at_a_bad_time(void **state)
{
	char dir[] = "/tmp/hvf-control-XXXXXX", path[sizeof(dir) + 8];
	struct err err = { 0 };
	struct control c;
	int fd;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/socket", dir);
	assert_int_equal(control_open(&c, path, &err), 0);
	assert_int_equal(control_start(&c, &m, &err), 0);
	fd = client(path);
	assert_string_equal(answer_to(fd, "break 1000\n"), "ok\n"); /* never reached */
	cpu[0].halts = true;
	WAIT_UNTIL(cpu[0].rip == BASE(0) + HALT_AT);
	cpu[0].stuck = true;
	close(fd);
	WAIT_UNTIL(did.told == 1);
	assert_non_null(strstr(did.text, "breakpoints stay for now: 1 of 2"));
	assert_true(any_set());
	/* they are nobody's that has its place now, either */
	fd = client(path);
	assert_non_null(strstr(answer_to(fd, "break 1001\n"), "another client has set"));
	cpu[0].stuck = cpu[0].halts = false;
	WAIT_UNTIL(!any_set());
	nothing_is_set();
	WAIT_UNTIL(strcmp(answer_to(fd, "break 1001\n"), "ok\n") == 0);
	close(fd);
	WAIT_UNTIL(!any_set());
	assert_int_equal(did.told, 1);
	assert_true(runs(0) && runs(1));
	control_close(&c);
	unlink(path);
	rmdir(dir);
}

/* A reset ends a hold; what is kept is in the next life's vCPUs. */
static void the_next_life(void **state)
{
	struct err err = { 0 };
	u64 rip;

	(void)state;
	assert_int_equal(debug_break(&m, BASE(0) + 4, &err), 0);
	WAIT_UNTIL(all_out());
	machine_reset(&m, "was reset");
	WAIT_UNTIL(did.lives == 2);
	WAIT_UNTIL(all_out());
	assert_int_equal(m.debug.hit_vcpu, 0);
	assert_int_equal(cpu[0].rip, BASE(0) + 4);
	assert_int_equal(debug_unbreak(&m, BASE(0) + 4, &err), 0);
	nothing_is_set();
	assert_int_equal(debug_step(&m, 0, &rip, &err), 0);
	assert_int_equal(debug_go(&m, &err), 0);
	assert_true(runs(0) && runs(1));
	assert_int_equal(did.ended, 0);
}

/* An order was for a kernel that is no more. */
static void the_next_life_after_an_order(void **state)
{
	(void)state;
	for (int life = 2; life < 6; life++) {
		debug_order(&m, life % 2 ? BASE(0) + 3 : BASE(0) + ROUND);
		if (life % 2)
			WAIT_UNTIL(all_out());
		assert_int_equal(page_state(), life % 2 ? DEBUG_HIT : DEBUG_ARMED);
		machine_reset(&m, "was reset");
		WAIT_UNTIL(did.lives == life);
		assert_true(runs(0) && runs(1));
		assert_int_equal(page_state(), DEBUG_OVER);
		assert_int_equal(m.debug.page->reason, DEBUG_RESET);
		nothing_is_set();
	}
	assert_int_equal(did.ended, 0);
}

static void both_come_to_one(void)
{
	struct err err = { 0 };
	u64 rip;

	assert_int_equal(debug_break(&m, BASE(0) + 3, &err), 0);
	assert_int_equal(debug_break(&m, BASE(1) + 3, &err), 0);
	for (int k = 0; k < 4; k++) {
		WAIT_UNTIL(all_out());
		assert_int_equal(debug_step(&m, m.debug.hit_vcpu, &rip, &err), 0);
		assert_int_equal(rip, BASE(m.debug.hit_vcpu) + 4);
		assert_int_equal(debug_go(&m, &err), 0);
	}
	assert_int_equal(debug_drop(&m, &err), 0);
	nothing_is_set();
}

/* All at once, again and again: nobody is left behind, neither held nor running where all stand. */
static void many_at_once(void **state)
{
	struct err err = { 0 };

	(void)state;
	for (int i = 0; i < 100; i++) {
		both_come_to_one();
		debug_order(&m, BASE(i & 1) + 8);
		WAIT_UNTIL(page_state() == DEBUG_HIT);
		debug_order(&m, 0);
		assert_int_equal(debug_break(&m, BASE(0) + ROUND, &err), 0);
		cpu[i & 1].dr7 = 0x401;
		WAIT_UNTIL(debug_tick(&m) < 0);
		cpu[i & 1].dr7 = 0x400;
	}
	assert_true(runs(0) && runs(1));
	assert_int_equal(did.ended, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_breakpoint_holds_all, fake_begin, fake_end),
		cmocka_unit_test_setup_teardown(each_step_is_one, fake_begin, fake_end),
		cmocka_unit_test_setup_teardown(a_guest_that_has_its_own, fake_begin, fake_end),
		cmocka_unit_test_setup_teardown(what_kvm_does_not_do, fake_begin, fake_end),
		cmocka_unit_test_setup_teardown(an_exception_of_the_guests, fake_begin, fake_end),
		cmocka_unit_test_setup_teardown(an_order, fake_begin, fake_end),
		cmocka_unit_test_setup_teardown(an_order_that_is_being_done, fake_begin, fake_end),
		cmocka_unit_test_setup_teardown(an_order_that_nobody_follows_up, fake_begin,
						fake_end),
		cmocka_unit_test_setup_teardown(who_kept_them_leaves, fake_begin, fake_end),
		cmocka_unit_test_setup_teardown(who_kept_them_leaves_at_a_bad_time, fake_begin,
						fake_end),
		cmocka_unit_test_setup_teardown(the_next_life, fake_begin, fake_end),
		cmocka_unit_test_setup_teardown(the_next_life_after_an_order, fake_begin, fake_end),
		cmocka_unit_test_setup_teardown(many_at_once, fake_begin, fake_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
