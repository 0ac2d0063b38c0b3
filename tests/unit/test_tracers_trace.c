// SPDX-License-Identifier: Apache-2.0
/* A trace's two threads: the one that drains waits for nothing that the other one waits for. */
#include "test_tracers_trace_fake.h"

#include "base/clock.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define MANY (8 * SLOTS)

static struct trace *t;

static bool wait_for(const atomic_bool *what)
{
	u64 end = clock_ns(CLOCK_MONOTONIC) + PATIENCE;

	while (!*what && clock_ns(CLOCK_MONOTONIC) < end)
		fake_nap();
	return *what;
}

/* Records flow, as fast as they are read. */
static bool flow(u32 n)
{
	for (u32 i = 0; i < n; i++) {
		if (!fake_put(AGENT_REC_FUNCTION, TEXT, 7))
			return false;
	}
	return true;
}

static int begin(bool no_sleep_time)
{
	const struct trace_opts opts = { .tracer = "function_graph",
					 .no_sleep_time = no_sleep_time,
					 .buffer_records = 1u << 16 };
	struct err err = { 0 };

	fake_setup();
	return trace_start((struct guest *)&vm, &opts, &t, &err);
}

static int setup(void **state)
{
	(void)state;
	return begin(false);
}

static int setup_no_sleep(void **state)
{
	(void)state;
	return begin(true);
}

static int teardown(void **state)
{
	(void)state;
	vm.ring_hangs = vm.monitor_hangs = false;
	trace_destroy(t);
	pthread_mutex_destroy(&vm.lock);
	return 0;
}

static struct trace_info info(void)
{
	struct trace_info i;

	trace_get_info(t, &i);
	return i;
}

static bool wait_for_records(u64 n)
{
	u64 end = clock_ns(CLOCK_MONOTONIC) + PATIENCE;

	while (info().n_records < n && clock_ns(CLOCK_MONOTONIC) < end)
		fake_nap();
	return info().n_records == n;
}

/* All that was written is there, and no more. */
static void assert_all(u64 n)
{
	struct trace_info i;
	struct err err = { 0 };

	assert_int_equal(trace_stop(t, &err), 0);
	i = info();
	assert_int_equal(i.state, TRACE_STOPPED);
	assert_int_equal(i.n_lost, 0);
	assert_int_equal(i.n_records, n);
	assert_false(vm.unsettled);
}

static struct trace_record record(u64 seq)
{
	struct trace_record r;
	struct trace_page page = { .buf = &r, .max = 1 };
	struct err err = { 0 };

	assert_int_equal(trace_read(t, seq - 1, &page, &err), 0);
	assert_int_equal(page.n, 1);
	return r;
}

static const char *name(u64 seq)
{
	struct kernel_sym s;
	u64 off;

	return trace_sym_then(t, seq, record(seq).ip, &s, &off) ? s.name : "?";
}

static void a_lock_that_is_held_loses_nothing(void **state)
{
	u64 end = clock_ns(CLOCK_MONOTONIC) + PATIENCE;
	bool waits, flows;

	(void)state;
	guest_lock(NULL);
	while (vm.n_locking < 2 && clock_ns(CLOCK_MONOTONIC) < end)
		fake_nap(); /* until frames are to be collected */
	waits = vm.n_locking == 2;
	flows = flow(MANY);
	guest_unlock(NULL);
	assert_true(waits && flows);
	assert_all(MANY);
}

static void a_monitor_that_is_silent_loses_nothing(void **state)
{
	bool flows;
	u64 seq;

	(void)state;
	/* before the clock is read anew, however long this takes */
	assert_true(flow(10));
	assert_true(wait_for_records(10));
	vm.monitor_hangs = true;
	vm.next_epoch = 1;
	vm.ns_per_tick = 3;
	assert_true(wait_for(&vm.in_monitor));
	flows = flow(MANY) && wait_for_records(10 + MANY);
	vm.monitor_hangs = false;
	assert_true(flows);
	for (u64 end = clock_ns(CLOCK_MONOTONIC) + PATIENCE;
	     !vm.n_armed_more && clock_ns(CLOCK_MONOTONIC) < end;)
		fake_nap();
	assert_int_equal(vm.n_armed_more, 1);
	assert_all(10 + MANY + 3 * SLOTS);
	/* what came with the module has its names, each record of before those of before */
	for (seq = 1; seq <= 10 + MANY; seq++)
		assert_string_equal(name(seq), "before");
	for (; seq <= 10 + MANY + 3 * SLOTS; seq++)
		assert_string_equal(name(seq), "then");
	/* the clock that was read anew */
	assert_int_equal(record(1).ts_ns, 1000 * 2);
	assert_int_equal(record(seq - 1).ts_ns, (1000 + seq - 2) * 3);
}

static void nobody_looks_after_what_was_put_back(void **state)
{
	(void)state;
	assert_true(flow(3));
	vm.disarm_waits = true; /* until somebody waits for the lock, to collect frames */
	assert_all(3);
	assert_false(vm.late);
}

