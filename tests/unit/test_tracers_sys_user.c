// SPDX-License-Identifier: Apache-2.0
/* The decoder's plans as the agent's steps, and what the agent's records of them say. */
#include "tracers/sys_user.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct sys_user user;
static const struct plan_opts plain, fds = { .fd_paths = true }, longer = { .string_max = 200 },
				     longest = { .string_max = 1000 };

static int begin(void **state)
{
	(void)state;
	memset(&user, 0, sizeof(user));
	return 0;
}

static const struct agent_user_step *steps_of(const char *name, u8 abi, const struct plan_opts *o)
{
	const struct syscall_entry e = { .name = name, .abi = abi };
	u32 first = sys_user_add(&user, &e, o, NULL, NULL);

	return first ? &user.steps[first - 1] : NULL;
}

static u32 run_length(const struct agent_user_step *s)
{
	u32 n = 1;

	while (!(s[n - 1].flags & AGENT_USER_LAST))
		n++;
	return n;
}

static void buffers(void **state)
{
	const struct agent_user_step *s = steps_of("write", SYSCALL_ABI_64, &plain);

	(void)state;
	assert_int_equal(run_length(s), 1);
	assert_int_equal(s->op, AGENT_USER_BYTES);
	assert_true(s->base == 1 && s->len == 2 && s->each == 1 && s->max == 32);
	assert_int_equal(s->flags, AGENT_USER_LAST);
	s = steps_of("read", SYSCALL_ABI_64, &longer);
	assert_true(s->flags == (AGENT_USER_LAST | AGENT_USER_AT_EXIT | AGENT_USER_RET));
	assert_true(s->base == 1 && s->len == AGENT_USER_NONE && s->max == 200);
	assert_null(steps_of("getppid", SYSCALL_ABI_64, &plain));
	/* calls that need the same share it */
	assert_ptr_equal(steps_of("pwrite64", SYSCALL_ABI_64, &plain),
			 steps_of("write", SYSCALL_ABI_64, &plain));
}

static void programs(void **state)
{
	const struct agent_user_step *s = steps_of("execve", SYSCALL_ABI_64, &plain);
	bool strings = false, args = false, counted = false;

	(void)state;
	for (u32 n = run_length(s); n--; s++) {
		strings |= s->op == AGENT_USER_STRINGS && s->base == 1 &&
			   !(s->flags & AGENT_USER_AT_EXIT);
		args |= s->op == AGENT_USER_ARGS && s->flags & AGENT_USER_AT_EXIT;
		counted |= s->op == AGENT_USER_COUNT && s->base == 2;
	}
	assert_true(strings && args && counted);
}

static void messages(void **state)
{
	const struct agent_user_step *s = steps_of("sendmsg", SYSCALL_ABI_64, &plain);
	bool data = false, name = false;

	(void)state;
	for (u32 n = run_length(s); n--; s++) {
		data |= s->op == AGENT_USER_IOVEC && s->ptr_at == 16 && s->len_at == 24 &&
			s->each == 32;
		name |= s->op == AGENT_USER_BYTES && s->ptr_at == 0 && s->len_at == 8;
	}
	assert_true(data && name);
	/* their layout is another in 32-bit programs, a buffer's is not */
	assert_non_null(steps_of("write", SYSCALL_ABI_32, &plain));
	assert_null(steps_of("fstat", SYSCALL_ABI_32, &plain));
}

/* Laid out as 32-bit programs have it, by the handler's name. */
static void narrow(void **state)
{
	const struct syscall_entry sleep32 = { .name = "nanosleep_time32",
					       .kernel_name = "nanosleep_time32",
					       .abi = SYSCALL_ABI_32 };
	const struct syscall_entry sleep64 = { .name = "clock_nanosleep",
					       .kernel_name = "clock_nanosleep",
					       .abi = SYSCALL_ABI_32 };
	const struct agent_user_step *s;
	bool data = false, name = false, iov = false;

	(void)state;
	s = &user.steps[sys_user_add(&user, &sleep32, &plain, NULL, NULL) - 1];
	assert_true(s->op == AGENT_USER_BYTES && s->base == 0 && s->max == 8);
	s = &user.steps[sys_user_add(&user, &sleep64, &plain, NULL, NULL) - 1];
	assert_true(s->op == AGENT_USER_BYTES && s->base == 2 && s->max == 16);
	s = steps_of("writev", SYSCALL_ABI_32, &plain);
	assert_true(s->op == AGENT_USER_BYTES && s->each == 8 && s->max == 8 * 32);
	s = steps_of("sendmsg", SYSCALL_ABI_32, &plain);
	assert_int_equal(s->max, 28);
	for (u32 n = run_length(s); n--; s++) {
		data |= s->op == AGENT_USER_IOVEC && s->ptr_at == 8 && s->len_at == 12;
		iov |= s->op == AGENT_USER_BYTES && s->ptr_at == 8 && s->each == 8;
		name |= s->op == AGENT_USER_BYTES && s->ptr_at == 0 && s->len_at == 4;
	}
	assert_true(data && iov && name);
	/* of an element no more is taken for its own than the agent reads of one, however much was asked for */
	data = false;
	s = steps_of("writev", SYSCALL_ABI_64, &longest);
	for (u32 n = run_length(s); n--; s++)
		data |= s->op == AGENT_USER_IOVEC && s->each == AGENT_CAPTURE_MAX &&
			s->tag >> 16 == s->each;
	assert_true(data);
	assert_non_null(steps_of("poll", SYSCALL_ABI_32, &plain));
	assert_null(steps_of("writev", SYSCALL_ABI_X32, &plain));
	assert_null(steps_of("poll", SYSCALL_ABI_X32, &plain));
}

