// SPDX-License-Identifier: Apache-2.0
/* symbols/syscalls.c with symbols, types and memory made by hand. */
#include "symbols/syscalls.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BASE  0xffffffff81000000ull
#define BYTES 0x8000u

static u8 ram[BYTES];
static bool no_btf;

/* By address, as kernel_sym_get() gives them. */
static const struct kernel_sym all[] = {
	{ "__do_sys_fork", NULL, BASE + 0x100, 0x40, 't' },
	{ "__ia32_sys_fork", NULL, BASE + 0x100, 0x40, 'T' },
	{ "__x64_sys_fork", NULL, BASE + 0x100, 0x40, 'T' },
	{ "__ia32_sys_ni_syscall", NULL, BASE + 0x140, 0x40, 'T' },
	{ "__x64_sys_gone", NULL, BASE + 0x140, 0x40, 'T' },
	{ "__x64_sys_ni_syscall", NULL, BASE + 0x140, 0x40, 'T' },
	{ "__pfx___x64_sys_openat", NULL, BASE + 0x1f0, 0x10, 'T' },
	{ "__x64_sys_openat", NULL, BASE + 0x200, 0x40, 'T' },
	{ "__ia32_sys_openat", NULL, BASE + 0x240, 0x40, 'T' },
	{ "__ia32_compat_sys_openat", NULL, BASE + 0x280, 0x40, 'T' },
	{ "__x64_sys_newuname", NULL, BASE + 0x2c0, 0x40, 'T' },
	{ "__x64_sys_quotactl", NULL, BASE + 0x300, 0x40, 'W' },
	{ "__x64_compat_sys_ioctl", NULL, BASE + 0x340, 0x40, 'T' },
	{ "__x64_sys_", NULL, BASE + 0x380, 0x40, 'T' },
	{ "__x64_sys_openat", "evil", BASE + 0x3c0, 0x40, 'T' },
	{ "__x64_sys_openat_data", NULL, BASE + 0x400, 0x100, 'd' },
	{ "sys_call_table", NULL, BASE + 0x1000, 8 * 8, 'D' },
	{ "__syscall_meta__newuname", NULL, BASE + 0x1f00, 0x40, 'd' },
	{ "__syscall_meta__openat", NULL, BASE + 0x2000, 0x40, 'd' },
	{ "__syscall_meta__fork", NULL, BASE + 0x2040, 0x40, 'd' },
};

int kernel_sym(const struct kernel *k, const char *name, u64 *addr_ret)
{
	(void)k;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (!all[i].module && !strcmp(all[i].name, name)) {
			*addr_ret = all[i].addr;
			return 0;
		}
	return -ENOENT;
}

bool kernel_sym_at(const struct kernel *k, u64 addr, struct kernel_sym *ret)
{
	(void)k;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (addr - all[i].addr < all[i].size_bytes) {
			*ret = all[i];
			return true;
		}
	return false;
}

size_t kernel_sym_count(const struct kernel *k)
{
	return k ? 0 : ARRAY_SIZE(all);
}

void kernel_sym_get(const struct kernel *k, size_t i, struct kernel_sym *ret)
{
	(void)k;
	*ret = all[i];
}

int kernel_btf_offset(const struct kernel *k, const char *type, const char *path, u32 *off_ret)
{
	(void)k;
	assert_string_equal(type, "syscall_metadata");
	*off_ret = !strcmp(path, "nb_args") ? 12 : !strcmp(path, "types") ? 16 : 24;
	return no_btf ? -ENOENT : 0;
}

static int read_ram(void *arg, gva_t addr, void *buf, size_t len)
{
	(void)arg;
	if (addr.v < BASE || len > BYTES || addr.v - BASE > BYTES - len)
		return -EFAULT;
	memcpy(buf, ram + (addr.v - BASE), len);
	return 0;
}

static const struct sym_mem mem = { .read = read_ram };

static void put64(u64 off, u64 v)
{
	memcpy(ram + off, &v, 8);
}

static void put32(u64 off, u32 v)
{
	memcpy(ram + off, &v, 4);
}

static void put_meta(u64 off, u32 n, u64 types, u64 args)
{
	put32(off + 12, n);
	put64(off + 16, types ? BASE + types : 0);
	put64(off + 24, args ? BASE + args : 0);
}

