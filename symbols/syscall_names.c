// SPDX-License-Identifier: Apache-2.0
/* Names of system calls and of their handlers: no guest is needed. See syscalls.h. */
#include "symbols/syscalls.h"

#include <string.h>

static const struct {
	const char *prefix;
	enum syscall_abi abi;
} prefixes[] = {
	{ "__x64_sys_", SYSCALL_ABI_64 },
	{ "__ia32_sys_", SYSCALL_ABI_32 },
	{ "__ia32_compat_sys_", SYSCALL_ABI_32 },
	{ "__x64_compat_sys_", SYSCALL_ABI_X32 },
};

/* Where the kernel's name of a call is not user space's (Linux v6.1 arch/x86/entry/syscalls). */
static const struct {
	const char *kernel, *user;
} renamed[] = {
	{ "newuname", "uname" },           { "newstat", "stat" },
	{ "newlstat", "lstat" },           { "newfstat", "fstat" },
	{ "umount", "umount2" },           { "sendfile64", "sendfile" },
	{ "ia32_mmap", "mmap" },           { "ia32_clone", "clone" },
	{ "ia32_fadvise64", "fadvise64" }, { "ia32_pread64", "pread64" },
	{ "ia32_pwrite64", "pwrite64" },   { "ia32_stat64", "stat64" },
	{ "ia32_lstat64", "lstat64" },     { "ia32_fstat64", "fstat64" },
	{ "ia32_fstatat64", "fstatat64" },
};

/*
 * Numbers of the 32-bit ABI whose name is not what their handler is called: it is shared with a call of the
 * 64-bit ABI, or says what its arguments are (Linux v6.12 arch/x86/entry/syscalls/syscall_32.tbl).
 */
