// SPDX-License-Identifier: Apache-2.0
/* See test_tracers_trace_fake.h. */
#include "test_tracers_trace_fake.h"

#include "base/clock.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define RING_OFF 8192u
#define WORDS    (RING_OFF / 8 + SLOTS * 3)
#define LOW36    0xfffffffffull

static u64 data[WORDS];

struct fake_vm vm;

static const struct ftrace_site sites[] = { { .ip = TEXT, .name = "vfs_read" },
					    { .ip = NEW, .name = "mod_read", .module = "mod" } };

void fake_nap(void)
{
	usleep(1000);
}

void fake_setup(void)
{
	memset(&vm, 0, sizeof(vm));
	memset(data, 0, sizeof(data));
	vm.ns_per_tick = 2;
	pthread_mutex_init(&vm.lock, NULL);
}

static struct agent_cpu *cpu0(void)
{
	return (struct agent_cpu *)&data[AGENT_CPU_OFF / 8];
}

static int io_read(void *arg, u64 off, void *buf, size_t len)
{
	u64 *to = buf;

	(void)arg;
	vm.in_ring = true;
	while (vm.ring_hangs)
		fake_nap();
	vm.in_ring = false;
	for (size_t i = 0; i < len / 8; i++)
		to[i] = __atomic_load_n(&data[off / 8 + i], __ATOMIC_ACQUIRE);
	return 0;
}

static int io_write(void *arg, u64 off, const void *buf, size_t len)
{
	const u64 *from = buf;

	(void)arg;
	for (size_t i = 0; i < len / 8; i++)
		__atomic_store_n(&data[off / 8 + i], from[i], __ATOMIC_RELEASE);
	return 0;
}

void fake_reserve(void)
{
	__atomic_fetch_add(&cpu0()->head, 1, __ATOMIC_RELEASE);
}

bool fake_put(u32 type, u64 ip, u32 pid)
{
	return fake_put_word(type, (TEXT & 0xffffffff) << 32 | (u32)ip, pid);
}

bool fake_put_word(u32 type, u64 word, u32 pid)
{
	u64 index = cpu0()->head, low = (u64)type << AGENT_TYPE_SHIFT | pid, w[3];
	u64 end = clock_ns(CLOCK_MONOTONIC) + PATIENCE;

	while (index - __atomic_load_n(&cpu0()->tail, __ATOMIC_ACQUIRE) >= SLOTS) {
		if (clock_ns(CLOCK_MONOTONIC) > end)
			return false;
		fake_nap();
	}
	w[0] = (index / SLOTS + 1) << 48 | (1000 + index);
	w[1] = word;
	w[2] = (w[0] ^ (w[1] << 23 | w[1] >> 41) ^ low) * AGENT_CHECK_MUL;
	w[2] = (w[2] & ~LOW36) | low;
	(void)io_write(NULL, RING_OFF + index % SLOTS * sizeof(w), w, sizeof(w));
	__atomic_store_n(&cpu0()->head, index + 1, __ATOMIC_RELEASE);
	return true;
}

/* patcher/ */

void guest_lock(struct guest *g)
{
	(void)g;
	vm.n_locking++;
	pthread_mutex_lock(&vm.lock);
}

void guest_unlock(struct guest *g)
{
	(void)g;
	vm.n_locking--; /* first: who has it next counts those that wait */
	pthread_mutex_unlock(&vm.lock);
}

struct kernel *guest_kernel(struct guest *g)
{
	return (struct kernel *)g;
}

void guest_mem(struct guest *g, struct sym_mem *ret)
{
	(void)g;
	*ret = (struct sym_mem){ 0 };
}

int guest_check_alive(struct guest *g, struct err *err)
{
	(void)g;
	(void)err;
	return 0;
}

int guest_check_stays(struct guest *g, struct err *err)
{
	(void)g;
	(void)err;
	vm.looks++;
	vm.in_monitor = true;
	while (vm.monitor_hangs)
		fake_nap();
	vm.in_monitor = false;
	return 0;
}

int guest_find_task(struct guest *g, u32 pid, char *comm_ret, u32 *tgid_ret, struct err *err)
{
	(void)g;
	(void)err;
	*comm_ret = 0;
	*tgid_ret = pid;
	return 0;
}

void guest_note_restored(struct guest *g)
{
	(void)g;
}

int guest_refresh(struct guest *g, bool fresh, struct err *err)
{
	(void)g;
	(void)fresh;
	(void)err;
	return 0;
}

int tracing_claim(struct guest *g, struct err *err)
{
	(void)g;
	(void)err;
	return 0;
}

void tracing_release(struct guest *g)
{
	(void)g;
}

int tracing_prepare(struct guest *g, const struct tracing_opts *opts, struct err *err)
{
	(void)g;
	(void)opts;
	(void)err;
	return 0;
}

