// SPDX-License-Identifier: Apache-2.0
/*
 * What of a guest is believed, and what is noted before it is acted upon, on a guest of our own: the linker puts the
 * functions below in the place of those that ask the VMM and the kernel's tables.
 */
#include "guest-agent/linkage.h"
#include "patcher/agent.h"
#include "patcher/baseline.h"
#include "patcher/frames.h"
#include "patcher/remains.h"
#include "patcher/text.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TEXT    0xffffffffc0400000ull
#define DATA    0xffffffffc0800000ull
#define KERNEL  0xffffffff81000000ull
#define N_SITES 6u
#define PID     77

static struct {
	u8 *text, *data; /* as an agent is at TEXT and DATA; NULL: nothing is */
	u64 text_bytes, data_bytes;
	struct ftrace_site site[N_SITES];
	u8 bytes[N_SITES][MCOUNT_INSN_SIZE]; /* at each site */
	bool live; /* a vCPU runs on our page table */
	bool readable; /* guest RAM */
	int refresh, read_sites; /* what these return */
	enum vm_leaving leaves;
	int n_found; /* how often its memory was searched for a kernel */
} fake;

static char dir[] = "/tmp/hvf-guest-XXXXXX";
static struct guest g;

/* In the place of the engine's own. */

int __wrap_guest_read(struct guest *guest, u64 addr, void *buf, size_t len, struct err *err);
int __wrap_guest_read(struct guest *guest, u64 addr, void *buf, size_t len, struct err *err)
{
	(void)guest;
	(void)err;
	if (fake.text && addr - TEXT < fake.text_bytes && len <= fake.text_bytes - (addr - TEXT))
		memcpy(buf, fake.text + (addr - TEXT), len);
	else if (fake.data && addr - DATA < fake.data_bytes &&
		 len <= fake.data_bytes - (addr - DATA))
		memcpy(buf, fake.data + (addr - DATA), len);
	else
		return -EFAULT;
	return 0;
}

bool __wrap_guest_kernel_is_live(struct guest *guest);
bool __wrap_guest_kernel_is_live(struct guest *guest)
{
	(void)guest;
	return fake.live;
}

bool __wrap_interlock_was(struct guest *guest, u64 code, struct text_change *c);
bool __wrap_interlock_was(struct guest *guest, u64 code, struct text_change *c)
{
	(void)guest;
	assert_int_equal(code, TEXT + fake.text_bytes);
	c->addr = KERNEL + 0x9000;
	memset(c->old, 0x11, MCOUNT_INSN_SIZE);
	memset(c->new, 0x22, MCOUNT_INSN_SIZE);
	return true;
}

const struct ftrace_site *__wrap_kernel_sites(const struct kernel *k);
const struct ftrace_site *__wrap_kernel_sites(const struct kernel *k)
{
	(void)k;
	return fake.site;
}

size_t __wrap_kernel_site_count(const struct kernel *k);
size_t __wrap_kernel_site_count(const struct kernel *k)
{
	(void)k;
	return N_SITES;
}

bool __wrap_kernel_sym_at(const struct kernel *k, u64 addr, struct kernel_sym *ret);
bool __wrap_kernel_sym_at(const struct kernel *k, u64 addr, struct kernel_sym *ret)
{
	(void)k;
	*ret = (struct kernel_sym){ .name = "f" };
	return addr - KERNEL < 0x100000;
}

int __wrap_kernel_sym(const struct kernel *k, const char *name, u64 *ret);
int __wrap_kernel_sym(const struct kernel *k, const char *name, u64 *ret)
{
	(void)k;
	(void)name;
	(void)ret;
	return -ENOENT;
}

const struct kernel_location *__wrap_kernel_location(const struct kernel *k);
const struct kernel_location *__wrap_kernel_location(const struct kernel *k)
{
	static const struct kernel_location where;

	(void)k;
	return &where;
}

int __wrap_kernel_refresh(struct kernel *k, struct err *err);
int __wrap_kernel_refresh(struct kernel *k, struct err *err)
{
	(void)k;
	(void)err;
	return fake.refresh;
}

