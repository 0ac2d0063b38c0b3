// SPDX-License-Identifier: Apache-2.0
/*
 * tracers/clock.c against a guest made by hand: a few symbols, types and bytes. The kernel_*()
 * functions here stand in for symbols/; the layout of structures differs from any real kernel's, so
 * that an offset that is not looked up shows.
 */
#include "tracers/clock.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define MEM_BASE  0xffffffff90000000
#define MEM_BYTES 0x4000
#define CPUS      3

/* where things lie; per-CPU areas are 0x400 apart */
#define NATIVE     (MEM_BASE + 0x10)
#define KVM_READ   (MEM_BASE + 0x20)
#define XEN_READ   (MEM_BASE + 0x30)
#define SCK        (MEM_BASE + 0x100)
#define USE_TSC    (MEM_BASE + 0x140)
#define KVM_OFFSET (MEM_BASE + 0x180)
#define CLOCK_TSC  (MEM_BASE + 0x200)
#define CLOCK_KVM  (MEM_BASE + 0x280)
#define CLOCK_HPET (MEM_BASE + 0x300)
#define TK_CORE    (MEM_BASE + 0x400)
#define TK_BYTES   0x40
#define PERCPU     (MEM_BASE + 0x1000)
#define PVTI       (MEM_BASE + 0x3000)

static u8 memory[MEM_BYTES];
static const char *missing; /* a symbol or type that this guest does not have */
static int torn_reads; /* so many reads of a version or sequence come out different */

static void poke(u64 addr, u64 v, size_t size)
{
	assert_in_range(addr - MEM_BASE, 0, MEM_BYTES - size);
	memcpy(memory + (addr - MEM_BASE), &v, size);
}

static int read_memory(void *arg, gva_t addr, void *buf, size_t len)
{
	u64 off = addr.v - MEM_BASE;

	(void)arg;
	if (off >= MEM_BYTES || len > MEM_BYTES - off)
		return -EFAULT;
	memcpy(buf, memory + off, len);
	if (torn_reads && off >= PVTI - MEM_BASE && len == 4) {
		torn_reads--;
		((u8 *)buf)[1] = (u8)(torn_reads + 1);
	}
	return 0;
}

static const struct sym_mem mem = { .read = read_memory };

static const struct {
	const char *name;
	u64 addr;
} symbols[] = {
	{ "native_sched_clock", NATIVE },
	{ "kvm_sched_clock_read", KVM_READ },
	{ "__SCK__pv_sched_clock", SCK },
	{ "__use_tsc", USE_TSC },
	{ "kvm_sched_clock_offset", KVM_OFFSET },
	{ "clocksource_tsc", CLOCK_TSC },
	{ "kvm_clock", CLOCK_KVM },
	{ "tk_core", TK_CORE },
	{ "timekeeper_data", TK_CORE - TK_BYTES },
};

static const struct {
	const char *type, *path;
	u32 off, size;
} members[] = {
	{ "static_call_key", "func", 8, 8 },
	{ "static_key", "enabled.counter", 4, 4 },
	{ "cyc2ns", "seq.seqcount.sequence", 0x60, 4 },
	{ "cyc2ns_data", "cyc2ns_mul", 12, 4 },
	{ "cyc2ns_data", "cyc2ns_shift", 16, 4 },
	{ "cyc2ns_data", "cyc2ns_offset", 24, 8 },
	{ "pvclock_vsyscall_time_info", "pvti", 16, 32 },
	{ "pvclock_vcpu_time_info", "version", 0, 4 },
	{ "pvclock_vcpu_time_info", "tsc_timestamp", 8, 8 },
	{ "pvclock_vcpu_time_info", "system_time", 16, 8 },
	{ "pvclock_vcpu_time_info", "tsc_to_system_mul", 24, 4 },
	{ "pvclock_vcpu_time_info", "tsc_shift", 28, 1 },
	{ "timekeeper", "tkr_mono.clock", 0, 8 },
	{ "timekeeper", "tkr_mono.cycle_last", 24, 8 },
	{ "timekeeper", "xtime_sec", 40, 8 },
	{ "timekeeper", "wall_to_monotonic.tv_sec", 48, 8 },
};