int tracing_set_graph(struct guest *g, bool on, struct err *err)
{
	(void)g;
	(void)on;
	(void)err;
	vm.n_changed++;
	return 0;
}

int tracing_arm(struct guest *g, const u32 *site, size_t n, struct tracing_counts *ret,
		struct err *err)
{
	(void)g;
	(void)site;
	(void)err;
	*ret = (struct tracing_counts){ .n_armed = n };
	return 0;
}

int tracing_follow(struct guest *g, const struct tracing_opts *opts, struct err *err)
{
	(void)g;
	(void)err;
	vm.n_followed += !opts;
	return 0;
}

int tracing_refresh(struct guest *g, bool fresh, struct tracing_counts *ret, struct err *err)
{
	(void)g;
	(void)fresh;
	(void)err;
	vm.epoch = vm.next_epoch;
	vm.refreshed = true;
	*ret = (struct tracing_counts){ .n_armed = 1,
					.missed = vm.missed | vm.kept,
					.n_skipped = vm.kept != 0 };
	if (vm.missed) {
		(void)fake_put_word(AGENT_REC_SWITCH, 8, 9);
		(void)fake_put_word(AGENT_REC_GRAPH_RETURN, 500ull << 32 | (u32)TEXT, 9);
		for (int i = 0; i < 50; i++) /* they are read before we are done */
			fake_nap();
	}
	vm.missed = 0;
	return 0;
}

/* As soon as it is armed it is called. */
int tracing_arm_more(struct guest *g, const u32 *site, size_t n, const struct tracing_opts *opts,
		     struct tracing_more *ret, struct err *err)
{
	(void)g;
	(void)site;
	(void)opts;
	(void)err;
	*ret = (struct tracing_more){ .n_armed = n };
	for (u32 i = 0; i < 3 * SLOTS && fake_put(AGENT_REC_FUNCTION, NEW, 7); i++)
		;
	vm.n_armed_more++;
	return 0;
}

bool tracing_taken(struct guest *g, u64 *ret)
{
	(void)g;
	*ret = vm.taken;
	return true;
}

int tracing_disarm(struct guest *g, struct guest_restore *ret, struct err *err)
{
	u64 end = clock_ns(CLOCK_MONOTONIC) + PATIENCE;

	(void)g;
	(void)ret;
	if (vm.disarm_fails)
		return err_set(err, -EBUSY, ERR_CONFLICT, 0, "some sites could not be put back");
	while (vm.disarm_waits && vm.n_locking < 2 && clock_ns(CLOCK_MONOTONIC) < end)
		fake_nap();
	vm.disarmed = true;
	return 0;
}

void tracing_rings(struct guest *g, struct agent_header *header_ret,
		   int (**read_ret)(void *arg, u64 off, void *buf, size_t len),
		   int (**write_ret)(void *arg, u64 off, const void *buf, size_t len),
		   void **arg_ret)
{
	*header_ret = (struct agent_header){ .nr_cpus = 1, .ring_slots = SLOTS, .nr_frames = 64 };
	header_ret->ring_off = RING_OFF;
	*read_ret = io_read;
	*write_ret = io_write;
	*arg_ret = g;
}

bool tracing_lost_nocpu(struct guest *g, u64 *ret)
{
	(void)g;
	*ret = 0;
	return true;
}

int tracing_collect(struct guest *g, void (*fn)(void *arg, const struct tracing_unreturned *u),
		    void *arg, struct err *err)
{
	const struct tracing_unreturned u = { .ip = TEXT, .parent = TEXT, .tsc = 1000, .pid = 9 };

	(void)g;
	vm.late |= vm.disarmed;
	if (vm.refreshed)
		vm.looks_at_once = vm.looks;
	vm.refreshed = false;
	vm.looks = 0;
	if (vm.collect_fails)
		return err_set(err, -ESRCH, vm.leaves ? ERR_GUEST_LEAVES : ERR_VMM_GONE, 0,
			       "the VMM ended, or the guest leaves it");
	if (vm.n_never) {
		vm.n_never--;
		fn(arg, &u);
	}
	return 0;
}

bool tracing_graph_stats(struct guest *g, struct tracing_graph *ret)
{
	(void)g;
	*ret = (struct tracing_graph){ 0 };
	return true;
}

int tracing_set_enabled(struct guest *g, bool on, struct err *err)
{
	(void)g;
	(void)on;
	(void)err;
	vm.n_changed++;
	return 0;
}

int tracing_rearm(struct guest *g, const struct tracing_opts *opts, const u32 *site, size_t n,
		  struct tracing_counts *ret, struct err *err)
{
	(void)g;
	(void)opts;
	(void)site;
	(void)err;
	vm.n_changed++;
	*ret = (struct tracing_counts){ .n_armed = n };
	return 0;
}

bool tracing_stack_stats(struct guest *g, struct tracing_stacks *ret)
{
	(void)g;
	*ret = (struct tracing_stacks){ 0 };
	return true;
}

