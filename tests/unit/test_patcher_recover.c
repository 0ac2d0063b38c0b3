// SPDX-License-Identifier: Apache-2.0
/*
 * What the journal has, and what it has not, is put back: in which order, and what is given back. On a guest of a
 * few pages of memory: a kernel's text with call sites, the agent's text and data.
 */
#include "guest-agent/agent_abi.h"
#include "patcher/agent.h"
#include "patcher/callers.h"
#include "patcher/ftrace.h"
#include "patcher/gate.h"
#include "patcher/guest_priv.h"
#include "patcher/interlock.h"
#include "patcher/remains.h"
#include "patcher/text.h"
#include "symbols/kernel.h"
#include "vmm/vm.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define KERNEL  0xffffffff81000000ull
#define PREPARE (KERNEL + 0x2000) /* ftrace_arch_code_modify_prepare() */
#define HOOK    (PREPARE + 7) /* its call that takes text_mutex */
#define LOCK    (KERNEL + 0x3000) /* mutex_lock() */
#define CAVE    (KERNEL + 0x3f00)
#define MUTEX   0xffffffff82000040ull
#define NOTES   0xffffffff82001000ull /* vmcoreinfo_data */
#define BOX     (NOTES + PAGE_SIZE - 128)
#define TEXT    0xffffffffc0400000ull
#define DATA    0xffffffffc0800000ull
#define N_SITES 6u
#define MAX_LOG 64u

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

static const u8 nop[MCOUNT_INSN_SIZE] = { 0x0f, 0x1f, 0x44, 0x00, 0x00 };

static struct piece {
	u64 addr;
	bool executable;
	size_t len;
	u8 bytes[0x4000];
} pieces[] = {
	{ .addr = KERNEL },
	{ .addr = MUTEX & PAGE_MASK },
	{ .addr = TEXT },
	{ .addr = DATA },
};

static struct {
	struct ftrace_site sites[N_SITES];
	u64 written[MAX_LOG]; /* text, in this order */
	size_t n_written;
	bool paused;
	struct guest g;
	char dir[32];
} fake;

static u8 *at(u64 addr, size_t len)
{
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		if (addr >= pieces[i].addr && addr - pieces[i].addr < pieces[i].len &&
		    len <= pieces[i].len - (addr - pieces[i].addr))
			return pieces[i].bytes + (addr - pieces[i].addr);
	}
	return NULL;
}

int __wrap_vm_read(struct vm *vm, gva_t addr, void *buf, size_t len, struct err *err)
{
	const u8 *p = at(addr.v, len);

	(void)vm;
	if (!p)
		return err_set(err, -EFAULT, ERR_GUEST_MEMORY, addr.v, "not mapped");
	memcpy(buf, p, len);
	return 0;
}

int __wrap_vm_write_data(struct vm *vm, gva_t addr, const void *buf, size_t len, struct err *err)
{
	u8 *p = at(addr.v, len);

	(void)vm;
	(void)err;
	assert_non_null(p);
	memcpy(p, buf, len);
	return 0;
}

