// SPDX-License-Identifier: Apache-2.0
/* See test_machine_fake.h. */
#include "tests/unit/test_machine_fake.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct machine m;
struct fake_cpu cpu[VCPUS];
struct fake_did did;
static struct vcpu v[VCPUS];
static struct kvm_run pages[VCPUS];

int __wrap_ioctl(int fd, unsigned long what, void *arg);
static int run_vcpu(u32 i);

static int set_debug(u32 i, const struct kvm_guest_debug *g)
{
	assert_false(cpu[i].inside);
	did.shown |= 1u << m.debug.page->state;
	if (did.refuse == (int)i + 1 && g->control) {
		errno = EINVAL;
		return -1;
	}
	cpu[i].debug = *g;
	return 0;
}

int __wrap_ioctl(int fd, unsigned long what, void *arg)
{
	u32 i = (u32)(fd - FD(0));

	if (what == KVM_CHECK_EXTENSION) {
		assert_int_equal(fd, KVM_FD);
		return !did.no_debug;
	}
	assert_true(i < VCPUS);
	switch (what) {
	case KVM_RUN:
		return run_vcpu(i);
	case KVM_SET_GUEST_DEBUG:
		return set_debug(i, arg);
	case KVM_GET_REGS:
		memset(arg, 0, sizeof(struct kvm_regs));
		((struct kvm_regs *)arg)->rip = cpu[i].rip;
		return 0;
	case KVM_GET_DEBUGREGS:
		memset(arg, 0, sizeof(struct kvm_debugregs));
		((struct kvm_debugregs *)arg)->dr7 = cpu[i].dr7;
		return 0;
	case KVM_SET_DEBUGREGS:
		cpu[i].dr6_given = ((struct kvm_debugregs *)arg)->dr6;
		return 0;
	case KVM_GET_VCPU_EVENTS:
		memset(arg, 0, sizeof(struct kvm_vcpu_events));
		return 0;
	case KVM_SET_VCPU_EVENTS:
		assert_int_equal(((struct kvm_vcpu_events *)arg)->exception.nr, 1);
		cpu[i].injected += ((struct kvm_vcpu_events *)arg)->exception.injected;
		return 0;
	default:
		fail_msg("ioctl 0x%lx", what);
		return -1;
	}
}

static int exit_debug(u32 i, u64 dr6)
{
	v[i].run->exit_reason = KVM_EXIT_DEBUG;
	v[i].run->debug.arch.pc = cpu[i].rip;
	v[i].run->debug.arch.dr6 = dr6;
	return 0;
}

static u64 hit(u32 i)
{
	const struct kvm_guest_debug *g = &cpu[i].debug;

	for (u32 k = 0; k < 4 && (g->control & KVM_GUESTDBG_USE_HW_BP); k++) {
		if ((g->arch.debugreg[7] & 2ull << 2 * k) && g->arch.debugreg[k] == cpu[i].rip)
			return 1ull << k;
	}
	return 0;
}

static void next(u32 i)
{
	cpu[i].insns++; /* before who waits for it to be there sees it there */
	cpu[i].rip = BASE(i) + (cpu[i].rip - BASE(i) + 1) % ROUND;
}

/* An instruction. Return: KVM_RUN returns. */
static bool execute(u32 i)
{
	u64 dr6 = hit(i);

	if (dr6) {
		exit_debug(i, dr6);
		return true;
	}
	if (cpu[i].traps) { /* the guest's own flag */
		cpu[i].traps = false;
		exit_debug(i, 1 << 14);
		return true;
	}
	if (cpu[i].rip == BASE(i) + IO_AT) {
		while (cpu[i].slow_io &&
		       !__atomic_load_n(&m.vcpu[i].run->immediate_exit, __ATOMIC_SEQ_CST))
			usleep(50);
		cpu[i].io_done = true;
		v[i].run->exit_reason = KVM_EXIT_INTR; /* which is handled by going on */
		return true;
	}
	if (cpu[i].halts && cpu[i].rip == BASE(i) + HALT_AT)
		return false;
	next(i);
	if (cpu[i].debug.control & KVM_GUESTDBG_SINGLESTEP)
		exit_debug(i, 1 << 14);
	return cpu[i].debug.control & KVM_GUESTDBG_SINGLESTEP;
}