static bool several_timekeepers;

static bool is_missing(const char *name)
{
	return missing && !strcmp(missing, name);
}

int kernel_sym(const struct kernel *k, const char *name, u64 *addr_ret)
{
	(void)k;
	if (!strcmp(name, several_timekeepers ? "tk_core" : "timekeeper_data"))
		return -ENOENT;
	for (size_t i = 0; i < ARRAY_SIZE(symbols) && !is_missing(name); i++) {
		if (!strcmp(symbols[i].name, name)) {
			*addr_ret = symbols[i].addr;
			return 0;
		}
	}
	return -ENOENT;
}

static int find_member(const char *type, const char *path)
{
	for (size_t i = 0; i < ARRAY_SIZE(members) && !is_missing(path); i++) {
		if (!strcmp(members[i].type, type) && !strcmp(members[i].path, path))
			return (int)i;
	}
	return -1;
}

int kernel_btf_offset(const struct kernel *k, const char *type, const char *path, u32 *off_ret)
{
	int i = find_member(type, path);

	(void)k;
	if (i < 0)
		return -ENOENT;
	*off_ret = members[i].off;
	return 0;
}

int kernel_btf_member_size(const struct kernel *k, const char *type, const char *path,
			   u32 *size_ret)
{
	int i = find_member(type, path);

	(void)k;
	if (i < 0)
		return -ENOENT;
	*size_ret = members[i].size;
	return 0;
}

int kernel_btf_size(const struct kernel *k, const char *type, u32 *size_ret)
{
	(void)k;
	if (!strcmp(type, "cyc2ns_data"))
		*size_ret = 0x30;
	else if (!strcmp(type, "seqcount_raw_spinlock"))
		*size_ret = 4;
	else if (!strcmp(type, "tk_data") && several_timekeepers)
		*size_ret = TK_BYTES;
	else
		return -ENOENT;
	return 0;
}

int kernel_btf_enum(const struct kernel *k, const char *name, s64 *ret)
{
	(void)k;
	*ret = 1; /* 0 in the kernel, which shows less */
	return strcmp(name, "TIMEKEEPER_CORE") ? -ENOENT : 0;
}

int kernel_percpu(const struct kernel *k, const char *name, u32 cpu, u64 *addr_ret)
{
	(void)k;
	if (cpu >= CPUS || is_missing(name))
		return -ENOENT;
	if (!strcmp(name, "cyc2ns"))
		*addr_ret = PERCPU + cpu * 0x400;
	else if (!strcmp(name, "hv_clock_per_cpu"))
		*addr_ret = PERCPU + cpu * 0x400 + 0x200;
	else
		return -ENOENT;
	return 0;
}

u32 kernel_nr_cpu_ids(const struct kernel *k)
{
	(void)k;
	return CPUS;
}

static void set_cyc2ns(u32 cpu, u32 latch, u32 mul, u32 shift, u64 offset)
{
	u64 base = PERCPU + cpu * 0x400, data = base + (latch & 1) * 0x30;

	poke(base + 0x60, latch, 4);
	poke(data + 12, mul, 4);
	poke(data + 16, shift, 4);
	poke(data + 24, offset, 8);
}

static void set_pvti(u32 cpu, u32 version, u64 tsc, u64 ns, u32 mul_and_shift[2])
{
	u64 addr = PVTI + cpu * 0x40;

	poke(PERCPU + cpu * 0x400 + 0x200, addr, 8);
	addr += 16;
	poke(addr, version, 4);
	poke(addr + 8, tsc, 8);
	poke(addr + 16, ns, 8);
	poke(addr + 24, mul_and_shift[0], 4);
	poke(addr + 28, mul_and_shift[1] & 0xff, 1);
}

static void set_timekeeper(u64 clock, u64 cycle_last, u64 xtime_sec, s64 to_mono)
{
	poke(TK_CORE + 8, clock, 8);
	poke(TK_CORE + 8 + 24, cycle_last, 8);
	poke(TK_CORE + 8 + 40, xtime_sec, 8);
	poke(TK_CORE + 8 + 48, (u64)to_mono, 8);
}

