// SPDX-License-Identifier: Apache-2.0
/*
 * The guest's trace clock. See clock.h.
 *
 * native_sched_clock() (Linux v6.1 arch/x86/kernel/tsc.c):
 *	ns = cyc2ns_offset + (tsc * cyc2ns_mul >> cyc2ns_shift)		128-bit product
 * kvm_sched_clock_read() (v6.1 arch/x86/kernel/kvmclock.c, arch/x86/include/asm/pvclock.h):
 *	ns = system_time + (((tsc - tsc_timestamp) << tsc_shift) * tsc_to_system_mul >> 32)
 *	     - kvm_sched_clock_offset
 * (Without PVCLOCK_TSC_STABLE_BIT the guest also never lets it go backwards between CPUs; a record's
 * time then is what its CPU's own page says.)
 */
#include "tracers/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define READ_TRIES \
	64 /* a torn read of a clock page is rare, a guest that always tears one is lying */
#define CPUS_MAX   8192 /* NR_CPUS_RANGE_END on x86-64, v6.12 arch/x86/Kconfig */
#define TSC48_BITS 48

struct clock_reader {
	const struct kernel *k;
	const struct sym_mem *mem;
	struct err *err;
};

static int bad_clock(const struct clock_reader *r, u64 addr, const char *what)
{
	return err_set(r->err, -EUCLEAN, ERR_GUEST_MEMORY, addr, "the guest's clock: %s", what);
}

static int read_guest(const struct clock_reader *r, u64 addr, void *buf, size_t len)
{
	if (r->mem->read(r->mem->arg, gva(addr), buf, len))
		return bad_clock(r, addr, "its tables are not mapped");
	return 0;
}

/* A member of at most 8 bytes at @addr + its offset. -ENOENT: no such type or member, no message. */
static int read_member(const struct clock_reader *r, u64 addr, const char *type, const char *path,
		       u64 *ret)
{
	u32 off, size;

	if (kernel_btf_offset(r->k, type, path, &off) ||
	    kernel_btf_member_size(r->k, type, path, &size))
		return -ENOENT;
	if (size > sizeof(*ret))
		return bad_clock(r, addr, "a member is larger than a word");
	*ret = 0;
	return read_guest(r, addr + off, ret, size);
}

static int need_member(const struct clock_reader *r, u64 addr, const char *type, const char *path,
		       u64 *ret)
{
	int rc = read_member(r, addr, type, path, ret);

	if (rc == -ENOENT)
		return err_set(r->err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0,
			       "the guest's types have no %s.%s", type, path);
	return rc;
}

/* 0: none, or not what the kernel's table says */
static u64 sym_or_0(const struct clock_reader *r, const char *name)
{
	u64 addr;

	return kernel_sym(r->k, name, &addr) ? 0 : addr;
}

/*
 * Which function is sched_clock()? A static call since v5.12, a member of pv_ops
 * before; without CONFIG_PARAVIRT it is native_sched_clock() itself.
 */
static int find_kind(const struct clock_reader *r, struct trace_clock *c)
{
	u64 key = sym_or_0(r, "__SCK__pv_sched_clock"), pv_ops = sym_or_0(r, "pv_ops");
	u64 native = sym_or_0(r, "native_sched_clock"), func = native;
	int rc = 0;

	if (key)
		rc = need_member(r, key, "static_call_key", "func", &func);
	else if (pv_ops)
		rc = read_member(r, pv_ops, "paravirt_patch_template", "time.sched_clock", &func);
	if (rc && rc != -ENOENT)
		return rc;
	c->kind = TRACE_CLOCK_TSC;
	c->exact = func == native;
	if (func && func == sym_or_0(r, "kvm_sched_clock_read")) {
		c->kind = TRACE_CLOCK_KVM;
		c->exact = true;
	}
	return 0;
}

/* native_sched_clock() counts jiffies until tsc_init() has found a usable TSC. */
static int check_use_tsc(const struct clock_reader *r)
{
	u64 key = sym_or_0(r, "__use_tsc"), enabled = 1;
	int rc;

	if (!key)
		return 0;
	rc = read_member(r, key, "static_key", "enabled.counter", &enabled);
	if (rc && rc != -ENOENT)
		return rc;
	if ((s32)enabled == 0)
		return err_set(r->err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, key,
			       "the guest does not use the TSC for its clock");
	return 0;
}