static int run_vcpu(u32 i)
{
	int rc = 0;

	if (cpu[i].io_done) {
		cpu[i].io_done = false;
		next(i);
	}
	cpu[i].inside = true;
	for (;;) {
		bool leave = __atomic_load_n(&v[i].run->immediate_exit, __ATOMIC_SEQ_CST) ||
			     usleep(50) < 0;

		if (leave && !cpu[i].stuck) {
			errno = EINTR;
			rc = -1;
			break;
		}
		if (execute(i))
			break;
	}
	cpu[i].inside = false;
	return rc;
}

/* What else the guest is made of. */

void __wrap_machine_tell(struct machine *machine, const char *fmt, ...);
void __wrap_machine_tell(struct machine *machine, const char *fmt, ...)
{
	va_list ap;

	(void)machine;
	va_start(ap, fmt);
	vsnprintf(did.text, sizeof(did.text), fmt, ap);
	va_end(ap);
	did.told++;
}

void __wrap_machine_end(struct machine *machine, int status, const char *fmt, ...);
void __wrap_machine_end(struct machine *machine, int status, const char *fmt, ...)
{
	(void)machine;
	(void)status;
	(void)fmt;
	did.ended++;
}

void __wrap_devices_reset(struct machine *machine);
void __wrap_devices_reset(struct machine *machine)
{
	(void)machine;
}

int __wrap_mem_restore(struct guest_mem *mem, const struct mem_copy *copy, struct err *err);
int __wrap_mem_restore(struct guest_mem *mem, const struct mem_copy *copy, struct err *err)
{
	(void)mem;
	(void)copy;
	(void)err;
	return 0;
}

int __wrap_spare_clear(struct guest_spare *spare, struct err *err);
int __wrap_spare_clear(struct guest_spare *spare, struct err *err)
{
	(void)spare;
	(void)err;
	return 0;
}

int __wrap_kvm_create_vm(struct machine *machine, struct err *err);
int __wrap_kvm_create_vm(struct machine *machine, struct err *err)
{
	(void)machine;
	(void)err;
	return 0;
}

/* New ones know of nothing. */
int __wrap_machine_add_vcpus(struct machine *machine, struct err *err);
int __wrap_machine_add_vcpus(struct machine *machine, struct err *err)
{
	(void)machine;
	(void)err;
	for (u32 i = 0; i < VCPUS; i++) {
		memset(&cpu[i], 0, sizeof(cpu[i]));
		memset(&pages[i], 0, sizeof(pages[i]));
		cpu[i].rip = BASE(i);
	}
	did.lives++;
	return 0;
}

void __wrap_vcpu_close(struct vcpu *c);
void __wrap_vcpu_close(struct vcpu *c)
{
	(void)c;
}

int fake_begin(void **state)
{
	struct err err = { 0 };

	(void)state;
	memset(&m, 0, sizeof(m));
	memset(&did, 0, sizeof(did));
	pthread_mutex_init(&m.go_lock, NULL);
	pthread_cond_init(&m.go, NULL);
	pthread_cond_init(&m.all_out, NULL);
	m.kvm = KVM_FD;
	m.vm = -1;
	m.life = 1;
	m.vcpu = v;
	m.n_vcpus = VCPUS;
	m.going = true;
	assert_int_equal(__wrap_machine_add_vcpus(&m, &err), 0);
	assert_int_equal(debug_init(&m, &err), 0);
	vcpu_catch_kicks();
	for (u32 i = 0; i < VCPUS; i++) {
		v[i] = (struct vcpu){ .m = &m, .id = i, .fd = FD(i), .run = &pages[i] };
		assert_int_equal(pthread_create(&v[i].thread, NULL, vcpu_thread, &v[i]), 0);
		v[i].started = true;
	}
	return 0;
}

int fake_end(void **state)
{
	(void)state;
	for (u32 i = 0; i < VCPUS; i++)
		cpu[i].stuck = false;
	life_stop(&m);
	debug_deinit(&m);
	return 0;
}
