// SPDX-License-Identifier: Apache-2.0
/* See test_patcher_fake.h. */
#include "test_patcher_fake.h"

#include "patcher/interlock.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* The linker has these called instead: see CMakeLists.txt. */
int __wrap_vm_read(struct vm *vm, gva_t addr, void *buf, size_t len, struct err *err);
int __wrap_vm_write_data(struct vm *vm, gva_t addr, const void *buf, size_t len, struct err *err);
int __wrap_vm_walk(struct vm *vm, gva_t addr, struct vm_mapping *ret, struct err *err);
int __wrap_vm_pause(struct vm *vm, u64 timeout_ns, struct err *err);
int __wrap_vm_resume(struct vm *vm, struct err *err);
int __wrap_vm_write_text(struct vm *vm, const struct vm_text *text, size_t n, struct err *err);
void __wrap_vm_windows(const struct vm *vm, struct vm_windows *ret);
int __wrap_kernel_sym(const struct kernel *k, const char *name, u64 *addr_ret);
bool __wrap_kernel_sym_at(const struct kernel *k, u64 addr, struct kernel_sym *ret);
int __wrap_kernel_btf_offset(const struct kernel *k, const char *type, const char *path, u32 *ret);
const struct ftrace_site *__wrap_kernel_sites(const struct kernel *k);
size_t __wrap_kernel_site_count(const struct kernel *k);
bool __wrap_kernel_stale(const struct kernel *k);
enum vm_state __wrap_vm_state(struct vm *vm);
int __wrap_kernel_btf_size(const struct kernel *k, const char *type, u32 *ret);
u64 __wrap_kernel_site_use_mask(const struct kernel *k);
const struct kernel_location *__wrap_kernel_location(const struct kernel *k);
int __wrap_kernel_percpu_gs(const struct kernel *k, const char *name, s32 *ret);
bool __wrap_kernel_vmcoreinfo(const struct kernel *k, gva_t *data_ret, u64 *size_ret);
int __wrap_quiesce_range(struct guest *g, u64 lo, u64 hi, u64 timeout_ns, struct err *err);

const u8 fake_nop[MCOUNT_INSN_SIZE] = { 0x0f, 0x1f, 0x44, 0x00, 0x00 };

struct fake_piece fake_pieces[FAKE_PIECES] = {
	{ .addr = KERNEL },
	{ .addr = MUTEX & PAGE_MASK },
	{ .addr = TEXT },
	{ .addr = DATA },
};

struct fake_state fake;

u8 *fake_at(u64 addr, size_t len)
{
	for (size_t i = 0; i < ARRAY_SIZE(fake_pieces); i++) {
		if (addr >= fake_pieces[i].addr &&
		    addr - fake_pieces[i].addr < fake_pieces[i].len &&
		    len <= fake_pieces[i].len - (addr - fake_pieces[i].addr))
			return fake_pieces[i].bytes + (addr - fake_pieces[i].addr);
	}
	return NULL;
}

int __wrap_vm_read(struct vm *vm, gva_t addr, void *buf, size_t len, struct err *err)
{
	const u8 *p = fake_at(addr.v, len);

	(void)vm;
	if (!p)
		return err_set(err, -EFAULT, ERR_GUEST_MEMORY, addr.v, "not mapped");
	memcpy(buf, p, len);
	return 0;
}

int __wrap_vm_write_data(struct vm *vm, gva_t addr, const void *buf, size_t len, struct err *err)
{
	u8 *p = fake_at(addr.v, len);

	(void)vm;
	(void)err;
	assert_non_null(p);
	memcpy(p, buf, len);
	return 0;
}

int __wrap_vm_walk(struct vm *vm, gva_t addr, struct vm_mapping *ret, struct err *err)
{
	(void)vm;
	for (size_t i = 0; i < ARRAY_SIZE(fake_pieces); i++) {
		if (addr.v < fake_pieces[i].addr ||
		    addr.v - fake_pieces[i].addr >= fake_pieces[i].len)
			continue;
		*ret = (struct vm_mapping){ .executable = fake_pieces[i].executable,
					    .writable = !fake_pieces[i].executable };
		return 0;
	}
	return err_set(err, -EFAULT, ERR_GUEST_MEMORY, addr.v, "not mapped");
}

int __wrap_vm_pause(struct vm *vm, u64 timeout_ns, struct err *err)
{
	(void)vm;
	(void)timeout_ns;
	(void)err;
	assert_false(fake.paused);
	fake.paused = true;
	return 0;
}