static const struct {
	u16 nr;
	const char *name;
} names32[] = {
	/* clang-format off: a line a number */
	{ 7, "waitpid" },
	{ 13, "time" },
	{ 16, "lchown" },
	{ 18, "oldstat" },
	{ 22, "umount" },
	{ 23, "setuid" },
	{ 24, "getuid" },
	{ 25, "stime" },
	{ 28, "oldfstat" },
	{ 30, "utime" },
	{ 46, "setgid" },
	{ 47, "getgid" },
	{ 49, "geteuid" },
	{ 50, "getegid" },
	{ 59, "oldolduname" },
	{ 70, "setreuid" },
	{ 71, "setregid" },
	{ 76, "getrlimit" },
	{ 80, "getgroups" },
	{ 81, "setgroups" },
	{ 82, "select" },
	{ 84, "oldlstat" },
	{ 90, "mmap" },
	{ 95, "fchown" },
	{ 106, "stat" },
	{ 107, "lstat" },
	{ 108, "fstat" },
	{ 109, "olduname" },
	{ 122, "uname" },
	{ 124, "adjtimex" },
	{ 138, "setfsuid" },
	{ 139, "setfsgid" },
	{ 140, "_llseek" },
	{ 142, "_newselect" },
	{ 161, "sched_rr_get_interval" },
	{ 162, "nanosleep" },
	{ 164, "setresuid" },
	{ 165, "getresuid" },
	{ 170, "setresgid" },
	{ 171, "getresgid" },
	{ 177, "rt_sigtimedwait" },
	{ 182, "chown" },
	{ 191, "ugetrlimit" },
	{ 192, "mmap2" },
	{ 193, "truncate64" },
	{ 194, "ftruncate64" },
	{ 195, "stat64" },
	{ 196, "lstat64" },
	{ 197, "fstat64" },
	{ 198, "lchown32" },
	{ 199, "getuid32" },
	{ 200, "getgid32" },
	{ 201, "geteuid32" },
	{ 202, "getegid32" },
	{ 203, "setreuid32" },
	{ 204, "setregid32" },
	{ 205, "getgroups32" },
	{ 206, "setgroups32" },
	{ 207, "fchown32" },
	{ 208, "setresuid32" },
	{ 209, "getresuid32" },
	{ 210, "setresgid32" },
	{ 211, "getresgid32" },
	{ 212, "chown32" },
	{ 213, "setuid32" },
	{ 214, "setgid32" },
	{ 215, "setfsuid32" },
	{ 216, "setfsgid32" },
	{ 221, "fcntl64" },
	{ 239, "sendfile64" },
	{ 240, "futex" },
	{ 247, "io_getevents" },
	{ 260, "timer_settime" },
	{ 261, "timer_gettime" },
	{ 264, "clock_settime" },
	{ 265, "clock_gettime" },
	{ 266, "clock_getres" },
	{ 267, "clock_nanosleep" },
	{ 268, "statfs64" },
	{ 269, "fstatfs64" },
	{ 271, "utimes" },
	{ 272, "fadvise64_64" },
	{ 279, "mq_timedsend" },
	{ 280, "mq_timedreceive" },
	{ 299, "futimesat" },
	{ 300, "fstatat64" },
	{ 308, "pselect6" },
	{ 309, "ppoll" },
	{ 320, "utimensat" },
	{ 325, "timerfd_settime" },
	{ 326, "timerfd_gettime" },
	{ 337, "recvmmsg" },
	{ 343, "clock_adjtime" },
	{ 403, "clock_gettime64" },
	{ 404, "clock_settime64" },
	{ 405, "clock_adjtime64" },
	{ 406, "clock_getres_time64" },
	{ 407, "clock_nanosleep_time64" },
	{ 408, "timer_gettime64" },
	{ 409, "timer_settime64" },
	{ 410, "timerfd_gettime64" },
	{ 411, "timerfd_settime64" },
	{ 412, "utimensat_time64" },
	{ 413, "pselect6_time64" },
	{ 414, "ppoll_time64" },
	{ 416, "io_pgetevents_time64" },
	{ 417, "recvmmsg_time64" },
	{ 418, "mq_timedsend_time64" },
	{ 419, "mq_timedreceive_time64" },
	{ 420, "semtimedop_time64" },
	{ 421, "rt_sigtimedwait_time64" },
	{ 422, "futex_time64" },
	{ 423, "sched_rr_get_interval_time64" },
	/* clang-format on */
};

static const char *const suffixes32[] = { "_time64", "_time32", "64", "32" };

const char *syscall_name32(s32 nr)
{
	for (size_t i = 0; i < ARRAY_SIZE(names32); i++)
		if (names32[i].nr == nr)
			return names32[i].name;
	return NULL;
}

const char *syscall_plain_name(const char *name, char plain[SYSCALL_PLAIN_MAX])
{
	size_t n = strnlen(name, SYSCALL_PLAIN_MAX);

	if (!strcmp(name, "fstatat64"))
		return "newfstatat";
	if (!strcmp(name, "ugetrlimit"))
		return "getrlimit";
	for (size_t i = 0; i < ARRAY_SIZE(suffixes32); i++) {
		size_t len = strlen(suffixes32[i]);

		if (n <= len || n >= SYSCALL_PLAIN_MAX ||
		    strcmp(name + n - len, suffixes32[i]) != 0)
			continue;
		memcpy(plain, name, n - len);
		plain[n - len] = 0;
		return plain;
	}
	return *name == '_' ? name + 1 : NULL;
}

const char *syscall_handler_name(const char *symbol, enum syscall_abi *abi_ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
		size_t n = strlen(prefixes[i].prefix);

		if (strncmp(symbol, prefixes[i].prefix, n) || !symbol[n])
			continue;
		if (abi_ret)
			*abi_ret = prefixes[i].abi;
		return symbol + n;
	}
	return NULL;
}

const char *syscall_user_name(const char *kernel_name)
{
	for (size_t i = 0; i < ARRAY_SIZE(renamed); i++)
		if (!strcmp(renamed[i].kernel, kernel_name))
			return renamed[i].user;
	return kernel_name;
}