static void put_string(u64 pointer, u64 at, const char *s)
{
	put64(pointer, BASE + at);
	memcpy(ram + at, s, strlen(s) + 1);
}

static void guest_init(void)
{
	memset(ram, 0, sizeof(ram));
	no_btf = false;
	put64(0x1000, BASE + 0x200);
	put64(0x1008, BASE + 0x100);
	put64(0x1010, BASE + 0x140);
	put64(0x1018, BASE + 0x300);
	put64(0x1020, BASE + 0x200); /* a second number of openat */
	put64(0x1028, 0x4141414141414141);
	put64(0x1030, BASE + 0x2c0);
	put_meta(0x2000, 2, 0x3000, 0x3100);
	put_string(0x3000, 0x3200, "int");
	put_string(0x3008, 0x3210, "const char *");
	put_string(0x3100, 0x3220, "dfd");
	put_string(0x3108, BYTES - 9, "filename"); /* the last bytes that are mapped */
	put_meta(0x2040, 0, 0, 0);
	put_meta(0x1f00, 7, 0x3000, 0x3100); /* more than six */
}

static struct syscall_table *load(void)
{
	struct syscall_table *t = NULL;
	struct err err;

	assert_int_equal(syscall_table_load(NULL, &mem, &t, &err), 0);
	return t;
}

static void names(void **state)
{
	enum syscall_abi abi = SYSCALL_ABI_X32;

	(void)state;
	assert_string_equal(syscall_handler_name("__x64_sys_read", &abi), "read");
	assert_int_equal(abi, SYSCALL_ABI_64);
	assert_string_equal(syscall_handler_name("__ia32_compat_sys_execve", &abi), "execve");
	assert_int_equal(abi, SYSCALL_ABI_32);
	assert_string_equal(syscall_handler_name("__ia32_sys_read", &abi), "read");
	assert_string_equal(syscall_handler_name("__x64_compat_sys_ioctl", &abi), "ioctl");
	assert_int_equal(abi, SYSCALL_ABI_X32);
	assert_null(syscall_handler_name("__se_sys_read", NULL));
	assert_null(syscall_handler_name("__do_sys_read", NULL));
	assert_null(syscall_handler_name("__pfx___x64_sys_read", NULL));
	assert_null(syscall_handler_name("__x64_sys_", NULL));
	assert_null(syscall_handler_name("sys_ni_syscall", NULL));
}

/* A snapshot goes on with it when the trace is gone, whatever the guest's memory holds by then. */
static void shared(void **state)
{
	struct syscall_table *t, *other;
	u64 addr;
	char name[64];

	(void)state;
	guest_init();
	t = load();
	assert_true(syscall_table_count(t) > 0);
	addr = syscall_table_get(t, 0)->addr;
	snprintf(name, sizeof(name), "%s", syscall_table_get(t, 0)->name);
	other = syscall_table_ref(t);
	syscall_table_destroy(t);
	assert_non_null(syscall_table_at(other, addr));
	assert_string_equal(syscall_table_at(other, addr)->name, name);
	syscall_table_destroy(other);
}

static void numbers(void **state)
{
	const struct syscall_entry *e;
	struct syscall_table *t;

	(void)state;
	guest_init();
	t = load();
	assert_int_equal(syscall_table_missing(t), SYSCALL_NO_IA32_TABLE);
	assert_int_equal(syscall_table_count(t), 11);
	e = syscall_table_nr(t, SYSCALL_ABI_64, 4);
	assert_ptr_equal(e, syscall_table_nr(t, SYSCALL_ABI_64, 0));
	assert_string_equal(e->name, "openat");
	assert_int_equal(e->nr, 0);
	assert_int_equal(e->n_numbers, 2);
	assert_false(e->missing || e->shared);
	e = syscall_table_nr(t, SYSCALL_ABI_64, 1);
	assert_string_equal(e->name, "fork");
	assert_int_equal(e->abi, SYSCALL_ABI_64);
	assert_true(e->shared);
	e = syscall_table_nr(t, SYSCALL_ABI_64, 2);
	assert_string_equal(e->name, "ni_syscall");
	assert_true(e->missing);
	assert_true(syscall_table_nr(t, SYSCALL_ABI_64, 3)->missing); /* weak */
	assert_null(syscall_table_nr(t, SYSCALL_ABI_64, 5));
	e = syscall_table_nr(t, SYSCALL_ABI_64, 6);
	assert_string_equal(e->name, "uname");
	assert_string_equal(e->kernel_name, "newuname");
	assert_null(syscall_table_nr(t, SYSCALL_ABI_64, 7));
	assert_null(syscall_table_nr(t, SYSCALL_ABI_64, SYSCALL_NR_MAX));
	assert_null(syscall_table_nr(t, SYSCALL_ABI_32, 0));
	assert_string_equal(syscall_table_nr(t, SYSCALL_ABI_X32, SYSCALL_X32_BIT)->name, "openat");
	e = syscall_table_name(t, SYSCALL_ABI_32, "openat");
	assert_int_equal(e->nr, -1);
	assert_null(syscall_table_name(t, SYSCALL_ABI_32, "uname"));
	assert_null(syscall_table_get(t, 11));
	syscall_table_destroy(t);
}

