// SPDX-License-Identifier: Apache-2.0
/* Entries, captures and returns into calls, with a made-up table of calls. */
#include "tracers/ring.h"
#include "tracers/sys_feed.h"
#include "tracers/sys_parts.h"
#include "tracers/sys_user.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define OPENAT 0xffffffff81000100ull
#define RENAME 0xffffffff81000200ull
#define BIND   0xffffffff81000300ull
#define EXIT   0xffffffff81000400ull
#define IA32   0xffffffff81000500ull

static const struct syscall_entry entries[] = {
	{ .name = "openat", .addr = OPENAT, .nr = 257, .described = true, .n_args = 4 },
	{ .name = "rename", .addr = RENAME, .nr = 82, .described = true, .n_args = 2 },
	{ .name = "bind", .addr = BIND, .nr = 49, .described = true, .n_args = 3 },
	{ .name = "exit_group", .addr = EXIT, .nr = 231, .described = true, .n_args = 1 },
	{ .name = "open", .addr = IA32, .nr = -1, .abi = SYSCALL_ABI_32 },
};

static const char *const symbols[] = { "__x64_sys_openat", "__x64_sys_rename", "__x64_sys_bind",
				       "__x64_sys_exit_group", "__ia32_compat_sys_open" };

const struct syscall_entry *syscall_table_at(const struct syscall_table *t, u64 addr)
{
	(void)t;
	for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
		if (addr - entries[i].addr < 16)
			return &entries[i];
	}
	return NULL;
}

bool plan_all(const struct syscall_entry *e, const struct plan_opts *o, struct plan *ret)
{
	(void)e;
	(void)o;
	ret->n = 0;
	return false;
}

static bool failed_only;

bool syscall_filter_match(const struct syscall_filter *f, const struct syscall_event *e)
{
	(void)f;
	return !failed_only || syscall_failed(e);
}

static bool sym(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	(void)arg;
	*off_ret = 0;
	for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
		if (addr == entries[i].addr) {
			*ret = (struct kernel_sym){ .name = symbols[i], .addr = addr, .type = 't' };
			return true;
		}
	}
	return false;
}

static const struct sys_program programs[] = {
	{ "getname", NULL, -1, CAPTURE_STRING, false },
	{ "security_socket_bind", "bind", 1, CAPTURE_SOCKADDR, false },
	{ "fixed", "exit_group", 0, CAPTURE_BYTES, false },
	{ "do_getname", NULL, -1, CAPTURE_STRING, true },
};

static struct sys_feed *feed;
static struct sys_reader *reader;
static struct syscall_event seen[16];
static u8 data[16][SYS_DATA_MAX];
static size_t n_seen;
static u64 n_put;

static void put(void *arg, const struct trace_record *r)
{
	const struct output_names names = { .sym = sym };
	struct trace_record numbered = *r; /* as a store does */
	const struct syscall_event *e;

	(void)arg;
	numbered.seq = ++n_put;
	e = sys_reader_add(reader, &numbered, &names);
	if (!e)
		return;
	seen[n_seen] = *e;
	memcpy(data[n_seen], e->data, e->data_len);
	seen[n_seen].data = data[n_seen];
	n_seen++;
}

static int begin(void **state)
{
	const struct sys_feed_opts o = { .programs = programs,
					 .n_programs = ARRAY_SIZE(programs),
					 .put = put };

	(void)state;
	n_seen = 0;
	failed_only = false;
	reader = sys_reader_create();
	return !reader || sys_feed_create(&o, &feed, NULL);
}

static int end(void **state)
{
	(void)state;
	sys_feed_destroy(feed);
	sys_reader_destroy(reader);
	return 0;
}

static void enter(u32 pid, u64 ip, u64 a0, u64 a1)
{
	struct trace_record r = { .type = TRACE_GRAPH_ENTRY,
				  .ip = ip + 4,
				  .pid = pid,
				  .tgid = pid,
				  .ts_ns = 1000,
				  .n_args = 3,
				  .args = { a0, a1, 3 },
				  .nr = -1,
				  .comm = "task" };

	sys_feed_add(feed, &r);
}