int __wrap_text_read_sites(struct guest *guest, const struct text_sites *t, struct err *err);
int __wrap_text_read_sites(struct guest *guest, const struct text_sites *t, struct err *err)
{
	(void)guest;
	if (fake.read_sites)
		return err_set(err, fake.read_sites, ERR_GUEST_MEMORY, 0, "as the test wants it");
	assert_int_equal(t->n, N_SITES);
	memcpy(t->out, fake.bytes, sizeof(fake.bytes)); /* both are in order */
	return 0;
}

/* For an attach. */

int __wrap_vm_attach(const char *target, struct vm **ret, struct err *err);
int __wrap_vm_attach(const char *target, struct vm **ret, struct err *err)
{
	(void)target;
	(void)err;
	*ret = NULL;
	return 0;
}

void __wrap_vm_detach(struct vm *vm);
void __wrap_vm_detach(struct vm *vm)
{
	(void)vm;
}

pid_t __wrap_vm_pid(const struct vm *vm);
pid_t __wrap_vm_pid(const struct vm *vm)
{
	(void)vm;
	return PID + 1; /* another one's */
}

u64 __wrap_vm_pid_start_time(const struct vm *vm);
u64 __wrap_vm_pid_start_time(const struct vm *vm)
{
	(void)vm;
	return 1;
}

enum vm_accel __wrap_vm_accel(const struct vm *vm);
enum vm_accel __wrap_vm_accel(const struct vm *vm)
{
	(void)vm;
	return VM_ACCEL_KVM;
}

bool __wrap_vm_spare_offered(const struct vm *vm, gpa_t *ret);
bool __wrap_vm_spare_offered(const struct vm *vm, gpa_t *ret)
{
	(void)vm;
	(void)ret;
	return false;
}

int __wrap_vm_claim(struct vm *vm, struct err *err);
int __wrap_vm_claim(struct vm *vm, struct err *err)
{
	(void)vm;
	(void)err;
	return 0;
}

void __wrap_vm_set_window_limit(struct vm *vm, u64 limit_ns);
void __wrap_vm_set_window_limit(struct vm *vm, u64 limit_ns)
{
	(void)vm;
	(void)limit_ns;
}

enum vm_leaving __wrap_vm_leaves(struct vm *vm);
enum vm_leaving __wrap_vm_leaves(struct vm *vm)
{
	(void)vm;
	return fake.leaves;
}

bool __wrap_vm_tells_leaving(const struct vm *vm);
bool __wrap_vm_tells_leaving(const struct vm *vm)
{
	(void)vm;
	return true;
}

int __wrap_guest_find_kernel(struct guest *guest, struct err *err);
int __wrap_guest_find_kernel(struct guest *guest, struct err *err)
{
	(void)guest;
	fake.n_found++;
	return err_set(err, -EAGAIN, ERR_GUEST_FIRMWARE, 0, "as the test wants it");
}

enum vm_state __wrap_vm_state(struct vm *vm);
enum vm_state __wrap_vm_state(struct vm *vm)
{
	(void)vm;
	return VM_RUNNING;
}

int __wrap_vm_walk(struct vm *vm, gva_t va, struct vm_mapping *ret, struct err *err);
int __wrap_vm_walk(struct vm *vm, gva_t va, struct vm_mapping *ret, struct err *err)
{
	(void)vm;
	(void)err;
	*ret = (struct vm_mapping){ .executable = va.v == TEXT };
	return fake.text ? 0 : -EFAULT;
}

void __wrap_vm_check_ram(struct vm *vm);
void __wrap_vm_check_ram(struct vm *vm)
{
	(void)vm;
}

enum vm_end __wrap_vm_end(struct vm *vm);
enum vm_end __wrap_vm_end(struct vm *vm)
{
	(void)vm;
	return VM_END_GONE;
}

int __wrap_vm_read_phys(struct vm *vm, gpa_t addr, void *buf, size_t len, struct err *err);
int __wrap_vm_read_phys(struct vm *vm, gpa_t addr, void *buf, size_t len, struct err *err)
{
	(void)vm;
	(void)addr;
	(void)err;
	memset(buf, 0, len);
	return fake.readable ? 0 : -ESRCH;
}