int __wrap_vm_resume(struct vm *vm, struct err *err)
{
	(void)vm;
	(void)err;
	fake.paused = false;
	return 0;
}

int __wrap_vm_write_text(struct vm *vm, const struct vm_text *text, size_t n, struct err *err)
{
	(void)vm;
	(void)err;
	assert_true(fake.paused);
	for (size_t i = 0; i < n; i++) {
		u8 *p = fake_at(text[i].addr.v, text[i].len);

		assert_non_null(p);
		memcpy(p, text[i].bytes, text[i].len);
		assert_true(fake.n_written < MAX_LOG);
		fake.written[fake.n_written++] = text[i].addr.v;
	}
	return 0;
}

void __wrap_vm_windows(const struct vm *vm, struct vm_windows *ret)
{
	(void)vm;
	*ret = (struct vm_windows){ 0 };
}

int __wrap_kernel_sym(const struct kernel *k, const char *name, u64 *addr_ret)
{
	static const struct {
		const char *name;
		u64 addr;
	} syms[] = {
		{ "ftrace_arch_code_modify_prepare", PREPARE },
		{ "text_mutex", MUTEX },
		{ "mutex_lock", LOCK },
		{ "module_alloc", KERNEL + 0x1300 },
		{ "_stext", KERNEL },
		{ "_etext", FAKE_ETEXT },
		{ "ftrace_pages_start", MUTEX + 0x100 },
		{ "text_poke_queue", KERNEL + 0x1000 },
		{ "text_poke_finish", KERNEL + 0x1100 },
		{ "copy_from_kernel_nofault", KERNEL + 0x1200 },
		{ "text_poke", KERNEL + 0x1400 },
		{ "memcpy", KERNEL + 0x1700 },
		{ "memset", KERNEL + 0x1b00 },
		{ "msleep", KERNEL + 0x1a00 },
		{ "module_memfree", KERNEL + 0x1600 },
		{ "set_memory_nx", KERNEL + 0x1800 },
		{ "set_memory_rw", KERNEL + 0x1900 },
		{ "mutex_unlock", KERNEL + 0x1500 },
		{ "ftrace_lock", MUTEX + 0x200 },
	};

	(void)k;
	for (size_t i = 0; i < ARRAY_SIZE(syms); i++) {
		*addr_ret = syms[i].addr;
		if (!strcmp(name, syms[i].name))
			return 0;
	}
	return -ENOENT;
}

bool __wrap_kernel_sym_at(const struct kernel *k, u64 addr, struct kernel_sym *ret)
{
	(void)k;
	if (addr < KERNEL || addr >= KERNEL + 0x4000)
		return false;
	*ret = (struct kernel_sym){ .name = "f", .addr = addr & ~0xfffull, .size_bytes = 0x100 };
	return true;
}

int __wrap_kernel_btf_offset(const struct kernel *k, const char *type, const char *path, u32 *ret)
{
	(void)k;
	static const struct {
		const char *type, *path;
		u32 off;
	} members[] = {
		{ "mutex", "owner", 0 },
		{ "dyn_ftrace", "ip", 0 },
		{ "dyn_ftrace", "flags", 8 },
		{ "ftrace_page", "next", 0 },
		{ "ftrace_page", "records", 8 },
		{ "ftrace_page", "index", 16 },
		{ "task_struct", "thread_info.flags", 0 },
		{ "task_struct", "flags", 44 },
		{ "task_struct", "rcu_read_lock_nesting", 0x3fc },
	};

	(void)k;
	for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
		*ret = members[i].off;
		if (!strcmp(type, members[i].type) && !strcmp(path, members[i].path))
			return 0;
	}
	return -ENOENT;
}

int __wrap_kernel_btf_size(const struct kernel *k, const char *type, u32 *ret)
{
	(void)k;
	(void)type;
	*ret = 16;
	return 0;
}

u64 __wrap_kernel_site_use_mask(const struct kernel *k)
{
	(void)k;
	return 0x80ffffff;
}

enum vm_state __wrap_vm_state(struct vm *vm)
{
	(void)vm;
	return VM_RUNNING;
}

const struct kernel_location *__wrap_kernel_location(const struct kernel *k)
{
	static const struct kernel_location loc = { .text = { KERNEL } };

	(void)k;
	return &loc;
}

int __wrap_kernel_percpu_gs(const struct kernel *k, const char *name, s32 *ret)
{
	(void)k;
	*ret = strcmp(name, "current_task") ? 0x1234 : 0x5678;
	return 0;
}

