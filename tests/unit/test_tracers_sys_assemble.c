// SPDX-License-Identifier: Apache-2.0
/* Calls out of streams with and without gaps. */
#include "tracers/syscalls/assemble.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

static const struct syscall_entry entries[] = {
	{ .name = "read", .addr = 0x100, .nr = 0, .described = true, .n_args = 3 },
	{ .name = "execve", .addr = 0x200, .nr = 59 },
	{ .name = "exit_group", .addr = 0x300, .nr = 231 },
	{ .name = "rt_sigreturn", .addr = 0x400, .nr = 15 },
	{ .name = "fork", .addr = 0x500, .nr = 57, .shared = true },
	{ .name = "execveat", .addr = 0x600, .nr = 322 },
};

const struct syscall_entry *syscall_table_at(const struct syscall_table *t, u64 addr)
{
	(void)t;
	for (size_t i = 0; i < ARRAY_SIZE(entries); i++)
		if (entries[i].addr == addr)
			return &entries[i];
	return NULL;
}

/* What came out, newest last. */
static struct syscall_event seen[64];
static u8 seen_data[64][64];
static size_t n_seen;
static u64 lost_told;

static void on_event(void *arg, const struct syscall_event *e)
{
	(void)arg;
	for (u32 i = 0; i < e->n_captures; i++)
		assert_true(e->captures[i].off + e->captures[i].len <= e->data_len);
	seen[n_seen % 64] = *e;
	if (e->data_len)
		memcpy(seen_data[n_seen % 64], e->data, MIN(e->data_len, 64u));
	n_seen++;
}

static void on_lost(void *arg, u64 count)
{
	(void)arg;
	lost_told += count;
}

static struct assemble *begin(u32 n_calls, u32 data_max)
{
	const struct assemble_opts o = {
		.n_calls = n_calls, .data_max = data_max, .event = on_event, .lost = on_lost
	};
	struct assemble *a = assemble_create(&o);

	n_seen = lost_told = 0;
	assert_non_null(a);
	return a;
}

static void enter(struct assemble *a, u32 pid, u64 ip)
{
	const u64 args[SYSCALL_ARGS] = { 1, 2, 3, 4, 5, 6 };
	const struct syscall_input in = { .type = SYSCALL_IN_ENTER,
					  .pid = pid,
					  .tgid = pid,
					  .nr = -1,
					  .abi = SYSCALL_ABI_32,
					  .ip = ip,
					  .args = args,
					  .comm = "sixteen_letters_",
					  .ts_ns = 1000 };

	assert_int_equal(assemble_add(a, &in), 0);
}

static void leave(struct assemble *a, u32 pid, u64 ip, s64 ret)
{
	const struct syscall_input in = { .type = SYSCALL_IN_EXIT,
					  .pid = pid,
					  .ip = ip,
					  .ret = ret,
					  .comm = "new",
					  .duration_ns = 5 };

	assert_int_equal(assemble_add(a, &in), 0);
}

static void capture(struct assemble *a, u32 pid, const char *s, bool failed)
{
	const struct syscall_capture c = {
		.arg = 1, .what = CAPTURE_STRING, .failed = failed, .len = (u32)strlen(s)
	};
	const struct syscall_input in = {
		.type = SYSCALL_IN_CAPTURE, .pid = pid, .capture = &c, .bytes = (const u8 *)s
	};

	assert_int_equal(assemble_add(a, &in), 0);
}

/* A thread that is not its group's leader calls execve, and returns from it as the leader. */
static void execve_of_a_thread(void **state)
{
	struct assemble *a = begin(0, 0);
	struct syscall_input in = { .type = SYSCALL_IN_ENTER,
				    .pid = 101,
				    .tgid = 100,
				    .nr = -1,
				    .ip = 0x200,
				    .comm = "a",
				    .ts_ns = 1 };

	(void)state;
	enter(a, 100, 0x100); /* the leader waits in a read, and is killed there */
	assert_int_equal(assemble_add(a, &in), 0);
	leave(a, 100, 0x200, 0);
	assert_int_equal(n_seen, 2);
	assert_true(seen[0].pid == 100 && seen[0].state == SYSCALL_NEVER);
	assert_true(seen[1].pid == 101 && seen[1].state == SYSCALL_EXECVE);
	/* the leader was in none */
	assert_int_equal(assemble_add(a, &in), 0);
	leave(a, 100, 0x200, 0);
	assert_int_equal(n_seen, 3);
	assert_true(seen[2].state == SYSCALL_EXECVE);
	/* that of another group stays its own */
	in.tgid = 7;
	assert_int_equal(assemble_add(a, &in), 0);
	leave(a, 100, 0x200, 0);
	assert_int_equal(n_seen, 3);
	assemble_destroy(a);
}