static void leave(u32 pid, u64 ip, s64 ret)
{
	struct trace_record r = { .type = TRACE_GRAPH_RETURN,
				  .ip = ip + 4,
				  .pid = pid,
				  .ts_ns = 2000,
				  .duration_ns = 900,
				  .has_retval = true,
				  .retval = (u64)ret,
				  .comm = "task" };

	sys_feed_add(feed, &r);
}

static void captured(u32 pid, u8 program, u64 key, const char *text, u32 there)
{
	struct ring_capture c = {
		.program = program, .key = key, .n = (u32)strlen(text), .there = there
	};
	struct trace_record r = {
		.type = TRACE_FUNCTION, .ip = 0xffffffff81ff0000, .pid = pid, .capture = &c
	};

	memcpy(c.bytes, text, c.n);
	sys_feed_add(feed, &r);
}

static void assert_path(const struct syscall_event *e, u8 arg, const char *text, bool truncated)
{
	const u8 *bytes;
	const struct syscall_capture *c = syscall_capture_find(e, arg, CAPTURE_STRING, &bytes);

	assert_non_null(c);
	assert_int_equal(c->len, strlen(text));
	assert_memory_equal(bytes, text, c->len);
	assert_int_equal(c->source, CAPTURE_KERNEL);
	assert_int_equal(c->truncated, truncated);
}

/* Told twice, by getname() and by what it calls: once is enough. */
static void paths(void **state)
{
	(void)state;
	enter(7, OPENAT, (u64)-100, 0x7000);
	captured(7, 0, 0x7000, "/etc/passwd", 11);
	captured(7, 0, 0x7000, "/etc/passwd", 11);
	captured(7, 0, 0x9999, "/nobody's", 9);
	captured(7, 1, 0x7000, "not bind", 8);
	captured(7, 9, 0x7000, "no such program", 15);
	leave(7, OPENAT, 5);
	assert_int_equal(n_seen, 1);
	assert_string_equal(seen[0].entry->name, "openat");
	assert_int_equal(seen[0].n_captures, 1);
	assert_path(&seen[0], 1, "/etc/passwd", false);
	assert_true(seen[0].ret == 5 && seen[0].nr == 257 && seen[0].duration_ns == 900);
	assert_true(seen[0].args[0] == (u64)-100 && seen[0].args[3] == 0);
	assert_int_equal(seen[0].state, SYSCALL_RETURNED);
}

/* Only the low half of the pointer is known. */
static void paths_by_half(void **state)
{
	(void)state;
	enter(7, OPENAT, (u64)-100, 0x7fff12347000);
	captured(7, 0, 0x12347000, "/not with a whole one", 21);
	captured(7, 3, 0x12347000, "/etc/passwd", 11);
	leave(7, OPENAT, 5);
	assert_int_equal(n_seen, 1);
	assert_int_equal(seen[0].n_captures, 1);
	assert_path(&seen[0], 1, "/etc/passwd", false);
}

/* The same pointer for both: in the order of arguments. */
static void two_paths(void **state)
{
	(void)state;
	enter(7, RENAME, 0x7000, 0x7000);
	captured(7, 0, 0x7000, "/one", 4);
	captured(7, 0, 0x7000, "/two", AGENT_CAPTURE_UNKNOWN);
	leave(7, RENAME, -2);
	assert_int_equal(n_seen, 1);
	assert_path(&seen[0], 0, "/one", false);
	assert_path(&seen[0], 1, "/two", true);
}