bool __wrap_kernel_vmcoreinfo(const struct kernel *k, gva_t *data_ret, u64 *size_ret)
{
	(void)k;
	*data_ret = gva(NOTES);
	*size_ret = 500;
	return true;
}

/* Nobody is inside: nothing runs here. */
int __wrap_quiesce_range(struct guest *g, u64 lo, u64 hi, u64 timeout_ns, struct err *err)
{
	(void)g;
	(void)lo;
	(void)hi;
	(void)timeout_ns;
	(void)err;
	return 0;
}

const struct ftrace_site *__wrap_kernel_sites(const struct kernel *k)
{
	(void)k;
	return fake.sites;
}

size_t __wrap_kernel_site_count(const struct kernel *k)
{
	(void)k;
	return N_SITES;
}

bool __wrap_kernel_stale(const struct kernel *k)
{
	(void)k;
	return false;
}

u64 fake_site(size_t i)
{
	return KERNEL + 0x100 * (i + 1);
}

void fake_call(u64 from, u64 to)
{
	assert_int_equal(insn_make_call(from, to, fake_at(from, MCOUNT_INSN_SIZE)), 0);
}

bool fake_calls(u64 from, u64 to)
{
	u64 target;

	return insn_call_target(from, fake_at(from, MCOUNT_INSN_SIZE), &target) && target == to;
}

bool fake_at_rest(size_t i)
{
	return !memcmp(fake_at(fake_site(i), sizeof(fake_nop)), fake_nop, sizeof(fake_nop));
}

/* When was it written? */
size_t fake_when(u64 addr)
{
	for (size_t i = 0; i < fake.n_written; i++) {
		if (fake.written[i] == addr)
			return i;
	}
	return SIZE_MAX;
}

/* One more, of @kind. */
void fake_note(u64 addr, u64 old_target, u64 new_target, enum journal_kind kind)
{
	struct journal_text t = { .addr = addr, .kind = kind, .len = MCOUNT_INSN_SIZE };

	memcpy(t.old, fake_nop, sizeof(fake_nop));
	if (old_target)
		assert_int_equal(insn_make_call(addr, old_target, t.old), 0);
	assert_int_equal(insn_make_call(addr, new_target, t.new), 0);
	assert_int_equal(journal_add_text(fake.g.journal, &t, NULL), 0);
	assert_int_equal(journal_flush(fake.g.journal, NULL), 0);
}

size_t fake_n_noted(enum journal_kind kind)
{
	const struct journal_state *s = journal_state(fake.g.journal);
	size_t n = 0;

	for (size_t i = 0; i < s->n_text; i++)
		n += s->text[i].kind == (u32)kind;
	return n;
}

int fake_setup(void **state)
{
	/* mov $MUTEX, %rdi; call mutex_lock */
	static const u8 prepare[] = { 0x48, 0xc7, 0xc7, 0x40, 0x00, 0x00, 0x82 };

	(void)state;
	memset(&fake, 0, sizeof(fake));
	for (size_t i = 0; i < ARRAY_SIZE(fake_pieces); i++) {
		memset(fake_pieces[i].bytes, 0, sizeof(fake_pieces[i].bytes));
		fake_pieces[i].len = sizeof(fake_pieces[i].bytes);
		fake_pieces[i].executable =
			fake_pieces[i].addr == KERNEL || fake_pieces[i].addr == TEXT;
	}
	for (size_t i = 0; i < N_SITES; i++) {
		fake.sites[i].ip = fake_site(i);
		fake.sites[i].name = i ? "__x64_sys_read" : "vfs_read";
		fake.sites[i].state = SITE_OK;
		memcpy(fake_at(fake_site(i), sizeof(fake_nop)), fake_nop, sizeof(fake_nop));
	}
	memcpy(fake_at(PREPARE, sizeof(prepare)), prepare, sizeof(prepare));
	fake_call(HOOK, LOCK);
	strcpy(fake.dir, "/tmp/hvf-recover-XXXXXX");
	assert_non_null(mkdtemp(fake.dir));
	fake.g.n_baseline = N_SITES;
	return journal_open(fake.dir, getpid(), 1, &fake.g.journal, NULL);
}

int fake_teardown(void **state)
{
	(void)state;
	free(fake.g.armed);
	interlock_forget(&fake.g);
	journal_discard(fake.g.journal);
	return rmdir(fake.dir);
}

void fake_lend(u64 text_bytes, u64 data_bytes)
{
	assert_int_equal(
		journal_agent_came(fake.g.journal, TEXT, text_bytes, DATA, data_bytes, NULL), 0);
}