static void environment(void **state)
{
	const struct plan_opts o = { .env = true };
	const struct agent_user_step *s = steps_of("execve", SYSCALL_ABI_64, &o);
	bool strings = false, env = false, argv = false;

	(void)state;
	for (u32 n = run_length(s); n--; s++) {
		strings |= s->op == AGENT_USER_STRINGS && s->base == 2;
		env |= s->op == AGENT_USER_ARGS && s->base == 2 && s->flags & AGENT_USER_ENV;
		argv |= s->op == AGENT_USER_ARGS && s->base == 1 && !(s->flags & AGENT_USER_ENV);
		assert_int_not_equal(s->op, AGENT_USER_COUNT);
	}
	assert_true(strings && env && argv);
}

static void commands(void **state)
{
	const struct agent_user_step *s = steps_of("ioctl", SYSCALL_ABI_64, &plain);
	bool winsize = false;

	(void)state;
	for (u32 n = run_length(s); n--; s++) {
		assert_int_equal(s->if_arg, 1);
		assert_int_equal(s->base, 2);
		winsize |= s->if_value == 0x5413 && s->if_mask == UINT32_MAX && s->max == 8;
	}
	assert_true(winsize);
}

static void descriptors(void **state)
{
	const struct agent_user_step *s = steps_of("openat", SYSCALL_ABI_64, &fds);
	bool dir = false, result = false;

	(void)state;
	for (u32 n = run_length(s); n--; s++) {
		dir |= s->op == AGENT_USER_FD && s->base == 0 && !(s->flags & AGENT_USER_AT_EXIT);
		result |= s->op == AGENT_USER_FD && s->base == AGENT_USER_RESULT &&
			  s->flags & AGENT_USER_AT_EXIT;
	}
	assert_true(dir && result);
}

/* Every call there is, with everything asked for, fits; and each run ends. */
static void all(void **state)
{
	static const char *const names[] = { "openat",  "ioctl", "fcntl", "prctl",  "futex",
					     "recvmsg", "poll",  "wait4", "select", "clone3" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const struct agent_user_step *s = steps_of(names[i], SYSCALL_ABI_64, &fds);

		assert_true(!s || run_length(s) <= AGENT_USER_RUN);
	}
	assert_int_equal(user.n_left_out, 0);
}

static void pieces(void **state)
{
	struct sys_user_piece p;

	(void)state;
	assert_true(sys_user_piece(1 | CAPTURE_BYTES << 8 | 2ull << AGENT_USER_NUMBER_SHIFT |
					   AGENT_USER_EXIT,
				   300, 44, &p));
	assert_true(p.capture.arg == 1 && p.capture.what == CAPTURE_BYTES && p.number == 2 &&
		    p.capture.source == CAPTURE_USER_EXIT && p.capture.full_len == 300 &&
		    p.capture.len == 44 && !p.capture.failed);
	assert_true(sys_user_piece(CAPTURE_STRINGS << 8 | 0xffffull << AGENT_USER_NUMBER_SHIFT |
					   3ull << AGENT_USER_COUNT_SHIFT,
				   0, 0, &p));
	assert_true(p.ends && p.number == 3);
	assert_true(sys_user_piece(AGENT_USER_FAILED, AGENT_CAPTURE_UNKNOWN, 0, &p));
	assert_true(p.capture.failed && p.capture.source == CAPTURE_USER_ENTER);
	assert_false(sys_user_piece(7, 0, 0, &p)); /* no such argument */
	assert_false(sys_user_piece(99 << 8, 0, 0, &p));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(buffers, begin),
		cmocka_unit_test_setup(programs, begin),
		cmocka_unit_test_setup(messages, begin),
		cmocka_unit_test_setup(narrow, begin),
		cmocka_unit_test_setup(environment, begin),
		cmocka_unit_test_setup(commands, begin),
		cmocka_unit_test_setup(descriptors, begin),
		cmocka_unit_test_setup(all, begin),
		cmocka_unit_test(pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
