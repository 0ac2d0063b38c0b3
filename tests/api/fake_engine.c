// SPDX-License-Identifier: Apache-2.0
/*
 * An engine without guests, behind the contracts of patcher/guest.h and symbols/kernel.h, so that the
 * daemon can be tested to the last error code. The last word of a target says what happens:
 *
 *   qemu:/fake              a guest with 1000 functions, 1000 records a second
 *   qemu:/fake-ANYTHING     the same, and see fake_trace.c for what tracing it does
 *   qemu:/fake-gate         attaching waits for the file that HVFTRACE_FAKE_GATE names
 *   qemu:/fake-silent       its VMM does not answer while there is the file that HVFTRACE_FAKE_GATE names
 *   qemu:/fake-hung         guest_info() waits for that file, with the guest lock
 *   qemu:/fake-console      has a console, see fake_console.c; of qemu:/fake-shown it is only shown
 *   qemu:/fake-boots        not booted at the first two tries
 *   qemu:/fake-detach       detaching fails, guest.text_changed
 *   qemu:/N/fake-together   detaching needs that FAKE_TOGETHER of them are detached at a time
 *   qemu:/err/CODE          attaching fails with this code
 *   pid:N                   as qemu:/fake if HVFTRACE_FAKE_PIDS is set, else target.no_process
 *   anything else           target.no_socket, or target.syntax
 */
#include "fake_engine.h"

#include "patcher/facts.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TEXT_BASE 0xffffffff81000000ull
#define DATA_BASE 0xffffffff82000000ull

static atomic_uint boots; /* tries to attach qemu:/fake-boots */
static atomic_uint together; /* of qemu:/N/fake-together, those that are being detached */

enum err_code fake_code(const char *name)
{
	int c;

	for (c = 0; c < ERR_CODE_MAX && strcmp(err_code_name((enum err_code)c), name) != 0; c++)
		;
	return (enum err_code)c;
}

void fake_gate(void)
{
	struct timespec step = { .tv_nsec = 5000000 };
	const char *path = getenv("HVFTRACE_FAKE_GATE");
	char waiting[256];
	FILE *f;

	if (path) {
		snprintf(waiting, sizeof(waiting), "%s.waiting", path);
		f = fopen(waiting, "w"); /* tests look for it */
		if (f)
			fclose(f);
	}
	while (path && access(path, F_OK) < 0)
		nanosleep(&step, NULL);
}

bool fake_is(const struct guest *g, const char *kind)
{
	return strcmp(g->kind, kind) == 0;
}

/* "qemu:/tmp/x/fake-fast/qmp" is of the kind "fake-fast", as is "qemu:/fake-fast". */
static void set_kind(struct guest *g, const char *target)
{
	char path[256], *slash;

	snprintf(path, sizeof(path), "%s", target + strlen("qemu:"));
	slash = strrchr(path, '/');
	if (slash && strcmp(slash, "/qmp") == 0) {
		*slash = 0;
		slash = strrchr(path, '/');
	}
	snprintf(g->kind, sizeof(g->kind), "%.63s", slash ? slash + 1 : path);
}

static void fill_site(struct kernel *k, size_t i)
{
	static const char *const stems[] = { "vfs", "tcp", "ext4", "sched" };
	struct ftrace_site *s = &k->sites[i];

	snprintf(k->names[i], sizeof(k->names[i]), "%s_fn_%03zu", stems[i % 4], i);
	if (i == 10)
		snprintf(k->names[i], sizeof(k->names[i]), "vfs_read");
	if (i == 998) /* names are the guest's: bytes that are not UTF-8, and a terminal's escape */
		snprintf(k->names[i], sizeof(k->names[i]), "bad_\xff\x1b[31m_name");
	s->name = k->names[i];
	s->module = i >= 900 ? "fakemod" : NULL;
	s->ip = TEXT_BASE + i * 64 + 4;
	s->rec = 0xffff888000100000ull + i * 16;
	s->state = SITE_OK;
	if (i % 100 == 50)
		s->state = SITE_DISABLED;
	else if (i % 100 == 51)
		s->state = SITE_IN_USE;
}

int guest_attach(const char *target, const struct guest_opts *opts, struct guest **ret,
		 struct err *err)
{
	static const char errs[] = "qemu:/err/";
	enum err_code code;
	struct guest *g;