/* 2.5 GHz: 0.4 ns a cycle; CPU 1's clock is 1 ms ahead, CPU 2 was never online. */
#define MUL_2500MHZ 429496729u /* 0.4 * 2^30 */

static void native_guest(void)
{
	memset(memory, 0, sizeof(memory));
	missing = NULL;
	torn_reads = 0;
	poke(SCK + 8, NATIVE, 8);
	poke(USE_TSC + 4, 1, 4);
	set_cyc2ns(0, 4, MUL_2500MHZ, 30, (u64)-5000000000);
	set_cyc2ns(0, 5, 1, 1, 1); /* the other copy is stale ... */
	set_cyc2ns(0, 4, MUL_2500MHZ, 30, (u64)-5000000000); /* ... since the latch says 4 */
	set_cyc2ns(1, 7, MUL_2500MHZ, 30, (u64)-4999000000);
	set_timekeeper(CLOCK_TSC, 0x12345678901234, 0, 0);
}

/* The kernel's own formula, in long double: good to 64 bits. */
static u64 expected_ns(u64 tsc, u64 mul, int shift)
{
	return (u64)((long double)tsc * (long double)mul / (long double)(1ull << shift));
}

static void native_clock(void **state)
{
	struct trace_clock c;
	u64 tsc = 0x12345678901234;

	(void)state;
	native_guest();
	assert_int_equal(trace_clock_init(NULL, &mem, &c, NULL), 0);
	assert_int_equal(c.kind, TRACE_CLOCK_TSC);
	assert_true(c.exact);
	assert_int_equal(c.n_cpus, CPUS);
	assert_int_equal(c.near_tsc, tsc);
	assert_int_equal(trace_clock_ns(&c, 0, tsc),
			 expected_ns(tsc, MUL_2500MHZ, 30) - 5000000000);
	assert_int_equal(trace_clock_ns(&c, 1, tsc), trace_clock_ns(&c, 0, tsc) + 1000000);
	assert_int_equal(trace_clock_ns(&c, 2, tsc), trace_clock_ns(&c, 0, tsc));
	assert_int_equal(trace_clock_ns(&c, 999, tsc), trace_clock_ns(&c, 0, tsc));
	/* a TSC so large that tsc * mul needs more than 64 bits, and back */
	tsc = 0x7edcba9876543210;
	assert_int_equal(trace_clock_ns(&c, 0, tsc),
			 expected_ns(tsc, MUL_2500MHZ, 30) - 5000000000);
	for (u64 ns = 1; ns < 1ull << 60; ns = ns * 7 + 3) {
		tsc = trace_clock_tsc(&c, 1, ns);
		assert_in_range(ns - trace_clock_ns(&c, 1, tsc), 0, 1);
	}
	for (u64 ticks = 0; ticks < 5000; ticks++) {
		assert_int_equal(trace_clock_duration_ns(&c, ticks),
				 expected_ns(ticks, MUL_2500MHZ, 30));
		assert_true(trace_clock_duration_ns(&c, ticks) <=
			    trace_clock_duration_ns(&c, ticks + 1));
	}
	assert_int_equal(trace_clock_ticks(&c, 0), 0);
	assert_int_equal(trace_clock_ticks(&c, UINT64_MAX), UINT64_MAX);
	for (u64 ns = 1; ns < 1ull << 50; ns = ns * 5 + 2) {
		u64 ticks = trace_clock_ticks(&c, ns);

		assert_true(trace_clock_duration_ns(&c, ticks) >= ns);
		assert_true(trace_clock_duration_ns(&c, ticks - 1) < ns);
	}
	trace_clock_deinit(&c);
}