static void a_writer_that_is_still_inside_is_told(void **state)
{
	struct err err = { 0 };

	(void)state;
	assert_true(fake_put(AGENT_REC_FUNCTION, TEXT, 7));
	fake_reserve();
	assert_true(fake_put(AGENT_REC_FUNCTION, TEXT, 7));
	assert_int_equal(trace_stop(t, &err), 0);
	assert_int_equal(info().n_records, 2);
	assert_int_equal(info().lost_torn, 1);
	assert_true(vm.unsettled);
}

static void calls_that_never_return_come_into_the_stream(void **state)
{
	struct trace_record r;
	u64 end = clock_ns(CLOCK_MONOTONIC) + PATIENCE;

	(void)state;
	assert_true(fake_put(AGENT_REC_GRAPH_ENTRY, TEXT, 9));
	vm.n_never = 1;
	while (info().n_records < 2 && clock_ns(CLOCK_MONOTONIC) < end)
		fake_nap();
	r = record(2);
	assert_int_equal(r.type, TRACE_GRAPH_NEVER);
	assert_int_equal(r.ip, TEXT);
	assert_int_equal(r.pid, 9);
	assert_all(2);
	assert_int_equal(info().n_never, 1);
}

static void what_fails_ends_the_trace_with_its_reason(void **state)
{
	u64 end = clock_ns(CLOCK_MONOTONIC) + PATIENCE;
	struct err err = { 0 };

	(void)state;
	assert_true(flow(3));
	assert_true(wait_for_records(3)); /* what is not read by then is lost */
	vm.collect_fails = true;
	while (info().state == TRACE_RUNNING && clock_ns(CLOCK_MONOTONIC) < end)
		fake_nap();
	assert_int_equal(info().state, TRACE_FAILED);
	assert_int_equal(info().error.code, ERR_VMM_GONE);
	assert_int_equal(info().n_records, 3);
	assert_true(vm.off);
	assert_int_equal(trace_set_graph(t, false, &err), -EBUSY);
	assert_int_equal(err.code, ERR_CONFLICT);
	assert_int_equal(trace_stop(t, &err), 0);
	assert_int_equal(info().state, TRACE_FAILED);
}

/* It is what it was, and so are its rings. */
static void what_was_written_before_it_failed_is_read(void **state)
{
	u64 end = clock_ns(CLOCK_MONOTONIC) + PATIENCE;

	(void)state;
	assert_true(flow(3));
	assert_true(wait_for_records(3));
	vm.before_off = SLOTS / 2;
	vm.leaves = true;
	vm.collect_fails = true;
	while (info().state == TRACE_RUNNING && clock_ns(CLOCK_MONOTONIC) < end)
		fake_nap();
	assert_int_equal(info().state, TRACE_FAILED);
	assert_int_equal(info().error.code, ERR_GUEST_LEAVES);
	assert_int_equal(info().n_records, 3 + SLOTS / 2);
	assert_int_equal(info().n_lost, 0);
}

/* The thread that looks after the guest gives up, and the one that drains has not seen it yet. */
static void give_up_unseen(void)
{
	vm.ring_hangs = true;
	assert_true(wait_for(&vm.in_ring));
	vm.collect_fails = true;
	assert_true(wait_for(&vm.off));
}

/* Nobody would put back what is armed from then on; nor when it could not be stopped. */
static void what_is_given_up_is_not_changed(void **state)
{
	const struct trace_opts opts = { .tracer = "function_graph" };
	struct err err = { 0 }, on_err = { 0 };
	int rc, on_rc, stop_rc, stopped_rc;

	(void)state;
	assert_int_equal(trace_set_filter(t, &opts, &err), 0);
	assert_int_equal(trace_set_recording(t, false, &err), 0);
	assert_int_equal(vm.n_changed, 2);
	give_up_unseen();
	rc = trace_set_filter(t, &opts, &err);
	on_rc = trace_set_recording(t, true, &on_err);
	vm.disarm_fails = true;
	stop_rc = trace_stop(t, NULL);
	stopped_rc = trace_set_filter(t, &opts, NULL);
	vm.disarm_fails = vm.ring_hangs = false;
	assert_int_equal(rc, -EBUSY);
	assert_int_equal(err.code, ERR_CONFLICT);
	assert_int_equal(on_rc, -EBUSY);
	assert_int_equal(on_err.code, ERR_CONFLICT);
	assert_int_equal(stop_rc, -EBUSY);
	assert_int_equal(stopped_rc, -EBUSY);
	assert_int_equal(vm.n_changed, 2);
}

static void *stop(void *arg)
{
	(void)!trace_stop(t, arg);
	return NULL;
}

static bool wait_for_stop(void)
{
	u64 end = clock_ns(CLOCK_MONOTONIC) + PATIENCE;
	bool stops = false;

	while (!stops && clock_ns(CLOCK_MONOTONIC) < end) {
		fake_nap();
		pthread_mutex_lock(&t->lock);
		stops = t->stop;
		pthread_mutex_unlock(&t->lock);
	}
	return stops;
}