	if (access(opts->state_dir, W_OK) < 0)
		return err_set(err, -EIO, ERR_JOURNAL, 0, "cannot write %.100s", opts->state_dir);
	if (strncmp(target, errs, strlen(errs)) == 0) {
		code = fake_code(target + strlen(errs));
		if (code != ERR_CODE_MAX)
			return err_set(err, -EIO, code, code == ERR_GUEST_CHANGED ? TEXT_BASE : 0,
				       "asked to fail with %s", err_code_name(code));
	}
	if (strncmp(target, "pid:", 4) == 0 && getenv("HVFTRACE_FAKE_PIDS"))
		target = "qemu:/fake";
	if (strncmp(target, "pid:", 4) == 0)
		return err_set(err, -ENOENT, ERR_TARGET_NO_PROCESS, 0, "there is no process %.20s",
			       target + 4);
	if (strncmp(target, "qemu:", 5) != 0)
		return err_set(err, -EINVAL, ERR_TARGET_SYNTAX, 0, "%.100s is no target", target);
	g = calloc(1, sizeof(*g));
	if (!g)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory");
	set_kind(g, target);
	if (strncmp(g->kind, "fake", 4) != 0) {
		free(g);
		return err_set(err, -ENOENT, ERR_TARGET_NO_SOCKET, 0, "there is no socket %.100s",
			       target + 5);
	}
	if (fake_is(g, "fake-boots") && atomic_fetch_add(&boots, 1) < 2) {
		free(g);
		return err_set(err, -ENOENT, ERR_GUEST_FIRMWARE, 0, "the guest has not booted yet");
	}
	if (fake_is(g, "fake-gate"))
		fake_gate();
	g->held = opts->boot_ns;
	g->window_limit_ns = opts->window_limit_ns ? opts->window_limit_ns : 10000000;
	snprintf(g->target, sizeof(g->target), "%s", target);
	pthread_mutex_init(&g->lock, NULL);
	if (fake_is(g, "fake-console") || fake_is(g, "fake-shown"))
		g->console = fake_console_create(fake_is(g, "fake-console"));
	for (size_t i = 0; i < FAKE_FUNCTIONS; i++)
		fill_site(&g->kernel, i);
	g->kernel.modules[0] = (struct kernel_module){ .name = "fakemod",
						       .base = 0xffffffffc0000000,
						       .text_bytes = 8192,
						       .n_syms = 120,
						       .n_sites = 100 };
	g->kernel.modules[1] =
		(struct kernel_module){ .name = "e\xffvil", .base = 0xffffffffc0010000 };
	*ret = g;
	return 0;
}

/* Return: are all there that are to be detached at a time? */
static bool meet(void)
{
	struct timespec step = { .tv_nsec = 5000000 };

	atomic_fetch_add(&together, 1);
	for (int i = 0; atomic_load(&together) < FAKE_TOGETHER && i < 1000; i++)
		nanosleep(&step, NULL);
	return atomic_load(&together) >= FAKE_TOGETHER;
}

int guest_detach(struct guest *g, struct guest_restore *ret, struct err *err)
{
	bool fails = fake_is(g, "fake-detach") || (fake_is(g, "fake-together") && !meet());

	*ret = (struct guest_restore){
		.sites_restored = g->n_armed,
		.memory_freed = !fails,
		.verified = !fails,
	};
	fake_console_destroy(g->console);
	pthread_mutex_destroy(&g->lock);
	free(g);
	if (fails)
		return err_set(err, -EINVAL, ERR_GUEST_CHANGED, TEXT_BASE + 4,
			       "site vfs_fn_000: found cc, expected e8");
	return 0;
}

void guest_get_facts(struct guest *g, struct guest_facts *ret)
{
	*ret = (struct guest_facts){ .preemption = "dynamic", .lockdown = LOCKDOWN_INTEGRITY };
	ret->n_config = 2;
	ret->config[0].name = "CONFIG_SMP";
	ret->config[0].set = true;
	ret->config[1].name = "CONFIG_KASAN";
	ret->btf_types_bytes = 1234;
	if (fake_is(g, "fake-noagent"))
		ret->no_agent = "asked to have none";
	ret->no_syscalls = "it is not real";
}

int guest_release(struct guest *g, struct err *err)
{
	(void)err;
	pthread_mutex_lock(&g->lock);
	g->held = false;
	pthread_mutex_unlock(&g->lock);
	return 0;
}