static void exec_of(struct assemble *a, u32 pid, u32 tgid, u64 ip)
{
	const struct syscall_input in = {
		.type = SYSCALL_IN_ENTER, .pid = pid, .tgid = tgid, .nr = -1, .ip = ip
	};

	assert_int_equal(assemble_add(a, &in), 0);
}

/* Threads of many groups, and several of one: each group's oldest is the one that returns, and no other. */
static void execves_of_threads(void **state)
{
	const u32 n = 3000;
	struct assemble *a = begin(0, 0);
	struct assemble_counts c;

	(void)state;
	for (u32 i = 1; i <= n; i++) {
		exec_of(a, 100000 + 3 * i, i, 0x200);
		exec_of(a, 100001 + 3 * i, i, 0x200);
		exec_of(a, 100002 + 3 * i, i, 0x600);
	}
	for (u32 i = 1; i <= n; i += 2) { /* one is killed before */
		n_seen = 0;
		leave(a, 100000 + 3 * i, 0x200, -4);
		assert_int_equal(seen[0].pid, 100000 + 3 * i);
	}
	for (u32 i = n; i; i--) {
		n_seen = 0;
		leave(a, i, 0x200, 0);
		assert_int_equal(n_seen, 1);
		assert_int_equal(seen[0].state, SYSCALL_EXECVE);
		assert_int_equal(seen[0].pid, 100000 + 3 * i + (i & 1));
		leave(a, i, 0x600, 0);
		assert_int_equal(n_seen, 2);
		assert_int_equal(seen[1].pid, 100002 + 3 * i);
	}
	assemble_get_counts(a, &c);
	assert_int_equal(c.open, n / 2);
	assert_int_equal(c.orphan_returns, 0);
	assemble_destroy(a);
}

static u64 cpu_ms(void)
{
	struct rusage r;

	assert_int_equal(getrusage(RUSAGE_SELF, &r), 0);
	return (u64)r.ru_utime.tv_sec * 1000 + (u64)r.ru_utime.tv_usec / 1000;
}

/* A guest that makes up returns of execve costs what they are, however many calls are open: a walk takes seconds. */
static void made_up_execves(void **state)
{
	const u32 n = 65536, returns = 20000;
	struct assemble *a = begin(0, 0);
	struct assemble_counts c;
	u64 began;

	(void)state;
	for (u32 pid = 1; pid < n; pid++)
		exec_of(a, pid, 2 * n + (pid & 1), pid & 2 ? 0x100 : 0x600);
	began = cpu_ms();
	for (u32 i = 0; i < returns; i++)
		leave(a, 2 * n + i % 3, 0x200, 0);
	assert_in_range(cpu_ms() - began, 0, 1000);
	assemble_get_counts(a, &c);
	assert_int_equal(c.orphan_returns, returns);
	assert_int_equal(c.open, n - 1);
	assemble_destroy(a);
}

/* The end of a call is told when its pid is another task's already. */
static void told_late(void **state)
{
	struct assemble *a = begin(0, 0);
	const struct syscall_input never = { .type = SYSCALL_IN_NEVER, .pid = 5, .ip = 0x300 };

	(void)state;
	enter(a, 5, 0x100);
	assert_int_equal(assemble_add(a, &never), 0);
	assert_int_equal(n_seen, 0);
	leave(a, 5, 0x100, 3);
	assert_int_equal(n_seen, 1);
	assert_int_equal(seen[0].state, SYSCALL_RETURNED);
	assemble_destroy(a);
}