/* An agent as agent_link() leaves it. */
static void bring_agent(void)
{
	struct agent_header h = { .magic = AGENT_MAGIC,
				  .abi_version = AGENT_ABI_VERSION,
				  .nr_cpus = 4,
				  .ring_slots = 4096,
				  .nr_frames = 4096,
				  .site_slots = 1024,
				  .task_slots = 16,
				  .text = TEXT,
				  .data = DATA };
	const struct agent_blob *blob = agent_blob_get();
	agent_s64 v[AGENT_FIX_MAX] = { 0 };

	assert_int_equal(agent_layout(&h), 0);
	fake.text_bytes = agent_text_bytes(&h);
	fake.data_bytes = agent_data_bytes(&h);
	fake.text = calloc(1, fake.text_bytes);
	fake.data = calloc(1, fake.data_bytes);
	assert_true(fake.text && fake.data);
	for (int i = 0; i < AGENT_FIX_MAX; i++)
		v[i] = 0x500;
	v[AGENT_FIX_RETURN] = v[AGENT_FIX_CALL_STACK] = v[AGENT_FIX_CALL_COPY] = 0;
	v[AGENT_FIX_CALL_STRNCPY] = 0;
	memcpy(fake.text, blob->text, blob->text_bytes);
	assert_int_equal(agent_link(blob, &h, v, fake.text), 0);
	memcpy(fake.data, &h, sizeof(h));
	assert_true(frames_header_ok(&h, TEXT, fake.text_bytes, DATA, fake.data_bytes));
}

static void call_from(u8 *site, u64 from, u64 to)
{
	s32 rel = (s32)(to - from - MCOUNT_INSN_SIZE);

	site[0] = 0xe8;
	memcpy(site + 1, &rel, sizeof(rel));
}

static int setup(void **state)
{
	static const u8 nop[MCOUNT_INSN_SIZE] = { 0x0f, 0x1f, 0x44, 0x00, 0x00 };
	struct journal_ident id = { .target = "pid:77", .levels = 4 };

	(void)state;
	memset(&g, 0, sizeof(g));
	memset(&fake, 0, sizeof(fake));
	pthread_mutex_init(&g.lock, NULL);
	snprintf(g.target, sizeof(g.target), "pid:77");
	snprintf(g.state_dir, sizeof(g.state_dir), "%s", dir);
	fake.readable = fake.live = true;
	for (u32 i = 0; i < N_SITES; i++) {
		fake.site[i] = (struct ftrace_site){ .ip = KERNEL + 64 * i,
						     .rec = KERNEL + 0x10000 + 16 * i,
						     .name = "f" };
		memcpy(fake.bytes[i], nop, sizeof(nop));
	}
	assert_int_equal(journal_open(dir, PID, 1, &g.journal, NULL), 0);
	return journal_set_ident(g.journal, &id, NULL);
}

static int teardown(void **state)
{
	(void)state;
	journal_discard(g.journal);
	free(g.baseline);
	free(g.baseline_ip);
	free(fake.text);
	free(fake.data);
	return 0;
}

/*
 * Sites and interlock are in the journal before the memory that they lead to: at whichever byte the daemon is killed,
 * no later one gives memory back that something still calls.
 */
static void what_leads_to_an_agent_is_noted_first(void **state)
{
	const struct agent_blob *blob = agent_blob_get();
	struct journal_state s;
	u8 bytes[8192];
	char path[300];
	bool found;
	size_t used, n_whole = 0;
	ssize_t n;
	int fd;

	(void)state;
	bring_agent();
	for (u32 i = 0; i < N_SITES; i += 2)
		call_from(fake.bytes[i], fake.site[i].ip, TEXT + blob->ftrace_caller);
	assert_int_equal(baseline_take(&g, NULL), 0);
	assert_int_equal(remains_find(&g, &found, NULL), 0);
	assert_true(found);
	snprintf(path, sizeof(path), "%s/guest-%d-1.journal", dir, PID);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = read(fd, bytes, sizeof(bytes));
	close(fd);
	assert_in_range(n, 1, sizeof(bytes) - 1);
	for (ssize_t cut = 8; cut <= n; cut++) {
		size_t sites = 0, hooks = 0;

		assert_int_equal(journal_parse(bytes, (size_t)cut, &s, &used, NULL), 0);
		for (size_t i = 0; i < s.n_text; i++) {
			sites += s.text[i].kind == JOURNAL_SITE;
			hooks += s.text[i].kind == JOURNAL_INTERLOCK;
		}
		if (s.alloc[JOURNAL_AGENT_TEXT] || s.alloc[JOURNAL_AGENT_DATA]) {
			assert_int_equal(sites, N_SITES / 2);
			assert_int_equal(hooks, 1);
		}
		n_whole +=
			s.alloc[JOURNAL_AGENT_TEXT] == TEXT && s.alloc[JOURNAL_AGENT_DATA] == DATA;
		journal_state_deinit(&s);
	}
	assert_int_equal(n_whole, 1); /* the last byte alone makes it whole */
	/* and its memory is known for the agent's */
	assert_true(remains_journalled_stays(&g));
	memset(fake.data, 0, 64);
	assert_false(remains_journalled_stays(&g));
}