static void sites(void **state)
{
	struct syscall_table *t;

	(void)state;
	guest_init();
	t = load();
	assert_string_equal(syscall_table_at(t, BASE + 0x200)->name, "openat");
	assert_string_equal(syscall_table_at(t, BASE + 0x204)->name, "openat");
	assert_int_equal(syscall_table_at(t, BASE + 0x284)->abi, SYSCALL_ABI_32);
	assert_int_equal(syscall_table_at(t, BASE + 0x104)->abi, SYSCALL_ABI_64);
	assert_null(syscall_table_at(t, BASE + 0x380));
	assert_null(syscall_table_at(t, BASE));
	assert_null(syscall_table_at(t, ~0ull));
	syscall_table_destroy(t);
}

static void arguments(void **state)
{
	const struct syscall_entry *e;
	struct syscall_table *t;

	(void)state;
	guest_init();
	t = load();
	e = syscall_table_name(t, SYSCALL_ABI_64, "openat");
	assert_true(e->described);
	assert_false(e->native_args);
	assert_int_equal(e->n_args, 2);
	assert_string_equal(e->args[0].type, "int");
	assert_string_equal(e->args[0].name, "dfd");
	assert_string_equal(e->args[1].type, "const char *");
	assert_string_equal(e->args[1].name, "filename");
	assert_true(syscall_table_name(t, SYSCALL_ABI_32, "openat")->native_args);
	e = syscall_table_name(t, SYSCALL_ABI_64, "fork");
	assert_true(e->described);
	assert_int_equal(e->n_args, 0);
	assert_false(syscall_table_name(t, SYSCALL_ABI_64, "uname")->described);
	syscall_table_destroy(t);
}

static void what_is_missing_is_said(void **state)
{
	struct syscall_table *t;
	struct err err;

	(void)state;
	guest_init();
	no_btf = true;
	memset(ram + 0x1000, 0, 64);
	t = load();
	assert_int_equal(syscall_table_missing(t),
			 SYSCALL_NO_IA32_TABLE | SYSCALL_NO_TABLE | SYSCALL_NO_METADATA);
	assert_int_equal(syscall_table_name(t, SYSCALL_ABI_64, "openat")->nr, -1);
	syscall_table_destroy(t);
	assert_int_equal(syscall_table_load((const struct kernel *)&mem, &mem, &t, &err), -ENOENT);
	assert_int_equal(err.code, ERR_GUEST_UNSUPPORTED);
	syscall_table_destroy(NULL);
}

static void any_memory_is_survived(void **state)
{
	(void)state;
	srand(1);
	for (int i = 0; i < 3000; i++) {
		struct syscall_table *t;

		guest_init();
		for (int j = 0; j < 16; j++)
			ram[0x1000 + rand() % 0x2300] = (u8)rand();
		t = load();
		for (size_t n = 0; n < syscall_table_count(t); n++) {
			const struct syscall_entry *e = syscall_table_get(t, n);

			assert_true(e->n_args <= SYSCALL_ARGS);
			for (u32 a = 0; a < e->n_args; a++)
				assert_non_null(e->args[a].name);
		}
		syscall_table_destroy(t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names),
		cmocka_unit_test(shared),
		cmocka_unit_test(numbers),
		cmocka_unit_test(sites),
		cmocka_unit_test(arguments),
		cmocka_unit_test(what_is_missing_is_said),
		cmocka_unit_test(any_memory_is_survived),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