/* struct cyc2ns: two copies and a latch that says which one is whole (v6.1 tsc.c). */
static int read_cyc2ns(const struct clock_reader *r, u32 cpu, struct trace_clock_cpu *ret)
{
	const char *latch = "seq.seqcount.sequence"; /* a plain seqcount_t before v5.10 */
	u64 addr, seq, again, mul, shift, offset, data;
	u32 size;
	int rc;

	if (kernel_percpu(r->k, "cyc2ns", cpu, &addr) ||
	    kernel_btf_size(r->k, "cyc2ns_data", &size))
		return err_set(r->err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0,
			       "the guest has no cyc2ns for CPU %u", cpu);
	if (kernel_btf_offset(r->k, "cyc2ns", latch, &(u32){ 0 }))
		latch = "seq.sequence";
	for (int i = 0; i < READ_TRIES; i++) {
		rc = need_member(r, addr, "cyc2ns", latch, &seq);
		data = addr + (seq & 1) * size;
		if (!rc)
			rc = need_member(r, data, "cyc2ns_data", "cyc2ns_mul", &mul);
		if (!rc)
			rc = need_member(r, data, "cyc2ns_data", "cyc2ns_shift", &shift);
		if (!rc)
			rc = need_member(r, data, "cyc2ns_data", "cyc2ns_offset", &offset);
		if (!rc)
			rc = need_member(r, addr, "cyc2ns", latch, &again);
		if (rc)
			return rc;
		if (again != seq)
			continue;
		if (shift > 63 || mul > UINT32_MAX)
			return bad_clock(r, addr, "cyc2ns makes no sense");
		*ret = (struct trace_clock_cpu){ .base_ns = offset,
						 .mul = (u32)mul,
						 .down = (u32)shift };
		return 0;
	}
	return bad_clock(r, addr, "cyc2ns never holds still");
}

/*
 * struct pvclock_vcpu_time_info, which the host's KVM writes: odd while it does so. A CPU that has
 * never been online has no page (or a page of zeros): *ret stays 0.
 */
static int read_pvclock(const struct clock_reader *r, u32 cpu, struct trace_clock_cpu *ret)
{
	u64 addr, version, again, tsc, ns, mul, shift;
	u32 off;
	int rc;

	if (kernel_percpu(r->k, "hv_clock_per_cpu", cpu, &addr) ||
	    kernel_btf_offset(r->k, "pvclock_vsyscall_time_info", "pvti", &off))
		return err_set(r->err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0,
			       "the guest has no hv_clock_per_cpu for CPU %u", cpu);
	rc = read_guest(r, addr, &addr, sizeof(addr));
	if (rc || !addr)
		return rc;
	addr += off;
	for (int i = 0; i < READ_TRIES; i++) {
		const char *type = "pvclock_vcpu_time_info";

		rc = need_member(r, addr, type, "version", &version);
		if (!rc)
			rc = need_member(r, addr, type, "tsc_timestamp", &tsc);
		if (!rc)
			rc = need_member(r, addr, type, "system_time", &ns);
		if (!rc)
			rc = need_member(r, addr, type, "tsc_to_system_mul", &mul);
		if (!rc)
			rc = need_member(r, addr, type, "tsc_shift", &shift);
		if (!rc)
			rc = need_member(r, addr, type, "version", &again);
		if (rc)
			return rc;
		if ((version & 1) || again != version)
			continue;
		*ret = (struct trace_clock_cpu){ tsc, ns, (u32)mul, 32, (int8_t)shift };
		if (ret->up > 31 || ret->up < -31)
			return bad_clock(r, addr, "its pvclock page makes no sense");
		return 0;
	}
	return bad_clock(r, addr, "its pvclock page never holds still");
}

