// SPDX-License-Identifier: Apache-2.0
/*
 * What the agent takes of system calls, natively: their registers, and copies of what the kernel holds.
 * "The kernel" is this process: its memory is the half that captures may be of.
 */
#include "tests/unit/test_agent_lib.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SLOTS        256
#define A            3
#define B            4
#define OUTER        20
#define PLAIN        12 /* nothing is asked of it */
#define CAPTURE(n)   ((u32)((n) + 1) << AGENT_SITE_CAPTURE_SHIFT)
#define HALF         0x10000
#define SOCKADDR_MAX 128

/* As odd as a kernel's. */
struct fake_filename {
	u64 pad;
	const char *name;
	const void *uptr;
	u32 len;
};

static struct rig rig;
static struct rig_seen seen;

static const struct agent_capture path = {
	.flags = AGENT_CAPTURE_RETURN | AGENT_CAPTURE_STRING,
	.max_bytes = AGENT_CAPTURE_MAX,
	.len = AGENT_CAPTURE_NONE,
	.key = AGENT_CAPTURE_NONE,
	.ptr_at = offsetof(struct fake_filename, name),
	.len_at = -1,
	.key_at = offsetof(struct fake_filename, uptr),
};

static const struct agent_capture address = {
	.max_bytes = SOCKADDR_MAX,
	.base = 1,
	.len = 2,
	.key = 0,
	.ptr_at = -1,
	.len_at = -1,
	.key_at = -1,
};

static void open_rig(u32 mode)
{
	rig_open(&rig, &(struct rig_opts){ .slots = SLOTS,
					   .mode = mode,
					   .graph = true,
					   .full = true,
					   .options = AGENT_OPT_FULL,
					   .sites = 64,
					   .tasks = 64 });
	rig.hdr->kernel_half = HALF;
	rig.hdr->captures[0] = path;
	rig.hdr->captures[1] = address;
	rig_site(&rig, A, CAPTURE(0));
	rig_site(&rig, B, CAPTURE(1));
}

static void close_rig(void)
{
	assert_int_equal(RIG_COUNTER(&rig, frame_errors) + RIG_COUNTER(&rig, orphans), 0);
	assert_int_equal(rig_check_frames(&rig), 0);
	rig_close(&rig);
}

static void look(void)
{
	rig_look(&rig, 0, &seen);
	rig.cpu[0].tail = rig.cpu[0].head;
}

static void put(u64 in[R_COUNT], u32 reg, const void *p)
{
	in[reg] = (u64)(uintptr_t)p;
}

/* A function that returns its rax. */
static void return_of(const void *p)
{
	u64 in[R_COUNT] = { 0 }, out[R_COUNT];

	in[R_FLAGS] = 2 | FLAG_IF;
	put(in, R_RAX, p);
	rig_call_regs(&rig, A, in, out);
	assert_true(out[R_RAX] == in[R_RAX]);
}

static void pass_address(const void *p, u64 len)
{
	u64 in[R_COUNT] = { 0 }, out[R_COUNT];

	in[R_FLAGS] = 2 | FLAG_IF;
	in[R_RDI] = 0x1234;
	put(in, R_RSI, p);
	in[R_RDX] = len;
	rig_call_regs(&rig, B, in, out);
}

/* The only record is a capture of @n bytes at @p, of which there are @there. */
static void assert_capture(u32 program, u64 key, const void *p, u32 n, u32 there)
{
	const struct rig_record *r = &seen.v[0];
	u8 bytes[AGENT_CAPTURE_MAX + 8] = { 0 };

	assert_int_equal(seen.n, 1);
	assert_int_equal(r->rec.type, RING_FUNCTION);
	assert_true(r->rec.ip == rig_ip(&rig, program == 0 ? A : B));
	assert_int_equal(r->n_data, 1 + (n + 7) / 8);
	assert_int_equal(r->kind[0], AGENT_DATA_CAPTURE | program);
	assert_true(r->sizes == ((u64)there << 16 | n));
	assert_true(r->data[0] == key);
	for (u32 i = 1; i < r->n_data; i++) {
		assert_int_equal(r->kind[i], AGENT_DATA_BYTES | (i - 1));
		memcpy(bytes + (i - 1) * 8, &r->data[i], 8);
	}
	assert_memory_equal(bytes, p, n);
	for (u32 i = n; i < (n + 7) / 8 * 8; i++)
		assert_int_equal(bytes[i], 0);
}