static void kvm_clock(void **state)
{
	struct trace_clock c;
	u64 tsc0 = 1000000000000, last;

	(void)state;
	native_guest();
	poke(SCK + 8, KVM_READ, 8);
	poke(USE_TSC + 4, 0, 4); /* does not matter then */
	poke(KVM_OFFSET, 7000000000, 8);
	/* 2.5 GHz as KVM writes it: (delta >> 1) * 0xcccccccc >> 32 */
	set_pvti(0, 6, tsc0, 9000000000, (u32[]){ 0xcccccccc, (u32)-1 });
	set_pvti(1, 6, tsc0, 9000000500, (u32[]){ 0x66666666, 0 });
	last = 9000000000 + 3600 * NSEC_PER_SEC;
	set_timekeeper(CLOCK_KVM, last, 0, 0);
	assert_int_equal(trace_clock_init(NULL, &mem, &c, NULL), 0);
	assert_int_equal(c.kind, TRACE_CLOCK_KVM);
	assert_true(c.exact);
	assert_int_equal(trace_clock_ns(&c, 0, tsc0), 2000000000);
	assert_int_equal(trace_clock_ns(&c, 1, tsc0), 2000000500);
	assert_int_equal(trace_clock_ns(&c, 2, tsc0), 2000000000); /* no page: never online */
	assert_int_equal(trace_clock_ns(&c, 0, tsc0 + 2500), 2000000000 + 999);
	assert_int_equal(trace_clock_ns(&c, 0, tsc0 - 2500),
			 2000000000 - 999); /* before the page */
	/* kvm-clock as clocksource counts ns: an hour is 9e12 cycles, to the last digits of the scale */
	assert_in_range(c.near_tsc, tsc0 + 9000000000000 - 3000, tsc0 + 9000000000000 + 3000);
	trace_clock_deinit(&c);
}

static void other_clocksources_give_the_time_too(void **state)
{
	struct trace_clock c;

	(void)state;
	native_guest();
	set_timekeeper(CLOCK_HPET, 42, 1795962544, -(1795962544 - 86400)); /* up for a day */
	assert_int_equal(trace_clock_init(NULL, &mem, &c, NULL), 0);
	assert_in_range(trace_clock_ns(&c, 0, c.near_tsc), 86399 * NSEC_PER_SEC,
			86400 * NSEC_PER_SEC);
	trace_clock_deinit(&c);
}

/* since v6.17 */
static void one_of_several_timekeepers(void **state)
{
	struct trace_clock c;

	(void)state;
	native_guest();
	several_timekeepers = true;
	assert_int_equal(trace_clock_init(NULL, &mem, &c, NULL), 0);
	assert_int_equal(c.near_tsc, 0x12345678901234);
	trace_clock_deinit(&c);
	several_timekeepers = false;
}

static void foreign_sched_clock_is_not_exact(void **state)
{
	struct trace_clock c;

	(void)state;
	native_guest();
	poke(SCK + 8, XEN_READ, 8);
	assert_int_equal(trace_clock_init(NULL, &mem, &c, NULL), 0);
	assert_int_equal(c.kind, TRACE_CLOCK_TSC);
	assert_false(c.exact);
	trace_clock_deinit(&c);
	missing = "__SCK__pv_sched_clock"; /* built without CONFIG_PARAVIRT */
	assert_int_equal(trace_clock_init(NULL, &mem, &c, NULL), 0);
	assert_true(c.exact);
	trace_clock_deinit(&c);
}

static void expect_error(int rc, enum err_code code)
{
	struct trace_clock c;
	struct err err = { 0 };

	assert_int_equal(trace_clock_init(NULL, &mem, &c, &err), rc);
	assert_int_equal(err.code, code);
	assert_true(strlen(err.msg) > 10);
}

static void guests_that_lie_or_lack(void **state)
{
	(void)state;
	native_guest();
	poke(USE_TSC + 4, 0, 4);
	expect_error(-ENOTSUP, ERR_GUEST_UNSUPPORTED);
	native_guest();
	set_cyc2ns(0, 4, MUL_2500MHZ, 64, 0);
	expect_error(-EUCLEAN, ERR_GUEST_MEMORY);
	native_guest();
	set_cyc2ns(0, 4, 0, 30, 0);
	expect_error(-EUCLEAN, ERR_GUEST_MEMORY);
	native_guest();
	missing = "cyc2ns";
	expect_error(-ENOTSUP, ERR_GUEST_UNSUPPORTED);
	missing = "tk_core";
	expect_error(-ENOTSUP, ERR_GUEST_UNSUPPORTED);
	missing = "xtime_sec";
	expect_error(-ENOTSUP, ERR_GUEST_UNSUPPORTED);

	native_guest();
	poke(SCK + 8, KVM_READ, 8);
	expect_error(-EUCLEAN, ERR_GUEST_MEMORY); /* CPU 0 has no page */
	set_pvti(0, 5, 1, 1, (u32[]){ 1, 0 }); /* odd for ever */
	expect_error(-EUCLEAN, ERR_GUEST_MEMORY);
	set_pvti(0, 4, 1, 1, (u32[]){ 1, 90 });
	expect_error(-EUCLEAN, ERR_GUEST_MEMORY);
	poke(PERCPU + 0x200, 0x1234, 8); /* not mapped */
	expect_error(-EUCLEAN, ERR_GUEST_MEMORY);
}