static void a_call(void **state)
{
	struct assemble *a = begin(0, 0);
	struct assemble_counts c;

	(void)state;
	enter(a, 7, 0x100);
	capture(a, 7, "hello", false);
	capture(a, 7, "gone", true);
	leave(a, 7, 0x100, -4);
	assert_int_equal(n_seen, 1);
	assert_int_equal(seen[0].state, SYSCALL_RETURNED);
	assert_int_equal(seen[0].ret, -4);
	assert_true(syscall_failed(&seen[0]));
	assert_int_equal(seen[0].n_args, 3);
	assert_int_equal(seen[0].nr, 0);
	assert_int_equal(seen[0].abi, SYSCALL_ABI_64);
	assert_int_equal(seen[0].args[5], 6);
	assert_int_equal(seen[0].duration_ns, 5);
	assert_string_equal(seen[0].comm, "sixteen_letters_");
	assert_int_equal(seen[0].n_captures, 2);
	assert_int_equal(seen[0].captures[0].len, 5);
	assert_int_equal(seen[0].captures[1].len, 0);
	assert_memory_equal(seen_data[0], "hello", 5);
	assemble_get_counts(a, &c);
	assert_int_equal(c.entries, 1);
	assert_int_equal(c.events, 1);
	assert_int_equal(c.open, 0);
	assemble_destroy(a);
	assemble_destroy(NULL);
}

static void states(void **state)
{
	static const struct {
		u64 ip;
		s64 ret;
		enum syscall_state state;
	} cases[] = {
		{ 0x200, 0, SYSCALL_EXECVE },       { 0x200, -2, SYSCALL_RETURNED },
		{ 0x400, -4, SYSCALL_SIGRETURN },   { 0x100, -512, SYSCALL_RESTARTED },
		{ 0x100, -513, SYSCALL_RESTARTED }, { 0x100, -514, SYSCALL_RESTARTED },
		{ 0x100, -516, SYSCALL_RESTARTED }, { 0x100, -515, SYSCALL_RETURNED },
	};
	const struct syscall_input never = { .type = SYSCALL_IN_NEVER, .pid = 1, .ip = 0x300 };
	struct assemble *a = begin(0, 0);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		enter(a, 1, cases[i].ip);
		leave(a, 1, 0, cases[i].ret);
		assert_int_equal(seen[i].state, cases[i].state);
	}
	assert_string_equal(seen[0].comm_after, "new");
	assert_int_equal(syscall_restart(-512), RESTART_SA_RESTART);
	assert_int_equal(syscall_restart(-4), RESTART_NOT);
	enter(a, 1, 0x300);
	assert_int_equal(assemble_add(a, &never), 0);
	assert_int_equal(seen[n_seen - 1].state, SYSCALL_NEVER);
	enter(a, 1, 0x500);
	leave(a, 1, 0, 9);
	assert_int_equal(seen[n_seen - 1].abi, SYSCALL_ABI_32); /* the task's, as it is shared */
	assemble_destroy(a);
}

static void gaps(void **state)
{
	const struct syscall_input lost = { .type = SYSCALL_IN_LOST, .count = 12 };
	struct assemble *a = begin(2, 0);
	struct assemble_counts c;

	(void)state;
	enter(a, 1, 0x100);
	enter(a, 1, 0x200); /* the return of the first was lost */
	assert_int_equal(n_seen, 1);
	assert_int_equal(seen[0].state, SYSCALL_UNFINISHED);
	leave(a, 1, 0x100, 0); /* a return whose entry was lost, and the second's return as well */
	assert_int_equal(n_seen, 2);
	assert_int_equal(seen[1].state, SYSCALL_UNFINISHED);
	leave(a, 1, 0x100, 0);
	capture(a, 1, "x", false);
	enter(a, 1, 0xbad);
	enter(a, 1, 0x100);
	enter(a, 2, 0x100);
	enter(a, 3, 0x100); /* no room: the oldest goes */
	assert_int_equal(n_seen, 3);
	assert_int_equal(seen[2].pid, 1);
	assert_int_equal(assemble_add(a, &lost), 0);
	assert_int_equal(lost_told, 12);
	assemble_finish(a);
	assert_int_equal(n_seen, 5);
	assert_int_equal(seen[3].pid, 2);
	assemble_get_counts(a, &c);
	assert_int_equal(c.entries, 5);
	assert_int_equal(c.events, 5);
	assert_int_equal(c.unfinished, 5);
	assert_int_equal(c.forgotten, 1);
	assert_int_equal(c.returns, 2);
	assert_int_equal(c.orphan_returns, 2);
	assert_int_equal(c.orphan_captures, 1);
	assert_int_equal(c.unknown_sites, 1);
	assert_int_equal(c.lost, 12);
	assert_int_equal(c.open, 0);
	assemble_destroy(a);
}