/* Every length, at every alignment; longer ones are cut, and say so. */
static void strings(void **state)
{
	static char text[400];
	struct fake_filename f = { .uptr = (void *)0x7fff1000 };

	(void)state;
	for (u32 i = 0; i + 1 < sizeof(text); i++)
		text[i] = (char)(1 + i * 127 % 255);
	for (u32 len = 0; len < 300; len++) {
		u32 at = len % 8, n = MIN(len, (u32)AGENT_CAPTURE_MAX);
		char there = text[at + len];

		open_rig(len & 1 ? AGENT_MODE_OVERWRITE : AGENT_MODE_DISCARD);
		text[at + len] = 0;
		f.name = text + at;
		return_of(&f);
		text[at + len] = there;
		look();
		assert_capture(0, 0x7fff1000, text + at, n,
			       len < AGENT_CAPTURE_MAX ? len : AGENT_CAPTURE_UNKNOWN);
		close_rig();
	}
}

static void addresses(void **state)
{
	u8 bytes[SOCKADDR_MAX];

	(void)state;
	for (u32 i = 0; i < sizeof(bytes); i++)
		bytes[i] = (u8)(i * 7 + 1);
	for (u32 len = 0; len <= sizeof(bytes); len++) {
		open_rig(AGENT_MODE_DISCARD);
		pass_address(bytes, 0xdead00000000 | len);
		look();
		assert_capture(1, 0x1234, bytes, len, len);
		close_rig();
	}
	open_rig(AGENT_MODE_DISCARD);
	pass_address(bytes, 0xffffffff); /* less than nothing, or too much */
	look();
	assert_capture(1, 0x1234, bytes, SOCKADDR_MAX, 0xffffffff);
	close_rig();
}

/* Errors, NULL, what lies in user space: nothing is looked at. */
static void not_pointers(void **state)
{
	const s64 bad[] = { 0, -ENOENT, -4095, -4096, 0xfff, HALF - 1, -1 };
	struct fake_filename f = { .name = (char *)HALF - 1 };

	(void)state;
	open_rig(AGENT_MODE_DISCARD);
	for (u32 i = 0; i < ARRAY_SIZE(bad); i++) {
		return_of((void *)(uintptr_t)bad[i]);
		pass_address((void *)(uintptr_t)bad[i], 16);
	}
	return_of(&f);
	look();
	assert_int_equal(seen.n, 0);
	assert_int_equal(RIG_COUNTER(&rig, lost), 0);
	close_rig();
}

/* Where the object does not say what it is of, the entry's argument does. */
static void key_of_the_entry(void **state)
{
	struct fake_filename f = { .name = "path", .uptr = (void *)0x4321 };
	u64 in[R_COUNT] = { 0 }, out[R_COUNT];

	(void)state;
	open_rig(AGENT_MODE_DISCARD);
	rig.hdr->captures[0].key_at = -1;
	rig.hdr->captures[0].key = 1;
	in[R_FLAGS] = 2 | FLAG_IF;
	in[R_RSI] = 0x7fff12345678;
	put(in, R_RAX, &f);
	rig_call_regs(&rig, A, in, out);
	look();
	assert_capture(0, 0x12345678, "path", 4, 4);
	rig.hdr->captures[0].key = AGENT_CAPTURE_NONE;
	rig_call_regs(&rig, A, in, out);
	look();
	assert_capture(0, 0, "path", 4, 4);
	close_rig();
}

/* A header that a guest wrote over costs it its records. */
static void wrong_programs(void **state)
{
	struct fake_filename f = { .name = "short" };

	(void)state;
	open_rig(AGENT_MODE_DISCARD);
	rig.hdr->captures[0].max_bytes = 0xffff;
	rig.hdr->captures[1].base = 200;
	return_of(&f);
	pass_address("", 1);
	look();
	assert_capture(0, 0, "short", 5, 5);
	rig.hdr->captures[0].max_bytes = 0;
	return_of(&f);
	look();
	assert_capture(0, 0, "", 0, AGENT_CAPTURE_UNKNOWN);
	close_rig();
}