static void torn_pages_are_read_again(void **state)
{
	struct trace_clock c;

	(void)state;
	native_guest();
	poke(SCK + 8, KVM_READ, 8);
	set_pvti(0, 6, 1000, 5000, (u32[]){ 0x80000000, 0 });
	torn_reads = 5;
	assert_int_equal(trace_clock_init(NULL, &mem, &c, NULL), 0);
	assert_int_equal(torn_reads, 0);
	assert_int_equal(trace_clock_ns(&c, 0, 1000 + 2000), 6000);
	trace_clock_deinit(&c);
}

static void refresh_keeps_what_it_has_on_failure(void **state)
{
	struct trace_clock c;
	u64 ns;

	(void)state;
	native_guest();
	assert_int_equal(trace_clock_init(NULL, &mem, &c, NULL), 0);
	ns = trace_clock_ns(&c, 0, 1000000);
	set_cyc2ns(0, 4, 0, 30, 0);
	assert_int_equal(trace_clock_refresh(NULL, &mem, &c, NULL), -EUCLEAN);
	assert_int_equal(trace_clock_ns(&c, 0, 1000000), ns);
	set_cyc2ns(0, 4, MUL_2500MHZ, 30, 0);
	assert_int_equal(trace_clock_refresh(NULL, &mem, &c, NULL), 0);
	assert_int_equal(trace_clock_ns(&c, 0, 1000000), ns + 5000000000);
	trace_clock_deinit(&c);
}

static void extends_to_the_nearest(void **state)
{
	const u64 p = 1ull << 48, m = p - 1;

	(void)state;
	assert_int_equal(trace_clock_extend(5, 5), 5);
	assert_int_equal(trace_clock_extend(5, 7 * p + 100), 7 * p + 5);
	assert_int_equal(trace_clock_extend(100, 7 * p + 5), 7 * p + 100);
	assert_int_equal(trace_clock_extend(5, 7 * p - 100), 7 * p + 5); /* wrapped since */
	assert_int_equal(trace_clock_extend(m - 5, 7 * p + 100), 7 * p - 6); /* or before */
	assert_int_equal(trace_clock_extend(m - 5, 100), m - 5); /* never below 0 */
	assert_int_equal(trace_clock_extend(p / 2 - 1, 3 * p), 3 * p + p / 2 - 1);
	assert_int_equal(trace_clock_extend(p / 2 + 1, 3 * p), 2 * p + p / 2 + 1);
}

static void records_carry_the_clock_along(void **state)
{
	const u64 m = (1ull << 48) - 1;
	struct trace_clock c;
	u64 tsc = 0x12345678901234;

	(void)state;
	native_guest();
	assert_int_equal(trace_clock_init(NULL, &mem, &c, NULL), 0);
	for (int i = 0; i < 100; i++) { /* 100 steps of a third of the period: 36 days */
		tsc += (1ull << 48) / 3;
		assert_int_equal(trace_clock_record_ns(&c, 0, tsc & m), trace_clock_ns(&c, 0, tsc));
	}
	trace_clock_deinit(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(native_clock),
		cmocka_unit_test(kvm_clock),
		cmocka_unit_test(other_clocksources_give_the_time_too),
		cmocka_unit_test(one_of_several_timekeepers),
		cmocka_unit_test(foreign_sched_clock_is_not_exact),
		cmocka_unit_test(guests_that_lie_or_lack),
		cmocka_unit_test(torn_pages_are_read_again),
		cmocka_unit_test(refresh_keeps_what_it_has_on_failure),
		cmocka_unit_test(extends_to_the_nearest),
		cmocka_unit_test(records_carry_the_clock_along),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