static void fill(struct guest *g, struct guest_info *ret)
{
	*ret = (struct guest_info){
		.release = "6.1.0-fake",
		.banner = "Linux version 6.1.0-fake (f\xff) #1 SMP",
		.build_id = "0123456789abcdef",
		.accel = "tcg",
		.console = fake_console_state(g->console),
		.state = guest_is_gone(g)     ? "gone"
			 : g->held            ? "held"
			 : guest_is_silent(g) ? "unknown"
					      : "running",
		.vmm_pid = 4242,
		.vcpus = 2,
		.ram_bytes = 512ull << 20,
		.kaslr_offset = 0x1e000000,
		.paging_levels = 5,
		.n_symbols = 5000,
		.n_functions = FAKE_FUNCTIONS,
		.n_traceable = FAKE_FUNCTIONS - 20,
		.n_in_use = 10,
		.n_modules = 2,
		.n_armed = g->n_armed,
		.find_ns = 34000000,
		.lend_ns = g->agent_loaded ? 5250000 : 0,
		.agent_loaded = g->agent_loaded,
		.agent_text = 0xffffffffc0100000,
		.agent_data = 0xffffc90000200000,
		.agent_bytes = 8 << 20,
		.windows = g->windows,
		.window_limit_ns = g->window_limit_ns,
	};
	memcpy(ret->target, g->target, MIN(sizeof(ret->target) - 1, strlen(g->target)));
}

void guest_info(struct guest *g, struct guest_info *ret)
{
	pthread_mutex_lock(&g->lock);
	if (fake_is(g, "fake-hung"))
		fake_gate();
	fill(g, ret);
	pthread_mutex_unlock(&g->lock);
}

void guest_glance(struct guest *g, struct guest_info *ret)
{
	fill(g, ret);
}

pid_t guest_vmm_pid(const struct guest *g)
{
	(void)g;
	return 4242;
}

bool guest_is_silent(const struct guest *g)
{
	const char *gate = getenv("HVFTRACE_FAKE_GATE");

	return fake_is(g, "fake-silent") && gate && !access(gate, F_OK);
}

bool guest_is_gone(const struct guest *g)
{
	return g->console && fake_console_ended(g->console);
}

bool guest_is_held(struct guest *g)
{
	return g->held;
}

bool guest_any_saved(const char *state_dir)
{
	(void)state_dir;
	return false;
}

int guest_recover(const char *state_dir, u32 *n_ret, struct err *err)
{
	const char *gate = getenv("HVFTRACE_FAKE_RECOVERY"); /* it takes until there is this file */
	struct timespec step = { .tv_nsec = 5000000 };

	while (gate && access(gate, F_OK) < 0)
		nanosleep(&step, NULL);
	*n_ret = 0;
	if (access(state_dir, W_OK) < 0)
		return err_set(err, -EIO, ERR_JOURNAL, 0, "cannot write %.100s", state_dir);
	return 0;
}

int guest_renew(struct guest *g, struct err *err)
{
	(void)g;
	(void)err;
	return 0;
}

int guest_refresh(struct guest *g, bool fresh, struct err *err)
{
	(void)g;
	(void)fresh;
	(void)err;
	return 0;
}

struct kernel *guest_kernel(struct guest *g)
{
	return &g->kernel;
}

void guest_lock(struct guest *g)
{
	pthread_mutex_lock(&g->lock);
}

void guest_unlock(struct guest *g)
{
	pthread_mutex_unlock(&g->lock);
}

size_t kernel_site_count(const struct kernel *k)
{
	(void)k;
	return FAKE_FUNCTIONS;
}

const struct ftrace_site *kernel_sites(const struct kernel *k)
{
	return k->sites;
}

const struct ftrace_site *kernel_site_at(const struct kernel *k, u64 ip)
{
	for (size_t i = 0; i < FAKE_FUNCTIONS; i++) {
		if (k->sites[i].ip == ip)
			return &k->sites[i];
	}
	return NULL;
}

size_t kernel_module_count(const struct kernel *k)
{
	(void)k;
	return ARRAY_SIZE(k->modules);
}

const struct kernel_module *kernel_modules(const struct kernel *k)
{
	return k->modules;
}

/* The functions, and as many data symbols behind them, 8 bytes each. */
size_t kernel_sym_count(const struct kernel *k)
{
	(void)k;
	return 2ul * FAKE_FUNCTIONS;
}

void kernel_sym_get(const struct kernel *k, size_t i, struct kernel_sym *ret)
{
	const struct ftrace_site *s = &k->sites[i % FAKE_FUNCTIONS];
	bool data = i >= FAKE_FUNCTIONS;

	*ret = (struct kernel_sym){
		.name = s->name,
		.module = s->module,
		.addr = data ? DATA_BASE + (i - FAKE_FUNCTIONS) * 8 : s->ip - 4,
		.size_bytes = data ? 8 : 64,
		.type = data ? 'd' : 't',
	};
}

bool kernel_sym_at(const struct kernel *k, u64 addr, struct kernel_sym *ret)
{
	for (size_t i = 0; i < kernel_sym_count(k); i++) {
		kernel_sym_get(k, i, ret);
		if (addr >= ret->addr && addr - ret->addr < ret->size_bytes)
			return true;
	}
	return false;
}