/* It is written as a whole, over the ring's end too, or it is one lost record. */
static void rings(void **state)
{
	char text[100];
	struct fake_filename f = { .name = text };
	u32 told = 0;

	(void)state;
	memset(text, 'y', sizeof(text) - 1);
	text[99] = 0;
	open_rig(AGENT_MODE_DISCARD);
	for (u32 i = 0; i < 3 * SLOTS; i++) {
		return_of(&f);
		look();
		assert_capture(0, 0, text, 99, 99);
	}
	for (u32 i = 0; i < SLOTS; i++)
		return_of(&f);
	look();
	told = seen.n;
	assert_in_range(told, SLOTS / (2 + 13) - 1,
			SLOTS / (2 + 13)); /* who it was takes room, too */
	assert_int_equal(RIG_COUNTER(&rig, lost), SLOTS - told);
	close_rig();
}

static void assert_read(const struct ring_capture *c, u32 len)
{
	assert_non_null(c);
	assert_int_equal(c->program, 0);
	assert_int_equal(c->n, len);
	assert_int_equal(c->there, len);
	assert_true(c->key == 0x4321);
	for (u32 i = 0; i < len; i++)
		assert_int_equal(c->bytes[i], 'z');
}

/* All that is there, @max at a time. Return: how many captures. */
static u32 read_all(struct ring_reader *r, size_t max, u32 len)
{
	struct ring_record out[8];
	u32 told = 0;
	size_t n;

	do { /* a record is held until what follows was read */
		assert_int_equal(ring_drain(r, out, max, 1, RING_DATA, &n), 0);
		for (size_t k = 0; k < n; k++) {
			if (out[k].type != RING_FUNCTION)
				continue;
			assert_read(out[k].capture, len);
			ring_give_back(r, &out[k]);
			told++;
		}
	} while (n);
	return told;
}

/* The host's reader gets what was copied, over the ring's end and in pieces too. */
static void reader(void **state)
{
	static struct ring_capture room[4];
	struct ring_record out[8];
	struct ring_reader r;
	char text[100];
	struct fake_filename f = { .name = text, .uptr = (void *)0x4321 };
	struct ring_io io;
	size_t n;

	(void)state;
	memset(text, 'z', sizeof(text));
	open_rig(AGENT_MODE_DISCARD);
	io = rig_io(&rig);
	assert_int_equal(ring_reader_init(&r, &io, rig.hdr, 0), 0);
	for (u32 i = 0; i < ARRAY_SIZE(room); i++) {
		room[i].next = r.captures;
		r.captures = &room[i];
	}
	for (u32 i = 0; i < 3 * SLOTS; i++) {
		u32 len = i % 99;

		text[len] = 0;
		return_of(&f);
		text[len] = 'z';
		assert_int_equal(read_all(&r, 1 + i % 3, len), 1);
	}
	assert_int_equal(r.captures_dropped + r.stats.torn, 0);
	/* with nowhere to put it, it is a record without; and that is counted */
	r.captures = NULL;
	text[3] = 0;
	return_of(&f);
	assert_int_equal(ring_drain(&r, out, 8, 1, RING_DATA, &n), 0);
	assert_int_equal(n, 1);
	assert_null(out[0].capture);
	assert_int_equal(r.captures_dropped, 1);
	close_rig();
}

static const char name_text[] = "/a/path/of/some/length";
static struct fake_filename name = { .name = name_text, .uptr = (void *)0x77 };

static void *return_name(void)
{
	return &name;
}

__attribute__((used)) static void call_captured(void)
{
	rig_call(&rig, A);
}

/* rig_step() wants every register back. */
__attribute__((naked)) static void body_of_outer(void)
{
	__asm__("pushfq\n\tpush %rax\n\tpush %rcx\n\tpush %rdx\n\tpush %rsi\n\tpush %rdi\n\t"
		"push %r8\n\tpush %r9\n\tpush %r10\n\tpush %r11\n\tpush %rbp\n\tmov %rsp, %rbp\n\t"
		"and $-16, %rsp\n\tcall call_captured\n\tmov %rbp, %rsp\n\tpop %rbp\n\t"
		"pop %r11\n\tpop %r10\n\tpop %r9\n\tpop %r8\n\tpop %rdi\n\tpop %rsi\n\t"
		"pop %rdx\n\tpop %rcx\n\tpop %rax\n\tpopfq\n\tret");
}

static u32 injected;