/* Tasks do not mix, and what has no call is counted. */
static void tasks(void **state)
{
	struct sys_feed_counts c;
	const u8 *bytes;

	(void)state;
	captured(9, 0, 0x7000, "/early", 6);
	enter(7, BIND, 3, 0x7000);
	enter(8, OPENAT, 0, 0x7000);
	captured(8, 0, 0x7000, "/eight", 6);
	captured(7, 1, 0, "address", 7);
	leave(9, OPENAT, 0);
	leave(8, OPENAT, 4);
	leave(7, BIND, -98);
	assert_int_equal(n_seen, 2);
	assert_path(&seen[0], 1, "/eight", false);
	assert_non_null(syscall_capture_find(&seen[1], 1, CAPTURE_SOCKADDR, &bytes));
	assert_memory_equal(bytes, "address", 7);
	sys_feed_get_counts(feed, &c);
	assert_int_equal(c.orphans, 2);
	assert_int_equal(c.calls, 2);
}

/* A 32-bit call's pointers are halves of registers. */
static void compat(void **state)
{
	(void)state;
	enter(7, IA32, 0xf7001000, 0);
	captured(7, 0, 0xf7001000, "/thirty-two", 11);
	leave(7, IA32, 3);
	assert_int_equal(n_seen, 1);
	assert_int_equal(seen[0].abi, SYSCALL_ABI_32);
	assert_path(&seen[0], 0, "/thirty-two", false);
}

/* Ends of all kinds: nothing that entered is gone. */
static void ends(void **state)
{
	struct trace_record never = { .type = TRACE_GRAPH_NEVER, .ip = EXIT + 4, .pid = 7 };
	struct trace_record helper = { .type = TRACE_GRAPH_NEVER,
				       .ip = 0xffffffff81ff0000,
				       .pid = 8 };
	struct trace_record refused = {
		.type = TRACE_FUNCTION, .ip = OPENAT + 4, .pid = 10, .nr = -1, .comm = "x"
	};
	struct sys_feed_counts c;

	(void)state;
	enter(7, EXIT, 3, 0);
	enter(8, OPENAT, 0, 0);
	sys_feed_add(feed, &helper);
	sys_feed_add(feed, &never);
	assert_int_equal(n_seen, 1);
	assert_int_equal(seen[0].state, SYSCALL_NEVER);
	sys_feed_add(feed, &refused); /* no frame for it */
	enter(10, RENAME, 0, 0);
	assert_int_equal(n_seen, 2);
	assert_int_equal(seen[1].state, SYSCALL_UNFINISHED);
	sys_feed_finish(feed);
	assert_int_equal(n_seen, 4);
	sys_feed_get_counts(feed, &c);
	assert_int_equal(c.calls, 4);
	assert_int_equal(c.unfinished, 3);
}

/* A struct is as long as it is. */
static void fixed(void **state)
{
	(void)state;
	enter(7, EXIT, 0, 0);
	captured(7, 2, 0, "four", AGENT_CAPTURE_UNKNOWN);
	leave(7, EXIT, 0);
	assert_int_equal(n_seen, 1);
	assert_int_equal(seen[0].captures[0].len, 4);
	assert_int_equal(seen[0].captures[0].full_len, 4);
	assert_false(seen[0].captures[0].truncated);
}

static void filtered(void **state)
{
	struct sys_feed_counts c;

	(void)state;
	failed_only = true;
	enter(7, OPENAT, 0, 0);
	leave(7, OPENAT, 3);
	enter(7, OPENAT, 0, 0);
	leave(7, OPENAT, -13);
	assert_int_equal(n_seen, 1);
	assert_true(seen[0].ret == -13);
	sys_feed_get_counts(feed, &c);
	assert_true(c.calls == 1 && c.filtered == 1);
}

static bool cut; /* words of the next pieces were lost */

/* NOLINTNEXTLINE(readability-function-size): the members of a record, in short */
static void piece(u32 pid, u8 arg, u8 what, u64 bits, u32 number, const char *bytes, u32 n,
		  u32 there)
{
	u64 key = (u64)arg | (u64)what << 8 | bits | (u64)number << AGENT_USER_NUMBER_SHIFT;
	struct ring_capture c = {
		.program = AGENT_CAPTURE_USER, .key = key, .n = n, .there = there, .cut = cut
	};
	struct trace_record r = {
		.type = TRACE_FUNCTION, .ip = 0xffffffff81ff0000, .pid = pid, .capture = &c
	};

	memcpy(c.bytes, bytes, n);
	sys_feed_add(feed, &r);
}