int __wrap_vm_walk(struct vm *vm, gva_t addr, struct vm_mapping *ret, struct err *err)
{
	(void)vm;
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		if (addr.v < pieces[i].addr || addr.v - pieces[i].addr >= pieces[i].len)
			continue;
		*ret = (struct vm_mapping){ .executable = pieces[i].executable,
					    .writable = !pieces[i].executable };
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
		u8 *p = at(text[i].addr.v, text[i].len);

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
	*ret = 0;
	return strcmp(type, "mutex") || strcmp(path, "owner") ? -ENOENT : 0;
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

static u64 site(size_t i)
{
	return KERNEL + 0x100 * (i + 1);
}

static void call(u64 from, u64 to)
{
	assert_int_equal(insn_make_call(from, to, at(from, MCOUNT_INSN_SIZE)), 0);
}

static bool calls(u64 from, u64 to)
{
	u64 target;

	return insn_call_target(from, at(from, MCOUNT_INSN_SIZE), &target) && target == to;
}

static bool at_rest(size_t i)
{
	return !memcmp(at(site(i), sizeof(nop)), nop, sizeof(nop));
}

/* When was it written? */
static size_t when(u64 addr)
{
	for (size_t i = 0; i < fake.n_written; i++) {
		if (fake.written[i] == addr)
			return i;
	}
	return SIZE_MAX;
}

/* One more, of @kind. */
static void note(u64 addr, u64 old_target, u64 new_target, enum journal_kind kind)
{
	struct journal_text t = { .addr = addr, .kind = kind, .len = MCOUNT_INSN_SIZE };

	memcpy(t.old, nop, sizeof(nop));
	if (old_target)
		assert_int_equal(insn_make_call(addr, old_target, t.old), 0);
	assert_int_equal(insn_make_call(addr, new_target, t.new), 0);
	assert_int_equal(journal_add_text(fake.g.journal, &t, NULL), 0);
	assert_int_equal(journal_flush(fake.g.journal, NULL), 0);
}

static size_t n_noted(enum journal_kind kind)
{
	const struct journal_state *s = journal_state(fake.g.journal);
	size_t n = 0;

	for (size_t i = 0; i < s->n_text; i++)
		n += s->text[i].kind == (u32)kind;
	return n;
}

static int setup(void **state)
{
	/* mov $MUTEX, %rdi; call mutex_lock */
	static const u8 prepare[] = { 0x48, 0xc7, 0xc7, 0x40, 0x00, 0x00, 0x82 };

	(void)state;
	memset(&fake, 0, sizeof(fake));
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		memset(pieces[i].bytes, 0, sizeof(pieces[i].bytes));
		pieces[i].len = sizeof(pieces[i].bytes);
		pieces[i].executable = pieces[i].addr == KERNEL || pieces[i].addr == TEXT;
	}
	for (size_t i = 0; i < N_SITES; i++) {
		fake.sites[i].ip = site(i);
		memcpy(at(site(i), sizeof(nop)), nop, sizeof(nop));
	}
	memcpy(at(PREPARE, sizeof(prepare)), prepare, sizeof(prepare));
	call(HOOK, LOCK);
	strcpy(fake.dir, "/tmp/hvf-recover-XXXXXX");
	assert_non_null(mkdtemp(fake.dir));
	fake.g.n_baseline = N_SITES;
	return journal_open(fake.dir, getpid(), 1, &fake.g.journal, NULL);
}

static int teardown(void **state)
{
	(void)state;
	free(fake.g.armed);
	interlock_forget(&fake.g);
	journal_discard(fake.g.journal);
	return rmdir(fake.dir);
}

static void lend(u64 text_bytes, u64 data_bytes)
{
	assert_int_equal(
		journal_agent_came(fake.g.journal, TEXT, text_bytes, DATA, data_bytes, NULL), 0);
}

/* A snapshot of when more was armed: the journal has the agent, and none of its call sites. */
static void sites_that_no_journal_has(void **state)
{
	const u64 interlock = TEXT + 0x2000;
	struct err err = { 0 };

	(void)state;
	lend(0x3000, 0x4000);
	/* a smaller trace came after: that the journal has */
	call(site(0), TEXT + 0x10);
	note(site(0), 0, TEXT + 0x10, JOURNAL_SITE);
	assert_int_equal(
		text_from_journal(&fake.g, JOURNAL_SITE, &fake.g.armed, &fake.g.n_armed, &err), 0);
	call(site(1), TEXT + 0x10);
	call(site(4), TEXT + 0x2fff);
	call(site(2), TEXT + 0x3000); /* not ours */
	call(site(3), LOCK);
	call(HOOK, interlock);
	call(interlock, LOCK); /* as the interlock begins */
	assert_int_equal(callers_let_go(&fake.g, &err), -EBUSY);
	assert_int_equal(ftrace_make_nop(&fake.g, NULL, &err), 0);
	assert_int_equal(fake.n_written, 1);
	assert_int_equal(callers_let_go(&fake.g, &err), 0);
	assert_true(at_rest(0) && at_rest(1) && at_rest(4));
	assert_true(calls(HOOK, LOCK));
	assert_true(calls(site(2), TEXT + 0x3000) && calls(site(3), LOCK));
	assert_int_equal(fake.n_written, 4);
	assert_int_equal(when(HOOK), 3); /* until the last site is back */
	assert_int_equal(n_noted(JOURNAL_SITE) + n_noted(JOURNAL_INTERLOCK), 0);
	assert_null(fake.g.hook);
	assert_int_equal(fake.g.n_armed, 0);
	/* and once more: there is nothing */
	assert_int_equal(callers_let_go(&fake.g, &err), 0);
	assert_int_equal(fake.n_written, 4);
}