/* The same function, in an interrupt: it has a frame and a record of its own. */
static void inject_same(struct rig *r, void *arg)
{
	(void)arg;
	injected++;
	rig_call(r, A);
}

/* An interrupt before every instruction, at the entry and at the return. */
static void interrupted(void **state)
{
	static u32 path_of[RIG_PATH_MAX];
	void (*body)(void) = (void (*)(void))return_name;
	u32 n;

	(void)state;
	open_rig(AGENT_MODE_DISCARD);
	rig_body(&rig, A, body);
	rig_body(&rig, OUTER, body_of_outer);
	n = rig_path(&rig, OUTER, path_of);
	assert_in_range(n, 200, RIG_PATH_MAX);
	close_rig();
	for (u32 i = 0; i < n; i++) {
		open_rig(i & 1 ? AGENT_MODE_OVERWRITE : AGENT_MODE_DISCARD);
		rig_body(&rig, A, body);
		rig_body(&rig, OUTER, body_of_outer);
		injected = 0;
		rig_break(&rig, OUTER, path_of[i], inject_same, NULL);
		look();
		assert_int_equal(seen.n, injected + 1 + 2);
		for (u32 k = 0; k < seen.n; k++) {
			if (seen.v[k].rec.type != RING_FUNCTION)
				continue;
			assert_int_equal(seen.v[k].n_data, 1 + 3);
			assert_int_equal(seen.v[k].data[0], 0x77);
			assert_memory_equal(&seen.v[k].data[1], name_text, 22);
		}
		close_rig();
	}
}

struct fake_regs {
	u64 other[3], r10, r9, r8, cx, dx, si, di, bx, bp, orig_ax;
};

static void syscalls(void **state)
{
	struct fake_regs regs = { .r10 = 0xa4,
				  .r9 = 0xa6,
				  .r8 = 0xa5,
				  .cx = 0x1ffffffffull,
				  .dx = 0xa3,
				  .si = 0xa2,
				  .di = 0xa1,
				  .bx = 0xb1,
				  .bp = 0xb6,
				  .orig_ax = 257 };
	const u16 off[2][AGENT_SYSCALL_REGS] = {
#define R(m) offsetof(struct fake_regs, m)
		{ R(di), R(si), R(dx), R(r10), R(r8), R(r9), R(orig_ax) },
		{ R(bx), R(cx), R(dx), R(si), R(di), R(bp), R(orig_ax) },
	};
	const u64 want[2][AGENT_SYSCALL_REGS] = {
		{ 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 257 },
		{ 0xb1, 0xffffffff, 0xa3, 0xa2, 0xa1, 0xb6, 257 },
	};
	u64 in[R_COUNT] = { [R_FLAGS] = 2 | FLAG_IF, [R_RAX] = 77 }, out[R_COUNT];
	void *elsewhere = malloc(sizeof(regs));

	(void)state;
	for (u32 is32 = 0; is32 < 2; is32++) {
		open_rig(AGENT_MODE_DISCARD);
		memcpy(rig.hdr->syscall_regs, off, sizeof(off));
		rig_site(&rig, A + 10,
			 AGENT_SITE_SYSCALL | AGENT_SITE_NR | AGENT_SITE_RETVAL |
				 AGENT_MAX_ARGS << AGENT_SITE_ARGS_SHIFT |
				 (is32 ? AGENT_SITE_SYSCALL32 : 0));
		put(in, R_RDI, &regs);
		rig_call_regs(&rig, A + 10, in, out);
		look();
		assert_int_equal(seen.n, 2);
		assert_int_equal(seen.v[0].rec.type, RING_GRAPH_ENTRY);
		assert_int_equal(seen.v[0].n_data, AGENT_SYSCALL_REGS);
		for (u32 i = 0; i < AGENT_SYSCALL_REGS; i++) {
			assert_int_equal(seen.v[0].kind[i], i < AGENT_MAX_ARGS ? AGENT_DATA_ARG | i
							    : is32             ? AGENT_DATA_NR32
									       : AGENT_DATA_NR);
			assert_true(seen.v[0].data[i] == want[is32][i]);
		}
		assert_int_equal(seen.v[1].n_data, 1);
		assert_int_equal(seen.v[1].data[0], 77);
		/* registers that are not the task's: no words, but a call all the same */
		put(in, R_RDI, elsewhere);
		rig_call_regs(&rig, A + 10, in, out);
		look();
		assert_int_equal(seen.n, 2);
		assert_int_equal(seen.v[0].n_data, 0);
		close_rig();
	}
	free(elsewhere);
}