/* It recorded nothing since: the one that drains ends without having seen why. */
static void what_is_given_up_and_stopped_has_its_reason(void **state)
{
	pthread_t thread;
	struct err err = { 0 };
	bool stops;

	(void)state;
	give_up_unseen();
	assert_int_equal(pthread_create(&thread, NULL, stop, &err), 0);
	stops = wait_for_stop();
	vm.ring_hangs = false;
	pthread_join(thread, NULL);
	assert_true(stops);
	assert_int_equal(err.code, ERR_NONE);
	assert_int_equal(info().state, TRACE_FAILED);
	assert_int_equal(info().error.code, ERR_VMM_GONE);
	assert_true(info().stopped_ns != 0);
}

static bool wait_for_turn(enum trace_turn turn)
{
	u64 end = clock_ns(CLOCK_MONOTONIC) + PATIENCE;
	bool there = false;

	while (!there && clock_ns(CLOCK_MONOTONIC) < end) {
		fake_nap();
		pthread_mutex_lock(&t->lock);
		there = t->turn == turn;
		pthread_mutex_unlock(&t->lock);
	}
	return there;
}

static int turned;

static void *turn(void *arg)
{
	turned = trace_set_graph(t, false, arg);
	return NULL;
}

/* Given up while who turns the tracer waits for the guest's lock. */
static void what_is_given_up_is_not_turned(void **state)
{
	pthread_t thread;
	struct err err = { 0 };
	bool there;
	int rc;

	(void)state;
	guest_lock(NULL);
	rc = pthread_create(&thread, NULL, turn, &err);
	there = !rc && wait_for_turn(TRACE_TURN_TAKEN);
	t->tended = false;
	guest_unlock(NULL);
	assert_int_equal(rc, 0);
	pthread_join(thread, NULL);
	assert_true(there);
	assert_int_equal(turned, -EBUSY);
	assert_int_equal(err.code, ERR_CONFLICT);
	assert_int_equal(vm.n_changed, 0);
	assert_string_equal(info().tracer, "function_graph");
}

/* Of the round that had the kernel's tables and the sites looked at. */
static u32 looks_at_once(void)
{
	u64 end = clock_ns(CLOCK_MONOTONIC) + PATIENCE;

	while (!vm.looks_at_once && clock_ns(CLOCK_MONOTONIC) < end)
		fake_nap();
	return vm.looks_at_once;
}

/* The site that tells of switches, and those of forks: a task is back that nobody saw come back. */
static void what_the_guest_had_for_itself_is_missed(void **state)
{
	struct trace_record r;

	(void)state;
	assert_true(fake_put(AGENT_REC_GRAPH_ENTRY, TEXT, 9));
	assert_true(fake_put_word(AGENT_REC_SWITCH, 9, 8));
	assert_true(fake_put(AGENT_REC_FUNCTION, TEXT, 8));
	assert_true(wait_for_records(2));
	assert_false(info().missed_switches || info().missed_forks);
	vm.missed = TRACING_SWITCHES | TRACING_EXITS;
	vm.taken = 2;
	assert_true(wait_for_records(3));
	r = record(3);
	assert_int_equal(r.type, TRACE_GRAPH_RETURN);
	assert_int_equal(r.duration_ns, 500 * 2);
	assert_int_equal(looks_at_once(), 2); /* that it is to be known first, and what it is */
	assert_all(3);
	assert_true(info().missed_switches && info().missed_forks);
	assert_int_equal(info().n_taken, 2);
	assert_int_equal(vm.n_followed, 1);
}

/* That is told at each look: no reason for one more, nor to leave a new module's functions alone. */
static void what_the_guest_keeps_does_not_keep_us(void **state)
{
	(void)state;
	vm.kept = TRACING_SWITCHES;
	vm.next_epoch = 1;
	assert_int_equal(looks_at_once(),
			 2); /* the tables, and once they name its records its sites */
	assert_int_equal(vm.n_armed_more, 1);
	assert_all(3 * SLOTS);
	assert_string_equal(name(1), "then");
	assert_true(info().missed_switches);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_lock_that_is_held_loses_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(a_monitor_that_is_silent_loses_nothing, setup,
						teardown),
		cmocka_unit_test_setup_teardown(what_the_guest_had_for_itself_is_missed,
						setup_no_sleep, teardown),
		cmocka_unit_test_setup_teardown(what_the_guest_keeps_does_not_keep_us,
						setup_no_sleep, teardown),
		cmocka_unit_test_setup_teardown(nobody_looks_after_what_was_put_back, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_writer_that_is_still_inside_is_told, setup,
						teardown),
		cmocka_unit_test_setup_teardown(calls_that_never_return_come_into_the_stream, setup,
						teardown),
		cmocka_unit_test_setup_teardown(what_fails_ends_the_trace_with_its_reason, setup,
						teardown),
		cmocka_unit_test_setup_teardown(what_was_written_before_it_failed_is_read, setup,
						teardown),
		cmocka_unit_test_setup_teardown(what_is_given_up_is_not_changed, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_given_up_and_stopped_has_its_reason, setup,
						teardown),
		cmocka_unit_test_setup_teardown(what_is_given_up_is_not_turned, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