/* The hook alone is reason enough; one that cannot be undone keeps the text where it is. */
static void a_hook_that_no_journal_has(void **state)
{
	struct err err = { 0 };

	(void)state;
	lend(0x3000, 0x4000);
	call(HOOK, TEXT + 0x2000);
	call(site(0), TEXT + 0x10);
	assert_int_equal(callers_let_go(&fake.g, &err), -EINVAL);
	assert_int_equal(err.code, ERR_GUEST_CHANGED);
	assert_int_equal(fake.n_written, 0);
	free(fake.g.armed);
	fake.g.armed = NULL;
	fake.g.n_armed = 0;
	call(TEXT + 0x2000, LOCK);
	memcpy(at(site(0), sizeof(nop)), nop, sizeof(nop));
	assert_int_equal(callers_let_go(&fake.g, &err), 0);
	assert_true(calls(HOOK, LOCK));
	assert_int_equal(fake.n_written, 1);
}

static struct agent_header put_header(void)
{
	struct agent_header h = { .magic = AGENT_MAGIC,
				  .abi_version = AGENT_ABI_VERSION,
				  .nr_cpus = 1,
				  .ring_slots = AGENT_MIN_SLOTS,
				  .nr_frames = 4096,
				  .site_slots = AGENT_MIN_SITES,
				  .task_slots = 1024 };

	assert_int_equal(agent_layout(&h), 0);
	h.text = TEXT;
	h.data = DATA;
	memcpy(at(DATA, sizeof(h)), &h, sizeof(h));
	return h;
}

static struct piece *piece_of(u64 addr)
{
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		if (pieces[i].addr == addr)
			return &pieces[i];
	}
	return NULL;
}

/* Nothing goes back to the allocator that may be somebody else's: the header says that it is ours, or it stays. */
static void lent_is_there_by_its_header(void **state)
{
	struct agent_header h = put_header();
	u64 text_bytes = agent_text_bytes(&h) + AGENT_INTERLOCK_BYTES;

	(void)state;
	assert_true(remains_journalled_stays(&fake.g)); /* there is nothing */
	lend(text_bytes, agent_data_bytes(&h));
	assert_true(remains_journalled_stays(&fake.g));
	/* as it is given back: no more executable, and then freed */
	piece_of(TEXT)->executable = false;
	assert_true(remains_journalled_stays(&fake.g));
	assert_int_equal(journal_freed(fake.g.journal, JOURNAL_AGENT_TEXT, NULL), 0);
	assert_true(remains_journalled_stays(&fake.g));
	/* another module's data lies there now */
	lend(text_bytes, agent_data_bytes(&h));
	memset(at(DATA, sizeof(h)), 0x5a, sizeof(h));
	assert_false(remains_journalled_stays(&fake.g));
	piece_of(TEXT)->executable = true;
	assert_false(remains_journalled_stays(&fake.g));
	/* another agent's: elsewhere, or of another size */
	h.data = DATA + PAGE_SIZE;
	memcpy(at(DATA, sizeof(h)), &h, sizeof(h));
	assert_false(remains_journalled_stays(&fake.g));
	put_header();
	lend(text_bytes, agent_data_bytes(&h) + PAGE_SIZE);
	assert_false(remains_journalled_stays(&fake.g));
	/* nothing at all */
	lend(text_bytes, agent_data_bytes(&h));
	piece_of(TEXT)->len = 0;
	assert_false(remains_journalled_stays(&fake.g));
	piece_of(TEXT)->len = sizeof(piece_of(TEXT)->bytes);
	assert_true(remains_journalled_stays(&fake.g));
	/* in memory that the VMM lent, each entry of the page table is looked at */
	assert_int_equal(journal_agent_came(fake.g.journal, 0xffffffff9fa00000, text_bytes,
					    0xffffffff9fc00000, agent_data_bytes(&h), NULL),
			 0);
	assert_true(remains_journalled_stays(&fake.g));
}

static void mailbox(u32 box_state, u64 seq)
{
	memcpy(at(BOX, 4), &box_state, sizeof(box_state));
	memcpy(at(BOX + 56, 8), &seq, sizeof(seq));
}