/* More pieces than a call can have are counted, whoever reads the call. */
static void left_out(void **state)
{
	struct sys_feed_counts c;

	(void)state;
	enter(7, OPENAT, 1, 2);
	for (u32 i = 0; i < SYSCALL_CAPTURES + 3; i++)
		piece(7, (u8)(i % 3), CAPTURE_BYTES, 0, 0, "x", 1, 1);
	leave(7, OPENAT, 0);
	assert_int_equal(n_seen, 1);
	assert_true(seen[0].captures_left_out);
	sys_feed_get_counts(feed, &c);
	assert_int_equal(c.captures_left_out, 3);
}

/* The first piece comes with the entry, what follows of it by itself. */
static void piece_of_entry(void **state)
{
	struct ring_capture c = { .program = AGENT_CAPTURE_USER,
				  .key = 1 | CAPTURE_BYTES << 8,
				  .n = 4,
				  .there = 10,
				  .bytes = "0123" };
	struct trace_record r = { .type = TRACE_GRAPH_ENTRY,
				  .ip = OPENAT + 4,
				  .pid = 7,
				  .nr = -1,
				  .comm = "task",
				  .capture = &c };
	const struct syscall_capture *got;
	const u8 *p;

	(void)state;
	n_seen = 0;
	enter(7, OPENAT, 1, 2); /* its return was lost: the piece is not of this one */
	sys_feed_add(feed, &r);
	piece(7, 1, CAPTURE_BYTES, 0, 1, "456", 3, 10);
	leave(7, OPENAT, 3);
	assert_int_equal(n_seen, 2);
	assert_int_equal(seen[0].n_captures, 0);
	assert_int_equal(seen[1].n_captures, 1);
	got = syscall_capture_find(&seen[1], 1, CAPTURE_BYTES, &p);
	assert_true(got && got->len == 7 && got->source == CAPTURE_USER_ENTER);
	assert_memory_equal(p, "0123456", 7);
}

/* Of the program's memory, in pieces: joined, with NULs behind strings, and cut where something is missing. */
static void pieces(void **state)
{
	const u32 unknown = AGENT_CAPTURE_UNKNOWN;
	const struct syscall_capture *c;
	const u8 *p;

	(void)state;
	enter(7, OPENAT, 1, 2);
	piece(7, 1, CAPTURE_BYTES, 0, 0, "0123", 4, 10);
	piece(7, 1, CAPTURE_BYTES, 0, 1, "456", 3, 10);
	piece(7, 2, CAPTURE_STRINGS, 0, 0, "one", 3, 3);
	piece(7, 2, CAPTURE_STRINGS, 0, 1, "", 0, 0);
	piece(7, 2, CAPTURE_STRINGS, 2ull << AGENT_USER_COUNT_SHIFT, 0xffff, "", 0, 0);
	piece(7, 3, CAPTURE_STRINGS, 0, 0, "cut", 3, 3);
	piece(7, 3, CAPTURE_STRINGS, AGENT_USER_FAILED, 1, "", 0, unknown);
	piece(7, 0, CAPTURE_BYTES, AGENT_USER_FAILED, 0, "", 0, unknown);
	piece(7, 0, CAPTURE_BYTES, AGENT_USER_EXIT, 0, "late", 4, 4);
	piece(7, 9, CAPTURE_BYTES, 0, 0, "no such argument", 16, 16);
	leave(7, OPENAT, 3);
	assert_int_equal(n_seen, 1);
	assert_int_equal(seen[0].n_captures, 5);
	c = syscall_capture_find(&seen[0], 1, CAPTURE_BYTES, &p);
	assert_true(c && c->len == 7 && c->full_len == 10 && c->truncated);
	assert_memory_equal(p, "0123456", 7);
	assert_int_equal(c->source, CAPTURE_USER_ENTER);
	c = syscall_capture_find(&seen[0], 2, CAPTURE_STRINGS, &p);
	assert_true(c && c->len == 5 && c->count == 2 && !c->truncated);
	assert_memory_equal(p, "one\0\0", 5);
	c = syscall_capture_find(&seen[0], 3, CAPTURE_STRINGS, &p);
	assert_true(c && c->len == 4 && c->count == 1 && c->truncated);
	c = syscall_capture_find(&seen[0], 0, CAPTURE_BYTES, &p);
	assert_true(c && c->source == CAPTURE_USER_EXIT && !memcmp(p, "late", 4));
}