/* Of a VMM that ends memory goes before its process does: nothing is forgotten that could still be put back. */
static void an_ending_vmm_is_no_reboot(void **state)
{
	struct err err = { 0 };

	(void)state;
	assert_int_equal(journal_alloc(g.journal, JOURNAL_AGENT_TEXT, TEXT, 4096, NULL), 0);
	assert_int_equal(guest_check_alive(&g, &err), 0);
	fake.live = fake.readable = false;
	assert_int_equal(guest_check_alive(&g, &err), -ESRCH);
	assert_int_equal(err.code, ERR_VMM_GONE);
	assert_true(journal_outstanding(g.journal));
	/* the same with RAM that can be read: another kernel runs there */
	fake.readable = true;
	assert_int_equal(guest_check_alive(&g, &err), -ESTALE);
	assert_int_equal(err.code, ERR_GUEST_REBOOTED);
	assert_false(journal_outstanding(g.journal));
}

/* What cannot be read anew leaves no half of the old: nothing can be armed until it can. */
static void a_baseline_that_cannot_be_renewed(void **state)
{
	struct err err = { 0 };

	(void)state;
	assert_int_equal(baseline_take(&g, NULL), 0);
	assert_int_equal(g.n_baseline, N_SITES);
	/* tables could not be read: all is as before */
	fake.refresh = -EFAULT;
	assert_int_equal(baseline_refresh(&g, &err), -EFAULT);
	assert_int_equal(g.n_baseline, N_SITES);
	assert_non_null(g.baseline);
	/* the tables are new, the sites could not be read */
	fake.refresh = 0;
	fake.read_sites = -EFAULT;
	assert_int_equal(baseline_refresh(&g, &err), -EFAULT);
	assert_int_equal(g.n_baseline, 0);
	/* and the next look goes for it again, whether the tables have changed since or not */
	assert_int_equal(guest_refresh(&g, false, &err), -EFAULT);
	fake.read_sites = 0;
	assert_int_equal(guest_refresh(&g, false, &err), 0);
	assert_int_equal(g.n_baseline, N_SITES);
}

/* A page that is to come by postcopy would be asked for by whoever reads it, and by us it must not be. */
static void one_that_leaves_or_arrives_is_not_read(void **state)
{
	const struct guest_opts opts = { .state_dir = dir };
	struct guest *another;
	struct err err = { 0 };

	(void)state;
	fake.leaves = VM_LEAVES;
	assert_int_equal(guest_attach("qemu:/fake", &opts, &another, &err), -EBUSY);
	assert_int_equal(err.code, ERR_GUEST_LEAVES);
	assert_int_equal(fake.n_found, 0);
	fake.leaves = VM_LEAVING_UNKNOWN;
	assert_int_equal(guest_attach("qemu:/fake", &opts, &another, &err), -ETIMEDOUT);
	assert_int_equal(fake.n_found, 0);
	fake.leaves = VM_STAYS;
	assert_int_equal(guest_attach("qemu:/fake", &opts, &another, &err), -EAGAIN);
	assert_int_equal(fake.n_found, 1);
}

static int make_dir(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	(void)state;
	return rmdir(dir); /* fails when a test left a file */
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_leads_to_an_agent_is_noted_first),
		TEST(an_ending_vmm_is_no_reboot),
		TEST(a_baseline_that_cannot_be_renewed),
		TEST(one_that_leaves_or_arrives_is_not_read),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