/* While an agent is loaded it has no header yet: the gate's last call is the proof. */
static void lent_is_there_by_the_mailbox(void **state)
{
	const u64 seq = 0x123456789a;
	const struct {
		u32 state;
		u64 seq;
		bool pending, done;
	} boxes[] = {
		{ 0, 0, false, false }, /* of a time with no gate */
		{ 3, 7, false, false }, /* of another one */
		{ 3, seq - 2, false, false },
		{ 3, seq - 1, true, false }, /* noted, not yet come to */
		{ 0, seq - 1, true, false },
		{ 1, seq - 1, false, false }, /* nothing is noted while a call goes on */
		{ 2, seq - 1, false, false },
		{ 1, seq, true, true },
		{ 3, seq, true, true },
		{ 3, seq + 1, true, true },
		{ 3, seq + 1000, false, false },
	};
	struct journal *j = fake.g.journal;

	(void)state;
	assert_int_equal(journal_mailbox(j, BOX, NULL), 0);
	assert_true(remains_journalled_stays(&fake.g)); /* nothing is lent, nothing asked for */
	for (size_t i = 0; i < ARRAY_SIZE(boxes); i++) {
		mailbox(boxes[i].state, boxes[i].seq);
		assert_int_equal(journal_alloc(j, JOURNAL_AGENT_TEXT, TEXT, 0x3000, NULL), 0);
		assert_int_equal(journal_pending(j, JOURNAL_AGENT_DATA, 0x4000, seq, NULL), 0);
		assert_int_equal(remains_journalled_stays(&fake.g), boxes[i].pending);
		assert_int_equal(journal_alloc(j, JOURNAL_AGENT_DATA, DATA, 0x4000, NULL), 0);
		assert_int_equal(remains_journalled_stays(&fake.g), boxes[i].done);
	}
	/* without a gate that is no proof of anything */
	mailbox(3, seq);
	assert_true(remains_journalled_stays(&fake.g));
	assert_int_equal(journal_mailbox(j, 0, NULL), 0);
	assert_false(remains_journalled_stays(&fake.g));
}

/* A gate that could not be closed: whoever puts call sites back leaves its interlock in until its own are back. */
static void the_gate_keeps_its_interlock(void **state)
{
	struct guest *g = &fake.g;
	struct err err = { 0 };

	(void)state;
	assert_int_equal(journal_mailbox(g->journal, BOX, NULL), 0);
	note(HOOK, LOCK, CAVE + 0x40, JOURNAL_INTERLOCK);
	for (size_t i = 2; i < N_SITES; i++) {
		note(site(i), 0, CAVE, JOURNAL_GATE_SITE);
		call(site(i), CAVE);
	}
	call(HOOK, CAVE + 0x40);
	assert_int_equal(interlock_adopt(g, &err), 0);
	assert_non_null(g->hook);
	/* as at the detach: nothing is armed, the interlock may be all that is left */
	assert_int_equal(ftrace_make_nop(g, NULL, &err), 0);
	assert_int_equal(fake.n_written, 0);
	/* and with sites of its own */
	note(site(0), 0, TEXT, JOURNAL_SITE);
	call(site(0), TEXT);
	assert_int_equal(text_from_journal(g, JOURNAL_SITE, &g->armed, &g->n_armed, &err), 0);
	assert_int_equal(ftrace_make_nop(g, NULL, &err), 0);
	assert_true(at_rest(0));
	assert_true(calls(HOOK, CAVE + 0x40));
	assert_int_equal(fake.n_written, 1);
	assert_int_equal(n_noted(JOURNAL_INTERLOCK), 1);
	/* the gate's own way */
	assert_int_equal(gate_recover(g, &err), 0);
	for (size_t i = 2; i < N_SITES; i++)
		assert_true(at_rest(i) && when(site(i)) < when(HOOK));
	assert_true(calls(HOOK, LOCK));
	assert_null(g->hook);
	assert_false(journal_outstanding(g->journal));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(sites_that_no_journal_has, setup, teardown),
		cmocka_unit_test_setup_teardown(a_hook_that_no_journal_has, setup, teardown),
		cmocka_unit_test_setup_teardown(lent_is_there_by_its_header, setup, teardown),
		cmocka_unit_test_setup_teardown(lent_is_there_by_the_mailbox, setup, teardown),
		cmocka_unit_test_setup_teardown(the_gate_keeps_its_interlock, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