/* As many tasks as a guest may have waiting: nobody is forgotten up to the limit, whoever else comes and goes. */
static void room_grows(void **state)
{
	struct assemble *a = begin(0, 0);
	struct assemble_counts c;
	const u32 n = 65536;

	(void)state;
	for (u32 pid = 1; pid <= n; pid++) {
		enter(a, pid, 0x100);
		if (pid % 3 == 0)
			capture(a, pid, "abc", false);
		if (pid % 1000 == 0)
			assert_int_equal(assemble_open(a, pid / 3 * 3)->n_captures, 1);
	}
	assemble_get_counts(a, &c);
	assert_int_equal(c.open, n);
	assert_int_equal(c.forgotten, 0);
	enter(a, n + 1, 0x100);
	enter(a, n + 2, 0x100);
	assemble_get_counts(a, &c);
	assert_int_equal(c.forgotten, 2);
	assert_int_equal(seen[1].pid, 2);
	assert_int_equal(seen[1].state, SYSCALL_UNFINISHED);
	for (u32 pid = 3; pid <= n + 2; pid++) {
		n_seen = 0;
		leave(a, pid, 0x100, pid);
		assert_int_equal(seen[0].state, SYSCALL_RETURNED);
		assert_int_equal(seen[0].pid, pid);
		assert_int_equal(seen[0].n_captures, pid <= n && pid % 3 == 0);
	}
	leave(a, 1, 0x100, 0);
	assemble_get_counts(a, &c);
	assert_int_equal(c.unfinished, 2);
	assert_int_equal(c.orphan_returns, 1);
	assert_int_equal(c.open, 0);
	assemble_destroy(a);
}

static void memory_is_bounded(void **state)
{
	struct assemble *a = begin(0, 8);
	struct assemble_counts c;

	(void)state;
	enter(a, 1, 0x100);
	capture(a, 1, "123456", false);
	capture(a, 1, "123456", false);
	for (int i = 0; i < 20; i++)
		capture(a, 1, "7", false);
	leave(a, 1, 0, 0);
	assert_int_equal(seen[0].data_len, 8);
	assert_false(seen[0].captures[0].truncated);
	assert_true(seen[0].captures[1].truncated);
	assert_int_equal(seen[0].captures[1].len, 2);
	assert_int_equal(seen[0].n_captures, SYSCALL_CAPTURES);
	assert_true(seen[0].captures_left_out);
	assemble_get_counts(a, &c);
	assert_int_equal(c.captures_left_out, 6);
	assemble_destroy(a);
}

/* 64 MiB for all open calls: what is more is left out, and said, until some of it is handed on. */
static void so_are_all_calls_together(void **state)
{
	struct assemble *a = begin(0, 0);
	struct assemble_counts c;
	char text[4097];

	(void)state;
	memset(text, 'x', 4096);
	text[4096] = 0;
	for (u32 pid = 1; pid <= (64u << 20) / 4096 + 3; pid++) {
		enter(a, pid, 0x100);
		capture(a, pid, text, false);
	}
	assemble_get_counts(a, &c);
	assert_int_equal(c.captures_left_out, 3);
	assert_true(assemble_open(a, (64u << 20) / 4096 + 1)->captures_left_out);
	leave(a, 5, 0x100, 0);
	capture(a, 6, "y", false);
	capture(a, 7, text, false);
	capture(a, 8, "z", false);
	assemble_get_counts(a, &c);
	assert_int_equal(c.captures_left_out, 4);
	assemble_destroy(a);
}