/* A CPU without numbers of its own (never online yet) counts as CPU 0. */
static int read_cpus(const struct clock_reader *r, struct trace_clock *c)
{
	u64 offset = 0, sym;
	int rc = 0;

	if (c->kind == TRACE_CLOCK_KVM) {
		sym = sym_or_0(r, "kvm_sched_clock_offset");
		if (!sym)
			return err_set(r->err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0,
				       "the guest has no kvm_sched_clock_offset");
		rc = read_guest(r, sym, &offset, sizeof(offset));
	}
	for (u32 cpu = 0; cpu < c->n_cpus && !rc; cpu++) {
		struct trace_clock_cpu *one = &c->cpus[cpu];

		if (c->kind == TRACE_CLOCK_KVM)
			rc = read_pvclock(r, cpu, one);
		else
			rc = read_cyc2ns(r, cpu, one);
		one->base_ns -= offset;
		if (!rc && !one->mul && !cpu)
			rc = bad_clock(r, 0, "CPU 0 has a scale of zero");
		if (!one->mul)
			*one = c->cpus[0];
	}
	return rc;
}

static u64 scaled(const struct trace_clock_cpu *p, u64 ticks)
{
	ticks = p->up < 0 ? ticks >> -p->up : ticks << p->up;
	return (u64)((unsigned __int128)ticks * p->mul >> p->down);
}

/* A record may be older than the page it is converted by: the difference has a sign. */
static u64 cpu_ns(const struct trace_clock_cpu *p, u64 tsc)
{
	bool before = (s64)(tsc - p->base_tsc) < 0;
	u64 ns = scaled(p, before ? p->base_tsc - tsc : tsc - p->base_tsc);

	return before ? p->base_ns - ns : p->base_ns + ns;
}

static u64 cpu_tsc(const struct trace_clock_cpu *p, u64 ns)
{
	u64 diff = ns - p->base_ns, delta;

	if ((s64)diff < 0 || !p->mul) /* before the base: as good as at it */
		return p->base_tsc;
	delta = (u64)(((unsigned __int128)diff << p->down) / p->mul);
	return p->base_tsc + (p->up < 0 ? delta << -p->up : delta >> p->up);
}

/* tk_core; since v6.17 (kernel/time/timekeeping.c) that is a name in the source alone, for one of several. 0: none */
static u64 timekeeper(const struct clock_reader *r)
{
	u64 all = sym_or_0(r, "timekeeper_data");
	s64 core;
	u32 size;

	if (!all || kernel_btf_enum(r->k, "TIMEKEEPER_CORE", &core) || core < 0 || core > 255 ||
	    kernel_btf_size(r->k, "tk_data", &size))
		return sym_or_0(r, "tk_core");
	return all + (u64)core * size;
}

/*
 * A full TSC of about now, since records carry 48 bits of it (26 hours at 3 GHz). The timekeeper
 * knows: it notes its clocksource's value at every tick. For a clocksource that has nothing to do
 * with the TSC its CLOCK_MONOTONIC, in seconds, put through the inverse of sched_clock() is good to
 * some minutes even after years: half of 26 hours are needed.
 */
static int estimate_now(const struct clock_reader *r, struct trace_clock *c)
{
	u64 tk = timekeeper(r), clock = 0, last = 0, secs = 0, to_mono = 0;
	struct trace_clock_cpu pv = { 0 };
	u32 off;
	int rc;

	if (!tk)
		return err_set(r->err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0,
			       "the guest has no tk_core");
	/* struct tk_data since v6.13; before, an anonymous struct: a 4-byte seqcount and the timekeeper */
	if (kernel_btf_offset(r->k, "tk_data", "timekeeper", &off)) {
		if (kernel_btf_size(r->k, "seqcount_raw_spinlock", &off))
			off = 4;
		off = (off + 7) & ~7u;
	}
	tk += off;
	rc = need_member(r, tk, "timekeeper", "tkr_mono.clock", &clock);
	if (!rc)
		rc = need_member(r, tk, "timekeeper", "tkr_mono.cycle_last", &last);
	if (!rc)
		rc = need_member(r, tk, "timekeeper", "xtime_sec", &secs);
	if (!rc)
		rc = need_member(r, tk, "timekeeper", "wall_to_monotonic.tv_sec", &to_mono);
	if (rc)
		return rc;
	if (clock && (clock == sym_or_0(r, "clocksource_tsc") ||
		      clock == sym_or_0(r, "clocksource_tsc_early"))) {
		c->near_tsc = last;
		return 0;
	}
	if (clock && clock == sym_or_0(r, "kvm_clock")) {
		rc = read_pvclock(r, 0, &pv); /* kvm-clock's cycles are its ns */
		if (!rc && pv.mul)
			c->near_tsc = cpu_tsc(&pv, last);
		return rc;
	}
	c->near_tsc = cpu_tsc(&c->cpus[0], (secs + to_mono) * NSEC_PER_SEC);
	return 0;
}