static const struct syscall_capture *captured_of(u8 arg, u8 what, const u8 **bytes_ret)
{
	const struct syscall_capture *c = syscall_capture_find(&seen[0], arg, what, bytes_ret);

	assert_int_equal(n_seen, 1);
	assert_non_null(c);
	return c;
}

/* What is behind a piece that was lost is not shown as if it followed what is before it, nor as a beginning. */
static void missing_pieces(void **state)
{
	static char page[AGENT_CAPTURE_MAX];
	const u64 two = 2ull << AGENT_USER_COUNT_SHIFT;
	const struct syscall_capture *c;
	const u8 *p;

	(void)state;
	memset(page, 'a', sizeof(page));
	enter(7, OPENAT, 1, 2);
	piece(7, 0, CAPTURE_STRING, 0, 0, page, 256, AGENT_CAPTURE_UNKNOWN);
	piece(7, 0, CAPTURE_STRING, 0, 2, "end", 3, 515);
	piece(7, 1, CAPTURE_BYTES, 0, 0, "0123", 4, 16);
	piece(7, 1, CAPTURE_BYTES, 0, 2, "89ab", 4, 16);
	piece(7, 1, CAPTURE_BYTES, 0, 3, "cdef", 4, 16);
	piece(7, 1, CAPTURE_BYTES, AGENT_USER_EXIT, 1, "late", 4, 12);
	piece(7, 1, CAPTURE_BYTES, AGENT_USER_EXIT, 2, "more", 4, 12);
	piece(7, 2, CAPTURE_STRINGS, 0, 0, "one", 3, 3);
	piece(7, 2, CAPTURE_STRINGS, two, 0xffff, "", 0, 0);
	piece(7, 2, CAPTURE_BYTES, 0, 0, "whole", 5, 5);
	piece(7, 2, CAPTURE_BYTES, 0, 1, "of another", 10, 20);
	piece(7, 3, CAPTURE_STRINGS, 0, 0, "its end is lost", 15, 15);
	piece(7, 3, CAPTURE_DATA, 0, 0, "first", 5, 5);
	piece(7, 3, CAPTURE_DATA, 0, 2, "third", 5, 5);
	cut = true;
	piece(7, 4, CAPTURE_BYTES, 0, 0, "01", 2, 8);
	cut = false;
	piece(7, 4, CAPTURE_BYTES, 0, 1, "4567", 4, 8);
	leave(7, OPENAT, 3);
	c = captured_of(0, CAPTURE_STRING, &p);
	assert_true(c->len == 256 && c->truncated);
	c = captured_of(1, CAPTURE_BYTES, &p);
	assert_true(c->source == CAPTURE_USER_ENTER && c->len == 4 && c->truncated);
	c = captured_of(2, CAPTURE_STRINGS, &p);
	assert_true(c->len == 4 && c->count == 1 && c->truncated);
	c = captured_of(2, CAPTURE_BYTES, &p);
	assert_true(c->len == 5 && !c->truncated);
	c = captured_of(3, CAPTURE_STRINGS, &p);
	assert_true(c->count == 1 && c->truncated);
	c = captured_of(3, CAPTURE_DATA, &p);
	assert_true(c->len == 5 && c->truncated);
	c = captured_of(4, CAPTURE_BYTES, &p);
	assert_true(c->len == 2 && c->truncated);
	assert_int_equal(seen[0].n_captures, 9);
	assert_true(seen[0].captures[2].source == CAPTURE_USER_EXIT && seen[0].captures[2].failed &&
		    !seen[0].captures[2].len);
	assert_true(seen[0].captures[5].failed && seen[0].captures[5].what == CAPTURE_BYTES);
}