/* No frame: the capture is not there, the function returns all the same, and it is counted. */
static void no_frames(void **state)
{
	struct fake_filename f = { .name = "x" };

	(void)state;
	open_rig(AGENT_MODE_DISCARD);
	for (u32 cpu = 0; cpu < RIG_CPUS; cpu++)
		rig.cpu[cpu].free_frames = 0;
	return_of(&f);
	look();
	assert_int_equal(seen.n, 0);
	assert_int_equal(RIG_COUNTER(&rig, lost_frames), 1);
	rig_close(&rig);
}

/* Tasks that are followed, what they fork, and until when. */
static void followed(void **state)
{
	u64 in[R_COUNT] = { [R_FLAGS] = 2 | FLAG_IF }, out[R_COUNT];
	u64 *set;

	(void)state;
	open_rig(AGENT_MODE_DISCARD);
	rig.hdr->options |= AGENT_OPT_FOLLOW;
	set = (void *)((u8 *)rig.hdr + rig.hdr->followed_off);
	rig_site(&rig, PLAIN, 0);
	rig_site(&rig, 10, AGENT_SITE_FORK);
	rig_site(&rig, 11, AGENT_SITE_EXIT);
	in[R_RDI] = (u64)(uintptr_t)&rig.task[5];
	rig_call(&rig, PLAIN); /* pid 100 is not */
	rig_call_regs(&rig, 10, in, out);
	rig_look(&rig, 0, &seen);
	assert_int_equal(seen.n, 0);
	set[100 / 64] |= 1ull << 100 % 64;
	rig_call_regs(&rig, 10, in, out);
	rig_call(&rig, PLAIN);
	rig_run(&rig, 0, 5);
	rig_call(&rig, PLAIN);
	rig_call_regs(&rig, 11, in, out); /* task 5 is released, whoever does it */
	rig_call(&rig, PLAIN);
	rig_look(&rig, 0, &seen);
	assert_int_equal(seen.n, 4);
	assert_int_equal(seen.v[0].rec.pid, 100);
	assert_int_equal(seen.v[3].rec.pid, 105);
	/*
	 * execve() by a thread that is not its group's leader: they swap pids, and the leader is released under the
	 * thread's. Whoever runs the new program goes on to be followed, the pid that is free now is not.
	 */
	rig_run(&rig, 0, 0);
	rig_call_regs(&rig, 10, in, out); /* task 5, the leader ... */
	in[R_RDI] = (u64)(uintptr_t)&rig.task[6];
	rig_call_regs(&rig, 10, in, out); /* ... and a thread of it */
	assert_true(set[105 / 64] >> 105 % 64 & 1);
	assert_true(set[106 / 64] >> 106 % 64 & 1);
	rig.task[5].pid = 106;
	rig.task[6].pid = 105;
	rig_run(&rig, 0, 6);
	in[R_RDI] = (u64)(uintptr_t)&rig.task[5];
	rig_call_regs(&rig, 11, in, out);
	assert_false(set[106 / 64] >> 106 % 64 & 1);
	rig_call(&rig, PLAIN);
	rig_look(&rig, 0, &seen);
	assert_int_equal(seen.n, 6); /* the release itself, too */
	assert_int_equal(seen.v[5].rec.pid, 105);
	/* whose user is another than asked for, as behind a setuid program, hands it on all the same */
	rig_run(&rig, 0, 0);
	rig.hdr->options |= AGENT_OPT_UIDS;
	rig.hdr->uid = 77;
	in[R_RDI] = (u64)(uintptr_t)&rig.task[7];
	rig_call_regs(&rig, 10, in, out);
	assert_true(set[107 / 64] >> 107 % 64 & 1);
	rig_look(&rig, 0, &seen);
	assert_int_equal(seen.n, 6);
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strings),          cmocka_unit_test(addresses),
		cmocka_unit_test(not_pointers),     cmocka_unit_test(wrong_programs),
		cmocka_unit_test(key_of_the_entry), cmocka_unit_test(rings),
		cmocka_unit_test(syscalls),         cmocka_unit_test(no_frames),
		cmocka_unit_test(reader),           cmocka_unit_test(interrupted),
		cmocka_unit_test(followed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