void tracing_unsettled(struct guest *g)
{
	(void)g;
	vm.unsettled = true;
}

void tracing_off(struct guest *g)
{
	(void)g;
	while (vm.before_off && fake_put(AGENT_REC_FUNCTION, TEXT, 7))
		vm.before_off--;
	vm.off = true;
}

/* symbols/ */

const struct ftrace_site *kernel_sites(const struct kernel *k)
{
	(void)k;
	return sites;
}

size_t kernel_site_count(const struct kernel *k)
{
	(void)k;
	return vm.epoch ? 2 : 1;
}

u32 kernel_version(const struct kernel *k)
{
	(void)k;
	return 6u << 16 | 1u << 8;
}

struct kernel *kernel_ref(struct kernel *k)
{
	return k;
}

void kernel_destroy(struct kernel *k)
{
	(void)k;
}

u32 kernel_epoch(const struct kernel *k)
{
	(void)k;
	return vm.epoch;
}

u32 kernel_generation(const struct kernel *k)
{
	(void)k;
	return 0;
}

bool kernel_stale(const struct kernel *k)
{
	(void)k;
	return vm.epoch != vm.next_epoch;
}

/* Each epoch's tables name what was there then. */
bool kernel_sym_then(const struct kernel *k, u64 addr, u32 epoch, struct kernel_sym *ret)
{
	(void)k;
	if (addr != TEXT && (addr != NEW || !epoch))
		return false;
	*ret = (struct kernel_sym){ .name = epoch ? "then" : "before", .addr = addr };
	return true;
}

int kernel_func_then(const struct kernel *k, u64 ip, u32 epoch, struct kernel_func *ret)
{
	(void)k;
	(void)ip;
	(void)epoch;
	(void)ret;
	return -ENOENT;
}

const char *kernel_val_enumerator(const struct kernel_val *v, s64 val)
{
	(void)v;
	(void)val;
	return NULL;
}

void kernel_names_lock(const struct kernel *k)
{
	(void)k;
}

void kernel_names_unlock(const struct kernel *k)
{
	(void)k;
}

/* clock.c: a TSC tick is so many ns */

static int make_clock(struct trace_clock *c, u32 ns_per_tick)
{
	*c = (struct trace_clock){ .n_cpus = 1, .cpus = calloc(1, sizeof(*c->cpus)) };
	assert_non_null(c->cpus);
	c->cpus->mul = ns_per_tick;
	return 0;
}

int trace_clock_init(const struct kernel *k, const struct sym_mem *mem, struct trace_clock *ret,
		     struct err *err)
{
	(void)k;
	(void)mem;
	(void)err;
	return make_clock(ret, vm.ns_per_tick);
}

int trace_clock_refresh(const struct kernel *k, const struct sym_mem *mem, struct trace_clock *c,
			struct err *err)
{
	trace_clock_deinit(c);
	return trace_clock_init(k, mem, c, err);
}

int trace_clock_copy(const struct trace_clock *from, struct trace_clock *to)
{
	trace_clock_deinit(to);
	return make_clock(to, from->cpus->mul);
}

void trace_clock_deinit(struct trace_clock *c)
{
	free(c->cpus);
	c->cpus = NULL;
}

u64 trace_clock_duration_ns(const struct trace_clock *c, u64 ticks)
{
	return ticks * c->cpus->mul;
}

u64 trace_clock_ticks(const struct trace_clock *c, u64 ns)
{
	return ns / c->cpus->mul;
}

u64 trace_clock_record_ns(struct trace_clock *c, u32 cpu, u64 tsc48)
{
	(void)cpu;
	return tsc48 * c->cpus->mul;
}

/* trace_sys.c: not of this tracer */

int trace_sys_create(struct trace *t, const struct trace_opts *opts, struct err *err)
{
	(void)t;
	(void)opts;
	(void)err;
	return -ENOTSUP;
}

void trace_sys_destroy(struct trace_sys *s)
{
	(void)s;
}

int trace_sys_choose(struct trace *t, struct choice *ret, struct tracing_opts *to, struct err *err)
{
	(void)t;
	(void)ret;
	(void)to;
	(void)err;
	return -ENOTSUP;
}

void trace_sys_take(struct trace *t, const struct trace_record *r)
{
	(void)t;
	(void)r;
}

void trace_sys_finish(struct trace *t)
{
	(void)t;
}

void trace_sys_counts(struct trace *t)
{
	(void)t;
}

int trace_sys_copy(const struct trace *from, struct trace *to, struct err *err)
{
	(void)from;
	(void)to;
	(void)err;
	return -ENOTSUP;
}

bool trace_sys_func(struct trace *t, u64 ip, struct kernel_func *ret)
{
	(void)t;
	(void)ip;
	(void)ret;
	return false;
}
