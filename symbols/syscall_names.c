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
	{ "ia32_pwrite64", "pwrite64" },
};

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