int trace_clock_init(const struct kernel *k, const struct sym_mem *mem, struct trace_clock *ret,
		     struct err *err)
{
	const struct clock_reader r = { k, mem, err };
	struct trace_clock c = { .n_cpus = kernel_nr_cpu_ids(k) };
	int rc;

	if (!c.n_cpus || c.n_cpus > CPUS_MAX)
		return bad_clock(&r, 0, "no sensible number of CPUs");
	c.cpus = calloc(c.n_cpus, sizeof(*c.cpus));
	if (!c.cpus)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for the guest's clock");
	rc = find_kind(&r, &c);
	if (!rc && c.kind == TRACE_CLOCK_TSC)
		rc = check_use_tsc(&r);
	if (!rc)
		rc = read_cpus(&r, &c);
	if (!rc)
		rc = estimate_now(&r, &c);
	if (rc) {
		trace_clock_deinit(&c);
		return rc;
	}
	*ret = c;
	return 0;
}

int trace_clock_refresh(const struct kernel *k, const struct sym_mem *mem, struct trace_clock *c,
			struct err *err)
{
	struct trace_clock fresh;
	int rc = trace_clock_init(k, mem, &fresh, err);

	if (rc)
		return rc;
	trace_clock_deinit(c);
	*c = fresh;
	return 0;
}

int trace_clock_copy(const struct trace_clock *from, struct trace_clock *to)
{
	struct trace_clock copy = *from;

	copy.cpus = calloc(MAX(from->n_cpus, 1u), sizeof(*copy.cpus));
	if (!copy.cpus)
		return -ENOMEM;
	memcpy(copy.cpus, from->cpus, from->n_cpus * sizeof(*copy.cpus));
	trace_clock_deinit(to);
	*to = copy;
	return 0;
}

void trace_clock_deinit(struct trace_clock *c)
{
	free(c->cpus);
	c->cpus = NULL;
	c->n_cpus = 0;
}

static const struct trace_clock_cpu *clock_cpu(const struct trace_clock *c, u32 cpu)
{
	return &c->cpus[cpu < c->n_cpus ? cpu : 0];
}

u64 trace_clock_ns(const struct trace_clock *c, u32 cpu, u64 tsc)
{
	return cpu_ns(clock_cpu(c, cpu), tsc);
}

u64 trace_clock_duration_ns(const struct trace_clock *c, u64 ticks)
{
	return scaled(&c->cpus[0], ticks);
}

u64 trace_clock_ticks(const struct trace_clock *c, u64 ns)
{
	u64 low = 0, high = 1ull << 60;

	if (trace_clock_duration_ns(c, high) < ns)
		return UINT64_MAX;
	while (low < high) {
		u64 mid = low + (high - low) / 2;

		if (trace_clock_duration_ns(c, mid) < ns)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

u64 trace_clock_tsc(const struct trace_clock *c, u32 cpu, u64 ns)
{
	return cpu_tsc(clock_cpu(c, cpu), ns);
}

u64 trace_clock_extend(u64 tsc48, u64 near)
{
	const u64 period = 1ull << TSC48_BITS;
	/* how far from @near, as a signed 48-bit number */
	s64 diff = (s64)((tsc48 - near) << (64 - TSC48_BITS)) >> (64 - TSC48_BITS);
	u64 tsc = near + (u64)diff;

	if (diff < 0 && tsc > near) /* the TSC does not go below 0 */
		tsc += period;
	return tsc;
}

u64 trace_clock_record_ns(struct trace_clock *c, u32 cpu, u64 tsc48)
{
	u64 tsc = trace_clock_extend(tsc48, c->near_tsc);

	c->near_tsc = tsc;
	return trace_clock_ns(c, cpu, tsc);
}