/* Against the law of the header: whatever comes in, everything is handed on or counted. */
static void nothing_is_lost_silently(void **state)
{
	struct assemble *a = begin(8, 64);
	struct assemble_counts c;

	(void)state;
	srand(3);
	for (int i = 0; i < 200000; i++) {
		u32 pid = (u32)rand() % 20;
		u64 ip = (u64)(rand() % 6) << 8;

		switch (rand() % 4) {
		case 0:
			enter(a, pid, ip);
			break;
		case 1:
			capture(a, pid, "abc", rand() & 1);
			break;
		case 2:
			leave(a, pid, ip, rand() % 600 - 550);
			break;
		default:
			assert_int_equal(
				assemble_add(a, &(struct syscall_input){ .type = SYSCALL_IN_NEVER,
									 .pid = pid,
									 .ip = ip }),
				0);
		}
		assemble_get_counts(a, &c);
		assert_int_equal(c.entries, c.events + c.open);
		assert_int_equal(c.events, n_seen);
		assert_true(c.open <= 8);
	}
	assert_int_equal(assemble_add(a, &(struct syscall_input){ .type = 99 }), -EINVAL);
	assemble_destroy(a);
}

#define WHOLE 40u

/* What there is at the address of argument @arg. */
static u8 there_is(u32 arg, u32 k)
{
	return (u8)(arg * WHOLE + k);
}

/* Pieces of all that @arg points to, some of which are lost. Returns how many bytes come before the first lost one. */
static u32 send_pieces(struct assemble *a, u8 arg, u8 what)
{
	u32 got = 0, number = 0;
	bool lost = false;

	for (u32 k = 0, n; k < WHOLE; k += n, number++) {
		u8 bytes[8];
		struct syscall_capture c = { .arg = arg,
					     .what = what,
					     .full_len = what == CAPTURE_BYTES
								 ? WHOLE
								 : CAPTURE_LEN_UNKNOWN };
		const struct syscall_input in = { .type = SYSCALL_IN_CAPTURE,
						  .pid = 1,
						  .capture = &c,
						  .bytes = bytes,
						  .number = number,
						  .open = k + 8 < WHOLE };

		n = what == CAPTURE_BYTES ? 1 + (u32)rand() % 8 : 8;
		n = MIN(n, WHOLE - k);
		for (u32 i = 0; i < n; i++)
			bytes[i] = there_is(arg, k + i);
		c.len = n;
		c.count = 1;
		c.truncated = what == CAPTURE_BYTES;
		if (!(rand() % 8)) {
			lost = true;
			continue;
		}
		assert_int_equal(assemble_add(a, &in), 0);
		got += lost ? 0 : n;
	}
	return got;
}

/* Whichever pieces are lost: a capture is a beginning of what there is, and says so if it is not all of it. */
static void lost_pieces(void **state)
{
	struct assemble *a = begin(0, 0);
	const struct syscall_event *e;

	(void)state;
	srand(5);
	for (u32 call = 0; call < 20000; call++) {
		u32 got[5], n = 0;

		enter(a, 1, 0x100);
		for (u8 arg = 0; arg < 5; arg++)
			got[arg] = send_pieces(a, arg, arg & 1 ? CAPTURE_STRINGS : CAPTURE_BYTES);
		e = assemble_open(a, 1);
		for (u32 i = 0; i < e->n_captures; i++) {
			const struct syscall_capture *c = &e->captures[i];

			assert_true(i == 0 || c->arg > e->captures[i - 1].arg);
			assert_int_equal(c->len, got[c->arg]);
			assert_int_equal(c->failed, !c->len);
			assert_true(c->failed || c->truncated == (c->len < WHOLE));
			for (u32 k = 0; k < c->len; k++)
				assert_int_equal(e->data[c->off + k], there_is(c->arg, k));
			n += !c->failed;
		}
		for (u8 arg = 0; arg < 5; arg++)
			n -= got[arg] != 0;
		assert_int_equal(n, 0);
		leave(a, 1, 0x100, 0);
	}
	assemble_destroy(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_call),
		cmocka_unit_test(execve_of_a_thread),
		cmocka_unit_test(execves_of_threads),
		cmocka_unit_test(made_up_execves),
		cmocka_unit_test(told_late),
		cmocka_unit_test(states),
		cmocka_unit_test(gaps),
		cmocka_unit_test(room_grows),
		cmocka_unit_test(memory_is_bounded),
		cmocka_unit_test(so_are_all_calls_together),
		cmocka_unit_test(nothing_is_lost_silently),
		cmocka_unit_test(lost_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