/* A string in the list that is not there: what follows is not told in its place. */
static void missing_strings(void **state)
{
	const u64 four = 4ull << AGENT_USER_COUNT_SHIFT;
	const struct syscall_capture *c;
	const u8 *p;

	(void)state;
	enter(7, OPENAT, 1, 2);
	piece(7, 1, CAPTURE_STRINGS, 0, 0, "one", 3, AGENT_CAPTURE_UNKNOWN);
	piece(7, 1, CAPTURE_STRINGS, 0, 1, "two", 3, 3);
	piece(7, 1, CAPTURE_STRINGS, AGENT_USER_FAILED, 2, "", 0, AGENT_CAPTURE_UNKNOWN);
	piece(7, 1, CAPTURE_STRINGS, 0, 3, "four", 4, 4);
	piece(7, 1, CAPTURE_STRINGS, four, 0xffff, "", 0, 0);
	piece(7, 2, CAPTURE_STRINGS, 0, 0xffff, "", 0, 0);
	leave(7, OPENAT, 3);
	c = captured_of(1, CAPTURE_STRINGS, &p);
	assert_true(c->len == 8 && c->count == 2 && c->truncated);
	assert_memory_equal(p, "one\0two", 8);
	c = captured_of(2, CAPTURE_STRINGS, &p);
	assert_true(!c->len && !c->count && !c->truncated);
}

/* A path of any length, as the kernel has it; not what another function says of it again. */
static void long_path(void **state)
{
	char part[AGENT_CAPTURE_MAX + 1];

	(void)state;
	memset(part, 'a', sizeof(part) - 1);
	part[sizeof(part) - 1] = 0;
	enter(7, OPENAT, 1, 0x7000);
	captured(7, 0, 0x7000, part, AGENT_CAPTURE_UNKNOWN);
	captured(7, 0, 0x7000, part, AGENT_CAPTURE_UNKNOWN);
	captured(7, 0, 0x7000, "end", 2 * AGENT_CAPTURE_MAX + 3);
	captured(7, 0, 0x7000, part, AGENT_CAPTURE_UNKNOWN);
	leave(7, OPENAT, 3);
	assert_int_equal(seen[0].n_captures, 1);
	assert_int_equal(seen[0].captures[0].len, 2 * AGENT_CAPTURE_MAX + 3);
	assert_false(seen[0].captures[0].truncated);
	/* one of its pieces is missing: which bytes these are is not known, but the next who tells it may know */
	enter(7, OPENAT, 1, 0x7000);
	captured(7, 0, 0x7000, part, AGENT_CAPTURE_UNKNOWN);
	captured(7, 0, 0x7000, "end", 2 * AGENT_CAPTURE_MAX + 3);
	leave(7, OPENAT, 3);
	assert_true(seen[1].captures[0].failed && !seen[1].captures[0].len);
	enter(7, OPENAT, 1, 0x7000);
	captured(7, 0, 0x7000, part, AGENT_CAPTURE_UNKNOWN);
	captured(7, 0, 0x7000, "end", 2 * AGENT_CAPTURE_MAX + 3);
	captured(7, 0, 0x7000, "/path", 5);
	leave(7, OPENAT, 3);
	assert_path(&seen[2], 1, "/path", false);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(paths),          TEST(paths_by_half),   TEST(two_paths),
		TEST(tasks),          TEST(compat),          TEST(ends),
		TEST(filtered),       TEST(fixed),           TEST(left_out),
		TEST(pieces),         TEST(piece_of_entry),  TEST(long_path),
		TEST(missing_pieces), TEST(missing_strings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
