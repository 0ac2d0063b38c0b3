/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest's system calls, from the guest alone: which handler each number has, what it is called and
 * what its arguments are. Must not know any call by what it does, nor a header of the host.
 *
 *   number --sys_call_table--> handler --kallsyms--> "__x64_sys_openat" --> "openat"
 *   "__syscall_meta__openat" --struct syscall_metadata--> { "int", "dfd" }, { "const char *", ...
 *
 * What kernels have (looked at: Debian's 6.1.0-57, 6.12): sys_call_table stays for the guest's own
 * tracing, although calls go by a switch since v6.9 (commit 1e3ad78334a6, in v6.1.85 too), and has
 * the 64-bit numbers alone: ia32_sys_call_table is gone since, so 32-bit handlers are known by name
 * and have no number; a tracer has that from orig_ax. BTF has but one prototype for all handlers,
 * (const struct pt_regs *), as the functions with true arguments are inlined; CONFIG_FTRACE_SYSCALLS
 * has them as strings. It does not describe compat calls: those get the native call's.
 */
#ifndef SYMBOLS_SYSCALLS_H
#define SYMBOLS_SYSCALLS_H

#include "symbols/kernel.h"

#define SYSCALL_ARGS    6
#define SYSCALL_NR_MAX  1024 /* more of a table is not looked at; v6.12 has 467 */
#define SYSCALL_X32_BIT 0x40000000u /* in orig_ax, of a call by the x32 ABI */

enum syscall_abi {
	SYSCALL_ABI_64,
	SYSCALL_ABI_32, /* int 0x80, and SYSENTER or SYSCALL from 32-bit code */
	SYSCALL_ABI_X32, /* handlers of its own; most of its calls are those of the 64-bit ABI */
	SYSCALL_ABIS,
};

struct syscall_arg {
	const char *type, *name; /* "const char *", "filename": as in the guest's own source */
};

struct syscall_entry {
	const char *name; /* as user space says: "openat", "uname" */
	const char *kernel_name; /* as the kernel says: "newuname" */
	u64 addr; /* of the handler's symbol */
	s32 nr; /* lowest of its numbers; -1: not known */
	u16 n_numbers;
	u8 abi; /* enum syscall_abi */
	bool missing; /* not built into this kernel: always -ENOSYS */
	bool shared; /* another ABI's handler is the same function: the task's state tells which */
	bool described; /* n_args and args are known */
	bool native_args; /* ... but are those of the 64-bit call of this name */
	u8 n_args;
	struct syscall_arg args[SYSCALL_ARGS];
};

/* What could not be had. */
#define SYSCALL_NO_TABLE      0x1 /* sys_call_table: numbers are not known */
#define SYSCALL_NO_IA32_TABLE 0x2
#define SYSCALL_NO_METADATA   0x4 /* CONFIG_FTRACE_SYSCALLS, or its types in BTF: no arguments */

struct syscall_table;

/**
 * syscall_table_load - read it
 * @mem: the reader that @k was loaded with
 *
 * Copies what it keeps; @k may go. Context: vCPUs may run; any thread; the caller holds what protects
 * @k. Return: 0; -ENOENT no handler has a name that fits (guest.unsupported); -ENOMEM.
 * Source: Linux v6.1 and v6.12 arch/x86/entry/syscall_{32,64}.c, arch/x86/include/asm/ftrace.h
 * arch_syscall_match_sym_name(), include/trace/syscall.h. Undo: syscall_table_destroy().
 */
must_check int syscall_table_load(const struct kernel *k, const struct sym_mem *mem,
				  struct syscall_table **ret, struct err *err);
void syscall_table_destroy(struct syscall_table *t);
/** syscall_table_ref - one more user, each of whom destroys it; @t's kernel must be there for all of them */
struct syscall_table *syscall_table_ref(struct syscall_table *t);

/** syscall_table_missing - SYSCALL_NO_* */
unsigned int syscall_table_missing(const struct syscall_table *t);

/** syscall_table_count, syscall_table_get - all handlers, by address */
size_t syscall_table_count(const struct syscall_table *t);
const struct syscall_entry *syscall_table_get(const struct syscall_table *t, size_t i);

/** syscall_table_nr - the handler of number @nr; NULL: none, or not known */
const struct syscall_entry *syscall_table_nr(const struct syscall_table *t, enum syscall_abi abi,
					     u32 nr);
/**
 * syscall_table_at - the handler that starts at @addr or has it in its first bytes, as a call site is
 *
 * Of a shared one the 64-bit ABI's. NULL: none.
 */
const struct syscall_entry *syscall_table_at(const struct syscall_table *t, u64 addr);
/** syscall_table_name - by the name that user space uses; NULL: none */
const struct syscall_entry *syscall_table_name(const struct syscall_table *t, enum syscall_abi abi,
					       const char *name);

/**
 * syscall_handler_name - is this symbol a handler, and of what?
 * @abi_ret: may be NULL
 *
 * Return: the kernel's name of the call, inside @symbol: "openat" for "__x64_sys_openat"; NULL for
 * others, __do_sys_ and __se_sys_ among them, as those are called by handlers.
 */
const char *syscall_handler_name(const char *symbol, enum syscall_abi *abi_ret);

/** syscall_name32 - of a number of the 32-bit ABI, where its handler's name is not it; else NULL */
const char *syscall_name32(s32 nr);

/**
 * syscall_plain_name - the name of the call that has the arguments of the 32-bit ABI's @name: "getuid" of "getuid32"
 *
 * Return: in @plain or @name; NULL: there is nothing to leave out.
 */
#define SYSCALL_PLAIN_MAX 32
const char *syscall_plain_name(const char *name, char plain[SYSCALL_PLAIN_MAX]);

/** syscall_user_name - what user space calls the kernel's @kernel_name; often itself */
const char *syscall_user_name(const char *kernel_name);

#endif
